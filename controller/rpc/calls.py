"""The common part of all calls: who may make them, live reads, and how failures are answered."""

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
from controller.log_line import say
from controller.rpc import disk_scheduler_pb2 as pb
from controller.rpc.credentials import StrangerError, check_caller
from controller.rpc.wire import METHODS, REFUSALS_KEY, code_of, sentence_of
from controller.rules.demand import Missing

MOST_SECONDS: Final = 5.0  # for one call, even if its caller waits longer
LIVE_READ_SECONDS: Final = 1.0  # for all live reads of a call
LIMITS: Final = ReadLimits(a_second=20.0, at_once=4)
Called = Callable[[str, str, float], None]  # takes a call's name, outcome and seconds; is called outside all locks

log = logging.getLogger(__name__)


class Checks(Protocol):
    """Checks whether this process may answer; all raise NotReadyError. In the product `Preconditions`."""

    @property
    def mode(self) -> Mode: ...
    def check_leading(self) -> None: ...
    def begin(self) -> int: ...
    def check_term(self, term: int) -> None: ...
    def check_fresh(self) -> None: ...


class BoundedLiveReads:
    """A bounded number of live reads of what the stores lack. The webhook has bounds of its own.

    Threads: any. Blocks: for the read. I/O: that read.
    """

    def __init__(self, live: LiveReads, clock: Clock) -> None:
        self._live = live
        self._bounded: BoundedReads[bool] = BoundedReads(clock, LIMITS)

    def read(self, missing: Missing, seconds: float) -> bool:
        """Whether the object exists, in which case our stores have it by then. Raises NotSyncedError if that cannot be
        found out in time, TooManyReadsError if the bounds do not allow the read."""
        read = partial(self._live.refresh, missing.kind, missing.namespace, missing.name, seconds)
        try:
            return self._bounded.get(missing, read, seconds)[0]
        except TooManyReadsError:
            raise
        except ClusterError as error:
            raise NotSyncedError(f"the API server did not answer about the {missing.kind}: {error}") from error


@dataclass(frozen=True, slots=True)
class Served:
    """A reply, and its outcome for the metrics. `refusals`: in place of a reply, why no disk takes it. `is_noted`:
    as a decision, so that the log has it already."""

    reply: Any
    outcome: str
    refusals: pb.DiskRefusals | None = None
    is_noted: bool = False


class Calls:
    """Makes gRPC's handlers of calls, which serve the clients whose certificates have certain names. Threads: any."""

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
        """The handler of that call. `allowed`: names of clients in their certificates; None: any accepted client.
        `denial`: as for `check_caller`. `threads`: for this call only; otherwise it shares the server's."""
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
        started, outcome, level = self._clock.now(), "internal", logging.INFO
        about: dict[str, object] = {}  # nothing of the request of an unauthorized client is logged
        try:
            if allowed is not None:
                check_caller(context.auth_context(), allowed, denial)  # type: ignore[arg-type]  # the stubs lack the lists
            about = {field.name: value for field, value in request.ListFields()}
            found = answer(request, context)
            outcome, level = found.outcome, logging.DEBUG if found.is_noted else logging.INFO
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
                say(log, "call denied", logging.WARNING, call=call, error=error)
            context.abort(failure.code, str(error))
            raise
        finally:
            seconds = self._clock.now() - started
            self._called(call, outcome, seconds)
            say(log, call, level, **about, outcome=outcome, milliseconds=seconds * 1000)


class Failure(NamedTuple):
    """The outcome of a failed call for the metrics, and its code on the wire."""

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
    """The failure that the error stands for; None for a fault of ours."""
    return next((failure for kind, failure in _FAILURES if isinstance(error, kind)), None)


def seconds_left(context: grpc.ServicerContext) -> float:
    """The seconds until the caller's deadline, MOST_SECONDS at most."""
    return min(context.time_remaining(), MOST_SECONDS)
