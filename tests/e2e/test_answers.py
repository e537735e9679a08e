"""The three kinds of no, and what the real kube-scheduler makes of each: full, contended, and no answer at all.

Its own retry after a refusal comes after five minutes; whatever runs within ten seconds was woken.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from controller.rules.reasons import Reason
from tests.e2e import workloads
from tests.e2e.harness import WOKEN_SECONDS, Cell, Scene
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

MakeCell = Callable[..., Cell]
RETRY_SECONDS = 11.0
URGENT = "system-cluster-critical"  # every cluster has this priority class


def test_a_pod_for_which_there_is_no_room_is_bound_when_there_is(scene: Scene, make_cell: MakeCell) -> None:
    cell = make_cell(nodes=2, disks_gib=(150,), fillers=0)
    cell.ask("first", "second")
    cell.wait_ready(2)
    scene.controllers[-1].wait_ledger_empty()
    cell.ask("third")
    cell.wait_refused(1)

    verdict = cell.verdict("third")
    assert verdict.startswith("Unschedulable:")
    assert f"2 {Reason.INSUFFICIENT_STORAGE.text}" in verdict
    event, *_ = wait_until(lambda: cell.events("LonghornNoRoom", "third"), "an Event about the pod", 30)
    assert "100 GiB + 100 GiB scheduled exceeds the disk's limit of 150 GiB by 50 GiB" in event["message"]
    assert any(f"2 nodes InsufficientStorage ({node}" in event["message"] for node in cell.nodes)
    # docs/operations.md, Events
    words = [
        "get",
        "events",
        "--all-namespaces",
        "--field-selector",
        "reason=LonghornNoRoom",
        "--sort-by",
        ".lastTimestamp",
    ]
    listed = scene.cluster.kubectl(*words).stdout.splitlines()
    assert [line for line in listed if "LonghornNoRoom" in line and "pod/third" in line]
    assert not [line for line in listed[1:] if "LonghornNoRoom" not in line]
    cell.kill("first")
    cell.delete("persistentvolumeclaims", "first")
    cell.wait_pod_ready("third", WOKEN_SECONDS)
    assert [] == scene.judge(cell).complaints()


def test_a_pod_that_met_a_promise_is_bound_when_the_promise_goes(scene: Scene, make_cell: MakeCell) -> None:
    cell = make_cell(nodes=1, disks_gib=(150,), fillers=0)
    scene.longhorn.pause()
    cell.ask("first")
    cell.wait_chosen(1)
    cell.ask("second")
    cell.wait_refused(1)

    verdict = cell.verdict("second")
    assert verdict.startswith("Unschedulable:")
    assert f"1 {Reason.CONTENDED.text}" in verdict
    cell.kill("first")
    cell.delete("persistentvolumeclaims", "first")
    scene.longhorn.resume()
    cell.wait_pod_ready("second", WOKEN_SECONDS)
    assert [] == scene.judge(cell).complaints()


def test_while_nobody_answers_nothing_is_evicted_and_the_pod_is_bound_afterwards(
    scene: Scene, make_cell: MakeCell
) -> None:
    """An error is no refusal: kube-scheduler asks again by itself, and never thinks of victims."""
    cell = make_cell(nodes=1, fillers=0)
    scene.stop_controllers()
    cell.create("pods", workloads.filler("low", cell.nodes[0], cpu="1", memory="1Gi"))
    cell.ask("high", priorityClassName=URGENT)
    cell.wait_refused(1)
    assert cell.verdict("high").startswith("SchedulerError:")

    scene.start_controller()
    # docs/rules/refusals.md: "kube-scheduler tries again within seconds": its longest back-off is 10 s.
    cell.wait_chosen(1, RETRY_SECONDS)
    cell.wait_pod_ready("high")
    assert {"high", "low"} == {pod["metadata"]["name"] for pod in cell.pods()}
    scene.controllers[-1].wait_ledger_empty()
