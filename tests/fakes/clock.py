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

    def stamp(self) -> str:
        """The time as Kubernetes writes it."""
        return self.now_utc().strftime("%Y-%m-%dT%H:%M:%SZ")

    def advance(self, seconds: float) -> None:
        self._elapsed += seconds


class TickingClock(VirtualClock):
    """Goes on by so many seconds whenever somebody looks at it."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.start = super().now()
        self.looks = 0
        self.seconds = seconds

    def now(self) -> float:
        self.looks += 1
        self.advance(self.seconds)
        return super().now()
