"""Where the volumes of one pod find disks, and what is said of a node where they do not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.allocator.choose.choose import Chooser
from controller.allocator.choose.packing import Budget
from controller.allocator.choose.pod_fit import PlacesByVolume, PodFit
from controller.allocator.choose.verdict import BACKING_IMAGE, CONTENDED, FULL, GAVE_UP, KEPT, LATE, Lack, Verdict
from controller.allocator.choose.wanted import NothingTaken, Plus, Taken
from controller.allocator.world.world import World
from controller.model.longhorn import BackingImage
from controller.model.places import Place
from controller.rules.demand import VolumeDemand
from controller.rules.reasons import Reason
from tests.fakes.builders import node
from tests.fakes.clock import VirtualClock
from tests.fakes.rooms import OPEN, local, roaming, room


def world_of(*free: int | tuple[int, ...], zones: str = "", **settings: Any) -> World:
    """Nodes n0, n1, ... with so much free on a disk, or on each of disks d0, d1, ...; a letter for each node's zone."""
    world = World()
    world.put_settings(replace(OPEN, **settings))
    for number, one in enumerate(free):
        disks = (room(f"d{index}", left) for index, left in enumerate((one,) if isinstance(one, int) else one))
        world.put_node(f"n{number}", node(f"n{number}", *disks, zone=zones[number : number + 1]))
    return world


def taken_of(**sizes: int) -> Taken:
    """By node and disk, as in n0d0."""
    return Plus(NothingTaken(), (at(disk, size) for disk, size in sizes.items()))


def at(disk: str, size: int) -> Place:
    name, _, number = disk.partition("d")
    return Place(name, f"{name}-d{number}", size)


def fit(world: World, *demands: VolumeDemand, taken: Taken | None = None, **more: Any) -> PodFit:
    return PodFit(world, Chooser(world), demands, taken or NothingTaken(), **more)


def near(size: int, name: str = "v", copies: int = 2, **fields: Any) -> VolumeDemand:
    """A volume of several copies that likes to have one next to its engine."""
    demand = roaming(size, name, copies)
    return replace(demand, facts=replace(demand.facts, data_locality="best-effort"), prefers_local=True, **fields)


def disks_of(places: PlacesByVolume) -> dict[str, list[str]]:
    return {volume: sorted(f"{one.node}{one.disk_uuid[-2:]}" for one in here) for volume, here in places.items()}


# One node


@pytest.mark.parametrize(
    ("free", "taken", "expected"), [(50, 0, Verdict.SURE), (50, 1, Verdict.CONTENDED), (49, 0, Verdict.FULL)]
)
def test_it_is_sure_beside_what_is_taken_contended_if_that_were_not_and_full_otherwise(
    free: int, taken: int, expected: Verdict
) -> None:
    found = fit(world_of(free), local(50), taken=taken_of(n0d0=taken)).judge("n0")

    assert expected is found.verdict
    assert ({"v": at("n0d0", 50)} if expected is Verdict.SURE else {}) == found.places


def test_a_sure_node_comes_with_a_disk_for_each_volume_and_the_bytes_there() -> None:
    image = BackingImage("i", real_size_bytes=20)
    world = world_of((60, 90))
    found = fit(world, local(60, "a"), local(40, "b", image=image), local(30, "c", image=image)).judge("n0")

    assert {"a": at("n0d0", 60), "b": at("n0d1", 60), "c": at("n0d1", 30)} == found.places


def test_what_only_longhorn_may_place_has_room_and_no_place() -> None:
    source = local(50, "a")
    source = replace(source, facts=replace(source.facts, data_locality="strict-local", data_source="vol://x"))

    assert {"b": at("n0d0", 50)} == fit(world_of(100), source, local(50, "b")).judge("n0").places
    assert FULL == fit(world_of(99), source, local(50, "b")).judge("n0")


def test_room_that_is_kept_is_told_apart() -> None:
    world, others = world_of(100), taken_of(n0d0=40)
    kept = taken_of(n0d0=90)

    assert KEPT == fit(world, local(60), taken=kept, without_kept=others).judge("n0")
    assert CONTENDED == fit(world, local(61), taken=kept, without_kept=others).judge("n0")


def test_a_node_without_room_for_the_backing_image_alone_is_contended() -> None:
    volume = local(50, image=BackingImage("i", real_size_bytes=20))

    assert BACKING_IMAGE == fit(world_of(69), volume).judge("n0")
    assert CONTENDED == fit(world_of(70), volume, taken=taken_of(n0d0=1)).judge("n0")


def test_a_search_that_stops_at_its_limit_does_not_say_that_the_node_is_full() -> None:
    sizes = [41, 38, 34, 35, 57, 51, 30, 40, 46, 44, 58, 49, 32, 40, 47, 59, 49]
    world = world_of((93, 96, 94, 96, 96, 94, 94, 94))

    found = fit(world, *(local(size, f"v{number}") for number, size in enumerate(sizes))).judge("n0")

    assert (GAVE_UP, True) == (found, found.is_bounded)


def test_what_there_is_no_time_for_is_late() -> None:
    clock = VirtualClock()
    asked = fit(world_of(100), local(10, "a"), roaming(10, "b"), budget=Budget.of(clock, 50))
    clock.advance(0.051)

    assert ([], {"n0": LATE}) == asked.open_among(["n0"])
    assert LATE == asked.judge("n0")
    assert asked.pack_first(["n0"]) is None


def test_data_that_lies_on_a_node_needs_no_room_there() -> None:
    home = local(60, usable_nodes=frozenset({"n0"}), placed_nodes=frozenset({"n0"}), home_nodes=frozenset({"n0"}))
    pinned = replace(home, is_pinned=True)
    world = world_of(0, 60)

    found = fit(world, home).judge_all(["n0", "n1"])
    assert [{}, {"v": at("n1d0", 60)}] == [found[name].places for name in ("n0", "n1")]
    assert [True, True] == [found[name].is_sure for name in ("n0", "n1")]
    found = fit(world, pinned).judge_all(["n0", "n1"])
    assert [None, Reason.REPLICA_ELSEWHERE] == [found[name].reason for name in ("n0", "n1")]


def test_a_pod_goes_back_to_the_nodes_with_all_of_its_data_and_room_for_the_rest() -> None:
    def lies_on(name: str, *nodes: str) -> VolumeDemand:
        there = frozenset(nodes)
        return local(60, name, usable_nodes=there, placed_nodes=there, home_nodes=there)

    world, names = world_of(50, 50, 50, 100), ["n0", "n1", "n2", "n3"]
    both = lies_on("a", "n0", "n1"), lies_on("b", "n1", "n2")

    assert ["n1"] == list(fit(world, *both).restart_among(names))
    assert {"c": at("n1d0", 50)} == fit(world, *both, local(50, "c")).restart_among(names)["n1"].places
    assert {} == fit(world, *both, local(51, "c")).restart_among(names)
    assert {} == fit(world, local(50)).restart_among(names)


# Volumes that are bound to no node


def test_of_a_volume_that_has_a_copy_no_further_one_is_waited_for() -> None:
    more = replace(roaming(50), placed_nodes=frozenset({"n0"}))

    assert (["n0"], {}) == fit(world_of(0), more).open_among(["n0"])
    world = world_of(0, degraded_availability=False)
    left, closed = fit(world, more).open_among(["n0"])
    assert ([], Verdict.FULL, Reason.NO_ROOM_IN_CLUSTER) == (left, closed["n0"].verdict, closed["n0"].reason)
    assert Lack(more, ()) == closed["n0"].lack


def test_what_longhorn_never_makes_is_refused_everywhere() -> None:
    _, closed = fit(world_of(100), replace(roaming(1), never="odd")).open_among(["n0"])
    assert [Reason.NEVER_PLACED] == [one.reason for one in closed.values()]


# Where their copies may lie

# Those that are made for the zone or region of the pod's node


@pytest.mark.parametrize(
    ("follows", "zone", "region", "is_open"),
    [
        ("zone", "a", "r", False),  # only n0 itself
        ("zone", "", "r", False),  # without a zone its region
        ("region", "a", "r", False),
        ("region", "a", "s", True),  # where n1 is
        ("zone", "b", "r", False),  # zones of that name in two regions are two
        ("zone", "b", "s", True),
        ("zone", "", "", True),  # nothing to be bound to
        ("", "a", "r", True),
    ],
)
def test_a_new_volume_is_bound_to_the_place_of_the_pods_node(
    follows: str, zone: str, region: str, is_open: bool
) -> None:
    world = world_of(10, 100)
    world.put_node("n0", replace(world.nodes["n0"], zone=zone, region=region))
    world.put_node("n1", replace(world.nodes["n1"], zone="b", region="s"))
    follower = replace(roaming(60, "a"), follows=follows)
    assert (["n0"] if is_open else []) == fit(world, follower).open_among(["n0"])[0]

    beside = (replace(roaming(5, "b"), follows=follows), roaming(60, "free"))  # which is not bound to it
    asked = fit(world, *beside)
    assert ["n0"] == asked.open_among(["n0"])[0]
    assert ["n1d0"] == disks_of(asked.anywhere)["free"]


@pytest.mark.parametrize("follows", ["zone", "region"])
def test_a_volume_that_follows_its_node_goes_anywhere_from_one_without_labels(follows: str) -> None:
    assert fit(world_of(100), local(60, follows=follows)).judge("n0").is_sure


def test_one_zone_is_offered_where_the_volume_is_made_for_the_chosen_one() -> None:
    """Its places lie there; nodes of others are asked about again."""
    world = world_of(50, 0, 50, zones="aab")
    asked = fit(world, replace(roaming(50), follows="zone"))

    names, closed = asked.open_among(["n0", "n1", "n2"])

    assert (["n0", "n1"], {"n2": CONTENDED}) == (names, closed)
    assert {"r": ["n0d0"]} == disks_of(asked.anywhere)


# Several copies, one of which likes to lie next to the engine


@pytest.mark.parametrize(
    ("free", "candidates", "offered"),
    [
        ((90, 100, 80), ["n0", "n2"], ["n0"]),  # the first copy is near, the second where there is most room
        ((90, 100, 80), ["n0", "n1", "n2"], ["n0", "n1"]),
        ((10, 100, 100), ["n0"], ["n0"]),  # none is near: wherever there is one
        ((10, 100, 90), ["n0", "n2"], ["n2"]),
    ],
)
def test_the_first_copy_lies_on_a_candidate_and_the_nodes_with_copies_are_offered(
    free: tuple[int, ...], candidates: list[str], offered: list[str]
) -> None:
    asked = fit(world_of(*free), near(20))

    names, closed = asked.open_among(candidates)

    assert offered == sorted(names)
    assert set(candidates) - set(names) == closed.keys()
    assert 2 == len(asked.anywhere["v"])
    assert asked.anywhere["v"][0].node in candidates or all(free[int(one[1])] < 20 for one in candidates)


def test_beside_a_local_volume_it_narrows_nothing() -> None:
    asked = fit(world_of(90, 100, 80), near(20), local(10, "w"))
    assert (["n0", "n1", "n2"], {}) == asked.open_among(["n0", "n1", "n2"])


def test_with_a_copy_that_is_placed_it_narrows_nothing() -> None:
    placed = near(20, copies=1, placed_nodes=frozenset({"n1"}))
    assert (["n0"], {}) == fit(world_of(90, 100), placed).open_among(["n0"])


# Both kinds together


def test_local_volumes_are_packed_first_where_others_were_given_their_disk() -> None:
    world = world_of(100, 70)
    asked = fit(world, local(90, "a"), roaming(60))
    assert ["n0", "n1"] == asked.open_among(["n0", "n1"])[0]
    assert {"r": ["n0d0"]} == disks_of(asked.anywhere)
    assert [CONTENDED, FULL] == [asked.judge(name) for name in ("n0", "n1")]

    found = asked.pack_first(["n1", "n0"])

    assert found is not None
    assert ("n0", {"a": at("n0d0", 90)}) == (found[0], found[1].places)
    assert {"r": ["n1d0"]} == disks_of(asked.anywhere)
    assert fit(world, local(90, "a"), roaming(71)).pack_first(["n0", "n1"]) is None
    assert fit(world, local(90, "a")).pack_first(["n0", "n1"]) is None


# Places that others claim as well


def test_a_place_that_is_known_is_not_looked_for_and_counts_once() -> None:
    known = {"a": (at("n0d0", 40),), "r": (at("n1d0", 60),)}
    world = world_of(90, 60)
    asked = fit(world, local(40, "a"), local(50, "b"), roaming(60), taken=taken_of(n0d0=40, n1d0=60), known=known)

    assert (["n0"], {}) == asked.open_among(["n0"])
    assert {"r": ["n1d0"]} == disks_of(asked.anywhere)
    assert {"a": at("n0d0", 40), "b": at("n0d0", 50)} == asked.judge("n0").places


@pytest.mark.parametrize(("degraded", "expected"), [(True, ["n0", "n1"]), (False, [])])
def test_a_volume_of_which_a_planned_copy_is_lost_waits_where_all_copies_count(
    degraded: bool, expected: list[str]
) -> None:
    world = world_of(90, 60, degraded_availability=degraded)
    asked = fit(world, roaming(60, "r", 2), taken=taken_of(n1d0=60), known={"r": (at("n1d0", 60),)})
    assert expected == list(asked.open_among(["n0", "n1"])[0])


def test_on_another_node_than_that_of_its_known_place_a_local_volume_needs_room() -> None:
    known = {"a": (at("n0d0", 40),)}
    asked = fit(world_of(40, 50), local(40, "a"), taken=taken_of(n0d0=40), known=known)
    assert [{"a": at("n0d0", 40)}, {"a": at("n1d0", 40)}] == [asked.judge(name).places for name in ("n0", "n1")]
