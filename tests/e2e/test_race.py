"""The race for space on a real kube-scheduler, judged by the API server's history alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.e2e.harness import GIB, STOCK_SCHEDULER, Cell, Scene
from tests.e2e.placed import placers
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


def fill(cell: Cell) -> None:
    """The workload of the enhancement text's first goal: as many pods at once as the cell has room for."""
    cell.stateful_set(replicas=4 * len(cell.nodes))


@pytest.mark.parametrize("run", [1, pytest.param(2, marks=pytest.mark.long)])
def test_sixteen_pods_fill_four_nodes_exactly(scene: Scene, cell: Cell, run: int) -> None:
    fill(cell)
    scene.assert_exactly_full(cell)


@pytest.mark.long
def test_without_the_extender_the_same_workload_is_promised_too_much(scene: Scene, cell: Cell) -> None:
    with scene.longhorn_alone():
        cell.stateful_set(opted_in=False, scheduler=STOCK_SCHEDULER)
        cell.wait_bound(16, 120)
        wait_until(lambda: placers(scene), "places", 60)
        report = scene.judge(cell)
        assert {"others"} == set(placers(scene))

    assert report.violations
    assert any(peak > 400 * GIB for peak in report.peaks().values())


@pytest.mark.long
def test_cells_that_race_at_once_are_all_filled_exactly(scene: Scene, make_cell: Callable[..., Cell]) -> None:
    cells = [make_cell() for _ in range(4)]
    for cell in cells:
        fill(cell)
    scene.assert_exactly_full(*cells)


@pytest.mark.long
def test_the_checker_turns_red_on_a_build_whose_promises_end_by_themselves(
    scene: Scene, make_cell: Callable[..., Cell]
) -> None:
    """More pods than there is room for, and Longhorn slower than those promises last: the rest take what is taken."""
    scene.stop_controllers()
    scene.start_controller(module="tests.e2e.expiring_mutant")
    try:
        cell = make_cell(fillers=0)
        scene.longhorn.pause()
        cell.stateful_set(replicas=20)
        cell.wait_chosen(17, 60)
        assert scene.judge(cell).violations
    finally:
        scene.stop_controllers()
