"""Whether Longhorn would look for a disk for a Replica object now, or later.

Its volume controller looks at every replica without a node each time it looks at the volume; those of volumes with data
locality wait until it is known where the volume runs. Longhorn replaces a failed replica only once that one is not
expected to come back. Where that has changed since, the replacement waits as well. Sources: the volume controller, and
`RequireNewReplica` and `CheckAndReuseFailedReplica` of `scheduler/replica_scheduler.go`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from controller.model.longhorn import (
    MAX_REBUILD_RETRIES,
    SHARDED,
    LonghornSettings,
    Replica,
    Volume,
)
from controller.model.times import utc_time
from controller.rules.candidates import PlacementView
from controller.rules.locality import locality_of
from controller.rules.reuse import find_reusable, wait_seconds

AHEAD_SECONDS: Final = 5.0  # that one API server's clock may be ahead of another's


class Wait(StrEnum):
    """What a replica without a disk waits for."""

    DELETED = "deleted"  # it is on its way out, or its volume is
    SHARDED = "sharded"  # its volume has shards instead
    FAILED = "failed-replica"  # Longhorn deletes it
    INACTIVE = "inactive-twin"  # a twin, which lies where the other one does
    NOT_ATTACHED = "not-attached"  # its volume has to be at a node first
    REPLACEMENT = "replacement"  # a failed replica may come back until a new one is due
    REUSE = "reuse"  # a failed replica comes back


@dataclass(frozen=True, slots=True)
class NotYet:
    """`seconds`: when to look again, where time alone changes it."""

    wait: Wait
    seconds: float | None = None


def check_time(volume: Volume, replica: Replica, settings: LonghornSettings) -> NotYet | None:
    """Why the unplaced `replica` gets no disk now, its volume's other replicas aside."""
    if replica.deleting or volume.deleting:
        return NotYet(Wait.DELETED)
    if volume.data_layout == SHARDED:
        return NotYet(Wait.SHARDED)
    if replica.failed_at:
        return NotYet(Wait.FAILED)
    if not replica.active:
        return NotYet(Wait.INACTIVE)
    is_open = volume.node_id or locality_of(volume).places_detached(settings.behaviour)
    return None if is_open else NotYet(Wait.NOT_ATTACHED)


def check_replacement(view: PlacementView, volume: Volume) -> NotYet | None:
    """Why a replica that replaces a failed one gets no disk now. `view` has all replicas of the volume."""
    seconds = wait_seconds(view, volume)
    if seconds is not None:
        return NotYet(Wait.REPLACEMENT, seconds)
    is_degraded = volume.robustness == "degraded"
    return NotYet(Wait.REUSE) if is_degraded and find_reusable(view, volume).replica is not None else None


def is_replacement(replica: Replica) -> bool:
    """Made to replace another one, anywhere: Longhorn marks those as not to be reused when they fail."""
    return replica.rebuild_retry_count >= MAX_REBUILD_RETRIES and not replica.hard_node_affinity


def held_seconds(replica: Replica, now_utc: datetime) -> float:
    """For how long it is marked; a mark that cannot be read, or lies far ahead, counts as old."""
    try:
        waited = (now_utc - utc_time(replica.held)).total_seconds()
    except ValueError:
        return math.inf
    return max(0.0, waited) if waited >= -AHEAD_SECONDS else math.inf
