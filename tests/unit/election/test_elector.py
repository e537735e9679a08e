"""Election on virtual time: at most one gate is open, whatever fails and whoever's clock is off."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from controller.election.elector import LOOK_SECONDS, Elector, LeaseMove, Timing, View, observe, step
from controller.election.gate import Gate
from controller.errors import ConflictError, NotLeaderError, UnavailableError
from controller.kube.lease import ABSENT, LeaseRecord
from tests.fakes.clock import VirtualClock


@dataclass
class SharedLease:
    """The Lease as the API server keeps it."""

    record: LeaseRecord = ABSENT
    version: int = 0

    def store(self, record: LeaseRecord) -> LeaseRecord:
        self.version += 1
        self.record = replace(record, resource_version=str(self.version))
        return self.record


class FakeLeases:
    """One process's way to the Lease. `fault`: "" works, "cut" reaches nothing, "lost" writes but loses the answer."""

    def __init__(self, shared: SharedLease) -> None:
        self.shared = shared
        self.seen = ""
        self.fault = ""
        self.before_write: Callable[[], None] = lambda: None

    def _reach(self) -> None:
        if self.fault == "cut":
            raise UnavailableError("no connection")

    def read(self, timeout: float) -> LeaseRecord:
        self._reach()
        self.seen = self.shared.record.resource_version
        return self.shared.record

    def write(
        self, holder: str, duration_seconds: int, transitions: int, *, is_new_term: bool, timeout: float
    ) -> LeaseRecord:
        happens, self.before_write = self.before_write, lambda: None
        happens()
        self._reach()
        if self.seen != self.shared.record.resource_version:
            raise ConflictError("changed meanwhile")
        written = self.shared.store(LeaseRecord(holder, transitions, duration_seconds, ""))
        if self.fault == "lost":
            raise UnavailableError("the answer was lost")
        self.seen = written.resource_version
        return written

    def release(self, holder: str, timeout: float) -> None:
        self._reach()
        if self.shared.record.holder == holder:
            self.shared.store(replace(self.shared.record, holder=""))


class CandidateProcess:
    def __init__(self, name: str, shared: SharedLease, clock: VirtualClock) -> None:
        self.name, self.clock = name, clock
        self.leases = FakeLeases(shared)
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
    def __init__(self, record: LeaseRecord = ABSENT) -> None:
        self.clock, self.shared = VirtualClock(), SharedLease(record)
        self.processes = self.a, self.b, self.c = [CandidateProcess(name, self.shared, self.clock) for name in "abc"]


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
    shared = SharedLease()

    class Broken(FakeLeases):
        def read(self, timeout: float) -> LeaseRecord:
            if self.seen:
                return super().read(timeout)
            self.seen = "broken once"
            raise ValueError("no such thing")

    clock, leads = VirtualClock(), threading.Event()
    timing = Timing(15, 10.0, 0.01)
    elector = Elector(
        Broken(shared), Gate(clock), clock, "a", timing, on_started=lambda *_: leads.set(), on_stopped=lambda: None
    )
    elector.start()
    try:
        assert leads.wait(10)
    finally:
        elector.stop()
    assert "" == shared.record.holder


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
                held = self.shared.record.holder, self.shared.record.transitions
                assert (process.name, process.terms[-1]) == held

    @invariant()
    def no_term_is_given_twice(self) -> None:
        terms = [term for process in self.processes for term in process.terms]
        assert len(terms) == len(set(terms))


TestElection = Election.TestCase
TestElection.settings = settings(max_examples=100, stateful_step_count=60, deadline=None)


@pytest.mark.parametrize(
    ("record", "had_one"),
    [
        (ABSENT, False),
        (LeaseRecord("", 3, 1, "7", is_settled=True), False),
        (LeaseRecord("", 3, 1, "7"), True),
    ],
)
def test_it_tells_whether_a_predecessor_may_have_left_anything_behind(record: LeaseRecord, had_one: bool) -> None:
    a = ThreeCandidates(record).a
    a.run()
    assert a.gate.is_open
    assert had_one is a.had_predecessor
