"""Where a replica would find a disk beside all that is promised, for callers that only ask.

Nothing is changed and nothing is kept. A question is worked out on a copy of the facts and promises of its moment, so
that it holds the allocator's lock no longer than the copy takes, however many disks there are.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from types import MappingProxyType
from typing import Final

from controller.allocator.judge.joined import FoundDisks, JoinedDisks
from controller.allocator.promises.growths import GrantedBy
from controller.allocator.promises.ledger import Ledger
from controller.allocator.verbs.grow import UnderLock
from controller.allocator.world.world import World
from controller.errors import NotFoundError, NotReadyError
from controller.model.longhorn import LOCALITY_STRICT, Replica, Volume

NEW_REPLICA: Final = "-new-"  # behind the volume's name: a replica that is not there; no object has such a name


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

    def __init__(self, lock: threading.Condition, world: World, under_lock: UnderLock) -> None:
        self._lock, self._world, self._under_lock = lock, world, under_lock
        self._turn = threading.Lock()

    def find(
        self,
        question: DiskQuestion,
        seconds: float,
        now_utc: datetime | None = None,
        closed: Mapping[str, str] = MappingProxyType({}),
        nearest: int = 0,
    ) -> FoundDisks:
        """NotFoundError when there is no such volume, or it has no such replica; NotReadyError when the questions
        before take longer than `seconds`, or no promise can be trusted any more. `closed`: as for
        `JoinedDisks`. `nearest`: to be told, as by `JoinedDisks.find_nearest`, why that few disks do not take it; 0:
        everything.

        Costs: copying facts by kind, and promises; then, without the lock, a look at each disk, which is short but for
        those that are told of."""
        if not self._turn.acquire(timeout=max(0.0, seconds)):
            raise NotReadyError("other questions took too long; try again")
        try:
            world, ledger, volume, doubted = self._copy(question.volume)
            if volume is None:
                raise NotFoundError(f"there is no Longhorn volume {question.volume!r}")
            volume = replace(volume, size_bytes=max(volume.size_bytes, question.size_bytes))
            replica = _replica(world, volume, question)
            every = JoinedDisks(world, ledger, volume, now_utc, closed)
            if nearest:
                return every.find_nearest(replica, nearest, doubted)
            found = every.find(replica)
            views = every.tries() if world.allocated.counts else ()
            tries = (found if view is every else view.find(replica) for view in views)
            given = next((one for one in tries if one.preferred is not None), found)
            return found if given is found else _joined(found, given)
        finally:
            self._turn.release()

    def knows(self, volume: str) -> bool:
        """Whether our stores show the volume. Costs: one look-up."""
        with self._lock:
            return volume in self._world.volumes

    def _copy(self, name: str) -> tuple[World, Ledger, Volume | None, frozenset[str]]:
        """With what the copy does not know: that volume as large as its replicas were told, and the nodes where it is
        in doubt what is on record."""
        with self._lock:
            self._under_lock.is_active()
            volume, doubted = self._world.volume(name), self._world.allocated.doubted_nodes()
            world, present = self._world.copy(GrantedBy(lambda: ledger)), self._under_lock.ledger().binding
            promises, known = list(present.promises()), present.bound_known()
        ledger = Ledger.of(promises, known)
        return world, ledger, volume, doubted


def bound_replica(volume: Volume, replica: Replica) -> Replica:
    """As Longhorn has it when it places it: one of a strict-local volume is bound to the volume's node then."""
    node = _strict_node(volume)
    return replace(replica, hard_node_affinity=node) if node and not replica.is_placed else replica


def _joined(found: FoundDisks, given: FoundDisks) -> FoundDisks:
    """All disks that would do, the one that a call gives, and why not the others."""
    places = {(one.node, one.disk) for one in given.disks}
    disks = (*given.disks, *(one for one in found.disks if (one.node, one.disk) not in places))
    obstacles = tuple(one for one in found.obstacles if (one.node, one.disk) not in places)
    return FoundDisks(found.size_bytes, disks, given.preferred, obstacles, given.tried)


def _strict_node(volume: Volume) -> str:
    return volume.node_id if volume.data_locality == LOCALITY_STRICT else ""


def _replica(world: World, volume: Volume, question: DiskQuestion) -> Replica:
    if question.replica:
        found = world.replicas_of(volume.name).get(question.replica)
        if found is None:
            raise NotFoundError(f"volume {volume.name!r} has no replica {question.replica!r}")
        return bound_replica(volume, found)
    node = question.hard_node_affinity or _strict_node(volume)
    return Replica(
        name=f"{volume.name}{NEW_REPLICA}",
        volume=volume.name,
        size_bytes=volume.size_bytes,
        node="",
        disk_uuid="",
        hard_node_affinity=node,
        active=True,
        healthy_at="",
        failed_at="",
        eviction_requested=False,
        rebuild_retry_count=0,
        deleting=False,
        image=volume.image,
        data_engine=volume.needs.data_engine,
        backing_image=volume.backing_image,
    )
