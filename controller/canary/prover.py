"""Sends canaries while this process leads, and reports the findings.

For each scheduler name, it sends one at the beginning of a term, when its Lease changes hands, when evidence
contradicts the finding, and at long intervals. A canary is deleted as soon as its verdict is known; one that a former
leader left is deleted first.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from controller.canary.pod import Canaries
from controller.canary.proof import Finding, Outcome, Wiring, WiringProof
from controller.clock import Clock
from controller.errors import ClusterError
from controller.process.worker import Runs, Worker

VERDICT_SECONDS: Final = 30.0  # a canary that nobody has looked at for so long tells nothing
RETRY_SECONDS: Final = 1.0
POLL_SECONDS: Final = 0.25  # whether this process still leads
WORDS_LIMIT: Final = 300  # characters of kube-scheduler's own words that are repeated

REASONS: Final = {
    Wiring.WIRED: "SchedulerWired",
    Wiring.UNWIRED: "SchedulerNotWired",
    Wiring.UNKNOWN: "SchedulerWiringUnknown",
}
_TEXTS: Final = {
    Wiring.WIRED: "is wired",
    Wiring.UNWIRED: "is not wired",
    Wiring.UNKNOWN: "may not be wired",
}
OUTCOMES: Final = tuple(outcome.name.lower() for outcome in Outcome)

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Out:
    """A canary that exists, and its deadline."""

    uid: str
    deadline: float


class WiringProver:
    """The one thread that makes and deletes canaries.

    `serving` returns a number that differs in each term, or None while this process must not prove anything.
    `every_seconds` is the interval between routine checks; with 0 no canary is sent.
    Threads: `worker`'s. Blocks: `stop` joins it. I/O: pods, outside every lock.
    """

    def __init__(
        self,
        proof: WiringProof,
        canaries: Canaries,
        clock: Clock,
        *,
        serving: Callable[[], int | None],
        every_seconds: Callable[[], float],
        tell: Callable[[str, str, bool], None],
        leases: Runs | None = None,
    ) -> None:
        self._proof, self._canaries, self._clock = proof, canaries, clock
        self._serving, self._every_seconds, self._tell = serving, every_seconds, tell
        self._leases = leases
        self._term: int | None = None
        self._is_swept = False
        self._out: dict[str, _Out] = {}  # by scheduler
        self._to_remove: dict[tuple[str, str], None] = {}  # name and uid, in order
        self._retry_at = float("-inf")  # after a call that failed
        self._problem = ""
        self.outcomes = dict.fromkeys(OUTCOMES, 0)  # read by the metrics
        self._version = -1  # of the proof, at the last round
        self.worker = Worker("wiring", self.run_once, at_end=self._leave_nothing)

    @property
    def workers(self) -> Sequence[Worker]:
        return (self.worker, *(self._leases.workers if self._leases is not None else ()))

    def start(self) -> None:
        if self._leases is not None:
            self._leases.start()
        self.worker.start()

    def stop(self) -> None:
        """Deletes the present canary, if the API server answers."""
        self.worker.stop()
        if self._leases is not None:
            self._leases.stop()

    def run_once(self) -> float:
        self.step()
        self._version = self._proof.wait(self._version, POLL_SECONDS)
        return 0.0

    def step(self) -> None:
        """Does what is due now."""
        term = self._serving()
        if term != self._term:
            self._change_term(term)
        if self._clock.now() >= self._retry_at:
            try:
                self._work(is_serving=term is not None)
                self._problem = ""
            except ClusterError as error:
                self._retry_at = self._clock.now() + RETRY_SECONDS
                if str(error) != self._problem:
                    _log.warning("canary: %s", error)
                self._problem = str(error)
        self._report()

    def _change_term(self, term: int | None) -> None:
        self._term, self._is_swept = term, False
        for scheduler in tuple(self._out):
            self._dismiss(scheduler)
        if term is None:
            self._proof.end()
        else:
            self._proof.begin()

    def _work(self, *, is_serving: bool) -> None:
        if is_serving and not self._is_swept:
            for name, uid in self._canaries.leftovers():
                self._condemn(name, uid)
            self._is_swept = True
        self._remove()
        if is_serving:
            for scheduler in self._proof.schedulers:
                self._attend(scheduler)

    def _condemn(self, name: str, uid: str) -> None:
        self._proof.dismissed(uid)
        self._to_remove[name, uid] = None

    def _remove(self) -> None:
        for name, uid in tuple(self._to_remove):
            self._canaries.remove(name, uid)
            del self._to_remove[name, uid]

    def _attend(self, scheduler: str) -> None:
        out, every = self._out.get(scheduler), self._every_seconds()
        if out is None:
            if every and self._proof.is_due(scheduler, every):
                self._send(scheduler)
            return
        outcome = self._proof.outcome(scheduler)
        if outcome is None and self._clock.now() >= out.deadline:
            outcome = self._look(scheduler)
        if outcome is None:
            return
        self.outcomes[outcome.name.lower()] += 1
        self._dismiss(scheduler)
        self._remove()

    def _send(self, scheduler: str) -> None:
        self._proof.creating(scheduler)
        try:
            uid = self._canaries.create(scheduler, lambda: self._serving() == self._term)
        except ClusterError as error:
            self.outcomes[Outcome.FAILED.name.lower()] += 1
            self._proof.not_created(scheduler, str(error)[:WORDS_LIMIT])
            raise
        self._out[scheduler] = _Out(uid, self._clock.now() + VERDICT_SECONDS)
        self._proof.created(scheduler, uid)
        _log.info("canary sent scheduler=%s uid=%s", scheduler, uid)

    def _look(self, scheduler: str) -> Outcome | None:
        """The last look at a canary without a verdict: our store may lag, and kube-scheduler's message may tell why."""
        pod, words = self._canaries.read(scheduler)
        outcome = self._proof.looked_at(scheduler, pod)
        if outcome is not None:
            return outcome
        cause = f"it has not considered the canary within {VERDICT_SECONDS:.0f} s"
        if words:
            cause = f"it has not asked about the canary within {VERDICT_SECONDS:.0f} s: {words[:WORDS_LIMIT]}"
        return self._proof.was_silent(scheduler, cause)

    def _dismiss(self, scheduler: str) -> None:
        out = self._out.pop(scheduler)
        self._condemn(self._proof.canary_name(scheduler), out.uid)
        self._proof.settled(scheduler)

    def _report(self) -> None:
        for finding in self._proof.take_news():
            is_bad = finding.state is not Wiring.WIRED
            _log.log(
                logging.WARNING if is_bad else logging.INFO,
                "scheduler %s wiring=%s: %s",
                finding.scheduler,
                finding.state,
                finding.cause,
            )
            self._tell(REASONS[finding.state], text_of(finding), is_bad)

    def _leave_nothing(self) -> None:
        for scheduler in tuple(self._out):
            self._dismiss(scheduler)
        try:
            self._work(is_serving=False)
        except ClusterError as error:
            _log.warning("canary not removed; the next leader does it: %s", error)


def text_of(finding: Finding) -> str:
    return f"Scheduler {finding.scheduler!r} {_TEXTS[finding.state]}: {finding.cause}"


def status_of(proof: WiringProof, now: float) -> Mapping[str, Mapping[str, object]]:
    """The findings as the status page shows them, by scheduler."""
    return {
        finding.scheduler: {
            "state": finding.state,
            "cause": finding.cause,
            "since_seconds": round(max(0.0, now - finding.at), 1),
        }
        for finding in proof.findings()
    }
