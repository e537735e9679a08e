"""The loop of every thread: it goes on whatever its rounds raise, and tells how it does. What a repeated look finds
wrong is said once."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

import pytest

from controller.errors import UnavailableError
from controller.process.repeated import Repeated, Said
from controller.process.worker import (
    STUCK_SECONDS,
    Worker,
    WorkerState,
    backoff_seconds,
    health_problem,
    waiting,
    worker_entries,
)
from tests.fakes.clock import VirtualClock
from tests.waiting import wait_until

NEVER = 600.0


@contextmanager
def running(worker: Worker, first_after_seconds: float = 0.0) -> Iterator[Worker]:
    worker.start(first_after_seconds)
    try:
        yield worker
    finally:
        worker.stop()


class Rounds:
    """Rounds that do what the script says, then pause for ever."""

    def __init__(self, *script: Callable[[], float | None]) -> None:
        self.script = list(script)
        self.done = 0

    def __call__(self) -> float | None:
        self.done += 1
        return self.script.pop(0)() if self.script else NEVER


def fails() -> float:
    raise ValueError("odd")


class Hang:
    """A round that goes on until it is let go."""

    def __init__(self) -> None:
        self.entered, self.goes_on = threading.Event(), threading.Event()

    def __call__(self) -> float:
        self.entered.set()
        self.goes_on.wait(10)
        return 0.0


def test_a_round_follows_the_other_after_the_pause_that_it_asks_for() -> None:
    rounds = Rounds(lambda: 0.0, lambda: 0.001)
    with running(Worker("w", rounds)) as worker:
        wait_until(lambda: worker.state().rounds == 3)
    assert 3 == rounds.done


@pytest.mark.parametrize("pause", [NEVER, None])
def test_a_pause_ends_when_it_is_woken(pause: float | None) -> None:
    rounds = Rounds(*[lambda: pause] * 2)
    with running(Worker("w", rounds), first_after_seconds=NEVER) as worker:
        for number in (1, 2):
            worker.wake()
            wait_until(lambda number=number: worker.state().rounds == number)  # type: ignore[misc]


def test_being_woken_in_a_round_brings_another_one() -> None:
    rounds = Rounds()
    worker = Worker("w", rounds)
    rounds.script = [worker.wake]
    with running(worker):
        wait_until(lambda: worker.state().rounds == 2)
    assert 0 == worker.state().failures


def test_a_round_that_fails_is_counted_and_told_and_the_next_one_comes(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR), running(Worker("w", Rounds(fails, fails), retry_seconds=(0.0, 0.0))) as worker:
        wait_until(lambda: worker.state().rounds == 3)
    state = worker.state()
    assert (2, "ValueError: odd", False) == (state.failures, state.last_failure, state.is_gone)
    assert [ValueError, ValueError] == [record.exc_info[0] for record in caplog.records if record.exc_info]
    entry = worker_entries([worker])["w"]
    assert (3, 2, "ValueError: odd", None) == tuple(
        entry[name] for name in ("rounds", "failures", "last_failure", "problem")
    )


def test_the_pause_after_failures_doubles_up_to_the_longest() -> None:
    assert [1, 2, 4, 8, 16, 30, 30] == [backoff_seconds(failures, (1, 30)) for failures in range(1, 8)]
    assert 30 == backoff_seconds(10_000, (1, 30))


def test_the_pause_after_a_failure_is_not_cut_short_but_ends_with_the_worker() -> None:
    with running(Worker("w", Rounds(fails), retry_seconds=(NEVER, NEVER))) as worker:
        wait_until(lambda: worker.state().failures == 1)
        worker.wake()
        assert not threading.Event().wait(0.05)
        assert 1 == worker.state().rounds
    assert not [thread for thread in threading.enumerate() if thread.name == "w"]


def test_a_worker_that_was_stopped_can_be_started_again() -> None:
    rounds = Rounds()
    worker = Worker("w", rounds)
    for number in (1, 2):
        with running(worker):
            wait_until(lambda number=number: worker.state().rounds == number)  # type: ignore[misc]


def test_a_thread_that_outlives_its_stop_does_not_come_back_to_life(caplog: pytest.LogCaptureFixture) -> None:
    hang = Hang()
    rounds = Rounds(hang)
    worker = Worker("w", rounds)
    worker.start()
    assert hang.entered.wait(10)
    (old,) = [thread for thread in threading.enumerate() if thread.name == "w"]
    with caplog.at_level(logging.ERROR):
        assert not worker.stop(timeout=0.01)
    assert "thread w did not end within 0.01 s" in caplog.text
    with running(worker):
        wait_until(lambda: rounds.done == 2)
        hang.goes_on.set()
        old.join(10)
        assert not old.is_alive()
        assert 2 == rounds.done


def test_a_round_that_outlives_its_stop_is_still_to_end_when_another_one_has_begun() -> None:
    hang, seen = Hang(), list[bool]()
    worker: Worker

    def late() -> float:
        hang()
        seen.append(worker.is_stopping and worker.wait(0.0))
        return NEVER

    worker = Worker("w", Rounds(late))
    worker.start()
    assert hang.entered.wait(10)
    worker.stop(timeout=0.01)
    with running(worker):
        hang.goes_on.set()
        wait_until(lambda: seen == [True])
        assert not worker.is_stopping


@pytest.mark.parametrize("goes_wrong", [False, True])
def test_its_end_is_done_once_after_the_last_round(goes_wrong: bool, caplog: pytest.LogCaptureFixture) -> None:
    ends: list[int] = []
    rounds = Rounds()

    def end() -> None:
        ends.append(rounds.done)
        if goes_wrong:
            raise ValueError("odd")

    with running(Worker("w", rounds, at_end=end)) as worker:
        wait_until(lambda: worker.state().rounds == 1)
    assert [1] == ends
    assert goes_wrong == ("thread w failed at its end" in caplog.text)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_is_gone_is_a_problem_and_one_that_was_stopped_is_none() -> None:
    def leave() -> float:
        raise SystemExit

    worker, other = Worker("w", leave), Worker("other", Rounds())
    worker.start()
    wait_until(lambda: worker.state().is_gone)
    with running(other):
        assert "thread w has ended" == health_problem([worker, other])
    assert "" == health_problem([other])
    assert "" == health_problem([Worker("never started", Rounds())])


def test_a_round_that_takes_too_long_is_a_problem() -> None:
    def state(busy: float) -> WorkerState:
        return WorkerState("w", 1, 0, None, busy, "", None, is_gone=False)

    assert "" == state(STUCK_SECONDS).problem
    assert "thread w is stuck for 61 s" == state(STUCK_SECONDS + 1).problem


@pytest.mark.parametrize("place", ["round", "network", "pause"])
def test_time_in_the_network_or_in_a_pause_is_not_time_in_a_round(place: str) -> None:
    hang = Hang()
    worker: Worker

    def one() -> float:
        if place == "pause":
            hang.entered.set()
            worker.wait(10)
        else:
            with waiting() if place == "network" else nullcontext():
                hang()
        return NEVER

    with running(Worker("w", Rounds(one))) as worker:
        assert hang.entered.wait(10)
        wait_until(
            lambda: (worker.state().busy_seconds > 0.01) if place == "round" else not worker.state().busy_seconds
        )
        hang.goes_on.set()
        if place != "pause":
            wait_until(lambda: worker.state().rounds == 1 and worker.state().busy_seconds == 0)


# Looks that are repeated


class Looks:
    """A look that fails as the script says; then it goes on without failing."""

    def __init__(self, *script: Exception | None) -> None:
        self.script: Iterator[Exception | None] = iter(script)
        self.said: list[str] = []
        self.repeated = Repeated(self.look, lambda is_over: 600.0 if is_over else 1.0, self.said.append, thread="look")

    def look(self) -> None:
        failure = next(self.script, None)
        if failure is not None:
            raise failure
        self.repeated.note(())


def test_what_goes_wrong_is_said_once() -> None:
    away = UnavailableError("away")
    looks = Looks(away, away, ValueError("odd"), None)
    assert [1.0, 1.0] == [looks.repeated.run_once(), looks.repeated.run_once()]
    with pytest.raises(ValueError, match="odd"):
        looks.repeated.run_once()
    assert ("ValueError('odd')",) == looks.repeated.problems
    assert 600.0 == looks.repeated.run_once()
    assert ["away", "ValueError('odd')"] == looks.said
    assert not looks.repeated.problems


def test_what_passes_soon_is_not_said_and_what_lasts_is_said_once() -> None:
    clock, told = VirtualClock(), list[str]()
    said = Said(told.append, 30.0, clock.now)
    said.note("no Secret", "no leader")
    clock.advance(29)
    said.note("no leader")  # the time of this one goes on
    assert [] == told
    clock.advance(1)
    for _ in range(3):
        said.note("no leader")
    assert ["no leader"] == told
    said.note()
    clock.advance(60)
    said.note("no leader")
    assert ["no leader"] == told


def test_a_problem_that_comes_again_is_said_again() -> None:
    looks = Looks()
    for problems in (["a"], ["a"], ["a", "b"], [], ["a"]):
        looks.repeated.note(problems)
    assert ["a", "a", "b", "a"] == looks.said
    assert ("a",) == looks.repeated.problems
