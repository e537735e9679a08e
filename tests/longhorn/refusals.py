"""What a refused write does to a volume: the rest of its sync is dropped, and the next tries are few."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final

from tests.longhorn.timers import Timers

TRIES: Final = 3


class Refusals:
    """Volumes whose latest sync was refused. What it would have written of the volume and its engine waits until a
    later one goes through, however long that takes.

    Threads: any.
    """

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._lock = threading.Lock()
        self._counts: dict[str, int] = {}
        self._waiting: dict[str, dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]] = {}

    def note(self, volume: str) -> bool:
        """Whether the sync is tried again soon; after TRIES refusals it waits for an event, and they count anew."""
        with self._lock:
            self._waiting.setdefault(volume, {})
            self._counts[volume] = self._counts.get(volume, 0) + 1
            return self._counts[volume] % TRIES > 0

    def of(self, volume: str) -> int:
        """How many syncs in a row were refused, up to the latest; 0: it went through."""
        with self._lock:
            return self._counts.get(volume, 0)

    def postpone(self, volume: str, key: str, work: Callable[..., Any], *args: Any) -> bool:
        """Whether the volume is held. If it is, `work` runs once it is not, the latest of each key."""
        with self._lock:
            if volume not in self._waiting:
                return False
            self._waiting[volume][key] = (work, args)
            return True

    def lift(self, volume: str) -> None:
        """A sync went through, or the volume is gone."""
        with self._lock:
            self._counts.pop(volume, None)
            waiting = self._waiting.pop(volume, {})
        for work, args in waiting.values():
            self._timers.now(work, *args)
