"""The judge on random worlds: it finds nothing where the leader keeps the rules, and each fault where it has one."""

from __future__ import annotations

import functools

import pytest

from tests.judge.gate_seen import AGED, OPEN
from tests.judge.judge import FURTHER, LOWERED, Found, PlaceFinding, guilt, judge
from tests.judge.random_worlds import LeaderFault, RandomWorld

SEEDS = range(40)
SHOWN_BY = {
    LeaderFault.FORGETS_BYTES: Found.OVER,
    LeaderFault.FORGETS_MARKS: Found.PLANNED,
    LeaderFault.LOADS_NO_PLANS: Found.PLANNED,
    LeaderFault.NO_RECHECK: Found.OVER,
    LeaderFault.NO_GATE: Found.FOREIGN,
}


@functools.cache
def innocent_world(seed: int) -> list[PlaceFinding]:
    return judge(RandomWorld(seed).run())


@pytest.mark.parametrize("seed", SEEDS)
def test_a_leader_that_keeps_the_rules_is_innocent(seed: int) -> None:
    assert [] == list(map(str, guilt(innocent_world(seed))))


def test_the_worlds_are_not_idle() -> None:
    """What can explain a finding there comes up."""
    found = {one.explained for seed in SEEDS for one in innocent_world(seed)}
    assert {OPEN, AGED, FURTHER, LOWERED} == found


@pytest.mark.parametrize("fault", list(LeaderFault), ids=lambda fault: fault.name.lower())
def test_a_fault_is_found(fault: LeaderFault) -> None:
    verdicts = ({one.what for one in guilt(judge(RandomWorld(seed, fault).run()))} for seed in SEEDS)
    assert any(SHOWN_BY[fault] in found for found in verdicts)
