"""The common part of all calls: who may make them, what has to hold, what they read, and how failures are told."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

import grpc
from google.protobuf.message_factory import GetMessageClass

from controller.allocator.outcome import Mode
from controller.clock import Clock
from controller.errors import (
    CallerGoneError,
    ClusterError,
    MalformedRequestError,
    NotFoundError,
    NotReadyError,
    NotSyncedError,
    PreconditionError,
    SchedulerError,
    TooManyReadsError,
)
from controller.follow.live import LiveReads
from controller.kube.bounded_reads import BoundedReads, ReadLimits
from controller.rpc import disk_scheduler_pb2 as pb
from controller.rpc.credentials import StrangerError, check_caller
from controller.rpc.wire import METHODS, REFUSALS_KEY, code_of, sentence_of
from controller.rules.demand import Missing

MOST_SECONDS: Final = 5.0  # that a call waits for others, whatever its caller's patience
LIVE_READ_SECONDS: Final = 1.0  # for all that our stores lack
LIMITS: Final = ReadLimits(a_second=20.0, at_once=4)
Called = Callable[[str, str, float], None]  # is told of a call, its outcome and its seconds, outside all locks

log = logging.getLogger(__name__)


class Checks(Protocol):
    """Whether this process may answer. All raise NotReadyError. In the product `Preconditions` of the extender, which
    must not be imported here."""

    @property
    def mode(self) -> Mode: ...
    def check_leading(self) -> None: ...
    def begin(self) -> int: ...
    def check_term(self, term: int) -> None: ...
    def check_fresh(self) -> None: ...


class BoundedLiveReads:
    """Live reads of what the stores lack, only so many of them. The webhook's and those of the calls about disks are
    bounded apart: neither waits for the other.

    Threads: any. Blocks: for the read. I/O: that read.
    """

    def __init__(self, live: LiveReads, clock: Clock) -> None:
        self._live = live
        self._bounded: BoundedReads[bool] = BoundedReads(clock, LIMITS)

    def read(self, missing: Missing, seconds: float) -> bool:
        """Whether it exists; our stores have it then. NotSyncedError when that cannot be found out in time,
        TooManyReadsError when so much is read that this was not."""
        read = partial(self._live.refresh, missing.kind, missing.namespace, missing.name, seconds)
        try:
            return self._bounded.get(missing, read, seconds)[0]
        except TooManyReadsError:
            raise
        except ClusterError as error:
            raise NotSyncedError(f"the API server did not answer about the {missing.kind}: {error}") from error


@dataclass(frozen=True, slots=True)
class Served:
    """A reply, and what the metrics call it; `refusals` instead of a reply: no disk takes it. `reasons`: for the log,
    why not, or not yet."""

    reply: Any
    outcome: str
    refusals: pb.DiskRefusals | None = None
    reasons: str = ""


class Calls:
    """Serves each call to the clients that may make it, by the names in their certificates. Threads: any."""

    def __init__(self, clock: Clock, called: Called) -> None:
        self._clock, self._called = clock, called

    def handler(
        self,
        call: str,
        answer: Callable[[Any, grpc.ServicerContext], Served],
        allowed: Collection[str] | None,
        denial: str,
        threads: ThreadPoolExecutor | None = None,
    ) -> grpc.RpcMethodHandler[Any, Any]:
        """`allowed`: who may, by the name in the certificate; None: any accepted client. `denial`: what others hear
        behind their names. `threads`: of this call alone; else it shares the server's."""
        serve = partial(self._serve, call, answer, allowed, denial)
        if threads is not None:
            serve.experimental_thread_pool = threads  # type: ignore[attr-defined]  # by this name gRPC looks for them
        return grpc.unary_unary_rpc_method_handler(
            serve,
            request_deserializer=GetMessageClass(METHODS[call].input_type).FromString,
            response_serializer=GetMessageClass(METHODS[call].output_type).SerializeToString,
        )

    def _serve(
        self,
        call: str,
        answer: Callable[[Any, grpc.ServicerContext], Served],
        allowed: Collection[str] | None,
        denial: str,
        request: Any,
        context: grpc.ServicerContext,
    ) -> Any:
        started, outcome, reasons = self._clock.now(), "internal", ""
        about = "by an unauthorized client"  # nothing of such a request is logged
        try:
            if allowed is not None:
                check_caller(context.auth_context(), allowed, denial)  # type: ignore[arg-type]  # the stubs lack the lists
            about = " ".join(f"{field.name}={value!r}" for field, value in request.ListFields())
            found = answer(request, context)
            outcome, reasons = found.outcome, found.reasons
            if found.refusals is not None:
                context.set_trailing_metadata(((REFUSALS_KEY, found.refusals.SerializeToString()),))
                code = code_of(found.refusals)
                outcome = "precondition" if code is grpc.StatusCode.FAILED_PRECONDITION else outcome
                context.abort(code, sentence_of(call, found.refusals))
            return found.reply
        except SchedulerError as error:
            failure = failure_of(error)
            if failure is None:
                raise
            outcome = failure.outcome
            if isinstance(error, StrangerError):
                log.warning("gRPC: call denied: %r", str(error))
            context.abort(failure.code, str(error))
            raise
        finally:
            seconds = self._clock.now() - started
            self._called(call, outcome, seconds)
            log.info("%s %s outcome=%s reasons=%s ms=%.1f", call, about, outcome, reasons or "-", seconds * 1000)


class Failure(NamedTuple):
    """What a failure of a call is in the metrics, and on the wire."""

    outcome: str
    code: grpc.StatusCode


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
    """What that failure is; None for a fault of ours."""
    return next((failure for kind, failure in _FAILURES if isinstance(error, kind)), None)


def patience_of(context: grpc.ServicerContext) -> float:
    """The seconds until the caller's deadline, MOST_SECONDS at most."""
    return min(context.time_remaining(), MOST_SECONDS)
