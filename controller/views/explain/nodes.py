"""What is said of each node to which a waiting pod cannot go: the first rule that refuses, with its figures."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

from controller.allocator.choose.choose import Chooser
from controller.allocator.choose.explain import DiskFigures, explain
from controller.allocator.choose.pod_fit import PodFit, wanted_by
from controller.allocator.choose.shortfall import nearest_miss
from controller.allocator.choose.verdict import Judgement, Lack, Verdict
from controller.allocator.choose.wanted import Plus, Taken, Wanted
from controller.allocator.plans.table import Table
from controller.allocator.verbs.account import account_of_limit, refusals_of
from controller.allocator.verbs.views import Look
from controller.allocator.world.world import World
from controller.model.longhorn import Disk, DiskNeeds
from controller.model.workload import Pod
from controller.rules.affinity import Affinity
from controller.rules.demand import VolumeDemand
from controller.rules.eligibility import provisioning_limit
from controller.rules.reasons import Reason, Refusal
from controller.views.documents import NodeAnswer
from controller.views.explain.case import PodCase
from controller.views.explain.holders import DiskHolders, MaySee

MOST_NODES: Final = 50  # that are told of
MOST_LOOKED_AT: Final = 200  # nodes that are asked why they take no copy of a volume that may lie anywhere
_OF_ROOM: Final = frozenset(
    (Reason.INSUFFICIENT_STORAGE, Reason.TOO_FULL, Reason.BACKING_IMAGE, Reason.CONTENDED, Reason.KEPT)
)
# What tells least comes last: another disk of the node, or another node, might still do.
_LEAST: Final = (Reason.DISK_TYPE, Reason.NODE_ANTI_AFFINITY, Reason.NO_LONGHORN_NODE)
_APART: Final = (Reason.NODE_ANTI_AFFINITY, Reason.ZONE_ANTI_AFFINITY)
_RANK_OF_NODE: Final = (False, False, 0.0, "")
_VERDICTS: Final = (Verdict.CONTENDED, Verdict.FULL, Verdict.UNSUITABLE)


@dataclass(frozen=True, slots=True)
class Barrier:
    """Why one node is refused. `demand`: the volume that it is refused for; None: all of the pod's. `disk`: the one
    that comes nearest; None: the node itself. `missing_bytes` 0: bytes would not help, or nobody knows how many.
    `has_twins`: what lies on other disks of its UUID fills it."""

    node: str
    verdict: Verdict
    reason: Reason
    text: str
    demand: VolumeDemand | None = None
    disk: Disk | None = None
    missing_bytes: int = 0
    has_twins: bool = False

    @property
    def rank(self) -> tuple[object, ...]:
        """The nearest miss first."""
        is_of_room = self.reason in _OF_ROOM
        missing = self.missing_bytes or math.inf
        least = _LEAST.index(self.reason) + 1 if self.reason in _LEAST else 0
        is_unknown = self.reason is Reason.NOT_EVALUATED
        return not is_of_room, is_unknown, _VERDICTS.index(self.verdict), missing, least, self.node

    @property
    def why(self) -> str:
        """Its text without the names of node, disk and volume, which stand beside it."""
        volume, text = self.demand.volume if self.demand is not None else "", self.text
        for name in (self.node, volume, self.node, self.disk.name if self.disk is not None else ""):
            text = text.removeprefix(f"{name}: ") if name else text
        return text.replace(f"replica of {volume}", "replica of it") if volume else text


@dataclass(frozen=True, slots=True)
class Sight:
    """The facts as the one who waits sees them: `taken` is what others have. `own`: its volumes; `is_local`: any of
    them needs its pod's node."""

    look: Look
    world: World
    table: Table
    taken: Taken
    own: frozenset[str]
    pod: Pod | None = None
    is_local: bool = False

    @classmethod
    def of(cls, case: PodCase, fit: PodFit) -> Self:
        own = frozenset(demand.volume for demand in case.demands)
        return cls(case.look, case.world, case.table, fit.taken, own, case.pod, bool(fit.local))


def barriers(case: PodCase, fit: PodFit, judgements: Mapping[str, Judgement]) -> list[Barrier]:
    """Return why the nodes are refused, the nearest miss first: those to which the pod may go; of a volume that is
    bound to no node, any nodes of Longhorn's. At most `MOST_LOOKED_AT` have more than their reasons."""
    lack = _lack_of(case, fit, judgements)
    if lack is not None:
        beside = Plus(fit.taken, lack.places)
        found = barriers_of_copy(Sight.of(case, fit), wanted_by(lack), lack.demand, beside, fit.chooser)
        if found:
            return found
    rough = sorted((_rough(fit, name, judgement) for name, judgement in judgements.items()), key=lambda one: one.rank)
    exact = [_exact(case, fit, one, judgements[one.node]) for one in rough[:MOST_NODES]]
    return [*sorted(exact, key=lambda one: one.rank), *rough[MOST_NODES:], *_in_use(case)]


def _in_use(case: PodCase) -> Iterable[Barrier]:
    """The nodes that other users of the pod's claims do not leave to it."""
    closed = [name for name in case.names if not case.limit.includes(name)]
    text = account_of_limit(case.limit) if closed else ""
    return (Barrier(name, Verdict.UNSUITABLE, Reason.IN_USE_ELSEWHERE, text) for name in closed)


def answers(sight: Sight, found: Sequence[Barrier], may_see: MaySee) -> tuple[tuple[NodeAnswer, ...], int]:
    """Return the barriers as they are told, and how many are left out."""
    shown = found[:MOST_NODES]
    disks = {(one.node, one.disk.uuid) for one in shown if one.disk is not None}
    holders = DiskHolders.of(sight.look, may_see, disks, sight.pod, sight.own, local=sight.is_local)
    return tuple(_answer(sight, one, holders) for one in shown), len(found) - len(shown)


def _answer(sight: Sight, one: Barrier, holders: DiskHolders) -> NodeAnswer:
    claim, verdict = one.demand.claim if one.demand is not None else "", one.verdict.name.lower()
    if one.disk is None:
        return NodeAnswer(one.node, verdict, one.reason, one.why, claim, "", 0, 0, 0, 0, one.missing_bytes, ())
    figures = figures_of(sight, one.node, one.disk)
    return NodeAnswer(
        node=one.node,
        verdict=verdict,
        reason=one.reason,
        text=one.why,
        claim=claim,
        disk=one.disk.name,
        limit_bytes=figures.limit_bytes,
        used_bytes=figures.limit_bytes - figures.room_bytes,
        taken_bytes=figures.taken_bytes,
        free_bytes=figures.free_bytes,
        missing_bytes=one.missing_bytes,
        holders=holders.on(one.node, one.disk.uuid),
    )


def figures_of(sight: Sight, node: str, disk: Disk) -> DiskFigures:
    """Return the bytes of the disk: what others take there is not free, growth is not used."""
    growth = sum(more for _, more in sight.look.growths.growing_by(disk.uuid))
    limit, taken = provisioning_limit(disk, sight.world.settings.space), sight.taken.taken_bytes(node, disk.uuid)
    return DiskFigures(limit, limit - sight.world.scheduled_on(disk) + growth, taken + growth, 0)


# Volumes that follow the pod


def _rough(fit: PodFit, name: str, judgement: Judgement) -> Barrier:
    """The barrier without words, and with the bytes that are missing by a quick look."""
    reason = judgement.reason or Reason.CONTENDED
    is_of_room = judgement.verdict is not Verdict.UNSUITABLE and not fit.budget.is_spent()
    miss = nearest_miss(fit, name) if is_of_room else None
    missing = miss.missing_bytes if miss is not None else 0
    return Barrier(name, judgement.verdict, reason, reason.text, missing_bytes=missing)


def _exact(case: PodCase, fit: PodFit, rough: Barrier, judgement: Judgement) -> Barrier:
    node = case.world.nodes.get(rough.node)
    found = refusals_of(fit, case.table, rough.node, judgement)
    demand = fit.local[0] if len(fit.local) == 1 else None
    if judgement.reason is Reason.NEVER_PLACED:
        demand = next((one for one in case.demands if one.never), None)
    barrier = replace(rough, demand=demand, text=_text_of(found, "") or rough.text)
    disks = {disk.name: disk for disk in node.disks} if node is not None else {}
    miss = nearest_miss(fit, rough.node, is_thorough=True) if rough.reason in _OF_ROOM else None
    if miss is not None:
        text = _text_of(found, miss.disk.name) or rough.text
        short = replace(barrier, text=text, disk=disks[miss.disk.name], missing_bytes=miss.missing_bytes)
        return _told_apart(Sight.of(case, fit), short)
    refused = [one for one in found if one.disk]
    if not refused:
        return barrier
    nearest = min(refused, key=lambda one: _rank_of_disk(one, disks[one.disk]))
    reason = _reason_of(nearest, disks[nearest.disk])
    missing = nearest.rejection.missing_bytes
    text = nearest.rejection.message
    return replace(barrier, reason=reason, text=text, disk=disks[nearest.disk], missing_bytes=missing)


def _told_apart(sight: Sight, short: Barrier) -> Barrier:
    """The barrier of a disk that lacks bytes; contended where those of growth that is held would do, and marked where
    what lies on other disks of its UUID would."""
    disk = short.disk
    if disk is None or not short.missing_bytes or short.reason is Reason.TOO_FULL:
        return short
    if twin_bytes(sight, short.node, disk.uuid) >= short.missing_bytes:
        return replace(short, has_twins=True)
    growths = sight.look.growths
    held = [more for name, more in growths.growing_by(disk.uuid) if (one := growths.get(name)) and one.is_held]
    if short.reason is Reason.INSUFFICIENT_STORAGE and sum(held) >= short.missing_bytes:
        return replace(short, reason=Reason.CONTENDED, verdict=Verdict.CONTENDED)
    return short


def twin_bytes(sight: Sight, node: str, uuid: str) -> int:
    """Return the bytes that count on that disk and lie, or are promised, on other nodes' disks of its UUID."""
    if len(sight.world.nodes_of_disk(uuid)) < 2:
        return 0
    stored = sum(one.size_bytes for one in sight.world.replicas_on(uuid) if one.node != node)
    return stored + sight.table.taken_bytes(node, uuid) - sight.table.taken_on(node).get(uuid, 0)


def apart_by(world: World, found: Sequence[Barrier]) -> str:
    """Return "node" or "zone" where a volume's other copies bar all nodes, since each needs one of its own; else ""."""
    demand = found[0].demand
    if demand is None or len(found) < len(world.nodes) or any(one.reason not in _APART for one in found):
        return ""
    return "node" if Affinity.of(demand.facts, world.settings).zone_soft else "zone"


def missing_tags(tags: frozenset[str], needs: DiskNeeds, *, of_node: bool) -> list[str]:
    """Return which of the tags that a volume and its backing image ask for are not among these."""
    image = needs.image
    asked = needs.node_selector if of_node else needs.disk_selector
    of_image = () if image is None else image.node_selector if of_node else image.disk_selector
    return sorted({*asked, *of_image} - tags)


def _text_of(found: Iterable[Refusal], disk: str) -> str:
    """The message about that disk, else about the node, else about any."""
    texts = {one.disk: one.rejection.message for one in found}
    return texts.get(disk) or texts.get("") or next(iter(texts.values()), "")


def _reason_of(refusal: Refusal, disk: Disk) -> Reason:
    """Its reason; that of a disk under pressure is the pressure."""
    reason = refusal.rejection.reason
    return Reason.TOO_FULL if reason is Reason.DISK_UNSCHEDULABLE and disk.is_under_pressure else reason


def _rank_of_disk(refusal: Refusal, disk: Disk) -> tuple[bool, bool, float, str]:
    reason = _reason_of(refusal, disk)
    return reason not in _OF_ROOM, reason in _LEAST, refusal.rejection.missing_bytes or math.inf, refusal.disk


# Volumes that may lie anywhere


def _lack_of(case: PodCase, fit: PodFit, judgements: Mapping[str, Judgement]) -> Lack | None:
    """The volume that finds no disk wherever the pod goes, with the copies that do beside all that is taken."""
    lack = next((one.lack for one in judgements.values() if one.lack is not None), None)
    if lack is not None:
        return case.lack(fit, lack.demand) or lack
    if fit.local or not all(one.reason is Reason.CONTENDED for one in judgements.values()):
        return None
    found = (case.lack(fit, demand) for demand in fit.needing_disks())
    return next((one for one in found if one is not None), None)


def barriers_of_copy(
    sight: Sight, wanted: Wanted, demand: VolumeDemand, beside: Taken, chooser: Chooser
) -> list[Barrier]:
    """Return why Longhorn's nodes take no copy of that volume, the nearest miss first."""
    found = _of_copy(sight, wanted, demand, beside, chooser)
    return sorted(found, key=lambda one: one.rank)


def _of_copy(sight: Sight, wanted: Wanted, demand: VolumeDemand, beside: Taken, chooser: Chooser) -> Iterable[Barrier]:
    world = sight.world
    own = {one.node for one in wanted.planned}.union(one.node for one in world.replicas_of(demand.volume).values())
    near = chooser.nearest(wanted, MOST_LOOKED_AT, own) if len(world.nodes) > MOST_LOOKED_AT else world.nodes
    among = own.union(near) & world.nodes.keys()
    refusals = explain(wanted, world, beside, sight.look.now_utc, among).found.refusals
    by_node = dict[str, list[Refusal]]()
    for one in refusals:
        by_node.setdefault(one.node, []).append(one)
    for name, found in by_node.items():
        node = world.nodes.get(name)
        disks = {disk.name: disk for disk in node.disks} if node is not None else {}
        nearest = min(found, key=lambda one: _rank_of_disk(one, disks[one.disk]) if one.disk else _RANK_OF_NODE)
        disk = disks.get(nearest.disk)
        reason = _reason_of(nearest, disk) if disk is not None else nearest.rejection.reason
        verdict = Verdict.UNSUITABLE
        if reason in _OF_ROOM:
            verdict = Verdict.CONTENDED if reason is Reason.CONTENDED else Verdict.FULL
        missing = nearest.rejection.missing_bytes
        yield _told_apart(sight, Barrier(name, verdict, reason, nearest.rejection.message, demand, disk, missing))
