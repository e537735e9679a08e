"""Cells whose nodes differ, and an operator's hands on them: cordon and drain; where pods run and where data lies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.cluster.client import Object
from tests.e2e import workloads
from tests.e2e.harness import NODES, STOCK_SCHEDULER, Cell, Scene, has_condition
from tests.e2e.scheduling import NAMESPACE
from tests.e2e.view import LONGHORN_NODES, LONGHORN_REPLICAS, VOLUMES

DRAIN_SECONDS = 120


class UnevenCell(Cell):
    """A cell with these nodes, each with disks of these sizes. Its pods ask the extender, or the stock scheduler alone.

    `busy`: nodes of which three quarters are taken by something else, so that kube-scheduler itself prefers others.
    Threads: one at a time.
    """

    def __init__(
        self,
        scene: Scene,
        name: str,
        layout: Mapping[str, Sequence[int]],
        *,
        busy: Sequence[str] = (),
        reclaim: str = "Delete",
        with_extender: bool = True,
        scheduler: str = "default-scheduler",
    ) -> None:
        super().__init__(scene, name, nodes=0, fillers=0, reclaim=reclaim)
        self.with_extender = with_extender
        self.scheduler = scheduler if with_extender else STOCK_SCHEDULER
        for short, disks in layout.items():
            self.add_node(f"{name}-{short}", disks)
        if busy:
            self._fill([f"{name}-{short}" for short in busy])
        self.renew()  # judged with all its nodes from here on

    def short(self, node: str) -> str:
        return node.removeprefix(f"{self.name}-")

    def node(self, short: str) -> str:
        return f"{self.name}-{short}"

    # -- objects -------------------------------------------------------------------------------------------------

    def run_pod(self, name: str, *claims: str, **options: Any) -> Object:
        return self.pod(name, *claims, opted_in=self.with_extender, schedulerName=self.scheduler, **options)

    def run_set(self, replicas: int, *, name: str = "web", **template: Any) -> Object:
        """As `set_body`."""
        return self.create("statefulsets", self.set_body(replicas, name=name, **template))

    def set_body(self, replicas: int, *, name: str = "web", gib: int = 100, **template: Any) -> Object:
        """A StatefulSet of volumes of 100 GiB. `template`: fields of its claims' spec instead of the usual ones."""
        body = workloads.stateful_set(
            name,
            self.class_name,
            replicas=replicas,
            gib=gib,
            opted_in=self.with_extender,
            selector=self.selector,
            scheduler=self.scheduler,
        )
        body["spec"]["volumeClaimTemplates"][0]["spec"].update(template)
        return body

    def wait(self, condition: Callable[[], bool], what: str, timeout: float) -> None:
        self._wait(condition, what, timeout)

    def delete_set(self, name: str = "web") -> None:
        self.delete("statefulsets", name, propagationPolicy="Background")
        self._wait(lambda: not self.pods(), "end of its pods", 60)

    def class_from_backup(self) -> str:
        """A class of the same volumes, each restored from a backup."""
        backup = "s3://backups@region/?backup=backup-1&volume=old"
        return self.add_class("restored", parameters={"fromBackup": backup})

    # -- the operator --------------------------------------------------------------------------------------------

    def cordon(self, *shorts: str, lift: bool = False) -> None:
        """Returns once Longhorn knows of it too."""
        for short in shorts:
            patch = {"spec": {"unschedulable": None if lift else True}}
            self.scene.api.patch(f"{NODES}/{self.node(short)}", patch)
        self._wait(lambda: all(self._takes_replicas(short) == lift for short in shorts), "(un)cordoned nodes", 30)

    def _takes_replicas(self, short: str) -> bool:
        node = self.scene.view.get(LONGHORN_NODES, f"{NAMESPACE}/{self.node(short)}")
        return node is not None and has_condition(node, "Schedulable", "True")

    def drain(self, short: str) -> None:
        """`kubectl drain`: cordons the node, evicts its pods and returns when they are gone, from the view as well."""
        evicted = {pod["metadata"]["uid"] for pod in self.bound() if pod["spec"]["nodeName"] == self.node(short)}
        done = self.scene.cluster.kubectl("drain", self.node(short), "--force", f"--timeout={DRAIN_SECONDS}s")
        if done.returncode != 0:
            raise AssertionError(f"kubectl drain: {done.stderr}")

        def is_seen() -> bool:
            return not evicted & {pod["metadata"]["uid"] for pod in self.bound()}

        self._wait(is_seen, "end of the evicted pods", 30)

    def end(self) -> None:
        """Remove all that the cell has, its nodes too."""
        for pv in self._own_pvs():  # which go with their claims then
            patch = {"spec": {"persistentVolumeReclaimPolicy": "Delete"}}
            self.scene.api.patch(f"{VOLUMES}/{pv['metadata']['name']}", patch)
        super().end()

    # -- looking -------------------------------------------------------------------------------------------------

    def _own_pvs(self) -> list[Object]:
        return [
            pv
            for pv in self.scene.view.all(VOLUMES)
            if (pv["spec"].get("claimRef") or {}).get("namespace") == self.namespace
        ]

    def where(self) -> dict[str, str]:
        """Pod to the node that it is bound to."""
        return {str(pod["metadata"]["name"]): self.short(pod["spec"]["nodeName"]) for pod in self.bound()}

    def data(self) -> dict[str, list[str]]:
        """Claim to the nodes of its volume's Replica objects; "" for one without a place."""
        by_volume: dict[str, list[str]] = {}
        for replica in self.scene.view.all(LONGHORN_REPLICAS):
            by_volume.setdefault(replica["spec"]["volumeName"], []).append(
                self.short(replica["spec"].get("nodeID") or "")
            )
        return {
            str(claim["metadata"]["name"]): sorted(by_volume.get(claim["spec"].get("volumeName", ""), []))
            for claim in self.claims()
        }

    def homes(self) -> dict[str, list[str]]:
        """Pod to where its volumes' replicas lie, one entry a replica."""
        data = self.data()
        return {
            str(pod["metadata"]["name"]): sorted(
                place
                for volume in pod["spec"].get("volumes") or ()
                if "persistentVolumeClaim" in volume
                for place in data.get(volume["persistentVolumeClaim"]["claimName"], ())
            )
            for pod in self.bound()
        }

    def is_local(self) -> bool:
        """Every bound pod runs beside all of its data, which lies nowhere else."""
        where, homes = self.where(), self.homes()
        return all(homes[pod] and set(homes[pod]) == {node} for pod, node in where.items() if pod in homes)

    def wait_local(self, timeout: float = 120.0) -> None:
        self._wait(self.is_local, "pods all beside their data", timeout)

    def wait_data_on(self, short: str, timeout: float = 120.0) -> None:
        """Wait until every placed replica of the cell's claims lies on that node."""

        def is_there() -> bool:
            places = [set(found) - {""} for found in self.data().values()]
            return bool(places) and all(found == {short} for found in places)

        self._wait(is_there, f"data all on {short}", timeout)

    def counts(self) -> dict[str, int]:
        """How many of its pods are bound to each node."""
        return dict(sorted(Counter(self.where().values()).items()))
