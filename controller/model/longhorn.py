"""Facts about Longhorn's own objects (group `longhorn.io/v1beta2`). Sizes are bytes, unless a name says otherwise.

Field meanings follow Longhorn's `k8s/pkg/apis/longhorn/v1beta2` types; how the figures come about is written down in
docs/how-it-decides.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

LOCALITY_DISABLED: Final = "disabled"
LOCALITY_BEST_EFFORT: Final = "best-effort"
LOCALITY_STRICT: Final = "strict-local"
MAX_REBUILD_RETRIES: Final = 5


@dataclass(frozen=True, slots=True)
class DiskNeeds:
    """What a volume asks of a node and its disks besides room. Hashable: rooms are summed up per kind of need."""

    node_selector: tuple[str, ...] = ()
    disk_selector: tuple[str, ...] = ()
    data_engine: str = "v1"


DEFAULT_NEEDS: Final = DiskNeeds()


@dataclass(frozen=True, slots=True)
class Disk:
    """One disk of a Longhorn node that stands in its spec and in its status; the UUID identifies it in the cluster."""

    name: str
    uuid: str
    type: str  # "filesystem" or "block"
    filesystem: str
    allow_scheduling: bool
    eviction_requested: bool
    ready: bool
    schedulable: bool
    tags: frozenset[str]
    maximum_bytes: int
    available_bytes: int
    reserved_bytes: int
    scheduled_bytes: int
    scheduled_replicas: Mapping[str, int]  # replica name -> bytes


@dataclass(frozen=True, slots=True)
class LonghornNode:
    """A Longhorn Node; its name is the Kubernetes node's."""

    name: str
    zone: str
    region: str
    tags: frozenset[str]
    allow_scheduling: bool
    ready: bool
    schedulable: bool
    deleting: bool
    disks: tuple[Disk, ...]


@dataclass(frozen=True, slots=True)
class Volume:
    """A Longhorn Volume; for provisioned volumes its name is the PersistentVolume's."""

    name: str
    size_bytes: int
    actual_size_bytes: int
    replica_count: int
    data_locality: str
    access_mode: str
    migratable: bool
    node_id: str  # where it should be attached; "" while detached
    state: str
    robustness: str
    scheduled: bool | None  # the condition `Scheduled`; None while it is missing or unknown
    needs: DiskNeeds
    soft_anti_affinity: str  # several replicas on a node: "enabled", "disabled", or "ignored" for the setting
    deleting: bool
    version: int = field(default=0, compare=False)  # resourceVersion; a heartbeat is no change


@dataclass(frozen=True, slots=True)
class Replica:
    """One copy of a volume; `node` and `disk_uuid` are empty until Longhorn has placed it."""

    name: str
    volume: str
    size_bytes: int
    node: str
    disk_uuid: str
    hard_node_affinity: str
    active: bool
    healthy_at: str
    failed_at: str
    eviction_requested: bool
    rebuild_retry_count: int
    deleting: bool

    @property
    def is_placed(self) -> bool:
        return bool(self.node and self.disk_uuid)

    @property
    def is_usable(self) -> bool:
        """Placed, not failed, not evicting, not an inactive twin and not on its way out: a pod can run next to it."""
        return (
            self.is_placed and not self.failed_at and not self.eviction_requested and self.active and not self.deleting
        )


@dataclass(frozen=True, slots=True)
class SpacePolicy:
    """Longhorn's settings that decide about space and about empty selectors, with Longhorn's own defaults."""

    over_provisioning_pct: int = 100
    minimal_available_pct: int = 25
    allow_empty_node_selector: bool = True
    allow_empty_disk_selector: bool = True


@dataclass(frozen=True, slots=True)
class LonghornSettings:
    """Longhorn's Setting objects as far as placement asks for them; what is missing has Longhorn's default."""

    space: SpacePolicy = SpacePolicy()
    default_replica_count_v1: int = 3
    default_replica_count_v2: int = 3
    default_data_locality: str = LOCALITY_DISABLED
    degraded_availability: bool = True
    soft_anti_affinity: bool = False

    def default_replica_count(self, data_engine: str) -> int:
        return self.default_replica_count_v2 if data_engine == "v2" else self.default_replica_count_v1
