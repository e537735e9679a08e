"""Calls of the leader's DiskScheduler service, bounded in time and in number, whoever leads at the moment.

A leader that is away or slow keeps each call for its whole time. Pods that are created meanwhile must not wait for
threads that wait for the leader, so only some calls are under way at a time. While the leader answers, further calls
wait for their turn; once it does not, they fail at once.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Protocol

import grpc

from controller.clock import Clock
from controller.errors import NotReadyError, SchedulerError
from controller.rpc import disk_scheduler_pb2 as pb
from controller.rpc.credentials import Current, ReloadingChannel
from controller.rpc.wire import HOLD_EXPANSION

ATTEMPT_SECONDS: Final = 1.5  # of one try: a connection may go to a former leader
FIRST_PAUSE_SECONDS: Final = 0.05
LONGEST_PAUSE_SECONDS: Final = 0.4
PATIENCE_SECONDS: Final = 1.6  # a call that takes this long has failed in its first try
LEAST_SECONDS: Final = 0.02  # a shorter try is not worth starting
_TRY_AGAIN: Final = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,  # no connection, or its other end does not lead
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.CANCELLED,
    }
)

log = logging.getLogger(__name__)


class LeaderAwayError(SchedulerError):
    """Nobody who leads has answered in time; the text says what was heard last."""


class LeaderFailedError(SchedulerError):
    """The leader answered that it failed. The text is for the log; the leader's own log has the reason."""


class CrowdedError(SchedulerError):
    """Too much is asked at once, so this call got no turn: here, or at the leader."""


class Leader(Protocol):
    def hold_expansion(self, request: pb.HoldExpansionRequest, seconds: float) -> pb.HoldExpansionReply:
        """LeaderAwayError: nobody who leads answered within `seconds`. LeaderFailedError: the leader is
        broken. CrowdedError: it has too much to read."""
        ...


class LeaderClient:
    """One connection to the leader, replaced when another process leads.

    Threads: any. Blocks: in `hold_expansion`, for its seconds. I/O: yes.
    """

    def __init__(self, address: str, name: str, current: Current, clock: Clock) -> None:
        """`address`: host and port. `name`: in the leader's certificate. `current`: what to call with."""
        self._clock = clock
        self._reloading = ReloadingChannel(address, name, current)
        self._stop = threading.Event()

    def stop(self) -> None:
        self._stop.set()
        self._reloading.close()

    def hold_expansion(self, request: pb.HoldExpansionRequest, seconds: float) -> pb.HoldExpansionReply:
        """The leader's answer. LeaderAwayError after `seconds`, or at once where nothing can be called with;
        LeaderFailedError and CrowdedError at once."""
        deadline = self._clock.now() + seconds
        pause, told = FIRST_PAUSE_SECONDS, ""
        while True:
            left = deadline - self._clock.now()
            try:
                return self._try(request, min(left, ATTEMPT_SECONDS))
            except NotReadyError as error:
                raise LeaderAwayError(str(error)) from error
            except grpc.RpcError as error:
                text = _text(error)
                if error.code() is grpc.StatusCode.ABORTED:
                    raise CrowdedError(text) from error
                if error.code() not in _TRY_AGAIN:
                    raise LeaderFailedError(text) from error
                log.debug("leader: %s", text)
                if error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
                    told = text  # says more than that the last, short try came to nothing
                if self._stop.wait(min(pause, max(0.0, deadline - self._clock.now()))):
                    raise LeaderAwayError("this process ends") from error
                if deadline - self._clock.now() < LEAST_SECONDS:
                    raise LeaderAwayError(told or text) from error
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    def _try(self, request: pb.HoldExpansionRequest, seconds: float) -> pb.HoldExpansionReply:
        with self._reloading.channel() as channel:
            call = channel.unary_unary(
                HOLD_EXPANSION,
                request_serializer=pb.HoldExpansionRequest.SerializeToString,
                response_deserializer=pb.HoldExpansionReply.FromString,
            )
            try:
                return call(request, timeout=seconds)
            except grpc.RpcError:
                self._reloading.drop(channel)  # the Service may lead to another leader by now
                raise


def _text(error: grpc.RpcError) -> str:
    code = error.code()
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return "it did not answer in time"
    details = error.details() or code.name
    return details if len(details) <= 120 else f"{details[:117]}..."


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
