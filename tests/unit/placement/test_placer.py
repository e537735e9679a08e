"""Which Replicas the placer asks about, and when; whether it lives; and what it tells."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from prometheus_client import CollectorRegistry

from controller.allocator.outcome import REASONS, Mode, ReplicaTurn, TurnStep, WaitReason
from controller.kube.store import Change
from controller.model.times import rfc3339
from controller.placement import placer
from controller.placement.metrics import PlacementMetrics
from controller.placement.plan_objects import PlanFigures
from controller.placement.writes import HUNG_SECONDS, PlacementOutcome
from controller.process.common_metrics import PREFIX
from controller.rules.placing import Wait
from tests.fakes.builders import replica, volume
from tests.fakes.clock import TickingClock
from tests.unit.placement.gate_stage import GateCell, GateLeader
from tests.unit.placement.placer_stage import (
    PlacerStage,
    follows,
    has_old_stores,
    is_closed,
    is_switched_off,
    turn,
    volume_of,
)

NO_ROOM = turn(TurnStep.WAIT, "v-r-1")
Act = Callable[[PlacerStage], object]


@pytest.fixture
def stage() -> PlacerStage:
    return PlacerStage()


@pytest.fixture
def waiting(stage: PlacerStage) -> PlacerStage:
    """The replica of `v` has waited for room for so long that it is looked at now and then."""
    stage.add("v-r-1", told=NO_ROOM)
    stage.go_on(30)
    stage.decides.asked.clear()
    return stage


# Whether it places at all


def go_well(stage: PlacerStage) -> None:
    stage.checks.is_leading = stage.checks.is_fresh = stage.decides.is_on = True
    stage.checks.mode = Mode.ACTIVE


@pytest.mark.parametrize(
    ("spoil", "is_on", "problem", "pause"),
    [
        (follows, False, "", placer.IDLE_SECONDS),
        (is_switched_off, False, "", placer.EVERY_SECONDS),
        (has_old_stores, True, "what is known of claim is too old", placer.EVERY_SECONDS),
        (is_closed, True, "", placer.EVERY_SECONDS),
    ],
)
def test_nothing_is_decided_or_written_while_it_may_not_and_then_all_that_came_meanwhile(
    stage: PlacerStage, spoil: Act, is_on: bool, problem: str, pause: float
) -> None:
    stage.add("v-r-1")
    spoil(stage)
    assert pause == stage.round()
    assert ([], "") == (stage.decides.asked, stage.node_of("v-r-1"))
    assert (is_on, problem) == (stage.status["is_on"], stage.status["problem"])
    stage.add("w-r-1")
    go_well(stage)
    stage.round(placer.BACKOFF_SECONDS[1])
    assert {"v-r-1", "w-r-1"} == set(stage.decides.asked)
    assert ("", True) == (stage.status["problem"], stage.status["is_on"])


@pytest.mark.parametrize("spoil", [follows, is_switched_off])
def test_who_does_not_place_has_nothing_that_waits(waiting: PlacerStage, spoil: Act) -> None:
    spoil(waiting)
    waiting.round(5)
    assert ({}, ()) == (waiting.status["waiting"], waiting.status["replicas"])
    go_well(waiting)
    waiting.round(5)
    assert 0.0 == waiting.status["replicas"][0]["waiting_seconds"]


# The order of decisions


def test_none_that_waits_for_room_loses_it_to_a_later_one(waiting: PlacerStage) -> None:
    waiting.clock.advance(1)
    waiting.add("a-r-1")
    waiting.placer.unplaced.room_came()
    waiting.round()
    assert ["v-r-1", "a-r-1"] == waiting.decides.asked


def test_a_round_has_an_end_and_the_next_one_begins_with_the_others(stage: PlacerStage) -> None:
    stage.decides.costs = lambda: stage.clock.advance(placer.ROUND_SECONDS / 4)
    names = [f"v{number}-r-1" for number in range(12)]
    stage.add(*names)
    for looked_at in (5, 10):
        stage.round()
        assert names[:looked_at] == stage.decides.asked


def test_a_fault_about_one_keeps_no_other_from_its_place_and_is_asked_about_again_after_a_while(
    stage: PlacerStage, caplog: pytest.LogCaptureFixture
) -> None:
    bad = [f"bad{number}-r-1" for number in range(3)]
    stage.add(*bad, told=KeyError("unheard of"))
    stage.add("good-r-1")
    stage.round()
    assert ("n1", {"failed": 3, "placed": 1}) == (stage.node_of("good-r-1"), stage.outcomes)
    assert {WaitReason.FAULT: 3, WaitReason.WRITTEN: 1} == stage.status["waiting"]
    assert "no decision replica=bad0-r-1" in caplog.text
    assert stage.placer.is_alive()
    del stage.decides.turns[bad[0]]
    stage.round(placer.BACKOFF_SECONDS[1] - 0.1)
    assert "" == stage.node_of(bad[0])
    stage.round(0.1)
    assert "n1" == stage.node_of(bad[0])


def test_writes_are_made_side_by_side_and_no_more_than_so_many(stage: PlacerStage) -> None:
    stage.writers.is_late = True
    names = [f"v{number}-r-1" for number in range(placer.MOST_WRITES + 3)]
    stage.add(*names)
    stage.round()
    assert (placer.MOST_WRITES, placer.MOST_WRITES) == (len(stage.decides.asked), stage.figures.writing)
    stage.placer.unplaced.volumes_changed([Change("v0", None, volume("v0"))])
    for _ in range(20):
        stage.round(1)
    assert names[: placer.MOST_WRITES] == stage.decides.asked  # what is being written is not decided again either
    stage.writers.go_on()
    stage.round()
    assert set(names) == set(stage.decides.asked)


# Looked at again


def pauses(asked: list[float]) -> list[int]:
    return [round(after - before) for before, after in pairwise(asked)]


def test_a_young_one_is_looked_at_as_often_as_was_said_and_less_and_less_often_then(stage: PlacerStage) -> None:
    stage.add("v-r-1", told=NO_ROOM)
    found = pauses(stage.go_on(60))
    assert [1] * int(placer.YOUNG_SECONDS) == found[: int(placer.YOUNG_SECONDS)]
    assert {placer.BACKOFF_SECONDS[1]} == set(found[int(placer.YOUNG_SECONDS) :])
    stage.decides.turns["v-r-1"] = turn(TurnStep.WAIT, "v-r-1", Wait.NOT_ATTACHED)
    stage.round(placer.BACKOFF_SECONDS[1])
    assert [1, 2, 4, 8] == pauses([0.0, *stage.go_on(16)]), "another reason begins anew"


def test_what_is_due_at_a_known_time_is_not_looked_at_before(stage: PlacerStage) -> None:
    stage.add("v-r-1", told=turn(TurnStep.WAIT, "v-r-1", Wait.REPLACEMENT, seconds=25))
    assert [0, 25, 50] == [round(at) for at in stage.go_on(60)]


def a_plan_changes(stage: PlacerStage) -> None:
    stage.decides.plans = {"v": None}


def another_plan_ends(stage: PlacerStage) -> None:
    """Its copy is stored."""
    stage.decides.plans = {"other": None}


def a_plan_leaves_a_disk(stage: PlacerStage) -> None:
    stage.decides.is_freed = True


@pytest.mark.parametrize(
    ("happens", "is_reason"),
    [
        (lambda stage: stage.placer.unplaced.volumes_changed([Change("v", None, volume("v"))]), True),
        (lambda stage: stage.placer.unplaced.volume_planned("v"), True),
        (a_plan_changes, True),
        (another_plan_ends, False),
        (a_plan_leaves_a_disk, True),
    ],
    ids=["to its volume", "to its plan", "to its plan, as the allocator says", "to another plan", "and frees room"],
)
def test_it_is_looked_at_as_soon_as_something_happens(waiting: PlacerStage, happens: Act, is_reason: bool) -> None:
    happens(waiting)
    waiting.go_on(1)
    assert ["v-r-1"] * is_reason == waiting.decides.asked


@pytest.mark.parametrize("reason", REASONS)
def test_room_that_came_is_a_reason_for_those_alone_that_wait_for_some(stage: PlacerStage, reason: str) -> None:
    stage.add("v-r-1", told=turn(TurnStep.WAIT, "v-r-1", reason))
    stage.go_on(30)
    stage.decides.asked.clear()
    stage.placer.unplaced.room_came()
    stage.round()
    assert (reason in (WaitReason.NO_ROOM, Wait.REUSE, Wait.REPLACEMENT)) is (["v-r-1"] == stage.decides.asked)


def test_repeated_looks_that_take_long_are_followed_by_a_rest_and_a_new_one_does_not_wait_for_it() -> None:
    stage = PlacerStage(TickingClock(0.1))
    stage.add("v-r-1", told=NO_ROOM)
    for pause in (0.0, placer.BACKOFF_SECONDS[0], placer.BACKOFF_SECONDS[0]):
        stage.round(pause)
    stage.decides.asked.clear()
    stage.placer.unplaced.room_came()
    stage.add("w-r-1", told=ReplicaTurn(TurnStep.NOTHING))
    stage.round()
    assert ["w-r-1"] == stage.decides.asked
    stage.round(placer.MOST_REST_SECONDS)
    assert ["w-r-1", "v-r-1"] == stage.decides.asked


def test_many_without_room_leave_most_of_the_time_to_others_and_none_of_them_is_left_out(stage: PlacerStage) -> None:
    names = [f"v{number}-r-1" for number in range(20)]
    stage.add(*names, told=NO_ROOM)
    stage.decides.costs = lambda: stage.clock.advance(0.6)
    stage.go_on(placer.YOUNG_SECONDS)
    stage.decides.asked.clear()
    stage.go_on(300)
    counts = [stage.decides.asked.count(name) for name in names]
    assert 0.15 < 0.6 * sum(counts) / 300 < 0.25
    assert max(counts) <= 1 + min(counts)


def test_what_is_gone_is_not_looked_at_any_more(waiting: PlacerStage) -> None:
    waiting.drop("v-r-1")
    assert [] == waiting.go_on(30)
    assert () == waiting.status["replicas"]


# Whether it lives


@pytest.mark.parametrize("spoil", [follows, has_old_stores])
def test_a_process_that_may_not_decide_for_long_gives_no_sign_of_life(stage: PlacerStage, spoil: Act) -> None:
    spoil(stage)
    stage.go_on(placer.STUCK_SECONDS + 2)
    assert not stage.placer.is_alive()


def test_it_lives_as_long_as_its_loop_turns(stage: PlacerStage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.round()
    stage.clock.advance(placer.STUCK_SECONDS)
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
    for late_seconds, is_alive in ((placer.LATE_SECONDS, True), (placer.LATE_SECONDS + 0.1, False)):
        stage.decides.late_seconds = late_seconds
        assert is_alive is stage.placer.is_alive()


# What is told


def test_the_status_document_names_some_and_counts_all_with_what_is_known_of_why(stage: PlacerStage) -> None:
    names = [f"v{number}-r-1" for number in range(placer.SHOWN + 5)]
    stage.add(*names, told=NO_ROOM)
    stage.decides.turns["v1-r-1"] = turn(TurnStep.WAIT, "v1-r-1", Wait.REUSE)
    stage.explains.reasons = {name: {"DiskTagsNotFulfilled": 4} for name in names[:2]}
    stage.round()
    stage.round(2)
    assert {"no-room": placer.SHOWN + 4, "reuse": 1} == stage.status["waiting"]
    shown = stage.status["replicas"]
    assert names[: placer.SHOWN] == [one["replica"] for one in shown]
    first = {"replica": "v0-r-1", "volume": "v0", "reason": "no-room", "tries": 1, "waiting_seconds": 2.0}
    assert {**first, "reasons": {"DiskTagsNotFulfilled": 4}} == shown[0]
    assert [None, {}] == [one.get("reasons") for one in shown[1:3]]
    assert "v1-r-1" not in stage.explains.asked


def test_those_placed_by_others_are_logged_and_ten_shown(stage: PlacerStage, caplog: pytest.LogCaptureFixture) -> None:
    assert () == stage.status["foreign"]
    names = [f"v{number}-r-1" for number in range(placer.SHOWN_FOREIGN + 2)]
    stage.decides.foreign = [replica(name, volume_of(name), on="n9") for name in names]
    stage.round()
    stage.round()
    told = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
    assert [f"place replica={name} decision=foreign volume={volume_of(name)} node=n9" for name in names] == told
    last = {"replica": "v11-r-1", "volume": "v11", "node": "n9", "seen_utc": rfc3339(stage.clock.now_utc())}
    assert (placer.SHOWN_FOREIGN, last) == (len(stage.status["foreign"]), stage.status["foreign"][-1])


def test_an_event_tells_of_them_at_once_and_then_once_a_minute(stage: PlacerStage) -> None:
    def told_of(*names: str, after: float = 0.0) -> list[tuple[str, str, bool]]:
        stage.decides.foreign = [replica(name, volume_of(name), on="n9") for name in names]
        stage.told.clear()
        stage.round(after)
        return stage.told

    def event(count: int, last: str) -> list[tuple[str, str, bool]]:
        return [("ForeignPlacement", placer.FOREIGN_TEXT.format(count, replica=last, node="n9"), True)]

    assert [] == told_of()
    assert event(1, "v-r-1") == told_of("v-r-1")
    assert [] == told_of("w-r-1", "x-r-1")
    assert event(2, "x-r-1") == told_of(after=placer.FOREIGN_EVERY_SECONDS)
    assert [] == told_of(after=placer.FOREIGN_EVERY_SECONDS)


def test_what_keeps_it_from_placing_is_logged_once(stage: PlacerStage, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    has_old_stores(stage)
    for _ in range(3):
        stage.round()
    go_well(stage)
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

    def oldest(reason: str) -> float | None:
        return registry.get_sample_value(f"{PREFIX}_replica_placement_oldest_seconds", {"reason": reason})

    seen = []
    for reason, seconds in ((WaitReason.NO_ROOM, 61), (WaitReason.NOT_CHOSEN, 60), (WaitReason.NOT_CHOSEN, 5)):
        stage.decides.turns = {name: turn(TurnStep.WAIT, name, reason) for name in ("v-r-1", "w-r-1")}
        stage.clock.advance(seconds)
        stage.round()
        seen.append((oldest("no-room"), oldest("not-chosen")))
    assert [(61, 0), (0, 0), (0, 5)] == seen
