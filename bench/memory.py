"""Memory of the controller process at N pods, claims and volumes (`python -m bench.memory`).

The whole object graph runs over a made-up API server in the same process: lists come in pages of JSON text, as large
as real ones with their managed fields, and are decoded as in production; watches stay silent. Every volume is bound
and has one replica. Printed as one JSON object: resident and peak memory in MiB, before and after the stores are
synced.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from controller.assembly.assemble import Controller
from controller.kube import resources
from controller.kube.api import Page
from controller.kube.resources import Resource
from controller.settings import ProcessSettings

NODES = 100
EPOCH = "2026-01-01T00:00:00Z"
SYNC_SECONDS = 300.0
MEBIBYTE = 1024**2
GIB = 1024**3


class SilentWatch:
    """A watch on which nothing happens until it is closed."""

    def __init__(self) -> None:
        self._closed = threading.Event()

    def __iter__(self) -> Iterator[bytes]:
        self._closed.wait()
        return iter(())

    def close(self) -> None:
        self._closed.set()


class MadeUpApi:
    """As much of KubeApi as following needs."""

    def __init__(self, count: int) -> None:
        sizes: dict[str, tuple[int, Callable[[int], dict[str, Any]]]] = {
            resources.PODS.plural: (count, pod),
            resources.CLAIMS.plural: (count, claim),
            resources.VOLUMES.plural: (count, pv),
            "longhorn-volumes": (count, volume),
            "longhorn-replicas": (count, replica),
            "longhorn-nodes": (NODES, longhorn_node),
            resources.NODES.plural: (NODES, lambda index: {"metadata": meta(f"n{index}"), "spec": {}}),
            resources.STORAGE_CLASSES.plural: (1, storage_class),
        }
        self._sizes = sizes

    def list_page(self, resource: Resource, namespace: str | None = None, **query: object) -> Page:
        name = f"longhorn-{resource.plural}" if resource.group == "longhorn.io" else resource.plural
        count, make = self._sizes.get(name, (0, pod))
        start, limit = int(str(query.get("continue") or 0)), int(str(query.get("limit") or count))
        end = min(count, start + limit)
        text = msgspec.json.encode({"items": [make(index) for index in range(start, end)], "in": namespace})
        return Page(msgspec.json.decode(text)["items"], "1000", str(end) if end < count else "")

    def watch(self, *_: object, **__: object) -> SilentWatch:
        return SilentWatch()


def meta(name: str, namespace: str = "", **more: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {f"f:field-{number}": {} for number in range(30)}
    managed = [{"manager": "m", "operation": "Update", "time": EPOCH, "fieldsType": "FieldsV1", "fieldsV1": fields}]
    found = {"name": name, "uid": f"uid-of-{name}-0123456789", "resourceVersion": "7", "creationTimestamp": EPOCH}
    return {**found, **({"namespace": namespace} if namespace else {}), "managedFields": managed, **more}


def pod(index: int) -> dict[str, Any]:
    resource = {"longhorn.io/scheduler-extender": "1"}
    container = {
        "name": "c",
        "image": "i",
        "resources": {"requests": resource, "limits": resource},
        "env": [{"name": "A"}],
    }
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": f"data-{index}"}}]
    spec = {"containers": [container], "volumes": volumes, "nodeName": f"n{index % NODES}"}
    return {"metadata": meta(f"db-{index}", "shop"), "spec": spec, "status": {"phase": "Running"}}


def claim(index: int) -> dict[str, Any]:
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "longhorn",
        "volumeName": f"pvc-uid-of-data-{index}-0123456789",
        "resources": {"requests": {"storage": "1Gi"}},
    }
    return {"metadata": meta(f"data-{index}", "shop"), "spec": spec}


def pv(index: int) -> dict[str, Any]:
    name = f"pvc-uid-of-data-{index}-0123456789"
    ref = {"namespace": "shop", "name": f"data-{index}", "uid": f"uid-of-data-{index}-0123456789"}
    csi = {"driver": "driver.longhorn.io", "volumeHandle": name}
    return {"metadata": meta(name), "spec": {"csi": csi, "claimRef": ref, "capacity": {"storage": "1Gi"}}}


def volume(index: int) -> dict[str, Any]:
    spec = {"size": str(GIB), "numberOfReplicas": 1, "dataLocality": "best-effort", "nodeID": f"n{index % NODES}"}
    name = f"pvc-uid-of-data-{index}-0123456789"
    return {"metadata": meta(name, "longhorn-system"), "spec": spec, "status": {"state": "attached"}}


def replica(index: int) -> dict[str, Any]:
    name = f"pvc-uid-of-data-{index}-0123456789"
    place = {"nodeID": f"n{index % NODES}", "diskID": f"disk-{index % NODES}", "active": True, "healthyAt": EPOCH}
    spec = {"volumeName": name, "volumeSize": str(GIB), **place}
    return {"metadata": meta(f"{name}-r-{index:08x}", "longhorn-system"), "spec": spec}


def longhorn_node(index: int) -> dict[str, Any]:
    ready = [{"type": "Ready", "status": "True"}, {"type": "Schedulable", "status": "True"}]
    status = {
        "diskUUID": f"disk-{index}",
        "storageMaximum": 4096 * GIB,
        "storageAvailable": 4096 * GIB,
        "conditions": ready,
    }
    spec = {"allowScheduling": True, "disks": {"d": {"allowScheduling": True, "diskType": "filesystem"}}}
    return {
        "metadata": meta(f"n{index}", "longhorn-system"),
        "spec": spec,
        "status": {"conditions": ready, "diskStatus": {"d": status}},
    }


def storage_class(_index: int) -> dict[str, Any]:
    parameters = {"dataLocality": "best-effort", "numberOfReplicas": "1"}
    return {"metadata": meta("longhorn"), "provisioner": "driver.longhorn.io", "parameters": parameters}


def memory(field: str) -> float:
    with open("/proc/self/status") as status:  # noqa: PTH123
        line = next(line for line in status if line.startswith(f"{field}:"))
    return round(int(line.split()[1]) / 1024, 1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--limit", type=float, default=300.0, help="MiB; more ends with 1")
    options = parser.parse_args()
    settings = ProcessSettings(pod_name="p", pod_ip="10.0.0.1", node_name="n1")
    controller = Controller(settings, "identity", MadeUpApi(options.count))  # type: ignore[arg-type]
    before = memory("VmRSS")
    for followed in controller.stores.followed.values():
        followed.start()
    end = time.monotonic() + SYNC_SECONDS
    while not controller.stores.is_synced() and time.monotonic() < end:
        time.sleep(0.1)
    result = {
        "count": options.count,
        "synced": controller.stores.is_synced(),
        "objects": {state.kind: state.objects for state in controller.stores.states()},
        "before_mib": before,
        "resident_mib": memory("VmRSS"),
        "peak_mib": memory("VmHWM"),
    }
    print(json.dumps(result))
    for followed in controller.stores.followed.values():
        followed.stop()
    return 0 if result["synced"] and memory("VmHWM") <= options.limit else 1


if __name__ == "__main__":
    sys.exit(main())
