"""Suspicions about the placer's loop, each the smallest case that would show it."""

from __future__ import annotations

import pytest

from controller.allocator.outcome import TurnStep
from controller.errors import ClusterError
from controller.placement.placer import STUCK_SECONDS
from tests.unit.placement.placer_stage import PlacerStage, turn
from tests.unit.placement.stage import ReplicaCell
from tests.unit.placement.whole_leader import WholeLeader


def test_a_plan_that_leaves_a_disk_is_room_for_those_that_wait_for_some() -> None:
    stage = PlacerStage()
    stage.add("v-r-1", told=turn(TurnStep.WAIT, "v-r-1"))
    stage.go_on(30)
    stage.decides.asked.clear()

    stage.decides.plans = {"other": None}  # its copy is stored
    stage.go_on(1)
    assert [] == stage.decides.asked
    stage.decides.is_freed = True
    stage.go_on(1)

    assert ["v-r-1"] == stage.decides.asked


def test_plans_that_end_with_placement_are_removed() -> None:
    stage = PlacerStage()
    stage.decides.plans, stage.decides.is_on = {"v": None}, False

    stage.round()

    assert [("plan:v", None)] == stage.plans.changes


def test_a_placer_that_may_not_decide_for_long_is_no_sign_of_life() -> None:
    stage = PlacerStage()
    stage.add("v-r-1", told=turn(TurnStep.WAIT, "v-r-1"))
    stage.round()
    stage.checks.is_fresh = False

    stage.go_on(STUCK_SECONDS + 2)

    assert not stage.placer.is_alive()


def test_a_loop_that_fails_again_and_again_is_no_sign_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = PlacerStage()
    stage.round()

    def fail() -> None:
        raise KeyError("a fault of ours")

    monkeypatch.setattr(stage.placer.unplaced, "take", fail)
    for _ in range(int(STUCK_SECONDS) + 1):
        with pytest.raises(KeyError):
            stage.round(1)

    assert not stage.placer.is_alive()


def test_a_config_map_that_the_cluster_does_not_take_keeps_no_leader_from_its_term() -> None:
    leader = WholeLeader(ReplicaCell(n1=100))
    leader.terms.fence(1)
    leader.cell.api.fail_with(ClusterError("HTTP 422: denied"), "create")

    assert () == leader.terms.load(1).plans
