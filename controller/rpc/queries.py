"""The calls of the DiskScheduler service that only ask: nothing is held for them, and nothing is changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import grpc

from controller.allocator.by_name.beside import FoundDisk, FoundDisks
from controller.allocator.by_name.find import DiskQueries, DiskQuestion
from controller.clock import Clock
from controller.errors import NotFoundError, NotReadyError, TooManyReadsError
from controller.rpc import disk_scheduler_pb2 as pb
from controller.rpc.calls import MOST_SECONDS, NamedCalls, Served, refusal_of
from controller.rpc.service import LIVE_READ_SECONDS, Checks
from controller.rpc.wire import checked_question, int64
from controller.rules.demand import Missing

CALL: Final = "FindDiskCandidates"


class DiskList:
    """Answers while this process leads.

    Threads: any. Blocks: for a live read of a volume that the stores lack, and for questions before. I/O: that read.
    """

    def __init__(
        self, disks: DiskQueries, checks: Callable[[], Checks], read: Callable[[Missing, float], bool], clock: Clock
    ) -> None:
        """`read`: a live read, as `BoundedLiveReads.read`."""
        self._disks, self._checks, self._read, self._clock = disks, checks, read, clock

    def handlers(self, calls: NamedCalls) -> dict[str, grpc.RpcMethodHandler[Any, Any]]:
        """The calls by their names."""
        return {CALL: calls.handler(CALL, pb.FindDiskCandidatesRequest, pb.DiskListReply, self._answer)}

    def _answer(self, request: pb.FindDiskCandidatesRequest, seconds: float) -> Served:
        reply = self.find(request, seconds)
        return Served(reply, "found" if reply.candidates else "none-found")

    def find(self, request: pb.FindDiskCandidatesRequest, seconds: float = MOST_SECONDS) -> pb.DiskListReply:
        """Raises NotReadyError when this process cannot answer within `seconds`, MalformedRequestError for a malformed
        request, NotFoundError when there is no such volume or replica."""
        deadline = self._clock.now() + seconds
        name = checked_question(request).volume_name
        checks = self._checks()
        term = checks.begin()
        checks.check_fresh()
        if not self._disks.knows(name) and not self._is_there(name, min(LIVE_READ_SECONDS, seconds)):
            raise NotFoundError(f"there is no Longhorn volume {name!r}")
        question = DiskQuestion(name, request.replica_name, request.hard_node_affinity)
        found = self._disks.find(question, deadline - self._clock.now(), self._clock.now_utc())
        checks.check_term(term)
        return _reply(found)

    def _is_there(self, volume: str, seconds: float) -> bool:
        try:
            return self._read(Missing("volume", "", volume), seconds)
        except TooManyReadsError as error:  # ABORTED means something else to these callers
            raise NotReadyError(f"the volume is not known yet: {error}") from error


def _reply(found: FoundDisks) -> pb.DiskListReply:
    return pb.DiskListReply(
        size_bytes=found.size_bytes,
        candidates=[_candidate(entry) for entry in found.disks],
        preferred=None if found.preferred is None else _candidate(found.preferred),
        refusals=[refusal_of(entry) for entry in found.obstacles],
        tried="" if found.tried is None else str(found.tried),
    )


def _candidate(entry: FoundDisk) -> pb.DiskCandidate:
    return pb.DiskCandidate(
        node=entry.node,
        disk=entry.disk,
        disk_uuid=entry.uuid,
        free_bytes=int64(entry.free_bytes),
        promised_bytes=int64(entry.promised_bytes),
    )
