"""Checks the fields of DiskScheduler's requests, and encodes refusals for its replies and metadata."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Final

import grpc
from google.protobuf.message import Message

from controller.allocator.outcome import Obstacle
from controller.errors import MalformedRequestError
from controller.rpc import disk_scheduler_pb2 as pb
from controller.rules.reasons import Reason

SERVICE: Final = "DiskScheduler"
METHODS: Final = pb.DESCRIPTOR.services_by_name[SERVICE].methods_by_name
HOLD_EXPANSION: Final = f"/{SERVICE}/HoldExpansion"
REFUSALS_KEY: Final = "disk-refusals-bin"  # of the trailing metadata with the refusals
MAX_MESSAGE_BYTES: Final = 64 * 1024
MOST_REFUSALS: Final = 20  # in the metadata, which have to stay below 8 KiB
_MOST_TEXT: Final = 200  # characters of a refusal's message there
_MOST_CHARACTERS: Final = 253  # of a name in Kubernetes
_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_NAME: Final = re.compile(rf"{_LABEL}(\.{_LABEL})*")  # a subdomain by RFC 1123
_NO_NAMES: Final = frozenset({"disk_uuid"})  # fields that are not the name of an object, and not used in URLs
REASONS: Final[dict[Reason, pb.DiskRefusal.Reason]] = {
    reason: getattr(pb.DiskRefusal, reason.name) for reason in Reason
}
# Reasons in the volume or replica itself: more room would not help.
_STATES: Final = frozenset(
    REASONS[reason]
    for reason in (
        Reason.BACKING_IMAGE_NOT_FOUND,
        Reason.ALREADY_SCHEDULED,
        Reason.UNUSED_FAILED_REPLICA,
        Reason.DEGRADED_SINCE_UNKNOWN,
        Reason.ENGINE_NOT_EXPANDABLE,
        Reason.CLONE_FAILED,
    )
)
# How much room there is cannot be known if a record is not readable.
_NOT_OF_ROOM: Final = _STATES | {pb.DiskRefusal.RECORD_UNWRITABLE}
_IN_VAIN: Final = {
    "ReuseFailedReplica": "no failed replica comes back",
    "ExpandVolume": "the volume cannot become that large",
}


def int64(value: int) -> int:
    """The nearest number that fits into a message: sums over objects may exceed it."""
    return max(-(2**63), min(value, 2**63 - 1))


def check_names(request: Message, *fields: str, optional: Collection[str] = ()) -> None:
    """Raise MalformedRequestError for the first of the fields that is missing, or cannot be the name of a Kubernetes
    object. Those that are `optional` may be empty."""
    for field in (*optional, *fields):
        value = getattr(request, field)
        if len(value) > _MOST_CHARACTERS:
            raise MalformedRequestError(field, f"is longer than {_MOST_CHARACTERS} characters")
        if value and field not in _NO_NAMES and not _NAME.fullmatch(value):
            raise MalformedRequestError(field, "is not the name of an object: no subdomain by RFC 1123")
    for field in fields:
        if not getattr(request, field):
            raise MalformedRequestError(field, "is missing")


def refusal_of(entry: Obstacle) -> pb.DiskRefusal:
    """The obstacle as a message."""
    return pb.DiskRefusal(
        node=entry.node,
        disk=entry.disk,
        missing_bytes=int64(entry.missing_bytes),
        reason=REASONS[entry.rejection.reason],
        message=entry.rejection.message,
    )


def refusals_of(obstacles: Sequence[Obstacle], size_bytes: int, more: int = 0) -> pb.DiskRefusals:
    """The obstacles with the fewest bytes missing, short enough for metadata. `more`: how many others there are."""
    nearest = sorted(obstacles, key=lambda one: (not one.missing_bytes, one.missing_bytes, one.node, one.disk))
    found = pb.DiskRefusals(size_bytes=int64(size_bytes), more=more + max(0, len(nearest) - MOST_REFUSALS))
    for entry in nearest[:MOST_REFUSALS]:
        shown = refusal_of(entry)
        if len(shown.message) > _MOST_TEXT:
            shown.message = shown.message[: _MOST_TEXT - 3] + "..."
        found.refusals.append(shown)
    return found


def code_of(refusals: pb.DiskRefusals) -> grpc.StatusCode:
    """RESOURCE_EXHAUSTED, or FAILED_PRECONDITION where more room would not help."""
    is_of_room = all(one.reason not in _NOT_OF_ROOM for one in refusals.refusals)
    return grpc.StatusCode.RESOURCE_EXHAUSTED if is_of_room else grpc.StatusCode.FAILED_PRECONDITION


def sentence_of(call: str, refusals: pb.DiskRefusals) -> str:
    """The refusals of a call in one sentence for a person."""
    if not refusals.refusals:
        is_reuse = call == "ReuseFailedReplica"
        return "the volume has no failed replica that could come back" if is_reuse else "there is no disk"
    first = refusals.refusals[0]
    others = len(refusals.refusals) - 1 + refusals.more
    where = " ".join(part for part in (first.node, first.message) if part)
    if first.reason in _STATES:
        return where
    return f"{_IN_VAIN.get(call, 'no disk takes it')}: {where}" + (f"; {others} more" if others else "")
