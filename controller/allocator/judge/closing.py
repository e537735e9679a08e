"""Whether bytes that may come anywhere can leave a volume that roams without its sites: the closing-cost test.

A site (a zone, a node, or a disk, as the volume's copies have to lie apart) is closed to a replica once none of its
disks has room for it, which costs its free bytes less the replica's size, and one more, for each disk. Whatever
Longhorn does, it cannot close more sites than the pending bytes pay for, the cheapest ones first. Bytes that are bound
to a node lower the costs there, down to nothing. Where several copies may share a disk, it has as many places as
replicas fit, and another replica takes as many of them as it is times as large, rounded up.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple

from controller.allocator.judge.budget import Budget
from controller.allocator.judge.pending import Pending
from controller.allocator.promises.items import PendingItem, RoamingItem
from controller.allocator.world.suitable import check_candidate, disks_for
from controller.allocator.world.world import World
from controller.model.longhorn import DiskNeeds


def most_closed(costs: Iterable[int], total_bytes: int) -> int:
    """How many sites of these costs so many bytes can close at most."""
    return bisect_right(list(accumulate(sorted(costs))), total_bytes)


def most_taken(size_bytes: int, others: Iterable[int]) -> int:
    """How many places for a replica of that size others of these sizes can take at most."""
    return sum(-(-other // size_bytes) for other in others) if size_bytes else 0


class _Kind(NamedTuple):
    """What has the same sites, its size aside."""

    needs: DiskNeeds
    required_bytes: int
    by_zone: bool
    shares_nodes: bool


class _Node(NamedTuple):
    name: str
    zone: str
    free: list[int]  # of each disk that suits


class Closing:
    """The test for everything that roams, the newcomer included. Once `budget` is spent, the answer is no."""

    def __init__(self, world: World, pending: Pending, own: Sequence[RoamingItem], budget: Budget) -> None:
        self._world, self._pending, self._budget = world, pending, budget
        self._items = [*pending.roaming(), *own]
        self._total = sum(self._bytes(one.item) * one.copies for one in self._items)
        self._nodes: dict[_Kind, list[_Node]] = {}
        self._sums: dict[tuple[_Kind, int], list[int]] = {}  # sorted, summed up

    def _bytes(self, item: PendingItem) -> int:
        return item.size_bytes + self._pending.image_bytes(item)

    def spares_all(self) -> bool:
        """Whether as many sites are left to each volume as it has copies to place, or as it has sites at all."""
        kinds: dict[_Kind, list[RoamingItem]] = {}
        for entry in self._items:
            if entry.per_disk > 1:
                if not self._spares_places(entry):
                    return False
            else:
                kinds.setdefault(_kind_of(entry), []).append(entry)
        return all(self._spares_largest(members) or all(map(self._spares, members)) for members in kinds.values())

    def _spares_largest(self, members: Sequence[RoamingItem]) -> bool:
        """Whether enough sites are left to all of them by what is left to the largest: smaller ones have the same
        sites, and more of them, which cost more to close."""
        largest = max(members, key=lambda entry: entry.item.size_bytes)
        sums = self._sums_of(largest)
        left = len(sums) - max(map(self._barred_sites, members)) - bisect_right(sums, self._total)
        return left >= max(entry.copies for entry in members)

    def _spares(self, entry: RoamingItem) -> bool:
        if self._budget.is_spent():
            return False
        sums = self._sums_of(entry)
        closed = bisect_right(sums, self._total - entry.item.size_bytes * entry.copies)
        sites = len(sums) - self._barred_sites(entry)
        return closed == 0 or sites - closed >= min(entry.copies, max(1, sites))

    def _barred_sites(self, entry: RoamingItem) -> int:
        """No less than the sites that are on nodes where it may not lie."""
        if not entry.shares_nodes:
            return len(entry.barred)
        rooms = (self._world.room(name) for name in entry.barred)
        return sum(len(room.disks) for room in rooms if room is not None)

    def _spares_places(self, entry: RoamingItem) -> bool:
        """The same where several copies may share a disk."""
        size, places, taken = entry.item.size_bytes, 0, 0
        for node in self._nodes_of(_kind_of(entry), entry.item):
            if node.name not in entry.barred and size:
                here = sum(most // size for most in node.free if most >= size)
                bound = most_taken(size, map(self._bytes, self._pending.bound_to(node.name)))
                places, taken = places + here, taken + min(here, bound)
        others = (self._bytes(one.item) for one in self._items if one is not entry for _ in range(one.copies))
        taken += most_taken(size, others)
        return places - taken >= min(entry.copies, max(1, places)) and not self._budget.is_over

    def _sums_of(self, entry: RoamingItem) -> list[int]:
        kind, size = _kind_of(entry), entry.item.size_bytes
        found = self._sums.get((kind, size))
        if found is None:
            costs: list[int] = []
            by_place: dict[str, int] = {}
            for node in self._nodes_of(kind, entry.item):
                here = sorted(most - size + 1 for most in node.free if most >= size)
                bound = self._pending.bound_bytes(node.name)
                if kind.shares_nodes:
                    closed = most_closed(here, bound)
                    costs += [0] * closed + here[closed:]
                elif here:
                    place = node.zone if kind.by_zone else node.name
                    by_place[place] = by_place.get(place, 0) + max(0, sum(here) - bound)
            found = self._sums[kind, size] = list(accumulate(sorted([*costs, *by_place.values()])))
        return found

    def _nodes_of(self, kind: _Kind, item: PendingItem) -> list[_Node]:
        found = self._nodes.get(kind)
        if found is None:
            found = self._nodes[kind] = []
            for name, node in self._world.nodes.items():
                if self._budget.is_spent():
                    break  # what was not looked at is no site, and the answer is no
                room = self._world.room(name)
                if room is None or check_candidate(self._world, name, kind.needs) is not None:
                    continue
                able = disks_for(self._world, room, kind.needs, item.size_bytes, kind.required_bytes)
                found.append(_Node(name, node.zone, [room.disks[index].free_bytes for index in able]))
        return found


def _kind_of(entry: RoamingItem) -> _Kind:
    return _Kind(entry.item.needs, entry.item.required_bytes, entry.by_zone, entry.shares_nodes)
