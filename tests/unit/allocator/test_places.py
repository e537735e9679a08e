"""Where the leader puts Replicas, which bytes each may take, and what a plan keeps from others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.allocator.outcome import How, Mode, TurnStep, Why
from controller.allocator.verbs.observe import MOVES_AT_ONCE, EventContext
from controller.allocator.verbs.place import (
    BESIDE_SECONDS,
    GATE_SECONDS,
    HOLD_AFTER_SECONDS,
    HOLD_SECONDS,
)
from controller.allocator.verbs.planning import Planner
from controller.model.longhorn import LonghornSettings
from controller.model.places import Place
from controller.rules.placing import Wait
from controller.settings import LiveSettings
from tests.fakes import builders
from tests.fakes.builders import GIB
from tests.fakes.counting import counted
from tests.unit.allocator.placed_cluster import PlacedCluster, add_free_volume, add_second_copy, made_plan


def told_as_foreign(site: PlacedCluster) -> list[tuple[str, str]]:
    """Replicas that somebody else has placed, each with its node."""
    return [(one.name, one.node) for one in site.allocator.places.take_foreign()]


# Plans


def test_a_chosen_volume_has_a_plan_on_the_node_that_was_chosen() -> None:
    site = PlacedCluster().add_nodes(n1=[100, 200], n2=400)

    site.chosen("a", 80, "n1")

    assert {"pvc-uid-a": ["n1-d1"]} == site.plans()
    assert {} == site.plans()


def test_a_plan_ends_with_the_choice() -> None:
    site = PlacedCluster().add_nodes(n1=100)
    site.chosen("a", 80, "n1")
    site.plans()

    site.drop_pod("a")
    site.drop_claim("a")

    assert {"pvc-uid-a": []} == site.plans()


def test_a_planned_copy_is_placed_where_it_is_planned_before_its_volume_is_attached() -> None:
    site = PlacedCluster().add_nodes(n1=[100, 200], n2=400)
    site.chosen("a", 80, "n1")
    site.provision("a")

    assert "n1-d1" == site.where("pvc-uid-a-r-1")


def test_a_place_stays_in_what_is_stored_until_its_copy_is() -> None:
    site = PlacedCluster().add_nodes(n1=100)
    site.chosen("a", 80, "n1")
    site.provision("a")
    site.plans()

    turn = site.turn("pvc-uid-a-r-1")
    assert {} == {volume: disks for volume, disks in site.plans().items() if disks != ["n1-d1"]}

    site.store(turn)
    assert {"pvc-uid-a": []} == site.plans()


def test_nobody_else_gets_planned_bytes() -> None:
    site = PlacedCluster().add_nodes(n1=100)
    site.chosen("a", 80, "n1")

    (first,) = add_free_volume(site, "v", 30)

    assert f"wait: {Why.NO_ROOM}" == site.where(first)


def test_a_first_copy_without_a_plan_never_takes_what_is_held() -> None:
    site = PlacedCluster().add_nodes(n1=100, n2=60)
    site.ask("a", 80, "n1")  # offered, and not chosen yet

    (first,) = add_free_volume(site, "v", 50)
    assert "n2-d1" == site.where(first)
    (second,) = add_free_volume(site, "w", 50)
    assert f"wait: {Why.NO_ROOM}" == site.where(second)

    site.drop_pod("a")
    assert "n1-d1" == site.where(second)


@pytest.mark.parametrize(("beside", "expected"), [(70, ["n2-d1"]), (50, [])])
def test_a_further_copy_takes_what_is_held_after_eight_seconds(beside: float, expected: list[str]) -> None:
    """The pod has another disk once its node is chosen, or is told that there is none."""
    site = PlacedCluster().add_nodes(n1=100, n2=[100, beside])
    site.ask("a", 60, "n2")
    second = add_second_copy(site, 90, first_on="n1")
    assert f"wait: {Why.NO_ROOM}" == site.where(second)

    turn = site.wait(second, BESIDE_SECONDS)
    assert turn.write is not None
    assert ("n2-d0", How.DISPLACED) == (turn.write.place.disk_uuid, turn.write.how)

    site.select_node("a", "n2")
    assert expected == site.plans().get("pvc-uid-a", [])
    claim_events = [(str(one.kind), one.name) for one in site.allocator.drain_claim_events()]
    assert ([] if expected else [("place-lost", "a")]) == claim_events


def test_a_disk_that_closes_has_its_plans_moved_in_the_same_step() -> None:
    site = PlacedCluster().add_nodes(n1=[100, 100])
    site.chosen("a", 80, "n1")
    ((disk,),) = site.plans().values()
    disks = [
        replace(builders.disk(name, 100, node="n1"), allow_scheduling=f"n1-{name}" != disk) for name in ("d0", "d1")
    ]

    site.put_node(builders.node("n1", *disks))

    other = {"n1-d0": "n1-d1", "n1-d1": "n1-d0"}[disk]
    assert {"pvc-uid-a": [other]} == site.plans()


def test_many_plans_leave_a_disk_that_closes_a_few_at_a_time() -> None:
    site = PlacedCluster()
    site.add_node("n1", builders.disk("d1", 400), builders.disk("d2", 400))
    volumes = [f"v{number:02}" for number in range(3 * MOVES_AT_ONCE + 1)]
    for name in volumes:
        site.chosen(name, 10, "n1")
    before = site.plans()
    site.add_node("n1", builders.disk("d1", 400), replace(builders.disk("d2", 400), allow_scheduling=False))

    assert {"n1-d1", "n1-d2"} == {disk for disks in before.values() for disk in disks}
    assert {"n1-d1"} == {disk for disks in {**before, **site.plans()}.values() for disk in disks}


def test_plans_of_volumes_that_are_not_known_hold_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    site = PlacedCluster()
    site.add_node("n1", builders.disk("d1", 400))
    site.add_class("leaves")
    site.chosen("early", 100, "n1")
    site.clock.advance(5)
    for number in range(2 * MOVES_AT_ONCE):
        site.chosen(f"v{number}", 20, "n1", class_name="leaves")
    site.plans()
    site.allocator.observe_class("leaves", None)
    turns = counted(monkeypatch, EventContext, "settle_changes")
    site.add_node("n1", builders.disk("d1", 250), builders.disk("d2", 400))

    assert {"pvc-uid-early": ["n1-d2"]} == site.plans()
    assert 3 >= len(turns)


def test_a_volume_that_loses_its_place_is_looked_at_again_once_all_have_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    site = PlacedCluster().add_nodes(n1=400)
    volumes = [site.chosen(f"v{number:02}", 10, "n1") for number in range(6 * MOVES_AT_ONCE)]
    settled = counted(monkeypatch, Planner, "settle")
    site.add_node("n1", replace(builders.disk("d1", 400), allow_scheduling=False))

    assert volumes == site.planner.lost()
    assert len(volumes) == len(settled)


def test_a_lowered_limit_has_the_latest_plan_moved_and_its_owner_told_where_no_other_disk_takes_it() -> None:
    site = PlacedCluster().add_nodes(n1=200)
    site.chosen("a", 80, "n1")
    site.clock.advance(5)
    site.chosen("b", 80, "n1")
    site.plans()
    site.allocator.drain_claim_events()

    site.add_node("n1", free_gib=100)

    assert {"pvc-uid-b": []} == site.plans()
    assert [("place-lost", "b")] == [(str(one.kind), one.name) for one in site.allocator.drain_claim_events()]


def test_a_lowered_limit_moves_no_later_plan_that_the_earlier_one_leaves_room_for() -> None:
    site = PlacedCluster().add_nodes(n1=200)
    site.chosen("early", 80, "n1")
    site.clock.advance(5)
    site.chosen("late", 30, "n1")
    site.plans()

    site.add_node("n1", free_gib=70)

    assert {"pvc-uid-early": []} == site.plans()


def test_the_copies_of_one_volume_are_planned_on_different_nodes() -> None:
    site = PlacedCluster().add_nodes(n1=200, n2=200, n3=200)
    site.add_class("three", dataLocality="disabled", numberOfReplicas="3")

    site.chosen("a", 80, "n1", "three")

    assert {"pvc-uid-a": ["n1-d1", "n2-d1", "n3-d1"]} == site.plans()


def test_a_new_leader_goes_on_with_the_stored_plans_of_what_is_still_chosen() -> None:
    site = PlacedCluster().add_nodes(n1=[100, 100])
    site.chosen("a", 80, "n1")
    ((disk,),) = site.plans().values()
    other = {"n1-d0": "n1-d1", "n1-d1": "n1-d0"}[disk]
    stored = [made_plan("pvc-uid-a", "uid-a", [Place("n1", other, 80 * GIB)], "pod-a"), made_plan("gone", "u", [])]

    site.allocator.end_term()
    site.allocator.begin_term(plans=stored)

    site.provision("a")
    assert other == site.where("pvc-uid-a-r-1")


def test_a_stored_plan_of_a_former_volume_of_that_name_is_none() -> None:
    site = PlacedCluster().add_nodes(n1=[200, 100])
    site.chosen("a", 80, "n1")
    ((disk,),) = site.plans().values()
    other = {"n1-d0": "n1-d1", "n1-d1": "n1-d0"}[disk]

    site.allocator.end_term()
    site.allocator.begin_term(plans=[made_plan("pvc-uid-a", "before", [Place("n1", other, 80 * GIB)], "pod-a")])

    site.provision("a")
    assert disk == site.where("pvc-uid-a-r-1")


# Which bytes


def test_a_first_copy_without_room_is_held_once_its_age_protects_it_no_more() -> None:
    site = PlacedCluster().add_nodes(n1=100)
    site.add_claim("a", 200)
    site.provision("a", data_locality="disabled")

    assert TurnStep.WAIT is site.turn("pvc-uid-a-r-1").step
    assert TurnStep.HOLD is site.wait("pvc-uid-a-r-1", HOLD_AFTER_SECONDS).step


@pytest.mark.parametrize(
    ("mark", "step"),
    [
        ("2026-01-01T11:59:00Z", TurnStep.WAIT),
        ("2026-01-01T11:54:59Z", TurnStep.LEAVE),
        ("2026-01-01T12:00:05Z", TurnStep.WAIT),  # by another API server's clock
        ("2026-01-01T12:00:06Z", TurnStep.LEAVE),  # lies ahead
        ("yesterday", TurnStep.LEAVE),
    ],
)
def test_a_first_copy_is_held_for_five_minutes(mark: str, step: TurnStep) -> None:
    assert HOLD_SECONDS == 300
    site = PlacedCluster().add_nodes(n1=100)
    (first,) = add_free_volume(site, "v", 200)
    site.allocator.observe_replica(first, builders.replica(first, "v", 200, uid="u", held=mark))

    assert step is site.turn(first).step


def test_a_further_copy_is_never_held() -> None:
    site = PlacedCluster().add_nodes(n1=200, n2=100)
    (first, second) = add_free_volume(site, "v", 150, copies=2)
    site.store(site.turn(first))

    assert TurnStep.WAIT is site.wait(second, 60).step

    held = builders.replica(second, "v", 150, uid="u", held="2026-01-01T11:59:00Z")
    site.allocator.observe_replica(second, held)
    assert TurnStep.RELEASE is site.turn(second).step


def add_copy_beside_a_failed_one(site: PlacedCluster, gib: float) -> str:
    second = add_second_copy(site, gib, first_on="n1")
    failed = builders.replica("v-r-1", "v", gib, on="n1", uid="uid-v-r-1", failed_at="2026-01-01T11:59:00Z")
    site.allocator.observe_replica("v-r-1", failed)
    return second


def test_nor_is_one_of_a_volume_whose_other_copies_have_failed() -> None:
    """Longhorn cannot detach the volume, to bring one of them back, while it is kept from placing this one."""
    site = PlacedCluster().add_nodes(n1=200, n2=100)
    second = add_copy_beside_a_failed_one(site, 150)

    assert TurnStep.WAIT is site.wait(second, 60).step


def test_that_one_takes_planned_bytes_after_eight_seconds_as_well() -> None:
    site = PlacedCluster().add_nodes(n1=100, n2=100)
    site.chosen("a", 60, "n2")
    second = add_copy_beside_a_failed_one(site, 90)

    turn = site.wait(second, BESIDE_SECONDS)

    assert turn.write is not None
    assert ("n2", How.DISPLACED) == (turn.write.place.node, turn.write.how)


def test_a_further_copy_takes_planned_bytes_at_once_where_the_plan_can_move() -> None:
    site = PlacedCluster().add_nodes(n1=100, n2=100)
    site.chosen("a", 60, "n2")
    second = add_second_copy(site, 90, first_on="n1")
    assert f"wait: {Why.NO_ROOM}" == site.where(second)

    site.add_node("n2", builders.disk("d1", 100), builders.disk("d2", 70))
    site.plans()
    turn = site.turn(second)

    assert turn.write is not None
    assert ("n2-d1", How.MOVED) == (turn.write.place.disk_uuid, turn.write.how)
    assert {"pvc-uid-a": ["n2-d2"]} == site.plans()


def test_a_further_copy_moves_no_later_plan_that_the_earlier_one_leaves_room_for() -> None:
    site = PlacedCluster().add_nodes(n1=100, n2=120)
    site.chosen("early", 70, "n2")
    site.clock.advance(5)
    site.chosen("late", 30, "n2")
    second = add_second_copy(site, 90, first_on="n1")
    site.add_node("n2", builders.disk("d1", 120), builders.disk("d2", 70), builders.disk("d3", 75))
    site.plans()

    assert How.MOVED is getattr(site.turn(second).write, "how", None)
    assert {"pvc-uid-early": ["n2-d2"], "pvc-uid-late": ["n2-d1"]} == site.plans()


def test_a_plan_beside_its_pod_does_not_leave_that_node_for_a_further_copy() -> None:
    site = PlacedCluster().add_nodes(n1=100, n2=100, n3=70)
    site.chosen("a", 60, "n2")
    second = add_second_copy(site, 90, first_on="n1")

    assert f"wait: {Why.NO_ROOM}" == site.where(second)
    assert {"pvc-uid-a": ["n2-d1"]} == site.plans()


def test_a_further_copy_takes_any_planned_bytes_after_eight_seconds_and_who_loses_them_is_told() -> None:
    site = PlacedCluster().add_nodes(n1=100, n2=100)
    site.chosen("a", 60, "n2")
    second = add_second_copy(site, 90, first_on="n1")
    site.plans()

    assert TurnStep.WAIT is site.wait(second, BESIDE_SECONDS - 1).step
    turn = site.wait(second, 1)

    assert turn.write is not None
    assert ("n2", How.DISPLACED) == (turn.write.place.node, turn.write.how)
    assert {"pvc-uid-a": []} == site.plans()
    assert [("place-lost", "a")] == [(str(one.kind), one.name) for one in site.allocator.drain_claim_events()]


def test_nothing_takes_more_than_the_disk_has() -> None:
    site = PlacedCluster().add_nodes(n1=100, n2=50)
    (first, second) = add_free_volume(site, "v", 90, copies=2)
    site.store(site.turn(first))

    assert TurnStep.WAIT is site.wait(second, 30).step


# Own writes


def test_a_decision_counts_at_once_and_whatever_older_events_the_watch_delivers() -> None:
    site = PlacedCluster().add_nodes(n1=100)
    (first,) = add_free_volume(site, "v", 60)
    site.turn(first)

    site.allocator.observe_replica(first, builders.replica(first, "v", 60, uid=f"uid-{first}", image="another"))
    (other,) = add_free_volume(site, "w", 60)

    assert f"wait: {Why.NO_ROOM}" == site.where(other)
    assert f"wait: {Why.WRITTEN}" == site.where(first)


def test_a_write_that_failed_counts_no_more() -> None:
    site = PlacedCluster().add_nodes(n1=100)
    (first,) = add_free_volume(site, "v", 60)
    turn = site.turn(first)
    assert turn.write is not None

    site.allocator.places.failed(turn.write, builders.replica(first, "v", 60, uid=f"uid-{first}"))
    (other,) = add_free_volume(site, "w", 60)

    assert "n1-d1" == site.where(other)


def test_where_a_write_failed_its_pod_that_waits_for_a_choice_still_has_the_place() -> None:
    """Of a claim that is bound at once, before the pod's node is chosen."""
    site = PlacedCluster().add_nodes(n1=100)
    assert {"n1"} == site.ask("pod", 60, "n1", class_name="roaming")
    name = site.provision("pod", locality="disabled")
    held = site.pending()
    turn = site.turn(f"{name}-r-1")
    assert turn.write is not None

    site.allocator.places.failed(turn.write, builders.replica(f"{name}-r-1", name, 60))

    assert held == site.pending()
    assert set() == site.ask("other", 60, "n1")


def test_the_end_of_a_former_decision_is_none_of_the_present_ones() -> None:
    site = PlacedCluster().add_nodes(n1=100)
    (first,) = add_free_volume(site, "v", 60)
    former = site.turn(first)
    assert former.write is not None
    site.allocator.end_term()
    site.allocator.begin_term()
    site.turn(first)

    site.allocator.places.failed(former.write, builders.replica(first, "v", 60, uid=f"uid-{first}"))

    (other,) = add_free_volume(site, "w", 60)
    assert f"wait: {Why.NO_ROOM}" == site.where(other)


def test_a_place_that_somebody_else_has_stored_stands_and_is_counted() -> None:
    site = PlacedCluster().add_nodes(n1=100, n2=100)
    (first,) = add_free_volume(site, "v", 60)
    turn = site.turn(first)
    assert turn.write is not None
    other = {"n1": "n2", "n2": "n1"}[turn.write.place.node]
    site.clock.advance(GATE_SECONDS)

    theirs = builders.replica(first, "v", 60, on=other, uid=f"uid-{first}")
    site.allocator.places.failed(turn.write, theirs)
    site.allocator.observe_replica(first, theirs)
    (second,) = add_free_volume(site, "w", 60)

    assert f"{turn.write.place.node}-d1" == site.where(second)
    assert 1 == site.allocator.snapshot().counters["foreign_placements"]
    assert [[(first, other)], []] == [told_as_foreign(site), told_as_foreign(site)]


@pytest.mark.parametrize(("is_left", "seconds"), [(True, GATE_SECONDS), (False, GATE_SECONDS - 1)])
def test_what_longhorn_was_free_to_place_is_counted_apart_and_not_told(is_left: bool, seconds: float) -> None:
    """It was left to it, or the gate may not have stood yet."""
    site = PlacedCluster().add_nodes(n1=100)
    (first,) = add_free_volume(site, "v", 60)
    site.allocator.observe_replica(first, builders.replica(first, "v", 60, uid="u", is_left=is_left))
    site.clock.advance(seconds)

    site.allocator.observe_replica(first, builders.replica(first, "v", 60, on="n1", uid="u"))

    counters = site.allocator.snapshot().counters
    assert (0, 1) == (counters.get("foreign_placements", 0), counters["foreign_placements_left"])
    assert [] == told_as_foreign(site)


def test_placing_that_is_switched_on_again_begins_with_a_time_in_which_longhorn_was_free() -> None:
    site = PlacedCluster().add_nodes(n1=200)
    (first, second) = add_free_volume(site, "v", 60, copies=2)
    site.clock.advance(GATE_SECONDS)
    for placement in ("longhorn", "leader"):
        site.allocator.configure(LiveSettings(enabled=True, placement=placement), LonghornSettings())

    for name in (first, second):
        site.allocator.observe_replica(name, builders.replica(name, "v", 60, on="n1", uid=f"uid-{name}"))
        site.clock.advance(GATE_SECONDS)

    assert [(second, "n1")] == told_as_foreign(site)


def test_a_place_of_ours_is_no_foreign_one() -> None:
    site = PlacedCluster().add_nodes(n1=100)
    (first,) = add_free_volume(site, "v", 60)
    site.clock.advance(GATE_SECONDS)

    site.allocator.observe_replica(first, site.store(site.turn(first)))

    assert 0 == site.allocator.snapshot().counters.get("foreign_placements", 0)
    assert [] == told_as_foreign(site)
    assert 0 == site.allocator.places.unseen_seconds()


def test_it_is_known_for_how_long_the_watch_has_not_shown_what_is_stored() -> None:
    site = PlacedCluster().add_nodes(n1=100)
    (first,) = add_free_volume(site, "v", 60)
    site.store(site.turn(first))

    site.clock.advance(7)

    assert 7 == site.allocator.places.unseen_seconds()


# What is not placed


def test_a_strict_local_copy_is_bound_to_its_node_by_the_same_write() -> None:
    site = PlacedCluster().add_nodes(n1=100, n2=100)
    site.chosen("a", 60, "n2", "strict")
    site.provision("a", data_locality="strict-local")

    turn = site.turn("pvc-uid-a-r-1")

    assert turn.write is not None
    assert ("n2", "n2") == (turn.write.place.node, turn.write.hard_node_affinity)


@pytest.mark.parametrize("source", [{"data_source": "vol://v"}, {"from_backup": "s3://b@r/?backup=x&volume=v"}])
def test_a_strict_local_volume_with_a_source_is_left_to_longhorn_and_never_planned(source: dict[str, Any]) -> None:
    site = PlacedCluster().add_nodes(n1=100)
    site.chosen("a", 60, "n1", "strict")
    site.plans()
    site.provision("a", data_locality="strict-local", **source)

    assert TurnStep.LEAVE is site.turn("pvc-uid-a-r-1").step
    assert {"pvc-uid-a": []} == site.plans()


def test_what_waits_for_its_volumes_node_is_held_and_goes_there() -> None:
    site = PlacedCluster().add_nodes(n1=100, n2=100)
    site.allocator.observe_volume("v", builders.volume("v", 60))
    site.allocator.observe_replica("r", builders.replica("r", "v", 60, uid="u"))

    assert f"wait: {Wait.NOT_ATTACHED}" == site.where("r")
    assert TurnStep.HOLD is site.wait("r", HOLD_AFTER_SECONDS).step

    site.attach("v", "n2", 60)
    assert "n2-d1" == site.where("r")


@pytest.mark.parametrize(
    "facts",
    [{"failed_at": "2026-01-01T11:00:00Z"}, {"active": False}, {"deleting": True}],
    ids=["failed", "inactive", "deleting"],
)
def test_what_longhorn_does_not_place_is_left_alone_and_let_go(facts: dict[str, Any]) -> None:
    site = PlacedCluster().add_nodes(n1=100)
    add_free_volume(site, "v", 60)
    for held, step in (("", TurnStep.WAIT), ("2026-01-01T11:59:00Z", TurnStep.RELEASE)):
        site.allocator.observe_replica("v-r-1", builders.replica("v-r-1", "v", 60, uid="u", held=held, **facts))
        assert step is site.turn("v-r-1").step


def test_a_replica_that_is_marked_as_left_is_left() -> None:
    site = PlacedCluster().add_nodes(n1=100)
    add_free_volume(site, "v", 60)
    site.allocator.observe_replica("v-r-1", builders.replica("v-r-1", "v", 60, uid="u", is_left=True))

    assert f"wait: {Why.LEFT}" == site.where("v-r-1")


@pytest.mark.parametrize(
    "live",
    [
        LiveSettings(enabled=True, placement="longhorn"),
        LiveSettings(enabled=True, allocation_authority="disk-scheduler"),
    ],
)
def test_nothing_is_placed_where_the_settings_say_so_and_plans_stand_until_it_is(live: LiveSettings) -> None:
    site = PlacedCluster().add_nodes(n1=100)
    site.chosen("a", 60, "n1")
    (first,) = add_free_volume(site, "v", 50)
    site.plans()

    site.allocator.configure(live, LonghornSettings())
    site.provision("a")
    assert [TurnStep.NOTHING] * 2 == [site.turn(name).step for name in (first, "pvc-uid-a-r-1")]
    assert set() == site.ask("b", 50, "n1")
    assert {} == site.plans()

    site.allocator.configure(site.live, LonghornSettings())
    assert ["n1-d1", f"wait: {Why.NO_ROOM}"] == [site.where(name) for name in ("pvc-uid-a-r-1", first)]


def test_nothing_is_placed_in_bypass_or_by_a_follower() -> None:
    site = PlacedCluster().add_nodes(n1=100)
    (first,) = add_free_volume(site, "v", 20)

    site.allocator.set_mode(Mode.BYPASS)
    assert TurnStep.NOTHING is site.turn(first).step
    site.allocator.set_mode(Mode.ACTIVE)
    assert "n1-d1" == site.where(first)
    site.allocator.end_term()
    assert TurnStep.NOTHING is site.turn(first).step
