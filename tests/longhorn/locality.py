"""What Longhorn's volume controller does about a volume's replicas, as pure decisions on raw objects.

Only what placement, data locality and eviction need; failures are in `copies.py`, and balancing is not imitated yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Raw = dict[str, Any]


def is_placed(replica: Raw) -> bool:
    spec = replica["spec"]
    return bool(spec.get("nodeID") and spec.get("diskID"))


def is_deleting(raw: Raw) -> bool:
    return bool(raw["metadata"].get("deletionTimestamp"))


def is_usable(replica: Raw) -> bool:
    """Placed, not failed and not on its way out; it may never have held data yet."""
    return is_placed(replica) and not replica["spec"].get("failedAt") and not is_deleting(replica)


def is_healthy(replica: Raw) -> bool:
    return is_usable(replica) and bool(replica["spec"].get("healthyAt"))


def starters(replicas: Sequence[Raw]) -> list[Raw]:
    """The replicas that an engine can start from: the healthy ones, or at first use every placed one."""
    return [entry for entry in replicas if is_healthy(entry)] or [entry for entry in replicas if is_usable(entry)]


def attached_node(volume: Raw) -> str:
    """Where the volume is attached and meant to be; "" while it is on its way."""
    status, wanted = volume.get("status") or {}, str(volume["spec"].get("nodeID") or "")
    return wanted if status.get("state") == "attached" and status.get("currentNodeID") == wanted else ""


def engine_nodes(volume: Raw) -> set[str]:
    """Where pods can use the device: on two nodes while the volume migrates."""
    status = volume.get("status") or {}
    return {str(status.get(field) or "") for field in ("currentNodeID", "currentMigrationNodeID")} - {""}


def may_migrate(volume: Raw, node: str) -> bool:
    """Whether it can be attached there beside the node that it is attached to."""
    spec = volume["spec"]
    is_shared = spec.get("accessMode") == "rwx" and bool(spec.get("migratable"))
    return is_shared and bool(attached_node(volume)) and (spec.get("migrationNodeID") or node) == node


def is_filling(volume: Raw) -> bool:
    """Its data is still to come, from a backup or from the volume that it is a clone of: no pod can use it."""
    status = volume.get("status") or {}
    clone = (status.get("cloneStatus") or {}).get("state")
    is_clone = bool(volume["spec"].get("dataSource")) and clone != "completed"
    return bool(status.get("restoreRequired")) or is_clone


def is_served(volume: Raw) -> bool:
    """By a share-manager, whose node is the volume's: it may be used on several nodes, and does not migrate."""
    return volume["spec"].get("accessMode") == "rwx" and not volume["spec"].get("migratable")


def is_expanding(volume: Raw) -> bool:
    """Its engine has to grow, for which it has to be attached."""
    return bool((volume.get("status") or {}).get("expansionRequired"))


def is_kept_local(volume: Raw) -> bool:
    """One replica, which is to lie near the volume's node."""
    spec = volume["spec"]
    return (spec.get("dataLocality") or "disabled") != "disabled" and int(spec.get("numberOfReplicas") or 0) == 1


def has_device(volume: Raw) -> bool:
    """Whether CSI can publish it: other frontends give a pod nothing to mount."""
    return (volume["spec"].get("frontend") or "blockdev") in ("blockdev", "ublk")


def is_told_unscheduled(volume: Raw) -> bool:
    conditions = (volume.get("status") or {}).get("conditions") or ()
    return any(entry.get("type") == "Scheduled" and entry.get("status") == "False" for entry in conditions)


def is_for_longhorn(volume: Raw) -> bool:
    """Longhorn attaches it for work of its own, without the device that a pod would use."""
    return bool(volume["spec"].get("disableFrontend"))


def may_place(volume: Raw) -> bool:
    """`disabled` is placed at once, the others when they are attached to a node."""
    return (volume["spec"].get("dataLocality") or "disabled") == "disabled" or bool(volume["spec"].get("nodeID"))


def may_attach(volume: Raw, replicas: Sequence[Raw], node: str) -> bool:
    """A strict-local volume is never attached away from its replica."""
    places = {replica["spec"].get("nodeID") or "" for replica in replicas} - {""}
    return volume["spec"].get("dataLocality") != "strict-local" or not places or node in places


def wants_local(volume: Raw, replicas: Sequence[Raw]) -> str:
    """The node that a best-effort volume is to get one more replica on, or "".

    It is attached there, has as many healthy replicas as it should have, and none on that node nor on its way to it.
    """
    node = attached_node(volume)
    if volume["spec"].get("dataLocality") != "best-effort" or not node:
        return ""
    if is_for_longhorn(volume) or is_filling(volume):
        return ""
    if sum(map(is_healthy, replicas)) < int(volume["spec"].get("numberOfReplicas") or 0):
        return ""
    is_there = any(
        replica["spec"].get("nodeID") == node
        or (not replica["spec"].get("nodeID") and replica["spec"].get("hardNodeAffinity") == node)
        for replica in replicas
        if not replica["spec"].get("failedAt") and not is_deleting(replica)
    )
    return "" if is_there else node


def obsolete(volume: Raw, replicas: Sequence[Raw]) -> list[Raw]:
    """Replicas that were to move a best-effort volume's data to a node that it has left before they were healthy."""
    if volume["spec"].get("dataLocality") != "best-effort" or not any(map(is_healthy, replicas)):
        return []
    return [
        replica
        for replica in replicas
        if replica["spec"].get("hardNodeAffinity")
        and not is_deleting(replica)
        and not is_healthy(replica)
        and replica["spec"]["hardNodeAffinity"] != volume["spec"].get("nodeID")
    ]


def surplus(volume: Raw, replicas: Sequence[Raw]) -> Raw | None:
    """The replica to give up once a local one is healthy and there is one too many: the first by name."""
    node = attached_node(volume)
    healthy = sorted(filter(is_healthy, replicas), key=lambda entry: str(entry["metadata"]["name"]))
    if not node or len(healthy) <= int(volume["spec"].get("numberOfReplicas") or 0):
        return None
    remote = [replica for replica in healthy if replica["spec"]["nodeID"] != node]
    return None if len(remote) == len(healthy) or not remote else remote[0]


def is_evicting(replica: Raw) -> bool:
    return is_usable(replica) and bool(replica["spec"].get("evictionRequested"))


def wants_spare(volume: Raw, replicas: Sequence[Raw]) -> bool:
    """Whether an attached volume is to get one more replica, anywhere, in place of one that has to leave its disk."""
    return bool(attached_node(volume)) and lacks_spare(volume, replicas)


def lacks_spare(volume: Raw, replicas: Sequence[Raw]) -> bool:
    """Whether a replica has to leave its disk, and none is there yet in its place.

    One that waits for room near the volume's node does not count: nobody knows when it gets it.
    """
    if not any(map(is_evicting, replicas)):
        return False
    staying = [
        replica
        for replica in replicas
        if not replica["spec"].get("failedAt")
        and not is_deleting(replica)
        and not replica["spec"].get("evictionRequested")
        and (is_placed(replica) or not replica["spec"].get("hardNodeAffinity"))
    ]
    return len(staying) < int(volume["spec"].get("numberOfReplicas") or 0)


def evicted(volume: Raw, replicas: Sequence[Raw]) -> list[Raw]:
    """Replicas that may leave their disks now, because enough healthy ones lie elsewhere."""
    staying = sum(1 for replica in replicas if is_healthy(replica) and not is_evicting(replica))
    if not staying or staying < int(volume["spec"].get("numberOfReplicas") or 0):
        return []
    return [replica for replica in replicas if is_evicting(replica)]


def needs_turn(volume: Raw, replicas: Sequence[Raw]) -> bool:
    """Whether there may be something to do about the volume, by what the informers show."""
    if is_deleting(volume):
        return False
    replicas = [replica for replica in replicas if not is_deleting(replica)]
    if obsolete(volume, replicas) or evicted(volume, replicas):
        return True
    is_told_late = is_told_unscheduled(volume) and len(replicas) == int(volume["spec"].get("numberOfReplicas") or 0)
    if not may_place(volume):
        return is_told_late
    if not replicas or any(not is_placed(replica) and not replica["spec"].get("failedAt") for replica in replicas):
        return True
    is_untold = bool(attached_node(volume)) and (volume.get("status") or {}).get("robustness") == "unknown"
    is_rebuilding = bool(attached_node(volume)) and not all(map(is_healthy, replicas))
    return (
        is_told_late
        or is_untold
        or is_rebuilding
        or bool(wants_local(volume, replicas))
        or wants_spare(volume, replicas)
        or surplus(volume, replicas) is not None
    )
