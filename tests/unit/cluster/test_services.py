"""Which endpoints of a Service take new connections, and what DNS answers for it, byte by byte."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cluster.dns import answer
from tests.cluster.endpoints import EndpointTarget, targets, tcp_ports

# Endpoints


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


# DNS

A, AAAA = 1, 28
# What Go's resolver puts behind its question (EDNS).
OPTION = bytes.fromhex("00 0029 04d0 00000000 0000")
RECORD = bytes.fromhex("c00c 0001 0001 00000005 0004 7f400107")


def resolve(namespace: str, name: str) -> str | None:
    return {("longhorn-system", "extender"): "127.64.1.7"}.get((namespace, name))


def question(name: str, kind: int = A) -> bytes:
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    return struct.pack("!HHHHHH", 7, 0x0100, 1, 0, 0, 1) + labels + b"\0" + struct.pack("!HH", kind, 1)


@pytest.mark.parametrize(
    ("name", "kind", "code", "records"),
    [
        ("extender.longhorn-system.svc", A, 0, RECORD),
        ("extender.longhorn-system.svc.cluster.local", A, 0, RECORD),
        ("Extender.Longhorn-System.SVC", A, 0, RECORD),
        ("extender.longhorn-system.svc", AAAA, 0, b""),
        ("other.longhorn-system.svc", A, 3, b""),
        ("x.extender.longhorn-system.svc", A, 3, b""),
        ("extender.longhorn-system", A, 3, b""),
        ("example.org", A, 3, b""),
    ],
)
def test_a_service_alone_has_an_address(name: str, kind: int, code: int, records: bytes) -> None:
    asked = question(name, kind)
    head = struct.pack("!HHHHHH", 7, 0x8500 | code, 1, bool(records), 0, 0)
    assert head + asked[12:] + records == answer(asked + OPTION, resolve)


@given(st.binary(max_size=64))
def test_no_packet_makes_it_fail(packet: bytes) -> None:
    reply = answer(packet, resolve)
    assert reply is None or reply[:2] == packet[:2]
