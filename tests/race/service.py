"""The product's side of the DiskScheduler service in one process: the calls, what writes the record, and what keeps it.
With `driver.py` all that the machine asks of the product."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from typing import Any, Final

import grpc

from controller.allocator.allocator import Allocator
from controller.allocator.outcome import Mode
from controller.errors import NotLeaderError, SchedulerError
from controller.model.allocations import NodeRecord
from controller.record.keeper import RecordKeeper, SeenRecords
from controller.record.writer import RecordWriter
from controller.rpc import disk_scheduler_pb2 as pb
from controller.rpc.allocating import DiskAllocator
from controller.rpc.calls import Served, failure_of
from controller.rules.demand import Missing
from controller.settings import LiveSettings
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.clock import VirtualClock
from tests.race.record import RaceRecord

SECONDS: Final = 5.0  # that a caller waits
_REFUSALS: Final = (grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.NOT_FOUND)
_PAUSE_SECONDS: Final = 2.0  # between two tries of a write
Seen = Callable[[str], Mapping[str, Any]]  # all objects of a kind by name, as the process has seen them


@dataclass(frozen=True)
class Given:
    """Room on one disk, as an answer names it."""

    name: str
    node: str
    uuid: str
    size_bytes: int


@dataclass(frozen=True)
class Told:
    """What a caller heard. `is_answered` False: an error that says nothing of what became of it; else, without
    `given`, a refusal, for `reasons`."""

    is_answered: bool
    given: tuple[Given, ...] = ()
    is_new: bool = False
    reasons: str = ""

    def __str__(self) -> str:
        if not self.is_answered:
            return f"no answer: {self.reasons}"
        where = [f"{one.name} {one.size_bytes / 1024**3:g} GiB on {one.node}/{one.uuid}" for one in self.given]
        return f"{'given' if self.is_new else 'known'} {where}" if where else f"refused: {self.reasons}"


class _Checks:
    """Whether this process may answer."""

    mode = Mode.ACTIVE

    def __init__(self, term: Callable[[], int]) -> None:
        self._term = term

    def check_leading(self) -> None:
        self._term()

    def begin(self) -> int:
        return self._term()

    def check_term(self, term: int) -> None:
        if self._term() != term:
            raise NotLeaderError("the term has ended")

    def check_fresh(self) -> None:
        """Records are always fresh: the world delivers what is overdue."""


@dataclass(frozen=True)
class _Followed(SeenRecords):
    """Records as the watch shows them."""

    seen_of: Seen

    def in_nodes(self) -> Sequence[NodeRecord]:
        return ()

    def own(self) -> Sequence[NodeRecord]:
        return list(self.seen_of("record").values())

    def nodes(self) -> Collection[str]:
        return self.seen_of("node").keys()

    def of_node(self, node: str, *, in_node: bool = False) -> NodeRecord | None:
        del in_node
        found: NodeRecord | None = self.seen_of("record").get(node)
        return found


class Service:
    """`term` raises NotLeaderError once another process leads. `beforehand` happens after a decision, before its
    write; if it `is_overtaking`, once that write waits for its turn."""

    def __init__(
        self,
        clock: VirtualClock,
        allocator: Allocator,
        record: RaceRecord,
        term: Callable[[], int],
        seen: Seen,
        read: Callable[[str, str], bool],
        live: LiveSettings,
    ) -> None:
        self.beforehand: Callable[[], None] | None = None
        self.is_overtaking = False
        self._term = term
        allocations, followed, checks = allocator.allocations, _Followed(seen), _Checks(term)
        # Nothing is delivered while one thread waits for it; the seconds would only be the machine's.
        wait_known = allocations.known.wait_known

        def wait_no_longer(needed: Collection[Missing], seconds: float) -> bool:
            del seconds
            return wait_known(needed, 0.0)

        allocations.known.wait_known = wait_no_longer  # type: ignore[method-assign]
        writer = RecordWriter(
            record,
            allocator.record.of_nodes,
            checks.check_leading,
            clock,
            followed.of_node,
            allocator.record.written,
            lambda _seconds: clock.advance(_PAUSE_SECONDS),
        )
        self._interrupt(writer)

        def read_live(missing: Missing, _seconds: float) -> bool:
            return read(missing.kind, missing.name)

        self._keeper = keeper = RecordKeeper(
            FakeApiServer(),
            "longhorn-system",
            clock,
            allocator.record,
            followed,
            lambda: live,
            checks.check_leading,
            is_leading=self._leads,
            is_fresh=lambda: True,
        )
        keeper._writer, keeper._is_known, keeper._look_at = writer, True, inf
        self._calls = DiskAllocator(allocations, keeper.known, lambda: checks, read_live, clock)

    def _interrupt(self, writer: RecordWriter) -> None:
        """Has others act between a decision and its write."""
        commit, alone = writer.commit, writer._alone

        def wait_and_commit(nodes: Collection[str], deadline: float) -> None:
            if not self.is_overtaking:
                self._let_others_in()
            commit(nodes, deadline)

        @contextmanager
        def overtaken(*where: Any) -> Iterator[None]:
            self._let_others_in()
            with alone(*where):
                yield

        writer.commit = wait_and_commit  # type: ignore[method-assign]
        writer._alone = overtaken  # type: ignore[method-assign, assignment]

    def _let_others_in(self) -> None:
        beforehand, self.beforehand = self.beforehand, None
        if beforehand is not None:
            beforehand()

    def _leads(self) -> bool:
        try:
            return bool(self._term())
        except NotLeaderError:
            return False

    def changed(self, kind: str, key: str) -> None:
        """Tells the keeper that a record has changed."""
        if kind == "record":
            self._keeper.changed((key,))

    def keep(self) -> None:
        """One round of the keeper, which brings the record in line with what the leader knows."""
        self._keeper.run_once()

    # Calls

    def schedule_replica(self, volume: str, replica: str) -> Told:
        request = pb.ScheduleReplicaRequest(volume_name=volume, replica_name=replica)
        return _told(lambda: self._calls.schedule_replica(request, SECONDS))

    def reuse_failed_replica(self, volume: str) -> Told:
        request = pb.ReuseFailedReplicaRequest(volume_name=volume)
        return _told(lambda: self._calls.reuse_failed_replica(request, SECONDS))

    def expand_volume(self, volume: str, size_bytes: int) -> Told:
        request = pb.ExpandVolumeRequest(volume_name=volume, size_bytes=size_bytes)
        return _told(lambda: self._calls.expand_volume(request, SECONDS))

    def schedule_backing_image(self, name: str) -> Told:
        request = pb.ScheduleBackingImageRequest(backing_image_name=name)
        return _told(lambda: self._calls.schedule_backing_image(request, SECONDS))

    def deallocate_replica(self, name: str) -> Told:
        request = pb.DeallocateReplicaRequest(replica_name=name)
        return _told(lambda: self._calls.deallocate_replica(request, SECONDS))

    def deallocate_backing_image(self, name: str, disk_uuid: str) -> Told:
        request = pb.DeallocateBackingImageRequest(backing_image_name=name, disk_uuid=disk_uuid)
        return _told(lambda: self._calls.deallocate_backing_image(request, SECONDS))


def _told(call: Callable[[], Served]) -> Told:
    try:
        served = call()
    except SchedulerError as error:
        failure = failure_of(error)
        if failure is None:
            raise
        return Told(is_answered=failure.code in _REFUSALS, reasons=f"{failure.outcome}: {error}")
    if served.refusals is not None:
        why = "; ".join(f"{one.node} {one.message}" for one in served.refusals.refusals)
        return Told(is_answered=True, reasons=why or "no disk")
    reply = served.reply
    if hasattr(reply, "freed"):
        entries = reply.freed
    else:
        entries = reply.allocations if hasattr(reply, "allocations") else [reply.allocation]
    given = tuple(Given(one.name, one.node, one.disk_uuid, one.size_bytes) for one in entries)
    return Told(True, given, is_new=not getattr(reply, "already_allocated", False), reasons="nothing to do")
