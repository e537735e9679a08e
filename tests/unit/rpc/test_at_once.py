"""Calls at once on the same room: one waits for the processor between its decision and its write while others are
answered, share its write, or free what it is about to be told."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from controller.settings import DISK_SCHEDULER, LONGHORN
from tests.unit.placement.stage import ReplicaCell
from tests.unit.rpc.giving import FREES, GIVES, SECONDS, GivingLeader, put_image, wanted
from tests.unit.rpc.late import Late, start
from tests.waiting import wait_until


@pytest.mark.parametrize(("what", "was_given"), [("v-r-1", True), ("v-r-1", False), ("i", False)])
def test_room_is_told_to_one_of_two_when_the_first_is_freed_before_it_is_told(what: str, was_given: bool) -> None:
    cell, leader = wanted(what)
    if was_given:
        GIVES[what](leader)
        leader.see()
    late = Late(leader, lambda: GIVES[what](leader))
    FREES[what](leader)
    other = leader.see().place("w-r-1")
    late.let_go()
    told = {name for name, node in ((what, late.told), ("w-r-1", other)) if node}
    assert 1 == len(told)
    assert told <= cell.on_record().keys()


@pytest.mark.parametrize("what", FREES)
def test_what_is_about_to_be_freed_is_free_for_nobody_yet_and_may_be_given_again(what: str) -> None:
    cell, leader = wanted(what)
    assert "n1" == GIVES[what](leader)
    late = Late(leader, lambda: FREES[what](leader))
    assert "" == leader.place("w-r-1")
    assert "n1" == GIVES[what](leader)
    late.let_go()
    assert ({what: "n1"}, 40) == (cell.on_record(), leader.see().free_gib())
    assert "" == leader.place("w-r-1")


def test_what_is_freed_and_given_anew_in_one_write_counts_for_good() -> None:
    cell = ReplicaCell(n1=100)
    first, small, second = cell.add("v", 60), cell.add("small", 10), cell.add("w", 60)
    leader = GivingLeader(cell)
    leader.place(first)
    leader.see()
    begun, go, write = threading.Event(), threading.Event(), leader.writer.backend.write

    def write_late(*what: Any) -> Any:
        begun.set()
        assert go.wait(SECONDS)
        return write(*what)

    leader.writer.backend.write = write_late  # type: ignore[method-assign, assignment]
    given = leader.cluster.allocator._given
    calls = [start(lambda: leader.place(small))]
    assert begun.wait(SECONDS)
    calls.append(start(lambda: leader.free(first)))
    wait_until(lambda: any(one.is_leaving for one in given.all()), "the one who frees", SECONDS)
    calls.append(start(lambda: leader.place(first)))
    wait_until(lambda: not any(one.is_leaving for one in given.all()), "the one who asks anew", SECONDS)
    go.set()
    for call in calls:
        call.join(SECONDS)
    for _ in range(2):
        assert ({first: "n1", small: "n1"}, 30) == (cell.on_record(), leader.see().free_gib())
        cell.clock.advance(100)
    assert "" == leader.place(second)


def test_of_many_calls_that_cross_each_other_none_is_told_what_the_record_does_not_show() -> None:
    """Each caller is sure of what it was told last, since it waits for one answer before its next call."""
    cell = ReplicaCell(n1=35, n2=25)
    names = [cell.add(f"v{number}", 10) for number in range(8)]
    leader, told, failures = GivingLeader(cell), dict[str, str](), list[Exception]()

    def call(name: str) -> None:
        dice = random.Random(name)
        try:
            for _ in range(12):
                if dice.random() < 0.5:
                    told[name] = leader.place(name)
                    assert not told[name] or told[name] == cell.on_record()[name]
                else:
                    leader.free(name)
                    told[name] = ""
        except Exception as error:
            failures.append(error)

    threads = [start(lambda name=name: call(name)) for name in names]  # type: ignore[misc]
    for thread in threads:
        thread.join(60)
    assert [] == failures
    sure = {name: node for name, node in told.items() if node}
    assert sure == cell.on_record()
    lying = Counter(sure.values())
    leader.see()
    assert (35 - 10 * lying["n1"], 25 - 10 * lying["n2"]) == (leader.free_gib("n1"), leader.free_gib("n2"))
    assert 5 == sum(bool(leader.place(name)) for name in names), "exactly what fits"


CALLS: dict[str, Callable[[GivingLeader], object]] = {
    "replica": lambda leader: leader.place("v-r-1"),
    "copy": lambda leader: leader.copy_image(),
    "growth": lambda leader: leader.expand("v", 60),
    "a failed one": lambda leader: leader.reuse("v"),
    "freed": lambda leader: leader.free("x-r-1"),
    "freed copy": lambda leader: leader.free_copy(),
}
BY_CALL = pytest.mark.parametrize("call", CALLS)


def about_to_be_told(call: str) -> tuple[GivingLeader, Late]:
    cell = ReplicaCell(n1=100, n2=70)
    put_image(cell, 60)
    if call == "replica":
        cell.add("v", 60)
    else:
        name = cell.lying("v")
        failed = {"failedAt": "2020-01-01T00:00:00Z", "healthyAt": "2019-01-01T00:00:00Z"}
        cell.change(name, **(failed if call == "a failed one" else {}))
    x = cell.add("x", 10)
    leader = GivingLeader(cell)
    if call == "freed":
        assert leader.place(x)
    if call == "freed copy":
        assert "n1" == leader.copy_image()
    return leader.see(), Late(leader, lambda: CALLS[call](leader))


@BY_CALL
def test_a_term_that_ends_before_the_answer_tells_nothing(call: str) -> None:
    leader, late = about_to_be_told(call)
    leader.end()
    late.let_go()
    assert (None, "this process does not lead") == (late.told, late.error)


@BY_CALL
def test_nor_does_one_that_has_ended_when_the_same_process_leads_again(call: str) -> None:
    leader, late = about_to_be_told(call)
    leader.begin()
    late.let_go()
    assert (None, "the term in which this was decided has ended") == (late.told, late.error)


@BY_CALL
@pytest.mark.parametrize("again", [False, True], ids=["Longhorn decides", "the record decides again"])
def test_nor_is_told_what_was_decided_before_longhorn_decided(call: str, again: bool) -> None:
    """Longhorn may have placed another one in that room, also when it does not decide any more."""
    leader, late = about_to_be_told(call)
    leader.decide_by(LONGHORN)
    problem = "allocation-authority is longhorn"
    if again:
        leader.see().decide_by(DISK_SCHEDULER)
        problem = "allocation-authority has changed since this was decided; try again"
    late.let_go()
    assert (None, problem) == (late.told, late.error[: len(problem)])
