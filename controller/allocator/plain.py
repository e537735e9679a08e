"""Short cuts for pods whose local volumes are all plain and new: most nodes are judged by a summary of their disks.

A plain volume may lie on every disk that takes plain volumes, so that a node is no more than a list of free bytes,
largest first. Equal lists under equal promises have the same verdict.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import ge

from controller.allocator.ledger import Promise
from controller.allocator.packing import COVER_STEPS, PACK_STEPS, Item, Steps, is_sure, pack
from controller.allocator.pending import Pending, is_plain, is_plain_need, older_than
from controller.allocator.policy import EXT_LIMIT_BYTES
from controller.allocator.reasons import Reason
from controller.allocator.verdict import FULL, GAVE_UP, SURE, Judgement, Verdict
from controller.allocator.world import World
from controller.model.demand import VolumeDemand


class PlainPod:
    """Judges nodes for volumes of these sizes; None where a closer look is needed."""

    def __init__(self, world: World, sizes: Sequence[int], gaps: frozenset[str], pending: Pending) -> None:
        self._sizes = tuple(sorted(sizes, reverse=True))
        self._total = sum(sizes)
        self._world, self._pending, self._gaps = world, pending, gaps
        self._items: dict[int, tuple[Item, ...]] = {}  # by the number of disks
        self._seen: dict[tuple[tuple[int, ...], tuple[int, ...]], Judgement] = {}

    @classmethod
    def of(cls, world: World, local: Sequence[VolumeDemand], pending: Pending) -> PlainPod | None:
        """For the local volumes of a pod; None when one of them is not plain, or lies somewhere already."""
        if not local or any(
            demand.required_bytes
            or demand.size_bytes >= EXT_LIMIT_BYTES
            or demand.is_pinned
            or demand.home_nodes
            or demand.clone_disks is not None
            or not is_plain_need(demand.needs)
            or world.replicas_with_disk(demand.volume)
            for demand in local
        ):
            return None
        gaps = frozenset().union(*(world.engine_gaps(demand.needs) for demand in local))
        return cls(world, [demand.size_bytes for demand in local], gaps, pending)

    def easy(self, names: Sequence[str]) -> dict[str, Judgement | None]:
        """Nodes that are sure or full at the first look; None for the others."""
        found = self._easy_single(names) if len(self._sizes) == 1 else self._easy_several(names)
        for name in self._pending.crowded(found):
            if found[name] is SURE and not self._has_room_to_spare(name):
                found[name] = None
        for name in self._gaps:
            if name in found:
                found[name] = None
        return found

    def _easy_single(self, names: Sequence[str]) -> dict[str, Judgement | None]:
        size = self._total
        need = size + self._pending.roaming_bytes
        get = self._world.best.get
        if need == size:
            return {name: SURE if (free := get(name, -1)) >= size else FULL if free >= 0 else None for name in names}
        return {name: SURE if (free := get(name, -1)) >= need else FULL if 0 <= free < size else None for name in names}

    def _easy_several(self, names: Sequence[str]) -> dict[str, Judgement | None]:
        """Everything on the largest disk, or the largest volume on the largest disk, the next on the next, and so on,
        or first fit; all of that as if what roams came to each disk."""
        sizes, total, roaming = self._sizes, self._total, self._pending.roaming_bytes
        largest, count = sizes[0], len(sizes)
        lowered = tuple(size + roaming for size in sizes)
        tops = self._world.tops.get
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

    def _has_room_to_spare(self, name: str) -> bool:
        """Whether one disk holds everything, even with all that is pending."""
        more = self._total + self._pending.roaming_bytes + self._pending.bound_bytes(name)
        return more <= self._world.best.get(name, -1)

    def judge(self, name: str, young_since: float) -> Judgement | None:
        """The verdict on one node; None where not everything that is pending there is plain."""
        free = self._world.tops.get(name)
        if free is None or name in self._gaps:
            return None
        if not self._pending.is_plain:
            return None
        bound = self._pending.bound_to(name)
        for promise in bound:
            if not is_plain(promise):
                return None
        roaming = self._pending.roaming_promises
        judgement = self._judge(free, bound, roaming)
        if judgement.verdict is Verdict.CONTENDED and not judgement.is_bounded:
            pending = [*bound, *roaming]
            older = older_than(pending, young_since)
            if len(older) < len(pending) and self._judge(free, older, ()).verdict is Verdict.SURE:
                return Judgement(Verdict.CONTENDED, Reason.CONTENDED, is_waitable=True)
        return judgement

    def _judge(self, free: tuple[int, ...], bound: Sequence[Promise], roaming: Sequence[Promise]) -> Judgement:
        sizes = [promise.size_bytes for promise in bound]
        if roaming:
            sizes += [promise.size_bytes for promise in roaming]
        sizes.sort(reverse=True)
        key = free, tuple(sizes)
        found = self._seen.get(key)
        if found is None:
            found = self._seen[key] = self._search(free, key[1])
        return found

    def _search(self, free: tuple[int, ...], pending: tuple[int, ...]) -> Judgement:
        if len(self._sizes) == 1:
            known = self._search_single(free, pending)
            if known is not None:
                return known
        disks = tuple(range(len(free)))
        items = self._items.get(len(free))
        if items is None:
            items = self._items[len(free)] = tuple(Item(size, disks) for size in self._sizes)
        steps = Steps(PACK_STEPS)
        if pack(items, free, steps) is None:
            return GAVE_UP if steps.exhausted else FULL
        if not pending:
            return SURE
        steps = Steps(COVER_STEPS)
        if is_sure(items, [Item(size, disks) for size in pending], free, steps):
            return SURE
        return Judgement(Verdict.CONTENDED, Reason.CONTENDED, is_bounded=steps.exhausted)

    def _search_single(self, free: tuple[int, ...], pending: tuple[int, ...]) -> Judgement | None:
        """One volume: by what it costs to close every disk to it; None where that does not tell."""
        size = self._total
        cost = count = 0
        for room in free:
            if room < size:
                break
            cost += room - size + 1
            count += 1
        if not count:
            return FULL
        able = [more for more in pending if more <= free[0]]
        if cost > sum(able):
            return SURE
        if count == 1 and any(more > free[0] - size for more in able):
            return Judgement(Verdict.CONTENDED, Reason.CONTENDED)
        return None


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
