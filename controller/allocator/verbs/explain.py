"""Why a node is not offered, with the numbers that decided: for a person, never for kube-scheduler."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from controller.allocator.judge.node import Judge
from controller.allocator.judge.verdict import Judgement, Verdict
from controller.allocator.world.suitable import check_node_of, is_kept_off
from controller.allocator.world.world import World
from controller.model.longhorn import Disk
from controller.model.quantity import bytes_text
from controller.rules.demand import VolumeDemand
from controller.rules.eligibility import check_disk_for, check_node_for, observed_scheduled
from controller.rules.reasons import Reason, Refusal, Rejection

_CLUSTER_WIDE = frozenset({Reason.NO_ROOM_IN_CLUSTER})


def refusals_of(judge: Judge, name: str, judgement: Judgement) -> tuple[Refusal, ...]:
    """Every rejection that bears on the judgement, of the node or of its disks, sorted."""
    found = set(_refusals(judge, name, judgement))
    return tuple(
        sorted(found, key=lambda entry: (entry.node, entry.disk, entry.rejection.reason, entry.rejection.message))
    )


def _refusals(judge: Judge, name: str, judgement: Judgement) -> Iterator[Refusal]:
    reason = judgement.reason or Reason.CONTENDED
    if reason is Reason.NEVER_PLACED:
        for demand in judge.demands:
            if demand.never:
                yield _of_node(name, reason, f"claim {demand.claim}: {demand.never}")
        return
    if reason in _CLUSTER_WIDE:
        yield _of_node(
            name, reason, "the cluster has no room for the pod's volumes that Longhorn may place on any node"
        )
        return
    if reason is Reason.REPLICA_ELSEWHERE:
        for demand in judge.local:
            if name not in demand.usable_nodes and demand.placed_nodes:
                where = ", ".join(sorted(demand.usable_nodes or demand.placed_nodes))
                yield _of_node(name, reason, f"{demand.volume}: its data is on {where}")
        return
    if reason is Reason.RECORD_UNREADABLE:
        closed = judge.world.allocated.check_closed(name)
        if closed is not None:
            yield Refusal(name, "", closed)
        return
    wanted = judge.wanted_on(name)
    demands = judge.local if isinstance(wanted, Judgement) else wanted
    if judgement.verdict is Verdict.CONTENDED:
        yield _contended(judge, name, reason, demands)
        return
    found = list(_by_rules(judge, name, demands))
    yield from found
    if not found or judgement.verdict is Verdict.FULL:
        sizes = ", ".join(f"{demand.volume} {bytes_text(demand.size_bytes)}" for demand in demands)
        yield _of_node(name, reason, f"the node's disks cannot take these together: {sizes}")


def _contended(judge: Judge, name: str, reason: Reason, demands: Sequence[VolumeDemand]) -> Refusal:
    if reason is Reason.BACKING_IMAGE:
        images = sorted({demand.image.name for demand in demands if demand.image is not None})
        return _of_node(name, reason, f"no room for backing image {', '.join(images)} besides the volumes")
    if reason is Reason.KEPT:
        kept = sum(item.size_bytes for item in judge.pending.kept.get(name, ()))
        return _of_node(name, reason, f"{bytes_text(kept)} are kept there for a pod that has waited a long time")
    if reason is Reason.OWN_VOLUMES:
        sizes = ", ".join(f"{demand.claim} {bytes_text(demand.size_bytes)}" for demand in judge.demands)
        return _of_node(name, reason, f"Longhorn may place one of these where another needs the room: {sizes}")
    if reason is Reason.NOT_EVALUATED:
        return _of_node(name, reason, "the search stopped at its limit")
    bound, roaming = judge.pending.bound_bytes(name), judge.pending.roaming_bytes
    if not (bound or roaming):
        text = (
            "Longhorn may place its volumes on any node, and a disk of another node has no room for all that may come "
            "to it"
        )
        return _of_node(name, reason, text)
    text = f"{bytes_text(bound)} are promised on this node, {bytes_text(roaming)} to volumes that may go to any node"
    return _of_node(name, reason, text)


def _by_rules(judge: Judge, name: str, demands: Sequence[VolumeDemand]) -> Iterator[Refusal]:
    world = judge.world
    node = world.nodes.get(name)
    if node is None or not world.has_node(name):
        yield _of_node(name, Reason.NO_LONGHORN_NODE, "no node of that name is known to both Kubernetes and Longhorn")
        return
    for demand in demands:
        rejection = check_node_for(
            node, demand.needs, world.settings.space, engines=world.engines, kube_nodes=world.kube_nodes or None
        )
        if rejection is not None:
            yield Refusal(name, "", _for_volume(demand, rejection))
            continue
        room = world.room(name)
        reason = check_node_of(world, room, demand, judge.now_utc) if room is not None else None
        if reason is not None:
            yield _of_node(name, reason, f"{demand.volume}: the node already has a replica of it")
            continue
        if not node.disks:
            yield _of_node(name, Reason.NO_USABLE_DISK, f"{demand.volume}: the node has no disk")
        for disk in node.disks:
            rejected = _check_disk(world, disk, demand)
            if rejected is not None:
                yield Refusal(name, disk.name, _for_volume(demand, rejected))


def _check_disk(world: World, disk: Disk, demand: VolumeDemand) -> Rejection | None:
    if world.is_shared_disk(disk.uuid):
        return Rejection(Reason.DISK_NOT_FOUND, f"{disk.name}: another disk has the same UUID {disk.uuid}")
    if demand.clone_disks is not None and disk.uuid not in demand.clone_disks:
        return Rejection(Reason.LINKED_CLONE, f"{disk.name}: has no healthy source replica")
    if is_kept_off(world, disk.uuid, demand):
        return Rejection(Reason.DISK_ANTI_AFFINITY, f"{disk.name}: already has a replica of it")
    scheduled = observed_scheduled(disk, world.counted_on(disk.uuid), world.extra_on(disk.uuid))
    return check_disk_for(disk, demand.needs, demand.size_bytes, demand.required_bytes, scheduled, world.settings.space)


def _for_volume(demand: VolumeDemand, rejection: Rejection) -> Rejection:
    return Rejection(rejection.reason, f"{demand.volume}: {rejection.message}")


def _of_node(name: str, reason: Reason, message: str) -> Refusal:
    return Refusal(name, "", Rejection(reason, f"{name}: {message}"))
