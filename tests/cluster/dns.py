"""Just enough DNS (RFC 1035) to answer `A` questions for Services."""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Callable

CLUSTER_DOMAIN = ("cluster", "local")
TYPE_A, TYPE_ANY, CLASS_IN = 1, 255, 1
NO_ERROR, FORMAT_ERROR, NAME_ERROR, NOT_IMPLEMENTED = 0, 1, 3, 4
RESPONSE, AUTHORITATIVE, RECURSION_DESIRED = 0x8000, 0x0400, 0x0100
OPCODE_MASK = 0x7800
TTL_SECONDS = 5
HEADER = struct.Struct("!HHHHHH")

Resolve = Callable[[str, str], str | None]  # namespace, name -> IPv4 address


def service_of(name: str) -> tuple[str, str] | None:
    """Namespace and name of `<name>.<namespace>.svc[.cluster.local]`, in any letter case; None for other names."""
    labels = tuple(name.rstrip(".").lower().split("."))
    if labels[-2:] == CLUSTER_DOMAIN:
        labels = labels[:-2]
    if len(labels) != 3 or labels[2] != "svc" or not all(labels):
        return None
    return labels[1], labels[0]


def answer(query: bytes, resolve: Resolve) -> bytes | None:
    """The answer to one packet, or None when it is no question at all and deserves silence."""
    if len(query) < HEADER.size:
        return None
    ident, flags, questions, *_ = HEADER.unpack_from(query)
    if flags & RESPONSE:
        return None
    if flags & OPCODE_MASK:
        return _reply(ident, flags, NOT_IMPLEMENTED, b"", b"")
    if questions != 1:
        return _reply(ident, flags, FORMAT_ERROR, b"", b"")
    try:
        name, end = _read_name(query, HEADER.size)
        kind, klass = struct.unpack_from("!HH", query, end)
    except (ValueError, struct.error):
        return _reply(ident, flags, FORMAT_ERROR, b"", b"")
    question = query[HEADER.size : end + 4]
    service = service_of(name)
    address = resolve(*service) if service is not None and klass == CLASS_IN else None
    if address is None:
        return _reply(ident, flags, NAME_ERROR, question, b"")
    if kind not in (TYPE_A, TYPE_ANY):
        return _reply(ident, flags, NO_ERROR, question, b"")  # the name exists, without such a record
    data = ipaddress.IPv4Address(address).packed
    # 0xC00C points back at the name in the question.
    record = struct.pack("!HHHIH", 0xC00C, TYPE_A, CLASS_IN, TTL_SECONDS, len(data)) + data
    return _reply(ident, flags, NO_ERROR, question, record)


def _reply(ident: int, flags: int, code: int, question: bytes, record: bytes) -> bytes:
    own = RESPONSE | AUTHORITATIVE | (flags & (RECURSION_DESIRED | OPCODE_MASK)) | code
    return HEADER.pack(ident, own, bool(question), bool(record), 0, 0) + question + record


def _read_name(packet: bytes, at: int) -> tuple[str, int]:
    """The name at `at` and where it ends. Raises ValueError for one that is cut off or compressed."""
    labels: list[str] = []
    while True:
        if at >= len(packet):
            raise ValueError("the name is cut off")
        length = packet[at]
        at += 1
        if length == 0:
            return ".".join(labels), at
        if length > 63 or at + length > len(packet):
            raise ValueError("a label is compressed or cut off")
        labels.append(packet[at : at + length].decode("ascii", "replace"))
        at += length
