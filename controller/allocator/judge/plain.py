"""Short cuts for pods whose local volumes are all plain and new: most nodes are judged by a summary of their disks.

A plain volume may lie on every disk that takes plain volumes, so that a node is no more than a list of free bytes,
largest first. Equal lists under equal promises have the same verdict.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import ge
from typing import Final

from controller.allocator.judge.packing import COVER_STEPS, PACK_STEPS, Item, Steps, is_robust, is_sure, pack
from controller.allocator.judge.pending import Pending, is_plain_need, older_than
from controller.allocator.judge.verdict import CONTENDED, FULL, GAVE_UP, SURE, Judgement, Verdict
from controller.allocator.promises.ledger import Pile
from controller.allocator.world.world import World
from controller.model.demand import VolumeDemand
from controller.model.longhorn import DiskNeeds
from controller.rules.eligibility import EXT_LIMIT_BYTES
from controller.rules.reasons import Reason

_FEW: Final = 7  # pending items whose subsets are all gone through


class PlainPod:
    """Judges nodes for volumes of these sizes; None where a closer look is needed."""

    def __init__(self, world: World, sizes: Sequence[int], gaps: frozenset[str], pending: Pending) -> None:
        self._sizes = tuple(sorted(sizes, reverse=True))
        self._total = sum(sizes)
        self._best, self._tops = world.best, world.tops
        self._pending, self._gaps = pending, gaps
        self._items: dict[int, tuple[Item, ...]] = {}  # by the number of disks
        self._plain_needs: dict[frozenset[DiskNeeds], bool] = {}
        self._seen: dict[tuple[tuple[int, ...], tuple[int, ...]], Judgement] = {}
        self._robust: dict[tuple[tuple[int, ...], tuple[int, ...]], tuple[bool, bool]] = {}

    @classmethod
    def of(cls, world: World, local: Sequence[VolumeDemand], pending: Pending) -> PlainPod | None:
        """For the local volumes of a pod; None when one of them is not plain, or lies somewhere already."""
        if not local or any(
            demand.required_bytes
            or demand.size_bytes >= EXT_LIMIT_BYTES
            or demand.is_pinned
            or demand.home_nodes
            or demand.clone_disks is not None
            or demand.image is not None
            or not is_plain_need(demand.needs)
            or world.replicas_with_disk(demand.volume)
            for demand in local
        ):
            return None
        gaps = frozenset().union(*(world.engine_gaps(demand.needs) for demand in local))
        return cls(world, [demand.size_bytes for demand in local], gaps, pending)

    def is_robust(self, name: str, others: tuple[int, ...]) -> tuple[bool, bool] | None:
        """As `Judge.is_robust`, beside plain volumes of the sizes `others` that Longhorn may put there too. None: look
        closer."""
        free = self._tops.get(name)
        if free is None or name in self._gaps:
            return None
        if free[0] >= self._total + sum(others):
            return True, False  # whatever comes first, the largest disk has room for the next
        if free[0] < self._sizes[0]:
            return False, False
        key = free, others
        found = self._robust.get(key)
        if found is None:
            found = self._robust[key] = self._search_robust(free, others)
        return found

    def _search_robust(self, free: tuple[int, ...], others: tuple[int, ...]) -> tuple[bool, bool]:
        everything = sorted((*self._sizes, *others), reverse=True)
        for size in dict.fromkeys(self._sizes):
            rest = everything.copy()
            rest.remove(size)
            known = judge_single(free, size, rest)
            if known is None:
                break
            if known is not SURE:
                return False, False
        else:
            return True, False
        disks, steps = tuple(range(len(free))), Steps(COVER_STEPS)
        items = [Item(size, disks) for size in self._sizes]
        return is_robust(items, free, steps, [Item(size, disks) for size in others]), steps.exhausted

    def easy(self, names: Sequence[str]) -> dict[str, Judgement | None]:
        """Nodes that are sure or full at the first look; None for the others."""
        found = self._easy_single(names) if len(self._sizes) == 1 else self._easy_several(names)
        best, bound_bytes = self._best, self._pending.bound_bytes
        need = self._total + self._pending.roaming_bytes
        for name in self._pending.crowded(found):
            if found[name] is SURE and best[name] < need + bound_bytes(name):
                found[name] = None
        for name in self._gaps:
            if name in found:
                found[name] = None
        return found

    def _easy_single(self, names: Sequence[str]) -> dict[str, Judgement | None]:
        size = self._total
        need = size + self._pending.roaming_bytes
        get = self._best.get
        if need == size:
            return {name: SURE if (free := get(name, -1)) >= size else FULL if free >= 0 else None for name in names}
        return {name: SURE if (free := get(name, -1)) >= need else FULL if 0 <= free < size else None for name in names}

    def _easy_several(self, names: Sequence[str]) -> dict[str, Judgement | None]:
        """Everything on the largest disk, or the largest volume on the largest disk, the next on the next, and so on,
        or first fit; all of that as if what roams came to each disk."""
        sizes, total, roaming = self._sizes, self._total, self._pending.roaming_bytes
        largest, count = sizes[0], len(sizes)
        lowered = tuple(size + roaming for size in sizes)
        tops = self._tops.get
        found: dict[str, Judgement | None] = {}
        for name in names:
            free = tops(name)
            if free is None:
                found[name] = None
            elif free[0] < largest:
                found[name] = FULL if free[0] >= 0 else None
            elif free[0] >= total + roaming or (
                len(free) >= count and all(map(ge, free, lowered))  # beyond the volumes no disk is compared
            ):
                found[name] = SURE
            elif sum(free) < total:
                found[name] = None
            else:
                found[name] = SURE if _first_fit(sizes, free, roaming) else None
        return found

    def judge(self, name: str, young_since: float) -> Judgement | None:
        """The verdict on one node; None where not everything that is pending there is plain."""
        pending = self._pending
        free = self._tops.get(name)
        pile = pending.pile(name)
        if free is None or pile is None or not pending.is_plain or name in self._gaps or not self._are_plain(pile):
            return None
        judgement = self._judge(free, self._with_roaming(pile.sizes))
        if judgement.verdict is Verdict.CONTENDED and not judgement.is_bounded:
            if pile.youngest_hold > young_since or self._youngest_roaming > young_since:
                older = [promise.size_bytes for promise in older_than(pile.items, young_since)]
                older += [promise.size_bytes for promise in older_than(pending.roaming_items, young_since)]
                if self._judge(free, tuple(sorted(older, reverse=True))).verdict is Verdict.SURE:
                    return Judgement(Verdict.CONTENDED, Reason.CONTENDED, is_waitable=True)
        return judgement

    def _are_plain(self, pile: Pile) -> bool:
        """Whether every promise may lie on all the plain disks."""
        if not pile.sizes:
            return True
        if pile.required_bytes or pile.sizes[0] >= EXT_LIMIT_BYTES:
            return False
        found = self._plain_needs.get(pile.needs)
        if found is None:
            found = self._plain_needs[pile.needs] = all(is_plain_need(needs) for needs in pile.needs)
        return found

    def _with_roaming(self, sizes: tuple[int, ...]) -> tuple[int, ...]:
        roaming = self._pending.roaming_items
        if not roaming:
            return sizes
        return tuple(sorted([*sizes, *(promise.size_bytes for promise in roaming)], reverse=True))

    @property
    def _youngest_roaming(self) -> float:
        roaming = self._pending.roaming_items
        return max((promise.since for promise in roaming if not promise.is_assumed), default=float("-inf"))

    def _judge(self, free: tuple[int, ...], pending: tuple[int, ...]) -> Judgement:
        if len(self._sizes) == 1:
            known = judge_single(free, self._total, pending)
            if known is not None:
                return known
        key = free, pending
        found = self._seen.get(key)
        if found is None:
            found = self._seen[key] = self._search(free, pending)
        return found

    def _search(self, free: tuple[int, ...], pending: tuple[int, ...]) -> Judgement:
        known = judge_single(free, self._sizes[0], pending)
        if known is FULL:
            return FULL
        disks = tuple(range(len(free)))
        items = self._items.get(len(free))
        if items is None:
            items = self._items[len(free)] = tuple(Item(size, disks) for size in self._sizes)
        steps = Steps(PACK_STEPS)
        if not _first_fit(self._sizes, free, 0) and pack(items, free, steps) is None:
            return GAVE_UP if steps.exhausted else FULL
        if known is CONTENDED:
            return CONTENDED
        if not pending or _first_fit(self._sizes, free, sum(pending)):
            return SURE
        steps = Steps(COVER_STEPS)
        if is_sure(items, [Item(size, disks) for size in pending], free, steps):
            return SURE
        return Judgement(Verdict.CONTENDED, Reason.CONTENDED, is_bounded=True) if steps.exhausted else CONTENDED


def judge_single(free: Sequence[int], size: int, pending: Sequence[int]) -> Judgement | None:
    """One plain volume of `size` on disks with `free` bytes, largest first, against plain `pending` items, largest
    first: can they close every disk to it? None where it takes a search."""
    if free[0] < size:
        return FULL
    able = [more for more in pending if more <= free[0]]
    slack = [room - size for room in free if room >= size]
    if len(able) < len(slack) or sum(slack) + len(slack) > sum(able):
        return SURE  # one item at least to close a disk, and more bytes than it has to spare
    left = able
    for spare in reversed(slack):  # the cheapest disk first
        room, rest = spare + size, []
        for index, more in enumerate(left):
            if more > room:
                rest.append(more)
                continue
            room -= more
            if room < size:
                rest += left[index + 1 :]
                break
        else:
            return _search_few(slack, size, able) if len(able) <= _FEW else None
        left = rest
    return CONTENDED


def _search_few(slack: Sequence[int], size: int, able: Sequence[int]) -> Judgement:
    """As `is_sure` for one volume, over all subsets of a few pending items."""
    sums = [0]
    for more in able:
        sums += [total + more for total in sums]
    masks = range(1, len(sums))
    closing = sorted(
        ([mask for mask in masks if spare < sums[mask] <= spare + size] for spare in slack), key=len
    )  # for each disk, the subsets that close it

    last = len(closing) - 1

    def can_close(number: int, used: int) -> bool:
        for mask in closing[number]:
            if not mask & used and (number == last or can_close(number + 1, mask | used)):
                return True
        return False

    return CONTENDED if closing[0] and can_close(0, 0) else SURE


def _first_fit(sizes: Sequence[int], free: tuple[int, ...], lost: int) -> bool:
    """Whether each of `sizes` (largest first) finds a disk in turn, every disk having lost `lost` bytes."""
    left = [room - lost for room in free]
    for size in sizes:
        for index, room in enumerate(left):
            if room >= size:
                left[index] = room - size
                break
        else:
            return False
    return True
