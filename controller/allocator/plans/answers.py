"""Which pods were given a yes that is not chosen yet, and how far choices have come in.

A yes is a hold in the table. Here stands what tells when it may end by time: choices follow answers with a lag that
nobody knows, so that ours should have come once those of pods answered later have.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

LAG_SECONDS: Final = 1.0  # a choice of a pod answered this much later proves that ours should have come
YOUNG_SECONDS: Final = 1.0
QUIET_SECONDS: Final = 2.0  # no choice of anybody for so long: nothing is under way
UNCHOSEN_SECONDS: Final = 60.0  # that answers are remembered which nobody acted on
MOST_UNCHOSEN: Final = 3  # of a namespace in that time, until its pods are offered one node each


@dataclass(frozen=True, slots=True)
class Answered:
    """A yes at that time, in monotonic seconds. `first_at`: the first one, where answers add up. `serial`: the call
    that made the hold. `is_ours` False: the leader before gave it."""

    namespace: str
    at: float
    first_at: float
    is_ours: bool = True
    serial: int = 0


class Answers:
    """By the pods' uids. Threads: none of its own; the allocator's lock guards it."""

    def __init__(self) -> None:
        self._answers: dict[str, Answered] = {}
        self._unchosen: dict[str, deque[float]] = {}  # namespace -> when its last answers ended
        self._front = float("-inf")  # latest answer whose choice was seen
        self._last_choice = float("-inf")

    def __len__(self) -> int:
        """Pods whose choice has not been seen."""
        return len(self._answers)

    def __contains__(self, pod_uid: object) -> bool:
        return pod_uid in self._answers

    def clear(self) -> None:
        self._answers.clear()
        self._unchosen.clear()
        self._front = self._last_choice = float("-inf")

    def answered(self, pod_uid: str, namespace: str, now: float, serial: int, *, adds_up: bool = False) -> None:
        """`adds_up`: a choice that is seen may be due to any answer since the first."""
        old = self._answers.get(pod_uid)
        first = old.first_at if adds_up and old is not None else now
        self._answers[pod_uid] = Answered(namespace, now, first, serial=serial)

    def inherited(self, pod_uid: str, namespace: str, now: float) -> None:
        """The leader before gave it. Its durations are not ours to tell."""
        self._answers[pod_uid] = Answered(namespace, now, now, is_ours=False)

    def is_of_call(self, pod_uid: str, serial: int) -> bool:
        """Whether that call made what the pod holds, so that it may take it back."""
        found = self._answers.get(pod_uid)
        return found is not None and found.is_ours and found.serial == serial

    def chosen(self, pod_uid: str, now: float) -> float | None:
        """A choice was seen: the seconds since the answer, or None when there was none of ours."""
        found = self._answers.pop(pod_uid, None)
        if found is None:
            return None
        self._last_choice = now
        if not found.is_ours:
            return None
        self._front = max(self._front, found.first_at)
        return now - found.first_at

    def ended(self, pod_uid: str, now: float) -> float | None:
        """Nothing came of it: the seconds since the answer, or None when there was none of ours."""
        found = self._answers.pop(pod_uid, None)
        if found is None or not found.is_ours:
            return None
        self._unchosen = {name: ends for name, ends in self._unchosen.items() if now - ends[-1] < UNCHOSEN_SECONDS}
        self._unchosen.setdefault(found.namespace, deque(maxlen=MOST_UNCHOSEN)).append(now)
        return now - found.at

    def is_young(self, now: float) -> bool:
        """Whether a yes was given just now, whose choice may show soon and free room."""
        return any(now - one.at < YOUNG_SECONDS for one in self._answers.values())

    def come_to_nothing(self, namespace: str, now: float) -> bool:
        """Whether the last answers to pods of that namespace led to no choice, not long ago."""
        ends = self._unchosen.get(namespace)
        return ends is not None and len(ends) == MOST_UNCHOSEN and now - ends[0] < UNCHOSEN_SECONDS

    def due(self, now: float, timeout: float, cap: float) -> list[tuple[str, bool]]:
        """Pods whose holds may end by time, and whether the cap says so."""
        answers = self._answers.items()
        return [(uid, now - one.at >= cap) for uid, one in answers if self._is_due(one, now, timeout, cap)]

    def is_due(self, pod_uid: str, now: float, timeout: float, cap: float) -> bool:
        found = self._answers.get(pod_uid)
        return found is not None and self._is_due(found, now, timeout, cap)

    def _is_due(self, answer: Answered, now: float, timeout: float, cap: float) -> bool:
        waited = now - answer.at
        has_passed = self._front >= answer.at + LAG_SECONDS or now - max(self._last_choice, answer.at) >= QUIET_SECONDS
        return waited >= cap or (waited >= timeout and has_passed)
