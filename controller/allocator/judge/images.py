"""Where a further copy of a backing image finds a disk beside all that is promised.

Longhorn takes any disk that suits the image and asks no disk for room (`datastore/longhorn.go`,
`GetReadyNodeDiskForBackingImage`). Here the copy has to fit as a replica would, and of the disks that take it the one
with the most room is chosen, on a node without a copy if there is one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from controller.allocator.judge.growth import Obstacle
from controller.allocator.judge.joined import FoundDisk
from controller.allocator.judge.pending import Pending
from controller.allocator.promises.ledger import Ledger
from controller.allocator.world.world import World
from controller.model.allocations import Allocation, Purpose
from controller.model.longhorn import BackingImage, Disk, DiskNeeds, LonghornNode
from controller.model.quantity import bytes_text
from controller.rules.eligibility import DiskRoom, check_disk_kind, check_disk_state, check_node_tags
from controller.rules.reasons import Reason, Rejection


def find_image_disk(
    world: World, ledger: Ledger, image: BackingImage, size_bytes: int, closed: Mapping[str, str]
) -> tuple[FoundDisk | None, tuple[Obstacle, ...]]:
    """The disk for a copy of that size, or None and why not the others. `closed`: as for `JoinedDisks`."""
    world.refresh()
    pending, needs = Pending(world, ledger, frozenset()), _needs(image)
    with_copy = {
        name
        for name, node in world.nodes.items()
        if not all(world.lacks_image(image, disk.uuid) for disk in node.disks)
    }
    found: list[FoundDisk] = []
    obstacles: list[Obstacle] = []
    for name, node in sorted(world.nodes.items()):
        room = world.room(name)
        rejection = _check_node(world, node, needs, closed)
        if rejection is not None or room is None:
            obstacles += [Obstacle(name, "", 0, rejection)] if rejection is not None else []
            continue
        loads = {disk.uuid: load for disk, load in zip(room.disks, pending.loads(room), strict=True)}
        rooms = {disk.uuid: disk for disk in room.disks}
        for disk in node.disks:
            rejection = _check_disk(world, disk, rooms.get(disk.uuid), image, needs, size_bytes)
            if disk.uuid in closed:
                rejection = Rejection(Reason.RECORD_UNREADABLE, closed[disk.uuid])
            free = rooms[disk.uuid].free_bytes - loads[disk.uuid] if disk.uuid in rooms else 0
            free += 0 if world.lacks_image(image, disk.uuid) else image.real_size_bytes  # a replica there brings it
            if rejection is None and free < size_bytes:
                text = f"{disk.name}: {bytes_text(max(0, free))} are neither used nor promised"
                obstacles.append(
                    Obstacle(name, disk.name, size_bytes - free, Rejection(Reason.INSUFFICIENT_STORAGE, text))
                )
            elif rejection is not None:
                obstacles.append(Obstacle(name, disk.name, 0, rejection))
            else:
                found.append(FoundDisk(name, disk.name, disk.uuid, free, loads[disk.uuid]))
    best = max(found, key=lambda one: (one.node not in with_copy, one.free_bytes, one.node, one.disk), default=None)
    return best, tuple(obstacles)


@dataclass(frozen=True, slots=True)
class CopyToCome:
    """What was given to a copy that the image does not show yet. `is_closed`: its node or disk takes no copies now."""

    allocation: Allocation
    is_closed: bool


def copy_to_come(world: World, image: BackingImage) -> CopyToCome | None:
    """One that is not closed, if there is any; of several the one that was told last."""
    shown, needs, found = world.allocated.shown_image(image.name), _needs(image), list[CopyToCome]()
    entries = world.allocated.of(Purpose.BACKING_IMAGE, image.name)
    for one in sorted(entries, key=world.allocated.rank, reverse=True):
        is_shown = shown is not None and one.disk_uuid in shown.copy_disk_uuids
        name = world.allocated.place_of(one)[0]
        if name and not is_shown:
            node, disk = _place(world, one)
            rejection = _check_node(world, node, needs, {}) or check_disk_state(disk)
            reason = check_disk_kind(disk, needs, one.size_bytes, world.settings.space)
            here = one if name == one.node else replace(one, node=name)  # where its disk is now
            found.append(CopyToCome(here, rejection is not None or reason is not None))
    return min(found, key=lambda one: one.is_closed, default=None)


def check_image_growth(
    world: World, ledger: Ledger, image: BackingImage, there: Allocation, size_bytes: int
) -> Obstacle | None:
    """Why the copy that was given `there` cannot have that larger size on its disk, which a node shows."""
    world.refresh()
    node, disk = _place(world, there)
    room = world.room(node.name)
    known = next((one for one in room.disks if one.uuid == disk.uuid), None) if room is not None else None
    if room is None or known is None:
        gone = Rejection(Reason.DISK_NOT_FOUND, f"{disk.name}: another disk has the same UUID")
        return Obstacle(node.name, disk.name, 0, check_disk_state(disk) or gone)
    load = Pending(world, ledger, frozenset()).loads(room)[room.disks.index(known)]
    counted = max(there.size_bytes, image.real_size_bytes, disk.scheduled_images.get(image.name, 0))
    more, free = size_bytes - counted, known.free_bytes - load
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
    node = world.nodes[world.allocated.place_of(there)[0]]
    return node, next(one for one in node.disks if one.uuid == there.disk_uuid)


def _check_node(world: World, node: LonghornNode, needs: DiskNeeds, closed: Mapping[str, str]) -> Rejection | None:
    if node.name in closed:
        return Rejection(Reason.RECORD_UNREADABLE, f"{node.name}: {closed[node.name]}")
    rejection = _check_node_state(node)
    if rejection is None and not check_node_tags(node.tags, needs, world.settings.space):
        return Rejection(Reason.NODE_TAGS, f"{node.name}: tags {sorted(node.tags)} do not match")
    return rejection


def _check_node_state(node: LonghornNode) -> Rejection | None:
    if node.deleting:
        return Rejection(Reason.NODE_DELETING, f"{node.name}: Longhorn node is being deleted")
    if not node.allow_scheduling or not node.schedulable:
        return Rejection(Reason.NODE_UNSCHEDULABLE, f"{node.name}: scheduling is disabled")
    return None


def _check_disk(
    world: World, disk: Disk, room: DiskRoom | None, image: BackingImage, needs: DiskNeeds, size_bytes: int
) -> Rejection | None:
    if disk.uuid in image.copy_disk_uuids:
        return Rejection(Reason.BACKING_IMAGE, f"{disk.name}: has a copy already, or still, or will get one")
    rejection = check_disk_state(disk)
    if rejection is not None or room is None:
        return rejection or Rejection(Reason.DISK_NOT_FOUND, f"{disk.name}: another disk has the same UUID")
    reason = check_disk_kind(room, needs, size_bytes, world.settings.space)
    if reason is not None:
        return Rejection(reason, f"{disk.name}: its type, file system or tags do not match the image")
    return _check_written(disk, room, size_bytes)


def _check_written(disk: Disk, room: DiskRoom, size_bytes: int) -> Rejection | None:
    if size_bytes >= room.written_limit_bytes:
        text = f"{disk.name}: too little of the available {bytes_text(disk.available_bytes)} would be left"
        return Rejection(Reason.TOO_FULL, text)
    return None
