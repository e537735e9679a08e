"""A worker that looks at something again and again, and what was wrong when it last did."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Final

from controller.errors import SchedulerError
from controller.process.worker import Part, Worker, backoff_seconds

PATIENCE: Final = 30  # looks without change, after which they may be further apart
QUIET_SECONDS: Final = 30.0  # for which a part that starts may lack what others make, before anybody is told


class Said:
    """Says a problem once, when it begins or becomes another one, and has lasted for `quiet_seconds` at a later note.
    Threads: one."""

    def __init__(
        self, say: Callable[[str], object], quiet_seconds: float = 0.0, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._say, self._quiet_seconds, self._now = say, quiet_seconds, now
        self._since: dict[str, float] = {}  # of the present problems
        self._unsaid: tuple[str, ...] = ()

    def note(self, *problems: object) -> bool:
        """Takes what is wrong now; returns whether that is something else than before."""
        found, now = tuple(text for text in map(str, problems) if text), self._now()
        is_new = found != tuple(self._since)
        if is_new:
            self._since = {text: self._since.get(text, now) for text in found}
            self._unsaid = found
        for text in self._unsaid:
            if now >= self._since[text] + self._quiet_seconds:
                self._say(text)
        self._unsaid = tuple(text for text in self._unsaid if now < self._since[text] + self._quiet_seconds)
        return is_new


class Repeated(Part):
    """Repeats `look`; what is wrong is said once, as by `Said`.

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
        quiet_seconds: float = 0.0,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._look, self._pause_seconds, self._said = look, pause_seconds, Said(say, quiet_seconds, now)
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
        self._alike = 0 if self._said.note(*found) else self._alike + 1
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
