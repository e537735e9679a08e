"""One filter call: the order of its steps, and what each failure means.

A failure of ours is never "no room": it is raised, and the caller of this module turns it into an error that makes
kube-scheduler try the pod again. Nothing that fails leaves a hold behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final, Protocol

from controller.allocator.outcome import Decision, FilterOutcome, Mode
from controller.clock import Clock
from controller.errors import BugError, SchedulerError
from controller.rules.reasons import Reason, counted
from controller.views.decisions import DecisionDetails, NoteDecision, log_decision
from extender import wire
from extender.contention import WaitBudget
from extender.coschedule import CoScheduling, Narrowed
from extender.preconditions import Preconditions, RefusalListener

MOST_NODES: Final = 8  # that are named in the log


class ClientGoneError(SchedulerError):
    """The caller is gone, and would not read the answer."""


class FilterAnswers(Protocol):
    """What answers filter calls: the service, and what comes before it."""

    def check_ready(self) -> None: ...
    def filter_pod(self, args: wire.FilterArgs, is_client_gone: Callable[[], bool]) -> bytes: ...


class PodHolds(Protocol):
    """What a filter call asks of `controller.allocator.allocator.Allocator`, or of a test's scripted stand-in."""

    def hold_pod(self, pod_uid: str, candidates: Sequence[str], *, adds_up: bool = False) -> FilterOutcome: ...
    def wait_for_change(self, version: int, timeout: float) -> bool: ...
    def end_holds(self, pod_uid: str, serial: int) -> None: ...


class FilterObserver(Protocol):
    """Told after every decision, outside all locks. In the product `LeaderMetrics` of controller.assembly, which must
    not be imported here."""

    def decided(self, decision: Decision, reasons: Mapping[Reason, int], is_bounded: bool) -> None: ...
    def contention_waited(self, seconds: float) -> None: ...


@dataclass(slots=True)
class _Attempt:
    """One filter call's holds; `serial` None until it has asked for any. It must not end those of other calls."""

    adds_up: bool
    serial: int | None = None

    def hold(self, allocator: PodHolds, pod_uid: str, candidates: Sequence[str]) -> FilterOutcome:
        outcome = allocator.hold_pod(pod_uid, candidates, adds_up=self.adds_up)
        self.serial = outcome.serial
        return outcome


class FilterListener(RefusalListener, Protocol):
    """Told of pods that got no node, as any RefusalListener, and of those that are let through unchecked."""

    def let_through(self, uid: str, namespace: str, name: str, decision: Decision) -> None: ...


class ExtenderService:
    """Answers kube-scheduler while this process leads.

    Threads: any. Blocks: for the store and live reads (0.6 s at most), for other pods' holds within the wait budget.
    I/O: live reads of what the stores do not have yet.
    """

    def __init__(
        self,
        allocator: PodHolds,
        preconditions: Preconditions,
        clock: Clock,
        observer: FilterObserver,
        listener: FilterListener,
        *,
        contention_wait_seconds: Callable[[], float],
        budget: WaitBudget,
        co_scheduler: CoScheduling,
        note: NoteDecision = log_decision,
    ) -> None:
        self._co_scheduler, self._note = co_scheduler, note
        self._allocator, self._preconditions = allocator, preconditions
        self._clock, self._observer, self._listener = clock, observer, listener
        self._contention_wait_seconds = contention_wait_seconds
        self._budget = budget

    def check_ready(self) -> None:
        """Raises NotReadyError unless a filter call would be answered: leading, and not switched off."""
        self._preconditions.begin()

    def filter_pod(self, args: wire.FilterArgs, is_client_gone: Callable[[], bool]) -> bytes:
        """The encoded answer to one filter call, decided, held, and checked once more: this process still leads, in the
        same term.

        Raises NotReadyError (not leading, switched off, stale), PodFailedError (the pod, or what it needs, cannot
        be known), ClientGoneError.
        """
        started = self._clock.now()
        checks, pod = self._preconditions, args.pod
        term = checks.begin()
        if checks.mode is Mode.BYPASS or not pod.has_claims:
            decision = Decision.NOTHING_NEEDED if not pod.has_claims else Decision.BYPASS
            outcome = FilterOutcome(decision, args.candidates, version=0)
            reply = wire.encode_filter_result(args, outcome.passed, outcome.refused)
            checks.check_term(term)
        else:
            checks.check_fresh()
            checks.know_pod(pod)
            with self._no_hold_left_behind(pod.uid) as attempt:
                narrowed = self._co_scheduler.narrow(pod, args.candidates)
                outcome = self._hold_there(pod, narrowed, attempt, is_client_gone)
                self._co_scheduler.ended(pod, narrowed, passed=bool(outcome.passed))
                reply = wire.encode_filter_result(args, outcome.passed, outcome.refused)
                if is_client_gone():
                    raise ClientGoneError("the client went away before the answer")
                checks.check_term(term)
                if outcome.decision is Decision.BYPASS:
                    checks.check_open()
        self._report(args, outcome, self._clock.now() - started)
        return reply

    def _hold_there(
        self, pod: wire.PodRef, narrowed: Narrowed, attempt: _Attempt, is_client_gone: Callable[[], bool]
    ) -> FilterOutcome:
        """Checks and holds the candidates that are left, and adds the refusals of the others."""
        if narrowed.refused and not narrowed.candidates:
            return FilterOutcome(Decision.REFUSED, (), version=0, refused=narrowed.refused)
        if is_client_gone():
            raise ClientGoneError("the client went away before its call was handled")
        try:
            outcome = self._hold(pod, narrowed.candidates, attempt, is_client_gone)
        except BugError:
            self._listener.refused(pod.uid, pod.namespace, pod.name)
            raise
        if not narrowed.refused:
            return outcome
        refused = {**outcome.refused, **narrowed.refused} if outcome.refused else narrowed.refused
        return replace(outcome, refused=refused)

    def _hold(
        self, pod: wire.PodRef, candidates: Sequence[str], attempt: _Attempt, is_client_gone: Callable[[], bool]
    ) -> FilterOutcome:
        """Checks and holds. Where only other pods' fresh holds are in the way, waits for a change as the budget
        allows."""

        def ask() -> FilterOutcome:
            return self._preconditions.ask(lambda: attempt.hold(self._allocator, pod.uid, candidates))

        outcome = ask()
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
            self._preconditions.check_leading()
            outcome = ask()
        return outcome

    @contextmanager
    def _no_hold_left_behind(self, pod_uid: str) -> Iterator[_Attempt]:
        """Promises that are made inside end if the answer is not sent, for whatever reason. Where answers add up, they
        end by time only: an answer that nobody reads must not end what another answer promised."""
        attempt = _Attempt(not self._preconditions.knows_callers)
        is_answered = False
        try:
            yield attempt
            is_answered = True
        finally:
            if not is_answered and attempt.serial is not None and not attempt.adds_up:
                self._allocator.end_holds(pod_uid, attempt.serial)

    def _report(self, args: wire.FilterArgs, outcome: FilterOutcome, seconds: float) -> None:
        """Tells everybody whom it concerns."""
        pod = args.pod
        reasons = counted(outcome.refused.values())
        self._observer.decided(outcome.decision, reasons, outcome.is_bounded)
        if outcome.decision in (Decision.REFUSED, Decision.CONTENDED):
            self._listener.refused(pod.uid, pod.namespace, pod.name)
        elif outcome.decision is Decision.REMOTE:
            self._listener.let_through(pod.uid, pod.namespace, pod.name, outcome.decision)
        passed, asked = len(outcome.passed), len(args.candidates)
        facts = {"uid": pod.uid, "candidates": asked, "passed": passed, "nodes": outcome.passed[:MOST_NODES]}
        if outcome.unread_backups:
            facts["unread_backups"] = outcome.unread_backups
        text = f"{passed} of {asked} nodes passed"
        told: DecisionDetails = {"reasons": reasons, "text": text, "milliseconds": seconds * 1000, "facts": facts}
        self._note("filter", f"Pod {pod.key}", outcome.decision, **told)
