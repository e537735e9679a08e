"""A cluster in memory with three Longhorn nodes, and what the tests of the record say about it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from controller.allocations.backends import LonghornNodeBackend, NodeDiskAllocationBackend, RecordBackend
from controller.kube.resources import LONGHORN_BACKING_IMAGES, LONGHORN_NODES, LONGHORN_REPLICAS
from controller.model.allocations import Allocation, Purpose, Put
from tests.fakes.apiserver import FakeApiServer

NAMESPACE = "longhorn-system"
NODES = ("n1", "n2", "n3")
BACKENDS: list[Callable[[FakeApiServer, str], RecordBackend]] = [LonghornNodeBackend, NodeDiskAllocationBackend]


class Answered:
    """What calls did."""

    def __init__(self) -> None:
        self.told: Callable[[], dict[Allocation, float]] = dict
        self.freed = set[Allocation]()

    def told_at(self, entries: Iterable[Allocation]) -> dict[Allocation, float]:
        told = self.told()
        return {one: told[one] for one in entries if one in told}

    def is_freed(self, one: Allocation) -> bool:
        return one in self.freed


def entry(name: str, size: int = 10, node: str = "n1", disk: str = "d1") -> Allocation:
    return Allocation(Purpose.REPLICA, name, node, f"{node}-{disk}", size)


def put(name: str, size: int = 10, node: str = "n1", disk: str = "d1") -> Put:
    return Put(entry(name, size, node, disk))


def longhorn() -> FakeApiServer:
    api = FakeApiServer()
    for name in NODES:
        api.put(LONGHORN_NODES, NAMESPACE, longhorn_node(name))
    return api


def longhorn_node(name: str, *disks: str) -> dict[str, Any]:
    names = disks or ("d1", "d2")
    return {
        "metadata": {"name": name},
        "spec": {"allowScheduling": True, "disks": {disk: {"allowScheduling": True} for disk in names}},
        "status": {"diskStatus": {disk: {"diskUUID": f"{name}-{disk}"} for disk in names}},
    }


def nodes_crd(*, has_field: bool) -> dict[str, Any]:
    """Of Longhorn's Nodes, which may carry the record or not."""
    fields: dict[str, Any] = {"diskAllocations": {}} if has_field else {}
    schema = {"openAPIV3Schema": {"properties": {"spec": {"properties": fields}}}}
    versions = [{"name": "v1beta2", "schema": schema}]
    return {"metadata": {"name": "nodes.longhorn.io"}, "spec": {"versions": versions}}


def add_replica(api: FakeApiServer, name: str, size: int = 10, node: str = "n1", disk: str = "d1") -> None:
    spec = {"volumeName": "v", "volumeSize": str(size), "nodeID": node, "diskID": f"{node}-{disk}", "active": True}
    api.put(LONGHORN_REPLICAS, NAMESPACE, {"metadata": {"name": name}, "spec": spec})


def add_image(api: FakeApiServer, name: str, size: int, *disks: str, seen_on: Sequence[str] = ()) -> None:
    """`disks`: by its spec; `seen_on`: by its status."""
    spec: dict[str, Any] = {"diskFileSpecMap": {disk: {} for disk in disks}}
    status = {"realSize": size, "diskFileStatusMap": {disk: {"state": "ready"} for disk in seen_on}}
    api.put(LONGHORN_BACKING_IMAGES, NAMESPACE, {"metadata": {"name": name}, "spec": spec, "status": status})


def touch_node(api: FakeApiServer, name: str) -> None:
    """As Longhorn's own status writes do: another resourceVersion, the same record."""
    api.patch(LONGHORN_NODES, NAMESPACE, name, {"status": {"region": str(api.version)}})


def on_record(backend: RecordBackend, node: str = "n1") -> dict[str, int]:
    record = backend.read(node).record
    assert record.is_readable, record.problem
    return {one.name: one.size_bytes for one in record.allocations}
