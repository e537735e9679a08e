"""Which nodes have room for all volumes of a pod: rules and packing put together, one judgement a node.

Verdicts: *unsuitable* (a rule other than room), *full* (no packing even without promises), *sure* (a packing remains
wherever Longhorn puts all that is pending), *contended* (the rest). Only sure nodes are offered.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from controller.allocator.judge.budget import Budget
from controller.allocator.judge.joint import packs_together
from controller.allocator.judge.kept import leaves_what_is_kept
from controller.allocator.judge.packing import COVER_STEPS, PACK_STEPS, Item, Steps, is_robust, is_sure, pack
from controller.allocator.judge.pending import Newcomer, Pending, is_plain, item_of_demand, older_than, roamer_of
from controller.allocator.judge.plain import PlainPod
from controller.allocator.judge.sets import NO_ROOM, SetJudge
from controller.allocator.judge.shape import Shape, promised_items, shape_of
from controller.allocator.judge.verdict import (
    BACKING_IMAGE,
    CONTENDED,
    FULL,
    GAVE_UP,
    KEPT,
    LATE,
    SURE,
    Judgement,
    Verdict,
    unsuitable,
)
from controller.allocator.promises.ledger import Ledger, PendingItem, RoamingItem
from controller.allocator.world.world import World
from controller.model.demand import VolumeDemand
from controller.model.longhorn import TopologyTerm
from controller.rules.reasons import Reason

__all__ = ["FULL", "LATE", "SURE", "Judge", "Judgement", "Verdict"]

YOUNG_HOLD_SECONDS: Final = 1.0


class Judge:
    """Judges nodes for one pod's demands against one state of world and ledger; make a new one for each question.

    `newcomer` None: nobody in particular asks, so that what is kept for single pods does not count. When `budget` is
    spent, what is asked from then on is not evaluated. `now_utc` is for Longhorn's rules that compare timestamps.
    """

    def __init__(
        self,
        world: World,
        ledger: Ledger,
        demands: Sequence[VolumeDemand],
        now: float,
        newcomer: Newcomer | None = None,
        budget: Budget | None = None,
        now_utc: datetime | None = None,
    ) -> None:
        world.refresh()
        self.world, self.now, self.now_utc = world, now, now_utc
        self.budget = budget or Budget()
        self.demands = tuple(demands)
        self.local = [demand for demand in demands if demand.is_local]
        own = frozenset(demand.key for demand in demands)
        self.pending = Pending(world, ledger, own, newcomer, is_local=bool(self.local))
        self.are_sets_robust = True  # as far as they were judged
        self.is_lenient = False  # set it when no node is sure and `may_be_lenient`: then a packing of all is enough
        self._sets: Sequence[VolumeDemand] = ()
        self._own_roaming: list[PendingItem] | None = None  # as often as one node may get each of them
        self._plain = PlainPod.of(world, self.local, self.pending)

    # The volumes that Longhorn may place on any node

    def judge_sets(self, names: Sequence[str]) -> list[tuple[Sequence[str], Judgement]]:
        """The verdict on the pod's roaming volumes, by the nodes for which it holds: all of `names`, unless a volume
        will be bound to the zone or region of the pod's node. To be asked once, before the nodes are judged.
        """
        if any(demand.never for demand in self.demands):
            return [(names, unsuitable(Reason.NEVER_PLACED))]
        degraded = self.world.settings.degraded_availability
        roaming = [demand for demand in self.demands if demand.is_roaming]
        judged = [demand for demand in roaming if not (degraded and demand.placed_nodes)]
        groups: dict[tuple[str, str], list[str]] = {("", ""): list(names)}
        follows = {demand.follows for demand in judged if demand.follows}
        if follows:
            groups = self._by_topology(names, "zone" in follows)
        answers: list[tuple[Sequence[str], Judgement]] = []
        for (zone, region), members in groups.items():
            bound = [_bind(demand, zone, region) for demand in judged]
            answers.append((members, self._judge_sets(bound, roaming)))
        self._sets = judged
        for demand in roaming:
            self.pending.add(self._roamer(demand))
        return answers

    def open_among(self, names: Sequence[str]) -> tuple[list[str], dict[str, Judgement]]:
        """Those of `names` on which the pod's roaming volumes do not stand in the way, and the verdict on the others.
        To be asked once, before the nodes are judged."""
        found: list[str] = []
        closed: dict[str, Judgement] = {}
        for members, judgement in self.judge_sets(names):
            if judgement.verdict is Verdict.SURE:
                found += members
            else:
                closed.update(dict.fromkeys(members, judgement))
        return found, closed

    def _judge_sets(self, judged: Sequence[VolumeDemand], roaming: Sequence[VolumeDemand]) -> Judgement:
        """Each set against all that is pending, the pod's other volumes included, since none of them is placed first
        for certain; where only those are in the way, a packing of them all is enough."""
        is_robust = True
        for demand in judged:
            others = [self._roamer(other) for other in roaming if other.key != demand.key]
            others += [RoamingItem(item_of_demand(other, self.now)) for other in self.local]
            judgement = self._judge_set(demand, others)
            if judgement.verdict is Verdict.CONTENDED and others:
                judgement, is_robust = self._judge_set(demand, ()), False
            if judgement.verdict is not Verdict.SURE:
                return judgement
        self.are_sets_robust = self.are_sets_robust and is_robust
        return SURE if is_robust else self._judge_together(judged, None)

    @property
    def is_plain(self) -> bool:
        """Whether most nodes cost no more than a look at a summary."""
        return self._plain is not None

    @property
    def may_be_lenient(self) -> bool:
        """Whether the pod's own roaming volumes, which Longhorn might put in the way, are all that is in the way."""
        return bool(self._sets) and bool(self.local) and not self.pending.has_others()

    def _judge_set(self, demand: VolumeDemand, others: Sequence[RoamingItem]) -> Judgement:
        judge = SetJudge(
            self.world,
            demand,
            self._copies(demand),
            self.pending,
            others,
            budget=self.budget,
            now_utc=self.now_utc,
        )
        return judge.judge(self.now - YOUNG_HOLD_SECONDS)

    def _copies(self, demand: VolumeDemand) -> int:
        """How many replicas have to find room; with degraded availability Longhorn goes on with one."""
        return 1 if self.world.settings.degraded_availability else demand.copies

    def _judge_together(self, sets: Sequence[VolumeDemand], shape: Shape | None) -> Judgement:
        """Where one of the pod's volumes may take another one's room: is there a packing of all of them?"""
        steps = Steps(PACK_STEPS)
        demands = [(demand, self._copies(demand)) for demand in sets]
        if packs_together(self.world, demands, shape, steps, self.now_utc):
            return CONTENDED if self.pending.has_others() else SURE
        if steps.exhausted:
            return GAVE_UP
        return FULL if shape is not None else NO_ROOM

    def _by_topology(self, names: Sequence[str], is_zonal: bool) -> dict[tuple[str, str], list[str]]:
        groups: dict[tuple[str, str], list[str]] = {}
        for name in names:
            node = self.world.nodes.get(name)
            key = ("", "") if node is None else (node.zone if is_zonal else "", node.region)
            groups.setdefault(key, []).append(name)
        return groups

    def _roamer(self, demand: VolumeDemand) -> RoamingItem:
        return roamer_of(item_of_demand(demand, self.now), demand, self.world)

    # Nodes

    def _open_kept(self, found: dict[str, Judgement | None]) -> dict[str, Judgement | None]:
        for name in self.pending.kept:
            if found.get(name) is SURE:
                found[name] = None
        return found

    def restart_among(self, names: Iterable[str]) -> list[str]:
        """Those of `names` that hold usable replicas of all the pod's placed local volumes and have room for the
        rest."""
        placed = [demand.usable_nodes for demand in self.local if demand.usable_nodes]
        home = frozenset.intersection(*placed) if placed else frozenset()
        return [name for name in names if name in home and self.judge(name).verdict is Verdict.SURE]

    def sure_among(self, names: Sequence[str]) -> tuple[list[str], dict[str, Judgement]]:
        """The verdict on each of `names`, the sure ones apart; the easy ones cost no more than a look at a summary."""
        if self._plain is None:
            found: Mapping[str, Judgement | None] = dict.fromkeys(names)
        else:
            found = self._open_kept(self._plain.easy(names))
        sure = [name for name, known in found.items() if known is SURE]
        if len(sure) == len(found):  # often, and quickly told
            return sure, {}
        sure, refused = [], {}
        for name, known in found.items():
            judgement = known or self.judge(name)
            if judgement is SURE:  # the one that says so
                sure.append(name)
            else:
                refused[name] = judgement
        return sure, refused

    def judge(self, name: str) -> Judgement:
        """The verdict on node `name` for all local volumes of the pod together."""
        if self.budget.is_spent():
            return LATE
        judgement = self._judge(name)
        if judgement.verdict is Verdict.SURE and name in self.pending.kept and not self._leaves_kept(name):
            return KEPT
        return judgement

    def _leaves_kept(self, name: str) -> bool:
        shape = self.shape_on(name)
        if not isinstance(shape, Shape):
            return True
        newcomers = [*shape.everything, *self.items_of(shape, self.pending.bound_to(name))]
        return leaves_what_is_kept(self.world, shape.room, newcomers, self.pending.kept[name])

    def _judge(self, name: str) -> Judgement:
        if self._plain is not None:
            known = self._plain.judge(name, self.now - YOUNG_HOLD_SECONDS)
            if known is not None and not (self.is_lenient and known.verdict is Verdict.CONTENDED):
                return known
        wanted = self.wanted_on(name)
        return wanted if isinstance(wanted, Judgement) else self.judge_room(name, wanted)

    def wanted_on(self, name: str) -> list[VolumeDemand] | Judgement:
        """The local volumes that need room on that node; a judgement when one of them is bound to another."""
        wanted = []
        for demand in self.local:
            if name in demand.home_nodes:
                continue
            if demand.is_pinned:
                return unsuitable(Reason.REPLICA_ELSEWHERE)
            wanted.append(demand)
        return wanted

    def judge_room(self, name: str, wanted: Sequence[VolumeDemand]) -> Judgement:
        """The verdict on placing one replica of each of `wanted` on node `name`."""
        if not wanted:
            return SURE
        shape = self.shape(name, wanted)
        return shape if isinstance(shape, Judgement) else self._judge_shape(name, shape)

    def shape(self, name: str, wanted: Sequence[VolumeDemand]) -> Shape | Judgement:
        """What `wanted` mean on that node's disks; a judgement when a rule or a disk's state decides already."""
        return shape_of(self.world, name, wanted, self.now_utc)

    def shape_on(self, name: str) -> Shape | Judgement | None:
        """As `shape`, of all local volumes that need room on that node; None when none does."""
        wanted = self.wanted_on(name)
        if isinstance(wanted, Judgement):
            return wanted
        return self.shape(name, wanted) if wanted else None

    def _judge_shape(self, name: str, shape: Shape) -> Judgement:
        judgement = self._judge_packing(name, shape)
        if self.is_lenient and judgement.reason is Reason.CONTENDED:
            together = self._judge_together(self._sets, shape)
            if together.verdict is not Verdict.CONTENDED:
                return together
        return judgement

    def _judge_packing(self, name: str, shape: Shape) -> Judgement:
        items, everything, free = shape.items, shape.everything, shape.free
        steps = Steps(PACK_STEPS)
        if pack(items, free, steps) is None:
            return GAVE_UP if steps.exhausted else FULL
        if shape.images and pack(everything, free, steps) is None:
            return GAVE_UP if steps.exhausted else BACKING_IMAGE
        pending = self.pending.on(name)
        steps = Steps(COVER_STEPS)
        if is_sure(everything, self.items_of(shape, pending), free, steps):
            return SURE
        if shape.images and is_sure(items, self.items_of(shape, pending), free, Steps(COVER_STEPS)):
            return BACKING_IMAGE
        older = older_than(pending, self.now - YOUNG_HOLD_SECONDS)
        waitable = len(older) < len(pending) and is_sure(
            everything, self.items_of(shape, older), free, Steps(COVER_STEPS)
        )
        return Judgement(Verdict.CONTENDED, Reason.CONTENDED, is_waitable=waitable, is_bounded=steps.exhausted)

    def items_of(self, shape: Shape, pending: Iterable[PendingItem]) -> list[Item]:
        """The pending items that may come to the shape's disks."""
        return promised_items(self.world, shape.room, pending)

    def is_robust(self, name: str) -> tuple[bool, bool]:
        """Whether every order and choice of Longhorn's places all local volumes there, promises aside; and whether the
        search gave up, in which case it is taken for not robust."""
        others = self._roaming_beside()
        if self._plain is not None and all(map(is_plain, others)):
            known = self._plain.is_robust(name, tuple(promise.size_bytes for promise in others))
            if known is not None:
                return known
        shape = self.shape_on(name)
        if not isinstance(shape, Shape):
            return shape is None, False
        steps = Steps(COVER_STEPS)
        return is_robust(shape.everything, shape.free, steps, self.items_of(shape, others)), steps.exhausted

    def _roaming_beside(self) -> list[PendingItem]:
        """The pod's own roaming volumes, each as often as it may come to one node."""
        if self._own_roaming is None:
            roaming = [self._roamer(demand) for demand in self.demands if demand.is_roaming]
            self._own_roaming = [one.item for one in roaming for _ in range(one.per_node)]
        return self._own_roaming


def _bind(demand: VolumeDemand, zone: str, region: str) -> VolumeDemand:
    """The volume as it will be made when the pod's node lies in that zone and region."""
    if demand.follows == "zone" and zone:
        term = TopologyTerm(zone, region)
    elif demand.follows and region:
        term = TopologyTerm("", region)
    else:
        return demand
    return replace(demand, needs=replace(demand.needs, topology=(term,)))
