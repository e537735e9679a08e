"""A look that is repeated: what goes wrong is said once, and it goes on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from controller.errors import UnavailableError
from controller.process.repeated import Repeated


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


def test_a_problem_that_comes_again_is_said_again() -> None:
    looks = Looks()
    for problems in (["a"], ["a"], ["a", "b"], [], ["a"]):
        looks.repeated.note(problems)
    assert ["a", "a", "b", "a"] == looks.said
    assert ("a",) == looks.repeated.problems
