"""Whether a pod's volume is larger than any disk that suits it could ever take, so that waiting never helps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from controller.allocator.world.world import World
from controller.rules.demand import VolumeDemand
from controller.rules.eligibility import check_disk_kind, check_node_tags
from controller.rules.growth import most_if_empty


class TooLarge(NamedTuple):
    """A volume, and the bytes that the largest disk that suits it could take if it were empty."""

    demand: VolumeDemand
    largest_bytes: int


def too_large(world: World, demands: Iterable[VolumeDemand]) -> TooLarge | None:
    """Return the first volume without a placed replica that would fit on no disk even if all were empty. None also
    where that cannot be told: a disk's figures are missing, or no disk suits the volume at all."""
    for demand in demands:
        largest = 0 if demand.placed_nodes or not (demand.is_local or demand.is_roaming) else _largest(world, demand)
        if 0 < largest < demand.size_bytes:
            return TooLarge(demand, largest)
    return None


def _largest(world: World, demand: VolumeDemand) -> int:
    """The most bytes that a disk for the volume could take if it were empty; 0 if that is not known."""
    largest, needs, space = 0, demand.needs, world.settings.space
    for node in world.nodes.values():
        if not check_node_tags(node.tags, needs, space):
            continue
        for disk in node.disks:
            if check_disk_kind(disk, needs, 0, space) is not None:
                continue
            most = most_if_empty(disk, space)
            if most is None:
                return 0
            largest = max(largest, most)
    return largest
