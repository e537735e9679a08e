"""The Service points at the leader, and only its own endpoint is ever taken away."""

from __future__ import annotations

from controller.errors import ConflictError
from controller.kube.endpoint_slice import EndpointSlices
from controller.kube.resources import ENDPOINT_SLICES, Resource
from tests.fakes.apiserver import FakeApiServer


def addresses(server: FakeApiServer) -> list[str]:
    raw = server.get(ENDPOINT_SLICES, "lh", "svc")
    return [address for endpoint in raw["endpoints"] for address in endpoint["addresses"]]


def somebody_writes_twice(server: FakeApiServer) -> None:
    """Each time just before the caller does."""
    left = [2]

    def fail(verb: str, _: Resource) -> None:
        if verb == "replace" and left[0]:
            left[0] -= 1
            raise ConflictError("changed meanwhile")

    server.fail = fail


def test_the_slice_names_its_service_and_this_pod() -> None:
    server = FakeApiServer()
    EndpointSlices(server, "lh").point_at("svc", "10.0.0.5", {"http": 9504}, node_name="n1", pod_name="p1")

    raw = server.get(ENDPOINT_SLICES, "lh", "svc")
    assert "svc" == raw["metadata"]["labels"]["kubernetes.io/service-name"]
    assert [{"name": "http", "port": 9504, "protocol": "TCP"}] == raw["ports"]
    assert [{"addresses": ["10.0.0.5"], "conditions": {"ready": True}, "nodeName": "n1",
             "targetRef": {"kind": "Pod", "namespace": "lh", "name": "p1"}}] == raw["endpoints"]  # fmt: skip


def test_a_new_leader_takes_the_slice_over_also_when_somebody_writes_meanwhile() -> None:
    server = FakeApiServer()
    EndpointSlices(server, "lh").point_at("svc", "10.0.0.5", {"http": 9504})
    somebody_writes_twice(server)
    EndpointSlices(server, "lh").point_at("svc", "10.0.0.6", {"http": 9504})

    assert ["10.0.0.6"] == addresses(server)


def test_clearing_leaves_a_new_leaders_endpoint_alone() -> None:
    server = FakeApiServer()
    slices = EndpointSlices(server, "lh")
    slices.clear("svc", "10.0.0.5")  # nothing there: nothing to do
    slices.point_at("svc", "10.0.0.6", {"http": 9504})
    slices.clear("svc", "10.0.0.5")
    assert ["10.0.0.6"] == addresses(server)

    slices.clear("svc", "10.0.0.6")

    assert [] == addresses(server)


def test_clearing_goes_on_when_somebody_writes_meanwhile() -> None:
    server = FakeApiServer()
    slices = EndpointSlices(server, "lh")
    slices.point_at("svc", "10.0.0.5", {"http": 9504})
    somebody_writes_twice(server)
    slices.clear("svc", "10.0.0.5")

    assert [] == addresses(server)


def test_an_address_of_the_other_family_gets_a_new_slice() -> None:
    server = FakeApiServer()
    slices = EndpointSlices(server, "lh")
    slices.point_at("svc", "10.0.0.5", {"http": 9504})

    slices.point_at("svc", "fd00::5", {"http": 9504})

    assert ["fd00::5"] == addresses(server)
    assert "IPv6" == server.get(ENDPOINT_SLICES, "lh", "svc")["addressType"]
