"""The enhancement text's goals 2, 3A and 3B; `make test-long` has each with its counter-run without the extender.

`make goals` plays them as often as the text asks for, and with the long waits.
"""

from __future__ import annotations

import pytest

from tests.e2e.goals import placing
from tests.e2e.goals.scenario import harmless, not_right, play
from tests.e2e.harness import Scene

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]


def test_goals_are_reached(scene: Scene) -> None:
    assert [] == not_right(play(scene, placing.SEVERAL_VOLUMES, placing.DRAIN, placing.RESTART))
    scene.controllers[-1].wait_ledger_empty()


@pytest.mark.long
def test_goals_are_reached_and_need_the_extender(scene: Scene) -> None:
    runs = play(scene, placing.SEVERAL_VOLUMES, placing.DRAIN, placing.RESTART, runs=1, counters=1)
    assert [] == not_right(runs)
    assert [] == harmless(runs)
    scene.controllers[-1].wait_ledger_empty()


@pytest.mark.long
def test_pods_follow_data_that_longhorn_moved_off_a_node_before_them(scene: Scene) -> None:
    runs = play(scene, placing.DRAIN_AFTER_EVICTION, placing.DRAIN_WHILE_PENDING)
    assert [] == not_right(runs)
    scene.controllers[-1].wait_ledger_empty()
