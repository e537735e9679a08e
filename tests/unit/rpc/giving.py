"""A leader that gives room by name in a cluster in memory, with its record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Self

from prometheus_client import CollectorRegistry

from controller.errors import ClusterError, NotSyncedError
from controller.follow.kinds import FOLLOWED
from controller.follow.live import LiveKind, LiveReader
from controller.kube.resources import LONGHORN_BACKING_IMAGES, LONGHORN_NODES, Resource
from controller.record.backends import NodeDiskAllocationBackend
from controller.record.build import build_record
from controller.record.keeper import KeptRecord
from controller.record.writer import RecordWriter
from controller.rpc import disk_scheduler_pb2 as pb
from controller.rpc.allocating import DiskAllocator
from controller.rpc.calls import Served
from controller.rules.demand import Missing
from controller.settings import DISK_SCHEDULER, LiveSettings
from tests.fakes.builders import GIB
from tests.unit.placement.stage import NAMESPACE, InformedLeader, ReplicaCell

BY_RECORD = LiveSettings(enabled=True, allocation_authority=DISK_SCHEDULER)
SECONDS = 5.0


def _look(reader: LiveReader, missing: Missing, seconds: float) -> bool:
    """A live read, however many there are at once."""
    try:
        return reader.refresh(missing.kind, missing.namespace, missing.name, seconds)
    except ClusterError as error:
        raise NotSyncedError(str(error)) from error


class GivingLeader(InformedLeader):
    """Who asks for it by name is given room, and that is put on record. It begins with what is on record."""

    def __init__(self, cell: ReplicaCell, *, has_predecessor: bool = False) -> None:
        super().__init__(cell, BY_RECORD)
        allocator, gate = self.cluster.allocator, self.checks
        allocations = allocator.allocations
        self.keeper, _ = build_record(
            cell.api,
            NAMESPACE,
            cell.clock,
            gate,
            self.stores,
            CollectorRegistry(),
            allocator.record,
            settings=lambda: self.live,
            is_fresh=lambda: True,
        )
        self.writer = RecordWriter(
            NodeDiskAllocationBackend(cell.api, NAMESPACE),
            allocator.record.of_nodes,
            gate.check,
            cell.clock,
            lambda node: self.stores["record"].get(f"{NAMESPACE}/{node}"),
            allocator.record.written,
            cell.clock.advance,
        )
        kinds = {kind.name: LiveKind(kind, partial(self._read, kind.resource), None, NAMESPACE) for kind in FOLLOWED}
        self.giving = DiskAllocator(
            allocations,
            lambda: KeptRecord(self.writer, self.keeper.entries, self.keeper.changed),
            lambda: self.checks,
            partial(_look, LiveReader(kinds, allocator)),
            cell.clock,
        )
        self.begin(has_predecessor=has_predecessor)

    def _read(self, resource: Resource, namespace: str, name: str, _seconds: float) -> Mapping[str, Any]:
        return self.cell.api.get(resource, namespace, name)

    def begin(self, *, has_predecessor: bool = True) -> Self:
        """A term, once its informers show all."""
        self.end()
        self.see()
        self.cluster.allocator.begin_term(has_predecessor=has_predecessor, record=self.keeper.load())
        self.checks.term, self.checks.is_leading = self.checks.term + 1, True
        return self

    def end(self) -> None:
        self.checks.is_leading = False
        self.cluster.allocator.end_term()

    def decide_by(self, authority: str) -> None:
        allocator = self.cluster.allocator
        self.live = replace(self.live, allocation_authority=authority)
        allocator.configure(self.live, allocator._world.settings)

    def keep(self) -> Self:
        """What it does every few seconds: what is on record becomes what is to be there."""
        for node in self.stores["node"].values():
            self.writer.write(node.name, self.cell.clock.now() + SECONDS)
        return self.see()

    def let_growths_end(self) -> Self:
        """Those that nothing shows after a minute, as the sweeper's live reads say."""
        for _ in range(2):
            self.cell.clock.advance(60)
            for due in self.cluster.allocator.due():
                self.cluster.allocator.expire(due)
        return self

    # Calls

    def place(self, replica: str) -> str:
        """The node that it is told to go to; "" where none has room."""
        given = self.giving.place(replica.rpartition("-r-")[0], replica, SECONDS)
        return given.allocations[0].node if given.allocations else ""

    def free(self, replica: str) -> int:
        """How many places are free by that."""
        served = self.giving.deallocate_replica(pb.DeallocateReplicaRequest(replica_name=replica), SECONDS)
        return len(served.reply.freed)

    def expand(self, volume: str, gib: int) -> Served:
        return self.giving.expand_volume(pb.ExpandVolumeRequest(volume_name=volume, size_bytes=gib * GIB), SECONDS)

    def reuse(self, volume: str) -> Served:
        return self.giving.reuse_failed_replica(pb.ReuseFailedReplicaRequest(volume_name=volume), SECONDS)

    def copy_image(self) -> str:
        """The node that a copy of image "i" is told to go to; "" where none has room."""
        request = pb.ScheduleBackingImageRequest(backing_image_name="i")
        served = self.giving.schedule_backing_image(request, SECONDS)
        return str(served.reply.allocation.node) if served.reply is not None else ""

    def free_copy(self, node: str = "n1") -> int:
        request = pb.DeallocateBackingImageRequest(backing_image_name="i", disk_uuid=f"{node}-d1")
        return len(self.giving.deallocate_backing_image(request, SECONDS).reply.freed)

    def free_gib(self, node: str = "n1") -> float:
        room = self.cluster.allocator._world.room(node)
        assert room is not None
        return room.disks[0].free_bytes / GIB


def put_image(cell: ReplicaCell, gib: int, *on: str) -> None:
    """Backing image "i"."""
    status = {"realSize": gib * GIB, "diskFileStatusMap": {}}
    files: dict[str, Any] = {f"{node}-d1": {} for node in on}
    raw = {"metadata": {"name": "i"}, "spec": {"diskFileSpecMap": files}, "status": status}
    cell.api.put(LONGHORN_BACKING_IMAGES, NAMESPACE, raw)


def change_node(cell: ReplicaCell, name: str, *, tags: tuple[str, ...]) -> None:
    raw = cell.api.get(LONGHORN_NODES, NAMESPACE, name)
    raw["spec"]["tags"] = list(tags)
    cell.api.put(LONGHORN_NODES, NAMESPACE, raw)


GIVES: dict[str, Callable[[GivingLeader], object]] = {
    "v-r-1": lambda leader: leader.place("v-r-1"),
    "i": lambda leader: leader.copy_image(),
    "x-r-1": lambda leader: leader.expand("x", 60).outcome,
}
"""One call for each kind of what is given, by the name that it has on record, all of 60 GiB."""
FREES: dict[str, Callable[[GivingLeader], int]] = {
    "v-r-1": lambda leader: leader.free("v-r-1"),
    "i": lambda leader: leader.free_copy(),
}
"""The same for what can be freed."""


def wanted(what: str) -> tuple[ReplicaCell, GivingLeader]:
    """There is room for `what`, or for "w"."""
    cell = ReplicaCell(n1=100)
    put_image(cell, 60)
    cell.add("v", 60)
    cell.add("w", 60)
    if what == "x-r-1":
        cell.lying("x")
    return cell, GivingLeader(cell)
