"""Replicas by volume, by disk and by node, as Longhorn shows them, and who tells how large they may become."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final, Protocol

from controller.model.longhorn import Replica, Volume

_NONE: Final[Mapping[str, Replica]] = {}


class Granted(Protocol):
    """What volumes were promised beyond what Longhorn shows of them."""

    def target_of(self, volume: str) -> int: ...  # bytes, 0 for none
    def grows_on(self, disk_uuid: str) -> bool: ...


class NothingGranted:
    """Every volume is as large as Longhorn shows it."""

    def target_of(self, volume: str) -> int:
        del volume
        return 0

    def grows_on(self, disk_uuid: str) -> bool:
        del disk_uuid
        return False


class Placed:
    """`touch` hears of the UUIDs of disks whose content changed.

    Threads: none of its own; the allocator's lock guards it.
    """

    def __init__(self, touch: Callable[[str], None]) -> None:
        self._touch = touch
        # The inner mappings are never changed but replaced, so that a copy of the outer ones is a copy of all.
        self._of_volume: dict[str, Mapping[str, Replica]] = {}  # volume -> name -> replica
        self._on_disk: dict[str, Mapping[str, Replica]] = {}  # disk uuid -> name -> replica
        self._at_node: dict[str, dict[str, str]] = {}  # node -> name of replica -> volume
        self._volume_of: dict[str, str] = {}
        self.unplaced: dict[str, Replica] = {}  # Longhorn may place these at any moment
        self._up: dict[str, str] = {}  # volume -> node where it was up although none of its replicas shows a place

    def copy(self) -> Placed:
        """For questions only."""
        other = Placed(self._touch)
        vars(other).update(_of_volume=self._of_volume.copy(), _on_disk=self._on_disk.copy())
        other.unplaced, other._up = self.unplaced.copy(), self._up.copy()
        return other

    def volume_shown(self, name: str, volume: Volume | None) -> None:
        if volume is None:
            self._up.pop(name, None)
        elif volume.node_id and volume.state == "attached" and not any(one.node for one in self.of(name).values()):
            self._up[name] = volume.node_id

    def hidden_at(self, volume: str) -> str:
        """The node next to which the volume must have a replica that does not show yet, since it has been up there:
        volumes and replicas are watched apart. "" for none."""
        return self._up.get(volume, "")

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

    def volumes_at(self, node: str) -> set[str]:
        """Volumes with a replica on that node, in whatever state."""
        return set(self._at_node.get(node, {}).values())

    def put(self, name: str, replica: Replica | None) -> set[str]:
        """Replace; the volumes that it belonged to and belongs to."""
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
        if replica.node:
            self._up.pop(replica.volume, None)
            self._at_node.setdefault(replica.node, {})[replica.name] = replica.volume
        if replica.disk_uuid:
            uuid = replica.disk_uuid
            self._on_disk[uuid] = {**self._on_disk.get(uuid, _NONE), replica.name: replica}
            self._touch(replica.disk_uuid)
        if not replica.node and not replica.deleting and not replica.failed_at:
            self.unplaced[replica.name] = replica

    def _uncount(self, replica: Replica) -> None:
        self.unplaced.pop(replica.name, None)
        self._at_node.get(replica.node, {}).pop(replica.name, None)
        if not replica.disk_uuid:
            return
        members = self._on_disk.get(replica.disk_uuid, _NONE)
        left = {name: entry for name, entry in members.items() if name != replica.name}
        if left:
            self._on_disk[replica.disk_uuid] = left
        else:
            self._on_disk.pop(replica.disk_uuid, None)
        self._touch(replica.disk_uuid)
