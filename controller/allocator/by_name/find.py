"""Where a replica would find a disk beside what others have, for callers that only ask.

Nothing is changed and nothing is kept. A question is worked out on a copy of the facts and the table of its moment, so
that it holds the allocator's lock no longer than the copy takes, however many disks there are.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from types import MappingProxyType
from typing import Final

from controller.allocator.by_name.beside import BesideOthers, FoundDisks
from controller.allocator.choose.choose import Chooser
from controller.allocator.choose.wanted import replica_to_come
from controller.allocator.plans.beside import Beside
from controller.allocator.plans.growths import Growths
from controller.allocator.plans.table import Table
from controller.allocator.verbs.grow import places_to_come
from controller.allocator.world.world import World
from controller.errors import NotFoundError, NotReadyError
from controller.model.longhorn import Replica, Volume

_NOTHING_CLOSED: Final[Mapping[str, str]] = MappingProxyType({})


def beside_others(
    world: World,
    table: Table,
    volume: Volume,
    now_utc: datetime | None = None,
    closed: Mapping[str, str] = _NOTHING_CLOSED,
) -> BesideOthers:
    """The volume beside all plans and holds of others. `closed`: as for `BesideOthers`."""
    others, own = Beside(table, (volume.name,)), places_to_come(table, volume.name)
    return BesideOthers(world, volume, others, own, now_utc, closed)


@dataclass(frozen=True, slots=True)
class DiskQuestion:
    """Which disks would take that replica; `replica` "": a further one of the volume. `hard_node_affinity` is that of
    such a one; "": what Longhorn gives it. `size_bytes`: what the volume has at least."""

    volume: str
    replica: str = ""
    hard_node_affinity: str = ""
    size_bytes: int = 0


class DiskQueries:
    """The allocator's part that answers questions about disks.

    Threads: any, one question at a time. Blocks: for the question before, no longer than its `seconds`. I/O: none.
    """

    def __init__(
        self,
        lock: threading.Condition,
        world: World,
        table: Table,
        growths: Growths,
        is_active: Callable[[], bool],
    ) -> None:
        """`is_active`: under the lock; raises NotReadyError when nothing can be trusted any more."""
        self._lock, self._world, self._table, self._growths = lock, world, table, growths
        self._is_active, self._turn = is_active, threading.Lock()

    def find(
        self,
        question: DiskQuestion,
        seconds: float,
        now_utc: datetime | None = None,
        closed: Mapping[str, str] = _NOTHING_CLOSED,
        nearest: int = 0,
    ) -> FoundDisks:
        """NotFoundError when there is no such volume, or it has no such replica; NotReadyError when the questions
        before take longer than `seconds`, or nothing can be trusted any more. `closed`: as for `BesideOthers`.
        `nearest`: to be told, as by its `find_nearest`, why that few disks do not take it; 0: everything.

        Costs: copying facts by kind, and lists of plans and holds; then, without the lock, a look at each disk, which
        is short but for those that are told of."""
        if not self._turn.acquire(timeout=max(0.0, seconds)):
            raise NotReadyError("other questions took too long; try again")
        try:
            world, table, volume = self._copy(question.volume)
            if volume is None:
                raise NotFoundError(f"there is no Longhorn volume {question.volume!r}")
            volume = replace(volume, size_bytes=max(volume.size_bytes, question.size_bytes))
            replica = _replica(world, volume, question)
            beside, chooser = beside_others(world, table, volume, now_utc, closed), Chooser(world)
            if nearest:
                return beside.find_nearest(replica, chooser, nearest)
            return beside.find(replica, chooser)
        finally:
            self._turn.release()

    def knows(self, volume: str) -> bool:
        """Whether our stores show the volume. Costs: one look-up."""
        with self._lock:
            return volume in self._world.volumes

    def _copy(self, name: str) -> tuple[World, Table, Volume | None]:
        """With the volume as large as it was granted."""
        with self._lock:
            self._is_active()
            world, volume = self._world.copy(self._growths.copy()), self._world.volume(name)
            plans, holds = self._table.plans(), self._table.all_holds()
        return world, Table.of(plans, holds), volume


def _replica(world: World, volume: Volume, question: DiskQuestion) -> Replica:
    if not question.replica:
        return replica_to_come(volume, question.hard_node_affinity)
    found = world.replicas_of(volume.name).get(question.replica)
    if found is None:
        raise NotFoundError(f"volume {volume.name!r} has no replica {question.replica!r}")
    return found
