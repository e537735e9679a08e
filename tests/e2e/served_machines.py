"""Virtual machines whose shared volume is served somewhere: pods of the shape that KubeVirt's virt-controller gives
them, and a share-manager that the test itself places and moves, in the shape that Longhorn gives it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Final

from tests.cluster.client import Object, ignored_when_gone
from tests.e2e import workloads
from tests.e2e.harness import FILL_CPU, Cell, Scene
from tests.e2e.scheduling import NAMESPACE
from tests.e2e.view import LONGHORN_REPLICAS
from tests.waiting import wait_until

CO_SCHEDULE: Final = "kubevirt-scheduler/co-schedule"
MIGRATION_JOB: Final = "kubevirt.io/migrationJobUID"
MANAGERS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
WAIT_SECONDS: Final = 60.0
DISK: Final = "disk"  # the shared volume's claim
_HOSTNAME: Final = "kubernetes.io/hostname"


class Machines:
    """A cell with one shared volume, its share-manager, and virtual machines that use it."""

    def __init__(self, scene: Scene, cell: Cell, *, class_name: str = "") -> None:
        self.scene, self.cell, self._numbers = scene, cell, itertools.count()
        self._manager = ""  # the share-manager's pod
        claim = workloads.claim(DISK, class_name or cell.class_name, 10)
        claim["spec"]["accessModes"] = ["ReadWriteMany"]
        cell.create("persistentvolumeclaims", claim)
        self.first = self.start(co_schedule=False)  # somebody has to ask for the volume
        self.volume = wait_until(self._volume, "a volume", WAIT_SECONDS)

    def _volume(self) -> str:
        return str(self.scene.api.get(self.cell.path("persistentvolumeclaims", DISK))["spec"].get("volumeName") or "")

    # -- machines ------------------------------------------------------------------------------------------------

    def begin(
        self,
        *claims: str,
        labels: dict[str, str] | None = None,
        co_schedule: bool = True,
        cpu: str = "",
        away_from: str = "",
        **options: Any,
    ) -> str:
        """A launcher pod with the shared volume and these claims; its name. `cpu`: what it asks for."""
        name = f"virt-launcher-vm-{next(self._numbers)}"
        launcher = {"kubevirt.io": "virt-launcher", **(labels or {})}
        made = workloads.pod(name, DISK, *claims, selector=self.cell.selector, labels=launcher, **options)
        made["metadata"]["annotations"] = {CO_SCHEDULE: "true"} if co_schedule else {}
        if cpu:
            made["spec"]["containers"][0]["resources"].setdefault("requests", {})["cpu"] = cpu
        if away_from:
            other = {"key": _HOSTNAME, "operator": "NotIn", "values": [away_from]}
            terms = {"nodeSelectorTerms": [{"matchExpressions": [other]}]}
            made["spec"]["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
        self.cell.create("pods", made)
        return name

    def node_of(self, name: str) -> str:
        return str(self.scene.api.get(self.cell.path("pods", name))["spec"].get("nodeName") or "")

    def wait_node(self, name: str, timeout: float = WAIT_SECONDS) -> str:
        return wait_until(lambda: self.node_of(name), f"a node for {name}", timeout)

    def wait_verdict(self, name: str, *words: str) -> str:
        """What kube-scheduler says of a pod that it cannot place, once it says all of this."""

        def verdict() -> str:
            said = self.cell.verdict(name)
            return said if all(word in said for word in words) else ""

        return wait_until(verdict, f"a refusal of {name} that says {words}", WAIT_SECONDS)

    def start(self, **options: Any) -> str:
        """The node that such a pod comes to."""
        return self.wait_node(self.begin(**options))

    # -- what they meet ------------------------------------------------------------------------------------------

    def serve(self, node: str) -> None:
        """A share-manager runs there from now on, and then the one before goes. Longhorn gives both the same name;
        so there is a moment without any, in which the volume is served nowhere and machines may run anywhere."""
        before, self._manager = self._manager, f"share-manager-{self.volume}-{next(self._numbers)}"
        made: Object = workloads.pod(self._manager, opted_in=False)
        labels = {"longhorn.io/component": "share-manager", "longhorn.io/share-manager": self.volume}
        made["metadata"]["labels"] = {"longhorn.io/managed-by": "longhorn-manager", **labels}
        made["spec"]["nodeName"] = node
        self.scene.api.create(MANAGERS, made)
        self._delete(before)

    def occupy(self, *nodes: str, priority: dict[str, str] | None = None) -> None:
        """Take so much of their CPU that no machine that asks for FILL_CPU fits beside. `priority`: class by node."""
        for node in nodes:
            filler = workloads.filler(f"low-{node}", node, cpu=FILL_CPU, memory="1Gi")
            filler["spec"]["terminationGracePeriodSeconds"] = 1
            if priority and node in priority:
                filler["spec"]["priorityClassName"] = priority[node]
            self.cell.create("pods", filler)

    def fill_disk(self, node: str, gib: int) -> None:
        """Another pod's volume of that size lies there."""
        self.cell.claim("filling", gib)
        self.cell.pod("filling", "filling", node=node)
        self.cell.wait_pod_ready("filling")

    def occupied(self) -> set[str]:
        """The nodes whose filler nobody has evicted."""
        fillers = (pod for pod in self.cell.pods() if pod["metadata"]["name"].startswith("low-"))
        return {str(pod["spec"]["nodeName"]) for pod in fillers if not pod["metadata"].get("deletionTimestamp")}

    def replica_nodes(self, count: int) -> Sequence[str]:
        """Where so many replicas of the shared volume lie."""

        def placed() -> list[str]:
            replicas = (replica["spec"] for replica in self.scene.view.all(LONGHORN_REPLICAS))
            nodes = sorted(spec["nodeID"] for spec in replicas if spec["volumeName"] == self.volume and spec["nodeID"])
            return nodes if len(nodes) == count else []

        return wait_until(placed, f"{count} replicas of {self.volume}", WAIT_SECONDS)

    def _delete(self, manager: str) -> None:
        if manager:
            with ignored_when_gone():
                self.scene.api.delete(f"{MANAGERS}/{manager}", gracePeriodSeconds=0)

    def end(self) -> None:
        self._delete(self._manager)
