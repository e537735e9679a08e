"""What the made-up clusters and workloads look like: classes, nodes and disks, settings, pods."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from hypothesis import strategies as st

from controller.model.longhorn import DiskNeeds, LonghornNode, LonghornSettings, Volume
from controller.model.workload import Claim, StorageClass
from tests.fakes.builders import EPOCH, GIB, disk, node, volume

ZONES: Final = ("a", "b", "")
MOST_DISKS: Final = 3
IMMEDIATE: Final = "immediate"
# Parameters by class name; a class of two copies of each kind of anti-affinity, and one of each locality.
CLASSES: Final[Mapping[str, Mapping[str, str]]] = {
    "local": {"dataLocality": "best-effort", "numberOfReplicas": "1"},
    "strict": {"dataLocality": "strict-local", "numberOfReplicas": "1"},
    "local-ssd": {"dataLocality": "best-effort", "numberOfReplicas": "1", "diskSelector": "ssd"},
    "strict-fast": {"dataLocality": "strict-local", "numberOfReplicas": "1", "nodeSelector": "fast"},
    "free": {"dataLocality": "disabled", "numberOfReplicas": "1"},
    "free-two": {"dataLocality": "disabled", "numberOfReplicas": "2"},
    "near-two": {"dataLocality": "best-effort", "numberOfReplicas": "2"},
    "soft-three": {"dataLocality": "disabled", "numberOfReplicas": "3", "replicaSoftAntiAffinity": "enabled"},
    "zones-two": {"dataLocality": "disabled", "numberOfReplicas": "2", "replicaZoneSoftAntiAffinity": "disabled"},
    "disks-two": {
        "dataLocality": "best-effort",
        "numberOfReplicas": "2",
        "replicaSoftAntiAffinity": "enabled",
        "replicaDiskSoftAntiAffinity": "disabled",
    },
    IMMEDIATE: {"dataLocality": "disabled", "numberOfReplicas": "1"},
}
OWN_CLASSES: Final = tuple(CLASSES)
SHARED_CLASSES: Final = ("free", "local", "free-two")


@dataclass(frozen=True)
class DiskShape:
    gib: int
    reserved_gib: int
    is_ssd: bool


@dataclass(frozen=True)
class NodeShape:
    zone: str
    is_fast: bool
    disks: tuple[DiskShape, ...]


@dataclass(frozen=True)
class ClusterShape:
    """`is_prompt`: every watch delivers at once. `is_quick`: what the leader decides is stored at once. `is_calm`:
    nothing ever fails, closes or is done by hand. `has_strangers`: anybody may ask about any pod, so that answers add
    up."""

    nodes: tuple[NodeShape, ...]
    is_prompt: bool
    degraded: bool
    node_soft: bool
    zone_soft: bool
    disk_soft: bool
    empty_selectors: bool
    is_quick: bool = False
    is_calm: bool = False
    has_strangers: bool = False


@dataclass(frozen=True)
class VolumeShape:
    """`kind`: own, shared (one claim of that class for all), or ephemeral."""

    class_name: str
    gib: int
    kind: str = "own"


@dataclass(frozen=True)
class PodShape:
    volumes: tuple[VolumeShape, ...]
    is_opted_in: bool
    is_gated: bool
    is_second: bool  # of the second scheduler


_COMMON: Final = st.sampled_from(("local", "local", "strict", "free"))
DISKS: Final = st.builds(DiskShape, st.integers(3, 9), st.sampled_from((0, 0, 1)), st.booleans())
NODES: Final = st.builds(
    NodeShape, st.sampled_from(ZONES), st.booleans(), st.lists(DISKS, min_size=1, max_size=MOST_DISKS).map(tuple)
)
CLUSTERS: Final = st.builds(
    ClusterShape,
    nodes=st.lists(NODES, min_size=2, max_size=4).map(tuple),
    is_prompt=st.booleans(),
    degraded=st.booleans(),
    node_soft=st.booleans(),
    zone_soft=st.booleans(),
    disk_soft=st.booleans(),
    empty_selectors=st.sampled_from((True, True, True, False)),
    is_quick=st.booleans(),
    is_calm=st.booleans(),
    has_strangers=st.sampled_from((False, False, True)),
)
VOLUMES: Final = st.one_of(
    st.builds(VolumeShape, _COMMON, st.integers(1, 4)),
    st.builds(VolumeShape, _COMMON, st.integers(1, 4)),
    st.builds(VolumeShape, st.sampled_from(OWN_CLASSES), st.integers(1, 3)),
    st.builds(VolumeShape, st.sampled_from(SHARED_CLASSES), st.just(1), st.just("shared")),
    st.builds(VolumeShape, _COMMON, st.integers(1, 2), st.just("ephemeral")),
)
_FEW: Final = st.lists(VOLUMES, min_size=1, max_size=2)
_SELDOM: Final = st.sampled_from((False, False, False, False, False, False, True))
PODS: Final = st.builds(
    PodShape,
    volumes=st.one_of(_FEW, _FEW, st.lists(VOLUMES, min_size=1, max_size=4)).map(tuple),
    is_opted_in=_SELDOM.map(lambda drawn: not drawn),
    is_gated=_SELDOM,
    is_second=st.booleans(),
)


def storage_class(name: str) -> StorageClass:
    return StorageClass(name, "driver.longhorn.io", CLASSES[name], False, EPOCH)


def node_facts(name: str, shape: NodeShape) -> LonghornNode:
    disks = [
        replace(
            disk(f"d{index}", entry.gib, node=name, tags=("ssd",) if entry.is_ssd else ()),
            reserved_bytes=entry.reserved_gib * GIB,
        )
        for index, entry in enumerate(shape.disks, start=1)
    ]
    facts = node(name, *disks, zone=shape.zone)
    return replace(facts, tags=frozenset(("fast",)) if shape.is_fast else frozenset())


def longhorn_settings(shape: ClusterShape) -> LonghornSettings:
    plain = LonghornSettings()
    space = replace(
        plain.space,
        allow_empty_node_selector=shape.empty_selectors,
        allow_empty_disk_selector=shape.empty_selectors,
    )
    return replace(
        plain,
        space=space,
        degraded_availability=shape.degraded,
        soft_anti_affinity=shape.node_soft,
        zone_soft_anti_affinity=shape.zone_soft,
        disk_soft_anti_affinity=shape.disk_soft,
    )


@lru_cache(maxsize=4096)
def volume_of(claim: Claim) -> Volume:
    """The Longhorn volume that is made of a claim."""
    given = CLASSES[claim.class_name or ""]
    return volume(
        f"pvc-{claim.uid}",
        claim.requested_bytes / GIB,
        locality=given["dataLocality"],
        replica_count=int(given["numberOfReplicas"]),
        access_mode="rwx" if claim.is_shared else "rwo",
        needs=DiskNeeds(
            node_selector=tuple(filter(None, (given.get("nodeSelector"),))),
            disk_selector=tuple(filter(None, (given.get("diskSelector"),))),
        ),
        soft_anti_affinity=given.get("replicaSoftAntiAffinity", "ignored"),
        zone_soft_anti_affinity=given.get("replicaZoneSoftAntiAffinity", "ignored"),
        disk_soft_anti_affinity=given.get("replicaDiskSoftAntiAffinity", "ignored"),
        frontend="blockdev",
    )
