"""Longhorn's own settings: the values of its Setting objects, its defaults for what is missing (`types/setting.go`).

Booleans are read as Go's `strconv.ParseBool` reads them, integers as its `strconv.ParseInt` with base 10. A setting
that may differ by data engine is a JSON object of strings or one plain string for every engine; the value's first
character tells, whatever Longhorn's version.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, Final

from controller.model.longhorn import AUTO_BALANCE, DATA_ENGINES, DATA_LOCALITIES, LonghornSettings, SpacePolicy
from controller.model.reader import Raw, text_at
from controller.model.versions import VERSION_SETTING, behaviour_of

REPLICA_COUNT: Final = "default-replica-count"
FAST_REBUILD: Final = "fast-replica-rebuild-enabled"
FAST_REBUILD_V2: Final = "v2-data-engine-fast-replica-rebuilding"  # its name up to Longhorn 1.9
_TRUE: Final = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "FALSE", "false", "False"})
_LEAST: Final = -(2**63)
_MOST: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class SettingProblem:
    """A value that is not used; the last good one stays."""

    name: str
    value: str | None  # None: there is none
    problem: str

    @property
    def text(self) -> str:
        """For a person, beside the name."""
        return self.problem if self.value is None else f"{self.value!r} {self.problem}"


def setting_value(raw: Raw) -> str:
    """The value of a Setting object."""
    return text_at(raw, "", "value")


def by_name(values: Mapping[str, str]) -> dict[str, str]:
    """Setting objects' values by their names alone, out of those by key: they live in one namespace."""
    return {key.rsplit("/", 1)[-1]: value for key, value in values.items()}


def parse_flag(text: str) -> bool:
    """A boolean as Go's `strconv.ParseBool` reads it; ValueError otherwise, the empty string included."""
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise ValueError("is not a boolean")


def parse_integer(text: str, least: int, most: int) -> int:
    """A decimal integer of that range; ValueError otherwise."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit()) or len(digits.lstrip("0")) > 19:
        raise ValueError("is not an integer")
    value = int(digits.lstrip("0") or "0") * (-1 if text.startswith("-") else 1)
    if not least <= value <= most:
        raise ValueError(f"is not between {least} and {most}")
    return value


def per_engine(text: str, engine: str) -> str | None:
    """The value for one data engine of a setting in either shape: a JSON object of strings, or a plain string for all.

    None when the object lacks the engine, so that the default holds; ValueError when it is no such object.
    """
    if not text.lstrip().startswith("{"):
        return text
    try:
        decoded = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError("is not a JSON object") from error
    for key, value in decoded.items():
        if not isinstance(value, str):
            raise ValueError(f"has no string for {key}")
    found: str | None = decoded.get(engine)
    return found


def _number(least: int, most: int = _MOST) -> Callable[[str], int]:
    return lambda text: parse_integer(text, least, most)


def _choice(*choices: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in choices:
            raise ValueError(f"is not one of {', '.join(choices)}")
        return text

    return parse


_PLAIN: Final[dict[str, tuple[str, Callable[[str], object]]]] = {
    "storage-over-provisioning-percentage": ("over_provisioning_pct", _number(0)),
    "storage-minimal-available-percentage": ("minimal_available_pct", _number(0, 100)),
    "allow-empty-node-selector-volume": ("allow_empty_node_selector", parse_flag),
    "allow-empty-disk-selector-volume": ("allow_empty_disk_selector", parse_flag),
    "default-data-locality": ("default_data_locality", _choice(*DATA_LOCALITIES)),
    "allow-volume-creation-with-degraded-availability": ("degraded_availability", parse_flag),
    "replica-soft-anti-affinity": ("soft_anti_affinity", parse_flag),
    "replica-zone-soft-anti-affinity": ("zone_soft_anti_affinity", parse_flag),
    "replica-disk-soft-anti-affinity": ("disk_soft_anti_affinity", parse_flag),
    "replica-auto-balance": ("auto_balance", _choice(*AUTO_BALANCE)),
    "replica-auto-balance-disk-pressure-percentage": ("disk_pressure_pct", _number(_LEAST)),
    "replica-replenishment-wait-interval": ("replenishment_wait_seconds", _number(0)),
    "default-instance-manager-image": ("instance_manager_image", str),
    "concurrent-replica-rebuild-per-node-limit": ("concurrent_rebuild_limit", _number(0)),
    "default-engine-image": ("default_engine_image", str),
    "disable-scheduling-on-cordoned-node": ("closes_cordoned", parse_flag),
    "v1-data-engine": ("makes_v1", parse_flag),
    "v2-data-engine": ("makes_v2", parse_flag),
}
# A field for each data engine, named with it, and the value of an engine that the object does not name.
_BY_ENGINE: Final[dict[str, tuple[str, Callable[[str], object], object]]] = {
    REPLICA_COUNT: ("default_replica_count", _number(1, 20), 3),
    FAST_REBUILD: ("fast_rebuild", parse_flag, True),
}
_SPACE_FIELDS: Final = frozenset(field.name for field in fields(SpacePolicy))
LONGHORN_NAMES: Final = (*_PLAIN, *_BY_ENGINE, FAST_REBUILD_V2, VERSION_SETTING)
"""The Setting objects that are read."""


def longhorn_settings(
    values: Mapping[str, str], previous: LonghornSettings | None = None
) -> tuple[LonghornSettings, tuple[SettingProblem, ...]]:
    """Longhorn's settings, from the values of its Setting objects; what is missing has Longhorn's default. Pure.

    Longhorn itself fails on a value that does not parse; here the previous one stays, and a problem reports it. The
    running release is among them: without its Setting it is not known.
    """
    last = previous or LonghornSettings()
    found, problems = dict[str, Any](), list[SettingProblem]()
    for name, field, parse in _rows(values):
        try:
            found[field] = parse(values[name])
        except ValueError as error:
            found[field] = getattr(last.space if field in _SPACE_FIELDS else last, field)
            problem = SettingProblem(name, values[name][:80], str(error))
            problems += [problem] if problem not in problems else []
    space = {key: value for key, value in found.items() if key in _SPACE_FIELDS}
    other = {key: value for key, value in found.items() if key not in _SPACE_FIELDS}
    other["behaviour"] = behaviour_of(values.get(VERSION_SETTING))
    return replace(LonghornSettings(), space=replace(SpacePolicy(), **space), **other), tuple(problems)


def _rows(values: Mapping[str, str]) -> Iterator[tuple[str, str, Callable[[str], object]]]:
    """Yields for each Setting that is there its name, the field, and how its value is read."""
    for name, (field, parse) in _PLAIN.items():
        if name in values:
            yield name, field, parse
    if FAST_REBUILD_V2 in values and FAST_REBUILD not in values:
        yield FAST_REBUILD_V2, "fast_rebuild_v2", parse_flag
    for name, (field, parse, missing) in _BY_ENGINE.items():
        for engine in DATA_ENGINES if name in values else ():
            yield name, f"{field}_{engine}", partial(_of_engine, engine, parse, missing)


def _of_engine(engine: str, parse: Callable[[str], object], missing: object, text: str) -> object:
    value = per_engine(text, engine)
    return missing if value is None else parse(value)
