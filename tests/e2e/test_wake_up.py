"""The wake-up on the real kube-scheduler: refused pods come back when there is room, no more of them than it takes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from controller.model.names import WAKE_ANNOTATION, WAKE_CONDITION
from tests.cluster.cache import REPOSITORY
from tests.e2e.harness import GIB, Cell, Scene, has_condition, longhorn_node

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]

MakeCell = Callable[..., Cell]
SAMPLING = "sampling-scheduler"


def refused_by_us(scene: Scene) -> int:
    return int(scene.controllers[-1].status()["refused_pods"])


def wait_refused(scene: Scene, cell: Cell, count: int) -> None:
    """Until that many pods of the cell were refused, and are remembered for the wake-up."""
    cell.wait_refused(count, 120)
    scene.view.wait_for(lambda: refused_by_us(scene) >= count, f"{count} refused pods", 60)
    scene.controllers[-1].wait_idle()


def patches(scene: Scene) -> int:
    return scene.controllers[-1].counted("wakeups_total")


def reserve(cell: Cell, node: str, gib: int) -> None:
    """Keep that much of the node's disk from Longhorn: an event of Longhorn alone, which wakes nobody by itself."""
    cell.scene.api.patch(longhorn_node(node), {"spec": {"disks": {"disk1": {"storageReserved": gib * GIB}}}})


def test_as_many_pods_are_woken_as_a_freed_disk_takes(scene: Scene, make_cell: MakeCell) -> None:
    cell = make_cell(nodes=2, disks_gib=(550,), fillers=0)
    for node in cell.nodes:
        reserve(cell, node, 500)
    cell.ask(*(f"p{number}" for number in range(12)))
    wait_refused(scene, cell, 12)
    before = patches(scene)

    reserve(cell, cell.nodes[0], 0)
    cell.wait_ready(5)
    scene.controllers[-1].wait_ledger_empty()

    assert 5 == len(cell.bound())
    # Not always five: what the first pod's binding changes has kube-scheduler look at all the others by itself.
    assert 1 <= patches(scene) - before <= 6
    assert [] == scene.judge(cell).complaints()


@pytest.mark.long
def test_a_pod_finds_the_node_that_the_sample_of_its_scheduler_did_not_show(
    scene: Scene, make_cell: MakeCell, start_scheduler: Callable[..., str]
) -> None:
    """With 140 nodes and a low percentage, kube-scheduler asks about 100 of them at a time."""
    cell = make_cell(nodes=140, disks_gib=(400,), fillers=0)
    for node in cell.nodes:
        cell.allow_scheduling(node, allowed=False)
    sampling = {**scene.extender_config(), "percentageOfNodesToScore": 5, "profiles": [{"schedulerName": SAMPLING}]}
    start_scheduler(SAMPLING, sampling)
    for number in (20, 120):
        cell.ask(f"p{number}", schedulerName=SAMPLING)
        wait_refused(scene, cell, 1)
        before = patches(scene)
        cell.allow_scheduling(cell.nodes[number], allowed=True)
        cell.wait_pod_ready(f"p{number}", 120)

        (pod,) = [pod for pod in cell.pods() if pod["metadata"]["name"] == f"p{number}"]
        assert cell.nodes[number] == pod["spec"]["nodeName"]
        assert 1 <= patches(scene) - before <= 5
        cell.allow_scheduling(cell.nodes[number], allowed=False)
        scene.controllers[-1].wait_ledger_empty()


@pytest.mark.long
def test_an_annotation_wakes_as_well(scene: Scene, make_cell: MakeCell) -> None:
    allow_patching(scene)
    scene.set_settings(wake_with_annotation="true")
    try:
        cell = make_cell(nodes=1, fillers=0)
        cell.allow_scheduling(cell.nodes[0], allowed=False)
        cell.ask("p")
        wait_refused(scene, cell, 1)
        cell.allow_scheduling(cell.nodes[0], allowed=True)
        cell.wait_pod_ready("p")
    finally:
        scene.set_settings(wake_with_annotation="false")

    (pod,) = cell.pods()
    assert WAKE_ANNOTATION in pod["metadata"]["annotations"]
    assert not has_condition(pod, WAKE_CONDITION, "True")


def allow_patching(scene: Scene) -> None:
    """What the documents tell users to apply for annotations."""
    done = scene.cluster.kubectl("apply", "-f", str(REPOSITORY / "docs" / "examples" / "wake-annotation.yaml"))
    assert done.returncode == 0, done.stderr
