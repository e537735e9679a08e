"""Replicas by volume and by disk, as Longhorn shows them, and what their volumes were granted beyond that."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final, Protocol

from controller.model.longhorn import Replica

_NONE: Final[Mapping[str, Replica]] = {}


class Granted(Protocol):
    """The growth that volumes were granted beyond what Longhorn shows."""

    def target_of(self, volume: str) -> int: ...  # bytes, 0 for none
    def grows_on(self, disk_uuid: str) -> bool: ...  # whether a copy there is to have more


class NothingGranted:
    """Every volume is as large as Longhorn shows it."""

    def target_of(self, volume: str) -> int:
        del volume
        return 0

    def grows_on(self, disk_uuid: str) -> bool:
        del disk_uuid
        return False


class ReplicaIndex:
    """`touch` hears of the UUIDs of disks whose content changed.

    Threads: none of its own; the allocator's lock guards it.
    """

    def __init__(self, touch: Callable[[str], None]) -> None:
        self._touch = touch
        # Inner mappings that a copy may share are never changed but replaced, so that copies need only the outer ones.
        self._of_volume: dict[str, Mapping[str, Replica]] = {}  # volume -> name -> replica
        self._on_disk: dict[str, dict[str, Replica]] = {}  # disk uuid -> name -> replica; there may be very many
        self._own = set[str]()  # uuids of the disks whose mapping no copy shares
        self._volume_of: dict[str, str] = {}

    def copy(self) -> ReplicaIndex:
        """A copy for questions only."""
        other = ReplicaIndex(self._touch)
        self._own.clear()
        vars(other).update(_of_volume=self._of_volume.copy(), _on_disk=self._on_disk.copy())
        return other

    def get(self, name: str) -> Replica | None:
        volume = self._volume_of.get(name)
        return None if volume is None else self._of_volume[volume][name]

    def of(self, volume: str) -> Mapping[str, Replica]:
        return self._of_volume.get(volume, _NONE)

    def on(self, disk_uuid: str) -> Collection[Replica]:
        return self._on_disk.get(disk_uuid, _NONE).values()

    def disks_with_image(self, name: str) -> set[str]:
        """UUIDs of the disks with a replica that is made on that backing image. Costs: a look at each replica."""
        members = self._on_disk.items()
        return {uuid for uuid, here in members if any(one.backing_image == name for one in here.values())}

    def put(self, name: str, replica: Replica | None) -> set[str]:
        """Replace the replica; the volumes to which it belonged and belongs."""
        touched = set()
        volume = self._volume_of.pop(name, None)
        if volume is not None:
            touched.add(volume)
            members = self._of_volume[volume]
            self._uncount(members[name])
            left = {other: entry for other, entry in members.items() if other != name}
            if left:
                self._of_volume[volume] = left
            else:
                del self._of_volume[volume]
        if replica is not None:
            touched.add(replica.volume)
            self._volume_of[name] = replica.volume
            self._of_volume[replica.volume] = {**self._of_volume.get(replica.volume, _NONE), name: replica}
            self._count(replica)
        return touched

    def _count(self, replica: Replica) -> None:
        if replica.disk_uuid:
            self._members(replica.disk_uuid)[replica.name] = replica
            self._touch(replica.disk_uuid)

    def _uncount(self, replica: Replica) -> None:
        if not replica.disk_uuid:
            return
        members = self._members(replica.disk_uuid)
        members.pop(replica.name, None)
        if not members:
            del self._on_disk[replica.disk_uuid]
            self._own.remove(replica.disk_uuid)
        self._touch(replica.disk_uuid)

    def _members(self, disk_uuid: str) -> dict[str, Replica]:
        """The mapping of that disk, to be changed: no copy has it."""
        if disk_uuid not in self._own:
            self._on_disk[disk_uuid] = dict(self._on_disk.get(disk_uuid, _NONE))
            self._own.add(disk_uuid)
        return self._on_disk[disk_uuid]
