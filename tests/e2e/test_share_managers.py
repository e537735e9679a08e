"""Share-managers beside the virtual machines that they serve: both in the hands of the real kube-scheduler.

Longhorn's stand-in makes the share-managers' pods as Longhorn does, once a consumer was placed, and the API server asks
the product's webhook about them. Virtual machines have the shape that KubeVirt's virt-controller gives them.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.cluster.client import Object
from tests.e2e import populators, virtual_machines, workloads
from tests.e2e.harness import Cell, Scene, has_condition
from tests.e2e.populators import Importer
from tests.e2e.scheduling import NAMESPACE, RESOURCE
from tests.e2e.view import LONGHORN_VOLUMES, PODS
from tests.e2e.webhooks import CONFIGURATION, MUTATING, Webhook
from tests.longhorn.options import Delays, LonghornOptions
from tests.longhorn.share_managers import pod_name
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

DELAYS = Delays(
    provision=(0.0, 0.2),
    attach=(0.0, 0.1),
    placement=(0.0, 0.1),
    start=0.1,
    disk_figures=(0.1, 0.3),
    delete=0.1,
    share_start=(0.0, 0.3),
    share_retry=(0.1, 0.5),
)
CO_SCHEDULE = "kubevirt-scheduler/co-schedule"
ENTRIES = {"pods.scheduling.longhorn.io", "share-managers.scheduling.longhorn.io"}
WAIT_SECONDS = 60.0
MACHINES = 20
_numbers = itertools.count(1)


class ServedMachines:
    """Virtual machines on the nodes of one cell, each with shared volumes of Longhorn's."""

    def __init__(self, scene: Scene, webhook: Webhook, cell: Cell) -> None:
        self.scene, self.webhook, self.cell, self.api = scene, webhook, cell, scene.api

    def claim(self, name: str, *, migratable: bool = False) -> str:
        made = workloads.claim(name, self.cell.class_name + ("-migratable" if migratable else ""), 1)
        made["spec"] |= {"accessModes": ["ReadWriteMany"], "volumeMode": "Block" if migratable else "Filesystem"}
        self.cell.create("persistentvolumeclaims", made)
        return name

    def create(self, name: str, *claims: str, node: str = "") -> Object:
        """A machine, whose pod is created but not awaited. `node`: the only one where it may run."""
        machine = virtual_machines.create_instance(self.api, self.cell.namespace, name, *claims)
        self.launch(machine, node=node)
        return machine

    def launch(self, machine: Object, suffix: str = "0", *, node: str = "", job: str = "") -> str:
        """The name of its pod, or of the one that it migrates to."""
        selector = {**self.cell.selector, **({virtual_machines.HOSTNAME: node} if node else {})}
        pod = virtual_machines.launcher(machine, suffix, selector=selector, job=job)
        self.cell.create("pods", pod)
        return str(pod["metadata"]["name"])

    def pod(self, name: str) -> Object:
        return self.scene.view.get(PODS, f"{self.cell.namespace}/{name}") or {"spec": {}, "metadata": {}}

    def node_of(self, name: str) -> str:
        return str(self.pod(name)["spec"].get("nodeName") or "")

    def volume_of(self, claim: str) -> str:
        def bound() -> str:
            found = self.api.get(self.cell.path("persistentvolumeclaims", claim))
            return str(found["spec"].get("volumeName") or "")

        return wait_until(bound, f"volume of {claim}", WAIT_SECONDS)

    def volume(self, name: str) -> Object:
        return self.scene.view.get(LONGHORN_VOLUMES, f"{NAMESPACE}/{name}") or {"spec": {}, "status": {}}

    def manager(self, volume: str) -> Object:
        return self.scene.view.get(PODS, f"{NAMESPACE}/{pod_name(volume)}") or {"spec": {}, "metadata": {}}

    def served_at(self, volume: str, *, not_by: str = "") -> str:
        """The node of the share-manager that serves the volume, unless it is the one with that uid; "" for none."""
        manager, volume_raw = self.manager(volume), self.volume(volume)
        node = str(manager["spec"].get("nodeName") or "")
        is_new = manager["metadata"].get("uid") != not_by and not manager["metadata"].get("deletionTimestamp")
        serves = (volume_raw["status"].get("shareState"), volume_raw["spec"].get("nodeID")) == ("running", node)
        return node if is_new and serves and has_condition(manager, "Ready", "True") else ""

    def wait_served(self, volume: str, *, not_by: str = "") -> str:
        return wait_until(lambda: self.served_at(volume, not_by=not_by), f"a server of {volume}", WAIT_SECONDS)

    def fail(self, volume: str) -> str:
        """Its share-manager ends; the uid of what was."""
        manager = self.manager(volume)
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod_name(volume)}/status"
        self.api.patch(path, {"status": {"phase": "Failed"}}, type="strategic")
        return str(manager["metadata"]["uid"])

    def fleet(self, prefix: str, count: int = MACHINES) -> dict[str, tuple[str, str]]:
        """So many machines at once, each with a volume of its own; their nodes and their volumes' by volume."""
        pods = {}
        for number in range(count):
            name = f"{prefix}{number}"
            self.create(name, self.claim(f"{name}-disk"))
            pods[f"{name}-disk"] = f"virt-launcher-{name}-0"
        for pod in pods.values():
            self.cell.wait_pod_ready(pod, WAIT_SECONDS)
        found = {self.volume_of(claim): self.node_of(pod) for claim, pod in pods.items()}
        return {volume: (node, self.wait_served(volume)) for volume, node in found.items()}


@pytest.fixture(scope="module")
def shared() -> Iterator[tuple[Scene, Webhook]]:
    """With share-managers, one copy of the product in charge, its webhook asked, and the kind of virtual machines."""
    options = LonghornOptions(delays=DELAYS, share_managers=True)
    with Scene.start(options) as scene:
        virtual_machines.install(scene.api)
        scene.cluster.add_node("any")  # a kube-scheduler without nodes asks nobody
        scene.start_controller()
        webhook = Webhook(scene.cluster)
        webhook.wait_ready()
        wait_until(lambda: ENTRIES <= entries(scene), "entries for pods and share-managers", WAIT_SECONDS)
        scene.cluster.delete_node("any")
        yield scene, webhook


def entries(scene: Scene) -> set[str]:
    found = scene.api.get_or_none(f"{MUTATING}/{CONFIGURATION}") or {}
    return {entry["name"] for entry in found.get("webhooks") or []}


@pytest.fixture
def machines(shared: tuple[Scene, Webhook]) -> Iterator[ServedMachines]:
    """Five nodes; no other node is in the cluster, so that share-managers have no others to go to."""
    scene, webhook = shared
    cell = scene.cell(f"shares{next(_numbers)}", nodes=5, fillers=0)
    cell.add_class("migratable", locality="disabled", parameters={"migratable": "true"})
    found = ServedMachines(scene, webhook, cell)
    wait_until(lambda: is_asked(found), "an API server that asks the webhook", WAIT_SECONDS)
    yield found
    scene.set_settings(share_managers="true", co_schedule_strictness="required")
    for machine in scene.api.list(instances(cell))["items"]:
        scene.api.delete(f"{instances(cell)}/{machine['metadata']['name']}")
    cell.clear()
    wait_until(lambda: not managers(scene), "end of all share-managers", WAIT_SECONDS)
    for node in cell.nodes:
        scene.cluster.delete_node(node)


def instances(cell: Cell) -> str:
    root = f"/apis/{virtual_machines.GROUP}/{virtual_machines.VERSION}"
    return f"{root}/namespaces/{cell.namespace}/{virtual_machines.INSTANCES}"


def managers(scene: Scene) -> list[Object]:
    return [pod for pod in scene.view.all(PODS, NAMESPACE) if pod["metadata"]["name"].startswith("share-manager-")]


def is_asked(machines: ServedMachines) -> bool:
    probe = workloads.pod("probe", "unknown", opted_in=False)
    made = machines.api.create(machines.cell.path("pods"), probe, dryRun="All")
    return bool(made["spec"]["containers"][0]["resources"].get("requests"))


def together(fleet: dict[str, tuple[str, str]]) -> int:
    return sum(machine == share for machine, share in fleet.values())


@pytest.mark.parametrize("count", [6, pytest.param(MACHINES, marks=pytest.mark.long)])
def test_a_share_manager_that_comes_second_runs_beside_its_machine(machines: ServedMachines, count: int) -> None:
    """Each of them, at first and after all of them failed at once."""
    fleet = machines.fleet("vm", count)
    print("machine and share-manager:", Counter(fleet.values()))
    assert (count, count) == (len(fleet), together(fleet))
    assert 3 <= len({node for node, _ in fleet.values()})  # they were free to go anywhere

    failed = {volume: machines.fail(volume) for volume in fleet}  # as many new ones come within half a second
    again = {volume: machines.wait_served(volume, not_by=uid) for volume, uid in failed.items()}
    assert {volume: machine for volume, (machine, _) in fleet.items()} == again


@pytest.mark.long
def test_without_us_they_are_spread(machines: ServedMachines) -> None:
    """The counter-run: the same machines and share-managers, which nobody points anywhere."""
    machines.scene.set_settings(share_managers="false")
    wait_until(lambda: ENTRIES & entries(machines.scene) == {"pods.scheduling.longhorn.io"}, "an entry less", 30.0)
    fleet = machines.fleet("vm")
    print("machine and share-manager:", Counter(fleet.values()))
    print("together:", together(fleet), "of", MACHINES)
    assert 3 <= len({share for _, share in fleet.values()})
    assert together(fleet) < MACHINES


@pytest.mark.long
def test_of_several_consumers_it_runs_beside_one(machines: ServedMachines) -> None:
    """At first beside the one that it came for, and after a failure beside either."""
    disk = machines.claim("disk")
    one, two = machines.cell.nodes[:2]
    machines.create("vm1", disk, node=one)
    volume = machines.volume_of(disk)
    assert one == machines.wait_served(volume)
    machines.cell.create("pods", reader("reader", disk, machines.cell.selector, two))
    machines.cell.wait_ready(2, WAIT_SECONDS)
    for _ in range(3):
        assert machines.wait_served(volume, not_by=machines.fail(volume)) in (one, two)
    machines.cell.delete("pods", "virt-launcher-vm1-0")
    machines.cell.wait_gone("virt-launcher-vm1-0")
    wait_until(lambda: consumers(machines, volume) == [two], "one consumer", WAIT_SECONDS)

    def runs_beside_it() -> bool:
        return two == machines.wait_served(volume, not_by=machines.fail(volume))

    wait_until(runs_beside_it, "a review that does not go by what an earlier one has read", WAIT_SECONDS)


def reader(name: str, claim: str, selector: dict[str, str], node: str) -> Object:
    return workloads.pod(name, claim, opted_in=False, selector={**selector, virtual_machines.HOSTNAME: node})


def consumers(machines: ServedMachines, volume: str) -> list[str]:
    path = f"/apis/longhorn.io/v1beta2/namespaces/{NAMESPACE}/volumeattachments/{volume}"
    tickets = machines.api.get(path)["spec"]["attachmentTickets"].values()
    return sorted(ticket["nodeID"] for ticket in tickets if ticket["type"] == "csi-attacher")


@pytest.mark.parametrize("why", ["full", pytest.param("cordoned", marks=pytest.mark.long)])
def test_where_the_machines_node_has_no_room_it_runs_elsewhere(machines: ServedMachines, why: str) -> None:
    """Nothing waits for the node, and a second machine follows the share-manager to where it is."""
    disk = machines.claim("disk")
    here = machines.cell.nodes[2]
    machine = machines.create("vm", disk, node=here)
    volume = machines.volume_of(disk)
    assert here == machines.wait_served(volume)
    close(machines, here, why)
    there = machines.wait_served(volume, not_by=machines.fail(volume))
    assert there not in ("", here)
    assert here == machines.node_of("virt-launcher-vm-0")

    # The machine is started again, and now follows it.
    machines.cell.delete("pods", "virt-launcher-vm-0")
    machines.cell.wait_gone("virt-launcher-vm-0")
    machines.cell.create("pods", reader("reader", disk, machines.cell.selector, there))  # who keeps it served
    machines.cell.wait_pod_ready("reader", WAIT_SECONDS)
    assert there == machines.wait_served(volume)
    second = machines.launch(machine, "1")
    machines.cell.wait_pod_ready(second, WAIT_SECONDS)
    assert there == machines.node_of(second) == machines.wait_served(volume)


def close(machines: ServedMachines, node: str, why: str) -> None:
    path = f"/api/v1/nodes/{node}"
    if why == "cordoned":
        machines.api.patch(path, {"spec": {"unschedulable": True}})
    else:
        machines.api.patch(f"{path}/status", {"status": {"allocatable": {"pods": "1"}}}, type="strategic")


@pytest.mark.parametrize("migratable", [False, True], ids=["served", "migratable"])
def test_a_machine_migrates_while_it_runs(machines: ServedMachines, *, migratable: bool) -> None:
    """The target is there before the source goes, on another node; a share-manager stays, and follows when it fails."""
    disk = machines.claim("disk", migratable=migratable)
    machine = machines.create("vm", disk)
    source = "virt-launcher-vm-0"
    machines.cell.wait_pod_ready(source, WAIT_SECONDS)
    here, volume = machines.node_of(source), machines.volume_of(disk)
    target = machines.launch(machine, "1", job="job")
    machines.cell.wait_ready(2, WAIT_SECONDS)
    there = machines.node_of(target)
    assert there != here
    annotated = [CO_SCHEDULE in machines.pod(name)["metadata"]["annotations"] for name in (source, target)]
    assert [True, False] == annotated
    machines.cell.delete("pods", source)
    machines.cell.wait_gone(source)
    if migratable:
        wait_until(lambda: machines.volume(volume)["spec"]["nodeID"] == there, "a volume that moved", WAIT_SECONDS)
        assert {} == machines.manager(volume)["spec"]
    else:
        wait_until(lambda: consumers(machines, volume) == [there], "one consumer", WAIT_SECONDS)
        assert here == machines.served_at(volume)
        assert there == machines.wait_served(volume, not_by=machines.fail(volume))


# The claims that KubeVirt makes


@pytest.mark.long
def test_a_machine_of_imported_disks_runs_next_to_its_data(machines: ServedMachines) -> None:
    """Its volumes are made for claims of the importer's and handed on, each counts once at every moment, and a disk
    that is plugged into the running machine counts on its node."""
    cell, leader = machines.cell, machines.scene.controllers[-1]
    disks = ("boot", "data")
    claims = [
        cell.create("persistentvolumeclaims", populators.imported_claim(name, cell.class_name, 100)) for name in disks
    ]
    machine = virtual_machines.create_instance(machines.api, cell.namespace, "vm", *disks)
    first = machines.launch(machine, "provisioning")  # which only has a node chosen for the claims
    importers = [Importer(cell, claim) for claim in claims]
    assert 1 == len({importer.begin() for importer in importers})
    fillers = [importer.fill() for importer in importers]
    for importer in importers:
        importer.hand_on()
    cell.delete("pods", first)
    cell.wait_gone(first)
    cell.wait_promised(leader, {})
    launched = machines.launch(machine, "0")
    cell.wait_pod_ready(launched, WAIT_SECONDS)
    here = machines.node_of(launched)
    assert here in {filler["spec"]["nodeName"] for filler in fillers}

    hot = cell.claim("hot", 90)
    plugged = virtual_machines.hotplug(machines.pod(launched), "hot")
    cell.create("pods", plugged)
    cell.wait_pod_ready(plugged["metadata"]["name"], WAIT_SECONDS)
    assert here == machines.node_of(plugged["metadata"]["name"])
    volumes = [*map(machines.volume_of, disks), hot]
    together = [[here]] * 3  # the machine's own disks come to it, where an importer ran elsewhere
    wait_until(lambda: [places_of(machines, one) for one in volumes] == together, "all data beside it", WAIT_SECONDS)
    asking = [pod["spec"]["containers"][0]["resources"].get("limits") for pod in (*fillers, *cell.pods())]
    assert [{RESOURCE: "1"}] * 4 == asking
    report = machines.scene.judge(cell)  # that it ran before a disk had come to it is as it should be
    assert ([], []) == (report.violations, report.without_disk)


def places_of(machines: ServedMachines, volume: str) -> list[str]:
    replicas = machines.api.list(
        f"/apis/longhorn.io/v1beta2/namespaces/{NAMESPACE}/replicas", label_selector=f"longhornvolume={volume}"
    )
    return sorted(replica["spec"]["nodeID"] for replica in replicas["items"])
