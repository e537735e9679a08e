"""Longhorn's placement rules for one node and one disk, as pure functions on facts.

The rules and their arithmetic are those of Longhorn's replica scheduler (`scheduler/replica_scheduler.go`): 64-bit
floats, truncation toward zero, strict `>` for the minimal available space and `<=` for over-provisioning.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from controller.allocator.reasons import Reason, Rejection
from controller.model.longhorn import Disk, DiskNeeds, LonghornNode, Replica, SpacePolicy

EXT_LIMIT_BYTES: Final = 16 * 1024**4  # a v1 replica is one sparse file: it must be smaller than this on ext*
XFS_LIMIT_BYTES: Final = 8 * 1024**6 - 1


@dataclass(frozen=True, slots=True)
class DiskRoom:
    """What is left of a disk that accepts replicas at all; `free_bytes` by over-provisioning, negative when
    overdrawn."""

    name: str
    uuid: str
    type: str
    filesystem: str
    tags: frozenset[str]
    free_bytes: int
    written_limit_bytes: int  # a replica's bytes to copy must stay below this


@dataclass(frozen=True, slots=True)
class NodeRoom:
    """What a Longhorn node can take, without promises. `rejection` set: nothing, whatever the volume."""

    name: str
    tags: frozenset[str]
    rejection: Rejection | None
    disks: tuple[DiskRoom, ...]
    plain_free_bytes: int  # the most that one new volume without selectors finds on one disk; -1 without such a disk


def provisioning_limit(disk: Disk, space: SpacePolicy) -> int:
    """Bytes that replicas of `disk` may sum up to; negative when more is reserved than there is."""
    return int(float(disk.maximum_bytes - disk.reserved_bytes) * float(space.over_provisioning_pct) / 100)


def minimal_available(disk: Disk, space: SpacePolicy) -> int:
    """Bytes that must stay available on `disk`; what is available has to be more than this."""
    return int(float(disk.maximum_bytes) * float(space.minimal_available_pct) / 100)


def observed_scheduled(disk: Disk, replicas: Iterable[Replica]) -> int:
    """Scheduled bytes as the cluster shows them: the disk's figure plus replicas that the figure does not list yet.

    A Replica object with a disk tells the truth seconds before the Node's figures do.
    """
    listed = disk.scheduled_replicas
    extra = 0
    for replica in replicas:
        counted = listed.get(replica.name, 0)
        if replica.size_bytes > counted:
            extra += replica.size_bytes - counted
    return disk.scheduled_bytes + extra


def check_node(node: LonghornNode) -> Rejection | None:
    """Why `node` takes no replica of any volume, or None."""
    if node.deleting:
        return Rejection(Reason.NODE_UNSCHEDULABLE, f"{node.name}: Longhorn node is being deleted")
    if not node.ready:
        return Rejection(Reason.NODE_NOT_READY, f"{node.name}: condition Ready is not True")
    if not node.schedulable:
        return Rejection(Reason.NODE_UNSCHEDULABLE, f"{node.name}: condition Schedulable is not True")
    if not node.allow_scheduling:
        return Rejection(Reason.NODE_UNSCHEDULABLE, f"{node.name}: spec.allowScheduling is false")
    return None


def check_node_tags(tags: frozenset[str], needs: DiskNeeds, space: SpacePolicy) -> bool:
    """Whether the tags carry the whole selector; an empty selector takes tagged nodes only where Longhorn allows it."""
    if not needs.node_selector:
        return space.allow_empty_node_selector or not tags
    return all(tag in tags for tag in needs.node_selector)


def check_disk_tags(tags: frozenset[str], needs: DiskNeeds, space: SpacePolicy) -> bool:
    if not needs.disk_selector:
        return space.allow_empty_disk_selector or not tags
    return all(tag in tags for tag in needs.disk_selector)


def is_usable_disk(disk: Disk) -> bool:
    """Whether the disk takes new replicas at all, size aside."""
    return (
        disk.allow_scheduling
        and not disk.eviction_requested
        and disk.schedulable
        and disk.maximum_bytes > 0
        and disk.available_bytes > 0
    )


def file_system_limit(data_engine: str, filesystem: str) -> int | None:
    """Bytes that a volume must stay below on that file system, None for no limit."""
    if data_engine != "v1":
        return None
    if filesystem.startswith("ext"):
        return EXT_LIMIT_BYTES
    return XFS_LIMIT_BYTES if filesystem == "xfs" else None


def disk_takes(room: DiskRoom, needs: DiskNeeds, size_bytes: int, required_bytes: int, space: SpacePolicy) -> bool:
    """Whether a replica of `size_bytes`, of which `required_bytes` are copied, may lie on that disk. Room by
    over-provisioning (`free_bytes`) is left to the packing."""
    if room.type != ("block" if needs.data_engine == "v2" else "filesystem"):
        return False
    limit = file_system_limit(needs.data_engine, room.filesystem)
    if limit is not None and size_bytes >= limit:
        return False
    return check_disk_tags(room.tags, needs, space) and required_bytes < room.written_limit_bytes


def room_of_disk(disk: Disk, replicas: Iterable[Replica], space: SpacePolicy) -> DiskRoom:
    return DiskRoom(
        name=disk.name,
        uuid=disk.uuid,
        type=disk.type,
        filesystem=disk.filesystem,
        tags=disk.tags,
        free_bytes=provisioning_limit(disk, space) - observed_scheduled(disk, replicas),
        written_limit_bytes=disk.available_bytes - minimal_available(disk, space),
    )
