"""Replicas by volume and by disk, as Longhorn shows them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

from controller.model.longhorn import Replica

_NONE: Final[Mapping[str, Replica]] = {}


class Placed:
    """`touch` hears of the UUIDs of disks whose content changed.

    Threads: none of its own; the allocator's lock guards it.
    """

    def __init__(self, touch: Callable[[str], None]) -> None:
        self._touch = touch
        self._of_volume: dict[str, dict[str, Replica]] = {}  # volume -> name -> replica
        self._on_disk: dict[str, dict[str, Replica]] = {}  # disk uuid -> name -> replica
        self._volume_of: dict[str, str] = {}
        self.unplaced: dict[str, Replica] = {}  # Longhorn may place these at any moment

    def of(self, volume: str) -> Mapping[str, Replica]:
        return self._of_volume.get(volume, _NONE)

    def on(self, disk_uuid: str) -> Collection[Replica]:
        return self._on_disk.get(disk_uuid, _NONE).values()

    def put(self, name: str, replica: Replica | None) -> set[str]:
        """Replace; the volumes that it belonged to and belongs to."""
        touched = set()
        volume = self._volume_of.pop(name, None)
        if volume is not None:
            touched.add(volume)
            members = self._of_volume[volume]
            self._uncount(members.pop(name))
            if not members:
                del self._of_volume[volume]
        if replica is not None:
            touched.add(replica.volume)
            self._volume_of[name] = replica.volume
            self._of_volume.setdefault(replica.volume, {})[name] = replica
            self._count(replica)
        return touched

    def _count(self, replica: Replica) -> None:
        if replica.disk_uuid:
            self._on_disk.setdefault(replica.disk_uuid, {})[replica.name] = replica
            self._touch(replica.disk_uuid)
        if not replica.node and not replica.deleting and not replica.failed_at:
            self.unplaced[replica.name] = replica

    def _uncount(self, replica: Replica) -> None:
        self.unplaced.pop(replica.name, None)
        if not replica.disk_uuid:
            return
        members = self._on_disk.get(replica.disk_uuid, {})
        members.pop(replica.name, None)
        if not members:
            self._on_disk.pop(replica.disk_uuid, None)
        self._touch(replica.disk_uuid)
