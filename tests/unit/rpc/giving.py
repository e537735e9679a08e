"""A leader that gives room by name in a cluster in memory, with its record."""

from __future__ import annotations

from controller.allocations.backends import NodeDiskAllocationBackend
from controller.allocations.writer import RecordWriter
from controller.kube.resources import LONGHORN_NODES
from controller.model.allocations import Change, NodeRecord
from controller.rpc.allocating import DiskAllocator
from controller.settings import DISK_SCHEDULER, LiveSettings
from tests.unit.placement.stage import NAMESPACE, InformedLeader, ReplicaCell

BY_RECORD = LiveSettings(enabled=True, allocation_authority=DISK_SCHEDULER)


class GivingLeader(InformedLeader):
    """Who asks for it by name is given room, and that is put on record."""

    def __init__(self, cell: ReplicaCell, term: int = 1) -> None:
        super().__init__(cell, BY_RECORD)
        self.checks.term, self.finds = term, False  # `finds`: what live reads are about
        backend, given = NodeDiskAllocationBackend(cell.api, NAMESPACE), self.cluster.allocator.allocations
        self.writer = RecordWriter(backend, self._term, cell.clock, self._pause, self._seen, learn=given.learn)
        self.giving = DiskAllocator(
            self.cluster.allocator.allocations,
            lambda: self.writer,
            lambda: self.checks,
            lambda missing, seconds: self.finds,
            cell.clock,
        )
        self.see()

    def _seen(self, node: str) -> NodeRecord | None:
        return self.stores["record"].get(f"{NAMESPACE}/{node}")

    def _term(self) -> int:
        self.checks.check_leading()
        return self.checks.term

    def _pause(self, seconds: float) -> None:
        self.cell.clock.advance(seconds)

    def commit(self, change: Change) -> None:
        self.writer.commit([change], self.cell.clock.now() + 5)


def change_node(cell: ReplicaCell, name: str, *, zone: str = "", tags: tuple[str, ...] = ()) -> None:
    raw = cell.api.get(LONGHORN_NODES, NAMESPACE, name)
    raw["status"]["zone"], raw["spec"]["tags"] = zone, list(tags)
    cell.api.put(LONGHORN_NODES, NAMESPACE, raw)
