"""What an allocation takes in a leader that has written each node's record in its term (used by bench.allocating)."""

from __future__ import annotations

import gc
import json
import tracemalloc
from dataclasses import replace
from typing import Any, Final

from bench.made_up import make_cluster
from controller.follow.kinds import FOLLOWED
from controller.kube.resources import NODE_DISK_ALLOCATIONS
from controller.kube.store import Store
from controller.model.allocations import NodeRecord
from controller.record.backends import NodeDiskAllocationBackend
from controller.record.writer import RecordWriter
from controller.settings import DISK_SCHEDULER, LiveSettings
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.builders import GIB, disk, replica, volume
from tests.fakes.clock import VirtualClock

NAMESPACE: Final = "longhorn-system"
DISKS: Final = 4
SIZES: Final = (10, 20, 50)  # GiB
SECONDS: Final = 5.0


class _Sent(FakeApiServer):
    """Whose answers share nothing with what it keeps, as those that came over a connection."""

    def get(self, *args: Any, **more: Any) -> Any:
        return json.loads(json.dumps(super().get(*args, **more)))

    def patch(self, *args: Any, **more: Any) -> Any:
        return json.loads(json.dumps(super().patch(*args, **more)))

    def list_page(self, *args: Any, **more: Any) -> Any:
        page = super().list_page(*args, **more)
        return replace(page, items=json.loads(json.dumps(page.items)))


def bytes_of_an_allocation(nodes: int, entries: int) -> float:
    """With all that the watch's store and the writer keep of it, the names among that; its Replica object is there
    anyway."""
    api, clock = _Sent(), VirtualClock()
    cluster = make_cluster(LiveSettings(enabled=True, allocation_authority=DISK_SCHEDULER))
    for number in range(nodes):
        name = f"node-{number}"
        cluster.add_node(name, *(disk(f"d{index}", 4000, node=name) for index in range(DISKS)))
        for index in range(entries // nodes):
            volume_name, size = f"pvc-{number:08d}-{index:08d}-0000-0000-000000000000", SIZES[index % len(SIZES)]
            there = replica(f"{volume_name}-r-0a1b2c3d", volume_name, size, on=name, disk_name=f"d{index % DISKS}")
            cluster.allocator.observe_volume(volume_name, volume(volume_name, size, locality="disabled"))
            cluster.allocator.observe_replica(there.name, there)
        one_more = replica(f"new-{number}-r", f"new-{number}", 1, on=name, disk_name="d0")  # not on record yet
        cluster.allocator.observe_replica(one_more.name, one_more)
    cluster.allocator.sweep()
    kind = next(one for one in FOLLOWED if one.name == "record")
    gc.collect()
    tracemalloc.start()
    store: Store[NodeRecord] = Store("record", kind.parse, kind.sharing)
    kind.feed(store, cluster.allocator)
    writer = RecordWriter(
        NodeDiskAllocationBackend(api, NAMESPACE),
        cluster.allocator.record.of_nodes,
        lambda: None,
        clock,
        lambda node: store.get(f"{NAMESPACE}/{node}"),
        cluster.allocator.record.written,
    )
    for number in range(nodes):
        disks: dict[str, dict[str, dict[str, int]]] = {}
        for index in range(entries // nodes):
            sizes = disks.setdefault(f"node-{number}-d{index % DISKS}", {"replicas": {}})["replicas"]
            size = SIZES[index % len(SIZES)] * GIB
            sizes[f"pvc-{number:08d}-{index:08d}-0000-0000-000000000000-r-0a1b2c3d"] = size
        spec = {"diskAllocations": disks}
        api.put(NODE_DISK_ALLOCATIONS, NAMESPACE, {"metadata": {"name": f"node-{number}"}, "spec": spec})
    _see(api, store)
    for number in range(nodes):
        writer.commit((f"node-{number}",), clock.now() + SECONDS)
    _see(api, store)
    api.objects.clear()
    api.log.clear()
    gc.collect()
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return taken / entries


def _see(api: FakeApiServer, store: Store[NodeRecord]) -> None:
    store.replace(api.list_page(NODE_DISK_ALLOCATIONS, NAMESPACE).items)
