"""Writes of the record without an answer, or that are refused, and leaders that change: what stands, what the next call
is told, and what others get meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from controller.allocator.by_name.allocate import PASSED_SECONDS
from controller.errors import ConflictError, ForbiddenError, NotReadyError, UnavailableError
from controller.model.allocations import Purpose
from controller.rules.reasons import Reason
from controller.settings import LONGHORN
from tests.fakes.builders import GIB
from tests.unit.placement.stage import ReplicaCell
from tests.unit.rpc.giving import FREES, GIVES, SECONDS, GivingLeader, put_image, wanted
from tests.unit.rpc.late import BY_WHAT, Late, arrives, delay, refuse, without_answer

WHO = pytest.mark.parametrize("is_same", [False, True], ids=["another process", "the same process"])
ARRIVES = pytest.mark.parametrize("arrives", [True, False], ids=["arrives", "is lost"])


def sizes_gib(cell: ReplicaCell) -> dict[str, int]:
    return {one.name: one.size_bytes // GIB for one in cell.entries()}


@BY_WHAT
@ARRIVES
@pytest.mark.parametrize("is_seen", [True, False], ids=["", "the watch lags"])
def test_what_was_given_without_an_answer_stands_and_is_told_again(what: str, arrives: bool, is_seen: bool) -> None:
    cell, leader = wanted(what)
    without_answer(leader, lambda: GIVES[what](leader), arrives=arrives)
    if is_seen:
        leader.see()
    assert "" == leader.place("w-r-1")
    assert GIVES[what](leader) in ("n1", "already-allocated")
    assert 60 == sizes_gib(cell)[what]
    assert "" == leader.see().place("w-r-1")


@pytest.mark.parametrize("what", FREES)
@ARRIVES
def test_what_was_freed_without_an_answer_is_free_once_the_record_shows_that(what: str, arrives: bool) -> None:
    cell, leader = wanted(what)
    assert "n1" == GIVES[what](leader)
    leader.see()
    without_answer(leader, lambda: FREES[what](leader), arrives=arrives)
    assert "" == leader.place("w-r-1")
    assert 1 == FREES[what](leader)
    assert "n1" == leader.place("w-r-1")
    assert {"w-r-1": "n1"} == cell.on_record()


@pytest.mark.parametrize("what", FREES)
@ARRIVES
def test_so_it_is_if_its_caller_never_asks_again(what: str, arrives: bool) -> None:
    cell, leader = wanted(what)
    assert "n1" == GIVES[what](leader)
    late = delay(leader.see())
    with pytest.raises(NotReadyError):
        FREES[what](leader)
    if arrives:
        late[0]()
    assert ("", "n1") == (leader.see().place("w-r-1"), leader.keep().place("w-r-1"))
    assert {"w-r-1": "n1"} == cell.on_record()


@pytest.mark.parametrize("what", FREES)
@ARRIVES
@pytest.mark.parametrize("is_seen", [True, False], ids=["", "the watch lags"])
def test_what_was_freed_without_an_answer_is_on_record_when_told_again(what: str, arrives: bool, is_seen: bool) -> None:
    cell, leader = wanted(what)
    assert "n1" == GIVES[what](leader)
    leader.see()
    without_answer(leader, lambda: FREES[what](leader), arrives=arrives)
    if is_seen:
        leader.see()
    assert "n1" == GIVES[what](leader)
    assert 60 == sizes_gib(cell)[what]


@pytest.mark.parametrize("what", ["v-r-1", "x-r-1"])
def test_what_was_told_is_told_while_nothing_can_be_written_and_stays(what: str) -> None:
    """It is on record already. (A copy of an image may have come and gone, so that its image is read.)"""
    cell, leader = wanted(what)
    small = cell.add("small", 5)
    leader.see()
    assert GIVES[what](leader) in ("n1", "allocated")
    cell.api.fail_with(UnavailableError("away"))
    for _ in range(2):
        assert GIVES[what](leader) in ("n1", "already-allocated")
    with pytest.raises(NotReadyError):
        FREES[what](leader) if what in FREES else leader.place(small)
    cell.api.work()
    assert "n1" == leader.place(small)
    assert "" == leader.see().place("w-r-1")
    assert 60 == sizes_gib(cell)[what]


# Refused


@pytest.mark.parametrize("what", FREES)
def test_what_was_refused_goes_elsewhere_and_counts_once_and_others_hear_of_it(what: str) -> None:
    cell, leader = wanted(what)
    cell.put_node("n2", 90)
    large = cell.add("large", 110)
    refuse(leader.see(), "n1")
    with pytest.raises(NotReadyError, match="the record of n1 cannot be written: 403: no"):
        GIVES[what](leader)
    assert ("n2", 100) == (GIVES[what](leader), leader.free_gib())
    given = leader.giving.place("large", large, SECONDS)
    told = {one.node: (one.rejection.reason, one.missing_bytes // GIB) for one in given.obstacles}
    assert {"n1": (Reason.RECORD_UNWRITABLE, 0), "n2": (Reason.INSUFFICIENT_STORAGE, 80)} == told


@pytest.mark.parametrize("what", FREES)
@pytest.mark.parametrize("is_inherited", [False, True], ids=["", "by the leader before"])
def test_what_was_given_before_and_is_to_become_larger_stays_when_a_write_is_refused(
    what: str, is_inherited: bool
) -> None:
    cell, leader = wanted(what)
    assert "n1" == GIVES[what](leader)
    leader = next_of(leader) if is_inherited else leader
    cell.put_volume("v", 70)
    put_image(cell, 70)
    mend = refuse(leader.see(), "n1")
    with pytest.raises(NotReadyError, match="cannot be written"):
        GIVES[what](leader)
    assert {what: "n1"} == cell.on_record()
    assert 40 >= leader.free_gib()
    mend()
    cell.clock.advance(PASSED_SECONDS)
    assert ("", "n1") == (leader.place("w-r-1"), GIVES[what](leader))


def test_so_does_what_another_call_of_the_same_name_was_told_meanwhile() -> None:
    cell, leader = wanted("v-r-1")
    small = cell.add("small", 5)
    late = Late(leader.see(), lambda: leader.place("v-r-1"))
    assert "n1" == leader.place("v-r-1")
    leader.cluster.allocator.allocations.place_replica(small, SECONDS)  # by a call that writes later
    mend = refuse(leader, "n1")
    late.let_go()
    assert "403" in late.error
    mend()
    cell.clock.advance(PASSED_SECONDS)
    assert ("", "n1") == (leader.place("w-r-1"), leader.place("v-r-1"))


def test_a_growth_that_one_of_two_nodes_refuses_is_told_nobody_and_ends() -> None:
    cell = ReplicaCell(n1=100, n2=100)
    cell.put_volume("v", numberOfReplicas=2)
    for number in (1, 2):
        cell.put_replica("v", number, nodeID=f"n{number}", diskID=f"n{number}-d1")
    leader = GivingLeader(cell)
    mend = refuse(leader, "n2")
    with pytest.raises(NotReadyError, match="403"):
        leader.expand("v", 60)
    mend()
    leader.let_growths_end().keep()
    assert (90, 90) == (leader.free_gib(), leader.free_gib("n2"))
    assert {10} == {one.size_bytes // GIB for one in cell.entries()}


def test_what_was_sent_without_an_answer_and_refused_then_may_arrive_while_its_node_is_passed_by() -> None:
    cell, leader = wanted("v-r-1")
    backend: Any = leader.writer.backend
    write, failures = backend.write, iter([UnavailableError("no answer"), ForbiddenError("403")])

    def fail_differently(*_: Any) -> Any:
        raise next(failures)

    backend.write = fail_differently
    with pytest.raises(NotReadyError):
        leader.place("v-r-1")
    backend.write = write
    arrives(cell, "v-r-1", 60)
    with pytest.raises(NotReadyError, match="no other node takes it"):
        leader.place("w-r-1")
    cell.clock.advance(PASSED_SECONDS)
    assert "n1" == leader.place("w-r-1")
    assert {"w-r-1": "n1"} == cell.on_record()


# Another leader, with what is on record


GIVEN = ("n1", "already-allocated")


def next_of(leader: GivingLeader, *, is_same: bool = False) -> GivingLeader:
    leader.end()
    return leader.begin() if is_same else GivingLeader(leader.cell, has_predecessor=True)


@BY_WHAT
@WHO
@pytest.mark.parametrize("write", ["is answered", "arrives without an answer", "is lost"])
def test_the_next_leader_tells_what_is_on_record_and_gives_the_rest_away(what: str, is_same: bool, write: str) -> None:
    cell, leader = wanted(what)
    is_there = write != "is lost"
    if write == "is answered":
        assert GIVES[what](leader) in ("n1", "allocated")
    else:
        without_answer(leader, lambda: GIVES[what](leader), arrives=is_there)
    for _ in range(3):
        leader = next_of(leader, is_same=is_same)
        assert ("" if is_there else "n1") == leader.place("w-r-1")
        assert GIVES[what](leader) in (GIVEN if is_there else ("", "no-room"))
        cell.clock.advance(1_000)  # its caller writes its object whenever it likes
    assert {what if is_there else "w-r-1"} == {name for name, size in sizes_gib(cell).items() if size == 60}


@BY_WHAT
@pytest.mark.parametrize("is_written", [False, True], ids=["", "and it has written since"])
def test_a_former_leaders_late_write_takes_nothing_from_what_the_next_one_gives(what: str, is_written: bool) -> None:
    cell, former = wanted(what)
    small = cell.add("small", 5)
    late = delay(former.see())
    with pytest.raises(NotReadyError):
        GIVES[what](former)
    leader = next_of(former)
    if is_written:
        assert "n1" == leader.place(small)
        with pytest.raises(Exception, match="409"):
            late[0]()
    else:
        late[0]()
    assert "n1" == leader.place("w-r-1")
    assert {"w-r-1"} == {name for name, size in sizes_gib(leader.see().cell).items() if size == 60}
    assert "" == next_of(leader).place("v-r-1")


@pytest.mark.parametrize("what", FREES)
def test_a_former_leaders_late_free_takes_nothing_from_what_the_next_one_has_told(what: str) -> None:
    _, former = wanted(what)
    assert "n1" == GIVES[what](former)
    late = delay(former.see())
    with pytest.raises(NotReadyError):
        FREES[what](former)
    leader = next_of(former)
    assert "n1" == GIVES[what](leader)
    with pytest.raises(ConflictError):
        late[0]()
    assert {what: 60} == sizes_gib(leader.see().cell)
    assert "" == next_of(leader).place("w-r-1")


@WHO
def test_a_call_in_the_middle_of_which_the_leader_changes_is_told_nothing_and_takes_nothing(is_same: bool) -> None:
    _, former = wanted("v-r-1")
    late = Late(former, lambda: former.place("v-r-1"))
    leader = next_of(former, is_same=is_same)
    assert "n1" == leader.place("w-r-1")
    late.let_go()
    assert ({"w-r-1": "n1"}, None) == (leader.see().cell.on_record(), late.told)
    assert "term" in late.error if is_same else "does not lead" in late.error
    assert "" == leader.place("v-r-1")


def test_who_leads_again_knows_nothing_of_its_former_term_but_what_is_on_record() -> None:
    cell, one = wanted("v-r-1")
    assert "n1" == one.place("v-r-1")
    other = next_of(one)
    assert 1 == other.free("v-r-1")
    assert "n1" == other.place("w-r-1")
    other.end()
    assert ("", "n1") == (one.begin().place("v-r-1"), one.place("w-r-1"))
    assert {"w-r-1": "n1"} == cell.on_record()


def test_while_longhorn_decides_nothing_is_taken_over() -> None:
    _, leader = wanted("v-r-1")
    leader.place("v-r-1")
    leader.decide_by(LONGHORN)
    assert [] == leader.keeper.load()
    assert 100 == leader.begin().free_gib()


# What is taken over


@pytest.mark.parametrize("what", FREES)
def test_what_its_caller_has_written_by_then_counts_once(what: str) -> None:
    cell, leader = wanted(what)
    GIVES[what](leader)
    put_image(cell, 60, *(["n1"] if what == "i" else []))
    if what == "v-r-1":
        cell.change(what, nodeID="n1", diskID="n1-d1")
    assert 40 == next_of(leader).free_gib()


def test_of_two_places_of_a_replica_one_is_told_again_and_the_other_is_free() -> None:
    """A leader ended while it moved it."""
    cell = ReplicaCell(n1=100, n2=100)
    first, second = cell.add("v", 60), cell.add("w", 60)
    for node in ("n1", "n2"):
        arrives(cell, first, 60, node=node)
    leader = GivingLeader(cell, has_predecessor=True)
    assert ("n1", "n2") == (leader.place(first), leader.place(second))
    assert {(first, "n1"), (second, "n2")} == {(one.name, one.node) for one in leader.keep().cell.entries()}


@pytest.mark.parametrize("purpose", list(Purpose))
def test_what_somebody_else_writes_into_the_record_takes_no_room_and_goes(purpose: Purpose) -> None:
    cell, leader = wanted("v-r-1")
    arrives(cell, "v-r-1" if purpose is Purpose.REPLICA else "i", 60, purpose=purpose)
    assert "n1" == leader.see().place("w-r-1")
    assert {"w-r-1": "n1"} == cell.on_record()
