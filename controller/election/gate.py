"""No answer and no write outside a term."""

from __future__ import annotations

import threading

from controller.clock import Clock
from controller.errors import NotLeaderError


class Gate:
    """Open from a term's beginning to its end, and never past its deadline, even if the elector is stuck or was
    suspended.

    The deadline counts from the last renewal *sent* that succeeded. Elapsed time is the larger of monotonic time and
    wall clock, because either may stand still while a machine sleeps.
    Threads: any. Blocks: never. I/O: none.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()  # guards the fields below
        self._openings = 0
        self._is_open = False
        self._renewed = 0.0
        self._renewed_utc = 0.0
        self._valid_seconds = 0.0

    def open(self) -> None:
        with self._lock:
            self._openings += 1
            self._is_open = True

    def close(self) -> None:
        with self._lock:
            self._is_open = False

    def renewed(self, sent_at: float, sent_at_utc: float, valid_seconds: float) -> None:
        """The Lease is ours for `valid_seconds` from the moment the renewal was sent."""
        with self._lock:
            self._renewed, self._renewed_utc, self._valid_seconds = sent_at, sent_at_utc, valid_seconds

    @property
    def openings(self) -> int:
        """How many times it was opened: an answer belongs to the opening in which it was decided, even when a term is
        taken up twice."""
        with self._lock:
            return self._openings

    def opening(self) -> int | None:
        """The number of this opening; None while it is closed."""
        return self.openings if self.is_open else None

    @property
    def is_open(self) -> bool:
        with self._lock:
            return self._is_open and self._elapsed_locked() < self._valid_seconds

    @property
    def is_held(self) -> bool:
        """Whether the Lease was renewed so lately that nobody else can hold it, also before a term begins."""
        with self._lock:
            return self._elapsed_locked() < self._valid_seconds

    def check(self) -> None:
        """Raises NotLeaderError unless this process leads at this very moment."""
        if not self.is_open:
            raise NotLeaderError("this process does not lead")

    def _elapsed_locked(self) -> float:
        wall = self._clock.now_utc().timestamp() - self._renewed_utc
        return max(self._clock.now() - self._renewed, wall)
