"""Placing goes on through the ends of leaders and of Longhorn, and the gate follows the leader and the settings. What
counts is read from the API server: who wrote a Replica's node, and what lies on each disk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from tests.e2e.harness import CONFIG_MAP, GATE_ACCOUNT, GATE_BINDING, STOCK_SCHEDULER, Cell, Scene
from tests.e2e.placed import fills, gate_state, placers, replicas
from tests.e2e.programs import QUICK_LEASE, Controller
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

WAIT_SECONDS: Final = 120.0


@pytest.fixture
def scene(late_scene: Scene) -> Scene:
    return late_scene


def test_placing_goes_on_while_longhorn_stands_still_and_nothing_is_placed_twice(
    scene: Scene, leader: Controller, make_bare_cell: Callable[..., Cell]
) -> None:
    cell = make_bare_cell(disks_gib=(400,))
    cell.stateful_set(replicas=8, gib=100)
    wait_until(lambda: len(replicas(scene)) >= 2, "the first copies", WAIT_SECONDS)

    scene.longhorn.pause()
    wait_until(lambda: all(one["spec"].get("nodeID") for one in replicas(scene)), "places of all of them", 30.0)
    scene.longhorn.go_on()

    cell.wait_ready(8, WAIT_SECONDS)
    assert {"leader"} == set(placers(scene))


def test_longhorn_that_is_killed_in_a_burst_goes_on_from_the_places_that_it_finds(
    scene: Scene, leader: Controller, make_bare_cell: Callable[..., Cell]
) -> None:
    cell = make_bare_cell(disks_gib=(400,))
    cell.stateful_set(replicas=16, gib=100)
    wait_until(lambda: placers(scene)["leader"] >= 4, "the first places", WAIT_SECONDS)

    scene.longhorn.pause(kill=True)
    scene.longhorn.go_on()

    assert_full(scene, cell)


def fill(scene: Scene, make_bare_cell: Callable[..., Cell], first: int) -> tuple[Cell, Controller]:
    """Sixteen volumes that fill four disks, and a second copy of the product; once so many of them have a place."""
    cell = make_bare_cell(disks_gib=(400,))
    other = scene.launch_controller(flags=QUICK_LEASE)
    wait_until(other.answers_ready, "a second copy that is ready", WAIT_SECONDS)
    cell.stateful_set(replicas=16, gib=100)
    wait_until(lambda: placers(scene)["leader"] >= first, "the first places", WAIT_SECONDS)
    return cell, other


def assert_full(scene: Scene, cell: Cell) -> None:
    """All sixteen run, on disks that are exactly full, by places that a leader gave."""
    cell.wait_ready(16, WAIT_SECONDS)
    assert {"leader"} == set(placers(scene))
    assert {400} == set(fills(scene).values())


def test_a_leader_that_is_killed_is_followed_by_one_that_places_on(
    scene: Scene, leader: Controller, make_bare_cell: Callable[..., Cell]
) -> None:
    cell, _ = fill(scene, make_bare_cell, 4)

    scene.kill(leader)

    assert_full(scene, cell)


def test_a_leader_that_was_suspended_places_nothing_of_its_former_term(
    scene: Scene, leader: Controller, make_bare_cell: Callable[..., Cell]
) -> None:
    cell, other = fill(scene, make_bare_cell, 2)

    leader.freeze()
    wait_until(lambda: bool(other.status()["is_leading"]), "another leader", WAIT_SECONDS)
    leader.thaw()

    assert_full(scene, cell)


def test_longhorn_goes_on_alone_once_everything_of_ours_is_gone_for_good(
    scene: Scene, leader: Controller, make_bare_cell: Callable[..., Cell]
) -> None:
    cell = make_bare_cell(disks_gib=(400,))
    cell.stateful_set("asked", replicas=4, gib=40)
    cell.stateful_set("free", replicas=4, gib=40, opted_in=False, scheduler=STOCK_SCHEDULER)
    cell.wait_bound(4, WAIT_SECONDS)

    scene.kill(leader)

    bound = {pod["metadata"]["name"] for pod in cell.bound()}
    free = {f"free-{number}" for number in range(4)}
    for name in sorted(bound | free):
        cell.wait_pod_ready(name, WAIT_SECONDS)


def test_the_gates_binding_is_made_again_and_its_stamps_too(
    scene: Scene, leader: Controller, make_bare_cell: Callable[..., Cell]
) -> None:
    cell = make_bare_cell(disks_gib=(400,))
    cell.stateful_set(replicas=1, gib=40)
    cell.wait_ready(1, WAIT_SECONDS)
    wait_until(lambda: gate_state(leader) == "enforced", "a gate that is proven", WAIT_SECONDS)

    scene.api.delete(GATE_BINDING)
    wait_until(lambda: scene.api.get_or_none(GATE_BINDING) is not None, "the binding again", 5.0)

    scene.api.patch(
        GATE_ACCOUNT, {"metadata": {"annotations": {"scheduling.longhorn.io/renewed": "2031-01-01T00:00:00Z"}}}
    )
    wait_until(
        lambda: scene.api.get(GATE_ACCOUNT)["metadata"]["annotations"]["scheduling.longhorn.io/renewed"] < "2031",
        "stamps of the leader",
        10.0,
    )


@pytest.mark.parametrize("settings", [{"bypass": "true"}, {"placement": "longhorn"}, {"placement": "audit"}], ids=str)
def test_the_gate_is_opened_by_a_setting_within_two_seconds_and_closed_again(
    scene: Scene, leader: Controller, settings: dict[str, str]
) -> None:
    wait_until(lambda: scene.api.get_or_none(GATE_BINDING) is not None, "the binding", 30.0)

    def refuses() -> bool:
        found = scene.api.get_or_none(GATE_BINDING)
        return found is not None and found["spec"]["validationActions"] == ["Deny"]

    scene.api.patch(CONFIG_MAP, {"data": {f"scheduler-extender-{key}": value for key, value in settings.items()}})
    wait_until(lambda: not refuses(), "an open gate", 3.0)
    scene.api.patch(CONFIG_MAP, {"data": {f"scheduler-extender-{key}": None for key in settings}})
    wait_until(refuses, "a gate that refuses", 10.0)
