"""Exact packing: volumes to disks, and what pending promises of others may still take away.

Longhorn picks a replica's disk itself and partly at random, so a promise names a node, never a disk. A demand is
*sure* on a node when, wherever Longhorn puts everything that is pending there, in whatever order, the demand still
fits. That is a covering problem; cheap tests settle nearly all of it, a bounded search the rest, and past the bound
the answer is the careful one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

PACK_STEPS: Final = 20_000
COVER_STEPS: Final = 2_000


@dataclass(frozen=True, slots=True)
class Item:
    """One replica to place: its bytes, and the indices of the disks whose rules (room aside) it passes."""

    size_bytes: int
    disks: tuple[int, ...]


@dataclass(slots=True)
class Steps:
    """A bound on a search; `exhausted` says that it was hit, so that the outcome can be counted and named."""

    left: int
    exhausted: bool = field(default=False)

    def take(self) -> bool:
        if self.left <= 0:
            self.exhausted = True
            return False
        self.left -= 1
        return True


def pack(items: Sequence[Item], free: Sequence[int], steps: Steps) -> tuple[int, ...] | None:
    """A disk for every item so that no disk's `free` bytes are exceeded, in the items' order; None when there is none.

    Exact while `steps` lasts; after that None with `steps.exhausted`, which a caller must not read as "full".
    """
    if len(items) == 1:  # the usual pod
        item = items[0]
        best = max((disk for disk in item.disks if free[disk] >= item.size_bytes), key=free.__getitem__, default=None)
        return None if best is None else (best,)
    order = sorted(range(len(items)), key=lambda index: (-items[index].size_bytes, len(items[index].disks)))
    left = list(free)
    placed = [-1] * len(items)
    if not _place(order, 0, items, left, placed, steps):
        return None
    return tuple(placed)


def _place(
    order: Sequence[int], depth: int, items: Sequence[Item], left: list[int], placed: list[int], steps: Steps
) -> bool:
    if depth == len(order):
        return True
    index = order[depth]
    item = items[index]
    first = 0
    if depth and items[order[depth - 1]] == item:
        first = placed[order[depth - 1]]  # equal items go to disks in ascending order: their permutations are one case
    for disk in sorted(item.disks, key=left.__getitem__):
        if disk < first or left[disk] < item.size_bytes:
            continue
        if not steps.take():
            return False
        left[disk] -= item.size_bytes
        placed[index] = disk
        if _place(order, depth + 1, items, left, placed, steps):
            return True
        left[disk] += item.size_bytes
    placed[index] = -1
    return False


def is_sure(items: Sequence[Item], pending: Sequence[Item], free: Sequence[int], steps: Steps) -> bool:
    """Whether `items` pack after every legal placement of `pending`, each pending item on a disk with room at its turn.

    Never a wrong yes: past the bound the answer is no, with `steps.exhausted`.
    """
    if survives_total(items, sum(item.size_bytes for item in pending), free):
        return True
    touching = [item for item in pending if any(free[disk] >= item.size_bytes for disk in item.disks)]
    if closing_cost(items, free) > sum(item.size_bytes for item in touching):
        return True
    touching.sort(key=lambda item: -item.size_bytes)
    suffix = [0] * (len(touching) + 1)
    for index in range(len(touching) - 1, -1, -1):
        suffix[index] = suffix[index + 1] + touching[index].size_bytes
    return not _can_block(items, touching, suffix, 0, list(free), steps, set())


def survives_total(items: Sequence[Item], total_bytes: int, free: Sequence[int]) -> bool:
    """A cheap sufficient test: the items pack even if every single disk lost all of `total_bytes`."""
    return pack(items, [room - total_bytes for room in free], Steps(64)) is not None


def closing_cost(items: Sequence[Item], free: Sequence[int]) -> int:
    """Bytes it takes at least to close every disk to a single item; 0 for several items, where it says nothing."""
    if len(items) != 1:
        return 0
    size = items[0].size_bytes
    return sum(free[disk] - size + 1 for disk in items[0].disks if free[disk] >= size)


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
    if depth == len(pending) or survives_total(items, suffix[depth], left):
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
