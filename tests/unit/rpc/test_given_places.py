"""How long a place stands that was given by name, where else its replica may be told to go, and what others of its
volume are told beside it."""

from __future__ import annotations

import pytest

from controller.allocator.by_name.on_record import REUSED_SECONDS
from controller.kube.resources import LONGHORN_BACKING_IMAGES, LONGHORN_REPLICAS
from tests.unit.placement.stage import NAMESPACE, ReplicaCell
from tests.unit.rpc.giving import GivingLeader, put_image

LONG_AGO = "2020-01-01T00:00:00Z"


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


# Beside others of its volume


def test_another_replica_goes_to_another_node_or_nowhere() -> None:
    cell = ReplicaCell(n1=200, n2=150)
    cell.put_volume("v", 10, numberOfReplicas=2)
    names = [cell.put_replica("v", number) for number in (1, 2, 3)]
    leader = GivingLeader(cell)
    assert ["n1", "n2", ""] == [leader.place(name) for name in names]


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
