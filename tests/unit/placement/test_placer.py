"""Which Replicas the placer asks about, and when; what becomes of its writes; and what it tells."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from controller.allocator.outcome import REASONS, Mode, ReplicaTurn, TurnStep, Why
from controller.allocator.plans.plan import Plan
from controller.errors import (
    ClusterError,
    ConflictError,
    ForbiddenError,
    MalformedRequestError,
    SchedulerError,
    UnavailableError,
)
from controller.kube.resources import LONGHORN_REPLICAS
from controller.kube.store import Change
from controller.model.names import HELD_ANNOTATION, LEFT_ANNOTATION
from controller.model.times import rfc3339
from controller.placement.metrics import PlacementMetrics
from controller.placement.placer import (
    BACKOFF_SECONDS,
    EVERY_SECONDS,
    FOREIGN_EVERY_SECONDS,
    FOREIGN_TEXT,
    IDLE_SECONDS,
    LATE_SECONDS,
    MOST_REST_SECONDS,
    MOST_WRITES,
    ROUND_SECONDS,
    SHOWN,
    SHOWN_FOREIGN,
    STUCK_SECONDS,
    YOUNG_SECONDS,
    Placer,
)
from controller.placement.plan_entries import Entry
from controller.placement.plan_objects import PlanFigures
from controller.placement.writes import ARRIVES_SECONDS, DOUBT_SECONDS, HUNG_SECONDS, KEPT_SECONDS, PlacementOutcome
from controller.process.common_metrics import PREFIX
from controller.rules.placing import Wait
from tests.fakes.builders import replica, volume
from tests.fakes.clock import TickingClock
from tests.unit.placement.gate_stage import GateCell, GateLeader
from tests.unit.placement.placer_stage import NAMESPACE, PlacerStage, place_write, put_replica, turn, volume_of
from tests.unit.placement.plan_stage import hold, plan
from tests.waiting import wait_until

NO_ROOM = turn(TurnStep.WAIT, "v-r-1")


@pytest.fixture
def stage() -> PlacerStage:
    return PlacerStage()


def change_of(name: str) -> Change[Any]:
    """Something has happened to that volume."""
    return Change(name, None, volume(name))


# Whether it places at all


def test_what_appears_is_placed_in_the_next_turn_and_the_allocator_hears_that_it_is_stored(stage: PlacerStage) -> None:
    stage.add("v-r-1")
    assert EVERY_SECONDS == stage.round()
    assert ("n1", [("stored", "v-r-1", "n1")]) == (stage.node_of("v-r-1"), stage.decides.ended)
    assert {"placed": 1} == stage.outcomes


def follows(stage: PlacerStage) -> None:
    stage.checks.is_leading = False


def is_switched_off(stage: PlacerStage) -> None:
    stage.decides.is_on = False


def has_old_stores(stage: PlacerStage) -> None:
    stage.checks.is_fresh = False


def is_closed(stage: PlacerStage) -> None:
    stage.checks.mode = Mode.CLOSED


@pytest.mark.parametrize(
    ("spoil", "is_on", "problem", "pause"),
    [
        (follows, False, "", IDLE_SECONDS),
        (is_switched_off, False, "", EVERY_SECONDS),
        (has_old_stores, True, "what is known of claim is too old", EVERY_SECONDS),
    ],
)
def test_nothing_is_decided_or_written_while_it_may_not_and_then_all_that_came_meanwhile(
    stage: PlacerStage, spoil: Callable[[PlacerStage], None], is_on: bool, problem: str, pause: float
) -> None:
    stage.add("v-r-1")
    spoil(stage)
    assert pause == stage.round()
    assert ([], "") == (stage.decides.asked, stage.node_of("v-r-1"))
    assert (is_on, problem) == (stage.status["is_on"], stage.status["problem"])
    stage.add("w-r-1")
    stage.checks.is_leading = stage.checks.is_fresh = stage.decides.is_on = True
    stage.round(pause)
    assert ["v-r-1", "w-r-1"] == stage.decides.asked
    assert ("", True) == (stage.status["problem"], stage.status["is_on"])


def test_nothing_is_decided_where_the_mode_forbids_it(stage: PlacerStage) -> None:
    stage.add("v-r-1")
    is_closed(stage)
    stage.round()
    assert ([], "", True) == (stage.decides.asked, stage.node_of("v-r-1"), stage.status["is_on"])


def test_what_another_term_has_decided_is_not_written(stage: PlacerStage) -> None:
    stage.writers.is_late = True
    stage.add("v-r-1")
    stage.round()
    stage.checks.term += 1
    stage.writers.go_on()
    assert ("", [("failed", "v-r-1", "")]) == (stage.node_of("v-r-1"), stage.decides.ended)


@pytest.mark.parametrize("spoil", [follows, is_switched_off])
def test_who_does_not_place_has_nothing_that_waits(stage: PlacerStage, spoil: Callable[[PlacerStage], None]) -> None:
    stage.add("v-r-1", told=NO_ROOM)
    stage.round()
    spoil(stage)
    stage.round(5)
    assert ({}, ()) == (stage.status["waiting"], stage.status["replicas"])
    stage.checks.is_leading = stage.decides.is_on = True
    stage.round(5)
    assert 0.0 == stage.status["replicas"][0]["waiting_seconds"]


# The order of decisions


def test_none_that_waits_for_room_loses_it_to_a_later_one(stage: PlacerStage) -> None:
    stage.add("v-r-1", told=NO_ROOM)
    stage.go_on(5)
    stage.decides.asked.clear()
    stage.clock.advance(1)
    stage.add("a-r-1")
    stage.placer.unplaced.room_came()
    stage.round()
    assert ["v-r-1", "a-r-1"] == stage.decides.asked


def test_a_round_has_an_end_and_the_next_one_begins_with_the_others(stage: PlacerStage) -> None:
    stage.decides.costs = lambda: stage.clock.advance(ROUND_SECONDS / 4)
    names = [f"v{number}-r-1" for number in range(12)]
    stage.add(*names)
    stage.round()
    assert names[:5] == stage.decides.asked
    stage.round()
    assert names[:10] == stage.decides.asked


def test_a_fault_about_one_keeps_no_other_from_its_place_and_is_asked_about_again_after_a_while(
    stage: PlacerStage, caplog: pytest.LogCaptureFixture
) -> None:
    bad = [f"bad{number}-r-1" for number in range(3)]
    stage.add(*bad, told=KeyError("unheard of"))
    stage.add("good-r-1")
    stage.round()
    assert ("n1", {"failed": 3, "placed": 1}) == (stage.node_of("good-r-1"), stage.outcomes)
    assert {Why.FAULT: 3, Why.WRITTEN: 1} == stage.status["waiting"]
    assert "no decision about replica=bad0-r-1" in caplog.text
    assert stage.placer.is_alive()
    del stage.decides.turns[bad[0]]
    stage.round(BACKOFF_SECONDS[1] - 0.1)
    assert "" == stage.node_of(bad[0])
    stage.round(0.1)
    assert "n1" == stage.node_of(bad[0])


# Looked at again


def test_while_it_is_young_it_is_looked_at_as_often_as_was_said_and_less_and_less_often_then(
    stage: PlacerStage,
) -> None:
    stage.add("v-r-1", told=NO_ROOM)
    asked = stage.go_on(60)
    pauses = [round(after - before) for before, after in pairwise(asked)]
    assert [1] * int(YOUNG_SECONDS) == pauses[: int(YOUNG_SECONDS)]
    assert {BACKOFF_SECONDS[1]} == set(pauses[int(YOUNG_SECONDS) :])


def test_another_reason_begins_the_pauses_anew(stage: PlacerStage) -> None:
    stage.add("v-r-1", told=NO_ROOM)
    stage.go_on(60)
    stage.decides.turns["v-r-1"] = turn(TurnStep.WAIT, "v-r-1", Wait.NOT_ATTACHED)
    stage.round(BACKOFF_SECONDS[1])
    asked = stage.go_on(16)
    assert [1, 2, 4, 8] == [round(after - before) for before, after in pairwise([0.0, *asked])]


def test_what_is_due_at_a_known_time_is_not_looked_at_before(stage: PlacerStage) -> None:
    stage.add("v-r-1", told=turn(TurnStep.WAIT, "v-r-1", Wait.REPLACEMENT, seconds=25))
    assert [0, 25, 50] == [round(at) for at in stage.go_on(60)]


def test_it_is_looked_at_as_soon_as_something_happens_to_it_or_its_volume(stage: PlacerStage) -> None:
    stage.add("v-r-1", "w-r-1", told=NO_ROOM)
    stage.go_on(30)
    stage.decides.asked.clear()
    stage.placer.unplaced.volumes_changed([change_of("v")])
    stage.round()
    stage.placer.unplaced.volume_planned("w")
    stage.round()
    assert ["v-r-1", "w-r-1"] == stage.decides.asked


def test_a_plan_that_leaves_a_disk_is_room_for_those_that_wait_for_some(stage: PlacerStage) -> None:
    stage.add("v-r-1", told=NO_ROOM)
    stage.go_on(30)
    stage.decides.asked.clear()
    stage.decides.plans = {"other": None}  # its copy is stored
    stage.go_on(1)
    assert [] == stage.decides.asked
    stage.decides.is_freed = True
    stage.go_on(1)
    assert ["v-r-1"] == stage.decides.asked


@pytest.mark.parametrize("reason", REASONS)
def test_room_that_came_is_a_reason_for_those_alone_that_wait_for_some(stage: PlacerStage, reason: str) -> None:
    stage.add("v-r-1", told=turn(TurnStep.WAIT, "v-r-1", reason))
    stage.go_on(30)
    stage.decides.asked.clear()
    stage.placer.unplaced.room_came()
    stage.round()
    assert (reason in (Why.NO_ROOM, Wait.REUSE, Wait.REPLACEMENT)) is (["v-r-1"] == stage.decides.asked)


def test_repeated_looks_that_take_long_are_followed_by_a_rest_and_a_new_one_does_not_wait_for_it() -> None:
    stage = PlacerStage(TickingClock(0.1))
    stage.add("v-r-1", told=NO_ROOM)
    stage.round()
    stage.round(BACKOFF_SECONDS[0])
    stage.round(BACKOFF_SECONDS[0])
    stage.decides.asked.clear()
    stage.placer.unplaced.room_came()
    stage.add("w-r-1", told=ReplicaTurn(TurnStep.NOTHING))
    stage.round()
    assert ["w-r-1"] == stage.decides.asked
    stage.round(MOST_REST_SECONDS)
    assert ["w-r-1", "v-r-1"] == stage.decides.asked


def test_many_without_room_leave_most_of_the_time_to_others_and_none_of_them_is_left_out(stage: PlacerStage) -> None:
    names = [f"v{number}-r-1" for number in range(50)]
    stage.add(*names, told=NO_ROOM)
    stage.decides.costs = lambda: stage.clock.advance(0.25)
    stage.go_on(YOUNG_SECONDS)
    stage.decides.asked.clear()
    stage.go_on(600)
    busy = 0.25 * len(stage.decides.asked) / 600
    counts = [stage.decides.asked.count(name) for name in names]
    assert 0.15 < busy < 0.25
    assert max(counts) <= 1 + min(counts)


def test_what_is_gone_or_has_a_node_is_not_looked_at_any_more(stage: PlacerStage) -> None:
    stage.add("v-r-1", told=NO_ROOM)
    stage.round()
    stage.drop("v-r-1")
    assert [] == stage.go_on(30)
    assert () == stage.status["replicas"]


# Side by side


def test_writes_are_made_side_by_side_and_no_more_than_so_many(stage: PlacerStage) -> None:
    stage.writers.is_late = True
    names = [f"v{number}-r-1" for number in range(MOST_WRITES + 3)]
    stage.add(*names)
    stage.round()
    assert (MOST_WRITES, MOST_WRITES) == (len(stage.decides.asked), stage.figures.writing)
    stage.round()
    assert MOST_WRITES == len(stage.decides.asked)
    stage.writers.go_on()
    stage.round()
    assert names == stage.decides.asked


def test_what_is_being_written_is_not_decided_again(stage: PlacerStage) -> None:
    stage.writers.is_late = True
    stage.add("v-r-1")
    stage.round()
    stage.placer.unplaced.volumes_changed([change_of("v")])
    for _ in range(20):
        stage.round(1)
    assert ["v-r-1"] == stage.decides.asked


def test_its_threads_write_what_is_decided_and_end_with_it() -> None:
    stage = PlacerStage()
    placer = Placer(
        stage.decides,
        stage.placer._writes._objects,
        stage.plans,
        lambda: stage.checks,
        stage.clock,
        now_utc=stage.clock.now_utc,
        is_leading=lambda: True,
        tell=lambda *told: stage.told.append(told),
        explains=stage.explains,
    )
    stage.placer = placer
    placer.start()
    try:
        stage.add("v-r-1", "w-r-1")
        wait_until(lambda: 2 == len(stage.decides.ended), "both writes")
    finally:
        placer.stop()
    assert {("stored", "v-r-1", "n1"), ("stored", "w-r-1", "n1")} == set(stage.decides.ended)
    assert not placer._writes._writers._threads or not any(one.is_alive() for one in placer._writes._writers._threads)


# What became of a write


def test_a_place_that_somebody_else_has_given_meanwhile_stands(stage: PlacerStage) -> None:
    stage.add("v-r-1")
    stage.place("v-r-1", "n9")
    stage.round()
    assert ("n9", [("failed", "v-r-1", "n9")]) == (stage.node_of("v-r-1"), stage.decides.ended)
    assert {"placed-by-others": 1} == stage.outcomes


def test_a_conflict_of_what_has_no_place_yet_is_tried_again(stage: PlacerStage) -> None:
    stage.add("v-r-1")
    stage.api.fail_with(ConflictError("409"), "patch")
    stage.round()
    assert ([("failed", "v-r-1", "")], {}) == (stage.decides.ended, stage.outcomes)
    stage.api.work()
    stage.round(BACKOFF_SECONDS[0] / 2)
    assert "" == stage.node_of("v-r-1")
    stage.round(BACKOFF_SECONDS[0] / 2)
    assert "n1" == stage.node_of("v-r-1")


def test_what_is_gone_by_then_is_said_to_be(stage: PlacerStage) -> None:
    stage.add("v-r-1")
    stage.api.delete(LONGHORN_REPLICAS, NAMESPACE, "v-r-1")
    stage.round()
    assert ([("failed", "v-r-1", None)], {}) == (stage.decides.ended, stage.outcomes)


def test_a_refused_place_is_counted_told_and_tried_again_less_and_less_often(
    stage: PlacerStage, caplog: pytest.LogCaptureFixture
) -> None:
    stage.add("v-r-1")
    stage.api.fail_with(ForbiddenError("403: not allowed to patch replicas"), "patch")
    asked = stage.go_on(60)
    pauses = [after - before for before, after in pairwise(asked)]
    assert {("failed", "v-r-1", "")} == set(stage.decides.ended)
    assert {"failed": len(asked)} == stage.outcomes
    assert list(BACKOFF_SECONDS) == [round(pauses[0]), round(pauses[-1])]
    assert "place refused replica=v-r-1 volume=v: 403: not allowed to patch replicas" in caplog.text


LOST = [UnavailableError("no answer"), MalformedRequestError("spec.nodeID", "is not text")]


@pytest.mark.parametrize("error", LOST, ids=str)
def test_a_write_that_arrived_without_an_answer_is_stored(stage: PlacerStage, error: SchedulerError) -> None:
    patch: Any = stage.api.patch

    def lost(*arguments: Any, **more: Any) -> Any:
        patch(*arguments, **more)
        raise error

    stage.api.patch = lost  # type: ignore[method-assign]
    stage.add("v-r-1")
    stage.round()
    assert [("stored", "v-r-1", "n1")] == stage.decides.ended
    assert 0 == stage.ending.waits


@pytest.mark.parametrize("error", LOST, ids=str)
def test_one_that_did_not_arrive_counts_until_it_cannot_any_more(stage: PlacerStage, error: SchedulerError) -> None:
    stage.api.fail_with(error, "patch")
    stage.add("v-r-1")
    began, ended = stage.clock.now(), list[int]()
    stage.ending.meanwhile = lambda: ended.append(len(stage.decides.ended))
    stage.round()
    assert {0} == set(ended)
    assert ([("failed", "v-r-1", "")], ARRIVES_SECONDS) == (stage.decides.ended, stage.clock.now() - began)


def test_one_that_arrives_late_is_stored_all_the_same(stage: PlacerStage) -> None:
    stage.api.fail_with(UnavailableError("no answer"), "patch")
    stage.add("v-r-1")

    def arrives() -> None:
        if 3 == stage.ending.waits:
            stage.api.work()
            stage.place("v-r-1", "n1")

    stage.ending.meanwhile = arrives
    stage.round()
    assert ([("stored", "v-r-1", "n1")], 3) == (stage.decides.ended, stage.ending.waits)


def placed_elsewhere(stage: PlacerStage) -> None:
    stage.place("v-r-1", "n9")


def gone(stage: PlacerStage) -> None:
    stage.api.delete(LONGHORN_REPLICAS, NAMESPACE, "v-r-1")


def made_again(stage: PlacerStage) -> None:
    put_replica(stage.api, "v-r-1", {"uid": "another"})


@pytest.mark.parametrize("error", [ForbiddenError("403: not allowed"), ClusterError("422: invalid")], ids=str)
def test_a_held_copy_whose_place_is_refused_is_let_go_at_once(stage: PlacerStage, error: ClusterError) -> None:
    stage.add("v-r-1", told=turn(TurnStep.HOLD, "v-r-1"))
    stage.round()
    write = place_write("v-r-1", is_held=True)
    stage.decides.turns["v-r-1"] = ReplicaTurn(TurnStep.PLACE, write.volume, write.uid, write=write)
    stage.refuse_places(error)
    stage.go_on(2)
    assert HELD_ANNOTATION not in stage.raw("v-r-1")["metadata"]["annotations"]
    assert ("failed", "v-r-1", "") in stage.decides.ended
    stage.go_on(KEPT_SECONDS + 10)
    assert stage.placer.is_alive()


def test_what_can_neither_be_placed_nor_let_go_is_no_sign_of_life(stage: PlacerStage) -> None:
    write = place_write("v-r-1", is_held=True)
    stage.add("v-r-1", told=ReplicaTurn(TurnStep.PLACE, write.volume, write.uid, write=write))
    stage.api.fail_with(ForbiddenError("403: no right"), "patch")
    stage.go_on(KEPT_SECONDS)
    assert stage.placer.is_alive()
    stage.go_on(10)
    assert not stage.placer.is_alive()
    stage.api.work()
    stage.go_on(10)
    assert stage.placer.is_alive()


def stops(stage: PlacerStage) -> None:
    stage.placer._writes.end()


@pytest.mark.parametrize(
    ("others", "node"), [(placed_elsewhere, "n9"), (gone, None), (made_again, ""), (follows, ""), (stops, "")]
)
def test_what_happens_to_the_replica_or_the_process_meanwhile_ends_the_doubt(
    stage: PlacerStage, others: Callable[[PlacerStage], None], node: str | None
) -> None:
    stage.api.fail_with(UnavailableError("no answer"), "patch")
    stage.add("v-r-1")

    def meanwhile() -> None:
        stage.api.work()
        others(stage)

    stage.ending.meanwhile = meanwhile
    stage.round()
    assert ([("failed", "v-r-1", node)], 1) == (stage.decides.ended, stage.ending.waits)


def test_while_nothing_can_be_read_nothing_is_said(stage: PlacerStage) -> None:
    stage.add("v-r-1")
    stage.api.fail_with(UnavailableError("away"))

    def is_back() -> None:
        assert [] == stage.decides.ended
        if 40 == stage.ending.waits:
            stage.api.work()

    stage.ending.meanwhile = is_back
    began = stage.clock.now()
    stage.round()
    assert ([("failed", "v-r-1", "")], 40 * DOUBT_SECONDS) == (stage.decides.ended, stage.clock.now() - began)


def test_a_process_that_stops_does_not_wait_for_a_read_either(stage: PlacerStage) -> None:
    stage.api.fail_with(UnavailableError("away"), "patch", "get")
    stage.add("v-r-1")
    stage.ending.meanwhile = lambda: stops(stage)
    stage.round()
    assert ([("failed", "v-r-1", None)], 1) == (stage.decides.ended, stage.ending.waits)


def test_what_has_not_begun_when_the_process_stops_is_not_written(stage: PlacerStage) -> None:
    stage.writers.is_late = True
    stage.add("v-r-1")
    stage.round()
    stops(stage)
    stage.writers.go_on()
    assert "" == stage.node_of("v-r-1")


def test_a_fault_of_a_writer_ends_the_write_as_any_other_failure(
    stage: PlacerStage, caplog: pytest.LogCaptureFixture
) -> None:
    def faulty(*_arguments: Any, **_more: Any) -> Any:
        raise KeyError("unheard of")

    stage.api.patch = faulty  # type: ignore[method-assign]
    stage.add("v-r-1")
    stage.round()
    assert ({"failed": 2}, 0) == (stage.outcomes, stage.figures.writing)
    assert [("failed", "v-r-1", "")] == stage.decides.ended
    assert "replica not written replica=v-r-1" in caplog.text
    stage.round(BACKOFF_SECONDS[0])
    assert 2 == len(stage.decides.asked)


# Marks


MARKS = [
    (TurnStep.HOLD, "held", {HELD_ANNOTATION: "2026-01-01T00:00:00Z"}),
    (TurnStep.RELEASE, "released", {}),
    (TurnStep.LEAVE, "left", {LEFT_ANNOTATION: Why.NO_ROOM}),
]


@pytest.mark.parametrize(("step", "outcome", "marks"), MARKS, ids=str)
def test_it_is_marked_as_the_allocator_says(
    stage: PlacerStage, step: TurnStep, outcome: str, marks: dict[str, str]
) -> None:
    stage.add("v-r-1", told=turn(step, "v-r-1"))
    stage.round()
    assert {"kept": "yes", **marks} == stage.raw("v-r-1")["metadata"]["annotations"]
    assert ({outcome: 1}, []) == (stage.outcomes, stage.decides.ended)
    assert {Why.NO_ROOM: 1} == stage.status["waiting"]


@pytest.mark.parametrize("step", [step for step, *_ in MARKS])
def test_a_mark_comes_too_late_where_it_has_a_node_or_is_gone(stage: PlacerStage, step: TurnStep) -> None:
    stage.add("v-r-1", "w-r-1")
    for name in ("v-r-1", "w-r-1"):
        stage.decides.turns[name] = turn(step, name)
    stage.place("v-r-1")
    before = stage.raw("v-r-1")
    stage.api.delete(LONGHORN_REPLICAS, NAMESPACE, "w-r-1")
    stage.round()
    assert (before, {}) == (stage.raw("v-r-1"), stage.outcomes)


def test_a_mark_that_could_not_be_written_is_counted_and_tried_again(stage: PlacerStage) -> None:
    stage.add("v-r-1", told=turn(TurnStep.HOLD, "v-r-1"))
    stage.api.fail_with(UnavailableError("503"), "patch")
    stage.round()
    assert {"failed": 1} == stage.outcomes
    stage.api.work()
    stage.round(BACKOFF_SECONDS[0])
    assert {"failed": 1, "held": 1} == stage.outcomes


# Plans and holds


def test_plans_that_changed_are_handed_over_before_and_after_the_decisions(stage: PlacerStage) -> None:
    since = stage.clock.now_utc()
    one, other = Plan("v", "uid-v", (), (), since), Plan("w", "uid-w", (), (), since)
    stage.decides.plans = {"v": one}

    def displaced() -> None:
        stage.decides.plans = {"v": None, "w": other}

    stage.decides.costs = displaced
    stage.add("x-r-1")
    stage.round()
    assert [("plan:v", one), ("plan:w", other), ("plan:v", None)] == stage.plans.changes


def test_a_plan_that_changed_has_its_volumes_replicas_looked_at(stage: PlacerStage) -> None:
    stage.add("v-r-1", told=NO_ROOM)
    stage.go_on(30)
    stage.decides.asked.clear()
    stage.decides.plans = {"v": None}
    stage.round()
    assert ["v-r-1"] == stage.decides.asked


@pytest.mark.parametrize("spoil", [is_switched_off, has_old_stores, is_closed])
def test_a_leader_hands_plans_and_holds_over_at_its_pace_also_while_nothing_is_placed(
    stage: PlacerStage, spoil: Callable[[PlacerStage], None]
) -> None:
    """An answer holds room whoever places the copies."""
    spoil(stage)
    stage.add("v-r-1")
    stage.round()
    stage.decides.plans, stage.decides.holds = {"v": None}, {"pod": (one := hold("pod", "n1")), "gone": None}
    stage.go_on(EVERY_SECONDS)
    assert [("hold:pod", one), ("hold:gone", None), ("plan:v", None)] == stage.plans.changes


def test_what_a_choice_makes_of_a_hold_is_handed_over_at_one_time(stage: PlacerStage) -> None:
    """What is stored in between would have its places in neither."""
    before, after = hold("pod", "n1"), plan("v0")
    stage.decides.holds = {"pod": before.narrowed("n1")}
    stage.decides.plans = {"v0": after}
    stage.round()
    assert ([2], {"hold:pod", "plan:v0"}) == (stage.plans.puts, {key for key, _ in stage.plans.changes})


def test_none_that_is_handed_over_overtakes_a_later_one(stage: PlacerStage, monkeypatch: pytest.MonkeyPatch) -> None:
    """At a clean stop another thread hands over, too; what it then stores is all there is."""
    put, is_in, may_go_on = stage.plans.put, threading.Event(), threading.Event()

    def slow(*entries: Entry) -> None:
        if not is_in.is_set():
            is_in.set()
            assert may_go_on.wait(10)
        put(*entries)

    monkeypatch.setattr(stage.plans, "put", slow)
    former, later = plan("v0"), plan("v0", "d2")
    threads = [threading.Thread(target=stage.placer.store_plans) for _ in range(2)]
    stage.decides.plans = {"v0": former}
    threads[0].start()
    assert is_in.wait(10)
    stage.decides.plans = {"v0": later}
    threads[1].start()
    threads[1].join(0.05)
    may_go_on.set()
    for thread in threads:
        thread.join(10)
    assert [("plan:v0", former), ("plan:v0", later)] == stage.plans.changes


def test_none_are_handed_over_by_a_follower(stage: PlacerStage) -> None:
    stage.decides.plans, stage.decides.holds = {"v": None}, {"pod": None}
    follows(stage)
    stage.round()
    assert [] == stage.plans.changes


# Whether it lives


@pytest.mark.parametrize("spoil", [follows, has_old_stores])
def test_a_process_that_may_not_decide_for_long_gives_no_sign_of_life(
    stage: PlacerStage, spoil: Callable[[PlacerStage], None]
) -> None:
    spoil(stage)
    stage.go_on(STUCK_SECONDS + 2)
    assert not stage.placer.is_alive()


def test_it_lives_as_long_as_its_loop_turns(stage: PlacerStage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.round()
    stage.clock.advance(STUCK_SECONDS)
    assert stage.placer.is_alive()
    monkeypatch.setattr(stage.placer.unplaced, "take", None)  # a turn that fails is none
    with pytest.raises(TypeError):
        stage.round(0.1)
    assert not stage.placer.is_alive()
    monkeypatch.undo()
    stage.round()
    assert stage.placer.is_alive()


def test_a_write_that_does_not_end_is_no_sign_of_life(stage: PlacerStage) -> None:
    stage.writers.is_late = True
    stage.add("v-r-1")
    for _ in range(int(HUNG_SECONDS) + 1):
        assert stage.placer.is_alive()
        stage.round(1)
    stage.round(0.1)
    assert not stage.placer.is_alive()
    stage.writers.go_on()
    assert stage.placer.is_alive()


def test_nor_is_a_watch_that_does_not_show_what_is_stored(stage: PlacerStage) -> None:
    stage.decides.late_seconds = LATE_SECONDS
    assert stage.placer.is_alive()
    stage.decides.late_seconds = LATE_SECONDS + 0.1
    assert not stage.placer.is_alive()


# What is told


def test_the_status_document_names_some_and_counts_all(stage: PlacerStage) -> None:
    names = [f"v{number}-r-1" for number in range(SHOWN + 5)]
    stage.add(*names, told=NO_ROOM)
    stage.round()
    stage.round(2)
    assert {"no-room": SHOWN + 5} == stage.status["waiting"]
    assert names[:SHOWN] == [one["replica"] for one in stage.status["replicas"]]
    first = {"replica": "v0-r-1", "volume": "v0", "reason": "no-room", "tries": 1, "waiting_seconds": 2.0}
    assert {**first, "reasons": {}} == stage.status["replicas"][0]


def test_why_no_disk_takes_a_replica_is_looked_into_and_shown(stage: PlacerStage) -> None:
    stage.add("v-r-1", told=NO_ROOM)
    stage.add("w-r-1", told=turn(TurnStep.WAIT, "w-r-1", Wait.REUSE))
    stage.explains.reasons = {name: {"DiskTagsNotFulfilled": 4} for name in ("v-r-1", "w-r-1")}
    stage.round()
    assert ["v-r-1"] == stage.explains.asked
    assert [{"DiskTagsNotFulfilled": 4}, None] == [one.get("reasons") for one in stage.status["replicas"]]


def test_who_was_placed_by_others_is_logged_and_the_last_ten_are_shown(
    stage: PlacerStage, caplog: pytest.LogCaptureFixture
) -> None:
    assert () == stage.status["foreign"]
    names = [f"v{number}-r-1" for number in range(SHOWN_FOREIGN + 2)]
    stage.decides.foreign = [replica(name, volume_of(name), on="n9") for name in names]
    stage.round()
    stage.round()
    told = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
    assert [f"placed by somebody else replica={name} volume={volume_of(name)} node=n9" for name in names] == told
    last = {"replica": "v11-r-1", "volume": "v11", "node": "n9", "seen_utc": rfc3339(stage.clock.now_utc())}
    assert (SHOWN_FOREIGN, last) == (len(stage.status["foreign"]), stage.status["foreign"][-1])


def test_an_event_tells_of_them_at_once_and_then_once_a_minute(stage: PlacerStage) -> None:
    def told_of(*names: str) -> list[str]:
        stage.decides.foreign = [replica(name, volume_of(name), on="n9") for name in names]
        stage.told.clear()
        stage.round()
        assert {("ForeignPlacement", True)} >= {(reason, is_warning) for reason, _, is_warning in stage.told}
        return [text for _, text, _ in stage.told]

    assert [] == told_of()
    assert [FOREIGN_TEXT.format(1, replica="v-r-1", node="n9")] == told_of("v-r-1")
    assert [] == told_of("w-r-1", "x-r-1")
    stage.clock.advance(FOREIGN_EVERY_SECONDS)
    assert [FOREIGN_TEXT.format(2, replica="x-r-1", node="n9")] == told_of()
    stage.clock.advance(FOREIGN_EVERY_SECONDS)
    assert [] == told_of()


def test_what_keeps_it_from_placing_is_logged_once(stage: PlacerStage, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    stage.checks.is_fresh = False
    for _ in range(3):
        stage.round()
    stage.checks.is_fresh = True
    stage.round()
    told = [one.getMessage() for one in caplog.records if "placing replicas" in one.getMessage()]
    assert ["placing replicas: what is known of claim is too old", "placing replicas: goes on"] == told


def test_every_series_exists_from_the_start_and_what_waits_is_measured(stage: PlacerStage) -> None:
    registry, gate = CollectorRegistry(), GateLeader(GateCell()).gate
    registry.register(PlacementMetrics(stage.placer.figures, PlanFigures, gate.figures))

    def measured() -> dict[str, float | None]:
        outcomes = [("placements_total", "outcome", one.value) for one in PlacementOutcome]
        waiting = [("placement_waiting", "reason", reason) for reason in REASONS]
        return {
            value: registry.get_sample_value(f"{PREFIX}_replica_{name}", {label: value})
            for name, label, value in outcomes + waiting
        }

    assert {0} == set(measured().values())
    stage.add("v-r-1", told=NO_ROOM)
    stage.add("w-r-1", told=turn(TurnStep.HOLD, "w-r-1"))
    stage.round()
    found = measured()
    assert (2, 1) == (found["no-room"], found["held"])
