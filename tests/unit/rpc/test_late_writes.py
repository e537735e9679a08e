"""Writes without an answer, of the same leader in the same term: what arrives, what does not, and what others get
meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from controller.allocations.backends import LonghornNodeBackend
from controller.allocations.writer import RecordWriter
from controller.allocator.verbs.closed import PASSED_SECONDS
from controller.allocator.verbs.decisions import DOUBT_SECONDS
from controller.errors import ClusterError, NotReadyError, PreconditionError, SchedulerError, UnavailableError
from controller.settings import DISK_SCHEDULER, LONGHORN
from tests.fakes.builders import GIB
from tests.fakes.clock import TickingClock
from tests.unit.placement.stage import NAMESPACE, ReplicaCell
from tests.unit.rpc.giving import GivingLeader
from tests.unit.rpc.late import (
    SECONDS,
    Late,
    arrives,
    copy_image,
    delay,
    expand,
    free,
    free_copy,
    free_gib,
    let_pass,
    lose_answers,
    overtake,
    put_image,
    refuse,
    switch,
)


@pytest.mark.parametrize("is_copy", [False, True])
def test_what_was_freed_without_an_answer_is_not_given_back_once_others_have_its_room(is_copy: bool) -> None:
    cell = ReplicaCell(n1=100)
    put_image(cell, 60)
    first, second = cell.add("v", 60), cell.add("w", 60)
    leader = GivingLeader(cell)

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
    leader = GivingLeader(cell)
    leader.giving.place("v1", names[0], SECONDS)
    late = delay(leader)
    with pytest.raises(NotReadyError):
        leader.giving.place("v2", names[1], SECONDS)
    overtake(leader, late[0])
    assert leader.giving.place("v3", names[2], SECONDS).allocations
    assert set(names) == cell.on_record().keys()  # nobody was told of one, and it stays


def test_a_write_at_the_place_of_now_says_nothing_of_one_at_the_former_place() -> None:
    """The record goes into Longhorn's Nodes as soon as these have a field for it."""
    cell = ReplicaCell(n1=100)
    v, w, x = cell.add("v", 60), cell.add("w", 60), cell.add("x", 10)
    leader = GivingLeader(cell)
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
    leader = GivingLeader(cell)
    allocations = leader.cluster.allocator.allocations
    allocations.failed(allocations.place_replica(name, SECONDS))
    cell.put_volume("v", dataLocality="strict-local", nodeID="n2")
    cell.change(name, hardNodeAffinity="n2")
    with pytest.raises(NotReadyError, match="another call is about to write a disk of replica 'v-r-1'; try again"):
        leader.see().giving.place("v", name, SECONDS)


def test_what_was_decided_while_the_record_decided_is_not_written_once_longhorn_does() -> None:
    cell = ReplicaCell(n1=100)
    name = cell.add("v", 60)
    leader = GivingLeader(cell)
    late = Late(leader, lambda: leader.giving.place("v", name, SECONDS))
    switch(leader, LONGHORN)
    late.let_go()
    assert "allocation-authority is longhorn" in late.error
    assert {} == cell.on_record()


CALLS: dict[str, Callable[[GivingLeader], object]] = {
    "replica": lambda leader: leader.giving.place("v", "v-r-1", SECONDS),
    "copy": copy_image,
    "growth": lambda leader: expand(leader, "v", 60),
}


@pytest.mark.parametrize("call", CALLS)
def test_nor_once_it_decides_again(call: str) -> None:
    """Longhorn may have placed another one in that room meanwhile."""
    cell = ReplicaCell(n1=100)
    put_image(cell, 60)
    cell.add("v", 60) if call == "replica" else cell.lying("v")
    leader = GivingLeader(cell)
    late = Late(leader, lambda: CALLS[call](leader))
    switch(leader, LONGHORN)
    cell.put_volume("w", 60)
    cell.put_replica("w", gib=60, nodeID="n1", diskID="n1-d1")
    switch(leader.see(), DISK_SCHEDULER)
    late.let_go()
    assert isinstance(late.raised, NotReadyError)
    assert "allocation-authority has changed since this was decided; try again" == late.error
    assert {} == cell.on_record()


def fail(leader: GivingLeader, call: Callable[[], object]) -> None:
    """The API server is away for as long as it takes."""
    backend: Any = leader.writer._backend
    write, read = backend.write, backend.read

    def away(*_: object) -> None:
        raise UnavailableError("away")

    backend.write = backend.read = away
    with pytest.raises(NotReadyError):
        call()
    backend.write, backend.read = write, read


def test_what_was_told_stays_however_often_it_is_asked_again_while_nothing_can_be_written() -> None:
    """The watch does not show it yet."""
    cell = ReplicaCell(n1=100)
    first, small, second = cell.add("v", 60), cell.add("x", 5), cell.add("w", 60)
    arrives(cell, "other", 1)
    leader = GivingLeader(cell)
    assert leader.giving.place("v", first, SECONDS).allocations
    for _ in range(2):
        fail(leader, lambda: leader.giving.place("v", first, SECONDS))
    assert leader.giving.place("x", small, SECONDS).allocations
    assert not leader.see().giving.place("w", second, SECONDS).allocations
    assert "n1" == cell.on_record()[first]


def test_so_does_a_growth() -> None:
    cell = ReplicaCell(n1=100)
    first, small, second = cell.lying("v"), cell.add("x", 5), cell.add("w", 40)
    arrives(cell, first, 10)
    leader = GivingLeader(cell)
    assert "allocated" == expand(leader, "v", 60).outcome
    for _ in range(2):
        fail(leader, lambda: expand(leader, "v", 60))
    assert leader.giving.place("x", small, SECONDS).allocations
    assert not leader.see().giving.place("w", second, SECONDS).allocations
    assert 60 * GIB == {one.name: one.size_bytes for one in cell.entries()}[first]


@pytest.mark.parametrize("again", [False, True], ids=["the same term", "leading again"])
def test_what_is_behind_its_own_writes_takes_none_for_somebody_elses(again: bool) -> None:
    cell = ReplicaCell(n1=100)
    first, small, second = cell.add("v", 60), cell.add("x", 5), cell.add("w", 60)
    arrives(cell, "other", 1)
    leader = GivingLeader(cell)
    assert leader.giving.place("v", first, SECONDS).allocations
    if again:
        leader.checks.term = 2
        leader.cluster.allocator.end_term()
        leader.cluster.allocator.begin_term(has_predecessor=True)
    fail(leader, lambda: leader.giving.place("v" if again else "x", first if again else small, SECONDS))
    backend: Any = leader.writer._backend
    write = backend.write

    def lose_once(*_: object) -> None:
        backend.write = write
        raise UnavailableError("no answer")

    backend.write = lose_once
    assert leader.giving.place("x", small, SECONDS).allocations
    assert not leader.see().giving.place("w", second, SECONDS).allocations
    assert {first, small} < cell.on_record().keys()


@pytest.mark.parametrize("error", [ClusterError("403"), UnavailableError("503")], ids=str)
def test_where_a_growth_was_taken_back_or_never_tried_the_room_is_free_at_once(error: SchedulerError) -> None:
    cell = ReplicaCell(n1=100, n2=100, n3=100)
    cell.put_volume("v", numberOfReplicas=3)
    for number in (1, 2, 3):
        cell.put_replica("v", number, nodeID=f"n{number}", diskID=f"n{number}-d1")
    leader = GivingLeader(cell)
    backend: Any = leader.writer._backend
    write = backend.write

    def fail(stored: Any, *more: Any) -> Any:
        if stored.record.node == "n2":
            raise error
        return write(stored, *more)

    backend.write = fail
    with pytest.raises(SchedulerError):
        expand(leader, "v", 60)
    assert {} == cell.on_record()
    given = dict[str, bool]()
    for node in ("n1", "n2", "n3"):
        cell.put_volume(node, 60)
        name = cell.put_replica(node, gib=60, hardNodeAffinity=node)
        try:
            given[node] = bool(leader.see().giving.place(node, name, SECONDS).allocations)
        except NotReadyError:
            given[node] = False
    assert {"n1": True, "n2": False, "n3": True} == given


def test_where_a_write_was_refused_nothing_is_given_for_a_minute_and_nothing_counts() -> None:
    cell = ReplicaCell(n1=100, n2=90)
    first, second, third = cell.add("v", 60), cell.add("w", 60), cell.add("x", 60)
    leader = GivingLeader(cell)
    mend = refuse(leader, "n1")
    with pytest.raises(NotReadyError, match="the record of n1 cannot be written: 422: no"):
        leader.giving.place("v", first, SECONDS)
    assert (100, 90) == (free_gib(leader), free_gib(leader, "n2"))
    assert "n2" == leader.giving.place("v", first, SECONDS).allocations[0].node
    mend()
    with pytest.raises(NotReadyError, match="no other node takes it, and the record of n1 cannot be written: 422: no"):
        leader.see().giving.place("w", second, SECONDS)
    let_pass(leader, PASSED_SECONDS)
    assert "n1" == leader.giving.place("w", second, SECONDS).allocations[0].node
    assert leader.see().giving.place("x", third, SECONDS).obstacles


def test_nor_for_copies_of_images() -> None:
    cell = ReplicaCell(n1=100, n2=90)
    put_image(cell, 60)
    leader = GivingLeader(cell)
    refuse(leader, "n1")
    with pytest.raises(NotReadyError, match="the record of n1 cannot be written: 422: no"):
        copy_image(leader)
    assert copy_image(leader).reply.allocation.node == "n2"


def test_where_it_has_no_room_either_that_is_what_is_told() -> None:
    cell = ReplicaCell(n1=100, n2=50)
    first, second = cell.add("v", 60), cell.add("w", 110)
    put_image(cell, 110)
    leader = GivingLeader(cell)
    refuse(leader, "n1")
    with pytest.raises(NotReadyError):
        leader.giving.place("v", first, SECONDS)
    given = leader.giving.place("w", second, SECONDS)
    assert {("n1", 10), ("n2", 60)} == {(one.node, one.missing_bytes // GIB) for one in given.obstacles}
    assert "no-room" == copy_image(leader).outcome


def test_what_was_sent_without_an_answer_may_arrive_though_the_next_try_was_refused() -> None:
    cell = ReplicaCell(n1=100)
    first, second = cell.add("v", 60), cell.add("w", 60)
    leader = GivingLeader(cell)
    backend: Any = leader.writer._backend
    write, failures = backend.write, iter([UnavailableError("no answer"), ClusterError("403")])

    def fail(*_: Any) -> Any:
        raise next(failures)

    backend.write = fail
    with pytest.raises(NotReadyError):
        leader.giving.place("v", first, SECONDS)
    backend.write = write
    assert 40 == free_gib(leader)
    let_pass(leader, DOUBT_SECONDS)
    assert "n1" == leader.giving.place("w", second, SECONDS).allocations[0].node


@pytest.mark.parametrize("is_there", [False, True])
def test_what_a_write_may_have_taken_from_a_replica_that_has_grown_is_not_said_to_be_gone(is_there: bool) -> None:
    cell = ReplicaCell(n1=100)
    first, second = cell.add("v", 10), cell.add("w", 60)
    leader = GivingLeader(cell)
    leader.giving.place("v", first, SECONDS)
    late = delay(leader)
    with pytest.raises(NotReadyError):
        leader.see().giving.place("w", second, SECONDS)
    cell.put_volume("v", 50)
    with pytest.raises(NotReadyError, match="not known yet whether the room there is taken"):
        leader.see().giving.place("v", first, SECONDS)
    if is_there:
        late[0]()
        with pytest.raises(PreconditionError, match="10 GiB more than there is room for"):
            leader.see().giving.place("v", first, SECONDS)
    else:
        let_pass(leader, DOUBT_SECONDS)
        assert 50 * GIB == leader.giving.place("v", first, SECONDS).size_bytes
