"""Answers the calls of DiskScheduler that give places by name, and free them.

Each decides under the allocator's lock, has the record written, and then answers. If the write fails, the caller gets
an error; the decision stands, and the next call gets the same answer, unless the record is known to refuse it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Final, Protocol

from controller.allocator.by_name.allocate import Allocations
from controller.allocator.outcome import Allotment, LookFirstError
from controller.clock import Clock
from controller.errors import (
    MalformedRequestError,
    NotFoundError,
    NotReadyError,
    PreconditionError,
    TooManyReadsError,
)
from controller.model.allocations import Allocation, Purpose
from controller.rpc import disk_scheduler_pb2 as pb
from controller.rpc.calls import LIVE_READ_SECONDS, Checks, Served
from controller.rpc.wire import check_names, refusals_of
from controller.rules.demand import Missing

_GIVEN: Final = "allocated"
_BEFORE: Final = "already-allocated"
_REFUSED: Final = "no-room"
_FREED: Final = "freed"
_NOTHING: Final = "nothing-to-free"
WATCH_SECONDS: Final = 0.3  # for a watch to show an object, before the API server is asked
_ANSWER_SECONDS: Final = 0.1  # before the caller's deadline, left for the answer's way back


class Record(Protocol):
    """The durable record. `entries`: what is on record of a name.

    `commit` has the records of these nodes contain what the allocator has given by now. It raises NotReadyError if that
    is not known by `deadline`, in the clock's seconds, and RefusedWriteError if a record is not accepted."""

    @property
    def entries(self) -> Callable[[Purpose, str], list[Allocation]]: ...
    def commit(self, nodes: Collection[str], deadline: float) -> None: ...


class DiskAllocator:
    """Gives places while this process leads and `allocation-authority` is disk-scheduler.

    Threads: any. Blocks: for earlier decisions, the record, and live reads. I/O: the record, and live reads.
    """

    def __init__(
        self,
        allocations: Allocations,
        record: Callable[[], Record | None],
        checks: Callable[[], Checks],
        read: Callable[[Missing, float], bool],
        clock: Clock,
    ) -> None:
        """`record` returns None without one, and raises NotReadyError while that is unknown. `read`: a live read."""
        self._allocations, self._record, self._checks = allocations, record, checks
        self._read, self._clock = read, clock

    def calls(self) -> dict[str, Callable[[Any, float], Served]]:
        """The calls by name; each takes a request and the seconds for which its caller waits."""
        return {
            "ScheduleReplica": self.schedule_replica,
            "ReuseFailedReplica": self.reuse_failed_replica,
            "ExpandVolume": self.expand_volume,
            "DeallocateReplica": self.deallocate_replica,
            "ScheduleBackingImage": self.schedule_backing_image,
            "DeallocateBackingImage": self.deallocate_backing_image,
        }

    def schedule_replica(self, request: pb.ScheduleReplicaRequest, seconds: float) -> Served:
        check_names(request, "replica_name", "volume_name")
        given = self.place(request.volume_name, request.replica_name, seconds)
        return self._one(given, pb.ScheduleReplicaReply)

    def place(self, volume: str, replica: str, seconds: float) -> Allotment:
        """The disk given to the replica, on record by then; without allocations, why there is none."""
        deadline = self._clock.now() + seconds

        def place(*, is_looked_at: bool) -> Allotment:
            left, now = deadline - self._clock.now(), self._clock.now_utc()
            return self._allocations.place_replica(replica, left, now, volume, is_looked_at=is_looked_at)

        return self._given(self._looking(place, deadline), (("volume", volume), ("replica", replica)), deadline)

    def _looking(self, place: Callable[..., Allotment], deadline: float) -> Callable[[], Allotment]:
        """`place`, with a live read of what it has to know first."""

        def look_and_place() -> Allotment:
            try:
                return place(is_looked_at=False)
            except LookFirstError as error:
                for kind, name in error.what:
                    look = self._look_at if kind == "volume" else self._is_there
                    look(Missing(kind, "", name), deadline)
            return place(is_looked_at=True)

        return look_and_place

    def reuse_failed_replica(self, request: pb.ReuseFailedReplicaRequest, seconds: float) -> Served:
        check_names(request, "volume_name", optional=("hard_node_affinity",))
        name, affinity = request.volume_name, request.hard_node_affinity

        def reuse() -> Allotment:
            return self._allocations.reuse_replica(name, affinity, self._clock.now_utc())

        given = self._given(reuse, (("volume", name),), self._clock.now() + seconds)
        return self._one(given, pb.ScheduleReplicaReply)

    def expand_volume(self, request: pb.ExpandVolumeRequest, seconds: float) -> Served:
        check_names(request, "volume_name")
        if request.size_bytes <= 0:
            raise MalformedRequestError("size_bytes", f"is not positive: {request.size_bytes}")

        def grow() -> Allotment:
            return self._allocations.grow(request.volume_name, request.size_bytes, self._clock.now_utc())

        given = self._given(grow, (("volume", request.volume_name),), self._clock.now() + seconds)
        if given.obstacles:
            return _refused(given)
        entries, is_new = self._entries(given.allocations), given.is_new
        reply = pb.ExpandVolumeReply(allocations=entries, size_bytes=given.size_bytes, already_allocated=not is_new)
        return Served(reply, _GIVEN if is_new else _BEFORE)

    def deallocate_replica(self, request: pb.DeallocateReplicaRequest, seconds: float) -> Served:
        check_names(request, "replica_name")
        name, deadline = request.replica_name, self._clock.now() + seconds

        def release() -> Allotment:
            if self._allocations.known.is_shown_unplaced(name):
                self._is_there(Missing("replica", "", name), deadline)
            try:
                return self._allocations.release_replica(name)
            except PreconditionError:
                if self._is_there(Missing("replica", "", name), deadline):
                    raise
            return self._allocations.release_replica(name, is_gone=True)  # our watch lags

        freed = self._freed(release, Purpose.REPLICA, name, "", deadline)
        return Served(pb.DeallocateReplicaReply(freed=self._entries(freed)), _FREED if freed else _NOTHING)

    def schedule_backing_image(self, request: pb.ScheduleBackingImageRequest, seconds: float) -> Served:
        check_names(request, "backing_image_name")
        if request.size_bytes < 0:
            raise MalformedRequestError("size_bytes", f"is negative: {request.size_bytes}")
        name, deadline = request.backing_image_name, self._clock.now() + seconds

        def place(*, is_looked_at: bool) -> Allotment:
            return self._allocations.place_image(name, request.size_bytes, is_looked_at=is_looked_at)

        given = self._given(self._looking(place, deadline), (("backing_image", name),), deadline)
        return self._one(given, pb.ScheduleBackingImageReply)

    def deallocate_backing_image(self, request: pb.DeallocateBackingImageRequest, seconds: float) -> Served:
        check_names(request, "backing_image_name", "disk_uuid")
        name, deadline = request.backing_image_name, self._clock.now() + seconds

        def release() -> Allotment:
            if self._allocations.known.is_shown_without_copy(name, request.disk_uuid):
                self._is_there(Missing("backing_image", "", name), deadline)
            try:
                return self._allocations.release_image(name, request.disk_uuid)
            except PreconditionError:
                is_there = self._is_there(Missing("backing_image", "", name), deadline)
            return self._allocations.release_image(name, request.disk_uuid, is_gone=not is_there)

        freed = self._freed(release, Purpose.BACKING_IMAGE, name, request.disk_uuid, deadline)
        reply = pb.DeallocateBackingImageReply(freed=self._entries(freed))
        return Served(reply, _FREED if freed else _NOTHING)

    # Steps

    def _given(self, decide: Callable[[], Allotment], needed: Iterable[tuple[str, str]], deadline: float) -> Allotment:
        """Decide, have the record written, and return the decision. `needed`: objects that our stores have to know."""
        checks = self._checks()
        term, switches = checks.begin(), self._allocations.switches
        checks.check_fresh()
        record = self._record()
        if record is None:
            raise PreconditionError("this cluster has no record of allocations: enable it first")
        try:
            allotment = self._decided(decide, deadline)
        except NotFoundError:
            self._make_known([Missing(kind, "", name) for kind, name in needed], deadline)
            allotment = self._decided(decide, deadline)
        if allotment.nodes:
            try:
                checks.check_term(term)
                record.commit(allotment.nodes, deadline - _ANSWER_SECONDS)
            except BaseException as error:
                self._allocations.failed(allotment, error)
                raise
        checks.check_term(term)
        self._allocations.check_decides(switches)
        self._allocations.told(allotment)
        return allotment

    def _freed(
        self, release: Callable[[], Allotment], purpose: Purpose, name: str, disk_uuid: str, deadline: float
    ) -> tuple[Allocation, ...]:
        """The allocations that are freed, and not on record any more. `disk_uuid` "": on any disk."""

        def freed() -> Allotment:
            released, record = release(), self._record()
            there = record.entries(purpose, name) if record is not None else []
            mine = [one for one in there if disk_uuid in ("", one.disk_uuid)]
            entries = tuple({(one.node, one.key): one for one in (*mine, *released.freed)}.values())
            return Allotment(freed=entries, nodes=released.nodes.union(one.node for one in entries))

        return self._given(freed, (), deadline).freed

    def _decided(self, decide: Callable[[], Allotment], deadline: float) -> Allotment:
        """Decide, if there is time for the write: a decision counts even if it could not be written."""
        if deadline - self._clock.now() <= _ANSWER_SECONDS:
            raise NotReadyError("too little time is left to decide and write; try again with a later deadline")
        return decide()

    def _one(self, given: Allotment, reply: Any) -> Served:
        if not given.allocations:
            return _refused(given)
        (entry,) = self._entries(given.allocations)
        made = reply(allocation=entry, already_allocated=not given.is_new)
        return Served(made, _GIVEN if given.is_new else _BEFORE)

    def _entries(self, allocations: Sequence[Allocation]) -> list[pb.Allocation]:
        disks = self._allocations.known.disk_names(allocations)
        return [
            pb.Allocation(name=one.name, node=one.node, disk=disk, disk_uuid=one.disk_uuid, size_bytes=one.size_bytes)
            for one, disk in zip(allocations, disks, strict=True)
        ]

    def _make_known(self, needed: Collection[Missing], deadline: float) -> None:
        """Wait until our stores know these objects, or read them: what was made a moment before the call exists before
        the watch shows it, mostly for milliseconds only."""

        def is_known(seconds: float) -> bool:
            return self._allocations.known.wait_known(needed, min(seconds, max(0.0, deadline - self._clock.now())))

        if is_known(WATCH_SECONDS):
            return
        try:
            for missing in needed:
                self._is_there(missing, deadline)
        except NotReadyError:
            if not is_known(LIVE_READ_SECONDS):
                raise

    def _is_there(self, missing: Missing, deadline: float) -> bool:
        """Whether the object exists, by a live read. Raises NotReadyError after too many of those, since their usual
        code, ABORTED, means something else to these callers."""
        try:
            return self._read(missing, self._seconds_to_read(deadline))
        except TooManyReadsError as error:
            raise NotReadyError(f"the {missing.kind} is not known yet: {error}") from error

    def _look_at(self, missing: Missing, deadline: float) -> None:
        """Read the object, since our watch may lag behind what the caller has just done. After too many reads the
        decision goes by what is known. (Not where something would be freed by it: it may be in use.)"""
        try:
            self._read(missing, self._seconds_to_read(deadline))
        except TooManyReadsError:
            return

    def _seconds_to_read(self, deadline: float) -> float:
        left = min(LIVE_READ_SECONDS, deadline - self._clock.now())
        if left <= 0:
            raise NotReadyError("missing objects could not be read in time")
        return left


def _refused(given: Allotment) -> Served:
    return Served(None, _REFUSED, refusals_of(given.obstacles, given.size_bytes, given.more))
