"""Ways in and out: bypass, a scheduler that may ignore us, the enhancement text's own configuration."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from tests.cluster.client import Object, ignored_when_gone
from tests.e2e import scheduling, workloads
from tests.e2e.harness import CONFIG_MAP as PATH
from tests.e2e.harness import Cell, Scene
from tests.e2e.scheduling import SERVICE
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

# docs/operations.md, "Let everything through now": "The gate opens within 2 s".
BYPASS_SECONDS = 10.0
MANY = 16
CONFIG_MAP = ("configmap", "longhorn-scheduler-extender", "-n", "longhorn-system")
ENABLED = "scheduler-extender-enabled"
TOLD_SECONDS = 20.0


def test_one_patch_to_bypass_lets_all_refused_pods_through(scene: Scene, make_cell: Callable[..., Cell]) -> None:
    cell = make_cell(disks_gib=(10,), fillers=0)
    cell.stateful_set(replicas=MANY)
    cell.wait_refused(MANY, 120)
    scene.controllers[-1].wait_idle()  # as pods are that were refused a while ago: out of kube-scheduler's back-off

    patch = {"data": {"scheduler-extender-bypass": "true"}}
    done = scene.cluster.kubectl("patch", *CONFIG_MAP, "--type=merge", "-p", json.dumps(patch))
    assert 0 == done.returncode, done.stderr
    try:
        cell.wait_chosen(MANY, BYPASS_SECONDS)
        cell.wait_bound(MANY)  # once Longhorn has made the volumes
        scene.controllers[-1].wait_ledger_empty()
    finally:
        scene.set_settings(bypass="false")


@pytest.mark.long
def test_bypass_that_was_set_while_nobody_led_lets_all_through_who_wait(
    scene: Scene, make_cell: Callable[..., Cell]
) -> None:
    cell = make_cell(disks_gib=(10,), fillers=0)
    cell.stateful_set(replicas=8)
    cell.wait_refused(8)
    scene.controllers[-1].wait_idle()
    scene.stop_controllers()
    scene.set_settings(bypass="true")
    try:
        scene.start_controller()
        cell.wait_chosen(8, BYPASS_SECONDS)
        assert "Warning" == told_of_settings(scene, "Mode bypass: ")["type"]
    finally:
        scene.set_settings(bypass="false")


@pytest.fixture
def mistakes(scene: Scene) -> Iterator[Scene]:
    """For tests that spoil the ConfigMap: it is made anew afterwards."""
    kept = scene.api.get(PATH)
    yield scene
    with ignored_when_gone():
        scene.api.delete(PATH)
    meta = {"name": kept["metadata"]["name"]}
    scene.api.create(PATH.rpartition("/")[0], {**kept, "metadata": meta})
    scene.stop_controllers()


def told_of_settings(scene: Scene, text: str) -> Object:
    """The Event about the ConfigMap that has these words."""

    def found() -> list[Object]:
        about = [event for event in scene.events() if event["involvedObject"]["kind"] == "ConfigMap"]
        return [event for event in about if event["involvedObject"]["name"] == SERVICE and text in event["message"]]

    return wait_until(found, f"an Event about the ConfigMap that says {text!r}", TOLD_SECONDS)[0]


def mode_and_answer(scene: Scene, cell: Cell, pod: str) -> tuple[str, int, list[str]]:
    """The present leader's mode, and what it answers about that pod: HTTP status and nodes."""
    answer = cell.filter(pod)
    return str(scene.controllers[-1].status()["mode"]), answer.status, answer.passed


@pytest.mark.parametrize("mistake", [pytest.param("unreadable", marks=pytest.mark.long), "gone"])
def test_no_mistake_in_the_config_map_switches_protection_off(
    mistakes: Scene, make_cell: Callable[..., Cell], mistake: str
) -> None:
    """Neither for the leader that has read it before, nor for a process that comes after."""
    scene, cell = mistakes, make_cell(nodes=1, disks_gib=(10,), fillers=0)
    cell.ask("large")
    cell.wait_refused(1)
    if mistake == "gone":
        scene.api.delete(PATH)
        problem = f"{ENABLED}: is not set because there is no ConfigMap; "
    else:
        scene.set_settings(enabled="maybe")
        problem = f"{ENABLED}: 'maybe' is not a boolean; "

    assert "Warning" == told_of_settings(scene, f"{problem}true stays in force")["type"]
    wait_until(
        lambda: 1 == scene.controllers[-1].counted("settings_problems"), "one problem that is counted", TOLD_SECONDS
    )
    assert ("active", 200, []) == mode_and_answer(scene, cell, "large")

    scene.stop_controllers()
    scene.start_controller()
    assert told_of_settings(scene, f"{problem}until it is, every call is answered by an error")
    assert told_of_settings(scene, "Mode unknown: ")
    assert ("unknown", 503, []) == mode_and_answer(scene, cell, "large")
    assert not cell.bound()

    if mistake == "gone":
        meta = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": SERVICE}}
        scene.api.create(PATH.rpartition("/")[0], {**meta, "data": {ENABLED: "true"}})
    else:
        scene.set_settings(enabled="true")
    wait_until(lambda: mode_and_answer(scene, cell, "large") == ("active", 200, []), "the former state", TOLD_SECONDS)
    assert "Normal" == told_of_settings(scene, "Mode active: ")["type"]


@pytest.mark.long
def test_pods_pass_a_scheduler_that_may_ignore_an_extender_that_is_away(
    scene: Scene, cell: Cell, start_scheduler: Callable[..., str]
) -> None:
    scene.stop_controllers()
    cell.stateful_set(scheduler=start_scheduler("forgiving-scheduler", ignorable=True))
    cell.wait_bound(16)


@pytest.mark.long
def test_the_configuration_of_the_enhancement_text_works_word_for_word(
    scene: Scene, make_cell: Callable[..., Cell]
) -> None:
    if scene.cluster.services.dns is None:
        pytest.skip("this machine has one loopback address only, so there is no cluster DNS")
    with scene.plain_http() as leader:
        scene.cluster.restart_scheduler(scheduling.PROPOSAL_WORD_FOR_WORD)
        cell = make_cell()
        cell.stateful_set()
        scene.assert_exactly_full(cell)
        told = "whoever reaches it is taken for kube-scheduler"
        assert [event for event in scene.events("PlainHTTP") if told in event["message"]]
        assert told in leader.status()["transport"]["gives_up"]
        assert told in leader.log.read_text()


def test_a_pod_that_does_not_exist_gets_an_error_and_holds_nothing(scene: Scene, cell: Cell) -> None:
    ghost = workloads.pod("ghost", "c")
    ghost["metadata"] |= {"namespace": cell.namespace, "uid": "u"}
    answer = scene.filter(ghost, cell.nodes)
    assert (200, []) == (answer.status, answer.passed)
    assert "does not exist" in answer.body["Error"]
    scene.controllers[-1].wait_ledger_empty(0)
