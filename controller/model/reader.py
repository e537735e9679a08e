"""Reads fields of a raw JSON object with their type checked; every complaint names the field's path."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, TypeVar

from controller.errors import MalformedRequestError
from controller.model.times import utc_time

Raw = Mapping[str, Any]
F = TypeVar("F")
_EMPTY: Raw = {}
_SHOWN: Final = 80  # characters, digits
_DIGITS: Final = 19  # of a version
_MOST_SAID: Final = 300  # characters of a condition's reason or message


def read(parse: Callable[[Raw], F], raw: Raw) -> F | MalformedRequestError:
    """What `parse` makes of one object, or what is wrong with it, a mistake in the reader included: whoever reads many
    leaves that one out and goes on with the others."""
    try:
        return parse(raw)
    except MalformedRequestError as error:
        return error
    except Exception as error:  # fault barrier
        return MalformedRequestError("", repr(error))


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


def shown(value: object) -> str:
    """The value as a complaint shows it: short, whatever it is. Lists and objects are shown without their contents,
    which may be deep and large."""
    if isinstance(value, str):
        return repr(value[:_SHOWN])
    if isinstance(value, list):
        return "a list"
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, int) and abs(value) >= 10**_SHOWN:
        return "a number of many digits"
    return str(value)


def text_at(raw: Raw, path: str, name: str, default: str = "") -> str:
    value = raw.get(name)
    if value is None:
        return default
    if not isinstance(value, str):
        raise MalformedRequestError(_join(path, (name,)), f"is not a string: {shown(value)}")
    return value


def version_number(version: object) -> int:
    """The number of a resourceVersion, by which what live reads and watches show of one kind is put in order. One that
    is missing or odd is older than all."""
    if not isinstance(version, str) or not version.isascii() or not version.isdigit() or len(version) > _DIGITS:
        return 0
    return int(version)


def version_of(meta: Raw) -> int:
    return version_number(text_at(meta, "metadata", "resourceVersion"))


def choice_at(raw: Raw, path: str, name: str, choices: Collection[str], default: str) -> str:
    """One of `choices`; `default` where it is missing or empty, as Longhorn's webhook fills it in."""
    value = text_at(raw, path, name) or default
    if value != default and value not in choices:
        raise MalformedRequestError(_join(path, (name,)), f"is not one of {sorted(choices)}: {shown(value)}")
    return value


def time_at(raw: Raw, path: str, name: str) -> str:
    """An RFC3339 time as written; "" if it is missing or empty."""
    value = text_at(raw, path, name)
    if value:
        try:
            utc_time(value)
        except ValueError as error:
            raise MalformedRequestError(_join(path, (name,)), f"{error}: {shown(value)}") from error
    return value


def flag_at(raw: Raw, path: str, name: str, default: bool = False) -> bool:
    value = raw.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise MalformedRequestError(_join(path, (name,)), f"is not a boolean: {shown(value)}")
    return value


def integer_at(raw: Raw, path: str, name: str, default: int = 0) -> int:
    """An integer of 64 bits. JSON numbers such as 1e3 count when they are whole."""
    value = raw.get(name)
    if value is None:
        return default
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise MalformedRequestError(_join(path, (name,)), f"is not an integer: {shown(value)}")
    if not -(2**63) <= value < 2**63:
        raise MalformedRequestError(_join(path, (name,)), f"does not fit 64 bits: {shown(value)}")
    return value


def byte_count_at(raw: Raw, path: str, name: str) -> int:
    """A string of decimal bytes, as Longhorn writes `spec.size`; missing or empty is 0, negative is refused."""
    value = raw.get(name)
    if value is None or value == "":
        return 0
    field = _join(path, (name,))
    if isinstance(value, str):
        if not (value.isascii() and value.isdigit()) or len(value) > 19:
            raise MalformedRequestError(field, f"is not a byte count: {shown(value)}")
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        raise MalformedRequestError(field, f"is not a byte count: {shown(value)}")
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
            raise MalformedRequestError(f"{_join(path, (name,))}[{index}]", f"is not a string: {shown(value)}")
    return tuple(values)


def _condition(status: Raw, path: str, type_name: str) -> Raw | None:
    """The condition of that type; None if there is none. Its `status` and the types of all up to it have to be text."""
    for index, entry in enumerate(list_at(status, path, "conditions")):
        if not isinstance(entry, Mapping):
            raise MalformedRequestError(f"{_join(path, ('conditions',))}[{index}]", "is not an object")
        if not isinstance(entry.get("type"), str) or entry["type"] == type_name:
            where = f"{_join(path, ('conditions',))}[{index}]"
            text_at(entry, where, "status")
            if text_at(entry, where, "type") == type_name:
                return entry
    return None


def condition_at(status: Raw, path: str, type_name: str) -> bool | None:
    """True, False, or None for a condition that is missing or Unknown."""
    entry = _condition(status, path, type_name)
    return None if entry is None else {"True": True, "False": False}.get(entry.get("status") or "")


def has_condition(status: Raw, path: str, type_name: str) -> bool:
    """Whether the condition exists, whatever its status."""
    return _condition(status, path, type_name) is not None


def why_false_at(status: Raw, path: str, type_name: str, name: str) -> str:
    """The `message`, `reason` or `lastTransitionTime` of a condition that is False; "" of any other, or if it has
    none."""
    entry = _condition(status, path, type_name)
    return str(entry.get(name) or "") if entry is not None and entry.get("status") == "False" else ""


def why_not_true_at(status: Raw, path: str, type_name: str) -> str:
    """What a condition says that is not True, for a person: its status, reason and message, as far as it has them; ""
    of one that is True."""
    entry = _condition(status, path, type_name)
    if entry is None:
        return f"condition {type_name} is missing"
    if entry.get("status") == "True":
        return ""
    parts = (entry.get("status") or "not set", entry.get("reason"), entry.get("message"))
    return f"condition {type_name} is {': '.join(str(part)[:_MOST_SAID] for part in parts if part)}"


def _join(path: str, names: Sequence[str]) -> str:
    return ".".join((path, *names)) if path else ".".join(names)
