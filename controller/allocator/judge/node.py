"""Which nodes have room for all volumes of a pod: one judgement for each node.

Longhorn chooses the disk of each replica by itself, at a time of its own, from figures that may show none of the
others. So a node is *sure* when, on each disk that one of the pod's volumes may come to, all that is pending there and
may come there, and all of the pod's volumes that may, fit together into what is free. That protects both sides: the
newcomer finds a place, and so does everything that was promised before.

Verdicts: *unsuitable* (a rule other than room), *full* (no packing even without promises), *sure*, *contended* (the
rest). Only sure nodes are offered.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from controller.allocator.judge.budget import Budget
from controller.allocator.judge.kept import leaves_what_is_kept
from controller.allocator.judge.packing import PACK_STEPS, Steps, pack
from controller.allocator.judge.pending import Newcomer, Pending, is_plain_demand, item_of_demand, roaming_item_of
from controller.allocator.judge.sets import SetJudge, WantedCopies
from controller.allocator.judge.shape import Shape, shape_of
from controller.allocator.judge.verdict import (
    BACKING_IMAGE,
    CONTENDED,
    FULL,
    GAVE_UP,
    KEPT,
    LATE,
    OWN_VOLUMES,
    SURE,
    WAITABLE,
    Judgement,
    Verdict,
    unsuitable,
)
from controller.allocator.promises.items import RoamingItem
from controller.allocator.promises.ledger import Ledger
from controller.allocator.world.suitable import disks_for
from controller.allocator.world.world import World
from controller.model.longhorn import TopologyTerm
from controller.rules.demand import VolumeDemand
from controller.rules.eligibility import NodeRoom
from controller.rules.reasons import Reason

__all__ = ["FULL", "LATE", "SURE", "Judge", "Judgement", "Verdict"]

YOUNG_HOLD_SECONDS: Final = 1.0


class Judge:
    """Judges nodes for one pod's demands against one state of world and ledger; make a new one for each question.

    `newcomer` None: nobody in particular asks, so that what is kept for single pods does not count. When `budget` is
    spent, what is asked from then on is not evaluated. `now_utc` is for Longhorn's rules that compare timestamps.
    `excess_pct`: by what share of a disk's limit roaming volumes may exceed it; `has_excess` says whether an answer
    made use of that.
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
        excess_pct: int = 0,
    ) -> None:
        world.refresh()
        self._excess_pct, self.has_excess = excess_pct, False
        self.world, self.now, self.now_utc = world, now, now_utc
        self._ledger = ledger
        self.budget = budget or Budget()
        self.demands = tuple(demands)
        self.local = [demand for demand in demands if demand.is_local]
        own = frozenset(demand.key for demand in demands)
        self.pending = Pending(world, ledger, own, newcomer, is_local=bool(self.local))
        self._own_roaming: list[tuple[VolumeDemand, RoamingItem]] | None = None
        is_plain = all(is_plain_demand(world, one) and not (one.is_pinned or one.home_nodes) for one in self.local)
        self._largest_plain = max((demand.size_bytes for demand in self.local), default=0) if is_plain else 0
        self._gaps = frozenset[str]().union(*(world.engine_gaps(demand.needs) for demand in self.local))

    def of(self, demand: VolumeDemand) -> Judge:
        """One for that demand alone, of the same moment and within the same budget; nobody in particular asks."""
        return Judge(self.world, self._ledger, (demand,), self.now, budget=self.budget, now_utc=self.now_utc)

    # The volumes that Longhorn may place on any node

    def judge_sets(self, names: Sequence[str]) -> list[tuple[Sequence[str], Judgement]]:
        """The verdict on the pod's roaming volumes, by the nodes for which it holds: all of `names`, unless a volume
        will be bound to the zone or region of the pod's node. To be asked once, before the nodes are judged.
        """
        if any(demand.never for demand in self.demands):
            return [(names, unsuitable(Reason.NEVER_PLACED))]
        judged = self._judged()
        if not judged:
            return [(names, SURE)]
        groups: dict[tuple[str, str], list[str]] = {("", ""): list(names)}
        follows = {demand.follows for demand in judged if demand.follows}
        if follows:
            groups = self._by_topology(names, "zone" in follows)
        answers: list[tuple[Sequence[str], Judgement]] = []
        for (zone, region), members in groups.items():
            wanted = self.wanted_sets(zone, region)
            judge = SetJudge(
                self.world,
                wanted,
                self.pending,
                budget=self.budget,
                now_utc=self.now_utc,
                excess_pct=self._excess_pct,
            )
            answers.append((members, judge.judge(self.now - YOUNG_HOLD_SECONDS)))
            self.has_excess = self.has_excess or judge.has_excess
        return answers

    def _judged(self) -> list[VolumeDemand]:
        """The roaming volumes of which a copy has to find a disk before the pod may start."""
        degraded = self.world.settings.degraded_availability
        return [demand for demand in self.demands if demand.is_roaming and not (degraded and demand.placed_nodes)]

    def wanted_sets(self, zone: str, region: str) -> list[WantedCopies]:
        """What they ask for when the pod's node lies in that zone and region."""
        needs_all = not self.world.settings.degraded_availability
        return [WantedCopies(_bind(demand, zone, region), demand.copies, needs_all) for demand in self._judged()]

    def open_among(self, names: Sequence[str]) -> tuple[list[str], dict[str, Judgement]]:
        """Those of `names` that the pod's roaming volumes allow, and the verdict on the others. To be asked once,
        before the nodes are judged."""
        found: list[str] = []
        closed: dict[str, Judgement] = {}
        for members, judgement in self.judge_sets(names):
            if judgement.verdict is Verdict.SURE:
                found += members
            else:
                closed.update(dict.fromkeys(members, judgement))
        return found, closed

    def _by_topology(self, names: Sequence[str], is_zonal: bool) -> dict[tuple[str, str], list[str]]:
        groups: dict[tuple[str, str], list[str]] = {}
        for name in names:
            zone, region = self.topology_of(name)
            groups.setdefault((zone if is_zonal else "", region), []).append(name)
        return groups

    def topology_of(self, name: str) -> tuple[str, str]:
        """The node's zone and region; "" where it has none."""
        node = self.world.nodes.get(name)
        return ("", "") if node is None else (node.zone, node.region)

    # Nodes

    def restart_among(self, names: Iterable[str]) -> list[str]:
        """Those of `names` that hold usable replicas of all the pod's placed local volumes and have room for the
        rest."""
        placed = [demand.usable_nodes for demand in self.local if demand.usable_nodes]
        home = frozenset.intersection(*placed) if placed else frozenset()
        return [name for name in names if name in home and self.judge(name).verdict is Verdict.SURE]

    def sure_among(self, names: Sequence[str]) -> tuple[list[str], dict[str, Judgement]]:
        """Returns the sure ones of `names`, and the verdict on each of the others."""
        sure, refused = list[str](), dict[str, Judgement]()
        for name in dict.fromkeys(names):
            judgement = FULL if self._is_too_small(name) else self.judge(name)
            if judgement is SURE:  # the one that says so
                sure.append(name)
            else:
                refused[name] = judgement
        return sure, refused

    def _is_too_small(self, name: str) -> bool:
        """Returns whether a summary says that no disk there has room for the pod's largest local volume. That is so on
        most nodes of a full cluster, and every pod that waits for room asks about all of them again."""
        return self.world.best.get(name, self._largest_plain) < self._largest_plain and name not in self._gaps

    def judge(self, name: str) -> Judgement:
        """The verdict on node `name` for all local volumes of the pod together."""
        if self.budget.is_spent():
            return LATE
        wanted = self.wanted_on(name)
        if isinstance(wanted, Judgement):
            return wanted
        judgement = self.judge_room(name, wanted)
        if judgement.verdict is Verdict.SURE and name in self.pending.kept and not self._leaves_kept(name, wanted):
            return KEPT
        return judgement

    def _leaves_kept(self, name: str, wanted: Sequence[VolumeDemand]) -> bool:
        shape = self.shape(name, wanted) if wanted else None
        if not isinstance(shape, Shape):
            return True
        bound = self.pending.loads(shape.room, roaming=False)
        coming = [own + load for own, load in zip(self._own_bytes(shape), bound, strict=True)]
        return leaves_what_is_kept(self.world, shape.room, coming, self.pending.kept[name])

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
        return shape if isinstance(shape, Judgement) else self._judge_shape(shape)

    def shape(self, name: str, wanted: Sequence[VolumeDemand]) -> Shape | Judgement:
        """What `wanted` mean on that node's disks; a judgement when a rule or a disk's state decides already."""
        return shape_of(self.world, name, wanted, self.now_utc)

    def shape_on(self, name: str) -> Shape | Judgement | None:
        """As `shape`, of all local volumes that need room on that node; None when none does."""
        wanted = self.wanted_on(name)
        if isinstance(wanted, Judgement):
            return wanted
        return self.shape(name, wanted) if wanted else None

    def _judge_shape(self, shape: Shape) -> Judgement:
        room = shape.room
        if not all(any(item.size_bytes <= shape.free[disk] for disk in item.all_disks) for item in shape.items):
            return FULL
        rows = list(zip(room.disks, self._own_bytes(shape), self.pending.loads(room), strict=True))
        if all(not more or more + load <= disk.free_bytes for disk, more, load in rows):
            return SURE
        steps = Steps(PACK_STEPS, self.budget)
        if pack(shape.items, shape.free, steps) is None:
            return GAVE_UP if steps.exhausted else FULL
        if shape.images and pack(shape.everything, shape.free, steps) is None:
            return GAVE_UP if steps.exhausted else BACKING_IMAGE
        sizes = [item.size_bytes for item in shape.everything]
        if any(
            more > disk.free_bytes >= max((one for one in sizes if one <= disk.reach_bytes), default=0)
            for disk, more, _ in rows
        ):
            return OWN_VOLUMES
        younger = self.pending.younger(room, self.now - YOUNG_HOLD_SECONDS)
        waitable = any(younger) and all(
            not more or more + load - young <= disk.free_bytes
            for (disk, more, load), young in zip(rows, younger, strict=True)
        )
        return WAITABLE if waitable else CONTENDED

    def _own_bytes(self, shape: Shape) -> list[int]:
        """For each disk that one of the local volumes may come to, the bytes of all the pod's volumes that may; 0 for
        the others."""
        room, found = shape.room, [0] * len(shape.room.disks)
        for item in shape.items:
            for index in item.all_disks:
                if item.size_bytes <= room.disks[index].reach_bytes:
                    found[index] += item.size_bytes
        roaming = self.own_roaming_on(room)
        coming = [
            (demand, item.size_bytes, item.all_disks) for demand, item in zip(shape.wanted, shape.items, strict=True)
        ]
        coming += [(demand, entry.item.size_bytes, disks) for demand, entry, disks in roaming]
        for index, disk in enumerate(room.disks):
            if not found[index]:
                continue
            found[index] += sum(entry.bytes_within(disk.reach_bytes) for _, entry, disks in roaming if index in disks)
            images = {
                image.name: image.real_size_bytes
                for demand, size, disks in coming
                if (image := demand.image) is not None
                and self.world.lacks_image(image, disk.uuid)
                and index in disks
                and size <= disk.reach_bytes
            }
            found[index] += sum(images.values())
            for name in images:
                self.pending.own_image(disk.uuid, name)
        return found

    def own_roaming_on(self, room: NodeRoom) -> list[tuple[VolumeDemand, RoamingItem, tuple[int, ...]]]:
        """The pod's own volumes that roam, as far as they may come to that node, with the disks that they may come
        to."""
        if self._own_roaming is None:
            roaming = [demand for demand in self.demands if demand.is_roaming]
            self._own_roaming = [(one, roaming_item_of(item_of_demand(one), one, self.world)) for one in roaming]
        found = []
        for demand, entry in self._own_roaming:
            if room.name in entry.barred:
                continue
            item = entry.item
            able = disks_for(self.world, room, item.needs, item.size_bytes, item.required_bytes)
            disks = tuple(index for index in able if item.size_bytes <= room.disks[index].reach_bytes)
            if disks:
                found.append((demand, entry, disks))
        return found

    def is_loaded(self, shape: Shape) -> bool:
        """Whether data of others may come, or has come unreported, to a disk that one of the pod's volumes may come
        to."""
        rows = zip(shape.room.disks, self._own_bytes(shape), self.pending.loads(shape.room), strict=True)
        return any(own and (load or disk.reach_bytes > disk.free_bytes) for disk, own, load in rows)

    def is_robust(self, name: str) -> bool:
        """Whether the sums hold there for the pod's own volumes, promises aside."""
        shape = self.shape_on(name)
        if not isinstance(shape, Shape):
            return shape is None
        rows = zip(shape.room.disks, self._own_bytes(shape), strict=True)
        return all(more <= disk.free_bytes for disk, more in rows if more) and all(
            any(item.size_bytes <= shape.free[disk] for disk in item.all_disks) for item in shape.items
        )


def _bind(demand: VolumeDemand, zone: str, region: str) -> VolumeDemand:
    """The volume as it will be made when the pod's node lies in that zone and region."""
    if demand.follows == "zone" and zone:
        term = TopologyTerm(zone, region)
    elif demand.follows and region:
        term = TopologyTerm("", region)
    else:
        return demand
    return replace(demand, needs=replace(demand.needs, topology=(term,)))
