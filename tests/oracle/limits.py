"""Figures moved next to a limit, and whether a world lies next to one.

The limits are worked out by the tests' own arithmetic (tests/longhorn/space.py): a world next to a limit as Longhorn
computes it is what is wanted, whoever is asked then.
"""

from __future__ import annotations

from tests.longhorn.placement import fresh_bytes
from tests.longhorn.release import NEWEST, release_of
from tests.longhorn.space import DiskFigures
from tests.longhorn.state import SearchState
from tests.longhorn_rules.objects import Raw
from tests.oracle.worlds import OracleWorld


def state_of(world: OracleWorld) -> SearchState:
    """Enough of one for limits."""
    release = NEWEST if world.version is None else release_of(world.version)
    return SearchState(nodes={}, replicas=world.replicas, settings=world.settings, release=release)


def required_bytes(world: OracleWorld) -> int:
    return int(world.volume["status"].get("actualSize") or 0)


def growth_on(world: OracleWorld, node: str, status: Raw) -> int:
    """What the replicas on a disk would grow by in all."""
    there = [
        raw for raw in world.placed if (raw["spec"]["nodeID"], raw["spec"]["diskID"]) == (node, status.get("diskUUID"))
    ]
    return len(there) * (world.grown_size - world.size)


def to_the_brink(world: OracleWorld) -> None:
    """Move some disks to within a byte of a limit of placement or, for a question of growth, of expansion."""
    dice, state = world.dice, state_of(world)
    for node, _, spec, status in list(world.disks()):
        if not dice.chance(0.7):
            continue
        name, off = node["metadata"]["name"], dice.one((-1, 0, 0, 1))
        before = dict(status)
        disk = DiskFigures.of(state, spec, status)
        if not world.asked:
            _grow_to_the_brink(world, name, disk, spec, status, off)
        elif dice.chance(0.6):
            status["storageScheduled"] = disk.limit - world.size - fresh_bytes(state, name, status) + off
        else:
            status["storageAvailable"] = disk.floor + required_bytes(world) + off
        if any(not -(2**63) <= status.get(figure, 0) < 2**63 for figure in ("storageScheduled", "storageAvailable")):
            status.update(before)


def _grow_to_the_brink(world: OracleWorld, node: str, disk: DiskFigures, spec: Raw, status: Raw, off: int) -> None:
    growth = growth_on(world, node, status)
    kind = world.dice.one(("scheduled", "available", "free after", "used after"))
    if kind == "scheduled":
        status["storageScheduled"] = disk.limit - growth + off
    elif kind == "available":
        status["storageAvailable"] = disk.floor + off
    elif kind == "free after":  # available + reserved - growth against the floor
        status["storageAvailable"] = disk.floor + growth - disk.reserved + off
    else:  # maximum - available - reserved + growth against the limit
        status["storageAvailable"] = disk.maximum - disk.reserved + growth - disk.limit - off
