"""How good a node is for a pod: 0 to 10, for the nodes that passed.

| points | for |
|---|---|
| up to 4 | the pod's data lies here: of its volumes with data anywhere, the share with a usable replica here. |
| up to 2 | preferred local room: of its best-effort volumes of several copies, the share with one here, or a place |
| up to 4 | the strategy: `spread` prefers the node with the larger share of free space left, `pack` the smaller |

A volume that a share-manager serves has its engine there, wherever the pod is: its data counts for no node.

kube-scheduler multiplies an extender's score by the entry's `weight` and by 10 (its own scores go up to 100).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence, Set
from enum import StrEnum
from itertools import chain
from typing import Final

from controller.allocator.choose.packing import Budget
from controller.allocator.choose.search import within
from controller.allocator.plans.table import Table
from controller.allocator.world.world import World
from controller.rules.demand import VolumeDemand, is_served

DATA: Final = 4.0
PREFERRED: Final = 2.0
STRATEGY: Final = 4.0
MAX_SCORE: Final = 10

_LOT: Final = 128  # nodes between two looks at the clock, where each is quick


class Strategy(StrEnum):
    """Which of two otherwise equal nodes is better."""

    SPREAD = "spread"
    PACK = "pack"
    OFF = "off"


def score_nodes(
    world: World,
    table: Table,
    pod_uid: str,
    demands: Sequence[VolumeDemand],
    names: Sequence[str],
    strategy: Strategy,
    budget: Budget,
) -> Mapping[str, int]:
    """The points of each of `names`, in their order, by the places that the pod was answered.

    Where the budget leaves no time for all of them, the strategy counts for none, so that equal nodes have equal
    points.
    """
    names = list(dict.fromkeys(names))
    near = [demand for demand in demands if not (is_served(demand.facts) and demand.facts.node_id)]
    usable = [demand.usable_nodes for demand in near if demand.usable_nodes]
    preferred = [_nodes_of(table, pod_uid, demand) for demand in demands if demand.prefers_local]
    parts = _shares(usable, DATA, names), _shares(preferred, PREFERRED, names)
    by_strategy = _strategy(world, table, names, strategy, budget)
    return {
        name: min(MAX_SCORE, int(sum(points) + 0.5)) for name, *points in zip(names, *parts, by_strategy, strict=True)
    }


# The parts: points by node, in the order of the names


def _shares(groups: Collection[Set[str]], most: float, names: Sequence[str]) -> list[float]:
    """`most` points for a node that is in all of the groups, and the share of them for one that is in some."""
    counts = Counter(chain.from_iterable(groups))
    return [most * (counts[name] / len(groups)) if name in counts else 0.0 for name in names]


def _nodes_of(table: Table, pod_uid: str, demand: VolumeDemand) -> Set[str]:
    """Nodes with a usable copy of the volume, or where one will be by the pod's answer or by the plan."""
    hold = table.hold(pod_uid)
    held = hold.anywhere.get(demand.volume, ()) if hold is not None else ()
    return demand.usable_nodes.union(place.node for place in chain(held, table.places(demand.volume)))


def _strategy(world: World, table: Table, names: Sequence[str], strategy: Strategy, budget: Budget) -> list[float]:
    points = list[float]()
    for lot in within(budget, names, _LOT) if strategy is not Strategy.OFF else ():
        for share in _free_shares(world, table, lot):
            preferred = share if strategy is Strategy.SPREAD or share is None else 1 - share
            points.append(STRATEGY * (preferred or 0.0))
    return points if len(points) == len(names) else [0.0] * len(names)


def _free_shares(world: World, table: Table, names: Sequence[str]) -> list[float | None]:
    """The share of each node's disks, from 0 to 1, that is left beside what lies there, is taken, or is to come there
    for data locality; None for no such node."""
    taken, to_come, shares = table.taken_by_node(), world.bytes_to_come, list[float | None]()
    for name in names:
        room = world.room(name)
        if room is None:
            shares.append(None)
        elif (name in taken or name in to_come) and room.space_bytes:
            left = max(0, room.left_bytes - taken.get(name, 0) - to_come[name])
            shares.append(min(1.0, left / room.space_bytes))
        else:
            shares.append(room.left_share)
    return shares
