"""Reason codes of refusals. Metrics, tests and kube-scheduler's conditions match on them, so they never change with
figures.

kube-scheduler repeats a reason in the pod's own condition, and a pod whose condition changes is scheduled again at
once: a number in a reason would cause a loop. Numbers therefore go to Events and to the status page.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Self


class Reason(StrEnum):
    """Why a node or a disk was refused. The value is the stable code, `text` the sentence that kube-scheduler shows."""

    text: str

    def __new__(cls, code: str, text: str = "") -> Self:
        made = str.__new__(cls, code)
        made._value_, made.text = code, text
        return made

    NO_LONGHORN_NODE = "NoLonghornNode", "Longhorn: no Longhorn node"
    NODE_DELETING = "NodeDeleting", "Longhorn: node is being deleted"
    NODE_NOT_READY = "NodeNotReady", "Longhorn: node is not ready"
    NODE_UNSCHEDULABLE = "NodeUnschedulable", "Longhorn: node does not accept replicas"
    V2_DISABLED = "V2Disabled", "Longhorn: node does not run the volume's data engine"
    HARD_AFFINITY = "HardAffinity", "Longhorn: the replica is bound to another node"
    TOPOLOGY = "TopologyRequirement", "Longhorn: node is outside the volume's zone or region"
    LINKED_CLONE = "LinkedClone", "Longhorn: no source replica for the linked clone"
    ENGINE_NOT_READY = "EngineNotReady", "Longhorn: engine image or instance manager is not ready on the node"
    NODE_TAGS = "NodeTagsNotFulfilled", "Longhorn: node tags do not match the volume's"
    NODE_ANTI_AFFINITY = "NodeAntiAffinity", "Longhorn: another replica of the volume is on the node"
    ZONE_ANTI_AFFINITY = "ZoneAntiAffinity", "Longhorn: another replica of the volume is in the zone"
    DISK_ANTI_AFFINITY = "DiskAntiAffinity", "Longhorn: another replica of the volume is on the disk"
    DISK_NOT_FOUND = "DiskNotFound", "Longhorn: the disk is not on the node"
    DISK_UNSCHEDULABLE = "DiskUnschedulable", "Longhorn: disk does not accept replicas"
    DISK_TYPE = "DiskType", "Longhorn: disk type does not fit the volume's data engine"
    DISK_TAGS = "DiskTagsNotFulfilled", "Longhorn: disk tags do not match the volume's"
    NO_USABLE_DISK = "NoUsableDisk", "Longhorn: no disk accepts the volume"
    REPLICA_ELSEWHERE = "ReplicaElsewhere", "Longhorn: the volume's data is on another node"
    IN_USE_ELSEWHERE = "VolumeInUseElsewhere", "Longhorn: another pod uses the volume on another node"
    SERVED_ELSEWHERE = "VolumeServedElsewhere", "Longhorn: the share-manager of the pod's volume runs on another node"
    INCOMPATIBLE_SIZE = "IncompatibleVolumeSize", "Longhorn: volume is too large for the disk's file system"
    TOO_FULL = "DiskPressure", "Longhorn: disks are below their minimal available space"
    INSUFFICIENT_STORAGE = "InsufficientStorage", "Longhorn: not enough space on the node's disks"
    PHYSICAL_SPACE = "InsufficientPhysicalSpace", "Longhorn: the disk has too little physical space for the growth"
    BACKING_IMAGE = "BackingImage", "Longhorn: no room for the volume together with its backing image"
    BACKING_IMAGE_NOT_FOUND = "BackingImageNotFound", "Longhorn: the volume's backing image does not exist"
    BACKING_IMAGE_SIZE_UNKNOWN = "BackingImageSizeUnknown", "Longhorn: the backing image's size is not known yet"
    ALREADY_SCHEDULED = "ReplicaAlreadyScheduled", "Longhorn: the replica already has a disk"
    UNUSED_FAILED_REPLICA = "UnusedFailedReplica", "Longhorn: the replica failed before it was ever healthy"
    DEGRADED_SINCE_UNKNOWN = "DegradedSinceUnknown", "Longhorn: it is not known since when the volume is degraded"
    NOT_REUSABLE = "ReplicaNotReusable", "Longhorn: the failed replica cannot be brought back"
    RESTORING = "VolumeRestoring", "Longhorn: the volume is being restored from a backup"
    CLONING = "VolumeCloning", "Longhorn: the volume's clone is not complete"
    CLONE_FAILED = "VolumeCloneFailed", "Longhorn: the volume's clone has failed"
    FAULTED = "VolumeFaulted", "Longhorn: the volume is faulted"
    IN_TRANSITION = "VolumeInTransition", "Longhorn: the volume is neither attached nor detached"
    MIGRATING = "VolumeMigrating", "Longhorn: the volume is migrating to another node"
    NOT_SCHEDULED = "VolumeNotScheduled", "Longhorn: not all replicas of the volume have a disk"
    ENGINE_NOT_EXPANDABLE = (
        "EngineNotExpandable",
        "Longhorn: volumes with this data engine and frontend cannot be expanded",
    )
    DISK_NOT_READY = "DiskNotReady", "Longhorn: a disk of the volume is not ready"
    RECORD_UNWRITABLE = "AllocationRecordUnwritable", "Longhorn: the node's allocation record cannot be written"
    NO_ROOM_IN_CLUSTER = "NoRoomInCluster", "Longhorn: no disk in the cluster can take the volume's replica"
    CONTENDED = "Contended", "Longhorn: space is promised to other pods"
    KEPT = "KeptForWaitingPod", "Longhorn: space is kept for a pod that has waited a long time"
    NOT_EVALUATED = "NotEvaluated", "Longhorn: node was not evaluated in time"
    NEVER_PLACED = "NeverPlaced", "Longhorn: the claim asks for a volume that Longhorn refuses"
    LEADER_CHANGED = (
        "LeaderChanged",
        "Longhorn: expansions that were admitted before the leader changed are not visible yet",
    )


def counted(reasons: Collection[Reason]) -> Mapping[Reason, int]:
    """How many there are of each. Mostly there is one, of thousands of nodes."""
    kinds = set(reasons)
    return dict.fromkeys(kinds, len(reasons)) if len(kinds) == 1 else Counter(reasons)


@dataclass(frozen=True, slots=True)
class Rejection:
    """A reason with the numbers that decided, for a person. `missing_bytes`: with so many more on the disk this rule
    would not refuse; 0 where bytes do not decide."""

    reason: Reason
    message: str
    missing_bytes: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A rejection of one node (`disk` empty) or of one disk, by names; both empty: of the replica as such."""

    node: str
    disk: str
    rejection: Rejection
