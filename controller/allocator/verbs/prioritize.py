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

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from itertools import chain
from typing import Final

from controller.allocator.judge.node import Judge
from controller.allocator.judge.search import within
from controller.allocator.judge.verdict import LATE
from controller.allocator.promises.ledger import Ledger
from controller.allocator.world.world import World
from controller.rules.demand import VolumeDemand

DATA: Final = 4.0
ROBUST: Final = 2.0
PREFERRED: Final = 2.0
STRATEGY: Final = 2.0
MAX_SCORE: Final = 10

_LOT: Final = 128  # nodes between two looks at the clock, where each is quick


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
    """Points of each of `names`, in their order.

    What the judge's budget leaves no time for counts for none of them, so that equal nodes have equal points; the
    cheapest comes first.
    """
    names = list(dict.fromkeys(names))
    data = _data(demands, names)
    by_strategy = _strategy(judge, ledger, names, strategy)
    preferred = _preferred(judge, demands, names)
    robust = _robust(judge, demands, names)
    nothing = [0.0] * len(names)
    parts = zip(names, data, robust or nothing, preferred or nothing, by_strategy or nothing, strict=True)
    return {
        name: min(MAX_SCORE, int(first + second + third + fourth + 0.5)) for name, first, second, third, fourth in parts
    }


# The parts: points by node in the order of the names, None when they are worth nothing to anybody or time was up


def _data(demands: Sequence[VolumeDemand], names: Sequence[str]) -> list[float]:
    placed = [demand for demand in demands if demand.usable_nodes]
    near = Counter(chain.from_iterable(demand.usable_nodes for demand in placed))
    return [DATA * (near[name] / len(placed)) if name in near else 0.0 for name in names]


def _strategy(judge: Judge, ledger: Ledger, names: Sequence[str], strategy: Strategy) -> list[float] | None:
    if strategy is Strategy.OFF:
        return None
    points: list[float] = []
    for lot in within(judge.budget, names, _LOT):
        shares = _free_shares(judge.world, ledger, lot)
        if strategy is Strategy.SPREAD:
            points += [0.0 if share is None else STRATEGY * share for share in shares]
        else:
            points += [0.0 if share is None else STRATEGY * (1 - share) for share in shares]
    return points if len(points) == len(names) else None


def _free_shares(world: World, ledger: Ledger, names: Sequence[str]) -> list[float | None]:
    """What is left of each node's disks after all that is placed and promised there, and that Longhorn will rebuild
    there, between 0 and 1. None: no such node."""
    promised, rebuilt, shares = ledger.nodes(), world.rebuild_bytes, list[float | None]()
    for name in names:
        room = world.room(name)
        if room is None:
            shares.append(None)
        elif (name in promised or name in rebuilt) and room.space_bytes:
            left = max(0, room.left_bytes - ledger.pending_bytes(name) - rebuilt[name])
            shares.append(min(1.0, left / room.space_bytes))
        else:
            shares.append(room.left_share)
    return shares


def _preferred(judge: Judge, demands: Sequence[VolumeDemand], names: Sequence[str]) -> list[float] | None:
    preferring = [demand for demand in demands if demand.prefers_local]
    if not preferring:
        return None
    suited = dict.fromkeys(names, 0)
    for demand in preferring:
        found = _nodes_for_copy(judge, demand, names)
        if found is None:
            return None
        for name in found:
            suited[name] += 1
    return [PREFERRED * (suited[name] / len(preferring)) for name in names]


def _nodes_for_copy(judge: Judge, demand: VolumeDemand, names: Sequence[str]) -> list[str] | None:
    """Returns those of `names` that have a usable replica of the volume, or surely room for one beside all that is
    promised to others; None when the judge's budget was spent before all of them were looked at."""
    usable = demand.usable_nodes
    copy = replace(demand, is_local=True, is_roaming=False, home_nodes=frozenset[str]())
    sure, refused = judge.of(copy).sure_among([name for name in names if name not in usable])
    return None if LATE in refused.values() else [name for name in names if name in usable] + sure


def _robust(judge: Judge, demands: Sequence[VolumeDemand], names: Sequence[str]) -> list[float] | None:
    if not any(demand.is_local for demand in demands):
        return None
    points = []
    for (name,) in within(judge.budget, names, 1):
        points.append(ROBUST if judge.is_robust(name) else 0.0)
    return points if len(points) == len(names) else None
