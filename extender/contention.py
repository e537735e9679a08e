"""How long filter calls may wait for other pods' holds, all calls together.

kube-scheduler's cycle is serial: while one filter call waits, no pod of any profile is scheduled. So all waits of all
threads share a budget, a small part of any stretch of time.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass


@dataclass(slots=True)
class Grant:
    """A wait that was allowed: at most `seconds`, counted until `ends_at` plus the window."""

    seconds: float
    ends_at: float


class WaitBudget:
    """At most `share` of any `window_seconds` is spent waiting, summed over all threads.

    A wait counts in full, from its grant until a window after its end, so that no stretch of the window's length,
    wherever it begins, holds more.

    Threads: any. Blocks: never. I/O: none.
    """

    def __init__(self, share: float = 0.05, window_seconds: float = 10.0) -> None:
        self._limit_seconds = share * window_seconds
        self._window_seconds = window_seconds
        self._lock = threading.Lock()  # guards the field below
        self._grants: deque[Grant] = deque()

    def take(self, wanted_seconds: float, now: float) -> Grant | None:
        """Permission to wait up to `wanted_seconds` from `now`; a shorter one, or None, where the budget is spent."""
        with self._lock:
            self._grants = deque(grant for grant in self._grants if grant.ends_at + self._window_seconds > now)
            left = self._limit_seconds - sum(grant.seconds for grant in self._grants)
            seconds = min(wanted_seconds, left)
            if seconds <= 0:
                return None
            grant = Grant(seconds, now + seconds)
            self._grants.append(grant)
            return grant

    def settle(self, grant: Grant, waited_seconds: float, now: float) -> None:
        """Ends a wait: from now on, only the time that it took counts."""
        with self._lock:
            grant.seconds, grant.ends_at = max(0.0, waited_seconds), now
