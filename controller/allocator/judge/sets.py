"""Whether Longhorn finds room in the cluster for replicas that it may place on any node.

Longhorn keeps a volume's replicas apart: by zone, by node, or not at all, and by disk (controller/rules/affinity.py).
So a set of replicas needs as many *places*: unused zones, unused nodes, or disks. All replicas of one volume are alike,
so that it does not matter which place Longhorn takes first.

Against what is pending there are two tests, each of them sufficient:

1. what is pending cannot close enough places: closing a place costs bytes and landings, and a volume lands in no more
   places than it has copies to place, however many nodes it might go to;
2. places that stay open whatever comes to them, each judged by a search, together with the first test on the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from controller.allocator.judge.budget import Budget
from controller.allocator.judge.packing import COVER_STEPS, Item, Steps, is_sure
from controller.allocator.judge.pending import Pending, is_plain_need, older_than
from controller.allocator.judge.shape import item_of, promised_items
from controller.allocator.judge.verdict import LATE, SURE, Judgement, Verdict
from controller.allocator.promises.ledger import RoamingItem
from controller.allocator.world.eligible import check_candidate, usage_of
from controller.allocator.world.world import World
from controller.model.demand import VolumeDemand
from controller.rules.affinity import Affinity
from controller.rules.eligibility import EXT_LIMIT_BYTES, DiskRoom, NodeRoom, check_disk_kind, check_node_tags
from controller.rules.reasons import Reason

_FIRST_LOOK: Final = 32  # seats with room that are looked at before the first test is tried
_ANY_NUMBER: Final = 1 << 30
NO_ROOM: Final = Judgement(Verdict.FULL, Reason.NO_ROOM_IN_CLUSTER)
UNSUITABLE: Final = Judgement(Verdict.UNSUITABLE, Reason.NO_ROOM_IN_CLUSTER)


@dataclass(frozen=True, slots=True)
class Seat:
    """A node that passes every rule but room. `cost` bytes at least close it; `slots` replicas of the volume fit."""

    name: str
    place: str  # the zone or the node that one replica uses up
    cost: int
    slots: int
    limit: int  # replicas that the rules allow there, room aside


@dataclass(frozen=True, slots=True)
class Threat:
    """What may come anywhere: bytes and landings in all, and the largest landing."""

    total_bytes: int
    landings: int
    largest: int

    @classmethod
    def of(cls, roamers: Iterable[RoamingItem]) -> Threat:
        total = landings = largest = 0
        for roamer in roamers:
            total += roamer.item.size_bytes * roamer.copies
            landings += roamer.copies
            largest = max(largest, roamer.item.size_bytes)
        return cls(total, landings, largest)

    def most_closed(self, costs: Iterable[int]) -> int:
        """How many places of these costs can be closed at most: the cheapest, while bytes and landings last."""
        left_bytes, left_landings, closed = self.total_bytes, self.landings, 0
        for cost in sorted(costs):
            if cost > 0:
                if not self.largest:
                    break
                left_bytes -= cost
                left_landings -= -(-cost // self.largest)
                if left_bytes < 0 or left_landings < 0:
                    break
            closed += 1
        return closed


class Seats:
    """The nodes that may take replicas of one volume, by Longhorn's rules for replicas that are bound to no node."""

    def __init__(self, world: World, demand: VolumeDemand, now_utc: datetime | None = None) -> None:
        world.refresh()  # the summaries decide which nodes are looked at
        self._world, self._demand = world, demand
        self._affinity = Affinity.of(demand.facts, world.settings)
        self._usage = usage_of(world, demand, now_utc)
        self._is_plain = (
            not world.replicas_of(demand.volume)
            and not demand.required_bytes
            and demand.clone_disks is None
            and demand.size_bytes < EXT_LIMIT_BYTES
            and is_plain_need(demand.needs)
        )
        self._gaps = world.engine_gaps(demand.needs)
        self._kinds: dict[tuple[str, str, frozenset[str]], bool] = {}

    @property
    def shares_nodes(self) -> bool:
        """Whether several replicas may lie on one node."""
        return self._affinity.shares_nodes

    @property
    def shares_disks(self) -> bool:
        return self.shares_nodes and self._affinity.disk_soft

    def __iter__(self) -> Iterator[Seat]:
        for name in self._world.nodes:
            seat = self._plain_seat(name) or self.of(name)
            if isinstance(seat, Seat):
                yield seat

    def with_room(self) -> Iterator[Seat]:
        """Those where a replica fits, in no certain order. Nodes without room for it cost no more than one comparison,
        or one a disk, so that a question about thousands of full nodes is a matter of a millisecond."""
        size = self._demand.size_bytes
        if self._is_plain:  # where a plain volume fits, the node's summary says so
            for name, most in self._world.best.items():
                if most >= size and name not in self._gaps:
                    yield self._seat(name, self._world.tops[name], size)
            return
        for name in self._world.nodes:
            room = self._world.room(name)
            if room is not None and any(self._may_take(disk, size) for disk in room.disks):
                seat = self.of(name)
                if isinstance(seat, Seat) and seat.slots:
                    yield seat

    def _may_take(self, disk: DiskRoom, size: int) -> bool:
        if disk.free_bytes < size:
            return False
        kind = disk.type, disk.filesystem, disk.tags  # of which thousands of disks have few different ones
        takes = self._kinds.get(kind)
        if takes is None:
            reason = check_disk_kind(disk, self._demand.needs, size, self._world.settings.space)
            takes = self._kinds[kind] = reason is None
        return takes

    def _plain_seat(self, name: str) -> Seat | None:
        """For a plain new volume, by the summary of the node."""
        free = self._world.tops.get(name) if self._is_plain and name not in self._gaps else None
        if free is None:
            return None
        size = self._demand.size_bytes
        if free[0] < size:
            return Seat(name, self._place(name), 0, 0, _ANY_NUMBER if self.shares_disks else len(free))
        return self._seat(name, free, size)

    def _seat(self, name: str, free: Sequence[int], size: int) -> Seat:
        able = [room for room in free if room >= size]
        cost = sum(able) - len(able) * (size - 1)
        slots = sum(room // size for room in able) if self.shares_disks and size else len(able)
        return Seat(name, self._place(name), cost, slots, _ANY_NUMBER if self.shares_disks else len(free))

    def _place(self, name: str) -> str:
        return name if self._affinity.zone_soft else self._world.nodes[name].zone

    def of(self, name: str) -> Seat | Reason:
        """The seat on that node; why there is none, whatever its room."""
        found = self.item(name)
        if isinstance(found, Reason):
            return found
        room, item = found
        limit = len(item.all_disks)
        seat = self._seat(name, [room.disks[disk].free_bytes for disk in item.all_disks], item.size_bytes)
        return seat if limit else Seat(name, seat.place, 0, 0, 1)  # its disks are too full, which is a matter of room

    def item(self, name: str) -> tuple[NodeRoom, Item] | Reason:
        """A replica on that node's disks; why it may not lie there, whatever its room."""
        reason = check_candidate(self._world, name, self._demand.needs)
        room = self._world.room(name)
        if reason is not None or room is None:
            return reason or Reason.NO_LONGHORN_NODE
        if room.rejection is not None:
            return room.rejection.reason
        reason = self._usage.bars(name, self._world.nodes[name].zone, self._affinity)
        if reason is None and not (self.shares_nodes and name in self._usage.nodes):
            space = self._world.settings.space
            reason = None if check_node_tags(room.tags, self._demand.needs, space) else Reason.NODE_TAGS
        if reason is not None:
            return reason
        found = item_of(self._world, room, self._demand)
        return found if isinstance(found, Reason) else (room, found)


class SetJudge:
    """Judges one volume's set of `copies` replicas against what is `pending` and `others`: the further volumes of the
    same pod, each with the times that it lands."""

    def __init__(
        self,
        world: World,
        demand: VolumeDemand,
        copies: int,
        pending: Pending,
        others: Sequence[RoamingItem] = (),
        *,
        budget: Budget | None = None,
        now_utc: datetime | None = None,
    ) -> None:
        self._world, self._demand, self._copies = world, demand, copies
        self._pending, self._others, self._budget = pending, others, budget or Budget()
        self._seats = Seats(world, demand, now_utc)
        self._found: list[Seat] = []  # with room for a replica each
        self._is_bounded = False

    def judge(self, young_since: float = float("-inf")) -> Judgement:
        """The verdict on the whole set; `is_waitable` when holds made after `young_since` alone are in the way."""
        roamers = [*self._pending.roamers, *self._others]
        threat, next_look = Threat.of(roamers), _FIRST_LOOK
        for seat in self._seats.with_room():
            if self._budget.is_spent():
                return LATE
            self._found.append(seat)
            if len(self._found) == next_look:
                next_look *= 2
                if self._survives_bytes(threat, roamers):
                    return SURE
        if self._survives_bytes(threat, roamers):
            return SURE
        if self._capacity() < self._copies:
            return self._full()
        if self._survives_search(threat, roamers):
            return SURE
        if self._budget.is_over:
            return LATE
        waitable = self._is_waitable(young_since)
        return Judgement(Verdict.CONTENDED, Reason.CONTENDED, is_waitable=waitable, is_bounded=self._is_bounded)

    # How many replicas there is room for, and how many the rules allow

    def _capacity(self) -> int:
        if self._seats.shares_nodes:
            return sum(seat.slots for seat in self._found)
        return len({seat.place for seat in self._found})

    def _full(self) -> Judgement:
        """NO_ROOM if the rules allow so many replicas; nodes are looked at only until that is known."""
        allowed, places = 0, set[str]()
        for seat in self._seats:
            allowed += seat.limit
            places.add(seat.place)
            if (allowed if self._seats.shares_nodes else len(places)) >= self._copies:
                return NO_ROOM
            if self._budget.is_spent():
                return LATE
        return UNSUITABLE

    # What may be left of it

    def _survives_bytes(self, threat: Threat, roamers: Sequence[RoamingItem], *, older: float | None = None) -> bool:
        """The first test. `older`: holds made after it are not counted."""
        costs: dict[str, int] = {}
        for seat in self._found:
            left = max(0, seat.cost - self._bound_bytes(seat.name, older))
            costs[seat.place] = costs.get(seat.place, 0) + left
        if len(costs) - threat.most_closed(costs.values()) >= self._copies:
            return True
        return self._seats.shares_nodes and self._slots_left(roamers, older) >= self._copies

    def _bound_bytes(self, name: str, older: float | None) -> int:
        if older is None:
            return self._pending.bound_bytes(name)
        return sum(item.size_bytes for item in older_than(self._pending.bound_to(name), older))

    def _slots_left(self, roamers: Iterable[RoamingItem], older: float | None) -> int:
        """Where replicas may lie side by side, every landing costs as many of their slots as it is larger than one."""
        left = 0
        for seat in self._found:
            bound = self._pending.bound_to(seat.name)
            if older is not None:
                bound = older_than(bound, older)
            left += max(0, seat.slots - sum(self._slots_of(promise.size_bytes) for promise in bound))
        return left - sum(self._slots_of(roamer.item.size_bytes) * roamer.copies for roamer in roamers)

    def _slots_of(self, size_bytes: int) -> int:
        if not self._seats.shares_disks or not self._demand.size_bytes:
            return 1
        return -(-size_bytes // self._demand.size_bytes)

    def _survives_search(self, threat: Threat, roamers: Sequence[RoamingItem]) -> bool:
        """The second test."""
        firm: set[str] = set()
        firm_slots = 0
        for seat in self._found:
            if self._budget.is_spent():
                return False
            slots = self._firm_slots(seat, roamers)
            firm_slots += slots
            if slots:
                firm.add(seat.place)
        if self._seats.shares_nodes and firm_slots >= self._copies:
            return True
        costs: dict[str, int] = {}
        for seat in self._found:
            if seat.place not in firm:
                left = max(0, seat.cost - self._bound_bytes(seat.name, None))
                costs[seat.place] = costs.get(seat.place, 0) + left
        return len(firm) + len(costs) - threat.most_closed(costs.values()) >= self._copies

    def _firm_slots(self, seat: Seat, roamers: Sequence[RoamingItem]) -> int:
        """Replicas that surely fit on that node, whatever comes to it; at most one unless several may lie on a disk."""
        found = self._seats.item(seat.name)
        if isinstance(found, Reason):
            return 0
        room, item = found
        promises = self._pending.bound_to(seat.name)
        for roamer in roamers:
            if seat.name not in roamer.barred:
                promises += [roamer.item] * roamer.per_node
        pending = promised_items(self._world, room, promises)
        free = [disk.free_bytes for disk in room.disks]
        most = min(seat.slots, self._copies) if self._seats.shares_disks else 1
        for count in range(most, 0, -1):
            steps = Steps(COVER_STEPS)
            if is_sure([item] * count, pending, free, steps):
                return count
            self._is_bounded = self._is_bounded or steps.exhausted
        return 0

    def _is_waitable(self, young_since: float) -> bool:
        roamers = [
            roamer for roamer in self._pending.roamers if roamer.item.is_assumed or roamer.item.since <= young_since
        ]
        older = [*roamers, *self._others]
        return self._survives_bytes(Threat.of(older), older, older=young_since)
