"""Whether Longhorn finds room in the cluster for replicas that it may place on any node.

Longhorn keeps a volume's replicas apart: by zone, by node, or not at all, and by disk (controller/rules/affinity.py).
So a set of replicas needs as many *sites*: unused zones, unused nodes, or disks. And since Longhorn may put each of
them on any disk that it believes to have room, on every such disk all that may come there has to fit together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

from controller.allocator.judge.budget import Budget
from controller.allocator.judge.closing import Closing, most_closed, most_taken
from controller.allocator.judge.packing import Item
from controller.allocator.judge.pending import Pending, is_plain_demand, item_of_demand, roaming_item_of
from controller.allocator.judge.shape import item_of
from controller.allocator.judge.verdict import CONTENDED, LATE, OWN_VOLUMES, SURE, WAITABLE, Judgement, Verdict
from controller.allocator.world.suitable import check_candidate, usage_of
from controller.allocator.world.world import World
from controller.rules.affinity import Affinity, copies_per_disk
from controller.rules.demand import VolumeDemand
from controller.rules.eligibility import DiskRoom, NodeRoom, check_disk_kind, check_node_tags
from controller.rules.reasons import Reason

NO_ROOM: Final = Judgement(Verdict.FULL, Reason.NO_ROOM_IN_CLUSTER)
UNSUITABLE: Final = Judgement(Verdict.UNSUITABLE, Reason.NO_ROOM_IN_CLUSTER)
_FEW: Final = 64  # nodes that are worth a closer look each


@dataclass(frozen=True, slots=True)
class Site:
    """A node that passes every rule but room, and its disks that may take a replica, room aside."""

    room: NodeRoom
    place: str  # the zone or the node that one replica uses up
    disks: tuple[int, ...]


class Sites:
    """The nodes that may take replicas of one volume, by Longhorn's rules for replicas that are bound to no node."""

    def __init__(self, world: World, demand: VolumeDemand, now_utc: datetime | None = None) -> None:
        world.refresh()  # the summaries decide which nodes are looked at
        self._world, self._demand = world, demand
        self.affinity = Affinity.of(demand.facts, world.settings)
        self._usage = usage_of(world, demand, now_utc)
        self.is_plain = is_plain_demand(world, demand)
        self.gaps = world.engine_gaps(demand.needs)
        self._kinds: dict[object, bool] = {}

    @property
    def shares_nodes(self) -> bool:
        """Whether several replicas may lie on one node."""
        return self.affinity.shares_nodes

    @property
    def shares_disks(self) -> bool:
        return self.shares_nodes and self.affinity.disk_soft

    def __iter__(self) -> Iterator[Site]:
        for name in self._world.nodes:
            found = self.of(name)
            if isinstance(found, Site):
                yield found

    def reached(self) -> Iterator[Site]:
        """Those with a disk that Longhorn may believe to have room. A node without one costs a comparison for each
        disk."""
        size = self._demand.size_bytes
        for name in self._world.nodes:
            room = self._world.room(name)
            if room is not None and any(self._may_take(disk, size) for disk in room.disks):
                found = self.of(name)
                if isinstance(found, Site):
                    yield found

    def _may_take(self, disk: DiskRoom, size: int) -> bool:
        if disk.reach_bytes < size:
            return False
        takes = self._kinds.get(disk.kind)
        if takes is None:
            reason = check_disk_kind(disk, self._demand.needs, size, self._world.settings.space)
            takes = self._kinds[disk.kind] = reason is None
        return takes

    def place_of(self, name: str) -> str:
        return name if self.affinity.zone_soft else self._world.nodes[name].zone

    def of(self, name: str) -> Site | Reason:
        """The site on that node, or why there is none, whatever its room."""
        found = self.item(name)
        if isinstance(found, Reason):
            return found
        room, item = found
        return Site(room, self.place_of(name), item.all_disks)

    def item(self, name: str) -> tuple[NodeRoom, Item] | Reason:
        """A replica on that node's disks, or why it may not lie there, whatever its room."""
        reason = check_candidate(self._world, name, self._demand.needs)
        room = self._world.room(name)
        if reason is not None or room is None:
            return reason or Reason.NO_LONGHORN_NODE
        if room.rejection is not None:
            return room.rejection.reason
        reason = self._usage.bars(name, self._world.nodes[name].zone, self.affinity)
        if reason is None and not (self.shares_nodes and name in self._usage.nodes):
            space = self._world.settings.space
            reason = None if check_node_tags(room.tags, self._demand.needs, space) else Reason.NODE_TAGS
        if reason is not None:
            return reason
        found = item_of(self._world, room, self._demand)
        return found if isinstance(found, Reason) else (room, found)


@dataclass(frozen=True, slots=True)
class WantedCopies:
    """One volume that roams, and how many of its copies have to find a disk: all of them, or as many as would find one
    if nothing were promised, but one at least."""

    demand: VolumeDemand
    copies: int
    needs_all: bool


class Elsewhere(NamedTuple):
    """Nodes on which not all goes together, one at most, and nodes that have the only site of a volume that is bound to
    its pod's node."""

    overfull: frozenset[str]
    sole: frozenset[str]

    def is_sure_without(self, name: str) -> bool:
        return self.overfull <= {name} and name not in self.sole


class SetJudge:
    """Judges all roaming volumes of one pod together."""

    def __init__(
        self,
        world: World,
        wanted: Sequence[WantedCopies],
        pending: Pending,
        *,
        budget: Budget | None = None,
        now_utc: datetime | None = None,
        excess_pct: int = 0,
    ) -> None:
        """`excess_pct`: the share of a disk's limit by which all that may come there may exceed it."""
        self._world, self._wanted, self._pending = world, wanted, pending
        self._budget, self._now_utc, self._excess_pct = budget or Budget(), now_utc, excess_pct
        self.has_excess = False  # the yes makes use of it
        self._own: dict[str, list[int]] = {}  # by node, for each disk what may come there of these volumes
        self._costs: list[dict[str, int]] = []  # by volume and place, the bytes that close it to a replica
        self._slots: list[int] = []  # by volume, the replicas that fit side by side
        self._found: list[list[str]] = []  # by volume, two nodes with a site, if there are two
        self._image_by_disk: dict[tuple[str, str], str] = {}  # disk and image -> the volume that it is counted with
        self._has_traps = False  # disks that Longhorn may believe to have room, but that have none

    def judge(self, young_since: float = float("-inf")) -> Judgement:
        """`is_waitable` when holds made after `young_since` alone are in the way."""
        world = self._world
        if len(self._wanted) == 1:
            quick = self._judge_plain(self._wanted[0], young_since)
            if quick is not None:
                return quick
        for wanted in self._wanted:
            judgement = self._find_sites(wanted)
            if judgement is not SURE:
                return judgement
        is_sure = is_waitable = True
        is_own = False  # the pod's own volumes are too many for a disk, promises aside
        largest = max((wanted.demand.size_bytes for wanted in self._wanted), default=0)
        for name, own in self._own.items():
            if self._budget.is_spent():
                return LATE
            room = world.room(name)
            if room is None:
                continue
            loads = self._pending.loads(room)
            rows = list(zip(room.disks, own, loads, strict=True))
            if all(not more or more + load <= disk.free_bytes for disk, more, load in rows):
                continue
            if self._excess_pct and self._is_tolerable(room, rows):
                self.has_excess = True
                continue
            is_sure = False
            is_own = is_own or any(more > disk.free_bytes >= largest for disk, more, _ in rows)
            younger = self._pending.younger(room, young_since)
            is_waitable = all(
                not more or more + load - young <= disk.free_bytes
                for (disk, more, load), young in zip(rows, younger, strict=True)
            )
            if is_own or not is_waitable:
                break
        if is_own:
            return OWN_VOLUMES
        if is_sure and self.has_excess:
            is_sure = is_waitable = self._is_spared()
            if self._budget.is_over:
                return LATE
        return SURE if is_sure else WAITABLE if is_waitable else CONTENDED

    def _is_tolerable(self, room: NodeRoom, rows: Sequence[tuple[DiskRoom, int, int]]) -> bool:
        """Whether the excess there is within the tolerance, and affects no volume that can only be placed on that
        node."""
        if not self._pending.allows_excess(room):
            return False
        return all(
            more + load <= disk.free_bytes + disk.limit_bytes * self._excess_pct // 100
            for disk, more, load in rows
            if more
        )

    def _is_spared(self) -> bool:
        if any(wanted.demand.clone_disks is not None for wanted in self._wanted):
            return False  # it has fewer sites than its needs tell
        own = [roaming_item_of(item_of_demand(wanted.demand), wanted.demand, self._world) for wanted in self._wanted]
        return Closing(self._world, self._pending, own, self._budget).spares_all()

    def _judge_plain(self, wanted: WantedCopies, young_since: float) -> Judgement | None:
        """By the summaries of the nodes, and a closer look at a few of them; None: look at all of them."""
        sites = Sites(self._world, wanted.demand, self._now_utc)
        if not sites.is_plain or sites.shares_disks:
            return None
        size, pending = wanted.demand.size_bytes, self._pending
        is_quiet = not (pending.has_others() or self._world.uneven)
        roaming, is_exact = pending.most_roaming()
        # Nothing is lenient: what does not go together decides.
        is_strict = is_exact and (not self._excess_pct or pending.allows_no_excess)
        is_contended = False
        closer = {*pending.occupied(self._world.free_by_node), *self._world.uneven}
        places, slots = set[str](), 0

        def is_enough() -> bool:
            return (slots if sites.shares_nodes else len(places)) >= wanted.copies

        seen: dict[tuple[int, ...], tuple[int, bool]] = {}  # disks that take one, and whether all goes together there
        for name, free in self._world.free_by_node.items():
            if free[0] < size or name in closer or name in sites.gaps:
                continue
            found = seen.get(free)
            if found is None:
                able = [room for room in free if room >= size]
                found = seen[free] = len(able), is_quiet or all(size + roaming.upto(room) <= room for room in able)
            if not found[1]:
                if not is_strict:
                    closer.add(name)
                    continue
                is_contended = True
            places.add(sites.place_of(name))
            slots += found[0]
            if is_quiet and is_enough():
                return SURE
        if is_contended:
            return CONTENDED if is_enough() and pending.older_roaming(young_since) is None else None
        for site in map(sites.of, closer) if len(closer) <= _FEW else ():
            if self._budget.is_spent():
                return LATE
            if not isinstance(site, Site):
                continue
            loads = pending.loads(site.room)
            for disk, load in ((site.room.disks[index], loads[index]) for index in site.disks):
                if disk.reach_bytes >= size and size + load > disk.free_bytes:
                    return None
                if disk.free_bytes >= size:
                    places.add(site.place)
                    slots += 1
        return SURE if len(closer) <= _FEW and is_enough() else None

    def _find_sites(self, wanted: WantedCopies) -> Judgement:
        """SURE when there are enough, promises aside."""
        demand, sites = wanted.demand, Sites(self._world, wanted.demand, self._now_utc)
        size, most = demand.size_bytes, wanted.copies
        per_disk = copies_per_disk(sites.affinity, most)
        costs, slots, whole, nodes = dict[str, int](), 0, 0, list[str]()
        self._costs.append(costs)
        self._found.append(nodes)
        for site in sites.reached():
            if self._budget.is_spent():
                return LATE
            own = self._own.setdefault(site.room.name, [0] * len(site.room.disks))
            for index in site.disks:
                disk = site.room.disks[index]
                if disk.reach_bytes < size:
                    continue
                image = self._image_bytes(demand, disk)
                own[index] += size * min(per_disk, disk.reach_bytes // size) if size else 0
                own[index] += image
                if disk.free_bytes >= size + image:
                    costs[site.place] = costs.get(site.place, 0) + disk.free_bytes - image - size + 1
                    fitting = (disk.free_bytes - image) // size if sites.shares_disks and size else 1
                    whole += fitting
                    slots += min(most, fitting)
                    if len(nodes) < 2 and site.room.name not in nodes:
                        nodes.append(site.room.name)
                elif disk.free_bytes < size:  # else its image alone does not fit, and Longhorn does not ask about that
                    self._has_traps = True
        self._slots.append(whole if sites.shares_nodes else -1)
        capacity = slots if sites.shares_nodes else len(costs)
        if capacity >= (most if wanted.needs_all else 1):
            return SURE
        return self._full(sites, wanted)

    def _image_bytes(self, demand: VolumeDemand, disk: DiskRoom) -> int:
        """What the volume's backing image takes there in addition; once for all of the pod's volumes made on it."""
        image = demand.image
        if image is None or not image.real_size_bytes or not self._world.lacks_image(image, disk.uuid):
            return 0
        first = self._image_by_disk.setdefault((disk.uuid, image.name), demand.volume)
        self._pending.own_image(disk.uuid, image.name)
        return image.real_size_bytes if first == demand.volume else 0

    def has_sites(self) -> bool:
        """Whether there are enough for each volume, promises aside."""
        return all(self._find_sites(wanted) is SURE for wanted in self._wanted)

    def elsewhere(self, from_bytes: int, less_bytes: int, *, ignores_traps: bool = False) -> Elsewhere | None:
        """What decides whether all goes together on all nodes but one; None where it does not, whichever the one is,
        or where time was too short. A disk of `from_bytes` or more gets `less_bytes` less."""
        if not self.has_sites():
            return None
        sole = {nodes[0] for nodes, one in zip(self._found, self._wanted, strict=True) if _has_one_site(nodes, one)}
        overfull = set[str]()
        for name, own in self._own.items():
            room = self._world.room(name)
            if len(overfull) > 1 or self._budget.is_spent():
                return None
            if room is None:
                continue
            for disk, more, load in zip(room.disks, own, self._pending.loads(room), strict=True):
                reach, left = disk.reach_bytes, more
                if ignores_traps and reach > disk.free_bytes:
                    reach, sizes = disk.free_bytes, (one.demand.size_bytes for one in self._wanted)
                    left = sum(size for size in sizes if size <= reach)
                left -= less_bytes if reach >= from_bytes else 0
                if left > 0 and left + load > disk.free_bytes:
                    overfull.add(name)
        return Elsewhere(frozenset(overfull), frozenset(sole)) if len(overfull) <= 1 else None

    def survives_own(self, local: Sequence[int], *, ignores_traps: bool = False) -> bool:
        """Whether each of these volumes finds a disk for its replicas wherever Longhorn puts the pod's other ones, of
        which those of the sizes `local` are bound to a node; no where anything of others may come to the same disks."""
        if not self.has_sites() or (self._has_traps and not ignores_traps):
            return False
        for name, own in self._own.items():
            room = self._world.room(name)
            loads = self._pending.loads(room) if room is not None else [0] * len(own)
            if any(load and more for more, load in zip(own, loads, strict=True)):
                return False
        return all(self._survives(number, local) for number in range(len(self._wanted)))

    def _survives(self, number: int, local: Sequence[int]) -> bool:
        wanted, costs = self._wanted[number], self._costs[number]
        others = [
            *local,
            *(one.demand.size_bytes for one in self._wanted for _ in range(one.copies) if one is not wanted),
        ]
        slots, size = self._slots[number], wanted.demand.size_bytes
        if slots >= 0:
            sites, lost = slots, most_taken(size, others)
        else:
            sites, lost = len(costs), most_closed(costs.values(), sum(others))
        return sites - lost >= (wanted.copies if wanted.needs_all else min(wanted.copies, max(1, sites)))

    def _full(self, sites: Sites, wanted: WantedCopies) -> Judgement:
        """NO_ROOM if the rules allow so many replicas; nodes are looked at only until that is known."""
        most = wanted.copies if wanted.needs_all else 1
        allowed, places = 0, set[str]()
        for site in sites:
            allowed += most if sites.shares_disks else max(1, len(site.disks))
            places.add(site.place)
            if (allowed if sites.shares_nodes else len(places)) >= most:
                return NO_ROOM
            if self._budget.is_spent():
                return LATE
        return UNSUITABLE


def _has_one_site(nodes: Sequence[str], wanted: WantedCopies) -> bool:
    """Whether a volume that is bound to its pod's node has a site on one node alone."""
    return wanted.demand.is_local and len(nodes) == 1
