"""The disk that Longhorn is predicted to take for a replica, found among thousands while the allocator's lock is held.

The answer is the one that `JoinedDisks.find` prefers; tests compare the two. That search says of every disk why it does
not serve, which costs tens of milliseconds for a thousand nodes. Here no reasons are given, and what does not depend on
the volume's own replicas is kept for each kind of need: which nodes and disks suit, and what is free on them without
promises. A node is looked at anew after its room was worked out anew.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Final, NamedTuple

from controller.allocator.judge.joined import JoinedDisks
from controller.allocator.promises.ledger import Ledger
from controller.allocator.world.world import World
from controller.model.longhorn import DEFAULT_NEEDS, DiskNeeds, LonghornNode, LonghornSettings, Replica, Volume
from controller.rules.affinity import (
    Affinity,
    Usage,
    counted_replicas,
    disks_with_replicas,
    groups_of_nodes,
    is_replacement_due,
)
from controller.rules.candidates import (
    Candidate,
    PlacementView,
    check_search,
    clone_sources,
    needs_of,
    reopened_nodes,
    scheduled_for,
)
from controller.rules.eligibility import (
    EXT_LIMIT_BYTES,
    Engines,
    NodeRoom,
    check_disk_for,
    check_disk_kind,
    check_node_for,
    check_node_tags,
)
from controller.rules.preference import narrows_to_attach_node

_MOST_KINDS: Final = 16  # of needs that are remembered
_SORTED_AT: Final = 16  # times as many nodes: a few are sorted faster than found among the others
_Rank = tuple[int, str]  # of a node among others: the one with the most usable bytes is preferred, and comes first


class _Slot(NamedTuple):
    """A disk that suits. `usable_bytes` and `spare_bytes` are what Longhorn's preference goes by."""

    disk: str
    uuid: str
    free_bytes: int
    written_limit_bytes: int
    usable_bytes: int
    spare_bytes: int
    place: int  # in the node's room


class _Pick(NamedTuple):
    """The disks of one node that take the replica, by name, and what is usable on all of them."""

    node: str
    slots: tuple[_Slot, ...]
    total_bytes: int


@dataclass(frozen=True, slots=True)
class _Shelf:
    """All disks of a node that suit a kind of need, and what decides for most volumes without a look at each.
    `is_plain`: all of them take plain volumes, which may be pending, as well."""

    room: NodeRoom
    whole: _Pick
    rank: _Rank
    is_plain: bool
    least_reach_bytes: int
    least_free_bytes: int
    most_free_bytes: int
    least_written_limit_bytes: int


@dataclass(slots=True)
class _Kind:
    """Nodes that suit a kind of need, replicas and disks aside; those with the tags; and their disks."""

    needs: DiskNeeds
    nodes: dict[str, LonghornNode] = field(default_factory=dict)
    tagged: dict[str, LonghornNode] = field(default_factory=dict)
    shelves: dict[str, _Shelf] = field(default_factory=dict)
    ranks: list[_Rank] = field(default_factory=list)  # of the shelves, sorted
    stale: set[str] = field(default_factory=set)

    def renew(self, world: World) -> None:
        for name in self.stale:
            self.nodes.pop(name, None)
            self.tagged.pop(name, None)
            shelf = self.shelves.pop(name, None)
            if shelf is not None:
                del self.ranks[bisect_left(self.ranks, shelf.rank)]
            node, room, space = world.nodes.get(name), world.room(name), world.settings.space
            if node is None or room is None:
                continue
            kube_nodes = world.kube_nodes or None
            if check_node_for(node, self.needs, space, engines=world.engines, kube_nodes=kube_nodes, with_tags=False):
                continue
            self.nodes[name] = node
            if check_node_tags(node.tags, self.needs, space):
                self.tagged[name] = node
            slots = _slots(node, room, self.needs, world)
            if slots:
                shelf = self.shelves[name] = _shelf(room, slots, self.needs, world)
                insort(self.ranks, shelf.rank)
        self.stale.clear()

    def ranked(self, names: Collection[str]) -> Iterator[_Rank]:
        """Those of the nodes in `names`, sorted."""
        if len(names) * _SORTED_AT < len(self.ranks):
            return iter(sorted(self.shelves[name].rank for name in names if name in self.shelves))
        return (rank for rank in self.ranks if rank[1] in names)


class DiskChooser:
    """Threads: none of its own; the allocator's lock guards it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._kinds: dict[DiskNeeds, _Kind] = {}  # the one that was asked for last comes last
        self._basis: tuple[LonghornSettings, Engines] | None = None  # what all kinds were worked out with

    def choose(
        self,
        volume: Volume,
        replica: Replica,
        beside: Ledger,
        now_utc: datetime | None = None,
        closed: Mapping[str, str] = MappingProxyType({}),
    ) -> Candidate | None:
        """The disk that Longhorn is predicted to take for `replica`, of those that have room for it beside what is
        promised `beside`; None when no disk takes it. Nodes and disks in `closed` take nothing.

        Costs: a step for each node that suits, which is short; a longer one, for each of its disks, until a node is
        found that no other can be preferred to, and for each node with a replica of the volume. And a look at each node
        that changed since the last call."""
        for joined in JoinedDisks(self._world, beside, volume, now_utc, closed).tries():
            view = joined.unjoined(replica)
            if check_search(volume, replica, view.backing_image) is not None:
                return None
            kind = self._kind(needs_of(volume, replica, view.backing_image))
            search = _Search(self._world, kind, view, volume, replica, joined, beside)
            choice = _preferred(search.run(), volume, view)
            if choice is not None:
                return choice
        return None

    def _kind(self, needs: DiskNeeds) -> _Kind:
        world = self._world
        basis = world.settings, world.engines
        if self._basis is None or any(old is not new for old, new in zip(self._basis, basis, strict=True)):
            self._basis = basis
            self._kinds.clear()
        renewed = world.take_renewed()
        for known in self._kinds.values():
            known.stale |= renewed
        kind = self._kinds.pop(needs, None)
        if kind is None:
            kind = _Kind(needs, stale=set(world.nodes))
            if len(self._kinds) >= _MOST_KINDS:
                del self._kinds[next(iter(self._kinds))]
        self._kinds[needs] = kind
        if kind.stale:
            kind.renew(world)
        return kind


class _Search:
    """Longhorn's tries, group after group of nodes, for one replica."""

    def __init__(
        self,
        world: World,
        kind: _Kind,
        view: PlacementView,
        volume: Volume,
        replica: Replica,
        joined: JoinedDisks,
        beside: Ledger,
    ) -> None:
        self._world, self._kind, self._view, self._volume, self._replica = world, kind, view, volume, replica
        self._joined, self._space = joined, view.settings.space
        self._affinity = Affinity.of(volume, view.settings)
        self._holding = disks_with_replicas(view.replicas, ignore_failed=False)
        sources = clone_sources(view, volume, replica)
        self._sources = None if sources is None else {source.node for source in sources}
        self._clones = None if sources is None else {source.disk_uuid for source in sources}
        uuids = {one.disk_uuid for one in view.replicas if one.disk_uuid}
        own = {node for uuid in (*uuids, *joined.closed) for node in world.nodes_of_disk(uuid)}
        self._with_own = own.union(one.node for one in view.replicas)
        self._loaded = beside.nodes()
        self._even = joined.even_load()
        self._is_special = self._clones is not None or volume.size_bytes >= EXT_LIMIT_BYTES
        self._near = volume.node_id if narrows_to_attach_node(volume, view.replicas, view.behaviour) else ""
        self._goes_by_rank = view.behaviour.picks_by_balance_score

    def run(self) -> list[_Pick]:
        """The disks of the first group in which there are any."""
        view, affinity, closed = self._view, self._affinity, self._joined.closed
        nodes, tagged = self._kind.nodes, self._kind.tagged
        only = self._only()
        if only is not None or closed:
            names = [name for name in (nodes if only is None else only) if name not in closed]
            nodes = {name: nodes[name] for name in names if name in nodes}
            tagged = {name: tagged[name] for name in names if name in tagged}
        due = is_replacement_due(self._volume, view.settings, view.now_utc)
        usage = Usage.of(counted_replicas(view.replicas, ignore_failed=False, replacement_due=due), nodes)
        reopened = reopened_nodes(usage, nodes, affinity, view.settings, view.behaviour)
        for _, members in groups_of_nodes(nodes, tagged, usage, affinity, reopened):
            picks = self._picks(members)
            if picks:
                return picks
        return []

    def _only(self) -> Set[str] | None:
        """The nodes that are left by what binds the replica to some; None: nothing does."""
        affinity = self._replica.hard_node_affinity
        found: Set[str] | None = None
        for bound in (self._sources, self._joined.only, {affinity} if affinity else None):
            if bound is not None:
                found = bound if found is None else found & bound
        return found

    def _picks(self, nodes: Mapping[str, LonghornNode]) -> list[_Pick]:
        """The disks that take the replica, after the anti-affinity among all of them. Nodes are left out once one is
        found that is preferred to them."""
        near = {self._near: nodes[self._near]} if self._near in nodes else {}
        found = self._found(near)[0] if near else []
        if found:
            return found
        found, held = self._found(nodes)
        return found if found or not self._affinity.disk_soft else held

    def _found(self, nodes: Mapping[str, LonghornNode]) -> tuple[list[_Pick], list[_Pick]]:
        """Those, and nodes with disks that hold another replica of the volume."""
        by_the_rules = nodes.keys() if self._is_special else {name for name in self._with_own if name in nodes}
        found, held = list[_Pick](), list[_Pick]()
        for name in by_the_rules:
            pick = self._by_the_rules(nodes[name])
            clean = [slot for slot in pick.slots if slot.uuid not in self._holding]
            if len(clean) < len(pick.slots):
                held.append(pick)
                pick = _pick(name, clean)
            if pick.slots:
                found.append(pick)
        best = min(found, key=_rank, default=None)
        for rank in self._kind.ranked(nodes):
            if best is not None and _rank(best) < rank and self._is_sure(best):
                break
            if rank[1] in by_the_rules:
                continue
            pick = self._by_figures(self._kind.shelves[rank[1]])
            if pick.slots:
                found.append(pick)
                best = pick if best is None else min(best, pick, key=_rank)
        return found, held

    def _is_sure(self, best: _Pick) -> bool:
        """Whether it is preferred to every node with a lower rank."""
        return self._goes_by_rank and max(one.usable_bytes for one in best.slots) >= self._volume.size_bytes

    def _by_figures(self, shelf: _Shelf) -> _Pick:
        """Of a node without a replica of the volume."""
        size, required = self._volume.size_bytes, self._volume.actual_size_bytes
        name, even = shelf.room.name, self._even
        if even is None or name in self._loaded or name in even.barred:
            return self._beside_promises(shelf)
        load = even.load_bytes
        if load and not (shelf.is_plain and even.largest_bytes <= shelf.least_reach_bytes):
            return self._beside_promises(shelf)
        full = size + load
        if full > shelf.most_free_bytes:
            return _pick(name, ())
        if full <= shelf.least_free_bytes and required < shelf.least_written_limit_bytes:
            return shelf.whole
        slots = shelf.whole.slots
        return _pick(name, (one for one in slots if full <= one.free_bytes and required < one.written_limit_bytes))

    def _beside_promises(self, shelf: _Shelf) -> _Pick:
        size, required = self._volume.size_bytes, self._volume.actual_size_bytes
        slots, sums = [], self._joined.sums(shelf.room)
        for slot in shelf.whole.slots:
            known = sums[slot.place]
            more = known.promised_bytes + known.image_bytes
            if size <= slot.free_bytes - more and required < slot.written_limit_bytes:
                slots.append(slot)
        return _pick(shelf.whole.node, slots)

    def _by_the_rules(self, node: LonghornNode) -> _Pick:
        """Of a node with replicas of the volume, or for a volume that not every disk of its kind may take."""
        volume, view = self._volume, self._view
        disks = {disk.name: disk for disk in self._joined.joined(node).disks}
        slots = []
        shelf = self._kind.shelves.get(node.name)
        for slot in shelf.whole.slots if shelf is not None else ():
            disk = disks[slot.disk]
            if self._clones is not None and slot.uuid not in self._clones:
                continue
            scheduled = scheduled_for(disk, node.name, view.replicas, per_node=view.behaviour.counts_fresh_per_node)
            needs, sizes = self._kind.needs, (volume.size_bytes, volume.actual_size_bytes, scheduled)
            if check_disk_for(disk, needs, *sizes, self._space) is None:
                slots.append(slot)
        return _pick(node.name, slots)


def _preferred(picks: Sequence[_Pick], volume: Volume, view: PlacementView) -> Candidate | None:
    """As `controller.rules.preference.preferred`, of whole nodes."""
    if narrows_to_attach_node(volume, view.replicas, view.behaviour):
        picks = [pick for pick in picks if pick.node == volume.node_id] or picks
    if not picks:
        return None
    if not view.behaviour.picks_by_balance_score:
        rows = ((-slot.spare_bytes, pick.node, slot.disk, slot.uuid) for pick in picks for slot in pick.slots)
        return Candidate(*min(rows)[1:])
    chosen = min(picks, key=_rank)
    slot = max(chosen.slots, key=lambda one: one.usable_bytes)
    if slot.usable_bytes < volume.size_bytes:
        chosen = min(picks, key=lambda pick: pick.node)
        slot = chosen.slots[0]
    return Candidate(chosen.node, slot.disk, slot.uuid)


def _slots(node: LonghornNode, room: NodeRoom, needs: DiskNeeds, world: World) -> list[_Slot]:
    disks = {disk.name: disk for disk in node.disks}
    found = []
    for index, one in enumerate(room.disks):
        if check_disk_kind(one, needs, 0, world.settings.space) is None:
            spare = disks[one.name].available_bytes - disks[one.name].reserved_bytes
            usable = max(0, spare - (one.limit_bytes - one.free_bytes))
            found.append(_Slot(one.name, one.uuid, one.free_bytes, one.written_limit_bytes, usable, spare, index))
    return sorted(found)


def _pick(node: str, slots: Iterable[_Slot]) -> _Pick:
    slots = tuple(slots)
    return _Pick(node, slots, sum(slot.usable_bytes for slot in slots))


def _rank(pick: _Pick) -> _Rank:
    return -pick.total_bytes, pick.node


def _shelf(room: NodeRoom, slots: list[_Slot], needs: DiskNeeds, world: World) -> _Shelf:
    space, disks = world.settings.space, [room.disks[slot.place] for slot in slots]
    takes_plain = check_node_tags(room.tags, DEFAULT_NEEDS, space)
    if needs != DEFAULT_NEEDS:  # else all do, or they were not here
        takes_plain = takes_plain and all(check_disk_kind(disk, DEFAULT_NEEDS, 0, space) is None for disk in disks)
    whole = _pick(room.name, slots)
    return _Shelf(
        room,
        whole,
        _rank(whole),
        takes_plain,
        min(disk.reach_bytes for disk in disks),
        min(slot.free_bytes for slot in slots),
        max(slot.free_bytes for slot in slots),
        min(slot.written_limit_bytes for slot in slots),
    )
