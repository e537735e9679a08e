"""A worker that looks at something again and again, and what was wrong when it last did."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from controller.errors import SchedulerError
from controller.process.worker import Part, Worker


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
        self.worker = Worker(thread, self.run_once)

    @property
    def problems(self) -> tuple[str, ...]:
        """What was wrong at the last look."""
        return self._problems

    def note(self, problems: Iterable[str]) -> None:
        """Takes what is wrong now; says it, if it is not what was wrong before."""
        found = tuple(problems)
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
