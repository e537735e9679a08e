"""When Longhorn looks for a disk for a Replica object, and which failed replica it brings back instead.

Its volume controller looks at every replica without a node each time it looks at the volume. One of a volume with data
locality waits until it is known where the volume runs; one that replaces a failed replica waits as long as that may
come back, or may again. Sources: the volume controller, and `RequireNewReplica` and `CheckAndReuseFailedReplica` of
`scheduler/replica_scheduler.go`.
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
    Disk,
    LonghornNode,
    LonghornSettings,
    Replica,
    SpacePolicy,
    Volume,
)
from controller.model.times import utc_time
from controller.rules.affinity import is_replacement_due
from controller.rules.candidates import CandidateSearch, PlacementView, needs_of, sources_of
from controller.rules.eligibility import (
    check_disk_open,
    check_disk_state,
    check_disk_tags,
    check_engine,
    check_node,
    check_v2,
    minimal_available,
    tags_text,
)
from controller.rules.locality import locality_of
from controller.rules.reasons import Reason, Refusal, Rejection

AHEAD_SECONDS: Final = 5.0  # by which one API server's clock may be ahead of another's
RECHECK_SECONDS: Final = 1.0  # after which Longhorn looks again once a replacement is due


class Wait(StrEnum):
    """What a replica without a disk waits for, or why it never gets one."""

    DELETED = "deleted"  # it is on its way out, or its volume is
    SHARDED = "sharded"  # its volume has shards instead
    FAILED = "failed-replica"  # Longhorn deletes it
    INACTIVE = "inactive-twin"  # a twin, which lies where the other one does
    NOT_ATTACHED = "not-attached"  # its volume has to be at a node first
    REPLACEMENT = "replacement"  # a failed replica may come back until a new one is due
    REUSE = "reuse"  # a failed replica comes back


@dataclass(frozen=True, slots=True)
class NotYet:
    """Why a replica gets no disk now, and in how many `seconds` time alone may change that."""

    wait: Wait
    seconds: float | None = None


def check_time(volume: Volume, replica: Replica, settings: LonghornSettings) -> NotYet | None:
    """Return why the unplaced `replica` gets no disk now, its volume's other replicas aside; or None."""
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
    """Return why a replica that replaces a failed one gets no disk now, or None. `view` has all of the volume's."""
    seconds = wait_seconds(view, volume)
    if seconds is not None:
        return NotYet(Wait.REPLACEMENT, seconds)
    is_degraded = volume.robustness == "degraded"
    return NotYet(Wait.REUSE) if is_degraded and find_reusable(view, volume).replica is not None else None


def is_replacement(replica: Replica) -> bool:
    """Whether the replica was made to replace another one, anywhere: such a one is marked as never to be reused."""
    return replica.rebuild_retry_count >= MAX_REBUILD_RETRIES and not replica.hard_node_affinity


def held_seconds(replica: Replica, now_utc: datetime) -> float:
    """Return for how long the replica is marked as held. A mark that cannot be read, or lies ahead, counts as old."""
    try:
        waited = (now_utc - utc_time(replica.held)).total_seconds()
    except ValueError:
        return math.inf
    return max(0.0, waited) if waited >= -AHEAD_SECONDS else math.inf


# Failed replicas that come back


@dataclass(frozen=True, slots=True)
class Reuse:
    """The failed replica that comes back, or None; and why other replicas, nodes and disks do not serve."""

    replica: Replica | None
    refusals: tuple[Refusal, ...] = ()


def find_reusable(view: PlacementView, volume: Volume, hard_node_affinity: str = "") -> Reuse:
    """Return the failed replica that Longhorn brings back now. Its bytes lie on its disk, so that it needs no room."""
    if volume.needs.data_engine == "v2" and not view.settings.reuses_failed_v2:
        return Reuse(None)
    able: list[Replica] = []
    refusals: list[Refusal] = []
    for replica in sorted(view.replicas, key=lambda entry: entry.name):
        if not replica.failed_at:
            continue
        rejection = check_reusable(view, volume, replica, hard_node_affinity)
        if rejection is None:
            able.append(replica)
        else:
            refusals.append(Refusal(replica.node, "", rejection))
    if not able:
        return Reuse(None, tuple(refusals))
    search = CandidateSearch(
        view,
        volume,
        needs_of(volume, None, view.backing_image),
        {replica.node: view.nodes[replica.node] for replica in able},
        reusable=frozenset(replica.disk_uuid for replica in able),
    )
    found = search.run()
    places = {(entry.node, entry.uuid) for entry in found.candidates}
    within = (replica for replica in able if (replica.node, replica.disk_uuid) in places)
    refusals += [entry for entry in found.refusals if entry.rejection.reason is not Reason.NOT_REUSABLE]
    latest = max(within, key=lambda replica: (utc_time(replica.failed_at), replica.name), default=None)
    return Reuse(latest, tuple(refusals))


def check_reusable(
    view: PlacementView, volume: Volume, replica: Replica, hard_node_affinity: str = ""
) -> Rejection | None:
    """Return why that failed replica cannot come back, the volume's other replicas aside; or None."""
    problem = ""
    if not replica.active:
        problem = "it is inactive"
    elif not replica.is_placed:
        problem = "it has no disk"
    elif replica.rebuild_retry_count >= MAX_REBUILD_RETRIES:
        problem = f"its rebuild failed {replica.rebuild_retry_count} times"
    elif replica.eviction_requested:
        problem = "its eviction is requested"
    elif hard_node_affinity not in ("", replica.node):
        problem = f"it is not on node {hard_node_affinity}"
    if problem:
        return Rejection(Reason.NOT_REUSABLE, f"{replica.name}: {problem}")
    node = view.nodes.get(replica.node)
    if node is None:
        return Rejection(Reason.NO_LONGHORN_NODE, f"{replica.name}: there is no Longhorn node {replica.node}")
    needs = needs_of(volume, replica, view.backing_image)
    rejection = check_node(node) or check_v2(node.name, needs, view.kube_nodes)
    rejection = rejection or check_engine(node.name, needs, view.engines)
    return rejection or _check_disk(view, volume, replica, node)


def _check_disk(view: PlacementView, volume: Volume, replica: Replica, node: LonghornNode) -> Rejection | None:
    disk = next((disk for disk in node.disks if disk.uuid == replica.disk_uuid), None)
    if disk is None:
        return Rejection(
            Reason.DISK_NOT_FOUND, f"{replica.name}: its node has no disk with the UUID {replica.disk_uuid!r}"
        )
    space = view.settings.space
    rejection = _check_disk_takes_back(disk, space)
    if rejection is not None:
        return rejection
    needs = needs_of(volume, replica, view.backing_image)
    if not check_disk_tags(disk.tags, needs, space):
        return Rejection(Reason.DISK_TAGS, f"{disk.name}: {tags_text(disk.tags, needs, is_node=False)}")
    sources = sources_of(view, volume, replica)
    disks = None if sources is None else {source.disk_uuid for source in sources}
    return check_disk_open(disk, is_repeated=False, sources=disks)


def _check_disk_takes_back(disk: Disk, space: SpacePolicy) -> Rejection | None:
    """Why the disk does not take a failed replica back whose data it has. Unlike for a new replica, the disk has to be
    ready, and pressure alone closes it only where no more than the minimal available space is left."""
    has_space = disk.is_under_pressure and disk.available_bytes > minimal_available(disk, space)
    return check_disk_state(disk, must_be_ready=True, has_space=has_space)


def wait_seconds(view: PlacementView, volume: Volume) -> float | None:
    """Return in how many seconds Longhorn looks again, while it leaves a failed replica time to come back; None where
    it replaces a missing one at once."""
    if volume.robustness != "degraded" or not any(replica.is_potentially_reusable for replica in view.replicas):
        return None
    if is_replacement_due(volume, view.settings, view.now_utc) or not volume.last_degraded_at or view.now_utc is None:
        return None
    waited = (view.now_utc - utc_time(volume.last_degraded_at)).total_seconds()
    return view.settings.replenishment_wait_seconds - waited + RECHECK_SECONDS
