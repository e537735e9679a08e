"""The common part of all calls about disks: who may make them, how long they take, and how failures are told."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import grpc

from controller.allocator.outcome import Obstacle
from controller.clock import Clock
from controller.errors import SchedulerError
from controller.rpc import disk_scheduler_pb2 as pb
from controller.rpc.credentials import check_named
from controller.rpc.failures import INTERNAL, failure_of
from controller.rpc.service import Observer
from controller.rpc.wire import REFUSALS_KEY, int64
from controller.rules.reasons import Reason

MOST_SECONDS: Final = 5.0  # that a call waits for others, whatever its caller's patience
MOST_REFUSALS: Final = 20  # that are told with a refusal: metadata has to stay below 8 KiB
_MOST_CHARACTERS: Final = 200  # of a refusal's text there

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Served:
    """A reply, and what the metrics call it; `refusals` instead of a reply: no disk takes it."""

    reply: Any
    outcome: str
    refusals: pb.DiskRefusals | None = None


class NamedCalls:
    """Calls of clients whose certificates have one of the names in `clients`. Threads: any."""

    def __init__(self, clients: Collection[str], clock: Clock, observer: Observer) -> None:
        self._clients, self._clock, self._observer = clients, clock, observer

    def handler(
        self, call: str, request: Any, reply: Any, answer: Callable[[Any, float], Served]
    ) -> grpc.RpcMethodHandler[Any, Any]:
        """`answer` gets a request and the seconds that its caller waits."""
        return grpc.unary_unary_rpc_method_handler(
            partial(self._serve, call, answer),
            request_deserializer=request.FromString,
            response_serializer=reply.SerializeToString,
        )

    def _serve(
        self, call: str, answer: Callable[[Any, float], Served], request: Any, context: grpc.ServicerContext
    ) -> Any:
        started, outcome = self._clock.now(), INTERNAL
        about = "by an unauthorized client"  # nothing of such a request is logged
        try:
            check_named(context.auth_context(), self._clients, call)  # type: ignore[arg-type]  # the stubs lack the lists
            about = " ".join(f"{field.name}={value!r}" for field, value in request.ListFields())
            found = answer(request, min(context.time_remaining(), MOST_SECONDS))
            outcome = found.outcome
            if found.refusals is not None:
                context.set_trailing_metadata(((REFUSALS_KEY, found.refusals.SerializeToString()),))
                code, words = grpc.StatusCode.RESOURCE_EXHAUSTED, _sentence(call, found.refusals)
                if any(one.reason in _NOT_OF_ROOM for one in found.refusals.refusals):
                    code, outcome = grpc.StatusCode.FAILED_PRECONDITION, "precondition"
                context.abort(code, words)
            return found.reply
        except SchedulerError as error:
            failure = failure_of(error)
            if failure is None:
                raise
            outcome = failure.outcome
            context.abort(failure.code, str(error))
            raise
        finally:
            seconds = self._clock.now() - started
            self._observer.called(call, outcome, seconds)
            log.info("%s %s outcome=%s ms=%.1f", call, about, outcome, seconds * 1000)


def refusal_of(entry: Obstacle) -> pb.DiskRefusal:
    return pb.DiskRefusal(
        node=entry.node,
        disk=entry.disk,
        missing_bytes=int64(entry.missing_bytes),
        reason=REASONS[entry.rejection.reason],
        message=entry.rejection.message,
    )


def refusals_of(obstacles: Sequence[Obstacle], size_bytes: int, more: int = 0) -> pb.DiskRefusals:
    """The nearest ones, short enough for metadata. `more`: how many obstacles there are beside those."""
    nearest = sorted(obstacles, key=lambda one: (not one.missing_bytes, one.missing_bytes, one.node, one.disk))
    found = pb.DiskRefusals(size_bytes=int64(size_bytes), more=more + max(0, len(nearest) - MOST_REFUSALS))
    for entry in nearest[:MOST_REFUSALS]:
        shown = refusal_of(entry)
        if len(shown.message) > _MOST_CHARACTERS:
            shown.message = shown.message[: _MOST_CHARACTERS - 3] + "..."
        found.refusals.append(shown)
    return found


def _sentence(call: str, refusals: pb.DiskRefusals) -> str:
    if not refusals.refusals:
        is_reuse = call == "ReuseFailedReplica"
        return "the volume has no failed replica that could come back" if is_reuse else "there is no disk"
    first = refusals.refusals[0]
    others = len(refusals.refusals) - 1 + refusals.more
    where = " ".join(part for part in (first.node, first.message) if part)
    if first.reason in _STATES:
        return where
    return f"{_IN_VAIN.get(call, 'no disk takes it')}: {where}" + (f"; {others} more" if others else "")


_IN_VAIN: Final = {
    "ReuseFailedReplica": "no failed replica comes back",
    "ExpandVolume": "the volume cannot become that large",
}


REASONS: Final[dict[Reason, pb.DiskRefusal.Reason]] = {
    reason: getattr(pb.DiskRefusal, reason.name) for reason in Reason
}
# Of the volume or replica itself: room elsewhere would not help.
_STATES: Final = frozenset(
    REASONS[reason]
    for reason in (
        Reason.BACKING_IMAGE_NOT_FOUND,
        Reason.ALREADY_SCHEDULED,
        Reason.UNUSED_FAILED_REPLICA,
        Reason.DEGRADED_SINCE_UNKNOWN,
        Reason.ENGINE_NOT_EXPANDABLE,
        Reason.CLONE_FAILED,
    )
)
# Nobody knows what room there is where a record cannot be read.
_NOT_OF_ROOM: Final = _STATES | {pb.DiskRefusal.RECORD_UNWRITABLE}
