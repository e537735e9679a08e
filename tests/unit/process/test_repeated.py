"""A thread that repeats a look: it outlives what goes wrong, says it once, and ends when it is told to."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from controller.errors import UnavailableError
from controller.process.repeated import Repeated
from tests.fakes.waiting import wait_until


class World:
    """A look that fails as the script says; then it goes on without failing."""

    def __init__(self, *script: Exception | None) -> None:
        self.script: Iterator[Exception | None] = iter(script)
        self.said: list[str] = []
        self.pauses: list[bool] = []
        self.is_done = threading.Event()
        self.repeated = Repeated(self.look, self.pause, self.said.append, thread="looker")

    def look(self) -> None:
        failure = next(self.script, None)
        if failure is not None:
            raise failure
        self.repeated.note(())

    def pause(self, is_over: bool) -> float:
        self.pauses.append(is_over)
        if len(self.pauses) == 4:
            self.is_done.set()
            return 600.0
        return 0.0


def test_what_goes_wrong_is_said_once_and_ends_nothing() -> None:
    away = UnavailableError("away")
    world = World(away, away, ValueError("odd"), None)
    world.repeated.start()
    wait_until(world.is_done.is_set)
    world.repeated.stop()
    assert ["away", "ValueError('odd')"] == world.said
    assert [False, False, False, True] == world.pauses
    assert () == world.repeated.problems


def test_it_ends_within_a_pause_and_may_begin_with_one() -> None:
    world = World()
    world.repeated.start(first_after_seconds=600.0)
    world.repeated.stop()
    assert [] == world.pauses
    assert not [thread for thread in threading.enumerate() if thread.name == "looker"]


def test_a_problem_that_comes_again_is_said_again() -> None:
    world = World()
    for problems in (["a"], ["a"], ["a", "b"], [], ["a"]):
        world.repeated.note(problems)
    assert ["a", "a", "b", "a"] == world.said
    assert ("a",) == world.repeated.problems
