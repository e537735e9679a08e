"""The one function that places: it finds the disk for a replica among thousands while the allocator's lock is held.

Candidates and their order are Longhorn's own: it tries one group of nodes after the other, and the first group with a
disk that takes the replica decides. Bytes of a disk are free that neither an object shows as used nor anybody is
promised. Within the deciding group the replica goes where Longhorn prefers it, so that replicas spread; once even that
disk is nearly full, it goes to the disk that it fills best, so that large replicas find room as well.

Nodes are visited in the order of the most that may be usable there, until no further one can be preferred, or enough
were compared; so few disks are asked for what is promised there. Reasons are left to `explain`, at a far higher price.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Final, NamedTuple

from controller.allocator.choose.shelves import Rank, Shelf, Shelves, SuitableDisk
from controller.allocator.choose.wanted import Taken, Wanted, asked_of, image_bytes, view_of
from controller.allocator.world.world import World
from controller.model.longhorn import LonghornNode
from controller.model.places import Place
from controller.rules.affinity import Affinity, Try, Usage, disks_with_replicas, groups_of_nodes
from controller.rules.candidates import PlacementView, check_search, needs_of, reopened_nodes, sources_of
from controller.rules.eligibility import unlisted_bytes
from controller.rules.preference import narrows_to_attach_node

PACKED_FROM_PCT: Final = 85  # of the preferred disk's limit in use or taken
MOST_LOOKS: Final = 64  # nodes, or disks, that take the replica, and are compared because of what is taken there


@dataclass(frozen=True, slots=True)
class Chosen:
    """The place of a replica, its disk's name, and the group of nodes that decided (`tried`); None and "" where no disk
    takes the replica."""

    place: Place | None = None
    disk: str = ""
    tried: Try | None = None


class _Fit(NamedTuple):
    """A disk that takes the replica. `free_bytes` are neither in use nor taken; `need_bytes` include the `image_bytes`
    of a backing image that comes along."""

    disk: SuitableDisk
    free_bytes: int
    image_bytes: int
    need_bytes: int

    @property
    def usable_bytes(self) -> int:
        """The bytes that Longhorn's balancing compares, with what is taken counted as in use."""
        return max(0, self.disk.beyond_bytes + self.free_bytes)

    @property
    def spare_bytes(self) -> int:
        """The bytes that older releases compare: they ignore what is scheduled. What is taken counts: it will come."""
        return self.disk.beyond_bytes + self.disk.limit_bytes - self.disk.free_bytes + self.free_bytes

    @property
    def is_nearly_full(self) -> bool:
        return (self.disk.limit_bytes - self.free_bytes) * 100 >= PACKED_FROM_PCT * self.disk.limit_bytes


class Chooser:
    """Chooses disks for replicas. Threads: none of its own; the allocator's lock guards it."""

    def __init__(self, world: World) -> None:
        self._world, self._shelves = world, Shelves(world)

    def renew(self) -> bool:
        """Bring up to date what is remembered of some nodes, for one kind of need, so that no question has to; return
        whether anything was out of date. Costs: a look at fifty nodes at most."""
        return self._shelves.renew()

    def choose(self, wanted: Wanted, taken: Taken, now_utc: datetime | None = None) -> Chosen:
        """Return the disk for the wanted replica beside what is `taken`. `now_utc`: as for `PlacementView`.

        Costs: a look at each node that changed since the last call; a short step for each that suits; and longer ones
        until some disks are found that take it."""
        view = view_of(self._world, wanted, now_utc)
        asked = asked_of(view, wanted)
        if check_search(wanted.volume, asked, view.backing_image) is not None:
            return Chosen()
        shelf = self._shelves.of(needs_of(wanted.volume, asked, view.backing_image))
        search = _Search(self._world, shelf, view, wanted, taken)
        for tried, nodes in search.groups():
            best = search.best_of(nodes)
            if best is not None:
                place = Place(best.disk.node, best.disk.uuid, wanted.volume.size_bytes + best.image_bytes)
                return Chosen(place, best.disk.disk, tried)
        return Chosen()

    def nearest(self, wanted: Wanted, most: int, besides: Set[str]) -> list[str]:
        """Return so many nodes `besides` those that come nearest to taking the replica, those with most room first.
        Costs: as `choose`, which has found none; a look at each node with a suitable disk."""
        view = view_of(self._world, wanted, None)
        shelf = self._shelves.of(needs_of(wanted.volume, asked_of(view, wanted), view.backing_image))
        ranked = [rank[2] for rank in shelf.ranks]
        for names in ([name for name in ranked if name in shelf.tagged], ranked, sorted(shelf.nodes)):
            found = [name for name in names if name not in besides]
            if found:
                return found[:most]
        return sorted(self._world.nodes.keys() - besides)[:most]


class _Search:
    """Longhorn's tries, group after group of nodes, for one replica."""

    def __init__(self, world: World, shelf: Shelf, view: PlacementView, wanted: Wanted, taken: Taken) -> None:
        self._world, self._shelf, self._view, self._wanted, self._taken = world, shelf, view, wanted, taken
        self._size, self._required = wanted.volume.size_bytes, wanted.volume.actual_size_bytes
        self._asked = asked_of(view, wanted)
        self._affinity = Affinity.of(wanted.volume, view.settings)
        self._holding = disks_with_replicas(view.replicas, ignore_failed=False)
        sources = sources_of(view, wanted.volume, self._asked)
        self._source_nodes = None if sources is None else {source.node for source in sources}
        self._source_disks = None if sources is None else {source.disk_uuid for source in sources}
        is_narrowed = narrows_to_attach_node(wanted.volume, view.replicas, view.behaviour)
        self._near = wanted.volume.node_id if is_narrowed else ""
        self._own_nodes = {one.node for one in view.replicas} if view.behaviour.counts_fresh_per_node else set[str]()
        self._holding_nodes = {name for uuid in self._holding for name in world.nodes_of_disk(uuid)}
        self._balances = view.behaviour.picks_by_balance_score

    def groups(self) -> Iterable[tuple[Try, Mapping[str, LonghornNode]]]:
        """The tries in their order, each with its nodes, whether they may be chosen or not."""
        view, volume = self._view, self._wanted.volume
        nodes, tagged = self._allowed(self._shelf.nodes), self._allowed(self._shelf.tagged)
        usage = Usage.of(volume, view.replicas, nodes, view.settings, view.now_utc)
        reopened = reopened_nodes(usage, nodes, self._affinity, view.settings)
        return groups_of_nodes(nodes, tagged, usage, self._affinity, reopened)

    def _allowed(self, nodes: dict[str, LonghornNode]) -> dict[str, LonghornNode]:
        """Those of the nodes to which a linked clone's sources and a hard node affinity bind the replica."""
        hard = self._asked.hard_node_affinity
        for bound in (self._source_nodes, {hard} if hard else None):
            if bound is not None:
                nodes = {name: nodes[name] for name in bound if name in nodes}
        return nodes

    def best_of(self, nodes: Mapping[str, LonghornNode]) -> _Fit | None:
        """The best disk of one try's nodes; one on the attach node comes before all others."""
        only = self._wanted.only
        names: Set[str] = nodes.keys() if only is None else only & nodes.keys()
        near = names & {self._near} if self._near else frozenset[str]()
        clean = self._best(near, is_clean=True) or self._best(names, is_clean=True)
        return clean or self._best_with_copy(near) or self._best_with_copy(names)

    def _best_with_copy(self, names: Set[str]) -> _Fit | None:
        """The best of the disks that hold a copy of the volume already: they serve where no other disk does."""
        names = names & self._holding_nodes if self._affinity.disk_soft else frozenset[str]()
        return self._best(names, is_clean=False)

    def _best(self, names: Set[str], *, is_clean: bool) -> _Fit | None:
        """The best disk of those nodes: of the disks without a copy of the volume if `is_clean`, else of the others."""
        best, best_rank, looks = list[_Fit](), None, 0
        for most in self._shelf.ranked(names):
            if best_rank is not None and self._balances and (best_rank < most or looks >= MOST_LOOKS):
                break
            fits = self._fits(self._shelf.disks[most[2]], is_clean)
            looks += bool(fits)
            rank = self._rank(fits) if fits else None
            if rank is not None and (best_rank is None or rank < best_rank):
                best, best_rank = fits, rank
        preferred = max(best, key=self._score, default=None)
        return self._tightest(names, is_clean) if preferred is not None and preferred.is_nearly_full else preferred

    def _tightest(self, names: Set[str], is_clean: bool) -> _Fit:
        """The disk that has the fewest bytes left beside the replica. At least one takes it."""
        fits = (fit for disk in self._shelf.with_free(names, self._size) for fit in self._fits((disk,), is_clean))
        found = ((fit.free_bytes - fit.need_bytes, fit.disk.node, fit.disk.disk, fit) for fit in fits)
        return min(islice(found, MOST_LOOKS))[-1]

    def _rank(self, fits: list[_Fit]) -> Rank:
        """The rank of a node with those disks, as Longhorn prefers nodes. Of equal ones Longhorn takes any; here the
        most free bytes decide."""
        name = fits[0].disk.node
        if not self._balances:
            return -max(fit.spare_bytes for fit in fits), 0, name
        usable = free = 0
        for fit in fits:
            usable += fit.usable_bytes
            free += fit.free_bytes
        return -usable, -free, name

    def _score(self, fit: _Fit) -> tuple[int, int]:
        """The disk's score among the disks of its node, as Longhorn prefers them: the highest wins."""
        return (fit.usable_bytes, fit.free_bytes) if self._balances else (fit.spare_bytes, 0)

    def _fits(self, disks: Iterable[SuitableDisk], is_clean: bool) -> list[_Fit]:
        """The disks that take the replica beside what is taken; `is_clean` as for `_best`."""
        found, size, image, more = list[_Fit](), self._size, self._view.backing_image, 0
        for disk in disks:
            if size > disk.free_bytes or self._required >= disk.written_limit_bytes or size >= disk.most_bytes:
                continue
            if (disk.uuid in self._holding) is is_clean:
                continue
            if self._source_disks is not None and disk.uuid not in self._source_disks:
                continue
            if image is not None:
                more = image_bytes(self._world, image, self._wanted.planned, disk.uuid)
            need = size + more + (self._fresh_bytes(disk) if disk.node in self._own_nodes else 0)
            free = disk.free_bytes - self._taken.taken_bytes(disk.node, disk.uuid)
            if need <= free:
                found.append(_Fit(disk, free, more, need))
        return found

    def _fresh_bytes(self, disk: SuitableDisk) -> int:
        """The bytes that older releases count on the disk although they lie on the node's other ones: those of the
        volume's replicas that this disk's figures do not list."""
        known = next(one for one in self._view.nodes[disk.node].disks if one.name == disk.disk)
        own = (one for one in self._view.replicas if one.node == disk.node and one.disk_uuid != disk.uuid)
        return unlisted_bytes(known, own)
