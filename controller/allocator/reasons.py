"""Reason codes of refusals. Metrics, tests and kube-scheduler's conditions match on them, so they never change with
figures.

kube-scheduler repeats a reason in the pod's own condition, and a pod whose condition changes is scheduled again at
once: a number in a reason would make a loop of it. Numbers therefore go to Events and to the status page.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Reason(StrEnum):
    """Why a node was refused. The value is the stable code, `text` the sentence that kube-scheduler shows."""

    NO_LONGHORN_NODE = "NoLonghornNode"
    NODE_NOT_READY = "NodeNotReady"
    NODE_UNSCHEDULABLE = "NodeUnschedulable"
    NODE_TAGS = "NodeTagsNotFulfilled"
    NO_USABLE_DISK = "NoUsableDisk"
    REPLICA_ELSEWHERE = "ReplicaElsewhere"
    INCOMPATIBLE_SIZE = "IncompatibleVolumeSize"
    TOO_FULL = "DiskPressure"
    INSUFFICIENT_STORAGE = "InsufficientStorage"
    NO_ROOM_IN_CLUSTER = "NoRoomInCluster"
    CONTENDED = "Contended"
    NOT_EVALUATED = "NotEvaluated"

    @property
    def text(self) -> str:
        return _TEXTS[self]


_TEXTS = {
    Reason.NO_LONGHORN_NODE: "Longhorn: no Longhorn node",
    Reason.NODE_NOT_READY: "Longhorn: node is not ready",
    Reason.NODE_UNSCHEDULABLE: "Longhorn: node does not accept replicas",
    Reason.NODE_TAGS: "Longhorn: node tags do not match the volume's",
    Reason.NO_USABLE_DISK: "Longhorn: no disk accepts the volume",
    Reason.REPLICA_ELSEWHERE: "Longhorn: the volume's data is on another node",
    Reason.INCOMPATIBLE_SIZE: "Longhorn: volume is too large for the disk's file system",
    Reason.TOO_FULL: "Longhorn: disks are below their minimal available space",
    Reason.INSUFFICIENT_STORAGE: "Longhorn: not enough space on the node's disks",
    Reason.NO_ROOM_IN_CLUSTER: "Longhorn: no disk in the cluster can take the volume's replica",
    Reason.CONTENDED: "Longhorn: space is promised to other pods",
    Reason.NOT_EVALUATED: "Longhorn: node was not evaluated in time",
}


@dataclass(frozen=True, slots=True)
class Rejection:
    """A reason with the numbers that decided, for a person."""

    reason: Reason
    message: str
