"""Room that is kept for a pod that was refused for long, so that a large pod does not starve behind small ones.

What is kept are bytes on one node for each such pod: other pods of no higher priority that need room there get only
what is left beside them. It is kept where the pod would fit once the data that leaves anyway is gone; nothing else is
moved, so nothing is kept on a node where data in use is in the way. On a tenth of the nodes at most, and for a limited
time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from typing import Final

from controller.allocator.judge.kept import leaving_bytes
from controller.allocator.judge.node import Judge
from controller.allocator.judge.packing import PACK_STEPS, Steps, pack
from controller.allocator.judge.shape import Shape
from controller.allocator.promises.ledger import Ledger
from controller.allocator.world.world import World

_LOT: Final = 64  # nodes between two looks at the clock
_SHARE: Final = 10  # of so many nodes one may be kept
_FEWEST: Final = 3  # nodes of a cluster in which anything is kept


def most_kept(nodes: int) -> int:
    """On how many of so many nodes room may be kept at a time."""
    return max(1, nodes // _SHARE) if nodes >= _FEWEST else 0


@dataclass(slots=True)
class Seeking:
    """The search for the node to keep room on for one pod: the one with the most free space of those that could take
    it. It goes on where it stopped."""

    names: Sequence[str]
    best: str = ""
    _best_free: float = -math.inf
    _position: int = 0

    def go_on(self, judge: Judge, ledger: Ledger, taken: Container[str], is_over: Callable[[], bool]) -> bool:
        """Whether all nodes were looked at; False when `is_over` said so before."""
        while self._position < len(self.names):
            if self._position and is_over():
                return False
            for name in self.names[self._position : self._position + _LOT]:
                free = _free_bytes(judge.world, name, ledger)
                if free > self._best_free and name not in taken and may_take(judge, name):
                    self.best, self._best_free = name, free
            self._position += _LOT
        return True


def _free_bytes(world: World, name: str, ledger: Ledger) -> int:
    room = world.room(name)
    return sum(max(0, disk.free_bytes) for disk in room.disks) - ledger.pending_bytes(name) if room else 0


def may_take(judge: Judge, name: str) -> bool:
    """Whether the pod's local volumes fit on the node, promises aside, once the data that leaves anyway is gone."""
    shape = judge.shape_on(name)
    if not isinstance(shape, Shape):
        return False
    more = leaving_bytes(judge.world, shape.room)
    free = [room + leaving for room, leaving in zip(shape.free, more, strict=True)]
    return pack(shape.everything, free, Steps(PACK_STEPS)) is not None
