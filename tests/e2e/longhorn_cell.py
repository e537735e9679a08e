"""A namespace with nodes of its own on the stand-in for Longhorn, and what is to be seen there."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from tests.cluster.client import Object, ignored_when_gone
from tests.cluster.cluster import Cluster
from tests.e2e import workloads
from tests.e2e.view import CLAIMS, LONGHORN_NODES, LONGHORN_REPLICAS, LONGHORN_VOLUMES, PODS, VOLUMES, View
from tests.longhorn import paths
from tests.longhorn.longhorn import Longhorn
from tests.longhorn.nodes import condition
from tests.longhorn.options import GIB, LATE_FIGURES, Delays, DiskOptions, LonghornOptions

OPTIONS = LonghornOptions(
    delays=Delays(
        provision=0.5,
        attach=0.1,
        placement=0.05,
        start=0.1,
        **{**LATE_FIGURES, "disk_figures": 0.7},
        rebuild=0.3,
        restore=0.5,
        detach=0.05,
        delete=0.05,
    ),
    retry_seconds=0.5,
    resync_seconds=2.0,
    settings={"storage-minimal-available-percentage": "10"},
)
CAPACITIES = "/apis/storage.k8s.io/v1/csistoragecapacities"
WATCHED = (PODS, CLAIMS, VOLUMES, LONGHORN_NODES, LONGHORN_VOLUMES, LONGHORN_REPLICAS, paths.ATTACHMENTS, CAPACITIES)
SECONDS = 20.0
_numbers = itertools.count(1)


class LonghornCell:
    """A namespace with nodes of its own; its class leads volumes to these nodes, by their tag.

    Threads: one at a time.
    """

    def __init__(self, cluster: Cluster, longhorn: Longhorn, view: View, name: str, **options: Any) -> None:
        self.cluster, self.longhorn, self.view, self.name = cluster, longhorn, view, name
        self.api = cluster.api()
        self.nodes: list[str] = []
        self.api.create(paths.CLASSES, workloads.storage_class(name, node_selector=name, **options))
        cluster.create_namespace(name)

    def add_node(self, gib: int = 100) -> str:
        name = f"{self.name}-n{len(self.nodes)}"
        self.nodes.append(name)
        self.cluster.add_node(name, labels={"cell": self.name})
        self.longhorn.add_node(name, {"disk1": DiskOptions(maximum_bytes=gib * GIB)}, tags=[self.name])
        return name

    def path(self, plural: str, name: str = "") -> str:
        return f"/api/v1/namespaces/{self.name}/{plural}" + (f"/{name}" if name else "")

    def claim(self, name: str = "data", gib: int = 10) -> None:
        self.api.create(self.path("persistentvolumeclaims"), workloads.claim(name, self.name, gib))

    def pod(self, name: str, *claims: str, node: str = "", **spec: Any) -> None:
        selector = {"cell": self.name, **({"kubernetes.io/hostname": node} if node else {})}
        self.api.create(self.path("pods"), workloads.pod(name, *claims, opted_in=False, selector=selector, **spec))

    def delete_pod(self, name: str) -> None:
        self.api.delete(self.path("pods", name))
        self.wait(lambda: self.view.get(PODS, f"{self.name}/{name}") is None, f"end of pod {name}")

    # What is to be seen

    def wait(self, condition: Callable[[], Any], what: str) -> Any:
        return self.view.wait_for(condition, f"{what} in {self.name}", SECONDS)

    def wait_ready(self, name: str) -> Object:
        def ready() -> Object | None:
            pod = self.view.get(PODS, f"{self.name}/{name}")
            return pod if pod and condition(pod.get("status") or {}, "Ready").get("status") == "True" else None

        pod: Object = self.wait(ready, f"ready pod {name}")
        return pod

    def wait_volume(self, claim: str = "data") -> str:
        """The name of the claim's volume, once the claim is bound."""

        def bound() -> str:
            found = self.view.get(CLAIMS, f"{self.name}/{claim}") or {"spec": {}}
            return str(found["spec"].get("volumeName") or "")

        name: str = self.wait(bound, f"volume of claim {claim}")
        return name

    def volume(self, name: str) -> Object:
        return self.view.get(LONGHORN_VOLUMES, f"{OPTIONS.namespace}/{name}") or {"spec": {}, "status": {}}

    def replicas(self, volume: str) -> list[Object]:
        found = self.view.all(LONGHORN_REPLICAS, OPTIONS.namespace)
        return [entry for entry in found if entry["spec"]["volumeName"] == volume]

    def places(self, volume: str) -> list[str]:
        """The nodes of the volume's replicas, "" for one that has none."""
        return sorted(entry["spec"].get("nodeID") or "" for entry in self.replicas(volume))

    def reason(self, volume: str) -> str:
        """Why the volume counts as not scheduled; "" if it does not."""
        return str(condition(self.volume(volume).get("status") or {}, "Scheduled").get("reason", ""))

    def longhorn_node(self, name: str) -> Object:
        return self.view.get(LONGHORN_NODES, f"{OPTIONS.namespace}/{name}") or {"status": {"diskStatus": {}}}

    def disk(self, node: str) -> Object:
        status: Object = (self.longhorn_node(node)["status"]).get("diskStatus", {}).get("disk1", {})
        return status

    def enlarge(self, node: str, gib: int) -> None:
        """The disk's file system grew."""
        self.longhorn.set_disk(node, "disk1", DiskOptions(maximum_bytes=gib * GIB))

    def attachments(self, node: str) -> list[Object]:
        return [entry for entry in self.view.all(paths.ATTACHMENTS) if entry["spec"]["nodeName"] == node]

    def clear(self) -> None:
        """Workloads first, then attachments that never came about, then claims; nodes at last."""
        self.api.delete(self.path("pods"))
        self.wait(lambda: not self.view.all(PODS, self.name), "end of all pods")
        for node in self.nodes:
            for attachment in self.attachments(node):
                self.delete(f"{paths.ATTACHMENTS}/{attachment['metadata']['name']}")
        self.api.delete(self.path("persistentvolumeclaims"))
        self.wait(lambda: not self._volumes(), "end of all volumes")
        self.delete(f"{paths.CLASSES}/{self.name}")
        for node in self.nodes:
            for path in (paths.longhorn("nodes", OPTIONS.namespace, node), f"/api/v1/nodes/{node}"):
                self.delete(path)
            self.delete(f"{paths.CSI_NODES}/{node}")
        self.delete(f"/api/v1/namespaces/{self.name}")

    def _volumes(self) -> list[Object]:
        return [pv for pv in self.view.all(VOLUMES) if pv["spec"]["storageClassName"] == self.name]

    def delete(self, path: str) -> None:
        with ignored_when_gone():
            self.api.delete(path)


@contextmanager
def cells(cluster: Cluster, longhorn: Longhorn, view: View) -> Iterator[Callable[..., LonghornCell]]:
    """A function that makes a cell with so many nodes of one disk each; all cells are cleared at the end."""
    with ExitStack() as stack:

        def make(nodes: int = 1, gib: int = 100, **options: Any) -> LonghornCell:
            cell = LonghornCell(cluster, longhorn, view, f"lh{next(_numbers)}", **options)
            stack.callback(cell.clear)
            for _ in range(nodes):
                cell.add_node(gib)
            return cell

        yield make
