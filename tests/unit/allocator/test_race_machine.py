"""Random schedules of a made-up cluster; race_machine.py has the machine and what must hold."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

from tests.unit.allocator.allocating_machine import AllocatingMachine
from tests.unit.allocator.race_machine import RaceMachine

TestRace = RaceMachine.TestCase
TestRace.settings = settings(
    max_examples=60, stateful_step_count=60, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)

TestAllocating = AllocatingMachine.TestCase
TestAllocating.settings = TestRace.settings
