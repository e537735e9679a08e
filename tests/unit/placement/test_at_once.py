"""Calls at once on the same room: one waits for the processor between its decision and its write while others are
answered, share its write, or free what it is about to be told."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from controller.kube.resources import LONGHORN_BACKING_IMAGES, LONGHORN_NODES
from controller.rpc import disk_scheduler_pb2 as pb
from tests.fakes.builders import GIB
from tests.unit.placement.stage import NAMESPACE, PlacingLeader, ReplicaCell
from tests.waiting import wait_until

LATE = "late"
SECONDS = 5.0


def free_gib(leader: PlacingLeader, node: str = "n1") -> float:
    room = leader.cluster.allocator._world.room(node)
    assert room is not None
    return room.disks[0].free_bytes / GIB


def let_pass(leader: PlacingLeader, seconds: float) -> None:
    leader.cell.clock.advance(seconds)
    leader.cluster.allocator.sweep()
    leader.see()


def free(leader: PlacingLeader, replica: str) -> None:
    leader.giving.deallocate_replica(pb.DeallocateReplicaRequest(replica_name=replica), SECONDS)


def start(call: Callable[[], object], name: str = "caller") -> threading.Thread:
    thread = threading.Thread(target=call, name=name, daemon=True)
    thread.start()
    return thread


class Late:
    """A call that has decided, and whose thread goes on with `let_go`."""

    def __init__(self, leader: PlacingLeader, call: Callable[[], object]) -> None:
        self._at, self._go, self.error = threading.Event(), threading.Event(), ""
        commit = leader.writer.commit

        def wait_and_commit(*changes: Any) -> None:
            if threading.current_thread().name == LATE:
                self._at.set()
                assert self._go.wait(SECONDS)
            commit(*changes)

        def run() -> None:
            try:
                call()
            except Exception as error:
                self.error = str(error)

        leader.writer.commit = wait_and_commit  # type: ignore[method-assign, assignment]
        self._thread = start(run, LATE)
        assert self._at.wait(SECONDS)

    def let_go(self) -> None:
        self._go.set()
        self._thread.join(SECONDS)
        assert not self._thread.is_alive()


@pytest.mark.parametrize("was_given", [True, False])
def test_what_one_call_frees_is_not_free_while_another_is_about_to_write_it(was_given: bool) -> None:
    cell = ReplicaCell(n1=100)
    first, second = cell.add("v", 60), cell.add("w", 60)
    leader = PlacingLeader(cell)
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
    status = {"realSize": 60 * GIB, "diskFileStatusMap": {}}
    raw = {"metadata": {"name": "i"}, "spec": {"diskFileSpecMap": {}}, "status": status}
    cell.api.put(LONGHORN_BACKING_IMAGES, NAMESPACE, raw)
    replica = cell.add("w", 60)
    leader = PlacingLeader(cell)
    request = pb.ScheduleBackingImageRequest(backing_image_name="i")
    late = Late(leader, lambda: leader.giving.schedule_backing_image(request, SECONDS))
    freed = pb.DeallocateBackingImageRequest(backing_image_name="i", disk_uuid="n1-d1")
    leader.giving.deallocate_backing_image(freed, SECONDS)
    leader.see()
    assert not leader.giving.place("w", replica, SECONDS).allocations
    late.let_go()
    assert ({"i": "n1"}, "") == (cell.on_record(), late.error)


def test_what_is_freed_and_given_anew_in_one_write_counts_for_good() -> None:
    cell = ReplicaCell(n1=100)
    first, small, second = cell.add("v", 60), cell.add("small", 10), cell.add("w", 60)
    leader = PlacingLeader(cell)
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
    leader = PlacingLeader(cell)
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
    leader = PlacingLeader(cell)
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
    leader = PlacingLeader(cell)
    assert "n1-d1" == leader.giving.place("v", first, SECONDS).disk_uuid
    leader.see()
    nodes = {name: cell.api.get(LONGHORN_NODES, NAMESPACE, name) for name in ("n1", "n2")}
    for part, field in (("spec", "disks"), ("status", "diskStatus")):
        nodes[to][part][field]["other"] = nodes["n1"][part][field].pop("d1")
    for raw in nodes.values():
        cell.api.put(LONGHORN_NODES, NAMESPACE, raw)
    leader.see()
    assert not leader.giving.place("w", second, SECONDS).allocations
    again = leader.giving.place("v", first, SECONDS)
    assert ("n1-d1", to, "other") == (again.disk_uuid, again.allocations[0].node, again.allocations[0].disk)
