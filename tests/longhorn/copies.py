"""Which copies of a volume Longhorn gives up, brings back or makes anew, as pure decisions on raw objects.

Moves to a volume's node and evictions are in `locality.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from tests.longhorn import locality
from tests.longhorn.locality import Raw

MOST_RETRIES: Final = 5  # a copy that is made for rebuilding begins with these: it is not used again if it fails


def is_active(replica: Raw) -> bool:
    """False for the twins of a migration or an upgrade of the engine."""
    return bool(replica["spec"].get("active", True))


def engine_for(volume: Raw, node: str) -> str:
    """The name of the engine that a volume migrates to on that node."""
    return f"{volume['metadata']['name']}-e-{node}"


def lacks_twin(volume: Raw, replicas: Sequence[Raw]) -> list[Raw]:
    """Copies of a migrating volume that have none yet for the engine that it migrates to."""
    if not volume["spec"].get("migrationNodeID"):
        return []
    there = {replica["spec"].get("dataDirectoryName") for replica in replicas if not is_active(replica)}
    healthy = filter(locality.is_healthy, filter(is_active, replicas))
    return [replica for replica in healthy if replica["spec"].get("dataDirectoryName") not in there]


def has_twins_left(volume: Raw, replicas: Sequence[Raw]) -> bool:
    """Whether the migration is over, and it is not yet said which of the twins stay."""
    return not volume["spec"].get("migrationNodeID") and not all(map(is_active, replicas))


def is_failed(replica: Raw) -> bool:
    return bool(replica["spec"].get("failedAt"))


def is_spent(replica: Raw) -> bool:
    """It failed, and nobody tries it again."""
    return is_failed(replica) and int(replica["spec"].get("rebuildRetryCount") or 0) >= MOST_RETRIES


def is_cloning(volume: Raw) -> bool:
    """It is filled from another volume, and has one copy until that is done."""
    return bool(volume["spec"].get("dataSource")) and locality.is_filling(volume)


def is_linked(volume: Raw) -> bool:
    """A clone that shares its source's blocks, so that each copy lies beside one of the source."""
    return bool(volume["spec"].get("cloneMode") == "linked-clone")


def first_count(volume: Raw) -> int:
    """How many Replica objects a new volume gets."""
    return 1 if is_cloning(volume) else int(volume["spec"]["numberOfReplicas"])


def abandoned(volume: Raw, replicas: Sequence[Raw]) -> list[Raw]:
    """Copies without a place of a volume that has data and was detached: they are marked failed.

    Those of a volume that never had data stay as they are.
    """
    is_detached = not volume["spec"].get("nodeID") and (volume.get("status") or {}).get("state") == "detached"
    if not is_detached or not any(replica["spec"].get("healthyAt") for replica in replicas):
        return []
    return [replica for replica in replicas if not locality.is_placed(replica) and not is_failed(replica)]


def astray(volume: Raw, replicas: Sequence[Raw], sources: Collection[tuple[str, str]]) -> list[Raw]:
    """Copies of a linked clone that lie on none of its `sources`, node and disk UUID: they are deleted."""
    if not is_linked(volume):
        return []
    return [
        replica
        for replica in replicas
        if locality.is_placed(replica) and (replica["spec"]["nodeID"], replica["spec"]["diskID"]) not in sources
    ]


def lacks_copy(volume: Raw, replicas: Sequence[Raw]) -> bool:
    """Whether a volume in use is to get one more copy after a failure: one at a time, while no other joins.

    A failed copy that may be tried again and has no place stands for one that is there: it is not replaced.
    """
    wanted = int(volume["spec"].get("numberOfReplicas") or 0)
    if not locality.attached_node(volume):
        return False
    if locality.is_filling(volume) or locality.is_expanding(volume) or volume["spec"].get("migrationNodeID"):
        return False
    staying = [replica for replica in replicas if not locality.is_deleting(replica)]
    if not any(map(locality.is_healthy, staying)):
        return False
    if any(locality.is_usable(replica) and not locality.is_healthy(replica) for replica in staying):
        return False
    there = [
        replica
        for replica in staying
        if not (locality.is_placed(replica) and is_failed(replica))
        and not is_spent(replica)
        and (locality.is_placed(replica) or not replica["spec"].get("hardNodeAffinity"))
    ]
    return len(there) < wanted
