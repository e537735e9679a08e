"""The messages of the DiskScheduler service, to values of ours and back; what a value may be is checked here."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from google.protobuf.message import Message

from controller.errors import MalformedRequestError
from controller.rpc import disk_scheduler_pb2 as pb

SERVICE: Final = "DiskScheduler"
HOLD_EXPANSION: Final = f"/{SERVICE}/HoldExpansion"
REFUSALS_KEY: Final = "disk-refusals-bin"  # the metadata that come with RESOURCE_EXHAUSTED
MAX_MESSAGE_BYTES: Final = 64 * 1024
_MOST_CHARACTERS: Final = 253  # of a name in Kubernetes
_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_NAME: Final = re.compile(rf"{_LABEL}(\.{_LABEL})*")  # a subdomain by RFC 1123
_NO_NAMES: Final = frozenset({"disk_uuid"})  # of no object; compared with what objects say, and in no URL


def int64(value: int) -> int:
    """The nearest number that a message takes. Sums of what objects say may be beyond."""
    return max(-(2**63), min(value, 2**63 - 1))


def checked(request: pb.HoldExpansionRequest) -> pb.HoldExpansionRequest:
    """Itself; MalformedRequestError names the first field that is wrong."""
    check_names(request, "volume_name", optional=("claim_namespace", "claim_name"))
    if bool(request.claim_name) != bool(request.claim_namespace):
        raise MalformedRequestError("claim_name", "needs claim_namespace beside it, and the other way round")
    if request.size_bytes <= 0:
        raise MalformedRequestError("size_bytes", f"is not positive: {request.size_bytes}")
    return request


def checked_question(request: pb.FindDiskCandidatesRequest) -> pb.FindDiskCandidatesRequest:
    """Itself; MalformedRequestError names the first field that is wrong."""
    check_names(request, "volume_name", optional=("replica_name", "hard_node_affinity"))
    if request.replica_name and request.hard_node_affinity:
        raise MalformedRequestError("hard_node_affinity", "is for a further replica; one that exists has its own")
    return request


def check_names(request: Message, *fields: str, optional: Collection[str] = ()) -> None:
    """MalformedRequestError names the first of the fields that no object in Kubernetes has for a name, or that is
    missing."""
    for field in (*optional, *fields):
        value = getattr(request, field)
        if len(value) > _MOST_CHARACTERS:
            raise MalformedRequestError(field, f"is longer than {_MOST_CHARACTERS} characters")
        if value and field not in _NO_NAMES and not _NAME.fullmatch(value):
            raise MalformedRequestError(field, "is not the name of an object: no subdomain by RFC 1123")
    for field in fields:
        if not getattr(request, field):
            raise MalformedRequestError(field, "is missing")
