"""v1 Nodes as a kubelet would register them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from tests.cluster.client import ApiClient, Object

NOT_READY = "node.kubernetes.io/not-ready"
ATTACH_BY_CONTROLLER = "volumes.kubernetes.io/controller-managed-attach-detach"


def node_object(
    name: str,
    *,
    cpu: str = "16",
    memory: str = "64Gi",
    pods: int = 110,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    taints: Sequence[Mapping[str, str]] = (),
) -> Object:
    """A ready node whose capacity is all allocatable."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    capacity = {"cpu": cpu, "memory": memory, "pods": str(pods), "ephemeral-storage": "1Ti"}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}
    ready |= {"lastHeartbeatTime": now, "lastTransitionTime": now}
    base_labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {**base_labels, **(labels or {})},
            "annotations": {ATTACH_BY_CONTROLLER: "true", **(annotations or {})},
        },
        "spec": {"taints": [dict(taint) for taint in taints]},
        "status": {"capacity": capacity, "allocatable": dict(capacity), "conditions": [ready]},
    }


def add_node(api: ApiClient, name: str, **options: Any) -> Object:
    """Create a node that takes pods at once. `options` are those of `node_object`.

    Admission taints every new node as not ready, and the controller that would lift the taint is off here.
    """
    wanted = node_object(name, **options)
    created = api.create("/api/v1/nodes", wanted)
    taints = [taint for taint in created["spec"].get("taints", []) if taint["key"] != NOT_READY]
    return api.patch(f"/api/v1/nodes/{name}", {"spec": {"taints": taints or None}})
