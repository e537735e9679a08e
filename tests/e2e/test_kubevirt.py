"""Virtual machines beside the share-managers of their shared volumes, on the real kube-scheduler.

The pods have the shape that KubeVirt's virt-controller gives them, and the share-managers that of Longhorn's; neither
of the two runs here.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from tests.cluster.client import Object
from tests.e2e import workloads
from tests.e2e.harness import Cell, Scene
from tests.e2e.scheduling import NAMESPACE
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

CO_SCHEDULE = "kubevirt-scheduler/co-schedule"
MANAGERS = f"/api/v1/namespaces/{NAMESPACE}/pods"
WAIT_SECONDS = 60.0
VMS = 20


class Machines:
    """A cell with one shared volume, its share-manager, and virtual machines that use it."""

    def __init__(self, scene: Scene, cell: Cell) -> None:
        self.scene, self.cell, self._numbers = scene, cell, itertools.count()
        self._manager = ""  # the share-manager's pod
        claim = workloads.claim("disk", cell.class_name, 10)
        claim["spec"]["accessModes"] = ["ReadWriteMany"]
        cell.create("persistentvolumeclaims", claim)
        self.start(co_schedule=False)  # somebody has to ask for the volume
        self.volume = wait_until(self._volume, "a volume", WAIT_SECONDS)

    def _volume(self) -> str:
        return str(self.scene.api.get(self.cell.path("persistentvolumeclaims", "disk"))["spec"].get("volumeName") or "")

    def begin(self, labels: dict[str, str] | None = None, *, co_schedule: bool = True) -> str:
        """A launcher pod; its name."""
        name = f"virt-launcher-vm-{next(self._numbers)}"
        made = workloads.pod(
            name, "disk", selector=self.cell.selector, labels={"kubevirt.io": "virt-launcher", **(labels or {})}
        )
        made["metadata"]["annotations"] = {CO_SCHEDULE: "true"} if co_schedule else {}
        self.cell.create("pods", made)
        return name

    def node_of(self, name: str) -> str:
        return str(self.scene.api.get(self.cell.path("pods", name))["spec"].get("nodeName") or "")

    def start(self, *, co_schedule: bool = True) -> str:
        """The node that such a pod comes to."""
        name = self.begin(co_schedule=co_schedule)
        return wait_until(lambda: self.node_of(name), f"a node for {name}", WAIT_SECONDS)

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

    def _delete(self, manager: str) -> None:
        if manager:
            self.scene.api.delete(f"{MANAGERS}/{manager}", gracePeriodSeconds=0)

    def end(self) -> None:
        self._delete(self._manager)


@pytest.fixture
def machines(scene: Scene, make_cell: Callable[..., Cell]) -> Iterator[Machines]:
    found = Machines(scene, make_cell(nodes=5, fillers=0))
    yield found
    found.end()
    scene.set_settings(co_schedule_strictness="required")


def test_a_virtual_machine_runs_where_its_volume_is_served(machines: Machines) -> None:
    """Twenty of twenty, and those that do not ask for it are spread over the nodes."""
    there = machines.cell.nodes[3]
    machines.serve(there)
    assert {there: VMS} == Counter(machines.start() for _ in range(VMS))
    spread = Counter(machines.start(co_schedule=False) for _ in range(VMS))
    assert 3 <= len(spread), spread


def test_a_machine_that_migrates_leaves_the_node(machines: Machines) -> None:
    there = machines.cell.nodes[3]
    machines.serve(there)
    machines.start()
    names = [machines.begin({"kubevirt.io/migrationJobUID": "job"}) for _ in range(5)]
    wait_until(lambda: all(map(machines.node_of, names)), "nodes for all targets", WAIT_SECONDS)
    assert {there} != set(map(machines.node_of, names))


def test_a_refused_machine_follows_the_share_manager_to_another_node(machines: Machines) -> None:
    first, second = machines.cell.nodes[1], machines.cell.nodes[2]
    machines.serve(first)
    machines.scene.api.patch(f"/api/v1/nodes/{first}", {"spec": {"unschedulable": True}})
    name = machines.begin()
    wait_until(lambda: "share-manager" in machines.cell.verdict(name), "a refusal that says why", WAIT_SECONDS)
    assert "" == machines.node_of(name)
    machines.serve(second)
    assert second == wait_until(lambda: machines.node_of(name), "the new node", WAIT_SECONDS)


def test_preferred_lets_it_run_elsewhere_when_the_node_takes_nothing(machines: Machines) -> None:
    there = machines.cell.nodes[1]
    machines.scene.set_settings(co_schedule_strictness="preferred")
    machines.serve(there)
    wait_until(lambda: there == machines.start(), "a machine beside its share-manager", WAIT_SECONDS)
    machines.scene.api.patch(f"/api/v1/nodes/{there}", {"spec": {"unschedulable": True}})
    wait_until(lambda: there != machines.start(), "a machine elsewhere", WAIT_SECONDS)
