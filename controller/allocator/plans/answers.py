"""Which pods were answered yes and have no chosen node yet, and when such an answer may end by time.

The answer itself is a hold in the table. kube-scheduler's choice shows some time after the answer, nobody knows how
long; but once choices show of pods that were answered later, that of this pod should have shown as well.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

LAG_SECONDS: Final = 1.0  # once a pod that was answered so much later has its choice, this one's should have shown
YOUNG_SECONDS: Final = 1.0  # after an answer, in which its choice is likely to show
QUIET_SECONDS: Final = 2.0  # without any pod's choice, after which none is under way
UNCHOSEN_SECONDS: Final = 60.0  # for which an answer without a choice is remembered
MOST_UNCHOSEN: Final = 3  # such answers of a namespace in that time, from which on its pods are offered one node each


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer given `at` that time, in monotonic seconds. `first_at`: when the first one was given, where answers add
    up. `serial`: the call that made the hold. `is_ours` False: the leader before gave the answer."""

    namespace: str
    at: float
    first_at: float
    is_ours: bool = True
    serial: int = 0


class Answers:
    """The answers without a choice, by the pods' UIDs. Threads: none of its own; the allocator's lock guards it."""

    def __init__(self) -> None:
        self._answers: dict[str, Answered] = {}
        self._unchosen: dict[str, deque[float]] = {}  # namespace -> when its last answers ended
        self._front = float("-inf")  # latest answer whose choice was seen
        self._last_choice = float("-inf")

    def __len__(self) -> int:
        """Return the number of pods whose choice has not been seen."""
        return len(self._answers)

    def __contains__(self, pod_uid: object) -> bool:
        return pod_uid in self._answers

    def clear(self) -> None:
        self._answers.clear()
        self._unchosen.clear()
        self._front = self._last_choice = float("-inf")

    def answered(self, pod_uid: str, namespace: str, now: float, serial: int, *, adds_up: bool = False) -> None:
        """Note that the pod was answered yes. `adds_up`: its choice may follow from any answer since the first."""
        old = self._answers.get(pod_uid)
        first = old.first_at if adds_up and old is not None else now
        self._answers[pod_uid] = Answered(namespace, now, first, serial=serial)

    def inherited(self, pod_uid: str, namespace: str, now: float) -> None:
        """Note an answer of the leader before, whose duration this one cannot tell."""
        self._answers[pod_uid] = Answered(namespace, now, now, is_ours=False)

    def is_of_call(self, pod_uid: str, serial: int) -> bool:
        """Whether that call made the pod's hold, and so may take it back."""
        found = self._answers.get(pod_uid)
        return found is not None and found.is_ours and found.serial == serial

    def chosen(self, pod_uid: str, now: float) -> float | None:
        """Note that the pod's choice was seen; return the seconds since the answer, or None if it was none of ours."""
        found = self._answers.pop(pod_uid, None)
        if found is None:
            return None
        self._last_choice = now
        if not found.is_ours:
            return None
        self._front = max(self._front, found.first_at)
        return now - found.first_at

    def ended(self, pod_uid: str, now: float) -> float | None:
        """Note that the answer ends without a choice; return the seconds since, or None if it was none of ours."""
        found = self._answers.pop(pod_uid, None)
        if found is None or not found.is_ours:
            return None
        self._unchosen = {name: ends for name, ends in self._unchosen.items() if now - ends[-1] < UNCHOSEN_SECONDS}
        self._unchosen.setdefault(found.namespace, deque(maxlen=MOST_UNCHOSEN)).append(now)
        return now - found.at

    def is_young(self, now: float) -> bool:
        """Whether an answer was given just now: its choice may show in a moment, and free room on other nodes."""
        return any(now - one.at < YOUNG_SECONDS for one in self._answers.values())

    def went_unchosen(self, namespace: str, now: float) -> bool:
        """Whether the last `MOST_UNCHOSEN` answers to pods of that namespace ended without a choice, not long ago."""
        ends = self._unchosen.get(namespace)
        return ends is not None and len(ends) == MOST_UNCHOSEN and now - ends[0] < UNCHOSEN_SECONDS

    def due(self, now: float, timeout: float, cap: float) -> list[tuple[str, bool]]:
        """Return the pods whose holds may end by time, each with whether it has reached the `cap`, in seconds."""
        answers = self._answers.items()
        return [(uid, now - one.at >= cap) for uid, one in answers if self._is_due(one, now, timeout, cap)]

    def is_due(self, pod_uid: str, now: float, timeout: float, cap: float) -> bool:
        """Whether that pod's hold may end by time."""
        found = self._answers.get(pod_uid)
        return found is not None and self._is_due(found, now, timeout, cap)

    def _is_due(self, answer: Answered, now: float, timeout: float, cap: float) -> bool:
        waited = now - answer.at
        has_passed = self._front >= answer.at + LAG_SECONDS or now - max(self._last_choice, answer.at) >= QUIET_SECONDS
        return waited >= cap or (waited >= timeout and has_passed)
