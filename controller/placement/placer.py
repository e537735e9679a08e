"""Places Replica objects without a disk, as Longhorn's volume controller does where its own placement is on.

A place is decided and put on record as for a caller of ScheduleReplica, and written into the Replica then. Between the
two nothing is lost: whoever comes next finds the disk on record and goes on with it. A write that arrives after its
leader's term has ended says what is on record, or is refused because the object was written since.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from functools import partial
from itertools import islice
from typing import Any, Final, Protocol

from controller.allocator.outcome import Allotment, HeldPlace, Mode, PlacementTurn
from controller.allocator.verbs.allocate import DOUBT_SECONDS
from controller.clock import Clock
from controller.errors import NotReadyError, SchedulerError
from controller.placement.objects import ReplicaObjects, ReplicaPlace, Written
from controller.placement.unplaced import News, Unplaced
from controller.process.worker import Part, Worker, backoff_seconds
from controller.rules.placing import Wait
from controller.settings import DISK_SCHEDULER, PLACES_NOTHING, LiveSettings

EVERY_SECONDS: Final = 2.0  # without news
ROUND_SECONDS: Final = 1.0  # of one round; the rest follows in the next one
PLACE_SECONDS: Final = 5.0  # for a decision and its record
BACKOFF_SECONDS: Final = (1.0, 30.0)  # after a try without a disk: the first, and the longest
REST: Final = 4.0  # times that a round of repeated tries took are waited before the next one
MOST_REST_SECONDS: Final = 5.0
REUSE_SECONDS: Final = 30.0  # that a failed replica has to come back which Longhorn would reuse
SEEN_SECONDS: Final = 5.0  # within which our stores show what was written
LOOK_SECONDS: Final = 30.0  # between looks at what waits for an event
MOST_FAILURES: Final = 3  # in a row: what fails so often fails for all
SHOWN: Final = 50  # replicas in the status document

_log = logging.getLogger(__name__)


class Why(StrEnum):
    """Why a replica still waits, beside the reasons of `Wait`."""

    NEW = "new"
    NO_VOLUME = "no-volume"
    BINDING = "binding"  # its hardNodeAffinity is being written
    CLOSED = "closed-disk"  # the disk on record takes no replicas now, or not one that has grown
    NO_ROOM = "no-room"
    FAILURE = "failure"
    WRITTEN = "written"  # and not shown yet
    MOVED = "changed-meanwhile"


REASONS: Final = (*(one.value for one in Why), *(one.value for one in Wait))


class PlacementOutcome(StrEnum):
    """What the metrics count."""

    PLACED = "placed"
    ELSEWHERE = "placed-by-others"
    NO_ROOM = "no-room"
    FAILED = "failed"


class Gives(Protocol):
    """Decides, and has it on record before it answers. In the product DiskAllocator of controller.rpc, which must not
    be imported here. Raises SchedulerError."""

    def place(self, volume: str, replica: str, seconds: float, *, frees: bool) -> Allotment: ...
    def release(self, replica: str, seconds: float) -> Allotment: ...


class PlacementTurns(Protocol):
    """Whose turn it is. In the product the allocator's `Allocations`."""

    def turn_of(self, name: str, now_utc: datetime | None = None) -> PlacementTurn | None: ...


class TermChecks(Protocol):
    """Whether this process may write. In the product `Preconditions` of the extender."""

    @property
    def mode(self) -> Mode: ...
    def begin(self) -> int: ...
    def check_term(self, term: int) -> None: ...
    def check_fresh(self) -> None: ...


@dataclass(slots=True)
class Waiting:
    """One replica without a disk. `tries`: in a row, without a disk or with a failure."""

    volume: str
    since: float
    reason_since: float
    next_at: float
    reason: str = Why.NEW
    detail: str = ""
    tries: int = 0


@dataclass(frozen=True, slots=True)
class PlacementFigures:
    """For metrics and the status page. `shown`: the first that wait."""

    is_on: bool = False
    problem: str = ""
    waiting: Mapping[str, int] = field(default_factory=dict)  # reason -> how many
    shown: tuple[Mapping[str, Any], ...] = ()
    outcomes: Mapping[str, int] = field(default_factory=dict)


class Placer(Part):
    """Threads: `worker`'s; `figures` from any. Blocks: never. I/O: the record's writes, and each Replica's."""

    def __init__(
        self,
        gives: Gives,
        turns: PlacementTurns,
        objects: ReplicaObjects,
        disk_path: Callable[[str, str], str],
        settings: Callable[[], LiveSettings],
        checks: Callable[[], TermChecks],
        clock: Clock,
        *,
        is_leading: Callable[[], bool],
        has_record: Callable[[], bool],
    ) -> None:
        """`disk_path`: by node and UUID; "" where no node shows it."""
        self.worker = Worker("placer", self.run_once)
        self.unplaced = Unplaced(self.worker.wake)
        self._gives, self._turns, self._objects, self._disk_path = gives, turns, objects, disk_path
        self._settings, self._checks, self._clock = settings, checks, clock
        self._is_leading, self._has_record = is_leading, has_record
        # The thread's own.
        self._states: dict[str, Waiting] = {}
        self._rest_until = -math.inf
        self._problem = ""
        self._failed_in_a_row = 0
        self._outcomes = Counter[str]()
        self._writes_until = -math.inf  # what was sent has arrived by then
        self._show(is_on=False)

    def figures(self) -> PlacementFigures:
        return self._figures

    def may_write(self) -> bool:
        """Whether it is switched on, or a write of it may be under way from before."""
        return self._settings().replica_placement or self._clock.now() < self._writes_until

    # A round

    def run_once(self) -> float:
        """Try what is due; the seconds until something is, unless there are news before."""
        is_on, problem = self._whether()
        if is_on:
            self._writes_until = self._clock.now() + DOUBT_SECONDS
        if problem != self._problem:
            self._problem = problem
            _log.log(logging.WARNING if problem else logging.INFO, "replica placement: %s", problem or "goes on")
        if not is_on or problem or not self._is_leading():
            self._states.clear()
            self._show(is_on=is_on)
            return EVERY_SECONDS  # and no news are taken: there may be some with every event
        self._hear(self.unplaced.take())
        self._try_due()
        self._show(is_on=True)
        return self._pause()

    def _whether(self) -> tuple[bool, str]:
        """Whether it is switched on, and what keeps it from working then."""
        live = self._settings()
        if not live.replica_placement:
            return False, ""
        if live.allocation_authority != DISK_SCHEDULER:
            return False, PLACES_NOTHING
        if not self._is_leading():
            return True, ""
        if not self._has_record():
            return True, "there is no record of allocations in this cluster"
        checks = self._checks()
        if checks.mode is not Mode.ACTIVE:
            return True, "the scheduler extender is bypassed or switched off"
        try:
            checks.check_fresh()
        except NotReadyError as error:
            return True, str(error)
        return True, ""

    def _hear(self, news: News) -> None:
        now = self._clock.now()
        for name in self._states.keys() - news.waiting.keys():
            del self._states[name]
        for name, volume in news.waiting.items():
            if name not in self._states:
                self._states[name] = Waiting(volume, now, now, now)
        for name in news.touched & self._states.keys():
            self._states[name].next_at = min(self._states[name].next_at, now)
        if news.has_room:
            at = max(now, self._rest_until)
            for state in self._states.values():
                if state.reason in (Why.NO_ROOM, Why.CLOSED, Wait.REUSE, Wait.REPLACEMENT):
                    state.next_at = min(state.next_at, at)

    def _try_due(self) -> None:
        """Of those that are due at the same time, in the order in which they came, so that none that waits for room
        loses it to a later one. Where a round ends before all were tried, the next one begins with the others."""
        began = self._clock.now()
        due = sorted(
            (name for name, state in self._states.items() if self._due_at(state) <= began),
            key=lambda name: self._states[name].next_at,
        )
        self._failed_in_a_row = again = 0
        for name in due:
            if self.worker.is_stopping or not self._is_leading() or self._failed_in_a_row == MOST_FAILURES:
                break
            if self._clock.now() - began > ROUND_SECONDS:
                break
            again += self._states[name].tries > 0
            self._try(name, self._states[name])
        if again:
            now = self._clock.now()
            self._rest_until = now + min(REST * (now - began), MOST_REST_SECONDS)

    def _try(self, name: str, state: Waiting) -> None:
        state.next_at = self._clock.now() + BACKOFF_SECONDS[1]  # also where a fault of ours ends the round
        try:
            self._step(name, state)
            self._failed_in_a_row = 0
        except SchedulerError as error:
            if not self._is_leading():
                return  # the next leader goes on with what is on record
            self._failed_in_a_row += 1
            self._outcomes[PlacementOutcome.FAILED] += 1
            if state.detail != str(error):
                _log.warning("replica not placed replica=%s volume=%s: %s", name, state.volume, error)
            self._back_off(state, Why.FAILURE, str(error))

    def _pause(self) -> float:
        least = BACKOFF_SECONDS[0] if self._failed_in_a_row == MOST_FAILURES else 0.0
        due = min(map(self._due_at, self._states.values()), default=math.inf)
        return min(EVERY_SECONDS, max(least, due - self._clock.now()))

    def _due_at(self, state: Waiting) -> float:
        return max(state.next_at, self._rest_until) if state.tries else state.next_at

    # One replica

    def _step(self, name: str, state: Waiting) -> None:
        """The order of it all: whose turn it is, the node it is bound to, the decision with its record, the write."""
        checks = self._checks()
        check = partial(self._check, checks, checks.begin())
        turn = self._turns.turn_of(name, self._clock.now_utc())
        if turn is None:
            self._wait(state, Why.NO_VOLUME, EVERY_SECONDS)
        elif turn.not_yet is not None and not self._is_over(state, turn.not_yet.wait, Wait.REUSE, REUSE_SECONDS):
            self._wait(state, turn.not_yet.wait, min(turn.not_yet.seconds or LOOK_SECONDS, LOOK_SECONDS))
        elif turn.affinity:
            self._objects.bind(name, turn.affinity, check)
            self._wait(state, Why.BINDING, EVERY_SECONDS)  # until our stores show it, and the decision goes by it
        elif turn.held is HeldPlace.ELSEWHERE or self._is_over(state, _of(turn.held), Why.CLOSED, DOUBT_SECONDS):
            self._give_up(name, state)
        elif turn.held in (HeldPlace.CLOSED, HeldPlace.TOLD):
            self._wait(state, Why.CLOSED, EVERY_SECONDS)
        else:
            self._place(name, state, check)

    def _check(self, checks: TermChecks, term: int) -> None:
        """Whether a Replica is to be written all the same."""
        checks.check_term(term)
        live = self._settings()
        if not live.replica_placement or live.allocation_authority != DISK_SCHEDULER:
            raise NotReadyError("replica-placement was switched off meanwhile")

    def _is_over(self, state: Waiting, found: str, reason: str, seconds: float) -> bool:
        """Whether it has waited for that long enough."""
        is_same = found == state.reason == reason
        return is_same and self._clock.now() - state.reason_since >= seconds

    def _give_up(self, name: str, state: Waiting) -> None:
        """What is on record is no place for it any more: free it, unless the replica lies there after all. A write that
        was under way has arrived by now, or is refused: the affinity was written since."""
        found = self._objects.look(name)
        if found is None or found.node:
            self._wait(state, Why.MOVED, EVERY_SECONDS)
            return
        freed = self._gives.release(name, PLACE_SECONDS).freed
        places = ", ".join(f"{one.node}/{one.disk_uuid}" for one in freed)
        _log.warning("place given up replica=%s volume=%s places=%s", name, state.volume, places or "none")
        self._wait(state, Why.MOVED, BACKOFF_SECONDS[0])

    def _place(self, name: str, state: Waiting, check: Callable[[], None]) -> None:
        began = self._clock.now()
        given = self._gives.place(state.volume, name, PLACE_SECONDS, frees=False)
        if not given.allocations:
            self._outcomes[PlacementOutcome.NO_ROOM] += 1
            if state.reason != Why.NO_ROOM:
                _log.info("no room replica=%s volume=%s: %s", name, state.volume, _nearest(given))
            self._back_off(state, Why.NO_ROOM, _nearest(given))
            return
        (one,) = given.allocations
        path = self._disk_path(one.node, one.disk_uuid)
        if not path:
            raise NotReadyError(f"the path of disk {one.disk_uuid} of node {one.node} is not known")
        written = self._objects.place(name, ReplicaPlace(state.volume, one.node, one.disk_uuid, path), check)
        milliseconds = (self._clock.now() - began) * 1000
        if written is Written.DONE or (written is Written.ALREADY and state.reason != Why.WRITTEN):
            self._outcomes[PlacementOutcome.PLACED] += 1
            text = "placed replica=%s volume=%s node=%s disk=%s was_on_record=%s ms=%.1f"
            _log.info(text, name, state.volume, one.node, one.disk_uuid, not given.is_new, milliseconds)
        elif written is Written.ELSEWHERE:
            self._outcomes[PlacementOutcome.ELSEWHERE] += 1
            _log.warning("somebody else has placed replica=%s volume=%s", name, state.volume)
        is_there = written in (Written.DONE, Written.ALREADY)
        self._wait(state, Why.WRITTEN if is_there else Why.MOVED, SEEN_SECONDS)

    def _back_off(self, state: Waiting, reason: str, detail: str) -> None:
        tries = state.tries + 1
        self._wait(state, reason, backoff_seconds(tries, BACKOFF_SECONDS))
        state.tries, state.detail = tries, detail

    def _wait(self, state: Waiting, reason: str, seconds: float) -> None:
        now = self._clock.now()
        if reason != state.reason:
            state.reason, state.reason_since = reason, now
        state.tries, state.detail, state.next_at = 0, "", now + seconds

    # Views

    def _show(self, *, is_on: bool) -> None:
        now = self._clock.now()
        counts = Counter(state.reason for state in self._states.values())
        shown = tuple(_entry(name, state, now) for name, state in islice(self._states.items(), SHOWN))
        waiting = {reason: counts[reason] for reason in REASONS}
        outcomes = {one.value: self._outcomes[one] for one in PlacementOutcome}
        self._figures = PlacementFigures(is_on, self._problem, waiting, shown, outcomes)


def _of(held: HeldPlace) -> str:
    return Why.CLOSED if held is HeldPlace.CLOSED else ""


def _entry(name: str, state: Waiting, now: float) -> Mapping[str, Any]:
    return {
        "replica": name,
        "volume": state.volume,
        "reason": str(state.reason),
        "detail": state.detail,
        "tries": state.tries,
        "waiting_seconds": round(now - state.since, 1),
    }


def _nearest(given: Allotment) -> str:
    """Of the disks that do not take it the one with the fewest bytes missing, for a person."""
    if not given.obstacles:
        return "there is no disk"
    first = min(given.obstacles, key=lambda one: (not one.missing_bytes, one.missing_bytes, one.node, one.disk))
    others = len(given.obstacles) - 1
    where = " ".join(part for part in (first.node, first.rejection.message) if part)
    return where + (f"; {others} more" if others else "")


def status_of(figures: PlacementFigures) -> Mapping[str, Any]:
    """Its section of the status document."""
    return {
        "is_on": figures.is_on,
        "problem": figures.problem,
        "waiting": {reason: count for reason, count in figures.waiting.items() if count},
        "replicas": list(figures.shown),
        "outcomes": dict(figures.outcomes),
    }
