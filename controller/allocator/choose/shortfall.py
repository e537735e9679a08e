"""How far a pod's volumes are from fitting: whether one is larger than any disk could ever take, so that waiting never
helps; and how many bytes one disk of a node lacks for those that follow the pod, which a person could free there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from controller.allocator.choose.packing import PACK_STEPS, Item, Steps, pack
from controller.allocator.choose.pod_fit import PodFit
from controller.allocator.choose.shape import Shape
from controller.allocator.world.world import World
from controller.rules.demand import VolumeDemand
from controller.rules.eligibility import DiskRoom, check_disk_kind, check_node_tags
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


@dataclass(frozen=True, slots=True)
class Miss:
    """With `missing_bytes` more on that disk the pod's local volumes would fit on the node. `free_bytes`: what they
    find there now, below 0 where the disk is over its limit."""

    node: str
    disk: DiskRoom
    free_bytes: int
    missing_bytes: int


def nearest_miss(fit: PodFit, name: str, *, is_thorough: bool = False) -> Miss | None:
    """Return the disk of that node that lacks the fewest bytes; None where no number of bytes on one disk would help,
    or none are missing. Unless `is_thorough`, of several volumes' disks only the one with most room is looked at.
    Costs: for several volumes, forty packings a disk."""
    shape = fit.shape_on(name)
    if not isinstance(shape, Shape) or not shape.items:
        return None
    free, items = fit.free_on(shape.room), shape.items
    suited = sorted({index for item in items for index in item.all_disks}, key=lambda index: -free[index])
    if len(items) > 1 and not is_thorough:
        suited = suited[:1]
    found = [(missing, index) for index in suited if (missing := _missing(items, free, index)) is not None]
    if not found:
        return None
    missing, index = min(found)
    return Miss(name, shape.room.disks[index], free[index], missing) if missing > 0 else None


def _missing(items: Sequence[Item], free: Sequence[int], index: int) -> int | None:
    """The bytes that disk lacks; None if no number of bytes there would do."""
    if len(items) == 1:
        return items[0].size_bytes + items[0].image_bytes.get(index, 0) - free[index]
    low, high = 0, sum(item.size_bytes + item.image_bytes.get(index, 0) for item in items) - min(0, free[index])
    if not _fits(items, free, index, high):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _fits(items, free, index, middle) else (middle, high)
    return high


def _fits(items: Sequence[Item], free: Sequence[int], index: int, more_bytes: int) -> bool:
    left = [size + more_bytes if at == index else size for at, size in enumerate(free)]
    return pack(items, left, Steps(PACK_STEPS)) is not None
