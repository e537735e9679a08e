"""What is recorded of holds and assumptions for the metrics."""

from __future__ import annotations

from collections import Counter
from typing import Final

MAX_RECORDS: Final = 10_000

SCHEDULING_WAIT: Final = "pod_scheduling_wait"
NODE_RESERVATION: Final = "node_reservation"


class Journal:
    """Counters, and durations as (name, seconds, success) until somebody drains them."""

    def __init__(self) -> None:
        self.counters: Counter[str] = Counter()
        self._records: list[tuple[str, float, bool]] = []

    def record(self, name: str, seconds: float, success: bool) -> None:
        if len(self._records) < MAX_RECORDS:
            self._records.append((name, max(0.0, seconds), success))
        else:
            self.counters["records_dropped"] += 1

    def drain(self) -> tuple[tuple[str, float, bool], ...]:
        records, self._records = tuple(self._records), []
        return records
