"""Replicas that Longhorn is going to make by itself for a volume, before their objects show.

Rules of Longhorn's volume controller (replenishment, eviction, data locality) and of its scheduler
(`RequireNewReplica`): one extra replica for those that are being evicted; a failed replica is waited for during
`replica-replenishment-wait-interval`; a best-effort volume whose engine's node has no replica gets one there, with a
hard affinity to it. None of this happens while the volume migrates or grows, nor with a rebuild limit of 0.

Nothing is planned for what is predicted here: it lowers scores. Once a Replica object shows it, the leader places it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from controller.model.longhorn import (
    LOCALITY_BEST_EFFORT,
    LOCALITY_DISABLED,
    LOCALITY_STRICT,
    SHARDED,
    DiskNeeds,
    LonghornSettings,
    Replica,
    Volume,
)
from controller.model.times import utc_time

_ATTACHED: Final = ("attached", "attaching")


class Cause(StrEnum):
    CREATION = "creation"  # no replica has been made yet
    REPLENISHMENT = "replenishment"  # too few replicas
    EVICTION = "eviction"  # one more than there are to be, until the one that is being evicted may go
    LOCALITY = "locality"  # next to the engine


@dataclass(frozen=True, slots=True)
class Rebuild:
    """Replicas to come, one after the other. `node` "" is any that suits; `due_at` None is at once."""

    volume: str
    cause: Cause
    size_bytes: int
    required_bytes: int
    needs: DiskNeeds
    node: str = ""
    due_at: datetime | None = None
    copies: int = 1


def rebuilds_ahead(volume: Volume, replicas: Iterable[Replica], settings: LonghornSettings) -> tuple[Rebuild, ...]:
    """What Longhorn will make, now or later. `replicas` are all of the volume.

    Replicas for which an unplaced Replica object exists are not repeated. The result depends only on the arguments, so
    it may be cached.
    """
    own = [replica for replica in replicas if replica.active and not replica.deleting]
    if volume.deleting or volume.data_layout == SHARDED:
        return ()
    if not own:
        return _creation(volume)
    if settings.concurrent_rebuild_limit == 0 or volume.migration_node_id or volume.expansion_required:
        return ()
    if volume.robustness == "faulted" or not any(_has_data(replica) for replica in own):
        return ()  # nothing to copy from
    found = (_missing(volume, own, settings), _next_to_engine(volume, own))
    return tuple(entry for entry in found if entry is not None)


def _creation(volume: Volume) -> tuple[Rebuild, ...]:
    """A volume that is being made; with data locality its replicas wait for its node, and have objects by then."""
    if volume.data_locality != LOCALITY_DISABLED or volume.state != "creating":
        return ()
    return (_rebuild(volume, Cause.CREATION, copies=max(1, volume.replica_count)),)


def _has_data(replica: Replica) -> bool:
    return replica.is_placed and bool(replica.healthy_at) and not replica.failed_at


def _missing(volume: Volume, own: list[Replica], settings: LonghornSettings) -> Rebuild | None:
    """The next copy that replaces a failed one, or one that is being evicted; Longhorn makes one at a time."""
    if any(not replica.node and not replica.hard_node_affinity for replica in own):
        return None  # its object is there
    staying = [replica for replica in own if replica.node and not replica.failed_at and not replica.eviction_requested]
    missing = volume.replica_count - len(staying)
    if missing <= 0:
        return None
    node = (volume.node_id or own[0].node) if volume.data_locality == LOCALITY_STRICT else ""
    evicting = [replica for replica in own if _has_data(replica) and replica.eviction_requested]
    if missing <= len(evicting):
        return _rebuild(volume, Cause.EVICTION, node, copies=missing)
    if not _replenishes(volume, settings):
        return _rebuild(volume, Cause.EVICTION, node, copies=len(evicting)) if evicting else None
    awaited = sum(1 for replica in own if replica.is_potentially_reusable)  # v2 ones too, reused or not
    if not evicting and missing <= awaited and volume.robustness == "degraded":
        return _rebuild(volume, Cause.REPLENISHMENT, node, _due_at(volume, settings), missing)
    return _rebuild(volume, Cause.REPLENISHMENT, node, copies=missing)


def _replenishes(volume: Volume, settings: LonghornSettings) -> bool:
    """Only attached volumes get new copies, unless Longhorn attaches detached ones for it."""
    is_v2 = volume.needs.data_engine == "v2"
    is_offline = settings.offline_rebuilding_v2 if is_v2 else settings.offline_rebuilding_v1
    return volume.state in _ATTACHED or (is_offline and volume.state == "detached")


def _due_at(volume: Volume, settings: LonghornSettings) -> datetime | None:
    if not volume.last_degraded_at:
        return None  # not told yet; it may be long ago
    return utc_time(volume.last_degraded_at) + timedelta(seconds=settings.replenishment_wait_seconds)


def _next_to_engine(volume: Volume, own: list[Replica]) -> Rebuild | None:
    """The copy that data locality adds on the engine's node. The engine of a shared volume is the share manager's."""
    if volume.data_locality != LOCALITY_BEST_EFFORT or volume.state not in _ATTACHED or not volume.node_id:
        return None
    if not volume.frontend or volume.is_standby or volume.restore_required:
        return None
    if any(volume.node_id in (replica.node, replica.hard_node_affinity) for replica in own if _is_there(replica)):
        return None
    if sum(1 for replica in own if _has_data(replica)) < volume.replica_count:
        return None  # only once there are enough healthy copies
    return _rebuild(volume, Cause.LOCALITY, volume.node_id)


def _is_there(replica: Replica) -> bool:
    """Whether a replica on the engine's node, or bound for it, keeps Longhorn from adding one."""
    return not replica.failed_at or replica.is_potentially_reusable


def _rebuild(volume: Volume, cause: Cause, node: str = "", due_at: datetime | None = None, copies: int = 1) -> Rebuild:
    size, required = volume.size_bytes, volume.actual_size_bytes
    return Rebuild(volume.name, cause, size, required, volume.needs, node, due_at, copies)
