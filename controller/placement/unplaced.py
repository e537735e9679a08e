"""Keeps account of Replicas without a node, and of events that may give them one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from controller.kube.store import Change
from controller.model.longhorn import Disk, LonghornNode, Replica, Volume


@dataclass(frozen=True, slots=True)
class News:
    """`waiting`: the volume of each replica without a node, in the order in which they appeared. `touched`: those that
    have changed, or whose volumes have. `has_room`: there may be more room on some disk."""

    waiting: Mapping[str, str]
    touched: frozenset[str]
    has_room: bool


class Unplaced:
    """Replicas without a node, by the stores. `wake` is called at the first news after a `take`, outside the lock.

    Threads: any. Blocks: never. I/O: none.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._lock = threading.Lock()  # guards the fields below
        self._waiting: dict[str, str] = {}
        self._of_volume: dict[str, set[str]] = {}
        self._touched: set[str] = set()
        self._has_room = False
        self._has_told = False  # `wake` was called since the last `take`

    def take(self) -> News:
        """The news since the last call."""
        with self._lock:
            news = News(dict(self._waiting), frozenset(self._touched), self._has_room)
            self._touched, self._has_room, self._has_told = set(), False, False
        return news

    def replicas_changed(self, changes: Sequence[Change[Replica]]) -> None:
        with self._lock:
            for change in changes:
                self._replica_changed_locked(change.old, change.new)
        self._tell()

    def _tell(self) -> None:
        with self._lock:
            is_new = not self._has_told and bool(self._touched or (self._has_room and self._waiting))
            self._has_told |= is_new
        if is_new:
            self._wake()

    def _replica_changed_locked(self, old: Replica | None, new: Replica | None) -> None:
        if old is not None and old.node and (new is None or _leaves(old, new)):
            self._has_room = True
        if old is not None and (new is None or new.node):
            self._drop_locked(old)
        if new is not None and not new.node:
            self._waiting[new.name] = new.volume
            self._of_volume.setdefault(new.volume, set()).add(new.name)
            self._touched.add(new.name)

    def _drop_locked(self, replica: Replica) -> None:
        self._waiting.pop(replica.name, None)
        self._touched.discard(replica.name)
        members = self._of_volume.get(replica.volume, set())
        members.discard(replica.name)
        if not members:
            self._of_volume.pop(replica.volume, None)

    def volumes_changed(self, changes: Sequence[Change[Volume]]) -> None:
        with self._lock:
            for change in changes:
                self._touched |= self._of_volume.get(change.key.rpartition("/")[2], set())
        self._tell()

    def nodes_changed(self, changes: Sequence[Change[LonghornNode]]) -> None:
        if any(gives_room(change.old, change.new) for change in changes):
            self.room_came()

    def volume_planned(self, volume: str) -> None:
        """The volume's plan has changed. Does not call `wake`: its caller is who takes the news."""
        with self._lock:
            self._touched |= self._of_volume.get(volume, set())

    def room_came(self, _changes: object = None) -> None:
        """There may be more room on some disk, whatever has changed."""
        with self._lock:
            self._has_room = True
        self._tell()


def gives_room(old: LonghornNode | None, new: LonghornNode | None) -> bool:
    """Whether a replica that found no disk may find one after that change: it is more than disks that got fuller."""
    if old is None or new is None or len(old.disks) != len(new.disks):
        return True
    is_same = new == replace(old, record=new.record, disks=new.disks)
    return not is_same or any(map(_disk_gives_room, old.disks, new.disks))


def _disk_gives_room(before: Disk, after: Disk) -> bool:
    fuller = replace(
        before,
        maximum_bytes=min(before.maximum_bytes, after.maximum_bytes),
        available_bytes=min(before.available_bytes, after.available_bytes),
        reserved_bytes=max(before.reserved_bytes, after.reserved_bytes),
        scheduled_bytes=max(before.scheduled_bytes, after.scheduled_bytes),
        scheduled_replicas=after.scheduled_replicas,
        scheduled_images=after.scheduled_images,
    )
    return after != fuller


def _leaves(old: Replica, new: Replica) -> bool:
    """Whether the replica takes less of its disk, or no longer keeps other replicas of its volume from it."""
    before, after = ((one.disk_uuid, one.node, one.failed_at, one.eviction_requested) for one in (old, new))
    return new.size_bytes < old.size_bytes or before != after
