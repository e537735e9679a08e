"""Election on virtual time: at most one gate is open, whatever fails and whoever's clock is off."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from controller.election.elector import LARGEST_TERM, LOOK_SECONDS, Elector, LeaseMove, Timing, View, observe, step
from controller.election.gate import Gate
from controller.errors import NotLeaderError, UnavailableError
from controller.kube.lease import LeaseClient, LeaseRecord
from controller.kube.resources import LEASES, Resource
from controller.model.names import SETTLED_ANNOTATION
from controller.settings import LONGEST_LEASE_SECONDS
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.clock import VirtualClock

NAMESPACE, NAME = "longhorn-system", "lock"


class FaultyLeases(LeaseClient):
    """One process's way to the Lease. `fault`: "" works, "cut" reaches nothing, "lost" writes but loses the answer."""

    fault = ""
    before_write: Callable[[], None] = staticmethod(lambda: None)

    def _reach(self) -> None:
        if self.fault == "cut":
            raise UnavailableError("no connection")

    def read(self, timeout: float) -> LeaseRecord:
        self._reach()
        return super().read(timeout)

    def write(self, *record: Any, **options: Any) -> LeaseRecord:
        happens, self.before_write = self.before_write, lambda: None
        happens()
        self._reach()
        written = super().write(*record, **options)
        if self.fault == "lost":
            raise UnavailableError("the answer was lost")
        return written


class CandidateProcess:
    def __init__(self, name: str, server: FakeApiServer, clock: VirtualClock) -> None:
        self.name, self.clock = name, clock
        self.leases = FaultyLeases(server, NAMESPACE, NAME, clock)
        self.gate = Gate(clock)
        self.terms: list[int] = []
        self.had_predecessor = False
        self.ends = 0
        self.elector = Elector(
            self.leases, self.gate, clock, name, Timing(), on_started=self.started, on_stopped=self.stopped
        )

    def started(self, term: int, had_predecessor: bool) -> None:
        self.terms.append(term)
        self.had_predecessor = had_predecessor
        self.gate.open()

    def stopped(self) -> None:
        self.ends += 1

    def run(self, *, after: float = 0.0, times: int = 1) -> None:
        """So many rounds, so many seconds apart."""
        for _ in range(times):
            self.clock.advance(after)
            self.elector.run_once()


class ThreeCandidates:
    def __init__(self) -> None:
        self.clock, self.server = VirtualClock(), FakeApiServer()
        self.processes = self.a, self.b, self.c = [CandidateProcess(name, self.server, self.clock) for name in "abc"]

    @property
    def record(self) -> LeaseRecord:
        """As the API server keeps it."""
        return LeaseClient(self.server, NAMESPACE, NAME, self.clock).read(1.0)


@pytest.fixture
def scene() -> ThreeCandidates:
    """In which a leads."""
    scene = ThreeCandidates()
    scene.a.run()
    assert scene.a.gate.is_open
    return scene


def test_a_free_lease_is_taken_and_renewed(scene: ThreeCandidates) -> None:
    scene.a.run(after=2, times=30)
    assert scene.a.gate.is_open
    assert [0] == scene.a.terms


def test_a_foreign_lease_is_taken_only_after_it_stood_still_for_its_duration(scene: ThreeCandidates) -> None:
    scene.b.run()
    scene.b.run(after=15)
    assert [] == scene.b.terms
    scene.b.run(after=0.1)
    assert [1] == scene.b.terms
    assert (False, True) == (scene.a.gate.is_open, scene.b.gate.is_open)


def test_the_gate_closes_by_itself_when_the_elector_is_stuck(scene: ThreeCandidates) -> None:
    scene.clock.advance(9.9)
    scene.a.gate.check()
    scene.clock.advance(0.1)
    with pytest.raises(NotLeaderError):
        scene.a.gate.check()


def test_a_renewal_whose_answer_was_lost_does_not_extend_the_term(scene: ThreeCandidates) -> None:
    scene.a.leases.fault = "lost"
    scene.a.run(after=2, times=5)
    assert not scene.a.gate.is_open
    assert 1 == scene.a.ends


def test_a_lease_that_was_lost_and_won_again_begins_a_new_term(scene: ThreeCandidates) -> None:
    scene.a.leases.fault = "cut"
    scene.a.run(after=2, times=6)
    assert not scene.a.gate.is_open
    scene.a.leases.fault = ""
    scene.a.run()
    assert [0, 1] == scene.a.terms
    scene.a.gate.check()


def test_a_lease_that_tells_of_another_term_ends_this_one_whoever_holds_it(scene: ThreeCandidates) -> None:
    scene.server.patch(LEASES, NAMESPACE, NAME, {"spec": {"leaseTransitions": 7}})
    scene.a.run()
    assert ([0, 8], 1) == (scene.a.terms, scene.a.ends)


@pytest.mark.parametrize("transitions", [LARGEST_TERM, LARGEST_TERM + 1, -1])
def test_a_term_without_a_successor_is_followed_by_the_first(
    scene: ThreeCandidates, transitions: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever somebody has written there, and as often as it happens; a process takes no number twice in a row."""
    for _ in range(2):
        scene.server.patch(LEASES, NAMESPACE, NAME, {"spec": {"leaseTransitions": transitions}})
        scene.a.run(times=3)
        scene.a.gate.check()
    assert [0, 1, 2] == scene.a.terms
    assert 2 == sum("leaseTransitions" in record.getMessage() for record in caplog.records)
    scene.a.elector.let_go()
    scene.b.run()
    assert [3] == scene.b.terms


def test_a_lease_that_was_deleted_begins_another_term(scene: ThreeCandidates) -> None:
    scene.server.delete(LEASES, NAMESPACE, NAME)
    scene.a.run()
    assert [0, 1] == scene.a.terms
    assert scene.a.had_predecessor


def test_nobody_holds_a_lease_for_longer_than_the_longest_one_that_may_be_set(scene: ThreeCandidates) -> None:
    spec = {
        "holderIdentity": "x" * 300,
        "leaseDurationSeconds": LARGEST_TERM,
        "renewTime": "2999-01-01T00:00:00.000000Z",
    }
    scene.server.patch(LEASES, NAMESPACE, NAME, {"spec": spec})
    scene.b.run()
    scene.b.run(after=LONGEST_LEASE_SECONDS)
    assert [] == scene.b.terms
    scene.b.run(after=0.1)
    assert [1] == scene.b.terms


def test_a_released_lease_is_taken_at_once(scene: ThreeCandidates) -> None:
    scene.a.elector.let_go()
    assert not scene.a.gate.is_open
    scene.b.run()
    assert scene.b.gate.is_open


def test_who_does_not_lead_looks_often_while_the_api_server_answers(scene: ThreeCandidates) -> None:
    assert Timing().retry_period == scene.a.elector._round()
    assert LOOK_SECONDS == scene.b.elector._round()
    scene.b.leases.fault = "cut"
    assert Timing().retry_period == scene.b.elector._round()


def test_a_process_that_slept_through_a_foreign_term_begins_a_new_one(scene: ThreeCandidates) -> None:
    scene.b.run()
    scene.b.run(after=16)
    scene.b.elector.let_go()
    scene.a.run()  # finds a Lease that nobody holds, and last knew it as its own
    assert [0, 2] == scene.a.terms
    assert 2 == scene.a.gate.opening()


def test_a_process_that_slept_for_longer_than_its_deadline_begins_a_new_term(scene: ThreeCandidates) -> None:
    scene.a.run(after=10)
    assert [0, 1] == scene.a.terms
    scene.a.gate.check()


def test_the_elector_goes_on_after_a_failure_that_nobody_foresaw() -> None:
    server, clock, leads = FakeApiServer(), VirtualClock(), threading.Event()
    failures = [ValueError("no such thing")]

    def fail(_verb: str, _resource: Resource) -> None:
        if failures:
            raise failures.pop()

    server.fail = fail
    leases, timing = LeaseClient(server, NAMESPACE, NAME, clock), Timing(15, 10.0, 0.01)
    elector = Elector(
        leases, Gate(clock), clock, "a", timing, on_started=lambda *_: leads.set(), on_stopped=lambda: None
    )
    elector.start()
    try:
        assert leads.wait(10)
    finally:
        elector.stop()
    assert ("", []) == (leases.read(1.0).holder, failures)


def test_the_step_is_pure_and_judges_by_what_it_saw_change() -> None:
    lease = LeaseRecord("b", 3, 15, "7", renewed_utc="2001-01-01T00:00:00.000000Z")
    view = observe(View(), lease, 100.0)
    assert LeaseMove.WAIT is step(view, lease, "a", 115.0)
    assert LeaseMove.ACQUIRE is step(view, lease, "a", 115.1)
    assert LeaseMove.RENEW is step(view, lease, "b", 100.0)
    assert LeaseMove.ACQUIRE is step(view, replace(lease, holder=""), "a", 100.0)
    assert view == observe(view, lease, 110.0)
    # A Lease without a duration is not taken before ours would be over.
    boundless = replace(lease, duration_seconds=0)
    assert LeaseMove.WAIT is step(view, boundless, "a", 115.0, 15)
    assert LeaseMove.ACQUIRE is step(view, boundless, "a", 115.1, 15)


class Election(ThreeCandidates, RuleBasedStateMachine):
    """Three processes, each with its own rate of running, faults at random."""

    def __init__(self) -> None:
        RuleBasedStateMachine.__init__(self)
        ThreeCandidates.__init__(self)

    @rule(index=st.integers(0, 2))
    def run(self, index: int) -> None:
        self.processes[index].run()

    @rule(index=st.integers(0, 2), other=st.integers(0, 2), seconds=st.floats(0, 20))
    def run_slowly(self, index: int, other: int, seconds: float) -> None:
        """Suspended between its read and its write, while somebody else runs."""

        def meanwhile() -> None:
            self.clock.advance(seconds)
            if other != index:
                self.processes[other].run()

        self.processes[index].leases.before_write = meanwhile
        self.processes[index].run()
        self.processes[index].leases.before_write = lambda: None  # nothing was written

    @rule(index=st.integers(0, 2))
    def stop_cleanly(self, index: int) -> None:
        self.processes[index].elector.let_go()

    @rule(seconds=st.floats(0.1, 8))
    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule(index=st.integers(0, 2), fault=st.sampled_from(["", "", "cut", "lost"]))
    def break_or_mend(self, index: int, fault: str) -> None:
        self.processes[index].leases.fault = fault

    @invariant()
    def at_most_one_gate_is_open(self) -> None:
        assert 1 >= sum(process.gate.is_open for process in self.processes)

    @invariant()
    def an_open_gate_belongs_to_the_term_that_the_lease_tells(self) -> None:
        for process in self.processes:
            if process.gate.is_open:
                held = self.record.holder, self.record.transitions
                assert (process.name, process.terms[-1]) == held

    @invariant()
    def no_term_is_given_twice(self) -> None:
        terms = [term for process in self.processes for term in process.terms]
        assert len(terms) == len(set(terms))


TestElection = Election.TestCase
TestElection.settings = settings(max_examples=100, stateful_step_count=60, deadline=None)


@pytest.mark.parametrize(
    ("annotations", "had_one"),
    [(None, False), ({SETTLED_ANNOTATION: "3"}, False), ({SETTLED_ANNOTATION: "2"}, True), ({}, True)],
)
def test_it_tells_whether_a_predecessor_may_have_left_anything_behind(
    annotations: dict[str, str] | None, had_one: bool
) -> None:
    """None without a Lease, or after one that left nothing behind in the term that it held last."""
    scene = ThreeCandidates()
    if annotations is not None:
        meta = {"name": NAME, "annotations": annotations}
        scene.server.create(LEASES, NAMESPACE, {"metadata": meta, "spec": {"leaseTransitions": 3}})
    scene.a.run()
    assert (True, had_one) == (scene.a.gate.is_open, scene.a.had_predecessor)
