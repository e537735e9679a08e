"""Election on virtual time: at most one gate is open, whatever fails and whoever's clock is off."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from controller.election.elector import Decision, Elector, Timing, View, observe, step
from controller.election.gate import Gate
from controller.errors import ConflictError, NotLeaderError, UnavailableError
from controller.kube.lease import ABSENT, LeaseRecord
from tests.fakes.clock import VirtualClock

TIMING = Timing()


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

    def read(self, timeout: float) -> LeaseRecord:
        if self.fault == "cut":
            raise UnavailableError("no connection")
        self.seen = self.shared.record.resource_version
        return self.shared.record

    def write(
        self,
        holder: str,
        duration_seconds: int,
        transitions: int,
        *,
        is_new_term: bool,
        timeout: float,
    ) -> LeaseRecord:
        happens, self.before_write = self.before_write, lambda: None
        happens()
        if self.fault == "cut":
            raise UnavailableError("no connection")
        if self.seen != self.shared.record.resource_version:
            raise ConflictError("changed meanwhile")
        written = self.shared.store(LeaseRecord(holder, transitions, duration_seconds, ""))
        if self.fault == "lost":
            raise UnavailableError("the answer was lost")
        self.seen = written.resource_version
        return written

    def release(self, holder: str, timeout: float) -> None:
        if self.fault == "cut":
            raise UnavailableError("no connection")
        if self.shared.record.holder == holder:
            self.shared.store(replace(self.shared.record, holder=""))


class Process:
    def __init__(self, name: str, shared: SharedLease, clock: VirtualClock) -> None:
        self.name = name
        self.leases = FakeLeases(shared)
        self.gate = Gate(clock)
        self.terms: list[int] = []
        self.elector = Elector(
            self.leases, self.gate, clock, name, TIMING, on_started=self.started, on_stopped=lambda: None
        )

    def started(self, term: int) -> None:
        self.terms.append(term)
        self.gate.open(term)


def test_a_free_lease_is_taken_and_renewed() -> None:
    clock, shared = VirtualClock(), SharedLease()
    a = Process("a", shared, clock)
    a.elector.run_once()
    assert a.gate.is_open

    for _ in range(30):
        clock.advance(2)
        a.elector.run_once()

    assert a.gate.is_open
    assert [0] == a.terms


def test_a_foreign_lease_is_taken_only_after_it_stood_still_for_its_duration() -> None:
    clock, shared = VirtualClock(), SharedLease()
    a, b = Process("a", shared, clock), Process("b", shared, clock)
    a.elector.run_once()
    b.elector.run_once()
    clock.advance(15)
    b.elector.run_once()
    assert [] == b.terms

    clock.advance(0.1)
    b.elector.run_once()

    assert [1] == b.terms
    assert (False, True) == (a.gate.is_open, b.gate.is_open)


def test_the_gate_closes_by_itself_when_the_elector_is_stuck() -> None:
    clock, shared = VirtualClock(), SharedLease()
    a = Process("a", shared, clock)
    a.elector.run_once()
    clock.advance(9.9)
    a.gate.check()

    clock.advance(0.1)

    with pytest.raises(NotLeaderError):
        a.gate.check()


def test_a_renewal_whose_answer_was_lost_does_not_extend_the_term() -> None:
    clock, shared = VirtualClock(), SharedLease()
    a = Process("a", shared, clock)
    a.elector.run_once()
    a.leases.fault = "lost"
    for _ in range(5):
        clock.advance(2)
        a.elector.run_once()

    assert not a.gate.is_open
    assert not a.elector.is_leading


def test_a_lease_that_was_lost_and_won_again_begins_a_new_term() -> None:
    clock, shared = VirtualClock(), SharedLease()
    a = Process("a", shared, clock)
    a.elector.run_once()
    a.leases.fault = "cut"
    for _ in range(6):
        clock.advance(2)
        a.elector.run_once()
    assert not a.gate.is_open
    a.leases.fault = ""

    a.elector.run_once()

    assert [0, 1] == a.terms
    a.gate.check()


def test_a_released_lease_is_taken_at_once() -> None:
    clock, shared = VirtualClock(), SharedLease()
    a, b = Process("a", shared, clock), Process("b", shared, clock)
    a.elector.run_once()
    a.elector.let_go()
    assert not a.gate.is_open

    b.elector.run_once()

    assert b.gate.is_open


def test_a_process_that_slept_through_a_foreign_term_begins_a_new_one() -> None:
    clock, shared = VirtualClock(), SharedLease()
    a, b = Process("a", shared, clock), Process("b", shared, clock)
    a.elector.run_once()
    b.elector.run_once()
    clock.advance(16)
    b.elector.run_once()
    b.elector.let_go()

    a.elector.run_once()  # finds a Lease that nobody holds, and last knew it as its own

    assert [0, 2] == a.terms
    assert 2 == a.gate.term


def test_a_process_that_slept_for_longer_than_its_deadline_begins_a_new_term() -> None:
    clock, shared = VirtualClock(), SharedLease()
    a = Process("a", shared, clock)
    a.elector.run_once()
    clock.advance(10)

    a.elector.run_once()

    assert [0, 1] == a.terms
    a.gate.check()


def test_a_lease_without_a_duration_is_not_taken_before_ours_is_over() -> None:
    lease = LeaseRecord("b", 3, 0, "7")
    view = observe(View(), lease, 100.0)

    assert Decision.WAIT is step(view, lease, "a", 115.0, 15)
    assert Decision.ACQUIRE is step(view, lease, "a", 115.1, 15)


def test_the_elector_goes_on_after_a_failure_that_nobody_foresaw() -> None:
    shared, tries = SharedLease(), threading.Semaphore(0)

    class Broken(FakeLeases):
        def read(self, timeout: float) -> LeaseRecord:
            tries.release()
            if self.seen:
                return super().read(timeout)
            self.seen = "broken once"
            raise ValueError("no such thing")

    clock = VirtualClock()
    gate = Gate(clock)
    leads = threading.Event()
    timing = Timing(15, 10.0, 0.01)
    elector = Elector(
        Broken(shared), gate, clock, "a", timing, on_started=lambda _: leads.set(), on_stopped=lambda: None
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

    assert Decision.WAIT is step(view, lease, "a", 115.0)
    assert Decision.ACQUIRE is step(view, lease, "a", 115.1)
    assert Decision.RENEW is step(view, lease, "b", 100.0)
    assert Decision.ACQUIRE is step(view, replace(lease, holder=""), "a", 100.0)
    assert view == observe(view, lease, 110.0)


class Election(RuleBasedStateMachine):
    """Three processes, each with its own rate of running, faults at random."""

    def __init__(self) -> None:
        super().__init__()
        self.clock, self.shared = VirtualClock(), SharedLease()
        self.processes = [Process(name, self.shared, self.clock) for name in "abc"]

    @rule(index=st.integers(0, 2))
    def run(self, index: int) -> None:
        self.processes[index].elector.run_once()

    @rule(index=st.integers(0, 2), other=st.integers(0, 2), seconds=st.floats(0, 20))
    def run_slowly(self, index: int, other: int, seconds: float) -> None:
        """Suspended between its read and its write, while somebody else runs."""

        def meanwhile() -> None:
            self.clock.advance(seconds)
            if other != index:
                self.processes[other].elector.run_once()

        self.processes[index].leases.before_write = meanwhile
        self.processes[index].elector.run_once()
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
                assert (process.name, process.gate.term) == (self.shared.record.holder, self.shared.record.transitions)

    @invariant()
    def no_term_is_given_twice(self) -> None:
        terms = [term for process in self.processes for term in process.terms]
        assert len(terms) == len(set(terms))


TestElection = Election.TestCase
TestElection.settings = settings(max_examples=200, stateful_step_count=60, deadline=None)


@pytest.mark.parametrize(
    ("record", "had_one"),
    [
        (ABSENT, False),
        (LeaseRecord("", 3, 1, "7", is_settled=True), False),
        (LeaseRecord("", 3, 1, "7"), True),
    ],
)
def test_it_tells_whether_a_predecessor_may_have_left_anything_behind(record: LeaseRecord, had_one: bool) -> None:
    a = Process("a", SharedLease(record), VirtualClock())
    a.elector.run_once()

    assert a.elector.is_leading
    assert had_one is a.elector.had_predecessor
