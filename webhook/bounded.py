"""Calls of the leader take some of the server's threads, never all of them.

A leader that is away or slow keeps each call for its whole time. Pods that are created meanwhile must not wait for
threads that wait for the leader, so only some calls are under way at a time. While the leader answers, further calls
wait for their turn; once it does not, they fail at once.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from controller.clock import Clock
from controller.rpc import disk_scheduler_pb2 as pb
from webhook.leader import CrowdedError, Leader, LeaderAwayError

PATIENCE_SECONDS: Final = 1.6  # a call that takes this long has failed in its first try


class BoundedLeader:
    """The leader, with at most `most` calls at a time.

    Threads: any. Blocks: for the call's seconds at most, and before it for PATIENCE_SECONDS. I/O: the call's.
    """

    def __init__(self, leader: Leader, most: int, clock: Clock) -> None:
        self._leader, self._most, self._clock = leader, most, clock
        self._changed = threading.Condition()  # guards the fields below
        self._begun: list[float] = []  # when each call that is under way began, the oldest first
        self._is_away = False  # what the last call that ended found

    def hold_expansion(self, request: pb.HoldExpansionRequest, seconds: float) -> pb.HoldExpansionReply:
        """As the leader's own, within `seconds` in all. CrowdedError where no turn comes."""
        asked_at = self._clock.now()
        with self._turn():
            return self._leader.hold_expansion(request, seconds - (self._clock.now() - asked_at))

    @contextmanager
    def _turn(self) -> Iterator[None]:
        begun = self._begin()
        is_away = False
        try:
            yield
        except LeaderAwayError:
            is_away = True
            raise
        finally:
            with self._changed:
                self._begun.remove(begun)
                self._is_away = is_away
                self._changed.notify_all()

    def _begin(self) -> float:
        with self._changed:
            patient_until = self._clock.now() + PATIENCE_SECONDS
            while len(self._begun) >= self._most:
                left = min(self._begun[0] + PATIENCE_SECONDS, patient_until) - self._clock.now()
                if self._is_away or left <= 0:
                    raise CrowdedError(f"{len(self._begun)} expansions already wait for the leader")
                self._changed.wait(left)
            now = self._clock.now()
            self._begun.append(now)
            return now
