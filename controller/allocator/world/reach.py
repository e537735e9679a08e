"""What Longhorn may believe of disks, and when that changed by itself: what a yes was given on.

Longhorn places replicas by its own figures, which follow late, and its controllers decide up to a second before they
write, on figures that were read before (docs/rules/promised.md). So for a while a disk has to be taken for as empty as
it was.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import StrEnum
from heapq import heappop, heappush
from typing import Final

from controller.clock import Clock
from controller.model.longhorn import Disk, LonghornNode, SpacePolicy
from controller.rules.eligibility import check_disk_state, check_node, provisioning_limit

REPORT_GRACE_SECONDS: Final = 5.0  # for this long Longhorn may decide by older, better figures
RECORD_SECONDS: Final = 600.0
MOST_RECORDS: Final = 10_000  # the oldest goes first
NOTHING: Final = -(2**63)


class ReachCause(StrEnum):
    """What changed without a promise of ours. A volume that could not reach the disk before may have come there by
    it, or one that was promised the disk may not reach it any more."""

    MORE_ROOM = "more-room"  # a replica went, or the limit rose
    LOWER_LIMIT = "lower-limit"
    OPENED = "opened"  # enabled, out of pressure, its node uncordoned, ready, or able to run engines
    CLOSED = "closed"
    REPLICA_LOST = "replica-lost"  # failed or evicting, so that another one of its volume may come to its node
    RETAGGED = "retagged"  # tags of the disk or its node, or the node's zone
    OWN_COPY = "longhorn-copy"  # a replica that nobody asked for: a rebuild, a twin
    IMAGE = "backing-image"  # a copy of an image came


@dataclass(frozen=True, slots=True)
class ReachChange:
    """At that time, in monotonic seconds; `size_bytes` by which the disk's room changed, 0 where that does not tell."""

    at: float
    node: str
    disk: str
    change: ReachCause
    size_bytes: int


class Reach:
    """Follows the nodes. Without a clock nothing is believed longer than it is shown, and nothing recorded. Threads:
    none of its own; the allocator's lock guards it."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock
        self._believed: dict[str, list[tuple[float, int]]] = {}  # by disk uuid: until when, bytes
        self._ends: list[tuple[float, str, str]] = []  # a heap: when, disk, node
        self._names: dict[str, tuple[str, str]] = {}  # node and disk, by uuid
        self._records: deque[ReachChange] = deque(maxlen=MOST_RECORDS)

    def copy(self) -> Reach:
        """What is believed, for questions."""
        other = Reach(self._clock)
        other._believed = {uuid: entries.copy() for uuid, entries in self._believed.items()}
        other._ends = self._ends.copy()
        return other

    def node_changed(
        self,
        old: LonghornNode | None,
        new: LonghornNode | None,
        space: SpacePolicy,
        old_space: SpacePolicy | None = None,
    ) -> None:
        """`old_space`: the policy as it was, where that changed."""
        if self._clock is None:
            return
        now = self._clock.now()
        if new is not None:
            self._names.update((disk.uuid, (new.name, disk.name)) for disk in new.disks)
        before, after = _shown(old, old_space or space), _shown(new, space)
        for uuid, (disk, room) in before.items():
            shown = after.get(uuid)
            if shown is None or shown[1] < room:
                self._believe(old.name if old is not None else "", uuid, room, now + REPORT_GRACE_SECONDS)
            if shown is None:
                self._record(uuid, ReachCause.CLOSED, 0, now)
                continue
            disk_now, room_now = shown
            fewer = provisioning_limit(disk, old_space or space) - provisioning_limit(disk_now, space)
            if room_now > room:
                self._record(uuid, ReachCause.MORE_ROOM, room_now - room, now)
            if fewer > 0:
                self._record(uuid, ReachCause.LOWER_LIMIT, fewer, now)
            if _suits(old, disk, old_space or space) != _suits(new, disk_now, space):
                self._record(uuid, ReachCause.RETAGGED, 0, now)
        for uuid in after.keys() - before.keys():
            self._record(uuid, ReachCause.OPENED, after[uuid][1], now)
        for disk in old.disks if old is not None and new is None else ():
            self._names.pop(disk.uuid, None)

    def node_told(self, node: LonghornNode | None, change: ReachCause) -> None:
        """That change of all disks of the node, whatever their own state."""
        for disk in node.disks if node is not None else ():
            self.came(disk.uuid, change, 0)

    # What Longhorn may believe

    def _believe(self, node: str, uuid: str, room_bytes: int, until: float) -> None:
        self._believed.setdefault(uuid, []).append((until, room_bytes))
        heappush(self._ends, (until, uuid, node))

    def most_believed(self, uuid: str) -> int:
        """The most room that the disk showed a moment ago, if it was more than it shows now."""
        entries = self._believed.get(uuid)
        return max(room for _, room in entries) if entries else NOTHING

    def end_beliefs(self) -> set[str]:
        """Forget what nobody believes any more; the nodes of those disks."""
        names = set[str]()
        now = self._clock.now() if self._clock is not None and self._ends else 0.0
        while self._ends and self._ends[0][0] <= now:
            _, uuid, name = heappop(self._ends)
            left = [entry for entry in self._believed.pop(uuid, ()) if entry[0] > now]
            if left:
                self._believed[uuid] = left
            names.add(name)
        return names

    # What changed

    def came(self, uuid: str, change: ReachCause, size_bytes: int) -> None:
        """So many bytes on that disk that nobody was promised."""
        if self._clock is not None:
            self._record(uuid, change, size_bytes, self._clock.now())

    def _record(self, uuid: str, change: ReachCause, size_bytes: int, now: float) -> None:
        node, disk = self._names.get(uuid, ("", ""))
        self._records.append(ReachChange(now, node, disk, change, size_bytes))

    def forget_records(self) -> None:
        """What was seen so far was there before anything was promised."""
        self._records.clear()

    def records(self) -> list[ReachChange]:
        """Of the last ten minutes, the newest last."""
        now = self._clock.now() if self._clock is not None else 0.0
        while self._records and self._records[0].at + RECORD_SECONDS <= now:
            self._records.popleft()
        return list(self._records)


def _shown(node: LonghornNode | None, space: SpacePolicy) -> dict[str, tuple[Disk, int]]:
    """The disks that take replicas, by UUID, and the bytes that they report as free."""
    if node is None or check_node(node) is not None:
        return {}
    return {
        disk.uuid: (disk, provisioning_limit(disk, space) - disk.scheduled_bytes)
        for disk in node.disks
        if check_disk_state(disk) is None
    }


def _suits(node: LonghornNode | None, disk: Disk, space: SpacePolicy) -> object:
    """What decides which volumes the disk suits."""
    site = None if node is None else (node.tags, node.zone, node.region)
    return disk.tags, site, space.allow_empty_node_selector, space.allow_empty_disk_selector
