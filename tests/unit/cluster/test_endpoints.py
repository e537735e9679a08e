"""Which endpoints of a Service take new connections."""

from __future__ import annotations

from typing import Any

from tests.cluster.endpoints import EndpointTarget, targets, tcp_ports


def piece(*endpoints: tuple[str, dict[str, Any]], name: str | None = "http", port: int = 80) -> dict[str, Any]:
    return {
        "addressType": "IPv4",
        "endpoints": [{"addresses": [ip], "conditions": conditions} for ip, conditions in endpoints],
        "ports": [{"name": name, "port": port, "protocol": "TCP"}],
    }


READY, NOT_READY = {"ready": True}, {"ready": False, "serving": False}
TERMINATING = {"ready": False, "serving": True, "terminating": True}


def test_ready_endpoints_of_all_slices_count_once() -> None:
    slices = [piece(("10.0.0.2", READY), ("10.0.0.9", NOT_READY)), piece(("10.0.0.1", {}), ("10.0.0.2", READY))]
    assert targets(slices, "http") == [EndpointTarget("10.0.0.1", 80), EndpointTarget("10.0.0.2", 80)]


def test_an_endpoint_that_terminates_serves_only_while_no_other_is_ready() -> None:
    assert targets([piece(("10.0.0.1", TERMINATING), ("10.0.0.2", READY))], "http") == [EndpointTarget("10.0.0.2", 80)]
    assert targets([piece(("10.0.0.1", TERMINATING), ("10.0.0.2", NOT_READY))], "http") == [
        EndpointTarget("10.0.0.1", 80)
    ]


def test_ports_meet_by_name_and_other_address_types_do_not_count() -> None:
    assert targets([piece(("10.0.0.1", READY), name="grpc")], "http") == []
    assert targets([piece(("10.0.0.1", READY), name=None)], "") == [EndpointTarget("10.0.0.1", 80)]
    assert targets([{**piece(("fd00::1", READY)), "addressType": "IPv6"}], "http") == []
    assert targets([{"addressType": "IPv4", "endpoints": None, "ports": None}], "http") == []


def test_a_service_without_an_address_has_no_ports_to_listen_on() -> None:
    ports = [{"name": "http", "port": 80}, {"name": "dns", "port": 53, "protocol": "UDP"}]
    assert tcp_ports({"spec": {"clusterIP": "10.96.0.7", "ports": ports}}) == {"http": 80}
    assert tcp_ports({"spec": {"clusterIP": "None", "ports": ports}}) == {}
    assert tcp_ports({"spec": {"type": "ExternalName", "clusterIP": "10.96.0.7", "ports": ports}}) == {}
