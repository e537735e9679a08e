"""Which nodes and disks Longhorn would take for a replica: the one place where the allocator asks that.

The rules themselves are pure functions on facts (controller/rules); here they meet the world's indices, so that a
question about thousands of nodes need not work out anew what is the same for all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from controller.allocator.world.world import World
from controller.model.longhorn import BackingImage, DiskNeeds, LonghornNode
from controller.rules.affinity import (
    Affinity,
    Try,
    Usage,
    counted_replicas,
    disks_with_replicas,
    groups_of_nodes,
    is_replacement_due,
)
from controller.rules.demand import VolumeDemand
from controller.rules.eligibility import (
    DiskRoom,
    NodeRoom,
    check_disk_kind,
    check_disk_tags,
    check_node_tags,
    check_topology,
    check_v2,
    disk_takes,
    disk_type_of,
)
from controller.rules.reasons import Reason

_NO_DISKS: frozenset[str] = frozenset()


# Nodes


def check_candidate(world: World, name: str, needs: DiskNeeds) -> Reason | None:
    """Why Longhorn does not look at that node for a replica with these needs; tags, disks and the volume's other
    replicas aside."""
    room = world.room(name)
    if room is None or not world.has_node(name):
        return Reason.NO_LONGHORN_NODE
    if room.rejection is not None and room.rejection.reason is not Reason.NO_USABLE_DISK:
        return room.rejection.reason
    if needs.data_engine == "v2" and check_v2(name, world.kube_nodes or None) is not None:
        return Reason.V2_DISABLED
    if needs.topology and check_topology(world.nodes[name], needs) is not None:
        return Reason.TOPOLOGY
    return Reason.ENGINE_NOT_READY if name in world.engine_gaps(needs) else None


def check_node_of(world: World, room: NodeRoom, demand: VolumeDemand, now_utc: datetime | None = None) -> Reason | None:
    """Why that node takes no replica of the volume that is bound to it, disks aside."""
    reason = check_candidate(world, room.name, demand.needs)
    if reason is not None:
        return reason
    has_tags = check_node_tags(room.tags, demand.needs, world.settings.space)
    attempt = _try_on(world, world.nodes[room.name], demand, has_tags, now_utc)
    if attempt is None:
        return Reason.NODE_ANTI_AFFINITY if has_tags else Reason.NODE_TAGS
    return None


def _try_on(
    world: World, node: LonghornNode, demand: VolumeDemand, has_tags: bool, now_utc: datetime | None
) -> Try | None:
    """By which of its tries Longhorn would take that node for a replica bound to it; None: it never does.

    With a hard affinity the node is the only candidate, so that replicas elsewhere make nothing used.
    """
    replicas = [replica for replica in world.replicas_of(demand.volume).values() if replica.node == node.name]
    if not replicas:
        return Try.NEW_ZONE if has_tags else None
    due = is_replacement_due(demand.facts, world.settings, now_utc)
    nodes = {node.name: node}
    usage = Usage.of(counted_replicas(replicas, ignore_failed=False, replacement_due=due), nodes)
    affinity = Affinity.of(demand.facts, world.settings)
    for attempt, group in groups_of_nodes(nodes, nodes if has_tags else {}, usage, affinity, frozenset()):
        if group:
            return attempt
    return None


def takes_now(world: World, name: str, demand: VolumeDemand) -> bool:
    """Whether a replica of the volume that is bound to that node finds a disk there, promises aside."""
    room = world.room(name)
    if room is None or check_node_of(world, room, demand) is not None:
        return False
    found = disks_of(world, room, demand)
    if isinstance(found, Reason):
        return False
    return any(room.disks[disk].free_bytes >= demand.size_bytes for disk in (*found[0], *found[1]))


def takes_all_now(world: World, name: str, demands: Sequence[VolumeDemand]) -> bool:
    """Whether the first replicas of a pod's volumes all find a disk there, whichever Longhorn chooses for each: on
    every disk, all that may come there goes together. True for a single volume, and for a node that is not there."""
    room = world.room(name)
    first = [one for one in demands if one.is_local and not one.placed_nodes]
    coming = [*first, *(one for one in demands if one.is_roaming)]
    if room is None or not first or len(coming) < 2:
        return True
    bytes_on = [0] * len(room.disks)
    for demand in coming:
        found = disks_of(world, room, demand)
        for index in () if isinstance(found, Reason) else (*found[0], *found[1]):
            if demand.size_bytes <= room.disks[index].reach_bytes:
                bytes_on[index] += demand.size_bytes * (1 if demand.is_local else max(1, demand.copies))
    return all(more <= disk.free_bytes for disk, more in zip(room.disks, bytes_on, strict=True) if more)


def usage_of(world: World, demand: VolumeDemand, now_utc: datetime | None = None) -> Usage:
    """Which nodes and zones hold replicas of the volume, as far as Longhorn counts them: on its candidates alone."""
    replicas = world.replicas_of(demand.volume).values()
    due = is_replacement_due(demand.facts, world.settings, now_utc)
    counted = counted_replicas(replicas, ignore_failed=False, replacement_due=due)
    nodes = {
        replica.node: world.nodes[replica.node]
        for replica in counted
        if check_candidate(world, replica.node, demand.needs) is None
    }
    return Usage.of(counted, nodes)


def barred_nodes(world: World, demand: VolumeDemand) -> frozenset[str]:
    """Nodes that take no further replica of the volume, because Longhorn keeps one there, or in their zone, apart from
    it. Failed replicas bar nothing here, since Longhorn gives up on them at some time."""
    affinity = Affinity.of(demand.facts, world.settings)
    replicas = [entry for entry in world.replicas_of(demand.volume).values() if entry.node and not entry.failed_at]
    if not replicas or affinity.balances or affinity.shares_nodes:
        return frozenset()
    counted = [entry for entry in replicas if not (entry.deleting or entry.eviction_requested)]
    barred = frozenset(entry.node for entry in counted)
    if affinity.zone_soft:
        return barred
    candidates = {name for name in barred if check_candidate(world, name, demand.needs) is None}
    usage = Usage.of(counted, {name: world.nodes[name] for name in candidates})
    return barred.union(name for name, node in world.nodes.items() if usage.bars(name, node.zone, affinity) is not None)


# Disks


def disks_of(world: World, room: NodeRoom, demand: VolumeDemand) -> tuple[tuple[int, ...], tuple[int, ...]] | Reason:
    """The disks of that room that may take a replica of the volume, room aside, by index: those without another one of
    it, and those with one, which Longhorn takes as a last resort. A reason when no disk ever takes it; both empty when
    they are all below their minimal available space."""
    reasons = [check_disk_of(world, disk, demand) for disk in room.disks]
    kinds = [index for index, reason in enumerate(reasons) if reason is None]
    if not kinds:
        seen = {reason for reason in reasons if reason is not None}
        return seen.pop() if len(seen) == 1 else Reason.NO_USABLE_DISK
    able = [index for index in kinds if demand.required_bytes < room.disks[index].written_limit_bytes]
    holding = _holding(world, demand)
    if not holding:
        return tuple(able), ()
    clean = tuple(index for index in able if room.disks[index].uuid not in holding)
    return clean, tuple(index for index in able if index not in clean)


def check_disk_of(world: World, disk: DiskRoom, demand: VolumeDemand) -> Reason | None:
    """Why that disk never takes this volume, whatever its room."""
    if demand.clone_disks is not None and disk.uuid not in demand.clone_disks:
        return Reason.LINKED_CLONE
    reason = check_disk_kind(disk, demand.needs, demand.size_bytes, world.settings.space)
    return Reason.DISK_ANTI_AFFINITY if reason is None and is_kept_off(world, disk.uuid, demand) else reason


def is_kept_off(world: World, disk_uuid: str, demand: VolumeDemand) -> bool:
    """Whether another replica of the volume is on that disk and Longhorn never puts a second one there."""
    return disk_uuid in _holding(world, demand) and not Affinity.of(demand.facts, world.settings).disk_soft


def _holding(world: World, demand: VolumeDemand) -> frozenset[str]:
    """Disks that hold replicas of the volume already."""
    replicas = world.replicas_of(demand.volume)
    return disks_with_replicas(replicas.values(), ignore_failed=False) if replicas else _NO_DISKS


def disks_for(world: World, room: NodeRoom, needs: DiskNeeds, size_bytes: int, required_bytes: int) -> tuple[int, ...]:
    """The disks where something pending with these needs and sizes may land sooner or later.

    States that come and go (a node that is not ready, an instance manager that is away) are not asked: they may be
    over before it lands.
    """
    space = world.settings.space
    if not check_node_tags(room.tags, needs, space):
        return ()
    if needs.topology and check_topology(world.nodes[room.name], needs) is not None:
        return ()
    return tuple(
        index for index, disk in enumerate(room.disks) if disk_takes(disk, needs, size_bytes, required_bytes, space)
    )


def disks_for_image(world: World, room: NodeRoom, image: BackingImage) -> tuple[int, ...]:
    needs = DiskNeeds(disk_selector=image.disk_selector, data_engine=image.data_engine)
    return tuple(
        index
        for index, disk in enumerate(room.disks)
        if disk.type == disk_type_of(image.data_engine) and check_disk_tags(disk.tags, needs, world.settings.space)
    )


def images_to_come(world: World, name: str, wanted: Iterable[VolumeDemand]) -> list[BackingImage]:
    """Backing images that are not on the node yet: each comes along with its first volume there."""
    images = {demand.image.name: demand.image for demand in wanted if demand.image is not None}
    if not images:
        return []
    here = [disk.uuid for disk in world.nodes[name].disks]
    sized = (image for _, image in sorted(images.items()) if image.real_size_bytes > 0)
    return [image for image in sized if all(world.lacks_image(image, uuid) for uuid in here)]
