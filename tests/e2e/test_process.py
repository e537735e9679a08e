"""The controller process on a real API server: election, hand-over, crashes. Placement has its own tests."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from tests.cluster.components import LOOPBACK
from tests.e2e.forms import Form, encode
from tests.e2e.harness import Cell, Scene
from tests.e2e.programs import Controller
from tests.e2e.scheduling import NAMESPACE, SERVICE, SERVICE_PORT
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

# docs/operations.md, "What happens when": "another leads within seconds". An abandoned Lease is free after 15.
HAND_OVER_SECONDS = 10.0
START_SECONDS = 60.0


@pytest.fixture
def follower(scene: Scene) -> Iterator[Controller]:
    """A second copy, which knows who leads."""
    leader, copy = scene.controllers[-1], scene.launch_controller()
    wait_until(copy.answers_ready, "a ready follower", START_SECONDS)
    wait_until(lambda: copy.status()["holder"] == leader.status()["identity"], "the leader's name", START_SECONDS)
    yield copy
    scene.stop_controllers()


def endpoints(scene: Scene) -> list[tuple[str, int]]:
    return scene.cluster.services.endpoints(NAMESPACE, SERVICE, SERVICE_PORT)


def test_one_copy_leads_the_other_is_ready_and_answers_nobody(scene: Scene, cell: Cell, follower: Controller) -> None:
    cell.ask("p", schedulerName="nobody")
    assert cell.nodes == cell.filter("p").passed
    body = encode(Form.NAMES, scene.api.get(cell.path("pods", "p")), cell.nodes, {})
    assert 503 == scene.call("/filter", body, address=(LOOPBACK, follower.port)).status
    assert [(scene.controllers[0].ip, SERVICE_PORT)] == endpoints(scene)


def test_a_clean_stop_hands_over_at_once(scene: Scene, follower: Controller) -> None:
    term = scene.controllers[0].status()["term"]
    leader = scene.controllers.pop(0)
    leader.signal(signal.SIGTERM)
    follower.wait_leading(HAND_OVER_SECONDS)
    assert term + 1 == follower.status()["term"]
    assert 0 == leader.exit_code()


def test_a_worker_that_is_killed_takes_up_its_own_lease_again(scene: Scene) -> None:
    (leader,) = scene.controllers
    before = leader.status()
    leader.kill_worker()
    after = leader.status()
    assert (before["identity"], before["term"] + 1) == (after["identity"], after["term"])


def test_an_interrupt_from_a_terminal_ends_the_process_and_empties_the_service(scene: Scene) -> None:
    (leader,) = scene.controllers
    scene.controllers.clear()
    os.killpg(leader.record.pid, signal.SIGINT)
    assert 0 == leader.exit_code()
    try:
        wait_until(lambda: endpoints(scene) == [], "a Service without an endpoint", HAND_OVER_SECONDS)
    except TimeoutError as error:
        raise leader.fail(str(error)) from None


def test_a_setting_that_does_not_fit_is_named_and_the_last_good_value_stays(scene: Scene) -> None:
    leader, name = scene.controllers[-1], "pod-scheduling-timeout"
    try:
        for value, problems in (("7", []), ("soon", [f"scheduler-extender-{name}"])):
            scene.set_settings(**{name: value})
            wait_until(lambda: list(leader.status()["settings_problems"]) == problems, value, START_SECONDS)  # noqa: B023
            wait_until(lambda: leader.status()["settings"]["pod_scheduling_timeout_seconds"] == 7, "7 s", START_SECONDS)
    finally:
        scene.set_settings(**{name: "5"})


def test_a_configuration_that_cannot_work_is_named_and_ends_with_2(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POD_NAME", "p")
    monkeypatch.setenv("POD_IP", "10.0.0.1")
    ended = scene.run("controller", "run", "--threads", "0")
    assert 2 == ended.returncode
    assert " ERROR MainThread controller.process.command_line: --threads: " in ended.stderr


def test_a_worker_that_dies_by_itself_fails_the_test_that_it_dies_in(scene: Scene) -> None:
    """So can the check of every scene."""
    (leader,) = scene.controllers
    os.kill(leader.worker(), signal.SIGKILL)
    wait_until(leader.has_died, "death that is noticed", START_SECONDS)
    with pytest.raises(RuntimeError, match="died although nothing ended it"):
        scene.stop_controllers()
