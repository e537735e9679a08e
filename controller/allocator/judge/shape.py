"""What volumes mean on the disks of one node: Longhorn's rules turned into items for the packing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from controller.allocator.judge.packing import Item
from controller.allocator.judge.verdict import Judgement, Verdict, unsuitable
from controller.allocator.promises.items import PendingItem
from controller.allocator.world.suitable import check_node_of, disks_for, disks_for_image, disks_of, images_to_come
from controller.allocator.world.world import World
from controller.rules.demand import VolumeDemand
from controller.rules.eligibility import NodeRoom
from controller.rules.reasons import Reason


@dataclass(frozen=True, slots=True)
class Shape:
    """The volumes as items over the room's disks, in the same order; `images` are backing images that come along."""

    room: NodeRoom
    wanted: tuple[VolumeDemand, ...]
    items: tuple[Item, ...]
    images: tuple[Item, ...]
    free: tuple[int, ...]

    @property
    def everything(self) -> tuple[Item, ...]:
        return self.items + self.images


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
        found = item_of(world, room, demand)
        if isinstance(found, Reason):
            return unsuitable(found)
        is_too_full = is_too_full or not found.all_disks
        items.append(found)
    if is_too_full:
        return Judgement(Verdict.FULL, Reason.TOO_FULL)
    coming = images_to_come(world, name, wanted)
    images = tuple(Item(image.real_size_bytes, disks_for_image(world, room, image)) for image in coming)
    return Shape(room, tuple(wanted), tuple(items), images, tuple(disk.free_bytes for disk in room.disks))


def item_of(world: World, room: NodeRoom, demand: VolumeDemand) -> Item | Reason:
    """The volume's replica on that room's disks; a reason when no disk takes it whatever its room. An item without
    disks: they are below their minimal available space."""
    found = disks_of(world, room, demand)
    return found if isinstance(found, Reason) else Item(demand.size_bytes, *found)


def promised_items(world: World, room: NodeRoom, pending: Iterable[PendingItem]) -> list[Item]:
    """The pending promises as items over that room's disks, without those that cannot come there."""
    found = []
    for item in pending:
        disks = disks_for(world, room, item.needs, item.size_bytes, item.required_bytes)
        if disks:
            found.append(Item(item.size_bytes, disks))
    return found
