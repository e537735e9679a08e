"""The calls of the DiskScheduler service: the order of their steps, and what each failure is on the wire."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, Protocol

import grpc

from controller.allocator.outcome import Mode
from controller.allocator.verbs.grow import Caller, Expansions, GrowthOutcome, GrowthRequest, GrowthVerdict
from controller.clock import Clock
from controller.errors import ClusterError, NotSyncedError, SchedulerError, TooManyReadsError
from controller.follow.live import LiveReads
from controller.kube.bounded_reads import BoundedReads, ReadLimits
from controller.rpc import disk_scheduler_pb2 as pb
from controller.rpc.credentials import StrangerError, check_caller
from controller.rpc.failures import failure_of
from controller.rpc.wire import SERVICE, checked, int64
from controller.rules.demand import Missing

HOLD_THREADS: Final = 8  # for HoldExpansion; all other calls share the server's
LIVE_READ_SECONDS: Final = 1.0  # for all that our stores lack
LIMITS: Final = ReadLimits(a_second=20.0, at_once=4)
NO_OTHERS: Final[Mapping[str, grpc.RpcMethodHandler[Any, Any]]] = {}
_MOST_READS: Final = 3

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


class Observer(Protocol):
    """Told after every call, outside all locks."""

    def called(self, call: str, outcome: str, seconds: float) -> None: ...


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

        def read() -> bool:
            return self._live.refresh(missing.kind, missing.namespace, missing.name, seconds)

        try:
            return self._bounded.get(missing, read, seconds)[0]
        except TooManyReadsError:
            raise
        except ClusterError as error:
            raise NotSyncedError(f"the API server did not answer about the {missing.kind}: {error}") from error


class DiskScheduler:
    """Answers while this process leads.

    Threads: any. Blocks: for live reads of what the stores lack (LIVE_READ_SECONDS). I/O: those reads.
    """

    def __init__(
        self,
        expansions: Expansions,
        checks: Callable[[], Checks],
        live: LiveReads,
        clock: Clock,
        observer: Observer,
    ) -> None:
        self._expansions, self._checks, self._clock = expansions, checks, clock
        self._reads = BoundedLiveReads(live, clock)
        self._observer = observer

    def handler(
        self, client_name: str, others: Mapping[str, grpc.RpcMethodHandler[Any, Any]] = NO_OTHERS
    ) -> grpc.GenericRpcHandler:
        """What a server serves: this call, and `others` by their names. `client_name`: who may make this one, by the
        name in the certificate; empty: any accepted client."""
        answer = partial(self._known_callers, client_name)
        # By this gRPC gives these calls threads of their own: the webhook waits for seconds only, whoever else calls.
        answer.experimental_thread_pool = ThreadPoolExecutor(HOLD_THREADS, "rpc-hold")  # type: ignore[attr-defined]
        hold = grpc.unary_unary_rpc_method_handler(
            answer,
            request_deserializer=pb.HoldExpansionRequest.FromString,
            response_serializer=pb.HoldExpansionReply.SerializeToString,
        )
        return grpc.method_handlers_generic_handler(SERVICE, {**others, "HoldExpansion": hold})

    def hold_expansion(self, request: pb.HoldExpansionRequest, caller: Caller | None = None) -> pb.HoldExpansionReply:
        """Raises NotReadyError when this process cannot answer, MalformedRequestError for a request that is none,
        TooManyReadsError when it would have to read and must not. Nothing is judged or held for a `caller` who has
        left."""
        growth = _growth(checked(request))
        checks = self._checks()
        checks.check_leading()
        if checks.mode in (Mode.BYPASS, Mode.CLOSED):
            outcome = GrowthOutcome(GrowthVerdict.NOT_CHECKED)
            checks.check_leading()
            return _reply(outcome)
        term = checks.begin()
        checks.check_fresh()
        self._know(growth)
        outcome = self._expansions.hold(growth, self._clock.now_utc(), caller)
        # The hold stays if this fails: the growth may have been admitted meanwhile, and the hold ends soon.
        checks.check_term(term)
        return _reply(outcome)

    def _know(self, growth: GrowthRequest) -> None:
        """All that the answer needs is in our stores, or does not exist."""
        deadline = self._clock.now() + LIVE_READ_SECONDS
        for _ in range(_MOST_READS):
            missing = self._expansions.missing(growth)
            left = deadline - self._clock.now()
            if missing is None:
                return
            if left <= 0:
                break
            if not self._reads.read(missing, left):
                return
        raise NotSyncedError("the volume could not be read in time")

    def _known_callers(self, client_name: str, request: Any, context: grpc.ServicerContext) -> pb.HoldExpansionReply:
        started = self._clock.now()
        try:
            check_caller(context.auth_context(), client_name)  # type: ignore[arg-type]  # the stubs lack the lists
        except StrangerError as error:
            # Nothing of the request is logged: the stranger wrote it.
            log.warning("gRPC: call denied: %r", str(error))
            self._observer.called("HoldExpansion", "denied", self._clock.now() - started)
            context.abort(grpc.StatusCode.PERMISSION_DENIED, str(error))
            raise
        return self._hold_expansion(request, context)

    def _hold_expansion(self, request: Any, context: grpc.ServicerContext) -> pb.HoldExpansionReply:
        started = self._clock.now()
        outcome, reasons = "internal", ""
        try:
            caller = Caller()
            if not context.add_callback(caller.leave):
                caller.leave()
            reply = self.hold_expansion(request, caller)
            verdict = pb.HoldExpansionReply.Verdict.Name(reply.verdict).lower().replace("_", "-")
            outcome = "dry-run" if request.dry_run else verdict
            reasons = ",".join(sorted({problem.reason for problem in reply.problems}))
            return reply
        except SchedulerError as error:
            failure = failure_of(error)
            if failure is None:
                raise
            outcome = failure.outcome
            context.abort(failure.code, str(error))
            raise
        finally:
            seconds = self._clock.now() - started
            self._observer.called("HoldExpansion", outcome, seconds)
            log.info(
                "expansion volume=%s claim=%s/%s bytes=%d dry_run=%s outcome=%s reasons=%s ms=%.1f",
                request.volume_name,
                request.claim_namespace,
                request.claim_name,
                request.size_bytes,
                request.dry_run,
                outcome,
                reasons or "-",
                seconds * 1000,
            )


def _growth(request: pb.HoldExpansionRequest) -> GrowthRequest:
    return GrowthRequest(
        volume=request.volume_name,
        size_bytes=request.size_bytes,
        claim_namespace=request.claim_namespace,
        claim_name=request.claim_name,
        is_dry_run=request.dry_run,
    )


def _reply(outcome: GrowthOutcome) -> pb.HoldExpansionReply:
    return pb.HoldExpansionReply(
        verdict=_VERDICTS[outcome.verdict],
        volume_name=outcome.volume,
        size_bytes=int64(outcome.size_bytes),
        largest_bytes=int64(outcome.largest_bytes),
        more_may_fit=not outcome.is_largest,
        problems=[
            pb.ExpansionProblem(
                node=entry.node,
                disk=entry.disk,
                missing_bytes=int64(entry.missing_bytes),
                reason=str(entry.rejection.reason),
                message=entry.rejection.message,
            )
            for entry in outcome.obstacles
        ],
    )


_VERDICTS: Final = {
    GrowthVerdict.ADMITTED: pb.HoldExpansionReply.ADMITTED,
    GrowthVerdict.REFUSED: pb.HoldExpansionReply.REFUSED,
    GrowthVerdict.TRY_AGAIN: pb.HoldExpansionReply.TRY_AGAIN,
    GrowthVerdict.NOT_CHECKED: pb.HoldExpansionReply.NOT_CHECKED,
}
