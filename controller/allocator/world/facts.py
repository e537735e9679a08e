"""Facts of the cluster by kind and key, as Longhorn and Kubernetes show them, with the look-ups that demands need.

Threads: none of its own; the allocator's lock guards it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from controller.allocator.world.backups import Backups
from controller.allocator.world.engines import EngineFacts
from controller.allocator.world.replicas import Granted, NothingGranted, ReplicaIndex
from controller.allocator.world.share_managers import ShareManagers
from controller.model.longhorn import BackingImage, Backup, Disk, LonghornNode, LonghornSettings, Replica, Volume
from controller.model.workload import Claim, KubeNode, PersistentVolume, Pod, StorageClass, default_class
from controller.rules.demand import Missing, VolumeDemand, claim_for, demand_of_claim, demands_of_pod, is_longhorns
from controller.rules.eligibility import observed_scheduled
from controller.rules.provisioning import provisioned_name, rounded_volume_bytes

_NO_IMAGES: Final[Mapping[str, int]] = {}


class ClaimNames(NamedTuple):
    """ "namespace/name" of claims by their Longhorn volumes: by the PV, and by the UID of which the name is made."""

    by_volume: Mapping[str, str]
    by_uid: Mapping[str, str]

    def of(self, volume: str) -> str:
        """The name of the volume's claim; "" if it has none."""
        return self.by_volume.get(volume) or self.by_uid.get(volume.removeprefix("pvc-"), "")


class Facts:
    """Latest facts, to be read. `granted` tells what volumes may become at any moment; `touch` hears of disks whose
    content changed."""

    def __init__(self, granted: Granted | None, touch: Callable[[str], None]) -> None:
        self._granted = granted or NothingGranted()
        self.pods: dict[str, Pod] = {}  # by uid
        self.waiting: set[str] = set()  # uids of opted-in pods without a node
        self.claims: dict[str, Claim] = {}  # by namespace/name
        self.pvs: dict[str, PersistentVolume] = {}
        self.spare_pvs: dict[str, tuple[PersistentVolume, ...]] = {}  # by class
        self._unbound: set[str] = set()  # keys of claims
        self.classes: dict[str, StorageClass] = {}
        self.volumes: dict[str, Volume] = {}
        self.nodes: dict[str, LonghornNode] = {}
        self.kube_nodes: dict[str, KubeNode] = {}
        self.backing_images: dict[str, BackingImage] = {}
        self.backups = Backups()
        self.settings = LonghornSettings()
        self.absent: dict[Missing, float] = {}  # a live read found at that time that it does not exist
        self._uid_by_pod_key: dict[str, str] = {}
        self._claim_by_uid: dict[str, str] = {}
        self._pods_by_claim: dict[str, set[str]] = {}  # claim key -> pod uids
        self.replicas = ReplicaIndex(touch)
        self.reused: dict[str, float] = {}  # failed replicas of which somebody was told that they come back, and when
        self.growing: set[str] = set()  # volumes that Longhorn shows smaller somewhere than the cluster asks for
        self._claim_key_by_volume: dict[str, str] = {}  # Longhorn volume -> claim key, by its PV
        self.share_managers = ShareManagers()
        self._engines = EngineFacts()
        self._demands: dict[str, VolumeDemand | Missing | None] = {}  # by claim uid
        self._tied: set[str] = set()  # those that follow from more than the claim, its PV and its volume

    # Lookup, as the demands ask for it

    def claim(self, namespace: str, name: str) -> Claim | None:
        return self.claims.get(f"{namespace}/{name}")

    def unbound_claims(self) -> Iterable[Claim]:
        return (self.claims[key] for key in self._unbound)

    def pv(self, name: str) -> PersistentVolume | None:
        return self.pvs.get(name)

    def volume(self, name: str) -> Volume | None:
        """The volume, as large as it was granted."""
        volume, target = self.volumes.get(name), self._granted.target_of(name)
        if volume is None:
            return None
        return volume if volume.size_bytes >= target else replace(volume, size_bytes=target)

    def backing_image(self, name: str) -> BackingImage | None:
        return self.backing_images.get(name)

    def backup(self, name: str) -> Backup | None:
        return self.backups.get(name)

    def default_engine_image(self) -> str:
        """The image of a new v1 volume: Longhorn's setting, else the one on most nodes; "" without any EngineImage."""
        return self.settings.default_engine_image or self._engines.default_image()

    def replicas_of(self, volume: str) -> Mapping[str, Replica]:
        return self.replicas.of(volume)

    def disk(self, node: str, uuid: str) -> Disk | None:
        """The disk with that UUID, as the node shows it."""
        facts = self.nodes.get(node)
        return next((disk for disk in facts.disks if disk.uuid == uuid), None) if facts is not None else None

    def disks_of_volume(self, volume: str) -> set[tuple[str, str]]:
        """Node and UUID of the disks on which its replicas lie."""
        return {(one.node, one.disk_uuid) for one in self.replicas.of(volume).values() if one.is_placed}

    def replicas_on(self, disk_uuid: str) -> Collection[Replica]:
        return self.replicas.on(disk_uuid)

    def counted_on(self, disk_uuid: str) -> Collection[Replica]:
        """The replicas on that disk, each as large as it may become at any moment."""
        replicas = self.replicas.on(disk_uuid)
        if not self._granted.grows_on(disk_uuid):
            return replicas
        targets = ((one, self._granted.target_of(one.volume)) for one in replicas)
        return [replace(one, size_bytes=target) if target > one.size_bytes else one for one, target in targets]

    def scheduled_on(self, disk: Disk) -> int:
        """The bytes on that disk by Longhorn's count, or more where its figure lags behind what lies there."""
        return observed_scheduled(disk, self.counted_on(disk.uuid), self.images_on(disk.uuid))

    def lacks_image(self, image: BackingImage, disk_uuid: str) -> bool:
        """Whether a replica that is made on the image would bring the first copy of it to that disk."""
        if disk_uuid in image.disk_uuids:
            return False
        return not any(one.backing_image == image.name for one in self.replicas.on(disk_uuid))

    def disks_with_image(self, name: str) -> set[str]:
        """UUIDs of the disks with a replica that is made on that image. Costs: a look at each."""
        return self.replicas.disks_with_image(name)

    def images_on(self, disk_uuid: str) -> Mapping[str, int]:
        """Bytes of the backing images, by name, that name the disk or come with its replicas. The disk's own figure
        tells of them late."""
        images = self.backing_images
        if not images:
            return _NO_IMAGES
        names = {one.backing_image for one in self.replicas.on(disk_uuid)}
        names.update(name for name, one in images.items() if one.names_disk(disk_uuid))
        return {name: images[name].real_size_bytes for name in names & images.keys()}

    def storage_class(self, name: str | None) -> StorageClass | None:
        """The class of that name; for None the default class."""
        if name is not None:
            return self.classes.get(name)
        return default_class(self.classes.values())

    def pod_by_key(self, key: str) -> Pod | None:
        uid = self._uid_by_pod_key.get(key)
        return None if uid is None else self.pods[uid]

    def claims_of(self, pod: Pod) -> list[Claim]:
        return [claim for volume in pod.volumes if (claim := claim_for(pod, volume, self))]

    def claim_by_uid(self, uid: str) -> Claim | None:
        key = self._claim_by_uid.get(uid)
        return None if key is None else self.claims.get(key)

    def claim_names(self) -> ClaimNames:
        """The claims' names, to keep. Costs: two copied mappings."""
        return ClaimNames(self._claim_key_by_volume.copy(), self._claim_by_uid.copy())

    def users(self, claim_key: str) -> Collection[str]:
        """UIDs of the pods that name the claim."""
        return self._pods_by_claim.get(claim_key, ())

    def pods_of_claim(self, key: str) -> list[Pod]:
        return [self.pods[uid] for uid in sorted(self._pods_by_claim.get(key, ()))]

    def sharing(self, pod: Pod) -> list[str]:
        """UIDs of the other pods that name any of its claims. Costs: a look at each user of each claim."""
        return sorted(set[str]().union(*map(self.users, pod.claim_keys)) - {pod.uid})

    def claim_of_volume(self, volume: str) -> Claim | None:
        key = self._claim_key_by_volume.get(volume)
        if key is not None:
            return self.claims.get(key)
        return self.claim_by_uid(volume.removeprefix("pvc-"))  # provisioned, its PV not seen yet

    def volume_of(self, key: str) -> str:
        """The Longhorn volume of the claim with the uid `key`; `key` itself if there is no such claim."""
        claim = self.claim_by_uid(key)
        if claim is None:
            return key
        pv = self.pvs.get(claim.volume_name)
        return pv.handle if pv is not None else provisioned_name(claim)

    def claims_of_volume(self, volume: str) -> list[Claim]:
        """The claim that has the volume and, if that is another one, the claim for which it was made."""
        claim, first = self.claim_of_volume(volume), self.claim_by_uid(volume.removeprefix("pvc-"))
        return [one for one in (claim, first if first is not claim else None) if one is not None]

    def asked_bytes(self, volume: Volume) -> int:
        """The size that the cluster asks for: the volume's own, or the request of the claim that is bound to it, as
        Longhorn rounds it.

        A volume that was provisioned for its claim is as large as the claim asked for, until the claim asks for more.
        One that was made by hand need not be as large as its PV says, and one that was restored has the size of its
        backup, whatever was asked for: there the request has to be beyond the PV's capacity.
        """
        claim = self.claim_of_volume(volume.name)
        pv = self.pvs.get(claim.volume_name) if claim is not None and claim.volume_name else None
        if claim is None or pv is None or pv.handle != volume.name or pv.claim_uid not in ("", claim.uid):
            return volume.size_bytes
        has_other_size = provisioned_name(claim) != volume.name or bool(volume.from_backup)
        if volume.deleting or (has_other_size and claim.requested_bytes <= pv.capacity_bytes):
            return volume.size_bytes
        return max(volume.size_bytes, rounded_volume_bytes(claim.requested_bytes))

    def _is_growing(self, name: str) -> bool:
        volume = self.volumes.get(name)
        if volume is None:
            return False
        asked = self.asked_bytes(volume)
        return asked > volume.size_bytes or any(entry.size_bytes < asked for entry in self.replicas.of(name).values())

    def demand_of(self, claim_uid: str) -> VolumeDemand | None:
        """The demand of that claim's volume now; None if it needs nothing, or that is not known."""
        claim = self.claim_by_uid(claim_uid)
        found = None if claim is None else self.demand_for(claim)
        return None if isinstance(found, Missing) else found

    def demands_of(self, pod: Pod) -> tuple[list[VolumeDemand], list[Missing]]:
        """The demands of the pod's Longhorn volumes, and the objects that are missing."""
        return demands_of_pod(pod, self, self.demand_for)

    def uses_longhorn(self, pod: Pod) -> bool:
        """Whether any of the pod's claims has or gets a volume of Longhorn's, also one that has no demand."""
        return any(is_longhorns(claim, self) for claim in self.claims_of(pod))

    def demand_for(self, claim: Claim) -> VolumeDemand | Missing | None:
        """What the claim's volume needs, or the object that is missing. Costs: once it was asked for, nothing until
        something changes that it follows from."""
        if claim.uid not in self._demands:
            found = self._demands[claim.uid] = demand_of_claim(claim, self, self.settings)
            if not self._is_by_itself(claim, found):
                self._tied.add(claim.uid)
        return self._demands[claim.uid]

    def _is_by_itself(self, claim: Claim, found: VolumeDemand | Missing | None) -> bool:
        """Whether the demand follows from the claim, its PV, its volume with its replicas, and what is forgotten as a
        whole: classes, settings, images and backups."""
        if not isinstance(found, VolumeDemand) or found.facts.data_source or found.facts.clone_mode:
            return False
        pv = self.pvs.get(claim.volume_name)
        is_passed_on = pv is not None and pv.claim_uid not in ("", claim.uid)
        may_find_another = not claim.volume_name and (claim.class_name or "") in self.spare_pvs
        is_heard = any(one.uid == claim.uid for one in self.claims_of_volume(found.volume))
        return is_heard and not (claim.data_source or is_passed_on or may_find_another)

    def _forget_demands(self, *volumes: str) -> None:
        """Have the demands of these volumes' claims worked out anew, and those that follow from others' facts."""
        gone = {claim.uid for volume in volumes for claim in self.claims_of_volume(volume)} | self._tied
        for uid in gone:
            self._demands.pop(uid, None)
        self._tied.clear()
