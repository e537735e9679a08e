"""Gives each Replica without a node its disk, before Longhorn looks for one.

One thread asks the allocator what to do with each Replica that has no node, in the order in which they appeared; a few
others write what was decided. A decision counts from the moment when it is made, so the writes need no order.

The same thread hands changed plans and holds over to be stored, in every mode of a leader, since there are some without
placement, too. While its loop runs, and its watch is not late, the gate is renewed.
"""

from __future__ import annotations

import logging
import math
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from itertools import islice
from typing import Any, Final, Protocol

from controller.allocator.outcome import ReplicaTurn, TurnStep, WaitReason
from controller.allocator.plans.table import TableChanges
from controller.clock import Clock
from controller.errors import NotReadyError
from controller.log_line import LogLine, say
from controller.model.longhorn import Replica
from controller.model.times import rfc3339
from controller.placement.objects import ReplicaObjects
from controller.placement.plan_entries import Entry, hold_key, plan_key
from controller.placement.unplaced import News, Unplaced
from controller.placement.writes import HearsOfPlaces, PlacementOutcome, ReplicaWrites
from controller.process.worker import Part, Worker, backoff_seconds
from controller.rules.placing import Wait
from controller.views.decisions import NoteDecision, log_decision

EVERY_SECONDS: Final = 0.05  # between rounds of a leader, without news
IDLE_SECONDS: Final = 1.0  # between rounds of a follower
ROUND_SECONDS: Final = 0.5  # of decisions in one round; the others follow in the next one
MOST_WRITES: Final = 64  # under way at the same time
BACKOFF_SECONDS: Final = (1.0, 10.0)  # between decisions about a replica that finds no room: the first, and the longest
YOUNG_SECONDS: Final = 12.0  # without back-off: until then time alone may allow the replica more disks
REST: Final = 4.0  # a round with repeated decisions is followed by a rest of so many times its duration
MOST_REST_SECONDS: Final = 5.0
LATE_SECONDS: Final = 5.0  # for a place that is stored to show in the watch
STUCK_SECONDS: Final = 6.0  # for one round
SHOWN: Final = 50  # waiting replicas in the status document
SHOWN_FOREIGN: Final = 10  # replicas that others have placed, there
FOREIGN_EVERY_SECONDS: Final = 60.0  # between two Events about those: each has another text
FOREIGN_REASON: Final = "ForeignPlacement"
FOREIGN_TEXT: Final = (
    "Replicas to which somebody else than the leader gave a disk: {}; the last one: {replica} on {node}"
)

_log = logging.getLogger(__name__)


class Decides(HearsOfPlaces, Protocol):
    """Decides what to do with each Replica. In the product the allocator's `PlaceDecisions`."""

    @property
    def is_on(self) -> bool: ...
    def turn_of(self, name: str, now_utc: datetime) -> ReplicaTurn: ...
    def unseen_seconds(self) -> float: ...
    def take_changes(self) -> TableChanges: ...
    def take_foreign(self) -> list[Replica]: ...


class KeepsPlans(Protocol):
    """Stores plans and holds. In the product `PlanObjects`."""

    def put(self, *entries: Entry) -> None: ...
    def remove(self, *keys: str) -> None: ...


class Explains(Protocol):
    """Finds out, on a thread of its own, why no disk takes a replica. In the product `Teller`."""

    def unplaced(self, replica: str) -> None: ...
    def reasons_of(self, replica: str) -> Mapping[str, int]: ...


class TermChecks(Protocol):
    """Checks whether this process may decide and write. In the product `Preconditions` of the extender."""

    def begin(self) -> int: ...
    def check_term(self, term: int) -> None: ...
    def check_fresh(self) -> None: ...


@dataclass(slots=True)
class Waiting:
    """One replica without a node. `tries`: decisions in a row with the same reason, the first of them at `reason_at`.
    `is_busy`: it is being written."""

    volume: str
    since: float
    next_at: float
    reason_at: float
    reason: str = WaitReason.NEW
    tries: int = 0
    is_busy: bool = False

    def waits_for(self, reason: str, now: float) -> None:
        if reason != self.reason:
            self.reason, self.reason_at, self.tries = reason, now, 0
        else:
            self.tries += 1


@dataclass(frozen=True, slots=True)
class PlacementFigures:
    """For metrics and the status page. `waiting`: the number of waiting replicas by reason, `oldest`: for how many
    seconds one of them has waited for that reason at most. `replicas`: the first of them. `writing`: writes under way.
    `foreign`: the last replicas that others have placed."""

    is_on: bool = False
    problem: str = ""
    waiting: Mapping[str, int] = field(default_factory=dict)
    oldest: Mapping[str, float] = field(default_factory=dict)
    replicas: tuple[Mapping[str, Any], ...] = ()
    outcomes: Mapping[str, int] = field(default_factory=dict)
    writing: int = 0
    foreign: tuple[Mapping[str, str], ...] = ()


class Placer(Part):
    """Places Replicas while this process leads.

    Threads: `worker`'s, and those of its writes; `figures`, `is_alive` and `store_plans` from any. Blocks: never. I/O:
    reads and writes of Replicas, by the writing threads.
    """

    def __init__(
        self,
        decides: Decides,
        objects: ReplicaObjects,
        plans: KeepsPlans,
        checks: Callable[[], TermChecks],
        clock: Clock,
        *,
        now_utc: Callable[[], datetime],
        is_leading: Callable[[], bool],
        tell: Callable[[str, str, bool], None],
        explains: Explains,
        note: NoteDecision = log_decision,
    ) -> None:
        """`now_utc`: the API server's time if known. `tell` writes an Event: reason, text, whether a warning."""
        self.worker = Worker("placer", self.run_once, at_end=self._end)
        self.unplaced = Unplaced(self.worker.wake)
        self._writes = ReplicaWrites(decides, objects, clock, now_utc, is_leading, self.worker.wake, note)
        self._decides, self._plans = decides, plans
        self._checks, self._clock, self._now_utc, self._is_leading = checks, clock, now_utc, is_leading
        self._tell, self._explains, self._note = tell, explains, note
        self._handing = threading.Lock()  # held while changes are handed over, so that none overtakes another
        # The thread's own.
        self._states: dict[str, Waiting] = {}
        self._rest_until = -math.inf
        self._problem = ""
        self._round_at = clock.now()  # when the last round of a leader ended
        self._foreign = deque[Mapping[str, str]](maxlen=SHOWN_FOREIGN)
        self._foreign_untold, self._foreign_told_at = 0, -math.inf
        self._show(is_on=False)

    def figures(self) -> PlacementFigures:
        return self._figures

    def is_alive(self) -> bool:
        """Whether its loop runs as a leader's, its writes end, its watch is not late, and it keeps nothing in vain."""
        is_running = self._clock.now() - self._round_at <= STUCK_SECONDS
        return is_running and self._writes.is_alive() and self._decides.unseen_seconds() <= LATE_SECONDS

    def _end(self) -> None:
        self._writes.end()

    # A round

    def run_once(self) -> float:
        """Do what is due. Returns the seconds until the next round, unless news come before."""
        is_leading = self._is_leading()
        is_on = is_leading and self._decides.is_on
        if is_leading:
            self.store_plans()
        if not is_on:
            self._states.clear()  # and no news are taken: there may be some with every event
        problem = self._place_due() if is_on else ""
        if problem != self._problem:
            self._problem = problem
            _log.log(logging.WARNING if problem else logging.INFO, "placing replicas: %s", problem or "goes on")
        self._show(is_on=is_on)
        if is_leading and not problem:
            self._round_at = self._clock.now()
        return EVERY_SECONDS if is_leading else IDLE_SECONDS

    def _place_due(self) -> str:
        """Decide what is due. Returns why nothing may be decided now, or ""."""
        self._note_foreign()
        try:
            self._checks().check_fresh()
        except NotReadyError as error:
            return str(error)
        self._take_news(self.unplaced.take())
        self._decide_due()
        self.store_plans()
        return ""

    def _note_foreign(self) -> None:
        """Log each place that somebody else has given, and report them by an Event, once a minute at most."""
        for one in self._decides.take_foreign():
            text = f"volume {one.volume} on {one.node}, by somebody else than the leader"
            facts = {"volume": one.volume, "node": one.node}
            self._note("place", f"Replica {one.name}", "foreign", text=text, facts=facts, level=logging.WARNING)
            seen = {"replica": one.name, "volume": one.volume, "node": one.node, "seen_utc": rfc3339(self._now_utc())}
            self._foreign.append(seen)
            self._foreign_untold += 1
        now = self._clock.now()
        if self._foreign_untold and now - self._foreign_told_at >= FOREIGN_EVERY_SECONDS:
            text = FOREIGN_TEXT.format(self._foreign_untold, **self._foreign[-1])
            self._tell(FOREIGN_REASON, text, True)
            self._foreign_untold, self._foreign_told_at = 0, now

    def store_plans(self) -> None:
        """Hand over plans and holds that have changed. From any thread."""
        with self._handing:
            plans, holds, is_freed = self._decides.take_changes()
            changes = [(hold_key(pod), hold) for pod, hold in holds] + [(plan_key(name), plan) for name, plan in plans]
            self._plans.put(*(entry for _, entry in changes if entry is not None))
            self._plans.remove(*(key for key, entry in changes if entry is None))
        for volume, _ in plans:
            self.unplaced.volume_planned(volume)
        if is_freed:
            self.unplaced.room_came()

    def _take_news(self, news: News) -> None:
        now = self._clock.now()
        for name in self._states.keys() - news.waiting.keys():
            del self._states[name]
        for name, volume in news.waiting.items():
            if name not in self._states:
                self._states[name] = Waiting(volume, now, now, now)
        for name, at in self._writes.take_ended():
            if name in self._states:
                state = self._states[name]
                state.is_busy, state.next_at = False, max(state.next_at, at)
        for name in news.touched & self._states.keys():
            self._states[name].next_at = min(self._states[name].next_at, now)
        if news.has_room:
            at = max(now, self._rest_until)
            for state in self._states.values():
                if state.reason in (WaitReason.NO_ROOM, Wait.REUSE, Wait.REPLACEMENT):
                    state.next_at = min(state.next_at, at)

    def _decide_due(self) -> None:
        """Decide about what has been due for longest first, and among equals in the order in which they appeared, so
        that no replica that waits for room loses it to a later one. A round that ends early leaves the rest to the
        next."""
        began = self._clock.now()
        due = sorted(
            (name for name, state in self._states.items() if not state.is_busy and self._due_at(state) <= began),
            key=lambda name: self._states[name].next_at,
        )
        again = 0
        for name in due:
            is_over = self._writes.under_way >= MOST_WRITES or self._clock.now() - began > ROUND_SECONDS
            if is_over or self.worker.is_stopping:
                break
            again += self._states[name].tries > 0
            self._decide(name, self._states[name])
        if again:
            now = self._clock.now()
            self._rest_until = now + min(REST * (now - began), MOST_REST_SECONDS)

    def _due_at(self, state: Waiting) -> float:
        return max(state.next_at, self._rest_until) if state.tries else state.next_at

    def _decide(self, name: str, state: Waiting) -> None:
        now = self._clock.now()
        state.next_at = now + BACKOFF_SECONDS[1]
        try:
            checks = self._checks()
            term = checks.begin()
        except NotReadyError:
            return
        try:
            turn = self._decides.turn_of(name, self._now_utc())
        except Exception:  # fault barrier: it must not affect other replicas
            self._writes.count(PlacementOutcome.FAILED)
            state.waits_for(WaitReason.FAULT, now)
            _log.exception(LogLine("no decision", {"replica": name, "volume": state.volume}))
            return
        if turn.step is TurnStep.NOTHING:
            return
        if turn.fault:
            self._writes.count(PlacementOutcome.FAILED)
            say(_log, "no decision", logging.ERROR, replica=name, volume=state.volume, error=turn.fault)
        reason = turn.reason if turn.write is None else WaitReason.WRITTEN
        state.waits_for(reason, now)
        if reason == WaitReason.NO_ROOM:
            self._explains.unplaced(name)
        is_young = now - state.since < YOUNG_SECONDS
        pause = turn.seconds if is_young else max(turn.seconds, backoff_seconds(state.tries + 1, BACKOFF_SECONDS))
        state.next_at = now + pause
        if turn.step is not TurnStep.WAIT:
            state.is_busy = True
            self._writes.submit(name, turn, lambda: checks.check_term(term))

    # Views

    def _show(self, *, is_on: bool) -> None:
        now, since = self._clock.now(), defaultdict[str, list[float]](list)
        for state in self._states.values():
            since[str(state.reason)].append(state.reason_at)
        self._figures = PlacementFigures(
            is_on=is_on,
            problem=self._problem,
            waiting={reason: len(moments) for reason, moments in since.items()},
            oldest={reason: round(now - min(moments), 1) for reason, moments in since.items()},
            replicas=tuple(_entry(name, state, now) for name, state in islice(self._states.items(), SHOWN)),
            outcomes=self._writes.outcomes(),
            writing=self._writes.under_way,
            foreign=tuple(self._foreign),
        )


def _entry(name: str, state: Waiting, now: float) -> Mapping[str, Any]:
    return {
        "replica": name,
        "volume": state.volume,
        "reason": str(state.reason),
        "tries": state.tries,
        "waiting_seconds": round(now - state.since, 1),
    }


def status_of(figures: PlacementFigures, reasons_of: Callable[[str], Mapping[str, int]]) -> Mapping[str, Any]:
    """The placer's section of the status document. `reasons_of`: as in `Explains`."""
    found = asdict(figures)
    for one in found["replicas"]:
        if one["reason"] == WaitReason.NO_ROOM:
            one["reasons"] = dict(reasons_of(one["replica"]))
    return found
