"""Copies of backing images that are given a disk, beside those that are there and those that are on their way out."""

from __future__ import annotations

from controller.allocator.verbs.allotment import Allotment
from controller.model.allocations import Allocation, Purpose, Put
from controller.rules.reasons import Reason
from tests.fakes.builders import GIB
from tests.unit.allocator.giving import Allocating, cluster_of, image, place, why


def placed_copy(cluster: Allocating) -> Allotment:
    return cluster.write(cluster.allocator.allocations.place_image("i"))


def on_record(cluster: Allocating, *names: str) -> None:
    entries = (Allocation(Purpose.BACKING_IMAGE, "i", name, "d1", 20 * GIB) for name in names)
    cluster.write(Allotment(changes=tuple(map(Put, entries))))


def test_the_disk_of_a_copy_that_is_being_removed_is_not_given_for_another_one() -> None:
    """Its file is there, so that it is on record, and the spec names it no more."""
    cluster = cluster_of(n1=100, n2=100, n3=50)
    image(cluster, 20, "n2", seen_on=["n1", "n2"])
    on_record(cluster, "n1", "n2")
    assert (("n3", "d1"), True) == (place(given := placed_copy(cluster)), given.is_new)
    image(cluster, 20, "n2", "n3", seen_on=["n1", "n2"])
    assert dict.fromkeys(("n1", "n2", "n3"), (Reason.BACKING_IMAGE, 0)) == why(placed_copy(cluster))


def test_nor_is_one_that_is_not_on_record() -> None:
    cluster = cluster_of(n1=100, n2=50)
    image(cluster, 20, seen_on=["n1"])
    assert ("n2", "d1") == place(placed_copy(cluster))
