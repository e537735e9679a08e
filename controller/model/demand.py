"""Which Longhorn volumes a pod needs, and what each of them asks of a node.

Rules, by volume (docs/how-it-decides.md has them as a table for operators):

- a usable replica on the node: no room needed there;
- `strict-local` with a placed replica: only that node is possible;
- `strict-local`, or `best-effort` with one replica, without one on the node: room for one replica on the pod's own
node;
- everything else (`disabled`, `best-effort` with more copies, non-migratable RWX): Longhorn places it where it likes,
so the
  volume is a demand on the cluster, not on the pod's node;
- a claim that is not bound yet: the same by its StorageClass and Longhorn's defaults, sized as Longhorn's CSI
controller
  (`csi/controller_server.go`) sizes it: at least 10 MiB, rounded up to 2 MiB.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from controller.model import names
from controller.model.longhorn import (
    LOCALITY_BEST_EFFORT,
    LOCALITY_STRICT,
    DiskNeeds,
    LonghornSettings,
    Replica,
    Volume,
)
from controller.model.workload import Claim, PersistentVolume, Pod, PodVolume, StorageClass

MIN_VOLUME_BYTES: Final = 10 * 1024**2
VOLUME_GRANULE_BYTES: Final = 2 * 1024**2
MAX_VOLUME_BYTES: Final = 2**63 - VOLUME_GRANULE_BYTES
_CLONE_SOURCES: Final = ("PersistentVolumeClaim/", "VolumeSnapshot/")


@dataclass(frozen=True, slots=True)
class VolumeDemand:
    """What one volume of a pod needs. Sizes in bytes."""

    key: str  # the claim's uid: whose promise it is
    claim: str  # "namespace/name", for people
    volume: str  # the Longhorn Volume's name, also when it does not exist yet
    size_bytes: int
    required_bytes: int  # written already, what a rebuild copies; 0 for a new volume
    needs: DiskNeeds
    is_local: bool  # the pod's own node must have room, unless a usable replica lies there
    is_pinned: bool  # strict-local with a placed replica
    is_roaming: bool  # Longhorn still has copies to place wherever it likes
    copies: int  # how many copies are to be placed still
    usable_nodes: frozenset[str]
    placed_nodes: frozenset[str]


@dataclass(frozen=True, slots=True)
class Missing:
    """An object that a pod refers to and that is not in our stores (yet)."""

    kind: str  # "claim", "class", "pv", "volume"
    namespace: str
    name: str


class Lookup(Protocol):
    """The facts that demands are made of."""

    def claim(self, namespace: str, name: str) -> Claim | None: ...
    def pv(self, name: str) -> PersistentVolume | None: ...
    def storage_class(self, name: str | None) -> StorageClass | None: ...
    def volume(self, name: str) -> Volume | None: ...
    def replicas_of(self, volume: str) -> Mapping[str, Replica]: ...


def demands_of_pod(pod: Pod, lookup: Lookup, settings: LonghornSettings) -> tuple[list[VolumeDemand], list[Missing]]:
    """The pod's Longhorn volumes, each once, and what could not be found out because an object is missing."""
    demands: dict[str, VolumeDemand] = {}
    missing: list[Missing] = []
    for volume in pod.volumes:
        found = _demand_of(pod, volume, lookup, settings)
        if isinstance(found, Missing):
            missing.append(found)
        elif found is not None:
            demands[found.key] = found
    return list(demands.values()), missing


def _demand_of(
    pod: Pod, volume: PodVolume, lookup: Lookup, settings: LonghornSettings
) -> VolumeDemand | Missing | None:
    claim = lookup.claim(pod.namespace, volume.claim)
    if claim is None:
        return Missing("claim", pod.namespace, volume.claim)
    if volume.is_ephemeral and claim.owner_pod_uid != pod.uid:
        return None  # somebody else's claim of that name: the pod cannot start, whatever we say
    return demand_of_claim(claim, lookup, settings)


def demand_of_claim(claim: Claim, lookup: Lookup, settings: LonghornSettings) -> VolumeDemand | Missing | None:
    """What the claim's volume needs; None when it is not Longhorn's, or has nothing to place."""
    if claim.volume_name:
        pv = lookup.pv(claim.volume_name)
        if pv is None:
            return Missing("pv", "", claim.volume_name)
        if pv.driver not in names.LONGHORN_DRIVERS:
            return None
        volume = lookup.volume(pv.handle)
        return Missing("volume", "", pv.handle) if volume is None else _of_volume(claim, volume, lookup)
    if claim.class_name == "":
        return None  # bound by hand to a volume that exists, never provisioned
    storage_class = lookup.storage_class(claim.class_name)
    if storage_class is None:
        return Missing("class", "", claim.class_name) if claim.class_name else None
    if storage_class.provisioner not in names.LONGHORN_DRIVERS:
        return None
    if claim.data_source and not claim.data_source.startswith(_CLONE_SOURCES):
        return None  # filled by a populator, whose own prime claim carries the demand
    volume = lookup.volume(provisioned_name(claim))
    if volume is not None:
        return _of_volume(claim, volume, lookup)
    return _of_class(claim, storage_class, settings)


def provisioned_name(claim: Claim) -> str:
    """The name that the external provisioner gives to the PV, and Longhorn's CSI controller to the Volume."""
    return f"pvc-{claim.uid}"


def rounded_volume_bytes(requested_bytes: int) -> int:
    """A volume's size as Longhorn makes it of a request: at least 10 MiB, rounded up to a multiple of 2 MiB."""
    size = max(requested_bytes, MIN_VOLUME_BYTES)
    return min(-(-size // VOLUME_GRANULE_BYTES) * VOLUME_GRANULE_BYTES, MAX_VOLUME_BYTES)


def _of_volume(claim: Claim, volume: Volume, lookup: Lookup) -> VolumeDemand:
    replicas = lookup.replicas_of(volume.name).values()
    placed = frozenset(replica.node for replica in replicas if replica.is_placed and not replica.deleting)
    healthy = sum(1 for replica in replicas if replica.is_usable)
    is_shared = volume.access_mode == "rwx" and not volume.migratable
    is_local = not is_shared and _wants_local(volume.data_locality, volume.replica_count)
    return VolumeDemand(
        key=claim.uid,
        claim=claim.key,
        volume=volume.name,
        size_bytes=volume.size_bytes,
        required_bytes=volume.actual_size_bytes,
        needs=volume.needs,
        is_local=is_local,
        is_pinned=volume.data_locality == LOCALITY_STRICT and bool(placed),
        is_roaming=not is_local and healthy < volume.replica_count,
        copies=max(0, volume.replica_count - healthy),
        usable_nodes=frozenset(replica.node for replica in replicas if replica.is_usable),
        placed_nodes=placed,
    )


def _of_class(claim: Claim, storage_class: StorageClass, settings: LonghornSettings) -> VolumeDemand:
    parameters = storage_class.parameters
    engine = parameters.get("dataEngine") or "v1"
    locality = parameters.get("dataLocality") or settings.default_data_locality
    count = _count(parameters.get("numberOfReplicas")) or settings.default_replica_count(engine)
    is_shared = claim.is_shared and parameters.get("migratable") != "true"
    is_local = not is_shared and _wants_local(locality, count)
    return VolumeDemand(
        key=claim.uid,
        claim=claim.key,
        volume=provisioned_name(claim),
        size_bytes=rounded_volume_bytes(claim.requested_bytes),
        required_bytes=0,
        needs=DiskNeeds(_selector(parameters, "nodeSelector"), _selector(parameters, "diskSelector"), engine),
        is_local=is_local,
        is_pinned=False,
        is_roaming=not is_local,
        copies=count,
        usable_nodes=frozenset(),
        placed_nodes=frozenset(),
    )


def _wants_local(locality: str, replica_count: int) -> bool:
    return locality == LOCALITY_STRICT or (locality == LOCALITY_BEST_EFFORT and replica_count == 1)


def _count(text: str | None) -> int:
    """A replica count out of a class parameter; 0, and so the default, for what Longhorn would refuse anyway."""
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 4 else 0


def _selector(parameters: Mapping[str, str], name: str) -> tuple[str, ...]:
    """A comma list as Longhorn splits it: not trimmed, and sorted as its mutating webhook stores it."""
    text = parameters.get(name)
    return tuple(sorted(text.split(","))) if text else ()
