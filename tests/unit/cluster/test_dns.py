"""DNS packets, byte by byte."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cluster.dns import answer

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
