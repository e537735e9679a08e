"""Recorded histories, made up line by line."""

from __future__ import annotations

from typing import Any

from tests.e2e.checker import Report, check
from tests.e2e.history_facts import SELECTED_NODE

GIB = 2**30
GROUPS = {"StorageClass": "storage.k8s.io", "Volume": "longhorn.io", "Replica": "longhorn.io"} | {
    "Node": "longhorn.io",
    "Setting": "longhorn.io",
}
KINDS = ("Pod", "PersistentVolumeClaim", "PersistentVolume", "StorageClass", "Volume", "Replica", "Node", "Setting")


class History:
    """Lines as the recorder writes them; every call is the next revision, one second after the last."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []
        self._uids: dict[tuple[str, str], str] = {}
        for kind in KINDS:
            self._add(kind, "START", None)

    def _add(self, kind: str, event: str, obj: dict[str, Any] | None) -> int:
        rv = len(self.lines) + 1
        group = GROUPS.get(kind, "")
        self.lines.append({"rv": rv, "type": event, "kind": kind, "group": group, "at": 1000.0 + rv, "object": obj})
        return rv

    def put(self, kind: str, name: str, body: dict[str, Any], *, namespace: str = "", meta: Any = None) -> int:
        uid = self._uids.setdefault((kind, name), f"{kind}-{name}-{len(self.lines)}".lower())
        metadata = {"name": name, "uid": uid, **({"namespace": namespace} if namespace else {}), **(meta or {})}
        known = any(line["object"] and line["object"]["metadata"]["uid"] == uid for line in self.lines)
        return self._add(kind, "MODIFIED" if known else "ADDED", {"metadata": metadata, **body})

    def gone(self, kind: str, name: str) -> int:
        uid = self._uids.pop((kind, name))
        last = next(x for x in reversed(self.lines) if x["object"] and x["object"]["metadata"]["uid"] == uid)
        return self._add(kind, "DELETED", last["object"])

    def storage_class(self, name: str = "lh", locality: str = "best-effort", replicas: str = "1") -> None:
        parameters = {"dataLocality": locality, "numberOfReplicas": replicas}
        self.put("StorageClass", name, {"provisioner": "driver.longhorn.io", "parameters": parameters})

    def node(self, name: str, *disks_gib: int, reserved_gib: int = 0) -> None:
        self.put(
            "Node",
            name,
            {
                "spec": {"disks": {f"d{i}": {"storageReserved": reserved_gib * GIB} for i, _ in enumerate(disks_gib)}},
                "status": {
                    "diskStatus": {
                        f"d{i}": {"diskUUID": f"{name}-d{i}", "storageMaximum": gib * GIB}
                        for i, gib in enumerate(disks_gib)
                    }
                },
            },
            namespace="longhorn-system",
        )

    def claim(self, name: str, gib: int = 100, *, selected: str = "", pv: str = "", **spec: Any) -> int:
        body = {
            "spec": {
                "storageClassName": "lh",
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": f"{gib}Gi"}},
                **({"volumeName": pv} if pv else {}),
                **spec,
            }
        }
        meta = {"annotations": {SELECTED_NODE: selected}} if selected else {}
        return self.put("PersistentVolumeClaim", name, body, namespace="ns", meta=meta)

    def pod(self, name: str, *claims: str, node: str = "", deleting: bool = False, **status: Any) -> int:
        volumes = [{"name": c, "persistentVolumeClaim": {"claimName": c}} for c in claims]
        meta = {"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleting else {}
        spec = {"volumes": volumes, **({"nodeName": node} if node else {})}
        return self.put("Pod", name, {"spec": spec, "status": status}, namespace="ns", meta=meta)

    def ready_pod(self, name: str, *claims: str, node: str) -> int:
        return self.pod(name, *claims, node=node, conditions=[{"type": "Ready", "status": "True"}])

    def refused_pod(self, name: str, *claims: str) -> int:
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        return self.pod(name, *claims, conditions=[condition])

    def pv(self, name: str, volume: str) -> int:
        return self.put(
            "PersistentVolume", name, {"spec": {"csi": {"driver": "driver.longhorn.io", "volumeHandle": volume}}}
        )

    def volume(
        self, name: str, gib: int = 100, *, node: str = "", locality: str = "best-effort", replicas: int = 1
    ) -> int:
        spec = {"size": str(gib * GIB), "nodeID": node, "dataLocality": locality, "numberOfReplicas": replicas}
        return self.put("Volume", name, {"spec": spec}, namespace="longhorn-system")

    def replica(self, name: str, volume: str, node: str = "", disk: str = "", gib: int = 100) -> int:
        spec = {"volumeName": volume, "nodeID": node, "diskID": disk, "volumeSize": str(gib * GIB)}
        return self.put("Replica", name, {"spec": spec}, namespace="longhorn-system")

    def check(self, **scope: Any) -> Report:
        return check(self.lines, **scope)


def history(*disks_gib: int) -> History:
    made = History()
    made.storage_class()
    made.node("n1", *(disks_gib or (400,)))
    return made
