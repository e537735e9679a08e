"""What Longhorn writes into a volume's condition where the product names a reason code of its own.

Texts of `k8s/pkg/apis/longhorn/v1beta2` (replica scheduling error reasons). A refusal by anti-affinity has none. Why a
volume does not grow is written nowhere: those are the stand-in's own words.
"""

from __future__ import annotations

from typing import Final

from controller.rules.reasons import Reason
from tests.longhorn import expansion

_LONGHORN: Final = {
    Reason.NO_LONGHORN_NODE: "nodes are unavailable",
    Reason.NODE_DELETING: "nodes are unavailable",
    Reason.NODE_NOT_READY: "nodes are unavailable",
    Reason.NODE_UNSCHEDULABLE: "nodes are unavailable",
    Reason.V2_DISABLED: "nodes are unavailable",
    Reason.HARD_AFFINITY: "hard affinity cannot be satisfied",
    Reason.TOPOLOGY: "topology requirement cannot be satisfied",
    Reason.LINKED_CLONE: "linked clone replica cannot be satisfied",
    Reason.ENGINE_NOT_READY: "none of the node candidates contains a ready engine image",
    Reason.NODE_TAGS: "tags not fulfilled",
    Reason.DISK_NOT_FOUND: "disk not found",
    Reason.DISK_UNSCHEDULABLE: "disks are unavailable",
    Reason.DISK_TYPE: "disks are unavailable",
    Reason.DISK_TAGS: "tags not fulfilled",
    Reason.NO_USABLE_DISK: "disks are unavailable",
    Reason.INCOMPATIBLE_SIZE: "incompatible volume size",
    Reason.TOO_FULL: "insufficient storage",
    Reason.INSUFFICIENT_STORAGE: "insufficient storage",
    Reason.PHYSICAL_SPACE: "insufficient storage",
    Reason.BACKING_IMAGE_NOT_FOUND: "longhorn client operation failed",
    Reason.DEGRADED_SINCE_UNKNOWN: "longhorn client operation failed",
    Reason.ALREADY_SCHEDULED: "replica already scheduled",
    Reason.UNUSED_FAILED_REPLICA: "unused failed replica is not supported",
    Reason.RESTORING: expansion.RESTORING,
    Reason.CLONING: expansion.CLONING,
    Reason.CLONE_FAILED: expansion.CLONE_FAILED,
    Reason.FAULTED: expansion.FAULTED,
    Reason.IN_TRANSITION: expansion.UNSETTLED,
    Reason.MIGRATING: expansion.MIGRATING,
    Reason.NOT_SCHEDULED: expansion.UNSCHEDULED,
    Reason.ENGINE_NOT_EXPANDABLE: expansion.ENGINE,
    Reason.DISK_NOT_READY: expansion.NOT_READY,
}


def longhorn_reason(reason: Reason) -> str | None:
    """None where Longhorn names no reason, or has no such rule."""
    return _LONGHORN.get(reason)
