"""What the leader does about a record that stands at its former place."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from controller.allocations.backends import LonghornNodeBackend, NodeDiskAllocationBackend, RecordBackend
from controller.allocations.holder import LOOK_EVERY_SECONDS, MOST_FAILURES, RecordHolder
from controller.allocations.writer import Learn, RecordWriter, learn_nothing
from controller.errors import (
    ClusterError,
    ConflictError,
    NotFoundError,
    NotLeaderError,
    SchedulerError,
    UnavailableError,
)
from controller.kube.resources import CRDS, LONGHORN_NODES, LONGHORN_REPLICAS, NODE_DISK_ALLOCATIONS, Resource
from controller.model.allocations import Allocation
from controller.rpc import disk_scheduler_pb2 as pb
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.clock import VirtualClock
from tests.unit.allocations.stage import NAMESPACE, NODES, entry, longhorn, longhorn_node, nodes_crd, on_record, put
from tests.unit.placement.stage import ReplicaCell
from tests.unit.rpc.giving import GivingLeader

WRITES = ("create", "replace", "patch", "delete")
S = 5.0


class HolderStage:
    """A leader whose record was in NodeDiskAllocations, until the CRD of Longhorn's Nodes got the field."""

    def __init__(
        self, api: FakeApiServer | None = None, clock: VirtualClock | None = None, learn: Learn = learn_nothing
    ) -> None:
        self.api, self.clock, self.leads = api or longhorn(), clock or VirtualClock(), 5
        self.former = NodeDiskAllocationBackend(self.api, NAMESPACE)
        self.nodes = LonghornNodeBackend(self.api, NAMESPACE)
        self.api.put(CRDS, None, nodes_crd(has_field=False))
        self.said = list[str]()
        parts = self.api, NAMESPACE, self._term, self.clock, self.said.append
        self.holder = RecordHolder(*parts, learn=learn, left=self._left)
        self.holder.look()

    def _left(self) -> list[str]:
        return [raw["metadata"]["name"] for raw in self.api.list_page(NODE_DISK_ALLOCATIONS, NAMESPACE).items]

    def _term(self) -> int:
        if not self.leads:
            raise NotLeaderError("this process does not lead")
        return self.leads

    def write(self, backend: RecordBackend, *entries: Allocation, term: int = 3) -> None:
        backend.write(backend.read(entries[0].node), entries, term)

    def switch(self) -> None:
        self.api.put(CRDS, None, nodes_crd(has_field=True))
        self.holder.look()

    @property
    def writer(self) -> RecordWriter:
        writer = self.holder.writer()
        assert writer is not None
        return writer

    def at_both(self, node: str = "n1") -> tuple[dict[str, int], dict[str, int]]:
        return on_record(self.former, node), on_record(self.nodes, node)


@pytest.mark.parametrize("asked_before", [False, True], ids=["freed after the move", "and before"])
def test_what_is_freed_is_free_wherever_it_was_on_record(asked_before: bool) -> None:
    cell = ReplicaCell(n1=100)
    leader = GivingLeader(cell)
    allocator = leader.cluster.allocator
    stage = HolderStage(cell.api, cell.clock, allocator.allocations.learn)
    v, w = cell.add("v", 60), cell.add("w", 60)
    freed = pb.DeallocateReplicaRequest(replica_name=v)
    leader.writer = stage.writer
    assert leader.see().giving.place("v", v, S).allocations
    leader.see()
    stage.switch()
    leader.writer = stage.writer
    cell.api.delete(LONGHORN_REPLICAS, NAMESPACE, v)
    leader.see()
    if asked_before:
        leader.giving.deallocate_replica(freed, S)
    cell.clock.advance(LOOK_EVERY_SECONDS)
    stage.holder.look()
    allocator.sweep()
    assert not leader.see().giving.place("w", w, S).allocations
    leader.giving.deallocate_replica(freed, S)
    assert leader.giving.place("w", w, S).allocations


def test_it_moves_once_calls_under_way_have_ended_and_the_larger_one_counts() -> None:
    stage = HolderStage()
    stage.write(stage.former, entry("a", 10), entry("b", 20))
    stage.write(stage.nodes, entry("a", 15), entry("b", 5), entry("c", 7))
    stage.write(stage.former, entry("d", 9, "n2"))
    former = stage.writer
    stage.switch()
    former.commit([put("late", 3)], stage.clock.now() + S)  # by a call that was under way
    assert {"a": 10, "b": 20, "late": 3} == stage.at_both()[0]
    stage.holder.look()
    assert ({}, {"a": 15, "b": 20, "c": 7, "late": 3}) == stage.at_both()
    assert ({}, {"d": 9}) == stage.at_both("n2")
    assert (5, None) == (stage.nodes.read("n1").record.term, stage.former.read("n1").raw)
    assert {"place": "longhorn-node", "problem": ""} == stage.holder.status()


def test_what_comes_to_the_former_place_later_moves_as_well() -> None:
    """By a leader, for example, that has not found the field yet."""
    stage = HolderStage()
    stage.switch()
    stage.writer.commit([put("a", 10)], stage.clock.now() + S)
    stage.write(stage.former, entry("a", 5), entry("b", 20), term=4)
    stage.holder.look()
    assert ({}, {"a": 10, "b": 20}) == stage.at_both()
    stage.writer.commit([put("c", 1)], stage.clock.now() + S)  # which knows what it wrote last
    assert {"a": 10, "b": 20, "c": 1} == on_record(stage.nodes)


def test_nothing_is_asked_about_records_that_are_not_there() -> None:
    stage, calls = HolderStage(), list[str]()
    stage.switch()
    stage.holder._left = lambda: ()
    stage.api.fail = lambda verb, resource: calls.append(f"{verb} {resource.plural}")
    stage.holder.look()
    assert ["get customresourcedefinitions", "list nodes"] == calls


def test_nothing_moves_to_objects_of_our_own() -> None:
    stage = HolderStage()
    stage.write(stage.former, entry("a"), term=5)
    stage.holder.look()
    assert ({"a": 10}, {}, "") == (*stage.at_both(), stage.holder.problem)


@pytest.mark.parametrize("allowed", range(5))
def test_at_no_moment_is_less_on_record(allowed: int) -> None:
    stage = HolderStage()
    stage.write(stage.former, entry("a"))
    stage.write(stage.former, entry("b", node="n2"))
    stage.switch()
    left = allowed

    def fail(verb: str, _resource: Resource) -> None:
        nonlocal left
        left -= verb in WRITES
        if verb in WRITES and left < 0:
            stage.clock.advance(S)
            raise UnavailableError("503")

    stage.api.fail = fail
    stage.holder.look()
    assert ("stay" in stage.holder.problem) == (allowed < 4)
    stage.api.work()
    found = [{**former, **latter} for former, latter in map(stage.at_both, NODES)]
    assert [{"a": 10}, {"b": 10}, {}] == found
    stage.holder.look()
    assert [({}, {"a": 10}), ({}, {"b": 10})] == [stage.at_both("n1"), stage.at_both("n2")]
    assert "" == stage.holder.problem


def test_what_grows_meanwhile_stays_until_the_next_look() -> None:
    stage = HolderStage()
    stage.write(stage.former, entry("a", 10))
    stage.switch()

    def grow(verb: str, resource: Resource) -> None:
        if verb == "delete":
            stage.api.work()
            stage.write(stage.former, entry("a", 20))

    stage.api.fail = grow
    stage.holder.look()
    assert ({"a": 20}, {"a": 10}) == stage.at_both()
    stage.holder.look()
    assert ({}, {"a": 20}) == stage.at_both()


def gone(stage: HolderStage) -> None:
    stage.api.delete(LONGHORN_NODES, NAMESPACE, "n1")


def unreadable(stage: HolderStage) -> None:
    stage.api.patch(NODE_DISK_ALLOCATIONS, NAMESPACE, "n1", {"spec": {"term": "first"}})


def of_a_later_term(stage: HolderStage) -> None:
    stage.write(stage.former, entry("a"), term=9)


def lost_in_the_node(stage: HolderStage) -> None:
    stage.write(stage.nodes, entry("x"))
    stage.api.patch(LONGHORN_NODES, NAMESPACE, "n1", {"spec": {"diskAllocations": None}})


@pytest.mark.parametrize(
    ("state", "why"),
    [
        (gone, "n1: 404: n1"),
        (unreadable, "spec.term"),
        (of_a_later_term, "is of term 9, later than 5"),
        (lost_in_the_node, "cannot be read"),
    ],
)
def test_what_cannot_move_stays_and_is_told(state: Callable[[HolderStage], None], why: str) -> None:
    stage = HolderStage()
    stage.write(stage.former, entry("a"))
    stage.write(stage.former, entry("b", node="n2"))
    stage.switch()
    state(stage)
    before = stage.former.read("n1").raw
    for _ in range(2):
        stage.holder.look()
        assert f"records that stay in {stage.former.name}: 1 (" in stage.holder.status()["problem"]
        assert why in stage.holder.problem
    assert before == stage.former.read("n1").raw
    assert ({}, {"b": 10}) == stage.at_both("n2")
    assert [stage.holder.problem] == stage.said
    stage.former.forget(stage.former.read("n1"))
    stage.holder.look()
    assert "" == stage.holder.problem


@pytest.mark.parametrize("leads_again", [0, 7])
def test_nothing_goes_in_another_term_than_it_was_written_in(leads_again: int) -> None:
    """The next leader may not see yet what this one has written at the new place."""
    stage = HolderStage()
    stage.write(stage.former, entry("a"))
    stage.switch()
    commit = stage.writer.commit

    def commit_last(*what: object, **more: object) -> None:
        commit(*what, **more)  # type: ignore[arg-type]
        stage.leads = leads_again

    stage.writer.commit = commit_last  # type: ignore[method-assign]
    stage.holder.look()
    assert ({"a": 10}, {"a": 10}) == stage.at_both()
    assert "records that stay" in stage.holder.problem


def test_a_decision_of_an_earlier_term_is_not_written() -> None:
    stage = HolderStage()
    stage.write(stage.former, entry("a"))
    stage.switch()

    def lead_again(verb: str, resource: Resource) -> None:
        stage.leads += verb == "get" and resource == LONGHORN_NODES

    stage.api.fail = lead_again
    stage.holder.look()
    stage.api.work()
    assert ({"a": 10}, {}) == stage.at_both()


def many(stage: HolderStage) -> None:
    """Nine nodes' records at the former place."""
    for name in (f"m{number}" for number in range(9)):
        stage.api.put(LONGHORN_NODES, NAMESPACE, longhorn_node(name))
        stage.write(stage.former, entry("a", node=name))
    stage.switch()


@pytest.mark.parametrize("verb", ["patch", "delete"])
@pytest.mark.parametrize("error", [UnavailableError("503"), ClusterError("403")], ids=str)
def test_what_keeps_many_from_being_moved_is_not_tried_with_all(error: SchedulerError, verb: str) -> None:
    stage, tried = HolderStage(), 0
    many(stage)

    def fail(asked: str, resource: Resource) -> None:
        nonlocal tried
        tried += asked == "get" and resource == NODE_DISK_ALLOCATIONS
        if asked == verb:
            stage.clock.advance(S)
            raise error

    stage.api.fail = fail
    stage.holder.look()
    assert MOST_FAILURES == tried
    assert "stay in node-disk-allocation: 9 (m0: " in stage.holder.problem


def test_records_that_others_write_all_the_time_do_not_keep_the_rest() -> None:
    stage, deletes = HolderStage(), 0
    many(stage)

    def fail(verb: str, resource: Resource) -> None:
        nonlocal deletes
        deletes += verb == "delete"
        if verb == "delete" and deletes < 9:
            raise ConflictError("409")

    stage.api.fail = fail
    stage.holder.look()
    assert "stay in node-disk-allocation: 8 (m0: 409)" in stage.holder.problem


def test_a_place_keeps_its_writer_that_knows_what_was_sent() -> None:
    """While it is not found for a moment, and when the record goes elsewhere and back."""
    stage = HolderStage()
    former, is_away = stage.writer, True

    def fail(_verb: str, resource: Resource) -> None:
        if is_away and resource == CRDS:
            raise NotFoundError("404")

    stage.api.fail = fail
    with pytest.raises(NotFoundError):
        stage.holder.look()
    assert stage.holder.writer() is None
    is_away = False
    stage.holder.look()
    assert former is stage.writer
    stage.switch()
    assert former is not stage.writer
    stage.api.put(CRDS, None, nodes_crd(has_field=False))
    stage.holder.look()
    assert former is stage.writer
