"""Nodes that are offered although the pod's own volumes do not satisfy the sums there.

Longhorn may put two volumes of one pod on one disk while another one is empty. Where nothing of anybody else is
pending, that is the pod's own matter: if every order and every choice of Longhorn's places all of its volumes, the
worst that can happen is a disk over its limit, from a figure that was late; such a node *may be over-committed*, and is
offered. Where some order leaves one of the volumes without a disk, it *may strand* one: a best-effort volume then goes
to any other node, which is offered if the sums hold there; a strict-local one would never start.
"""

from __future__ import annotations

from collections.abc import Sequence

from controller.allocator.judge.node import Judge
from controller.allocator.judge.packing import STRAND_STEPS, Item, Steps, is_robust, pack
from controller.allocator.judge.sets import SetJudge, Wanted
from controller.allocator.judge.shape import Shape
from controller.allocator.judge.verdict import Judgement, Verdict
from controller.model.demand import VolumeDemand
from controller.model.longhorn import LOCALITY_BEST_EFFORT


class Discretion:
    """Asked after a search that found no sure node. `allows_stranding`: strict-local volumes may be left without."""

    def __init__(self, judge: Judge, *, allows_stranding: bool = False) -> None:
        self._judge, self._allows_stranding = judge, allows_stranding
        roaming = [demand for demand in judge.demands if demand.is_roaming]
        self._is_needless = any(demand.never for demand in judge.demands) or len(judge.local) + len(roaming) < 2
        self._alone: dict[tuple[str, str], bool] = {}  # by zone and region
        self._falls_back: bool | None = None

    def among(self, names: Sequence[str], most: int = 1) -> list[str]:
        """The first of these nodes that may be offered, as far as the judge's budget lasts."""
        found: list[str] = []
        for name in () if self._is_needless else names:
            if len(found) >= most or self._judge.budget.is_spent():
                break
            if not self._judge.is_loaded_at_a_glance(name) and self.covers(name):
                found.append(name)
        return found

    def covers(self, name: str) -> bool:
        if self._is_needless:
            return False
        judge = self._judge
        wanted = judge.wanted_on(name)
        if isinstance(wanted, Judgement) or not self._is_alone(name, wanted):
            return False
        if not wanted:
            return True
        shape = judge.shape(name, wanted)
        if not isinstance(shape, Shape) or judge.is_loaded(shape):
            return False
        if pack(shape.everything, shape.free, Steps(STRAND_STEPS, judge.budget)) is None:
            return False
        others = [Item(size, disks) for size, disks in judge.own_roaming_on(shape.room)]
        if is_robust(shape.everything, shape.free, Steps(STRAND_STEPS, judge.budget), others):
            return True
        if all(demand.facts.data_locality == LOCALITY_BEST_EFFORT for demand in wanted):
            return self._fall_back_is_sure(name, wanted)
        return self._allows_stranding

    def _is_alone(self, name: str, wanted: Sequence[VolumeDemand]) -> bool:
        """Whether the pod's roaming volumes find their disks beside its other ones."""
        place = self._judge.topology_of(name)
        found = self._alone.get(place)
        if found is None:
            sets, sizes = self._judge.wanted_sets(*place), [demand.size_bytes for demand in wanted]
            found = self._alone[place] = not sets or self._sets(sets).survives_own(sizes)
        return found

    def _fall_back_is_sure(self, name: str, wanted: Sequence[VolumeDemand]) -> bool:
        """Whether the sums hold for all of the pod's volumes as if Longhorn placed each of them anywhere."""
        if self._falls_back is None:
            roaming = self._judge.wanted_sets(*self._judge.topology_of(name))
            sets = [*roaming, *(Wanted(demand, 1, needs_all=True) for demand in wanted)]
            self._falls_back = self._sets(sets).judge().verdict is Verdict.SURE
        return self._falls_back

    def _sets(self, wanted: Sequence[Wanted]) -> SetJudge:
        judge = self._judge
        return SetJudge(judge.world, wanted, judge.pending, budget=judge.budget, now_utc=judge.now_utc)
