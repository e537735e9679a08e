"""Objects as kubectl prints them, with only the fields that matter, and questions about them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from controller.plan.command import answer
from controller.plan.complaints import Notes
from tests.longhorn_rules import objects
from tests.longhorn_rules.objects import GIB, Raw, longhorn

__all__ = ["GIB", "NOW", "Raw", "ask", "core", "expand", "longhorn", "node", "places", "replica", "schedule", "setting"]
__all__ += ["storage_class", "volume"]
NOW = "2026-01-01T12:00:00Z"


def core(kind: str, name: str, namespace: str = "", **parts: Any) -> Raw:
    meta = {"name": name, "uid": f"uid-{name}", **({"namespace": namespace} if namespace else {})}
    meta.update(parts.pop("metadata", {}))
    return {"apiVersion": "v1", "kind": kind, "metadata": meta, **parts}


def node(name: str, *, gib: float = 100, disks: dict[str, Raw] | None = None, zone: str = "", **spec: Any) -> Raw:
    """A ready node; each disk is its figures and, under `spec`, what differs there. UUIDs are `<node>-<disk>`."""
    named = {}
    for disk, given in (disks or {"d1": {}}).items():
        wanted, figures = objects.disk(int(given.get("gib", gib) * GIB), **given.get("spec", {}))
        named[disk] = wanted, {**(figures or {}), **given.get("status", {})}
    raw = objects.node(name, named=named, zone=zone)
    return {**raw, "spec": {**raw["spec"], **spec}}


def volume(name: str = "v", *, gib: float = 10, status: Raw | None = None, **spec: Any) -> Raw:
    raw = objects.volume(int(gib * GIB), name=name, status=status)
    return {**raw, "spec": {**raw["spec"], **spec}}


def replica(name: str, on: str = "", disk: str = "d1", *, of: str = "v", gib: float = 10, **spec: Any) -> Raw:
    return objects.replica(name, f"{on}-{disk}" if on else "", of=of, size=int(gib * GIB), **spec)


def setting(name: str, value: str) -> Raw:
    return longhorn("Setting", name, value=value)


def storage_class(name: str, *, provisioner: str = "driver.longhorn.io", **parameters: str) -> Raw:
    spec = {"provisioner": provisioner, "parameters": parameters}
    return {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name}, **spec}


def ask(objects: Any, question: Raw, *, lenient: bool = False, **more: Any) -> Raw:
    document = {"objects": objects, "question": question, **more}
    return answer(document, datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC), Notes(is_lenient=lenient))


def schedule(objects: Any, *replicas: str, **more: Any) -> list[Raw]:
    steps: list[Raw] = ask(objects, {"schedule": {"volume": "v", "replicas": list(replicas)}}, **more)["steps"]
    return steps


def expand(objects: Any, size: int, **more: Any) -> Raw:
    return ask(objects, {"expand": {"volume": "v", "size": size}}, **more)


def places(step: Raw) -> list[str]:
    return [f"{entry['node']}/{entry['disk']}" for entry in step["candidates"]]
