"""Judge a world by what its API server stored, in its order. Nothing of the product decides anything here.

A finding may be explained: the gate was open, a limit fell, a disk closed, and so on. What nothing explains is guilt.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from typing import Final

from controller.allocator.plans.plan import Plan
from controller.model.longhorn import LonghornNode, Replica, Volume
from tests.places.apiserver import LEADER, GateStamps, StoredChange

LATE_SECONDS: Final = 16.0  # a slow write and a late watch: for so long a decision may not have known of something
FURTHER_SECONDS: Final = 8.0
COMMIT_SECONDS: Final = 2.0  # by when a plan that moved in the same step is stored

GATE_OPEN: Final = "the gate was open"
LIMIT_FELL: Final = "the disk's limit fell"
CLOSED: Final = "a disk or a node closed"
UNSEEN: Final = "somebody else's copy came a moment before"
FURTHER: Final = "a further copy took planned bytes"
CREATED: Final = "it was created with its place"
LOST_PLANS: Final = "stored plans were lost"

Disk = tuple[str, str]  # node and UUID


class WorldFault(StrEnum):
    OVER = "bytes over the limit"
    PAIR = "two copies on one node"
    PLANNED = "took planned bytes"
    FOREIGN = "not placed by the leader"
    TERM = "placed under a former term"
    TWICE = "placed twice"
    SHUT = "placed on a closed disk"
    MOVED = "a plan moved without need"
    FROZEN = "a copy of a volume in use was kept from Longhorn"
    STUCK = "a chosen pod's volume has no place, though all is quiet"
    IDLE = "a copy has no place, though there is room and all is quiet"
    LEFTOVER = "a plan of nothing stays stored"
    BROKEN = "the product met a fault of its own"


@dataclass(frozen=True, slots=True)
class WorldFinding:
    fault: WorldFault
    at: float
    copy: str
    by: str
    detail: str
    explained: str = ""

    def __str__(self) -> str:
        why = f" ({self.explained})" if self.explained else ""
        return f"{self.fault} at {self.at:.2f}{why}: {self.copy} by {self.by}; {self.detail}"


@dataclass(slots=True)
class _Past:
    """What was stored up to now."""

    limits: dict[Disk, int] = field(default_factory=dict)
    open: dict[Disk, bool] = field(default_factory=dict)
    fell: dict[Disk, list[tuple[float, int]]] = field(default_factory=lambda: defaultdict(list))
    touched_at: dict[Disk, float] = field(default_factory=dict)  # its limit, or what lies there
    shut_at: dict[str, float] = field(default_factory=dict)  # by node, when it or one of its disks closed last
    copies: dict[str, Replica] = field(default_factory=dict)
    volumes: dict[str, Volume] = field(default_factory=dict)
    plans: dict[str, Plan] = field(default_factory=dict)
    made_at: dict[str, float] = field(default_factory=dict)
    placed: dict[str, tuple[float, str]] = field(default_factory=dict)  # by copy: when, by whom
    first_at: dict[str, float] = field(default_factory=dict)  # by volume
    held_at: dict[str, float] = field(default_factory=dict)
    gate: GateStamps = field(default_factory=GateStamps)

    def taken(self, disk: Disk) -> int:
        return sum(one.size_bytes for one in self.copies.values() if (one.node, one.disk_uuid) == disk)

    def planned(self, disk: Disk, besides: str) -> int:
        return sum(
            place.size_bytes
            for plan in self.plans.values()
            if plan.volume != besides
            for place in plan.places
            if (place.node, place.disk_uuid) == disk
        )

    def lately(self, disk: Disk, at: float) -> int:
        """The largest limit that a decision may have gone by."""
        former = [limit for when, limit in self.fell[disk] if when > at - LATE_SECONDS]
        return max([self.limits.get(disk, 0), *former])

    def siblings(self, copy: Replica) -> list[Replica]:
        return [one for one in self.copies.values() if one.volume == copy.volume and one.name != copy.name]


class WorldJudge:
    """Reads a history change by change."""

    def __init__(self) -> None:
        self.findings: list[WorldFinding] = []
        self.past = _Past()
        self._suspects: list[tuple[WorldFinding, Callable[[], bool]]] = []  # each with what shows its guilt later
        self._once_held: set[str] = set()  # copies
        self.planned_once: set[str] = set()  # volumes
        self.notes: set[str] = set()  # what explains all that is left without a place in the end

    def read(self, history: list[StoredChange]) -> None:
        readers = {"node": self._on_node, "volume": self._on_volume, "plan": self._on_plan, "replica": self._on_replica}
        for change in history:
            self._settle(change.at - COMMIT_SECONDS)
            if change.kind == "gate":
                self.past.gate = change.after
            elif change.kind in readers:
                readers[change.kind](change)
        self._settle(float("inf"))
        for name in list(self.past.held_at):
            self._check_held(replace(history[-1], key=name), self.past.copies[name])

    def _note(self, fault: WorldFault, change: StoredChange, detail: str, explained: str) -> None:
        self.findings.append(WorldFinding(fault, change.at, change.key, change.by, detail, explained))

    # What is kept in mind

    def _on_node(self, change: StoredChange) -> None:
        node: LonghornNode | None = change.after
        for disk in (node or change.before).disks:
            key = change.key, disk.uuid
            limit = disk.maximum_bytes - disk.reserved_bytes if node is not None else 0
            is_open = node is not None and node.ready and node.allow_scheduling and disk.allow_scheduling
            if limit < self.past.limits.get(key, 0):
                self.past.fell[key].append((change.at, self.past.limits[key]))
                self.notes.add(LIMIT_FELL)
            if self.past.open.get(key) and not is_open:
                self.past.shut_at[change.key] = change.at
                self.notes.add(CLOSED)
            if (limit, is_open) != (self.past.limits.get(key), self.past.open.get(key)):
                self.past.touched_at[key] = change.at
            self.past.limits[key], self.past.open[key] = limit, is_open

    def _on_volume(self, change: StoredChange) -> None:
        if change.after is None:
            self.past.volumes.pop(change.key, None)
        else:
            self.past.volumes[change.key] = change.after

    def _on_plan(self, change: StoredChange) -> None:
        if not change.by.startswith(LEADER):
            self.notes.add(LOST_PLANS)
        if change.after is None:
            self.past.plans.pop(change.key, None)
        else:
            self.past.plans[change.key] = change.after
            self.planned_once.add(change.key)
            if change.before is not None:
                self._on_new_places(change, change.before, change.after)

    def _on_new_places(self, change: StoredChange, before: Plan, after: Plan) -> None:
        """Places that are given up for others have to be closed or full, or on another node than the volume."""
        past, volume = self.past, self.past.volumes.get(change.key)
        left, come = set(before.places) - set(after.places), set(after.places) - set(before.places)
        nodes, sizes = {one.node for one in come}, {one.size_bytes for one in come}
        if before.uid != after.uid or (volume is not None and volume.node_id in nodes):
            return
        for place in left:
            disk = place.node, place.disk_uuid
            is_calm = change.at - past.touched_at.get(disk, -LATE_SECONDS) > LATE_SECONDS
            if is_calm and place.size_bytes in sizes and self._may_take(disk, change.key, place.size_bytes):
                finding = WorldFinding(WorldFault.MOVED, change.at, change.key, change.by, f"it was on {disk}")
                self._suspects.append((finding, partial(self._may_take, disk, change.key, place.size_bytes)))

    def _may_take(self, disk: Disk, volume: str, size_bytes: int) -> bool:
        """Whether that disk has room for a further copy of the volume, and no other one of it is on its node."""
        past = self.past
        free = past.limits.get(disk, 0) - past.taken(disk) - past.planned(disk, volume)
        is_used = any(one.volume == volume and one.node == disk[0] for one in past.copies.values())
        return past.open.get(disk, False) and free >= size_bytes and not is_used

    # Copies

    def _on_replica(self, change: StoredChange) -> None:
        before: Replica | None = change.before
        after: Replica | None = change.after
        past = self.past
        for one in (before, after):
            if one is not None and one.node:
                past.touched_at[one.node, one.disk_uuid] = change.at
        if after is None:
            past.copies.pop(change.key, None)
            past.held_at.pop(change.key, None)
            return
        past.made_at.setdefault(change.key, change.at)
        past.copies[change.key] = after
        self._on_mark(change, before, after)
        if after.node and (before is None or not before.node):
            self._on_place(change, after)
        elif before is not None and before.node and (before.node, before.disk_uuid) != (after.node, after.disk_uuid):
            self._note(WorldFault.TWICE, change, f"it was on {before.node}", "")
        elif before is not None and before.size_bytes < after.size_bytes and after.node:
            self._check_limit(change, after, "")

    def _on_mark(self, change: StoredChange, before: Replica | None, after: Replica) -> None:
        """A mark that is left on a copy with a place keeps nothing from anybody."""
        since, is_held = self.past.held_at.get(change.key), bool(after.held) and not after.node
        if is_held and since is None:
            self.past.held_at[change.key] = change.at
            self._once_held.add(change.key)
        elif not is_held and since is not None:
            self._check_held(change, after)
            del self.past.held_at[change.key]

    def _check_held(self, change: StoredChange, copy: Replica) -> None:
        """It was held until now; once another copy of its volume has a place, that has to end."""
        begun = max(self.past.held_at[copy.name], self.past.first_at.get(copy.volume, change.at))
        if change.at - begun > FURTHER_SECONDS + 12 and change.at - self.past.gate.since > 30:
            self._note(WorldFault.FROZEN, change, f"held for {change.at - begun:.0f} s", "")

    def _why_open(self, change: StoredChange, copy: Replica) -> str:
        """What let somebody else than the leader place it; "" for nothing that may. A first copy that is only old is
        the leader's to hold."""
        gate, made = self.past.gate, self.past.made_at[copy.name]
        if change.at - gate.renewed > 45 or copy.is_left:
            return GATE_OPEN
        if change.before is not None and change.before.held:
            return ""
        is_old = gate.renewed - max(made, gate.since) >= 30
        is_further = any(one.node for one in self.past.siblings(copy))
        may_be_old = is_further or copy.name in self._once_held
        return GATE_OPEN if (is_old and may_be_old) or change.at - made > 120 else ""

    def _on_place(self, change: StoredChange, copy: Replica) -> None:
        past = self.past
        is_leaders = change.by.startswith(LEADER)
        excuse = "" if is_leaders else CREATED if change.before is None else self._why_open(change, copy)
        if excuse:
            self.notes.add(excuse)
        if not is_leaders:
            self._note(WorldFault.FOREIGN, change, f"on {copy.node}", excuse)
        elif change.by != f"{LEADER}{past.gate.term}":
            self._note(WorldFault.TERM, change, f"the term is {past.gate.term}", "")
        if copy.name in past.placed:
            self._note(WorldFault.TWICE, change, "it had a place before", "")
        disk = copy.node, copy.disk_uuid
        is_within = self._check_limit(change, copy, excuse)
        self._check_pair(change, copy, excuse)
        was_shut = change.at - past.shut_at.get(copy.node, change.at)
        if is_leaders and not past.open.get(disk, False) and was_shut > LATE_SECONDS:
            self._note(WorldFault.SHUT, change, f"since {was_shut:.0f} s", "")
        if is_within:
            self._check_plans(change, copy, excuse)
        past.placed[copy.name] = (change.at, change.by)
        past.first_at.setdefault(copy.volume, change.at)

    def _check_limit(self, change: StoredChange, copy: Replica, excuse: str) -> bool:
        past, disk = self.past, (copy.node, copy.disk_uuid)
        taken, limit = past.taken(disk), past.limits.get(disk, 0)
        if taken <= limit:
            return True
        explained = excuse
        if not explained and taken <= past.lately(disk, change.at):
            explained = LIMIT_FELL
        if not explained and taken - self._unseen(disk, copy.name, change.at) <= past.lately(disk, change.at):
            explained = UNSEEN
        if not explained and copy.name in past.placed:  # it grew, on a disk that was over for a known reason before
            explained = ", ".join(sorted(self.notes & {GATE_OPEN, LIMIT_FELL, CREATED}))
        self._note(WorldFault.OVER, change, f"{(taken - limit) / 2**30:.1f} GiB over on {disk}", explained)
        return False

    def _unseen(self, disk: Disk, besides: str, at: float) -> int:
        """Bytes of others' copies there that the leader may not have seen when it decided."""
        return sum(
            one.size_bytes
            for one in self.past.copies.values()
            if (one.node, one.disk_uuid) == disk and one.name != besides and self._is_unseen(one, at)
        )

    def _is_unseen(self, copy: Replica, at: float) -> bool:
        when, by = self.past.placed.get(copy.name, (-1000.0, ""))
        return not by.startswith(LEADER) and when > at - LATE_SECONDS

    def _check_pair(self, change: StoredChange, copy: Replica, excuse: str) -> None:
        for other in self.past.siblings(copy):
            is_counted = other.active and copy.active and not other.failed_at and not other.eviction_requested
            counts = is_counted and other.node == copy.node
            if counts:
                explained = excuse or (UNSEEN if self._is_unseen(other, change.at) else "")
                self._note(WorldFault.PAIR, change, f"{other.name} is on {copy.node} too", explained)

    def _check_plans(self, change: StoredChange, copy: Replica, excuse: str) -> None:
        past, disk = self.past, (copy.node, copy.disk_uuid)
        lost = past.taken(disk) + past.planned(disk, copy.volume) - past.lately(disk, change.at)
        if lost <= 0:
            return
        lost -= self._unseen(disk, copy.name, change.at)
        explained = excuse or (UNSEEN if lost <= 0 else "")
        if not explained and any(one.node and not one.failed_at for one in past.siblings(copy)):
            explained = FURTHER
        own = past.plans.get(copy.volume)
        is_own = own is not None and disk in {(one.node, one.disk_uuid) for one in own.places}
        detail = f"{lost / 2**30:.1f} GiB on {disk}"
        finding = WorldFinding(WorldFault.PLANNED, change.at, copy.name, change.by, detail, explained)
        if explained:
            self.notes.add(explained)
            self.findings.append(finding)
        elif not is_own:
            self._suspects.append((finding, partial(self._is_short, disk, copy.volume, change.at)))

    def _is_short(self, disk: Disk, volume: str, at: float) -> bool:
        """Whose plan moved in the same step has lost nothing."""
        return self.past.taken(disk) + self.past.planned(disk, volume) > self.past.lately(disk, at)

    def _settle(self, upto: float) -> None:
        while self._suspects and self._suspects[0][0].at <= upto:
            finding, is_guilty = self._suspects.pop(0)
            if is_guilty():
                self.findings.append(finding)

    def note_end(self, fault: WorldFault, at: float, copy: str, detail: str, explained: str) -> None:
        """What the end of the world shows."""
        self.findings.append(WorldFinding(fault, at, copy, "nobody", detail, explained))


def guilty(findings: list[WorldFinding]) -> list[WorldFinding]:
    """What nothing explains."""
    return [one for one in findings if not one.explained]
