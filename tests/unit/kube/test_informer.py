"""The informer against faults: whatever the watch does, the store ends up equal to the cluster."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest

from controller.clock import Clock, SystemClock
from controller.errors import GoneError, MalformedRequestError, NotFoundError, SchedulerError, UnavailableError
from controller.kube.informer import FEW, Informer
from controller.kube.resources import CLAIMS, Resource
from controller.kube.store import Change, Store
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.clock import VirtualClock
from tests.waiting import wait_until


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


def put_unseen(server: FakeApiServer, name: str, size: int) -> None:
    """Written by somebody who reaches the server, while we do not."""
    fail = server.fail
    server.work()
    put(server, name, size)
    server.fail = fail


class FollowedClaims:
    def __init__(self, server: FakeApiServer, clock: Clock | None = None, backoff_seconds: float = 0.01) -> None:
        self.server = server
        self.store: Store[int] = Store("claim", size_of)
        self.changes: list[Change[int]] = []
        self.store.subscribe(self.changes.extend)
        self.informer = Informer(server, CLAIMS, self.store, clock or SystemClock(), backoff_seconds=backoff_seconds)

    @contextmanager
    def running(self, **sizes: int) -> Iterator[FollowedClaims]:
        """It has seen these claims, which are made first."""
        for name, size in sizes.items():
            put(self.server, name, size)
        self.informer.start()
        try:
            wait_until(self.store.synced.is_set)
            self.wait_for(**sizes)
            yield self
        finally:
            self.informer.stop()

    def wait_for(self, **sizes: int) -> None:
        wait_until(lambda: self.store.items() == {f"ns/{name}": size for name, size in sizes.items()})


def following(server: FakeApiServer, **sizes: int) -> AbstractContextManager[FollowedClaims]:
    return FollowedClaims(server).running(**sizes)


def test_of_one_object_it_follows_that_alone(server: FakeApiServer) -> None:
    store: Store[int] = Store("claim", size_of)
    informer = Informer(server, CLAIMS, store, SystemClock(), namespace="ns", name="ours")
    put(server, "ours", 1)
    put(server, "theirs", 1)
    informer.start()
    try:
        wait_until(lambda: store.items() == {"ns/ours": 1})
        put(server, "theirs", 2)
        put(server, "ours", 2)
        wait_until(lambda: store.items() == {"ns/ours": 2})
        assert informer.catch_up(5.0)
        server.delete(CLAIMS, "ns", "ours")
        wait_until(lambda: store.items() == {})
    finally:
        informer.stop()


def test_it_lists_in_pages_then_watches(server: FakeApiServer) -> None:
    server.page_size = 2
    with following(server, c0=0, c1=1, c2=2, c3=3, c4=4) as follower:
        put(server, "c5", 5)
        server.delete(CLAIMS, "ns", "c0")
        follower.wait_for(c1=1, c2=2, c3=3, c4=4, c5=5)
    assert [("ns/c5", None, 5), ("ns/c0", 0, None)] == [(c.key, c.old, c.new) for c in follower.changes[5:]]


@pytest.mark.parametrize(
    "fault",
    [
        b'{"type": "ADDED", "object": {"met',
        b'{"type": "ERROR", "object": {"code": 410, "message": "too old"}}',
        b'{"type": "ERROR", "object": {"code": 500, "message": "etcd"}}',
        b'{"type": "ADDED", "object": null}',
        b'{"type": "ADDED", "object": {"metadata": "none"}}',
        b'{"type": "DELETED", "object": {"metadata": {}}}',
        b'{"type": "GREETED", "object": {"metadata": {"name": "b", "namespace": "ns"}}}',
        b'{"type": ["ERROR"], "object": {}}',
        b'{"type": "ERROR", "object": {"code": "410", "message": ["too old"]}}',
        b'{"type": "ADDED", "object": %s1%s}' % (b"[" * 9_000, b"]" * 9_000),
        b"\xff",
        b"[]",
        UnavailableError("watch: reset"),
        GoneError("410"),
    ],
)
def test_a_broken_watch_loses_nothing(server: FakeApiServer, fault: bytes | SchedulerError) -> None:
    with following(server, a=1) as follower:
        server.break_watches(lambda: fault)
        put(server, "b", 2)
        server.delete(CLAIMS, "ns", "a")
        follower.wait_for(b=2)


SIZE = b'"size":0'
DAMAGES: Sequence[Callable[[bytes, random.Random], bytes]] = (
    lambda line, chance: line[: chance.randrange(len(line))],
    lambda line, chance: line.replace(b"odd", chance.choice((b"\xff", b"\xc3(", b"\xed\xa0\x80")), 1),
    lambda line, chance: line.replace(b"odd", chance.choice((b"\\ud800", b"\\udc00", b"\x01", b'"')), 1),
    lambda line, _: line.replace(SIZE, SIZE[:-1] + b"9" * 5_000),
    lambda line, chance: line.replace(SIZE, SIZE[:-1] + chance.choice((b"NaN", b"1e999", b"null", b"[0]", b'"0"'))),
    lambda line, _: line.replace(SIZE, SIZE[:-1] + b"[" * 2_000 + b"]" * 2_000),
    lambda line, _: line.replace(b'"metadata"', b'"metabolism"'),
)


@pytest.mark.parametrize("seed", range(10))
def test_damaged_lines_between_good_ones_keep_no_good_object_out(server: FakeApiServer, seed: int) -> None:
    chance = random.Random(seed)

    def garble(line: bytes) -> bytes:
        return chance.choice(DAMAGES)(line, chance) if b"odd" in line else line

    server.garble = garble
    with following(server) as follower:
        for number in range(40):
            put(server, f"good-{number}", number + 1)
            put(server, f"odd-{number}", 0)
        put(server, "good-0", 2)
        server.delete(CLAIMS, "ns", "good-1")
        expected = {"ns/good-0": 2} | {f"ns/good-{number}": number + 1 for number in range(2, 40)}
        wait_until(
            lambda: {key: size for key, size in follower.store.items().items() if "good" in key} == expected, timeout=20
        )
        assert 0 == follower.informer.worker.state().failures  # none was a fault of ours


@pytest.mark.parametrize(
    ("text", "read"),
    [
        (b"a\xffb", "a\ufffdb"),
        (b"\\ud83d\\ude00 \\ud83d \\\\ud83d", "\U0001f600 \ufffd \\ud83d"),
        (b"\xed\xa0\x80", "\ufffd" * 3),
    ],
)
def test_text_that_is_no_utf_8_is_read_as_kube_scheduler_and_longhorn_read_it(
    server: FakeApiServer, caplog: pytest.LogCaptureFixture, text: bytes, read: str
) -> None:
    store: Store[str] = Store("claim", lambda raw: str(raw["metadata"]["labels"]["x"]))
    informer = Informer(server, CLAIMS, store, SystemClock(), backoff_seconds=100)
    server.garble = lambda line: line.replace(b"TEXT", text)
    informer.start()
    try:
        wait_until(store.synced.is_set)
        server.create(CLAIMS, "ns", {"metadata": {"name": "a", "labels": {"x": "TEXT"}}})
        server.create(CLAIMS, "ns", {"metadata": {"name": "b", "labels": {"x": "plain"}}})
        wait_until(lambda: "ns/b" in store.items())
        assert {"ns/a": read, "ns/b": "plain"} == store.items()
        assert caplog.text.count("persistentvolumeclaims: is not plain JSON") == 1
    finally:
        informer.stop()


@pytest.mark.parametrize("verb", ["list", "watch"])
def test_a_server_that_fails_for_a_while_is_tried_again(server: FakeApiServer, verb: str) -> None:
    server.fail_with(UnavailableError("503"), verb, times=3)
    with following(server, a=1) as follower:
        put(server, "b", 2)
        follower.wait_for(a=1, b=2)


def test_a_kind_that_does_not_exist_is_empty_and_found_by_catching_up_later(server: FakeApiServer) -> None:
    server.absent.add("persistentvolumeclaims")
    with following(server) as follower:
        assert 0 == len(follower.store)
        assert follower.informer.catch_up(1.0)
        server.absent.clear()
        put(server, "a", 1)
        assert follower.informer.catch_up(5.0)  # less than the pause until the kind is looked for again
        assert {"ns/a": 1} == follower.store.items()


def test_a_kind_that_is_away_for_a_moment_is_not_empty(server: FakeApiServer, clock: VirtualClock) -> None:
    with FollowedClaims(server, clock).running(a=1) as follower:
        lists = threading.Semaphore(0)

        def fail(verb: str, _: Resource) -> None:
            if verb == "list":
                lists.release()

        server.fail = fail
        server.absent.add("persistentvolumeclaims")
        server.break_watches(lambda: NotFoundError("the server could not find the requested resource"))
        assert lists.acquire(timeout=5.0)
        follower.informer.worker.wake()  # the kind is looked for again at once
        assert lists.acquire(timeout=5.0)
        assert {"ns/a": 1} == follower.store.items()
        clock.advance(61)
        follower.informer.worker.wake()
        wait_until(lambda: not follower.store.items())
        server.absent.clear()
        assert follower.informer.catch_up(5.0)
        assert {"ns/a": 1} == follower.store.items()


def test_one_bad_object_does_not_keep_the_others_out(server: FakeApiServer) -> None:
    put(server, "bad", "x")
    with following(server, good=1) as follower:
        assert {"ns/bad": "size: is not a number"} == follower.store.bad
        put(server, "bad", 2)
        follower.wait_for(good=1, bad=2)
        assert {} == follower.store.bad


def test_a_subscriber_that_fails_is_reported_and_gets_its_changes_again(server: FakeApiServer) -> None:
    follower = FollowedClaims(server)
    got: list[tuple[str, int | None]] = []
    faults = [ValueError("broken")]

    def once_broken(changes: Sequence[Change[int]]) -> None:
        if any(change.key == "ns/b" for change in changes) and faults:
            raise faults.pop()
        got.extend((change.key, change.new) for change in changes)

    follower.store.subscribe(once_broken)
    with follower.running(a=1):
        put(server, "b", 2)
        wait_until(lambda: ("ns/b", 2) in got)

    assert [("ns/a", 1), ("ns/b", 2)] == got
    assert [("ns/a", 1), ("ns/b", 2)] == [(change.key, change.new) for change in follower.changes]
    assert "ValueError: broken" == follower.informer.worker.state().last_failure


def test_subscribers_after_one_that_fails_get_the_change_at_once() -> None:
    store: Store[int] = Store("claim", size_of)
    got: list[str] = []

    def broken(_: Sequence[Change[int]]) -> None:
        raise ValueError("broken")

    store.subscribe(broken)
    store.subscribe(lambda changes: got.extend(change.key for change in changes))

    with pytest.raises(ValueError, match="broken"):
        store.apply("ADDED", {"metadata": {"name": "a"}, "size": 1})

    assert ["a"] == got


def test_a_parser_that_fails_on_one_object_and_an_object_without_a_name_keep_only_themselves_out() -> None:
    def parse(raw: Mapping[str, Any]) -> int:
        if raw.get("is_deep"):
            raise RecursionError
        return int(raw["size"]["bytes"])

    store: Store[int] = Store("claim", parse)
    good = {"metadata": {"name": "good"}, "size": {"bytes": 1}}
    deep = {"metadata": {"name": "deep"}, "is_deep": True}
    store.replace([good, {"metadata": {"name": "odd"}, "size": None}, deep, {"metadata": {}}])
    assert {"good": 1} == store.items()
    assert {"odd", "deep", "(without a name)"} == store.bad.keys()

    for verb in ("MODIFIED", "DELETED"):
        store.apply(verb, {"metadata": None})
    store.apply("DELETED", deep)
    store.apply("MODIFIED", {"metadata": {"name": "odd"}, "size": {"bytes": 2}})

    assert {"good": 1, "odd": 2} == store.items()


def test_what_is_wrong_with_an_object_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    store: Store[int] = Store("claim", size_of)
    for size in ("x", "x", 1, "x"):
        store.apply("MODIFIED", {"metadata": {"name": "a"}, "size": size})
    assert 2 == caplog.text.count('bad object kind=claim key=a problem="size: is not a number"')


def test_a_bookmark_proves_that_a_late_store_is_current(server: FakeApiServer, clock: VirtualClock) -> None:
    with FollowedClaims(server, clock).running(a=1) as follower:
        server.fail_with(UnavailableError("429: too many requests"))
        clock.advance(61)
        server.break_watches(lambda: UnavailableError("reset"))
        wait_until(lambda: not follower.store.synced.is_set())
        put_unseen(server, "b", 2)
        server.work()
        wait_until(follower.store.synced.is_set)
        assert {"ns/a": 1, "ns/b": 2} == follower.store.items()
        assert 0 == follower.informer.age()


def test_a_backlog_does_not_prove_that_the_store_is_current(server: FakeApiServer, clock: VirtualClock) -> None:
    ages: list[float] = []

    def after_the_backlog() -> bytes:
        ages.append(follower.informer.age())
        return b'{"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "999"}}}'

    def behind() -> SchedulerError:
        put(server, "b", 2)
        server.cut = after_the_backlog
        return UnavailableError("reset")

    with FollowedClaims(server, clock).running(a=1) as follower:
        clock.advance(61)
        server.break_watches(behind)
        wait_until(lambda: follower.informer.resource_version == "999")
        follower.wait_for(a=1, b=2)
    assert [61] == ages


def test_without_bookmarks_a_doubtful_store_is_listed_anew(server: FakeApiServer, clock: VirtualClock) -> None:
    server.has_bookmarks = False
    calls: list[str] = []

    def note(verb: str, _: Resource) -> None:
        calls.append(verb)
        if verb == "watch":
            clock.advance(3)  # as long as a watch lasts that shall prove something

    server.fail = note
    with FollowedClaims(server, clock).running():
        wait_until(lambda: "watch" in calls)
        clock.advance(61)
        server.break_watches(lambda: UnavailableError("reset"))
        wait_until(lambda: calls.count("list") == 3)
    assert ["list", "watch", "list", "watch", "list"] == calls[:5]  # the second list is of one object


def test_an_idle_kind_is_proven_before_its_store_is_stale(server: FakeApiServer, clock: VirtualClock) -> None:
    with FollowedClaims(server, clock).running(a=1) as follower:
        clock.advance(31)
        server.break_watches(lambda: UnavailableError("the server's end of a watch, without a bookmark"))
        wait_until(lambda: follower.informer.age() == 0)
        assert follower.store.synced.is_set()


def test_the_age_counts_from_the_first_page_of_a_list(server: FakeApiServer, clock: VirtualClock) -> None:
    server.page_size = 1
    follower = FollowedClaims(server, clock)
    assert float("inf") == follower.informer.age()
    server.fail = lambda verb, _: clock.advance(5 if verb == "list" else 0)
    with follower.running(a=1, b=2):
        assert 10 == follower.informer.age()


def test_a_watch_that_is_refused_for_long_makes_way_for_a_list(server: FakeApiServer) -> None:
    lists: list[str] = []

    def fail(verb: str, _: Resource) -> None:
        if verb == "list":
            lists.append(verb)
        elif len(lists) < 2:
            raise UnavailableError("504: too large resource version")

    server.fail = fail
    with following(server) as follower:
        wait_until(lambda: len(lists) == 2)
        put_unseen(server, "a", 1)
        follower.wait_for(a=1)


def test_a_bookmark_alone_moves_the_position(server: FakeApiServer) -> None:
    with following(server) as follower:
        server.version += 500
        server.send_bookmark()
        wait_until(lambda: follower.informer.resource_version == str(server.version))


def test_watches_that_end_at_once_are_a_failure(server: FakeApiServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    server.ends_watches = True
    with following(server) as follower:
        wait_until(lambda: "watch: ended at once" in caplog.text)
        server.ends_watches = False
        put(server, "a", 1)
        follower.wait_for(a=1)


def test_a_position_that_is_gone_again_and_again_is_not_listed_in_a_hot_loop(server: FakeApiServer) -> None:
    calls: list[str] = []
    is_gone = threading.Event()
    is_gone.set()

    def fail(verb: str, _: Resource) -> None:
        calls.append(verb)
        if verb == "watch" and is_gone.is_set():
            raise GoneError("410")

    server.fail = fail
    with FollowedClaims(server, backoff_seconds=100).running() as follower:
        wait_until(lambda: calls.count("watch") == 2, timeout=4)  # a pause would last five seconds at least
        is_gone.clear()
        put_unseen(server, "a", 1)
        assert follower.informer.catch_up(10.0)  # ends the pause
    assert ["list", "watch", "list", "watch", "list"] == calls[:5]


def test_catching_up_proves_that_an_idle_store_has_seen_everything_or_fails(server: FakeApiServer) -> None:
    with following(server, a=1) as follower:
        server.version += 500  # other kinds were written meanwhile
        assert follower.informer.catch_up(5.0)
        server.fail_with(UnavailableError("no connection"))
        assert not follower.informer.catch_up(0.2)


@pytest.mark.parametrize(("count", "lists"), [(1, 2), (FEW, 2), (FEW + 1, 1)])
def test_few_objects_are_listed_to_catch_up_and_many_not(server: FakeApiServer, count: int, lists: int) -> None:
    calls: list[str] = []
    with following(server, **{f"c{number}": number for number in range(count)}) as follower:
        server.version += 500
        server.fail = lambda verb, _resource: calls.append(verb)
        assert follower.informer.catch_up(5.0)
        assert lists == calls.count("list")


def test_an_idle_watch_is_ended_at_once_by_stop(server: FakeApiServer) -> None:
    with following(server) as follower:
        pass
    assert not [thread for thread in threading.enumerate() if thread.name == follower.informer.worker.name]
