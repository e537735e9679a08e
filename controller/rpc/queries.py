"""The calls of the DiskScheduler service that only ask: nothing is held for them, and nothing is changed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, Final

import grpc

from controller.allocator.judge.joined import FoundDisk, FoundDisks
from controller.allocator.verbs.find import DiskQueries, DiskQuestion
from controller.clock import Clock
from controller.errors import NotFoundError, SchedulerError
from controller.rpc import disk_scheduler_pb2 as pb
from controller.rpc.credentials import check_named
from controller.rpc.failures import INTERNAL, failure_of
from controller.rpc.service import LIVE_READ_SECONDS, Checks, Observer
from controller.rpc.wire import checked_question
from controller.rules.demand import Missing
from controller.rules.reasons import Reason

CALL: Final = "FindDiskCandidates"
MOST_SECONDS: Final = 5.0  # that a question waits for others, whatever its caller's patience

log = logging.getLogger(__name__)


class DiskList:
    """Answers while this process leads.

    Threads: any. Blocks: for a live read of a volume that the stores lack, and for questions before. I/O: that read.
    """

    def __init__(
        self,
        disks: DiskQueries,
        checks: Callable[[], Checks],
        read: Callable[[Missing, float], bool],
        clock: Clock,
        observer: Observer,
    ) -> None:
        """`read`: a live read, as `DiskScheduler.read`."""
        self._disks, self._checks, self._read = disks, checks, read
        self._clock, self._observer = clock, observer

    def handlers(self, clients: Collection[str]) -> dict[str, grpc.RpcMethodHandler[Any, Any]]:
        """The calls by their names. `clients`: who may make them, by the names in their certificates."""
        find = grpc.unary_unary_rpc_method_handler(
            partial(self._call, clients),
            request_deserializer=pb.FindDiskCandidatesRequest.FromString,
            response_serializer=pb.DiskListReply.SerializeToString,
        )
        return {CALL: find}

    def find(self, request: pb.FindDiskCandidatesRequest, seconds: float = MOST_SECONDS) -> pb.DiskListReply:
        """Raises NotReadyError when this process cannot answer within `seconds`, MalformedRequestError for a request
        that is none, NotFoundError when there is no such volume or replica, TooManyReadsError when it would have to
        read and must not."""
        deadline = self._clock.now() + seconds
        name = checked_question(request).volume_name
        checks = self._checks()
        term = checks.begin()
        checks.check_fresh()
        if not self._disks.knows(name) and not self._read(Missing("volume", "", name), min(LIVE_READ_SECONDS, seconds)):
            raise NotFoundError(f"there is no Longhorn volume {name!r}")
        question = DiskQuestion(name, request.replica_name, request.hard_node_affinity)
        found = self._disks.find(question, deadline - self._clock.now(), self._clock.now_utc())
        checks.check_term(term)
        return _reply(found)

    def _call(self, clients: Collection[str], request: Any, context: grpc.ServicerContext) -> pb.DiskListReply:
        started, outcome = self._clock.now(), INTERNAL
        is_known = False
        try:
            check_named(context.auth_context(), clients, CALL)  # type: ignore[arg-type]  # the stubs lack the lists
            is_known = True
            reply = self.find(request, min(context.time_remaining(), MOST_SECONDS))
            outcome = "found" if reply.candidates else "none-found"
            return reply
        except SchedulerError as error:
            failure = failure_of(error)
            if failure is None:
                raise
            outcome = failure.outcome
            context.abort(failure.code, str(error))
            raise
        finally:
            seconds = self._clock.now() - started
            self._observer.called(CALL, outcome, seconds)
            # Of a stranger's request nothing is logged: he wrote it.
            about = f"volume={request.volume_name!r} replica={request.replica_name!r}" if is_known else "by a stranger"
            log.info("disks %s outcome=%s ms=%.1f", about, outcome, seconds * 1000)


def _reply(found: FoundDisks) -> pb.DiskListReply:
    return pb.DiskListReply(
        size_bytes=found.size_bytes,
        candidates=[_candidate(entry) for entry in found.disks],
        preferred=None if found.preferred is None else _candidate(found.preferred),
        refusals=[
            pb.DiskRefusal(
                node=entry.node,
                disk=entry.disk,
                missing_bytes=entry.missing_bytes,
                reason=REASONS.get(entry.rejection.reason),
                message=entry.rejection.message,
            )
            for entry in found.obstacles
        ],
        tried="" if found.tried is None else str(found.tried),
    )


def _candidate(entry: FoundDisk) -> pb.DiskCandidate:
    return pb.DiskCandidate(
        node=entry.node,
        disk=entry.disk,
        disk_uuid=entry.uuid,
        free_bytes=entry.free_bytes,
        promised_bytes=entry.promised_bytes,
    )


# The others say nothing about one replica.
REASONS: Final[dict[Reason, pb.DiskRefusal.Reason]] = {
    reason: getattr(pb.DiskRefusal, reason.name) for reason in Reason if hasattr(pb.DiskRefusal, reason.name)
}
