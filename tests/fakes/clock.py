"""A clock that moves by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_START_UTC = datetime(2026, 1, 1, tzinfo=UTC)


class VirtualClock:
    """Starts at 1,000 s, so that no interval reaches back before zero."""

    def __init__(self) -> None:
        self._elapsed = 0.0

    def now(self) -> float:
        return 1_000.0 + self._elapsed

    def now_utc(self) -> datetime:
        return _START_UTC + timedelta(seconds=self._elapsed)

    def advance(self, seconds: float) -> None:
        self._elapsed += seconds
