"""Copies of backing images that are given a disk, beside those that are there and those that are on their way out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from controller.allocator.by_name import images
from controller.allocator.outcome import Allotment
from controller.allocator.verbs.grow import GrowthRequest, GrowthVerdict
from controller.errors import PreconditionError
from controller.model.allocations import Allocation, Purpose
from controller.model.longhorn import BackingImage, LonghornNode
from controller.rules.reasons import Reason
from tests.fakes.builders import GIB, node
from tests.unit.allocator.giving import Allocating, cluster_of, image, place, why


def placed_copy(cluster: Allocating) -> Allotment:
    return cluster.write(cluster.allocator.allocations.place_image("i"))


def on_record(*names: str) -> list[Allocation]:
    return [Allocation(Purpose.BACKING_IMAGE, "i", name, f"{name}-d1", 20 * GIB) for name in names]


def test_the_disk_of_a_copy_that_is_being_removed_is_not_given_for_another_one() -> None:
    """Its file is there, so that it is on record, and the spec names it no more."""
    cluster = cluster_of(n1=100, n2=100, n3=50)
    image(cluster, 20, "n2", seen_on=["n1", "n2"])
    cluster.lead_anew(on_record("n1", "n2"))
    assert (("n3", "d1"), True) == (place(given := placed_copy(cluster)), given.is_new)
    image(cluster, 20, "n2", "n3", seen_on=["n1", "n2"])
    assert dict.fromkeys(("n1", "n2", "n3"), (Reason.BACKING_IMAGE, 0)) == why(placed_copy(cluster))


def test_nor_is_one_that_is_not_on_record() -> None:
    cluster = cluster_of(n1=100, n2=50)
    image(cluster, 20, seen_on=["n1"])
    assert ("n2", "d1") == place(placed_copy(cluster))


def of_disk(**facts: Any) -> Callable[[LonghornNode], LonghornNode]:
    return lambda node: replace(node, disks=tuple(replace(one, **facts) for one in node.disks))


@pytest.mark.parametrize(
    "closed",
    [
        lambda node: replace(node, allow_scheduling=False),
        lambda node: replace(node, schedulable=False),
        lambda node: replace(node, deleting=True),
        of_disk(allow_scheduling=False),
        of_disk(eviction_requested=True),
        of_disk(schedulable=False),
    ],
)
def test_a_disk_that_takes_no_copies_now_is_not_told_again(closed: Callable[[LonghornNode], LonghornNode]) -> None:
    cluster = cluster_of(n1=100, n2=50)
    allocations, n1 = cluster.allocator.allocations, cluster.allocator._world.nodes["n1"]
    image(cluster, 20)
    given = placed_copy(cluster)
    cluster.put_node(closed(n1))
    with pytest.raises(PreconditionError, match="'i' was given disk 'n1-d1' on node n1, which takes no copies"):
        placed_copy(cluster)
    cluster.put_node(n1)
    assert given.allocations == placed_copy(cluster).allocations
    cluster.put_node(closed(n1))
    cluster.write(allocations.release_image("i", "n1-d1"))
    assert ("n2", "d1") == place(placed_copy(cluster))
    assert 30 == cluster.free_gib("n2")


def test_of_two_copies_to_come_the_one_whose_disk_is_open_is_told() -> None:
    cluster = cluster_of(n1=100, n2=50)
    image(cluster, 20)
    cluster.lead_anew(on_record("n1", "n2"))
    cluster.put_node(replace(cluster.allocator._world.nodes["n1"], schedulable=False))
    assert ("n2", "d1") == place(placed_copy(cluster))


@pytest.mark.parametrize("now_on", ["n1", "n2"])
def test_a_copy_to_come_is_known_by_a_disk_that_has_another_name_or_node_since(now_on: str) -> None:
    cluster = cluster_of(n1=100, n2=10)
    image(cluster, 20)
    placed_copy(cluster)
    nodes = cluster.allocator._world.nodes
    (moved,) = nodes["n1"].disks
    cluster.put_node(replace(nodes["n1"], disks=()))
    cluster.put_node(replace(nodes[now_on], disks=(replace(moved, name="other"),)))
    for gib in (20, 30):
        image(cluster, gib)
        assert (gib * GIB, "n1-d1") == ((given := placed_copy(cluster)).size_bytes, given.allocations[0].disk_uuid)


def test_a_copy_that_only_the_images_spec_names_counts() -> None:
    cluster = cluster_of(n1=100)
    image(cluster, 50, "n1")
    assert not cluster.ask("pod", 60, "n1")
    assert {"n1": (Reason.INSUFFICIENT_STORAGE, 10)} == why(cluster.schedule(cluster.show("v", 60)))


@pytest.mark.parametrize("is_used", [False, True], ids=["by itself", "with a replica that is made on it"])
def test_a_copy_counts_as_large_as_its_image_that_was_said_to_be_smaller(is_used: bool) -> None:
    cluster = cluster_of(n1=100)
    image(cluster, 0)
    cluster.write(cluster.allocator.allocations.place_image("i", 10 * GIB))
    image(cluster, 60)
    if is_used:
        cluster.schedule(cluster.show("v", 40, backing_image="i"))
    free = 0 if is_used else 40
    assert {"n1": (Reason.INSUFFICIENT_STORAGE, 60 - free)} == why(cluster.schedule(cluster.show("w", 60)))
    assert 60 * GIB == placed_copy(cluster).allocations[0].size_bytes  # its own bytes are no obstacle
    assert free == cluster.free_gib("n1")


# Copies that come with a replica, whose image nobody asks a disk for


def made_on_image(gib: float = 60, **free_gib: float) -> Allocating:
    """A replica on n1 of a volume that is made on an image of 30 GiB, of which there is no copy there yet."""
    cluster = cluster_of(**free_gib)
    image(cluster, 30)
    assert ("n1", "d1") == place(cluster.schedule(cluster.show("v", gib, backing_image="i")))
    return cluster


@pytest.mark.parametrize("is_shown", [False, True])
def test_the_image_of_a_replica_counts_on_its_disk_for_everybody(is_shown: bool) -> None:
    cluster = made_on_image(n1=100)
    if is_shown:
        cluster.show("v", 60, on="n1", backing_image="i")
        cluster.let_figures_follow()
    assert not cluster.ask("larger", 11, "n1")
    assert {"n1"} == cluster.ask("fits", 10, "n1")
    cluster.drop_pod("fits")
    cluster.drop_claim("fits")
    growth = cluster.allocator.expansions.hold(GrowthRequest("v", 71 * GIB))
    assert (GrowthVerdict.REFUSED, 70 * GIB) == (growth.verdict, growth.largest_bytes)
    assert {"n1": (Reason.INSUFFICIENT_STORAGE, 1)} == why(cluster.schedule(cluster.show("w", 11)))
    assert ("n1", "d1") == place(cluster.schedule(cluster.show("w", 10)))


def test_it_counts_once_whatever_tells_of_it() -> None:
    cluster = made_on_image(n1=100)
    free = [cluster.free_gib("n1")]
    cluster.show("v", 60, on="n1", backing_image="i")
    free.append(cluster.free_gib("n1"))
    image(cluster, 30, "n1")
    free.append(cluster.free_gib("n1"))
    cluster.let_figures_follow()
    n1 = cluster.allocator._world.nodes["n1"]
    listed = replace(n1.disks[0], scheduled_images={"i": 30 * GIB}, scheduled_bytes=90 * GIB)
    cluster.put_node(replace(n1, disks=(listed,)))
    free.append(cluster.free_gib("n1"))
    image(cluster, 30, "n1", seen_on=["n1"])
    free.append(cluster.free_gib("n1"))
    assert [10] * 5 == free


def test_it_counts_once_for_all_replicas_that_are_made_on_it() -> None:
    cluster = made_on_image(n1=100)
    assert {"n1": (Reason.INSUFFICIENT_STORAGE, 1)} == why(cluster.schedule(cluster.show("w", 11, backing_image="i")))
    assert ("n1", "d1") == place(cluster.schedule(cluster.show("w", 10, backing_image="i")))
    assert 0 == cluster.free_gib("n1")
    for name, free_gib in (("v", 60), ("w", 100)):
        cluster.allocator.observe_replica(f"{name}-r-1", None)
        cluster.write(cluster.allocator.allocations.release_replica(f"{name}-r-1"))
        assert free_gib == cluster.free_gib("n1")


def test_it_counts_as_soon_as_its_size_is_known() -> None:
    cluster = cluster_of(n1=100)
    image(cluster, 0)
    cluster.schedule(cluster.show("v", 60, backing_image="i"))
    for gib in (0, 30, 20):
        image(cluster, gib)
        assert 40 - gib == cluster.free_gib("n1")
    cluster.allocator.observe_backing_image("i", None)
    assert 40 == cluster.free_gib("n1")


def test_a_given_copy_counts_also_where_its_image_names_the_disk_and_no_size() -> None:
    cluster = cluster_of(n1=100)
    image(cluster, 0)
    cluster.write(cluster.allocator.allocations.place_image("i", 20 * GIB))
    for gib in (0, 20):
        image(cluster, gib, "n1", seen_on=["n1"])
        assert 80 == cluster.free_gib("n1")


def test_a_copy_that_is_given_the_disk_of_a_replica_needs_no_further_room() -> None:
    cluster = made_on_image(70, n1=100)
    assert ("n1", "d1") == place(placed_copy(cluster))
    assert 0 == cluster.free_gib("n1")
    assert ("n1", "d1") == place(placed_copy(cluster))


def test_a_node_without_a_replica_that_brings_one_is_preferred_for_a_copy() -> None:
    cluster = made_on_image(10, n1=200, n2=100)
    assert ("n2", "d1") == place(placed_copy(cluster))


def test_of_many_nodes_those_that_take_copies_are_told_of_first() -> None:
    cluster = cluster_of(near=50)
    for number in range(45):
        cluster.put_node(replace(node(f"closed{number}", free_gib=1000), allow_scheduling=False))
    image(cluster, 60)
    refused = cluster.allocator.allocations.place_image("i")
    assert "near" == refused.obstacles[0].node
    assert 46 == len(refused.obstacles) + refused.more


# Given, grown, freed


def test_a_copy_of_an_image_goes_to_the_disk_with_most_room_on_a_node_without_one() -> None:
    cluster = cluster_of(n1=300, n2=100, n3=200)
    image(cluster, 20, "n1")
    given = cluster.write(cluster.allocator.allocations.place_image("i"))
    assert (("n3", "d1"), 180) == (place(given), cluster.free_gib("n3"))
    again = cluster.allocator.allocations.place_image("i")  # the image does not show it yet
    assert (given.allocations, False) == (again.allocations, again.is_new)
    image(cluster, 20, "n1", "n3")
    assert ("n2", "d1") == place(cluster.allocator.allocations.place_image("i"))


def test_an_image_gets_no_disk_that_others_hold() -> None:
    cluster = cluster_of(n1=100)
    image(cluster, 50)
    assert {"n1"} == cluster.ask("pod", 60, "n1")
    assert {"n1": (Reason.INSUFFICIENT_STORAGE, 10)} == why(cluster.allocator.allocations.place_image("i"))


def test_an_image_of_no_known_size_needs_one() -> None:
    cluster = cluster_of(n1=100)
    image(cluster, 0)
    with pytest.raises(PreconditionError, match="size of backing image 'i' is not known"):
        cluster.allocator.allocations.place_image("i")
    assert 20 * GIB == cluster.allocator.allocations.place_image("i", 20 * GIB).size_bytes


@pytest.mark.parametrize("is_known", [True, False])
def test_a_copy_grows_on_its_disk_or_not_at_all(is_known: bool) -> None:
    """`is_known`: Longhorn tells the size, and not the caller."""
    cluster = cluster_of(n1=100, n2=60)
    image(cluster, 0)

    def asked(gib: int) -> Allotment:
        image(cluster, gib if is_known else 0)
        return cluster.write(cluster.allocator.allocations.place_image("i", 0 if is_known else gib * GIB))

    for gib, is_new, free_gib in ((10, True, 90), (50, True, 50), (50, False, 50), (10, False, 50)):
        given = asked(gib)
        assert (("n1", "d1"), is_new, free_gib) == (place(given), given.is_new, cluster.free_gib("n1"))
        assert (100 - free_gib) * GIB == given.size_bytes == given.allocations[0].size_bytes
    cluster.show("v", 20, on="n1")
    assert {"n1"} == cluster.ask("pod", 20, "n1")
    assert ((), {"n1": (Reason.INSUFFICIENT_STORAGE, 5)}) == ((refused := asked(65)).allocations, why(refused))
    assert 60 * GIB == asked(60).size_bytes


@pytest.mark.parametrize(("on", "seen_on"), [(["n1"], ["n1"]), (["n1"], []), ([], ["n1"])])
def test_a_copy_is_freed_once_no_map_names_its_disk(on: list[str], seen_on: list[str]) -> None:
    cluster = cluster_of(n1=100)
    image(cluster, 20)
    cluster.write(cluster.allocator.allocations.place_image("i"))
    image(cluster, 20, *on, seen_on=seen_on)
    assert not cluster.allocator.allocations.known.is_shown_without_copy("i", "n1-d1")
    with pytest.raises(PreconditionError, match="'i' still names disk 'n1-d1'"):
        cluster.allocator.allocations.release_image("i", "n1-d1")
    assert 80 == cluster.free_gib("n1")
    image(cluster, 20)
    assert cluster.allocator.allocations.known.is_shown_without_copy("i", "n1-d1")
    cluster.write(cluster.allocator.allocations.release_image("i", "n1-d1"))
    assert 100 == cluster.free_gib("n1")


def test_a_disk_of_which_the_record_has_no_place_for_more_images_is_passed_by(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "MAX_ENTRIES", 1)
    cluster = cluster_of(n1=100, n2=50)
    there = BackingImage("there", real_size_bytes=1, disk_uuids=frozenset(("n1-d1",)))
    cluster.allocator.observe_backing_image("there", there)
    image(cluster, 60)
    given = cluster.allocator.allocations.place_image("i")
    assert {"n1": (Reason.RECORD_UNWRITABLE, 0), "n2": (Reason.TOO_FULL, 0)} == why(given)
    image(cluster, 20)
    assert ("n2", "d1") == place(cluster.allocator.allocations.place_image("i"))
