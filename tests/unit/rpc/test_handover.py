"""Another leader begins, with what is on record: it tells the same, and a former one's late write changes nothing."""

from __future__ import annotations

import pytest

from controller.errors import ConflictError, NotReadyError
from controller.model.allocations import Purpose
from controller.settings import LONGHORN
from tests.fakes.builders import GIB
from tests.unit.placement.stage import ReplicaCell
from tests.unit.rpc.giving import FREES, GIVES, GivingLeader, put_image, wanted
from tests.unit.rpc.late import BY_WHAT, Late, arrives, delay, without_answer

WHO = pytest.mark.parametrize("is_same", [False, True], ids=["another process", "the same process"])
GIVEN = ("n1", "already-allocated")


def next_of(leader: GivingLeader, *, is_same: bool = False) -> GivingLeader:
    leader.end()
    return leader.begin() if is_same else GivingLeader(leader.cell, has_predecessor=True)


def sizes_gib(cell: ReplicaCell) -> dict[str, int]:
    return {one.name: one.size_bytes // GIB for one in cell.entries()}


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
