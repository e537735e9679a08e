"""Where one copy of a volume surely finds room, asked of thousands of nodes at once: the score's preferred room."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from controller.allocator.judge.node import LATE, Judge
from controller.rules.demand import VolumeDemand


def nodes_for_copy(judge: Judge, demand: VolumeDemand, names: Sequence[str]) -> list[str] | None:
    """Those of `names` that have a usable replica of the volume, or surely room for one beside all that is promised to
    others. None when the judge's budget was spent before all of them were looked at."""
    usable = demand.usable_nodes
    found = [name for name in names if name in usable] if usable else []
    rest = [name for name in names if name not in usable] if usable else names
    copy = replace(demand, is_local=True, is_roaming=False, home_nodes=frozenset[str]())
    sure, refused = judge.of(copy).sure_among(rest)
    return None if LATE in refused.values() else found + sure
