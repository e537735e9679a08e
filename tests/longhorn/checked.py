"""Objects as kubectl prints them, checked against Longhorn's definitions before placement reads them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from tests.longhorn import crds
from tests.longhorn.state import Raw

Check = Callable[[Any], str | None]  # what is wrong with the value, or None
LARGEST: Final = 2**63 - 1


class InputError(ValueError):
    """Bad input; the text names the object and the field."""


def flag(value: Any) -> str | None:
    return None if isinstance(value, bool) else f"{value!r} is neither true nor false"


def text(value: Any) -> str | None:
    return None if isinstance(value, str) else f"{value!r} is not a string"


def number(value: Any) -> str | None:
    """A signed 64-bit JSON integer."""
    if isinstance(value, bool) or not isinstance(value, int):
        return f"{value!r} is not a whole number"
    return None if -LARGEST - 1 <= value <= LARGEST else f"{value} does not fit in 64 bits"


def amount(value: Any) -> str | None:
    return number(value) or (f"{value} is negative" if value < 0 else None)


def size(value: Any) -> str | None:
    """Longhorn's form of a size: decimal digits in a string."""
    if not isinstance(value, str) or not (value.isascii() and value.isdigit()):
        return f"{value!r} is not a string of digits"
    return amount(int(value))


def moment(value: Any) -> str | None:
    try:
        return None if value == "" or parse_moment(value).tzinfo else f"{value!r} has no zone"
    except (TypeError, ValueError, AttributeError):
        return f"{value!r} is not a time as RFC 3339 writes it"


def parse_moment(value: str) -> datetime:
    return datetime.fromisoformat(value.replace("Z", "+00:00"))


# What the definitions leave to Longhorn's webhooks, by the field's name.
STRICTER: Final[Mapping[str, Check]] = {
    "storageReserved": amount,
    "actualSize": amount,
    "lastDegradedAt": moment,
}
BY_TYPE: Final[Mapping[tuple[str, bool], Check]] = {  # by type, and whether it is one of 64 bits
    ("boolean", False): flag,
    ("string", False): text,
    ("string", True): size,
    ("integer", False): number,
    ("integer", True): number,
}
KINDS: Final = ("Node", "Volume", "Replica", "BackingImage", "EngineImage", "InstanceManager", "Setting")
SCHEMAS: Final[Mapping[str, crds.Schema]] = {
    definition["spec"]["names"]["kind"]: definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for definition in crds.definitions()
    if definition["spec"]["names"]["kind"] in KINDS
} | {"v1 Node": crds.fields(metadata=crds.fields(labels=crds.by_name(crds.TEXT)))}


def kind_of(raw: Raw) -> str:
    """A name of SCHEMAS, or "" for a kind that placement does not read."""
    version, kind = raw.get("apiVersion"), raw.get("kind")
    if not isinstance(version, str) or not isinstance(kind, str):
        raise InputError("objects: apiVersion and kind are needed of each")
    if version.startswith("longhorn.io/"):
        return kind if kind in KINDS else ""
    return "v1 Node" if (version, kind) == ("v1", "Node") else ""


def check_object(kind: str, raw: Raw) -> None:
    name = raw["metadata"]["name"]
    for problem in _problems(SCHEMAS[kind], raw, ""):
        raise InputError(f"{kind} {name}: {problem}")
    if kind == "Replica" and not raw.get("spec", {}).get("volumeName"):
        raise InputError(f"Replica {name}: spec.volumeName: is missing")


def _problems(schema: crds.Schema, value: Any, path: str) -> Iterator[str]:
    """What is wrong, each with its field; what is absent or null is passed over."""
    if value is None:
        return
    if schema["type"] == "object":
        if not isinstance(value, dict):
            yield f"{path}: is not a map"
            return
        known, others = schema.get("properties", {}), schema.get("additionalProperties")
        for name, entry in value.items():
            below = known.get(name, others)
            if below is not None:
                yield from _problems(below, entry, f"{path}.{name}".lstrip("."))
    elif schema["type"] == "array":
        if not isinstance(value, list):
            yield f"{path}: is not a list"
            return
        for index, entry in enumerate(value):
            yield from _problems(schema["items"], entry, f"{path}[{index}]")
    else:
        check = STRICTER.get(path.rpartition(".")[2], BY_TYPE[schema["type"], "format" in schema])
        problem = check(value)
        if problem is None and value not in schema.get("enum", [value]):
            problem = f"{value!r} is none of {', '.join(map(repr, schema['enum']))}"
        if problem:
            yield f"{path}: {problem}"
