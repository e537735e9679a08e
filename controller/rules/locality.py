"""The copy that Longhorn adds next to a volume's engine, before its object shows.

A rule of Longhorn's volume controller (`replenishReplicas`): a best-effort volume whose engine's node has no replica
gets one there, once it has as many healthy ones as it is to have. Not while the volume migrates or grows, nor with a
rebuild limit of 0. Nothing is planned for it: it lowers scores. Once a Replica object shows it, the leader places it.
"""

from __future__ import annotations

from collections.abc import Iterable

from controller.model.longhorn import LOCALITY_BEST_EFFORT, LonghornSettings, Replica, Volume


def node_of_copy_to_come(volume: Volume, replicas: Iterable[Replica], settings: LonghornSettings) -> str:
    """Where it will lie; "" where none is to come. `replicas` are all of the volume. The engine of a shared volume is
    the share manager's."""
    node = volume.node_id
    if volume.data_locality != LOCALITY_BEST_EFFORT or volume.state not in ("attached", "attaching"):
        return ""
    if not volume.frontend or volume.is_standby or volume.restore_required or volume.deleting:
        return ""
    if settings.concurrent_rebuild_limit == 0 or volume.migration_node_id or volume.expansion_required:
        return ""
    own = [replica for replica in replicas if replica.active and not replica.deleting]
    if any(node in (replica.node, replica.hard_node_affinity) for replica in own if _is_there(replica)):
        return ""
    healthy = sum(1 for one in own if one.is_placed and one.healthy_at and not one.failed_at)
    return node if healthy >= max(1, volume.replica_count) else ""


def _is_there(replica: Replica) -> bool:
    """Whether a replica on the engine's node, or bound for it, keeps Longhorn from adding one."""
    return not replica.failed_at or replica.is_potentially_reusable
