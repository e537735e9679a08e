"""What no transcript (tests/scenarios/placed.txt) tells of where the leader puts Replicas: many plans, events that come
late, twice or never, places of others, backing images, and faults of ours."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from controller.allocator.outcome import PlaceWrite, ReplicaTurn, TurnStep, WaitReason
from controller.allocator.verbs import place as place_module
from controller.allocator.verbs.observe import MOVES_AT_ONCE, EventContext
from controller.allocator.verbs.place import GATE_SECONDS, HOLD_SECONDS
from controller.allocator.verbs.planning import Planner
from controller.model.longhorn import MAX_REBUILD_RETRIES, BackingImage, InstanceManager, LonghornSettings, Replica
from controller.rules.placing import Wait
from controller.rules.reasons import Reason, Rejection
from controller.settings import LiveSettings
from tests.fakes import builders
from tests.fakes.builders import GIB
from tests.fakes.counting import counted
from tests.unit.allocator.placed_cluster import PlacedCluster, add_free_volume, add_second_copy

FIRST = "v-r-1"


def copy(name: str = FIRST, *, gib: float = 60, **facts: Any) -> Replica:
    """Of the volume v, not placed unless it is told where."""
    return builders.replica(name, "v", gib, **{"uid": f"uid-{name}", **facts})


def asked(**facts: Any) -> PlacedCluster:
    """A disk of 100, and a volume of 60 whose copy waits for its place."""
    site = PlacedCluster().add_nodes(n1=100)
    add_free_volume(site, "v", 60)
    site.allocator.observe_replica(FIRST, copy(**facts))
    return site


def decided() -> tuple[PlacedCluster, ReplicaTurn, PlaceWrite]:
    """The same, while the place is written."""
    site = asked()
    turn = site.turn(FIRST)
    assert turn.write is not None
    return site, turn, turn.write


def takes_another(site: PlacedCluster, gib: float = 60) -> bool:
    """Whether one more volume finds a place."""
    (other,) = add_free_volume(site, f"another-{gib}", gib)
    return site.turn(other).write is not None


# Many plans


def test_many_plans_leave_a_disk_that_closes_a_few_at_a_time() -> None:
    site = PlacedCluster()
    site.add_node("n1", builders.disk("d1", 400), builders.disk("d2", 400))
    for number in range(3 * MOVES_AT_ONCE + 1):
        site.chosen(f"v{number:02}", 10, "n1")
    before = site.plans()
    site.add_node("n1", builders.disk("d1", 400), replace(builders.disk("d2", 400), allow_scheduling=False))

    assert {"n1-d1", "n1-d2"} == {disk for disks in before.values() for disk in disks}
    assert {"n1-d1"} == {disk for disks in {**before, **site.plans()}.values() for disk in disks}


def test_plans_of_volumes_that_are_not_known_hold_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    site = PlacedCluster().add_nodes(n1=400)
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


def test_displaced_plans_never_push_a_disk_over_and_come_back_with_the_room() -> None:
    site = PlacedCluster().add_nodes(n1=100, n2=100, n3=45)
    for name, gib in (("a", 50), ("b", 40)):
        site.chosen(name, gib, "n2")
    before = site.plans()
    second = add_second_copy(site, 95, first_on="n1", volume="z")
    site.allocator.observe_replica(second, site.store(site.wait(second, 8)))
    for node in ("n1", "n2", "n3"):
        hard = site.planner.hard_bytes(node, f"{node}-d1")
        assert hard >= site.table.taken_bytes(node, f"{node}-d1") >= 0
    assert [] in site.plans().values()

    site.allocator.observe_replica(second, None)
    site.pass_time(2)

    assert before == {volume: disks for volume, disks in {**before, **site.plans()}.items() if disks}


# Own writes, and what the watch shows of them


def test_a_place_stays_in_what_is_stored_until_its_copy_is() -> None:
    site = PlacedCluster().add_nodes(n1=100)
    volume = site.chosen("a", 80, "n1")
    site.provision("a")
    assert {volume: ["n1-d1"]} == site.plans()

    turn = site.turn(f"{volume}-r-1")
    assert [] not in site.plans().values()

    site.store(turn)
    assert {volume: []} == site.plans()


def test_a_strict_local_copy_is_bound_to_its_node_by_the_same_write() -> None:
    site = PlacedCluster().add_nodes(n1=100, n2=100)
    site.chosen("a", 60, "n2", "strict")
    site.provision("a", data_locality="strict-local")

    write = site.turn("pvc-uid-a-r-1").write

    assert write is not None
    assert ("n2", "n2") == (write.place.node, write.hard_node_affinity)


def test_the_end_of_a_former_decision_is_none_of_the_present_ones() -> None:
    site, _, former = decided()
    site.allocator.end_term()
    site.allocator.begin_term()
    site.turn(FIRST)

    site.allocator.places.failed(former, copy())

    assert not takes_another(site)


def test_an_older_unplaced_event_after_the_answer_changes_nothing() -> None:
    site, turn, write = decided()
    site.allocator.places.stored(write, replace(site.written(turn), version=9))

    site.allocator.observe_replica(FIRST, copy(version=8))

    assert not takes_another(site)


def test_an_answer_that_comes_after_the_copy_has_gone_brings_nothing_back() -> None:
    site, turn, write = decided()
    facts = site.written(turn)
    site.allocator.observe_replica(FIRST, replace(facts, version=5))
    site.allocator.observe_replica(FIRST, None)

    site.allocator.places.stored(write, facts)

    assert takes_another(site)
    assert 0 == site.allocator.places.unseen_seconds()


def test_a_copy_that_is_gone_while_it_is_written_leaves_nothing() -> None:
    site, _, write = decided()
    site.allocator.observe_replica(FIRST, None)
    assert takes_another(site)

    site.allocator.places.failed(write, None)

    assert not takes_another(site, 50)


def test_a_replica_made_again_under_its_name_is_another_one() -> None:
    site, _, write = decided()
    site.allocator.observe_replica(FIRST, copy(uid="another"))
    assert "n1-d1" == site.where(FIRST)

    site.allocator.places.failed(write, None)

    assert not takes_another(site)


def test_it_is_known_for_how_long_the_watch_has_not_shown_what_is_stored() -> None:
    site, turn, _ = decided()
    site.store(turn)

    site.clock.advance(7)

    assert 7 == site.allocator.places.unseen_seconds()


def test_what_is_remembered_of_a_volume_goes_with_it() -> None:
    site, turn, _ = decided()
    site.allocator.observe_replica(FIRST, site.store(turn))

    site.allocator.observe_replica(FIRST, None)
    site.allocator.observe_volume("v", None)

    places = site.allocator.places
    assert [] == [*places._first_at, *places._since, *places._writes, *places._unseen]


# Places of others


def told_as_foreign(site: PlacedCluster) -> list[tuple[str, str]]:
    """Replicas that somebody else has placed, each with its node."""
    return [(one.name, one.node) for one in site.allocator.places.take_foreign()]


def foreign_counts(site: PlacedCluster) -> tuple[int, int]:
    """Counted as foreign, and as what Longhorn was free to place."""
    counters = site.allocator.snapshot().counters
    return counters.get("foreign_placements", 0), counters.get("foreign_placements_left", 0)


def test_a_place_that_somebody_else_has_stored_stands_and_is_counted() -> None:
    site, _, write = decided()
    site.add_nodes(n2=100)
    site.clock.advance(GATE_SECONDS)

    site.allocator.places.failed(write, copy(on="n2"))
    site.allocator.observe_replica(FIRST, copy(on="n2"))

    assert takes_another(site)
    assert not takes_another(site, 50)
    assert (1, 0) == foreign_counts(site)
    assert [[(FIRST, "n2")], []] == [told_as_foreign(site), told_as_foreign(site)]


@pytest.mark.parametrize(("is_left", "seconds"), [(True, GATE_SECONDS), (False, GATE_SECONDS - 1)])
def test_what_longhorn_was_free_to_place_is_counted_apart_and_not_told(is_left: bool, seconds: float) -> None:
    """It was left to it, or the gate may not have stood yet."""
    site = asked(is_left=is_left)
    site.clock.advance(seconds)

    site.allocator.observe_replica(FIRST, copy(on="n1"))

    assert ((0, 1), []) == (foreign_counts(site), told_as_foreign(site))


def test_placing_that_is_switched_on_again_begins_with_a_time_in_which_longhorn_was_free() -> None:
    site = PlacedCluster().add_nodes(n1=200)
    names = add_free_volume(site, "v", 60, copies=2)
    site.clock.advance(GATE_SECONDS)
    for placement in ("longhorn", "leader"):
        site.allocator.configure(LiveSettings(enabled=True, placement=placement), LonghornSettings())

    for name in names:
        site.allocator.observe_replica(name, copy(name, on="n1"))
        site.clock.advance(GATE_SECONDS)

    assert [(names[1], "n1")] == told_as_foreign(site)


def test_a_place_of_ours_is_no_foreign_one() -> None:
    site, turn, _ = decided()
    site.clock.advance(GATE_SECONDS)

    site.allocator.observe_replica(FIRST, site.store(turn))

    assert ((0, 0), []) == (foreign_counts(site), told_as_foreign(site))
    assert 0 == site.allocator.places.unseen_seconds()


# Replicas that are held back from Longhorn, or left to it


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
    add_free_volume(site, "v", 200)
    site.allocator.observe_replica(FIRST, copy(gib=200, held=mark))

    assert step is site.turn(FIRST).step


@pytest.mark.parametrize(("state", "given"), [("running", f"wait: {Wait.REUSE}"), ("stopped", "n2-d1")])
def test_a_failed_copy_comes_back_only_where_its_engine_runs(state: str, given: str) -> None:
    site = PlacedCluster().add_nodes(n1=100, n2=100)
    first, second = add_free_volume(
        site, "v", 30, copies=2, attached_to="n2", robustness="degraded", last_degraded_at="2026-01-01T11:50:00Z"
    )
    for node, runs in (("n1", state), ("n2", "running")):
        site.allocator.observe_instance_manager(node, InstanceManager(node, node, "v1", "im", runs))
    site.allocator.observe_replica(first, copy(gib=30, on="n1", failed_at="2026-01-01T11:59:00Z"))
    site.allocator.observe_replica(second, copy(second, gib=30, rebuild_retry_count=MAX_REBUILD_RETRIES))

    assert given == site.where(second)


# Backing images


def image(gib: float) -> BackingImage:
    return BackingImage("i", real_size_bytes=int(gib * GIB))


@pytest.mark.parametrize("is_shown", [False, True])
def test_a_backing_image_that_comes_along_takes_bytes_too_until_it_is_shown_itself(is_shown: bool) -> None:
    site = PlacedCluster().add_nodes(n1=100)
    site.allocator.observe_backing_image("i", image(30))
    add_free_volume(site, "v", 50, backing_image="i")
    site.allocator.observe_replica(FIRST, copy(gib=50, backing_image="i"))
    turn = site.turn(FIRST)
    assert turn.write is not None
    assert 80 * GIB == turn.write.place.size_bytes
    if is_shown:  # the copy is; the image comes to the disk later
        site.allocator.observe_replica(FIRST, replace(site.store(turn), size_bytes=50 * GIB, backing_image="i"))

    assert not takes_another(site, 30)
    assert takes_another(site, 20)


@pytest.mark.parametrize("is_there", [False, True])
def test_a_plan_takes_what_its_backing_image_takes_by_now(is_there: bool) -> None:
    """Its size becomes known, or the image is gone from the disk: the latest plan leaves, if that is too much."""
    site = PlacedCluster().add_nodes(n1=100)
    made = {"backingImage": "i", "backingImageDataSourceType": "download"}
    site.add_class("im", dataLocality="disabled", numberOfReplicas="1", **made)
    lies = frozenset({"n1-d1"})
    if is_there:
        site.allocator.observe_backing_image("i", replace(image(30), disk_uuids=lies, status_disk_uuids=lies))
    first = site.chosen("a", 50, "n1", class_name="im")
    site.provision("a", data_locality="disabled", backing_image="i")
    if not is_there:  # it is made with the volume
        site.allocator.observe_backing_image("i", image(0))
    site.clock.advance(3)
    later = {site.chosen("b", 15, "n1"), site.chosen("c", 5, "n1")}
    site.plans()
    site.allocator.observe_backing_image("i", image(30))
    assert {first: ["n1-d1"]} == site.plans()
    assert not takes_another(site, 5)
    site.clock.advance(3)
    site.allocator.observe_backing_image("i", image(40))
    assert later >= {name for name, disks in site.plans().items() if not disks} != set()
    assert "n1-d1" == site.where(f"{first}-r-1")


# Faults of ours


def fail(*_: object) -> None:
    raise KeyError("a fault of ours")


def test_a_held_copy_for_which_the_two_functions_disagree_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    site = asked(held="2026-01-01T11:59:00Z")
    monkeypatch.setattr(place_module, "legal", lambda *_: Rejection(Reason.TOO_FULL, "no"))

    assert (TurnStep.RELEASE, WaitReason.ILLEGAL) == (site.turn(FIRST).step, site.turn(FIRST).reason)


def test_a_held_copy_for_which_deciding_fails_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    site = asked(held="2026-01-01T11:59:00Z")
    monkeypatch.setattr(site.allocator.places._chooser, "choose", fail)

    assert TurnStep.RELEASE is site.turn(FIRST).step


def test_a_decision_that_fails_after_it_counted_counts_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    site = asked()
    with monkeypatch.context() as patched, suppress(KeyError):
        patched.setattr(site.allocator.places, "_settle", fail)
        site.turn(FIRST)

    assert "n1-d1" == site.where(FIRST)


def test_a_volume_that_cannot_be_planned_leaves_the_others_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    site = PlacedCluster().add_nodes(n1=400)
    sound = site.planner.wanted
    monkeypatch.setattr(
        site.planner, "wanted", lambda name, *others: fail() if name == "pvc-uid-a" else sound(name, *others)
    )
    site.chosen("a", 80, "n1")

    site.chosen("b", 80, "n1")

    assert {"pvc-uid-b": ["n1-d1"]} == site.plans()
    assert "" == site.allocator.failure
