"""Longhorn's view of Kubernetes nodes: gone, not ready or cordoned ones stop being places for replicas."""

from __future__ import annotations

from typing import Final

from tests.longhorn.placement import is_true
from tests.longhorn.world import LonghornWorld, Raw, set_condition

GONE: Final = "KubernetesNodeGone"
NOT_READY: Final = "KubernetesNodeNotReady"
CORDONED: Final = "KubernetesNodeCordoned"
ZONE: Final = "topology.kubernetes.io/zone"
REGION: Final = "topology.kubernetes.io/region"


class Nodes:
    """Follows Kubernetes nodes. What somebody else wrote into a Longhorn node's conditions stays.

    Threads: the reflector's and the pool's.
    """

    def __init__(self, world: LonghornWorld) -> None:
        self._world = world
        world.listen("kube_nodes", self._on_node)

    def _on_node(self, _verb: str, raw: Raw) -> None:
        name = str(raw["metadata"]["name"])
        if self._world.stores["nodes"].get(f"{self._world.options.namespace}/{name}") is not None:
            self._world.timers.now(self._settle, name)

    def _settle(self, name: str) -> None:
        kube = self._world.stores["kube_nodes"].get(name)
        self._world.change(self._world.longhorn("nodes", name), lambda node: settle(node, kube), status=True)


def settle(node: Raw, kube: Raw | None) -> bool:
    """Bring a Longhorn node's conditions, zone and region in line with its Kubernetes node; whether it changed."""
    status = node.setdefault("status", {})
    if kube is None:
        changed = set_condition(status, "Ready", "False", GONE)
    elif not is_true((kube.get("status") or {}).get("conditions"), "Ready"):
        changed = set_condition(status, "Ready", "False", NOT_READY)
    else:
        changed = _clear(status, "Ready", GONE, NOT_READY)
    if kube is not None:
        if (kube.get("spec") or {}).get("unschedulable"):
            changed = set_condition(status, "Schedulable", "False", CORDONED) or changed
        else:
            changed = _clear(status, "Schedulable", CORDONED) or changed
        labels = kube["metadata"].get("labels") or {}
        for field, label in (("zone", ZONE), ("region", REGION)):
            if label in labels and status.get(field) != labels[label]:
                status[field], changed = labels[label], True
    return settle_disks(node) or changed


def settle_disks(node: Raw) -> bool:
    """While the node is not ready neither are its disks, and their figures stay as they were."""
    status = node.get("status") or {}
    is_down = condition(status, "Ready").get("status") == "False"
    changed = False
    for disk in (status.get("diskStatus") or {}).values():
        for kind in ("Ready", "Schedulable"):
            if is_down:
                changed = set_condition(disk, kind, "False", "NodeNotReady") or changed
            else:
                changed = _clear(disk, kind, "NodeNotReady") or changed
    return changed


def condition(status: Raw, kind: str) -> Raw:
    """That condition, or an empty one."""
    for entry in status.get("conditions") or []:
        if entry.get("type") == kind:
            return dict(entry)
    return {}


def _clear(status: Raw, kind: str, *reasons: str) -> bool:
    """True again, if it is one of these reasons that made it False."""
    return condition(status, kind).get("reason") in reasons and set_condition(status, kind, "True")
