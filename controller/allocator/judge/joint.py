"""Whether all volumes of a pod find room together, in the whole cluster, promises aside: an exact, bounded search.

It is asked only where each of them alone finds room and some choice of Longhorn's would leave another one without.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from controller.allocator.judge.packing import Item, Steps
from controller.allocator.judge.sets import Seats
from controller.allocator.judge.shape import Shape
from controller.allocator.world.world import World
from controller.model.demand import VolumeDemand


@dataclass(frozen=True, slots=True)
class _Spot:
    """One disk that may take a replica, and the zone or node that the replica uses up there."""

    node: str
    disk: int
    place: str


@dataclass(frozen=True, slots=True)
class _Part:
    """One replica to place; `group` is the set that it belongs to, -1 for one that stands alone."""

    size_bytes: int
    group: int
    spots: tuple[_Spot, ...]
    shares_nodes: bool = True
    shares_disks: bool = True


def packs_together(
    world: World,
    sets: Sequence[tuple[VolumeDemand, int]],
    shape: Shape | None,
    steps: Steps,
    now_utc: datetime | None = None,
) -> bool:
    """Whether every volume of `sets` finds room for that many replicas, and all of `shape` for its items on its node.

    False with `steps.exhausted`: not known.
    """
    free: dict[str, list[int]] = {}
    parts: list[_Part] = []
    if shape is not None:
        free[shape.room.name] = list(shape.free)
        parts += [_part_on(shape.room.name, item) for item in shape.everything]
    for group, (demand, copies) in enumerate(sets):
        parts += _parts_of(world, demand, copies, group, free, now_utc)
    parts.sort(key=lambda part: (-part.size_bytes, part.group))
    return _Search(parts, free, steps).place(0)


def _part_on(name: str, item: Item) -> _Part:
    return _Part(item.size_bytes, -1, tuple(_Spot(name, disk, name) for disk in item.all_disks))


def _parts_of(
    world: World, demand: VolumeDemand, copies: int, group: int, free: dict[str, list[int]], now_utc: datetime | None
) -> list[_Part]:
    seats = Seats(world, demand, now_utc)
    spots: list[_Spot] = []
    for seat in seats.with_room():
        found = seats.item(seat.name)
        if not isinstance(found, tuple):
            continue
        room, item = found
        free.setdefault(seat.name, [disk.free_bytes for disk in room.disks])
        spots += [_Spot(seat.name, disk, seat.place) for disk in item.all_disks]
    part = _Part(demand.size_bytes, group, tuple(spots), seats.shares_nodes, seats.shares_disks)
    return [part] * copies


class _Search:
    def __init__(self, parts: Sequence[_Part], free: dict[str, list[int]], steps: Steps) -> None:
        self._parts, self._free, self._steps = parts, free, steps
        self._chosen: list[int] = []  # by part, the number of its spot

    def place(self, number: int) -> bool:
        if number == len(self._parts):
            return True
        part = self._parts[number]
        is_twin = number > 0 and self._parts[number - 1] is part  # replicas of a volume are alike: in ascending order
        for index in range(self._chosen[-1] if is_twin else 0, len(part.spots)):
            spot = part.spots[index]
            left = self._free[spot.node]
            if left[spot.disk] < part.size_bytes or not self._may_use(part, spot):
                continue
            if not self._steps.take():
                return False
            left[spot.disk] -= part.size_bytes
            self._chosen.append(index)
            if self.place(number + 1):
                return True
            self._chosen.pop()
            left[spot.disk] += part.size_bytes
            if self._steps.exhausted:
                return False
        return False

    def _may_use(self, part: _Part, spot: _Spot) -> bool:
        if part.group < 0 or part.shares_disks:
            return True
        for other, index in zip(self._parts, self._chosen, strict=False):  # only what is placed so far
            if other.group != part.group:
                continue
            used = other.spots[index]
            if used == spot or (used.place == spot.place and not part.shares_nodes):
                return False
        return True
