"""Answers HoldExpansion and FindDiskCandidates: the calls of DiskScheduler that put nothing on record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

import grpc

from controller.allocator.by_name.beside import FoundDisk
from controller.allocator.by_name.find import DiskQueries, DiskQuestion
from controller.allocator.outcome import Mode
from controller.allocator.verbs.grow import Caller, Expansions, GrowthOutcome, GrowthRequest, GrowthVerdict
from controller.clock import Clock
from controller.errors import MalformedRequestError, NotFoundError, NotReadyError, NotSyncedError, TooManyReadsError
from controller.model.quantity import bytes_text
from controller.rpc import disk_scheduler_pb2 as pb
from controller.rpc.calls import LIVE_READ_SECONDS, BoundedLiveReads, Checks, Served, seconds_left
from controller.rpc.wire import check_names, int64, refusal_of
from controller.rules.demand import Missing
from controller.views.decisions import DecisionDetails, NoteDecision, log_decision

_MOST_READS: Final = 3


class HoldExpansion:
    """Answers whether a volume may grow, and holds room for it, while this process leads.

    Threads: any. Blocks: for live reads of what the stores lack (LIVE_READ_SECONDS). I/O: those reads.
    """

    def __init__(
        self,
        expansions: Expansions,
        checks: Callable[[], Checks],
        reads: BoundedLiveReads,
        clock: Clock,
        note: NoteDecision = log_decision,
    ) -> None:
        self._expansions, self._checks, self._reads, self._clock = expansions, checks, reads, clock
        self._note = note

    def __call__(self, request: pb.HoldExpansionRequest, context: grpc.ServicerContext) -> Served:
        """Nothing is decided or held for a caller that has left. Raises NotReadyError if this process cannot answer,
        MalformedRequestError for a malformed request, TooManyReadsError if it would have to read too much."""
        caller = Caller()
        if not context.add_callback(caller.leave):
            caller.leave()
        began, growth = self._clock.now(), _growth(request)
        outcome = self._hold(growth, caller)
        is_noted = not growth.is_dry_run and outcome.verdict is not GrowthVerdict.NOT_CHECKED
        if is_noted:
            self._note_growth(growth, outcome, (self._clock.now() - began) * 1000)
        told = "dry-run" if request.dry_run else str(outcome.verdict)
        return Served(_growth_reply(outcome), told, is_noted=is_noted)

    def _note_growth(self, growth: GrowthRequest, outcome: GrowthOutcome, milliseconds: float) -> None:
        claim = f"{growth.claim_namespace}/{growth.claim_name}"
        about = f"PersistentVolumeClaim {claim}" if growth.claim_name else f"Volume {growth.volume}"
        text = f"volume {outcome.volume or growth.volume} to {bytes_text(outcome.size_bytes or growth.size_bytes)}"
        problems = "; ".join(entry.rejection.message for entry in outcome.obstacles)
        reasons = Counter(str(entry.rejection.reason) for entry in outcome.obstacles)
        text = f"{text}: {problems}" if problems else text
        facts = {"volume": outcome.volume or growth.volume, "size_bytes": outcome.size_bytes or growth.size_bytes}
        told: DecisionDetails = {"reasons": reasons, "text": text, "milliseconds": milliseconds, "facts": facts}
        self._note("growth", about, outcome.verdict, **told)

    def _hold(self, growth: GrowthRequest, caller: Caller) -> GrowthOutcome:
        checks = self._checks()
        checks.check_leading()
        if checks.mode in (Mode.BYPASS, Mode.CLOSED):
            checks.check_leading()
            return GrowthOutcome(GrowthVerdict.NOT_CHECKED)
        term = checks.begin()
        checks.check_fresh()
        self._read_missing(growth)
        outcome = self._expansions.hold(growth, self._clock.now_utc(), caller)
        # If this fails, the hold stays: the growth may have been admitted meanwhile, and the hold ends soon.
        checks.check_term(term)
        return outcome

    def _read_missing(self, growth: GrowthRequest) -> None:
        """Read objects that the answer needs and our stores lack, until there are none, or one does not exist. Raises
        NotSyncedError if that takes too long, TooManyReadsError."""
        deadline = self._clock.now() + LIVE_READ_SECONDS
        for _ in range(_MOST_READS):
            missing = self._expansions.missing(growth)
            left = deadline - self._clock.now()
            if missing is None:
                return
            if left <= 0:
                break
            if not self._reads.read(missing, left):
                return
        raise NotSyncedError("the volume could not be read in time")


class FindDiskCandidates:
    """Answers which disks would take a replica, while this process leads.

    Threads: any. Blocks: for a live read of a volume that the stores lack, and for earlier questions. I/O: that read.
    """

    def __init__(self, disks: DiskQueries, checks: Callable[[], Checks], reads: BoundedLiveReads, clock: Clock) -> None:
        self._disks, self._checks, self._reads, self._clock = disks, checks, reads, clock

    def __call__(self, request: pb.FindDiskCandidatesRequest, context: grpc.ServicerContext) -> Served:
        """Raises NotReadyError if this process cannot answer in time, MalformedRequestError for a malformed request,
        NotFoundError if there is no such volume or replica."""
        seconds = seconds_left(context)
        deadline = self._clock.now() + seconds
        question = _question(request)
        checks = self._checks()
        term = checks.begin()
        checks.check_fresh()
        if not self._disks.knows(question.volume) and not self._is_there(
            question.volume, min(LIVE_READ_SECONDS, seconds)
        ):
            raise NotFoundError(f"there is no Longhorn volume {question.volume!r}")
        found = self._disks.find(question, deadline - self._clock.now(), self._clock.now_utc())
        checks.check_term(term)
        reply = pb.DiskListReply(
            size_bytes=found.size_bytes,
            candidates=[_candidate(entry) for entry in found.disks],
            preferred=None if found.preferred is None else _candidate(found.preferred),
            refusals=[refusal_of(entry) for entry in found.obstacles],
            tried="" if found.tried is None else str(found.tried),
        )
        return Served(reply, "found" if reply.candidates else "none-found")

    def _is_there(self, volume: str, seconds: float) -> bool:
        try:
            return self._reads.read(Missing("volume", "", volume), seconds)
        except TooManyReadsError as error:  # its code, ABORTED, means something else to these callers
            raise NotReadyError(f"the volume is not known yet: {error}") from error


def _growth(request: pb.HoldExpansionRequest) -> GrowthRequest:
    """The request's values. MalformedRequestError names the first field that is wrong."""
    check_names(request, "volume_name", optional=("claim_namespace", "claim_name"))
    if bool(request.claim_name) != bool(request.claim_namespace):
        raise MalformedRequestError("claim_name", "needs claim_namespace beside it, and the other way round")
    if request.size_bytes <= 0:
        raise MalformedRequestError("size_bytes", f"is not positive: {request.size_bytes}")
    return GrowthRequest(
        volume=request.volume_name,
        size_bytes=request.size_bytes,
        claim_namespace=request.claim_namespace,
        claim_name=request.claim_name,
        is_dry_run=request.dry_run,
    )


def _growth_reply(outcome: GrowthOutcome) -> pb.HoldExpansionReply:
    return pb.HoldExpansionReply(
        verdict=outcome.verdict.name,
        volume_name=outcome.volume,
        size_bytes=int64(outcome.size_bytes),
        largest_bytes=int64(outcome.largest_bytes),
        more_may_fit=not outcome.is_largest,
        problems=[
            pb.ExpansionProblem(
                node=entry.node,
                disk=entry.disk,
                missing_bytes=int64(entry.missing_bytes),
                reason=str(entry.rejection.reason),
                message=entry.rejection.message,
            )
            for entry in outcome.obstacles
        ],
    )


def _question(request: pb.FindDiskCandidatesRequest) -> DiskQuestion:
    """The request's values. MalformedRequestError names the first field that is wrong."""
    check_names(request, "volume_name", optional=("replica_name", "hard_node_affinity"))
    if request.replica_name and request.hard_node_affinity:
        raise MalformedRequestError("hard_node_affinity", "is for a further replica; one that exists has its own")
    return DiskQuestion(request.volume_name, request.replica_name, request.hard_node_affinity)


def _candidate(entry: FoundDisk) -> pb.DiskCandidate:
    return pb.DiskCandidate(
        node=entry.node,
        disk=entry.disk,
        disk_uuid=entry.uuid,
        free_bytes=int64(entry.free_bytes),
        promised_bytes=int64(entry.promised_bytes),
    )
