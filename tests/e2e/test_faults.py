"""Faults of the product's own, of which Longhorn must not feel more than some time that passes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from tests.cluster.client import ApiError
from tests.e2e.faulty_placer import FAULT_GIB, HANG_GIB, UNREAD_GIB
from tests.e2e.harness import Cell, Scene
from tests.e2e.placed import REPLICAS, add_class_of_now, gate_state, is_placed_by_leader, replicas
from tests.e2e.programs import Controller
from tests.judge.facts import seconds_of, writer_of
from tests.longhorn.options import GIB
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

YOUNG_SECONDS: Final = 30  # a Replica that is neither placed nor marked is Longhorn's after that
SILENT_SECONDS: Final = 45 - 3  # of the leader, before the gate opens; its last sign of life may come before the copy
WAIT_SECONDS: Final = 120.0


@pytest.fixture
def faulty(scene: Scene) -> Iterator[Controller]:
    scene.stop_controllers()
    yield scene.start_controller(module="tests.e2e.faulty_placer")
    scene.stop_controllers()


@pytest.fixture
def cell(make_cell: Callable[..., Cell]) -> Cell:
    """Two nodes, and a class whose volumes are placed at once."""
    found = make_cell(nodes=2, fillers=0)
    add_class_of_now(found)
    return found


def ask(cell: Cell, *sizes_gib: int) -> None:
    for gib in sizes_gib:
        cell.claim(f"now-{gib}", gib, f"{cell.class_name}-now")


def copy(cell: Cell, gib: int) -> dict[str, Any]:
    """The Replica of that size, once it is there."""

    def found() -> list[dict[str, Any]]:
        return [one for one in replicas(cell.scene) if int(one["spec"]["volumeSize"]) == gib * GIB]

    return wait_until(found, f"a copy of {gib} GiB", WAIT_SECONDS)[0]


def placed(cell: Cell, gib: int) -> dict[str, Any]:
    """The same, once it has a node."""
    wait_until(lambda: copy(cell, gib)["spec"]["nodeID"], f"a place of {gib} GiB", WAIT_SECONDS)
    return copy(cell, gib)


def place_first(leader: Controller, cell: Cell) -> None:
    """A copy without any fault, by which the gate is proven."""
    ask(cell, 10)
    assert is_placed_by_leader(placed(cell, 10))
    wait_until(lambda: gate_state(leader) == "enforced", "a gate that is proven", WAIT_SECONDS)


def assert_closed(cell: Cell, gib: int) -> None:
    """Nobody but the leader may place that copy yet."""
    path = f"{REPLICAS}/{copy(cell, gib)['metadata']['name']}"
    with pytest.raises(ApiError, match="the Longhorn scheduler extender places this replica"):
        cell.scene.api.patch(path, {"spec": {"nodeID": cell.nodes[0]}}, dryRun="All")


def hold(cell: Cell, gib: int) -> None:
    """As the leader marks a copy that waits for room: only a leader that is silent lets Longhorn have it."""
    held = {"metadata": {"annotations": {"scheduling.longhorn.io/held": "2026-01-01T00:00:00Z"}}}
    cell.scene.api.patch(f"{REPLICAS}/{copy(cell, gib)['metadata']['name']}", held)


def waited_seconds(replica: dict[str, Any]) -> float:
    """From its creation to its place, by the API server's clock."""
    created, placed_at = seconds_of(replica["metadata"]["creationTimestamp"]), writer_of(replica)[1]
    assert created is not None
    assert placed_at is not None
    return placed_at - created


def test_copies_that_the_leader_cannot_judge_or_read_are_longhorns_after_a_while_and_no_others(
    faulty: Controller, cell: Cell
) -> None:
    place_first(faulty, cell)
    ask(cell, FAULT_GIB, UNREAD_GIB, 11, 12)

    assert all(is_placed_by_leader(placed(cell, gib)) for gib in (11, 12))
    for gib in (FAULT_GIB, UNREAD_GIB):
        assert_closed(cell, gib)
    wait_until(lambda: faulty.status()["placement"]["waiting"] == {"fault": 1}, "its fault in /status", WAIT_SECONDS)
    assert 1 == faulty.counted('replica_placement_waiting{reason="fault"}')
    assert 1 <= faulty.counted('replica_placements_total{outcome="failed"}')
    assert 1 == faulty.counted('bad_objects{kind="replica"}')

    for gib in (FAULT_GIB, UNREAD_GIB):
        theirs = placed(cell, gib)
        assert not is_placed_by_leader(theirs)
        assert waited_seconds(theirs) >= YOUNG_SECONDS
    assert 1 == faulty.counted("foreign_placements_total")
    ask(cell, 14)
    assert is_placed_by_leader(placed(cell, 14))
    assert "enforced" == gate_state(faulty)


def warnings(scene: Scene) -> list[str]:
    """What Events warn of about the gate."""
    return [one["message"] for one in scene.events("PlacementGate") if one["type"] == "Warning"]


@pytest.mark.long
def test_a_placer_that_hangs_is_told_of_and_leaves_everything_to_longhorn(faulty: Controller, cell: Cell) -> None:
    place_first(faulty, cell)
    ask(cell, HANG_GIB)
    hold(cell, HANG_GIB)
    ask(cell, 11, 12)
    for gib in (HANG_GIB, 11, 12):
        assert_closed(cell, gib)

    for gib in (HANG_GIB, 11, 12):
        assert not is_placed_by_leader(placed(cell, gib))
    assert waited_seconds(placed(cell, HANG_GIB)) >= SILENT_SECONDS
    wait_until(lambda: gate_state(faulty) == "missing", "an open gate in /status", WAIT_SECONDS)
    why = "it is not renewed: the placer has stopped, or what it watches comes late"
    assert why in faulty.status()["placement_gate"]["problem"]
    assert 1 == faulty.counted('gate_state{state="missing"}')
    wait_until(lambda: any(why in text for text in warnings(cell.scene)), "an Event", WAIT_SECONDS)
    assert faulty.status()["is_leading"]
