"""Hard cases of placing, each as small as it can be: what arrives late, twice, in another order, or not at all."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from controller.allocator.outcome import Mode, TurnStep, Why
from controller.allocator.verbs import place as place_module
from controller.allocator.verbs.grow import GrowthRequest, GrowthVerdict
from controller.allocator.verbs.place import HOLD_AFTER_SECONDS
from controller.model.longhorn import MAX_REBUILD_RETRIES, BackingImage, DiskNeeds, InstanceManager, LonghornSettings
from controller.model.places import Place
from controller.rules.placing import Wait
from controller.rules.reasons import Reason, Rejection
from controller.settings import LiveSettings
from tests.fakes import builders
from tests.fakes.builders import GIB
from tests.unit.allocator.placed_cluster import PlacedCluster, add_free_volume, add_second_copy, made_plan

HELD = "2026-01-01T11:59:00Z"


def hold(site: PlacedCluster, replica: str, volume: str, gib: float) -> None:
    site.allocator.observe_replica(replica, builders.replica(replica, volume, gib, uid=f"uid-{replica}", held=HELD))


def test_a_held_copy_for_which_the_two_functions_disagree_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    site = PlacedCluster().add_nodes(n1=100)
    (first,) = add_free_volume(site, "v", 60)
    hold(site, first, "v", 60)
    monkeypatch.setattr(place_module, "legal", lambda *_: Rejection(Reason.TOO_FULL, "no"))

    assert (TurnStep.RELEASE, Why.ILLEGAL) == (site.turn(first).step, site.turn(first).reason)


def test_a_held_copy_of_a_volume_that_is_not_known_is_let_go() -> None:
    site = PlacedCluster().add_nodes(n1=100)
    (first,) = add_free_volume(site, "v", 60)
    hold(site, first, "v", 60)
    site.allocator.observe_volume("v", None)

    assert TurnStep.RELEASE is site.turn(first).step


def break_planner(monkeypatch: pytest.MonkeyPatch, site: PlacedCluster, volume: str) -> None:
    sound = site.planner.wanted

    def wanted(name: str, *others: Any) -> Any:
        if name == volume:
            raise KeyError("a fault of ours")
        return sound(name, *others)

    monkeypatch.setattr(site.planner, "wanted", wanted)


def test_a_volume_that_cannot_be_planned_leaves_the_others_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = PlacedCluster().add_nodes(n1=400)
    break_planner(monkeypatch, site, "pvc-uid-a")
    site.chosen("a", 80, "n1")

    site.chosen("b", 80, "n1")

    assert {"pvc-uid-b": ["n1-d1"]} == site.plans()
    assert "" == site.allocator.failure


def test_a_replica_for_which_deciding_fails_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    site = PlacedCluster().add_nodes(n1=100)
    (first,) = add_free_volume(site, "v", 60)
    hold(site, first, "v", 60)

    def fail(*_: object) -> None:
        raise KeyError("a fault of ours")

    monkeypatch.setattr(site.allocator.places._chooser, "choose", fail)

    assert TurnStep.RELEASE is site.turn(first).step


def test_a_decision_that_fails_after_it_counted_counts_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    site = PlacedCluster().add_nodes(n1=100)
    (first,) = add_free_volume(site, "v", 60)

    def fail(*_: object) -> None:
        raise KeyError("a fault of ours")

    with monkeypatch.context() as patched:
        patched.setattr(site.allocator.places, "_settle", fail)
        with suppress(KeyError):
            site.turn(first)

    assert "n1-d1" == site.where(first)


def test_a_plan_that_was_lost_to_a_node_for_a_moment_comes_back() -> None:
    site = PlacedCluster().add_nodes(n1=100)
    site.chosen("a", 80, "n1")
    site.put_node(replace(builders.node("n1", free_gib=100), ready=False))
    assert {"pvc-uid-a": []} == site.plans()

    site.add_node("n1", free_gib=100)
    site.pass_time(2)

    assert {"pvc-uid-a": ["n1-d1"]} == site.plans()


def test_stored_plans_of_what_is_gone_are_removed_by_the_next_leader() -> None:
    site = PlacedCluster().add_nodes(n1=100)
    site.allocator.end_term()
    site.allocator.begin_term(plans=[made_plan("gone", "uid-gone", [Place("n1", "n1-d1", GIB)])])

    assert {"gone": []} == site.plans()


def test_a_write_under_way_counts_whatever_is_switched_meanwhile() -> None:
    site = PlacedCluster().add_nodes(n1=100)
    (first,) = add_free_volume(site, "v", 60)
    assert site.turn(first).write is not None

    site.allocator.configure(LiveSettings(enabled=True, placement="longhorn"), LonghornSettings())
    site.allocator.configure(LiveSettings(enabled=True), LonghornSettings())
    (other,) = add_free_volume(site, "w", 60)

    assert f"wait: {Why.NO_ROOM}" == site.where(other)


def test_a_write_under_way_counts_through_bypass() -> None:
    site = PlacedCluster().add_nodes(n1=100)
    (first,) = add_free_volume(site, "v", 60)
    assert site.turn(first).write is not None

    site.allocator.set_mode(Mode.BYPASS)
    site.allocator.set_mode(Mode.ACTIVE)
    (other,) = add_free_volume(site, "w", 60)

    assert f"wait: {Why.NO_ROOM}" == site.where(other)


def test_growth_that_was_admitted_is_nobodys_to_take() -> None:
    site = PlacedCluster().add_nodes(n1=100)
    name = site.add_volume("a", 40)
    assert GrowthVerdict.ADMITTED is site.allocator.expansions.hold(GrowthRequest(name, 70 * GIB)).verdict
    (first,) = add_free_volume(site, "v", 50)

    assert f"wait: {Why.NO_ROOM}" == site.where(first)


def test_growth_of_a_volume_whose_copy_is_being_written_counts() -> None:
    site = PlacedCluster().add_nodes(n1=100)
    (first,) = add_free_volume(site, "v", 40)
    assert site.turn(first).write is not None
    assert GrowthVerdict.ADMITTED is site.allocator.expansions.hold(GrowthRequest("v", 70 * GIB)).verdict
    (other,) = add_free_volume(site, "w", 40)

    assert f"wait: {Why.NO_ROOM}" == site.where(other)


def test_growth_of_an_unplaced_volume_is_placed_with_it() -> None:
    site = PlacedCluster().add_nodes(n1=100)
    (first,) = add_free_volume(site, "v", 40)
    assert GrowthVerdict.ADMITTED is site.allocator.expansions.hold(GrowthRequest("v", 70 * GIB)).verdict
    turn = site.turn(first)
    assert turn.write is not None
    assert 70 * GIB == turn.write.place.size_bytes
    (other,) = add_free_volume(site, "w", 40)

    assert f"wait: {Why.NO_ROOM}" == site.where(other)


def test_what_is_remembered_of_a_volume_goes_with_it() -> None:
    site = PlacedCluster().add_nodes(n1=100)
    (first,) = add_free_volume(site, "v", 60)
    site.allocator.observe_replica(first, site.store(site.turn(first)))

    site.allocator.observe_replica(first, None)
    site.allocator.observe_volume("v", None)

    places = site.allocator.places
    assert [] == [*places._first_at, *places._since, *places._writes, *places._unseen]


def test_a_copy_that_waited_for_its_node_has_five_minutes_from_when_room_was_looked_for() -> None:
    site = PlacedCluster().add_nodes(n1=100)
    site.allocator.observe_volume("v", builders.volume("v", 200))
    site.allocator.observe_replica("r", builders.replica("r", "v", 200, uid="u", held="2026-01-01T11:00:00Z"))
    assert TurnStep.WAIT is site.turn("r").step

    site.attach("v", "n1", 200)

    assert TurnStep.HOLD is site.turn("r").step
    site.allocator.observe_replica("r", builders.replica("r", "v", 200, uid="u", held=HELD))
    assert TurnStep.WAIT is site.turn("r").step


def test_of_three_planned_copies_two_stay_when_one_is_placed() -> None:
    site = PlacedCluster().add_nodes(n1=200, n2=200, n3=200)
    site.add_class("three", dataLocality="disabled", numberOfReplicas="3")
    site.chosen("a", 80, "n1", "three")
    site.provision("a", data_locality="disabled", copies=3)
    site.plans()
    turn = site.turn("pvc-uid-a-r-1")
    site.store(turn)
    ((_, places),) = site.plans().items()
    assert 2 == len(places)
    found = {site.where(f"pvc-uid-a-r-{n}") for n in (2, 3)}
    assert set(places) == found


def test_room_is_held_for_a_larger_volume_than_its_replica_object_says() -> None:
    site = PlacedCluster().add_nodes(n1=100)
    site.allocator.observe_volume("v", builders.volume("v", 80, locality="disabled", replica_count=1))
    site.allocator.observe_replica("r", builders.replica("r", "v", 40, uid="u"))
    site.turn("r")
    (other,) = add_free_volume(site, "w", 50)
    assert f"wait: {Why.NO_ROOM}" == site.where(other)


def test_a_choice_that_moves_takes_its_plan_along() -> None:
    site = PlacedCluster().add_nodes(n1=100, n2=100)
    site.ask("a", 80, "n1", "n2")
    site.select_node("a", "n1")
    assert {"pvc-uid-a": ["n1-d1"]} == site.plans()
    site.select_node("a", "n2")
    assert {"pvc-uid-a": ["n2-d1"]} == site.plans()


def test_a_strict_choice_that_moves_takes_its_plan_along() -> None:
    site = PlacedCluster().add_nodes(n1=100, n2=100)
    site.ask("a", 80, "n1", "n2", class_name="strict")
    site.select_node("a", "n1")
    assert {"pvc-uid-a": ["n1-d1"]} == site.plans()
    site.select_node("a", "n2")
    assert {"pvc-uid-a": ["n2-d1"]} == site.plans()


def test_a_failed_write_gives_its_place_back_to_the_plan() -> None:
    site = PlacedCluster().add_nodes(n1=100)
    site.chosen("a", 80, "n1")
    site.provision("a")
    turn = site.turn("pvc-uid-a-r-1")
    assert turn.write is not None
    site.allocator.places.failed(turn.write, builders.replica("pvc-uid-a-r-1", "pvc-uid-a", 80))
    (first,) = add_free_volume(site, "v", 30)
    assert f"wait: {Why.NO_ROOM}" == site.where(first)
    assert "n1-d1" == site.where("pvc-uid-a-r-1")


def test_the_hold_comes_before_its_age_is_over() -> None:
    site = PlacedCluster().add_nodes(n1=100)
    (first,) = add_free_volume(site, "v", 200)
    assert TurnStep.HOLD is site.wait(first, HOLD_AFTER_SECONDS).step


@pytest.mark.parametrize("facts", [{"schedulable": False}, {"allow_scheduling": False}, {"maximum_bytes": 50 * GIB}])
def test_a_plan_that_was_lost_to_a_disk_for_a_moment_comes_back(facts: dict[str, Any]) -> None:
    site = PlacedCluster().add_nodes(n1=100)
    site.chosen("a", 80, "n1")
    site.put_node(builders.node("n1", replace(builders.disk("d1", 100), **facts)))
    assert {"pvc-uid-a": []} == site.plans()

    site.add_node("n1", free_gib=100)
    site.pass_time(2)

    assert {"pvc-uid-a": ["n1-d1"]} == site.plans()


def test_a_plan_that_a_copy_displaced_comes_back_with_the_room() -> None:
    site = PlacedCluster().add_nodes(n1=100, n2=100)
    site.chosen("a", 60, "n2")
    second = add_second_copy(site, 90, first_on="n1", volume="z")
    site.plans()
    facts = site.store(site.wait(second, 8))
    site.allocator.observe_replica(second, facts)
    assert {"pvc-uid-a": []} == site.plans()

    site.allocator.observe_replica(second, None)
    site.pass_time(2)

    assert {"pvc-uid-a": ["n2-d1"]} == site.plans()


def test_a_volume_made_again_under_its_name_has_no_plan_of_the_former() -> None:
    site = PlacedCluster().add_nodes(n1=[100, 100])
    site.chosen("a", 80, "n1")
    site.provision("a")
    site.plans()
    site.allocator.observe_replica("pvc-uid-a-r-1", None)
    site.allocator.observe_volume("pvc-uid-a", None)
    site.drop_pod("a")
    site.drop_claim("a")
    assert {"pvc-uid-a": []} == site.plans()
    assert [] == site.table.plans()


def test_two_claimants_of_one_claim_have_one_plan() -> None:
    site = PlacedCluster().add_nodes(n1=100)
    site.chosen("a", 80, "n1")
    site.provision("a")
    site.add_pod("b", "a")
    site.bind("b", "n1")
    assert {"pvc-uid-a": ["n1-d1"]} == site.plans()
    site.drop_pod("a")
    assert 80 * GIB == site.table.taken_bytes("n1", "n1-d1")


def test_a_failed_copy_that_may_come_back_keeps_its_bytes() -> None:
    site = PlacedCluster().add_nodes(n1=100)
    (first,) = add_free_volume(site, "v", 60)
    site.allocator.observe_replica(
        first, builders.replica(first, "v", 60, on="n1", uid=f"uid-{first}", failed_at="2026-01-01T11:59:00Z")
    )
    (other,) = add_free_volume(site, "w", 60)
    assert f"wait: {Why.NO_ROOM}" == site.where(other)


def test_nothing_is_lost_by_the_answer_after_the_watch() -> None:
    site = PlacedCluster().add_nodes(n1=100)
    (first,) = add_free_volume(site, "v", 60)
    turn = site.turn(first)
    facts = site.written(turn)
    site.allocator.observe_replica(first, replace(facts, version=5))
    site.allocator.observe_replica(first, None)
    assert turn.write is not None
    site.allocator.places.stored(turn.write, facts)
    (other,) = add_free_volume(site, "w", 60)
    assert "n1-d1" == site.where(other)
    assert 0 == site.allocator.places.unseen_seconds()


def test_a_replica_made_again_under_its_name_is_another_one() -> None:
    site = PlacedCluster().add_nodes(n1=100)
    (first,) = add_free_volume(site, "v", 60)
    turn = site.turn(first)
    site.allocator.observe_replica(first, builders.replica(first, "v", 60, uid="another"))
    assert "n1-d1" == site.where(first)
    assert turn.write is not None
    site.allocator.places.failed(turn.write, None)
    (other,) = add_free_volume(site, "w", 60)
    assert f"wait: {Why.NO_ROOM}" == site.where(other)


# Kinds of volumes


def test_a_backing_image_that_comes_along_takes_bytes_too() -> None:
    site = PlacedCluster().add_nodes(n1=100)
    site.allocator.observe_backing_image("i", image("i", 30))
    (first,) = add_free_volume(site, "v", 50, backing_image="i")
    site.allocator.observe_replica(first, builders.replica(first, "v", 50, uid=f"uid-{first}", backing_image="i"))
    turn = site.turn(first)
    assert turn.write is not None
    assert 80 * GIB == turn.write.place.size_bytes
    (other,) = add_free_volume(site, "w", 30)
    assert f"wait: {Why.NO_ROOM}" == site.where(other)
    (small,) = add_free_volume(site, "x", 20)
    assert "n1-d1" == site.where(small)


def test_a_backing_image_is_not_lost_while_nobody_shows_it() -> None:
    """The write is answered, the copy shown; the image comes to the disk later."""
    site = PlacedCluster().add_nodes(n1=100)
    site.allocator.observe_backing_image("i", image("i", 30))
    (first,) = add_free_volume(site, "v", 50, backing_image="i")
    site.allocator.observe_replica(first, builders.replica(first, "v", 50, uid=f"uid-{first}", backing_image="i"))
    site.allocator.observe_replica(first, replace(site.store(site.turn(first)), size_bytes=50 * GIB, backing_image="i"))
    (other,) = add_free_volume(site, "w", 30)
    assert f"wait: {Why.NO_ROOM}" == site.where(other)


def image(name: str, gib: float) -> BackingImage:
    return BackingImage(name, real_size_bytes=int(gib * GIB))


def test_two_unplaced_copies_go_to_two_nodes_and_a_third_waits() -> None:
    site = PlacedCluster().add_nodes(n1=[200, 200], n2=[200, 200])
    names = add_free_volume(site, "v", 50, copies=3)
    turns = [site.turn(name) for name in names]
    assert ["n1", "n2"] == sorted(turn.write.place.node for turn in turns if turn.write is not None)


def test_planned_copies_and_one_that_somebody_else_placed_stay_apart() -> None:
    site = PlacedCluster().add_nodes(n1=200, n2=200, n3=200)
    site.add_class("three", dataLocality="disabled", numberOfReplicas="3")
    site.chosen("a", 80, "n1", "three")
    site.provision("a", data_locality="disabled", copies=3)
    site.place("pvc-uid-a", "n2", 80, number=1)
    nodes = {site.where(f"pvc-uid-a-r-{n}") for n in (2, 3)}
    assert {"n1-d1", "n3-d1"} == nodes


def test_an_eviction_gets_a_place_elsewhere() -> None:
    site = PlacedCluster().add_nodes(n1=[100, 100], n2=100)
    names = add_free_volume(site, "v", 50, copies=2)
    site.allocator.observe_replica(
        names[0], builders.replica(names[0], "v", 50, on="n1", disk_name="d0", uid="x", eviction_requested=True)
    )
    assert site.where(names[1]) in ("n2-d1", "n1-d1")


def test_a_migration_twin_is_left_alone_and_counted_once() -> None:
    site = PlacedCluster().add_nodes(n1=100)
    (first,) = add_free_volume(site, "v", 40)
    site.store(site.turn(first))
    twin = builders.replica("twin", "v", 40, on="n1", uid="t", active=False)
    site.allocator.observe_replica("twin", twin)
    assert TurnStep.NOTHING is site.turn("twin").step
    assert 0 == site.allocator.snapshot().counters.get("foreign_placements", 0)


def test_a_restore_larger_than_its_claim_is_placed_by_its_volumes_size() -> None:
    site = PlacedCluster().add_nodes(n1=100, n2=400)
    site.chosen("a", 60, "n1")
    site.provision("a", from_backup="s3://b@r/?backup=x&volume=v")
    site.allocator.observe_volume(
        "pvc-uid-a", builders.volume("pvc-uid-a", 150, from_backup="s3://b@r/?backup=x&volume=v")
    )
    site.attach("pvc-uid-a", "n1", 150, from_backup="s3://b@r/?backup=x&volume=v")
    assert "n2-d1" == site.where("pvc-uid-a-r-1")


def test_a_pod_that_is_deleted_between_choice_and_place_leaves_no_plan() -> None:
    site = PlacedCluster().add_nodes(n1=100)
    site.chosen("a", 60, "n1")
    site.provision("a")
    site.bind("a", "n1")
    site.drop_pod("a")
    (other,) = add_free_volume(site, "w", 60)
    assert {"pvc-uid-a": []} == site.plans()
    assert "n1-d1" == site.where(other)


def test_a_shared_volume_is_planned_once_and_placed_at_its_share_manager() -> None:
    site = PlacedCluster().add_nodes(n1=100, n2=100)
    site.add_claim("a", 60, shared=True)
    site.add_pod("p", "a")
    site.add_pod("q", "a")
    site.bind("p", "n1")
    site.bind("q", "n2")
    site.provision("a", access_mode="rwx")
    site.attach("pvc-uid-a", "n2", 60, access_mode="rwx")
    assert "n2-d1" == site.where("pvc-uid-a-r-1")
    assert 1 == len(site.table.plans()) + len(site.allocator.places._writes)


def test_a_reinstated_failed_copy_is_never_placed_twice() -> None:
    site = PlacedCluster().add_nodes(n1=100, n2=100)
    first, second = add_free_volume(site, "v", 60, copies=2)
    site.allocator.observe_replica(
        first,
        builders.replica(
            first, "v", 60, on="n1", uid="x", failed_at="2026-01-01T11:59:00Z", healthy_at="2026-01-01T11:00:00Z"
        ),
    )
    assert site.where(second) == "n2-d1"


@pytest.mark.parametrize(("state", "given"), [("running", f"wait: {Wait.REUSE}"), ("stopped", "n2-d1")])
def test_a_failed_copy_comes_back_only_where_its_engine_runs(state: str, given: str) -> None:
    site = PlacedCluster().add_nodes(n1=100, n2=100)
    first, second = add_free_volume(site, "v", 30, copies=2)
    for node, runs in (("n1", state), ("n2", "running")):
        site.allocator.observe_instance_manager(node, InstanceManager(node, node, "v1", "im", runs))
    site.allocator.observe_replica(
        first, builders.replica(first, "v", 30, on="n1", uid="x", failed_at="2026-01-01T11:59:00Z")
    )
    site.allocator.observe_replica(
        second, builders.replica(second, "v", 30, uid="y", rebuild_retry_count=MAX_REBUILD_RETRIES)
    )
    runs_at: dict[str, Any] = {"attached_to": "n2", "locality": "disabled", "replica_count": 2}
    volume = builders.volume("v", 30, robustness="degraded", last_degraded_at="2026-01-01T11:50:00Z", **runs_at)
    site.allocator.observe_volume("v", volume)
    assert given == site.where(second)


def test_displaced_plans_never_push_a_disk_over() -> None:
    site = PlacedCluster().add_nodes(n1=100, n2=100, n3=45)
    for name, gib in (("a", 50), ("b", 40)):
        site.chosen(name, gib, "n2")
    second = add_second_copy(site, 95, first_on="n1", volume="z")
    turn = site.wait(second, 8)
    assert turn.write is not None
    for node in ("n1", "n2", "n3"):
        hard = site.planner.hard_bytes(node, f"{node}-d1")
        assert hard >= site.table.taken_bytes(node, f"{node}-d1") >= 0


# More kinds, and what races


def test_a_v2_copy_goes_to_block_disks_alone() -> None:
    site = PlacedCluster().add_nodes(n1=400)
    site.add_node("n2", replace(builders.disk("d1", 100), type="block", filesystem=""))
    needs = DiskNeeds(data_engine="v2")
    site.allocator.observe_volume("v", builders.volume("v", 60, locality="disabled", needs=needs))
    site.allocator.observe_replica("r", builders.replica("r", "v", 60, uid="u", data_engine="v2"))

    assert "n2-d1" == site.where("r")


def test_a_strict_local_copy_without_a_plan_goes_to_its_volumes_node_and_nowhere_else() -> None:
    site = PlacedCluster().add_nodes(n1=100, n2=40)
    site.allocator.observe_volume("v", builders.volume("v", 60, locality="strict-local"))
    site.allocator.observe_replica("r", builders.replica("r", "v", 60, uid="u"))
    site.turn("r")
    site.attach("v", "n2", 60, locality="strict-local")

    assert f"wait: {Why.NO_ROOM}" == site.where("r")


def test_a_plan_does_not_count_beside_the_copy_that_has_come_to_its_place() -> None:
    site = PlacedCluster().add_nodes(n1=100)
    site.chosen("a", 50, "n1")
    site.provision("a")
    site.turn("pvc-uid-a-r-1")
    (other,) = add_free_volume(site, "w", 50)

    assert "n1-d1" == site.where(other)


def test_plans_of_two_volumes_never_share_bytes_when_one_disk_closes() -> None:
    site = PlacedCluster().add_nodes(n1=[100, 100, 100])
    for name in ("a", "b"):
        site.chosen(name, 45, "n1")
    disks = [replace(builders.disk(name, 100, node="n1"), allow_scheduling=name != "d0") for name in ("d0", "d1", "d2")]
    site.put_node(builders.node("n1", *disks))

    table = site.table
    assert [0, 45, 45] == [table.taken_bytes("n1", f"n1-{name}") // GIB for name in ("d0", "d1", "d2")]


def test_a_move_to_the_pods_node_is_planned_there() -> None:
    site = PlacedCluster().add_nodes(n1=100, n2=100)
    name = site.add_volume("a", 60, on="n1")
    site.add_pod("p", "a")
    site.filter("p", "n1", "n2")
    site.bind("p", "n2")
    site.attach(name, "n2", 60)
    site.allocator.observe_replica("m", builders.replica("m", name, 60, uid="m", hard_node_affinity="n2"))

    assert "n2-d1" == site.where("m")


def test_an_unplaced_migration_of_a_planned_volume_does_not_double_its_plan() -> None:
    site = PlacedCluster().add_nodes(n1=200)
    site.chosen("a", 50, "n1")
    site.provision("a")
    site.store(site.turn("pvc-uid-a-r-1"))

    assert 0 == site.table.taken_bytes("n1", "n1-d1")
    assert 150 * GIB == site.planner.hard_bytes("n1", "n1-d1")


def test_a_copy_that_is_gone_while_it_is_written_leaves_nothing() -> None:
    site = PlacedCluster().add_nodes(n1=100)
    (first,) = add_free_volume(site, "v", 60)
    turn = site.turn(first)
    site.allocator.observe_replica(first, None)
    (other,) = add_free_volume(site, "w", 60)
    assert turn.write is not None
    assert "n1-d1" == site.where(other)
    site.allocator.places.failed(turn.write, None)

    assert f"wait: {Why.WRITTEN}" == site.where(other)


def test_an_older_unplaced_event_after_the_answer_changes_nothing() -> None:
    site = PlacedCluster().add_nodes(n1=100)
    (first,) = add_free_volume(site, "v", 60)
    turn = site.turn(first)
    assert turn.write is not None
    assert turn.write is not None
    site.allocator.places.stored(turn.write, replace(site.written(turn), version=9))
    site.allocator.observe_replica(first, builders.replica(first, "v", 60, uid=f"uid-{first}", version=8))
    (other,) = add_free_volume(site, "w", 60)

    assert f"wait: {Why.NO_ROOM}" == site.where(other)


def test_a_shared_disk_is_never_taken() -> None:
    site = PlacedCluster().add_nodes(n1=100)
    facts = builders.node("n2", free_gib=100)
    site.put_node(replace(facts, disks=tuple(replace(one, uuid="n1-d1") for one in facts.disks)))
    (first,) = add_free_volume(site, "v", 60)

    assert f"wait: {Why.NO_ROOM}" == site.where(first)


def test_a_held_sibling_is_let_go_as_soon_as_the_first_copy_has_its_place() -> None:
    site = PlacedCluster().add_nodes(n1=100)
    first, second = add_free_volume(site, "v", 60, copies=2)
    hold(site, second, "v", 60)
    site.turn(first)

    assert TurnStep.RELEASE is site.turn(second).step


@pytest.mark.parametrize("is_there", [False, True])
def test_a_plan_takes_what_its_backing_image_takes_by_now(is_there: bool) -> None:
    """Its size becomes known, or the image is gone from the disk: the latest plan leaves, if that is too much."""
    site = PlacedCluster().add_nodes(n1=100)
    site.add_class("im", dataLocality="disabled", numberOfReplicas="1", backingImage="i")
    lies = frozenset({"n1-d1"})
    before = replace(image("i", 30), disk_uuids=lies, status_disk_uuids=lies) if is_there else image("i", 0)
    site.allocator.observe_backing_image("i", before)
    first = site.chosen("a", 50, "n1", class_name="im")
    site.provision("a", data_locality="disabled", backing_image="i")
    site.clock.advance(3)
    second, third = site.chosen("b", 15, "n1"), site.chosen("c", 5, "n1")
    site.plans()
    site.allocator.observe_backing_image("i", image("i", 30))
    assert {first: ["n1-d1"]} == site.plans()
    (other,) = add_free_volume(site, "w", 5)
    assert f"wait: {Why.NO_ROOM}" == site.where(other)
    site.clock.advance(3)
    site.allocator.observe_backing_image("i", image("i", 40))
    assert {second, third} >= {name for name, disks in site.plans().items() if not disks} != set()
    assert "n1-d1" == site.where(f"{first}-r-1")


def test_a_strict_local_copy_whose_place_is_lost_goes_nowhere_before_its_volume_is_attached() -> None:
    site = PlacedCluster().add_nodes(n1=100, n2=300)
    site.add_class("im", dataLocality="strict-local", numberOfReplicas="1", backingImage="i")
    site.allocator.observe_backing_image("i", image("i", 0))
    volume = site.chosen("a", 60, "n1", class_name="im")
    site.provision("a", data_locality="strict-local", backing_image="i")
    site.allocator.observe_backing_image("i", image("i", 50))
    assert f"wait: {Wait.NOT_ATTACHED}" == site.where(f"{volume}-r-1")


def test_a_first_copy_whose_place_was_lost_takes_planned_bytes_after_a_while() -> None:
    site = PlacedCluster().add_nodes(n1=100, n2=100)
    site.add_class("roaming", dataLocality="disabled", numberOfReplicas="1")
    site.chosen("b", 70, "n2")
    volume = site.chosen("a", 60, "n1", "roaming")
    assert {"pvc-uid-b": ["n2-d1"], volume: ["n1-d1"]} == site.plans()
    site.put_node(replace(builders.node("n1", free_gib=100), ready=False))
    site.provision("a", data_locality="disabled")
    assert site.wait(f"{volume}-r-1", 7).write is None

    turn = site.wait(f"{volume}-r-1", 1)
    assert turn.write is not None
    assert "n2-d1" == turn.write.place.disk_uuid
    assert {"pvc-uid-b": [], volume: []} == site.plans()


def test_of_two_copies_the_one_that_is_missing_goes_next_to_the_pod_when_room_comes_there() -> None:
    site = PlacedCluster().add_nodes(n1=10, n2=100, n3=100)
    site.add_class("near", dataLocality="best-effort", numberOfReplicas="2")
    volume = site.chosen("a", 40, "n1", "near")
    site.provision("a", data_locality="best-effort", copies=2)
    assert ["n2-d1", "n3-d1"] == site.plans()[volume]
    plans, holds = site.table.plans(), site.table.holds()
    site.allocator.end_term()
    first = f"{volume}-r-1"
    site.allocator.observe_replica(first, builders.replica(first, volume, 40, on="n2", healthy_at=builders.EPOCH))
    site.add_node("n1", free_gib=100)

    site.allocator.begin_term(plans=plans, holds=holds)

    assert ["n1-d1"] == site.plans()[volume]
    assert "n1-d1" == site.where(f"{volume}-r-2")
