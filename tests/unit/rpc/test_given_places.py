"""How long a place stands that was given by name, where else its replica may be told to go, and what others of its
volume are told beside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from controller.allocator.by_name.on_record import REUSED_SECONDS
from controller.errors import PreconditionError
from controller.kube.resources import LONGHORN_BACKING_IMAGES, LONGHORN_REPLICAS, LONGHORN_VOLUMES
from tests.fakes.builders import GIB
from tests.unit.placement.stage import NAMESPACE, ReplicaCell
from tests.unit.rpc.giving import SECONDS, GivingLeader, change_node, put_image

LONG_AGO = "2020-01-01T00:00:00Z"


def given() -> tuple[GivingLeader, str, str]:
    """One of two replicas that want the same room was given it."""
    cell = ReplicaCell(n1=100)
    first, second = cell.add("v", 60), cell.add("w", 60)
    leader = GivingLeader(cell)
    assert "n1" == leader.place(first)
    return leader.see(), first, second


def test_a_place_stands_until_its_caller_writes_it_however_late_and_counts_once_then() -> None:
    leader, first, second = given()
    for _ in range(3):
        leader.cell.clock.advance(10_000)
        leader.cluster.allocator.sweep()
        assert ("", "n1") == (leader.keep().place(second), leader.place(first))
    leader.cell.change(first, nodeID="n1", diskID="n1-d1")
    assert 40 == leader.see().free_gib()
    assert {first: "n1"} == leader.keep().cell.on_record()


@pytest.mark.parametrize(
    "change",
    [
        lambda cell: cell.api.delete(LONGHORN_REPLICAS, NAMESPACE, "v-r-1"),
        lambda cell: cell.change("v-r-1", failedAt=LONG_AGO),
        lambda cell: cell.put_replica("v", gib=60, meta={"deletionTimestamp": LONG_AGO}),
    ],
    ids=["goes", "fails", "is being deleted"],
)
def test_it_is_free_when_its_replica_waits_for_it_no_more(change: Callable[[ReplicaCell], object]) -> None:
    leader, _, second = given()
    change(leader.cell)
    assert "n1" == leader.see().place(second)
    assert {second: "n1"} == leader.cell.on_record()


def test_a_replica_that_was_placed_elsewhere_leaves_it_free() -> None:
    leader, first, second = given()
    leader.cell.put_node("n2", 60)
    leader.cell.change(first, nodeID="n2", diskID="n2-d1")
    assert "n1" == leader.see().place(second)
    assert {first: "n2", second: "n1"} == leader.keep().cell.on_record()


def test_a_copy_of_an_image_stands_until_the_image_shows_it_or_is_gone() -> None:
    cell = ReplicaCell(n1=120, n2=100)
    put_image(cell, 60)
    leader = GivingLeader(cell)
    assert ("n1", 60) == (leader.copy_image(), leader.free_gib())
    cell.clock.advance(10_000)
    assert "n1" == leader.see().copy_image()
    put_image(cell, 60, "n1")
    assert (60, "n2") == (leader.see().free_gib(), leader.copy_image())
    cell.api.delete(LONGHORN_BACKING_IMAGES, NAMESPACE, "i")
    leader.see()
    assert (120, 100) == (leader.free_gib(), leader.free_gib("n2"))
    assert {} == leader.keep().cell.on_record()


# Freed


def test_what_was_placed_a_moment_ago_is_not_freed_while_our_watch_lags() -> None:
    leader, first, second = given()
    put_image(leader.cell, 10)
    assert "n1" == leader.see().copy_image()
    leader.cell.change(first, nodeID="n1", diskID="n1-d1")
    put_image(leader.cell, 10, "n1")
    with pytest.raises(PreconditionError, match="still exists on node n1"):
        leader.free(first)
    with pytest.raises(PreconditionError, match="still names disk 'n1-d1'"):
        leader.free_copy()
    assert ("", 30) == (leader.place(second), leader.free_gib())


def test_freed_twice_it_is_freed_once_and_may_be_given_again() -> None:
    leader, first, second = given()
    assert [1, 0] == [leader.free(first), leader.see().free(first)]
    assert "n1" == leader.place(first)
    assert ("", {first: "n1"}) == (leader.place(second), leader.cell.on_record())


@pytest.mark.parametrize("is_freed", [False, True])
def test_room_is_told_to_one_of_two_when_our_watch_shows_a_former_life_of_a_replica_on_its_disk(is_freed: bool) -> None:
    cell = ReplicaCell(n1=100)
    cell.put_volume("v", 60)
    first, second = cell.put_replica("v", gib=60, nodeID="n1", diskID="n1-d1"), cell.add("w", 60)
    leader = GivingLeader(cell)
    cell.api.delete(LONGHORN_REPLICAS, NAMESPACE, first)
    if is_freed:
        leader.free(first)
    cell.put_replica("v", gib=60, meta={"uid": "another"})
    told = leader.place(first) or leader.see().place(first)
    assert ["", "n1"] == sorted([leader.see().place(second), told])


# Where it goes by now


def test_what_does_not_suit_a_replica_any_more_is_told_until_it_is_deallocated() -> None:
    cell = ReplicaCell(n1=100, n2=50)
    change_node(cell, "n2", tags=("ssd",))
    name = cell.add("v", 20)
    leader = GivingLeader(cell)
    assert "n1" == leader.place(name)
    cell.put_volume("v", 20, nodeSelector=["ssd"])
    with pytest.raises(PreconditionError, match=r"n1: .*tags.*; to have another one chosen, deallocate it"):
        leader.see().place(name)
    leader.free(name)
    assert "n2" == leader.place(name)
    assert {name: "n2"} == cell.on_record()


def test_so_is_a_copy_of_an_image() -> None:
    cell = ReplicaCell(n1=100, n2=90)
    change_node(cell, "n2", tags=("ssd",))
    put_image(cell, 10)
    leader = GivingLeader(cell)
    assert "n1" == leader.copy_image()
    cell.api.patch(LONGHORN_BACKING_IMAGES, NAMESPACE, "i", {"spec": {"nodeSelector": ["ssd"]}})
    with pytest.raises(PreconditionError, match="takes no copies now; to have another one chosen, deallocate it"):
        leader.see().copy_image()
    leader.free_copy()
    assert "n2" == leader.copy_image()


def test_a_replica_of_another_life_is_given_what_suits_that() -> None:
    cell = ReplicaCell(n1=100, n2=50)
    change_node(cell, "n2", tags=("ssd",))
    name = cell.add("v", 20)
    leader = GivingLeader(cell)
    assert "n1" == leader.place(name)
    for kind, gone in ((LONGHORN_REPLICAS, name), (LONGHORN_VOLUMES, "v")):
        cell.api.delete(kind, NAMESPACE, gone)
    cell.put_volume("v", 20, nodeSelector=["ssd"])
    cell.put_replica("v", gib=20, meta={"uid": "another"})
    assert "n2" == leader.see().place(name)
    assert {name: "n2"} == leader.keep().cell.on_record()


def test_a_place_goes_along_with_an_attachment_and_is_on_record_at_one_node_then() -> None:
    cell = ReplicaCell(n1=100, n2=100)
    cell.put_volume("v", 60, dataLocality="strict-local", nodeID="n1")
    first, second = cell.put_replica("v", gib=60), cell.add("w", 60)
    leader = GivingLeader(cell)
    assert "n1" == leader.place(first)
    cell.put_volume("v", 60, dataLocality="strict-local", nodeID="n2")
    assert ("n2", "n1") == (leader.see().place(first), leader.place(second))
    assert {first: "n2", second: "n1"} == cell.on_record()


def test_it_grows_with_its_volume_where_there_is_room() -> None:
    leader, first, _ = given()
    for gib, node in ((90, "n1"), (110, "")):
        leader.cell.put_volume("v", gib)
        leader.see()
        if node:
            assert ("n1", 90) == (leader.place(first), leader.cell.entries()[0].size_bytes // GIB)
        else:
            with pytest.raises(PreconditionError, match="more than there is room for"):
                leader.place(first)
    assert {first: "n1"} == leader.cell.on_record()


# Beside others of its volume


def with_two_replicas(n1: int, n2: int, **spec: Any) -> tuple[GivingLeader, str, str]:
    cell = ReplicaCell(n1=n1, n2=n2)
    cell.put_volume("v", 10, numberOfReplicas=2, **spec)
    first, second = cell.put_replica("v", 1), cell.put_replica("v", 2)
    return GivingLeader(cell), first, second


def test_another_replica_goes_to_another_node_or_nowhere() -> None:
    leader, first, second = with_two_replicas(n1=200, n2=150)
    assert ["n1", "n2"] == [leader.place(first), leader.place(second)]
    third = leader.cell.put_replica("v", 3)
    assert "" == leader.see().place(third)


def test_its_backing_image_comes_along_with_it() -> None:
    cell = ReplicaCell(n1=100)
    put_image(cell, 40)
    cell.put_volume("v", 10, backingImage="i")
    name = cell.put_replica("v", backingImage="i")
    leader = GivingLeader(cell)
    assert ("n1", 50) == (leader.place(name), leader.free_gib())


def test_a_further_replica_is_as_large_as_its_volume_was_told_to_become() -> None:
    leader, first, second = with_two_replicas(n1=150, n2=100)
    assert "n1" == leader.place(first)
    assert "allocated" == leader.expand("v", 60).outcome
    one = leader.giving.place("v", second, SECONDS).allocations[0]
    assert ("n2", 60 * GIB) == (one.node, one.size_bytes)
    assert {60} == {one.size_bytes // GIB for one in leader.cell.entries()}


def test_where_there_is_no_room_for_one_as_large_that_is_said_with_its_bytes() -> None:
    leader, first, second = with_two_replicas(n1=150, n2=50)
    assert "n1" == leader.place(first)
    assert "allocated" == leader.expand("v", 60).outcome
    refused = leader.giving.place("v", second, SECONDS)
    assert ((), 60 * GIB) == (refused.allocations, refused.size_bytes)
    assert ("n2", 10 * GIB) in {(one.node, one.missing_bytes) for one in refused.obstacles}


# Failed ones


def test_where_a_failed_replica_comes_back_no_other_one_is_placed() -> None:
    cell = ReplicaCell(n1=100, n2=400)
    status = {"robustness": "degraded", "state": "attached", "lastDegradedAt": LONG_AGO}
    cell.put_volume("v", 10, numberOfReplicas=2, nodeID="n1", status=status)
    cell.put_replica("v", 1, nodeID="n1", diskID="n1-d1", healthyAt=LONG_AGO)
    lost = cell.put_replica("v", 2, nodeID="n2", diskID="n2-d1", healthyAt="2019-01-01T00:00:00Z")
    cell.change(lost, failedAt=LONG_AGO)
    new = cell.put_replica("v", 3)
    leader = GivingLeader(cell)
    for _ in range(2):
        assert (lost, "n2") == ((one := leader.reuse("v").reply.allocation).name, one.node)
    assert lost in cell.on_record()
    assert "" == leader.place(new)
    cell.clock.advance(REUSED_SECONDS)
    leader.cluster.allocator.sweep()
    assert "n2" == leader.see().place(new)
