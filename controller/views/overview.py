"""Disks, sums, what is taken, and who waits: the facts of `/overview` that the allocator has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from heapq import nsmallest
from itertools import islice, starmap
from typing import Final

from controller.allocator.outcome import DiskOver, Mode, SharedDisk
from controller.allocator.plans.growths import Growth
from controller.allocator.plans.plan import Hold, Plan
from controller.allocator.verbs.views import Look, kind_of
from controller.model.longhorn import Disk, LonghornNode
from controller.model.times import rfc3339
from controller.model.workload import Pod
from controller.rules.eligibility import (
    check_disk_state,
    check_node,
    minimal_available,
    provisioning_limit,
    repeated,
)
from controller.rules.reasons import Reason, Rejection
from controller.views.documents import DiskView, TakenView, Totals, WaitingPod

MOST_WAITING: Final = 200
MOST_TAKEN: Final = 200


@dataclass(frozen=True, slots=True)
class OverviewParts:
    """What `/overview` shows of the allocator. `quarantined`: keys of pods and claims; with the disks that are over
    their limits or share a UUID it is what is wrong there."""

    mode: Mode
    totals: Totals
    disks: Sequence[DiskView]
    waiting: Sequence[WaitingPod]
    more_waiting: int
    plans: Sequence[TakenView]
    more_plans: int
    disks_over: Sequence[DiskOver]
    shared_disks: Sequence[SharedDisk]
    quarantined: Sequence[str]


def parts_of(look: Look) -> OverviewParts:
    """Return all of them. Costs: a look at each disk and at each pod that waits."""
    disks = disk_views(look)
    waiting, more_waiting = waiting_pods(look)
    plans, more_plans = taken_views(look)
    over = sorted(starmap(DiskOver, look.world.overdrawn()), key=lambda one: (one.node, one.disk))
    return OverviewParts(
        look.mode,
        totals_of(disks),
        disks,
        waiting,
        more_waiting,
        plans,
        more_plans,
        over,
        look.world.shared_disks(),
        sorted(look.quarantined),
    )


# Disks


def disk_views(look: Look) -> tuple[DiskView, ...]:
    """Return every disk of Longhorn's nodes, sorted by node and name. What is taken on one of several disks of a UUID
    counts on each, as Longhorn counts what lies there. Room that is kept from some pods alone counts as free."""
    nodes = sorted(look.world.nodes.values(), key=lambda node: node.name)
    return tuple(view for node in nodes for view in _disks(look, node))


def _disks(look: Look, node: LonghornNode) -> Iterator[DiskView]:
    room = look.world.room(node.name)
    free = {one.uuid: one.free_bytes for one in room.disks} if room is not None else {}  # of those that take replicas
    for disk in sorted(node.disks, key=lambda one: one.name):
        yield _disk(look, node, disk, free.get(disk.uuid))


def _disk(look: Look, node: LonghornNode, disk: Disk, free: int | None) -> DiskView:
    world, table, space = look.world, look.table, look.world.settings.space
    limit = provisioning_limit(disk, space)
    if free is None:
        free = limit - world.scheduled_on(disk)
    growth = sum(more for _, more in look.growths.growing_by(disk.uuid))
    taken = table.taken_bytes(node.name, disk.uuid)
    planned = table.planned_bytes(node.name, disk.uuid) if taken else 0
    rejection = why_closed(look, node, disk)
    return DiskView(
        node=node.name,
        disk=disk.name,
        uuid=disk.uuid,
        tags=sorted(disk.tags),
        maximum_bytes=disk.maximum_bytes,
        reserved_bytes=disk.reserved_bytes,
        available_bytes=disk.available_bytes,
        limit_bytes=limit,
        over_percent=space.over_provisioning_pct,
        used_bytes=limit - free - growth,
        planned_bytes=planned,
        held_bytes=taken - planned,
        growth_bytes=growth,
        free_bytes=free - taken,
        closed=f"{rejection.reason}: {rejection.message}" if rejection is not None else "",
    )


def why_closed(look: Look, node: LonghornNode, disk: Disk) -> Rejection | None:
    """Return why the disk takes no replica of any volume, whatever its limit; or None."""
    world = look.world
    if not world.has_node(node.name):
        return Rejection(Reason.NO_LONGHORN_NODE, f"{node.name}: Kubernetes has no such node")
    rejection = check_node(node)
    if rejection is None and world.is_repeated_disk(node.name, disk.uuid):
        rejection = repeated(disk)
    if rejection is not None:
        return rejection
    rejection = check_disk_state(disk)
    if rejection is not None:
        return Rejection(Reason.TOO_FULL, rejection.message) if disk.is_under_pressure else rejection
    if disk.shows_space and disk.available_bytes > minimal_available(disk, world.settings.space):
        return None
    return Rejection(Reason.TOO_FULL, f"{disk.name}: too little of it is available")


def totals_of(disks: Iterable[DiskView]) -> Totals:
    """Return the sums over these disks. Free are the bytes of disks that are neither closed nor over their limits."""
    found = list(disks)
    return Totals(
        nodes=len({one.node for one in found}),
        disks=len(found),
        maximum_bytes=sum(one.maximum_bytes for one in found),
        limit_bytes=sum(one.limit_bytes for one in found),
        used_bytes=sum(one.used_bytes for one in found),
        planned_bytes=sum(one.planned_bytes for one in found),
        held_bytes=sum(one.held_bytes for one in found),
        growth_bytes=sum(one.growth_bytes for one in found),
        free_bytes=sum(max(0, one.free_bytes) for one in found if not one.closed),
    )


# What is taken


def taken_views(look: Look, most: int = MOST_TAKEN) -> tuple[tuple[TakenView, ...], int]:
    """Return so many rows, plans before growth before holds, each kind the oldest first; and how many more there
    are. A volume that is held on several nodes has a row for each, since one of these will be chosen."""
    plans, growths, holds = look.table.plans(), look.growths.all(), look.table.all_holds()
    plans.sort(key=lambda one: (one.since_utc, one.volume))
    growths.sort(key=lambda one: (one.since, one.volume))
    holds.sort(key=lambda one: (one.since, one.pod))
    count = sum(len(one.places) for one in plans) + sum(len(one.on_disks) for one in growths)
    count += sum(_places_in(one) for one in holds)
    rows = tuple(islice(_rows(look, plans, growths, holds), most))
    return rows, count - len(rows)


def _rows(look: Look, plans: Iterable[Plan], growths: Iterable[Growth], holds: Iterable[Hold]) -> Iterator[TakenView]:
    for plan in plans:
        age = (look.now_utc - plan.since_utc).total_seconds()
        for place in plan.places:
            yield _taken(look, plan.volume, place.node, "plan", place.size_bytes, age)
    for growth in growths:
        for node, _, more in growth.on_disks:
            yield _taken(look, growth.volume, node, "growth", more, look.now - growth.since)
    for hold in holds:
        for volume, place in hold.places():
            yield _taken(look, volume, place.node, kind_of(hold.source), place.size_bytes, look.now - hold.since)


def _places_in(hold: Hold) -> int:
    return sum(map(len, hold.anywhere.values())) + sum(map(len, (hold.nodes or {}).values()))


def _taken(look: Look, volume: str, node: str, kind: str, size: int, age: float) -> TakenView:
    return TakenView(volume, claim_of(look, volume), node, kind, size, round(max(0.0, age), 1))


def claim_of(look: Look, volume: str) -> str:
    """Return "namespace/name" of the volume's claim, or ""."""
    claim = look.world.claim_of_volume(volume)
    return claim.key if claim is not None else ""


# Pods that wait

UNWIRED, QUARANTINED, GATED, UNASKED = "not-wired", "quarantined", "gated", "not-asked"
WHY_UNASKED: Final = {
    UNWIRED: "kube-scheduler does not know the extender: it found no node that offers the extender's resource.",
    QUARANTINED: "The pod or one of its claims broke an internal rule of the extender; it is tried again within five "
    "minutes.",
    GATED: "Its schedulingGates keep every scheduler from it.",
    UNASKED: "It may have been refused under the leader before; this one has not been asked about it yet.",
}


def waiting_pods(look: Look, most: int = MOST_WAITING) -> tuple[tuple[WaitingPod, ...], int]:
    """Return so many pods that no node was found for, the longest waiting first; and how many more there are. Those
    that nobody asks about are among them where a fault, a gate or missing wiring is the reason."""
    pods = [pod for uid in look.world.waiting if (pod := look.world.pods.get(uid)) is not None]
    found = [(pod, decision) for pod in pods if (decision := _decision(look, pod))]
    oldest = nsmallest(most, found, key=lambda entry: (entry[0].created_utc, entry[0].key))
    return tuple(_waiting(look, *entry) for entry in oldest), len(found) - len(oldest)


def _decision(look: Look, pod: Pod) -> str:
    """What keeps the pod waiting; "" if nothing does that is our business."""
    if look.quarantined and is_quarantined(look, pod):
        return QUARANTINED
    refused = look.refused.get(pod.uid)
    if refused is None:
        return UNWIRED if pod.lacks_extender else GATED if pod.is_gated else ""
    if not refused.reasons:
        return UNASKED
    return "contended" if refused.is_contended else "refused"


def is_quarantined(look: Look, pod: Pod) -> bool:
    """Whether the pod, or one of its claims, broke a rule of ours."""
    return not look.quarantined.isdisjoint((pod.key, *pod.claim_keys))


def _waiting(look: Look, pod: Pod, decision: str) -> WaitingPod:
    refused = look.refused.get(pod.uid)
    counted = refused.reasons if refused is not None and decision in ("contended", "refused") else {}
    reasons = {reason.value: count for reason, count in sorted(counted.items(), key=lambda one: (-one[1], one[0]))}
    text = WHY_UNASKED.get(decision) or _sentence(reasons)
    tried = moment(look, refused.tried_at) if refused is not None and reasons else ""
    return WaitingPod(
        pod.namespace, pod.name, pod.uid, pod.scheduler_name, pod.created_utc, tried, decision, reasons, text
    )


def _sentence(reasons: Mapping[str, int]) -> str:
    total, texts = sum(reasons.values()), [Reason(name).text.removeprefix("Longhorn: ") for name in reasons]
    if len(texts) == 1:
        return f"{total} {'node' if total == 1 else 'nodes'} refused: {texts[0]}."
    parts = [f"{text} ({count})" for text, count in zip(texts, reasons.values(), strict=True)]
    return f"{total} nodes refused: {', '.join(parts)}."


def moment(look: Look, at: float) -> str:
    """Return that time on the monotonic clock, as RFC 3339."""
    return rfc3339(look.now_utc + timedelta(seconds=at - look.now))
