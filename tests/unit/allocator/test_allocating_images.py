"""Copies of backing images that are given a disk, beside those that are there and those that are on their way out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from controller.allocator.verbs.allotment import Allotment
from controller.errors import PreconditionError
from controller.model.allocations import Allocation, Purpose, Put
from controller.model.longhorn import LonghornNode
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


def of_disk(**facts: bool) -> Callable[[LonghornNode], LonghornNode]:
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
    on_record(cluster, "n1", "n2")
    cluster.put_node(replace(cluster.allocator._world.nodes["n1"], schedulable=False))
    assert ("n2", "d1") == place(placed_copy(cluster))


def test_a_copy_to_come_is_known_by_a_disk_that_has_another_name_since() -> None:
    cluster = cluster_of(n1=100)
    image(cluster, 20)
    placed_copy(cluster)
    n1 = cluster.allocator._world.nodes["n1"]
    cluster.put_node(replace(n1, disks=(replace(n1.disks[0], name="other"),)))
    for gib in (20, 30):
        image(cluster, gib)
        assert (gib * GIB, "n1-d1") == ((given := placed_copy(cluster)).size_bytes, given.disk_uuid)
