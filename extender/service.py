"""One filter call: the order of its steps, and what each failure means.

A failure of ours is never "no room": it is raised, and the caller of this module turns it into an error that makes
kube-scheduler try the pod again. Nothing that fails leaves a hold behind.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Protocol

from controller.allocator.outcome import Decision, FilterOutcome, Mode, PodKnowledge
from controller.allocator.reasons import Reason
from controller.clock import Clock
from controller.errors import ClusterError, NotReadyError, NotSyncedError, SchedulerError
from controller.model.demand import Missing
from extender import wire
from extender.contention import WaitBudget

POD_STORE_WAIT_SECONDS: Final = 0.1
LIVE_READ_SECONDS: Final = 0.5
MAX_LIVE_READS: Final = 64

log = logging.getLogger(__name__)


class FilterFailedError(SchedulerError):
    """The call cannot be decided. The text is constant, or the pod's condition would change at every call."""


class ClientGoneError(SchedulerError):
    """Nobody is there any more to read the answer."""


class Allocator(Protocol):
    """What a filter call asks of `controller.allocator.allocator.Allocator`."""

    def knows_pod(self, uid: str, key: str) -> PodKnowledge: ...
    def wait_for_pod(self, uid: str, key: str, timeout: float) -> PodKnowledge: ...
    def missing(self, pod_uid: str) -> Sequence[Missing]: ...
    def confirm_absent(self, missing: Missing) -> None: ...
    def hold_pod(self, pod_uid: str, candidates: Sequence[str]) -> FilterOutcome: ...
    def wait_for_change(self, version: int, timeout: float) -> bool: ...
    def end_holds(self, pod_uid: str, serial: int) -> None: ...


class Gate(Protocol):
    """Open only while this process leads; `check` raises NotLeaderError."""

    @property
    def term(self) -> int: ...
    def check(self) -> None: ...


class LiveReads(Protocol):
    """One read from the API server that reaches the allocator before it returns: whether the object is there."""

    def refresh(self, kind: str, namespace: str, name: str, timeout_seconds: float) -> bool: ...


class FilterObserver(Protocol):
    """Told after every decision, outside all locks."""

    def decided(self, decision: Decision, reasons: Mapping[Reason, int], is_bounded: bool) -> None: ...
    def contention_waited(self, seconds: float) -> None: ...


@dataclass(slots=True)
class _Attempt:
    """One filter call's holds; `serial` None until it has asked for any. Those of other calls are not its to end."""

    serial: int | None = None

    def hold(self, allocator: Allocator, args: wire.FilterArgs) -> FilterOutcome:
        outcome = allocator.hold_pod(args.pod_uid, args.candidates)
        self.serial = outcome.serial
        return outcome


class ExtenderService:
    """Answers kube-scheduler while this process leads.

    Threads: any. Blocks: for the store and live reads (0.6 s at most), for other pods' holds within the wait budget.
    I/O: live reads of what the stores do not have yet.
    """

    def __init__(
        self,
        allocator: Allocator,
        gate: Gate,
        live: LiveReads,
        clock: Clock,
        observer: FilterObserver,
        *,
        mode: Callable[[], Mode],
        stale_kind: Callable[[], str | None],
        contention_wait_seconds: Callable[[], float],
        budget: WaitBudget,
    ) -> None:
        self._allocator, self._gate, self._live = allocator, gate, live
        self._clock, self._observer = clock, observer
        self._mode = mode
        self._stale_kind = stale_kind
        self._contention_wait_seconds = contention_wait_seconds
        self._budget = budget

    def is_ready(self) -> bool:
        """Whether a filter call would be answered: leading, and not switched off."""
        try:
            self._check_ready()
        except NotReadyError:
            return False
        return True

    def filter_pod(self, args: wire.FilterArgs, is_client_gone: Callable[[], bool]) -> bytes:
        """The encoded answer to one filter call, decided, held and checked to be still ours to give.

        Raises NotReadyError (not leading, switched off, stale), FilterFailedError (the pod, or what it needs, cannot
        be known), ClientGoneError.
        """
        started = self._clock.now()
        term = self._check_ready()
        if self._mode() is Mode.BYPASS or not args.has_claims:
            decision = Decision.NOTHING_NEEDED if not args.has_claims else Decision.BYPASS
            outcome = FilterOutcome(decision, args.candidates, {}, False, 0, 0)
            reply = wire.encode_filter_result(args, outcome.passed, outcome.refused)
            self._check_term(term)
        else:
            self._check_fresh()
            self._know_pod(args)
            self._know_objects(args.pod_uid)
            with self._no_hold_left_behind(args.pod_uid) as attempt:
                outcome = self._hold(args, attempt, is_client_gone)
                reply = wire.encode_filter_result(args, outcome.passed, outcome.refused)
                if is_client_gone():
                    raise ClientGoneError("the client went away before the answer")
                self._check_term(term)
                if outcome.decision is Decision.BYPASS and self._mode() is Mode.CLOSED:
                    raise NotReadyError("the scheduler extender is being disabled")
        self._report(args, outcome, self._clock.now() - started)
        return reply

    def _check_ready(self) -> int:
        """The term that an answer would belong to."""
        self._gate.check()
        if self._mode() is Mode.CLOSED:
            raise NotReadyError("the scheduler extender is disabled")
        return self._gate.term

    def _check_term(self, term: int) -> None:
        self._gate.check()
        if self._gate.term != term:
            raise NotReadyError("the term in which this was decided has ended")

    def _check_fresh(self) -> None:
        stale = self._stale_kind()
        if stale is not None:
            raise NotSyncedError(f"what is known of {stale} is too old")

    def _know_pod(self, args: wire.FilterArgs) -> None:
        """Our stores show the pod pending under that uid, after a short wait and one live read.

        FilterFailedError if not, so nobody makes promises by calling us with pods that do not exist.
        """
        uid, key = args.pod_uid, args.pod_key
        known = self._allocator.knows_pod(uid, key)
        if known in (PodKnowledge.UNKNOWN, PodKnowledge.OTHER_UID):
            known = self._allocator.wait_for_pod(uid, key, POD_STORE_WAIT_SECONDS)
        if known in (PodKnowledge.UNKNOWN, PodKnowledge.OTHER_UID):
            if not self._read("pod", args.pod_namespace, args.pod_name, LIVE_READ_SECONDS):
                raise FilterFailedError("Longhorn: the pod does not exist")
            known = self._allocator.knows_pod(uid, key)
        if known is not PodKnowledge.PENDING:
            raise FilterFailedError(_NOT_PENDING[known])

    def _know_objects(self, pod_uid: str) -> None:
        """All that the pod refers to is known, or known to be absent, by live reads of half a second together."""
        deadline = self._clock.now() + LIVE_READ_SECONDS
        for _ in range(MAX_LIVE_READS):
            missing = self._allocator.missing(pod_uid)
            if not missing:
                return
            first = missing[0]
            left = deadline - self._clock.now()
            if left <= 0:
                break
            if not self._read(first.kind, first.namespace, first.name, left):
                self._allocator.confirm_absent(first)
        raise FilterFailedError("Longhorn: the pod's volumes could not be read in time")

    def _read(self, kind: str, namespace: str, name: str, timeout_seconds: float) -> bool:
        try:
            return self._live.refresh(kind, namespace, name, timeout_seconds)
        except ClusterError as error:
            log.warning("live read failed kind=%s name=%s/%s error=%s", kind, namespace, name, error)
            raise FilterFailedError(f"Longhorn: the API server did not answer about the {kind}") from error

    def _hold(self, args: wire.FilterArgs, attempt: _Attempt, is_client_gone: Callable[[], bool]) -> FilterOutcome:
        """Check and hold; where only other pods' fresh holds are in the way, wait for a change as the budget allows."""
        if is_client_gone():
            raise ClientGoneError("the client went away before its call was looked at")
        outcome = attempt.hold(self._allocator, args)
        deadline = self._clock.now() + self._contention_wait_seconds()
        while outcome.waitable and not outcome.passed:
            now = self._clock.now()
            grant = self._budget.take(deadline - now, now)
            if grant is None:
                break
            changed = self._allocator.wait_for_change(outcome.version, grant.seconds)
            waited = self._clock.now() - now
            self._budget.settle(grant, waited, now + waited)
            self._observer.contention_waited(waited)
            if not changed:
                break
            if is_client_gone():
                raise ClientGoneError("the client went away while its call waited")
            self._gate.check()
            outcome = attempt.hold(self._allocator, args)
        return outcome

    @contextmanager
    def _no_hold_left_behind(self, pod_uid: str) -> Iterator[_Attempt]:
        """What is held inside ends when the answer is not given, for whatever reason."""
        attempt = _Attempt()
        is_answered = False
        try:
            yield attempt
            is_answered = True
        finally:
            if not is_answered and attempt.serial is not None:
                self._allocator.end_holds(pod_uid, attempt.serial)

    def _report(self, args: wire.FilterArgs, outcome: FilterOutcome, seconds: float) -> None:
        reasons = Counter(outcome.refused.values())
        self._observer.decided(outcome.decision, reasons, outcome.is_bounded)
        if log.isEnabledFor(logging.INFO):
            log.info(
                "filter pod=%s uid=%s decision=%s candidates=%d passed=%d refused=%s ms=%.1f",
                args.pod_key,
                args.pod_uid,
                outcome.decision,
                len(args.candidates),
                len(outcome.passed),
                ",".join(f"{reason}:{count}" for reason, count in sorted(reasons.items())) or "-",
                seconds * 1000,
            )


_NOT_PENDING: Final = {
    PodKnowledge.FINISHED: "Longhorn: the pod has ended or is being deleted",
    PodKnowledge.BOUND: "Longhorn: the pod is bound already",
    PodKnowledge.OTHER_UID: "Longhorn: another pod of that name exists",
    PodKnowledge.UNKNOWN: "Longhorn: the pod could not be read",
}
