"""Random schedules of a made-up cluster: race_machine.py and allocating_machine.py have watches that lag behind,
settle_machine.py questions, choices and placements whose events are delivered at once. There is what must hold."""

from __future__ import annotations

from typing import Final

from hypothesis import HealthCheck, Phase, settings

from tests.unit.allocator.allocating_machine import AllocatingMachine
from tests.unit.allocator.race_machine import RaceMachine
from tests.unit.allocator.settle_machine import ClosingMachine, OpenSettleMachine, SettleMachine

LAGGING: Final = settings(
    max_examples=60, stateful_step_count=60, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
AT_ONCE: Final = settings(
    max_examples=100,
    stateful_step_count=30,
    deadline=None,
    phases=(Phase.reuse, Phase.generate, Phase.shrink),
    suppress_health_check=[HealthCheck.too_slow],
)

TestRace = RaceMachine.TestCase
TestAllocating = AllocatingMachine.TestCase
TestRace.settings = TestAllocating.settings = LAGGING

TestSettling = SettleMachine.TestCase
TestSettlingWhileDisksClose = ClosingMachine.TestCase
TestSettlingWhereAnybodyMayAsk = OpenSettleMachine.TestCase
TestSettling.settings = TestSettlingWhileDisksClose.settings = TestSettlingWhereAnybodyMayAsk.settings = AT_ONCE
