"""A pod's own volumes on the disks of one node: whether they fit side by side, and whether they always do.

Longhorn picks a replica's disk itself, partly at random, and by figures that may not show yet what it has just placed.
The volumes *pack* when there is a disk for each; they are *robust* when every order in which Longhorn may place them,
and every choice of disks by figures of any age, leaves a disk for each. Both are searches with a bound, past which the
answer is the cautious one. What others are promised is not searched for (controller/allocator/judge/node.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final

from controller.allocator.judge.budget import Budget

PACK_STEPS: Final = 5_000
STRAND_STEPS: Final = 1_000
STEPS_A_LOOK: Final = 64  # steps between two looks at the clock


@dataclass(frozen=True, slots=True)
class Item:
    """One replica to place: its bytes, and the indices of the disks whose rules (room aside) it passes.

    `spare` are disks that hold another replica of the same volume: Longhorn takes one only when none of `disks` has
    room (soft disk anti-affinity).
    """

    size_bytes: int
    disks: tuple[int, ...]
    spare: tuple[int, ...] = ()

    @property
    def all_disks(self) -> tuple[int, ...]:
        return self.disks + self.spare if self.spare else self.disks


@dataclass(slots=True)
class Steps:
    """A limit of a search, by steps and by the time that the whole question has; `exhausted` says that it was reached,
    so that the outcome can be counted and named."""

    left: int
    budget: Budget | None = None
    exhausted: bool = field(default=False)

    def take(self) -> bool:
        if self.left <= 0 or (self.left % STEPS_A_LOOK == 0 and self.budget is not None and self.budget.is_spent()):
            self.exhausted = True
            return False
        self.left -= 1
        return True


# Packing


def pack(items: Sequence[Item], free: Sequence[int], steps: Steps) -> tuple[int, ...] | None:
    """A disk for every item so that no disk's `free` bytes are exceeded, in the items' order; None when there is none.

    Exact while `steps` lasts; after that None with `steps.exhausted`, which a caller must not read as "full".
    """
    if len(items) == 1:  # the usual pod
        item = items[0]
        best = max((disk for disk in item.disks if free[disk] >= item.size_bytes), key=free.__getitem__, default=None)
        if best is None and item.spare:
            return pack((Item(item.size_bytes, item.spare),), free, steps)
        return None if best is None else (best,)
    found = _pack_greedily(items, free)
    if found is not None:
        return found
    if not all(any(free[disk] >= item.size_bytes for disk in item.all_disks) for item in items):
        return None
    return _Packing(items, free, steps).solve()


def _pack_greedily(items: Sequence[Item], free: Sequence[int]) -> tuple[int, ...] | None:
    """Large items first, each on the disk that it fills best: nearly always a packing, where there is one."""
    left, placed = list(free), dict[int, int]()
    for index in sorted(range(len(items)), key=lambda number: -items[number].size_bytes):
        item = items[index]
        size = item.size_bytes
        best = min((disk for disk in item.all_disks if left[disk] >= size), key=left.__getitem__, default=None)
        if best is None:
            return None
        left[best] -= size
        placed[index] = best
    return tuple(placed[index] for index in range(len(items)))


class _Packing:
    """One search: large items first, the tightest disk first; whole branches that cannot hold the rest are cut."""

    def __init__(self, items: Sequence[Item], free: Sequence[int], steps: Steps) -> None:
        self._steps = steps
        self._order = sorted(
            range(len(items)), key=lambda index: (-items[index].size_bytes, len(items[index].all_disks), index)
        )
        self._items = [items[index] for index in self._order]
        self._left = list(free)
        self._placed: dict[int, int] = {}
        serves = [0] * len(free)  # by disk, the items that it serves, as bits: disks that serve the same are alike
        for number, item in enumerate(self._items):
            for disk in item.all_disks:
                serves[disk] |= 1 << number
        self._serves = serves
        self._used = [disk for disk, served in enumerate(serves) if served]
        self._rest = _sums_from(self._items)
        self._least = min(item.size_bytes for item in items)
        self._failed: set[tuple[int, tuple[int, ...]]] = set()

    def solve(self) -> tuple[int, ...] | None:
        if not self._place(0):
            return None
        found = {index: self._placed[number] for number, index in enumerate(self._order)}
        return tuple(found[index] for index in range(len(found)))

    def _place(self, number: int) -> bool:
        items, left = self._items, self._left
        if number == len(items):
            return True
        item = items[number]
        if not self._may_hold(number):
            return False
        state = (number, tuple(left))
        if state in self._failed:
            return False
        size = item.size_bytes
        tried: set[tuple[int, int]] = set()
        for disk in sorted(item.all_disks, key=left.__getitem__):
            room = left[disk]
            alike = (room, self._serves[disk] >> number)
            if room < size or alike in tried:
                continue
            tried.add(alike)
            if not self._steps.take():
                return False
            left[disk] = room - size
            self._placed[number] = disk
            if self._place(number + 1):
                return True
            left[disk] = room
            if self._steps.exhausted:
                return False
        self._failed.add(state)
        return False

    def _may_hold(self, number: int) -> bool:
        """Whether the bytes suffice; what is left of a disk below the smallest item is lost."""
        least, need, left = self._least, self._rest[number], self._left
        for disk in self._used:
            room = left[disk]
            if room >= least and self._serves[disk] >> number:
                need -= room
                if need <= 0:
                    return True
        return False


def _sums_from(items: Sequence[Item]) -> list[int]:
    """For each place in `items`, and the one past the end, the bytes of the items from there on."""
    return list(accumulate((item.size_bytes for item in reversed(items)), initial=0))[::-1]


# Wherever Longhorn puts them


def is_robust(items: Sequence[Item], free: Sequence[int], steps: Steps, others: Sequence[Item] = ()) -> bool:
    """Whether every order in which Longhorn may place `items`, and every disk that it may choose, places them all,
    whatever it places of `others` on the same disks meanwhile. A disk may end over its limit by a figure that was late;
    it then has no room for the rest.

    Exact while `steps` lasts; after that False with `steps.exhausted`.
    """
    if len(items) == 1 and not others:
        return pack(items, free, steps) is not None
    return not _Stranding(items, others, free, steps).may_strand()


class _Stranding:
    """One search for an order and choices that leave one of `items` without room. Equal items are one kind, and what is
    left to place is how many there are of each."""

    def __init__(self, items: Sequence[Item], others: Sequence[Item], free: Sequence[int], steps: Steps) -> None:
        counts = Counter([*((item, True) for item in items), *((item, False) for item in others)])
        self._kinds = list(counts)  # an item, and whether it has to find room
        self._counts = list(counts.values())
        self._free, self._left, self._steps = free, list(free), steps
        self._total = sum(item.size_bytes * count for (item, _), count in counts.items())
        self._seen: set[tuple[tuple[int, ...], tuple[int, ...]]] = set()

    def may_strand(self) -> bool:
        state = tuple(self._counts), tuple(self._left)
        if state in self._seen:
            return False
        self._seen.add(state)
        if all(
            self._is_safe(item) for (item, must), count in zip(self._kinds, self._counts, strict=True) if must and count
        ):
            return False
        for number, (item, must) in enumerate(self._kinds):
            if not self._counts[number]:
                continue
            if must and not self._has_room(item.all_disks, item.size_bytes):
                return True
            for disk in self._choices(item):
                if not self._steps.take():
                    return True
                self._move(number, disk, item.size_bytes)
                is_stranded = self.may_strand()
                self._move(number, disk, -item.size_bytes)
                if is_stranded:
                    return True
        return False

    def _has_room(self, disks: Sequence[int], size_bytes: int) -> bool:
        return any(self._left[disk] >= size_bytes for disk in disks)

    def _choices(self, item: Item) -> list[int]:
        """The disks among which Longhorn may choose, as long as it sees them as they were; spare ones are a last
        resort."""
        size, free = item.size_bytes, self._free
        disks = item.disks if self._has_room(item.disks, size) else item.all_disks
        return [disk for disk in disks if free[disk] >= size]

    def _is_safe(self, item: Item) -> bool:
        """Whether all the rest does not suffice to close the item's disks, in number or in bytes: a disk takes its
        room, less the item, plus one byte."""
        size, left, rest, count = item.size_bytes, self._left, self._total - item.size_bytes, sum(self._counts) - 1
        for disk in item.all_disks:
            if left[disk] >= size:
                rest, count = rest - (left[disk] - size + 1), count - 1
                if rest < 0 or count < 0:
                    return True
        return False

    def _move(self, number: int, disk: int, size_bytes: int) -> None:
        """One item of that kind to a disk; back from there if `size_bytes` is negative."""
        self._counts[number] -= 1 if size_bytes > 0 else -1
        self._left[disk] -= size_bytes
        self._total -= size_bytes
