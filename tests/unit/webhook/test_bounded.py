"""How many calls wait for a leader that does not answer, and what becomes of those beyond them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from controller.clock import Clock, SystemClock
from controller.rpc import disk_scheduler_pb2 as pb
from tests.fakes.clock import VirtualClock
from tests.waiting import wait_until
from webhook.leader import PATIENCE_SECONDS, BoundedLeader, CrowdedError, LeaderAwayError

MOST = 3
CALL_SECONDS = 3.5


class Scripted:
    """A leader behind its bound, which answers as often as it is told to, or raises; and the calls of threads."""

    def __init__(self, most: int = MOST, clock: Clock | None = None) -> None:
        self.answers = threading.Semaphore(0)
        self.error: Exception | None = None
        self.seconds: list[float] = []  # of each call that got through
        self.ended = 0
        self.most_inside = 0
        self._lock = threading.Lock()
        self.bounded = BoundedLeader(self, most, clock or SystemClock())
        self._pool = ThreadPoolExecutor(40)

    def hold_expansion(self, request: pb.HoldExpansionRequest, seconds: float) -> pb.HoldExpansionReply:
        with self._lock:
            self.seconds.append(seconds)
            self.most_inside = max(self.most_inside, self.inside)
        assert self.answers.acquire(timeout=30)
        with self._lock:
            self.ended += 1
        if self.error is not None:
            raise self.error
        return pb.HoldExpansionReply()

    @property
    def inside(self) -> int:
        return len(self.seconds) - self.ended

    @property
    def waiting(self) -> int:
        return len(vars(self.bounded)["_changed"]._waiters)

    def ask(self) -> str:
        try:
            self.bounded.hold_expansion(pb.HoldExpansionRequest(), CALL_SECONDS)
        except Exception as error:
            return type(error).__name__
        return "answered"

    def call(self, count: int) -> list[Future[str]]:
        return [self._pool.submit(self.ask) for _ in range(count)]

    def end(self) -> None:
        self.answers.release(100)
        self._pool.shutdown()


@pytest.fixture
def make() -> Iterator[Callable[..., Scripted]]:
    made: list[Scripted] = []

    def build(most: int = MOST, clock: Clock | None = None) -> Scripted:
        made.append(Scripted(most, clock))
        return made[-1]

    yield build
    for scripted in made:
        scripted.end()


def outcomes(calls: list[Future[str]]) -> Counter[str]:
    return Counter(call.result(30) for call in calls)


def test_while_the_leader_answers_everybody_gets_a_turn(make: Callable[..., Scripted]) -> None:
    scripted = make()
    scripted.answers.release(40)
    assert {"answered": 40} == outcomes(scripted.call(40))
    assert scripted.most_inside <= MOST


def test_once_it_does_not_those_beyond_the_bound_fail_at_once(make: Callable[..., Scripted]) -> None:
    clock = VirtualClock()
    scripted = make(MOST, clock)
    first = scripted.call(MOST)
    wait_until(lambda: scripted.inside == MOST)
    clock.advance(PATIENCE_SECONDS)
    assert CrowdedError.__name__ == scripted.ask()

    # The first ones give up, others take their places; nobody waits for a turn until somebody is answered.
    scripted.error = LeaderAwayError("away")
    scripted.answers.release(MOST)
    assert {LeaderAwayError.__name__: MOST} == outcomes(first)
    second = scripted.call(MOST)
    wait_until(lambda: scripted.inside == MOST)
    assert CrowdedError.__name__ == scripted.ask()

    scripted.error = None
    scripted.answers.release(MOST)
    assert {"answered": MOST} == outcomes(second)
    assert MOST == scripted.most_inside


def test_what_was_waited_is_taken_off_the_calls_time_and_whoever_waits_gives_up_in_time_though_others_are_answered(
    make: Callable[..., Scripted],
) -> None:
    clock = VirtualClock()
    scripted = make(1, clock)
    calls = scripted.call(5)
    wait_until(lambda: (scripted.inside, scripted.waiting) == (1, 4))
    clock.advance(1.2)
    scripted.answers.release()
    wait_until(lambda: (scripted.ended, scripted.inside) == (1, 1))
    clock.advance(PATIENCE_SECONDS - 1.2)
    wait_until(lambda: sum(call.done() for call in calls) == 4)
    scripted.answers.release()
    assert {"answered": 2, CrowdedError.__name__: 3} == outcomes(calls)
    assert [CALL_SECONDS, CALL_SECONDS - 1.2] == pytest.approx(scripted.seconds)


def test_a_failure_of_another_kind_gives_the_turn_back(make: Callable[..., Scripted]) -> None:
    scripted = make(1)
    scripted.error = ValueError("broken")
    scripted.answers.release(3)
    assert ["ValueError"] * 3 == [scripted.ask() for _ in range(3)]
