"""A former leader's write arrives when the next one has begun, or has decided already."""

from __future__ import annotations

import pytest

from controller.errors import NotReadyError, OutdatedDecisionError
from controller.model.allocations import Allocation, Purpose, Put
from tests.fakes.builders import GIB
from tests.unit.placement.stage import ReplicaCell
from tests.unit.rpc.giving import GivingLeader
from tests.unit.rpc.late import (
    SECONDS,
    Late,
    arrives,
    copy_image,
    delay,
    expand,
    free,
    late_beside_a_pod,
    overtake,
    put_image,
    refuse,
    succeeds,
)


@pytest.mark.parametrize("is_new", [True, False], ids=["the first entry", "one more"])
def test_room_that_a_former_leader_gave_meanwhile_is_not_given_again(is_new: bool) -> None:
    cell = ReplicaCell(n1=100)
    if not is_new:
        arrives(cell, cell.add("v1", 10), 10)
    second, third = cell.add("v2", 60), cell.add("v3", 60)
    leader = GivingLeader(cell, term=2)
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
    leader = GivingLeader(cell, term=2)
    allocations = leader.cluster.allocator.allocations
    arrives(cell, second, 60)
    pending = allocations.place_replica(third, 5.0)
    with pytest.raises(OutdatedDecisionError):
        leader.giving.place("v3", third, 5)  # the same caller, that asks again in the meantime
    allocations.withdrawn(pending)
    assert not leader.see().giving.place("v3", third, 5).allocations


def test_nor_is_the_same_growth() -> None:
    cell = ReplicaCell(n1=100)
    first, second = cell.lying("v"), cell.add("w", 60)
    arrives(cell, first, 10)
    arrives(cell, "gone", 10)
    leader = GivingLeader(cell, term=2)
    late = Late(leader, lambda: expand(leader, "v", 60))
    arrives(cell, second, 60)
    free(leader.see(), "gone")  # the record is of this term by that
    leader.see()
    with pytest.raises(OutdatedDecisionError):
        expand(leader, "v", 60)
    late.let_go()
    assert "former leader" in late.error
    assert {first: 10, second: 60} == {one.name: one.size_bytes // GIB for one in cell.entries()}


def test_what_a_former_leader_writes_between_a_read_and_a_write_is_not_somebody_elses() -> None:
    cell = ReplicaCell(n1=100)
    names = [cell.add(name, 20) for name in ("v1", "v2", "v3")]
    arrives(cell, names[0], 20)
    leader = GivingLeader(cell, term=2)
    overtake(leader, lambda: arrives(cell, names[1], 20))
    with pytest.raises(OutdatedDecisionError):
        leader.giving.place("v3", names[2], 5)
    assert "n1" == leader.see().giving.place("v3", names[2], 5).allocations[0].node


@pytest.mark.parametrize("is_written", [False, True], ids=["", "and the leader has written there since"])
@pytest.mark.parametrize("purpose", list(Purpose))
def test_what_a_former_leader_wrote_and_told_nobody_is_not_told_where_a_pod_has_its_room(
    purpose: Purpose, is_written: bool
) -> None:
    """A growth, or a copy of a backing image, that is asked for once more."""
    cell = ReplicaCell(n1=100)
    put_image(cell, 60)
    name = cell.lying("v")
    leader = succeeds(cell)
    assert {"n1"} == leader.cluster.ask("pod", 60, "n1")
    arrives(cell, name if purpose is Purpose.REPLICA else "i", 60, purpose=purpose)
    leader.see()
    if is_written:
        leader.commit(Put(Allocation(Purpose.REPLICA, "other", "n1", "n1-d1", GIB)))
        leader.see()
    with pytest.raises(NotReadyError, match="the leader has changed"):
        expand(leader, "v", 60) if purpose is Purpose.REPLICA else copy_image(leader)


@pytest.mark.parametrize("is_written", [False, True], ids=["", "and the leader has written there since"])
@pytest.mark.parametrize("locality", ["best-effort", "strict-local"])
def test_nor_is_a_place_that_it_gave_a_replica(locality: str, is_written: bool) -> None:
    _, leader, name = late_beside_a_pod(locality)
    if is_written:
        leader.commit(Put(Allocation(Purpose.REPLICA, "other", "n1", "n1-d1", GIB)))
        leader.see()
    with pytest.raises(NotReadyError, match="not known yet whether the room there is taken"):
        leader.giving.place("v", name, 5)


def test_nor_one_that_this_leader_has_tried_to_give_before() -> None:
    cell = ReplicaCell(n1=100)
    cell.put_volume("v", 60, dataLocality="best-effort")
    name = cell.put_replica("v", gib=60)
    leader = succeeds(cell)
    mend = refuse(leader, "n1")
    with pytest.raises(NotReadyError, match="cannot be written"):
        leader.giving.place("v", name, 5)
    mend()
    assert {"n1"} == leader.cluster.ask("pod", 60, "n1")
    arrives(cell, name, 60)
    with pytest.raises(NotReadyError, match="not known yet whether the room there is taken"):
        leader.see().giving.place("v", name, 5)


def test_what_came_to_nothing_is_no_leaders_own() -> None:
    cell = ReplicaCell(n1=200)
    name, other = cell.add("v", 60), cell.add("x", 5)
    leader = GivingLeader(cell, 2)
    delay(leader)
    with pytest.raises(NotReadyError):
        leader.giving.place("v", name, SECONDS)
    leader.giving.place("x", other, SECONDS)
    allocated = leader.cluster.allocator._world.allocated
    one = Allocation(Purpose.REPLICA, name, "n1", "n1-d1", 60 * GIB)
    assert ((), False) == (allocated.of(Purpose.REPLICA, name), allocated.is_ours(one))
