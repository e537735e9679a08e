"""Plans of volumes: made when a node is chosen, moved when a disk takes them no more, ended with the choice.

Everything here is level-triggered: whatever happened, the present promises and facts lead to the same kind of plan. A
plan that stands is not changed for a better one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from controller.allocator.choose.choose import Chooser
from controller.allocator.choose.legal import legal
from controller.allocator.choose.wanted import Wanted, image_bytes, replica_to_come
from controller.allocator.plans.plan import Plan
from controller.allocator.plans.table import Table
from controller.allocator.promises.journal import Journal, Tale
from controller.allocator.promises.ledger import Ledger
from controller.allocator.promises.promise import Kind, OneOf, Promise, Roams, Source, State
from controller.allocator.world.world import World
from controller.model.longhorn import LOCALITY_BEST_EFFORT, LOCALITY_STRICT, Replica, Volume
from controller.model.places import Place
from controller.rules.demand import is_served
from controller.rules.placing import is_longhorns
from controller.rules.reasons import Rejection

_ALL_BYTES: Final = 2**62  # more than any disk has
_Disk = tuple[str, str]  # node and UUID


@dataclass(frozen=True, slots=True)
class PlansBeside:
    """What plans of other volumes take, and the `planned` places of this one. Nothing goes to the disk `shut`."""

    table: Table
    volume: str
    planned: tuple[Place, ...] = ()
    shut: _Disk = ("", "")

    def taken_bytes(self, node: str, disk_uuid: str) -> int:
        if (node, disk_uuid) == self.shut:
            return _ALL_BYTES
        taken = self.table.taken_bytes(node, disk_uuid, self.volume)
        return taken + bytes_on(self.planned, node, disk_uuid) if self.planned else taken

    def planned_bytes(self, node: str, disk_uuid: str) -> int:
        return self.taken_bytes(node, disk_uuid)


@dataclass(frozen=True, slots=True)
class PlannedVolume:
    """A volume as it is, or will be, at its pod's node. `is_move`: a copy of it moves to that node."""

    facts: Volume
    is_move: bool = False

    @property
    def bound_to(self) -> str:
        """The node on which its further copies have to lie; "" for any."""
        return self.facts.node_id if self.is_move or self.facts.data_locality == LOCALITY_STRICT else ""

    @property
    def copy(self) -> Replica:
        """A further copy, which is not there yet."""
        return replica_to_come(self.facts, self.bound_to)


class Planner:
    """Keeps the table true to the promises. Threads: none of its own; the allocator's lock guards it."""

    def __init__(
        self,
        world: World,
        table: Table,
        ledger: Callable[[], Ledger],
        journal: Journal,
        home: Callable[[Promise], str],
        fault: Callable[[str, Exception], None],
    ) -> None:
        """`home`: the node that is chosen for a promise, "" where none is. `fault`: tells of a volume that cannot be
        planned, because of an error of ours; it has no plan then, and the others go on."""
        self._world, self._table, self._ledger = world, table, ledger
        self._journal, self._home, self._fault = journal, home, fault
        self.chooser = Chooser(world)
        self._volume_of: dict[str, str] = {}  # by key of the promises that a plan is made of
        self._keys: dict[str, frozenset[str]] = {}  # the same, by volume
        self._lost: set[str] = set()  # volumes with fewer places than were planned

    # Promises

    def settle_key(self, key: str, now_utc: datetime) -> None:
        """Promises of that claim or volume have changed."""
        for volume in {self._world.volume_of(key), self._volume_of.get(key, "")} - {""}:
            self.settle(volume, now_utc)

    def settle_all(self, now_utc: datetime) -> None:
        """Bring all plans in line with all promises. Those that nobody waits for end first, and make room."""
        chosen = {self._world.volume_of(one.volume) for one in self._ledger().promises() if _is_chosen(one)}
        for plan in self._table:
            if plan.volume not in chosen:
                self._drop(plan.volume)
        for volume in sorted(chosen):
            self.settle(volume, now_utc)

    def settle(self, volume: str, now_utc: datetime) -> None:
        """Bring the volume's plan in line with its promises: a place for each copy that a chosen pod waits for."""
        with self._alone(volume):
            self._settle(volume, now_utc)

    @contextmanager
    def _alone(self, volume: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # fault barrier
            self._drop(volume)
            self._fault(volume, error)

    def _settle(self, volume: str, now_utc: datetime) -> None:
        wanted, chosen = self.wanted(volume), self._chosen(volume)
        copies = max(map(_copies, chosen), default=0)
        if not copies or (wanted is not None and is_longhorns(wanted.facts)):
            self._drop(volume)
            return
        if wanted is None:
            return  # one watch is ahead of another: its claim names a volume that is not known yet
        facts, old = wanted.facts, self._table.get(volume)
        keys = frozenset(one.volume for one in chosen)
        if old is not None and old.uid not in {facts.uid, *keys}:
            old = None  # of a former volume of that name
        kept = self._kept(wanted, old.places if old is not None else (), copies, now_utc)
        if len(kept) < copies:
            kept = (*kept, *self.find(wanted, copies - len(kept), kept, now_utc))
        if old is not None and len(kept) < min(copies, len(old.places)):
            self._tell(wanted.facts)
        elif len(kept) == copies:
            self._lost.discard(volume)
        for key in self._keys.get(volume, keys) - keys:
            self._volume_of.pop(key, None)
        self._keys[volume] = keys
        self._volume_of.update(dict.fromkeys(keys, volume))
        uid = old.uid if old is not None else facts.uid or min(keys)
        since = old.since_utc if old is not None else now_utc.replace(microsecond=0)
        self._table.put(Plan(volume, uid, kept, tuple(sorted({one.claimant for one in chosen})), since))

    def _drop(self, volume: str) -> None:
        self._lost.discard(volume)
        self._table.remove(volume)
        for key in self._keys.pop(volume, ()):
            self._volume_of.pop(key, None)

    def _chosen(self, volume: str) -> list[Promise]:
        """Promises of the volume to pods whose node is chosen, the earliest first."""
        keys = {volume, *(claim.uid for claim in self._world.claims_of_volume(volume))}
        found = [one for key in keys for one in self._ledger().of_volume(key) if _is_chosen(one)]
        return sorted(found, key=lambda one: (one.since, one.claimant))

    def wanted(self, volume: str) -> PlannedVolume | None:
        """The volume as it is, or as its claim will make it, at the node that is chosen for it; None where it is not
        known, or never comes."""
        chosen = self._chosen(volume)
        facts = self._world.volume(volume)
        if facts is None and chosen:
            demand = self._world.demand_of(chosen[0].volume)
            facts = demand.facts if demand is not None and not demand.never else None
        if facts is None:
            return None
        home = self._home(chosen[0]) if chosen and not is_served(facts) else ""
        return PlannedVolume(
            replace(facts, node_id=home) if home else facts, any(one.kind is Kind.MOVE for one in chosen)
        )

    def has_lost(self, volume: str) -> bool:
        """Whether a place that was planned for it is gone, and no other was found."""
        return volume in self._lost

    def _kept(
        self, wanted: PlannedVolume, places: Collection[Place], copies: int, now_utc: datetime
    ) -> tuple[Place, ...]:
        """Of these places those that may stay, as many as copies are missing, in their order."""
        facts = wanted.facts
        here = {(one.node, one.disk_uuid) for one in self._world.replicas_of(facts.name).values() if one.is_placed}
        kept: list[Place] = []
        for place in places:
            is_fresh = (place.node, place.disk_uuid) not in here and len(kept) < copies
            if is_fresh and wanted.bound_to in ("", place.node) and self.check(wanted, place, kept, now_utc) is None:
                kept.append(replace(place, size_bytes=self.bytes_at(facts, place, kept)))
        homes = {one.node for one in kept}.union(node for node, _ in here)
        if _follows(facts) and kept and facts.node_id not in homes:
            again = self.find(wanted, 1, (), now_utc)
            if again and again[0].node == facts.node_id:
                return ()  # chosen for another node by now
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
        """Places for up to so many further copies beside those that are `planned`, on bytes that nobody has planned,
        and not on the disk `shut`."""
        found = tuple(planned)
        known = len(found)
        for _ in range(copies):
            taken = PlansBeside(self._table, wanted.facts.name, found, shut)
            place = self.chooser.choose(Wanted(wanted.facts, wanted.copy, found), taken, now_utc).place
            if place is None:
                break
            found = (*found, place)
        return found[known:]

    def check(
        self, wanted: PlannedVolume, place: Place, planned: Collection[Place], now_utc: datetime
    ) -> Rejection | None:
        """Why a further copy of the volume may not be put there now, beside what others have planned."""
        free = self.free_bytes(place, wanted.facts.name) - bytes_on(planned, place.node, place.disk_uuid)
        there = replace(place, size_bytes=self.bytes_at(wanted.facts, place, planned))
        return legal(wanted.facts, wanted.copy, there, planned, self._world, free, now_utc)

    def bytes_at(self, facts: Volume, place: Place, planned: Collection[Place]) -> int:
        """What a copy takes on that disk, with its backing image where that is not there, and comes with no other
        copy that is `planned`."""
        image = self._world.backing_image(facts.backing_image)
        return facts.size_bytes + image_bytes(self._world, image, planned, place.disk_uuid)

    def hard_bytes(self, node: str, disk_uuid: str) -> int:
        """What is left of that disk by objects, growth that was admitted, and own writes; less than nothing where no
        such disk takes replicas."""
        room = self._world.room(node)
        found = [one.free_bytes for one in room.disks if one.uuid == disk_uuid] if room is not None else []
        return found[0] if found else -_ALL_BYTES

    def free_bytes(self, place: Place, besides: str) -> int:
        """The same, less what others have planned there."""
        hard = self.hard_bytes(place.node, place.disk_uuid)
        return hard - self._table.taken_bytes(place.node, place.disk_uuid, besides)

    # Disks

    def image_changed(self, name: str) -> set[str]:
        """Places of that backing image's volumes take what they take by now; the nodes on which they are."""
        nodes = set[str]()
        for plan in self._table:
            volume = self._world.volume(plan.volume)
            if volume is None or volume.backing_image == name:
                self._resize(plan.volume)
                nodes.update(place.node for place in plan.places)
        return nodes

    def _resize(self, volume: str) -> None:
        with self._alone(volume):
            plan, wanted = self._table.get(volume), self.wanted(volume)
            if plan is None or wanted is None:
                return
            places: list[Place] = []
            for place in plan.places:
                places.append(replace(place, size_bytes=self.bytes_at(wanted.facts, place, places)))
            self._table.put(replace(plan, places=tuple(places)))

    def check_node(self, name: str, now_utc: datetime) -> None:
        """After a change of that node or of what lies there: plans that it takes no more go elsewhere at once."""
        for uuid in self._table.disks_on(name):
            self.relieve(name, uuid, now_utc)

    def relieve(self, node: str, disk_uuid: str, now_utc: datetime) -> None:
        """Move plans off that disk, the latest first, that are not legal there any more, or for which there are not
        enough bytes beside the earlier ones. A plan stays whose volume is not known at the moment: its place is checked
        again before it is given."""
        for volume in self._latest_first(node, disk_uuid, ""):
            is_over = self.hard_bytes(node, disk_uuid) < self._table.taken_bytes(node, disk_uuid)
            with self._alone(volume):
                if is_over or not self._is_legal_at(volume, node, disk_uuid, now_utc):
                    self.move(volume, node, disk_uuid, now_utc)

    def _is_legal_at(self, volume: str, node: str, disk_uuid: str, now_utc: datetime) -> bool:
        plan, wanted = self._table.get(volume), self.wanted(volume)
        if plan is None or wanted is None:
            return True
        here, others = split(plan, node, disk_uuid)
        return all(self.check(wanted, one, others, now_utc) is None for one in here)

    def _latest_first(self, node: str, disk_uuid: str, besides: str) -> list[str]:
        plans = (self._table.get(name) for name in self._table.volumes_on(node, disk_uuid) if name != besides)
        found = [plan for plan in plans if plan is not None]
        return [one.volume for one in sorted(found, key=lambda one: (one.since_utc, one.volume), reverse=True)]

    def move(self, volume: str, node: str, disk_uuid: str, now_utc: datetime) -> None:
        """Plan the volume's copies anew that were to lie on that disk. Who loses one is told."""
        plan, wanted = self._table.get(volume), self.wanted(volume)
        if plan is None or wanted is None:
            return
        lost, rest = split(plan, node, disk_uuid)
        found = self.find(wanted, len(lost), rest, now_utc, shut=(node, disk_uuid))
        self._table.put(replace(plan, places=(*rest, *found)))
        self._journal.counters["plans_moved"] += len(found)
        if len(found) < len(lost):
            self._tell(wanted.facts)

    def make_room(self, place: Place, besides: str, now_utc: datetime) -> bool:
        """Whether plans of others could leave that disk for other ones, so that the place fits, and do so: all that
        have to, or none."""
        shut, former, moved = (place.node, place.disk_uuid), list[Plan](), 0
        for volume in self._latest_first(*shut, besides):
            if self.free_bytes(place, besides) >= place.size_bytes:
                break
            plan, wanted = self._table.get(volume), self.wanted(volume)
            if plan is None or wanted is None:
                continue
            lost, rest = split(plan, *shut)
            found = self.find(wanted, len(lost), rest, now_utc, shut=shut)
            if len(found) < len(lost):
                break
            former.append(plan)
            self._table.put(replace(plan, places=(*rest, *found)))
            moved += len(found)
        if self.free_bytes(place, besides) >= place.size_bytes:
            self._journal.counters["plans_moved"] += moved
            return True
        for plan in former:
            self._table.put(plan)
        return False

    def _tell(self, facts: Volume) -> None:
        """A place that was planned is lost, and there is no other one."""
        self._lost.add(facts.name)
        self._journal.counters["plans_lost"] += 1
        claim = self._world.claim_of_volume(facts.name)
        if claim is not None:
            self._journal.tell(Tale.PLACE_LOST, claim, facts.size_bytes, 0)


def bytes_on(places: Iterable[Place], node: str, disk_uuid: str) -> int:
    """What these places take on that disk."""
    return sum(one.size_bytes for one in places if (one.node, one.disk_uuid) == (node, disk_uuid))


def _is_chosen(promise: Promise) -> bool:
    return promise.source is Source.CHOICE and promise.state is State.ASSUMED


def _copies(promise: Promise) -> int:
    if isinstance(promise.places, OneOf):
        return 1 if promise.places.nodes is None or promise.places.nodes else 0
    return promise.places.copies if isinstance(promise.places, Roams) else 0


def split(plan: Plan, node: str, disk_uuid: str) -> tuple[tuple[Place, ...], tuple[Place, ...]]:
    """The plan's places on that disk, and the others."""
    here = tuple(one for one in plan.places if (one.node, one.disk_uuid) == (node, disk_uuid))
    return here, tuple(one for one in plan.places if one not in here)


def _follows(facts: Volume) -> bool:
    """Whether one copy is to lie where the volume's engine runs."""
    return facts.data_locality in (LOCALITY_BEST_EFFORT, LOCALITY_STRICT)
