"""Just enough DNS (RFC 1035) to answer `A` questions for Services."""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Callable

TYPE_A, CLASS_IN = 1, 1
NAME_ERROR = 3
RESPONSE, AUTHORITATIVE, RECURSION_DESIRED = 0x8000, 0x0400, 0x0100
TTL_SECONDS = 5
HEADER = struct.Struct("!HHHHHH")

Resolve = Callable[[str, str], str | None]  # namespace, name -> IPv4 address


def service_of(name: str) -> tuple[str, str] | None:
    """Namespace and name of `<name>.<namespace>.svc[.cluster.local]`, in any letter case; None for other names."""
    match name.rstrip(".").lower().removesuffix(".cluster.local").split("."):
        case [service, namespace, "svc"] if service and namespace:
            return namespace, service
    return None


def answer(query: bytes, resolve: Resolve) -> bytes | None:
    """The answer to one packet, or None when it is no single question and deserves silence."""
    try:
        ident, flags, questions, *_ = HEADER.unpack_from(query)
        labels, at = [], HEADER.size
        while length := query[at]:
            labels.append(query[at + 1 : at + 1 + length].decode("ascii", "replace"))
            at += 1 + length
        kind, klass = struct.unpack_from("!HH", query, at + 1)
    except (IndexError, struct.error):
        return None
    if flags & RESPONSE or questions != 1:
        return None
    service = service_of(".".join(labels))
    address = resolve(*service) if service is not None and klass == CLASS_IN else None
    record = b""
    if address is not None and kind == TYPE_A:  # else the name exists, without such a record
        # 0xC00C points back at the name in the question.
        record = struct.pack("!HHHIH", 0xC00C, TYPE_A, CLASS_IN, TTL_SECONDS, 4) + ipaddress.IPv4Address(address).packed
    flags = RESPONSE | AUTHORITATIVE | (flags & RECURSION_DESIRED) | (NAME_ERROR if address is None else 0)
    return HEADER.pack(ident, flags, 1, bool(record), 0, 0) + query[HEADER.size : at + 5] + record
