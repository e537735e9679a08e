"""The stand-in for Longhorn on the real control plane, without the product: what the other tests build on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest

from tests.cluster.cluster import Cluster
from tests.e2e import workloads
from tests.e2e.longhorn_cell import CAPACITIES, OPTIONS, Cell
from tests.e2e.view import CLAIMS, PODS, VOLUMES, View
from tests.longhorn import install, locality, paths
from tests.longhorn.longhorn import Longhorn, disk_uuid
from tests.longhorn.nodes import condition
from tests.longhorn.options import GIB, DiskOptions

pytestmark = pytest.mark.cluster


MakeCell = Callable[..., Cell]


@pytest.fixture
def make_cell(longhorn_cells: MakeCell) -> MakeCell:
    return longhorn_cells


# Placement


def test_a_strict_local_replica_lies_where_the_pod_is(make_cell: MakeCell) -> None:
    cell = make_cell(nodes=3, locality="strict-local")
    cell.claim()
    cell.pod("p", "data")
    where = cell.wait_ready("p")["spec"]["nodeName"]
    (replica,) = cell.replicas(cell.wait_volume())
    assert (where, where) == (replica["spec"]["nodeID"], replica["spec"]["hardNodeAffinity"])
    assert replica["spec"]["healthyAt"]


def test_a_strict_local_replica_without_room_waits_for_its_node(make_cell: MakeCell) -> None:
    cell = make_cell(nodes=1, gib=5, locality="strict-local")
    roomy = cell.add_node()
    cell.claim()
    cell.pod("p", "data", node=cell.nodes[0])
    volume = cell.wait_volume()
    # The roomy node is a candidate for the Replica object to be made, and not for its place.
    cell.wait(lambda: cell.reason(volume) == "LocalReplicaSchedulingFailure", "refused replica")
    (replica,) = cell.replicas(volume)
    assert ("", cell.nodes[0]) == (replica["spec"]["nodeID"], replica["spec"]["hardNodeAffinity"])

    def told() -> str:
        annotations = (cell.view.get(VOLUMES, volume) or {"metadata": {}})["metadata"].get("annotations") or {}
        return str(annotations.get(paths.SCHEDULING_ERROR))

    cell.wait(lambda: told() == "insufficient storage", "reason on the PV")
    cell.enlarge(cell.nodes[0], 100)
    cell.wait_ready("p")
    assert [cell.nodes[0]] == cell.places(volume)
    assert roomy not in cell.places(volume)
    cell.wait(lambda: cell.reason(volume) == "", "scheduled volume")
    cell.wait(lambda: told() == "", "end of the reason on the PV")


def test_an_immediate_volume_is_placed_on_three_nodes_before_anybody_uses_it(make_cell: MakeCell) -> None:
    cell = make_cell(nodes=4, locality="disabled", replicas=3, binding="Immediate")
    cell.claim()
    volume = cell.wait_volume()
    cell.wait(lambda: len(set(cell.places(volume)) - {""}) == 3, "three places")
    assert "" == cell.volume(volume)["spec"].get("nodeID", "")
    assert not any(entry["spec"]["healthyAt"] for entry in cell.replicas(volume))
    cell.wait(lambda: sum(cell.disk(node)["storageScheduled"] for node in cell.nodes) == 30 * GIB, "figures")
    cell.pod("p", "data")
    cell.wait_ready("p")
    cell.wait(lambda: all(map(locality.is_healthy, cell.replicas(volume))), "healthy replicas")
    cell.wait(lambda: cell.volume(volume)["status"]["robustness"] == "healthy", "healthy volume")


def test_a_volume_is_used_while_a_replica_still_looks_for_a_node(make_cell: MakeCell) -> None:
    cell = make_cell(nodes=2, locality="disabled", replicas=3)
    cell.claim()
    cell.pod("p", "data")
    cell.wait_ready("p")
    volume = cell.wait_volume()
    cell.wait(lambda: cell.places(volume) == ["", *sorted(cell.nodes)], "two places of three")
    cell.wait(lambda: cell.reason(volume) == "ReplicaSchedulingFailure", "refused replica")
    cell.wait(lambda: cell.volume(volume)["status"]["robustness"] == "degraded", "degraded volume")
    cell.add_node()
    cell.wait(lambda: cell.places(volume) == sorted(cell.nodes), "three places")
    cell.wait(lambda: cell.volume(volume)["status"]["robustness"] == "healthy", "healthy volume")


def test_a_volume_that_no_disk_takes_has_no_replica_until_one_does(make_cell: MakeCell) -> None:
    cell = make_cell(nodes=1, gib=5, locality="disabled", binding="Immediate")
    cell.claim()
    volume = cell.wait_volume()
    cell.wait(lambda: cell.reason(volume) == "ReplicaSchedulingFailure", "refused volume")
    assert [] == cell.replicas(volume)
    cell.enlarge(cell.nodes[0], 100)
    cell.wait(lambda: cell.places(volume) == cell.nodes, "place")


def test_two_volumes_take_the_same_room_while_the_figures_are_old(make_cell: MakeCell) -> None:
    cell = make_cell(nodes=1, gib=100)
    for name in ("one", "two"):
        cell.claim(name, 60)
        cell.pod(name, name)
    for name in ("one", "two"):
        cell.wait_ready(name)
    cell.wait(lambda: cell.disk(cell.nodes[0])["storageScheduled"] == 120 * GIB, "figures of an overfull disk")
    # Known now: nothing more is taken.
    assert "DiskPressure" == condition(cell.disk(cell.nodes[0]), "Schedulable")["reason"]


def test_a_volumes_own_replicas_are_never_old(cluster: Cluster, make_cell: MakeCell) -> None:
    cell = make_cell(nodes=1, gib=100, locality="disabled", replicas=2, binding="Immediate", reclaim="Delete")
    path = f"{paths.CLASSES}/{cell.name}"
    soft = cell.api.get(path)
    cell.api.delete(path)
    soft["metadata"] = {"name": cell.name}
    soft["parameters"]["replicaSoftAntiAffinity"] = "enabled"
    cell.api.create(paths.CLASSES, soft)
    cell.claim(gib=60)
    volume = cell.wait_volume()
    cell.wait(lambda: cell.reason(volume) == "ReplicaSchedulingFailure", "refused second replica")
    assert ["", cell.nodes[0]] == cell.places(volume)


# Locality


def test_the_data_of_a_best_effort_volume_follows_its_pod(make_cell: MakeCell) -> None:
    cell = make_cell(nodes=2)
    here, there = cell.nodes
    cell.claim()
    cell.pod("first", "data", node=here)
    cell.wait_ready("first")
    volume = cell.wait_volume()
    assert [here] == cell.places(volume)
    cell.delete_pod("first")
    cell.pod("second", "data", node=there)
    cell.wait_ready("second")  # at once, with its data on the other node
    cell.wait(lambda: cell.places(volume) == [here, there], "second replica")
    cell.wait(lambda: cell.places(volume) == [there], "end of the remote replica")
    (replica,) = cell.replicas(volume)
    assert (there, True) == (replica["spec"]["hardNodeAffinity"], locality.is_healthy(replica))
    cell.wait(lambda: cell.disk(here)["storageScheduled"] == 0, "figures of the node that was left")


def test_data_that_does_not_fit_near_its_pod_stays_where_it_is(make_cell: MakeCell) -> None:
    cell = make_cell(nodes=1)
    here, there = cell.nodes[0], cell.add_node(gib=5)
    cell.claim()
    cell.pod("first", "data", node=here)
    cell.wait_ready("first")
    volume = cell.wait_volume()
    cell.delete_pod("first")
    cell.pod("second", "data", node=there)
    cell.wait_ready("second")
    cell.wait(lambda: cell.reason(volume) == "LocalReplicaSchedulingFailure", "refused local replica")
    assert ["", here] == cell.places(volume)
    assert [there] == [
        entry["spec"]["hardNodeAffinity"] for entry in cell.replicas(volume) if not locality.is_placed(entry)
    ]
    cell.delete_pod("second")
    cell.wait(lambda: cell.places(volume) == [here], "end of the replica that found no place")


# Eviction


def _drain_policy(cell: Cell, value: str) -> None:
    cell.longhorn.set_setting("node-drain-policy", value)


def _cordon(cell: Cell, node: str) -> None:
    cell.api.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": True}})


def test_a_cordoned_node_is_emptied_under_the_policy_that_evicts(make_cell: MakeCell) -> None:
    cell = make_cell(nodes=2)
    here, there = cell.nodes
    cell.claim()
    cell.pod("p", "data", node=here)
    cell.wait_ready("p")
    volume = cell.wait_volume()
    with ExitStack() as stack:
        stack.callback(_drain_policy, cell, install.DEFAULT_SETTINGS["node-drain-policy"])
        _drain_policy(cell, "block-for-eviction")
        _cordon(cell, here)
        # What stays behind is the replica that data locality wants where the pod runs still.
        cell.wait(lambda: cell.places(volume) == ["", there], "moved replica")
        assert cell.longhorn_node(here)["status"]["autoEvicting"]
    cell.wait(lambda: not cell.longhorn_node(here)["status"]["autoEvicting"], "end of the eviction")


def test_by_default_nothing_leaves_a_cordoned_node(make_cell: MakeCell) -> None:
    """Until an operator asks for the disk to be emptied."""
    cell = make_cell(nodes=2)
    here, there = cell.nodes
    cell.claim()
    cell.pod("p", "data", node=here)
    cell.wait_ready("p")
    volume = cell.wait_volume()
    cell.delete_pod("p")
    _cordon(cell, here)
    cell.wait(lambda: condition(cell.longhorn_node(here)["status"], "Schedulable")["status"] == "False", "cordon")
    assert [False] == [bool(entry["spec"].get("evictionRequested")) for entry in cell.replicas(volume)]

    wanted = DiskOptions(maximum_bytes=100 * GIB, allow_scheduling=False, eviction_requested=True)
    cell.longhorn.set_disk(here, "disk1", wanted)
    # Detached, so Longhorn attaches it for this, and lets it go again.
    cell.wait(lambda: cell.places(volume) == [there], "moved replica")
    cell.wait(lambda: _is_let_go(cell.volume(volume)), "detached volume")


def _is_let_go(volume: dict[str, Any]) -> bool:
    spec = volume["spec"]
    return volume["status"]["state"] == "detached" and not spec.get("nodeID") and not spec.get("disableFrontend")


# Lives of volumes


@pytest.mark.parametrize("kind", ["restored", "cloned"])
def test_a_volume_that_is_filled_from_elsewhere_is_used_only_then(make_cell: MakeCell, kind: str) -> None:
    cell = make_cell(nodes=1)
    body = workloads.claim("data", cell.name, 10)
    if kind == "restored":
        path = f"{paths.CLASSES}/{cell.name}"
        storage = cell.api.get(path)
        cell.api.delete(path)
        storage["metadata"] = {"name": cell.name}
        storage["parameters"]["fromBackup"] = "s3://bucket@region/?backup=b&volume=v"
        cell.api.create(paths.CLASSES, storage)
    else:
        cell.claim("source")
        cell.pod("first", "source")
        cell.wait_ready("first")
        body["spec"]["dataSource"] = {"kind": "PersistentVolumeClaim", "name": "source"}
    cell.api.create(cell.path("persistentvolumeclaims"), body)
    cell.pod("p", "data")
    volume = cell.wait_volume()
    cell.wait(lambda: cell.volume(volume)["spec"].get("disableFrontend"), "volume that is being filled")
    assert locality.is_filling(cell.volume(volume))
    cell.wait_ready("p")
    assert not locality.is_filling(cell.volume(volume))
    assert cell.nodes == cell.places(volume)
    if kind == "cloned":
        assert f"vol://{cell.wait_volume('source')}" == cell.volume(volume)["spec"]["dataSource"]


def test_an_ephemeral_volume_lives_and_dies_with_its_pod(make_cell: MakeCell) -> None:
    cell = make_cell()
    template = {"spec": workloads.claim("unused", cell.name, 10)["spec"]}
    scratch = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}
    cell.pod("p", volumes=[scratch])
    cell.wait_ready("p")
    volume = cell.wait_volume("p-scratch")
    assert cell.nodes == cell.places(volume)
    cell.delete_pod("p")
    cell.wait(lambda: not cell.replicas(volume) and not cell.volume(volume)["spec"], "end of the volume")
    cell.wait(lambda: cell.view.get(VOLUMES, volume) is None, "end of the PV")


def test_a_retained_volume_outlives_its_claim_and_its_pv(make_cell: MakeCell) -> None:
    cell = make_cell(reclaim="Retain")
    cell.claim()
    cell.pod("p", "data")
    cell.wait_ready("p")
    volume = cell.wait_volume()
    cell.delete_pod("p")
    cell.api.delete(cell.path("persistentvolumeclaims", "data"))

    def phase() -> str:
        return str(((cell.view.get(VOLUMES, volume) or {}).get("status") or {}).get("phase", "gone"))

    cell.wait(lambda: phase() == "Released", "released PV")
    assert cell.nodes == cell.places(volume)
    cell.api.delete(f"{paths.PVS}/{volume}")
    cell.wait(lambda: phase() == "gone", "end of the PV")
    assert cell.nodes == cell.places(volume)
    assert str(10 * GIB) == cell.volume(volume)["spec"]["size"]
    cell.api.delete(paths.longhorn("volumes", OPTIONS.namespace, volume))
    cell.wait(lambda: not cell.replicas(volume) and not cell.volume(volume)["spec"], "end of the volume")


def test_a_claim_deleted_during_provisioning_leaves_nothing(make_cell: MakeCell) -> None:
    cell = make_cell(binding="Immediate", locality="disabled")
    # Again until our deletion comes before the PV.
    assert any(_delete_early(cell) for _ in range(10))


def _delete_early(cell: Cell) -> bool:
    """Delete a claim as soon as its volume exists; whether there was no PV then. Nothing may be left in any case."""
    cell.claim()
    path = cell.path("persistentvolumeclaims", "data")
    volume = f"pvc-{cell.api.get(path)['metadata']['uid']}"
    cell.wait(lambda: cell.volume(volume)["spec"], "volume")
    is_early = cell.api.get_or_none(f"{paths.PVS}/{volume}") is None
    cell.api.delete(path)
    cell.wait(lambda: cell.view.get(CLAIMS, f"{cell.name}/data") is None, "end of the claim")
    cell.wait(lambda: not cell.volume(volume)["spec"] and not cell.replicas(volume), "end of the volume")
    cell.wait(lambda: cell.view.get(VOLUMES, volume) is None, "end of the PV")
    return is_early


@pytest.mark.parametrize("is_marked", [False, True], ids=["at once", "after the finalizer"])
def test_an_attachment_that_never_came_about_leaves_the_volume_free(make_cell: MakeCell, is_marked: bool) -> None:
    cell = make_cell(binding="Immediate", nodes=2, locality="disabled")
    cell.claim()
    volume = cell.wait_volume()
    body = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "VolumeAttachment",
        "metadata": {"name": f"{cell.name}-attachment"},
        "spec": {
            "attacher": paths.DRIVER,
            "nodeName": cell.nodes[0],
            "source": {"persistentVolumeName": volume},
        },
    }
    cell.api.create(paths.ATTACHMENTS, body)
    if is_marked:
        cell.wait(lambda: any(entry["metadata"].get("finalizers") for entry in cell.attachments(cell.nodes[0])), "mark")
    cell.delete(f"{paths.ATTACHMENTS}/{cell.name}-attachment")
    cell.wait(lambda: not cell.attachments(cell.nodes[0]), "end of the attachment")
    cell.pod("p", "data", node=cell.nodes[1])
    cell.wait_ready("p")
    assert cell.nodes[1] == cell.volume(volume)["spec"]["nodeID"]


# Nodes


def test_a_node_follows_its_kubernetes_node(cluster: Cluster, make_cell: MakeCell) -> None:
    cell = make_cell(nodes=1)
    (node,) = cell.nodes
    cell.claim()
    cell.pod("p", "data")
    cell.wait_ready("p")
    cell.wait(lambda: cell.disk(node)["storageScheduled"] == 10 * GIB, "figures")

    def reasons(kind: str) -> list[str]:
        return [
            condition(part, kind).get("reason", "") for part in (cell.longhorn_node(node)["status"], cell.disk(node))
        ]

    cluster.api().patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": True}})
    cell.wait(lambda: reasons("Schedulable") == ["KubernetesNodeCordoned", ""], "cordon")
    cluster.delete_node(node)
    cell.wait(lambda: reasons("Ready") == ["KubernetesNodeGone", "NodeNotReady"], "node that is gone")
    assert 10 * GIB == cell.disk(node)["storageScheduled"]
    cluster.add_node(node, labels={"cell": cell.name})
    cell.wait(lambda: reasons("Ready") == ["", ""] and reasons("Schedulable") == ["", ""], "node that is back")


def test_a_disk_that_changes_keeps_what_lies_on_it_and_a_new_one_takes_volumes(make_cell: MakeCell) -> None:
    cell = make_cell(nodes=1, gib=15)
    (node,) = cell.nodes
    cell.claim("one")
    cell.pod("one", "one")
    cell.wait_ready("one")
    cell.wait(lambda: cell.disk(node)["storageScheduled"] == 10 * GIB, "figures")
    cell.enlarge(node, 16)
    live = cell.api.get(paths.longhorn("nodes", OPTIONS.namespace, node))
    assert 10 * GIB == live["status"]["diskStatus"]["disk1"]["storageScheduled"]
    cell.longhorn.set_disk(node, "disk2", DiskOptions(maximum_bytes=20 * GIB))
    cell.claim("two")
    cell.pod("two", "two")
    cell.wait_ready("two")
    (replica,) = cell.replicas(cell.wait_volume("two"))
    assert disk_uuid(node, "disk2") == replica["spec"]["diskID"]


# A workload


def test_a_stateful_set_that_starts_at_once_becomes_ready_without_any_extender(make_cell: MakeCell) -> None:
    cell = make_cell(nodes=4, gib=400)
    wanted = workloads.stateful_set("web", cell.name, replicas=8, gib=50, opted_in=False, selector={"cell": cell.name})
    sets = f"/apis/apps/v1/namespaces/{cell.name}/statefulsets"
    cell.api.create(sets, wanted)
    pods = [cell.wait_ready(f"web-{number}") for number in range(8)]
    volumes = [cell.wait_volume(f"data-web-{number}") for number in range(8)]
    assert [[pod["spec"]["nodeName"]] for pod in pods] == [cell.places(volume) for volume in volumes]
    cell.wait(lambda: sum(cell.disk(node)["storageScheduled"] for node in cell.nodes) == 400 * GIB, "figures")
    cell.api.delete(f"{sets}/web", propagationPolicy="Background")


# Capacity tracking, which is a way to run the whole of it, so it comes last


def test_with_capacity_tracking_the_scheduler_reads_what_was_published(
    cluster: Cluster, longhorn: Longhorn, view: View
) -> None:
    assert [] == longhorn.failures
    longhorn.stop()
    options = replace(OPTIONS, capacity_tracking=True, capacity_seconds=0.3)
    with Longhorn(cluster.api(), options) as tracking, ExitStack() as stack:
        stack.callback(install.set_driver, cluster.api(), capacity_tracking=False)
        cell = Cell(cluster, tracking, view, "lhtracked")
        stack.callback(cell.clear)
        small, large = cell.add_node(gib=50), cell.add_node(gib=200)

        def published() -> dict[str, str]:
            mine = [entry for entry in view.all(CAPACITIES) if entry["storageClassName"] == cell.name]
            return {entry["nodeTopology"]["matchLabels"]["kubernetes.io/hostname"]: entry["capacity"] for entry in mine}

        cell.wait(lambda: published() == {small: str(50 * GIB), large: str(200 * GIB)}, "capacities")
        cell.claim("big", 150)
        cell.pod("big", "big")
        assert large == cell.wait_ready("big")["spec"]["nodeName"]
        cell.wait(lambda: published() == {small: str(50 * GIB), large: str(50 * GIB)}, "capacities of what is left")
        cell.claim("second", 150)
        cell.pod("second", "second")

        def why() -> str:
            pod = view.get(PODS, f"{cell.name}/second") or {}
            return str(condition(pod.get("status") or {}, "PodScheduled").get("message", ""))

        cell.wait(lambda: "did not have enough free storage" in why(), "refusal by the scheduler")
        for entry in view.all(CAPACITIES, OPTIONS.namespace):
            stack.callback(cluster.api().delete, paths.capacities(OPTIONS.namespace, entry["metadata"]["name"]))
