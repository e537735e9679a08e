"""Objects as kubectl prints them, checked field by field before placement reads them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from tests.longhorn.state import Raw

Check = Callable[[Any], str | None]  # what is wrong with the value, or None
LARGEST: Final = 2**63 - 1
_DIGITS: Final = re.compile(r"[0-9]+")


class InputError(ValueError):
    """Bad input; the text names the object and the field."""


def flag(value: Any) -> str | None:
    return None if isinstance(value, bool) else f"{value!r} is neither true nor false"


def text(value: Any) -> str | None:
    return None if isinstance(value, str) else f"{value!r} is not a string"


def texts(value: Any) -> str | None:
    is_list = isinstance(value, list) and all(isinstance(entry, str) for entry in value)
    return None if is_list else f"{value!r} is not a list of strings"


def number(value: Any) -> str | None:
    """A signed 64-bit JSON integer."""
    if isinstance(value, bool) or not isinstance(value, int):
        return f"{value!r} is not a whole number"
    return None if -LARGEST - 1 <= value <= LARGEST else f"{value} does not fit in 64 bits"


def amount(value: Any) -> str | None:
    return number(value) or (f"{value} is negative" if value < 0 else None)


def size(value: Any) -> str | None:
    """Longhorn's form of a size: decimal digits in a string."""
    if not isinstance(value, str) or not _DIGITS.fullmatch(value):
        return f"{value!r} is not a string of digits"
    return amount(int(value))


def moment(value: Any) -> str | None:
    if value == "":
        return None
    try:
        return None if parse_moment(value).tzinfo else f"{value!r} has no zone"
    except (TypeError, ValueError, AttributeError):
        return f"{value!r} is not a time as RFC 3339 writes it"


def parse_moment(value: str) -> datetime:
    return datetime.fromisoformat(value.replace("Z", "+00:00"))


def one_of(*known: str) -> Check:
    return lambda value: None if value in known else f"{value!r} is none of {', '.join(map(repr, known))}"


SOFT: Final = one_of("ignored", "enabled", "disabled")
ENGINE: Final = one_of("v1", "v2")
CONDITION: Final = {"type": text, "status": one_of("True", "False", "Unknown")}
META: Final[dict[str, Check]] = {"metadata.labels.*": text, "metadata.deletionTimestamp": moment}
# Fields that placement reads, by kind; `*` stands for every key of a map, `#` for every entry of a list.
SHAPES: Final[Mapping[str, Mapping[str, Check]]] = {
    "Node": {
        "spec.allowScheduling": flag,
        "spec.tags": texts,
        "spec.disks.*.allowScheduling": flag,
        "spec.disks.*.evictionRequested": flag,
        "spec.disks.*.storageReserved": amount,
        "spec.disks.*.tags": texts,
        "spec.disks.*.path": text,
        "spec.disks.*.diskType": one_of("filesystem", "block"),
        "status.zone": text,
        "status.region": text,
        **{f"status.conditions.#.{name}": check for name, check in CONDITION.items()},
        **{f"status.diskStatus.*.conditions.#.{name}": check for name, check in CONDITION.items()},
        "status.diskStatus.*.storageMaximum": number,
        "status.diskStatus.*.storageAvailable": number,
        "status.diskStatus.*.storageScheduled": number,
        "status.diskStatus.*.scheduledReplica.*": number,
        "status.diskStatus.*.diskUUID": text,
        "status.diskStatus.*.filesystemType": text,
    },
    "Volume": {
        "spec.size": size,
        "spec.dataLocality": one_of("disabled", "best-effort", "strict-local"),
        "spec.nodeID": text,
        "spec.diskSelector": texts,
        "spec.nodeSelector": texts,
        "spec.topologyRequirement.#.zone": text,
        "spec.topologyRequirement.#.region": text,
        "spec.replicaSoftAntiAffinity": SOFT,
        "spec.replicaZoneSoftAntiAffinity": SOFT,
        "spec.replicaDiskSoftAntiAffinity": SOFT,
        "spec.replicaAutoBalance": one_of("ignored", "disabled", "least-effort", "best-effort"),
        "spec.dataEngine": ENGINE,
        "spec.backingImage": text,
        "spec.dataSource": text,
        "spec.cloneMode": one_of("", "full-copy", "linked-clone"),
        "spec.image": text,
        "spec.frontend": text,
        "status.actualSize": amount,
        "status.robustness": one_of("", "healthy", "degraded", "faulted", "unknown"),
        "status.lastDegradedAt": moment,
        "status.cloneStatus.state": text,
        **{f"status.conditions.#.{name}": check for name, check in CONDITION.items()},
    },
    "Replica": {
        "spec.volumeName": text,
        "spec.volumeSize": size,
        "spec.nodeID": text,
        "spec.diskID": text,
        "spec.image": text,
        "spec.hardNodeAffinity": text,
        "spec.healthyAt": text,
        "spec.failedAt": text,
        "spec.rebuildRetryCount": number,
        "spec.evictionRequested": flag,
        "spec.linkedCloneSrcReplicaName": text,
    },
    "BackingImage": {"spec.nodeSelector": texts, "spec.diskSelector": texts},
    "EngineImage": {"spec.image": text, "status.state": text, "status.nodeDeploymentMap.*": flag},
    "InstanceManager": {
        "spec.nodeID": text,
        "spec.dataEngine": text,
        "spec.image": text,
        "status.currentState": text,
    },
    "Setting": {"value": text},
    "v1 Node": {},
}


_PATHS: Final = {
    kind: [(tuple(path.split(".")), check) for path, check in {**META, **shape}.items()]
    for kind, shape in SHAPES.items()
}


def kind_of(raw: Raw) -> str:
    """A name of SHAPES, or "" for a kind that placement does not read."""
    version, kind = raw.get("apiVersion"), raw.get("kind")
    if not isinstance(version, str) or not isinstance(kind, str):
        raise InputError("objects: apiVersion and kind are needed of each")
    if version.startswith("longhorn.io/"):
        return kind if kind in SHAPES else ""
    return "v1 Node" if (version, kind) == ("v1", "Node") else ""


def check_object(kind: str, raw: Raw) -> None:
    name = raw["metadata"]["name"]
    for path, check in _PATHS[kind]:
        for where, value in _values(raw, path, ""):
            problem = value.problem if isinstance(value, _Misshapen) else check(value)
            if problem:
                raise InputError(f"{kind} {name}: {where}: {problem}")
    if kind == "Replica" and not raw.get("spec", {}).get("volumeName"):
        raise InputError(f"Replica {name}: spec.volumeName: is missing")


class _Misshapen:
    def __init__(self, problem: str) -> None:
        self.problem = problem


def _values(raw: Any, path: Sequence[str], done: str) -> Iterator[tuple[str, Any]]:
    """Every value at that path with its full name; what is absent or null is passed over."""
    if not path:
        yield done, raw
        return
    key, rest = path[0], path[1:]
    if key == "#":
        if not isinstance(raw, list):
            yield done, _Misshapen("is not a list")
            return
        for index, entry in enumerate(raw):
            yield from _values(entry, rest, f"{done}[{index}]")
    elif not isinstance(raw, dict):
        yield done, _Misshapen("is not a map")
    else:
        for name in raw if key == "*" else [key]:
            if raw.get(name) is not None:
                yield from _values(raw[name], rest, f"{done}.{name}" if done else name)
