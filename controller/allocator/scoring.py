"""How good a node is for a pod: 0 to 10, for the nodes that passed.

| points | for |
|---|---|
| up to 4 | the pod's data lies here: of its volumes with data anywhere, the share with a usable replica here |
| 2 | robust: whatever order and disks Longhorn takes, all of the pod's volumes find room |
| up to 2 | preferred local room: of its best-effort volumes of several copies, the share that finds room here |
| up to 2 | the strategy: `spread` prefers the node with the larger share of free space left, `pack` the smaller |

kube-scheduler multiplies an extender's score by the entry's `weight` and by 10 (its own scores go up to 100).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final

from controller.allocator.ledger import Ledger
from controller.allocator.placement import Judge, Verdict
from controller.allocator.world import World
from controller.model.demand import VolumeDemand

DATA: Final = 4.0
ROBUST: Final = 2.0
PREFERRED: Final = 2.0
STRATEGY: Final = 2.0
MAX_SCORE: Final = 10


class Strategy(StrEnum):
    """Which of two otherwise equal nodes is better."""

    SPREAD = "spread"
    PACK = "pack"
    OFF = "off"


def score_nodes(
    judge: Judge,
    ledger: Ledger,
    demands: Sequence[VolumeDemand],
    names: Sequence[str],
    strategy: Strategy,
) -> Mapping[str, int]:
    """Points of each of `names`, in their order. Once the judge's budget is spent, robustness counts for nobody."""
    placed = [demand for demand in demands if demand.usable_nodes]
    local = any(demand.is_local for demand in demands)
    preferring = [demand for demand in demands if demand.prefers_local]
    world, scores = judge.world, {}
    for name in names:
        points = DATA * _share(sum(name in demand.usable_nodes for demand in placed), len(placed))
        if local and not judge.budget.is_spent() and judge.is_robust(name)[0]:
            points += ROBUST
        points += PREFERRED * _share(sum(_suits(judge, name, demand) for demand in preferring), len(preferring))
        if strategy is not Strategy.OFF and name in world.nodes:
            free = free_share(world, ledger, name)
            points += STRATEGY * (free if strategy is Strategy.SPREAD else 1 - free)
        scores[name] = min(MAX_SCORE, int(points + 0.5))
    return scores


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def _suits(judge: Judge, name: str, demand: VolumeDemand) -> bool:
    """Whether a copy of the volume lies there, or surely finds room there."""
    return name in demand.usable_nodes or judge.judge_room(name, (demand,)).verdict is Verdict.SURE


def free_share(world: World, ledger: Ledger, name: str) -> float:
    """What is left of a node's disks after everything that is placed and promised there, between 0 and 1."""
    node, room = world.nodes[name], world.room(name)
    if room is None or room.rejection is not None:
        return 0.0
    usable = {disk.uuid for disk in room.disks}
    most = sum(max(0, disk.maximum_bytes - disk.reserved_bytes) for disk in node.disks if disk.uuid in usable)
    free = sum(max(0, disk.free_bytes) for disk in room.disks) - ledger.pending_bytes(name)
    return min(1.0, max(0, free) / most) if most else 0.0
