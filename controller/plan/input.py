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
from controller.model.names import LONGHORN_DRIVER
from controller.model.quantity import MAX_BYTES, quantity_bytes
from controller.model.reader import Raw, integer_at, list_at, mapping_at, shown, text_at, texts_at, time_at
from controller.model.times import utc_time
from controller.model.versions import NEWEST, VERSION_SETTING, behaviour_of, parse_version
from controller.model.workload import Pod
from controller.plan.complaints import InputError, Notes, nearest
from controller.plan.objects import Objects, decode_objects

PARTS: Final = frozenset({"objects", "settings", "now", "longhornVersion", "question", "questions"})
MOST_QUESTIONS: Final = 10_000
_LIKE_SETTING: Final = 0.8
MOST_REPLICAS: Final = 100  # of one question; Longhorn has no more than 20 of a volume


@dataclass(frozen=True, slots=True)
class ScheduleQuestion:
    """Where would Longhorn place these replicas, one after the other?"""

    volume: Volume
    replicas: tuple[Replica, ...]


@dataclass(frozen=True, slots=True)
class ExpandQuestion:
    """May the volume grow to that size? `path` is its place in the document."""

    path: str
    volume: Volume
    size_bytes: int


@dataclass(frozen=True, slots=True)
class FitQuestion:
    """On which of these nodes is there room for the pod's volumes? `path` is its place in the document."""

    path: str
    pod: Pod
    nodes: tuple[str, ...]
    promises: tuple[GivenPromise, ...]


Question = ScheduleQuestion | ExpandQuestion | FitQuestion


@dataclass(frozen=True, slots=True)
class Document:
    """Questions, with everything that decides them. `version` is None where nothing tells Longhorn's; `is_list`: they
    stand in `questions`, so their answers are a list as well."""

    objects: Objects
    settings: LonghornSettings
    version: str | None
    now_utc: datetime
    questions: tuple[Question, ...]
    is_list: bool


def decode_document(raw: object, now_utc: datetime, notes: Notes) -> Document:
    """The questions in `raw`; InputError for anything that does not fit. `now_utc` is for a document without a `now`.

    What can only be ignored goes to `notes`, which refuse it or keep a remark.
    """
    if not isinstance(raw, Mapping):
        raise InputError("", "", "the document is not an object of objects and a question")
    if "kind" in raw and "objects" not in raw:
        raise InputError("", "objects", "is missing; what kubectl prints stands below it, beside a question")
    for name in sorted(raw.keys() - PARTS):
        raise InputError("", name, f"is not one of {', '.join(sorted(PARTS))}")
    objects = decode_objects(raw.get("objects"), notes)
    with_settings = _settings_of(objects, raw.get("settings"), notes)
    try:
        version = _version_of(raw, notes)
        now_utc = _now_of(raw, now_utc)
    except MalformedRequestError as error:
        raise InputError("", error.field, error.problem) from error
    if version is None:
        version = with_settings.get(VERSION_SETTING)
    settings = replace(
        _parsed_settings(objects, raw.get("settings"), with_settings),
        behaviour=NEWEST if version is None else behaviour_of(version),
    )
    questions, is_list = _questions(raw, objects)
    return Document(objects, settings, version, now_utc, questions, is_list)


def _version_of(raw: Raw, notes: Notes) -> str | None:
    if raw.get("longhornVersion") is None:
        return None
    version = text_at(raw, "", "longhornVersion")
    if parse_version(version) is None:
        problem = f"{shown(version)} is no version as in v1.11.2"
        notes.pass_over(InputError("", "longhornVersion", problem), "taken for the newest")
    return version


def _now_of(raw: Raw, now_utc: datetime) -> datetime:
    """The moment that is asked about, in UTC, in which the first and the last hours of time may not exist."""
    text = time_at(raw, "", "now")
    if not text:
        if raw.get("now") is not None:
            raise MalformedRequestError("now", "is empty")
        return now_utc
    try:
        return utc_time(text).astimezone(UTC)
    except OverflowError as error:
        raise MalformedRequestError("now", f"is before the year 1 or after 9999 in UTC: {shown(text)}") from error


# Settings


def _settings_of(objects: Objects, given: object, notes: Notes) -> dict[str, str]:
    """Values as Setting objects have them; those of `settings` win. One that no decision uses is another setting of
    Longhorn's, or a misspelling."""
    values = dict(objects.settings)
    if given is None:
        return values
    if not isinstance(given, Mapping):
        raise InputError("", "settings", "is not an object")
    for name, value in given.items():
        values[name] = _setting_text(f"settings.{name}", value)
        if name not in LONGHORN_NAMES:
            near = nearest(name, LONGHORN_NAMES, _LIKE_SETTING)
            problem = "nothing is decided by it" + (f", {near} is read" if near else "")
            notes.pass_over(InputError("", f"settings.{name}", problem))
    return values


def _setting_text(path: str, value: object) -> str:
    """A value as Longhorn stores it: plain, or an object of one plain value for each data engine."""
    if isinstance(value, Mapping):
        return json.dumps({key: _plain_text(f"{path}.{key}", entry) for key, entry in value.items()})
    return _plain_text(path, value)


def _plain_text(path: str, value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int):
        if abs(value) >= 2**64:
            raise InputError("", path, "is not a number of any sense")
        return str(value)
    raise InputError("", path, f"is not a string, number or boolean: {shown(value)}")


def _parsed_settings(objects: Objects, given: object, values: Mapping[str, str]) -> LonghornSettings:
    settings, problems = longhorn_settings(values)
    for entry in problems:
        problem = f"{entry.problem}: {entry.value!r}"
        if isinstance(given, Mapping) and entry.name in given:
            raise InputError("", f"settings.{entry.name}", problem)
        raise InputError(objects.names["settings", entry.name], "value", problem)
    return settings


# The question


def _questions(raw: Raw, objects: Objects) -> tuple[tuple[Question, ...], bool]:
    """All questions, and whether they are a list."""
    if raw.get("questions") is None:
        return (_question(raw.get("question"), "question", objects),), False
    if raw.get("question") is not None:
        raise InputError("", "question", "stands there beside questions")
    given = raw["questions"]
    if not isinstance(given, list):
        raise InputError("", "questions", "is not a list")
    if len(given) > MOST_QUESTIONS:
        raise InputError("", "questions", f"are more than {MOST_QUESTIONS}")
    return tuple(_question(entry, f"questions[{index}]", objects) for index, entry in enumerate(given)), True


def _question(raw: object, where: str, objects: Objects) -> Question:
    if raw is None:
        raise InputError("", where, "is missing")
    if not isinstance(raw, Mapping):
        raise InputError("", where, "is not an object")
    if len(raw) != 1 or not raw.keys() <= _QUESTIONS.keys():
        raise InputError("", where, f"is not exactly one of {', '.join(_QUESTIONS)}")
    (kind,) = raw
    decode, names = _QUESTIONS[kind]
    path = f"{where}.{kind}"
    try:
        details = mapping_at(raw, where, kind)
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


def _volume_to_grow(details: Raw, path: str, objects: Objects) -> Volume:
    """By its own name, or as people know it: by its claim, which its PersistentVolume leads to."""
    if details.get("claim") is None:
        return _volume(details, path, objects)
    if details.get("volume") is not None:
        raise MalformedRequestError(f"{path}.claim", "stands there beside volume")
    key = _required_text(details, path, "claim")
    claim = objects.claims.get(key)
    if claim is None:
        problem = f"there is no PersistentVolumeClaim {key}; it is written namespace/name"
        raise MalformedRequestError(f"{path}.claim", problem)
    if not claim.volume_name:
        raise MalformedRequestError(f"{path}.claim", f"{key} has no volume yet")
    pv = objects.pvs.get(claim.volume_name)
    if pv is None:
        raise MalformedRequestError(f"{path}.claim", f"there is no PersistentVolume {claim.volume_name} of {key}")
    if pv.driver != LONGHORN_DRIVER:
        raise MalformedRequestError(f"{path}.claim", f"the volume of {key} is not Longhorn's")
    return _volume({"volume": pv.handle}, path, objects)


def _schedule(details: Raw, path: str, objects: Objects) -> Question:
    volume = _volume(details, path, objects)
    if details.get("replicas") is None:
        raise MalformedRequestError(f"{path}.replicas", "is missing")
    names = texts_at(details, path, "replicas")
    if len(names) > MOST_REPLICAS:
        raise MalformedRequestError(f"{path}.replicas", f"are more than {MOST_REPLICAS}")
    replicas = []
    for index, name in enumerate(names):
        replica = objects.replicas.get(name)
        if replica is None or replica.volume != volume.name:
            raise MalformedRequestError(f"{path}.replicas[{index}]", f"volume {volume.name} has no Replica {name}")
        replicas.append(replica)
    return ScheduleQuestion(volume, tuple(replicas))


def _amount(details: Raw, path: str, name: str) -> int:
    """A size: a number of bytes, or a quantity such as `20Gi`."""
    value, field = details.get(name), f"{path}.{name}"
    if value is None:
        raise MalformedRequestError(field, "is missing")
    if isinstance(value, str) and value.startswith("+"):
        raise MalformedRequestError(field, f"has a sign, and is the whole size, not what is added: {shown(value)}")
    size = quantity_bytes(value, field) if isinstance(value, str) else integer_at(details, path, name)
    if isinstance(value, str) and size == MAX_BYTES:  # it is cut there
        raise MalformedRequestError(field, f"does not fit 64 bits: {shown(value)}")
    if size < 0:
        raise MalformedRequestError(field, f"is negative: {shown(value)}")
    return size


def _expand(details: Raw, path: str, objects: Objects) -> Question:
    volume = _volume_to_grow(details, path, objects)
    is_asked = details.get("size") is not None
    return ExpandQuestion(path, volume, _amount(details, path, "size") if is_asked else volume.size_bytes)


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
    return FitQuestion(path, pod, tuple(sorted(set(nodes))), tuple(promises))


def _check_node(name: str, path: str, objects: Objects) -> None:
    if name not in objects.nodes and name not in objects.kube_nodes:
        raise MalformedRequestError(path, f"there is no node {name}, neither Longhorn's nor Kubernetes'")


_Decode = Callable[[Raw, str, Objects], Question]
_QUESTIONS: Final[Mapping[str, tuple[_Decode, frozenset[str]]]] = {
    "schedule": (_schedule, frozenset({"volume", "replicas"})),
    "expand": (_expand, frozenset({"volume", "claim", "size"})),
    "fit": (_fit, frozenset({"pod", "nodes", "promises"})),
}
