"""Calls of the leader: over real connections, away, slow and changing; and how many wait for one that does not
answer."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from controller.clock import Clock, SystemClock
from controller.errors import TooManyReadsError
from controller.rpc import disk_scheduler_pb2 as pb
from tests.fakes.clock import VirtualClock
from tests.ports import free_port
from tests.unit.rpc.leaders import HOST, NAME, Chain, Leader
from tests.waiting import wait_until
from webhook.leader import (
    PATIENCE_SECONDS,
    BoundedLeader,
    CrowdedError,
    LeaderAwayError,
    LeaderClient,
    LeaderFailedError,
)

REQUEST = pb.HoldExpansionRequest(volume_name="v", size_bytes=1)
PATIENCE = 60  # seconds: on a busy machine an answer takes long


@pytest.fixture(scope="module")
def chain() -> Chain:
    return Chain()


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def client(chain: Chain, port: int) -> Iterator[LeaderClient]:
    made = LeaderClient(f"{HOST}:{port}", NAME, lambda: chain.client, SystemClock())
    yield made
    made.stop()


def test_nobody_there_is_told_in_time(client: LeaderClient) -> None:
    with pytest.raises(LeaderAwayError):
        client.hold_expansion(REQUEST, 0.2)


def test_one_that_does_not_lead_is_told_with_its_own_words(chain: Chain, port: int, client: LeaderClient) -> None:
    with Leader(chain, port) as leader:
        leader.checks.is_leading = False
        with pytest.raises(LeaderAwayError, match="does not lead"):
            client.hold_expansion(REQUEST, 0.6)
        assert len(leader.calls.outcomes) > 1  # it was tried again


def test_a_leader_that_comes_in_time_answers(chain: Chain, port: int, client: LeaderClient) -> None:
    with Leader(chain, port) as leader:
        leader.checks.is_leading = False
        told = threading.Timer(0.3, lambda: setattr(leader.checks, "is_leading", True))
        told.start()
        assert pb.HoldExpansionReply.NOT_CHECKED == client.hold_expansion(REQUEST, PATIENCE).verdict
        told.join()


def test_a_new_leader_behind_the_same_service_is_reached(chain: Chain, port: int, client: LeaderClient) -> None:
    with Leader(chain, port) as first:
        client.hold_expansion(REQUEST, PATIENCE)
        assert ["not-checked"] == first.calls.outcomes
    with Leader(chain, port) as second:
        client.hold_expansion(REQUEST, PATIENCE)
        assert ["not-checked"] == second.calls.outcomes


def test_a_fault_of_the_leader_is_no_absence(chain: Chain, port: int, client: LeaderClient) -> None:
    with Leader(chain, port) as leader:

        def broken(*_: object) -> None:
            raise AssertionError("broken")

        leader.cluster.allocator.expansions.missing = broken  # type: ignore[method-assign,assignment]
        with pytest.raises(LeaderFailedError):
            client.hold_expansion(REQUEST, PATIENCE)
        assert ["internal"] == leader.calls.outcomes


def test_a_leader_that_reads_too_much_is_not_asked_again(chain: Chain, port: int, client: LeaderClient) -> None:
    with Leader(chain, port) as leader:

        def refuse(*_: object) -> bool:
            raise TooManyReadsError("20 reads a second")

        leader.reads.refresh = refuse  # type: ignore[method-assign,assignment]
        with pytest.raises(CrowdedError):
            client.hold_expansion(REQUEST, PATIENCE)
        assert ["too-many-reads"] == leader.calls.outcomes


def test_a_leader_that_hangs_is_left_in_time(chain: Chain, port: int, client: LeaderClient) -> None:
    go_on = threading.Event()
    with Leader(chain, port) as leader:
        leader.checks.check_leading = lambda: bool(go_on.wait(20))  # type: ignore[method-assign,assignment]
        try:
            with pytest.raises(LeaderAwayError, match="in time"):
                client.hold_expansion(REQUEST, 0.3)
        finally:
            go_on.set()


def test_nothing_is_called_without_a_certificate(port: int) -> None:
    client = LeaderClient(f"{HOST}:{port}", NAME, lambda: None, SystemClock())
    with pytest.raises(LeaderAwayError, match="certificate"):
        client.hold_expansion(REQUEST, PATIENCE)


def test_the_process_that_ends_waits_for_nobody(client: LeaderClient) -> None:
    client.stop()
    with pytest.raises(LeaderAwayError):
        client.hold_expansion(REQUEST, 600)


# How many wait


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


def test_waiting_for_a_turn_is_part_of_the_calls_time_and_ends_with_patience(make: Callable[..., Scripted]) -> None:
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
