"""Packs a pod's volumes on the disks of one node: a bounded search, whose answer is "no" once its limit is reached.

A backing image comes along with the first copy on a disk that lacks it. On a node with ample room each volume goes to
the disk with the most room, as Longhorn prefers it; on a node that is nearly full, or where that finds nothing, to the
disk that it fills best.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final

from controller.clock import Clock

PACK_STEPS: Final = 5_000
STEPS_A_LOOK: Final = 64  # steps between two looks at the clock
AMPLE_PCT: Final = 85  # room is ample if at most so much of the disks' limits is in use once all volumes lie there
_NO_IMAGE: Final[Mapping[int, int]] = {}
_Image = tuple[int, str]  # a disk, and the image that comes to it
_State = tuple[int, tuple[int, ...], frozenset[_Image]]  # items placed, bytes left by disk, images that came


@dataclass(frozen=True, slots=True)
class Item:
    """One copy to place: its bytes, and the indices of the disks that suit it, room aside. `spare` disks hold another
    copy of the same volume, and serve only if none of `disks` has room. `image_bytes`: the bytes of `image` on the
    disks that lack it."""

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
    """The time of a call; without a clock it is never up. Once spent it stays so: a search that stopped early must not
    go on later."""

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
    """The limit of a search, by steps and by the time of the whole question. `exhausted`: it was reached, so that "no"
    does not mean "full"."""

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
    """The disk's index and the bytes taken there, for each item in the order of the question."""

    disks: tuple[int, ...]
    size_bytes: tuple[int, ...]


def pack(items: Sequence[Item], free: Sequence[int], steps: Steps, limits: Sequence[int] = ()) -> Packed | None:
    """Return a disk for every item so that no disk's `free` bytes are exceeded, or None.

    `limits`: the disks' limits in bytes, which tell whether room is ample; without them the fullest disks come first.
    Exact while `steps` last; after that None with `steps.exhausted`, which does not mean that the disks are full.
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
    """One search by backtracking: large items first; branches that cannot hold the rest, or failed before, are cut."""

    def __init__(self, items: Sequence[Item], free: Sequence[int], steps: Steps, *, is_ample: bool) -> None:
        self._steps, self._is_ample = steps, is_ample
        self._order = sorted(
            range(len(items)), key=lambda index: (-items[index].size_bytes, len(items[index].all_disks), index)
        )
        self._items = [items[index] for index in self._order]
        self._left = list(free)
        self._placed: list[tuple[int, int]] = []  # disk and bytes, in that order
        self._images: list[int] = []  # the bytes among them of images that came along
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
        self._failed: set[_State] = set()

    def solve(self) -> Packed | None:
        if not self._place_all():
            return None
        found = dict(zip(self._order, self._placed, strict=True))
        rows = [found[index] for index in range(len(found))]
        return Packed(tuple(disk for disk, _ in rows), tuple(size for _, size in rows))

    def _place_all(self) -> bool:
        """Place one item after the other. No recursion: a pod may have thousands of volumes."""
        levels: list[tuple[_State, Iterator[tuple[int, int, int]]]] = []  # of each item that is placed or being placed
        while len(self._placed) < len(self._items):
            number = len(self._placed)
            if len(levels) == number:
                state = (number, tuple(self._left), frozenset(self._brought))
                ways = self._ways(number) if self._may_hold(number) and state not in self._failed else iter(())
                levels.append((state, ways))
            way = next(levels[-1][1], None)
            if way is not None:
                self._put(number, *way)
                continue
            if self._steps.exhausted:
                return False
            self._failed.add(levels.pop()[0])
            if not levels:
                return False
            self._take_back(number - 1)
        return True

    def _ways(self, number: int) -> Iterator[tuple[int, int, int]]:
        """Yield the disks for that item, the likely ones first, with the bytes that are taken there and those of the
        image among them."""
        item, left = self._items[number], self._left
        for disks in (item.disks, item.spare):
            tried = set[tuple[int, int, int]]()
            for disk in sorted(disks, key=left.__getitem__, reverse=self._is_ample):
                room = left[disk]
                more = 0 if (disk, item.image) in self._brought else item.image_bytes.get(disk, 0)
                need, alike = item.size_bytes + more, (room, self._serves[disk] >> number, more)
                if room < need or (alike in tried and not self._has_images):
                    continue
                tried.add(alike)
                if not self._steps.take():
                    return
                yield disk, need, more

    def _put(self, number: int, disk: int, need: int, more: int) -> None:
        self._left[disk] -= need
        self._placed.append((disk, need))
        self._images.append(more)
        if more:
            self._brought.add((disk, self._items[number].image))

    def _take_back(self, number: int) -> None:
        disk, need = self._placed.pop()
        self._left[disk] += need
        if self._images.pop():
            self._brought.discard((disk, self._items[number].image))

    def _may_hold(self, number: int) -> bool:
        """Whether the bytes left suffice for the items from `number` on; less than the smallest item serves nobody."""
        least, need, left = self._least, self._rest[number], self._left
        for disk in self._used:
            room = left[disk]
            if room >= least and self._serves[disk] >> number:
                need -= room
                if need <= 0:
                    return True
        return False
