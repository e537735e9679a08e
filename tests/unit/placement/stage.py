"""Longhorn's objects in an API server in memory, and a leader's allocator with informers that show what happened there
whenever they are told to."""

from __future__ import annotations

from typing import Any, Self

from controller.allocator.allocator import Allocator
from controller.follow.kinds import FOLLOWED
from controller.kube.resources import LONGHORN_NODES, LONGHORN_REPLICAS, LONGHORN_VOLUMES
from controller.kube.store import Store
from controller.model.allocations import Allocation
from controller.record.backends import NodeDiskAllocationBackend
from controller.settings import LiveSettings
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.builders import GIB, TestCluster
from tests.fakes.clock import VirtualClock
from tests.unit.rpc.leaders import Checks

NAMESPACE = "longhorn-system"
TRUE = {"status": "True"}
Raw = dict[str, Any]


class ReplicaCell:
    """Longhorn's objects in an API server, which outlives its leaders."""

    def __init__(self, clock: VirtualClock | None = None, **disks_gib: int) -> None:
        """Nodes of one disk each."""
        self.api, self.clock = FakeApiServer(), clock or VirtualClock()
        for name, gib in disks_gib.items():
            self.put_node(name, gib)

    def put_node(self, name: str, gib: int, *, ready: bool = True, scheduled_gib: int = 0) -> None:
        conditions = [{"type": "Ready", "status": str(ready)}, {"type": "Schedulable", **TRUE}]
        disk = {
            "diskUUID": f"{name}-d1",
            "storageMaximum": gib * GIB,
            "storageAvailable": gib * GIB,
            "storageScheduled": scheduled_gib * GIB,
            "conditions": [{"type": "Ready", **TRUE}, {"type": "Schedulable", **TRUE}],
        }
        spec = {"allowScheduling": True, "disks": {"d1": {"allowScheduling": True, "path": f"/disks/{name}"}}}
        status = {"conditions": conditions, "diskStatus": {"d1": disk}}
        self.api.put(LONGHORN_NODES, NAMESPACE, {"metadata": {"name": name}, "spec": spec, "status": status})

    def put_volume(
        self, name: str, gib: int = 10, *, status: Raw | None = None, meta: Raw | None = None, **spec: Any
    ) -> None:
        wanted = {"size": str(gib * GIB), "numberOfReplicas": 1, "dataLocality": "disabled", **spec}
        raw = {"metadata": {"name": name, **(meta or {})}, "spec": wanted, "status": status or {}}
        self.api.put(LONGHORN_VOLUMES, NAMESPACE, raw)

    def put_replica(self, volume: str, number: int = 1, gib: int = 10, *, meta: Raw | None = None, **spec: Any) -> str:
        name = f"{volume}-r-{number}"
        wanted = {
            "volumeName": volume,
            "volumeSize": str(gib * GIB),
            "nodeID": "",
            "diskID": "",
            "active": True,
            **spec,
        }
        self.api.put(
            LONGHORN_REPLICAS,
            NAMESPACE,
            {"metadata": {"name": name, "uid": f"uid-{name}", **(meta or {})}, "spec": wanted},
        )
        return name

    def add(self, volume: str, gib: int = 10, **spec: Any) -> str:
        """A volume with an unplaced replica, whose name this is."""
        self.put_volume(volume, gib, **spec)
        return self.put_replica(volume, gib=gib)

    def lying(self, volume: str, node: str = "n1") -> str:
        """A volume of 10 GiB whose replica, of that name, is on a node."""
        self.put_volume(volume)
        return self.put_replica(volume, nodeID=node, diskID=f"{node}-d1")

    def replica(self, name: str) -> Raw:
        return self.api.get(LONGHORN_REPLICAS, NAMESPACE, name)

    def node_of(self, name: str) -> str:
        return str(self.replica(name)["spec"]["nodeID"])

    def change(self, name: str, **spec: Any) -> None:
        self.api.patch(LONGHORN_REPLICAS, NAMESPACE, name, {"spec": spec})

    def entries(self) -> list[Allocation]:
        backend = NodeDiskAllocationBackend(self.api, NAMESPACE)
        return [one for stored in backend.records() for one in stored.record.allocations]

    def on_record(self) -> dict[str, str]:
        """Nodes by the replica's name."""
        return {one.name: one.node for one in self.entries()}


class InformedLeader:
    """A leader of a cell, whose informers show what happened whenever they are told to. `cluster` has its allocator."""

    def __init__(self, cell: ReplicaCell, live: LiveSettings) -> None:
        self.cell, self.live, self.checks = cell, live, Checks()
        self.cluster = TestCluster(live=live, make_allocator=lambda _clock: Allocator(cell.clock))
        self.stores: dict[str, Store[Any]] = {kind.name: Store(kind.name, kind.parse) for kind in FOLLOWED}
        for kind in FOLLOWED:
            kind.feed(self.stores[kind.name], self.cluster.allocator)

    def see(self, *kinds: str) -> Self:
        """All informers, or those, show what the API server has."""
        for kind in (one for one in FOLLOWED if one.name in kinds or not kinds):
            namespace = NAMESPACE if kind.in_longhorn else None
            raws = self.cell.api.list_page(kind.resource, namespace).items
            self.stores[kind.name].replace(raws)
        return self
