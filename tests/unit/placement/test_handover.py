"""A former leader's write arrives when the next one has begun, or has decided already."""

from __future__ import annotations

import pytest

from controller.allocations.backends import NodeDiskAllocationBackend
from controller.errors import OutdatedDecisionError
from controller.model.allocations import Allocation, Purpose
from tests.fakes.builders import GIB
from tests.unit.placement.stage import NAMESPACE, PlacingLeader, ReplicaCell


def arrives(cell: ReplicaCell, replica: str, gib: int) -> None:
    backend = NodeDiskAllocationBackend(cell.api, NAMESPACE)
    there = backend.read("n1")
    one = Allocation(Purpose.REPLICA, replica, "n1", "d1", gib * GIB)
    backend.write(there, [*there.record.allocations, one], 1)


@pytest.mark.parametrize("is_new", [True, False], ids=["the first entry", "one more"])
def test_room_that_a_former_leader_gave_meanwhile_is_not_given_again(is_new: bool) -> None:
    cell = ReplicaCell(n1=100)
    if not is_new:
        arrives(cell, cell.add("v1", 10), 10)
    second, third = cell.add("v2", 60), cell.add("v3", 60)
    leader = PlacingLeader(cell, term=2)
    arrives(cell, second, 60)
    with pytest.raises(OutdatedDecisionError):
        leader.giving.place("v3", third, 5)
    leader.see()
    assert third not in cell.on_record()
    given = leader.giving.place("v3", third, 5)
    assert not given.allocations
    assert {None} != {one.missing_bytes for one in given.obstacles}
    assert "n1" == leader.giving.place("v2", second, 5).allocations[0].node
    leader.see()
    small = cell.add("v4", 20)
    assert "n1" == leader.see().giving.place("v4", small, 5).allocations[0].node


def test_the_same_asked_twice_is_not_given_by_the_second_either() -> None:
    cell = ReplicaCell(n1=100)
    second, third = cell.add("v2", 60), cell.add("v3", 60)
    leader = PlacingLeader(cell, term=2)
    allocations = leader.cluster.allocator.allocations
    arrives(cell, second, 60)
    pending = allocations.place_replica(third, 5.0)
    with pytest.raises(OutdatedDecisionError):
        leader.giving.place("v3", third, 5)  # the same caller, that asks again in the meantime
    allocations.withdrawn(pending)
    assert not leader.see().giving.place("v3", third, 5).allocations
