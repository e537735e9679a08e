"""Longhorn's objects as kubectl prints them, with only the fields that a test is about; sizes are in bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

GIB = 1024**3
LONG_AGO = "2026-01-01T00:00:00Z"
Raw = dict[str, Any]
Disk = tuple[Raw | None, Raw | None]


def longhorn(kind: str, name: str, *, deleting: bool = False, **parts: Any) -> Raw:
    meta = {"name": name, "namespace": "longhorn-system", **({"deletionTimestamp": LONG_AGO} if deleting else {})}
    return {"apiVersion": "longhorn.io/v1beta2", "kind": kind, "metadata": meta, **parts}


def conditions(**values: str | None) -> list[Raw]:
    """None: the condition is missing."""
    return [{"type": kind, "status": status} for kind, status in values.items() if status is not None]


def disk(
    maximum: int = 400 * GIB,
    *,
    available: int | None = None,
    reserved: int = 0,
    scheduled: int = 0,
    ready: str | None = "True",
    schedulable: str | None = "True",
    tags: Iterable[str] = (),
    filesystem: str = "ext4",
    listed: Mapping[str, int] | None = None,
    uuid: str = "",
    only: str = "",
    **spec: Any,
) -> Disk:
    """One disk's spec and status; `only` one of them where it is named. `listed`: `scheduledReplica`; `uuid`: if it is
    not made of the node's and the disk's name."""
    wanted = {
        "allowScheduling": True,
        "diskType": "filesystem",
        "storageReserved": reserved,
        "tags": list(tags),
        **spec,
    }
    status = {
        "storageMaximum": maximum,
        "storageAvailable": maximum if available is None else available,
        "storageScheduled": scheduled,
        "scheduledReplica": dict(listed or {}),
        "filesystemType": filesystem,
        "conditions": conditions(Ready=ready, Schedulable=schedulable),
        **({"diskUUID": uuid} if uuid else {}),
    }
    return None if only == "status" else wanted, None if only == "spec" else status


def node(
    name: str,
    *disks: Disk,
    named: Mapping[str, Disk] | None = None,
    zone: str = "",
    region: str = "",
    tags: Iterable[str] = (),
    ready: str | None = "True",
    schedulable: str | None = "True",
    allow: bool = True,
    deleting: bool = False,
) -> Raw:
    """A node whose disks are called d1, d2 ... unless they are `named`, and have the UUIDs `<node>-d1` ...; with none
    given it has one ample disk."""
    pairs = named if named is not None else {f"d{number}": it for number, it in enumerate(disks or (disk(),), 1)}
    spec = {
        "allowScheduling": allow,
        "tags": list(tags),
        "disks": {key: spec for key, (spec, _) in pairs.items() if spec},
    }
    status = {
        "zone": zone,
        "region": region,
        "conditions": conditions(Ready=ready, Schedulable=schedulable),
        "diskStatus": {key: {"diskUUID": f"{name}-{key}", **status} for key, (_, status) in pairs.items() if status},
    }
    return longhorn("Node", name, deleting=deleting, spec=spec, status=status)


def volume(size: int = GIB, *, name: str = "v", actual: int = 0, status: Raw | None = None, **spec: Any) -> Raw:
    wanted = {"size": str(size), "dataLocality": "disabled", **spec}
    return longhorn("Volume", name, spec=wanted, status={"actualSize": actual, **(status or {})})


def replica(name: str, place: str = "", *, size: int = GIB, of: str = "v", deleting: bool = False, **spec: Any) -> Raw:
    """`place`: the UUID of the disk, which begins with the node's name; empty: not placed yet."""
    where = {"nodeID": place.rsplit("-", 1)[0] if place else "", "diskID": place}
    health = {"healthyAt": LONG_AGO if place else "", "failedAt": ""}
    wanted = {"volumeName": of, "volumeSize": str(size), "active": True, **where, **health, **spec}
    return longhorn("Replica", name, deleting=deleting, spec=wanted)


def failed(name: str, place: str, **spec: Any) -> Raw:
    return replica(name, place, failedAt=LONG_AGO, **spec)


def evicting(name: str, place: str) -> Raw:
    return replica(name, place, evictionRequested=True)
