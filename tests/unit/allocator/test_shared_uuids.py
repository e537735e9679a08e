"""Nodes that were cloned from one image, whose disks have one UUID: Longhorn goes on, and so does the leader. A disk is
looked up within its node, and what Longhorn sums up by the UUID alone counts on each of the disks, once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.allocator.outcome import SharedDisk
from controller.allocator.verbs.grow import GrowthRequest, GrowthVerdict
from controller.model.longhorn import BackingImage, LonghornNode
from tests.fakes.builders import EPOCH, GIB, TestCluster, node, replica

CLONES = ("w3", "w4", "w5", "w6")
NODES = ("w1", "w2", *CLONES)


def clone(name: str, free_gib: float = 200, scheduled_bytes: int = 0) -> LonghornNode:
    facts = node(name, free_gib=free_gib)
    return replace(facts, disks=(replace(facts.disks[0], uuid="same", scheduled_bytes=scheduled_bytes),))


@pytest.fixture
def cluster() -> TestCluster:
    """Six nodes of 200 GiB, the last four of them clones."""
    cluster = TestCluster().add_nodes(**dict.fromkeys(NODES, 200.0))
    for name in CLONES:
        cluster.put_node(clone(name))
    return cluster


def lies_on(cluster: TestCluster, on: str, gib: float, *, number: int = 1, volume: str = "pvc-uid-a") -> None:
    made = replace(replica(f"{volume}-r-{number}", volume, gib, on=on, healthy_at=EPOCH), disk_uuid="same")
    cluster.allocator.observe_replica(made.name, made)


def room_gib(cluster: TestCluster, name: str) -> float:
    room = cluster.allocator._world.room(name)
    assert room is not None
    return room.disks[0].free_bytes / GIB


def asked_to_grow(cluster: TestCluster, gib: float) -> GrowthVerdict:
    request = GrowthRequest("pvc-uid-a", int(gib * GIB), "ns", "a", is_dry_run=True)
    return cluster.allocator.expansions.hold(request, cluster.clock.now_utc()).verdict


def test_cloned_nodes_are_offered_like_any_other(cluster: TestCluster) -> None:
    assert set(NODES) == cluster.ask("a", 10, *NODES)
    cluster.select_node("a", "w4")
    assert {("w4", "same", 10 * GIB)} == {
        (place.node, place.disk_uuid, place.size_bytes) for place in cluster.allocator._table.places("pvc-uid-a")
    }


def test_what_lies_on_one_clone_counts_on_all_of_them_once(cluster: TestCluster) -> None:
    """As Longhorn sums it up; before the figures show it, and afterwards."""
    cluster.add_claim("a", 50)
    cluster.provision("a")
    lies_on(cluster, "w3", 50)
    assert [200, 200, 150, 150, 150, 150] == [room_gib(cluster, name) for name in NODES]
    for name in CLONES:
        listed = {"pvc-uid-a-r-1": 50 * GIB}
        facts = clone(name, scheduled_bytes=50 * GIB)
        cluster.put_node(replace(facts, disks=(replace(facts.disks[0], scheduled_replicas=listed),)))
    assert [200, 200, 150, 150, 150, 150] == [room_gib(cluster, name) for name in NODES]


@pytest.mark.parametrize("is_chosen", [False, True], ids=["held", "planned"])
def test_what_is_promised_on_one_clone_counts_on_all_of_them_once(cluster: TestCluster, is_chosen: bool) -> None:
    """When the copy comes it does, and a promise on another clone would be lost."""
    assert set(CLONES) == cluster.ask("a", 150, *CLONES)
    if is_chosen:
        cluster.select_node("a", "w3")
    assert set() == cluster.ask("b", 51, *CLONES)
    assert set(CLONES) == cluster.ask("c", 50, *CLONES)
    cluster.select_node("a", "w3")
    cluster.select_node("c", "w4")
    for name, gib, on in (("a", 150, "w3"), ("c", 50, "w4")):
        cluster.provision(name)
        lies_on(cluster, on, gib, volume=f"pvc-uid-{name}")
    assert [0, 0, 0, 0] == [room_gib(cluster, name) for name in CLONES]
    assert not {"plans_lost", "plans_moved"} & cluster.allocator.snapshot().counters.keys()


@pytest.mark.parametrize("others", ["longhorn", "roaming"])
def test_the_volumes_of_a_pod_find_room_on_clones_together(cluster: TestCluster, others: str) -> None:
    for name in ("w1", "w2"):
        cluster.allocator.observe_node(name, None)
    cluster.add_pod("too-large", ("a", 101, "roaming"), ("b", 100, others))
    assert set() == cluster.offered("too-large", *CLONES)
    cluster.add_pod("fits", ("c", 100, "roaming"), ("d", 100, others))
    assert cluster.offered("fits", *CLONES)


def test_a_backing_image_counts_on_each_clone(cluster: TestCluster) -> None:
    cluster.allocator.observe_backing_image(
        "i", BackingImage("i", real_size_bytes=20 * GIB, disk_uuids=frozenset({"same"}))
    )
    assert [200, 200, 180, 180, 180, 180] == [room_gib(cluster, name) for name in NODES]
    records = cluster.allocator.record.of_nodes(NODES)
    assert [0, 0, 20, 20, 20, 20] == [sum(one.size_bytes for one in records[name]) // GIB for name in NODES]


def test_a_volume_on_a_clone_grows(cluster: TestCluster) -> None:
    cluster.add_claim("a", 50)
    cluster.provision("a")
    lies_on(cluster, "w3", 50)
    assert GrowthVerdict.ADMITTED is asked_to_grow(cluster, 200)
    assert GrowthVerdict.REFUSED is asked_to_grow(cluster, 201)


def test_copies_on_two_clones_grow_on_both(cluster: TestCluster) -> None:
    """Longhorn counts the copies of a disk by its UUID (`CheckReplicasSizeExpansion`)."""
    cluster.add_claim("a", 50)
    cluster.provision("a", copies=2)
    lies_on(cluster, "w3", 50)
    lies_on(cluster, "w4", 50, number=2)
    assert GrowthVerdict.ADMITTED is asked_to_grow(cluster, 100)
    assert GrowthVerdict.REFUSED is asked_to_grow(cluster, 101)


def test_copies_of_a_volume_that_goes_anywhere_avoid_a_second_clone(cluster: TestCluster) -> None:
    cluster.add_class("three", dataLocality="disabled", numberOfReplicas="3")
    assert cluster.ask("a", 10, *NODES, class_name="three")
    cluster.select_node("a", "w1")
    places = cluster.allocator._table.places("pvc-uid-a")
    assert ["same", "w1-d1", "w2-d1"] == sorted(place.disk_uuid for place in places)


def test_a_shared_uuid_is_shown_with_all_its_disks_until_it_is_not_shared(cluster: TestCluster) -> None:
    disks = tuple((name, "d1") for name in CLONES)
    assert (SharedDisk("same", disks),) == cluster.allocator.snapshot().shared_disks
    for name in CLONES[1:]:
        cluster.put_node(node(name, free_gib=200))
    assert () == cluster.allocator.snapshot().shared_disks


def test_two_disks_of_one_node_with_one_uuid_take_nothing() -> None:
    """Which of them holds a replica, Longhorn cannot tell either."""
    cluster = TestCluster().add_nodes(n1=[100, 100], n2=100)
    twins = cluster.allocator._world.nodes["n1"]
    cluster.put_node(replace(twins, disks=tuple(replace(one, uuid="twin") for one in twins.disks)))
    assert {"n2"} == cluster.ask("a", 10, "n1", "n2")
    assert (SharedDisk("twin", (("n1", "d0"), ("n1", "d1"))),) == cluster.allocator.snapshot().shared_disks
