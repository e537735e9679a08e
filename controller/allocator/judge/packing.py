"""Exact packing: volumes to disks, and what pending promises of others may still take away.

Longhorn picks a replica's disk itself and partly at random, so a promise names a node, never a disk. A demand is
*sure* on a node when, wherever Longhorn puts everything that is pending there, in whatever order, the demand still
fits. That is a covering problem; cheap tests settle nearly all of it, a bounded search the rest, and past the bound
the answer is the careful one. A pod is *robust* on a node when each of its own volumes is sure against all the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final

from controller.allocator.judge.budget import Budget

PACK_STEPS: Final = 5_000
COVER_STEPS: Final = 1_000
_LOOK: Final = 64  # steps between two looks at the clock
MOST_PENDING: Final = 256  # items of others that a search goes through, one level of calls each


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
    """A bound on a search, by steps and by the time that the whole question has; `exhausted` says that it was hit, so
    that the outcome can be counted and named."""

    left: int
    budget: Budget | None = None
    exhausted: bool = field(default=False)

    def take(self) -> bool:
        if self.left <= 0 or (self.left % _LOOK == 0 and self.budget is not None and self.budget.is_spent()):
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


# What others may take


def is_sure(items: Sequence[Item], pending: Sequence[Item], free: Sequence[int], steps: Steps) -> bool:
    """Whether `items` pack after every legal placement of `pending`, each pending item on a disk with room at its turn.

    Never a wrong yes: past the bound the answer is no, with `steps.exhausted`.
    """
    if not pending:
        return pack(items, free, steps) is not None
    if survives_total(items, sum(item.size_bytes for item in pending), free):
        return True
    touching = _touching(items, pending, free)
    if closing_cost(items, free) > sum(item.size_bytes for item in touching):
        return True
    touching.sort(key=lambda item: -item.size_bytes)
    if _blocks_at_once(items, touching, free):
        return False
    if len(touching) > MOST_PENDING:
        steps.exhausted = True
        return False
    return not _can_block(items, touching, _sums_from(touching), 0, list(free), steps, set())


def _sums_from(items: Sequence[Item]) -> list[int]:
    """For each place in `items`, and the one past the end, the bytes of the items from there on."""
    return list(accumulate((item.size_bytes for item in reversed(items)), initial=0))[::-1]


def _blocks_at_once(items: Sequence[Item], pending: Sequence[Item], free: Sequence[int]) -> bool:
    """Whether the plainest placement of `pending` (largest first) leaves no packing: every disk that could serve the
    largest item is closed to it in turn, the cheapest first, by the largest pending items that still fit there."""
    largest = max(items, key=lambda item: item.size_bytes)
    size = largest.size_bytes
    left = list(pending)
    for disk in sorted((disk for disk in largest.all_disks if free[disk] >= size), key=free.__getitem__):
        room = free[disk]
        for item in list(left):
            if room < size:
                break
            if item.size_bytes <= room and disk in item.disks:
                room -= item.size_bytes
                left.remove(item)
        if room >= size:
            return False
    return True


def _touching(items: Sequence[Item], pending: Sequence[Item], free: Sequence[int]) -> list[Item]:
    """The pending items that can come upon a disk of `items` at all, on those disks alone: elsewhere they harm none."""
    least = min(item.size_bytes for item in items)
    open_disks = {disk for item in items for disk in item.all_disks if free[disk] >= least}
    found = []
    for item in pending:
        disks = tuple(disk for disk in item.all_disks if disk in open_disks and free[disk] >= item.size_bytes)
        if disks:
            found.append(Item(item.size_bytes, disks))
    return found


def survives_total(items: Sequence[Item], total_bytes: int, free: Sequence[int]) -> bool:
    """A cheap sufficient test: the items pack even if every single disk lost all of `total_bytes`."""
    return pack(items, [room - total_bytes for room in free], Steps(64)) is not None


def closing_cost(items: Sequence[Item], free: Sequence[int]) -> int:
    """Bytes it takes at least to close every disk to one of the items; 0 for several items, where it says nothing."""
    if len(items) != 1:
        return 0
    size = items[0].size_bytes
    return sum(free[disk] - size + 1 for disk in items[0].all_disks if free[disk] >= size)


def _can_block(
    items: Sequence[Item],
    pending: Sequence[Item],
    suffix: Sequence[int],
    depth: int,
    left: list[int],
    steps: Steps,
    seen: set[tuple[int, tuple[int, ...]]],
) -> bool:
    """Whether some placement of `pending[depth:]` leaves no packing. Skipping an item is allowed: it stands for an
    item that found no room, or whose promise was withdrawn; fewer items never hurt, so this adds no wrong "yes"."""
    if pack(items, left, steps) is None:
        return True
    if depth == len(pending) or closing_cost(items, left) > suffix[depth] or survives_total(items, suffix[depth], left):
        return False
    state = (depth, tuple(left))
    if state in seen:
        return False
    seen.add(state)
    item = pending[depth]
    for disk in item.disks:
        if left[disk] < item.size_bytes:
            continue
        if not steps.take():
            return True
        left[disk] -= item.size_bytes
        blocked = _can_block(items, pending, suffix, depth + 1, left, steps, seen)
        left[disk] += item.size_bytes
        if blocked:
            return True
    return _can_block(items, pending, suffix, depth + 1, left, steps, seen)


# Within one pod


def is_robust(items: Sequence[Item], free: Sequence[int], steps: Steps, others: Sequence[Item] = ()) -> bool:
    """Whether every order in which Longhorn may place `items`, and every disk that it may choose, places them all,
    with or without `others` on the same disks.

    Exact while `steps` lasts; after that False with `steps.exhausted`.
    """
    if len(items) == 1 and not others:
        return pack(items, free, steps) is not None
    if not others and any(item.spare for item in items):
        return not _may_strand(tuple(range(len(items))), items, list(free), steps, set())
    done: set[Item] = set()
    for number, item in enumerate(items):
        if item not in done:  # equal items meet the same others
            done.add(item)
            if not is_sure((item,), [*items[:number], *items[number + 1 :], *others], free, steps):
                return False
    return True


def _may_strand(
    remaining: tuple[int, ...],
    items: Sequence[Item],
    left: list[int],
    steps: Steps,
    seen: set[tuple[tuple[int, ...], tuple[int, ...]]],
) -> bool:
    """Whether some order and choice from here on leaves an item without room; spare disks serve as a last resort."""
    state = (remaining, tuple(left))
    if state in seen:
        return False
    seen.add(state)
    for index in remaining:
        item = items[index]
        size = item.size_bytes
        choices = [disk for disk in item.disks if left[disk] >= size]
        choices = choices or [disk for disk in item.spare if left[disk] >= size]
        if not choices:
            return True
        after = tuple(entry for entry in remaining if entry != index)
        for disk in choices:
            if not steps.take():
                return True
            left[disk] -= size
            is_stranded = _may_strand(after, items, left, steps, seen)
            left[disk] += size
            if is_stranded:
                return True
    return False
