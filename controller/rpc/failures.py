"""What each failure of a call is on the wire, and in the metrics."""

from __future__ import annotations

from typing import Final, NamedTuple

import grpc

from controller.errors import (
    CallerGoneError,
    MalformedRequestError,
    NotFoundError,
    NotReadyError,
    PreconditionError,
    SchedulerError,
    TooManyReadsError,
)
from controller.rpc.credentials import StrangerError


class Failure(NamedTuple):
    outcome: str
    code: grpc.StatusCode


INTERNAL: Final = "internal"
_FAILURES: Final[tuple[tuple[type[SchedulerError], Failure], ...]] = (  # the first that fits
    (StrangerError, Failure("denied", grpc.StatusCode.PERMISSION_DENIED)),
    (MalformedRequestError, Failure("malformed", grpc.StatusCode.INVALID_ARGUMENT)),
    (CallerGoneError, Failure("gone", grpc.StatusCode.CANCELLED)),
    (NotReadyError, Failure("not-ready", grpc.StatusCode.UNAVAILABLE)),
    (TooManyReadsError, Failure("too-many-reads", grpc.StatusCode.ABORTED)),
    (PreconditionError, Failure("precondition", grpc.StatusCode.FAILED_PRECONDITION)),
    (NotFoundError, Failure("not-found", grpc.StatusCode.NOT_FOUND)),
)


def failure_of(error: SchedulerError) -> Failure | None:
    """None: a fault of ours."""
    return next((failure for kind, failure in _FAILURES if isinstance(error, kind)), None)
