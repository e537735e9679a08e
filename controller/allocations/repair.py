"""Compares the record with what Longhorn's objects show, and says what has to change. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from msgspec.structs import replace

from controller.model.allocations import Allocation, Change, Drop, NodeRecord, Purpose, Put, largest
from controller.model.longhorn import BackingImage, LonghornNode, Replica


class RepairReason(StrEnum):
    """Why a record is changed. The value is the code that logs and counters show."""

    NO_ENTRY = "no-entry"  # an object that is not on record: adopted
    OBJECT_GONE = "object-gone"
    SIZE_DIFFERS = "size-differs"  # less on record than the object takes
    EXPANSION_UNFINISHED = "expansion-unfinished"  # more on record than the object takes
    DISK_GONE = "disk-gone"  # no node shows it any more, and the replica that was to lie there has no other
    DISK_MOVED = "disk-moved"  # the replica is on another disk now, or the disk is on another node


@dataclass(frozen=True, slots=True)
class Repair:
    """One change, and why; `allocation` is what is removed, or what is recorded from now on."""

    reason: RepairReason
    allocation: Allocation
    change: Change


def shown_allocations(
    nodes: Sequence[LonghornNode], replicas: Iterable[Replica], images: Iterable[BackingImage]
) -> list[Allocation]:
    """What the objects take, by the disk that has their UUID now; at full size, whatever state they are in, as Longhorn
    counts, and a copy of an image as long as either of its maps names the disk. A replica whose disk is nowhere takes
    nothing. Of disks that share a UUID the one on its own node counts."""
    replicas, images = list(replicas), list(images)
    uuids = {one.disk_uuid for one in replicas if one.is_placed}.union(*(one.copy_disk_uuids for one in images))
    holders: dict[str, list[str]] = {}
    for node in nodes:
        for disk in node.disks:
            if disk.uuid and disk.uuid in uuids:
                holders.setdefault(disk.uuid, []).append(node.name)
    found = []
    for replica in replicas:
        uuid = replica.disk_uuid
        if replica.is_placed and uuid in holders:
            there = replica.node if replica.node in holders[uuid] else holders[uuid][-1]
            found.append(Allocation(Purpose.REPLICA, replica.name, there, uuid, replica.size_bytes))
    for image in images:
        places = [(holders[uuid][-1], uuid) for uuid in image.copy_disk_uuids & holders.keys()]
        found += [Allocation(Purpose.BACKING_IMAGE, image.name, *place, image.real_size_bytes) for place in places]
    return found


def plan_repairs(
    records: Iterable[NodeRecord],
    shown: Iterable[Allocation],
    kept: Collection[Allocation] = (),
    wanted_bytes: Mapping[str, int] = MappingProxyType({}),
    lost: Collection[Allocation] = (),
) -> list[Repair]:
    """What brings the records to what is shown. Entries in `kept` stay as they are: their object may not exist yet.
    `wanted_bytes`: by name, how large replicas are to become; an entry is not lowered below that. `lost`: entries of
    which the disk is gone.

    A record that cannot be read is left out: nothing is known of it. An image of which no size is known yet keeps the
    size on record.
    """
    blind = set()
    there: dict[tuple[str, tuple[Purpose, str, str]], Allocation] = {}
    for record in records:
        if not record.is_readable:
            blind.add(record.node)
        there |= {(record.node, one.key): one for one in record.allocations}
    wanted = {(one.node, one.key): one for one in shown if one.node not in blind}
    names = {(one.purpose, one.name) for one in wanted.values()}
    placed_before = {(one.purpose, one.name) for key, one in there.items() if key not in wanted and one not in kept}
    carried = largest(there.values())  # on whichever node's record
    repairs = []
    for key, one in wanted.items():
        old = there.get(key)
        if old is None:
            moved = (one.purpose, one.name) in placed_before and one.purpose is Purpose.REPLICA
            # Its disk may have come from another node.
            adopted = replace(one, size_bytes=max(one.size_bytes, carried.get(one.key, one).size_bytes))
            repairs.append(Repair(RepairReason.DISK_MOVED if moved else RepairReason.NO_ENTRY, adopted, Put(adopted)))
        elif old.size_bytes < one.size_bytes:
            repairs.append(Repair(RepairReason.SIZE_DIFFERS, one, Put(one)))
        elif old.size_bytes > one.size_bytes and old not in kept and not _is_unsized(one):
            size = wanted_bytes.get(one.name, 0) if one.purpose is Purpose.REPLICA else 0
            if old.size_bytes > size:
                lowered = Allocation(one.purpose, one.name, one.node, one.disk_uuid, max(one.size_bytes, size))
                repairs.append(Repair(RepairReason.EXPANSION_UNFINISHED, lowered, Put(lowered)))
    for key, old in there.items():
        if key not in wanted and old not in kept:
            has_moved = old.purpose is Purpose.REPLICA and (old.purpose, old.name) in names
            reason = RepairReason.DISK_MOVED if has_moved else RepairReason.OBJECT_GONE
            reason = RepairReason.DISK_GONE if old in lost and not has_moved else reason
            repairs.append(Repair(reason, old, Drop(old.purpose, old.name, old.node, old.disk_uuid)))
    return sorted(repairs, key=lambda one: (one.allocation.node, one.allocation.key, one.reason))


def by_node(repairs: Iterable[Repair], after: str = "") -> Iterator[tuple[str, list[Repair]]]:
    """By their names, from the one that follows `after`, and that one last."""
    found: dict[str, list[Repair]] = {}
    for one in repairs:
        found.setdefault(one.change.node, []).append(one)
    yield from sorted(found.items(), key=lambda row: (row[0] <= after, row[0]))


def _is_unsized(one: Allocation) -> bool:
    return one.purpose is Purpose.BACKING_IMAGE and one.size_bytes == 0
