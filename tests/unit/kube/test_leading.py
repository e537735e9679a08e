"""Who leads, as it stands in the API server: the Lease, what is written under which version and what is left alone; and
the Service that points at the leader, of which only one's own endpoint is ever taken away."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from controller.errors import ConflictError, NotLeaderError, UnavailableError
from controller.kube.endpoint_slice import EndpointSlices
from controller.kube.lease import ABSENT, LeaseClient, LeaseRecord
from controller.kube.resources import ENDPOINT_SLICES, LEASES, Resource
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
    a.write()
    raw = server.get(LEASES, "lh", NAME)
    assert {"a": "b"} == raw["metadata"]["labels"]
    assert "OldestEmulationVersion" == raw["spec"]["strategy"]
    assert "2026-01-01T00:00:00.000000Z" == raw["spec"]["acquireTime"]  # which it lacked


@pytest.mark.parametrize("leaves_nothing", [True, False])
def test_letting_go_tells_whether_anything_is_left_behind(a: Party, b: Party, leaves_nothing: bool) -> None:
    a.leaves_nothing = leaves_nothing
    a.write(is_new_term=True)
    assert not b.read().is_settled
    a.leases.release("a", 1)
    assert leaves_nothing is b.read().is_settled
    b.write(transitions=1, is_new_term=True)
    assert not b.read().is_settled


def test_what_an_earlier_term_of_that_number_left_behind_says_nothing(a: Party, b: Party) -> None:
    a.leaves_nothing = True
    a.write(transitions=5, is_new_term=True)
    a.leases.release("a", 1)
    b.read()
    b.write(transitions=6, is_new_term=True)  # and later the Lease is as it was, by a backup for example
    b.write(transitions=5, is_new_term=True)
    b.leases.release("b", 1)
    assert not a.read().is_settled


# The Service


def addresses(server: FakeApiServer) -> list[str]:
    raw = server.get(ENDPOINT_SLICES, "lh", "svc")
    return [address for endpoint in raw["endpoints"] for address in endpoint["addresses"]]


def slices_of(server: FakeApiServer, is_leading: Callable[[], bool] = lambda: True) -> EndpointSlices:
    return EndpointSlices(server, "lh", is_leading=is_leading)


@pytest.fixture
def slices(server: FakeApiServer) -> EndpointSlices:
    return slices_of(server)


MEANWHILE = ConflictError("somebody wrote just before")


def test_the_slice_names_its_service_and_this_pod(server: FakeApiServer, slices: EndpointSlices) -> None:
    slices.point_at("svc", "10.0.0.5", {"http": 9504}, node_name="n1", pod_name="p1")
    raw = server.get(ENDPOINT_SLICES, "lh", "svc")
    assert "svc" == raw["metadata"]["labels"]["kubernetes.io/service-name"]
    assert [{"name": "http", "port": 9504, "protocol": "TCP"}] == raw["ports"]
    assert [{"addresses": ["10.0.0.5"], "conditions": {"ready": True}, "nodeName": "n1",
             "targetRef": {"kind": "Pod", "namespace": "lh", "name": "p1"}}] == raw["endpoints"]  # fmt: skip


def test_a_slice_is_taken_over_and_cleared_though_others_write(server: FakeApiServer, slices: EndpointSlices) -> None:
    slices.point_at("svc", "10.0.0.5", {"http": 9504})
    server.fail_with(MEANWHILE, "replace", times=2)
    slices.point_at("svc", "10.0.0.6", {"http": 9504})
    assert ["10.0.0.6"] == addresses(server)
    server.fail_with(MEANWHILE, "replace", times=2)
    slices.clear("svc", "10.0.0.6")
    assert [] == addresses(server)


@pytest.mark.parametrize("mine", ["10.0.0.5", "fd00::5"])
def test_a_former_leader_whose_read_was_slow_leaves_the_service_to_its_successor(
    server: FakeApiServer, slices: EndpointSlices, mine: str
) -> None:
    leaders = ["old"]
    slices.point_at("svc", "10.0.0.4", {"http": 9504})

    def be_slow(verb: str, _: Resource) -> None:
        if verb == "get" and leaders == ["old"]:
            leaders.append("new")
            slices.point_at("svc", "10.0.0.6", {"http": 9504})

    server.fail = be_slow
    with pytest.raises(NotLeaderError, match="svc"):
        slices_of(server, lambda: leaders[-1] == "old").point_at("svc", mine, {"http": 9504})

    assert ["10.0.0.6"] == addresses(server)


def test_clearing_leaves_a_new_leaders_endpoint_alone(server: FakeApiServer, slices: EndpointSlices) -> None:
    slices.clear("svc", "10.0.0.5")  # nothing there: nothing to do
    slices.point_at("svc", "10.0.0.6", {"http": 9504})
    slices.clear("svc", "10.0.0.5")
    assert ["10.0.0.6"] == addresses(server)


@pytest.mark.parametrize("verb", ["get", "replace"])
def test_clearing_is_tried_again_when_a_call_fails(server: FakeApiServer, slices: EndpointSlices, verb: str) -> None:
    slices.point_at("svc", "10.0.0.5", {"http": 9504})
    server.fail_with(UnavailableError("connection reset"), verb, times=2)
    slices.clear("svc", "10.0.0.5")
    assert [] == addresses(server)


def test_what_fails_again_and_again_is_told(server: FakeApiServer, slices: EndpointSlices) -> None:
    slices.point_at("svc", "10.0.0.5", {"http": 9504})
    server.fail_with(MEANWHILE, "replace")
    with pytest.raises(ConflictError, match="just before"):
        slices.point_at("svc", "10.0.0.6", {"http": 9504})
    server.fail_with(UnavailableError("connection reset"), "get")
    with pytest.raises(UnavailableError, match="connection reset"):
        slices.clear("svc", "10.0.0.5")


def test_an_address_of_the_other_family_gets_a_new_slice(server: FakeApiServer, slices: EndpointSlices) -> None:
    slices.point_at("svc", "10.0.0.5", {"http": 9504})
    slices.point_at("svc", "fd00::5", {"http": 9504})
    assert ["fd00::5"] == addresses(server)
    assert "IPv6" == server.get(ENDPOINT_SLICES, "lh", "svc")["addressType"]
