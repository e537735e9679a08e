"""A disk of one node for each of a pod's volumes: a bounded search, past which the answer is the cautious one.

Backing images come along with the first copy that lies on a disk without them. On a node with ample room each volume
goes to the disk with most room, as Longhorn prefers it; where that finds nothing, and near full, to the one that it
fills best.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final

from controller.clock import Clock

PACK_STEPS: Final = 5_000
STEPS_A_LOOK: Final = 64  # steps between two looks at the clock
AMPLE_PCT: Final = 85  # of the disks' limits in use once all volumes lie there, at most
_NO_IMAGE: Final[Mapping[int, int]] = {}
_Image = tuple[int, str]  # a disk, and the image that comes to it


@dataclass(frozen=True, slots=True)
class Item:
    """One copy to place: its bytes, and the indices of the disks whose rules, room aside, it passes. `spare` are disks
    that hold another copy of the same volume, and serve only when none of `disks` has room. `image_bytes`: of the
    `image`, by the disks that have none."""

    size_bytes: int
    disks: tuple[int, ...]
    spare: tuple[int, ...] = ()
    image: str = ""
    image_bytes: Mapping[int, int] = field(default_factory=lambda: _NO_IMAGE, hash=False)

    @property
    def all_disks(self) -> tuple[int, ...]:
        return self.disks + self.spare if self.spare else self.disks


@dataclass(slots=True)
class Budget:
    """Says when a call's time is up. Without a clock: never.

    `is_spent` stays true once it is: a search that stopped early must not go on later.
    """

    clock: Clock | None = None
    end: float = math.inf
    is_over: bool = False

    @classmethod
    def of(cls, clock: Clock, milliseconds: float) -> Budget:
        return cls(clock, clock.now() + milliseconds / 1000)

    def is_spent(self) -> bool:
        if not self.is_over and self.clock is not None:
            self.is_over = self.clock.now() > self.end
        return self.is_over


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


@dataclass(frozen=True, slots=True)
class Packed:
    """A disk's index for each item, in their order, and the bytes that it takes there."""

    disks: tuple[int, ...]
    size_bytes: tuple[int, ...]


def pack(items: Sequence[Item], free: Sequence[int], steps: Steps, limits: Sequence[int] = ()) -> Packed | None:
    """A disk for every item so that no disk's `free` bytes are exceeded; None when there is none.

    `limits`: of the disks, where room may be ample; by none of them the fullest disks come first. Exact while `steps`
    lasts; after that None with `steps.exhausted`, which a caller must not read as "full".
    """
    is_ample = bool(limits) and _is_ample(items, free, limits)
    found = _Packing(items, free, steps, is_ample=is_ample).solve()
    if found is None and is_ample and not steps.exhausted:
        found = _Packing(items, free, steps, is_ample=False).solve()
    return found


def _is_ample(items: Sequence[Item], free: Sequence[int], limits: Sequence[int]) -> bool:
    used = {disk for item in items for disk in item.all_disks}
    left = sum(max(0, free[disk]) for disk in used) - sum(item.size_bytes for item in items)
    return left * 100 > (100 - AMPLE_PCT) * sum(limits[disk] for disk in used)


class _Packing:
    """One search: large items first; whole branches that cannot hold the rest are cut."""

    def __init__(self, items: Sequence[Item], free: Sequence[int], steps: Steps, *, is_ample: bool) -> None:
        self._steps, self._is_ample = steps, is_ample
        self._order = sorted(
            range(len(items)), key=lambda index: (-items[index].size_bytes, len(items[index].all_disks), index)
        )
        self._items = [items[index] for index in self._order]
        self._left = list(free)
        self._placed: list[tuple[int, int]] = []  # disk and bytes, in that order
        self._brought: set[_Image] = set()
        serves = [0] * len(free)  # by disk, the items that it serves, as bits: disks that serve the same are alike
        for number, item in enumerate(self._items):
            for disk in item.all_disks:
                serves[disk] |= 1 << number
        self._serves = serves
        self._used = [disk for disk, served in enumerate(serves) if served]
        self._rest = list(accumulate((item.size_bytes for item in reversed(self._items)), initial=0))[::-1]
        self._least = min((item.size_bytes for item in items), default=0)
        self._has_images = any(item.image_bytes for item in items)
        self._failed: set[tuple[int, tuple[int, ...], frozenset[_Image]]] = set()

    def solve(self) -> Packed | None:
        if not self._place(0):
            return None
        found = dict(zip(self._order, self._placed, strict=True))
        rows = [found[index] for index in range(len(found))]
        return Packed(tuple(disk for disk, _ in rows), tuple(size for _, size in rows))

    def _place(self, number: int) -> bool:
        if number == len(self._items):
            return True
        if not self._may_hold(number):
            return False
        state = (number, tuple(self._left), frozenset(self._brought))
        if state in self._failed:
            return False
        item = self._items[number]
        if self._place_on(number, item, item.disks) or (item.spare and self._place_on(number, item, item.spare)):
            return True
        if not self._steps.exhausted:
            self._failed.add(state)
        return False

    def _place_on(self, number: int, item: Item, disks: Sequence[int]) -> bool:
        left, tried = self._left, set[tuple[int, int, int]]()
        for disk in sorted(disks, key=left.__getitem__, reverse=self._is_ample):
            room, comes = left[disk], (disk, item.image)
            more = 0 if comes in self._brought else item.image_bytes.get(disk, 0)
            need, alike = item.size_bytes + more, (room, self._serves[disk] >> number, more)
            if room < need or (alike in tried and not self._has_images):
                continue
            tried.add(alike)
            if not self._steps.take():
                return False
            left[disk] = room - need
            self._placed.append((disk, need))
            if more:
                self._brought.add(comes)
            if self._place(number + 1):
                return True
            self._placed.pop()
            if more:
                self._brought.discard(comes)
            left[disk] = room
            if self._steps.exhausted:
                return False
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
