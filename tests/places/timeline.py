"""What happens when, in virtual time."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count
from random import Random

from tests.fakes.clock import VirtualClock


class Timeline:
    """Runs actions in the order of their times; those of the same time in the order in which they came."""

    def __init__(self, seed: int) -> None:
        self.clock = VirtualClock()
        self.random = Random(seed)
        self._start = self.clock.now()
        self._actions: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()

    @property
    def now(self) -> float:
        """Seconds since the beginning."""
        return self.clock.now() - self._start

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._actions, (self.now + max(0.0, seconds), next(self._numbers), action))

    def between(self, least: float, most: float, action: Callable[[], None]) -> None:
        """After some time between the two."""
        self.after(self.random.uniform(least, most), action)

    def every(self, seconds: float, action: Callable[[], None]) -> None:
        def again() -> None:
            action()
            self.after(seconds, again)

        self.after(seconds, again)

    def run(self, until: float) -> None:
        while self._actions and self._actions[0][0] <= until:
            at, _, action = heapq.heappop(self._actions)
            self.clock.advance(at - self.now)
            action()
        self.clock.advance(until - self.now)
