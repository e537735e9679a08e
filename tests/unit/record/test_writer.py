"""Changes become durable together, share writes, and a crash leaves too much on record, never too little."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count, product

import pytest

from controller.errors import (
    ClusterError,
    ConflictError,
    ForbiddenError,
    NotLeaderError,
    NotReadyError,
    RefusedWriteError,
    SchedulerError,
    UnavailableError,
)
from controller.kube.resources import LONGHORN_NODES, NODE_DISK_ALLOCATIONS, Resource
from controller.model.allocations import Allocation
from controller.record.backends import LonghornNodeBackend, NodeDiskAllocationBackend, RecordBackend
from tests.fakes.apiserver import FakeApiServer, Key
from tests.unit.record.stage import (
    BACKENDS,
    NAMESPACE,
    NODES,
    WATCHES,
    WRITES,
    Crash,
    WriterStage,
    check_enough,
    entry,
    longhorn_node,
    on_record,
    set_field,
    touch_node,
    write,
)

Kind = Callable[[FakeApiServer, str], RecordBackend]
EVERY_WATCH = pytest.mark.parametrize(
    "stage", list(product(BACKENDS, WATCHES)), ids=lambda each: f"{each[0].name}-{each[1]}", indirect=True
)


@pytest.fixture(params=zip(BACKENDS, ("late", "up to date"), strict=True), ids=lambda each: each[0].name)
def stage(request: pytest.FixtureRequest) -> WriterStage:
    return WriterStage(*request.param)


@pytest.fixture(params=BACKENDS, ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> Kind:
    found: Kind = request.param
    return found


def after_writes(allowed: int, error: BaseException) -> Callable[[str, Resource], None]:
    """After so many requests that write, the next one fails."""
    left = allowed

    def fail(verb: str, _resource: Resource) -> None:
        nonlocal left
        left -= verb in WRITES
        if left < 0 and verb in WRITES:
            left = 10**9
            raise error

    return fail


def test_what_is_committed_is_there_for_the_next_leader(stage: WriterStage) -> None:
    stage.commit(entry("r1"), entry("r2", 20), entry("r3", node="n2"))
    stage.wanted.set("n1", entry("r2", 30))
    stage.commit(nodes=["n1"])
    assert ({"r2": 30}, {"r3": 10}) == (on_record(stage.backend), on_record(stage.backend, "n2"))


@EVERY_WATCH
def test_a_node_is_read_at_its_first_write_alone_and_nothing_is_written_for_what_is_there(stage: WriterStage) -> None:
    verbs = list[str]()
    stage.api.fail = lambda verb, _resource: verbs.append(verb)
    for number in range(3):
        stage.commit(entry(f"r{number}"))
    assert 1 == verbs.count("get")
    before = stage.api.writes()
    for _ in range(2):
        stage.commit(nodes=["n1", "n2", "n3"])
    assert before == stage.api.writes()


@pytest.mark.parametrize("is_new", [False, True], ids=["leads again", "after a restart"])
def test_the_first_write_of_a_term_is_done_even_where_nothing_differs(stage: WriterStage, is_new: bool) -> None:
    """What a former leader has sent, and still arrives, is a conflict then."""
    stage.commit(entry("r1"))
    late = stage.backend.read("n1")
    if is_new:
        stage.writer = stage.new_writer()
    else:
        stage.writer.begin_term()
    stage.commit(nodes=NODES)
    with pytest.raises(ConflictError):
        stage.backend.write(late, [entry("r3")])
    assert [entry("r1")] == stage.all()


def test_it_is_told_what_stands_on_record_before_its_caller_is(stage: WriterStage) -> None:
    stage.commit(entry("mover"), entry("r", node="n2"))
    del stage.wanted.told[:]
    stage.want_only(entry("mover", node="n2"))
    stage.commit(nodes=["n1", "n2"])
    here, there, other = entry("mover"), entry("mover", node="n2"), entry("r", node="n2")
    assert [("n1", [here]), ("n2", [there, other]), ("n1", []), ("n2", [there])] == stage.wanted.told


# Who shares a write


def test_those_who_wait_share_the_next_write(stage: WriterStage) -> None:
    before = stage.api.writes()
    with stage.behind_a_write(entry("r0")) as follow:
        for number in range(1, 21):
            follow(stage.commit, entry(f"r{number}"), seconds=30.0)
        assert before == stage.api.writes()
    assert (before + 2, 21) == (stage.api.writes(), len(on_record(stage.backend)))
    assert len(stage.wanted.asked) < 10  # nobody works out once more what was written for him


def test_who_waits_for_others_to_share_his_write_does_so_for_a_moment(kind: Kind) -> None:
    """Two have wanted the last one, and nobody else comes."""
    stage = WriterStage(kind)
    stage.api.stored = lambda _verb, _key: stage.clock.advance(1.0)
    with stage.behind_a_write(entry("r1")) as follow:
        follow(stage.commit, entry("r2"), seconds=30.0)
    stage.commit(entry("r3"), seconds=30.0)
    assert {"r1": 10, "r2": 10, "r3": 10} == on_record(stage.backend)


@pytest.mark.parametrize("seed", range(10))
def test_whatever_many_callers_want_is_there_when_they_are_told(kind: Kind, seed: int) -> None:
    stage, order = WriterStage(kind, "up to date"), random.Random(seed)
    nodes = [order.sample(NODES, order.randint(1, 3)) for _ in range(12)]
    start, missing = threading.Barrier(len(nodes)), list[Allocation]()

    def call(number: int) -> None:
        start.wait(30)
        for step in (1, 2):
            mine = [entry(f"r{number}", 10 * step, node) for node in nodes[number]]
            stage.commit(*mine, seconds=30.0)
            missing.extend(one for one in mine if one not in stage.backend.read(one.node).record.allocations)

    with ThreadPoolExecutor(len(nodes)) as callers:
        list(callers.map(call, range(len(nodes))))
    assert [] == missing
    wanted = {node: {f"r{number}": 20 for number, mine in enumerate(nodes) if node in mine} for node in NODES}
    assert wanted == {node: on_record(stage.backend, node) for node in NODES}
    assert stage.writer.writes == stage.api.writes() - len(NODES)


def test_a_write_that_only_adds_serves_nobody_who_waits_for_something_to_go(kind: Kind) -> None:
    stage = WriterStage(kind)
    stage.commit(entry("goes"))
    with stage.behind_a_write(entry("comes")) as follow:
        stage.wanted.set("n1", entry("comes"), entry("more"))
        for grows in (True, False):
            follow(stage.writer.write, "n1", 1030.0, grows=grows, looks_at_clock=1)
    assert {"comes": 10, "more": 10} == on_record(stage.backend)


def test_nobody_waits_beyond_his_time_for_another_ones_write(stage: WriterStage) -> None:
    with stage.behind_a_write(entry("r1")), pytest.raises(NotReadyError, match="was not written in time"):
        stage.commit(entry("late"), seconds=0.0)
    stage.commit(nodes=["n1"])
    assert {"r1": 10, "late": 10} == on_record(stage.backend)


# Crashes, and writes on several nodes


@EVERY_WATCH
@pytest.mark.parametrize("lands", [False, True], ids=["not sent", "no answer"])
def test_a_crash_never_leaves_too_little(stage: WriterStage, lands: bool) -> None:
    """At each call: a replica moves from n1 to n2, another one from n3 to n1, one goes, and one grows everywhere."""
    kind, watch = type(stage.backend), stage.watch
    before = [*(entry("r", 10, node) for node in NODES), entry("mover"), entry("back", node="n3"), entry("goes")]
    after = [*(entry("r", 20, node) for node in NODES), entry("mover", node="n2"), entry("back")]
    for call in count():
        stage = WriterStage(kind, watch)
        stage.commit(*before)
        stage.want_only(*after)
        with stage.api.crash_at(call, lands=lands), contextlib.suppress(Crash):
            stage.commit(nodes=NODES)
            break
        check_enough(stage.all(), before, after)
        stage.writer = stage.new_writer()
        stage.commit(nodes=NODES)
        assert set(after) == set(stage.all())
    assert 5 <= call  # three that add, two that free


@pytest.mark.parametrize("allowed", range(5))
def test_what_is_refused_on_one_node_takes_nothing_off_another(stage: WriterStage, allowed: int) -> None:
    stage.commit(*(entry("r", 10, node) for node in NODES), entry("mover"), entry("goes", node="n3"))
    stage.want_only(*(entry("r", 20, node) for node in NODES), entry("mover", node="n2"))
    stage.api.fail = after_writes(allowed, ClusterError("422: no"))
    with pytest.raises(RefusedWriteError, match="cannot be written: 422: no") as raised:
        stage.commit(nodes=NODES)
    assert (*NODES, "n1", "n3")[allowed] == raised.value.node
    found = [on_record(stage.backend, node) for node in NODES]
    assert (allowed < 4, True) == ("mover" in found[0], "goes" in found[2])
    assert [20 if place < allowed else 10 for place in range(3)] == [one["r"] for one in found]


# Answers that are lost, and others who write


@EVERY_WATCH
def test_a_write_whose_answer_is_lost_is_neither_lost_nor_done_twice(stage: WriterStage) -> None:
    stage.commit(entry("r1"))
    before, lost = stage.api.writes(), [UnavailableError("the connection broke")]

    def lose(_verb: str, _key: Key) -> None:
        if lost:
            raise lost.pop()

    stage.api.stored = lose
    stage.commit(entry("r2"))
    assert (before + 1, {"r1": 10, "r2": 10}) == (stage.api.writes(), on_record(stage.backend))


@pytest.mark.parametrize("lands", [False, True], ids=["not sent", "no answer"])
def test_a_write_that_was_told_as_failed_is_written_over(stage: WriterStage, lands: bool) -> None:
    """And where it arrives late, it is a conflict."""
    stage.commit(entry("r1"))
    late = stage.backend.read("n1")

    def lose(_verb: str, _key: Key) -> None:
        stage.clock.advance(5.0)
        raise UnavailableError("503")

    setattr(stage.api, "stored" if lands else "sent", lose)
    with pytest.raises(NotReadyError):
        stage.commit(entry("r1", 50), entry("r2"))
    stage.api.sent = stage.api.stored = lambda _verb, _key: None
    assert ({"r1": 50, "r2": 10} if lands else {"r1": 10}) == on_record(stage.backend)
    stage.wanted.set("n1", entry("r1"))  # as it was before
    stage.commit(nodes=["n1"])
    with pytest.raises(ConflictError):
        stage.backend.write(late, [entry("r3")])
    assert {"r1": 10} == on_record(stage.backend)


def test_longhorns_own_writes_are_no_conflict() -> None:
    stage, is_ours = WriterStage(LonghornNodeBackend), threading.Event()

    def touch(verb: str, _resource: Resource) -> None:
        if verb == "patch" and not is_ours.is_set():
            is_ours.set()
            touch_node(stage.api, "n1")

    for number in range(5):
        is_ours.clear()
        stage.api.fail = touch  # right before the write arrives
        stage.commit(entry(f"r{number}"))
        touch_node(stage.api, "n1")
    assert 5 == len(on_record(stage.backend))


def test_from_the_second_conflict_on_it_pauses_and_gives_up_at_the_deadline(kind: Kind) -> None:
    stage, tries = WriterStage(kind), list[str]()

    def fail(verb: str, _resource: Resource) -> None:
        if verb in WRITES:
            tries.append(verb)
            raise ConflictError("409") if len(tries) < 100 else ClusterError("it spins")

    stage.api.fail = fail
    with pytest.raises(NotReadyError, match="was not written in time"):
        stage.commit(entry("r1"), seconds=1.0)
    assert len(tries) < 25
    stage.api.fail_with(ConflictError("409"), *WRITES, times=1)
    before = stage.clock.now()
    stage.commit(nodes=["n1"])
    assert before == stage.clock.now()


def test_what_a_watch_shows_from_before_does_not_pass_for_what_stands_there(kind: Kind) -> None:
    stage = WriterStage(kind, "late")
    stage.commit(entry("r1"))
    stage.writer = stage.new_writer()
    stage.want_only()
    stage.commit(nodes=["n1"])
    stage.commit(entry("r1"))
    assert {"r1": 10} == on_record(stage.backend)


@EVERY_WATCH
def test_what_somebody_else_did_to_it_is_overwritten(stage: WriterStage) -> None:
    stage.commit(entry("r1"), entry("r1", node="n2"))
    write(stage.backend, entry("theirs", 99), entry("r1", 1))
    if isinstance(stage.backend, NodeDiskAllocationBackend):
        stage.api.delete(NODE_DISK_ALLOCATIONS, NAMESPACE, "n2")
    else:
        stage.api.put(LONGHORN_NODES, NAMESPACE, longhorn_node("n2"))
    stage.commit(entry("r2"), entry("r2", node="n2"))
    for node in ("n1", "n2"):
        assert {"r1": 10, "r2": 10} == on_record(stage.backend, node)


def test_what_the_watch_shows_as_gone_is_looked_at_where_that_is_asked_for() -> None:
    stage = WriterStage(NodeDiskAllocationBackend, "up to date")
    stage.commit(entry("r1"))
    stage.api.delete(NODE_DISK_ALLOCATIONS, NAMESPACE, "n1")
    stage.writer.write("n1", stage.clock.now() + 3, looks=True)
    assert {"r1": 10} == on_record(stage.backend)


@EVERY_WATCH
def test_a_damaged_record_is_written_anew_and_what_is_sound_stays_while_it_only_grows(stage: WriterStage) -> None:
    stage.commit(entry("r1"))
    set_field(stage.api, stage.backend, "n1", {"n1-d1": {"replicas": {"r2": 5}}, "n1-d2": "garbage"})
    stage.writer = stage.new_writer()
    stage.writer.write("n1", stage.clock.now() + 3, grows=True)
    assert {"r1": 10, "r2": 5} == on_record(stage.backend)
    stage.commit(nodes=["n1"])
    assert {"r1": 10} == on_record(stage.backend)


# What keeps a write from being done


def test_an_api_server_that_is_away_is_asked_until_the_deadline(stage: WriterStage) -> None:
    stage.api.fail_with(UnavailableError("503"), times=10)
    stage.commit(entry("r1"))
    stage.api.fail_with(UnavailableError("503"))
    started = stage.clock.now()
    with pytest.raises(NotReadyError, match="was not written in time") as raised:
        stage.commit(entry("r2"), seconds=2)
    assert not isinstance(raised.value, RefusedWriteError)
    assert 2 <= stage.clock.now() - started < 2.2
    stage.api.work()
    stage.commit(nodes=["n1"])
    assert {"r1": 10, "r2": 10} == on_record(stage.backend)


@pytest.mark.parametrize("error", [ForbiddenError("403: no right"), ClusterError("422: too many")], ids=str)
def test_a_refused_write_names_its_node_and_is_done_once_accepted(stage: WriterStage, error: SchedulerError) -> None:
    stage.api.fail_with(error, *WRITES)
    with pytest.raises(RefusedWriteError, match=str(error)) as raised:
        stage.commit(entry("r1", node="n2"))
    assert "n2" == raised.value.node
    stage.api.work()
    stage.commit(nodes=["n2"])
    assert {"r1": 10} == on_record(stage.backend, "n2")


def test_a_write_that_is_pruned_is_a_refused_one() -> None:
    stage = WriterStage(LonghornNodeBackend)
    stage.api.prunes = True
    for _ in range(2):
        with pytest.raises(RefusedWriteError, match="did not keep the record of n1"):
            stage.commit(entry("r1"))
    assert [] == stage.wanted.told
    stage.api.prunes = False
    stage.commit(nodes=["n1"])
    assert {"r1": 10} == on_record(stage.backend)


def test_a_longhorn_node_that_is_gone_takes_nothing_and_has_nothing_any_more() -> None:
    stage = WriterStage(LonghornNodeBackend)
    stage.commit(entry("goes"))
    stage.api.delete(LONGHORN_NODES, NAMESPACE, "n1")
    stage.wanted.set("n1")
    stage.commit(nodes=["n1"])
    assert ("n1", []) == stage.wanted.told[-1]
    with pytest.raises(RefusedWriteError, match="the record of n1 cannot be written: 404"):
        stage.commit(entry("r1"))
    assert ("n1", []) == stage.wanted.told[-1]


def test_a_process_that_does_not_lead_any_more_writes_nothing_and_is_asked_before_each_try(stage: WriterStage) -> None:
    stage.commit(entry("r1"))
    for moment in range(3):
        stage.checks_left = moment
        stage.writer = stage.new_writer()
        before = stage.api.writes()
        with pytest.raises(NotLeaderError):
            stage.commit(*(entry(f"m{moment}", node=node) for node in NODES))
        assert before + moment == stage.api.writes()
    stage.api.fail_with(UnavailableError("503"), *WRITES, times=1)
    stage.checks_left, before = 1, stage.api.writes()
    with pytest.raises(NotLeaderError):
        stage.commit(entry("r2"))
    assert before == stage.api.writes()
