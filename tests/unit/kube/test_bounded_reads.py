"""Reads for reviews: so many a second, so many threads, and one for all who ask the same."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from controller.clock import Clock, SystemClock
from controller.errors import NotFoundError, TooManyReadsError, UnavailableError
from controller.kube.bounded_reads import BURST_SECONDS, BoundedReads, ReadLimits
from tests.fakes.clock import VirtualClock
from tests.waiting import wait_until

A_SECOND = 10
LIMITS = ReadLimits(a_second=A_SECOND, at_once=8, shared_seconds=1.0)
WAIT_SECONDS = 30.0


class Reads:
    """Reads whose time the test moves; each finds what it is asked about, unless that is gone."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.bounded: BoundedReads[str] = BoundedReads(self.clock, LIMITS)
        self.made: list[str] = []
        self.gone: set[str] = set()

    def ask(self, name: str) -> str:
        return self.bounded.get(name, lambda: self._read(name), WAIT_SECONDS)[0]

    def _read(self, name: str) -> str:
        self.made.append(name)
        if name in self.gone:
            raise NotFoundError(name)
        return f"object {name}"

    def ask_until_refused(self, prefix: str) -> int:
        """How many different ones are read before one is not."""
        for number in range(1_000):
            try:
                self.ask(f"{prefix}-{number}")
            except TooManyReadsError:
                return number
        raise AssertionError("none was refused")


@pytest.fixture
def reads() -> Reads:
    return Reads()


def test_so_many_are_read_a_second_and_after_a_pause_twice_as_many(reads: Reads) -> None:
    burst = int(BURST_SECONDS * A_SECOND)
    assert burst == reads.ask_until_refused("a")
    reads.clock.advance(0.35)
    assert 3 == reads.ask_until_refused("b")
    reads.clock.advance(3_600)
    assert burst == reads.ask_until_refused("c")


def test_what_was_found_is_told_to_others_for_a_moment(reads: Reads) -> None:
    for _ in range(50):
        assert "object a" == reads.ask("a")
    reads.clock.advance(0.9)
    reads.ask("a")
    assert ["a"] == reads.made
    reads.clock.advance(0.1)
    reads.ask("a")
    assert ["a", "a"] == reads.made


def test_that_something_is_not_there_is_not_kept(reads: Reads) -> None:
    reads.gone.add("a")
    with pytest.raises(NotFoundError):
        reads.ask("a")
    reads.gone.clear()
    assert "object a" == reads.ask("a")


def test_what_was_found_is_not_kept_for_ever(reads: Reads) -> None:
    for _ in range(20):
        reads.clock.advance(10)
        reads.ask_until_refused(f"at {reads.clock.now()}")
    assert len(vars(reads.bounded)["_reads"]) <= BURST_SECONDS * A_SECOND


class HeldReads:
    """Reads that go on until the test lets them, and threads that ask."""

    def __init__(self, limits: ReadLimits = LIMITS, clock: Clock | None = None) -> None:
        self.bounded: BoundedReads[str] = BoundedReads(clock or SystemClock(), limits)
        self.go_on = threading.Event()
        self.made: list[str] = []
        self.error: BaseException | None = None
        self._pool = ThreadPoolExecutor(32)

    def _read(self, name: str) -> str:
        self.made.append(name)
        assert self.go_on.wait(WAIT_SECONDS)
        if self.error is not None:
            raise self.error
        return f"object {name}"

    def ask(self, name: str, seconds: float = WAIT_SECONDS, patience_seconds: float = 0.0) -> str:
        try:
            found, is_shared = self.bounded.get(
                name, lambda: self._read(name), seconds, patience_seconds=patience_seconds
            )
        except Exception as error:
            return type(error).__name__
        return f"{found}{', shared' if is_shared else ''}"

    def wait_for_turns(self, *names: str, seconds: float = WAIT_SECONDS) -> list[Future[str]]:
        """Have threads ask that are ready to wait for a turn for so long."""
        return [self._pool.submit(self.ask, name, patience_seconds=seconds) for name in names]

    def begin(self, name: str, count: int) -> list[Future[str]]:
        """Have that many threads ask, and wait until all of them have begun."""
        busy = self._busy() + count
        asked = [self._pool.submit(self.ask, name) for _ in range(count)]
        wait_until(lambda: self._busy() == busy)
        return asked

    def _busy(self) -> int:
        return len(vars(self.bounded)["_begun"])

    def end(self) -> None:
        self.go_on.set()
        self._pool.shutdown()
        assert 0 == self._busy()


@pytest.fixture
def make() -> Iterator[Callable[..., HeldReads]]:
    made: list[HeldReads] = []

    def build(limits: ReadLimits = LIMITS, clock: Clock | None = None) -> HeldReads:
        made.append(HeldReads(limits, clock))
        return made[-1]

    yield build
    for held in made:
        held.end()


def test_who_asks_the_same_at_the_same_time_shares_one_read(make: Callable[..., HeldReads]) -> None:
    held = make()
    asked = held.begin("a", 5)
    held.go_on.set()
    assert ["object a", *["object a, shared"] * 4] == sorted(one.result(WAIT_SECONDS) for one in asked)
    assert ["a"] == held.made


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (NotFoundError("gone"), ["NotFoundError"] * 3),
        (UnavailableError("away"), ["UnavailableError"] * 3),
        (ValueError("a fault"), ["UnavailableError"] * 2 + ["ValueError"]),
    ],
)
def test_what_fails_fails_for_all_who_wait(
    make: Callable[..., HeldReads], error: BaseException, told: list[str]
) -> None:
    held = make()
    held.error = error
    asked = held.begin("a", 3)
    held.go_on.set()
    assert told == sorted(one.result(WAIT_SECONDS) for one in asked)
    held.error = None
    assert "object a" == held.ask("a")


def test_threads_that_read_or_wait_are_few_and_nobody_waits_for_a_turn(make: Callable[..., HeldReads]) -> None:
    held = make(ReadLimits(a_second=1_000, at_once=4))
    asked = held.begin("a", 3) + held.begin("b", 1)
    assert ["TooManyReadsError", "TooManyReadsError"] == [held.ask("a"), held.ask("c")]
    held.go_on.set()
    assert 4 == len([one.result(WAIT_SECONDS) for one in asked])
    assert "object c" == held.ask("c")


def test_who_has_patience_gets_a_turn_once_others_have_read(make: Callable[..., HeldReads]) -> None:
    held = make(ReadLimits(a_second=1_000, at_once=2, shared_seconds=WAIT_SECONDS), VirtualClock())
    held.begin("a", 1)
    held.begin("b", 1)
    asked = held.wait_for_turns("c", "d", "a", "e")
    held.go_on.set()
    told = ["object a, shared", "object c", "object d", "object e"]
    assert told == sorted(one.result(WAIT_SECONDS) for one in asked)


def test_nobody_waits_behind_a_read_that_is_slow(make: Callable[..., HeldReads]) -> None:
    held = make(ReadLimits(a_second=1_000, at_once=1))
    held.begin("a", 1)
    (refused,) = held.wait_for_turns("b")
    assert "TooManyReadsError" == refused.result(WAIT_SECONDS)  # long before its patience is over
    assert ["a"] == held.made


def test_patience_ends(make: Callable[..., HeldReads]) -> None:
    held = make(ReadLimits(a_second=1_000, at_once=1))
    held.begin("a", 1)
    (refused,) = held.wait_for_turns("b", seconds=0.01)
    assert "TooManyReadsError" == refused.result(WAIT_SECONDS)


def test_who_waits_for_another_ones_read_gives_up_in_time(make: Callable[..., HeldReads]) -> None:
    held = make()
    held.begin("a", 1)
    assert "UnavailableError" == held.ask("a", 0.01)
