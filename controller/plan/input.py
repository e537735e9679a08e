"""A question about saved objects, decoded and checked: the input of `python -m controller.plan`.

The format is docs/plan-format.md. Every complaint is an InputError that names the object and the field, and nothing is
answered then.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from controller.allocator.verbs.fit import GivenPromise
from controller.errors import MalformedRequestError
from controller.model.longhorn import LonghornSettings, Replica, Volume
from controller.model.longhorn_settings import LONGHORN_NAMES, longhorn_settings
from controller.model.reader import Raw, integer_at, list_at, mapping_at, text_at, texts_at, time_at
from controller.model.times import utc_time
from controller.model.versions import NEWEST, VERSION_SETTING, behaviour_of
from controller.model.workload import Pod
from controller.plan.objects import InputError, Objects, decode_objects

PARTS: Final = frozenset({"objects", "settings", "now", "longhornVersion", "question"})


@dataclass(frozen=True, slots=True)
class ScheduleQuestion:
    """Where would Longhorn place these replicas, one after the other?"""

    volume: Volume
    replicas: tuple[Replica, ...]


@dataclass(frozen=True, slots=True)
class ExpandQuestion:
    """May the volume grow to that size?"""

    volume: Volume
    size_bytes: int


@dataclass(frozen=True, slots=True)
class FitQuestion:
    """On which of these nodes is there room for the pod's volumes?"""

    pod: Pod
    nodes: tuple[str, ...]
    promises: tuple[GivenPromise, ...]


Question = ScheduleQuestion | ExpandQuestion | FitQuestion


@dataclass(frozen=True, slots=True)
class Document:
    """One question with all that it is decided on. `version` is None where nothing tells Longhorn's."""

    objects: Objects
    settings: LonghornSettings
    version: str | None
    now_utc: datetime
    question: Question


def decode_document(raw: object, now_utc: datetime) -> Document:
    """The question in `raw`; InputError for anything that does not fit. `now_utc` is for a document without a `now`."""
    if not isinstance(raw, Mapping):
        raise InputError("", "", "the document is not an object")
    for name in sorted(raw.keys() - PARTS):
        raise InputError("", name, f"is not one of {', '.join(sorted(PARTS))}")
    objects = decode_objects(raw.get("objects"))
    with_settings = _settings_of(objects, raw.get("settings"))
    try:
        version = text_at(raw, "", "longhornVersion") if raw.get("longhornVersion") is not None else None
        text = time_at(raw, "", "now")
        if text == "" and raw.get("now") is not None:
            raise MalformedRequestError("now", "is empty")
    except MalformedRequestError as error:
        raise InputError("", error.field, error.problem) from error
    if version is None:
        version = with_settings.get(VERSION_SETTING)
    settings = replace(
        _parsed_settings(objects, raw.get("settings"), with_settings),
        behaviour=NEWEST if version is None else behaviour_of(version),
    )
    return Document(
        objects=objects,
        settings=settings,
        version=version,
        now_utc=utc_time(text).astimezone(UTC) if text else now_utc,
        question=_question(raw.get("question"), objects),
    )


# Settings


def _settings_of(objects: Objects, given: object) -> dict[str, str]:
    """Values as Setting objects have them; those of `settings` win."""
    values = dict(objects.settings)
    if given is None:
        return values
    if not isinstance(given, Mapping):
        raise InputError("", "settings", "is not an object")
    for name, value in given.items():
        values[name] = _setting_text(f"settings.{name}", value)
    return values


def _setting_text(path: str, value: object) -> str:
    if isinstance(value, Mapping):
        return json.dumps({key: _setting_text(f"{path}.{key}", entry) for key, entry in value.items()})
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int):
        try:
            return str(value)
        except ValueError as error:  # thousands of digits
            raise InputError("", path, "is not a number of any sense") from error
    raise InputError("", path, f"is not a string, number, boolean or object: {str(value)[:80]!r}")


def _parsed_settings(objects: Objects, given: object, values: Mapping[str, str]) -> LonghornSettings:
    settings, problems = longhorn_settings(values)
    for entry in problems:
        problem = f"{entry.problem}: {entry.value!r}"
        if isinstance(given, Mapping) and entry.name in given:
            raise InputError("", f"settings.{entry.name}", problem)
        raise InputError(objects.names["settings", entry.name], "value", problem)
    return settings


def unread_settings(raw: object) -> list[str]:
    """Names in `settings` that no decision asks for: another setting of Longhorn's, or a slip of the pen."""
    given = raw.get("settings") if isinstance(raw, Mapping) else None
    names = given if isinstance(given, Mapping) else ()
    return sorted(name for name in names if name not in LONGHORN_NAMES)


# The question


def _question(raw: object, objects: Objects) -> Question:
    if raw is None:
        raise InputError("", "question", "is missing")
    if not isinstance(raw, Mapping):
        raise InputError("", "question", "is not an object")
    if len(raw) != 1 or not raw.keys() <= _QUESTIONS.keys():
        raise InputError("", "question", f"is not exactly one of {', '.join(_QUESTIONS)}")
    (kind,) = raw
    decode, names = _QUESTIONS[kind]
    path = f"question.{kind}"
    try:
        details = mapping_at(raw, "question", kind)
        for name in sorted(details.keys() - names):
            raise MalformedRequestError(f"{path}.{name}", f"is not one of {', '.join(sorted(names))}")
        return decode(details, path, objects)
    except MalformedRequestError as error:
        raise InputError("", error.field, error.problem) from error


def _required_text(details: Raw, path: str, name: str) -> str:
    value = text_at(details, path, name)
    if not value:
        raise MalformedRequestError(f"{path}.{name}", "is missing")
    return value


def _volume(details: Raw, path: str, objects: Objects) -> Volume:
    name = _required_text(details, path, "volume")
    volume = objects.volumes.get(name)
    if volume is None:
        raise MalformedRequestError(f"{path}.volume", f"there is no Volume {name}")
    if volume.size_bytes <= 0:
        raise InputError(objects.names["volumes", name], "spec.size", "is missing or 0")
    return volume


def _schedule(details: Raw, path: str, objects: Objects) -> Question:
    volume = _volume(details, path, objects)
    if details.get("replicas") is None:
        raise MalformedRequestError(f"{path}.replicas", "is missing")
    names = texts_at(details, path, "replicas")
    replicas = []
    for index, name in enumerate(names):
        replica = objects.replicas.get(name)
        if replica is None or replica.volume != volume.name:
            raise MalformedRequestError(f"{path}.replicas[{index}]", f"volume {volume.name} has no Replica {name}")
        replicas.append(replica)
    return ScheduleQuestion(volume, tuple(replicas))


def _amount(details: Raw, path: str, name: str) -> int:
    if details.get(name) is None:
        raise MalformedRequestError(f"{path}.{name}", "is missing")
    value = integer_at(details, path, name)
    if value < 0:
        raise MalformedRequestError(f"{path}.{name}", f"is negative: {value}")
    return value


def _expand(details: Raw, path: str, objects: Objects) -> Question:
    return ExpandQuestion(_volume(details, path, objects), _amount(details, path, "size"))


def _fit(details: Raw, path: str, objects: Objects) -> Question:
    key = _required_text(details, path, "pod")
    pod = objects.pods.get(key)
    if pod is None:
        raise MalformedRequestError(f"{path}.pod", f"there is no Pod {key}; it is written namespace/name")
    if details.get("nodes") is None:
        raise MalformedRequestError(f"{path}.nodes", "is missing")
    nodes = texts_at(details, path, "nodes")
    for index, name in enumerate(nodes):
        _check_node(name, f"{path}.nodes[{index}]", objects)
    promises = []
    for index, raw in enumerate(list_at(details, path, "promises")):
        where = f"{path}.promises[{index}]"
        entry = mapping_at(raw, where)
        for name in sorted(entry.keys() - {"node", "volume", "size"}):
            raise MalformedRequestError(f"{where}.{name}", "is not one of node, size, volume")
        node = _required_text(entry, where, "node")
        _check_node(node, f"{where}.node", objects)
        promises.append(GivenPromise(node, _required_text(entry, where, "volume"), _amount(entry, where, "size")))
    return FitQuestion(pod, tuple(sorted(set(nodes))), tuple(promises))


def _check_node(name: str, path: str, objects: Objects) -> None:
    if name not in objects.nodes and name not in objects.kube_nodes:
        raise MalformedRequestError(path, f"there is no node {name}, neither Longhorn's nor Kubernetes'")


_Decode = Callable[[Raw, str, Objects], Question]
_QUESTIONS: Final[Mapping[str, tuple[_Decode, frozenset[str]]]] = {
    "schedule": (_schedule, frozenset({"volume", "replicas"})),
    "expand": (_expand, frozenset({"volume", "size"})),
    "fit": (_fit, frozenset({"pod", "nodes", "promises"})),
}
