"""Whether a replica may lie at a place: checked again right before the place is written, whoever chose it and when.

These are Longhorn's hard rules a second time, written apart from those that choose, so that a mistake in either is
noticed. They order no places and prefer none.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from controller.allocator.world.world import World
from controller.model.longhorn import (
    BALANCE_BEST_EFFORT,
    LINKED_CLONE,
    BackingImage,
    Disk,
    DiskNeeds,
    LonghornNode,
    Replica,
    Volume,
)
from controller.model.places import Place
from controller.model.times import utc_time
from controller.rules.locality import Reach, locality_of
from controller.rules.reasons import Reason, Rejection

_EXT_BYTES, _XFS_BYTES = 16 * 1024**4, 8 * 1024**6 - 1  # a replica's file is smaller, on ext* and on xfs


def legal(
    volume: Volume,
    replica: Replica,
    place: Place,
    planned: Iterable[Place],
    world: World,
    free_bytes: int,
    now_utc: datetime,
) -> Rejection | None:
    """Return why `replica`, which has no disk yet, may not lie at `place`, or None. `planned`: places of the volume's
    other copies that no object shows yet. `free_bytes`: the bytes of that disk that nobody else has or was promised.

    Costs: a look at the place, and at the volume's copies."""
    node, disk = world.nodes.get(place.node), world.disk(place.node, place.disk_uuid)
    if node is None or disk is None or world.is_repeated_disk(place.node, place.disk_uuid):
        reason: Reason | None = Reason.NO_LONGHORN_NODE if node is None else Reason.DISK_NOT_FOUND
    else:
        image = world.backing_image(volume.backing_image)
        check = _Check(world, volume, replica, tuple(planned), now_utc)
        reason = check.node(node) or check.tags(node, disk, image) or check.disk(disk, place, image, free_bytes)
        reason = reason or check.siblings(node, disk)
    where = f"disk {place.disk_uuid} of node {place.node}"
    return None if reason is None else Rejection(reason, f"{replica.name}: {reason} at {where}")


class _Check:
    """One replica of one volume against a node and a disk; each method returns the first rule that is broken."""

    def __init__(
        self, world: World, volume: Volume, replica: Replica, planned: tuple[Place, ...], now_utc: datetime
    ) -> None:
        self._world, self._volume, self._replica, self._planned = world, volume, replica, planned
        self._engine, self._settings = volume.needs.data_engine, world.settings
        is_bound = locality_of(volume).reach is Reach.NODE_ONLY and volume.node_id
        self._bound_to = volume.node_id if is_bound else replica.hard_node_affinity
        stored = [one for one in world.replicas_of(volume.name).values() if one.name != replica.name and one.node]
        self._holding = {one.disk_uuid for one in stored if not one.failed_at or one.is_potentially_reusable}
        self._holding.update(one.disk_uuid for one in planned)
        counted = [one for one in stored if not one.deleting and self._counts(one, now_utc)]
        self._lasting = {one.node for one in planned}  # nodes with a copy that stays
        self._lasting.update(one.node for one in counted if not one.eviction_requested)
        self._used = self._lasting.union(one.node for one in counted)

    def _counts(self, other: Replica, now_utc: datetime) -> bool:
        """Whether that copy uses its node: a failed one does while it may come back and no other one is due instead."""
        if not other.failed_at or other.name in self._world.reused:
            return True
        since, wait = self._volume.last_degraded_at, timedelta(seconds=self._settings.replenishment_wait_seconds)
        is_due = self._volume.robustness == "degraded" and since and now_utc >= utc_time(since) + wait
        return other.is_potentially_reusable and not is_due

    def node(self, node: LonghornNode) -> Reason | None:
        """Check a node, that of the place or of a sibling: siblings count only on nodes where a copy might lie."""
        needs, world = self._volume.needs, self._world
        kube_node = world.kube_nodes.get(node.name)
        if node.deleting:
            return Reason.NODE_DELETING
        if not node.ready:
            return Reason.NODE_NOT_READY
        if not node.schedulable or not node.allow_scheduling:
            return Reason.NODE_UNSCHEDULABLE
        if self._engine == "v2" and world.kube_nodes and (kube_node is None or kube_node.disables_v2):
            return Reason.V2_DISABLED
        if self._bound_to not in ("", node.name):
            return Reason.HARD_AFFINITY
        if needs.topology and not any(
            one.zone in ("", node.zone) and one.region in ("", node.region) for one in needs.topology
        ):
            return Reason.TOPOLOGY
        if self._sources is not None and node.name not in {one.node for one in self._sources}:
            return Reason.LINKED_CLONE
        return None if self._runs(node.name) else Reason.ENGINE_NOT_READY

    def _runs(self, node: str) -> bool:
        engines, is_v1 = self._world.engines, self._engine == "v1"
        wanted = self._replica.image or self._volume.image
        manager_image = engines.manager_image if is_v1 else ""
        if engines.managers is not None and not any(
            (one.type, one.data_engine, one.state, one.deleting) == ("aio", self._engine, "running", False)
            and manager_image in ("", one.image)
            for one in engines.managers.get(node, ())
        ):
            return False
        if not is_v1 or engines.images is None:
            return True
        return any(one.is_ready_on(node) for one in engines.images.values() if wanted in ("", one.image))

    @property
    def _sources(self) -> list[Replica] | None:
        """The source replicas beside which a linked clone has to lie; None for any other volume."""
        behaviour, named = self._settings.behaviour, self._replica.linked_clone_source
        if self._volume.clone_mode != LINKED_CLONE or not behaviour.has_linked_clones:
            return None
        copies = self._world.replicas_of(self._volume.source_volume).values()
        found = [one for one in copies if one.is_placed and one.healthy_at and not one.failed_at]
        if behaviour.clones_skip_evicting_sources:
            found = [one for one in found if not one.eviction_requested and named in ("", one.name)]
        return found

    def tags(self, node: LonghornNode, disk: Disk, image: BackingImage | None) -> Reason | None:
        """Check tags. Where copies may share nodes, Longhorn's last try takes a node with a copy whatever its tags."""
        space, needs = self._settings.space, self._volume.needs
        wanted: list[DiskNeeds | BackingImage] = [needs] if image is None else [needs, image]
        if not (self._shares_nodes and node.name in self._used) and not all(
            _has(node.tags, one.node_selector, space.allow_empty_node_selector) for one in wanted
        ):
            return Reason.NODE_TAGS
        has_all = all(_has(disk.tags, one.disk_selector, space.allow_empty_disk_selector) for one in wanted)
        return None if has_all else Reason.DISK_TAGS

    def disk(self, disk: Disk, place: Place, image: BackingImage | None, free_bytes: int) -> Reason | None:
        volume, size = self._volume, self._volume.size_bytes
        if not disk.uuid or not disk.allow_scheduling or disk.eviction_requested or not disk.schedulable:
            return Reason.DISK_UNSCHEDULABLE
        if self._sources is not None and disk.uuid not in {one.disk_uuid for one in self._sources}:
            return Reason.LINKED_CLONE
        if disk.type != ("block" if self._engine == "v2" else "filesystem"):
            return Reason.DISK_TYPE
        is_too_large_on = {"ext": size >= _EXT_BYTES, "xfs": size >= _XFS_BYTES}
        if self._engine == "v1" and is_too_large_on.get(disk.filesystem[:3], False):
            return Reason.INCOMPATIBLE_SIZE
        if volume.backing_image and image is None:
            return Reason.BACKING_IMAGE_NOT_FOUND
        kept = int(float(disk.maximum_bytes) * float(self._settings.space.minimal_available_pct) / 100)
        if disk.maximum_bytes <= 0 or disk.available_bytes - volume.actual_size_bytes <= kept:
            return Reason.TOO_FULL
        comes = image is not None and self._world.lacks_image(image, disk.uuid)
        if comes and image is not None and all(one.disk_uuid != disk.uuid for one in self._planned):
            size += image.real_size_bytes
        if place.size_bytes < size:
            return Reason.BACKING_IMAGE if place.size_bytes >= volume.size_bytes else Reason.INSUFFICIENT_STORAGE
        return Reason.INSUFFICIENT_STORAGE if place.size_bytes > free_bytes else None

    def siblings(self, node: LonghornNode, disk: Disk) -> Reason | None:
        """Check hard anti-affinity. A copy that is being evicted gives way to the one in its place."""
        volume, settings, nodes = self._volume, self._settings, self._world.nodes
        if disk.uuid in self._holding and not _flag(volume.disk_soft_anti_affinity, settings.disk_soft_anti_affinity):
            return Reason.DISK_ANTI_AFFINITY
        balance = settings.auto_balance if volume.auto_balance == "ignored" else volume.auto_balance
        balances = balance == BALANCE_BEST_EFFORT
        is_lasting, is_moving = node.name in self._lasting, node.name in self._used - self._lasting
        if not self._zones_soft:
            others = (nodes[name] for name in self._lasting if name in nodes)
            is_in_zone = any(one.zone == node.zone and self.node(one) is None for one in others)
            return Reason.ZONE_ANTI_AFFINITY if is_in_zone and not (balances and is_moving) else None
        if self._shares_nodes or not is_lasting:
            return None
        may_move_within = settings.behaviour.balance_opens_used_nodes or any(map(self._is_pressed, node.disks))
        return None if balances and may_move_within else Reason.NODE_ANTI_AFFINITY

    def _is_pressed(self, disk: Disk) -> bool:
        used_pct = self._settings.disk_pressure_pct
        spare = max(0, disk.available_bytes - disk.reserved_bytes)
        return used_pct > 0 and (spare * 100 // disk.maximum_bytes if disk.maximum_bytes > 0 else 0) < 100 - used_pct

    @property
    def _zones_soft(self) -> bool:
        return _flag(self._volume.zone_soft_anti_affinity, self._settings.zone_soft_anti_affinity)

    @property
    def _shares_nodes(self) -> bool:
        return self._zones_soft and _flag(self._volume.soft_anti_affinity, self._settings.soft_anti_affinity)


def _flag(own: str, setting: bool) -> bool:
    return own == "enabled" if own in ("enabled", "disabled") else setting


def _has(tags: frozenset[str], selector: tuple[str, ...], allow_empty: bool) -> bool:
    return tags.issuperset(selector) if selector else allow_empty or not tags
