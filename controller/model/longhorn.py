"""Facts about Longhorn's own objects (group `longhorn.io/v1beta2`). Sizes are bytes, unless a name says otherwise.

Field meanings follow Longhorn's `k8s/pkg/apis/longhorn/v1beta2` types; how the figures come about is written down in
docs/how-it-decides.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from controller.model.allocations import NodeRecord
from controller.model.versions import NEWEST, Behaviour

DATA_LOCALITIES: Final = ("disabled", "best-effort", "strict-local")  # the default first; controller/rules/locality.py
MAX_REBUILD_RETRIES: Final = 5
DATA_ENGINES: Final = ("v1", "v2")
SOFT_ANTI_AFFINITY: Final = ("ignored", "enabled", "disabled")  # "ignored" for the setting
BALANCE_BEST_EFFORT: Final = "best-effort"
AUTO_BALANCE: Final = ("disabled", "least-effort", BALANCE_BEST_EFFORT)
LINKED_CLONE: Final = "linked-clone"
CLONE_MODES: Final = ("full-copy", LINKED_CLONE)
SHARDED: Final = "sharded"


@dataclass(frozen=True, slots=True)
class TopologyTerm:
    """One term of `spec.topologyRequirement`: every part that is not empty has to equal the node's."""

    zone: str = ""
    region: str = ""


@dataclass(frozen=True, slots=True)
class ImageNeeds:
    """A volume's backing image, and its selectors, which a replica's node and disk have to satisfy as well."""

    node_selector: tuple[str, ...] = ()
    disk_selector: tuple[str, ...] = ()
    name: str = ""


@dataclass(frozen=True, slots=True)
class DiskNeeds:
    """What a volume asks of a node and its disks besides room. Hashable: rooms are summed up per kind of need.

    `image` is None without a backing image; `engine_image` is empty where none is known yet.
    """

    node_selector: tuple[str, ...] = ()
    disk_selector: tuple[str, ...] = ()
    data_engine: str = "v1"
    topology: tuple[TopologyTerm, ...] = ()
    image: ImageNeeds | None = None
    engine_image: str = ""


DEFAULT_NEEDS: Final = DiskNeeds()


@dataclass(frozen=True, slots=True)
class Disk:
    """One disk of a Longhorn node that stands in its spec and in its status; the UUID identifies it on its node. What
    lies on one of several disks of a UUID, as cloned nodes have them, counts on each: Longhorn sums it up by UUID."""

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
    is_under_pressure: bool = False  # Schedulable is False with reason DiskPressure
    scheduled_images: Mapping[str, int] = field(default_factory=dict)  # backing image name -> bytes
    path: str = ""  # where it is mounted, or its device
    not_ready: str = "condition Ready is not True"  # what Longhorn says of that while it is not
    not_schedulable: str = "condition Schedulable is not True"

    @property
    def spare_bytes(self) -> int:
        """What is available and not reserved."""
        return self.available_bytes - self.reserved_bytes

    @property
    def shows_space(self) -> bool:
        """Whether its figures are there, and anything is available."""
        return self.maximum_bytes > 0 and self.available_bytes > 0


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
    record: NodeRecord | None = None  # what is allocated there, where the Node itself carries that
    not_ready: str = "condition Ready is not True"  # what Longhorn says of that while it is not
    not_schedulable: str = "condition Schedulable is not True"
    is_cordoned: bool = False  # Schedulable is False with reason KubernetesNodeCordoned


def repeated_disk_uuids(node: LonghornNode) -> frozenset[str]:
    """UUIDs that more than one disk of the node has: which of them holds a replica, nobody can tell. Longhorn looks a
    disk up by its UUID within the replica's node, so that nodes may share one. A disk without a UUID repeats none."""
    if len(node.disks) < 2:
        return frozenset()
    counts = Counter(disk.uuid for disk in node.disks if disk.uuid)
    return frozenset(uuid for uuid, count in counts.items() if count > 1)


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
    node_id: str = ""  # where it should be attached; "" while detached
    state: str = ""
    robustness: str = ""
    scheduled: bool | None = None  # the condition `Scheduled`; None while it is missing or unknown
    needs: DiskNeeds = DEFAULT_NEEDS
    soft_anti_affinity: str = "ignored"  # of several replicas on a node
    deleting: bool = False
    version: int = field(default=0, compare=False)  # resourceVersion; a heartbeat is no change
    zone_soft_anti_affinity: str = "ignored"
    disk_soft_anti_affinity: str = "ignored"
    auto_balance: str = "ignored"  # "ignored" for the setting
    clone_mode: str = ""  # one of CLONE_MODES, or ""
    data_source: str = ""  # vol://<volume> or snap://<volume>/<snapshot>
    clone_state: str = ""  # status.cloneStatus.state
    backing_image: str = ""
    image: str = ""  # the engine image
    frontend: str = ""
    from_backup: str = ""
    last_degraded_at: str = ""  # RFC3339, "" for never
    data_layout: str = "replicated"  # or "sharded"
    migration_node_id: str = ""
    restore_required: bool = False
    is_standby: bool = False
    expansion_required: bool = False
    scheduling_unknown: bool = False  # the condition `Scheduled` exists and is neither True nor False
    owner_id: str = ""  # the node whose manager looks after it; to grow while detached, it is attached there
    wanted_frontend: str = ""  # spec.frontend, also while it is attached without one
    uid: str = ""

    @property
    def source_volume(self) -> str:
        """The volume that this one is a clone of, or "" when it is none."""
        kind, _, rest = self.data_source.partition("://")
        return rest.split("/", 1)[0] if kind in ("vol", "snap") else ""


@dataclass(frozen=True, slots=True)
class Replica:
    """One copy of a volume; `node` and `disk_uuid` are empty until it is placed."""

    name: str
    volume: str
    size_bytes: int
    node: str = ""
    disk_uuid: str = ""
    hard_node_affinity: str = ""
    active: bool = True
    healthy_at: str = ""
    failed_at: str = ""
    eviction_requested: bool = False
    rebuild_retry_count: int = 0
    deleting: bool = False
    image: str = ""  # the engine image
    data_engine: str = "v1"
    backing_image: str = ""
    linked_clone_source: str = ""  # spec.linkedCloneSrcReplicaName
    uid: str = ""
    version: int = field(default=0, compare=False)  # resourceVersion
    held: str = ""  # our mark: since when Longhorn is kept from placing it, as RFC3339
    is_left: bool = False  # our mark: Longhorn places it

    @property
    def is_placed(self) -> bool:
        return bool(self.node and self.disk_uuid)

    @property
    def is_usable(self) -> bool:
        """Placed, not failed, not being evicted, not an inactive twin and not being deleted: a pod can run next to
        it."""
        return (
            self.is_placed and not self.failed_at and not self.eviction_requested and self.active and not self.deleting
        )

    @property
    def is_potentially_reusable(self) -> bool:
        """Failed, but Longhorn may bring its data back instead of making a new copy."""
        return (
            bool(self.failed_at)
            and self.is_placed
            and self.rebuild_retry_count < MAX_REBUILD_RETRIES
            and not self.eviction_requested
        )


@dataclass(frozen=True, slots=True)
class BackingImage:
    """An image that volumes are made on. Sizes are 0 until Longhorn knows them."""

    name: str
    node_selector: tuple[str, ...] = ()
    disk_selector: tuple[str, ...] = ()
    data_engine: str = "v1"
    real_size_bytes: int = 0
    size_bytes: int = 0
    disk_uuids: frozenset[str] = frozenset()  # spec.diskFileSpecMap: the disks that hold a copy or are to get one
    status_disk_uuids: frozenset[str] = frozenset()  # status.diskFileStatusMap: where a file was seen last
    virtual_size_bytes: int = 0  # which a volume needs at least
    version: int = field(default=0, compare=False)  # resourceVersion

    @property
    def copy_disk_uuids(self) -> frozenset[str]:
        """The disks that either map names: a copy is there, or is to come, or has not been removed yet."""
        return self.disk_uuids | self.status_disk_uuids

    def names_disk(self, uuid: str) -> bool:
        """Whether either map does."""
        return uuid in self.disk_uuids or uuid in self.status_disk_uuids

    @property
    def needs(self) -> ImageNeeds:
        return ImageNeeds(self.node_selector, self.disk_selector, self.name)


@dataclass(frozen=True, slots=True)
class Backup:
    """A backup of a volume. A volume that is restored from it is as large as the one that was backed up."""

    name: str
    url: str  # "" while Longhorn has not read the backup target
    volume_bytes: int  # 0 while it is not known


@dataclass(frozen=True, slots=True)
class EngineImage:
    """A v1 engine's image and the nodes that have it."""

    name: str
    image: str
    state: str
    nodes: frozenset[str]  # status.nodeDeploymentMap is true there

    @property
    def ready_nodes(self) -> frozenset[str]:
        return self.nodes if self.state in ("deployed", "deploying") else frozenset()

    def is_ready_on(self, node: str) -> bool:
        return node in self.ready_nodes


@dataclass(frozen=True, slots=True)
class InstanceManager:
    """The process on a node that runs engines and replicas of one data engine."""

    name: str
    node: str
    data_engine: str
    image: str
    state: str
    type: str = "aio"
    deleting: bool = False

    @property
    def is_running(self) -> bool:
        return self.state == "running" and not self.deleting


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
    default_data_locality: str = DATA_LOCALITIES[0]
    degraded_availability: bool = True
    soft_anti_affinity: bool = False
    zone_soft_anti_affinity: bool = True
    disk_soft_anti_affinity: bool = True
    auto_balance: str = "disabled"
    disk_pressure_pct: int = 90  # of a disk in use, beyond which best-effort auto-balance moves replicas; 0: never
    replenishment_wait_seconds: int = 600
    instance_manager_image: str = ""  # "": not known, any instance manager serves
    fast_rebuild_v1: bool = True
    fast_rebuild_v2: bool | None = None  # None: neither of the setting's names is there, the version's default holds
    concurrent_rebuild_limit: int = 5  # a node's; 0: no rebuilding, no eviction, no locality moves
    default_engine_image: str = ""  # of new v1 volumes; "": not known
    closes_cordoned: bool = True  # a Kubernetes node's cordon makes Longhorn's node not schedulable
    makes_v1: bool = True  # new volumes of that data engine; a setting that is not there is not known to forbid it
    makes_v2: bool = True
    behaviour: Behaviour = NEWEST  # of the release that runs

    @property
    def reuses_failed_v2(self) -> bool:
        """Whether failed replicas of v2 volumes are brought back: by the setting that exists, else by the release."""
        return self.behaviour.reuses_failed_v2_replicas if self.fast_rebuild_v2 is None else self.fast_rebuild_v2

    def default_replica_count(self, data_engine: str) -> int:
        return self.default_replica_count_v2 if data_engine == "v2" else self.default_replica_count_v1
