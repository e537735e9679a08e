"""On which nodes a pod's Longhorn volumes find room, with numbers for people: as a filter call decides.

Nothing is held and no clock runs: whoever asks waits for the whole answer, bounded by the steps of the searches alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, NamedTuple

from controller.allocator.choose.choose import Chooser
from controller.allocator.choose.packing import PACK_STEPS, Item, Steps, pack
from controller.allocator.choose.pod_fit import PodFit
from controller.allocator.choose.verdict import Judgement, Verdict
from controller.allocator.choose.wanted import Wanted, replica_to_come, view_of
from controller.allocator.plans.plan import Plan
from controller.allocator.plans.shared_claims import NO_LIMIT, NodeLimit
from controller.allocator.plans.table import Table
from controller.allocator.verbs.account import account_of_limit, judge_nodes, refusals_of
from controller.allocator.world.world import World
from controller.model.longhorn import DEFAULT_NEEDS, DiskNeeds, Replica, Volume
from controller.model.places import Place
from controller.rules.demand import VolumeDemand
from controller.rules.eligibility import disk_takes
from controller.rules.placing import check_replacement, check_time, is_replacement
from controller.rules.reasons import Reason, Refusal, Rejection

_NOTHING: Final[Mapping[str, str]] = {}
_NO_TIME: Final = datetime.min.replace(tzinfo=UTC)


class GivenPromise(NamedTuple):
    """Room on a node that is promised to a volume, by the Longhorn volume's name."""

    node: str
    volume: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class NodeFit:
    """What is said of one node. `placement`: of a sure node, a disk's name by volume, for the replicas that the node
    has to take."""

    verdict: Verdict
    is_bounded: bool
    placement: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    refusals: tuple[Refusal, ...] = ()


def fit_pod(
    world: World,
    demands: Sequence[VolumeDemand],
    names: Sequence[str],
    promises: Iterable[GivenPromise] = (),
    now_utc: datetime | None = None,
    limit: NodeLimit = NO_LIMIT,
) -> dict[str, NodeFit]:
    """The verdict on each of `names` for a pod with these demands, beside the `promises` and what Longhorn has to place
    by itself. `limit`: by other pods of its claims."""
    table, chooser, own = Table(), Chooser(world), {demand.volume for demand in demands}
    put_promises(world, table, demands, promises)
    _plan_unplaced(world, table, chooser, own, now_utc)
    fit = PodFit(world, chooser, demands, table, now_utc=now_utc)
    judgements = judge_nodes(fit, names)
    return {name: _fit_on(fit, table, name, judgements[name], limit) for name in names}


def fit_nowhere(names: Sequence[str], problem: str) -> dict[str, NodeFit]:
    """The verdict on each of `names` for a pod that no scheduler binds to any."""
    refused = ((name, Rejection(Reason.NEVER_PLACED, f"{name}: {problem}")) for name in names)
    return {name: NodeFit(Verdict.UNSUITABLE, False, refusals=(Refusal(name, "", why),)) for name, why in refused}


def _fit_on(fit: PodFit, table: Table, name: str, judgement: Judgement, limit: NodeLimit) -> NodeFit:
    if not limit.includes(name):
        in_use = Rejection(Reason.IN_USE_ELSEWHERE, account_of_limit(limit))
        return NodeFit(Verdict.UNSUITABLE, is_bounded=False, refusals=(Refusal(name, "", in_use),))
    verdict, is_bounded = judgement.verdict, judgement.is_bounded
    if not judgement.is_sure:
        return NodeFit(verdict, is_bounded, refusals=refusals_of(fit, table, name, judgement))
    room = fit.world.room(name)
    disks = {disk.uuid: disk.name for disk in room.disks} if room is not None else {}
    return NodeFit(
        verdict, is_bounded, {volume: disks[place.disk_uuid] for volume, place in sorted(judgement.places.items())}
    )


# What takes room beside


def put_promises(
    world: World, table: Table, demands: Iterable[VolumeDemand], promises: Iterable[GivenPromise]
) -> list[GivenPromise]:
    """Plans each promise, the large ones first, on the fullest disk of its node that takes it. Several of one volume on
    one node count once, at the largest size, and those of the pod's own volumes not at all. Returns the promises that
    no disk takes, which count as nothing."""
    lost, own = list[GivenPromise](), {demand.volume for demand in demands}
    done = set[tuple[str, str]]()
    for one in sorted(promises, key=lambda promise: (-promise.size_bytes, promise.node, promise.volume)):
        if one.volume in own or (one.node, one.volume) in done:
            continue
        place = _disk_for(world, table, one)
        if place is None:
            lost.append(one)
        else:
            done.add((one.node, one.volume))
            _plan(table, one.volume, place)
    return lost


def _disk_for(world: World, table: Table, promise: GivenPromise) -> Place | None:
    room, needs, size = world.room(promise.node), _needs_of(world, promise.volume), promise.size_bytes
    disks = room.disks if room is not None else ()
    suited = (index for index, disk in enumerate(disks) if disk_takes(disk, needs, size, 0, world.settings.space))
    free = [disk.free_bytes - table.taken_bytes(promise.node, disk.uuid) for disk in disks]
    found = pack((Item(size, tuple(suited)),), free, Steps(PACK_STEPS))
    return None if found is None else Place(promise.node, disks[found.disks[0]].uuid, size)


def _needs_of(world: World, volume: str) -> DiskNeeds:
    """What the volume needs of a disk; a plain volume's needs where it is not known."""
    claim, facts = world.claim_of_volume(volume), world.volumes.get(volume)
    demand = world.demand_of(claim.uid) if claim is not None else None
    return demand.needs if demand is not None else facts.needs if facts is not None else DEFAULT_NEEDS


def _plan_unplaced(
    world: World, table: Table, chooser: Chooser, besides: Collection[str], now_utc: datetime | None
) -> None:
    """Plans what Longhorn would place now, one replica after the other."""
    for volume in sorted(world.volumes.values(), key=lambda one: one.name):
        if volume.name in besides:
            continue
        for replica in _unplaced(world, volume, now_utc)[len(table.places(volume.name)) :]:
            place = chooser.choose(Wanted(volume, replica, table.places(volume.name)), table, now_utc).place
            if place is not None:
                _plan(table, volume.name, place)


def _unplaced(world: World, volume: Volume, now_utc: datetime | None) -> list[Replica]:
    """Those of its replicas that are due. Of a volume that has none yet they will be made at once."""
    replicas = list(world.replicas_of(volume.name).values()) or [replica_to_come(volume)] * volume.replica_count
    due = (one for one in replicas if not one.node and check_time(volume, one, world.settings) is None)
    return [one for one in due if not is_replacement(one) or _is_due(world, volume, one, now_utc)]


def _is_due(world: World, volume: Volume, replica: Replica, now_utc: datetime | None) -> bool:
    return check_replacement(view_of(world, Wanted(volume, replica), now_utc), volume) is None


def _plan(table: Table, volume: str, place: Place) -> None:
    plan = table.plan(volume)
    places = (*plan.places, place) if plan is not None else (place,)
    table.put(Plan(volume, volume, places, (), _NO_TIME))
