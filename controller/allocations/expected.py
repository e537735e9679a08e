"""Which entries of the record no object shows, and which of these an object will show. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from msgspec.structs import replace as replace_entry

from controller.allocations.repair import shown_allocations
from controller.model.allocations import Allocation, NodeRecord, Purpose
from controller.model.longhorn import BackingImage, LonghornNode, Replica, Volume


@dataclass(frozen=True, slots=True)
class LonghornObjects:
    """What Longhorn shows."""

    nodes: Sequence[LonghornNode]
    replicas: Sequence[Replica]
    volumes: Mapping[str, Volume]
    images: Sequence[BackingImage]

    def shown(self) -> list[Allocation]:
        """As `shown_allocations`."""
        return shown_allocations(self.nodes, self.replicas, self.images)


def surplus_of(records: Iterable[NodeRecord], shown: Iterable[Allocation]) -> set[Allocation]:
    """Entries that no object shows on their disk, or shows smaller."""
    sizes = {(one.node, one.key): one.size_bytes for one in shown}
    return {
        entry
        for record in records
        for entry in record.allocations
        if sizes.get((record.node, entry.key), -1) < entry.size_bytes
    }


def moved_among(entries: Iterable[Allocation], shown: Iterable[Allocation]) -> set[Allocation]:
    """Those of replicas that lie elsewhere: a replica is on one disk, and Longhorn never takes it off again."""
    places = _places(shown)
    mine = ((one, (one.node, one.disk_uuid)) for one in entries if one.purpose is Purpose.REPLICA)
    return {one for one, place in mine if places.get(one.name, place) != place}


def waiting_among(records: Iterable[NodeRecord], objects: LonghornObjects) -> list[Allocation]:
    """What is on record for replicas that wait for a disk, and larger than their volume: as large as that."""
    wanted, found = wanted_bytes(replace(objects, replicas=list(filter(_waits, objects.replicas)))), []
    for one in (entry for record in records for entry in record.allocations):
        size = wanted.get(one.name, one.size_bytes) if one.purpose is Purpose.REPLICA else one.size_bytes
        found += [replace_entry(one, size_bytes=size)] if size < one.size_bytes else []
    return found


def _waits(replica: Replica) -> bool:
    return not (replica.is_placed or replica.failed_at or replica.deleting)


def expected_among(
    entries: Iterable[Allocation], objects: LonghornObjects, shown: Iterable[Allocation]
) -> set[Allocation]:
    """Those whose object is there and will show as much: a replica that waits for a disk, or one that is shown on that
    disk and whose volume grows."""
    replicas, places = {one.name: one for one in objects.replicas if not one.deleting}, _places(shown)
    mine = [one for one in entries if one.purpose is Purpose.REPLICA and one.name in replicas]
    return {one for one in mine if _is_expected(one, replicas[one.name], places.get(one.name), objects.volumes)}


def _places(shown: Iterable[Allocation]) -> dict[str, tuple[str, str]]:
    """By replica, the node and the UUID of the disk that it is shown on."""
    return {one.name: (one.node, one.disk_uuid) for one in shown if one.purpose is Purpose.REPLICA}


def wanted_bytes(objects: LonghornObjects) -> dict[str, int]:
    """By replica, what its volume says."""
    found = {}
    for replica in objects.replicas:
        volume = objects.volumes.get(replica.volume)
        if volume is not None:
            found[replica.name] = volume.size_bytes
    return found


def _is_expected(
    entry: Allocation, replica: Replica, place: tuple[str, str] | None, volumes: Mapping[str, Volume]
) -> bool:
    volume = volumes.get(replica.volume)
    if _waits(replica):
        return volume is None or volume.size_bytes >= entry.size_bytes
    return place == (entry.node, entry.disk_uuid) and volume is not None and volume.size_bytes >= entry.size_bytes
