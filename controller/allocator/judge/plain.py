"""Short cuts for pods whose volumes are all plain and new: most nodes are judged by a summary of their disks.

A plain volume may lie on every disk that takes plain volumes, so a node on which nothing is pending is no more than a
list of free bytes, largest first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from controller.allocator.judge.packing import PACK_STEPS, Item, Steps, pack
from controller.allocator.judge.pending import Pending, is_plain_need
from controller.allocator.judge.verdict import CONTENDED, FULL, OWN_VOLUMES, SURE, WAITABLE, Judgement
from controller.allocator.promises.sums import Sums
from controller.allocator.world.world import World
from controller.rules.affinity import Affinity, copies_per_disk
from controller.rules.demand import VolumeDemand
from controller.rules.eligibility import EXT_LIMIT_BYTES


class Beside(dict[int, bool]):
    """Whether the pod's volumes and all that roams, as far as either may come there, go together, by a disk's free
    bytes. Many disks of a cluster have the same."""

    def __init__(self, own: Sums, roaming: Sums) -> None:
        super().__init__()
        self._own, self._roaming = own.upto, roaming.upto

    def __missing__(self, free_bytes: int) -> bool:
        found = self[free_bytes] = self._own(free_bytes) + self._roaming(free_bytes) <= free_bytes
        return found


class PlainPod:
    """Judges nodes for local volumes of the sizes `local`, and others of the sizes `roaming` that may come to any node;
    None where a closer look is needed."""

    def __init__(
        self, world: World, local: Sequence[int], roaming: Sequence[int], gaps: frozenset[str], pending: Pending
    ) -> None:
        self.largest = max(local)
        self._local, self._least = sorted(local, reverse=True), min(local)
        self._is_single = len(local) == 1 and not roaming
        self._own = Sums((size, size) for size in (*local, *roaming))
        self._world, self._pending, self._gaps = world, pending, gaps
        self._alone: dict[tuple[int, ...], Judgement | None] = {}
        self._all: Sums | None = None

    @classmethod
    def of(cls, world: World, demands: Sequence[VolumeDemand], pending: Pending) -> PlainPod | None:
        """For the volumes of a pod; None when none of them needs room on its node, or one of them is not plain, or lies
        somewhere already."""
        local = [demand.size_bytes for demand in demands if demand.is_local]
        if not local or any(
            demand.required_bytes
            or demand.size_bytes >= EXT_LIMIT_BYTES
            or demand.is_pinned
            or demand.home_nodes
            or demand.clone_disks is not None
            or demand.image is not None
            or not is_plain_need(demand.needs)
            or world.replicas_with_disk(demand.volume)
            or (demand.is_roaming and (demand.follows or _may_stack(world, demand)))
            for demand in demands
        ):
            return None
        gaps = frozenset().union(*(world.engine_gaps(demand.needs) for demand in demands))
        roaming = [demand.size_bytes for demand in demands if demand.is_roaming]
        return cls(world, local, roaming, gaps, pending)

    def easy(self, names: Sequence[str], young_since: float) -> dict[str, Judgement | None]:
        """Nodes that a summary decides; None for the others."""
        largest, best, free_by_node = self.largest, self._world.best.get, self._world.free_by_node.get
        found: dict[str, Judgement | None]
        if self._is_single and not self._pending.roams:
            found = {
                name: SURE if (free := best(name, -1)) >= largest else FULL if free >= 0 else None for name in names
            }
        else:
            known = self._beside_roaming(young_since) if self._pending.roams else _Verdicts(self, Sums(), is_exact=True)
            found = {name: known[disks] if (disks := free_by_node(name)) is not None else None for name in names}
        for name in (*self._pending.occupied(found), *self._world.uneven, *self._gaps):
            if found.get(name) not in (None, FULL):
                found[name] = None
        for name in self._gaps:
            if name in found:
                found[name] = None
        return found

    def _beside_roaming(self, young_since: float) -> _Verdicts:
        roaming, is_exact = self._pending.most_roaming()
        return _Verdicts(self, roaming, is_exact=is_exact, young_since=young_since)

    def is_loaded(self, name: str) -> bool:
        """Whether something that roams may surely come to a disk that one of the local volumes may come to; False if a
        closer look is needed."""
        if not self._pending.roams:
            return False
        if self._all is None:
            roaming, is_exact = self._pending.most_roaming()
            self._all = roaming if is_exact else Sums()
        return any(room >= self._least and self._all.upto(room) for room in self._world.free_by_node.get(name, ()))

    def is_robust(self, name: str) -> bool | None:
        """As `Judge.is_robust`."""
        free = self._world.free_by_node.get(name)
        if free is None or name in self._gaps or name in self._world.uneven:
            return None
        if free not in self._alone:
            self._alone[free] = _Verdicts(self, Sums(), is_exact=True)[free]
        return self._alone[free] is SURE

    def judge(self, free: Sequence[int], beside: Beside, *, is_exact: bool) -> Judgement | None:
        """The verdict on disks of these free bytes, the largest first, however young what is in the way may be."""
        if free[0] < self.largest:
            return FULL if free[0] >= 0 else None
        if self.goes(free, beside):
            return SURE
        if not is_exact:
            return None
        packs = self._packs(free)
        if not packs:
            return None if packs is None else FULL
        if any(room >= self._least and self._own.upto(room) > room for room in free):
            return OWN_VOLUMES
        return CONTENDED

    def goes(self, free: Sequence[int], beside: Beside) -> bool:
        """Whether it goes together on each disk that one of the local volumes may come to."""
        least = self._least
        for room in free:
            if room < least:
                break  # the largest come first
            if not beside[room]:
                return False
        return True

    def _packs(self, free: Sequence[int]) -> bool | None:
        """Whether the local volumes fit together; None if that is not found out in time."""
        sizes = self._local
        if len(sizes) <= 2:  # nearly always
            return free[0] >= sum(sizes) or (len(free) >= len(sizes) > 1 and free[1] >= sizes[1])
        steps = Steps(PACK_STEPS)
        disks = tuple(range(len(free)))
        if pack([Item(size, disks) for size in sizes], free, steps) is not None:
            return True
        return None if steps.exhausted else False

    def beside(self, roaming: Sums) -> Beside:
        return Beside(self._own, roaming)

    def beside_older(self, young_since: float) -> Beside | None:
        """The verdict besides roaming volumes that are not young; None if none is young."""
        older = self._pending.older_roaming(young_since)
        return None if older is None else Beside(self._own, older)


class _Verdicts(dict[tuple[int, ...], Judgement | None]):
    """Verdicts by the free bytes of a node's disks, worked out once each."""

    def __init__(self, pod: PlainPod, roaming: Sums, *, is_exact: bool, young_since: float = math.inf) -> None:
        super().__init__()
        self._pod, self._is_exact, self._young_since = pod, is_exact, young_since
        self._beside = pod.beside(roaming)
        self._older: list[Beside | None] | None = None

    def __missing__(self, free: tuple[int, ...]) -> Judgement | None:
        found = self._pod.judge(free, self._beside, is_exact=self._is_exact)
        if found is CONTENDED and self._young_since < math.inf:
            if self._older is None:
                self._older = [self._pod.beside_older(self._young_since)]
            (older,) = self._older
            found = WAITABLE if older is not None and self._pod.goes(free, older) else CONTENDED
        self[free] = found
        return found


def _may_stack(world: World, demand: VolumeDemand) -> bool:
    """Whether several replicas of it may lie on one disk."""
    return copies_per_disk(Affinity.of(demand.facts, world.settings), demand.copies) > 1
