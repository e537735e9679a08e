"""Histories for the checker, made up line by line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.e2e.checker import Report, check
from tests.e2e.history_facts import DRIVER, SELECTED_NODE
from tests.judge.chronicle import GIB, WrittenHistory

KINDS = ("Pod", "PersistentVolumeClaim", "PersistentVolume", "StorageClass", "Volume", "Replica", "Node", "Setting")


class History(WrittenHistory):
    """Every call is the next revision, a second after the last."""

    def __init__(self) -> None:
        super().__init__(start=1000.0)
        for kind in KINDS:
            self._tell("START", kind, None)

    def _tell(self, event: str, kind: str, raw: dict[str, Any] | None) -> None:
        self.now += 1.0
        super()._tell(event, kind, raw)

    def storage_class(
        self,
        name: str = "lh",
        locality: str = "best-effort",
        replicas: str | int = "1",
        *,
        provisioner: str = DRIVER,
    ) -> None:
        parameters = {"dataLocality": locality, "numberOfReplicas": str(replicas)}
        self.store("StorageClass", name, provisioner=provisioner, parameters=parameters)

    def claim(self, name: str, gib: int = 100, *, selected: str = "", pv: str = "", **spec: Any) -> None:
        usual: dict[str, Any] = {"storageClassName": "lh", "accessModes": ["ReadWriteOnce"]}
        usual |= {"resources": {"requests": {"storage": f"{gib}Gi"}}, **({"volumeName": pv} if pv else {})}
        meta = {"annotations": {SELECTED_NODE: selected} if selected else {}}
        self.store("PersistentVolumeClaim", name, metadata=meta, spec=usual | spec)

    def pod(
        self,
        name: str,
        *claims: str,
        node: str = "",
        ephemeral: Sequence[str] = (),
        deleting: bool = False,
        **status: Any,
    ) -> None:
        volumes: list[Any] = [{"name": c, "persistentVolumeClaim": {"claimName": c}} for c in claims]
        volumes += [{"name": volume, "ephemeral": {}} for volume in ephemeral]
        meta = {"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleting else {}
        spec = {"volumes": volumes, **({"nodeName": node} if node else {})}
        self.store("Pod", name, metadata=meta, spec=spec, status=status)

    def ready_pod(self, name: str, *claims: str, node: str) -> None:
        self.pod(name, *claims, node=node, conditions=[{"type": "Ready", "status": "True"}])

    def refused_pod(self, name: str, *claims: str) -> None:
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        self.pod(name, *claims, conditions=[condition])

    def pv(self, name: str, volume: str, driver: str = DRIVER) -> None:
        self.store("PersistentVolume", name, spec={"csi": {"driver": driver, "volumeHandle": volume}})

    def volume(
        self, name: str, gib: int = 100, *, node: str = "", locality: str = "best-effort", replicas: int = 1
    ) -> None:
        spec = {"size": str(gib * GIB), "nodeID": node, "dataLocality": locality, "numberOfReplicas": replicas}
        self.store("Volume", name, spec=spec)

    def replica(self, name: str, volume: str, node: str = "", disk: str = "", gib: int = 100) -> None:
        spec = {"volumeName": volume, "nodeID": node, "diskID": disk, "volumeSize": str(gib * GIB)}
        self.store("Replica", name, spec=spec)

    def check(self, **scope: Any) -> Report:
        return check(self.entries, **scope)


def history(*disks_gib: int, steps: str = "") -> History:
    """A class of local volumes, a node n1 with these disks, and what came of it."""
    made = History()
    made.storage_class()
    made.node("n1", *(disks_gib or (400,)))
    made.play(steps)
    return made
