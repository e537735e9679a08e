"""What volumes mean on the disks of one node: Longhorn's rules turned into items for the packing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from controller.allocator.choose.packing import Item, Packed
from controller.allocator.choose.verdict import Judgement, Verdict, unsuitable
from controller.allocator.choose.wanted import image_bytes
from controller.allocator.world.suitable import check_node_of, disks_of
from controller.allocator.world.world import World
from controller.model.places import Place
from controller.rules.demand import VolumeDemand
from controller.rules.eligibility import NodeRoom
from controller.rules.reasons import Reason


@dataclass(frozen=True, slots=True)
class Shape:
    """The volumes as items over the room's disks, in the same order. `free`: bytes of the disks by what objects
    show."""

    room: NodeRoom
    wanted: tuple[VolumeDemand, ...]
    items: tuple[Item, ...]
    free: tuple[int, ...]

    def places(self, found: Packed) -> Iterator[tuple[VolumeDemand, Place]]:
        """What was found for its items, by volume."""
        for demand, disk, size in zip(self.wanted, found.disks, found.size_bytes, strict=True):
            yield demand, Place(self.room.name, self.room.disks[disk].uuid, size)

    @property
    def limits(self) -> tuple[int, ...]:
        return tuple(disk.limit_bytes for disk in self.room.disks)


def shape_of(
    world: World, name: str, wanted: Sequence[VolumeDemand], now_utc: datetime | None = None
) -> Shape | Judgement:
    """What `wanted` mean on node `name`; a judgement when a rule other than room, or no disk at all, decides."""
    room = world.room(name)
    if room is None or not world.has_node(name):
        return unsuitable(Reason.NO_LONGHORN_NODE)
    if room.rejection is not None:
        return unsuitable(room.rejection.reason)
    items: list[Item] = []
    is_too_full = False
    for demand in wanted:
        reason = check_node_of(world, room, demand, now_utc)
        if reason is not None:
            return unsuitable(reason)
        found = _item_of(world, room, demand)
        if isinstance(found, Reason):
            return unsuitable(found)
        is_too_full = is_too_full or not found.all_disks
        items.append(found)
    if is_too_full:
        return Judgement(Verdict.FULL, Reason.TOO_FULL)
    return Shape(room, tuple(wanted), tuple(items), tuple(disk.free_bytes for disk in room.disks))


def _item_of(world: World, room: NodeRoom, demand: VolumeDemand) -> Item | Reason:
    """The volume's copy on that room's disks; a reason when no disk takes it whatever its room. An item without disks:
    they are below their minimal available space."""
    found = disks_of(world, room, demand)
    if isinstance(found, Reason):
        return found
    image = demand.image
    if image is None:
        return Item(demand.size_bytes, *found)
    comes = {index: image_bytes(world, image, (), room.disks[index].uuid) for disks in found for index in disks}
    return Item(demand.size_bytes, *found, image.name, {index: size for index, size in comes.items() if size})
