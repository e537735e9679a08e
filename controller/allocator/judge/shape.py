"""What volumes mean on the disks of one node: Longhorn's rules turned into items for the packing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from controller.allocator.judge.packing import Item
from controller.allocator.judge.verdict import Judgement, Verdict, unsuitable
from controller.allocator.promises.ledger import Promise
from controller.allocator.world.world import World
from controller.model.demand import VolumeDemand
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


@dataclass(frozen=True, slots=True)
class Shape:
    """The volumes as items over the room's disks, in the same order; `images` are backing images that come along."""

    room: NodeRoom
    wanted: tuple[VolumeDemand, ...]
    items: tuple[Item, ...]
    images: tuple[Item, ...]
    free: tuple[int, ...]

    @property
    def everything(self) -> tuple[Item, ...]:
        return self.items + self.images


def shape_of(
    world: World, name: str, wanted: Sequence[VolumeDemand], now_utc: datetime | None = None
) -> Shape | Judgement:
    """What `wanted` mean on node `name`; a judgement when a rule other than room, or no disk at all, decides."""
    room = world.room(name)
    if room is None or not world.has_node(name):
        return unsuitable(Reason.NO_LONGHORN_NODE)
    if room.rejection is not None:
        return unsuitable(room.rejection.reason)
    items: list[Item] = []
    is_too_full = False
    for demand in wanted:
        reason = check_node_of(world, room, demand, now_utc)
        if reason is not None:
            return unsuitable(reason)
        found = item_of(world, room, demand)
        if isinstance(found, Reason):
            return unsuitable(found)
        is_too_full = is_too_full or not found.all_disks
        items.append(found)
    if is_too_full:
        return Judgement(Verdict.FULL, Reason.TOO_FULL)
    images = _image_items(world, room, wanted)
    return Shape(room, tuple(wanted), tuple(items), images, tuple(disk.free_bytes for disk in room.disks))


# Nodes


def check_node_of(world: World, room: NodeRoom, demand: VolumeDemand, now_utc: datetime | None = None) -> Reason | None:
    """Why that node, which takes replicas, takes none of this volume, disks aside."""
    reason = check_runs(world, room, demand.needs)
    if reason is not None:
        return reason
    has_tags = check_node_tags(room.tags, demand.needs, world.settings.space)
    attempt = _try_on(world, world.nodes[room.name], demand, has_tags, now_utc)
    if attempt is None:
        return Reason.NODE_ANTI_AFFINITY if has_tags else Reason.NODE_TAGS
    return None


def check_runs(world: World, room: NodeRoom, needs: DiskNeeds) -> Reason | None:
    """Why that node cannot run a replica with these needs, or lies in the wrong zone or region."""
    name = room.name
    if needs.data_engine == "v2" and check_v2(name, world.kube_nodes or None) is not None:
        return Reason.V2_DISABLED
    if needs.topology and check_topology(world.nodes[name], needs) is not None:
        return Reason.TOPOLOGY
    return Reason.ENGINE_NOT_READY if name in world.engine_gaps(needs) else None


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


# Disks


def item_of(world: World, room: NodeRoom, demand: VolumeDemand) -> Item | Reason:
    """The volume's replica on that room's disks; a reason when no disk takes it whatever its room. An item without
    disks: they are below their minimal available space."""
    kinds, reason = kinds_of(world, room, demand)
    if not kinds:
        return reason
    able = [index for index in kinds if demand.required_bytes < room.disks[index].written_limit_bytes]
    holding = _holding(world, demand)
    if not holding:
        return Item(demand.size_bytes, tuple(able))
    clean = tuple(index for index in able if room.disks[index].uuid not in holding)
    return Item(demand.size_bytes, clean, tuple(index for index in able if index not in clean))


def kinds_of(world: World, room: NodeRoom, demand: VolumeDemand) -> tuple[list[int], Reason]:
    """The disks that pass every rule but room, and why the others do not (the same reason for all, or a general
    one)."""
    reasons = [check_kind_of(world, disk, demand) for disk in room.disks]
    found = [index for index, reason in enumerate(reasons) if reason is None]
    seen = {reason for reason in reasons if reason is not None}
    return found, seen.pop() if len(seen) == 1 else Reason.NO_USABLE_DISK


def check_kind_of(world: World, disk: DiskRoom, demand: VolumeDemand) -> Reason | None:
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


def _image_items(world: World, room: NodeRoom, wanted: Iterable[VolumeDemand]) -> tuple[Item, ...]:
    """A backing image that is not on the node yet comes along with its first volume there."""
    images = {demand.image.name: demand.image for demand in wanted if demand.image is not None}
    if not images:
        return ()
    here = {disk.uuid for disk in world.nodes[room.name].disks}
    return tuple(
        Item(image.real_size_bytes, _image_disks(world, room, image))
        for _, image in sorted(images.items())
        if image.real_size_bytes > 0 and not here & image.disk_uuids
    )


def _image_disks(world: World, room: NodeRoom, image: BackingImage) -> tuple[int, ...]:
    needs = DiskNeeds(disk_selector=image.disk_selector, data_engine=image.data_engine)
    return tuple(
        index
        for index, disk in enumerate(room.disks)
        if disk.type == disk_type_of(image.data_engine) and check_disk_tags(disk.tags, needs, world.settings.space)
    )


def promised_items(world: World, room: NodeRoom, pending: Iterable[Promise]) -> list[Item]:
    """What is pending as items over that room's disks, without what cannot come there."""
    space, found = world.settings.space, []
    for promise in pending:
        needs = promise.needs
        if not check_node_tags(room.tags, needs, space):
            continue
        if needs.topology and check_topology(world.nodes[room.name], needs) is not None:
            continue
        disks = tuple(
            index
            for index, disk in enumerate(room.disks)
            if disk_takes(disk, needs, promise.size_bytes, promise.required_bytes, space)
        )
        if disks:
            found.append(Item(promise.size_bytes, disks))
    return found
