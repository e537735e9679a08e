"""The Longhorn Volume that a claim will get, predicted from its StorageClass and Longhorn's settings.

The parameters are those of Longhorn's CSI plugin (`csi/util.go`, `csi/controller_server.go`); what a class leaves open
is filled in from Longhorn's settings, as its mutating webhook does. With parameters that Longhorn refuses the volume
never comes: `why_never` says so. It is predicted all the same, as if what cannot be read were not given.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Final, Protocol

from controller.errors import MalformedRequestError
from controller.model.longhorn import (
    CLONE_MODES,
    DATA_ENGINES,
    DATA_LOCALITIES,
    SOFT_ANTI_AFFINITY,
    BackingImage,
    Backup,
    DiskNeeds,
    ImageNeeds,
    LonghornSettings,
    Replica,
    Volume,
)
from controller.model.longhorn_settings import parse_flag
from controller.model.names import LONGHORN_DRIVER
from controller.model.quantity import bytes_text
from controller.model.workload import Claim, PersistentVolume, StorageClass
from controller.rules.growth import GRANULE_BYTES, LARGEST_BYTES
from controller.rules.locality import locality_named, locality_of

MIN_VOLUME_BYTES: Final = 10 * 1024**2
LEAST_ENCRYPTED_BYTES: Final = 16 * 1024**2 + GRANULE_BYTES  # more than LUKS's own 16 MiB
LEAST_XFS_BYTES: Final = 300 * 1024**2
MADE_IMAGES: Final = ("download", "export-from-volume")  # data sources of images that come with a volume
_MOST: Final = 20  # copies of a volume
_CLASS_CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "dataLocality": DATA_LOCALITIES,
    "dataEngine": DATA_ENGINES,
    "replicaSoftAntiAffinity": SOFT_ANTI_AFFINITY,
    "replicaZoneSoftAntiAffinity": SOFT_ANTI_AFFINITY,
    "replicaDiskSoftAntiAffinity": SOFT_ANTI_AFFINITY,
    "cloneMode": CLONE_MODES,
}
_OBJECT_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_CLASS_FLAGS: Final = ("share", "migratable", "encrypted", "disableRevisionCounter")
CLAIM_SOURCE: Final = "PersistentVolumeClaim/"
VOLUME_SOURCE: Final = "vol://"
SNAPSHOT_SOURCE: Final = "VolumeSnapshot/"


class Lookup(Protocol):
    """Where the facts for demands are found: `World` of controller.allocator, which must not be imported here."""

    @property
    def spare_pvs(self) -> Mapping[str, tuple[PersistentVolume, ...]]:
        """PersistentVolumes to which claims may be bound, by class."""
        ...

    def claim(self, namespace: str, name: str) -> Claim | None: ...
    def unbound_claims(self) -> Iterable[Claim]: ...
    def pv(self, name: str) -> PersistentVolume | None: ...
    def storage_class(self, name: str | None) -> StorageClass | None: ...
    def volume(self, name: str) -> Volume | None: ...
    def replicas_of(self, volume: str) -> Mapping[str, Replica]: ...
    def backing_image(self, name: str) -> BackingImage | None: ...
    def backup(self, name: str) -> Backup | None: ...
    def default_engine_image(self) -> str: ...


def finds_volume(claim: Claim, spare: Iterable[PersistentVolume], unbound: Iterable[Claim]) -> bool:
    """Return whether kube-scheduler surely binds the claim to one of the `spare` volumes, all of its class, so that no
    other is made: one is kept for it by name, or more of those that suit it are there than other `unbound` claims could
    take. (Kubernetes' `FindMatchingVolume`, component-helpers `storage/volume/pv_helpers.go`.)"""
    suited = [volume for volume in spare if _suits(volume, claim)]
    if any(volume.claim_key for volume in suited):
        return True
    rivals = (one for one in unbound if one.uid != claim.uid and one.class_name == claim.class_name)
    waiting = (one for one in rivals if not (one.selected_node or one.is_deleting))
    takers = (one for one in waiting if any(_suits(volume, one) for volume in suited))
    return len(list(islice(takers, len(suited)))) < len(suited)


def _suits(volume: PersistentVolume, claim: Claim) -> bool:
    return (
        volume.claim_key in ("", claim.key)
        and volume.claim_uid in ("", claim.uid)
        and volume.capacity_bytes >= claim.requested_bytes
        and volume.form == claim.form
        and claim.modes <= volume.modes
    )


def provisioned_name(claim: Claim) -> str:
    """Return the name that the external provisioner gives to the PV, and Longhorn's CSI controller to the Volume."""
    return f"pvc-{claim.uid}"


def rounded_volume_bytes(requested_bytes: int) -> int:
    """Return the size that Longhorn gives to a volume on that request: at least 10 MiB, a multiple of 2 MiB."""
    size = max(requested_bytes, MIN_VOLUME_BYTES)
    return min(-(-size // GRANULE_BYTES) * GRANULE_BYTES, LARGEST_BYTES)


def new_volume(claim: Claim, storage_class: StorageClass, lookup: Lookup, settings: LonghornSettings) -> Volume:
    """Return the volume of a claim that is not provisioned yet, as CreateVolume would make it."""
    given = storage_class.parameters
    engine = given.get("dataEngine") or "v1"
    source = _source_volume(claim, given, lookup)
    requested = max(rounded_volume_bytes(claim.requested_bytes), restored_bytes(given.get("fromBackup", ""), lookup))
    is_shared = claim.is_shared or _flag(given, "share")
    return Volume(
        name=provisioned_name(claim),
        size_bytes=source.size_bytes if source is not None and given.get("dataSource") else requested,
        actual_size_bytes=0,
        replica_count=_count(given.get("numberOfReplicas")) or settings.default_replica_count(engine),
        data_locality=given.get("dataLocality") or settings.default_data_locality,
        access_mode="rwx" if is_shared else "rwo",
        migratable=is_shared and _flag(given, "migratable"),
        needs=DiskNeeds(
            node_selector=_selector(given, "nodeSelector"),
            disk_selector=_selector(given, "diskSelector"),
            data_engine=engine,
        ),
        soft_anti_affinity=_softness(given, "replicaSoftAntiAffinity", engine, settings),
        zone_soft_anti_affinity=_softness(given, "replicaZoneSoftAntiAffinity", engine, settings),
        disk_soft_anti_affinity=_softness(given, "replicaDiskSoftAntiAffinity", engine, settings),
        auto_balance=given.get("replicaAutoBalance") or "ignored",
        clone_mode=given.get("cloneMode", ""),
        data_source=given.get("dataSource") or (f"{VOLUME_SOURCE}{source.name}" if source is not None else ""),
        backing_image=given.get("backingImage", ""),
        image=lookup.default_engine_image() if engine == "v1" else "",
        frontend=given.get("frontend") or "blockdev",
        from_backup=given.get("fromBackup", ""),
        data_layout=given.get("dataLayout.type") or "replicated",
    )


def backup_name(url: str) -> str:
    """Return the name of the Backup object to which a class's `fromBackup` refers; "" if to none."""
    names = [value for key, value in _url_parts(url)[1] if key == "backup"]
    return names[0] if len(names) == 1 and _OBJECT_NAME.fullmatch(names[0]) else ""


def restored_bytes(url: str, lookup: Lookup) -> int:
    """Return the size of a volume that is restored from that backup: the backup's, whatever is requested. 0 while that
    is not known, or the object of that name is a backup of another target."""
    name = backup_name(url)
    found = lookup.backup(name) if name else None
    if found is None or not found.volume_bytes or _url_parts(found.url) != _url_parts(url):
        return 0
    return rounded_volume_bytes(found.volume_bytes)


def unread_backup(volume: Volume, lookup: Lookup) -> str:
    """Return the Backup from which a new volume is to be restored if its size is not known; else ""."""
    return "" if restored_bytes(volume.from_backup, lookup) else backup_name(volume.from_backup)


def _url_parts(url: str) -> tuple[str, list[tuple[str, str]]]:
    """The target of the backup, and the sorted pairs that name it. Longhorn's own names need no escapes."""
    where, _, query = url.partition("?")
    pairs = (part.partition("=") for part in query.split("&"))
    return where.rstrip("/"), sorted((key, value) for key, _, value in pairs)


def check_class(storage_class: StorageClass) -> None:
    """Raise MalformedRequestError for a parameter with which Longhorn would refuse every claim of the class."""
    if storage_class.provisioner != LONGHORN_DRIVER:
        return
    given = storage_class.parameters
    locality = given.get("dataLocality", "")
    if _count(given.get("numberOfReplicas")) > 1 and locality_named(locality).has_one_copy:
        problem = f"data locality {locality} needs 1, not {given['numberOfReplicas']}"
        raise MalformedRequestError("parameters.numberOfReplicas", problem)
    for name, text in given.items():
        field = f"parameters.{name}"
        if name in _CLASS_CHOICES and text and text not in _CLASS_CHOICES[name]:
            raise MalformedRequestError(field, f"{text!r} is not one of {', '.join(_CLASS_CHOICES[name])}")
        if name == "numberOfReplicas" and text and not (text == "0" or 1 <= _count(text) <= _MOST):
            raise MalformedRequestError(field, f"is not a number from 1 to {_MOST}: {text!r}")
        if name in _CLASS_FLAGS:
            try:
                parse_flag(text)
            except ValueError as error:
                raise MalformedRequestError(field, str(error)) from error


def why_never(
    claim: Claim, storage_class: StorageClass, volume: Volume, lookup: Lookup, settings: LonghornSettings
) -> str:
    """Return, for a person, why no pod ever runs with that new volume; "" if pods can. Longhorn refuses to make such a
    volume, or its CSI plugin to attach it (`csi/controller_server.go`, `types.go`, `webhook/common/common.go`)."""
    given = storage_class.parameters
    try:
        check_class(storage_class)
    except MalformedRequestError as error:
        return f"StorageClass {storage_class.name}: {error}"
    if given.get("dataLocality") == "":
        return f"StorageClass {storage_class.name}: parameters.dataLocality is empty"
    engine = volume.needs.data_engine
    if not (settings.makes_v2 if engine == "v2" else settings.makes_v1):
        return f"Longhorn's setting {engine}-data-engine is off, and it makes no such volume"
    if volume.replica_count != 1 and locality_of(volume).has_one_copy:
        needs = f"data locality {volume.data_locality} needs numberOfReplicas 1, not {volume.replica_count}"
        return f"StorageClass {storage_class.name}: {needs}"
    if volume.frontend not in ("blockdev", "ublk"):
        problem = f"volumes with frontend {volume.frontend!r} cannot be attached to a pod"
        return f"StorageClass {storage_class.name}: {problem}"
    return _wrong_size(claim, storage_class, volume, lookup)


def _wrong_size(claim: Claim, storage_class: StorageClass, volume: Volume, lookup: Lookup) -> str:
    """For a person, why Longhorn makes no volume of that size; "" if it does, or what decides is not known."""
    given, size, asked = storage_class.parameters, volume.size_bytes, bytes_text(volume.size_bytes)
    if volume.data_source.startswith(VOLUME_SOURCE) and not given.get("dataSource"):
        source = lookup.volume(volume.data_source.removeprefix(VOLUME_SOURCE))
        if source is not None and source.size_bytes != size:
            return (
                f"a clone has to request exactly the size of its source, {bytes_text(source.size_bytes)}, not {asked}"
            )
    image = lookup.backing_image(volume.backing_image) if volume.backing_image else None
    is_xfs = "xfs" in (given.get("csi.storage.k8s.io/fstype"), given.get("fsType")) and claim.form[0] != "Block"
    for what, least in (
        (f"backingImage {volume.backing_image}", image.virtual_size_bytes if image is not None else 0),
        ("encrypted true", LEAST_ENCRYPTED_BYTES if _flag(given, "encrypted") else 0),
        ("fsType xfs", LEAST_XFS_BYTES if is_xfs else 0),
    ):
        if size < least:
            needs = f"with parameters.{what} a volume needs at least {bytes_text(least)}, not {asked}"
            return f"StorageClass {storage_class.name}: {needs}"
    return ""


def image_needs(volume: Volume, storage_class: StorageClass | None, lookup: Lookup) -> ImageNeeds | None:
    """Return what the volume's backing image needs of a replica's node and disk; None without one. An image that does
    not exist yet is made together with the volume, as the class describes it."""
    if not volume.backing_image:
        return None
    image = lookup.backing_image(volume.backing_image)
    if image is not None:
        return image.needs
    given = storage_class.parameters if storage_class is not None else {}
    node_selector, disk_selector = given.get("backingImageNodeSelector"), given.get("backingImageDiskSelector")
    return ImageNeeds(
        tuple(node_selector.split(",")) if node_selector else (),
        tuple(disk_selector.split(",")) if disk_selector else (),
        volume.backing_image,
    )


def follows_topology(storage_class: StorageClass) -> str:
    """Return to which part of the chosen node's topology a new volume is bound: "zone", "region", or "" for none."""
    return {"zonal": "zone", "regional": "region"}.get(storage_class.parameters.get("volumeTopology", ""), "")


def _source_volume(claim: Claim, given: Mapping[str, str], lookup: Lookup) -> Volume | None:
    """The volume of which the claim is a clone, if it is known.

    A claim may name any PV as its own. The PV has to name the claim, too, or a tenant would learn of another's volume.
    """
    kind, _, rest = given.get("dataSource", "").partition("://")
    if kind in ("vol", "snap") and rest:
        return lookup.volume(rest.split("/", 1)[0])
    if not claim.data_source.startswith(CLAIM_SOURCE):
        return None  # a VolumeSnapshot's source is in objects that are not watched; the request equals its size
    source = lookup.claim(claim.namespace, claim.data_source.removeprefix(CLAIM_SOURCE))
    pv = lookup.pv(source.volume_name) if source is not None and source.volume_name else None
    return lookup.volume(pv.handle) if source is not None and pv is not None and pv.claim_uid == source.uid else None


def _softness(given: Mapping[str, str], name: str, engine: str, settings: LonghornSettings) -> str:
    """The value of a soft anti-affinity field; older releases stored "ignored" for a v2 volume's "enabled"."""
    value = given.get(name) or "ignored"
    if value == "enabled" and engine == "v2" and not settings.behaviour.keeps_v2_soft_anti_affinity:
        return "ignored"
    return value


def _flag(given: Mapping[str, str], name: str) -> bool:
    try:
        return parse_flag(given.get(name, ""))
    except ValueError:
        return False


def _count(text: str | None) -> int:
    """The number of replicas by a class parameter; 0, which stands for the default, for what Longhorn would refuse."""
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 4 else 0


def _selector(parameters: Mapping[str, str], name: str) -> tuple[str, ...]:
    """The tags of a comma-separated list as Longhorn splits it: not trimmed, and sorted as its mutating webhook stores
    them. An empty string is one empty tag, which no node and no disk has."""
    text = parameters.get(name)
    return () if text is None else tuple(sorted(text.split(",")))
