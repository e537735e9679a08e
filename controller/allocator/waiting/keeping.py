"""Room that is kept for a pod that was refused for long, so that a large pod does not starve behind small ones.

One node is kept for each such pod, the one with the most free space of those that could ever take it: other pods of no
higher priority get no more room there, until the pod has found its own. Nothing of what lies there is moved; the node
has to empty by itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from controller.allocator.judge.node import Judge, Judgement, Verdict
from controller.allocator.judge.packing import PACK_STEPS, Steps, pack
from controller.allocator.judge.shape import Shape
from controller.allocator.promises.ledger import Ledger
from controller.allocator.world.world import World
from controller.model.workload import Pod
from controller.rules.eligibility import provisioning_limit
from controller.rules.reasons import Reason

_LOT: Final = 64  # nodes between two looks at the clock
MOST_KEPT: Final = 10  # nodes at a time; more would keep a small cluster from everybody
KEPT: Final = Judgement(Verdict.CONTENDED, Reason.KEPT)


@dataclass(frozen=True, slots=True)
class Keeper:
    """The pod that a node is kept for."""

    pod_uid: str
    priority: int


class Keeping:
    """Nodes that are kept. Threads: none of its own; the allocator's lock guards it."""

    def __init__(self) -> None:
        self._nodes: dict[str, Keeper] = {}

    def clear(self) -> None:
        self._nodes.clear()

    def release(self, pod_uid: str) -> None:
        """The pod was offered room, or is gone."""
        if self._nodes:
            self._nodes = {name: keeper for name, keeper in self._nodes.items() if keeper.pod_uid != pod_uid}

    def against(self, pod: Pod) -> Mapping[str, Keeper]:
        """The nodes where `pod` gets no room now."""
        if not self._nodes:
            return {}
        return {
            name: keeper
            for name, keeper in self._nodes.items()
            if keeper.pod_uid != pod.uid and keeper.priority >= pod.priority
        }

    def node_of(self, pod_uid: str) -> str:
        """The node that is kept for the pod; "" for none."""
        return next((name for name, keeper in self._nodes.items() if keeper.pod_uid == pod_uid), "")

    def renew(self, kept: Mapping[str, Keeper], waiting: Collection[str]) -> None:
        """Keep these nodes and no others, for those of the pods that are still `waiting`."""
        self._nodes = {name: keeper for name, keeper in kept.items() if keeper.pod_uid in waiting}


@dataclass(slots=True)
class Seeking:
    """The search for the node to keep for one pod: the one with the most free space of those that could take it if they
    were empty. It goes on where it stopped."""

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
                if free > self._best_free and name not in taken and may_ever_take(judge, name):
                    self.best, self._best_free = name, free
            self._position += _LOT
        return True


def _free_bytes(world: World, name: str, ledger: Ledger) -> int:
    room = world.room(name)
    return sum(max(0, disk.free_bytes) for disk in room.disks) - ledger.pending_bytes(name) if room else 0


def may_ever_take(judge: Judge, name: str) -> bool:
    """Whether the pod's local volumes would fit on the node with nothing else on its disks."""
    wanted = judge.wanted_on(name)
    if isinstance(wanted, Judgement) or not wanted:
        return False
    node, space = judge.world.nodes.get(name), judge.world.settings.space
    largest = max(demand.size_bytes for demand in wanted)
    if node is None or all(provisioning_limit(disk, space) < largest for disk in node.disks):
        return False  # most nodes that are too small are so at the first look
    shape = judge.shape(name, wanted)
    if isinstance(shape, Judgement):
        return False
    return pack(shape.everything, _empty(judge.world, name, shape), Steps(PACK_STEPS)) is not None


def _empty(world: World, name: str, shape: Shape) -> list[int]:
    """What the shape's disks would have free without any replica."""
    space = world.settings.space
    limits = {disk.uuid: provisioning_limit(disk, space) for disk in world.nodes[name].disks}
    return [limits[disk.uuid] for disk in shape.room.disks]
