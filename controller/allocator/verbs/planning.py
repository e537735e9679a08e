"""Plans of volumes: made when a node is chosen, moved when a disk takes them no more, ended with their copies.

Everything here is level-triggered: whatever happened, the present choices and facts lead to the same kind of plan. A
plan that stands is not changed for a better one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime

from controller.allocator.choose.choose import Chooser
from controller.allocator.choose.legal import legal
from controller.allocator.choose.wanted import Plus, Wanted, copy_bytes, replica_to_come
from controller.allocator.plans.beside import Beside
from controller.allocator.plans.journal import NODE_RESERVATION, ClaimEventKind, Journal
from controller.allocator.plans.plan import Plan
from controller.allocator.plans.table import Table
from controller.allocator.world.world import World
from controller.model.longhorn import Replica, Volume
from controller.model.places import MOST_BYTES, Place
from controller.rules.demand import VolumeDemand, demand_of_volume, is_served
from controller.rules.locality import Reach, bound_to, is_left_to_longhorn, locality_of
from controller.rules.reasons import Rejection

_Disk = tuple[str, str]  # node and UUID


@dataclass(frozen=True, slots=True)
class Claimant:
    """A pod that claims a volume. `node`: the one chosen for it; "" if the volume goes anywhere and none is chosen yet.
    `offered`: the places that it was told. `is_told`: it had a yes of ours. `is_leaving`: it is being deleted."""

    pod: str
    node: str
    offered: tuple[Place, ...] = ()
    is_told: bool = True
    is_leaving: bool = False


@dataclass(frozen=True, slots=True)
class PlannedVolume:
    """A volume as it is, or will be, at its pod's node. `copies`: how many are to be planned. `is_move`: the copy is to
    move to that node. `is_first`: no copy is placed yet. `is_unread`: its backup, which is not read yet, may make it
    larger."""

    facts: Volume
    copies: int
    is_move: bool = False
    is_first: bool = True
    is_unread: bool = False

    @property
    def bound_to(self) -> str:
        """The node on which its further copies have to lie; "" for any."""
        return self.facts.node_id if self.is_move else bound_to(self.facts)

    @property
    def copy(self) -> Replica:
        """A further copy, which is not there yet."""
        return replica_to_come(self.facts, self.bound_to)


class Planner:
    """Keeps the plans true to choices and facts. Threads: none of its own; the allocator's lock guards it."""

    def __init__(
        self,
        world: World,
        table: Table,
        chooser: Chooser,
        journal: Journal,
        claimants: Callable[[str], Collection[Claimant]],
        fault: Callable[[str, Exception], None],
        lost: set[str],
    ) -> None:
        """`claimants` finds the pods that wait for a volume's copies. `fault` is told of a volume that an error of ours
        leaves without a plan. `lost`: volumes with fewer places than were planned; the planner keeps it."""
        self._world, self._table, self._chooser, self._journal = world, table, chooser, journal
        self._claimants, self._fault, self._lost = claimants, fault, lost
        self.unknown = set[str]()  # of the volumes that were settled, those of which the stores cannot tell enough yet

    # Volumes

    def settle(self, volume: str, now_utc: datetime) -> None:
        """Bring the volume's plan in line: a place for each copy that a pod waits for."""
        with self._alone(volume):
            self._settle(volume, now_utc)

    @contextmanager
    def _alone(self, volume: str) -> Iterator[None]:
        """An error inside costs that volume its plan, and no other one."""
        try:
            yield
        except Exception as error:  # fault barrier
            self._lost.discard(volume)
            self._table.remove(volume)
            self._fault(volume, error)

    def _settle(self, volume: str, now_utc: datetime) -> None:
        claimants, old = self._claimants(volume), self._table.plan(volume)
        self.unknown.discard(volume)
        if not claimants and (old is None or self._is_over(volume)):
            self._lost.discard(volume)
            self._table.remove(volume)
            return
        wanted = self.wanted(volume, claimants)
        if wanted is None:
            self.unknown.add(volume)  # one watch is ahead of another: its claim names a volume that is not known yet
            return
        if not wanted.copies or is_left_to_longhorn(wanted.facts):
            self._lost.discard(volume)
            self._table.remove(volume)
            if old is not None and old.pods and not wanted.is_first:
                self._journal.record(NODE_RESERVATION, (now_utc - old.since_utc).total_seconds(), True)
            return
        keys = {claim.uid for claim in self._world.claims_of_volume(volume)}
        if old is not None and old.uid not in {wanted.facts.uid, *keys}:
            old = None  # of a former volume of that name
        known = old.places if old is not None else ()
        kept = self._kept(wanted, (*known, *(place for one in claimants for place in one.offered)), now_utc)
        missing = wanted.copies - len(kept)
        if missing > 0 and (wanted.is_first or wanted.is_move):
            kept = (*kept, *self.find(wanted, missing, kept, now_utc))
        promised = max(len(known), *(len(one.offered) for one in claimants)) if claimants else len(known)
        if len(kept) < min(wanted.copies, promised):
            self._tell_lost(wanted.facts)
        elif len(kept) == wanted.copies:
            self._lost.discard(volume)
        uid = old.uid if old is not None else wanted.facts.uid or min(keys, default=volume)
        since = old.since_utc if old is not None else now_utc.replace(microsecond=0)
        pods = tuple(sorted(one.pod for one in claimants if one.is_told))
        self._table.put(Plan(volume, uid, kept, pods, since))

    def _is_over(self, volume: str) -> bool:
        """Whether the plan of a volume that no pod claims has come to nothing: it goes, or is attached nowhere."""
        facts = self._world.volumes.get(volume)
        return facts is None or facts.deleting or not facts.node_id or not self._world.claims_of_volume(volume)

    def wanted(self, volume: str, claimants: Collection[Claimant] | None = None) -> PlannedVolume | None:
        """The volume as it is, or as its claim will make it, at the node that is chosen for it; None where it is not
        known, or never comes."""
        claimants = self._claimants(volume) if claimants is None else claimants
        demand = self.demand_of(volume)
        if demand is None or demand.never:
            return None
        home = "" if is_served(demand.facts) else _home(demand.facts, claimants)
        facts, is_unread = replace(demand.facts, node_id=home) if home else demand.facts, bool(demand.unread_backup)
        if demand.is_local:
            copies = self._local_copies(demand, home)
            return PlannedVolume(facts, copies, bool(demand.placed_nodes), not demand.placed_nodes, is_unread)
        needs_all = not self._world.settings.degraded_availability
        return PlannedVolume(facts, demand.copies, False, needs_all or not demand.placed_nodes, is_unread)

    def _local_copies(self, demand: VolumeDemand, home: str) -> int:
        """How many copies a volume that follows its pod still needs at `home`: one, unless a copy is there, evicting or
        not, since Longhorn adds none beside it."""
        replicas = self._world.replicas_of(demand.volume).values()
        there = any(entry.node == home and not (entry.failed_at or entry.deleting) for entry in replicas)
        return 0 if not home or demand.is_pinned or there or home in demand.home_nodes else 1

    def is_unknown(self, volume: str) -> bool:
        """Whether the stores cannot tell yet what the volume needs: one watch is ahead of another."""
        is_known = True
        with self._alone(volume):
            is_known = self.wanted(volume) is not None
        return not is_known

    def demand_of(self, volume: str) -> VolumeDemand | None:
        """The volume's demand, by its claim where it has one; None if neither is known."""
        for claim in self._world.claims_of_volume(volume):
            found = self._world.demand_of(claim.uid)
            if found is not None and found.volume == volume:
                return found
        facts = self._world.volume(volume)
        return None if facts is None else demand_of_volume(facts, self._world, self._world.settings)

    def lost(self) -> list[str]:
        """Volumes with fewer places than were planned."""
        return sorted(self._lost)

    def has_lost(self, volume: str) -> bool:
        """Whether a place that was planned for it is gone, and no other was found."""
        return volume in self._lost

    def _kept(self, wanted: PlannedVolume, places: Collection[Place], now_utc: datetime) -> tuple[Place, ...]:
        """The places, in their order, that may stay, as many as copies are missing."""
        facts = wanted.facts
        here = self._world.disks_of_volume(facts.name)
        kept: list[Place] = []
        for place in dict.fromkeys(places):
            is_fresh = (place.node, place.disk_uuid) not in here and len(kept) < wanted.copies
            is_fresh = is_fresh and all(one.disk_uuid != place.disk_uuid for one in kept)
            if is_fresh and wanted.bound_to in ("", place.node) and self.check(wanted, place, kept, now_utc) is None:
                kept.append(self._sized(wanted, place, kept))
        homes = {one.node for one in kept}.union(node for node, _ in here)
        if _follows(facts) and facts.node_id and kept and facts.node_id not in homes:
            rest = () if wanted.is_first else kept[: wanted.copies - 1]
            again = self.find(wanted, 1, rest, now_utc)
            if again and again[0].node == facts.node_id:
                return (*rest, *again)  # chosen for another node by now
        return tuple(kept)

    # Places

    def find(
        self,
        wanted: PlannedVolume,
        copies: int,
        planned: Iterable[Place],
        now_utc: datetime,
        *,
        shut: _Disk = ("", ""),
    ) -> tuple[Place, ...]:
        """Places for up to so many further copies beside those that are `planned`, on bytes that nobody has, and not on
        the disk `shut`."""
        found = tuple(planned)
        known = len(found)
        for _ in range(copies):
            taken = Plus(Beside(self._table, (wanted.facts.name,)), found, shut)
            place = self._chooser.choose(Wanted(wanted.facts, wanted.copy, found), taken, now_utc).place
            if place is None:
                break
            found = (*found, place)
        return found[known:]

    def check(
        self, wanted: PlannedVolume, place: Place, planned: Collection[Place], now_utc: datetime
    ) -> Rejection | None:
        """Why a further copy of the volume may not be put there now, beside what others have planned. Places that are
        held are looked at when their node is chosen."""
        taken = self._table.planned_bytes(place.node, place.disk_uuid, wanted.facts.name)
        free = self.hard_bytes(place.node, place.disk_uuid) - taken - bytes_on(planned, place.disk_uuid)
        there = self._sized(wanted, place, planned)
        return legal(wanted.facts, wanted.copy, there, planned, self._world, free, now_utc)

    def _sized(self, wanted: PlannedVolume, place: Place, planned: Collection[Place]) -> Place:
        """That place with what a copy takes there; the leader before may have read what we have not."""
        least = place.size_bytes if wanted.is_unread else 0
        return replace(place, size_bytes=max(least, self.bytes_at(wanted.facts, place, planned)))

    def bytes_at(self, facts: Volume, place: Place, planned: Collection[Place]) -> int:
        """What a copy takes on that disk, with its backing image where that is not there, and comes with no other
        copy that is `planned`."""
        return copy_bytes(self._world, facts, planned, place.disk_uuid)

    def hard_bytes(self, node: str, disk_uuid: str) -> int:
        """Bytes of that disk that objects, admitted growth and own writes leave; far below zero if no such disk takes
        replicas."""
        disk = self._world.disk_room(node, disk_uuid)
        return disk.free_bytes if disk is not None else -MOST_BYTES

    def free_bytes(self, place: Place, besides: str) -> int:
        """`hard_bytes` of the place's disk, less what volumes other than `besides` hold or have planned there."""
        hard = self.hard_bytes(place.node, place.disk_uuid)
        return hard - self._table.taken_bytes(place.node, place.disk_uuid, (besides,))

    # Disks

    def image_changed(self, name: str) -> set[str]:
        """Resize the plans of volumes that are made on that backing image; the nodes of these plans."""
        nodes = set[str]()
        for plan in self._table.plans():
            volume = self._world.volume(plan.volume)
            if volume is None or volume.backing_image == name:
                self._resize(plan.volume)
                nodes.update(place.node for place in plan.places)
        return nodes

    def _resize(self, volume: str) -> None:
        with self._alone(volume):
            plan, wanted = self._table.plan(volume), self.wanted(volume)
            if plan is None or wanted is None:
                return
            places: list[Place] = []
            for place in plan.places:
                places.append(self._sized(wanted, place, places))
            self._table.put(replace(plan, places=tuple(places)))

    def check_node(self, name: str, now_utc: datetime, most: int | None = None, *, is_changed: bool) -> bool:
        """Move plans off the disks of that node which do not take them any more, the latest of each disk first, `most`
        of them; whether more may have to move. `is_changed` False: nothing but the bytes there."""
        moved = 0
        for uuid in list(self._table.taken_on(name)):
            left = None if most is None else most - moved
            moved += self.relieve(name, uuid, now_utc, left, is_changed=is_changed)
            if moved == most:
                return True
        return False

    def relieve(self, node: str, disk_uuid: str, now_utc: datetime, most: int | None, *, is_changed: bool) -> int:
        """Move plans off that disk that are not legal there any more or lack bytes beside the others, `most` of them;
        how many were moved. The plan of a volume that is unknown at the moment stays: its place is checked again before
        it is given. Holds stay: they are checked when a node is chosen."""
        moved = 0
        for volume in self._latest_first(node, disk_uuid) if is_changed else ():
            if moved != most and self._is_illegal(volume, node, disk_uuid, now_utc):
                moved += self._move_alone(volume, node, disk_uuid, now_utc)
        missing = self._table.planned_bytes(node, disk_uuid) - self.hard_bytes(node, disk_uuid)
        for volume in self._leaving(node, disk_uuid, missing) if missing > 0 else ():
            if moved != most:
                moved += self._move_alone(volume, node, disk_uuid, now_utc)
        return moved

    def _move_alone(self, volume: str, node: str, disk_uuid: str, now_utc: datetime) -> bool:
        """Move that volume's plan off the disk; whether the plan has changed."""
        former = self._table.plan(volume)
        with self._alone(volume):
            self.move(volume, node, disk_uuid, now_utc)
        return self._table.plan(volume) is not former

    def _leaving(self, node: str, disk_uuid: str, missing_bytes: int) -> list[str]:
        """Volumes whose plans have to leave that disk to free so many bytes: the latest, and none without need."""
        leaving: dict[str, int] = {}
        for volume, size in self._latest_first(node, disk_uuid).items():
            if missing_bytes > 0 and not self.is_unknown(volume):
                leaving[volume] = size
                missing_bytes -= size
        for volume, size in list(leaving.items()):
            if missing_bytes + size <= 0:
                del leaving[volume]
                missing_bytes += size
        return list(leaving)

    def _is_illegal(self, volume: str, node: str, disk_uuid: str, now_utc: datetime) -> bool:
        with self._alone(volume):
            plan, wanted = self._table.plan(volume), self.wanted(volume)
            if plan is not None and wanted is not None:
                here, others = split(plan, node, disk_uuid)
                return not all(self._is_legal(wanted, one, others, now_utc) for one in here)
        return False

    def _is_legal(self, wanted: PlannedVolume, place: Place, others: Collection[Place], now_utc: datetime) -> bool:
        """Whether the place is legal, whatever others hold there."""
        return legal(wanted.facts, wanted.copy, place, others, self._world, MOST_BYTES, now_utc) is None

    def _latest_first(self, node: str, disk_uuid: str) -> dict[str, int]:
        """The volumes that are planned there, with their bytes."""
        found = [
            (plan.since_utc, volume, size)
            for volume, size in self._table.planned_on(node, disk_uuid).items()
            if (plan := self._table.plan(volume)) is not None
        ]
        return {volume: size for _, volume, size in sorted(found, reverse=True)}

    def move(self, volume: str, node: str, disk_uuid: str, now_utc: datetime) -> None:
        """Plan elsewhere the volume's copies that were to lie on that disk; its owner is told of each that is lost."""
        plan, wanted = self._table.plan(volume), self.wanted(volume)
        if plan is None or wanted is None:
            return
        lost, rest = split(plan, node, disk_uuid)
        found = self.find(wanted, len(lost), rest, now_utc, shut=(node, disk_uuid))
        self._table.put(replace(plan, places=(*rest, *found)))
        self._journal.counters["plans_moved"] += len(found)
        if len(found) < len(lost):
            self._tell_lost(wanted.facts)

    def make_room(self, place: Place, besides: str, now_utc: datetime) -> bool:
        """Move plans of others off the place's disk until the place fits, if all that have to leave find another one;
        whether it fits now. Otherwise none is moved."""
        shut, former = (place.node, place.disk_uuid), dict[Plan, int]()
        for volume, size in self._latest_first(*shut).items():
            if self.free_bytes(place, besides) >= place.size_bytes:
                break
            plan, wanted = self._table.plan(volume), self.wanted(volume)
            if volume == besides or plan is None or wanted is None:
                continue
            lost, rest = split(plan, *shut)
            found = self.find(wanted, len(lost), rest, now_utc, shut=shut)
            if len(found) < len(lost):
                break
            if _follows(wanted.facts) and place.node == wanted.facts.node_id not in {
                one.node for one in (*rest, *found)
            }:
                continue  # it stays where its pod goes
            former[plan] = size
            self._table.put(replace(plan, places=(*rest, *found)))
        spare = self.free_bytes(place, besides) - place.size_bytes
        for plan, size in former.items():
            if spare < 0 or size <= spare:  # in vain, or the others leave enough
                self._table.put(plan)
                spare -= size
            else:
                self._journal.counters["plans_moved"] += 1
        return spare >= 0

    def _tell_lost(self, facts: Volume) -> None:
        """Count and tell that a planned place is lost, and that there is no other one."""
        self._lost.add(facts.name)
        self._journal.counters["plans_lost"] += 1
        claim = self._world.claim_of_volume(facts.name)
        if claim is not None:
            self._journal.tell(ClaimEventKind.PLACE_LOST, claim, facts.size_bytes, 0)


def _home(facts: Volume, claimants: Collection[Claimant]) -> str:
    """The node where the volume's engine runs or will run: where it is attached, if a pod stays there; else where the
    first claimant goes, if there is any."""
    nodes = [one.node for one in claimants if one.node]
    stay = [one.node for one in claimants if not one.is_leaving]
    return facts.node_id if facts.node_id in (stay or nodes or [facts.node_id]) else next(iter(nodes), "")


def bytes_on(places: Iterable[Place], disk_uuid: str) -> int:
    """Bytes that these places take on a disk of that UUID."""
    return sum(one.size_bytes for one in places if one.disk_uuid == disk_uuid)


def split(plan: Plan, node: str, disk_uuid: str) -> tuple[tuple[Place, ...], tuple[Place, ...]]:
    """The plan's places on that disk, and the others."""
    here = tuple(one for one in plan.places if (one.node, one.disk_uuid) == (node, disk_uuid))
    return here, tuple(one for one in plan.places if one not in here)


def _follows(facts: Volume) -> bool:
    """Whether one copy is to lie where the volume's engine runs."""
    return locality_of(facts).reach is not Reach.ANYWHERE
