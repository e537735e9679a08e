"""What was seen on Longhorn's own controllers, of the stand-in on a real control plane: fast figures, late writes.

Without an event nothing that found no place is tried again here: `retry_seconds` outlasts every test.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cluster.client import ApiError, Object
from tests.e2e import workloads
from tests.e2e.claim_webhook import ClaimWebhook
from tests.e2e.longhorn_cell import OPTIONS, Cell
from tests.e2e.view import CLAIMS, PODS
from tests.longhorn import locality, paths
from tests.longhorn.nodes import condition
from tests.longhorn.options import GIB, LonghornOptions

pytestmark = pytest.mark.cluster

DELAYS = OPTIONS.delays.changed_by(
    "disk_figures=0.01..0.03,write=0.02..0.1,write_roaming=0.02..1,own_attach=0.3,finalize=1"
)
MakeCell = Callable[..., Cell]


@pytest.fixture(scope="module")
def longhorn_options() -> LonghornOptions:
    return replace(OPTIONS, delays=DELAYS, retry_seconds=600.0)


@pytest.fixture
def make_cell(longhorn_cells: MakeCell) -> MakeCell:
    return longhorn_cells


# Placement


def test_replicas_that_wait_are_placed_as_soon_as_a_figure_falls(make_cell: MakeCell) -> None:
    """`volume_controller.go: enqueueNodeChange`: not only every 30 s."""
    cell = make_cell(nodes=2, gib=100, locality="strict-local")  # a second node, or no Replica object is made
    node, waiting = cell.nodes[0], ("w1", "w2", "w3")
    for name, gib in (("large", 90), *((name, 20) for name in waiting)):
        cell.claim(name, gib)
        cell.pod(name, name, node=node)
        if name == "large":
            cell.wait_ready(name)
            cell.wait(lambda: cell.disk(node)["storageScheduled"] == 90 * GIB, "figures")
    volumes = [cell.wait_volume(name) for name in waiting]
    cell.wait(lambda: all(cell.reason(volume) for volume in volumes), "refused replicas")
    assert [[""]] * 3 == [cell.places(volume) for volume in volumes]
    cell.delete_pod("large")
    cell.delete(cell.path("persistentvolumeclaims", "large"))
    for name in waiting:
        cell.wait_ready(name)
    assert [[node]] * 3 == [cell.places(volume) for volume in volumes]


def test_a_displaced_volume_displaces_the_next_one(make_cell: MakeCell) -> None:
    """`replica_scheduler.go`: where the volume's node has no disk for it, any other node may serve."""
    cell = make_cell(nodes=2, gib=20)
    full, next_one = cell.nodes
    cell.claim("filler", 15)
    cell.pod("filler", "filler", node=full)
    cell.wait_ready("filler")
    cell.claim("one", 10)
    cell.pod("one", "one", node=full)
    cell.wait_ready("one")
    assert next_one in cell.places(cell.wait_volume("one"))
    last = cell.add_node(20)
    cell.claim("two", 15)
    cell.pod("two", "two", node=next_one)
    cell.wait_ready("two")
    assert last in cell.places(cell.wait_volume("two"))


def test_all_replicas_of_a_volume_exist_before_one_is_placed(make_cell: MakeCell) -> None:
    """And the volume counts as scheduled: `reconcileVolumeCondition` passes over local replicas that wait."""
    cell = make_cell(nodes=2, replicas=3, binding="Immediate")
    cell.claim()
    volume = cell.wait_volume()
    cell.wait(lambda: cell.places(volume) == ["", "", ""], "three replicas without a place")
    cell.wait(lambda: scheduled(cell, volume) == "True", "scheduled volume")
    cell.pod("p", "data")
    cell.wait_ready("p")
    cell.wait(lambda: cell.places(volume) == ["", *cell.nodes], "two places of three")
    cell.wait(lambda: scheduled(cell, volume) == "False", "refused replica")


def scheduled(cell: Cell, volume: str) -> str:
    return str(condition(cell.volume(volume).get("status") or {}, "Scheduled").get("status", ""))


# Growth


def test_a_volume_that_grows_before_its_first_use_lies_with_its_owner(make_cell: MakeCell) -> None:
    """`volume_expansion_controller.go: reconcile`; a second copy is rebuilt beside the pod."""
    cell = make_cell(nodes=2, binding="Immediate")
    here, owner = cell.nodes
    cell.claim()
    volume = cell.wait_volume()
    assert cell.volume(volume)["status"]["ownerID"]
    path = paths.longhorn("volumes", OPTIONS.namespace, volume)
    cell.api.patch(f"{path}/status", {"status": {"ownerID": owner}})
    cell.wait(lambda: cell.volume(volume)["status"]["ownerID"] == owner, "owner")
    cell.wait(lambda: is_bound(cell), "bound claim")
    cell.api.patch(
        cell.path("persistentvolumeclaims", "data"), {"spec": {"resources": {"requests": {"storage": "20Gi"}}}}
    )
    cell.wait(lambda: cell.places(volume) == [owner], "place with the owner")
    cell.pod("p", "data", node=here)
    cell.wait_ready("p")
    cell.wait(lambda: cell.places(volume) == [here], "copy beside the pod alone")
    (replica,) = cell.replicas(volume)
    assert (True, str(20 * GIB)) == (locality.is_healthy(replica), replica["spec"]["volumeSize"])
    assert not cell.volume(volume)["status"]["expansionRequired"]


def is_bound(cell: Cell, claim: str = "data") -> bool:
    found = cell.view.get(CLAIMS, f"{cell.name}/{claim}") or {}
    return (found.get("status") or {}).get("phase") == "Bound"


# Classes


@pytest.mark.parametrize(
    "parameters",
    [
        {"dataLocality": "strict-local", "numberOfReplicas": "2"},
        {"dataLocality": "strict-local", "numberOfReplicas": ""},
        {"dataLocality": ""},
        {"dataLocality": "besteffort"},
        {"numberOfReplicas": "21"},
    ],
    ids=["strict-local twice", "strict-local unset", "empty locality", "misspelt locality", "21 replicas"],
)
def test_a_class_that_longhorn_refuses_never_gets_a_volume(make_cell: MakeCell, parameters: dict[str, str]) -> None:
    cell = make_cell(binding="Immediate")
    bad = workloads.storage_class(f"{cell.name}-bad", binding="Immediate", parameters=parameters)
    cell.api.create(paths.CLASSES, bad)
    made = cell.api.create(cell.path("persistentvolumeclaims"), workloads.claim("bad", f"{cell.name}-bad", 10))
    cell.claim("good")
    cell.wait(lambda: is_bound(cell, "good"), "bound claim")
    assert {} == cell.volume(f"pvc-{made['metadata']['uid']}")["spec"]
    assert not is_bound(cell, "bad")
    cell.delete(f"{paths.CLASSES}/{cell.name}-bad")


def test_a_volume_with_an_iscsi_frontend_is_made_and_never_attached(make_cell: MakeCell) -> None:
    cell = make_cell(parameters={"frontend": "iscsi"})
    cell.claim()
    cell.pod("p", "data")
    volume = cell.wait_volume()
    cell.wait(lambda: any(entry["metadata"].get("finalizers") for entry in cell.attachments(cell.nodes[0])), "mark")
    # Everything that was asked for earlier has had its turn when a later claim of a usual class is in use.
    usual = workloads.storage_class(f"{cell.name}-usual", node_selector=cell.name)
    cell.api.create(paths.CLASSES, usual)
    cell.api.create(cell.path("persistentvolumeclaims"), workloads.claim("usual", f"{cell.name}-usual", 10))
    cell.pod("usual", "usual")
    cell.wait_ready("usual")
    assert ("iscsi", "") == (cell.volume(volume)["spec"]["frontend"], cell.volume(volume)["spec"]["nodeID"])
    assert [""] == cell.places(volume)
    cell.delete(f"{paths.CLASSES}/{cell.name}-usual")


# Deletion


def test_a_deleted_replica_counts_until_its_finalizer_goes(make_cell: MakeCell) -> None:
    cell = make_cell()
    (node,) = cell.nodes
    cell.claim()
    cell.pod("p", "data")
    cell.wait_ready("p")
    volume = cell.wait_volume()
    cell.wait(lambda: cell.disk(node)["storageScheduled"] == 10 * GIB, "figures")
    cell.delete_pod("p")
    cell.delete(cell.path("persistentvolumeclaims", "data"))

    def is_going() -> bool:
        return [True] == [locality.is_deleting(entry) for entry in cell.replicas(volume)]

    cell.wait(is_going, "replica with a deletionTimestamp")
    assert locality.is_deleting(cell.volume(volume))
    assert 10 * GIB == cell.disk(node)["storageScheduled"]
    cell.wait(lambda: not cell.replicas(volume) and not cell.volume(volume)["spec"], "end of the volume")
    cell.wait(lambda: cell.disk(node)["storageScheduled"] == 0, "figures of an empty disk")


# Longhorn's webhook for claims


def test_while_longhorns_webhook_is_away_no_choice_of_a_node_shows(make_cell: MakeCell, tmp_path: Path) -> None:
    """It is fail-closed and sees every update of a claim, kube-scheduler's `selected-node` included."""
    cell = make_cell()
    with ClaimWebhook(cell.api, tmp_path, OPTIONS.namespace) as webhook:
        webhook.is_away = True
        cell.claim()
        cell.pod("p", "data")

        def why() -> str:
            pod = cell.view.get(PODS, f"{cell.name}/p") or {}
            return str(condition(pod.get("status") or {}, "PodScheduled").get("message", ""))

        cell.wait(lambda: "failed calling webhook" in why(), "choice that did not get through")
        assert any(chosen(claim) for claim in webhook.seen)
        assert not chosen(cell.api.get(cell.path("persistentvolumeclaims", "data")))
        webhook.is_away = False
        cell.wait_ready("p")
        assert chosen(cell.api.get(cell.path("persistentvolumeclaims", "data")))


def chosen(claim: Object) -> bool:
    return paths.SELECTED_NODE in (claim["metadata"].get("annotations") or {})


def test_longhorns_webhook_refuses_growth_beyond_a_disk(make_cell: MakeCell, tmp_path: Path) -> None:
    cell = make_cell(nodes=1, gib=100)
    cell.claim()
    cell.pod("p", "data")
    cell.wait_ready("p")
    cell.wait(lambda: cell.disk(cell.nodes[0])["storageScheduled"] == 10 * GIB, "figures")
    path = cell.path("persistentvolumeclaims", "data")
    with ClaimWebhook(cell.api, tmp_path, OPTIONS.namespace):
        with pytest.raises(ApiError, match="cannot schedule") as refused:
            cell.api.patch(path, {"spec": {"resources": {"requests": {"storage": "101Gi"}}}})
        assert refused.value.forbidden
        cell.api.patch(path, {"spec": {"resources": {"requests": {"storage": "80Gi"}}}})
    volume = cell.wait_volume()
    cell.wait(lambda: cell.volume(volume)["spec"]["size"] == str(80 * GIB), "larger volume")
