"""The stand-in for Longhorn on the real control plane, without the product: what the other tests build on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from controller.model import workload
from controller.plan.complaints import Notes
from controller.plan.objects import decode_objects
from tests.cluster.client import Object
from tests.cluster.cluster import Cluster
from tests.e2e import workloads
from tests.e2e.claim_webhook import ClaimWebhook
from tests.e2e.longhorn_cell import CAPACITIES, OPTIONS, LonghornCell
from tests.e2e.view import CLAIMS, PODS, VOLUMES, View
from tests.longhorn import install, locality, paths
from tests.longhorn.longhorn import Longhorn
from tests.longhorn.nodes import condition
from tests.longhorn.options import GIB, DiskOptions

pytestmark = pytest.mark.cluster


MakeCell = Callable[..., LonghornCell]


@pytest.fixture
def make_cell(longhorn_cells: MakeCell) -> MakeCell:
    return longhorn_cells


def why(cell: LonghornCell, pod: str) -> str:
    """What kube-scheduler wrote about the pod."""
    found = cell.view.get(PODS, f"{cell.name}/{pod}") or {}
    return str(condition(found.get("status") or {}, "PodScheduled").get("message", ""))


# Placement


def test_a_strict_local_replica_without_room_waits_for_its_node(make_cell: MakeCell) -> None:
    cell = make_cell(nodes=1, gib=5, locality="strict-local")
    roomy = cell.add_node()
    cell.claim()
    cell.pod("p", "data", node=cell.nodes[0])
    volume = cell.wait_volume()
    # The roomy node is a candidate for the Replica object to be made, and not for its place.
    cell.wait(lambda: cell.reason(volume) == "LocalReplicaSchedulingFailure", "refused replica")

    def is_bound_to_its_node() -> bool:
        (replica,) = cell.replicas(volume)
        return bool(replica["spec"]["hardNodeAffinity"] == cell.nodes[0])

    cell.wait(is_bound_to_its_node, "replica that is bound to its node")
    assert [""] == cell.places(volume)

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


@pytest.mark.long
def test_three_copies_exist_before_one_is_placed_and_two_of_them_are_enough_to_run(make_cell: MakeCell) -> None:
    cell = make_cell(nodes=2, replicas=3, binding="Immediate")
    cell.claim()
    volume = cell.wait_volume()
    cell.wait(lambda: cell.places(volume) == ["", "", ""], "three replicas without a place")
    cell.pod("p", "data")
    cell.wait_ready("p")
    cell.wait(lambda: cell.places(volume) == ["", *cell.nodes], "two places of three")
    cell.wait(lambda: cell.reason(volume) == "ReplicaSchedulingFailure", "refused replica")
    cell.wait(lambda: cell.volume(volume)["status"]["robustness"] == "degraded", "degraded volume")
    cell.add_node()
    cell.wait(lambda: cell.places(volume) == sorted(cell.nodes), "three places")
    cell.wait(lambda: cell.volume(volume)["status"]["robustness"] == "healthy", "healthy volume")


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


# Eviction


@pytest.mark.long
def test_by_default_nothing_leaves_a_cordoned_node(make_cell: MakeCell) -> None:
    """Until an operator asks for the disk to be emptied."""
    cell = make_cell(nodes=2)
    here, there = cell.nodes
    cell.claim()
    cell.pod("p", "data", node=here)
    cell.wait_ready("p")
    volume = cell.wait_volume()
    cell.delete_pod("p")
    cell.api.patch(f"/api/v1/nodes/{here}", {"spec": {"unschedulable": True}})
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


def test_a_volume_that_is_cloned_is_used_once_it_is_filled(make_cell: MakeCell) -> None:
    cell = make_cell(nodes=1)
    cell.claim("source")
    cell.pod("first", "source")
    cell.wait_ready("first")
    body = workloads.claim("data", cell.name, 10)
    body["spec"]["dataSource"] = {"kind": "PersistentVolumeClaim", "name": "source"}
    cell.api.create(cell.path("persistentvolumeclaims"), body)
    cell.pod("p", "data")
    volume = cell.wait_volume()
    cell.wait(lambda: cell.volume(volume)["spec"].get("disableFrontend"), "volume that is being filled")
    assert locality.is_filling(cell.volume(volume))
    cell.wait_ready("p")
    assert not locality.is_filling(cell.volume(volume))
    assert f"vol://{cell.wait_volume('source')}" == cell.volume(volume)["spec"]["dataSource"]


@pytest.mark.long
def test_an_ephemeral_volume_lives_and_dies_with_its_pod(make_cell: MakeCell) -> None:
    cell = make_cell()
    template = {"spec": workloads.claim("unused", cell.name, 10)["spec"]}
    scratch = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}
    cell.pod("p", volumes=[scratch])
    cell.wait_ready("p")
    made = workload.claim_facts(cell.api.get(cell.path("persistentvolumeclaims", "p-scratch")))
    foreseen = decode_objects(cell.api.get(cell.path("pods", "p")), Notes()).by_kind["claim"][made.key]
    assert replace(foreseen, uid=made.uid) == replace(made, volume_name="", selected_node="")
    volume = cell.wait_volume("p-scratch")
    assert cell.nodes == cell.places(volume)
    cell.delete_pod("p")
    cell.wait(lambda: not cell.replicas(volume) and not cell.volume(volume)["spec"], "end of the volume")
    cell.wait(lambda: cell.view.get(VOLUMES, volume) is None, "end of the PV")


@pytest.mark.long
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


def _delete_early(cell: LonghornCell) -> bool:
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


@pytest.mark.parametrize(
    "is_marked", [pytest.param(False, marks=pytest.mark.long), True], ids=["at once", "after the finalizer"]
)
def test_an_attachment_that_never_came_about_leaves_the_volume_free(make_cell: MakeCell, is_marked: bool) -> None:
    cell = make_cell(binding="Immediate", nodes=2, locality="disabled")
    cell.claim()
    volume = cell.wait_volume()
    source = {"persistentVolumeName": volume}
    spec = {"attacher": paths.DRIVER, "nodeName": cell.nodes[0], "source": source}
    body = {"metadata": {"name": f"{cell.name}-attachment"}, "spec": spec}
    cell.api.create(paths.ATTACHMENTS, body)
    if is_marked:
        cell.wait(lambda: any(entry["metadata"].get("finalizers") for entry in cell.attachments(cell.nodes[0])), "mark")
    cell.delete(f"{paths.ATTACHMENTS}/{cell.name}-attachment")
    cell.wait(lambda: not cell.attachments(cell.nodes[0]), "end of the attachment")
    cell.pod("p", "data", node=cell.nodes[1])
    cell.wait_ready("p")
    assert cell.nodes[1] == cell.volume(volume)["spec"]["nodeID"]


# Longhorn's webhook for claims


@pytest.mark.long
def test_while_longhorns_webhook_is_away_no_choice_of_a_node_shows(make_cell: MakeCell, tmp_path: Path) -> None:
    """It is fail-closed and sees every update of a claim, kube-scheduler's `selected-node` included."""
    cell = make_cell()
    with ClaimWebhook(cell.api, tmp_path, OPTIONS.namespace) as webhook:
        webhook.is_away = True
        cell.claim()
        cell.pod("p", "data")
        cell.wait(lambda: "failed calling webhook" in why(cell, "p"), "choice that did not get through")
        assert any(map(chosen, webhook.seen))
        assert not chosen(cell.api.get(cell.path("persistentvolumeclaims", "data")))
        webhook.is_away = False
        cell.wait_ready("p")
        assert chosen(cell.api.get(cell.path("persistentvolumeclaims", "data")))


def chosen(claim: Object) -> bool:
    return paths.SELECTED_NODE in (claim["metadata"].get("annotations") or {})


# Classes


def test_a_class_that_longhorn_refuses_never_gets_a_volume(make_cell: MakeCell) -> None:
    cell = make_cell(binding="Immediate")
    parameters = {"dataLocality": "strict-local", "numberOfReplicas": "2"}
    bad = workloads.storage_class(f"{cell.name}-bad", binding="Immediate", parameters=parameters)
    cell.api.create(paths.CLASSES, bad)
    made = cell.api.create(cell.path("persistentvolumeclaims"), workloads.claim("bad", f"{cell.name}-bad", 10))
    cell.claim("good")
    cell.wait_volume("good")
    assert {} == cell.volume(f"pvc-{made['metadata']['uid']}")["spec"]
    cell.delete(f"{paths.CLASSES}/{cell.name}-bad")


# Capacity tracking, which is a way to run the whole of it, so it comes last


@pytest.mark.long
def test_with_capacity_tracking_the_scheduler_reads_what_was_published(
    cluster: Cluster, longhorn: Longhorn, view: View
) -> None:
    assert [] == longhorn.failures
    longhorn.stop()
    options = replace(OPTIONS, capacity_tracking=True, capacity_seconds=0.3)
    with Longhorn(cluster.api(), options) as tracking, ExitStack() as stack:
        stack.callback(install.set_driver, cluster.api(), capacity_tracking=False)
        cell = LonghornCell(cluster, tracking, view, "lhtracked")
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
        cell.wait(lambda: "did not have enough free storage" in why(cell, "second"), "refusal by the scheduler")
        for entry in view.all(CAPACITIES, OPTIONS.namespace):
            stack.callback(cluster.api().delete, paths.capacities(OPTIONS.namespace, entry["metadata"]["name"]))
