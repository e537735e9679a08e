"""Objects as kubectl prints them, with only the fields that matter, and questions about them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from controller.plan.command import answer

Raw = dict[str, Any]
GIB = 1024**3
MIB = 1024**2
NOW = "2026-01-01T12:00:00Z"
READY = [{"type": "Ready", "status": "True"}, {"type": "Schedulable", "status": "True"}]


def longhorn(kind: str, name: str, **parts: Any) -> Raw:
    meta = {"name": name, "namespace": "longhorn-system"}
    return {"apiVersion": "longhorn.io/v1beta2", "kind": kind, "metadata": meta, **parts}


def core(kind: str, name: str, namespace: str = "", **parts: Any) -> Raw:
    meta = {"name": name, "uid": f"uid-{name}", **({"namespace": namespace} if namespace else {})}
    meta.update(parts.pop("metadata", {}))
    return {"apiVersion": "v1", "kind": kind, "metadata": meta, **parts}


def node(name: str, *, gib: float = 100, disks: dict[str, Raw] | None = None, zone: str = "", **spec: Any) -> Raw:
    """A ready node; each disk is its figures and, under `spec`, what differs there. UUIDs are `<node>-<disk>`."""
    specs, statuses = {}, {}
    for disk, given in (disks or {"d1": {}}).items():
        size = int(given.get("gib", gib) * GIB)
        specs[disk] = {"allowScheduling": True, "storageReserved": 0, **given.get("spec", {})}
        statuses[disk] = {
            "conditions": READY,
            "diskUUID": f"{name}-{disk}",
            "filesystemType": "ext4",
            "storageMaximum": size,
            "storageAvailable": size,
            "storageScheduled": 0,
            **given.get("status", {}),
        }
    status = {"conditions": READY, "zone": zone, "diskStatus": statuses}
    return longhorn("Node", name, spec={"allowScheduling": True, "disks": specs, **spec}, status=status)


def volume(name: str = "v", *, gib: float = 10, status: Raw | None = None, **spec: Any) -> Raw:
    return longhorn("Volume", name, spec={"size": str(int(gib * GIB)), **spec}, status=status or {})


def replica(name: str, on: str = "", disk: str = "d1", *, of: str = "v", gib: float = 10, **spec: Any) -> Raw:
    placed = {"nodeID": on, "diskID": f"{on}-{disk}", "healthyAt": NOW} if on else {}
    return longhorn("Replica", name, spec={"volumeName": of, "volumeSize": str(int(gib * GIB)), **placed, **spec})


def setting(name: str, value: str) -> Raw:
    return longhorn("Setting", name, value=value)


def ask(objects: Any, question: Raw, **more: Any) -> Raw:
    document = {"objects": objects, "question": question, **more}
    return answer(document, datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC))


def schedule(objects: Any, *replicas: str, **more: Any) -> list[Raw]:
    steps: list[Raw] = ask(objects, {"schedule": {"volume": "v", "replicas": list(replicas)}}, **more)["steps"]
    return steps


def expand(objects: Any, size: int, **more: Any) -> Raw:
    return ask(objects, {"expand": {"volume": "v", "size": size}}, **more)


def places(step: Raw) -> list[str]:
    return [f"{entry['node']}/{entry['disk']}" for entry in step["candidates"]]


def refusals(step: Raw) -> dict[str, str]:
    return {f"{entry['node']}/{entry['disk']}": entry["reason"] for entry in step["refusals"]}
