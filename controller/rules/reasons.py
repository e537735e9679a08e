"""Reason codes of refusals. Metrics, tests and kube-scheduler's conditions match on them, so they never change with
figures.

kube-scheduler repeats a reason in the pod's own condition, and a pod whose condition changes is scheduled again at
once: a number in a reason would cause a loop. Numbers therefore go to Events and to the status page.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Reason(StrEnum):
    """Why a node or a disk was refused. The value is the stable code, `text` the sentence that kube-scheduler shows."""

    NO_LONGHORN_NODE = "NoLonghornNode"
    NODE_DELETING = "NodeDeleting"
    NODE_NOT_READY = "NodeNotReady"
    NODE_UNSCHEDULABLE = "NodeUnschedulable"
    V2_DISABLED = "V2Disabled"
    HARD_AFFINITY = "HardAffinity"
    TOPOLOGY = "TopologyRequirement"
    LINKED_CLONE = "LinkedClone"
    ENGINE_NOT_READY = "EngineNotReady"
    NODE_TAGS = "NodeTagsNotFulfilled"
    NODE_ANTI_AFFINITY = "NodeAntiAffinity"
    ZONE_ANTI_AFFINITY = "ZoneAntiAffinity"
    DISK_ANTI_AFFINITY = "DiskAntiAffinity"
    DISK_NOT_FOUND = "DiskNotFound"
    DISK_UNSCHEDULABLE = "DiskUnschedulable"
    DISK_TYPE = "DiskType"
    DISK_TAGS = "DiskTagsNotFulfilled"
    NO_USABLE_DISK = "NoUsableDisk"
    REPLICA_ELSEWHERE = "ReplicaElsewhere"
    IN_USE_ELSEWHERE = "VolumeInUseElsewhere"
    SERVED_ELSEWHERE = "VolumeServedElsewhere"
    INCOMPATIBLE_SIZE = "IncompatibleVolumeSize"
    TOO_FULL = "DiskPressure"
    INSUFFICIENT_STORAGE = "InsufficientStorage"
    PHYSICAL_SPACE = "InsufficientPhysicalSpace"
    BACKING_IMAGE = "BackingImage"
    BACKING_IMAGE_NOT_FOUND = "BackingImageNotFound"
    ALREADY_SCHEDULED = "ReplicaAlreadyScheduled"
    UNUSED_FAILED_REPLICA = "UnusedFailedReplica"
    DEGRADED_SINCE_UNKNOWN = "DegradedSinceUnknown"
    NOT_REUSABLE = "ReplicaNotReusable"
    RESTORING = "VolumeRestoring"
    CLONING = "VolumeCloning"
    CLONE_FAILED = "VolumeCloneFailed"
    FAULTED = "VolumeFaulted"
    IN_TRANSITION = "VolumeInTransition"
    MIGRATING = "VolumeMigrating"
    NOT_SCHEDULED = "VolumeNotScheduled"
    ENGINE_NOT_EXPANDABLE = "EngineNotExpandable"
    DISK_NOT_READY = "DiskNotReady"
    RECORD_UNWRITABLE = "AllocationRecordUnwritable"
    NO_ROOM_IN_CLUSTER = "NoRoomInCluster"
    CONTENDED = "Contended"
    KEPT = "KeptForWaitingPod"
    NOT_EVALUATED = "NotEvaluated"
    NEVER_PLACED = "NeverPlaced"
    LEADER_CHANGED = "LeaderChanged"

    @property
    def text(self) -> str:
        return _TEXTS[self]


_TEXTS = {
    Reason.NO_LONGHORN_NODE: "Longhorn: no Longhorn node",
    Reason.NODE_DELETING: "Longhorn: node is being deleted",
    Reason.NODE_NOT_READY: "Longhorn: node is not ready",
    Reason.NODE_UNSCHEDULABLE: "Longhorn: node does not accept replicas",
    Reason.V2_DISABLED: "Longhorn: node does not run the volume's data engine",
    Reason.HARD_AFFINITY: "Longhorn: the replica is bound to another node",
    Reason.TOPOLOGY: "Longhorn: node is outside the volume's zone or region",
    Reason.LINKED_CLONE: "Longhorn: no source replica for the linked clone",
    Reason.ENGINE_NOT_READY: "Longhorn: engine image or instance manager is not ready on the node",
    Reason.NODE_TAGS: "Longhorn: node tags do not match the volume's",
    Reason.NODE_ANTI_AFFINITY: "Longhorn: another replica of the volume is on the node",
    Reason.ZONE_ANTI_AFFINITY: "Longhorn: another replica of the volume is in the zone",
    Reason.DISK_ANTI_AFFINITY: "Longhorn: another replica of the volume is on the disk",
    Reason.DISK_NOT_FOUND: "Longhorn: the disk is not on the node",
    Reason.DISK_UNSCHEDULABLE: "Longhorn: disk does not accept replicas",
    Reason.DISK_TYPE: "Longhorn: disk type does not fit the volume's data engine",
    Reason.DISK_TAGS: "Longhorn: disk tags do not match the volume's",
    Reason.NO_USABLE_DISK: "Longhorn: no disk accepts the volume",
    Reason.REPLICA_ELSEWHERE: "Longhorn: the volume's data is on another node",
    Reason.IN_USE_ELSEWHERE: "Longhorn: another pod uses the volume on another node",
    Reason.SERVED_ELSEWHERE: "Longhorn: the share-manager of the pod's volume runs on another node",
    Reason.INCOMPATIBLE_SIZE: "Longhorn: volume is too large for the disk's file system",
    Reason.TOO_FULL: "Longhorn: disks are below their minimal available space",
    Reason.INSUFFICIENT_STORAGE: "Longhorn: not enough space on the node's disks",
    Reason.PHYSICAL_SPACE: "Longhorn: the disk has too little physical space for the growth",
    Reason.BACKING_IMAGE: "Longhorn: no room for the volume together with its backing image",
    Reason.BACKING_IMAGE_NOT_FOUND: "Longhorn: the volume's backing image does not exist",
    Reason.ALREADY_SCHEDULED: "Longhorn: the replica already has a disk",
    Reason.UNUSED_FAILED_REPLICA: "Longhorn: the replica failed before it was ever healthy",
    Reason.DEGRADED_SINCE_UNKNOWN: "Longhorn: it is not known since when the volume is degraded",
    Reason.NOT_REUSABLE: "Longhorn: the failed replica cannot be brought back",
    Reason.RESTORING: "Longhorn: the volume is being restored from a backup",
    Reason.CLONING: "Longhorn: the volume's clone is not complete",
    Reason.CLONE_FAILED: "Longhorn: the volume's clone has failed",
    Reason.FAULTED: "Longhorn: the volume is faulted",
    Reason.IN_TRANSITION: "Longhorn: the volume is neither attached nor detached",
    Reason.MIGRATING: "Longhorn: the volume is migrating to another node",
    Reason.NOT_SCHEDULED: "Longhorn: not all replicas of the volume have a disk",
    Reason.ENGINE_NOT_EXPANDABLE: "Longhorn: volumes with this data engine and frontend cannot be expanded",
    Reason.DISK_NOT_READY: "Longhorn: a disk of the volume is not ready",
    Reason.RECORD_UNWRITABLE: "Longhorn: the node's allocation record cannot be written",
    Reason.NO_ROOM_IN_CLUSTER: "Longhorn: no disk in the cluster can take the volume's replica",
    Reason.CONTENDED: "Longhorn: space is promised to other pods",
    Reason.KEPT: "Longhorn: space is kept for a pod that has waited a long time",
    Reason.NOT_EVALUATED: "Longhorn: node was not evaluated in time",
    Reason.LEADER_CHANGED: "Longhorn: expansions that were admitted before the leader changed are not visible yet",
    Reason.NEVER_PLACED: "Longhorn: every volume of the claim's StorageClass is refused",
}


@dataclass(frozen=True, slots=True)
class Rejection:
    """A reason with the numbers that decided, for a person."""

    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """A rejection of one node (`disk` empty) or of one disk, by names; both empty: of the replica as such."""

    node: str
    disk: str
    rejection: Rejection
