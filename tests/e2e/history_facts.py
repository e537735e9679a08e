"""What the checker needs of each recorded object, as small facts.

Field names are Kubernetes' and Longhorn's own (custom resources `longhorn.io/v1beta2`). Nothing here is shared with
the product: the checker must not repeat the product's mistakes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

Raw = Mapping[str, Any]

LONGHORN_GROUP = "longhorn.io"
DRIVER = "driver.longhorn.io"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
MEBIBYTE = 1024**2
SMALLEST_VOLUME_BYTES, VOLUME_STEP_BYTES = 10 * MEBIBYTE, 2 * MEBIBYTE
FINISHED = ("Succeeded", "Failed")
MULTI_NODE_MODES = frozenset({"ReadWriteMany", "ReadOnlyMany"})
# Longhorn's defaults for settings without an object (types/setting.go).
DEFAULT_SETTINGS = {
    "storage-over-provisioning-percentage": "100",
    "default-data-locality": "disabled",
    "default-replica-count": "3",
}

_QUANTITY = re.compile(r"([+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?)(m|[kMGTPE]i?|Ki)?")
_POWERS = "kMGTPE"


def bytes_of(quantity: str | int) -> int:
    """A Kubernetes quantity in bytes, rounded up. Raises ValueError that quotes the text."""
    match = _QUANTITY.fullmatch(str(quantity).strip())
    if match is None:
        raise ValueError(f"not a quantity: {quantity!r}")
    number, unit = Decimal(match[1]), match[2] or ""
    if unit == "m":
        factor = Decimal(1) / 1000
    elif unit:
        base = 1024 if unit.endswith("i") else 1000
        factor = Decimal(base) ** (_POWERS.index("k" if unit[0] == "K" else unit[0]) + 1)
    else:
        factor = Decimal(1)
    return int((number * factor).to_integral_value("ROUND_CEILING"))


@dataclass(frozen=True, slots=True)
class PodFacts:
    uid: str
    key: str
    namespace: str
    node: str
    is_finished: bool
    is_deleting: bool
    is_ready: bool
    is_refused: bool
    claims: tuple[str, ...]  # keys of claims

    @property
    def may_use(self) -> bool:
        """Its volumes may still be attached for it: it runs or will. A deleted pod that was never bound won't."""
        return not self.is_finished and not (self.is_deleting and not self.node)


@dataclass(frozen=True, slots=True)
class ClaimFacts:
    uid: str
    key: str
    class_name: str
    volume_name: str  # of the PersistentVolume; empty while unbound
    selected_node: str
    size_bytes: int
    is_shared: bool


@dataclass(frozen=True, slots=True)
class PvFacts:
    uid: str
    name: str
    volume: str  # name of the Longhorn Volume; empty when another driver's


@dataclass(frozen=True, slots=True)
class ClassFacts:
    uid: str
    is_longhorn: bool
    locality: str  # empty: Longhorn's setting
    replicas: str


@dataclass(frozen=True, slots=True)
class VolumeFacts:
    uid: str
    name: str
    size_bytes: int
    node: str  # where Longhorn attaches it
    locality: str
    replicas: int

    @property
    def is_local(self) -> bool:
        """Does it live as one copy on its pod's node, by rule or by preference?"""
        return self.locality == "strict-local" or (self.locality == "best-effort" and self.replicas == 1)


@dataclass(frozen=True, slots=True)
class ReplicaFacts:
    uid: str
    name: str
    volume: str
    node: str
    disk: str
    size_bytes: int

    @property
    def is_placed(self) -> bool:
        return bool(self.node and self.disk)


@dataclass(frozen=True, slots=True)
class DiskFacts:
    uuid: str
    maximum_bytes: int
    reserved_bytes: int

    def limit_bytes(self, over_provisioning_pct: int) -> int:
        """Longhorn's own bound for what may be scheduled on the disk, with its arithmetic: floats, then truncation."""
        return int(float(self.maximum_bytes - self.reserved_bytes) * float(over_provisioning_pct) / 100)


@dataclass(frozen=True, slots=True)
class NodeFacts:
    uid: str
    name: str
    disks: tuple[DiskFacts, ...]


Facts = PodFacts | ClaimFacts | PvFacts | ClassFacts | VolumeFacts | ReplicaFacts | NodeFacts | str


def uid_of(raw: Raw) -> str:
    return str(raw["metadata"].get("uid", ""))


def key_of(raw: Raw) -> str:
    meta = raw["metadata"]
    return f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else str(meta["name"])


def pod_facts(raw: Raw) -> PodFacts:
    meta, spec, status = raw["metadata"], raw["spec"], raw.get("status") or {}
    conditions = {c["type"]: c for c in status.get("conditions") or []}
    scheduled = conditions.get("PodScheduled", {})
    claims = []
    for volume in spec.get("volumes") or []:
        if "persistentVolumeClaim" in volume:
            claims.append(f"{meta['namespace']}/{volume['persistentVolumeClaim']['claimName']}")
        elif "ephemeral" in volume:
            claims.append(f"{meta['namespace']}/{meta['name']}-{volume['name']}")
    return PodFacts(
        uid=uid_of(raw),
        key=key_of(raw),
        namespace=meta["namespace"],
        node=spec.get("nodeName") or "",
        is_finished=status.get("phase") in FINISHED,
        is_deleting=bool(meta.get("deletionTimestamp")),
        is_ready=conditions.get("Ready", {}).get("status") == "True",
        is_refused=scheduled.get("status") == "False" and scheduled.get("reason") == "Unschedulable",
        claims=tuple(dict.fromkeys(claims)),
    )


def claim_facts(raw: Raw) -> ClaimFacts:
    spec = raw["spec"]
    request = ((spec.get("resources") or {}).get("requests") or {}).get("storage", "0")
    return ClaimFacts(
        uid=uid_of(raw),
        key=key_of(raw),
        class_name=spec.get("storageClassName") or "",
        volume_name=spec.get("volumeName") or "",
        selected_node=(raw["metadata"].get("annotations") or {}).get(SELECTED_NODE, ""),
        size_bytes=volume_bytes(bytes_of(request)),
        is_shared=bool(MULTI_NODE_MODES & set(spec.get("accessModes") or ())),
    )


def volume_bytes(requested_bytes: int) -> int:
    """The size that Longhorn gives a volume for such a request."""
    steps = -(-max(requested_bytes, SMALLEST_VOLUME_BYTES) // VOLUME_STEP_BYTES)
    return steps * VOLUME_STEP_BYTES


def pv_facts(raw: Raw) -> PvFacts:
    csi = raw["spec"].get("csi") or {}
    handle = str(csi.get("volumeHandle", "")) if csi.get("driver") == DRIVER else ""
    return PvFacts(uid_of(raw), key_of(raw), handle)


def class_facts(raw: Raw) -> ClassFacts:
    parameters = raw.get("parameters") or {}
    return ClassFacts(
        uid=uid_of(raw),
        is_longhorn=raw.get("provisioner") == DRIVER,
        locality=parameters.get("dataLocality", ""),
        replicas=parameters.get("numberOfReplicas", ""),
    )


def volume_facts(raw: Raw) -> VolumeFacts:
    spec = raw["spec"]
    return VolumeFacts(
        uid=uid_of(raw),
        name=raw["metadata"]["name"],
        size_bytes=int(spec.get("size") or 0),
        node=spec.get("nodeID") or "",
        locality=spec.get("dataLocality") or "disabled",
        replicas=int(spec.get("numberOfReplicas") or 0),
    )


def replica_facts(raw: Raw) -> ReplicaFacts:
    spec = raw["spec"]
    return ReplicaFacts(
        uid=uid_of(raw),
        name=raw["metadata"]["name"],
        volume=spec.get("volumeName") or "",
        node=spec.get("nodeID") or "",
        disk=spec.get("diskID") or "",
        size_bytes=int(spec.get("volumeSize") or 0),
    )


def node_facts(raw: Raw) -> NodeFacts:
    """A Longhorn Node. A disk that is only in its spec or only in its status cannot be judged yet and is left out."""
    specs = (raw.get("spec") or {}).get("disks") or {}
    statuses = (raw.get("status") or {}).get("diskStatus") or {}
    disks = (
        DiskFacts(
            uuid=status.get("diskUUID") or "",
            maximum_bytes=int(status.get("storageMaximum") or 0),
            reserved_bytes=int(specs[name].get("storageReserved") or 0),
        )
        for name, status in sorted(statuses.items())
        if name in specs
    )
    return NodeFacts(uid_of(raw), raw["metadata"]["name"], tuple(disk for disk in disks if disk.uuid))


def per_engine(value: str, engine: str = "v1") -> str:
    """One data engine's part of a setting that is a JSON object of strings, or a plain string for all engines."""
    return str(json.loads(value).get(engine, "")) if value.startswith("{") else value


def setting_facts(raw: Raw) -> str:
    return str(raw.get("value", ""))
