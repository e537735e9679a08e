"""When a hold ends by time, and what is recorded of holds and assumptions for the metrics.

kube-scheduler's client may be slow to show a choice (its default of 50 requests a second lets a burst of 500 pods
wait 17 s), so time alone never ends a hold while choices of pods answered at about the same moment are still arriving.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

LAG_SECONDS: Final = 1.0  # a choice of a pod answered this much later proves that ours should have come
QUIET_SECONDS: Final = 2.0  # no choice of anybody for so long: nothing is under way
MAX_RECORDS: Final = 10_000

SCHEDULING_WAIT: Final = "pod_scheduling_wait"
NODE_RESERVATION: Final = "node_reservation"


@dataclass(frozen=True, slots=True)
class DueHold:
    """A pod whose holds have reached their end by time; a live read of pod and claims has the last word."""

    pod_uid: str
    pod_key: str
    claim_keys: tuple[str, ...]
    is_capped: bool  # held for as long as anything is ever held


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


class Answers:
    """Which pods were given a yes that is not chosen yet, and how far choices have come in."""

    def __init__(self) -> None:
        self._answered: dict[str, float] = {}  # pod uid -> when
        self._foreign: set[str] = set()  # of these: answered by the leader before, if at all
        self._doubted: set[str] = set()  # of these: the pod went, or its choice was withdrawn
        self._serials: dict[str, int] = {}  # of these: the call that made the holds
        self._front = float("-inf")  # latest answer whose choice was seen
        self._last_choice = float("-inf")

    def __len__(self) -> int:
        """Pods whose choice has not been seen, of those that we answered."""
        return len(self._answered) - len(self._foreign)

    def is_foreign(self, pod_uid: str) -> bool:
        """Whether the leader before us may have answered the pod, and we have not yet."""
        return pod_uid in self._foreign

    def answered(self, pod_uid: str, now: float, *, is_ours: bool = True) -> None:
        """`is_ours` false: the leader before us may have answered, so its durations are not ours to tell."""
        self._answered[pod_uid] = now
        self._doubted.discard(pod_uid)
        if is_ours:
            self._foreign.discard(pod_uid)
        else:
            self._foreign.add(pod_uid)

    def name_call(self, pod_uid: str, serial: int) -> None:
        """The holds of an answered pod were made by that call, and only it may take them back."""
        if pod_uid in self._answered:
            self._serials[pod_uid] = serial

    def is_of_call(self, pod_uid: str, serial: int) -> bool:
        return self._serials.get(pod_uid) == serial

    def doubted(self, pod_uid: str, now: float) -> None:
        """The promise need not last for its full time, only until a choice under way would have been seen."""
        self._answered.setdefault(pod_uid, now)
        self._doubted.add(pod_uid)

    def chosen(self, pod_uid: str, now: float) -> float | None:
        """A choice was seen: the seconds since the answer, or None when there was none."""
        at, is_foreign = self._forget(pod_uid)
        if at is None:
            return None
        self._last_choice = now
        if is_foreign:
            return None
        self._front = max(self._front, at)
        return now - at

    def ended(self, pod_uid: str, now: float) -> float | None:
        at, is_foreign = self._forget(pod_uid)
        return None if at is None or is_foreign else now - at

    def _forget(self, pod_uid: str) -> tuple[float | None, bool]:
        self._doubted.discard(pod_uid)
        self._serials.pop(pod_uid, None)
        is_foreign = pod_uid in self._foreign
        self._foreign.discard(pod_uid)
        return self._answered.pop(pod_uid, None), is_foreign

    def oldest(self, now: float) -> float:
        """Seconds since the oldest answer that is still waiting for a choice; 0 without one."""
        return max((now - at for at in self._answered.values()), default=0.0)

    def due(self, now: float, timeout: float, cap: float) -> list[tuple[str, bool]]:
        """Pods whose holds may end by time, and whether the cap says so."""
        return [
            (uid, now - at >= cap) for uid, at in self._answered.items() if self._is_due(uid, at, now, timeout, cap)
        ]

    def is_due(self, pod_uid: str, now: float, timeout: float, cap: float) -> bool:
        at = self._answered.get(pod_uid)
        return at is not None and self._is_due(pod_uid, at, now, timeout, cap)

    def _is_due(self, pod_uid: str, at: float, now: float, timeout: float, cap: float) -> bool:
        is_over = now - at >= timeout or pod_uid in self._doubted
        return now - at >= cap or (is_over and self._has_passed(at, now))

    def _has_passed(self, at: float, now: float) -> bool:
        return self._front >= at + LAG_SECONDS or now - max(self._last_choice, at) >= QUIET_SECONDS
