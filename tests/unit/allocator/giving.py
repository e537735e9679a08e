"""A cluster in which places are given by name, and what its calls are told."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from controller.allocator.by_name.beside import FoundDisks
from controller.allocator.outcome import Allotment
from controller.model.allocations import Allocation
from controller.model.longhorn import BackingImage, LonghornSettings
from controller.rules.reasons import Reason
from controller.settings import DISK_SCHEDULER
from tests.fakes.builders import GIB, TestCluster, replica, volume
from tests.fakes.rooms import OPEN

SECONDS = 5.0


class Allocating(TestCluster):
    """With the record as a fake that keeps what is written."""

    def __init__(self, settings: LonghornSettings = OPEN) -> None:
        super().__init__(settings=settings)
        self.records: dict[str, tuple[Allocation, ...]] = {}
        self.authority(DISK_SCHEDULER)

    def authority(self, name: str) -> None:
        live = replace(self.allocator._live, allocation_authority=name)
        self.allocator.configure(live, self.allocator._world.settings)

    def show(self, name: str, gib: float, on: str = "", **facts: Any) -> str:
        """A volume of one replica; the replica's name."""
        made = volume(name, gib, **{"locality": "disabled", **facts})
        self.allocator.observe_volume(name, made)
        shown = replica(f"{name}-r-1", name, gib, on=on, backing_image=made.backing_image)
        self.allocator.observe_replica(shown.name, shown)
        return f"{name}-r-1"

    def schedule(self, name: str) -> Allotment:
        """As a caller whose answer came after the write."""
        return self.write(self.allocator.allocations.place_replica(name, SECONDS))

    def write(self, allotment: Allotment) -> Allotment:
        given = self.allocator.record
        for node, entries in given.of_nodes(allotment.nodes).items():
            self.records[node] = entries
            given.written(node, entries)
        if not allotment.freed:
            self.allocator.allocations.told(allotment)
        return allotment

    def lead_anew(self, record: Collection[Allocation] | None = None) -> None:
        """Another leader begins with what is on record."""
        there = [one for entries in self.records.values() for one in entries]
        self.allocator.end_term()
        self.allocator.begin_term(record=there if record is None else record)

    def free_gib(self, name: str, disk_name: str = "d1") -> float:
        room = self.allocator._world.room(name)
        assert room is not None
        return next(one.free_bytes for one in room.disks if one.name == disk_name) / GIB


def cluster_of(**free_gib: float) -> Allocating:
    return Allocating().add_nodes(**free_gib)


def place(given: Allotment) -> tuple[str, str]:
    (one,) = given.allocations
    return one.node, one.disk_uuid.removeprefix(f"{one.node}-")


def why(given: Allotment | FoundDisks) -> dict[str, tuple[Reason, int]]:
    """Reason and missing GiB by node."""
    return {one.node: (one.rejection.reason, one.missing_bytes // GIB) for one in given.obstacles}


def image(cluster: Allocating, gib: float, *on: str, seen_on: Sequence[str] = ()) -> None:
    """`on`: by its spec; `seen_on`: by its status."""
    uuids, seen = (frozenset(f"{name}-d1" for name in names) for names in (on, seen_on))
    facts = BackingImage("i", real_size_bytes=int(gib * GIB), disk_uuids=uuids, status_disk_uuids=seen)
    cluster.allocator.observe_backing_image("i", facts)
