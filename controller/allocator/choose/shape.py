"""A pod's volumes on the disks of one node: Longhorn's rules, room aside, turned into items for the packing."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from controller.allocator.choose.packing import Item, Packed
from controller.allocator.choose.verdict import Judgement, Verdict, unsuitable
from controller.allocator.choose.wanted import image_bytes
from controller.allocator.world.world import World
from controller.model.longhorn import DEFAULT_NEEDS, LonghornNode
from controller.model.places import Place
from controller.rules.affinity import Affinity, Try, Usage, disks_with_replicas, groups_of_nodes
from controller.rules.demand import VolumeDemand
from controller.rules.eligibility import (
    EXT_LIMIT_BYTES,
    DiskRoom,
    NodeRoom,
    check_disk_kind,
    check_node_tags,
    check_topology,
    check_v2,
)
from controller.rules.reasons import Reason

_NO_DISKS: frozenset[str] = frozenset()
Kinds = dict[tuple[str, Hashable], Reason | None]  # by volume and kind of disk: why no such disk takes the volume


@dataclass(frozen=True, slots=True)
class Shape:
    """The volumes, and the same as items for the room's disks, in the same order."""

    room: NodeRoom
    wanted: tuple[VolumeDemand, ...]
    items: tuple[Item, ...]

    def places(self, found: Packed) -> Iterator[tuple[VolumeDemand, Place]]:
        """Yield each volume with the place that was found for its item."""
        for demand, disk, size in zip(self.wanted, found.disks, found.size_bytes, strict=True):
            yield demand, Place(self.room.name, self.room.disks[disk].uuid, size)

    @property
    def limits(self) -> tuple[int, ...]:
        return tuple(disk.limit_bytes for disk in self.room.disks)


def shape_of(
    world: World, name: str, wanted: Sequence[VolumeDemand], now_utc: datetime | None, kinds: Kinds
) -> Shape | Judgement:
    """Return the volumes as items for that node's disks; a judgement if a rule other than room refuses one of them."""
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
        found = _item_of(world, room, demand, kinds)
        if isinstance(found, Reason):
            return unsuitable(found)
        is_too_full = is_too_full or not found.all_disks
        items.append(found)
    if is_too_full:
        return Judgement(Verdict.FULL, Reason.TOO_FULL)
    return Shape(room, tuple(wanted), tuple(items))


def _item_of(world: World, room: NodeRoom, demand: VolumeDemand, kinds: Kinds) -> Item | Reason:
    """The volume as an item; a reason if no disk takes it whatever its room. The item has no disks if all that suit are
    below their minimal available space."""
    found = _disks_of(world, room, demand, kinds)
    if isinstance(found, Reason):
        return found
    image = demand.image
    if image is None:
        return Item(demand.size_bytes, *found)
    comes = {index: image_bytes(world, image, (), room.disks[index].uuid) for disks in found for index in disks}
    return Item(demand.size_bytes, *found, image.name, {index: size for index, size in comes.items() if size})


# Nodes


def check_node_of(world: World, room: NodeRoom, demand: VolumeDemand, now_utc: datetime | None = None) -> Reason | None:
    """Return why that node, which takes replicas, takes none of a volume that is bound to it, disks aside; or None."""
    name, needs = room.name, demand.needs
    if check_v2(name, needs, world.kube_nodes or None) is not None:
        return Reason.V2_DISABLED
    if needs.topology and check_topology(world.nodes[name], needs) is not None:
        return Reason.TOPOLOGY
    if name in world.engine_gaps(needs):
        return Reason.ENGINE_NOT_READY
    has_tags = check_node_tags(room.tags, needs, world.settings.space)
    attempt = _try_on(world, world.nodes[name], demand, has_tags, now_utc)
    if attempt is None:
        return Reason.NODE_ANTI_AFFINITY if has_tags else Reason.NODE_TAGS
    return None


def _try_on(
    world: World, node: LonghornNode, demand: VolumeDemand, has_tags: bool, now_utc: datetime | None
) -> Try | None:
    """The try of Longhorn's that takes that node for a replica bound to it, or None.

    The node is the only candidate then, so that replicas elsewhere use neither nodes nor zones.
    """
    replicas = [replica for replica in world.replicas_of(demand.volume).values() if replica.node == node.name]
    if not replicas:
        return Try.NEW_ZONE if has_tags else None
    nodes = {node.name: node}
    usage = Usage.of(demand.facts, replicas, nodes, world.settings, now_utc)
    affinity = Affinity.of(demand.facts, world.settings)
    for attempt, group in groups_of_nodes(nodes, nodes if has_tags else {}, usage, affinity, frozenset()):
        if group:
            return attempt
    return None


# Disks


def _disks_of(
    world: World, room: NodeRoom, demand: VolumeDemand, kinds: Kinds
) -> tuple[tuple[int, ...], tuple[int, ...]] | Reason:
    """The indices of the disks that may take a replica of the volume, room aside: those without another one of it, and
    those with one, Longhorn's last resort. A reason if no disk ever takes it; nothing if all that suit are below their
    minimal available space."""
    holding = _holding(world, demand)
    reasons = [_check_disk(world, disk, demand, holding, kinds) for disk in room.disks]
    suited = [index for index, reason in enumerate(reasons) if reason is None]
    if not suited:
        seen = {reason for reason in reasons if reason is not None}
        return seen.pop() if len(seen) == 1 else Reason.NO_USABLE_DISK
    able = [index for index in suited if demand.required_bytes < room.disks[index].written_limit_bytes]
    if not holding:
        return tuple(able), ()
    clean = tuple(index for index in able if room.disks[index].uuid not in holding)
    return clean, tuple(index for index in able if index not in clean)


def _check_disk(
    world: World, disk: DiskRoom, demand: VolumeDemand, holding: frozenset[str], kinds: Kinds
) -> Reason | None:
    """The reason why that disk never takes the volume, whatever its room; or None."""
    if demand.clone_disks is not None and disk.uuid not in demand.clone_disks:
        return Reason.LINKED_CLONE
    key = demand.volume, disk.kind
    if key not in kinds:
        kinds[key] = check_disk_kind(disk, demand.needs, demand.size_bytes, world.settings.space)
    reason = kinds[key]
    return Reason.DISK_ANTI_AFFINITY if reason is None and bars_copy(world, disk.uuid, demand, holding) else reason


def bars_copy(world: World, disk_uuid: str, demand: VolumeDemand, holding: frozenset[str] | None = None) -> bool:
    """Whether that disk has a replica of the volume and hard disk anti-affinity keeps a second one off. `holding`: the
    UUIDs of the disks with one, if the caller knows them."""
    held = _holding(world, demand) if holding is None else holding
    return disk_uuid in held and not Affinity.of(demand.facts, world.settings).disk_soft


def _holding(world: World, demand: VolumeDemand) -> frozenset[str]:
    """The UUIDs of the disks with replicas of the volume."""
    replicas = world.replicas_of(demand.volume)
    return disks_with_replicas(replicas.values(), ignore_failed=False) if replicas else _NO_DISKS


def is_plain_demand(world: World, demand: VolumeDemand) -> bool:
    """Whether the volume is new and asks nothing of a disk but room, so that every disk for plain volumes suits it. The
    engine image is asked of nodes, not of disks."""
    needs = demand.needs
    is_plain = needs is DEFAULT_NEEDS or (
        needs.data_engine == "v1" and not (needs.node_selector or needs.disk_selector or needs.topology or needs.image)
    )
    return (
        is_plain
        and not world.replicas_of(demand.volume)
        and not demand.required_bytes
        and demand.clone_disks is None
        and demand.size_bytes < EXT_LIMIT_BYTES
        and demand.image is None
    )
