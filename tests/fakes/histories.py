"""Recorded histories, made up line by line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.e2e.checker import Report, check
from tests.e2e.history_facts import DRIVER, SELECTED_NODE

GIB = 2**30
GROUPS = {"StorageClass": "storage.k8s.io", "Volume": "longhorn.io", "Replica": "longhorn.io"} | {
    "Node": "longhorn.io",
    "Setting": "longhorn.io",
}
KINDS = ("Pod", "PersistentVolumeClaim", "PersistentVolume", "StorageClass", "Volume", "Replica", "Node", "Setting")


class History:
    """Lines as the recorder writes them; every call is the next revision, a second after the last."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []
        self.now = 1000.0  # when the last line was written
        self._uids: dict[tuple[str, str], str] = {}
        for kind in KINDS:
            self._add(kind, "START", None)

    def _add(self, kind: str, event: str, obj: dict[str, Any] | None) -> int:
        rv = len(self.lines) + 1
        self.now += 1.0
        group = GROUPS.get(kind, "")
        self.lines.append({"rv": rv, "type": event, "kind": kind, "group": group, "at": self.now, "object": obj})
        return rv

    def wait(self, seconds: float = 10.0) -> None:
        self.now += seconds

    def put(self, kind: str, name: str, body: dict[str, Any], *, namespace: str = "", meta: Any = None) -> int:
        uid = self._uids.setdefault((kind, name), f"{kind}-{name}-{len(self.lines)}".lower())
        metadata = {"name": name, "uid": uid, **({"namespace": namespace} if namespace else {}), **(meta or {})}
        known = any(line["object"] and line["object"]["metadata"]["uid"] == uid for line in self.lines)
        return self._add(kind, "MODIFIED" if known else "ADDED", {"metadata": metadata, **body})

    def gone(self, kind: str, name: str) -> int:
        uid = self._uids.pop((kind, name))
        last = next(x for x in reversed(self.lines) if x["object"] and x["object"]["metadata"]["uid"] == uid)
        return self._add(kind, "DELETED", last["object"])

    def play(self, steps: str) -> None:
        """Calls of these methods, one after the other: `claim c 60 selected=n1; pv pv v; replica r v n1 n1-d0`.

        `-` is an empty word, `x,` a list, and `@c` the volume of the claim `c` that is not bound yet.
        """
        for step in steps.removesuffix("; ").split("; "):
            verb, *words = step.split()
            named = dict(word.split("=", 1) for word in words if "=" in word)
            plain = [self._value(word) for word in words if "=" not in word]
            getattr(self, verb)(*plain, **{name: self._value(word) for name, word in named.items()})

    def _value(self, word: str) -> Any:
        if word.startswith("@"):
            return f"pvc-{self.uid('PersistentVolumeClaim', word[1:])}"
        if word.endswith(","):
            return word[:-1].split(",")
        return int(word) if word.isdecimal() else "" if word == "-" else word

    def storage_class(
        self,
        name: str = "lh",
        locality: str = "best-effort",
        replicas: str | int = "1",
        *,
        provisioner: str = DRIVER,
    ) -> None:
        parameters = {"dataLocality": locality, "numberOfReplicas": str(replicas)}
        self.put("StorageClass", name, {"provisioner": provisioner, "parameters": parameters})

    def setting(self, name: str, value: str | int) -> None:
        self.put("Setting", name, {"value": str(value)}, namespace="longhorn-system")

    def node(self, name: str, *disks_gib: int, reserved_gib: int = 0) -> int:
        """`reserved_gib`: of each of its disks."""
        disks = {f"d{i}": {"diskUUID": f"{name}-d{i}", "storageMaximum": gib * GIB} for i, gib in enumerate(disks_gib)}
        body = {
            "spec": {"disks": {disk: {"storageReserved": reserved_gib * GIB} for disk in disks}},
            "status": {"diskStatus": disks},
        }
        return self.put("Node", name, body, namespace="longhorn-system")

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

    def pod(
        self,
        name: str,
        *claims: str,
        node: str = "",
        ephemeral: Sequence[str] = (),
        deleting: bool = False,
        **status: Any,
    ) -> int:
        volumes: list[Any] = [{"name": c, "persistentVolumeClaim": {"claimName": c}} for c in claims]
        volumes += [{"name": volume, "ephemeral": {}} for volume in ephemeral]
        meta = {"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleting else {}
        spec = {"volumes": volumes, **({"nodeName": node} if node else {})}
        return self.put("Pod", name, {"spec": spec, "status": status}, namespace="ns", meta=meta)

    def ready_pod(self, name: str, *claims: str, node: str) -> int:
        return self.pod(name, *claims, node=node, conditions=[{"type": "Ready", "status": "True"}])

    def refused_pod(self, name: str, *claims: str) -> int:
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        return self.pod(name, *claims, conditions=[condition])

    def pv(self, name: str, volume: str, driver: str = DRIVER) -> int:
        return self.put("PersistentVolume", name, {"spec": {"csi": {"driver": driver, "volumeHandle": volume}}})

    def volume(
        self, name: str, gib: int = 100, *, node: str = "", locality: str = "best-effort", replicas: int = 1
    ) -> int:
        spec = {"size": str(gib * GIB), "nodeID": node, "dataLocality": locality, "numberOfReplicas": replicas}
        return self.put("Volume", name, {"spec": spec}, namespace="longhorn-system")

    def replica(self, name: str, volume: str, node: str = "", disk: str = "", gib: int = 100) -> int:
        spec = {"volumeName": volume, "nodeID": node, "diskID": disk, "volumeSize": str(gib * GIB)}
        return self.put("Replica", name, {"spec": spec}, namespace="longhorn-system")

    def uid(self, kind: str, name: str) -> str:
        return self._uids[kind, name]

    def check(self, **scope: Any) -> Report:
        return check(self.lines, **scope)


def history(*disks_gib: int, steps: str = "") -> History:
    """A class of local volumes, a node n1 with these disks, and what came of it."""
    made = History()
    made.storage_class()
    made.node("n1", *(disks_gib or (400,)))
    if steps:
        made.play(steps)
    return made
