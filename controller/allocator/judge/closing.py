"""Whether bytes that may come anywhere can leave a volume that roams without its sites: the closing-cost test.

A site (a zone or a node) is closed to a replica once none of its disks has room for it, which costs its free bytes less
the replica's size, and one more, for each disk. Whatever Longhorn does, it cannot close more sites than the pending
bytes pay for, the cheapest ones first.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple

from controller.allocator.judge.budget import Budget
from controller.allocator.judge.pending import Pending
from controller.allocator.promises.items import PendingItem, RoamingItem
from controller.allocator.world.world import World
from controller.model.longhorn import DiskNeeds


def most_closed(costs: Iterable[int], total_bytes: int) -> int:
    """How many sites of these costs so many bytes can close at most."""
    return bisect_right(list(accumulate(sorted(costs))), total_bytes)


class _Kind(NamedTuple):
    """What has the same sites, its size aside."""

    needs: DiskNeeds
    by_zone: bool


class Closing:
    """The test for everything that roams, the newcomer included. Once `budget` is spent, the answer is no."""

    def __init__(self, world: World, pending: Pending, own: Sequence[RoamingItem], budget: Budget) -> None:
        self._world, self._pending, self._budget = world, pending, budget
        self._items = [*pending.roaming(), *own]
        self._total = sum((one.item.size_bytes + pending.image_bytes(one.item)) * one.copies for one in self._items)
        self._places: dict[_Kind, list[tuple[str, list[int], int]]] = {}
        self._sums: dict[tuple[_Kind, int], list[int]] = {}  # sorted, summed up

    def spares_all(self) -> bool:
        """Whether as many sites are left to each volume as it has copies to place, or as it has sites at all."""
        kinds: dict[_Kind, list[RoamingItem]] = {}
        for entry in self._items:
            kinds.setdefault(_Kind(entry.item.needs, entry.by_zone), []).append(entry)
        return all(self._spares_largest(members) or all(map(self._spares, members)) for members in kinds.values())

    def _spares_largest(self, members: Sequence[RoamingItem]) -> bool:
        """Whether enough sites are left to all of them by what is left to the largest: smaller ones have the same
        sites, and more of them, which cost more to close."""
        largest = max(members, key=lambda entry: entry.item.size_bytes)
        sums = self._sums_of(largest)
        left = len(sums) - max(len(entry.barred) for entry in members) - bisect_right(sums, self._total)
        return left >= max(entry.copies for entry in members)

    def _spares(self, entry: RoamingItem) -> bool:
        if self._budget.is_spent():
            return False
        sums = self._sums_of(entry)
        closed = bisect_right(sums, self._total - entry.item.size_bytes * entry.copies)
        sites = len(sums) - len(entry.barred)
        return closed == 0 or sites - closed >= min(entry.copies, max(1, sites))

    def _sums_of(self, entry: RoamingItem) -> list[int]:
        kind, size = _Kind(entry.item.needs, entry.by_zone), entry.item.size_bytes
        found = self._sums.get((kind, size))
        if found is None:
            costs: dict[str, int] = {}
            for place, free, bound in self._places_of(kind, entry.item):
                cost = sum(most - size + 1 for most in free if most >= size) - bound
                if cost > 0:
                    costs[place] = costs.get(place, 0) + cost
            found = self._sums[kind, size] = list(accumulate(sorted(costs.values())))
        return found

    def _places_of(self, kind: _Kind, item: PendingItem) -> list[tuple[str, list[int], int]]:
        """For each node its site, the free bytes of the disks that suit, and what is bound to it."""
        found = self._places.get(kind)
        if found is None:
            found = self._places[kind] = []
            for name, node in self._world.nodes.items():
                if self._budget.is_spent():
                    break  # what was not looked at is no site, and the answer is no
                room = self._world.room(name)
                if room is not None and room.rejection is None:
                    free = [disk.free_bytes for disk in room.disks if self._pending.suits(room, disk, item)]
                    found.append((node.zone if kind.by_zone else name, free, self._pending.bound_bytes(name)))
        return found
