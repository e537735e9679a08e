"""Small worlds for the search of one replica's disks: sizes in bytes, one line a node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from controller.model.longhorn import Disk, LonghornNode, LonghornSettings, Replica, Volume
from controller.rules.candidates import Candidates, PlacementView, find_candidates
from controller.rules.reasons import Reason
from tests.fakes import builders
from tests.fakes.rooms import OPEN

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)


def flags(node_soft: bool = False, zone_soft: bool = True, disk_soft: bool = True, **other: Any) -> LonghornSettings:
    """Which anti-affinities are soft."""
    return replace(
        OPEN,
        soft_anti_affinity=node_soft,
        zone_soft_anti_affinity=zone_soft,
        disk_soft_anti_affinity=disk_soft,
        **other,
    )


def disk(name: str = "d1", size: int = 1000, **other: Any) -> Disk:
    """An empty disk of `size` bytes; its UUID gets its node's name."""
    return replace(builders.disk(name), **{"maximum_bytes": size, "available_bytes": size, **other})


def node(name: str, *disks: Disk, zone: str = "", **other: Any) -> LonghornNode:
    """A node with one disk of 1000 bytes unless others are given; the disk's UUID is `<node>-<disk>`."""
    return replace(builders.node(name, *(disks or (disk(),)), zone=zone), **other)


def volume(name: str = "v", size: int = 100, **other: Any) -> Volume:
    return replace(builders.volume(name, locality="disabled"), size_bytes=size, **other)


def replica(
    name: str = "r", on: str = "", disk_name: str = "d1", of: str = "v", size: int = 100, **other: Any
) -> Replica:
    """Unplaced without `on`; healthy since a while otherwise, unless something else is said."""
    made = builders.replica(
        name, of, on=on, disk_name=disk_name, size_bytes=size, healthy_at=builders.EPOCH if on else ""
    )
    return replace(made, **other)


def failed(name: str, on: str, **other: Any) -> Replica:
    """A failed replica that Longhorn may bring back."""
    return replica(name, on, failed_at="2026-01-01T11:00:00Z", **other)


def view(*nodes: LonghornNode, replicas: Iterable[Replica] = (), **other: Any) -> PlacementView:
    other.setdefault("settings", OPEN)
    other.setdefault("now_utc", NOW)
    return PlacementView(nodes={entry.name: entry for entry in nodes}, replicas=tuple(replicas), **other)


def search(seen: PlacementView, of: Volume | None = None, new: Replica | None = None) -> Candidates:
    return find_candidates(seen, of or volume(), new or replica())


def names(found: Candidates) -> list[str]:
    """Candidates as `node/disk`."""
    return [f"{entry.node}/{entry.disk}" for entry in found.candidates]


def reasons(found: Candidates) -> Mapping[str, Reason]:
    """Reasons by `node/disk`; a node's own under `node/`."""
    return {f"{entry.node}/{entry.disk}": entry.rejection.reason for entry in found.refusals}
