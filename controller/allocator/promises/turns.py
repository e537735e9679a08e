"""Whose turn it is: a pod whose own volumes satisfy the sums nowhere finds room only where nothing else is pending.

Where pods come all the time, that never happens by itself. So one such pod at a time, once it has waited for long, gets
a turn: nothing new is promised for a while on the disks that it needs, and what is pending there gets placed meanwhile.
Between two turns everybody goes on for as long as a turn may last at least.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

TURN_SECONDS: Final = 30.0
PAUSE_SECONDS: Final = 30.0  # without anybody's turn
WIDE_PAUSE_SECONDS: Final = 300.0  # the same after a turn on several nodes, so that nobody closes a cluster for long
REST_SECONDS: Final = 600.0  # until the same pod may have another one
_NO_NODES: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True, slots=True)
class Turn:
    """Newcomers of no higher priority are promised nothing new on these nodes."""

    pod_uid: str
    priority: int
    nodes: frozenset[str]
    until: float


class Turns:
    """Times in monotonic seconds. Threads: none of its own; the allocator's lock guards it."""

    def __init__(self) -> None:
        self._turn: Turn | None = None
        self._next_at = -math.inf
        self._is_pausing = False
        self._rests: dict[str, float] = {}  # pod uid -> until when

    @property
    def current(self) -> Turn | None:
        return self._turn

    def is_free_for(self, pod_uid: str, now: float) -> bool:
        """Whether the pod may have a turn now."""
        return self._turn is None and now >= max(self._next_at, self._rests.get(pod_uid, -math.inf))

    def give(self, pod_uid: str, priority: int, nodes: frozenset[str], now: float) -> None:
        self._turn = Turn(pod_uid, priority, nodes, now + TURN_SECONDS)
        self._rests = {uid: until for uid, until in self._rests.items() if now < until}
        self._rests[pod_uid] = now + TURN_SECONDS + REST_SECONDS

    def end(self, pod_uid: str, now: float) -> bool:
        """The pod found room, or is gone; whether it was its turn."""
        if self._turn is None or self._turn.pod_uid != pod_uid:
            return False
        pause = PAUSE_SECONDS if len(self._turn.nodes) <= 1 else WIDE_PAUSE_SECONDS
        self._turn, self._next_at, self._is_pausing = None, now + pause, True
        return True

    def sweep(self, now: float) -> bool:
        """End what time ends: the turn, or the pause after it; whether it did."""
        if self._turn is not None and now >= self._turn.until:
            return self.end(self._turn.pod_uid, now)
        is_over = self._is_pausing and now >= self._next_at
        self._is_pausing = self._is_pausing and not is_over
        return is_over

    def closed_to(self, pod_uid: str, priority: int) -> frozenset[str]:
        """Nodes on which nothing new is promised to that pod."""
        turn = self._turn
        if turn is None or turn.pod_uid == pod_uid or turn.priority < priority:
            return _NO_NODES
        return turn.nodes
