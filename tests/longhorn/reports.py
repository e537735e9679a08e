"""What a sync of Longhorn's volume controller tells about a volume: its conditions, its robustness and its PV."""

from __future__ import annotations

from typing import Final

from tests.cluster.client import ignored_when_gone
from tests.longhorn import locality, paths
from tests.longhorn.world import LonghornWorld, Raw, set_condition, utc_now

HOSTNAME: Final = "kubernetes.io/hostname"


def tell_scheduled(world: LonghornWorld, volume: Raw, failed: str, count: int) -> None:
    """Write the condition `Scheduled` and its reason on the PV, where they are not written already.

    Local replicas that wait for the volume's node do not count as failed, so it may be True before anything is
    placed. An earlier False stays while there are more or fewer replicas than wanted: `reconcileVolumeCondition`.
    """

    def edit(raw: Raw) -> bool:
        status = raw.setdefault("status", {})
        reason = "LocalReplicaSchedulingFailure" if failed not in ("", "any") else "ReplicaSchedulingFailure"
        if failed:
            return set_condition(status, "Scheduled", "False", reason, "insufficient storage")
        if locality.is_told_unscheduled(raw) and count != int(raw["spec"]["numberOfReplicas"]):
            return False
        return set_condition(status, "Scheduled", "True")

    name = str(volume["metadata"]["name"])
    if edit({**volume, "status": dict(volume.get("status") or {})}):
        world.change(world.longhorn("volumes", name), edit, status=True)
    _annotate(world, name, "insufficient storage" if failed else "")


def _annotate(world: LonghornWorld, name: str, error: str) -> None:
    """Write the reason on the PV, which has the volume's name, if it is there and says something else."""
    pv = world.stores["pvs"].get(name)
    if pv is None or (pv["metadata"].get("annotations") or {}).get(paths.SCHEDULING_ERROR, "") == error:
        return
    with ignored_when_gone():
        world.api.patch(f"{paths.PVS}/{name}", {"metadata": {"annotations": {paths.SCHEDULING_ERROR: error}}})


def tell_robustness(world: LonghornWorld, volume: Raw, healthy: int) -> None:
    """Write how an attached volume is by the number of its healthy replicas, unless it says so already."""

    def edit(raw: Raw) -> bool:
        return bool(locality.attached_node(raw)) and _set_robustness(raw, healthy)

    if edit({**volume, "status": dict(volume.get("status") or {})}):
        world.change(world.longhorn("volumes", volume["metadata"]["name"]), edit, status=True)


def _set_robustness(volume: Raw, healthy: int) -> bool:
    status = volume["status"]
    before, now = status.get("robustness"), "healthy"
    if healthy < int(volume["spec"]["numberOfReplicas"]):
        now = "degraded"
        if before != now:
            status["lastDegradedAt"] = utc_now()
    status["robustness"] = now
    return bool(before != now)


def lacks_node_affinity(world: LonghornWorld, volume: Raw) -> bool:
    """Whether a strict-local volume has its node, and its PV does not say so yet."""
    if volume["spec"].get("dataLocality") != "strict-local" or not volume["spec"].get("nodeID"):
        return False
    pv = world.stores["pvs"].get(str(volume["metadata"]["name"]))
    return pv is not None and not pv["spec"].get("nodeAffinity")


def tell_node_affinity(world: LonghornWorld, volume: Raw) -> None:
    """Bind the PV to the volume's node, for good."""
    term = {"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": [volume["spec"]["nodeID"]]}]}
    affinity = {"required": {"nodeSelectorTerms": [term]}}

    def edit(pv: Raw) -> bool:
        if pv["spec"].get("nodeAffinity"):
            return False
        pv["spec"]["nodeAffinity"] = affinity
        return True

    world.change(f"{paths.PVS}/{volume['metadata']['name']}", edit)
