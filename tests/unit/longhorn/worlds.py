"""Raw objects with only the fields that a test is about, and a question to the stand-in's placement."""

from __future__ import annotations

from typing import Any

from tests.longhorn.placement import Answer, State, find_candidates

GIB = 1024**3
Raw = dict[str, Any]


def conditions(**values: str) -> list[Raw]:
    return [{"type": kind, "status": status} for kind, status in values.items()]


def disk(
    maximum: int = 400 * GIB,
    *,
    available: int | None = None,
    reserved: int = 0,
    scheduled: int = 0,
    schedulable: str = "True",
    tags: tuple[str, ...] = (),
    filesystem: str = "ext4",
    replicas: dict[str, int] | None = None,
    **spec: Any,
) -> tuple[Raw, Raw]:
    """One disk's spec and status."""
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
        "scheduledReplica": replicas or {},
        "filesystemType": filesystem,
        "conditions": conditions(Schedulable=schedulable),
    }
    return wanted, status


def node(
    name: str,
    *disks: tuple[Raw, Raw],
    zone: str = "",
    region: str = "",
    tags: tuple[str, ...] = (),
    ready: str = "True",
    schedulable: str = "True",
    allow: bool = True,
    deleting: bool = False,
) -> Raw:
    """A node whose disks are called d1, d2 ... and have the UUIDs `<node>-d1` ...; none given: one ample disk."""
    pairs = {f"d{number}": entry for number, entry in enumerate(disks or (disk(),), 1)}
    return {
        "metadata": {"name": name, **({"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleting else {})},
        "spec": {
            "allowScheduling": allow,
            "tags": list(tags),
            "disks": {key: spec for key, (spec, _) in pairs.items()},
        },
        "status": {
            "zone": zone,
            "region": region,
            "conditions": conditions(Ready=ready, Schedulable=schedulable),
            "diskStatus": {key: {"diskUUID": f"{name}-{key}", **status} for key, (_, status) in pairs.items()},
        },
    }


def volume(size: int = GIB, *, actual: int = 0, status: Raw | None = None, **spec: Any) -> Raw:
    return {
        "metadata": {"name": "v"},
        "spec": {"size": str(size), "dataLocality": "disabled", **spec},
        "status": {"actualSize": actual, **(status or {})},
    }


def replica(name: str, place: str = "", *, size: int = GIB, deleting: bool = False, **spec: Any) -> Raw:
    """`place`: the UUID of the disk, which begins with the node's name; empty: not placed yet."""
    where = {"nodeID": place.rsplit("-", 1)[0] if place else "", "diskID": place}
    health = {"healthyAt": "2026-01-01T00:00:00Z" if place else "", "failedAt": ""}
    return {
        "metadata": {"name": name, **({"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleting else {})},
        "spec": {"volumeName": "v", "volumeSize": str(size), "active": True, **where, **health, **spec},
    }


def failed(name: str, place: str, **spec: Any) -> Raw:
    return replica(name, place, failedAt="2026-01-01T00:00:00Z", **spec)


def evicting(name: str, place: str) -> Raw:
    return replica(name, place, evictionRequested=True)


def ask(
    nodes: list[Raw],
    wanted: Raw | None = None,
    replicas: list[Raw] | None = None,
    *,
    new: Raw | None = None,
    settings: dict[str, str] | None = None,
    **state: Any,
) -> Answer:
    new = new or replica("new")
    known = State(
        nodes={entry["metadata"]["name"]: entry for entry in nodes},
        replicas=[*(replicas or []), new],
        settings=settings or {},
        **state,
    )
    return find_candidates(known, wanted or volume(), new)


def places(answer: Answer) -> list[str]:
    """The disks' UUIDs."""
    return [entry.uuid for entry in answer.candidates]


def reasons(answer: Answer) -> set[str]:
    return {entry.reason for entry in answer.refusals}
