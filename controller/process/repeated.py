"""A thread that looks at something again and again, and what was wrong when it last did."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from typing import Final

from controller.errors import SchedulerError

JOIN_SECONDS: Final = 10.0

log = logging.getLogger(__name__)


class Repeated:
    """Repeats `look` until it is stopped; what is wrong is said once, when it begins to be.

    `look` notes what it finds wrong; what it raises counts as that, too, and does not end the thread. `pause_seconds`
    takes whether it has come to its end, and gives the time until the next one. `say` gets each new problem.
    Threads: its own, named `thread`; start and stop from one, `problems` from any. Blocks: `stop`, for a look that is
    under way. I/O: that of `look`.
    """

    def __init__(
        self,
        look: Callable[[], None],
        pause_seconds: Callable[[bool], float],
        say: Callable[[str], None],
        *,
        thread: str,
    ) -> None:
        self._look, self._pause_seconds, self._say, self._name = look, pause_seconds, say, thread
        self._problems: tuple[str, ...] = ()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def problems(self) -> tuple[str, ...]:
        """What was wrong at the last look."""
        return self._problems

    def note(self, problems: Iterable[str]) -> None:
        """These are what is wrong now."""
        found = tuple(problems)
        if found != self._problems:
            for problem in found:
                self._say(problem)
        self._problems = found

    def start(self, first_after_seconds: float = 0.0) -> None:
        self._thread = threading.Thread(target=self._run, args=(first_after_seconds,), name=self._name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(JOIN_SECONDS)

    def _run(self, pause: float) -> None:
        while not self._stop.wait(pause):
            is_over = False
            try:
                self._look()
                is_over = True
            except SchedulerError as error:
                self.note((str(error),))
            except Exception as error:  # thread top
                log.exception("%s: a fault of ours", self._name)
                self.note((repr(error),))
            pause = self._pause_seconds(is_over)
