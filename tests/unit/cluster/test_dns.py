"""DNS packets, byte by byte."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cluster.dns import answer, service_of

KNOWN = {("longhorn-system", "extender"): "127.64.1.7"}


def resolve(namespace: str, name: str) -> str | None:
    return KNOWN.get((namespace, name))


def question(name: str, kind: int = 1, klass: int = 1, flags: int = 0x0100, count: int = 1) -> bytes:
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    return struct.pack("!HHHHHH", 7, flags, count, 0, 0, 0) + labels + b"\0" + struct.pack("!HH", kind, klass)


def code_and_answers(reply: bytes | None) -> tuple[int, int]:
    assert reply is not None
    _, flags, _, answers, _, _ = struct.unpack_from("!HHHHHH", reply)
    return flags & 0xF, answers


@pytest.mark.parametrize(
    "name",
    ["extender.longhorn-system.svc", "extender.longhorn-system.svc.cluster.local", "Extender.Longhorn-System.SVC"],
)
def test_a_service_has_its_loopback_address(name: str) -> None:
    query = question(name)
    reply = answer(query, resolve)
    record = bytes.fromhex("c00c 0001 0001 00000005 0004 7f400107")
    assert reply == bytes.fromhex("0007 8500 0001 0001 0000 0000") + query[12:] + record


def test_a_service_has_no_record_of_another_type() -> None:
    assert code_and_answers(answer(question("extender.longhorn-system.svc", kind=28), resolve)) == (0, 0)


@pytest.mark.parametrize("name", ["other.longhorn-system.svc", "example.org", "extender.longhorn-system", "svc"])
def test_an_unknown_name_does_not_exist(name: str) -> None:
    assert code_and_answers(answer(question(name), resolve)) == (3, 0)


def test_additional_records_of_a_question_are_passed_over() -> None:
    option = bytes.fromhex("00 0029 04d0 00000000 0000")
    query = bytearray(question("extender.longhorn-system.svc")) + option
    query[11] = 1
    assert code_and_answers(answer(bytes(query), resolve)) == (0, 1)


def test_what_is_no_single_question_is_refused_or_met_with_silence() -> None:
    name = "extender.longhorn-system.svc"
    assert answer(b"short", resolve) is None
    assert answer(question(name, flags=0x8000), resolve) is None
    assert code_and_answers(answer(question(name, count=2), resolve)) == (1, 0)
    assert code_and_answers(answer(question(name, flags=0x2800), resolve)) == (4, 0)
    assert code_and_answers(answer(question(name)[:-3], resolve)) == (1, 0)
    assert code_and_answers(answer(question(name, klass=3), resolve)) == (3, 0)


@given(st.binary(max_size=64))
def test_no_packet_makes_it_fail(packet: bytes) -> None:
    reply = answer(packet, resolve)
    assert reply is None or reply[:2] == packet[:2]


def test_only_service_names_are_service_names() -> None:
    assert service_of("a.b.svc.") == ("b", "a")
    assert service_of("a.b.svc.cluster.local") == ("b", "a")
    assert service_of("x.a.b.svc") is None
    assert service_of("a..svc") is None
