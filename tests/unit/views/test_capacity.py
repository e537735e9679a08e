"""How much fits, what has to be rebuilt, and whether a node may be lost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.allocator.choose.wanted import Wanted, replica_to_come
from controller.model.longhorn import LonghornSettings
from controller.rules.growth import GRANULE_BYTES
from controller.views.capacity import Placing, capacity_of
from controller.views.documents import Capacity
from tests.fakes.builders import GIB, TestCluster, disk, node, replica, volume


def capacity(cluster: TestCluster) -> Capacity:
    cluster.clock.advance(2)
    return capacity_of(cluster.allocator.look())


def in_gib(sizes: Any) -> list[int]:
    return [size // GIB for size in sizes.values()]


def spread(cluster: TestCluster, name: str, gib: float, *nodes: str, wants: int = 0, **facts: Any) -> None:
    """A volume with a copy on each of these nodes."""
    made = volume(name, gib, locality="disabled", attached_to=nodes[0], replica_count=wants or len(nodes), **facts)
    cluster.allocator.observe_volume(name, made)
    for number, on in enumerate(nodes):
        cluster.allocator.observe_replica(f"{name}-{number}", replica(f"{name}-{number}", name, gib, on=on))


def test_the_largest_volume_depends_on_the_number_of_copies() -> None:
    cluster = TestCluster().add_nodes(n1=[100, 90], n2=80, n3=50)
    assert [100, 80, 50] == in_gib(capacity(cluster).largest_bytes)


def test_what_is_promised_is_not_free_and_closed_disks_count_for_nothing() -> None:
    cluster = TestCluster().add_nodes(n1=100, n2=80, n3=200)
    cluster.put_node(replace(node("n3", free_gib=200), allow_scheduling=False))
    cluster.ask("a", 30, "n1")
    found = capacity(cluster)
    assert [80, 70, 0] == in_gib(found.largest_bytes)
    assert [("n1", True, 70, 30), ("n2", True, 80, 0), ("n3", False, 0, 0)] == [
        (one.node, one.is_schedulable, one.largest_bytes // GIB, one.taken_bytes // GIB) for one in found.nodes
    ]


def test_copies_that_may_share_a_disk_share_its_room() -> None:
    cluster = TestCluster(settings=LonghornSettings(soft_anti_affinity=True)).add_nodes(n1=100)
    assert [100, 50, 33] == in_gib(capacity(cluster).largest_bytes)


def test_tags_have_their_own_figures() -> None:
    cluster = TestCluster().add_nodes(n1=300)
    cluster.add_node("n2", disk("d1", 100, node="n2", tags=("ssd",)), disk("d2", 60, node="n2", tags=("ssd",)))
    cluster.add_node("n3", disk("d1", 80, node="n3", tags=("ssd",)))
    cluster.put_node(replace(node("n1", free_gib=300), tags=frozenset({"big"})))
    found = {(one.of, one.tag): one for one in capacity(cluster).tags}
    assert (3, 240, [100, 80, 0]) == (
        (ssd := found["disk", "ssd"]).disks,
        ssd.free_bytes // GIB,
        in_gib(ssd.largest_bytes),
    )
    assert [300, 0, 0] == in_gib(found["node", "big"].largest_bytes)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.integers(1, 120), min_size=1, max_size=3), min_size=1, max_size=4), st.integers(1, 60))
def test_a_node_takes_the_largest_volume_that_is_told_and_no_larger_one(sizes: list[list[int]], gib: int) -> None:
    cluster = TestCluster().add_nodes(**{f"n{number}": disks for number, disks in enumerate(sizes)})
    cluster.ask("a", gib, *(f"n{number}" for number in range(len(sizes))))
    found = capacity(cluster)
    placing = Placing.of(cluster.allocator.look())
    for one in found.nodes:
        for size, is_taken in ((one.largest_bytes, True), (one.largest_bytes + GRANULE_BYTES, False)):
            facts = replace(volume("new", 0), size_bytes=size, data_locality="disabled")
            wanted = Wanted(facts, replica_to_come(facts), only=frozenset({one.node}))
            place = placing.chooser.choose(wanted, placing.filling).place
            assert (is_taken and size > 0) is (place is not None and size > 0)


def test_missing_copies_are_told_with_whether_they_find_a_disk() -> None:
    cluster = TestCluster().add_nodes(n1=400, n2=100)
    spread(cluster, "large", 150, "n1", wants=2)
    spread(cluster, "small", 60, "n1", wants=2)
    spread(cluster, "whole", 10, "n1", "n2")
    assert [("large", 1, False), ("small", 1, True)] == [
        (one.volume, one.copies, one.is_placeable) for one in capacity(cluster).rebuilds
    ]


def test_two_rebuilds_do_not_find_the_same_bytes() -> None:
    cluster = TestCluster().add_nodes(n1=400, n2=100)
    spread(cluster, "a", 70, "n1", wants=2)
    spread(cluster, "b", 60, "n1", wants=2)
    assert [True, False] == [one.is_placeable for one in capacity(cluster).rebuilds]


@pytest.mark.parametrize(("free", "is_survived", "homeless", "missing"), [(100, True, [], 0), (50, False, ["a"], 80)])
def test_the_loss_of_the_largest_node_is_survived_if_all_its_copies_find_other_disks(
    free: int, is_survived: bool, homeless: list[str], missing: int
) -> None:
    cluster = TestCluster().add_nodes(n1=400, n2=100, n3=free)
    spread(cluster, "a", 80, "n1", "n2")
    spread(cluster, "b", 10, "n1", "n2")
    cluster.let_figures_follow()
    found = capacity(cluster).survival
    assert found is not None
    assert ("n1", is_survived, 2, 90) == (found.node, found.is_survived, found.copies, found.size_bytes // GIB)
    assert (homeless, missing, []) == (found.homeless, found.missing_bytes // GIB, found.lost)


def test_a_volume_whose_only_copy_is_there_is_lost() -> None:
    cluster = TestCluster().add_nodes(n1=400, n2=100)
    spread(cluster, "a", 80, "n1")
    found = capacity(cluster).survival
    assert found is not None
    assert (False, ["a"], []) == (found.is_survived, found.lost, found.homeless)


def test_what_was_cut_short_is_noted() -> None:
    cluster = TestCluster().add_nodes(n1=400, n2=400, n3=400)
    for number in range(5):
        spread(cluster, f"v{number}", 10, "n1", "n2", wants=3)
    cluster.clock.advance(2)
    look = cluster.allocator.look()
    cluster.make_looks_cost(0.3)
    found = capacity_of(replace(look, clock=cluster.allocator._clock))
    assert any("of 5 volumes with missing copies are told" in note for note in found.notes)
    assert any("were not placed anew" in note for note in found.notes)
    assert found.survival is None


def test_without_nodes_there_is_nothing() -> None:
    found = capacity(TestCluster())
    assert (None, (), [0, 0, 0]) == (found.survival, found.disks, in_gib(found.largest_bytes))
