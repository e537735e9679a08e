"""How many calls wait for a leader that does not answer, and what becomes of those beyond them."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from controller.clock import SystemClock
from controller.rpc import disk_scheduler_pb2 as pb
from tests.fakes.clock import VirtualClock
from tests.fakes.waiting import wait_until
from webhook.bounded import PATIENCE_SECONDS, BoundedLeader, CrowdedError
from webhook.leader import LeaderAwayError

MOST = 3


class Scripted:
    """A leader that answers when it is told to, or says that it is away."""

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.is_away = False
        self.seconds: list[float] = []
        self.lock = threading.Lock()
        self.inside = self.most_inside = 0

    def hold_expansion(self, request: pb.HoldExpansionRequest, seconds: float) -> pb.HoldExpansionReply:
        with self.lock:
            self.inside += 1
            self.most_inside = max(self.inside, self.most_inside)
            self.seconds.append(seconds)
        self.answers.wait(30)
        with self.lock:
            self.inside -= 1
        if self.is_away:
            raise LeaderAwayError("away")
        return pb.HoldExpansionReply()


class Callers:
    """Threads that call, and what became of their calls."""

    def __init__(self, leader: BoundedLeader) -> None:
        self._leader = leader
        self.outcomes: list[str] = []
        self.threads: list[threading.Thread] = []

    def call(self, count: int) -> None:
        for _ in range(count):
            thread = threading.Thread(target=self._call, daemon=True)
            thread.start()
            self.threads.append(thread)

    def _call(self) -> None:
        try:
            self._leader.hold_expansion(pb.HoldExpansionRequest(), 3.5)
        except LeaderAwayError as error:
            self.outcomes.append(str(error))
        else:
            self.outcomes.append("answered")


@pytest.fixture
def scripted() -> Iterator[Scripted]:
    made = Scripted()
    yield made
    made.answers.set()


def test_while_the_leader_answers_everybody_gets_a_turn(scripted: Scripted) -> None:
    callers = Callers(BoundedLeader(scripted, MOST, SystemClock()))
    scripted.answers.set()
    callers.call(40)
    wait_until(lambda: len(callers.outcomes) == 40)
    assert {"answered"} == set(callers.outcomes)
    assert scripted.most_inside <= MOST


def test_once_it_does_not_those_beyond_the_bound_fail_at_once(scripted: Scripted) -> None:
    clock = VirtualClock()
    bounded = BoundedLeader(scripted, MOST, clock)
    callers = Callers(bounded)
    callers.call(MOST)
    wait_until(lambda: scripted.inside == MOST)
    clock.advance(PATIENCE_SECONDS)
    with pytest.raises(CrowdedError):
        bounded.hold_expansion(pb.HoldExpansionRequest(), 3.5)

    # The first ones give up, others take their places; nobody waits for a turn until somebody is answered.
    scripted.is_away = True
    scripted.answers.set()
    wait_until(lambda: callers.outcomes == ["away"] * MOST)
    scripted.answers.clear()
    callers.call(MOST)
    wait_until(lambda: scripted.inside == MOST)
    with pytest.raises(CrowdedError):
        bounded.hold_expansion(pb.HoldExpansionRequest(), 3.5)

    scripted.is_away = False
    scripted.answers.set()
    wait_until(lambda: callers.outcomes[MOST:] == ["answered"] * MOST)
    assert MOST == scripted.most_inside


def test_what_was_waited_is_taken_off_the_calls_time(scripted: Scripted) -> None:
    clock = VirtualClock()
    bounded = BoundedLeader(scripted, 1, clock)
    callers = Callers(bounded)
    callers.call(1)
    wait_until(lambda: scripted.inside == 1)
    callers.call(1)
    wait_until(lambda: bool(vars(bounded)["_changed"]._waiters))
    clock.advance(1.0)
    scripted.answers.set()
    wait_until(lambda: len(callers.outcomes) == 2)
    assert [3.5, 2.5] == scripted.seconds


def test_whoever_waits_gives_up_in_time_though_others_are_answered() -> None:
    clock = VirtualClock()
    begun = list[float]()

    class Slow:
        """Each answer takes 1.2 s."""

        def hold_expansion(self, request: pb.HoldExpansionRequest, seconds: float) -> pb.HoldExpansionReply:
            begun.append(seconds)
            number = len(begun)
            assert released[number - 1].wait(30)
            return pb.HoldExpansionReply()

    released = [threading.Event() for _ in range(5)]
    bounded = BoundedLeader(Slow(), 1, clock)
    outcomes = list[str]()

    def call() -> None:
        try:
            bounded.hold_expansion(pb.HoldExpansionRequest(), 3.5)
        except CrowdedError:
            outcomes.append("crowded")
        else:
            outcomes.append("answered")

    threads = [threading.Thread(target=call, daemon=True) for _ in range(5)]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(begun) == 1 and len(vars(bounded)["_changed"]._waiters) == 4)
    clock.advance(1.2)
    released[0].set()
    wait_until(lambda: len(begun) == 2)
    clock.advance(PATIENCE_SECONDS - 1.2)
    wait_until(lambda: len(outcomes) == 4)
    released[1].set()
    wait_until(lambda: len(outcomes) == 5)
    assert ["answered", "answered", "crowded", "crowded", "crowded"] == sorted(outcomes)
    assert [3.5, 2.3] == [round(seconds, 1) for seconds in begun]


def test_a_failure_of_another_kind_gives_the_turn_back() -> None:
    class Broken:
        def hold_expansion(self, request: pb.HoldExpansionRequest, seconds: float) -> pb.HoldExpansionReply:
            raise ValueError("broken")

    bounded = BoundedLeader(Broken(), 1, VirtualClock())
    for _ in range(3):
        with pytest.raises(ValueError, match="broken"):
            bounded.hold_expansion(pb.HoldExpansionRequest(), 3.5)
