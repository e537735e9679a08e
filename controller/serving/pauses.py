"""A garbage collector that seldom makes calls wait.

Python looks through all objects that have lived long, again and again while their number grows, and no thread runs
meanwhile: 30 to 55 ms with 10,000 claims in memory, which the slowest hundredth of reviews waited for. So what has
outlived a slow look is left out of the next ones (`gc.freeze`, Python's documentation of `gc`). Objects that nobody
refers to any more still end at once; only cycles among those left out stay. They cannot pile up: once there are twice
as many of them as after the last look at everything, everything is looked at again.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from typing import Final, Protocol

LONG_SECONDS: Final = 0.005
MOST_GROWTH: Final = 2
_OLDEST: Final = 2  # generation


class GarbageCollector(Protocol):
    """What is used of the module `gc`."""

    def freeze(self) -> None: ...
    def unfreeze(self) -> None: ...
    def get_freeze_count(self) -> int: ...


class Pauses:
    """Told by the collector when it begins and ends (`gc.callbacks`). Threads: any, one at a time. Never blocks."""

    def __init__(self, now: Callable[[], float], collector: GarbageCollector = gc) -> None:
        self._now, self._collector = now, collector
        self._began = 0.0
        self._at_first = 0  # left out after the last look at everything; 0: none since then

    def install(self) -> None:
        gc.callbacks.append(self)

    def __call__(self, phase: str, info: Mapping[str, int]) -> None:
        if info["generation"] != _OLDEST:
            return
        if phase == "start":
            self._began = self._now()
        elif self._now() - self._began >= LONG_SECONDS:
            self._leave_out()

    def _leave_out(self) -> None:
        if self._at_first and self._collector.get_freeze_count() > MOST_GROWTH * self._at_first:
            self._collector.unfreeze()
            self._at_first = 0
            return
        self._collector.freeze()
        if not self._at_first:
            self._at_first = self._collector.get_freeze_count()
