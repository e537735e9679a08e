"""Sends canaries while this process leads, and reports the findings.

For each scheduler name, it sends one at the beginning of a term, when its Lease changes hands, when evidence
contradicts the finding, and at long intervals. A canary is deleted as soon as its verdict is known; one that a former
leader left is deleted first.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from controller.canary.pod import Canaries, canary_name
from controller.canary.proof import Outcome, Wiring, WiringProof
from controller.clock import Clock
from controller.errors import ClusterError
from controller.log_line import say
from controller.process.repeated import Said
from controller.process.worker import Part, Worker
from controller.settings import LiveSettings

VERDICT_SECONDS: Final = 30.0  # a canary that nobody has looked at for so long tells nothing
RETRY_SECONDS: Final = 1.0
POLL_SECONDS: Final = 0.25  # between checks whether this process still leads
WORDS_LIMIT: Final = 300  # characters of kube-scheduler's own words that are repeated

# By the finding: the Event's reason, and what is said of the scheduler.
REPORTS: Final = {
    Wiring.WIRED: ("SchedulerWired", "is wired"),
    Wiring.UNWIRED: ("SchedulerNotWired", "is not wired"),
    Wiring.UNKNOWN: ("SchedulerWiringUnknown", "may not be wired"),
}

_log = logging.getLogger(__name__)


class WiringProver(Part):
    """The one thread that makes and deletes canaries.

    `serving` returns a number that differs in each term, or None while this process must not prove anything.
    `clear_leases` may write while it is told so. Threads: `worker`'s. Blocks: `stop` joins it, and deletes the present
    canary if the API server answers. I/O: pods, outside every lock.
    """

    def __init__(
        self,
        proof: WiringProof,
        canaries: Canaries,
        clock: Clock,
        *,
        serving: Callable[[], int | None],
        live: Callable[[], LiveSettings],
        tell: Callable[[str, str, bool], None],
        clear_leases: Callable[[Callable[[], bool]], None] = lambda _may_write: None,
    ) -> None:
        self._proof, self._canaries, self._clock = proof, canaries, clock
        self._clear_leases = clear_leases
        self._serving, self._live, self._tell = serving, live, tell
        self._term: int | None = None
        self._is_swept = False
        self._deadlines: dict[str, float] = {}  # of the canaries that exist, by scheduler
        self._to_remove: dict[tuple[str, str], None] = {}  # name and uid, in order
        self._retry_at = float("-inf")  # after a call that failed
        self._problem = Said(partial(_log.warning, "canary: %s"))
        self.outcomes: dict[str, int] = dict.fromkeys(Outcome, 0)  # read by the metrics
        self.worker = Worker("wiring", self.run_once, at_end=self._leave_nothing)

    def run_once(self) -> float:
        self._proof.changed.clear()
        self.step()
        self._proof.changed.wait(POLL_SECONDS)
        return 0.0

    def step(self) -> None:
        """Do what is due now."""
        term = self._serving()
        if term != self._term:
            self._change_term(term)
        if self._clock.now() >= self._retry_at:
            try:
                self._work(is_serving=term is not None)
                self._problem.note()
            except ClusterError as error:
                self._retry_at = self._clock.now() + RETRY_SECONDS
                self._problem.note(error)
        self._report()

    def _change_term(self, term: int | None) -> None:
        self._term, self._is_swept = term, False
        self._dismiss_all()
        if term is None:
            self._proof.end()
        else:
            self._proof.begin()

    def _work(self, *, is_serving: bool) -> None:
        if is_serving and not self._is_swept:
            for name, uid in self._canaries.leftovers():
                self._proof.dismissed(uid)
                self._to_remove[name, uid] = None
            self._is_swept = True
        self._remove()
        self._clear_leases(lambda: is_serving and self._serving() == self._term)
        if is_serving:
            for scheduler in self._proof.schedulers:
                self._attend(scheduler)

    def _remove(self) -> None:
        for name, uid in tuple(self._to_remove):
            self._canaries.remove(name, uid)
            del self._to_remove[name, uid]

    def _attend(self, scheduler: str) -> None:
        if scheduler not in self._deadlines:
            if self._proof.is_due(scheduler, self._live().wiring_check_every_seconds):
                self._send(scheduler)
            return
        outcome = self._proof.outcome(scheduler)
        if outcome is None and self._clock.now() >= self._deadlines[scheduler]:
            outcome = self._look(scheduler)
        if outcome is not None:
            self.outcomes[outcome] += 1
            self._dismiss(scheduler)
            self._remove()

    def _send(self, scheduler: str) -> None:
        self._proof.creating(scheduler)
        try:
            uid = self._canaries.create(scheduler, lambda: self._serving() == self._term)
        except ClusterError as error:
            self.outcomes[Outcome.FAILED] += 1
            self._proof.not_created(scheduler, str(error)[:WORDS_LIMIT])
            raise
        self._deadlines[scheduler] = self._clock.now() + VERDICT_SECONDS
        self._proof.created(scheduler, uid)
        say(_log, "canary sent", scheduler=scheduler, uid=uid)

    def _look(self, scheduler: str) -> Outcome:
        """The outcome of a canary whose time is over, by a live read: our store may lag."""
        pod, words = self._canaries.read(scheduler)
        cause = f"it has not considered the canary within {VERDICT_SECONDS:.0f} s"
        if words:
            cause = f"it has not asked about the canary within {VERDICT_SECONDS:.0f} s: {words[:WORDS_LIMIT]}"
        return self._proof.last_look(scheduler, pod, cause, is_answer=bool(words))

    def _dismiss(self, scheduler: str) -> None:
        del self._deadlines[scheduler]
        self._to_remove[canary_name(scheduler), self._proof.settled(scheduler)] = None

    def _dismiss_all(self) -> None:
        for scheduler in tuple(self._deadlines):
            self._dismiss(scheduler)

    def _report(self) -> None:
        for finding in self._proof.take_news():
            is_bad = finding.state is not Wiring.WIRED
            level = logging.WARNING if is_bad else logging.INFO
            say(_log, "wiring", level, scheduler=finding.scheduler, decision=finding.state, text=finding.cause)
            reason, words = REPORTS[finding.state]
            self._tell(reason, f"Scheduler {finding.scheduler!r} {words}: {finding.cause}", is_bad)

    def _leave_nothing(self) -> None:
        self._dismiss_all()
        try:
            self._work(is_serving=False)
        except ClusterError as error:
            _log.warning("canary not removed; the next leader does it: %s", error)
