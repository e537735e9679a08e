"""What becomes of the placer's writes: stored, refused, without an answer, or too late; the marks; and what it hands
over to be stored."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from controller.allocator.outcome import ReplicaTurn, TurnStep, WaitReason
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
from controller.model.names import HELD_ANNOTATION, LEFT_ANNOTATION
from controller.placement.placer import BACKOFF_SECONDS, EVERY_SECONDS
from controller.placement.plan_entries import Entry
from controller.placement.writes import ARRIVES_SECONDS, DOUBT_SECONDS, KEPT_SECONDS
from tests.unit.placement.placer_stage import (
    NAMESPACE,
    PlacerStage,
    follows,
    has_old_stores,
    is_closed,
    is_switched_off,
    place_write,
    put_replica,
    turn,
)
from tests.unit.placement.plan_stage import hold, plan
from tests.waiting import wait_until

Act = Callable[[PlacerStage], object]


@pytest.fixture
def stage() -> PlacerStage:
    return PlacerStage()


@pytest.fixture
def added(stage: PlacerStage) -> PlacerStage:
    """A replica without a node, which the allocator has placed on n1."""
    stage.add("v-r-1")
    return stage


def placed_elsewhere(stage: PlacerStage) -> None:
    stage.place("v-r-1", "n9")


def placed_on_another_disk(stage: PlacerStage) -> None:
    """Of the node that the allocator has placed it on."""
    stage.api.patch(LONGHORN_REPLICAS, NAMESPACE, "v-r-1", {"spec": {"nodeID": "n1", "diskID": "n1-d2"}})


def gone(stage: PlacerStage) -> None:
    stage.api.delete(LONGHORN_REPLICAS, NAMESPACE, "v-r-1")


def made_again(stage: PlacerStage) -> None:
    put_replica(stage.api, "v-r-1", {"uid": "another"})


def stops(stage: PlacerStage) -> None:
    stage.placer._writes.end()


def nothing(_stage: PlacerStage) -> None:
    pass


# What the allocator hears


@pytest.mark.parametrize(
    ("before", "ended", "outcomes"),
    [
        (nothing, ("stored", "v-r-1", "n1"), {"placed": 1}),
        (placed_elsewhere, ("failed", "v-r-1", "n9"), {"placed-by-others": 1}),
        (gone, ("failed", "v-r-1", None), {}),
    ],
)
def test_a_place_is_stored_unless_somebody_was_faster(
    added: PlacerStage, before: Act, ended: tuple[str, str, str | None], outcomes: dict[str, int]
) -> None:
    before(added)
    added.round()
    assert ([ended], outcomes) == (added.decides.ended, added.outcomes)


def test_a_conflict_of_what_has_no_place_yet_is_tried_again(added: PlacerStage) -> None:
    added.api.fail_with(ConflictError("409"), "patch")
    added.round()
    assert ([("failed", "v-r-1", "")], {}) == (added.decides.ended, added.outcomes)
    added.api.work()
    for node in ("", "n1"):
        added.round(BACKOFF_SECONDS[0] / 2)
        assert node == added.node_of("v-r-1")


def test_a_refused_place_is_counted_told_and_tried_again_less_and_less_often(
    added: PlacerStage, caplog: pytest.LogCaptureFixture
) -> None:
    added.api.fail_with(ForbiddenError("403: not allowed to patch replicas"), "patch")
    asked = added.go_on(60)
    pauses = [after - before for before, after in pairwise(asked)]
    assert {("failed", "v-r-1", "")} == set(added.decides.ended)
    assert {"failed": len(asked)} == added.outcomes
    assert list(BACKOFF_SECONDS) == [round(pauses[0]), round(pauses[-1])]
    assert 'place replica=v-r-1 decision=failed volume=v error="403: not allowed to patch replicas"' in caplog.text


def term_ends(stage: PlacerStage) -> None:
    stage.checks.term += 1


@pytest.mark.parametrize(("meanwhile", "ended"), [(term_ends, [("failed", "v-r-1", "")]), (stops, [])])
def test_what_has_not_begun_when_the_term_or_the_process_ends_is_not_written(
    added: PlacerStage, meanwhile: Act, ended: list[tuple[str, str, str]]
) -> None:
    added.writers.is_late = True
    added.round()
    meanwhile(added)
    added.writers.go_on()
    assert ("", ended) == (added.node_of("v-r-1"), added.decides.ended)


def test_a_fault_of_a_writer_ends_the_write_as_failed(added: PlacerStage, caplog: pytest.LogCaptureFixture) -> None:
    def faulty(*_arguments: Any, **_more: Any) -> Any:
        raise KeyError("unheard of")

    added.api.patch = faulty  # type: ignore[method-assign]
    added.round()
    assert ({"failed": 2}, 0) == (added.outcomes, added.figures.writing)
    assert [("failed", "v-r-1", "")] == added.decides.ended
    assert "replica not written replica=v-r-1" in caplog.text
    added.round(BACKOFF_SECONDS[0])
    assert 2 == len(added.decides.asked)


def test_its_threads_write_what_is_decided_and_end_with_it() -> None:
    stage = PlacerStage(has_threads=True)
    stage.placer.start()
    try:
        stage.add("v-r-1", "w-r-1")
        wait_until(lambda: 2 == len(stage.decides.ended), "both writes")
    finally:
        stage.placer.stop()
    assert {("stored", "v-r-1", "n1"), ("stored", "w-r-1", "n1")} == set(stage.decides.ended)
    assert not any(one.is_alive() for one in stage.placer._writes._writers._threads)


# Without an answer

LOST = [UnavailableError("no answer"), MalformedRequestError("spec.nodeID", "is not text")]


@pytest.mark.parametrize("error", LOST, ids=str)
@pytest.mark.parametrize(
    ("arrives_after", "told"), [(0, "stored"), (3, "stored"), (ARRIVES_SECONDS / DOUBT_SECONDS, "failed")]
)
def test_a_write_without_an_answer_counts_until_it_has_arrived_or_cannot_any_more(
    added: PlacerStage, error: SchedulerError, arrives_after: int, told: str
) -> None:
    patch, ended = added.api.patch, list[int]()

    def arrive() -> None:
        ended.append(len(added.decides.ended))
        if told == "stored" and arrives_after == added.ending.waits:
            added.api.patch = patch  # type: ignore[method-assign]
            added.place("v-r-1", "n1")

    def lose(*_arguments: Any, **_more: Any) -> Any:
        arrive()
        raise error

    added.api.patch, added.ending.meanwhile = lose, arrive  # type: ignore[method-assign]
    added.round()
    assert {0} == set(ended)
    node = "n1" if told == "stored" else ""
    assert ([(told, "v-r-1", node)], arrives_after) == (added.decides.ended, added.ending.waits)


@pytest.mark.parametrize(
    ("others", "node"),
    [
        (placed_elsewhere, "n9"),
        (placed_on_another_disk, "n1"),
        (gone, None),
        (made_again, ""),
        (follows, ""),
        (stops, ""),
    ],
)
def test_what_happens_to_the_replica_or_the_process_meanwhile_ends_the_doubt(
    added: PlacerStage, others: Act, node: str | None
) -> None:
    added.api.fail_with(UnavailableError("no answer"), "patch")

    def meanwhile() -> None:
        added.api.work()
        others(added)

    added.ending.meanwhile = meanwhile
    added.round()
    assert ([("failed", "v-r-1", node)], 1) == (added.decides.ended, added.ending.waits)


def test_while_nothing_can_be_read_nothing_is_said(added: PlacerStage) -> None:
    added.api.fail_with(UnavailableError("away"))

    def is_back() -> None:
        assert [] == added.decides.ended
        if 40 == added.ending.waits:
            added.api.work()

    added.ending.meanwhile = is_back
    began = added.clock.now()
    added.round()
    assert ([("failed", "v-r-1", "")], 40 * DOUBT_SECONDS) == (added.decides.ended, added.clock.now() - began)


def test_a_process_that_stops_does_not_wait_for_a_read_either(added: PlacerStage) -> None:
    added.api.fail_with(UnavailableError("away"), "patch", "get")
    added.ending.meanwhile = lambda: stops(added)
    added.round()
    assert ([("failed", "v-r-1", None)], 1) == (added.decides.ended, added.ending.waits)


# Marks


def place_held(stage: PlacerStage) -> None:
    """The replica is marked as held, and has a place now."""
    stage.add("v-r-1", told=turn(TurnStep.HOLD, "v-r-1"))
    stage.round()
    write = place_write("v-r-1", is_held=True)
    stage.decides.turns["v-r-1"] = ReplicaTurn(TurnStep.PLACE, write.volume, write.uid, write=write)


@pytest.mark.parametrize("error", [ForbiddenError("403: not allowed"), ClusterError("422: invalid")], ids=str)
def test_a_held_copy_whose_place_is_refused_is_let_go_at_once(stage: PlacerStage, error: ClusterError) -> None:
    place_held(stage)
    stage.refuse_places(error)
    stage.go_on(2)
    assert HELD_ANNOTATION not in stage.raw("v-r-1")["metadata"]["annotations"]
    assert ("failed", "v-r-1", "") in stage.decides.ended
    stage.go_on(KEPT_SECONDS + 10)
    assert stage.placer.is_alive()


def test_what_can_neither_be_placed_nor_let_go_is_no_sign_of_life(stage: PlacerStage) -> None:
    place_held(stage)
    stage.api.fail_with(ForbiddenError("403: no right"), "patch")
    stage.go_on(KEPT_SECONDS)
    assert stage.placer.is_alive()
    stage.go_on(10)
    assert not stage.placer.is_alive()
    stage.api.work()
    stage.go_on(10)
    assert stage.placer.is_alive()


MARKS = [
    (TurnStep.HOLD, "held", {HELD_ANNOTATION: "2026-01-01T00:00:00Z"}),
    (TurnStep.RELEASE, "released", {}),
    (TurnStep.LEAVE, "left", {LEFT_ANNOTATION: WaitReason.NO_ROOM}),
]


@pytest.mark.parametrize(("step", "outcome", "marks"), MARKS, ids=str)
def test_it_is_marked_as_was_decided(stage: PlacerStage, step: TurnStep, outcome: str, marks: dict[str, str]) -> None:
    stage.add("v-r-1", told=turn(step, "v-r-1"))
    stage.round()
    assert {"kept": "yes", **marks} == stage.raw("v-r-1")["metadata"]["annotations"]
    assert ({outcome: 1}, []) == (stage.outcomes, stage.decides.ended)
    assert {WaitReason.NO_ROOM: 1} == stage.status["waiting"]
    assert [("place", "Replica v-r-1", outcome)] == [(one.kind, one.about, one.decision) for one in stage.noted.after()]


@pytest.mark.parametrize("step", [step for step, *_ in MARKS])
def test_a_mark_comes_too_late_where_it_has_a_node_or_is_gone(stage: PlacerStage, step: TurnStep) -> None:
    stage.add("v-r-1", told=turn(step, "v-r-1"))
    stage.add("w-r-1", told=turn(step, "w-r-1"))
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


@pytest.mark.parametrize(
    ("spoil", "is_handed_over"), [(is_switched_off, True), (has_old_stores, True), (is_closed, True), (follows, False)]
)
def test_a_leader_hands_plans_and_holds_over_at_its_pace_also_while_nothing_is_placed(
    stage: PlacerStage, spoil: Act, is_handed_over: bool
) -> None:
    """An answer holds room whoever places the copies."""
    spoil(stage)
    stage.add("v-r-1")
    stage.round()
    stage.decides.plans, stage.decides.holds = {"v": None}, {"pod": (one := hold("pod", "n1")), "gone": None}
    stage.go_on(EVERY_SECONDS)
    assert [("hold:pod", one), ("hold:gone", None), ("plan:v", None)] * is_handed_over == stage.plans.changes


def test_what_a_choice_makes_of_a_hold_is_handed_over_at_one_time(stage: PlacerStage) -> None:
    """What is stored in between would have its places in neither."""
    stage.decides.holds = {"pod": hold("pod", "n1").narrowed("n1")}
    stage.decides.plans = {"v0": plan("v0")}
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
