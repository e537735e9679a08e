"""Where all volumes of a pod find disks: those that lie next to the pod, node by node; the others once for all nodes.

A node is *sure* if the volumes fit beside all that is taken, and *contended* if they would fit were nothing taken. A
sure node comes with a disk for each volume.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import islice
from operator import itemgetter
from typing import Final

from controller.allocator.choose.choose import Chooser
from controller.allocator.choose.explain import explain
from controller.allocator.choose.packing import AMPLE_PCT, PACK_STEPS, Budget, Packed, Steps, pack
from controller.allocator.choose.shape import Kinds, Shape, is_plain_demand, shape_of
from controller.allocator.choose.verdict import (
    BACKING_IMAGE,
    CONTENDED,
    FULL,
    GAVE_UP,
    KEPT,
    LATE,
    NO_LONGHORN,
    SURE,
    Judgement,
    Lack,
    Verdict,
    unsuitable,
)
from controller.allocator.choose.wanted import NothingTaken, Plus, Taken, Wanted, check_image, replica_to_come
from controller.allocator.world.world import World
from controller.model.longhorn import TopologyTerm
from controller.model.places import Place
from controller.rules.demand import VolumeDemand
from controller.rules.eligibility import NodeRoom
from controller.rules.locality import is_left_to_longhorn
from controller.rules.reasons import Reason, Rejection

LOT: Final = 32  # nodes that are judged at once; enough offers may make the rest needless
USUAL_VOLUMES: Final = 8  # of a pod, up to which a lot has so many
MOST_TOGETHER: Final = 16  # nodes on which local volumes are packed before the others are planned

MOST_NEAR: Final = 16  # nodes that are asked why no disk takes a copy, while the allocator's lock is held
_OF_ROOM: Final = (Reason.INSUFFICIENT_STORAGE, Reason.TOO_FULL, Reason.BACKING_IMAGE, Reason.NO_ROOM_IN_CLUSTER)

PlacesByVolume = Mapping[str, tuple[Place, ...]]  # by volume


class PodFit:
    """One question about one pod's demands, in one state of world and table; each question makes its own.

    `taken`: what others have. `without_kept`: the same without the room that is kept for pods that have waited for
    long. `known`: places that volumes of the pod have already because other pods claim them; they are part of `taken`.
    Once the `budget` is spent, nodes are not evaluated any more. `now_utc`: as for `PlacementView`.
    `is_attached`: the pod has a volume of Longhorn's, though perhaps one that demands nothing.
    """

    def __init__(
        self,
        world: World,
        chooser: Chooser,
        demands: Sequence[VolumeDemand],
        taken: Taken,
        *,
        without_kept: Taken | None = None,
        known: PlacesByVolume | None = None,
        planned: Collection[str] = (),
        budget: Budget | None = None,
        now_utc: datetime | None = None,
        is_attached: bool = False,
    ) -> None:
        world.refresh()
        self.world, self.chooser, self.now_utc = world, chooser, now_utc
        self.taken, self._without_kept = taken, without_kept
        self.budget = budget or Budget()
        self.demands, self._is_attached = tuple(demands), is_attached or bool(demands)
        self.local = [demand for demand in demands if demand.is_local]
        self.lot = max(1, LOT * USUAL_VOLUMES // max(USUAL_VOLUMES, len(self.local)))  # each volume costs time on each
        self._known, self._planned = known or {}, planned
        self._kinds: Kinds = {}
        self.anywhere: PlacesByVolume = {}  # places of the volumes that are bound to no node
        self._beside: Taken = taken  # with these
        self._bound = list[VolumeDemand]()  # those volumes, as they are made when the pod goes to the nodes in question
        is_plain = all(is_plain_demand(world, one) and not (one.is_pinned or one.home_nodes) for one in self.local)
        self._largest_plain = max((demand.size_bytes for demand in self.local), default=0) if is_plain else 0
        self._alone = self._only_new() if is_plain else None
        self._gaps = frozenset[str]().union(*(world.engine_gaps(demand.needs) for demand in self.local))

    # Volumes that are bound to no node

    def open_among(self, names: Sequence[str]) -> tuple[Sequence[str], dict[str, Judgement]]:
        """Return those of `names` that the volumes bound to no node allow, and Longhorn's attacher (`csi/
        controller_server.go`, `ControllerPublishVolume`), and the verdicts on the others. Afterwards
        `anywhere` has places for these volumes. To be called once, before nodes are judged."""
        if any(demand.never for demand in self.demands):
            return [], dict.fromkeys(names, unsuitable(Reason.NEVER_PLACED))
        if self.unsized():
            return [], dict.fromkeys(names, unsuitable(Reason.BACKING_IMAGE_SIZE_UNKNOWN))
        nodes = self.world.nodes  # Longhorn attaches volumes to no others
        closed = {name: NO_LONGHORN for name in names if name not in nodes} if self._is_attached else {}
        if closed:
            names = [name for name in names if name not in closed]
        judged = self.needing_disks()
        if not judged or not names:
            return names, closed
        for zone, region, members in self._by_topology(names, judged):
            self._bound = bound = [_bind(demand, zone, region) for demand in judged]
            found = self._plan(bound, members, self.taken)
            if isinstance(found, Lack):
                alone = self._plan(bound, members, NothingTaken())
                found = self._why(alone) if isinstance(alone, Lack) else alone if alone is LATE else CONTENDED
            if isinstance(found, Judgement):
                closed.update(dict.fromkeys(members, found))
                continue
            self._use(found)
            left = self._next_to_engine(judged, members, found)
            closed.update(dict.fromkeys(set(names).difference(closed, left), CONTENDED))
            return left, closed
        return [], closed

    def unsized(self) -> list[tuple[VolumeDemand, Rejection]]:
        """The volumes whose pod waits for a copy, which nobody can tell how large it is, with what tells of that."""
        waited_for = (demand for demand in (*self.local, *self.needing_disks()) if demand.copies)
        return [(one, why) for one in waited_for if (why := check_image(one.image)) is not None]

    def needing_disks(self) -> list[VolumeDemand]:
        """The volumes bound to no node of which a copy has to find a disk before the pod may start."""
        return [demand for demand in self.demands if needs_disk(self.world, demand)]

    def _use(self, places: PlacesByVolume) -> None:
        self.anywhere = places
        new = self._new_places()
        self._beside = Plus(self.taken, new) if new else self.taken

    def _new_places(self) -> list[Place]:
        """The places that this question found for volumes bound to no node."""
        return [place for volume, of in self.anywhere.items() if volume not in self._known for place in of]

    def _by_topology(
        self, names: Sequence[str], judged: Iterable[VolumeDemand]
    ) -> list[tuple[str, str, Sequence[str]]]:
        """Zone, region and names of the nodes for which a new volume would get the same topology; the largest first."""
        follows = {demand.follows for demand in judged if demand.follows}
        if not follows:
            return [("", "", names)]
        groups = dict[tuple[str, str], list[str]]()
        for name in names:
            node = self.world.nodes.get(name)
            zone, region = ("", "") if node is None else (node.zone, node.region)
            groups.setdefault((zone if "zone" in follows else "", region), []).append(name)
        rows = [(zone, region, members) for (zone, region), members in groups.items()]
        return sorted(rows, key=lambda row: -len(row[2]))

    def _why(self, lack: Lack) -> Judgement:
        """The reason why no disk takes that copy: the one of the nodes that come nearest to it."""
        wanted = wanted_by(lack)
        own = {place.node for place in lack.places}
        near = own.union(self.chooser.nearest(wanted, MOST_NEAR, own))
        refusals = explain(
            wanted, self.world, NothingTaken(), self.now_utc, near & self.world.nodes.keys()
        ).found.refusals
        reason = min((one.rejection.reason for one in refusals), key=_rank, default=Reason.NO_ROOM_IN_CLUSTER)
        if reason in _OF_ROOM:
            return Judgement(Verdict.FULL, Reason.NO_ROOM_IN_CLUSTER, lack=lack)
        return Judgement(Verdict.UNSUITABLE, reason, lack=lack)

    def _plan(
        self, demands: Sequence[VolumeDemand], names: Sequence[str], taken: Taken
    ) -> PlacesByVolume | Judgement | Lack:
        """Places for the copies that these volumes need, found for large volumes first; or why there are none."""
        names_of = {demand.volume for demand in demands}
        found = {volume: places for volume, places in self._known.items() if volume in names_of}
        for demand in sorted(demands, key=lambda one: (-one.size_bytes, one.volume)):
            if demand.volume in found:
                if not suffice(self.world, demand, found[demand.volume]):
                    return Lack(demand, found[demand.volume])  # a planned one is lost
                continue
            if self.budget.is_spent():
                return LATE
            new = (place for volume, places in found.items() if volume not in self._known for place in places)
            beside = Plus(taken, new)
            places = self.copies_of(demand, names, beside)
            if not suffice(self.world, demand, places):
                return Lack(demand, places)
            found[demand.volume] = places
        return found

    def copies_of(self, demand: VolumeDemand, names: Sequence[str], taken: Taken) -> tuple[Place, ...]:
        """Places for as many of the volume's missing copies as find one. The first copy of a volume that prefers its
        engine's node lies on one of `names`, if any of these takes it."""
        volume, found = demand.facts, tuple[Place, ...]()
        near = frozenset(names) if demand.prefers_local and not demand.placed_nodes else None
        for _ in range(demand.copies):
            only = near if near is not None and not found else None
            wanted = Wanted(volume, replica_to_come(volume), found, only)
            place = self.chooser.choose(wanted, Plus(taken, found), self.now_utc).place
            if place is None and only is not None:
                wanted = replace(wanted, only=None)
                place = self.chooser.choose(wanted, Plus(taken, found), self.now_utc).place
            if place is None:
                break
            found = (*found, place)
        return found

    def _next_to_engine(
        self, judged: Iterable[VolumeDemand], names: Sequence[str], places: PlacesByVolume
    ) -> Sequence[str]:
        """The nodes that may be offered: those with a place, for volumes that prefer their engine's node; all of them
        if none has one."""
        left = list(names)
        for demand in judged:
            if demand.prefers_local and not demand.placed_nodes and not self.local:
                there = {place.node for place in places.get(demand.volume, ())}
                left = [name for name in left if name in there] or left
        return left

    # Nodes

    def restart_among(self, names: Iterable[str]) -> dict[str, Judgement]:
        """Return the sure ones of `names` that hold usable replicas of all the pod's placed local volumes."""
        placed = [demand.usable_nodes for demand in self.local if demand.usable_nodes]
        if not placed:
            return {}
        home = frozenset.intersection(*placed)
        judged = ((name, self.judge(name)) for name in names if name in home)
        return {name: judgement for name, judgement in judged if judgement.is_sure}

    def judge_all(self, names: Iterable[str]) -> dict[str, Judgement]:
        """Return the verdict on each of `names`."""
        alone = self._alone
        if alone is None:
            return {name: FULL if self._is_too_small(name) else self.judge(name) for name in dict.fromkeys(names)}
        found = dict[str, Judgement]()
        for name in dict.fromkeys(names):
            if self.budget.is_spent():
                found[name] = LATE
            else:
                found[name] = self._judge_new(name, alone) or self._judge(name)
        return found

    def _only_new(self) -> VolumeDemand | None:
        """The local volume of the usual pod, which has one that needs nothing but room and has no place yet: nodes are
        judged quickly for it. None for any other pod."""
        if len(self.local) != 1:
            return None
        (demand,) = self.local
        return None if demand.volume in self._known or is_left_to_longhorn(demand.facts) else demand

    def _judge_new(self, name: str, demand: VolumeDemand) -> Judgement | None:
        """The verdict on the node by its room alone; None where that does not decide."""
        room, size = self.world.room(name), demand.size_bytes
        if room is None or room.rejection is not None or name in self._gaps or not self.world.has_node(name):
            return None
        left = limits = 0
        is_full, best = True, list[tuple[int, str]]()
        for disk in room.plain_disks:
            free = disk.free_bytes - self._beside.taken_bytes(name, disk.uuid)
            left, limits, is_full = left + max(0, free), limits + disk.limit_bytes, is_full and disk.free_bytes < size
            if free >= size:
                best.append((free, disk.uuid))
        if best:
            is_ample = (left - size) * 100 > (100 - AMPLE_PCT) * limits
            _, uuid = max(best, key=itemgetter(0)) if is_ample else min(best, key=itemgetter(0))
            return Judgement(Verdict.SURE, places={demand.volume: Place(name, uuid, size)})
        if not limits or self._without_kept is not None or self.anywhere or self._known:
            return None
        return FULL if is_full else CONTENDED

    def _is_too_small(self, name: str) -> bool:
        """Whether no disk there has room for the pod's largest local volume, by the world's summary: so it is on most
        nodes of a full cluster, and every pod that waits asks about all of them again."""
        return self.world.best.get(name, self._largest_plain) < self._largest_plain and name not in self._gaps

    def judge(self, name: str) -> Judgement:
        """Return the verdict on that node for all local volumes of the pod together."""
        return LATE if self.budget.is_spent() else self._judge(name)

    def _judge(self, name: str) -> Judgement:
        wanted = self.wanted_on(name)
        if isinstance(wanted, Judgement):
            return wanted
        known = {one.volume: place for one in self.local if (place := self._known_on(name, one.volume)) is not None}
        if not wanted:
            return Judgement(Verdict.SURE, places=known) if known else SURE
        shape = shape_of(self.world, name, wanted, self.now_utc, self._kinds)
        found = shape if isinstance(shape, Judgement) else self._judge_shape(shape)
        return replace(found, places={**known, **found.places}) if known and found.is_sure else found

    def _known_on(self, name: str, volume: str) -> Place | None:
        """The known place of the volume on that node."""
        places = self._known.get(volume)
        return next((place for place in places if place.node == name), None) if places else None

    def taken_on(self, name: str) -> int:
        """Return the bytes that others were promised on that node's disks."""
        room = self.world.room(name)
        return sum(self.taken.taken_bytes(name, disk.uuid) for disk in room.disks) if room is not None else 0

    def wanted_on(self, name: str) -> list[VolumeDemand] | Judgement:
        """Return the local volumes that need room on that node; a judgement if one is bound to another node."""
        wanted = []
        for demand in self.local:
            if name in demand.home_nodes or self._known_on(name, demand.volume) is not None:
                continue
            if demand.is_pinned:
                return unsuitable(Reason.REPLICA_ELSEWHERE)
            wanted.append(demand)
        return wanted

    def shape_on(self, name: str) -> Shape | Judgement | None:
        """Return the local volumes that need room as items for that node's disks; None if none does."""
        wanted = self.wanted_on(name)
        if isinstance(wanted, Judgement):
            return wanted
        return shape_of(self.world, name, wanted, self.now_utc, self._kinds) if wanted else None

    def _judge_shape(self, shape: Shape) -> Judgement:
        steps = Steps(PACK_STEPS, self.budget)
        found = self._packed(shape, self._beside, steps)
        if found is not None:
            return Judgement(Verdict.SURE, places=_places_of(shape, found))
        if self._without_kept is not None and self._packed(shape, self._without_kept, steps) is not None:
            return KEPT
        if self._fits_alone(shape, steps):
            return CONTENDED
        if steps.exhausted:
            return GAVE_UP
        if any(item.image_bytes for item in shape.items):
            bare = [replace(item, image_bytes={}) for item in shape.items]
            if pack(bare, [disk.free_bytes for disk in shape.room.disks], steps) is not None:
                return BACKING_IMAGE
        return FULL

    def _fits_alone(self, shape: Shape, steps: Steps) -> bool:
        """Whether the pod would fit there if nobody else took anything. What is planned for its other volumes stays
        where it is; what is held, or found by this question, might lie elsewhere then."""
        own = Plus(NothingTaken(), [place for volume in self._planned for place in self._known[volume]])
        packed = self._packed(shape, own, steps)
        if packed is None or not self.anywhere:
            return packed is not None
        if self._packed(shape, Plus(own, self._new_places()), steps) is not None:
            return True
        beside = Plus(own, _places_of(shape, packed).values())
        return not isinstance(self._plan(self._bound, [shape.room.name], beside), Judgement | Lack)

    def _packed(self, shape: Shape, taken: Taken, steps: Steps) -> Packed | None:
        return pack(shape.items, _free_on(shape.room, taken), steps, shape.limits)

    def free_on(self, room: NodeRoom) -> list[int]:
        """Return the bytes of each of the room's disks that are free for the pod's local volumes."""
        return _free_on(room, self._beside)

    def pack_first(self, names: Iterable[str]) -> tuple[str, Judgement] | None:
        """Return the first of `names` that is sure when the local volumes are packed there before the others are
        planned: those may have been given the very disk. Afterwards `anywhere` has the places of the others."""
        judged = self.needing_disks()
        for name in islice(names, MOST_TOGETHER) if judged and self.local else ():
            if self.budget.is_spent():
                break
            self._beside = self.taken
            judgement = self.judge(name)
            node = self.world.nodes.get(name)
            if not judgement.is_sure or node is None:
                continue
            bound = [_bind(demand, node.zone, node.region) for demand in judged]
            found = self._plan(bound, [name], Plus(self.taken, judgement.places.values()))
            if not isinstance(found, Judgement | Lack):
                self._use(found)
                return name, judgement
        return None


def _free_on(room: NodeRoom, taken: Taken) -> list[int]:
    return [disk.free_bytes - taken.taken_bytes(room.name, disk.uuid) for disk in room.disks]


def wanted_by(lack: Lack) -> Wanted:
    """Return the question to which no disk is the answer."""
    return Wanted(lack.demand.facts, replica_to_come(lack.demand.facts), lack.places)


def _rank(reason: Reason) -> tuple[bool, bool, bool, str]:
    """How much that refusal of a node or disk tells: what lacks room alone comes nearest, and the node of another copy
    is refused whatever keeps the next one off the others."""
    is_zone = reason is Reason.ZONE_ANTI_AFFINITY
    return reason not in _OF_ROOM, not is_zone, reason is Reason.NODE_ANTI_AFFINITY, reason


def needs_disk(world: World, demand: VolumeDemand) -> bool:
    """Whether a copy of that volume, which is bound to no node, has to find a disk before its pod may start."""
    return demand.is_roaming and not (world.settings.degraded_availability and demand.placed_nodes)


def suffice(world: World, demand: VolumeDemand, places: Sequence[Place]) -> bool:
    """Whether those places are enough for such a volume: one, or all where the setting wants that."""
    return len(places) >= (1 if world.settings.degraded_availability else demand.copies)


def _places_of(shape: Shape, found: Packed) -> dict[str, Place]:
    """The places by volume. What only Longhorn may place has room there, and no place."""
    return {demand.volume: place for demand, place in shape.places(found) if not is_left_to_longhorn(demand.facts)}


def _bind(demand: VolumeDemand, zone: str, region: str) -> VolumeDemand:
    """The volume as it would be made for a node of that zone and region."""
    if demand.follows == "zone" and zone:
        term = TopologyTerm(zone, region)
    elif demand.follows and region:
        term = TopologyTerm("", region)
    else:
        return demand
    needs, facts = replace(demand.needs, topology=(term,)), demand.facts
    return replace(demand, needs=needs, facts=replace(facts, needs=replace(facts.needs, topology=(term,))))
