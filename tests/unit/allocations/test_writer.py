"""Changes become durable together, share writes, and a crash leaves too much on record, never too little."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import pytest

from controller.allocations.backends import NodeDiskAllocationBackend, RecordBackend, StoredRecord
from controller.allocations.writer import ARRIVES_SECONDS, ROLL_BACK_SECONDS, RecordWriter
from controller.errors import (
    ClusterError,
    ConflictError,
    NotLeaderError,
    NotReadyError,
    OutdatedDecisionError,
    PreconditionError,
    RefusedWriteError,
    SchedulerError,
    UnavailableError,
    UnreadableRecordError,
)
from controller.kube.resources import LONGHORN_NODES, NODE_DISK_ALLOCATIONS, Resource
from controller.model.allocations import Allocation, Drop, NodeRecord, Purpose, Put, lowers_nothing
from controller.model.records import MAX_ENTRIES
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.clock import VirtualClock
from tests.unit.allocations.stage import BACKENDS, NAMESPACE, NODES, entry, longhorn, on_record, put, touch_node
from tests.waiting import wait_until

WRITES = ("create", "replace", "patch")


Kind = Callable[[FakeApiServer, str], RecordBackend]
WATCHES = ("none", "up to date", "late")


@dataclass
class HeldWrite:
    """A write that does not end before it may."""

    entered: threading.Event = field(default_factory=threading.Event)
    go: threading.Event = field(default_factory=threading.Event)


class WriterStage:
    """`watch`: what the writer is shown of records, besides what it reads."""

    def __init__(self, kind: Kind, watch: str = "none") -> None:
        self.api, self.clock, self.term = longhorn(), VirtualClock(), 5
        self.backend, self.watch = kind(self.api, NAMESPACE), watch
        self.writer = self.new_writer()

    def new_writer(self, gather_seconds: float = 0.0) -> RecordWriter:
        """As after a restart."""
        then = {stored.record.node: stored.record for stored in self.backend.records()}

        def seen(node: str) -> NodeRecord | None:
            if self.watch == "up to date":
                now = {stored.record.node: stored.record for stored in self.backend.records()}
                return now.get(node)
            return then.get(node) if self.watch == "late" else None

        return RecordWriter(self.backend, lambda: self.term, self.clock, self.clock.advance, seen, gather_seconds)

    def commit(self, *changes: Put | Drop, seconds: float = 3.0) -> None:
        self.writer.commit(changes, self.clock.now() + seconds)

    def hold_writes(self, count: int) -> list[HeldWrite]:
        """The next `count` writes."""
        held = [HeldWrite() for _ in range(count)]
        coming = iter(held)

        def hold(verb: str, _resource: Resource) -> None:
            one = next(coming, None) if verb in WRITES else None
            if one is not None:
                one.entered.set()
                assert one.go.wait(30)

        self.api.fail = hold
        return held

    def wait_waiting(self, count: int, node: str = "n1") -> None:
        state = self.writer._nodes[node]
        wait_until(lambda: len(state.waiting) == count, f"{count} waiting callers", 30)

    def wait_gathering(self, node: str = "n1") -> None:
        state = self.writer._nodes[node]
        wait_until(lambda: state.gathering is not None, "one who waits for others", 30)

    def one_who_gathers(self, callers: ThreadPoolExecutor) -> Future[None]:
        """Of r2, which waits for others after r1 was written meanwhile: that took 40 s."""
        (held,) = self.hold_writes(1)
        first = callers.submit(self.commit, put("r1"), seconds=200.0)
        assert held.entered.wait(30)
        second = callers.submit(self.commit, put("r2"), seconds=200.0)
        self.wait_waiting(1)
        self.clock.advance(40.0)
        held.go.set()
        first.result(30)
        self.wait_gathering()
        return second

    def writes(self) -> int:
        return sum(verb in ("ADDED", "MODIFIED") for _, verb, _, _ in self.api.log)

    def fail_writes(self, allowed: int, error: BaseException, *, lands: bool = False) -> None:
        """After so many writes each further one raises; with `lands`, the first of them is stored all the same."""
        left = allowed

        def fail(verb: str, _resource: Resource) -> None:
            nonlocal left
            if verb in WRITES:
                left -= 1
                if left < 0 and not (lands and left == -1):
                    raise error

        self.api.fail = fail


@pytest.fixture(params=product(BACKENDS, WATCHES), ids=lambda each: f"{each[0].name}-{each[1]}")
def stage(request: pytest.FixtureRequest) -> WriterStage:
    return WriterStage(*request.param)


def drop(name: str, node: str = "n1", disk: str = "d1") -> Drop:
    return Drop(Purpose.REPLICA, name, node, f"{node}-{disk}")


def test_what_is_committed_is_there_for_the_next_leader(stage: WriterStage) -> None:
    stage.commit(put("r1"), put("r2", 20))
    stage.commit(drop("r1"), put("r2", 30))
    assert {"r2": 30} == on_record(stage.backend)
    assert 5 == stage.backend.read("n1").record.term


def test_nothing_is_written_for_what_is_there(stage: WriterStage) -> None:
    stage.commit(put("r1"))
    before = stage.writes()
    stage.commit(put("r1"))
    stage.commit(drop("r2"))
    assert before == stage.writes()


@pytest.mark.parametrize("kind", BACKENDS)
def test_a_former_leaders_write_that_arrives_late_undoes_nothing_that_was_told(kind: Kind) -> None:
    stage = WriterStage(kind)
    stage.commit(put("r1"))
    former = stage.backend.read("n1")
    stage.term, stage.writer = 6, stage.new_writer()
    stage.commit(put("r1"))  # stands there already
    with pytest.raises(ClusterError):
        stage.backend.write(former, (), 5)
    assert {"r1": 10} == on_record(stage.backend)
    before = stage.writes()
    stage.commit(put("r1"))
    assert before == stage.writes()  # once in a term is enough


def test_what_a_former_leader_wrote_since_a_decision_ends_that_decision_only(stage: WriterStage) -> None:
    stage.commit(put("r1"))
    seen = stage.backend.read("n1").record
    stage.term, stage.writer = 6, stage.new_writer()
    stage.backend.write(stage.backend.read("n1"), (*seen.allocations, entry("late", 60)), 5)
    now = stage.backend.read("n1").record

    def commit(name: str, seen: NodeRecord) -> None:
        stage.writer.commit([put(name)], stage.clock.now() + 3, lowers_nothing, [seen])

    (held,) = stage.hold_writes(1)
    with ThreadPoolExecutor(3) as callers:
        first = callers.submit(commit, "knows", now)
        assert held.entered.wait(30)
        second, third = callers.submit(commit, "outdated", seen), callers.submit(commit, "knows too", now)
        stage.wait_waiting(2)
        held.go.set()
        for one in (first, third):
            one.result(30)
        with pytest.raises(OutdatedDecisionError, match="record of n1"):
            second.result(30)
    assert {"r1": 10, "late": 60, "knows": 10, "knows too": 10} == on_record(stage.backend)
    commit("of this term", stage.backend.read("n1").record)
    assert {"outdated"}.isdisjoint(on_record(stage.backend))


def test_an_outdated_decision_writes_nothing_anywhere(stage: WriterStage) -> None:
    stage.commit(put("r1", node="n2"))
    seen = [stage.backend.read(node).record for node in ("n1", "n2")]
    stage.term, stage.writer = 6, stage.new_writer()
    stage.backend.write(stage.backend.read("n2"), [entry("r1", 10, "n2"), entry("late", 60, "n2")], 5)
    growth = [put("r1", 50, "n1"), put("r1", 50, "n2")]
    with pytest.raises(NotReadyError) as caught:  # it was sent to n1, and taken back: it may count for a while
        stage.writer.commit(growth, stage.clock.now() + 3, lowers_nothing, seen)
    assert not isinstance(caught.value, OutdatedDecisionError)
    assert ({}, {"r1": 10, "late": 60}) == (on_record(stage.backend), on_record(stage.backend, "n2"))


def test_a_move_on_one_node_is_one_write(stage: WriterStage) -> None:
    stage.commit(put("r1"))
    before = stage.writes()
    stage.commit(put("r1", disk="d2"), drop("r1"))
    assert before + 1 == stage.writes()
    assert (entry("r1", disk="d2"),) == stage.backend.read("n1").record.allocations


def test_those_who_wait_share_the_next_write(stage: WriterStage) -> None:
    stage.commit(put("r0"))
    (held,) = stage.hold_writes(1)
    before = stage.writes()
    with ThreadPoolExecutor(21) as callers:
        first = callers.submit(stage.commit, put("r1"))
        assert held.entered.wait(30)
        others = [callers.submit(stage.commit, put(f"more{index}")) for index in range(20)]
        stage.wait_waiting(20)
        assert not any(one.done() for one in (first, *others))
        assert {"r0": 10} == on_record(stage.backend)
        held.go.set()
        for one in (first, *others):
            one.result()
    assert before + 2 == stage.writes()
    assert 22 == len(on_record(stage.backend))


def test_longhorns_own_writes_are_no_conflict() -> None:
    stage = WriterStage(BACKENDS[0])
    for index in range(5):
        stage.commit(put(f"r{index}"))
        touch_node(stage.api, "n1")
    assert 5 == len(on_record(stage.backend))


def test_where_the_watch_has_shown_them_nothing_is_tried_in_vain() -> None:
    stage, verbs = WriterStage(BACKENDS[0], "up to date"), list[str]()
    for index in range(3):
        stage.api.fail = lambda verb, _resource: verbs.append(verb)
        stage.commit(put(f"r{index}"))
        stage.api.work()
        touch_node(stage.api, "n1")
    assert ["patch"] * 3 == [verb for verb in verbs if verb in (*WRITES, "get")]


def test_a_change_of_the_record_by_somebody_else_is_told_once(stage: WriterStage) -> None:
    stage.commit(put("r1"))
    stage.backend.write(stage.backend.read("n1"), [entry("theirs", 99)], 5)
    if stage.watch != "up to date":  # else it goes on from what the watch shows
        with pytest.raises(ConflictError):
            stage.commit(put("r2"))
        assert {"theirs": 99} == on_record(stage.backend)
    stage.commit(put("r2"))
    assert {"theirs": 99, "r2": 10} == on_record(stage.backend)


def test_so_is_that_it_was_emptied(stage: WriterStage) -> None:
    """Of its term, too, as by somebody who deletes it."""
    stage.commit(put("r1"))
    stage.backend.write(stage.backend.read("n1"), [], 0)
    if stage.watch != "up to date":
        with pytest.raises(ConflictError):
            stage.commit(put("r2"))
        assert {} == on_record(stage.backend)
    stage.commit(put("r2"))
    assert {"r2": 10} == on_record(stage.backend)


def test_and_that_it_was_deleted() -> None:
    stage = WriterStage(NodeDiskAllocationBackend)
    stage.commit(put("r1"))
    stage.api.delete(NODE_DISK_ALLOCATIONS, NAMESPACE, "n1")
    with pytest.raises(ConflictError):
        stage.commit(put("r2"))
    assert [] == list(stage.backend.records())


def test_nothing_is_written_into_a_record_that_cannot_be_read(stage: WriterStage) -> None:
    stage.commit(put("r1"))
    kind = NODE_DISK_ALLOCATIONS if isinstance(stage.backend, NodeDiskAllocationBackend) else LONGHORN_NODES
    raw = stage.api.get(kind, NAMESPACE, "n1")
    raw["spec"]["diskAllocations"] = {"d1": "garbage"}
    stage.api.put(kind, NAMESPACE, raw)
    for _ in range(2):
        with pytest.raises(UnreadableRecordError, match="d1"):
            stage.commit(put("r2"))
    assert {"d1": "garbage"} == stage.api.get(kind, NAMESPACE, "n1")["spec"]["diskAllocations"]


def test_a_former_leader_writes_nothing(stage: WriterStage) -> None:
    stage.commit(put("r1"))
    stage.term = 6
    stage.new_writer().commit([put("r2")], stage.clock.now() + 3)
    stage.term = 5
    with pytest.raises((NotLeaderError, ConflictError)):
        stage.commit(put("r3"))
    with pytest.raises(NotLeaderError):
        stage.commit(put("r3"))
    assert {"r1", "r2"} == on_record(stage.backend).keys()


def test_an_api_server_that_is_away_is_asked_until_the_deadline(stage: WriterStage) -> None:
    stage.api.fail_with(UnavailableError("503"), times=10)
    stage.commit(put("r1"))
    stage.api.fail_with(UnavailableError("503"))
    started = stage.clock.now()
    with pytest.raises(NotReadyError):
        stage.commit(put("r2"), seconds=2)
    assert 2 <= stage.clock.now() - started < 2.2
    stage.api.fail_with(ClusterError("403: no right"))
    with pytest.raises(NotReadyError, match="no right"):
        stage.commit(put("r2"))
    stage.api.work()
    stage.commit(put("r3"))
    assert {"r1", "r3"} == on_record(stage.backend).keys()


def test_a_write_whose_answer_is_lost_is_not_done_twice(stage: WriterStage) -> None:
    stage.commit(put("r1"))
    real, calls = stage.backend.write, []

    def write(*args: object) -> object:
        calls.append(args)
        found = real(*args)  # type: ignore[arg-type]
        if len(calls) == 1:
            raise UnavailableError("the connection broke")
        return found

    stage.backend.write = write  # type: ignore[method-assign,assignment]
    stage.commit(put("r2"))
    assert 1 == len(calls)
    assert {"r1", "r2"} == on_record(stage.backend).keys()


def test_what_was_refused_but_stored_stays(stage: WriterStage) -> None:
    stage.commit(put("r1"))
    real = stage.backend.write

    def write(*args: object) -> object:
        real(*args)  # type: ignore[arg-type]
        stage.api.fail_with(UnavailableError("503"))
        raise UnavailableError("503")

    stage.backend.write = write  # type: ignore[method-assign,assignment]
    with pytest.raises(NotReadyError):
        stage.commit(put("r1", 50), put("r2"))
    stage.backend.write = real  # type: ignore[method-assign]
    stage.api.work()
    assert {"r1": 50, "r2": 10} == on_record(stage.backend)
    stage.commit(put("r3"))
    assert {"r1": 50, "r2": 10, "r3": 10} == on_record(stage.backend)


def test_what_a_write_under_way_would_take_away_is_not_said_to_be_there() -> None:
    """It is freed, that is not answered, and it is asked for once more."""
    stage = WriterStage(NodeDiskAllocationBackend)
    stage.commit(put("r0"), put("r1"))
    real, late = stage.backend.write, list[tuple[object, ...]]()

    def is_late(*args: object) -> object:
        late.append(args)
        raise UnavailableError("503")

    stage.backend.write = is_late  # type: ignore[method-assign,assignment]
    with pytest.raises(NotReadyError):
        stage.commit(drop("r1"))
    stage.backend.write = real  # type: ignore[method-assign]
    with pytest.raises(NotReadyError, match="may yet undo this"):
        stage.commit(put("r1"))
    stage.commit(put("r0"))  # which it keeps

    stage.clock.advance(ARRIVES_SECONDS)
    stage.commit(put("r1"))
    stage.commit(put("r3"))
    with pytest.raises(ConflictError):
        real(*late[0])  # type: ignore[arg-type]
    assert {"r0", "r1", "r3"} == on_record(stage.backend).keys()


GROWTH = [put("r", 20, node) for node in NODES]


@pytest.mark.parametrize("allowed", range(3))
def test_an_expansion_that_fails_on_a_node_is_rolled_back_on_the_others(stage: WriterStage, allowed: int) -> None:
    stage.commit(*(put("r", 10, node) for node in NODES))
    failed = False

    def fail(verb: str, _resource: Resource, left: list[int] = [allowed]) -> None:  # noqa: B006
        nonlocal failed
        if verb in WRITES and not failed:
            left[0] -= 1
            if left[0] < 0:
                failed = True
                raise ClusterError("422: no")

    stage.api.fail = fail
    with pytest.raises(RefusedWriteError, match=f"record of n{allowed + 1} cannot be written: 422: no") as raised:
        stage.commit(*GROWTH)
    assert (f"n{allowed + 1}", frozenset(NODES)) == (raised.value.node, raised.value.untouched)
    assert [{"r": 10}] * 3 == [on_record(stage.backend, node) for node in NODES]


def test_who_shares_a_write_that_is_refused_hears_of_his_own_nodes(stage: WriterStage) -> None:
    real, (held,) = stage.backend.write, stage.hold_writes(1)

    def refuse(stored: StoredRecord, *more: object) -> StoredRecord:
        if stored.record.node != "n2":
            return real(stored, *more)  # type: ignore[arg-type]
        stage.clock.advance(60.0)
        raise ClusterError("422: no")

    with ThreadPoolExecutor(3) as callers:
        first = callers.submit(stage.commit, put("r0", node="n2"))
        assert held.entered.wait(30)
        both = list[Future[None]]()
        for nodes in (("n1", "n2"), ("n2", "n3")):
            both.append(callers.submit(stage.commit, *(put("r", 10, node) for node in nodes), seconds=30.0))
            stage.wait_waiting(len(both), "n2")
        stage.backend.write = refuse  # type: ignore[method-assign,assignment]
        held.go.set()
        first.result(30)
        found = [one.exception(30) for one in both]
    untouched = [one.untouched for one in found if isinstance(one, RefusedWriteError)]
    assert [{"n1", "n2"}, {"n2", "n3"}] == untouched


class Crash(BaseException):
    """The process is gone."""


@pytest.mark.parametrize("lands", [False, True])
@pytest.mark.parametrize("allowed", range(6))
def test_a_crash_never_leaves_too_little(stage: WriterStage, allowed: int, lands: bool) -> None:
    """A replica moves from n1 to n2, and others grow: whatever was asked or stood there is on record at any point."""
    stage.commit(*(put("r", 10, node) for node in NODES), put("mover", 10, "n1"))
    stage.fail_writes(allowed, Crash(), lands=lands)
    with contextlib.suppress(Crash):
        stage.commit(*GROWTH, put("mover", 10, "n2"), drop("mover", "n1"))
    stage.api.work()
    found = [on_record(stage.backend, node) for node in NODES]
    assert all(one["r"] in (10, 20) for one in found)
    assert "mover" in found[0] or "mover" in found[1]
    if "mover" not in found[0]:
        assert [20, 20, 20] == [one["r"] for one in found]


def test_what_cannot_be_freed_beside_growth_is_freed_with_the_next_write(stage: WriterStage) -> None:
    stage.commit(put("r", 10, "n1"), put("s", 10, "n2"))
    stage.fail_writes(1, ClusterError("422: no"))
    stage.commit(put("r", 10, "n2"), drop("r", "n1"))
    stage.api.work()
    assert {"r": 10} == on_record(stage.backend, "n1")
    stage.commit(put("t", 10, "n1"))
    assert {"t": 10} == on_record(stage.backend, "n1")
    assert {"r": 10, "s": 10} == on_record(stage.backend, "n2")


def test_what_only_frees_says_when_it_failed(stage: WriterStage) -> None:
    stage.commit(put("r", 10, "n1"), put("r", 10, "n2"))
    stage.fail_writes(0, ClusterError("422: no"))
    with pytest.raises(SchedulerError):
        stage.commit(drop("r", "n1"), drop("r", "n2"))


def test_a_caller_whose_time_ends_while_another_writes_takes_back_what_was_written(stage: WriterStage) -> None:
    stage.commit(put("r0", 10))
    (held,) = stage.hold_writes(1)
    with ThreadPoolExecutor(2) as callers:
        first = callers.submit(stage.commit, put("r1"))
        assert held.entered.wait(30)
        with pytest.raises(NotReadyError):
            stage.commit(put("late"), seconds=0.05)
        held.go.set()
        first.result()
    stage.commit(put("r2"))
    assert {"r0", "r1", "r2"} == on_record(stage.backend).keys()


def test_what_another_caller_wants_too_is_not_taken_back(stage: WriterStage) -> None:
    """The same call twice in one write: the caller of the first has gone when it is done."""
    stage.commit(put("r0"))
    held = stage.hold_writes(2)
    with ThreadPoolExecutor(4) as callers:
        first = callers.submit(stage.commit, put("r1"))
        assert held[0].entered.wait(30)
        writer = callers.submit(stage.commit, put("r2"))
        stage.wait_waiting(1)
        gone = callers.submit(stage.commit, put("r3"), seconds=2.0)
        stage.wait_waiting(2)
        other = callers.submit(stage.commit, put("r3"))
        stage.wait_waiting(3)
        held[0].go.set()
        assert held[1].entered.wait(30)
        with pytest.raises(NotReadyError):
            gone.result()
        held[1].go.set()
        for one in (first, writer, other):
            one.result()
    stage.commit(put("r4"))
    assert {"r0", "r1", "r2", "r3", "r4"} == on_record(stage.backend).keys()


def test_what_another_caller_was_told_is_not_taken_back_with_a_commit_that_fails(stage: WriterStage) -> None:
    """Two ask for the same growth on two nodes; the first one cannot write the second node."""
    stage.commit(put("r1"), put("r2", node="n2"))
    grown = put("r1", size=20), put("r2", size=20, node="n2")
    real, is_away = stage.backend.write, threading.Event()
    reached = threading.Event()

    def write(stored: StoredRecord, *more: object) -> StoredRecord:
        if stored.record.node == "n2" and not is_away.is_set():
            reached.set()
            assert is_away.wait(30)
            stage.clock.advance(10.0)
            raise UnavailableError("503")
        return real(stored, *more)  # type: ignore[arg-type]

    stage.backend.write = write  # type: ignore[method-assign,assignment]
    with ThreadPoolExecutor(2) as callers:
        first = callers.submit(stage.writer.commit, grown, stage.clock.now() + 3.0, lowers_nothing)
        assert reached.wait(30)
        stage.writer.commit(grown[:1], stage.clock.now() + 60.0, lowers_nothing)  # is told that it stands on the first
        is_away.set()
        with pytest.raises(NotReadyError):
            first.result(30)
    stage.commit(put("r3"))
    assert on_record(stage.backend)["r1"] == 20
    stage.commit(put("r4"))
    assert not stage.writer._nodes["n1"].counted_on


def test_what_one_wanted_who_left_stays_beside_what_another_was_told(stage: WriterStage) -> None:
    """One wants 30 and leaves; another one wants 20 in the same write, and needs no change beside it."""
    stage.commit(put("r1"))
    (held, late) = stage.hold_writes(2)
    with ThreadPoolExecutor(4) as callers:
        first = callers.submit(stage.commit, put("r0"))
        assert held.entered.wait(30)
        writer = callers.submit(stage.commit, put("r2"), seconds=60.0)
        stage.wait_waiting(1)
        gone = callers.submit(stage.writer.commit, [put("r1", size=30)], stage.clock.now() + 2.0, lowers_nothing)
        stage.wait_waiting(2)
        other = callers.submit(stage.writer.commit, [put("r1", size=20)], stage.clock.now() + 60.0, lowers_nothing)
        stage.wait_waiting(3)
        held.go.set()
        first.result(30)
        assert late.entered.wait(30)
        with pytest.raises(NotReadyError):
            gone.result(30)
        late.go.set()
        writer.result(30)
        other.result(30)
    stage.commit(put("r3"))
    assert on_record(stage.backend)["r1"] == 30


def test_who_shared_a_write_shares_the_next_one_though_one_of_them_comes_later(stage: WriterStage) -> None:
    stage.writer = stage.new_writer(gather_seconds=60.0)
    stage.commit(put("r0"))
    before = stage.writes()
    with ThreadPoolExecutor(3) as callers:
        second = stage.one_who_gathers(callers)
        assert not second.done()
        third = callers.submit(stage.commit, put("r3"), seconds=200.0)
        second.result(30)
        third.result(30)
    assert stage.writes() - before == 2
    assert {"r0", "r1", "r2", "r3"} == on_record(stage.backend).keys()


def test_who_has_little_time_is_not_kept_waiting_for_others(stage: WriterStage) -> None:
    stage.writer = stage.new_writer(gather_seconds=60.0)
    stage.commit(put("r0"))
    with ThreadPoolExecutor(3) as callers:
        second = stage.one_who_gathers(callers)
        stage.writer._nodes["n1"].expected = 9
        third = callers.submit(stage.commit, put("r3"), seconds=90.0)  # 60 and 40 are more
        second.result(30)
        third.result(30)
    assert {"r0", "r1", "r2", "r3"} == on_record(stage.backend).keys()


def test_a_fault_of_one_callers_own_keeps_no_other_waiting(stage: WriterStage) -> None:
    def fails(_change: Put | Drop, _there: Allocation | None) -> bool:
        raise RuntimeError("of this caller")

    stage.commit(put("r0"))
    (held,) = stage.hold_writes(1)
    with ThreadPoolExecutor(3) as callers:
        first = callers.submit(stage.commit, put("r1"), seconds=200.0)
        assert held.entered.wait(30)
        faulty = callers.submit(stage.writer.commit, [put("r2")], stage.clock.now() + 200.0, fails)
        stage.wait_waiting(1)
        other = callers.submit(stage.commit, put("r3"), seconds=200.0)
        stage.wait_waiting(2)
        held.go.set()
        first.result(30)
        with pytest.raises(RuntimeError, match="of this caller"):
            faulty.result(30)
        other.result(30)
    assert {"r0", "r1", "r3"} == on_record(stage.backend).keys()


def test_what_is_taken_back_on_several_nodes_takes_its_caller_no_longer_than_on_one(stage: WriterStage) -> None:
    real = stage.backend.write

    def write(stored: StoredRecord, *more: object) -> StoredRecord:
        if stage.clock.now() - began >= 1.0 or stored.record.node == "n3":
            raise UnavailableError("503")
        return real(stored, *more)  # type: ignore[arg-type]

    began = stage.clock.now()
    stage.backend.write = write  # type: ignore[method-assign,assignment]
    with pytest.raises(NotReadyError):
        stage.commit(put("r1"), put("r2", node="n2"), put("r3", node="n3"), seconds=1.0)
    assert stage.clock.now() - began < 1.0 + 2 * ROLL_BACK_SECONDS
    stage.backend.write = real  # type: ignore[method-assign]
    stage.commit(put("r4"), put("r5", node="n2"))
    assert {"r4"} == on_record(stage.backend).keys()
    assert {"r5"} == on_record(stage.backend, "n2").keys()


def test_who_waits_for_others_to_share_a_write_does_so_for_a_moment(stage: WriterStage) -> None:
    """Nobody else comes."""
    stage.writer = stage.new_writer(gather_seconds=0.01)
    stage.commit(put("r0"))
    (held,) = stage.hold_writes(1)
    with ThreadPoolExecutor(2) as callers:
        first = callers.submit(stage.commit, put("r1"))
        assert held.entered.wait(30)
        second = callers.submit(stage.commit, put("r2"))
        stage.wait_waiting(1)
        stage.clock.advance(1.0)
        held.go.set()
        first.result()
        second.result()
    assert {"r0", "r1", "r2"} == on_record(stage.backend).keys()


def test_what_another_leader_wrote_between_two_terms_is_nobody_elses_doing(stage: WriterStage) -> None:
    stage.commit(put("r1"))
    other, stage.term = stage.new_writer(), 6
    other.commit([put("r2")], stage.clock.now() + 3.0)
    stage.term = 7
    stage.commit(put("r3"))
    assert {"r1", "r2", "r3"} == on_record(stage.backend).keys()


def test_what_was_taken_for_lost_and_is_wanted_once_more_stays(stage: WriterStage) -> None:
    real = stage.backend.write

    def write(*args: object) -> object:
        real(*args)  # type: ignore[arg-type]
        stage.api.fail_with(UnavailableError("503"))
        raise UnavailableError("503")

    stage.backend.write = write  # type: ignore[method-assign,assignment]
    with pytest.raises(NotReadyError):
        stage.commit(put("r1"))
    stage.backend.write = real  # type: ignore[method-assign]
    stage.api.work()
    stage.commit(put("r1"))
    stage.commit(put("r2"))
    assert {"r1": 10, "r2": 10} == on_record(stage.backend)


def test_what_is_not_wanted_any_more_is_left_out(stage: WriterStage) -> None:
    stage.commit(put("r1", 10), put("r2", 10))
    seen = entry("r2", 10)
    stage.commit(put("r2", 20))  # meanwhile
    changes = (drop("r1"), put("r2", 15), put("r3", 5, node="n2"))
    deadline = stage.clock.now() + 3
    stage.writer.commit(changes, deadline, lambda change, there: change.node != "n1" or there in (seen, entry("r1")))
    assert ({"r2": 20}, {"r3": 5}) == (on_record(stage.backend), on_record(stage.backend, "n2"))


def test_what_is_there_already_is_looked_at_before_it_is_said(stage: WriterStage) -> None:
    """Somebody has taken it out since this process wrote it."""
    stage.commit(put("r1"), put("r2"))
    stored = stage.backend.read("n1")
    stage.backend.write(stored, [entry("r2")], 5)
    stage.commit(put("r1"))
    assert {"r1": 10, "r2": 10} == on_record(stage.backend)


@pytest.mark.parametrize("kind", BACKENDS)
def test_the_first_write_of_a_term_begins_with_what_a_watch_shows(
    kind: Callable[[FakeApiServer, str], RecordBackend],
) -> None:
    stage = WriterStage(kind, "up to date")
    stage.commit(put("r1"), put("r2"), put("other", disk="d2"))
    stage.writer, reads = stage.new_writer(), list[str]()
    stage.api.fail = lambda verb, _resource: reads.append(verb)
    stage.commit(drop("r1"), put("r3"), drop("other", disk="d2"))
    assert "get" not in reads
    assert {"r2": 10, "r3": 10} == on_record(stage.backend)


@pytest.mark.parametrize("kind", BACKENDS)
def test_a_watch_that_is_behind_costs_a_read_and_nothing_else(
    kind: Callable[[FakeApiServer, str], RecordBackend],
) -> None:
    stage = WriterStage(kind, "late")
    stage.commit(put("r1"))
    late = stage.new_writer()
    stage.commit(put("r2"))
    late.commit([put("r3")], stage.clock.now() + 3.0)
    assert {"r1": 10, "r2": 10, "r3": 10} == on_record(stage.backend)


def test_nobody_waits_beyond_his_time_for_a_record_that_is_written_anew(stage: WriterStage) -> None:
    stage.commit(put("r0"))
    stage.backend.write(stage.backend.read("n1"), [entry("theirs")], 99)
    (held,) = stage.hold_writes(1)
    with ThreadPoolExecutor(1) as callers:
        anew = callers.submit(stage.writer.rewrite, "n1", [entry("r1")], stage.clock.now() + 30)
        assert held.entered.wait(30)
        with pytest.raises(NotReadyError):
            stage.commit(put("late"), seconds=0.05)
        held.go.set()
        assert anew.result()
    stage.commit(put("r2"))
    assert {"r1", "r2"} == on_record(stage.backend).keys()


@pytest.mark.parametrize(
    ("spec", "goes"),
    [
        ({"term": 5, "diskAllocations": {}}, True),
        ({"term": 5, "diskAllocations": {"d1": {"replicas": {"r1": 1}}}}, False),
        ({"term": 6, "diskAllocations": {}}, False),
        ({"term": "x"}, False),
        (None, False),
    ],
    ids=["empty", "an entry", "a later term", "garbage", "none"],
)
def test_only_an_empty_record_is_forgotten(spec: dict[str, object] | None, goes: bool) -> None:
    stage = WriterStage(NodeDiskAllocationBackend)
    if spec is not None:
        stage.api.put(NODE_DISK_ALLOCATIONS, NAMESPACE, {"metadata": {"name": "n1"}, "spec": spec})
    assert goes is stage.writer.forget("n1", stage.clock.now() + 3)
    assert (spec is not None and not goes) is (stage.backend.read("n1").raw is not None)


@pytest.mark.parametrize("watch", WATCHES)
def test_a_record_that_was_forgotten_is_made_anew(watch: str) -> None:
    stage = WriterStage(NodeDiskAllocationBackend, watch)
    stage.commit(put("r1"))
    stage.commit(Drop(Purpose.REPLICA, "r1", "n1", "n1-d1"))
    stage.writer = stage.new_writer()
    stage.commit(put("r2"), Drop(Purpose.REPLICA, "r2", "n1", "n1-d1"))  # what it knows by now is gone in a moment
    assert stage.writer.forget("n1", stage.clock.now() + 3)
    stage.commit(put("r3"))
    assert {"r3": 10} == on_record(stage.backend)


def test_a_record_is_not_forgotten_while_it_is_written() -> None:
    stage = WriterStage(NodeDiskAllocationBackend)
    stage.commit(put("r1"))
    stage.commit(Drop(Purpose.REPLICA, "r1", "n1", "n1-d1"))
    (held,) = stage.hold_writes(1)
    with ThreadPoolExecutor(1) as callers:
        writing = callers.submit(stage.commit, put("r2"))
        assert held.entered.wait(30)
        with pytest.raises(NotReadyError, match="was not written in time"):
            stage.writer.forget("n1", stage.clock.now())
        held.go.set()
        writing.result(30)
    assert not stage.writer.forget("n1", stage.clock.now() + 3)
    assert {"r2": 10} == on_record(stage.backend)


@pytest.mark.parametrize("kind", BACKENDS)
def test_what_the_record_has_no_place_for_keeps_nothing_else_from_it(kind: Kind) -> None:
    """The API server refuses more, and all that is written with it."""
    stage = WriterStage(kind)
    full = [entry(f"r{number}", 1) for number in range(MAX_ENTRIES - 1)]
    stage.backend.write(stage.backend.read("n1"), full, 4)
    write = stage.backend.write

    def refuse(stored: StoredRecord, allocations: Sequence[Allocation], *rest: Any) -> StoredRecord:
        if sum((one.purpose, one.disk_uuid) == (Purpose.REPLICA, "n1-d1") for one in allocations) > MAX_ENTRIES:
            raise ClusterError("422: must have at most 10000 items")
        return write(stored, allocations, *rest)

    stage.backend.write = refuse  # type: ignore[method-assign, assignment]
    (held,) = stage.hold_writes(1)
    with ThreadPoolExecutor(5) as callers:
        first = callers.submit(stage.commit, put("a", disk="d2"), seconds=30)
        assert held.entered.wait(30)
        waiting = list[Future[None]]()
        for changes in ([put("b", disk="d2")], [put("r1", 2)], [put("c")], [put("d"), put("e", disk="d2")]):
            waiting.append(callers.submit(stage.commit, *changes, seconds=30))
            wait_until(lambda: len(waiting) == len(stage.writer._state_locked("n1").waiting))
        held.go.set()
        for call in (first, *waiting[:3]):
            call.result(30)
        with pytest.raises(
            PreconditionError, match="of n1 has no place for more than 10000 replicas on n1-d1"
        ) as raised:
            waiting[3].result(30)
    assert {"n1"} == raised.value.untouched
    there = on_record(stage.backend)
    assert (MAX_ENTRIES + 2, 2, True) == (len(there), there["r1"], {"a", "b", "c"} < there.keys())
    stage.commit(put("r1", 3), Put(Allocation(Purpose.BACKING_IMAGE, "i", "n1", "n1-d1", 1)))
    stage.commit(Drop(Purpose.REPLICA, "r2", "n1", "n1-d1"))
    stage.commit(put("d"))
