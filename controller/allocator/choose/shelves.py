"""Which nodes and disks suit a kind of need: remembered, and looked at again only where something changed.

Room, affinity and what is taken are left to the caller, so that a question about thousands of disks reads only a few
numbers of each.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Hashable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NamedTuple

from controller.allocator.world.world import World
from controller.model.longhorn import DiskNeeds, LonghornNode, LonghornSettings
from controller.rules.eligibility import (
    check_disk_kind,
    check_node_for,
    check_node_tags,
    file_system_limit,
)

_MOST_KINDS: Final = 16  # of needs that are remembered
_AT_ONCE: Final = 50  # nodes, before others are let in
_SORTED_AT: Final = 16  # times as many nodes: a few are sorted faster than found among the others
_NO_LIMIT: Final = 2**63
Rank = tuple[int, int, str]  # of a node among others, with its name last; the preferred node has the lowest rank


class SuitableDisk(NamedTuple):
    """A disk that suits, room aside; the figures are those of `DiskRoom`. Volumes have to stay below `most_bytes`."""

    node: str
    disk: str
    uuid: str
    limit_bytes: int
    free_bytes: int
    written_limit_bytes: int
    beyond_bytes: int
    most_bytes: int


@dataclass(slots=True)
class Shelf:
    """The `nodes` that suit a kind of need, replicas, tags and disks aside; those whose tags match; and their disks.
    `ranks`: the nodes with disks by the highest rank that they may have, if nothing is taken there and each disk takes
    the replica, sorted. `by_free`: free bytes, node and index of each disk, sorted. `stale`: nodes to look at again."""

    needs: DiskNeeds
    nodes: dict[str, LonghornNode] = field(default_factory=dict)
    tagged: dict[str, LonghornNode] = field(default_factory=dict)
    disks: dict[str, tuple[SuitableDisk, ...]] = field(default_factory=dict)  # no node without one
    ranks: list[Rank] = field(default_factory=list)
    by_free: list[tuple[int, str, int]] = field(default_factory=list)
    stale: set[str] = field(default_factory=set)

    def renew(self, world: World, most: int | None = None) -> None:
        """Look again at `most` of the stale nodes. For many of them the lists are sorted anew, once."""
        kinds: dict[Hashable, int] = {}
        names = list(islice(self.stale, most))
        are_many = len(names) * _SORTED_AT > len(self.ranks)
        for name in names:
            self._take_out(name, are_sorted=not are_many)
            node, space = world.nodes.get(name), world.settings.space
            if node is None:
                continue
            kube_nodes = world.kube_nodes or None
            if check_node_for(node, self.needs, space, engines=world.engines, kube_nodes=kube_nodes, with_tags=False):
                continue
            self.nodes[name] = node
            if check_node_tags(node.tags, self.needs, space):
                self.tagged[name] = node
            disks = _suitable(world, node, self.needs, kinds)
            if disks:
                self.disks[name] = disks
                if not are_many:
                    insort(self.ranks, _rank(name, disks))
                    for place, disk in enumerate(disks):
                        insort(self.by_free, (disk.free_bytes, name, place))
        if are_many:
            of = self.disks.items()
            self.ranks = sorted(_rank(name, disks) for name, disks in of)
            self.by_free = sorted(
                (disk.free_bytes, name, place) for name, disks in of for place, disk in enumerate(disks)
            )
        self.stale.difference_update(names)

    def _take_out(self, name: str, *, are_sorted: bool) -> None:
        self.nodes.pop(name, None)
        self.tagged.pop(name, None)
        disks = self.disks.pop(name, None)
        if disks is not None and are_sorted:
            del self.ranks[bisect_left(self.ranks, _rank(name, disks))]
            for place, disk in enumerate(disks):
                del self.by_free[bisect_left(self.by_free, (disk.free_bytes, name, place))]

    def ranked(self, names: Collection[str]) -> Iterator[Rank]:
        """The ranks of the nodes in `names`, sorted."""
        if len(names) * _SORTED_AT < len(self.ranks):
            return iter(sorted(_rank(name, self.disks[name]) for name in names if name in self.disks))
        return (rank for rank in self.ranks if rank[2] in names)

    def with_free(self, names: Collection[str], least_bytes: int) -> Iterator[SuitableDisk]:
        """Yield the disks of the nodes in `names` with at least so many bytes free, the fullest first."""
        if len(names) * _SORTED_AT < len(self.disks):
            few = (disk for name in names for disk in self.disks.get(name, ()) if disk.free_bytes >= least_bytes)
            yield from sorted(few, key=lambda disk: disk.free_bytes)
            return
        for index in range(bisect_left(self.by_free, (least_bytes, "", 0)), len(self.by_free)):
            _, name, place = self.by_free[index]
            if name in names:
                yield self.disks[name][place]


class Shelves:
    """The shelves of the kinds of need that were asked for lately.

    Threads: none of its own; the allocator's lock guards it.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._shelves: dict[DiskNeeds, Shelf] = {}  # the one that was asked for last comes last
        self._basis: tuple[LonghornSettings, bool, bool] | None = None  # what all were worked out with
        self._renewed = world.listen_to_rooms()

    def renew(self) -> bool:
        """Look again at some stale nodes of one shelf, so that no question has to; return whether there were any."""
        self._follow()
        stale = next((shelf for shelf in self._shelves.values() if shelf.stale), None)
        if stale is not None:
            stale.renew(self._world, _AT_ONCE)
        return stale is not None

    def of(self, needs: DiskNeeds) -> Shelf:
        """Return the shelf for those needs, up to date. Costs: a look at each node that changed since the last call,
        and at all nodes for needs that were not asked for lately."""
        self._follow()
        world = self._world
        shelf = self._shelves.pop(needs, None)
        if shelf is None:
            shelf = Shelf(needs, stale=set(world.nodes))
            if len(self._shelves) >= _MOST_KINDS:
                del self._shelves[next(iter(self._shelves))]
        self._shelves[needs] = shelf
        if shelf.stale:
            shelf.renew(world)
        return shelf

    def _follow(self) -> None:
        world = self._world
        world.refresh()
        basis = world.settings, world.engines.images is None, world.engines.managers is None
        if basis != self._basis:
            self._basis = basis
            self._shelves.clear()
        for known in self._shelves.values():
            known.stale |= self._renewed
        self._renewed.clear()


def _rank(name: str, disks: tuple[SuitableDisk, ...]) -> Rank:
    usable = sum(max(0, disk.beyond_bytes + disk.free_bytes) for disk in disks)
    return -usable, -sum(max(0, disk.free_bytes) for disk in disks), name


def _suitable(
    world: World, node: LonghornNode, needs: DiskNeeds, kinds: dict[Hashable, int]
) -> tuple[SuitableDisk, ...]:
    """The node's disks that suit those needs. `kinds` remembers below how many bytes volumes have to stay on a kind of
    disk, 0 if it does not suit: most disks are alike."""
    name, room, found = node.name, world.room(node.name), list[SuitableDisk]()
    for one in room.disks if room is not None else ():
        most = kinds.get(one.kind, -1)
        if most < 0:
            suits = check_disk_kind(one, needs, 0, world.settings.space) is None
            most = kinds[one.kind] = (file_system_limit(needs.data_engine, one.filesystem) or _NO_LIMIT) if suits else 0
        if most:
            figures = one.limit_bytes, one.free_bytes, one.written_limit_bytes, one.beyond_bytes, most
            found.append(SuitableDisk(name, one.name, one.uuid, *figures))
    return tuple(sorted(found))
