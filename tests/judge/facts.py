"""What the judge reads of each stored object. Names of fields, annotations and objects are written down here once more:
nothing of the product's is used, so that a mistake does not stand on both sides."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeAlias

import msgspec

Raw: TypeAlias = dict[str, Any]

LEADER: Final = "longhorn-scheduler-extender-"  # how the leader's field managers begin; its term follows
PROOF: Final = "longhorn-scheduler-extender-proof"
GATE: Final = "longhorn-scheduler-extender-gate"  # the account, the policy and its binding
PLANS: Final = "longhorn-scheduler-extender-plans-"
OURS: Final = "scheduling.longhorn.io/"  # how the names of our annotations begin
# As the gate's policy reads them; whatever else there is counts as no stamp.
STAMP: Final = re.compile(r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])T([01]\d|2[0-3]):[0-5]\d:[0-5]\dZ")


@dataclass(frozen=True, slots=True, order=True)
class Spot:
    """A disk. Two nodes' disks may share a UUID."""

    node: str
    uuid: str

    def __str__(self) -> str:
        return f"{self.node}/{self.uuid}"


@dataclass(frozen=True, slots=True)
class CopyFacts:
    """A Replica."""

    name: str
    uid: str
    volume: str
    spot: Spot | None  # None: it has no place
    size_bytes: int
    image: str
    created: float
    is_active: bool
    is_failed: bool
    is_leaving: bool  # it is being deleted, or evicted
    is_held: bool
    is_left: bool


@dataclass(frozen=True, slots=True)
class DiskShown:
    """One disk of a Longhorn Node that is in its spec and in its status."""

    spot: Spot
    maximum_bytes: int
    reserved_bytes: int

    def limit_bytes(self, over_provisioning_pct: int) -> int:
        """With Longhorn's arithmetic: floats, then truncation."""
        return int(float(self.maximum_bytes - self.reserved_bytes) * float(over_provisioning_pct) / 100)


@dataclass(frozen=True, slots=True)
class PlanStored:
    """A plan as its ConfigMap has it."""

    volume: str
    uid: str  # the Volume's, or its claim's
    places: dict[Spot, tuple[int, ...]]  # the bytes of each copy that is to come there


def key_of(raw: Raw) -> str:
    meta = raw["metadata"]
    return f"{meta.get('namespace', '')}/{meta['name']}"


def copy_facts(raw: Raw) -> CopyFacts:
    meta, spec = raw["metadata"], raw["spec"]
    marks = meta.get("annotations") or {}
    node, disk = spec.get("nodeID") or "", spec.get("diskID") or ""
    return CopyFacts(
        name=meta["name"],
        uid=meta.get("uid", ""),
        volume=spec.get("volumeName") or "",
        spot=Spot(node, disk) if node else None,
        size_bytes=int(spec.get("volumeSize") or 0),
        image=spec.get("backingImage") or "",
        created=seconds_of(meta.get("creationTimestamp")) or 0.0,
        is_active=bool(spec.get("active", True)),
        is_failed=bool(spec.get("failedAt")),
        is_leaving=bool(meta.get("deletionTimestamp") or spec.get("evictionRequested")),
        is_held=f"{OURS}held" in marks,
        is_left=f"{OURS}left" in marks,
    )


def disks_shown(raw: Raw) -> list[DiskShown]:
    specs = (raw.get("spec") or {}).get("disks") or {}
    return [
        DiskShown(
            Spot(raw["metadata"]["name"], shown["diskUUID"]),
            int(shown.get("storageMaximum") or 0),
            int(specs[name].get("storageReserved") or 0),
        )
        for name, shown in ((raw.get("status") or {}).get("diskStatus") or {}).items()
        if name in specs and shown.get("diskUUID")
    ]


def plan_stored(text: str) -> PlanStored | None:
    """One line of a plans ConfigMap; None where it is no plan."""
    try:
        raw = msgspec.json.decode(text)
        places: dict[Spot, tuple[int, ...]] = {}
        for node, uuid, size, *_ in raw["places"]:
            spot = Spot(node, uuid)
            places[spot] = (*places.get(spot, ()), int(size))
        return PlanStored(str(raw["volume"]), str(raw["uid"]), places)
    except (msgspec.DecodeError, KeyError, TypeError, ValueError):
        return None


def writer_of(raw: Raw) -> tuple[str, float | None]:
    """Who gave a Replica the node that it has, and the API server's time of that write; "" where nobody owns it."""
    owners = [
        (seconds_of(entry.get("time")), str(entry.get("manager", "")))
        for entry in raw["metadata"].get("managedFields") or ()
        if "f:nodeID" in ((entry.get("fieldsV1") or {}).get("f:spec") or {})
    ]
    if not owners:
        return "", None
    time, manager = max(owners, key=lambda owner: owner[0] or 0.0)
    return manager, time


def is_leaders(manager: str) -> bool:
    return manager.startswith(LEADER) and manager != PROOF


def seconds_of(stamp: object) -> float | None:
    """Seconds since the epoch; None for whatever the gate's policy cannot read either."""
    if not isinstance(stamp, str) or STAMP.fullmatch(stamp) is None:
        return None
    try:
        return datetime.fromisoformat(stamp).timestamp()
    except ValueError:
        return None
