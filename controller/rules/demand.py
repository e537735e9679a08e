"""Which Longhorn volumes a pod uses, and what each of them needs of a node.

Rules, by volume (docs/rules/needs.md has them as a table for operators):

- the volume's data lies on the node and stays there: nothing is placed there, so no room is needed;
- `strict-local` with a placed replica: only that node is possible;
- `strict-local`, or `best-effort` with one replica, without one on the node: room for one replica on that node;
- everything else (`disabled`, `best-effort` with more copies, non-migratable RWX): Longhorn places it where it likes,
  so the volume is a demand on the cluster, not on the pod's node;
- sharded volumes restrict nothing: their bytes count once Longhorn's figures show them;
- a class that Longhorn refuses, or whose volumes no pod can mount (`never`): no node is possible, nothing is promised;
- a claim that is not bound yet: the same, of the volume that it will get (controller/rules/provisioning.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from controller.model import names
from controller.model.longhorn import (
    LINKED_CLONE,
    SHARDED,
    BackingImage,
    DiskNeeds,
    LonghornSettings,
    Replica,
    Volume,
)
from controller.model.workload import Claim, PersistentVolume, Pod, PodVolume, StorageClass
from controller.rules.affinity import clone_sources
from controller.rules.locality import Reach, locality_of
from controller.rules.provisioning import (
    CLAIM_SOURCE,
    MADE_IMAGES,
    SNAPSHOT_SOURCE,
    Lookup,
    finds_volume,
    follows_topology,
    image_needs,
    new_volume,
    provisioned_name,
    unread_backup,
    why_never,
)

_KINDS: Final[Mapping[str, str]] = {"class": "StorageClass", "pv": "PersistentVolume", "volume": "Longhorn volume"}
"""What people call them, where that is another word."""


@dataclass(frozen=True, slots=True)
class VolumeDemand:
    """What one volume of a pod needs. Sizes in bytes."""

    key: str  # the claim's UID
    claim: str  # "namespace/name", for people
    volume: str  # the Longhorn Volume's name, also when it does not exist yet
    size_bytes: int
    required_bytes: int  # that are written and would be copied to a new replica; 0 for a new volume
    needs: DiskNeeds
    is_local: bool  # the pod's own node must have room, unless it is one of `home_nodes`
    is_pinned: bool  # strict-local with a placed replica
    is_roaming: bool  # it has copies to be placed that may go to any node
    copies: int  # that are still to be placed
    usable_nodes: frozenset[str]  # with a usable replica: the pod can run next to its data at once
    placed_nodes: frozenset[str]  # with any replica that is not being deleted
    home_nodes: frozenset[str]  # with data that stays, usable or to be brought back: nothing is placed there
    facts: Volume  # as it is, or as it will be made
    exists: bool = True
    prefers_local: bool = False  # Longhorn puts one of several copies next to the engine if it can, but does without
    image: BackingImage | None = None  # the volume's backing image, if it is known
    clone_disks: frozenset[str] | None = None  # a linked clone goes to these disks only; None: it is no linked clone
    follows: str = ""  # "zone" or "region": of the chosen node, to which a new volume is bound
    never: str = ""  # why Longhorn never makes or attaches a volume of that class
    is_served: bool = False  # by a share-manager, to pods on any nodes; others are attached where their pods run
    unread_backup: str = ""  # the Backup from which it is restored, if its size is not known: the volume may be larger


@dataclass(frozen=True, slots=True)
class Missing:
    """An object to which a pod refers, and which is not in the stores (yet)."""

    kind: str  # "claim", "class", "pv", "volume", "backup"
    namespace: str
    name: str

    @property
    def text(self) -> str:
        """Its kind and name, for people."""
        return f"{_KINDS.get(self.kind, self.kind)} {self.namespace + '/' if self.namespace else ''}{self.name}"


def demands_of_pod(
    pod: Pod, lookup: Lookup, demand_for: Callable[[Claim], VolumeDemand | Missing | None]
) -> tuple[list[VolumeDemand], list[Missing]]:
    """Return the demands of the pod's Longhorn volumes, each volume once, and the objects that are missing. A volume
    whose backup is missing counts with the size that is requested. `demand_for`: `demand_of_claim`, or its results."""
    demands: dict[str, VolumeDemand] = {}
    missing: list[Missing] = []
    for volume in pod.volumes:
        claim = claim_for(pod, volume, lookup)
        if claim is None:
            missing.append(Missing("claim", pod.namespace, volume.claim))
            continue
        found = demand_for(claim)
        if isinstance(found, Missing):
            missing.append(found)
        elif found is not None:
            demands.setdefault(found.volume, found)
            if found.unread_backup and lookup.backup(found.unread_backup) is None:
                missing.append(Missing("backup", "", found.unread_backup))
    return list(demands.values()), missing


def claim_for(pod: Pod, volume: PodVolume, lookup: Lookup) -> Claim | None:
    """Return the claim of that volume, or None while there is none, or only one of that name that is not the pod's: the
    claim of a generic ephemeral volume is made for its pod and goes with it, and kube-scheduler asks about no pod
    before its own claim exists (`VolumeIsForPod` of Kubernetes' `component-helpers`)."""
    claim = lookup.claim(pod.namespace, volume.claim)
    if claim is not None and volume.is_ephemeral and claim.owner_pod_uid != pod.uid:
        return None
    return claim


def demand_of_claim(claim: Claim, lookup: Lookup, settings: LonghornSettings) -> VolumeDemand | Missing | None:
    """Return what the claim's volume needs; None if it is not Longhorn's, or not this claim's any more."""
    if claim.volume_name:
        return _demand_of_bound(claim, lookup, settings)
    if claim.class_name == "" or claim.has_selector:
        return None  # bound to a volume that exists, never provisioned
    spare = lookup.spare_pvs.get(claim.class_name or "")
    if spare is not None and not claim.selected_node and finds_volume(claim, spare, lookup.unbound_claims()):
        return None  # kube-scheduler binds it to a volume that exists
    storage_class = lookup.storage_class(claim.class_name)
    if storage_class is None:
        return Missing("class", "", claim.class_name) if claim.class_name else None
    if storage_class.provisioner != names.LONGHORN_DRIVER:
        return None  # the retired name occurs only on old PVs: nothing provisions under it
    if claim.data_source and not claim.data_source.startswith((CLAIM_SOURCE, SNAPSHOT_SOURCE)):
        return None  # filled by a populator, whose own prime claim carries the demand
    volume = lookup.volume(provisioned_name(claim))
    if volume is not None:
        return _demand(claim.uid, claim.key, volume, lookup, settings, None)
    volume = new_volume(claim, storage_class, lookup, settings)
    demand = _demand(claim.uid, claim.key, volume, lookup, settings, storage_class)
    return replace(demand, never=why_never(claim, storage_class, volume, lookup, settings))


def is_longhorns(claim: Claim, lookup: Lookup) -> bool:
    """Return whether the claim has or gets a volume of Longhorn's, be it one that exists or that others fill."""
    if claim.volume_name:
        pv = lookup.pv(claim.volume_name)
        return pv is not None and pv.driver in names.LONGHORN_DRIVERS
    storage_class = None if claim.class_name == "" or claim.has_selector else lookup.storage_class(claim.class_name)
    return storage_class is not None and storage_class.provisioner == names.LONGHORN_DRIVER


def _demand_of_bound(claim: Claim, lookup: Lookup, settings: LonghornSettings) -> VolumeDemand | Missing | None:
    pv = lookup.pv(claim.volume_name)
    if pv is None:
        return Missing("pv", "", claim.volume_name)
    if pv.driver not in names.LONGHORN_DRIVERS or _has_heir(claim, pv, lookup):
        return None
    volume = lookup.volume(pv.handle)
    if volume is None:
        return Missing("volume", "", pv.handle)
    return _demand(claim.uid, claim.key, volume, lookup, settings, None)


def _has_heir(claim: Claim, pv: PersistentVolume, lookup: Lookup) -> bool:
    """Whether the PV was passed on to another claim, as populators do with their prime claim's.

    Until the other claim names the PV as well, this one still stands for the volume: it always has a claim.
    """
    if not pv.claim_uid or pv.claim_uid == claim.uid:
        return False
    namespace, _, name = pv.claim_key.partition("/")
    heir = lookup.claim(namespace, name)
    return heir is not None and heir.uid == pv.claim_uid and heir.volume_name == pv.name


def demand_of_volume(volume: Volume, lookup: Lookup, settings: LonghornSettings) -> VolumeDemand:
    """Return what a volume without a claim needs, with its own name as the key."""
    return _demand(volume.name, "", volume, lookup, settings, None)


def _demand(
    key: str, claim: str, volume: Volume, lookup: Lookup, settings: LonghornSettings, made_by: StorageClass | None
) -> VolumeDemand:
    """The demand of a volume that exists, or will be made by the class `made_by`."""
    replicas = lookup.replicas_of(volume.name).values() if made_by is None else ()
    active = [replica for replica in replicas if not replica.deleting]
    placed = frozenset(replica.node for replica in active if replica.is_placed)
    usable = frozenset(replica.node for replica in active if replica.is_usable)
    kept = [replica for replica in active if replica.is_usable or _comes_back(replica, volume, settings)]
    reach = locality_of(volume).reach
    is_pinned = reach is Reach.NODE_ONLY and bool(placed)
    is_sharded = volume.data_layout == SHARDED
    is_local = not is_sharded and _wants_local(volume, reach, settings, is_placed=bool(placed))
    copies = 0 if is_sharded else max(0, volume.replica_count - len(kept))
    image = lookup.backing_image(volume.backing_image) if volume.backing_image else None
    source = made_by.parameters.get("backingImageDataSourceType") if made_by is not None and image is None else None
    return VolumeDemand(
        key=key,
        claim=claim,
        volume=volume.name,
        size_bytes=volume.size_bytes,
        required_bytes=volume.actual_size_bytes,
        needs=needs_of_volume(volume, lookup, made_by),
        is_local=is_local,
        is_pinned=is_pinned,
        is_roaming=not is_local and copies > 0,
        copies=copies,
        usable_nodes=usable,
        placed_nodes=placed,
        home_nodes=placed if is_pinned else frozenset(replica.node for replica in kept),
        facts=replace(volume, backing_image="") if source in MADE_IMAGES else volume,  # it takes nothing before
        exists=made_by is None,
        prefers_local=not is_local and reach is Reach.NODE_FIRST and not is_served(volume),
        image=image,
        clone_disks=_clone_disks(volume, lookup, settings),
        follows=follows_topology(made_by) if made_by is not None else "",
        is_served=is_served(volume),
        unread_backup=unread_backup(volume, lookup) if made_by is not None else "",
    )


def needs_of_volume(volume: Volume, lookup: Lookup, made_by: StorageClass | None = None) -> DiskNeeds:
    """Return what the volume's replicas need of nodes and disks besides room. `made_by`: as for `_demand`."""
    image = image_needs(volume, made_by, lookup)
    if image is None and not volume.image:
        return volume.needs
    return replace(volume.needs, image=image, engine_image=volume.image)


def is_served(volume: Volume) -> bool:
    """Whether a share-manager serves the volume: the engine runs on its node, wherever the pods are."""
    return volume.access_mode == "rwx" and not volume.migratable


def _wants_local(volume: Volume, reach: Reach, settings: LonghornSettings, *, is_placed: bool) -> bool:
    """Whether a replica has to lie on the node of the pod."""
    if is_served(volume):
        return False
    if reach is Reach.NODE_ONLY:
        return True
    if reach is Reach.ANYWHERE or volume.replica_count != 1:
        return False
    # Older releases place it when it is made, on any node; only what follows the engine later is local.
    return is_placed or settings.behaviour.places_best_effort_at_attach


def _comes_back(replica: Replica, volume: Volume, settings: LonghornSettings) -> bool:
    """Whether Longhorn brings a failed replica back where it lies, which needs no room (`ReuseFailedReplica`)."""
    if not (replica.is_potentially_reusable and replica.active):
        return False
    return volume.needs.data_engine != "v2" or settings.reuses_failed_v2


def _clone_disks(volume: Volume, lookup: Lookup, settings: LonghornSettings) -> frozenset[str] | None:
    """The disks of the healthy source replicas, next to which a linked clone has to lie; None for other volumes."""
    if volume.clone_mode != LINKED_CLONE:
        return None
    sources = clone_sources(volume, lookup.replicas_of(volume.source_volume).values(), settings.behaviour)
    return None if sources is None else frozenset(source.disk_uuid for source in sources)
