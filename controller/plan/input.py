"""Saved objects with questions about them, decoded and checked: the input of `plan`.

The format is docs/plan-format.md. Every complaint is an InputError that names the object and the field, and nothing is
answered then.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from controller.errors import MalformedRequestError
from controller.model.longhorn import LonghornSettings
from controller.model.longhorn_settings import LONGHORN_NAMES, longhorn_settings
from controller.model.reader import Raw, shown, text_at, time_at
from controller.model.times import utc_time
from controller.model.versions import (
    NEWEST,
    OWN_SCHEDULER_CRDS,
    VERSION_SETTING,
    behaviour_of,
    parse_version,
    support_of,
)
from controller.plan.complaints import InputError, Notes, nearest
from controller.plan.objects import Objects, decode_objects, settle_cordons

PARTS: Final = frozenset({"objects", "settings", "now", "longhornVersion", "question", "questions"})
MOST_QUESTIONS: Final = 10_000
_LIKE_SETTING: Final = 0.8
# The last one decides about scores alone.
DECIDING: Final = tuple(name for name in LONGHORN_NAMES if name != "concurrent-replica-rebuild-per-node-limit")
# Settings that decide no answer, with Longhorn's defaults: where an answer depends on one, a remark says so.
TOPOLOGY_KEYS, IMAGE_COPIES = "csi-allowed-topology-keys", "default-min-number-of-backing-image-copies"
REMARKED: Final[Mapping[str, str]] = {TOPOLOGY_KEYS: "", IMAGE_COPIES: "3"}


@dataclass(frozen=True, slots=True)
class Document:
    """Questions, raw, with everything that decides them. `is_list`: they stand in `questions`, so their answers are a
    list as well. `remarked`: the values of the settings that are only remarked on."""

    objects: Objects
    settings: LonghornSettings
    remarked: Mapping[str, str]
    now_utc: datetime
    questions: Sequence[object]
    is_list: bool


def decode_document(raw: object, now_utc: datetime, notes: Notes) -> Document:
    """What stands in `raw`; InputError for anything that does not fit. `now_utc` is for a document without a `now`.

    What can only be ignored goes to `notes`, which refuse it or keep a remark.
    """
    if not isinstance(raw, Mapping):
        raise InputError("", "", "the document is not an object of objects and a question")
    if "kind" in raw and "objects" not in raw:
        raise InputError("", "objects", "is missing; what kubectl prints stands below it, beside a question")
    for name in sorted(raw.keys() - PARTS):
        raise InputError("", name, f"is not one of {', '.join(sorted(PARTS))}")
    objects = decode_objects(raw.get("objects"), notes)
    given = given_settings(raw.get("settings"), notes)
    try:
        version = _version_of(raw, notes)
        now_utc = _now_of(raw, now_utc)
    except MalformedRequestError as error:
        raise InputError("", error.field, error.problem) from error
    values = {**objects.settings, **given}
    if version is None:
        version = values.get(VERSION_SETTING)
    settings = settings_of(objects, given, version, notes)
    questions, is_list = _questions(raw)
    _note_objects(objects, version, notes)
    settle_cordons(objects, settings, notes)
    remarked = {name: values.get(name, default) for name, default in REMARKED.items()}
    return Document(objects, settings, remarked, now_utc, questions, is_list)


def settings_of(objects: Objects, given: Mapping[str, str], version: str | None, notes: Notes) -> LonghornSettings:
    """Longhorn's settings: those that are `given`, then Setting objects, then the defaults; of the release `version`,
    None: the newest. InputError names one that is given and does not parse."""
    settings = _parsed_settings(objects, given, {**objects.settings, **given}, notes)
    return replace(settings, behaviour=NEWEST if version is None else behaviour_of(version))


def _questions(raw: Raw) -> tuple[Sequence[object], bool]:
    """All questions, and whether they are a list."""
    given = raw.get("questions")
    if given is None:
        return (raw.get("question"),), False
    if raw.get("question") is not None:
        raise InputError("", "question", "stands there beside questions")
    if not isinstance(given, list):
        raise InputError("", "questions", "is not a list")
    if len(given) > MOST_QUESTIONS:
        raise InputError("", "questions", f"are more than {MOST_QUESTIONS}")
    return given, True


def _note_objects(objects: Objects, version: str | None, notes: Notes) -> None:
    """What a person should know of the objects and of the release that runs."""
    notes.ignored.update(objects.ignored)
    if version is not None and parse_version(version) is None:
        notes.remark(f"longhornVersion: {version!r} is not a version; the newest is assumed")
    crds = [crd for crd, kind in OWN_SCHEDULER_CRDS.items() if objects.ignored[kind]]
    support = support_of(version, crds=crds, settings=objects.settings)
    if not support.is_supported:
        notes.remark(f"not supported: {support.problem}")


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


def given_settings(given: object, notes: Notes) -> dict[str, str]:
    """The document's `settings`, as Setting objects have their values; over those they win. One that no decision uses
    is another setting of Longhorn's, or a misspelling."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise InputError("", "settings", "is not an object")
    values = {}
    for name, value in given.items():
        values[name] = _setting_text(f"settings.{name}", value)
        if name not in DECIDING and name not in REMARKED:
            near = nearest(name, DECIDING, _LIKE_SETTING)
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


def _parsed_settings(
    objects: Objects, given: Mapping[str, str], values: Mapping[str, str], notes: Notes
) -> LonghornSettings:
    """Longhorn's settings. A Setting object whose value does not parse counts as absent, as it does for an extender
    that starts with it; of the document's own `settings`, nothing is left out."""
    settings, problems = longhorn_settings(values)
    for entry in problems:
        problem = f"{entry.problem}: {entry.value!r}"
        if entry.name in given:
            raise InputError("", f"settings.{entry.name}", problem)
        error = InputError(objects.names["setting", entry.name], "value", problem)
        notes.remark(f"{error}; the default counts")
    return settings
