"""The external provisioner and Longhorn's CSI controller: claims to volumes and PVs, and the way back."""

from __future__ import annotations

import logging

from tests.cluster.client import ApiError
from tests.longhorn import paths
from tests.longhorn.classes import backup_of, refusal, requested_bytes, rounded, volume_spec
from tests.longhorn.install import ensure
from tests.longhorn.volumes import Volumes
from tests.longhorn.world import Busy, LonghornWorld, Raw, let_go

logger = logging.getLogger(__name__)

SOURCE_SECONDS = 0.5
KUBERNETES_SOURCES = (None, "PersistentVolumeClaim", "VolumeSnapshot")


class Provisioner:
    """Threads: reflectors' and the pool's."""

    def __init__(self, world: LonghornWorld, volumes: Volumes) -> None:
        self._world, self._volumes = world, volumes
        self._busy = Busy()  # claims' and PVs' uids
        world.listen("claims", self._on_claim)
        world.listen("classes", self._on_class)
        world.listen("pvs", self._on_pv)

    def _on_class(self, verb: str, _raw: Raw) -> None:
        if verb == "ADDED":
            for claim in self._world.stores["claims"].snapshot().values():
                self._on_claim("MODIFIED", claim)

    def _on_claim(self, verb: str, claim: Raw) -> None:
        if verb == "DELETED" or claim["spec"].get("volumeName") or claim["metadata"].get("deletionTimestamp"):
            return
        annotations = claim["metadata"].get("annotations") or {}
        if paths.LATE in annotations:
            return  # CreateVolume is called later
        if (claim["spec"].get("dataSourceRef") or {}).get("kind") not in KUBERNETES_SOURCES:
            return  # a populator gives it a volume
        if paths.DRIVER not in (annotations.get(paths.PROVISIONER), annotations.get(paths.OLD_PROVISIONER)):
            return
        storage_class = self._world.stores["classes"].get(claim["spec"].get("storageClassName") or "")
        if storage_class is None or storage_class.get("provisioner") != paths.DRIVER:
            return
        waits = storage_class.get("volumeBindingMode") == "WaitForFirstConsumer"
        if waits and not annotations.get(paths.SELECTED_NODE):
            return
        if self._busy.begin("create", claim["metadata"]["uid"]):
            self._world.timers.now(self._create_volume, claim, storage_class)

    def _create_volume(self, claim: Raw, storage_class: Raw) -> None:
        name = f"pvc-{claim['metadata']['uid']}"
        problem = refusal(storage_class.get("parameters") or {}, claim, self._world.settings())
        if problem:
            logger.warning("claim %s: %s", claim["metadata"]["name"], problem)
            return  # CreateVolume is refused, and the claim stays pending
        spec = volume_spec(storage_class.get("parameters") or {}, claim, self._world.settings())
        if (claim["spec"].get("dataSource") or {}).get("kind") == "PersistentVolumeClaim":
            source = self._source_of(claim)
            if source is None:  # CreateVolume is tried again until the source is there
                self._world.timers.after(SOURCE_SECONDS, self._create_volume, claim, storage_class)
                return
            if int(spec["size"]) != int(source["spec"]["size"]):
                logger.warning("claim %s: is not as large as its source", claim["metadata"]["name"])
                return
            spec["dataSource"] = f"vol://{source['metadata']['name']}"
        restored = self._restored_bytes(spec.get("fromBackup") or "")
        if restored:  # whatever was requested
            spec["size"] = str(rounded(restored))
        self._volumes.create(name, spec)
        self._world.after("create", self._created, name, claim, storage_class)

    def _restored_bytes(self, url: str) -> int:
        """The size of the volume that was backed up; 0 for a backup of which there is no object."""
        name = backup_of(url)
        backup = self._world.api.get_or_none(self._world.longhorn("backups", name)) if name else None
        return int(((backup or {}).get("status") or {}).get("volumeSize") or 0)

    def _created(self, name: str, claim: Raw, storage_class: Raw) -> None:
        if self._volumes.set_state(name, "detached") is not None:
            self._world.after("provision", self._publish, name, claim, storage_class)

    def _source_of(self, claim: Raw) -> Raw | None:
        """The volume that a claim is to be a clone of; None while its claim is not bound."""
        key = f"{claim['metadata']['namespace']}/{claim['spec']['dataSource']['name']}"
        source = self._world.stores["claims"].get(key) or {"spec": {}}
        pv = self._world.stores["pvs"].get(source["spec"].get("volumeName") or "")
        return self._world.volume(pv["spec"]["csi"]["volumeHandle"]) if pv is not None else None

    def _publish(self, name: str, claim: Raw, storage_class: Raw) -> None:
        """CreateVolume has returned: the PV appears, also when its claim went meanwhile (it is then reclaimed).

        It has the size that was asked for, also where the volume has its backup's.
        """
        meta, reclaim = claim["metadata"], storage_class.get("reclaimPolicy") or "Delete"
        if self._world.api.get_or_none(self._world.longhorn("volumes", name)) is None:
            return
        pv = {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {
                "name": name,
                "annotations": {paths.PROVISIONED_BY: paths.DRIVER},
                "finalizers": [paths.PV_FINALIZER] if reclaim == "Delete" else [],
            },
            "spec": {
                "accessModes": claim["spec"].get("accessModes"),
                "capacity": {"storage": str(rounded(requested_bytes(claim)))},
                "claimRef": {
                    "apiVersion": "v1",
                    "kind": "PersistentVolumeClaim",
                    "namespace": meta["namespace"],
                    "name": meta["name"],
                    "uid": meta["uid"],
                },
                "csi": {
                    "driver": paths.DRIVER,
                    "fsType": "ext4",
                    "volumeHandle": name,
                    "volumeAttributes": storage_class.get("parameters") or {},
                },
                "persistentVolumeReclaimPolicy": reclaim,
                "storageClassName": storage_class["metadata"]["name"],
                "volumeMode": claim["spec"].get("volumeMode") or "Filesystem",
            },
        }
        ensure(self._world.api, paths.PVS, pv)

    def _on_pv(self, verb: str, pv: Raw) -> None:
        """Released with policy Delete: the volume goes, then the PV."""
        annotations = pv["metadata"].get("annotations") or {}
        if verb == "DELETED" or annotations.get(paths.PROVISIONED_BY) != paths.DRIVER:
            return
        is_released = (pv.get("status") or {}).get("phase") in ("Released", "Failed")
        deleting = bool(pv["metadata"].get("deletionTimestamp"))
        if not is_released or (pv["spec"].get("persistentVolumeReclaimPolicy") != "Delete" and not deleting):
            return
        if self._busy.begin("reclaim", pv["metadata"]["uid"]):
            self._world.after("delete", self._reclaim, pv)

    def _reclaim(self, pv: Raw) -> None:
        name = pv["metadata"]["name"]
        if pv["spec"].get("persistentVolumeReclaimPolicy") == "Delete":
            volume = self._world.volume(pv["spec"]["csi"]["volumeHandle"])
            if volume is not None and volume["spec"].get("nodeID"):
                self._world.timers.after(0.2, self._reclaim, pv)  # attached still
                return
            self._volumes.delete(pv["spec"]["csi"]["volumeHandle"])
        self._world.change(f"{paths.PVS}/{name}", lambda raw: let_go(raw, paths.PV_FINALIZER))
        try:
            self._world.delete(f"{paths.PVS}/{name}")
        except ApiError as error:
            if not error.conflict:
                raise
