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
from controller.allocator.judge.sets import Elsewhere, SetJudge, WantedCopies
from controller.allocator.judge.shape import Shape
from controller.allocator.judge.verdict import Judgement
from controller.model.longhorn import LOCALITY_BEST_EFFORT
from controller.rules.demand import VolumeDemand

_Key = tuple[str, str, tuple[int, ...]]


class Discretion:
    """Asked after a search that found no sure node. `allows_stranding`: volumes may be left without. `foresees`: what
    is possible once Longhorn's figures show all that lies on the disks. `stranding` are nodes that were offered
    although some order leaves a volume without a disk there."""

    def __init__(self, judge: Judge, *, allows_stranding: bool = False, foresees: bool = False) -> None:
        self._judge, self._allows_stranding, self._foresees = judge, allows_stranding, foresees
        own = [demand for demand in judge.demands if demand.is_local or demand.is_roaming]
        images = [demand for demand in own if demand.image is not None and demand.image.real_size_bytes]
        self._is_needless = any(demand.never for demand in judge.demands) or len(own) + len(images) < 2
        self._alone: dict[_Key, bool] = {}
        self._elsewhere: dict[_Key, Elsewhere | None] = {}
        self.stranding: set[str] = set()

    def among(self, names: Sequence[str], most: int = 1) -> list[str]:
        """The first of these nodes that may be offered, as far as the judge's budget lasts."""
        found: list[str] = []
        for name in () if self._is_needless else names:
            if len(found) >= most or self._judge.budget.is_spent():
                break
            if self.covers(name):
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
        if not isinstance(shape, Shape) or name in judge.pending.kept:
            return False
        if not self._foresees and judge.is_loaded(shape):
            return False
        if pack(shape.everything, shape.free, Steps(STRAND_STEPS, judge.budget)) is None:
            return False
        others = [*shape.images]  # they come along wherever a volume goes, and take what they need there
        for demand, entry, disks in judge.own_roaming_on(shape.room):
            copies = entry.copies if entry.shares_nodes else 1
            others += [Item(entry.item.size_bytes, disks)] * copies
            others += [Item(demand.image.real_size_bytes, disks)] if demand.image is not None else []
        if is_robust(shape.items, shape.free, Steps(STRAND_STEPS, judge.budget), others):
            return True
        is_best_effort = all(demand.facts.data_locality == LOCALITY_BEST_EFFORT for demand in wanted)
        if self._allows_stranding or (is_best_effort and self._fall_back_is_sure(name, wanted)):
            self.stranding.add(name)
            return True
        return False

    def _is_alone(self, name: str, wanted: Sequence[VolumeDemand]) -> bool:
        """Whether the pod's roaming volumes find their disks beside its other ones."""
        key = self._key(name, wanted)
        found = self._alone.get(key)
        if found is None:
            sets, sizes = self._judge.wanted_sets(*key[:2]), [demand.size_bytes for demand in wanted]
            found = not sets or self._sets(sets).survives_own(sizes, ignores_traps=self._foresees)
            self._alone[key] = found
        return found

    def _fall_back_is_sure(self, name: str, wanted: Sequence[VolumeDemand]) -> bool:
        """Whether whatever finds no disk on the node surely finds one on the others."""
        key = self._key(name, wanted)
        if key not in self._elsewhere:
            roaming = self._judge.wanted_sets(*key[:2])
            sets = self._sets([*roaming, *(WantedCopies(demand, 1, needs_all=True) for demand in wanted)])
            # The first volume to be placed finds its disk there, so at most all but the smallest fall back.
            sizes = [demand.size_bytes for demand in wanted]
            less = 0 if roaming else min(sizes)
            self._elsewhere[key] = sets.elsewhere(max(sizes), less, ignores_traps=self._foresees)
        elsewhere = self._elsewhere[key]
        return elsewhere is not None and elsewhere.is_sure_without(name)

    def _key(self, name: str, wanted: Sequence[VolumeDemand]) -> _Key:
        """Equal for nodes with the same answers: zone, region, and the sizes of what is bound to the node."""
        return *self._judge.topology_of(name), tuple(sorted(demand.size_bytes for demand in wanted))

    def _sets(self, wanted: Sequence[WantedCopies]) -> SetJudge:
        judge = self._judge
        return SetJudge(judge.world, wanted, judge.pending, budget=judge.budget, now_utc=judge.now_utc)
