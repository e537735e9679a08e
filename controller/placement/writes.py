"""Carries out what was decided about Replicas, several at a time.

The allocator always hears what became of a write: stored, refused, or, without an answer, what reads show.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from enum import StrEnum
from typing import Final, Protocol

from controller.allocator.outcome import PlaceWrite, ReplicaTurn, TurnStep
from controller.clock import Clock
from controller.errors import (
    ClusterError,
    ConflictError,
    MalformedRequestError,
    NotFoundError,
    SchedulerError,
    UnavailableError,
)
from controller.log_line import LogLine, say
from controller.model.longhorn import Replica
from controller.model.times import rfc3339
from controller.placement.objects import ReplicaObjects
from controller.views.decisions import NoteDecision, log_decision

WRITERS: Final = 8
AGAIN_SECONDS: Final = 1.0  # from the end of a write, whatever became of it, until the next decision about its Replica
HUNG_SECONDS: Final = 30.0  # for one write with all its reads
KEPT_SECONDS: Final = 30.0  # for a mark that has to go and cannot be removed
ARRIVES_SECONDS: Final = 10.0  # for a write without an answer to arrive: longer than its call
DOUBT_SECONDS: Final = 1.0  # between reads after a write without an answer

_log = logging.getLogger(__name__)


class PlacementOutcome(StrEnum):
    """What became of a write, as the metrics count it."""

    PLACED = "placed"
    ELSEWHERE = "placed-by-others"
    HELD = "held"
    RELEASED = "released"
    LEFT = "left"
    FAILED = "failed"


class HearsOfPlaces(Protocol):
    """Is told what became of each write of a place. In the product the allocator's `PlaceDecisions`."""

    def stored(self, write: PlaceWrite, facts: Replica) -> None: ...
    def failed(self, write: PlaceWrite, facts: Replica | None) -> None: ...


class ReplicaWrites:
    """Writes places and marks of Replicas.

    Threads: its own; its methods are for any. Blocks: `end`, until no write is under way. I/O: of Replicas.
    """

    def __init__(
        self,
        decides: HearsOfPlaces,
        objects: ReplicaObjects,
        clock: Clock,
        now_utc: Callable[[], datetime],
        is_leading: Callable[[], bool],
        wake: Callable[[], None],
        note: NoteDecision = log_decision,
    ) -> None:
        """`wake` is called when a write has ended."""
        self._decides, self._objects, self._clock = decides, objects, clock
        self._now_utc, self._is_leading, self._wake, self._note = now_utc, is_leading, wake, note
        self._ending = threading.Event()
        self._writers = ThreadPoolExecutor(WRITERS, thread_name_prefix="placer-write")
        self._lock = threading.Lock()  # guards the fields below
        self._under_way: dict[str, float] = {}  # by replica, since when
        self._ended: list[tuple[str, float]] = []  # replicas, and when to look again
        self._kept_since: float | None = None  # since when a mark cannot be removed that has to go
        self._outcomes = Counter[str]()

    def submit(self, name: str, turn: ReplicaTurn, check: Callable[[], None]) -> None:
        """Carry out that turn soon. `check`: as for `ReplicaObjects.place`."""
        with self._lock:
            self._under_way[name] = self._clock.now()
        self._writers.submit(self._write, name, turn, check)

    def take_ended(self) -> list[tuple[str, float]]:
        """Replicas whose writes have ended since the last call, and when to decide about each again."""
        with self._lock:
            ended, self._ended = self._ended, []
        return ended

    def is_alive(self) -> bool:
        """Whether its writes end, and no Replica is kept from Longhorn for nothing."""
        now = self._clock.now()
        with self._lock:
            oldest = min(self._under_way.values(), default=now)
            kept_since = now if self._kept_since is None else self._kept_since
        return now - oldest <= HUNG_SECONDS and now - kept_since <= KEPT_SECONDS

    @property
    def under_way(self) -> int:
        return len(self._under_way)

    def outcomes(self) -> Mapping[str, int]:
        """The number of writes by outcome."""
        with self._lock:
            return {one.value: self._outcomes[one] for one in PlacementOutcome}

    def count(self, outcome: PlacementOutcome) -> None:
        with self._lock:
            self._outcomes[outcome] += 1

    def end(self) -> None:
        """Wait for writes under way; those that have not begun are dropped."""
        self._ending.set()
        self._writers.shutdown(wait=True, cancel_futures=True)

    # The threads

    def _write(self, name: str, turn: ReplicaTurn, check: Callable[[], None]) -> None:
        """Carry out a turn. Its end is noted whatever happens."""
        try:
            if turn.write is not None:
                self._place(turn.write, check)
            else:
                self._mark(name, turn, check)
        except SchedulerError as error:
            self.count(PlacementOutcome.FAILED)
            what = {"replica": name, "volume": turn.volume, "step": turn.step}
            say(_log, "replica not written", logging.WARNING, **what, error=error)
        except Exception as error:  # thread top
            self.count(PlacementOutcome.FAILED)
            _log.exception(LogLine("replica not written", {"replica": name, "volume": turn.volume}))
            if turn.write is not None:
                self._resolve(turn.write, error)
        finally:
            with self._lock:
                self._under_way.pop(name, None)
                self._ended.append((name, self._clock.now() + AGAIN_SECONDS))
            self._wake()

    def _place(self, write: PlaceWrite, check: Callable[[], None]) -> None:
        began = self._clock.now()
        try:
            facts = self._objects.place(write, check)
        except (UnavailableError, MalformedRequestError) as error:
            self._resolve(write, error)
            return
        except SchedulerError as error:
            self._refused(write, error)
            is_refused = isinstance(error, ClusterError) and not isinstance(error, ConflictError | NotFoundError)
            if is_refused and write.is_held:
                self._release(write.replica, write.uid, check)  # who is not allowed to place it lets others
            return
        self._decides.stored(write, facts)
        self._note_kept(None)
        milliseconds = (self._clock.now() - began) * 1000
        where = write.place
        told = f"volume {write.volume} on disk {where.disk_uuid} of {where.node}"
        said = {"volume": write.volume, "node": where.node, "disk": where.disk_uuid, "how": write.how}
        self._tell(PlacementOutcome.PLACED, write.replica, told, said, milliseconds)

    def _refused(self, write: PlaceWrite, error: SchedulerError) -> None:
        """The write was not stored, and will not be."""
        found = self._read(write)
        if found is not None and found.node:
            told = f"somebody else placed volume {write.volume} on {found.node} before"
            facts = {"volume": write.volume, "node": found.node}
            self._tell(PlacementOutcome.ELSEWHERE, write.replica, told, facts)
        elif not isinstance(error, ConflictError | NotFoundError):
            facts = {"volume": write.volume, "error": str(error)}
            self._tell(PlacementOutcome.FAILED, write.replica, str(error), facts, level=logging.WARNING)
        self._decides.failed(write, found)

    def _resolve(self, write: PlaceWrite, error: Exception) -> None:
        """Read until it is known whether the write was stored: its answer is lost. It may still arrive for
        ARRIVES_SECONDS."""
        say(_log, "no answer", logging.WARNING, replica=write.replica, volume=write.volume, error=error)
        self.count(PlacementOutcome.FAILED)
        arrives_until = self._clock.now() + ARRIVES_SECONDS
        while True:
            found = self._read(write)
            if found is None or found.node or found.uid != write.uid:
                break
            is_over = self._clock.now() >= arrives_until or not self._is_leading()
            if is_over or self._ending.wait(DOUBT_SECONDS):
                break
        where = write.place
        if found is not None and (found.node, found.disk_uuid) == (where.node, where.disk_uuid):
            self._decides.stored(write, found)
        else:
            self._decides.failed(write, found)

    def _read(self, write: PlaceWrite) -> Replica | None:
        """The Replica, asked for until there is an answer. One that cannot be parsed counts as gone."""
        while True:
            try:
                return self._objects.look(write.replica)
            except MalformedRequestError:
                return None
            except SchedulerError:
                if self._ending.wait(DOUBT_SECONDS):
                    return None

    def _mark(self, name: str, turn: ReplicaTurn, check: Callable[[], None]) -> None:
        try:
            if turn.step is TurnStep.HOLD:
                self._objects.hold(name, turn.uid, rfc3339(self._now_utc()), check)
                outcome = PlacementOutcome.HELD
            elif turn.step is TurnStep.RELEASE:
                self._release(name, turn.uid, check)
                outcome = PlacementOutcome.RELEASED
            else:
                self._objects.leave(name, turn.uid, turn.reason, check)
                outcome = PlacementOutcome.LEFT
            told = f"volume {turn.volume}: {turn.reason}"
            self._tell(outcome, name, told, {"volume": turn.volume, "reason": turn.reason})
        except (ConflictError, NotFoundError):
            return  # it has a node by now, or is gone

    def _tell(
        self,
        outcome: PlacementOutcome,
        replica: str,
        text: str,
        facts: Mapping[str, object],
        milliseconds: float | None = None,
        level: int = logging.INFO,
    ) -> None:
        """Count what became of the Replica, and note it as a decision."""
        self.count(outcome)
        about = f"Replica {replica}"
        self._note("place", about, outcome, text=text, milliseconds=milliseconds, facts=facts, level=level)

    def _release(self, name: str, uid: str, check: Callable[[], None]) -> None:
        """Remove the mark that keeps the Replica from Longhorn."""
        try:
            self._objects.hold(name, uid, None, check)
        except (ConflictError, NotFoundError):
            self._note_kept(None)
            raise
        except ClusterError:
            self._note_kept(self._clock.now())
            raise
        self._note_kept(None)

    def _note_kept(self, since: float | None) -> None:
        with self._lock:
            self._kept_since = since if since is None or self._kept_since is None else self._kept_since
