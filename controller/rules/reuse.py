"""Whether Longhorn brings a failed replica back instead of making a new one, and when it makes a new one.

Sources: `scheduler/replica_scheduler.go` (`CheckAndReuseFailedReplica`, `RequireNewReplica`), the volume controller.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from controller.model.longhorn import MAX_REBUILD_RETRIES, LonghornNode, Replica, Volume
from controller.model.times import utc_time
from controller.rules.affinity import is_replacement_due
from controller.rules.candidates import CandidateSearch, PlacementView, needs_of, sources_of
from controller.rules.eligibility import (
    check_disk_open,
    check_disk_tags,
    check_disk_takes_back,
    check_engine,
    check_node,
    check_v2,
)
from controller.rules.reasons import Reason, Refusal, Rejection

RECHECK_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Reuse:
    """The failed replica that is brought back, or None; why others did not qualify, by their names."""

    replica: Replica | None
    refusals: tuple[Refusal, ...] = ()


def find_reusable(view: PlacementView, volume: Volume, hard_node_affinity: str = "") -> Reuse:
    """Which failed replica Longhorn reuses now. Its bytes are on its disk already, so no space is needed."""
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
    """Why that failed replica cannot be brought back, the volume's other replicas aside."""
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
    rejection = check_disk_takes_back(disk, space)
    if rejection is not None:
        return rejection
    needs = needs_of(volume, replica, view.backing_image)
    if not check_disk_tags(disk.tags, needs, space):
        return Rejection(Reason.DISK_TAGS, f"{disk.name}: tags {sorted(disk.tags)} do not match")
    sources = sources_of(view, volume, replica)
    disks = None if sources is None else {source.disk_uuid for source in sources}
    return check_disk_open(disk, is_shared=False, sources=disks)


def wait_seconds(view: PlacementView, volume: Volume) -> float | None:
    """After how many seconds Longhorn looks again, where it leaves time for a failed replica to come back; None: it
    replaces a missing one at once."""
    if volume.robustness != "degraded" or not any(replica.is_potentially_reusable for replica in view.replicas):
        return None
    if is_replacement_due(volume, view.settings, view.now_utc) or not volume.last_degraded_at or view.now_utc is None:
        return None
    waited = (view.now_utc - utc_time(volume.last_degraded_at)).total_seconds()
    return view.settings.replenishment_wait_seconds - waited + RECHECK_SECONDS
