"""Longhorn's Setting objects to the figures that placement asks for.

A missing object means Longhorn's default. Booleans are what Go's `ParseBool` takes, integers are base 10, and a
setting that is kept per data engine is a JSON object with string values, or one plain string for both (Longhorn's
`types/setting.go`). A value that does not fit leaves the last good one in force and is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeVar

import msgspec

from controller.errors import MalformedRequestError
from controller.model.longhorn import (
    LOCALITY_BEST_EFFORT,
    LOCALITY_DISABLED,
    LOCALITY_STRICT,
    LonghornSettings,
    SpacePolicy,
)
from controller.model.reader import Raw, mapping_at, text_at

_TRUE: Final = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "FALSE", "false", "False"})
_LOCALITIES: Final = frozenset({LOCALITY_DISABLED, LOCALITY_BEST_EFFORT, LOCALITY_STRICT})
_ENGINES: Final = msgspec.json.Decoder(dict[str, str])
_Value = TypeVar("_Value")


def setting_value(raw: Raw) -> str:
    """The value of a Setting object."""
    mapping_at(raw, "", "metadata")
    return text_at(raw, "", "value")


def longhorn_settings(
    values: Mapping[str, str], previous: LonghornSettings
) -> tuple[LonghornSettings, tuple[MalformedRequestError, ...]]:
    """The settings in force by `values` (Setting name -> value), and a complaint for each value that is not used."""
    reader = _Reader(values)
    default = LonghornSettings()
    space, old = default.space, previous.space
    counts = reader.read(
        "default-replica-count",
        _engine_counts,
        (default.default_replica_count_v1, default.default_replica_count_v2),
        (previous.default_replica_count_v1, previous.default_replica_count_v2),
    )
    settings = LonghornSettings(
        space=SpacePolicy(
            over_provisioning_pct=reader.read(
                "storage-over-provisioning-percentage",
                _integer(0, 2**31),
                space.over_provisioning_pct,
                old.over_provisioning_pct,
            ),
            minimal_available_pct=reader.read(
                "storage-minimal-available-percentage",
                _integer(0, 100),
                space.minimal_available_pct,
                old.minimal_available_pct,
            ),
            allow_empty_node_selector=reader.read(
                "allow-empty-node-selector-volume",
                _flag,
                space.allow_empty_node_selector,
                old.allow_empty_node_selector,
            ),
            allow_empty_disk_selector=reader.read(
                "allow-empty-disk-selector-volume",
                _flag,
                space.allow_empty_disk_selector,
                old.allow_empty_disk_selector,
            ),
        ),
        default_replica_count_v1=counts[0],
        default_replica_count_v2=counts[1],
        default_data_locality=reader.read(
            "default-data-locality", _locality, default.default_data_locality, previous.default_data_locality
        ),
        degraded_availability=reader.read(
            "allow-volume-creation-with-degraded-availability",
            _flag,
            default.degraded_availability,
            previous.degraded_availability,
        ),
    )
    return settings, tuple(reader.problems)


class _Reader:
    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values
        self.problems: list[MalformedRequestError] = []

    def read(self, name: str, parse: Callable[[str], _Value], default: _Value, previous: _Value) -> _Value:
        text = self._values.get(name)
        if text is None:
            return default
        try:
            return parse(text)
        except ValueError as error:
            self.problems.append(MalformedRequestError(name, f"{error}: {text[:80]!r}"))
            return previous


def _flag(text: str) -> bool:
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    raise ValueError("is not a boolean")


def _integer(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdigit()) or len(digits) > 19:
            raise ValueError("is not an integer")
        if not low <= int(text) <= high:
            raise ValueError(f"is not between {low} and {high}")
        return int(text)

    return parse


def _engine_counts(text: str) -> tuple[int, int]:
    count = _integer(1, 20)
    if not text.lstrip().startswith("{"):
        return count(text), count(text)
    try:
        by_engine = _ENGINES.decode(text)
    except msgspec.MsgspecError as error:
        raise ValueError("is not a JSON object of strings") from error
    return count(by_engine.get("v1", "3")), count(by_engine.get("v2", "3"))


def _locality(text: str) -> str:
    if text not in _LOCALITIES:
        raise ValueError("is not a data locality")
    return text
