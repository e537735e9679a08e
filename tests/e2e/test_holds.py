"""What is promised between an answer and Longhorn's replica, through everything that may happen in between.

Longhorn's stand-in is paused where a test looks at a moment that would otherwise pass: nothing is provisioned, attached
or placed then, as with a Longhorn that is busy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from tests.e2e.harness import GIB, Cell, Scene
from tests.e2e.programs import Controller
from tests.e2e.scheduling import NAMESPACE
from tests.e2e.view import LONGHORN_NODES, LONGHORN_REPLICAS, VOLUMES
from tests.longhorn import paths
from tests.longhorn.options import Delays
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

FILTER_CALLS = "filter_duration_seconds_count"
NOBODY = "nobody"  # pods of this scheduler are left to the test


@pytest.fixture
def controller(scene: Scene) -> Controller:
    return scene.controllers[-1]


@pytest.fixture
def pair(make_cell: Callable[..., Cell]) -> Cell:
    """Two nodes with room for four volumes each, one of them three quarters full of something else."""
    return make_cell(nodes=2, fillers=1)


@pytest.fixture
def paused(scene: Scene) -> Scene:
    scene.longhorn.pause()
    return scene


def asked(cell: Cell) -> None:
    """A pending pod that the extender was asked about, and offered every node."""
    cell.ask("p", schedulerName=NOBODY)
    assert cell.nodes == cell.filter("p").passed


def each(cell: Cell, gib: int) -> dict[str, int]:
    return dict.fromkeys(cell.nodes, gib)


def finish(scene: Scene, cell: Cell, pods: int) -> None:
    """Longhorn goes on: all become ready, nothing was promised twice, and the ledger empties."""
    scene.longhorn.resume()
    cell.wait_ready(pods, 120)
    assert [] == scene.judge(cell).complaints()
    scene.controllers[-1].wait_ledger_empty()


def test_an_answer_holds_room_on_every_node_offered_until_the_pod_is_deleted(
    cell: Cell, controller: Controller
) -> None:
    asked(cell)
    assert each(cell, 100) == cell.promised(controller)

    cell.kill("p")
    cell.wait_promised(controller, {})


def test_a_volume_that_is_to_be_restored_is_promised_as_large_as_its_backup(
    scene: Scene, cell: Cell, controller: Controller
) -> None:
    """Which the leader reads with the rights of its ServiceAccount."""
    name, url = f"backup-{cell.name}", f"s3://bucket@region/?backup=backup-{cell.name}&volume=any"
    backup = {"apiVersion": f"{paths.GROUP}/{paths.VERSION}", "kind": "Backup", "metadata": {"name": name}}
    scene.api.create(paths.longhorn("backups", NAMESPACE), backup)
    status = {"url": url, "volumeSize": str(300 * GIB)}
    scene.api.patch(f"{paths.longhorn('backups', NAMESPACE, name)}/status", {"status": status})
    cell.claim("c", class_name=cell.add_class("restored", parameters={"fromBackup": url}))
    cell.pod("p", "c", schedulerName=NOBODY)
    assert cell.nodes == cell.filter("p").passed
    assert each(cell, 300) == cell.promised(controller)


def test_a_second_call_of_the_same_pod_takes_the_place_of_the_first_and_ends_by_time(
    cell: Cell, controller: Controller
) -> None:
    """Over TLS, where it is known to be kube-scheduler's."""
    cell.ask("p", schedulerName=NOBODY)
    for node in cell.nodes[:2]:
        assert [node] == cell.filter("p", [node]).passed
    assert {cell.nodes[1]: 100} == cell.promised(controller)
    cell.wait_promised(controller, {})


def test_a_choice_frees_the_other_nodes_and_its_withdrawal_the_chosen_one(
    paused: Scene, cell: Cell, controller: Controller
) -> None:
    asked(cell)
    cell.select("p", cell.nodes[1])
    cell.wait_promised(controller, {cell.nodes[1]: 100})

    cell.select("p", None)
    cell.wait_promised(controller, {})


def test_what_was_held_on_a_node_goes_with_the_node(paused: Scene, cell: Cell, controller: Controller) -> None:
    asked(cell)
    gone = cell.nodes.pop()
    paused.cluster.delete_node(gone)
    paused.api.delete(f"{LONGHORN_NODES.replace('/nodes', '/namespaces/longhorn-system/nodes')}/{gone}")
    cell.wait_promised(controller, each(cell, 100))


def test_a_claim_of_two_pods_is_promised_once(paused: Scene, cell: Cell, controller: Controller) -> None:
    cell.claim("c")
    cell.pod("p", "c")
    cell.wait_chosen(1)
    calls = controller.counted(FILTER_CALLS)
    cell.pod("q", "c")
    # The second pod is filtered too, for the one node that the claim has chosen.
    (node,) = cell.chosen_nodes()
    wait_until(lambda: controller.counted(FILTER_CALLS) > calls, "a filter call for the second pod", 30)
    cell.wait_promised(controller, {node: 100})
    finish(paused, cell, 2)


@pytest.mark.parametrize("kill", [pytest.param(False, marks=pytest.mark.long), True], ids=["SIGTERM", "SIGKILL"])
def test_a_new_leader_knows_what_the_old_one_promised(paused: Scene, pair: Cell, kill: bool) -> None:
    """In the middle of the burst: some pods are chosen, some held, some not asked about."""
    pair.stateful_set(replicas=8)
    pair.wait_chosen(2)
    paused.stop_controllers(kill=kill)
    controller = paused.start_controller()
    pair.wait_chosen(8)
    pair.wait_promised(controller, each(pair, 400))
    finish(paused, pair, 8)


def test_pods_that_wait_for_their_volumes_survive_a_restart_of_kube_scheduler(
    paused: Scene, pair: Cell, controller: Controller
) -> None:
    pair.stateful_set(replicas=8)
    pair.wait_chosen(8)
    chosen = pair.chosen_nodes()
    before = controller.decisions("chosen")
    paused.cluster.restart_scheduler(kill=True)
    controller.wait_decisions("chosen", before + 8)
    assert chosen == pair.chosen_nodes()
    pair.wait_promised(controller, each(pair, 400))
    finish(paused, pair, 8)


def test_a_pod_deleted_during_provisioning_leaves_no_promise_and_the_next_of_its_name_is_asked_about(
    paused: Scene, cell: Cell, controller: Controller
) -> None:
    cell.claim("c")
    cell.pod("p", "c")
    cell.wait_chosen(1)
    (node,) = cell.chosen_nodes()
    cell.kill("p")
    cell.wait_gone("p")
    cell.wait_promised(controller, {})

    cell.pod("p", "c")
    cell.wait_promised(controller, {node: 100})
    finish(paused, cell, 1)


@pytest.mark.long
def test_copies_have_places_before_they_are_attached_and_old_choices_do_not_speak_for_a_set_that_is_made_again(
    scene: Scene, cell: Cell, controller: Controller
) -> None:
    """Planned copies are placed as soon as they appear. The claims of the second set name a node from the start; its
    pods are asked about like any others, and go where their data is."""
    scene.longhorn.resume(Delays(attach=120.0))
    cell.stateful_set(replicas=8)
    cell.wait_bound(8)
    cell.wait_promised(controller, {})
    before = nodes_by_pod(cell)
    assert Counter(before.values()) == copies_by_node(cell)

    cell.delete("statefulsets", "web", propagationPolicy="Background")
    scene.view.wait_for(lambda: not cell.pods(), "end of the pods", 60)
    assert 8 == len(cell.chosen())
    as_chosen = controller.decisions("chosen")
    cell.stateful_set(replicas=8)
    cell.wait_bound(8)
    assert before == nodes_by_pod(cell)
    assert as_chosen == controller.decisions("chosen")
    assert {} == cell.promised(controller)
    cell.clear()
    assert [] == scene.judge(cell).violations
    controller.wait_ledger_empty()


def nodes_by_pod(cell: Cell) -> dict[str, str]:
    return {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in cell.pods()}


def copies_by_node(cell: Cell) -> Counter[str]:
    """How many copies are placed on each of the cell's nodes."""
    replicas = cell.scene.view.all(LONGHORN_REPLICAS)
    return Counter(one["spec"]["nodeID"] for one in replicas if one["spec"].get("nodeID") in cell.nodes)


@pytest.mark.long
def test_a_stateful_set_made_again_finds_its_data_and_needs_no_room(
    scene: Scene, pair: Cell, controller: Controller
) -> None:
    pair.stateful_set(replicas=8)
    pair.wait_ready(8, 120)
    before = nodes_by_pod(pair)
    pair.delete("statefulsets", "web", propagationPolicy="Background")
    scene.view.wait_for(lambda: not pair.pods(), "end of the pods", 60)

    scene.longhorn.pause()
    pair.stateful_set(replicas=8)
    pair.wait_bound(8)
    assert before == nodes_by_pod(pair)
    pair.wait_promised(controller, {})
    finish(scene, pair, 8)


def test_room_held_for_one_pod_is_not_offered_to_another(
    make_cell: Callable[..., Cell], controller: Controller
) -> None:
    cell = make_cell(nodes=1, disks_gib=(150,), fillers=0)
    asked(cell)
    cell.ask("q", schedulerName=NOBODY)
    answer = cell.filter("q")
    assert ([], cell.nodes) == (answer.passed, list(answer.refused))
    assert {cell.nodes[0]: 100} == cell.promised(controller)


def test_a_pod_comes_back_to_a_volume_that_was_kept_where_there_is_no_room_for_another(
    scene: Scene, make_cell: Callable[..., Cell]
) -> None:
    """Its PersistentVolume was kept and made available again, and kube-scheduler binds the new claim to it."""
    cell = make_cell(nodes=1, disks_gib=(150,), fillers=0)
    volume = cell.claim("data")
    cell.pod("p", "data")
    cell.wait_pod_ready("p")
    scene.api.patch(f"{VOLUMES}/{volume}", {"spec": {"persistentVolumeReclaimPolicy": "Retain"}})
    cell.kill("p")
    cell.wait_gone("p")
    cell.delete("persistentvolumeclaims", "data")
    wait_until(lambda: phase(scene, volume) == "Released", "a volume that nobody claims")
    scene.api.patch(f"{VOLUMES}/{volume}", {"spec": {"claimRef": None}})
    wait_until(lambda: phase(scene, volume) == "Available", "a volume that may be claimed")

    cell.ask("data")
    cell.wait_pod_ready("data")
    assert [volume] == [claim["spec"]["volumeName"] for claim in cell.claims()]
    scene.controllers[-1].wait_ledger_empty()
    assert [] == scene.judge(cell).complaints()
    scene.api.patch(f"{VOLUMES}/{volume}", {"spec": {"persistentVolumeReclaimPolicy": "Delete"}})


def phase(scene: Scene, volume: str) -> str:
    return str(scene.api.get(f"{VOLUMES}/{volume}")["status"]["phase"])
