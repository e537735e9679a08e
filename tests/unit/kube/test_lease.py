"""The Lease as it stands in the API server: what is written, under which version, and what is left alone."""

from __future__ import annotations

import pytest

from controller.errors import ConflictError, UnavailableError
from controller.kube.lease import ABSENT, LeaseClient, LeaseRecord
from controller.kube.resources import LEASES, Resource
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.clock import VirtualClock

NAME = "lock"


class Party:
    """One process's way to the Lease."""

    def __init__(self, server: FakeApiServer, clock: VirtualClock, name: str) -> None:
        self.leases, self.name = LeaseClient(server, "lh", NAME, clock), name

    def write(self, *, transitions: int = 0, is_new_term: bool = False) -> LeaseRecord:
        return self.leases.write(self.name, 15, transitions, is_new_term=is_new_term, timeout=1)


@pytest.fixture
def server() -> FakeApiServer:
    return FakeApiServer()


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


def spec(server: FakeApiServer) -> dict[str, object]:
    found = server.get(LEASES, "lh", NAME)["spec"]
    assert isinstance(found, dict)
    return found


def test_a_lease_that_does_not_exist_is_created(server: FakeApiServer, clock: VirtualClock) -> None:
    a = Party(server, clock, "a")
    assert ABSENT == a.leases.read(1)

    written = a.write(is_new_term=True)

    assert ("a", 0, 15) == (written.holder, written.transitions, written.duration_seconds)
    assert {
        "holderIdentity": "a",
        "leaseDurationSeconds": 15,
        "leaseTransitions": 0,
        "acquireTime": "2026-01-01T00:00:00.000000Z",
        "renewTime": "2026-01-01T00:00:00.000000Z",
    } == spec(server)
    assert written == a.leases.read(1)


def test_a_renewal_moves_the_renew_time_alone(server: FakeApiServer, clock: VirtualClock) -> None:
    a = Party(server, clock, "a")
    a.leases.read(1)
    first = a.write(is_new_term=True)
    clock.advance(2.5)

    second = a.write()

    assert "2026-01-01T00:00:00.000000Z" == spec(server)["acquireTime"]
    assert "2026-01-01T00:00:02.500000Z" == spec(server)["renewTime"] == second.renewed_utc
    assert first.resource_version != second.resource_version


def test_whoever_wrote_on_an_older_version_is_refused(server: FakeApiServer, clock: VirtualClock) -> None:
    a, b = Party(server, clock, "a"), Party(server, clock, "b")
    a.leases.read(1)
    b.leases.read(1)
    a.write(is_new_term=True)
    with pytest.raises(ConflictError):
        b.write(is_new_term=True)  # it exists by now
    b.leases.read(1)
    a.write()
    with pytest.raises(ConflictError):
        b.write(transitions=1, is_new_term=True)

    assert "a" == b.leases.read(1).holder
    assert "b" == b.write(transitions=1, is_new_term=True).holder


def test_letting_go_empties_the_holder_and_keeps_the_count(server: FakeApiServer, clock: VirtualClock) -> None:
    a = Party(server, clock, "a")
    a.leases.read(1)
    a.write(transitions=4, is_new_term=True)

    a.leases.release("a", 1)

    assert ("", 1, 4) == tuple(
        spec(server)[key] for key in ("holderIdentity", "leaseDurationSeconds", "leaseTransitions")
    )


def test_letting_go_leaves_a_foreign_lease_alone(server: FakeApiServer, clock: VirtualClock) -> None:
    a, b = Party(server, clock, "a"), Party(server, clock, "b")
    b.leases.read(1)
    b.write(is_new_term=True)

    a.leases.release("a", 1)

    assert "b" == b.leases.read(1).holder


def test_a_lease_taken_while_we_let_go_is_left_alone(server: FakeApiServer, clock: VirtualClock) -> None:
    a, b = Party(server, clock, "a"), Party(server, clock, "b")
    a.leases.read(1)
    a.write(is_new_term=True)

    def fail(verb: str, _: Resource) -> None:
        if verb == "replace":
            server.fail = lambda _verb, _resource: None
            b.leases.read(1)
            b.write(transitions=1, is_new_term=True)

    server.fail = fail
    a.leases.release("a", 1)

    assert "b" == b.leases.read(1).holder


def test_an_unreachable_server_is_an_error_and_not_an_absent_lease(server: FakeApiServer, clock: VirtualClock) -> None:
    def fail(_verb: str, _resource: Resource) -> None:
        raise UnavailableError("no connection")

    server.fail = fail
    with pytest.raises(UnavailableError):
        Party(server, clock, "a").leases.read(1)


def test_fields_of_others_in_the_lease_stay(server: FakeApiServer, clock: VirtualClock) -> None:
    body = {"metadata": {"name": NAME, "labels": {"a": "b"}}, "spec": {"strategy": "OldestEmulationVersion"}}
    server.create(LEASES, "lh", body)
    a = Party(server, clock, "a")
    assert ("", 0, 0) == (a.leases.read(1).holder, a.leases.read(1).transitions, a.leases.read(1).duration_seconds)

    a.write(is_new_term=True)

    raw = server.get(LEASES, "lh", NAME)
    assert {"a": "b"} == raw["metadata"]["labels"]
    assert "OldestEmulationVersion" == raw["spec"]["strategy"]


@pytest.mark.parametrize("leaves_nothing", [True, False])
def test_letting_go_tells_whether_anything_is_left_behind_until_the_next_one_writes(
    server: FakeApiServer, clock: VirtualClock, leaves_nothing: bool
) -> None:
    a = LeaseClient(server, "lh", NAME, clock, lambda: leaves_nothing)
    a.read(1)
    a.write("a", 15, 0, is_new_term=True, timeout=1)
    assert not a.read(1).is_settled
    a.release("a", 1)
    assert leaves_nothing is a.read(1).is_settled

    a.write("b", 15, 1, is_new_term=True, timeout=1)

    assert not a.read(1).is_settled
