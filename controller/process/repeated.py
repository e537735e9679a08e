"""A worker that looks at something again and again, and what was wrong when it last did."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from controller.errors import SchedulerError
from controller.process.worker import Part, Worker, backoff_seconds

PATIENCE: Final = 30  # looks without change, after which they may be further apart


class Said:
    """Says a problem once, when it begins or becomes another one. Threads: one."""

    def __init__(self, say: Callable[[str], object]) -> None:
        self._say, self._last = say, ""

    def note(self, problem: object = "") -> None:
        """What is wrong now; "" when nothing is."""
        text = str(problem)
        if text and text != self._last:
            self._say(text)
        self._last = text


class Repeated(Part):
    """Repeats `look`; what is wrong is said once, when it begins to be.

    `look` notes what it finds wrong; what it raises counts as that, too. `pause_seconds` takes whether it has come to
    its end, and gives the time until the next one. `say` gets each new problem.
    Threads: `worker`'s; `problems` from any. Blocks: never. I/O: that of `look`.
    """

    def __init__(
        self,
        look: Callable[[], None],
        pause_seconds: Callable[[bool], float],
        say: Callable[[str], None],
        *,
        thread: str,
    ) -> None:
        self._look, self._pause_seconds, self._say = look, pause_seconds, say
        self._problems: tuple[str, ...] = ()
        self._alike = 0
        self.worker = Worker(thread, self.run_once)

    @property
    def problems(self) -> tuple[str, ...]:
        """What was wrong at the last look."""
        return self._problems

    def hurry_seconds(self, bounds: tuple[float, float]) -> float:
        """The pause while something is wrong: the first of `bounds`, and at last the second if nothing changes."""
        return backoff_seconds(max(1, self._alike - PATIENCE), bounds)

    def note(self, problems: Iterable[str]) -> None:
        """Takes what is wrong now; says it, if it is not what was wrong before."""
        found = tuple(problems)
        self._alike = self._alike + 1 if found == self._problems else 0
        if found != self._problems:
            for problem in found:
                self._say(problem)
        self._problems = found

    def run_once(self) -> float:
        """Looks once; returns the seconds until the next look. A fault of ours is noted, and raised again."""
        try:
            self._look()
        except SchedulerError as error:
            self.note((str(error),))
            return self._pause_seconds(False)
        except Exception as error:
            self.note((repr(error),))
            raise
        return self._pause_seconds(True)
