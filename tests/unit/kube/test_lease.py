"""The Lease as it stands in the API server: what is written, under which version, and what is left alone."""

from __future__ import annotations

from typing import Any

import pytest

from controller.errors import ConflictError, UnavailableError
from controller.kube.lease import ABSENT, LeaseClient, LeaseRecord
from controller.kube.resources import LEASES, Resource
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.clock import VirtualClock

NAME = "lock"


class Party:
    """One process's way to the Lease, which it has read."""

    leaves_nothing = False

    def __init__(self, server: FakeApiServer, clock: VirtualClock, name: str) -> None:
        self.leases, self.name = LeaseClient(server, "lh", NAME, clock, lambda: self.leaves_nothing), name
        self.read()

    def read(self) -> LeaseRecord:
        return self.leases.read(1)

    def write(self, *, transitions: int = 0, is_new_term: bool = False) -> LeaseRecord:
        return self.leases.write(self.name, 15, transitions, is_new_term=is_new_term, timeout=1)


@pytest.fixture
def a(server: FakeApiServer, clock: VirtualClock) -> Party:
    return Party(server, clock, "a")


@pytest.fixture
def b(server: FakeApiServer, clock: VirtualClock) -> Party:
    return Party(server, clock, "b")


def spec(server: FakeApiServer) -> Any:
    return server.get(LEASES, "lh", NAME)["spec"]


def test_a_lease_that_does_not_exist_is_created(server: FakeApiServer, a: Party) -> None:
    assert ABSENT == a.read()

    written = a.write(is_new_term=True)

    assert ("a", 0, 15) == (written.holder, written.transitions, written.duration_seconds)
    assert {
        "holderIdentity": "a",
        "leaseDurationSeconds": 15,
        "leaseTransitions": 0,
        "acquireTime": "2026-01-01T00:00:00.000000Z",
        "renewTime": "2026-01-01T00:00:00.000000Z",
    } == spec(server)
    assert written == a.read()


def test_a_renewal_moves_the_renew_time_alone(server: FakeApiServer, clock: VirtualClock, a: Party) -> None:
    first = a.write(is_new_term=True)
    clock.advance(2.5)
    second = a.write()
    assert "2026-01-01T00:00:00.000000Z" == spec(server)["acquireTime"]
    assert "2026-01-01T00:00:02.500000Z" == spec(server)["renewTime"] == second.renewed_utc
    assert first.resource_version != second.resource_version


def test_whoever_wrote_on_an_older_version_is_refused(a: Party, b: Party) -> None:
    a.write(is_new_term=True)
    with pytest.raises(ConflictError):
        b.write(is_new_term=True)  # it exists by now
    b.read()
    a.write()
    with pytest.raises(ConflictError):
        b.write(transitions=1, is_new_term=True)
    assert "a" == b.read().holder
    assert "b" == b.write(transitions=1, is_new_term=True).holder


def test_letting_go_empties_the_holder_and_keeps_the_count(server: FakeApiServer, a: Party) -> None:
    a.write(transitions=4, is_new_term=True)
    a.leases.release("a", 1)
    found = spec(server)
    assert ("", 1, 4) == (found["holderIdentity"], found["leaseDurationSeconds"], found["leaseTransitions"])


def test_letting_go_leaves_a_lease_that_is_taken_just_then(server: FakeApiServer, a: Party, b: Party) -> None:
    a.write(is_new_term=True)

    def fail(verb: str, _: Resource) -> None:
        if verb == "replace":
            server.work()
            b.read()
            b.write(transitions=1, is_new_term=True)

    server.fail = fail
    for _ in range(2):
        a.leases.release("a", 1)
        assert "b" == b.read().holder


def test_an_unreachable_server_is_an_error_and_not_an_absent_lease(server: FakeApiServer, a: Party) -> None:
    server.fail_with(UnavailableError("no connection"))
    with pytest.raises(UnavailableError):
        a.read()


def test_fields_of_others_in_the_lease_stay(server: FakeApiServer, a: Party) -> None:
    body = {"metadata": {"name": NAME, "labels": {"a": "b"}}, "spec": {"strategy": "OldestEmulationVersion"}}
    server.create(LEASES, "lh", body)
    found = a.read()
    assert ("", 0, 0) == (found.holder, found.transitions, found.duration_seconds)
    a.write(is_new_term=True)
    raw = server.get(LEASES, "lh", NAME)
    assert {"a": "b"} == raw["metadata"]["labels"]
    assert "OldestEmulationVersion" == raw["spec"]["strategy"]


@pytest.mark.parametrize("leaves_nothing", [True, False])
def test_letting_go_tells_whether_anything_is_left_behind(a: Party, b: Party, leaves_nothing: bool) -> None:
    a.leaves_nothing = leaves_nothing
    a.write(is_new_term=True)
    assert not b.read().is_settled
    a.leases.release("a", 1)
    assert leaves_nothing is b.read().is_settled
    b.write(transitions=1, is_new_term=True)
    assert not b.read().is_settled
