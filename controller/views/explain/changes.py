"""The smallest change that would let a waiting pod through: each is tried on a copy of the facts, by the functions that
answer kube-scheduler, before it is proposed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from controller.allocator.plans.growths import HOLD_SECONDS
from controller.allocator.plans.table import Table
from controller.model.longhorn import Disk, LonghornNode, LonghornSettings
from controller.model.quantity import bytes_text, exact_bytes_text
from controller.rules.demand import Missing, VolumeDemand, demand_of_claim
from controller.rules.eligibility import provisioning_limit
from controller.rules.growth import GRANULE_BYTES
from controller.rules.provisioning import MIN_VOLUME_BYTES
from controller.rules.reasons import Reason
from controller.views.explain.case import Case, with_node, with_settings
from controller.views.explain.holders import end_of
from controller.views.explain.nodes import Barrier, apart_by, missing_tags
from controller.views.overview import moment

MOST_TRIED: Final = 5  # nodes whose changes are tried
MOST_TOLD: Final = 2
_DEGRADED: Final = "allow-volume-creation-with-degraded-availability"
# By the reason that they would end.
_SETTINGS: Final = {
    Reason.NODE_ANTI_AFFINITY: "replica-soft-anti-affinity",
    Reason.ZONE_ANTI_AFFINITY: "replica-zone-soft-anti-affinity",
    Reason.DISK_ANTI_AFFINITY: "replica-disk-soft-anti-affinity",
}
_OVER: Final = "storage-over-provisioning-percentage"
_COSTS: Final = {  # each holds for all volumes
    _DEGRADED: "volumes may then lack copies from the start",
    "replica-soft-anti-affinity": "copies may then share a node, and are lost with it",
    "replica-zone-soft-anti-affinity": "copies may then share a zone, and are lost with it",
    "replica-disk-soft-anti-affinity": "copies may then share a disk, and are lost with it",
    "allow-empty-node-selector-volume": "volumes that ask for no tag may then use all nodes",
    "allow-empty-disk-selector-volume": "volumes that ask for no tag may then use all disks",
    _OVER: "disks may then run full",
}


@dataclass(frozen=True, slots=True)
class Remedy:
    """Something that a person could do, with its `text` in an imperative clause. `kind`: "wait" (`value`: until when),
    "open-node", "open-disk", "own-uuid", "tag-node", "tag-disk" (`value`: the tags), "free" or "enlarge" (`value`:
    bytes, of which `what` says what they are), "request" or "copies" (`what`: the claim, `value`: bytes or a number),
    or "setting" (`what`: its name, `value`: its value)."""

    kind: str
    text: str
    node: str = ""
    disk: str = ""
    what: str = ""
    value: str = ""


@dataclass(frozen=True, slots=True)
class _Tried:
    """A change and whether it helps."""

    change: Remedy
    helps: Callable[[], bool]


def proven_changes(case: Case, found: Sequence[Barrier], most: int = MOST_TOLD) -> tuple[Remedy, ...]:
    """Return so many changes, each of which alone would let the pod pass, the smallest first and of each kind one.
    Costs: for each change that is tried, a copy of the facts and a question about one node or all."""
    proven = list[Remedy]()
    for one in _candidates(case, found):
        if any((one.change.kind, one.change.what) == (other.kind, other.what) for other in proven) or not one.helps():
            continue
        proven.append(one.change)
        if len(proven) == most:
            break
    return tuple(proven)


def in_words(case: Case, found: Sequence[Barrier]) -> str:
    """Return the changes as one sentence, "" without any; before them a further node, where nothing else gives all
    copies a place apart: that cannot be tried."""
    new = {"": [], "node": ["add a node"], "zone": ["add a node in another zone (label topology.kubernetes.io/zone)"]}
    return sentence([*new[apart_by(case.world, found)], *(change.text for change in proven_changes(case, found))])


def sentence(clauses: Sequence[str]) -> str:
    """Return the alternatives as one sentence, "" without any."""
    text = "; or ".join(clauses)
    return f"{text[0].upper()}{text[1:]}." if text else ""


def _candidates(case: Case, found: Sequence[Barrier]) -> Iterator[_Tried]:
    """What might help, the smallest first."""
    nearest = found[:MOST_TRIED]
    for group in (_waits, _openings, _frees):
        for barrier in nearest:
            yield from group(case, barrier)
    yield from _requests(case, found)
    yield from _fewer_copies(case, nearest)
    yield from _settings(case, nearest)


def _at(case: Case, barrier: Barrier) -> Sequence[str] | None:
    """The nodes for which the pod is judged anew if that node changes; None: all."""
    is_local = barrier.demand is None or barrier.demand.is_local
    return (barrier.node,) if is_local and barrier.node in case.names else None


# Promises that end


def _waits(case: Case, barrier: Barrier) -> Iterator[_Tried]:
    disk, look = barrier.disk, case.look
    if disk is None or barrier.reason not in (Reason.CONTENDED, Reason.KEPT):
        return
    holds, here = case.table.all_holds(), (barrier.node, disk.uuid)
    ends = [
        (end, hold)
        for hold in holds
        if hold.pod != case.pod_uid and (end := end_of(look, hold)) is not None
        if any((place.node, place.disk_uuid) == here for _, place in hold.places())
    ]
    ending = [hold for _, hold in ends]
    growing = [one for one in look.growths.held() if any((node, uuid) == here for node, uuid, _ in one.on_disks)]
    until = max((*(end for end, _ in ends), *(one.since + HOLD_SECONDS for one in growing)), default=None)
    if until is None:
        return
    text = f"wait: what is held on disk {disk.name} of node {barrier.node} is free again by {moment(look, until)}, "
    change = Remedy("wait", f"{text}unless it is used there", barrier.node, disk.name, value=moment(look, until))

    def helps() -> bool:
        after = case.without_growth([one.volume for one in growing]) if growing else case
        left = [hold for hold in holds if hold not in ending]
        return after.with_table(Table.of(case.table.plans(), left)).fits(_at(case, barrier))

    yield _Tried(change, helps)


# What is closed, or has other tags


def _openings(case: Case, barrier: Barrier) -> Iterator[_Tried]:
    node = case.world.nodes.get(barrier.node)
    if node is None:
        return
    for change, changed in _opened(node, barrier):
        yield _Tried(change, _try_node(case, barrier, changed))


def _opened(node: LonghornNode, barrier: Barrier) -> Iterator[tuple[Remedy, LonghornNode]]:
    name, needs = node.name, barrier.demand.needs if barrier.demand is not None else None
    if barrier.reason is Reason.NODE_UNSCHEDULABLE:
        text = f"let replicas come to Longhorn node {name}"
        if node.is_cordoned:
            text = f"uncordon node {name}, unless it is being serviced"
        yield Remedy("open-node", text, name), replace(node, allow_scheduling=True, schedulable=True)
    elif barrier.reason is Reason.NODE_NOT_READY:
        yield Remedy("open-node", f"bring Longhorn node {name} back to Ready", name), replace(node, ready=True)
    elif barrier.reason is Reason.NODE_TAGS and needs is not None:
        tags = missing_tags(node.tags, needs, of_node=True)
        if tags:
            text = f"give node {name} the tag {', '.join(tags)}, if it is such a node"
            yield Remedy("tag-node", text, name, value=",".join(tags)), replace(node, tags=node.tags.union(tags))
    disk = barrier.disk
    if disk is None:
        return
    where = f"disk {disk.name} of node {name}"
    if barrier.reason is Reason.DISK_UNSCHEDULABLE:
        opened = replace(disk, allow_scheduling=True, eviction_requested=False, schedulable=True)
        yield Remedy("open-disk", f"let replicas come to {where}", name, disk.name), _with_disk(node, opened)
    elif barrier.has_twins or barrier.reason is Reason.DISK_NOT_FOUND:
        text = f"give {where} a UUID of its own: evict its replicas, remove it from the Longhorn node, delete its "
        change = Remedy("own-uuid", f"{text}longhorn-disk.cfg, and add it again", name, disk.name)
        fresh = replace(disk, uuid=f"{disk.uuid}-own", scheduled_bytes=0, scheduled_replicas={}, scheduled_images={})
        yield change, _with_disk(node, fresh)
    elif barrier.reason is Reason.DISK_TAGS and needs is not None:
        tags = missing_tags(disk.tags, needs, of_node=False)
        if tags:
            text = f"give {where} the tag {', '.join(tags)}, if it is such a disk"
            change = Remedy("tag-disk", text, name, disk.name, value=",".join(tags))
            yield change, _with_disk(node, replace(disk, tags=disk.tags.union(tags)))


def _with_disk(node: LonghornNode, disk: Disk) -> LonghornNode:
    return replace(node, disks=tuple(disk if one.name == disk.name else one for one in node.disks))


def _try_node(case: Case, barrier: Barrier, node: LonghornNode) -> Callable[[], bool]:
    return lambda: with_node(case, node).fits(_at(case, barrier))


# Bytes


def _frees(case: Case, barrier: Barrier) -> Iterator[_Tried]:
    node, disk, missing = case.world.nodes.get(barrier.node), barrier.disk, barrier.missing_bytes
    if node is None or disk is None or missing <= 0:
        return
    where = f"disk {disk.name} of node {node.name}"
    if barrier.reason is Reason.TOO_FULL:
        text = f"free {bytes_text(missing)} on the file system of {where}, or enlarge it"
        more = replace(disk, available_bytes=disk.available_bytes + missing, schedulable=True)
        change = Remedy("free", text, node.name, disk.name, "available", str(missing))
        yield _Tried(change, _try_node(case, barrier, _with_disk(node, more)))
        return
    percent = case.world.settings.space.over_provisioning_pct
    size = -(-missing * 100 // percent) if percent else 0
    larger = replace(disk, maximum_bytes=disk.maximum_bytes + size, available_bytes=disk.available_bytes + size)
    stored = sum(one.size_bytes for one in case.world.replicas_on(disk.uuid) if one.node == node.name)
    if missing <= stored:
        text = f"free {bytes_text(missing)} on {where}, by moving or deleting replicas, or enlarge it"
        less = replace(disk, scheduled_bytes=disk.scheduled_bytes - missing)
        change = Remedy("free", text, node.name, disk.name, "scheduled", str(missing))
        yield _Tried(change, _try_node(case, barrier, _with_disk(node, less)))
    elif size:
        change = Remedy("enlarge", f"enlarge {where} by {bytes_text(size)}", node.name, disk.name, "maximum", str(size))
        yield _Tried(change, _try_node(case, barrier, _with_disk(node, larger)))


def _requests(case: Case, found: Sequence[Barrier]) -> Iterator[_Tried]:
    """A smaller size for the claim that asks for most and has no volume yet."""
    new = [demand for demand in case.demands if not demand.exists and not demand.never]
    if not new or not any(one.missing_bytes or one.reason is Reason.INCOMPATIBLE_SIZE for one in found):
        return
    demand = max(new, key=lambda one: (one.size_bytes, one.claim))
    near = [one.node for one in found[:MOST_TRIED] if one.node in case.names] or case.names[:MOST_TRIED]
    size = _largest_that_fits(case, demand, near)
    if size:
        text = f"make claim {demand.claim} anew, and request at most {exact_bytes_text(size)}"
        yield _Tried(Remedy("request", text, what=demand.claim, value=str(size)), lambda: True)


def _largest_that_fits(case: Case, demand: VolumeDemand, names: Sequence[str]) -> int:
    """The largest size below the present one at which the pod passes on one of `names`; 0 if there is none."""

    def fits(granules: int) -> bool:
        asked = _resized(case, demand, granules * GRANULE_BYTES)
        if asked is None:
            return False
        demands = [asked if one.key == demand.key else one for one in case.demands]
        return case.with_demands(demands).fits(names)

    low, high = MIN_VOLUME_BYTES // GRANULE_BYTES, demand.size_bytes // GRANULE_BYTES
    if low >= high or not fits(low):
        return 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low * GRANULE_BYTES


def _resized(case: Case, demand: VolumeDemand, size_bytes: int) -> VolumeDemand | None:
    """What the claim would need if it requested that; None if that is not allowed."""
    claim = case.world.claim_by_uid(demand.key)
    if claim is None:
        return None
    asked = demand_of_claim(replace(claim, requested_bytes=size_bytes), case.world, case.world.settings)
    if asked is None or isinstance(asked, Missing) or asked.never or asked.size_bytes != size_bytes:
        return None
    return asked


# Longhorn's settings


def _settings(case: Case, nearest: Sequence[Barrier]) -> Iterator[_Tried]:
    now = case.world.settings
    reasons = {one.reason for one in nearest}
    softer = (
        (Reason.NODE_ANTI_AFFINITY, now.soft_anti_affinity, replace(now, soft_anti_affinity=True)),
        (Reason.ZONE_ANTI_AFFINITY, now.zone_soft_anti_affinity, replace(now, zone_soft_anti_affinity=True)),
        (Reason.DISK_ANTI_AFFINITY, now.disk_soft_anti_affinity, replace(now, disk_soft_anti_affinity=True)),
    )
    for reason, is_soft, changed_settings in softer:
        if reason in reasons and not is_soft:
            yield _setting(case, _SETTINGS[reason], "true", changed_settings)
    space = now.space
    if Reason.NODE_TAGS in reasons and not space.allow_empty_node_selector:
        changed = replace(space, allow_empty_node_selector=True)
        yield _setting(case, "allow-empty-node-selector-volume", "true", replace(now, space=changed))
    if Reason.DISK_TAGS in reasons and not space.allow_empty_disk_selector:
        changed = replace(space, allow_empty_disk_selector=True)
        yield _setting(case, "allow-empty-disk-selector-volume", "true", replace(now, space=changed))
    for barrier in nearest:
        percent = _percent_for(barrier, now)
        if percent is not None:
            changed = replace(space, over_provisioning_pct=percent)
            yield _setting(case, _OVER, str(percent), replace(now, space=changed))
            break


def _fewer_copies(case: Case, nearest: Sequence[Barrier]) -> Iterator[_Tried]:
    """As many copies as find a disk, at first or for good, where more are wanted at once."""
    demand, now = nearest[0].demand, case.world.settings
    if demand is None or demand.is_local or now.degraded_availability:
        return
    yield _setting(case, _DEGRADED, "true", replace(now, degraded_availability=True))
    count = case.found_copies(demand)
    if not count:
        return
    total = demand.facts.replica_count - (demand.copies - count)
    fewer = replace(demand, copies=count, facts=replace(demand.facts, replica_count=total))
    demands = [fewer if one.volume == demand.volume else one for one in case.demands]
    copies = f"{total} copies" if total > 1 else "1 copy, which is lost with its disk"
    text = f"let volume {demand.volume} have {copies}"
    if not demand.exists:
        text = f"make claim {demand.claim} anew, with a StorageClass of {copies}"
    change = Remedy("copies", text, what=demand.claim, value=str(total))
    yield _Tried(change, lambda: case.with_demands(demands).fits())


def _percent_for(barrier: Barrier, settings: LonghornSettings) -> int | None:
    """The over-provisioning at which that disk would have the missing bytes; None where that decides nothing."""
    disk = barrier.disk
    if disk is None or not barrier.missing_bytes or barrier.reason is Reason.TOO_FULL:
        return None
    size = disk.maximum_bytes - disk.reserved_bytes
    if size <= 0:
        return None
    limit = provisioning_limit(disk, settings.space) + barrier.missing_bytes
    return -(-limit * 100 // size)


def _setting(case: Case, name: str, value: str, settings: LonghornSettings) -> _Tried:
    text = f"set Longhorn's setting {name} to {value} ({_COSTS[name]})"
    return _Tried(Remedy("setting", text, what=name, value=value), lambda: with_settings(case, settings).fits())
