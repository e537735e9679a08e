"""The informer against faults: whatever the watch does, the store ends up equal to the cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from controller.clock import SystemClock
from controller.errors import GoneError, MalformedRequestError, SchedulerError, UnavailableError
from controller.kube.informer import Informer
from controller.kube.resources import CLAIMS, Resource
from controller.kube.store import Change, Store
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.waiting import wait_until


def size_of(raw: Mapping[str, Any]) -> int:
    if not isinstance(raw.get("size"), int):
        raise MalformedRequestError("size", "is not a number")
    return int(raw["size"])


def put(server: FakeApiServer, name: str, size: object) -> None:
    body = {"metadata": {"name": name, "namespace": "ns"}, "size": size}
    if (CLAIMS.path(), "ns", name) in server.objects:
        server.replace(CLAIMS, "ns", name, body)
    else:
        server.create(CLAIMS, "ns", body)


class Follower:
    def __init__(self, server: FakeApiServer) -> None:
        self.store: Store[int] = Store("claim", size_of)
        self.changes: list[Change[int]] = []
        self.store.subscribe(self.note)
        self.failures: list[BaseException] = []
        self.informer = Informer(
            server, CLAIMS, self.store, SystemClock(), on_failure=lambda _, error: self.failures.append(error)
        )

    def note(self, changes: Sequence[Change[int]]) -> None:
        self.changes.extend(changes)

    def wait_for(self, **sizes: int) -> None:
        wait_until(lambda: self.store.items() == {f"ns/{name}": size for name, size in sizes.items()})


@contextmanager
def following(server: FakeApiServer) -> Iterator[Follower]:
    follower = Follower(server)
    follower.informer.start()
    try:
        yield follower
    finally:
        follower.informer.stop()


def test_it_lists_in_pages_then_watches() -> None:
    server = FakeApiServer()
    server.page_size = 2
    for index in range(5):
        put(server, f"c{index}", index)

    with following(server) as follower:
        follower.wait_for(c0=0, c1=1, c2=2, c3=3, c4=4)
        put(server, "c5", 5)
        server.delete(CLAIMS, "ns", "c0")
        follower.wait_for(c1=1, c2=2, c3=3, c4=4, c5=5)

    assert follower.store.synced.is_set()
    assert [("ns/c5", None, 5), ("ns/c0", 0, None)] == [(c.key, c.old, c.new) for c in follower.changes[5:]]


@pytest.mark.parametrize(
    "fault",
    [
        b'{"type": "ADDED", "object": {"met',
        b'{"type": "ERROR", "object": {"code": 410, "message": "too old"}}',
        b'{"type": "ERROR", "object": {"code": 500, "message": "etcd"}}',
        b'{"type": "ADDED", "object": null}',
        b"[]",
        UnavailableError("watch: reset"),
        GoneError("410"),
    ],
)
def test_a_broken_watch_loses_nothing(fault: bytes | SchedulerError) -> None:
    server = FakeApiServer()
    put(server, "a", 1)
    with following(server) as follower:
        follower.wait_for(a=1)
        server.break_watches(lambda: fault)
        put(server, "b", 2)
        server.delete(CLAIMS, "ns", "a")
        follower.wait_for(b=2)


def test_a_watch_that_is_too_old_is_listed_anew() -> None:
    server = FakeApiServer()
    put(server, "a", 1)
    with following(server) as follower:
        follower.wait_for(a=1)
        server.delete(CLAIMS, "ns", "a")
        put(server, "b", 2)
        server.oldest = server.version
        server.log.clear()
        server.break_watches(lambda: UnavailableError("reset"))
        follower.wait_for(b=2)


@pytest.mark.parametrize("verb", ["list", "watch"])
def test_a_server_that_fails_for_a_while_is_tried_again(verb: str) -> None:
    server = FakeApiServer()
    put(server, "a", 1)
    left = [3]

    def fail(called: str, _: Resource) -> None:
        if called == verb and left[0]:
            left[0] -= 1
            raise UnavailableError("503")

    server.fail = fail
    with following(server) as follower:
        follower.wait_for(a=1)
        put(server, "b", 2)
        follower.wait_for(a=1, b=2)


def test_a_kind_that_does_not_exist_is_known_to_be_empty() -> None:
    server = FakeApiServer()
    server.absent.add("persistentvolumeclaims")
    with following(server) as follower:
        wait_until(follower.store.synced.is_set)
        assert 0 == len(follower.store)
        assert follower.informer.catch_up(1.0)


def test_one_bad_object_does_not_keep_the_others_out() -> None:
    server = FakeApiServer()
    put(server, "bad", "x")
    put(server, "good", 1)
    with following(server) as follower:
        follower.wait_for(good=1)
        assert {"ns/bad": "size: is not a number"} == follower.store.bad
        put(server, "bad", 2)
        follower.wait_for(good=1, bad=2)
        assert {} == follower.store.bad


def test_a_subscriber_that_fails_is_reported_and_sees_the_change_again() -> None:
    server = FakeApiServer()
    follower = Follower(server)
    seen: list[str] = []

    def once_broken(changes: Sequence[Change[int]]) -> None:
        seen.extend(change.key for change in changes)
        if len(seen) == 1:
            raise ValueError("broken")

    follower.store.subscribe(once_broken)
    put(server, "a", 1)
    follower.informer.start()
    try:
        wait_until(lambda: bool(follower.failures))
        put(server, "a", 2)
        follower.wait_for(a=2)
    finally:
        follower.informer.stop()
    assert isinstance(follower.failures[0], ValueError)


def test_catching_up_proves_that_an_idle_store_has_seen_everything() -> None:
    server = FakeApiServer()
    put(server, "a", 1)
    with following(server) as follower:
        follower.wait_for(a=1)
        server.version += 500  # other kinds were written meanwhile

        assert follower.informer.catch_up(5.0)


def test_catching_up_fails_when_the_server_does_not_answer() -> None:
    server = FakeApiServer()
    with following(server) as follower:
        wait_until(follower.store.synced.is_set)

        def fail(_verb: str, _resource: Resource) -> None:
            raise UnavailableError("no connection")

        server.fail = fail
        assert not follower.informer.catch_up(0.2)


def test_an_idle_watch_is_ended_at_once_by_stop() -> None:
    server = FakeApiServer()
    with following(server) as follower:
        wait_until(follower.store.synced.is_set)
    assert not follower.informer._thread or not follower.informer._thread.is_alive()


def test_age_tells_when_the_store_was_last_known_to_be_current() -> None:
    server = FakeApiServer()
    follower = Follower(server)
    assert float("inf") == follower.informer.age()
    follower.informer.start()
    try:
        wait_until(follower.store.synced.is_set)
        assert follower.informer.age() < 10
    finally:
        follower.informer.stop()
