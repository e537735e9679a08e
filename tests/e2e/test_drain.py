"""Nodes that are drained or cordoned: an exact fit elsewhere, and no room elsewhere at all."""

from __future__ import annotations

import pytest

from tests.e2e.goals import placing
from tests.e2e.goals.scenario import Scenario, not_right, play
from tests.e2e.harness import Scene

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(900)]

# Longer than the node reservation of 5 s, which must not end while Longhorn has not begun to move the data.
LATE_SECONDS = 8.0


@pytest.mark.parametrize(
    "kinds",
    [(placing.EXACT,), (placing.EXACT_RESTORED, placing.EXACT_CLONED)],
    ids=["empty at first", "restored and cloned"],
)
def test_eight_drained_pods_fill_two_nodes_exactly_wherever_their_volumes_came_from(
    scene: Scene, kinds: tuple[Scenario, ...]
) -> None:
    assert [] == not_right(play(scene, *(placing.late(kind, LATE_SECONDS) for kind in kinds)))
    scene.controllers[-1].wait_ledger_empty()


def test_a_pod_whose_node_is_cordoned_runs_away_from_its_data_once_it_waited_long_enough(scene: Scene) -> None:
    assert [] == not_right(play(scene, placing.after_seconds(placing.CORDONED_HOME, 5)))
    scene.controllers[-1].wait_ledger_empty()
