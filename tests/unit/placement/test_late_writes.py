"""Writes without an answer, of the same leader in the same term: what arrives, what does not, and what others get
meanwhile."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.allocations.backends import LonghornNodeBackend
from controller.allocations.writer import RecordWriter
from controller.errors import NotReadyError
from controller.settings import LONGHORN
from tests.fakes.clock import TickingClock
from tests.unit.placement.late import (
    SECONDS,
    Late,
    copy_image,
    delay,
    free,
    free_copy,
    lose_answers,
    overtake,
    put_image,
)
from tests.unit.placement.stage import NAMESPACE, PlacingLeader, ReplicaCell


@pytest.mark.parametrize("is_copy", [False, True])
def test_what_was_freed_without_an_answer_is_not_given_back_once_others_have_its_room(is_copy: bool) -> None:
    cell = ReplicaCell(n1=100)
    put_image(cell, 60)
    first, second = cell.add("v", 60), cell.add("w", 60)
    leader = PlacingLeader(cell)

    def is_given() -> bool:
        if is_copy:
            return copy_image(leader).refusals is None
        return bool(leader.giving.place("v", first, SECONDS).allocations)

    assert is_given()
    leader.see()
    mend = lose_answers(leader)
    with pytest.raises(NotReadyError):
        free_copy(leader) if is_copy else free(leader, first)
    mend()
    leader.see()
    assert leader.giving.place("w", second, SECONDS).allocations
    assert not leader.see().cell.on_record().keys() - {second}
    assert not is_given()


def test_a_late_write_of_the_same_leader_is_not_somebody_elses() -> None:
    cell = ReplicaCell(n1=100)
    names = [cell.add(name, 20) for name in ("v1", "v2", "v3")]
    leader = PlacingLeader(cell)
    leader.giving.place("v1", names[0], SECONDS)
    late = delay(leader)
    with pytest.raises(NotReadyError):
        leader.giving.place("v2", names[1], SECONDS)
    overtake(leader, late[0])
    assert leader.giving.place("v3", names[2], SECONDS).allocations
    assert {names[0], names[2]} == cell.on_record().keys()  # nobody was told of the other


def test_a_write_at_the_place_of_now_says_nothing_of_one_at_the_former_place() -> None:
    """The record goes into Longhorn's Nodes as soon as these have a field for it."""
    cell = ReplicaCell(n1=100)
    v, w, x = cell.add("v", 60), cell.add("w", 60), cell.add("x", 10)
    leader = PlacingLeader(cell)
    late = delay(leader)
    with pytest.raises(NotReadyError):
        leader.giving.place("v", v, SECONDS)
    backend, learn = LonghornNodeBackend(cell.api, NAMESPACE), leader.cluster.allocator.allocations.learn
    leader.writer = RecordWriter(backend, lambda: leader.checks.term, cell.clock, cell.clock.advance, learn=learn)
    assert leader.giving.place("x", x, SECONDS).allocations
    with pytest.raises(NotReadyError, match="not known whether a write took the room"):
        leader.giving.place("w", w, SECONDS)
    late[0]()
    assert leader.see().giving.place("v", v, SECONDS).allocations
    assert not leader.see().giving.place("w", w, SECONDS).allocations


def test_a_place_that_another_call_may_yet_write_is_freed_once() -> None:
    cell = ReplicaCell(TickingClock(0.01), n1=100, n2=100)
    cell.put_volume("v", dataLocality="strict-local", nodeID="n1")
    name = cell.put_replica("v", hardNodeAffinity="n1")
    leader = PlacingLeader(cell)
    allocations = leader.cluster.allocator.allocations
    allocations.failed(allocations.place_replica(name, SECONDS))
    cell.put_volume("v", dataLocality="strict-local", nodeID="n2")
    cell.change(name, hardNodeAffinity="n2")
    with pytest.raises(NotReadyError, match="another call is about to write a disk of replica 'v-r-1'; try again"):
        leader.see().giving.place("v", name, SECONDS)


def test_what_was_decided_while_the_record_decided_is_not_written_once_longhorn_does() -> None:
    cell = ReplicaCell(n1=100)
    name = cell.add("v", 60)
    leader = PlacingLeader(cell)
    late = Late(leader, lambda: leader.giving.place("v", name, SECONDS))
    allocator = leader.cluster.allocator
    allocator.configure(replace(leader.live, allocation_authority=LONGHORN), allocator._world.settings)
    late.let_go()
    assert "allocation-authority is longhorn" in late.error
    assert {} == cell.on_record()
