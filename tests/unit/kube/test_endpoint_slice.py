"""The Service points at the leader, and only its own endpoint is ever taken away."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from controller.errors import ConflictError, NotLeaderError, UnavailableError
from controller.kube.endpoint_slice import EndpointSlices
from controller.kube.resources import ENDPOINT_SLICES, Resource
from tests.fakes.apiserver import FakeApiServer


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


def test_clearing_that_fails_again_and_again_is_told(server: FakeApiServer, slices: EndpointSlices) -> None:
    server.fail_with(UnavailableError("connection reset"), "get")
    with pytest.raises(UnavailableError, match="connection reset"):
        slices.clear("svc", "10.0.0.5")


def test_an_address_of_the_other_family_gets_a_new_slice(server: FakeApiServer, slices: EndpointSlices) -> None:
    slices.point_at("svc", "10.0.0.5", {"http": 9504})
    slices.point_at("svc", "fd00::5", {"http": 9504})
    assert ["fd00::5"] == addresses(server)
    assert "IPv6" == server.get(ENDPOINT_SLICES, "lh", "svc")["addressType"]
