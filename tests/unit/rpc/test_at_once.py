"""Calls at once on the same room: one waits for the processor between its decision and its write while others are
answered, share its write, or free what it is about to be told."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from controller.kube.resources import LONGHORN_NODES
from tests.unit.placement.stage import NAMESPACE, ReplicaCell
from tests.unit.rpc.giving import GivingLeader
from tests.unit.rpc.late import SECONDS, Late, copy_image, free, free_copy, free_gib, let_pass, put_image, start
from tests.waiting import wait_until


@pytest.mark.parametrize("was_given", [True, False])
def test_what_one_call_frees_is_not_free_while_another_is_about_to_write_it(was_given: bool) -> None:
    cell = ReplicaCell(n1=100)
    first, second = cell.add("v", 60), cell.add("w", 60)
    leader = GivingLeader(cell)
    if was_given:
        leader.giving.place("v", first, SECONDS)
        leader.see()
    late = Late(leader, lambda: leader.giving.place("v", first, SECONDS))
    free(leader, first)
    leader.see()
    assert not leader.giving.place("w", second, SECONDS).allocations
    late.let_go()
    leader.see()
    assert ({first: "n1"}, 40, "") == (cell.on_record(), free_gib(leader), late.error)


def test_a_copy_that_one_call_frees_is_not_free_while_another_is_about_to_write_it() -> None:
    cell = ReplicaCell(n1=100)
    put_image(cell, 60)
    replica = cell.add("w", 60)
    leader = GivingLeader(cell)
    late = Late(leader, lambda: copy_image(leader))
    free_copy(leader)
    leader.see()
    assert not leader.giving.place("w", replica, SECONDS).allocations
    late.let_go()
    assert ({"i": "n1"}, "") == (cell.on_record(), late.error)


def test_what_is_freed_and_given_anew_in_one_write_counts_for_good() -> None:
    cell = ReplicaCell(n1=100)
    first, small, second = cell.add("v", 60), cell.add("small", 10), cell.add("w", 60)
    leader = GivingLeader(cell)
    leader.giving.place("v", first, SECONDS)
    leader.see()
    go, write = threading.Event(), leader.writer._backend.write

    def write_late(*what: Any) -> Any:
        assert go.wait(SECONDS)
        return write(*what)

    leader.writer._backend.write = write_late  # type: ignore[method-assign, assignment]
    state = leader.writer._state_locked("n1")
    calls = [start(lambda: leader.giving.place("small", small, SECONDS))]
    wait_until(lambda: state.writing.locked() and not state.waiting, "a write under way", SECONDS)
    calls.append(start(lambda: free(leader, first)))
    wait_until(lambda: len(state.waiting) == 1, "the one who frees", SECONDS)
    calls.append(start(lambda: leader.giving.place("v", first, SECONDS)))
    wait_until(lambda: len(state.waiting) == 2, "the one who asks anew", SECONDS)
    go.set()
    for call in calls:
        call.join(SECONDS)
    for _ in range(2):
        leader.see()
        assert ({first: "n1", small: "n1"}, 30) == (cell.on_record(), free_gib(leader))
        let_pass(leader, 100)
    assert not leader.giving.place("w", second, SECONDS).allocations


def test_what_was_freed_and_given_anew_while_the_watch_was_away_counts_for_good() -> None:
    cell = ReplicaCell(n1=100)
    first, second = cell.add("v", 60), cell.add("w", 60)
    leader = GivingLeader(cell)
    leader.giving.place("v", first, SECONDS)
    leader.see()
    free(leader, first)
    assert 100 == free_gib(leader)
    leader.giving.place("v", first, SECONDS)
    let_pass(leader, 100)
    assert 40 == free_gib(leader)
    assert not leader.giving.place("w", second, SECONDS).allocations


def test_a_decision_of_one_term_is_not_written_in_the_next_one_of_the_same_process() -> None:
    cell = ReplicaCell(n1=100)
    first, second = cell.add("v", 60), cell.add("w", 60)
    leader = GivingLeader(cell)
    late = Late(leader, lambda: leader.giving.place("v", first, SECONDS))
    leader.checks.term = 2
    leader.cluster.allocator.end_term()
    leader.cluster.allocator.begin_term(has_predecessor=True)
    leader.see()
    assert leader.giving.place("w", second, SECONDS).allocations
    late.let_go()
    leader.see()
    assert ({second: "n1"}, 40) == (cell.on_record(), free_gib(leader))
    assert "term" in late.error
    assert not leader.giving.place("v", first, SECONDS).allocations


@pytest.mark.parametrize("to", ["n1", "n2"], ids=["renamed", "on another node"])
def test_what_waits_on_a_disk_goes_with_it(to: str) -> None:
    cell = ReplicaCell(n1=100, n2=10)
    first, second = cell.add("v", 60), cell.add("w", 60)
    leader = GivingLeader(cell)
    assert leader.giving.place("v", first, SECONDS).allocations
    leader.see()
    nodes = {name: cell.api.get(LONGHORN_NODES, NAMESPACE, name) for name in ("n1", "n2")}
    for part, field in (("spec", "disks"), ("status", "diskStatus")):
        nodes[to][part][field]["other"] = nodes["n1"][part][field].pop("d1")
    for raw in nodes.values():
        cell.api.put(LONGHORN_NODES, NAMESPACE, raw)
    leader.see()
    assert not leader.giving.place("w", second, SECONDS).allocations
    (again,) = leader.giving.place("v", first, SECONDS).allocations
    assert ("n1-d1", to) == (again.disk_uuid, again.node)
