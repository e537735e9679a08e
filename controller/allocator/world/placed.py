"""Replicas by volume and by disk, each as large as it may become at any moment.

A volume may be larger than its replicas: it is growing, its claim asks for more than it has, or a growth was admitted
that the cluster does not show yet. Whoever asks what a disk holds must count those bytes, so a replica stands here at
the size that its volume was granted. What Longhorn shows of it stays beside that.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Final

from controller.model.longhorn import Replica

_NONE: Final[Mapping[str, Replica]] = {}


class Placed:
    """`granted` tells a volume's size in bytes, `touch` hears of the UUIDs of disks whose content changed.

    Threads: none of its own; the allocator's lock guards it.
    """

    def __init__(self, granted: Callable[[str], int], touch: Callable[[str], None]) -> None:
        self._granted, self._touch = granted, touch
        self._shown: dict[str, dict[str, Replica]] = {}  # volume -> name -> replica, as Longhorn shows it
        self._counted: dict[str, dict[str, Replica]] = {}  # the same, at least as large as granted
        self._on_disk: dict[str, dict[str, Replica]] = {}  # disk uuid -> name -> replica, as counted
        self._volume_of: dict[str, str] = {}
        self.unplaced: dict[str, Replica] = {}  # Longhorn may place these at any moment

    @property
    def on_disk(self) -> Mapping[str, Mapping[str, Replica]]:
        return self._on_disk

    def of(self, volume: str) -> Mapping[str, Replica]:
        return self._counted.get(volume, _NONE)

    def shown(self, volume: str) -> Mapping[str, Replica]:
        return self._shown.get(volume, _NONE)

    def on(self, disk_uuid: str) -> Collection[Replica]:
        return self._on_disk.get(disk_uuid, _NONE).values()

    def is_growing(self, volume: str) -> bool:
        """Whether some replica of the volume is shown smaller than what was granted."""
        granted = self._granted(volume)
        return any(replica.size_bytes < granted for replica in self._shown.get(volume, _NONE).values())

    def put(self, name: str, replica: Replica | None) -> set[str]:
        """Replace; the volumes that it belonged to and belongs to."""
        touched = set()
        volume = self._volume_of.pop(name, None)
        if volume is not None:
            touched.add(volume)
            self._uncount(self._counted[volume].pop(name))
            del self._shown[volume][name]
            if not self._shown[volume]:
                del self._shown[volume], self._counted[volume]
        if replica is not None:
            touched.add(replica.volume)
            self._volume_of[name] = replica.volume
            self._shown.setdefault(replica.volume, {})[name] = replica
            self._count(replica)
        return touched

    def resize(self, volume: str) -> bool:
        """The volume may have been granted another size; whether that changes what is counted."""
        is_new = False
        for name, replica in self._shown.get(volume, _NONE).items():
            old = self._counted[volume][name]
            if old.size_bytes != max(replica.size_bytes, self._granted(volume)):
                self._uncount(old)
                self._count(replica)
                is_new = True
        return is_new

    def _count(self, replica: Replica) -> None:
        granted = self._granted(replica.volume)
        counted = replica if replica.size_bytes >= granted else replace(replica, size_bytes=granted)
        self._counted.setdefault(replica.volume, {})[replica.name] = counted
        if replica.disk_uuid:
            self._on_disk.setdefault(replica.disk_uuid, {})[replica.name] = counted
            self._touch(replica.disk_uuid)
        if not replica.node and not replica.deleting and not replica.failed_at:
            self.unplaced[replica.name] = counted

    def _uncount(self, replica: Replica) -> None:
        self.unplaced.pop(replica.name, None)
        if not replica.disk_uuid:
            return
        members = self._on_disk.get(replica.disk_uuid, {})
        members.pop(replica.name, None)
        if not members:
            self._on_disk.pop(replica.disk_uuid, None)
        self._touch(replica.disk_uuid)
