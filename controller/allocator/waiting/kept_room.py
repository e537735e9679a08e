"""Room that is kept for a pod that was refused for long, so that a large pod does not starve behind small ones.

What is kept are places on one node for each such pod: other pods of no higher priority that need room there get only
what is left beside them. It is kept where the pod would fit once the data that leaves anyway is gone; nothing else is
moved, so nothing is kept on a node where data in use is in the way. On a tenth of the nodes at most, and for a limited
time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from controller.allocator.choose.packing import PACK_STEPS, Steps, pack
from controller.allocator.choose.pod_fit import PodFit
from controller.allocator.choose.shape import Shape
from controller.allocator.world.world import World
from controller.model.longhorn import Replica
from controller.model.places import Place

KEPT_SECONDS: Final = 600.0  # that room is kept for one pod
REST_SECONDS: Final = 600.0  # without kept room, for a pod for which it was kept long enough
_SHARE: Final = 10  # of so many nodes one may be kept
_FEWEST: Final = 3  # nodes of a cluster in which anything is kept


def leaving_bytes(world: World, disk_uuid: str) -> int:
    """Bytes of that disk that are likely to become free soon: those of replicas that are being deleted, have failed or
    are evicted, and of volumes that go with their pod or claim."""
    return sum(replica.size_bytes for replica in world.replicas_on(disk_uuid) if _leaves(world, replica))


def _leaves(world: World, replica: Replica) -> bool:
    if replica.deleting or replica.failed_at or replica.eviction_requested:
        return True
    volume = world.volume(replica.volume)
    if volume is None or volume.deleting:
        return True
    claim = world.claim_of_volume(replica.volume)
    return claim is not None and (claim.is_deleting or bool(claim.owner_pod_uid))


def most_kept(nodes: int) -> int:
    """The number of nodes, of so many, on which room may be kept at a time."""
    return max(1, nodes // _SHARE) if nodes >= _FEWEST else 0


def places_to_keep(fit: PodFit, name: str) -> Mapping[str, Place]:
    """Places on that node for the pod's local volumes once the data that leaves anyway is gone, whatever others hold or
    have planned there; empty if the volumes do not fit even then."""
    shape = fit.shape_on(name)
    if not isinstance(shape, Shape):
        return {}
    free = [disk.free_bytes + leaving_bytes(fit.world, disk.uuid) for disk in shape.room.disks]
    found = pack(shape.items, free, Steps(PACK_STEPS))
    return {} if found is None else {demand.volume: place for demand, place in shape.places(found)}


@dataclass(slots=True)
class Seeking:
    """The search for the node to keep room on for one pod: the one with the most free space of those that could take
    it. It goes on where it stopped."""

    names: Sequence[str]
    best: str = ""
    places: Mapping[str, Place] = field(default_factory=dict)  # there
    _best_free: float = -math.inf
    _position: int = 0

    def go_on(self, fit: PodFit, kept: Container[str], is_over: Callable[[], bool]) -> bool:
        """Look on, except at nodes that are `kept` already; False if `is_over` ended it before all were looked at."""
        while self._position < len(self.names):
            if self._position and is_over():
                return False
            for name in self.names[self._position : self._position + fit.lot]:
                free = _free_bytes(fit, name)
                if free > self._best_free and name not in kept and (places := places_to_keep(fit, name)):
                    self.best, self.places, self._best_free = name, places, free
            self._position += fit.lot
        return True


def _free_bytes(fit: PodFit, name: str) -> int:
    room = fit.world.room(name)
    disks = room.disks if room is not None else ()
    return sum(max(0, disk.free_bytes) - fit.taken.taken_bytes(name, disk.uuid) for disk in disks)


class KeptUntil:
    """The time until which room is kept for each pod, however often it is given up meanwhile; then others have their
    turn. Threads: none of its own; the allocator's lock guards it."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}  # by pod uid

    def is_resting(self, pod_uid: str, now: float) -> bool:
        """Whether the pod has had its time of kept room, and none is kept for it now."""
        end = self._until.get(pod_uid, math.inf)
        return end <= now < end + REST_SECONDS

    def keep_until(self, pod_uid: str, now: float) -> float:
        """When the room that is kept for the pod from now on ends. The pod must not be resting."""
        self._until = {uid: end for uid, end in self._until.items() if now < end + REST_SECONDS}
        return self._until.setdefault(pod_uid, now + KEPT_SECONDS)
