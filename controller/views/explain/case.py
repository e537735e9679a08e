"""The question where one pod finds room, asked again outside the lock: as things are, and as they would be after a
change. It is answered by the functions that answer kube-scheduler."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol, Self

from controller.allocator.choose.choose import Chooser
from controller.allocator.choose.packing import Budget
from controller.allocator.choose.pod_fit import PodFit, suffice
from controller.allocator.choose.verdict import Judgement, Lack
from controller.allocator.choose.wanted import NothingTaken, Plus, Taken, Wanted, replica_to_come
from controller.allocator.plans.beside import Beside
from controller.allocator.plans.shared_claims import NodeLimit, SharedClaims
from controller.allocator.plans.table import Table
from controller.allocator.verbs.account import judge_nodes
from controller.allocator.verbs.views import Look
from controller.allocator.world.world import World
from controller.model.longhorn import LonghornNode, LonghornSettings, Replica
from controller.model.workload import Pod
from controller.rules.demand import VolumeDemand

JUDGE_MILLISECONDS: Final = 300  # after which nodes count as not evaluated


class Case(Protocol):
    """Something that finds no place on any of `names`, and may after a change."""

    @property
    def look(self) -> Look: ...
    @property
    def world(self) -> World: ...
    @property
    def table(self) -> Table: ...
    @property
    def names(self) -> Sequence[str]: ...
    @property
    def demands(self) -> Sequence[VolumeDemand]: ...
    @property
    def pod_uid(self) -> str: ...
    def fits(self, names: Sequence[str] | None = None) -> bool: ...
    def found_copies(self, demand: VolumeDemand) -> int: ...
    def in_world(self, world: World) -> Case: ...
    def with_demands(self, demands: Sequence[VolumeDemand]) -> Case: ...
    def with_table(self, table: Table) -> Case: ...
    def without_growth(self, volumes: Iterable[str]) -> Case: ...


@dataclass(frozen=True, slots=True)
class PodCase:
    """A pod that waits, and the nodes that kube-scheduler asked about, those with most room first; all of them if it
    has not asked. `world` and `table`: those of the look, or changed copies."""

    look: Look
    pod: Pod
    demands: Sequence[VolumeDemand]
    names: Sequence[str]
    limit: NodeLimit
    world: World
    table: Table

    @classmethod
    def of(cls, look: Look, pod: Pod) -> Self:
        world = look.world
        demands, _ = world.demands_of(pod)
        refused = look.refused.get(pod.uid)
        asked = refused.nodes if refused is not None and refused.nodes else [*world.nodes]
        names = sorted(dict.fromkeys(asked), key=lambda name: (-world.best.get(name, -1), name))
        limit = SharedClaims(world, look.table).limit_of(pod, demands)
        return cls(look, pod, demands, names, limit, world, look.table)

    @property
    def pod_uid(self) -> str:
        return self.pod.uid

    # As things are

    def fit(self) -> PodFit:
        """Return a new question. Costs: what is remembered of kinds of disks, once more for volumes that roam."""
        budget = Budget.of(self.look.clock, JUDGE_MILLISECONDS)
        return self.look.room(self.world, self.table).fit(self.pod, self.demands, budget)

    def judge(self, fit: PodFit) -> dict[str, Judgement]:
        """Return the judgement on each of the nodes to which other users of its claims leave it."""
        return judge_nodes(fit, [name for name in self.names if self.limit.includes(name)])

    def fits(self, names: Sequence[str] | None = None) -> bool:
        """Whether a filter call would let the pod pass on one of `names`, or of all nodes."""
        case = self if names is None else replace(self, names=names)
        return any(judgement.is_sure for judgement in case.judge(case.fit()).values())

    def lack(self, fit: PodFit, demand: VolumeDemand) -> Lack | None:
        """Return which copies of that volume, which is bound to no node, find a disk beside all that is taken, if these
        are not enough."""
        places = fit.copies_of(demand, self.names, fit.taken)
        return None if suffice(self.world, demand, places) else Lack(demand, places)

    def found_copies(self, demand: VolumeDemand) -> int:
        """Return how many copies of that volume find a disk, where that is not enough; 0 where it is."""
        lack = self.lack(self.fit(), demand)
        return len(lack.places) if lack is not None else 0

    # As they would be

    def with_demands(self, demands: Sequence[VolumeDemand]) -> Self:
        return replace(self, demands=demands)

    def without_growth(self, volumes: Iterable[str]) -> Self:
        return self.in_world(ungrown(self.look, self.world, volumes))

    def with_table(self, table: Table) -> Self:
        return replace(self, table=table)

    def in_world(self, world: World) -> Self:
        table = settled(self.look, world, self.table)
        return replace(self, world=world, table=table, demands=world.demands_of(self.pod)[0])


@dataclass(frozen=True, slots=True)
class CopyCase:
    """A Replica of a volume that exists, which has no disk. `is_first`: it takes nothing that is promised to others."""

    look: Look
    demand: VolumeDemand
    replica: Replica
    is_first: bool
    world: World
    table: Table

    @property
    def names(self) -> Sequence[str]:
        return [*self.world.nodes]

    @property
    def demands(self) -> Sequence[VolumeDemand]:
        return (self.demand,)

    @property
    def pod_uid(self) -> str:
        return ""

    @property
    def wanted(self) -> Wanted:
        return Wanted(self.demand.facts, self.replica, self.table.places(self.demand.volume))

    @property
    def taken(self) -> Taken:
        volume = self.demand.volume
        return Plus(Beside(self.table, (volume,)), self.table.places(volume)) if self.is_first else NothingTaken()

    def fits(self, names: Sequence[str] | None = None) -> bool:
        wanted = self.wanted if names is None else replace(self.wanted, only=frozenset(names))
        return Chooser(self.world).choose(wanted, self.taken, self.look.now_utc).place is not None

    def found_copies(self, demand: VolumeDemand) -> int:
        del demand
        return 0

    def in_world(self, world: World) -> Self:
        return replace(self, world=world, table=settled(self.look, world, self.table))

    def with_demands(self, demands: Sequence[VolumeDemand]) -> Self:
        return replace(self, demand=demands[0])

    def with_table(self, table: Table) -> Self:
        return replace(self, table=table)

    def without_growth(self, volumes: Iterable[str]) -> Self:
        return replace(self, world=ungrown(self.look, self.world, volumes))


def with_node(case: Case, node: LonghornNode) -> Case:
    """Return the case as it would be with that node in place of the one of its name."""
    world = case.world.copy(case.look.growths)
    world.put_node(node.name, node)
    return case.in_world(world)


def with_settings(case: Case, settings: LonghornSettings) -> Case:
    """Return the case as it would be with these settings of Longhorn."""
    return case.in_world(case.world.copy(case.look.growths, settings))


def settled(look: Look, world: World, table: Table) -> Table:
    """Return the table once plans that lack copies have found places which a change has opened: that happens before
    anybody is asked again. Costs: a look at each plan, and a copy of the table and some placements if any lacks one."""
    found, chooser = table, Chooser(world)
    for plan in sorted(table.plans(), key=lambda one: one.volume):
        claim = world.claim_of_volume(plan.volume)
        demand = world.demand_of(claim.uid) if claim is not None else None
        if demand is None or demand.is_local or len(plan.places) >= demand.copies:
            continue
        found = Table.of(table.plans(), table.all_holds()) if found is table else found
        places = plan.places
        while len(places) < demand.copies:
            wanted = Wanted(demand.facts, replica_to_come(demand.facts), places)
            place = chooser.choose(wanted, Plus(Beside(found, (plan.volume,)), places), look.now_utc).place
            if place is None:
                break
            places = (*places, place)
        found.put(replace(plan, places=places))
    return found


def ungrown(look: Look, world: World, volumes: Iterable[str]) -> World:
    """Return a copy of the world without what is admitted for these volumes and not asked for."""
    growths = look.growths.copy()
    growths.world = changed = world.copy(growths)
    for volume in volumes:
        growths.settle(volume, look.now, ends_hold=True)
    return changed
