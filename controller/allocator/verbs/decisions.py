"""What was given away by name, from the decision until the record shows it, or nobody does any more.

A decision counts from its moment, under the allocator's lock, on that disk and nowhere else. It is durable only once
the caller has written the changes that come with it, and said so; one whose writing failed counts on for a while, since
the write may have arrived, and whoever asks for the same again gets the same.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from math import inf
from typing import Final

from controller.allocator.outcome import Allotment, Obstacle
from controller.allocator.verbs.answers import AnsweredCalls
from controller.allocator.verbs.closed import Closed, in_doubt
from controller.allocator.verbs.known import ShownObjects
from controller.allocator.world.world import World
from controller.clock import Clock
from controller.errors import NotReadyError, PreconditionError, RefusedWriteError, SchedulerError
from controller.model.allocations import Allocation, Drop, NodeRecord, Put

SHOWN_SECONDS: Final = 90.0  # until the watch shows what was written, or it is there no more; a store is stale before
DOUBT_SECONDS: Final = 90.0  # for which a write that failed may arrive all the same, as the writer's ARRIVES_SECONDS
LONGHORN_DECIDES: Final = "allocation-authority is longhorn: Longhorn places replicas by itself"


class Decisions:
    """Threads: any; those that end in `_locked` with the allocator's lock held. Blocks: for others who give room away.
    I/O: none."""

    def __init__(
        self,
        lock: threading.Condition,
        clock: Clock,
        world: World,
        is_active: Callable[[], bool],
        settle: Callable[[str], None],
    ) -> None:
        """Both under the lock. `is_active`: raises NotReadyError when nothing can be trusted any more. `settle`: brings
        plans in line with a change of that volume's replicas; "": of anything else."""
        self._lock, self._clock, self._world = lock, clock, world
        self._is_active, self._settle = is_active, settle
        self._closed = Closed(world, clock)
        # Taken before the lock by those who give room away: others wait for one of them then, however many there are.
        self._turn = threading.Lock()
        self._numbers = count(1)
        self._began_at = -inf  # the term
        self.answers, self.known = AnsweredCalls(lock, clock, world.allocated), ShownObjects(lock, world)

    # What became of it

    def learn(self, record: NodeRecord, place: str = "", *, is_written: bool = True) -> None:
        """This process has written a node's record like that, or read it, before the watch shows it. Costs: what
        changed in it."""
        with self._turn, self._lock:
            until = self._clock.now() + SHOWN_SECONDS
            self._change_locked(self._world.allocated.learn(record, until, place, is_written=is_written))

    def written(self, allotment: Allotment) -> None:
        """The changes are durable, and `learn` has told what is on record since. Costs: what they touch."""
        with self._turn, self._lock:
            self._change_locked(self._world.allocated.end(allotment.number, allotment.put))
            self._change_locked(self._world.allocated.told(next(self._numbers), allotment.put) or None)
            self.answers.told_locked(allotment.put)

    def withdrawn(self, allotment: Allotment) -> None:
        """The changes were not sent, and will not be. Costs: what they touch."""
        with self._turn, self._lock:
            self._change_locked(self._world.allocated.end(allotment.number, allotment.put))
            self._world.allocated.not_written(allotment.number, allotment.put)

    def failed(self, allotment: Allotment, place: str = "", error: BaseException | None = None) -> None:
        """The changes may or may not have become durable at that place, but for nodes that are `untouched` by the
        `error`. Costs: what they touch."""
        untouched = error.untouched if isinstance(error, SchedulerError) else ()
        with self._turn, self._lock:
            if isinstance(error, RefusedWriteError):
                self._closed.refused(error)
            until, allocated = self._clock.now() + DOUBT_SECONDS, self._world.allocated
            doubtful = [one for one in allotment.put if one.node not in untouched]
            ended = set(allotment.put).difference(doubtful)
            self._change_locked(allocated.end(allotment.number, ended))
            allocated.not_written(allotment.number, ended)
            self._change_locked(allocated.doubt(allotment.number, doubtful, until, place))

    def check_doubts(self, obstacles: Collection[Obstacle]) -> None:
        """NotReadyError where room may be missing only because a write of ours was not answered. Costs: as `in_doubt`,
        if there are obstacles."""
        if obstacles:
            with self._turn, self._lock:
                found = in_doubt(self._world, obstacles)
            if found is not None:
                where = f"on disk {found.disk!r} of node {found.node}"
                raise NotReadyError(f"it is not known whether a write took the room {where}; try again")

    # Who decides

    @property
    def switches(self) -> int:
        """How often it changed whether the record decides."""
        return self._world.allocated.switches

    def check_decides(self, since: int) -> None:
        """What was decided before the record decided no more, after so many `switches`, is not given."""
        if not self._world.allocated.counts:
            raise PreconditionError(LONGHORN_DECIDES)
        if self.switches != since:
            raise NotReadyError("allocation-authority has changed since this was decided; try again")

    def decide_locked(self, decides: bool) -> None:
        """Whether the record decides from now on. Costs: every allocation where that changes, else nothing."""
        if decides != self._world.allocated.counts:
            self._change_locked(self._world.allocated.count(decides))

    def begin_term_locked(self) -> None:
        """The record tells what was given before. Costs: a look at each entry."""
        self._began_at = self._clock.now()
        self._world.volumes_touched(self._world.allocated.begin_term())

    def end_term_locked(self) -> None:
        """Nothing is given away here any more."""
        self._world.allocated.has_former = False

    def sweep_locked(self, now: float, grace_seconds: float) -> None:
        """What was decided and came to nothing ends. Costs: a look at each decision that the record does not show."""
        self.answers.sweep_locked(now, grace_seconds)
        if now - self._began_at >= DOUBT_SECONDS:
            self._world.allocated.has_former = False
        volumes = self._world.allocated.expire(now)
        if volumes:
            self._change_locked(volumes)

    # Steps

    @contextmanager
    def _active(self) -> Iterator[None]:
        with self._turn, self._lock:
            if not self._is_active():
                raise NotReadyError("the scheduler extender is bypassed or switched off")
            if not self._world.allocated.counts:
                raise PreconditionError(LONGHORN_DECIDES)
            yield

    def _check_readable(self, node: str) -> None:
        problem = self._world.allocated.unreadable(node)
        if problem:
            raise PreconditionError(f"{node}: {problem}")

    def _give_locked(self, one: Allocation) -> Allotment:
        given = Allotment((one,), is_new=True, size_bytes=one.size_bytes)
        return self._decided_locked(given, is_judged=True)

    def _repeated(self, one: Allocation, volume: str = "") -> Allotment:
        """Given before, and written once more."""
        given = Allotment((one,), size_bytes=one.size_bytes)
        return self._decided_locked(given, volume, is_judged=False)

    def _decided_locked(self, given: Allotment, volume: str = "", *, is_judged: bool) -> Allotment:
        number, entries = next(self._numbers), given.allocations
        changed = self._world.allocated.decide(number, entries, is_judged=is_judged)
        self._change_locked({volume, *changed} - {""})
        seen = self._world.allocated.seen_by(number, entries)
        return replace(given, number=number, seen=seen, changes=tuple(Put(one) for one in entries))

    def _freed(self, allocations: Iterable[Allocation]) -> Allotment:
        entries = tuple(allocations)
        self._world.allocated.disown(entries)
        self.answers.freed_locked(entries)
        changes = tuple(Drop(one.purpose, one.name, one.node, one.disk_uuid) for one in entries)
        return Allotment(freed=entries, changes=changes)

    def _change_locked(self, volumes: Iterable[str] | None) -> None:
        """Those volumes' replicas may be others; None: nothing is."""
        if volumes is None:
            return
        volumes = set(volumes)
        self._world.volumes_touched(volumes)
        for name in volumes or {""}:
            self._settle(name)
