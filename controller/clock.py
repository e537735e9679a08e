"""Time as an argument: monotonic seconds for intervals, UTC only for what other programs wrote."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    def now(self) -> float:
        """Monotonic seconds; suspended time counts where the system can tell."""
        ...

    def now_utc(self) -> datetime: ...


class SystemClock:
    def now(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()

    def now_utc(self) -> datetime:
        return datetime.now(UTC)
