"""The messages of the DiskScheduler service, to values of ours and back; what a value may be is checked here."""

from __future__ import annotations

from typing import Final

from controller.errors import MalformedRequestError
from controller.rpc import disk_scheduler_pb2 as pb

SERVICE: Final = "DiskScheduler"
HOLD_EXPANSION: Final = f"/{SERVICE}/HoldExpansion"
MAX_MESSAGE_BYTES: Final = 64 * 1024
_MOST_CHARACTERS: Final = 253  # of a name in Kubernetes


def checked(request: pb.HoldExpansionRequest) -> pb.HoldExpansionRequest:
    """Itself; MalformedRequestError names the first field that is wrong."""
    for field in ("claim_namespace", "claim_name", "volume_name"):
        if len(getattr(request, field)) > _MOST_CHARACTERS:
            raise MalformedRequestError(field, f"is longer than {_MOST_CHARACTERS} characters")
    if not request.volume_name:
        raise MalformedRequestError("volume_name", "is missing")
    if bool(request.claim_name) != bool(request.claim_namespace):
        raise MalformedRequestError("claim_name", "needs claim_namespace beside it, and the other way round")
    if request.size_bytes <= 0:
        raise MalformedRequestError("size_bytes", f"is not positive: {request.size_bytes}")
    return request
