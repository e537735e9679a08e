"""Judge a world by what its API server stored, in its order. Nothing of the product decides anything here.

A finding may be explained: the gate was open, a limit fell, a disk closed, and so on. What nothing explains is guilt.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from typing import Final

from controller.allocator.plans.plan import Plan
from controller.model.longhorn import LonghornNode, Replica, Volume
from tests.places.apiserver import LEADER, Answer, GateStamps, StoredChange

LATE_SECONDS: Final = 16.0  # a slow write and a late watch: for so long a decision may not have known of something
FURTHER_SECONDS: Final = 8.0
FREEZE_SECONDS: Final = 20.0  # that, and what else takes its time
OPENS_SECONDS: Final = 30.0  # of a copy's age under a leader, after which the gate lets Longhorn place it
COMMIT_SECONDS: Final = 2.0  # by when a plan that moved in the same step is stored
ARRIVES_SECONDS: Final = 10.0  # by when a copy that plans made room for is stored

GATE_OPEN: Final = "the gate was open"
LIMIT_FELL: Final = "the disk's limit fell"
CLOSED: Final = "a disk or a node closed"
UNSEEN: Final = "somebody else's copy came a moment before"
FURTHER: Final = "a further copy took planned bytes"
CREATED: Final = "it was created with its place"
LOST_PLANS: Final = "stored plans were lost"
MADE_ROOM: Final = "it made room for a further copy"

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
    gib: float = 0.0  # over the limit, or of planned bytes

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
    refused_at: dict[str, float] = field(default_factory=dict)  # by copy of a volume in use
    selected: dict[str, str] = field(default_factory=dict)  # by volume, the node that its claim's pod goes to
    gate: GateStamps = field(default_factory=GateStamps)
    thawed_at: float = -1000.0  # when the leader went on that had not renewed the gate for so long that it opened

    def taken(self, disk: Disk) -> int:
        return sum(one.size_bytes for one in self.copies.values() if (one.node, one.disk_uuid) == disk)

    def planned(self, disk: Disk, besides: str) -> int:
        """Bytes planned there for other volumes. A plan ends after its copy is there, which is counted already."""
        there = {one.volume for one in self.copies.values() if (one.node, one.disk_uuid) == disk} | {besides}
        return sum(
            place.size_bytes
            for plan in self.plans.values()
            if plan.volume not in there
            for place in plan.places
            if (place.node, place.disk_uuid) == disk
        )

    def lately(self, disk: Disk, at: float) -> int:
        """The largest limit that a decision may have gone by."""
        former = [limit for when, limit in self.fell[disk] if when > at - LATE_SECONDS]
        return max([self.limits.get(disk, 0), *former])

    def siblings(self, copy: Replica) -> list[Replica]:
        return [one for one in self.copies.values() if one.volume == copy.volume and one.name != copy.name]


@dataclass(slots=True)
class _Move:
    """A plan that left a disk which would have taken it. `maker`: a volume whose copy has come there since, and is a
    further one if another one was decided on before."""

    finding: WorldFinding
    disk: Disk
    size_bytes: int
    waiting: frozenset[str]  # copies of other volumes that had no place then
    maker: str = ""


@dataclass(frozen=True, slots=True)
class _Displacing:
    """Bytes that plans had to leave there, for a further copy that may take them or since a limit fell, and what was
    planned there by volume."""

    at: float
    disk: Disk
    lost_bytes: int
    planned: Mapping[str, int]


class WorldJudge:
    """Reads a history change by change."""

    def __init__(self) -> None:
        self.findings: list[WorldFinding] = []
        self.longest_freeze = 0.0
        self.past = _Past()
        self._moves: list[_Move] = []
        self._suspects: list[tuple[WorldFinding, Callable[[], None]]] = []  # each with what looks at it again later
        self._once_held: set[str] = set()  # copies
        self._gone: set[str] = set()  # volumes, or their claims
        self._robbed_at: dict[str, float] = {}  # by volume, when somebody else changed its stored plan last
        self._left_at: dict[Disk, float] = {}  # when the leader gave up a place there last
        self._displacing: list[_Displacing] = []
        self.planned_once: set[str] = set()  # volumes
        self.notes: set[str] = set()  # what explains all that is left without a place in the end

    def read(self, history: list[StoredChange]) -> None:
        readers = {
            "node": self._on_node,
            "volume": self._on_volume,
            "plan": self._on_plan,
            "replica": self._on_replica,
            "look": self._on_look,
            "claim": self._on_claim,
        }
        for change in history:
            self._settle(change.at)
            if change.kind == "gate":
                self._on_gate(change)
            elif change.kind in readers:
                readers[change.kind](change)
        self._settle(float("inf"))
        for name in list(self.past.held_at):
            self._check_held(replace(history[-1], key=name), self.past.copies[name])

    def _on_gate(self, change: StoredChange) -> None:
        before: GateStamps = self.past.gate
        if change.after.term == before.term and change.after.renewed - before.renewed >= OPENS_SECONDS:
            self.past.thawed_at = change.at
        self.past.gate = change.after

    def _note(self, fault: WorldFault, change: StoredChange, detail: str, explained: str, gib: float = 0.0) -> None:
        self.findings.append(WorldFinding(fault, change.at, change.key, change.by, detail, explained, gib))

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
        if change.after is None or change.after.deleting:
            self._gone.add(change.key)

    def _on_claim(self, change: StoredChange) -> None:
        if change.after is None:
            self._gone.add(f"pvc-{change.before.uid}")
        else:
            self.past.selected[f"pvc-{change.after.uid}"] = change.after.selected_node

    def _on_plan(self, change: StoredChange) -> None:
        if not change.by.startswith(LEADER):
            self.notes.add(LOST_PLANS)
            self._robbed_at[change.key] = change.at
        elif change.before is not None:
            left = set(change.before.places) - set(change.after.places if change.after is not None else ())
            self._left_at.update({(one.node, one.disk_uuid): change.at for one in left})
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
        goes_home = past.selected.get(change.key, "") in nodes - {one.node for one in before.places}
        if before.uid != after.uid or goes_home or (volume is not None and volume.node_id in nodes):
            return
        for place in left:
            disk = place.node, place.disk_uuid
            is_calm = change.at - past.touched_at.get(disk, -LATE_SECONDS) > LATE_SECONDS
            if is_calm and place.size_bytes in sizes and self._may_take(disk, change.key, place.size_bytes):
                finding = WorldFinding(WorldFault.MOVED, change.at, change.key, change.by, f"it was on {disk}")
                others = [one for one in past.copies.values() if one.volume != change.key]
                waiting = frozenset(one.name for one in others if not one.node)
                move = _Move(finding, disk, place.size_bytes, waiting)
                self._suspects.append((finding, partial(self._check_move, move)))

    def _check_move(self, move: _Move) -> None:
        """Where the disk would still take the plan, what it left for may be on its way."""
        if self._may_take(move.disk, move.finding.copy, move.size_bytes):
            self._moves.append(move)

    def _explain_moves(self, change: StoredChange, copy: Replica) -> None:
        """The copy has a place now. Plans that it has no room beside left for it, by a decision of the same leader."""
        for move in [one for one in self._moves if one.finding.by == change.by]:
            beside = self._free(move.disk, move.finding.copy)
            is_needed = beside < move.size_bytes <= beside + copy.size_bytes
            if is_needed and (copy.node, copy.disk_uuid) == move.disk and copy.name in move.waiting:
                move.maker = copy.volume
            if move.maker == copy.volume and self._is_further(copy):
                self._moves.remove(move)
                self.findings.append(replace(move.finding, explained=MADE_ROOM))

    def _free(self, disk: Disk, volume: str) -> int:
        """Bytes left on the disk beside the plans of other volumes."""
        return self.past.limits.get(disk, 0) - self.past.taken(disk) - self.past.planned(disk, volume)

    def _may_take(self, disk: Disk, volume: str, size_bytes: int) -> bool:
        """Whether that disk has room for a further copy of the volume, and no other one of it is on its node."""
        is_used = any(one.volume == volume and one.node == disk[0] for one in self.past.copies.values())
        return self.past.open.get(disk, False) and self._free(disk, volume) >= size_bytes and not is_used

    # Copies

    def _on_replica(self, change: StoredChange) -> None:
        before: Replica | None = change.before
        after: Replica | None = change.after
        past = self.past
        is_first = after is not None and bool(after.node) and (before is None or not before.node)
        if is_first:
            self._check_freeze(change)
        for one in (before, after):
            if one is not None and one.node:
                past.touched_at[one.node, one.disk_uuid] = change.at
        if after is None:
            past.copies.pop(change.key, None)
            past.held_at.pop(change.key, None)
            past.refused_at.pop(change.key, None)
            return
        past.made_at.setdefault(change.key, change.at)
        past.copies[change.key] = after
        self._on_mark(change, after)
        if is_first:
            self._on_place(change, after)
        elif before is not None and before.node and (before.node, before.disk_uuid) != (after.node, after.disk_uuid):
            self._note(WorldFault.TWICE, change, f"it was on {before.node}", "")
        elif before is not None and before.size_bytes < after.size_bytes and after.node:
            self._check_limit(change, after, "")

    def _on_mark(self, change: StoredChange, after: Replica) -> None:
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

    def _on_look(self, change: StoredChange) -> None:
        """Longhorn's sync of a volume fails while a copy is refused; by that, a volume in use stands still."""
        past, copy = self.past, self.past.copies.get(change.key)
        if change.after is Answer.NO_DISK or copy is None:
            past.refused_at.pop(change.key, None)
        elif self._is_further(copy):
            past.refused_at.setdefault(change.key, change.at)
            self.longest_freeze = max(self.longest_freeze, self._frozen_for(change.key))

    def _frozen_for(self, copy: str) -> float:
        """For how long a living leader has let it stand; the time before its term is not its own."""
        gate = self.past.gate
        return gate.renewed - max(self.past.refused_at.get(copy, gate.renewed), gate.since)

    def _check_freeze(self, change: StoredChange) -> None:
        """Longhorn had to wait until the gate opened, although nothing has come to that disk or gone for so long."""
        copy: Replica = change.after
        seconds = self._frozen_for(change.key)
        self.longest_freeze = max(self.longest_freeze, seconds)
        self.past.refused_at.pop(change.key, None)
        calm = change.at - self.past.touched_at.get((copy.node, copy.disk_uuid), change.at)
        if min(seconds, calm) > FREEZE_SECONDS and not change.by.startswith(LEADER):
            self._note(WorldFault.FROZEN, change, f"refused for {seconds:.0f} s", "")

    def _why_open(self, change: StoredChange, copy: Replica) -> str:
        """What let somebody else than the leader place it; "" for nothing that may. A first copy that is only old is
        the leader's to hold."""
        gate, made = self.past.gate, self.past.made_at[copy.name]
        is_thawing = change.at - self.past.thawed_at < LATE_SECONDS  # nothing could be held back meanwhile
        if change.at - gate.renewed > 45 or copy.is_left or is_thawing:
            return GATE_OPEN
        if change.before is not None and change.before.held:
            return ""
        is_old = gate.renewed - max(made, gate.since) >= OPENS_SECONDS
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
        self._explain_moves(change, copy)
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
        gib = (taken - limit) / 2**30
        self._note(WorldFault.OVER, change, f"{gib:.1f} GiB over on {disk}", explained, gib)
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
        may_displace = not excuse and self._may_displace(change, copy)
        if may_displace:
            if change.at - self._left_at.get(disk, -COMMIT_SECONDS) < COMMIT_SECONDS:
                self.notes.add(FURTHER)  # the plan that it displaced is gone already
            self._displacing.append(_Displacing(change.at, disk, lost, self._planned_there(disk, copy.volume)))
        over = past.taken(disk) - copy.size_bytes + past.planned(disk, copy.volume) - past.limits.get(disk, 0)
        if over > 0:
            self._displacing.append(_Displacing(change.at, disk, over, self._planned_there(disk, copy.volume)))
        if lost <= 0:
            return
        is_unseen = lost <= self._unseen(disk, copy.name, change.at)
        explained = excuse or (UNSEEN if is_unseen else "")
        if not explained and may_displace:
            explained = FURTHER
        own = past.plans.get(copy.volume)
        is_own = own is not None and _is_on(own, disk)
        gib = lost / 2**30
        finding = WorldFinding(
            WorldFault.PLANNED, change.at, copy.name, change.by, f"{gib:.1f} GiB on {disk}", explained, gib
        )
        if explained:
            self.notes.add(explained)
            self.findings.append(finding)
        elif not is_own:
            before = {volume: self._wanted_homes(volume) for volume in self._planned_there(disk, copy.volume)}
            self._suspects.append((finding, partial(self._check_short, finding, disk, copy.volume, before)))

    def _planned_there(self, disk: Disk, besides: str) -> dict[str, int]:
        """Bytes by volume, of those that are planned there."""
        plans = (one for one in self.past.plans.values() if one.volume != besides and _is_on(one, disk))
        return {
            plan.volume: sum(one.size_bytes for one in plan.places if (one.node, one.disk_uuid) == disk)
            for plan in plans
        }

    def _may_displace(self, change: StoredChange, copy: Replica) -> bool:
        """A further copy may, whatever becomes of the plans, and one whose plan was lost, once this leader has waited
        long enough."""
        waited = change.at - max(self.past.made_at[copy.name], self.past.gate.since)
        has_lost = copy.volume in self.planned_once and copy.volume not in self.past.plans
        return waited >= FURTHER_SECONDS and (has_lost or self._is_further(copy))

    def _is_further(self, copy: Replica) -> bool:
        return any(one.node and not one.failed_at for one in self.past.siblings(copy))

    def _homes(self, volume: str) -> set[Disk]:
        """The disks on which a copy of it lies, or is planned: a plan ends after its copy is there."""
        plan = self.past.plans.get(volume)
        planned = {(one.node, one.disk_uuid) for one in plan.places} if plan is not None else set()
        placed = {(one.node, one.disk_uuid) for one in self.past.copies.values() if one.volume == volume and one.node}
        return planned | placed

    def _wanted_homes(self, volume: str) -> int:
        """On how many disks a copy of it lies, or is planned, of those that it wants."""
        facts, found = self.past.volumes.get(volume), len(self._homes(volume))
        return min(found, facts.replica_count) if facts is not None else found

    def _check_short(self, finding: WorldFinding, disk: Disk, volume: str, before: Mapping[str, int]) -> None:
        """Whose plan moved in the same step has lost nothing."""
        left = self.past.planned(disk, volume)
        is_short = left > 0 and self.past.taken(disk) + left > self.past.lately(disk, finding.at)
        lost = {name for name, homes in before.items() if self._wanted_homes(name) < homes and name not in self._gone}
        lost = {name for name in lost if disk not in self._homes(name)}
        lost = {name for name in lost if self._robbed_at.get(name, -1.0) < finding.at}
        if is_short or (lost and not self._is_displaced(lost, finding, disk)):
            # It may have gone to a node that had closed, which the leader saw a moment later.
            has_closed = any(at > finding.at - LATE_SECONDS for at in self.past.shut_at.values())
            self.findings.append(replace(finding, explained=CLOSED) if has_closed and not is_short else finding)

    def _is_displaced(self, lost: set[str], finding: WorldFinding, disk: Disk) -> bool:
        """Whether a further copy needed the bytes of all of these in about the same step, and nothing else is missing:
        a plan ends in the store after it has ended for the leader, and so does a write that was decided before."""
        return any(
            former.disk == disk
            and abs(finding.at - former.at) <= COMMIT_SECONDS
            and lost <= former.planned.keys()
            and _is_needed(former, lost, finding.gib * 2**30)
            for former in self._displacing
        )

    def _settle(self, now: float) -> None:
        while self._suspects and self._suspects[0][0].at <= now - COMMIT_SECONDS:
            self._suspects.pop(0)[1]()
        for move in [one for one in self._moves if one.finding.at <= now - ARRIVES_SECONDS]:
            self._moves.remove(move)
            self.findings.append(move.finding)

    def note_end(self, fault: WorldFault, at: float, copy: str, detail: str, explained: str) -> None:
        """Adds what shows only at the end of the world."""
        self.findings.append(WorldFinding(fault, at, copy, "nobody", detail, explained))


def _is_on(plan: Plan, disk: Disk) -> bool:
    return disk in {(one.node, one.disk_uuid) for one in plan.places}


def _is_needed(former: _Displacing, lost: set[str], missing_bytes: float) -> bool:
    """Whether all that was planned for these had to go, and is enough for what is missing there."""
    freed = sum(former.planned[name] for name in lost)
    needed = former.lost_bytes if former.lost_bytes > 0 else missing_bytes
    return all(freed - former.planned[name] < needed for name in lost) and missing_bytes <= freed


def guilty(findings: list[WorldFinding]) -> list[WorldFinding]:
    """What nothing explains."""
    return [one for one in findings if not one.explained]
