"""What each data locality means, one row for each; and the copy that best-effort adds next to the engine later.

That copy is a rule of Longhorn's volume controller (`replenishReplicas`): a best-effort volume without a replica on its
engine's node gets one there once all its replicas are healthy; but not while it migrates or grows, nor with a rebuild
limit of 0. Nothing is planned for that copy; it only lowers the node's score. The leader places it once a Replica
object shows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from controller.model.longhorn import SHARDED, LonghornSettings, Replica, Volume
from controller.model.versions import Behaviour


class Reach(Enum):
    """Where copies may lie, seen from the node to which the volume is attached."""

    NODE_ONLY = auto()
    NODE_FIRST = auto()  # one of them there, now or later; the others anywhere
    ANYWHERE = auto()


@dataclass(frozen=True, slots=True)
class Locality:
    """What Longhorn does for one value of `spec.dataLocality`."""

    reach: Reach
    has_one_copy: bool = False  # more are refused
    is_shareable: bool = True  # else refused for volumes that nodes share, migratable ones aside
    is_left_with_source: bool = False  # Longhorn itself places a volume that is restored or cloned

    def places_detached(self, behaviour: Behaviour) -> bool:
        """Whether Longhorn places the copies while the volume is attached nowhere."""
        is_early = self.reach is Reach.NODE_FIRST and not behaviour.places_best_effort_at_attach
        return is_early or self.reach is Reach.ANYWHERE


_ANYWHERE: Final = Locality(Reach.ANYWHERE)
LOCALITIES: Final[Mapping[str, Locality]] = {
    "disabled": _ANYWHERE,
    "best-effort": Locality(Reach.NODE_FIRST),
    "strict-local": Locality(Reach.NODE_ONLY, has_one_copy=True, is_shareable=False, is_left_with_source=True),
}


def locality_named(name: str) -> Locality:
    """Return the locality of that name. An unknown one stands only in a class that Longhorn refuses, and binds copies
    to no node."""
    return LOCALITIES.get(name, _ANYWHERE)


def locality_of(volume: Volume) -> Locality:
    return LOCALITIES.get(volume.data_locality, _ANYWHERE)


def bound_to(volume: Volume, otherwise: str = "") -> str:
    """Return the node on which all of the volume's copies have to lie, "" while it is attached nowhere; `otherwise` if
    its locality binds them to no node."""
    return volume.node_id if locality_of(volume).reach is Reach.NODE_ONLY else otherwise


def is_left_to_longhorn(volume: Volume) -> bool:
    """Whether Longhorn itself places the volume's copies, whoever leads.

    A strict-local volume that is restored or cloned is attached to its owner first, and its PersistentVolume's node
    affinity follows that: placed by anybody else, it never comes up. Shards are remembered in Longhorn's memory alone.
    """
    has_source = bool(volume.data_source or volume.from_backup)
    return volume.data_layout == SHARDED or (has_source and locality_of(volume).is_left_with_source)


def node_of_copy_to_come(volume: Volume, replicas: Iterable[Replica], settings: LonghornSettings) -> str:
    """Return the node on which a best-effort volume will get a further copy, or "". `replicas`: all of the volume. The
    engine of a shared volume runs at its share-manager."""
    node = volume.node_id
    if locality_of(volume).reach is not Reach.NODE_FIRST or volume.state not in ("attached", "attaching"):
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
    """Whether that replica on the engine's node, or bound for it, keeps Longhorn from adding one."""
    return not replica.failed_at or replica.is_potentially_reusable
