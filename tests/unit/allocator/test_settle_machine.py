"""Random schedules of questions, choices and placements; settle_machine.py has the machine and what must hold."""

from __future__ import annotations

from typing import Final

from hypothesis import HealthCheck, Phase, settings

from tests.unit.allocator.settle_machine import ClosingMachine, OpenSettleMachine, SettleMachine

SETTINGS: Final = settings(
    max_examples=100,
    stateful_step_count=30,
    deadline=None,
    phases=(Phase.reuse, Phase.generate, Phase.shrink),
    suppress_health_check=[HealthCheck.too_slow],
)

TestSettling = SettleMachine.TestCase
TestSettling.settings = SETTINGS

TestSettlingWhileDisksClose = ClosingMachine.TestCase
TestSettlingWhileDisksClose.settings = SETTINGS

TestSettlingWhereAnybodyMayAsk = OpenSettleMachine.TestCase
TestSettlingWhereAnybodyMayAsk.settings = SETTINGS
