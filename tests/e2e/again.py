"""Something that is done again and again beside a test."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Self

from tests.waiting import wait_until

END_SECONDS = 60.0


class Again:
    """Does it in a thread of its own while the block lasts, with a pause before each turn.

    `turns`: how often it was done. `failures`: exceptions of turns; where there are any, the block ends with an
    AssertionError. Threads: any may read.
    """

    def __init__(self, act: Callable[[], object], pause: float) -> None:
        self._act, self._pause = act, pause
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="again", daemon=True)
        self.turns, self.failures = 0, list[str]()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, failure: type[BaseException] | None, *_: object) -> None:
        self._stop.set()
        self._thread.join(END_SECONDS)
        if failure is None:
            assert [] == self.failures

    def _run(self) -> None:
        while not self._stop.wait(self._pause):
            try:
                self._act()
            except Exception as error:  # thread top
                self.failures.append(repr(error))
            self.turns += 1

    def wait_for_more(self, turns: int, timeout: float = END_SECONDS) -> None:
        wanted = self.turns + turns
        wait_until(lambda: self.turns >= wanted, f"{turns} more turns", timeout)
