"""On which nodes a pod's Longhorn volumes find room, with numbers for people: by the same judge as a filter call.

Nothing is held and no clock runs: whoever asks waits for the whole answer, bounded by the steps of the searches alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, NamedTuple

from controller.allocator.judge.discretion import Discretion
from controller.allocator.judge.node import Judge
from controller.allocator.judge.packing import PACK_STEPS, Steps, pack
from controller.allocator.judge.search import look
from controller.allocator.judge.shape import Shape
from controller.allocator.judge.verdict import SURE, Judgement, Verdict, unsuitable
from controller.allocator.promises.journal import Journal
from controller.allocator.promises.ledger import Ledger
from controller.allocator.promises.memory import Answers, Memory
from controller.allocator.promises.promise import Kind, OneOf, Promise, Source, State, Verb
from controller.allocator.promises.settle import Settler
from controller.allocator.verbs.explain import refusals_of
from controller.allocator.world.world import World
from controller.model.longhorn import DEFAULT_NEEDS
from controller.rules.demand import VolumeDemand
from controller.rules.reasons import Reason, Refusal

_SEVERITY: Final = (Verdict.UNSUITABLE, Verdict.FULL, Verdict.CONTENDED, Verdict.SURE)
_NOTHING: Final[Mapping[str, str]] = {}


class GivenPromise(NamedTuple):
    """Room on a node that is promised to a volume, by the Longhorn volume's name."""

    node: str
    volume: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class NodeFit:
    """What is said of one node. `placement`: a disk's name by volume, for the replicas that the node has to take."""

    verdict: Verdict
    is_robust: bool
    is_bounded: bool
    placement: Mapping[str, str] = field(default_factory=dict)
    refusals: tuple[Refusal, ...] = ()


def fit_pod(
    world: World,
    demands: Sequence[VolumeDemand],
    names: Sequence[str],
    promises: Iterable[GivenPromise] = (),
    now_utc: datetime | None = None,
) -> dict[str, NodeFit]:
    """The verdict on each of `names` for a pod with these demands, while `promises` are pending, and what Longhorn has
    to place by itself."""
    judge = Judge(world, ledger_of(world, demands, promises), demands, 0.0, now_utc=now_utc)
    judgements = judge_nodes(judge, names)
    return {name: _fit_on(judge, name, judgements[name]) for name in names}


def judge_nodes(judge: Judge, names: Sequence[str], *, allows_stranding: bool = False) -> dict[str, Judgement]:
    """The worse of two verdicts on each node: on the pod's roaming volumes, and on those that need room there. Where
    the restart rule holds, the nodes without the pod's data are unsuitable. Without a sure node, those are offered
    after all on which nothing but the pod's own volumes is in the way."""
    by_sets = {name: judgement for members, judgement in judge.judge_sets(names) for name in members}
    search = look(judge, names)
    found = {**dict.fromkeys(search.sure, SURE), **search.refused}
    home = frozenset(judge.restart_among(names))
    for name in names:
        if home and name not in home and found[name].verdict is not Verdict.UNSUITABLE:
            found[name] = unsuitable(Reason.REPLICA_ELSEWHERE)
        found[name] = min(by_sets[name], found[name], key=_severity)
    if not any(judgement is SURE for judgement in found.values()):
        discretion = Discretion(judge, allows_stranding=allows_stranding)
        for name, judgement in found.items():
            if judgement.verdict is Verdict.CONTENDED and discretion.covers(name):
                found[name] = SURE
    return found


def _severity(judgement: Judgement) -> int:
    return _SEVERITY.index(judgement.verdict)


def ledger_of(world: World, demands: Iterable[VolumeDemand], promises: Iterable[GivenPromise]) -> Ledger:
    """A ledger with these promises, each for the claim of its volume where there is one. Several promises of one volume
    on one node count once, at the largest size."""
    ledger, own = Ledger(), {demand.volume: demand.key for demand in demands}
    for index, promise in enumerate(promises):
        claim = world.claim_of_volume(promise.volume)
        key = own.get(promise.volume) or (claim.uid if claim is not None else promise.volume)
        volume = world.volumes.get(promise.volume)
        demand = world.demand_of(key)
        needs = demand.needs if demand is not None else volume.needs if volume is not None else DEFAULT_NEEDS
        given = Promise(
            volume=key,
            claimant=f"given:{index}",
            source=Source.CHOICE,
            state=State.ASSUMED,
            kind=Kind.FIRST,
            size_bytes=promise.size_bytes,
            required_bytes=0,
            needs=needs,
            places=OneOf(frozenset((promise.node,))),
            since=0.0,
        )
        ledger.put(Verb.ASSUME, given)
    settler = Settler(world, ledger, Memory(Answers()), Journal())
    for name in sorted(world.volumes_to_place()):
        settler.settle_volume(name, 0.0)
    return ledger


def _fit_on(judge: Judge, name: str, judgement: Judgement) -> NodeFit:
    if judgement.verdict in (Verdict.UNSUITABLE, Verdict.FULL):
        return NodeFit(judgement.verdict, False, judgement.is_bounded, _NOTHING, refusals_of(judge, name, judgement))
    return NodeFit(
        judgement.verdict,
        judge.is_robust(name),
        judgement.is_bounded,
        _placement(judge, name),
        () if judgement.verdict is Verdict.SURE else refusals_of(judge, name, judgement),
    )


def _placement(judge: Judge, name: str) -> Mapping[str, str]:
    """A packing of what the node has to take, promises aside."""
    shape = judge.shape_on(name)
    if not isinstance(shape, Shape):
        return _NOTHING
    found = pack(shape.everything, shape.free, Steps(PACK_STEPS)) or pack(shape.items, shape.free, Steps(PACK_STEPS))
    if found is None:
        return _NOTHING
    return {
        demand.volume: shape.room.disks[disk].name
        for demand, disk in sorted(zip(shape.wanted, found, strict=False), key=lambda entry: entry[0].volume)
    }
