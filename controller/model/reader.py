"""Reads fields of a raw JSON object with their type checked; every complaint names the field's path."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from controller.errors import MalformedRequestError
from controller.model.times import utc_time

Raw = Mapping[str, Any]
_EMPTY: Raw = {}


def mapping_at(raw: object, path: str, *names: str) -> Raw:
    """The object under `names`; an empty one where any step is missing or null."""
    current = raw
    for depth, name in enumerate(names):
        if not isinstance(current, Mapping):
            raise MalformedRequestError(_join(path, names[:depth]), "is not an object")
        current = current.get(name)
        if current is None:
            return _EMPTY
    if not isinstance(current, Mapping):
        raise MalformedRequestError(_join(path, names), "is not an object")
    return current


def text_at(raw: Raw, path: str, name: str, default: str = "") -> str:
    value = raw.get(name)
    if value is None:
        return default
    if not isinstance(value, str):
        raise MalformedRequestError(_join(path, (name,)), f"is not a string: {str(value)[:80]!r}")
    return value


def choice_at(raw: Raw, path: str, name: str, choices: Collection[str], default: str) -> str:
    """One of `choices`; `default` where it is missing or empty, as Longhorn's webhook fills it in."""
    value = text_at(raw, path, name) or default
    if value != default and value not in choices:
        raise MalformedRequestError(_join(path, (name,)), f"is not one of {sorted(choices)}: {value[:80]!r}")
    return value


def time_at(raw: Raw, path: str, name: str) -> str:
    """An RFC3339 time as it stands there; "" where it is missing or empty."""
    value = text_at(raw, path, name)
    if value:
        try:
            utc_time(value)
        except ValueError as error:
            raise MalformedRequestError(_join(path, (name,)), f"{error}: {value[:80]!r}") from error
    return value


def flag_at(raw: Raw, path: str, name: str, default: bool = False) -> bool:
    value = raw.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise MalformedRequestError(_join(path, (name,)), f"is not a boolean: {str(value)[:80]!r}")
    return value


def integer_at(raw: Raw, path: str, name: str, default: int = 0) -> int:
    """An integer of 64 bits. JSON numbers such as 1e3 count when they are whole."""
    value = raw.get(name)
    if value is None:
        return default
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise MalformedRequestError(_join(path, (name,)), f"is not an integer: {str(value)[:80]!r}")
    if not -(2**63) <= value < 2**63:
        raise MalformedRequestError(_join(path, (name,)), f"does not fit 64 bits: {value}")
    return value


def byte_count_at(raw: Raw, path: str, name: str) -> int:
    """A string of decimal bytes, as Longhorn writes `spec.size`; missing or empty is 0, negative is refused."""
    value = raw.get(name)
    if value is None or value == "":
        return 0
    field = _join(path, (name,))
    if isinstance(value, str):
        if not (value.isascii() and value.isdigit()) or len(value) > 19:
            raise MalformedRequestError(field, f"is not a byte count: {value[:80]!r}")
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        raise MalformedRequestError(field, f"is not a byte count: {str(value)[:80]!r}")
    return value


def list_at(raw: Raw, path: str, name: str) -> Sequence[Any]:
    value = raw.get(name)
    if value is None:
        return ()
    if not isinstance(value, list):
        raise MalformedRequestError(_join(path, (name,)), "is not a list")
    return value


def texts_at(raw: Raw, path: str, name: str) -> tuple[str, ...]:
    values = list_at(raw, path, name)
    for index, value in enumerate(values):
        if not isinstance(value, str):
            raise MalformedRequestError(f"{_join(path, (name,))}[{index}]", f"is not a string: {str(value)[:80]!r}")
    return tuple(values)


def condition_at(status: Raw, path: str, type_name: str) -> bool | None:
    """True, False, or None for a condition that is missing or Unknown."""
    for entry in list_at(status, path, "conditions"):
        if isinstance(entry, Mapping) and entry.get("type") == type_name:
            return {"True": True, "False": False}.get(str(entry.get("status")))
    return None


def has_condition(status: Raw, path: str, type_name: str) -> bool:
    """Whether the condition stands there, whatever it says."""
    return any(
        isinstance(entry, Mapping) and entry.get("type") == type_name for entry in list_at(status, path, "conditions")
    )


def condition_message_at(status: Raw, path: str, type_name: str) -> str:
    """What a condition that is False says to people; "" for one that is not."""
    for entry in list_at(status, path, "conditions"):
        if isinstance(entry, Mapping) and entry.get("type") == type_name:
            return str(entry.get("message", "")) if entry.get("status") == "False" else ""
    return ""


def condition_reason_at(status: Raw, path: str, type_name: str) -> str:
    """Why a condition is False; "" for one that is not."""
    for entry in list_at(status, path, "conditions"):
        if isinstance(entry, Mapping) and entry.get("type") == type_name:
            return str(entry.get("reason", "")) if entry.get("status") == "False" else ""
    return ""


def condition_time_at(status: Raw, path: str, type_name: str) -> str:
    """Since when a condition has been False; "" for one that is not, or that does not say."""
    for entry in list_at(status, path, "conditions"):
        if isinstance(entry, Mapping) and entry.get("type") == type_name:
            return str(entry.get("lastTransitionTime") or "") if entry.get("status") == "False" else ""
    return ""


def _join(path: str, names: Sequence[str]) -> str:
    return ".".join((path, *names)) if path else ".".join(names)
