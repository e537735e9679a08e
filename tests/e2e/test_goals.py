"""The enhancement text's goals 2, 3A and 3B.

`make goals`, which is a part of `make test-long`, plays these and all others as often as the text asks for, with the
long waits, and with their counter-runs without the extender.
"""

from __future__ import annotations

import pytest

from tests.e2e.goals import placing
from tests.e2e.goals.scenario import not_right, play
from tests.e2e.harness import Scene

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]


def test_goals_are_reached(scene: Scene) -> None:
    assert [] == not_right(play(scene, placing.SEVERAL_VOLUMES, placing.DRAIN, placing.RESTART))
    scene.controllers[-1].wait_ledger_empty()
