"""What is planned for a pod is changed under it: the disk closes, shrinks or is another one, its node goes. The leader
plans anew in the same step, and the copy comes to lie where it is planned then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from tests.e2e.harness import NODES, Cell, Scene, longhorn_node
from tests.e2e.late_volumes import WAIT_SECONDS, PlansSeen, places, told, wait_unplaced
from tests.judge.facts import Spot
from tests.longhorn.options import GIB
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

MakeCell = Callable[..., Cell]
DISK_GIB: Final = 100
VOLUME_GIB: Final = 60  # one on a disk


def disk_of(scene: Scene, spot: Spot) -> str:
    """What the disk is called on its node."""
    shown = scene.api.get(longhorn_node(spot.node))["status"]["diskStatus"]
    return next(str(name) for name, disk in shown.items() if disk["diskUUID"] == spot.uuid)


def change_disk(scene: Scene, spot: Spot, **spec: object) -> None:
    scene.api.patch(longhorn_node(spot.node), {"spec": {"disks": {disk_of(scene, spot): spec}}})


def close(scene: Scene, spot: Spot) -> None:
    change_disk(scene, spot, allowScheduling=False)


def reopen(scene: Scene, spot: Spot) -> None:
    change_disk(scene, spot, allowScheduling=True)


def empty(scene: Scene, spot: Spot) -> None:
    change_disk(scene, spot, allowScheduling=False, evictionRequested=True)


def shrink(scene: Scene, spot: Spot) -> None:
    """A byte more is reserved than the volume leaves."""
    change_disk(scene, spot, storageReserved=(DISK_GIB - VOLUME_GIB) * GIB + 1)


def exchange(scene: Scene, spot: Spot) -> None:
    """Another disk is mounted there."""
    disk = {"diskUUID": f"{spot.uuid}-2"}
    scene.api.patch(f"{longhorn_node(spot.node)}/status", {"status": {"diskStatus": {disk_of(scene, spot): disk}}})


def set_ready(scene: Scene, spot: Spot, status: str) -> None:
    conditions = [{"type": "Ready", "status": status}]
    scene.api.patch(f"{NODES}/{spot.node}/status", {"status": {"conditions": conditions}})


def lose_node(scene: Scene, spot: Spot) -> None:
    set_ready(scene, spot, "False")


def find_node(scene: Scene, spot: Spot) -> None:
    set_ready(scene, spot, "True")


def delete_node(scene: Scene, spot: Spot) -> None:
    scene.api.delete(longhorn_node(spot.node))


def add_node(scene: Scene, spot: Spot) -> None:
    scene.longhorn.add_node(spot.node, (DISK_GIB,), tags=(spot.node.rpartition("-")[0],))


Change = Callable[[Scene, Spot], None]


@pytest.mark.parametrize(
    ("change", "locality", "count", "stays"),
    [
        (close, "strict-local", 1, True),
        (empty, "best-effort", 1, True),
        (shrink, "strict-local", 1, True),
        (exchange, "best-effort", 1, True),
        (lose_node, "best-effort", 1, False),
        (lose_node, "disabled", 2, False),
        (delete_node, "disabled", 2, False),
    ],
)
def test_a_plan_leaves_what_changes_before_the_copy_appears(
    scene: Scene, plans: PlansSeen, make_cell: MakeCell, change: Change, locality: str, count: int, *, stays: bool
) -> None:
    """`stays`: the plan stays on its node."""
    cell = make_cell(nodes=3, disks_gib=(DISK_GIB, DISK_GIB), fillers=0)
    volume = cell.claim("data", VOLUME_GIB, cell.add_class(locality=locality, replicas=count), late=True)
    cell.pod("p", "data")
    former = plans.wait(volume)
    lost = min(former)

    change(scene, lost)
    planned = plans.wait(volume, besides=former)
    assert [former, planned] == plans.of(volume)  # it was never without
    assert former - {lost} == planned & former
    assert count == len(planned)
    assert stays is (planned - former <= {spot for spot in planned if spot.node == lost.node})

    cell.let_come("data")
    cell.wait_ready(1, WAIT_SECONDS)
    wait_until(lambda: planned == places(scene, volume), "copies where they are planned", WAIT_SECONDS)


@pytest.mark.parametrize(
    ("change", "undo", "reasons"),
    [
        (close, reopen, {"LonghornPlaceLost", "LonghornNoPlace"}),
        (lose_node, find_node, {"LonghornPlaceLost", "LonghornNoPlace"}),
        (delete_node, add_node, {"LonghornNoPlace"}),  # nothing is promised on nodes that are not there
    ],
)
def test_a_pod_whose_plan_finds_no_other_disk_is_told_and_runs_once_there_is_room(
    scene: Scene, plans: PlansSeen, make_cell: MakeCell, change: Change, undo: Change, reasons: set[str]
) -> None:
    cell = make_cell(nodes=2, disks_gib=(DISK_GIB,), fillers=0)
    volume = cell.claim("data", VOLUME_GIB, cell.add_class(locality="strict-local"), late=True)
    cell.pod("p", "data")
    (lost,) = plans.wait(volume)

    change(scene, lost)
    (leader,) = scene.controllers
    wait_until(lambda: leader.status()["plans"]["plans"] == 0, "the end of the plan", WAIT_SECONDS)
    cell.let_come("data")
    wait_unplaced(scene, volume)
    wait_until(lambda: reasons <= told(cell, "data"), f"Events {reasons}", WAIT_SECONDS)

    undo(scene, lost)
    cell.wait_ready(1, WAIT_SECONDS)
    assert {lost} == places(scene, volume)


def test_a_disk_that_closes_before_the_next_leader_places_the_copy_is_not_taken(
    scene: Scene, plans: PlansSeen, make_cell: MakeCell
) -> None:
    """The Replica is there and has no node; Longhorn tries to give it one, and is refused."""
    cell = make_cell(nodes=1, disks_gib=(DISK_GIB, DISK_GIB), fillers=0)
    volume = cell.claim("data", VOLUME_GIB, cell.add_class(locality="disabled"), late=True)
    cell.pod("p", "data")
    (lost,) = plans.wait(volume)

    scene.stop_controllers()
    cell.let_come("data")
    wait_unplaced(scene, volume)
    close(scene, lost)
    scene.start_controller()

    cell.wait_ready(1, WAIT_SECONDS)
    (found,) = places(scene, volume)
    assert (lost.node, False) == (found.node, found == lost)
