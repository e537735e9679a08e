"""Longhorn's read-only questions about placement, as a library: pure functions on facts.

They have the names that Longhorn's replica scheduler gives them, and decide as it does. None of them knows of promises:
for these, ask the leader (FindDiskCandidates of its gRPC service). docs/disk-scheduler.md has an example.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from controller.model.longhorn import Disk, LonghornNode, LonghornSettings, Replica, Volume
from controller.model.workload import KubeNode
from controller.rules.candidates import Candidates, PlacementView, find_candidates
from controller.rules.eligibility import (
    check_disk_space,
    check_node,
    check_v2,
    is_under_balancing_pressure,
    minimal_available,
    provisioning_limit,
    wrapped,
)
from controller.rules.reuse import plan_new_replica

__all__ = [
    "DiskSchedulingInfo",
    "filter_nodes_schedulable_for_volume",
    "find_disk_candidates",
    "get_disk_scheduling_info",
    "is_disk_under_pressure",
    "is_schedulable_to_disk",
    "is_schedulable_to_disk_consider_disk_pressure",
    "list_schedulable_nodes",
    "require_new_replica",
]


@dataclass(frozen=True, slots=True)
class DiskSchedulingInfo:
    """A disk with the settings that decide about its room. Sizes in bytes."""

    disk: Disk
    settings: LonghornSettings

    @property
    def limit_bytes(self) -> int:
        """What its replicas may sum up to, by over-provisioning."""
        return provisioning_limit(self.disk, self.settings.space)

    @property
    def minimal_available_bytes(self) -> int:
        """What has to stay available, and one byte more."""
        return minimal_available(self.disk, self.settings.space)


def require_new_replica(view: PlacementView, volume: Volume, hard_node_affinity: str = "") -> float:
    """Seconds until a missing replica is replaced; 0: at once. Until then a failed one may come back."""
    plan = plan_new_replica(view, volume, hard_node_affinity)
    return 0.0 if plan.is_due else plan.recheck_seconds


def list_schedulable_nodes(
    nodes: Mapping[str, LonghornNode], data_engine: str, kube_nodes: Mapping[str, KubeNode] | None = None
) -> dict[str, LonghornNode]:
    """The nodes that may take replicas of that data engine, their disks aside. `kube_nodes` None: not known, and v2 is
    refused by no label."""
    return {
        name: node
        for name, node in nodes.items()
        if check_node(node) is None and (data_engine != "v2" or check_v2(name, kube_nodes) is None)
    }


def filter_nodes_schedulable_for_volume(
    nodes: Mapping[str, LonghornNode], volume: Volume, settings: LonghornSettings
) -> dict[str, LonghornNode]:
    """Those of `nodes` with a disk that has room for a replica; conditions, tags and affinity are not asked."""
    size, written = volume.size_bytes, volume.actual_size_bytes
    return {
        name: node
        for name, node in nodes.items()
        if any(is_schedulable_to_disk(size, written, get_disk_scheduling_info(disk, settings)) for disk in node.disks)
    }


def find_disk_candidates(view: PlacementView, volume: Volume, replica: Replica) -> Candidates:
    """Every disk that Longhorn would choose from for the unplaced `replica` of `volume`, and why not the others."""
    return find_candidates(view, volume, replica)


def get_disk_scheduling_info(disk: Disk, settings: LonghornSettings) -> DiskSchedulingInfo:
    return DiskSchedulingInfo(disk, settings)


def is_disk_under_pressure(percentage: int, info: DiskSchedulingInfo) -> bool:
    """Whether less than 100 - `percentage` percent of the disk are free of data; never for 0 or below."""
    return is_under_balancing_pressure(info.disk, percentage)


def is_schedulable_to_disk(size_bytes: int, required_bytes: int, info: DiskSchedulingInfo) -> bool:
    """Whether a replica of `size_bytes`, of which `required_bytes` are written at once, finds room."""
    disk, space = info.disk, info.settings.space
    return check_disk_space(disk, size_bytes, required_bytes, disk.scheduled_bytes, space) is None


def is_schedulable_to_disk_consider_disk_pressure(
    percentage: int, size_bytes: int, required_bytes: int, info: DiskSchedulingInfo
) -> bool:
    """As `is_schedulable_to_disk`, and less than `percentage` percent of the disk are in use then: what is written at
    once counts, together with all that is scheduled and reserved."""
    disk = info.disk
    if disk.maximum_bytes <= 0:
        return False
    used = wrapped(wrapped(required_bytes + disk.scheduled_bytes + disk.reserved_bytes) * 100)
    share = abs(used) // disk.maximum_bytes * (1 if used >= 0 else -1)  # truncated toward zero
    return is_schedulable_to_disk(size_bytes, required_bytes, info) and share < percentage
