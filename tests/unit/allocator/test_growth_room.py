"""Room for growth beside what others have: on every disk that holds the volume or is to hold it, or on none."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controller.allocator.choose.growth import SEARCH_MILLISECONDS
from controller.allocator.plans.plan import Hold, Source
from controller.allocator.verbs.grow import GrowthOutcome, GrowthVerdict, places_to_come
from controller.model.longhorn import BackingImage, DiskNeeds, SpacePolicy
from controller.model.places import Place
from controller.rules.growth import GRANULE_BYTES
from controller.rules.reasons import Reason
from tests.fakes.builders import GIB, disk, node
from tests.fakes.clock import TickingClock
from tests.fakes.rooms import OPEN
from tests.unit.allocator.growing import NOW, A, Growing

ADMITTED, REFUSED = GrowthVerdict.ADMITTED, GrowthVerdict.REFUSED


def to_come(gib: float = 100, disks: dict[str, Any] | None = None, **facts: Any) -> Growing:
    """The same, but that copy, or all of them, has no disk yet."""
    stage = Growing(**(disks or {}))
    stage.add("a", gib, on="", **facts)
    return stage


def why(outcome: GrowthOutcome) -> list[tuple[str, str, float, Reason]]:
    """Node, disk, GiB that are missing, and the reason."""
    return [(entry.node, entry.disk, entry.missing_bytes / GIB, entry.rejection.reason) for entry in outcome.obstacles]


def assert_at_most(stage: Growing, gib: float, reason: Reason, *where: str, copies: int = 1) -> None:
    """The volume may have that size and not 2 MiB more, for that reason on that node and disk, on which it has so many
    copies."""
    more = gib + GRANULE_BYTES / GIB
    refused = stage.ask("a", more, dry_run=True)
    assert (REFUSED, gib, True) == (refused.verdict, refused.largest_bytes / GIB, refused.is_largest)
    node, disk_name = where or ("", "")
    assert [(node, disk_name, copies * GRANULE_BYTES / GIB, reason)] == why(refused)
    assert ADMITTED is stage.ask("a", gib, dry_run=True).verdict


# Copies that lie somewhere


def test_what_is_planned_for_others_on_its_disk_is_theirs(stage: Growing) -> None:
    stage.put_node(node("n1", disk("d1", 400), disk("d2", 400)))
    stage.plan("b", 120, "n1-d1")
    stage.plan("c", 400, "n1-d2")
    assert_at_most(stage, 280, Reason.CONTENDED, "n1", "d1")
    text = stage.ask("a", 300).obstacles[0].rejection.message
    assert "d1: 200 GiB growth + 120 GiB planned for other volumes exceed the 300 GiB that are free" == text


def test_what_has_no_place_now_and_would_have_none_on_an_empty_disk_is_told_apart(stage: Growing) -> None:
    stage.plan("b", 10, "n1-d1")
    assert [("n1", "d1", 10, Reason.CONTENDED)] == why(stage.ask("a", 400))
    assert [("n1", "d1", 1, Reason.INSUFFICIENT_STORAGE)] == why(stage.ask("a", 401))  # Longhorn's own rule comes first


def test_copies_on_one_disk_share_what_others_leave() -> None:
    stage = Growing()
    stage.place(stage.add("a", 50), "n1", 50, number=2)
    stage.plan("b", 100, "n1-d1")
    assert_at_most(stage, 150, Reason.CONTENDED, "n1", "d1", copies=2)


def test_copies_that_have_grown_in_part_are_as_large_as_they_are_to_be(stage: Growing) -> None:
    """Longhorn has made the volume larger, and one of its copies."""
    stage.add_node("n2", d1=400)
    stage.place(A, "n2", 100, number=2)
    stage.grow_volume(A, 200)
    stage.place(A, "n1", 200)
    stage.plan("b", 60, "n1-d1", "n2-d1")
    assert {"a": ("ASKED", 100)} == stage.grown()
    refused = stage.ask("a", 350)
    assert [("n1", "d1", 10, Reason.CONTENDED), ("n2", "d1", 10, Reason.CONTENDED)] == why(refused)
    assert 340 * GIB == refused.largest_bytes


def test_the_largest_size_is_never_less_than_what_was_granted(stage: Growing) -> None:
    stage.ask("a", 200)
    stage.plan("b", 250, "n1-d1")
    refused = stage.ask("a", 300)
    assert (200 * GIB, [("n1", "d1", 150, Reason.CONTENDED)]) == (refused.largest_bytes, why(refused))


def test_a_disk_on_which_there_is_too_much_lacks_that_as_well(stage: Growing) -> None:
    stage.put_node(node("n1", replace(disk("d1", 400), scheduled_bytes=320 * GIB)))
    assert [("n1", "d1", 30, Reason.INSUFFICIENT_STORAGE)] == why(stage.ask("a", 110))
    stage.plan("b", 10, "n1-d1")
    assert [("n1", "d1", 30, Reason.INSUFFICIENT_STORAGE)] == why(stage.ask("a", 110))


def test_a_figure_that_tells_of_a_growth_that_was_cancelled_is_in_nobodys_way(stage: Growing) -> None:
    stale = replace(disk("d1", 400), scheduled_bytes=300 * GIB, scheduled_replicas={f"{A}-r-1": 300 * GIB})
    stage.put_node(node("n1", stale))
    stage.plan("b", 50, "n1-d1")
    assert_at_most(stage, 350, Reason.CONTENDED, "n1", "d1")


def test_physical_space_is_longhorns_own_rule_and_plans_take_none_of_it(stage: Growing) -> None:
    """Plans may come to more than what is available where the limit is twice the disk."""
    stage.world.put_settings(replace(OPEN, space=SpacePolicy(over_provisioning_pct=200, minimal_available_pct=0)))
    stage.plan("b", 300, "n1-d1")
    assert_at_most(stage, 500, Reason.PHYSICAL_SPACE, "n1", "d1")
    stage.plan("c", 1, "n1-d1")
    assert_at_most(stage, 499, Reason.CONTENDED, "n1", "d1")


def closed_disk(stage: Growing) -> None:
    stage.put_node(node("n1", replace(disk("d1", 400), allow_scheduling=False), disk("d2", 250)))


def test_on_a_disk_that_takes_nothing_more_longhorns_rule_decides(stage: Growing) -> None:
    stage.plan("b", 100, "n1-d1")
    closed_disk(stage)
    assert_at_most(stage, 400, Reason.INSUFFICIENT_STORAGE, "n1", "d1")


def test_a_volume_with_a_copy_needs_no_room_for_those_that_it_misses() -> None:
    stage = Growing()
    stage.place(stage.add("a", 100, replica_count=2), "", 100, number=2)
    assert ADMITTED is stage.ask("a", 400).verdict


# Copies that are to come


def test_a_copy_that_is_planned_has_to_fit_at_its_place_and_grows_there() -> None:
    stage = to_come(disks={"d1": 400, "d2": 900})
    stage.plan(A, 100, "n1-d1")
    stage.plan("b", 50, "n1-d1")
    assert_at_most(stage, 350, Reason.CONTENDED, "n1", "d1")
    assert [("n1", "d1", 51, Reason.INSUFFICIENT_STORAGE)] == why(stage.ask("a", 401))
    assert ADMITTED is stage.ask("a", 350).verdict
    assert ({"a": ("HELD", 0)}, 0) == (stage.grown(), stage.free_gib())
    assert (Place("n1", "n1-d1", 350 * GIB),) == places_to_come(stage.table, A)


def test_a_copy_that_is_held_has_to_fit_wherever_its_pod_may_go_and_grows_there() -> None:
    stage = to_come()
    stage.add_node("n2", d1=300)
    stage.add_node("n3", d1=200)
    stage.hold("p", A, 100, "n1-d1", "n2-d1")
    assert_at_most(stage, 300, Reason.INSUFFICIENT_STORAGE, "n2", "d1")
    stage.ask("a", 250)
    assert (150, 50, 200) == tuple(stage.free_gib(one) for one in ("n1", "n2", "n3"))

    stage.clock.advance(60)
    assert stage.look(A)
    assert (300, 200, 200) == tuple(stage.free_gib(one) for one in ("n1", "n2", "n3"))


def test_of_a_hold_only_the_places_of_that_volume_grow() -> None:
    stage = to_come(disks={"d1": 400, "d2": 400})
    places = {"b": Place("n1", "n1-d2", 10 * GIB), A: Place("n1", "n1-d1", 100 * GIB)}
    roaming = {"c": (Place("n1", "n1-d2", GIB),)}
    stage.table.put_hold(Hold("p", Source.FILTER, {"n1": places, "n2": {}}, roaming, 0.0, NOW))
    stage.ask("a", 300)
    held = stage.table.hold("p")
    assert held is not None
    assert {"n1": {**places, A: Place("n1", "n1-d1", 300 * GIB)}, "n2": {}} == held.nodes
    assert roaming == held.anywhere


def hold_anywhere(stage: Growing, *places: Place) -> None:
    stage.table.put_hold(Hold("p", Source.FILTER, None, {A: places}, 0.0, NOW))


def test_copies_that_go_anywhere_grow_in_what_is_held_for_them() -> None:
    stage = to_come(locality="disabled", replica_count=2)
    stage.add_node("n2", d1=300)
    hold_anywhere(stage, *(Place(one, f"{one}-d1", 100 * GIB) for one in ("n1", "n2")))
    assert_at_most(stage, 300, Reason.INSUFFICIENT_STORAGE, "n2", "d1")
    stage.ask("a", 300)
    assert (100, 0) == (stage.free_gib(), stage.free_gib("n2"))


def test_what_several_pods_hold_for_one_volume_counts_once() -> None:
    stage = to_come()
    stage.hold("p", A, 100, "n1-d1")
    stage.hold("q", A, 100, "n1-d1")
    stage.plan(A, 100, "n1-d1")
    assert_at_most(stage, 400, Reason.INSUFFICIENT_STORAGE, "n1", "d1")


def test_several_copies_may_be_planned_on_one_disk_also_beside_one_that_lies_there() -> None:
    stage = to_come(50)
    stage.plan(A, 50, "n1-d1", "n1-d1")
    stage.hold("p", A, 50, "n1-d1")
    assert_at_most(stage, 200, Reason.INSUFFICIENT_STORAGE, "n1", "d1", copies=2)
    stage.place(A, "n1", 50)
    stage.plan(A, 50, "n1-d1")
    stage.plan("b", 100, "n1-d1")
    assert_at_most(stage, 150, Reason.CONTENDED, "n1", "d1", copies=2)


def image(gib: int, *uuids: str) -> BackingImage:
    return BackingImage("i", real_size_bytes=gib * GIB, node_selector=(), disk_selector=(), disk_uuids=frozenset(uuids))


def test_the_backing_image_comes_along_where_it_is_not_yet() -> None:
    stage = to_come(backing_image="i")
    stage.add_node("n2", d1=390)
    stage.world.put_backing_image("i", image(20, "n2-d1"))
    stage.hold("p", A, 100, "n1-d1", "n2-d1")
    assert 370 == stage.free_gib("n2") + 100  # the image lies there
    assert_at_most(stage, 370, Reason.INSUFFICIENT_STORAGE, "n2", "d1")
    stage.add_node("n2", d1=410)
    assert_at_most(stage, 380, Reason.INSUFFICIENT_STORAGE, "n1", "d1")
    stage.ask("a", 380)
    assert {"n1": 400 * GIB, "n2": 380 * GIB} == {one.node: one.size_bytes for one in places_to_come(stage.table, A)}


def test_the_backing_image_comes_once_to_a_disk() -> None:
    stage = to_come(backing_image="i")
    stage.world.put_backing_image("i", image(20))
    hold_anywhere(stage, Place("n1", "n1-d1", 120 * GIB), Place("n1", "n1-d1", 100 * GIB))
    assert_at_most(stage, 190, Reason.INSUFFICIENT_STORAGE, "n1", "d1", copies=2)
    stage.ask("a", 190)
    assert 0 == stage.free_gib()


def test_a_planned_disk_has_to_take_files_of_that_size() -> None:
    stage = to_come(disks={"d1": 40_000})
    stage.plan(A, 100, "n1-d1")
    refused = stage.ask("a", 16 * 1024)
    assert [("n1", "d1", 0, Reason.INCOMPATIBLE_SIZE)] == why(refused)
    assert 16 * 1024 * GIB - GRANULE_BYTES == refused.largest_bytes


def test_a_place_on_a_disk_that_takes_nothing_more_counts_as_none() -> None:
    stage = to_come()
    stage.plan(A, 100, "n1-d1")
    closed_disk(stage)
    assert_at_most(stage, 250, Reason.NO_ROOM_IN_CLUSTER)


# Volumes that lie nowhere, and for which nothing is planned


@pytest.mark.parametrize("owner", ["n1", "n2", ""])
def test_such_a_volume_may_have_any_size_that_some_disk_takes_whoever_owns_it(owner: str) -> None:
    stage = to_come(owner_id=owner)
    stage.add_node("n2", d1=300, d2=700)
    stage.plan("b", 100, "n2-d2")
    assert_at_most(stage, 600, Reason.NO_ROOM_IN_CLUSTER)
    assert ADMITTED is stage.ask("a", 600).verdict
    assert {"a": ("HELD", 0)} == stage.grown()
    assert 600 == stage.free_gib("n2", "d2")  # nothing is kept for it: nobody was told a place


def test_such_a_volume_goes_by_all_rules_of_placement() -> None:
    stage = to_come(needs=DiskNeeds(disk_selector=("ssd",)))
    stage.put_node(node("n2", disk("d1", 600, tags=("ssd",)), replace(disk("d2", 9000), type="block")))
    assert_at_most(stage, 600, Reason.NO_ROOM_IN_CLUSTER)
    stage.add("b", 100, on="", needs=DiskNeeds(disk_selector=("hdd",)))
    refused = stage.ask("b", 200)
    assert (REFUSED, 100 * GIB) == (refused.verdict, refused.largest_bytes)
    assert [("", "", 100, Reason.NO_ROOM_IN_CLUSTER)] == why(refused)


def test_such_a_volumes_copy_may_be_bound_to_a_node() -> None:
    stage = to_come()
    stage.add_node("n2", d1=900)
    bound = replace(stage.world.replicas_of(A)[f"{A}-r-1"], hard_node_affinity="n1")
    stage.world.put_replica(bound.name, bound)
    assert_at_most(stage, 400, Reason.NO_ROOM_IN_CLUSTER)


def test_shards_are_longhorns_own() -> None:
    assert ADMITTED is to_come(data_layout="sharded").ask("a", 5000).verdict


# Time under the allocator's lock


def test_the_search_for_the_largest_size_ends_with_its_time_and_tells_what_was_proved() -> None:
    """Three copies, on disks that are planned for others up to the last 180 GiB."""
    clock = TickingClock(0.0)
    stage = Growing(clock=clock)
    stage.add("a", 100, replica_count=3)
    for number in (2, 3):
        stage.add_node(f"n{number}", d1=400)
        stage.place(A, f"n{number}", 100, number=number)
    stage.plan("b", 120, "n1-d1", "n2-d1", "n3-d1")
    exact = stage.ask("a", 400, dry_run=True)
    assert (REFUSED, True, 280 * GIB) == (exact.verdict, exact.is_largest, exact.largest_bytes)

    clock.seconds = 0.009
    began = clock.now()
    refused = stage.ask("a", 400, dry_run=True)
    assert (REFUSED, False) == (refused.verdict, refused.is_largest)
    assert [Reason.CONTENDED] * 3 == [reason for *_, reason in why(refused)]
    assert 100 * GIB < refused.largest_bytes < exact.largest_bytes
    assert clock.now() - began < 2 * SEARCH_MILLISECONDS / 1000
    assert ADMITTED is stage.ask("a", refused.largest_bytes / GIB).verdict


# Anything at once

GIBS = st.integers(1, 300)
DISKS = ("n1-d1", "n1-d2", "n2-d1", "n3-d1")


@st.composite
def worlds(draw: Any) -> Growing:
    """Volumes that lie somewhere or nowhere, with plans and holds of their own, among those of others; nobody has more
    than there is."""
    stage = Growing(d1=draw(st.integers(100, 500)), d2=draw(st.integers(100, 500)))
    for name in ("n2", "n3"):
        stage.add_node(name, d1=draw(st.integers(100, 500)))
    for claim in draw(st.lists(st.sampled_from("abcd"), unique=True, max_size=4)):
        gib, where = draw(st.integers(1, 60)), draw(st.lists(st.sampled_from(DISKS), unique=True, max_size=3))
        name = stage.add(claim, gib, on="", replica_count=max(1, len(where)))
        for number, one in enumerate(where):
            how = draw(st.sampled_from(["placed", "planned", "held"]))
            on, disk_name = one.split("-")
            if how == "placed":
                stage.place(name, on, gib, disk_name, number=number + 1)
            elif how == "held":
                stage.hold(f"pod-{claim}", name, gib, one)
            elif stage.table.plan(name) is None:
                stage.plan(name, gib, one)
    return stage


def free(stage: Growing) -> list[float]:
    return [stage.free_gib(*one.split("-")) for one in DISKS]


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(stage=worlds(), asked=st.lists(st.tuples(st.sampled_from("abcd"), GIBS, st.booleans()), max_size=8))
def test_what_is_admitted_fits_and_what_is_refused_does_not(stage: Growing, asked: list[tuple[str, int, bool]]) -> None:
    for claim, more, is_stored in asked:
        if claim not in stage.claims:
            continue
        name = stage.claims[claim].volume_name
        size = stage.growths.granted(name) / GIB + more
        had_room = min(free(stage)) >= 0
        outcome = stage.ask(claim, size)
        if outcome.verdict is ADMITTED:
            assert not had_room or min(free(stage)) >= 0
            if is_stored:
                stage.grow_claim(claim, size)
            continue
        largest = outcome.largest_bytes / GIB
        assert outcome.is_largest and stage.growths.granted(name) / GIB <= largest < size
        assert ADMITTED is stage.ask(claim, largest, dry_run=True).verdict
        verdicts = [stage.ask(claim, largest + step / 8 * (size - largest), dry_run=True).verdict for step in range(9)]
        assert [REFUSED] * 8 == verdicts[1:]
        assert all(later is REFUSED for before, later in pairwise(verdicts) if before is REFUSED)
