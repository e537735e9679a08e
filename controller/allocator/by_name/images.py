"""Where a further copy of a backing image finds a disk beside all that others have.

Longhorn takes any disk that suits the image and asks no disk for room (`datastore/longhorn.go`,
`GetReadyNodeDiskForBackingImage`). Here the copy has to fit as a replica would, and of the disks that take it the one
with the most room is chosen, on a node without a copy if there is one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from controller.allocator.by_name.beside import FoundDisk, why_without_room
from controller.allocator.choose.wanted import Taken
from controller.allocator.outcome import Obstacle
from controller.allocator.world.world import World
from controller.model.allocations import Allocation, Purpose
from controller.model.longhorn import BackingImage, Disk, DiskNeeds, LonghornNode
from controller.model.quantity import bytes_text
from controller.model.records import MAX_ENTRIES, no_place
from controller.rules.eligibility import (
    DiskRoom,
    check_disk_kind,
    check_disk_state,
    check_node,
    check_node_tags,
    tags_text,
)
from controller.rules.reasons import Reason, Rejection


class OtherDisks(NamedTuple):
    """Why not the others: of the disks on the nodes with most room, and how many more there are."""

    obstacles: tuple[Obstacle, ...] = ()
    more: int = 0


def find_image_disk(
    world: World, taken: Taken, image: BackingImage, size_bytes: int, closed: Mapping[str, str], most: int
) -> tuple[FoundDisk | None, OtherDisks]:
    """The disk for a copy of that size, or None and why not `most` of them, and those of the last one's node.
    `closed`: as for `BesideOthers`.

    Costs: a look at each node, and at the disks of those that have most room, until the others have less."""
    world.refresh()
    brings = world.disks_with_image(image.name)
    with_copy = {name for uuid in brings | image.disk_uuids for name in world.nodes_of_disk(uuid)}
    looks = _ImageLooks(world, taken, image, size_bytes, closed, brings)
    nodes = sorted(((name not in with_copy, looks.most_bytes(name), name) for name in world.nodes), reverse=True)
    best: FoundDisk | None = None

    def rank(one: FoundDisk) -> tuple[bool, int, str, str]:
        return one.node not in with_copy, one.free_bytes, one.node, one.disk

    for is_without, room_bytes, name in nodes:
        if best is not None and rank(best)[:2] >= (is_without, room_bytes):
            break
        disks = [one for one in looks.at(name) if isinstance(one, FoundDisk)] if room_bytes >= size_bytes else []
        best = max(disks if best is None else [best, *disks], key=rank, default=None)
    if best is not None:
        return best, OtherDisks()
    obstacles: list[Obstacle] = []
    names = sorted((name for _, _, name in nodes), key=looks.is_closed)
    while names and len(obstacles) < most:
        obstacles += [one for one in looks.at(names.pop(0)) if isinstance(one, Obstacle)]
    more = sum(max(1, len(world.nodes[name].disks)) for name in names)
    return None, OtherDisks(tuple(obstacles), more)


def full_of_images(world: World) -> dict[str, str]:
    """By UUID, the disks of which the record has no place for more of them, and why. Costs: mostly nothing."""
    if len(world.backing_images) < MAX_ENTRIES:
        return {}
    counts = Counter(uuid for image in world.backing_images.values() for uuid in image.copy_disk_uuids)
    full = (
        (uuid, node) for uuid, count in counts.items() if count >= MAX_ENTRIES for node in world.nodes_of_disk(uuid)
    )
    return {uuid: no_place(Purpose.BACKING_IMAGE, node, uuid) for uuid, node in full}


@dataclass(frozen=True, slots=True)
class _ImageLooks:
    """`brings`: UUIDs of disks that the image comes to with a replica."""

    world: World
    taken: Taken
    image: BackingImage
    size_bytes: int
    closed: Mapping[str, str]
    brings: Collection[str]

    def most_bytes(self, name: str) -> int:
        """No less than any disk of that node has for the copy."""
        room = self.world.room(name)
        return max((self._room_bytes(one) for one in room.disks), default=0) if room is not None else 0

    def is_closed(self, name: str) -> bool:
        """Whether that node takes no copies, whatever its disks."""
        return _check_node(self.world, self.world.nodes[name], _needs(self.image), self.closed) is not None

    def _room_bytes(self, disk: DiskRoom) -> int:
        """What is taken aside; a replica there has brought the copy already."""
        return disk.free_bytes + (self.image.real_size_bytes if disk.uuid in self.brings else 0)

    def at(self, name: str) -> Iterator[FoundDisk | Obstacle]:
        """The disks of that node that take it, and why the others do not."""
        world, node, room, needs = self.world, self.world.nodes[name], self.world.room(name), _needs(self.image)
        rejection = _check_node(world, node, needs, self.closed)
        if rejection is not None:
            yield Obstacle(name, "", 0, rejection)
        if rejection is not None or room is None:
            return
        rooms = {disk.uuid: disk for disk in room.disks}
        for disk in node.disks:
            there = rooms.get(disk.uuid)
            rejection = _check_disk(world, disk, there, self.image, needs, self.size_bytes)
            if disk.uuid in self.closed:
                rejection = Rejection(Reason.RECORD_UNWRITABLE, self.closed[disk.uuid])
            if rejection is not None:
                yield Obstacle(name, disk.name, 0, rejection)
            if rejection is not None or there is None:
                continue
            taken = self.taken.taken_bytes(name, disk.uuid)
            free = self._room_bytes(there) - taken
            if free < self.size_bytes:
                text = f"{disk.name}: {bytes_text(max(0, free))} are neither used nor promised"
                full = Rejection(Reason.INSUFFICIENT_STORAGE, text)
                yield Obstacle(name, disk.name, self.size_bytes - free, full)
            else:
                yield FoundDisk(name, disk.name, disk.uuid, free, taken)


@dataclass(frozen=True, slots=True)
class CopyToCome:
    """What was given to a copy that the image does not show yet. `is_closed`: its node or disk takes no copies now."""

    allocation: Allocation
    is_closed: bool


def copy_to_come(world: World, image: BackingImage, given: Iterable[Allocation]) -> CopyToCome | None:
    """One that is not closed, if there is any."""
    needs, found = _needs(image), list[CopyToCome]()
    for one in given:
        if one.node in world.nodes_of_disk(one.disk_uuid):
            node, disk = _place(world, one)
            rejection = _check_node(world, node, needs, {}) or check_disk_state(disk)
            reason = check_disk_kind(disk, needs, one.size_bytes, world.settings.space)
            found.append(CopyToCome(one, rejection is not None or reason is not None))
    return min(found, key=lambda one: one.is_closed, default=None)


def check_image_growth(
    world: World, taken: Taken, image: BackingImage, there: Allocation, size_bytes: int
) -> Obstacle | None:
    """Why the copy that was given `there` cannot have that larger size on its disk, which a node shows."""
    world.refresh()
    node, disk = _place(world, there)
    known = world.disk_room(node.name, disk.uuid)
    if known is None:
        return Obstacle(node.name, disk.name, 0, why_without_room(disk))
    counted = max(there.size_bytes, image.real_size_bytes, disk.scheduled_images.get(image.name, 0))
    more, free = size_bytes - counted, known.free_bytes - taken.taken_bytes(node.name, disk.uuid)
    if more > free:
        text = f"{disk.name}: {bytes_text(max(0, free))} are neither used nor promised, beside the copy's own"
        text = f"{text} {bytes_text(counted)}"
        return Obstacle(node.name, disk.name, more - free, Rejection(Reason.INSUFFICIENT_STORAGE, text))
    rejection = _check_written(disk, known, size_bytes)
    return Obstacle(node.name, disk.name, 0, rejection) if rejection is not None else None


def _needs(image: BackingImage) -> DiskNeeds:
    return DiskNeeds(
        data_engine=image.data_engine, node_selector=image.node_selector, disk_selector=image.disk_selector
    )


def _place(world: World, there: Allocation) -> tuple[LonghornNode, Disk]:
    node = world.nodes[there.node]
    return node, next(one for one in node.disks if one.uuid == there.disk_uuid)


def _check_node(world: World, node: LonghornNode, needs: DiskNeeds, closed: Mapping[str, str]) -> Rejection | None:
    if node.name in closed:
        return Rejection(Reason.RECORD_UNWRITABLE, f"{node.name}: {closed[node.name]}")
    rejection = check_node(node, must_be_ready=False)
    if rejection is None and not check_node_tags(node.tags, needs, world.settings.space):
        return Rejection(Reason.NODE_TAGS, f"{node.name}: {tags_text(node.tags, needs, is_node=True)}")
    return rejection


def _check_disk(
    world: World, disk: Disk, room: DiskRoom | None, image: BackingImage, needs: DiskNeeds, size_bytes: int
) -> Rejection | None:
    if image.names_disk(disk.uuid):
        return Rejection(Reason.BACKING_IMAGE, f"{disk.name}: has a copy already, or still, or will get one")
    if room is None or check_disk_state(disk) is not None:
        return why_without_room(disk)
    reason = check_disk_kind(room, needs, size_bytes, world.settings.space)
    if reason is not None:
        return Rejection(reason, f"{disk.name}: its type, file system or tags do not match the image")
    return _check_written(disk, room, size_bytes)


def _check_written(disk: Disk, room: DiskRoom, size_bytes: int) -> Rejection | None:
    if size_bytes >= room.written_limit_bytes:
        text = f"{disk.name}: too little of the available {bytes_text(disk.available_bytes)} would be left"
        return Rejection(Reason.TOO_FULL, text)
    return None
