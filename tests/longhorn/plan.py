"""`python -m tests.longhorn.plan [--lines] FILE`: what this stand-in would do with saved objects.

It answers the questions `schedule` and `expand` in the JSON format of `python -m controller.plan`, with its own rules,
so that an outside model can judge the stand-in, and the two can be compared. FILE is JSON or YAML, with `--lines` one
JSON document a line; `-` is standard input. Exit code 2 on bad input, which is named; with `--lines` it becomes the
`error` of its line and the rest goes on.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import yaml

from tests.longhorn import checked, expansion, placement, preference
from tests.longhorn.checked import InputError
from tests.longhorn.placement import Raw, Refusal, SearchState
from tests.longhorn.release import NEWEST, Release, release_of

FLAGS: Final = (
    "replica-soft-anti-affinity",
    "replica-zone-soft-anti-affinity",
    "replica-disk-soft-anti-affinity",
    "allow-empty-node-selector-volume",
    "allow-empty-disk-selector-volume",
)
NUMBERS: Final = (
    "storage-over-provisioning-percentage",
    "storage-minimal-available-percentage",
    "replica-auto-balance-disk-pressure-percentage",
    "replica-replenishment-wait-interval",
)
Objects = dict[str, dict[str, Raw]]  # kind -> name -> object


@dataclass(frozen=True)
class Question:
    """What is asked of which volume, and the world as Longhorn's informers would show it."""

    kind: str  # schedule or expand
    details: Mapping[str, Any]
    volume: Raw
    state: SearchState


def answer(document: Any) -> dict[str, Any]:
    """Raises InputError that names the object and the field. Nothing given is changed."""
    return respond(read(document))


def respond(question: Question) -> dict[str, Any]:
    """The answer; picks are written into the state's replicas. Raises InputError."""
    answer_of = _schedule if question.kind == "schedule" else _expand
    return answer_of(question.state, question.volume, question.details)


def read(document: Any) -> Question:
    """The question in a document; the state's replicas are its own. Raises InputError."""
    if not isinstance(document, dict):
        raise InputError("the document is not a map")
    for name in document.keys() - {"objects", "settings", "now", "question", "longhornVersion"}:
        raise InputError(f"{name}: is not part of a question")
    objects = _objects(document.get("objects"))
    settings = _settings(objects, document.get("settings"))
    now = _now(document.get("now"))
    version = document.get("longhornVersion")
    release = _release(settings.get("current-longhorn-version") if version is None else version)
    question = document.get("question")
    if not isinstance(question, dict) or len(question) != 1 or not question.keys() <= {"schedule", "expand"}:
        raise InputError("question: is not one of schedule and expand")
    kind, details = next(iter(question.items()))
    if not isinstance(details, dict):
        raise InputError(f"question.{kind}: is not a map")
    volume = objects["Volume"].get(_text(details, kind, "volume"))
    if volume is None:
        raise InputError(f"question.{kind}.volume: there is no Volume {details['volume']}")
    if (volume.get("spec") or {}).get("size") is None:
        raise InputError(f"Volume {details['volume']}: spec.size: is missing")
    return Question(kind, details, volume, _state(objects, settings, now, volume, release))


def _text(details: Mapping[str, Any], kind: str, name: str) -> str:
    value = details.get(name)
    if not isinstance(value, str):
        raise InputError(f"question.{kind}.{name}: {value!r} is not a string")
    return value


# Input


def _objects(given: Any) -> Objects:
    if not isinstance(given, list):
        raise InputError("objects: is not a list")
    found: Objects = {kind: {} for kind in checked.SCHEMAS}
    for raw in _flat(given):
        meta = raw.get("metadata")
        if not isinstance(meta, dict) or not isinstance(meta.get("name"), str) or not meta["name"]:
            raise InputError(f"objects: a {raw.get('kind')} has no metadata.name")
        kind = checked.kind_of(raw)
        if not kind:
            continue
        checked.check_object(kind, raw)
        if meta["name"] in found[kind]:
            raise InputError(f"{kind} {meta['name']}: metadata.name: stands in the objects twice")
        found[kind][meta["name"]] = {**raw, "spec": raw.get("spec") or {}}
    _check_uuids(found["Node"])
    return found


def _flat(given: list[Any]) -> list[dict[str, Any]]:
    """Objects, those of a List among them."""
    found = []
    for index, raw in enumerate(given):
        if not isinstance(raw, dict):
            raise InputError(f"objects[{index}]: is not a map")
        if str(raw.get("kind", "")).endswith("List") and isinstance(raw.get("items"), list):
            found += _flat(raw["items"])
        else:
            found.append(raw)
    return found


def _check_uuids(nodes: Mapping[str, Raw]) -> None:
    seen: dict[str, str] = {}
    for name, node in nodes.items():
        for disk, status in ((node.get("status") or {}).get("diskStatus") or {}).items():
            uuid, place = status.get("diskUUID"), f"status.diskStatus.{disk}.diskUUID"
            if uuid and uuid in seen:
                raise InputError(f"Node {name}: {place}: {uuid} is also that of {seen[uuid]}")
            seen[uuid or ""] = f"disk {disk} of node {name}"


def _settings(objects: Objects, given: Any) -> dict[str, str]:
    found = {name: str(raw.get("value", "")) for name, raw in objects["Setting"].items()}
    if given is not None and not isinstance(given, dict):
        raise InputError("settings: is not a map")
    for name, value in (given or {}).items():
        if not isinstance(value, (str, bool, int)):
            raise InputError(f"settings.{name}: {value!r} is not a string")
        found[name] = str(value).lower() if isinstance(value, bool) else str(value)
    _check_settings(found)
    return found


def _check_settings(settings: dict[str, str]) -> None:
    """Whether all that placement may read can be read, though it may not come to that."""
    state = SearchState(nodes={}, replicas=(), settings=settings)
    try:
        for name in FLAGS:
            state.flag(name, True)
        for name in NUMBERS:
            state.number(name, 0)
    except ValueError as error:
        raise InputError(str(error)) from error


def _now(given: Any) -> datetime:
    if given is None:
        return datetime.now(UTC)
    problem = checked.moment(given) or ("is empty" if given == "" else None)
    if problem:
        raise InputError(f"now: {problem}")
    return checked.parse_moment(given)


def _release(given: Any) -> Release | None:
    if given is None:
        return NEWEST
    if not isinstance(given, str):
        raise InputError(f"longhornVersion: {given!r} is not a string")
    return release_of(given)


def _state(
    objects: Objects, settings: dict[str, str], now: datetime, volume: Raw, release: Release | None
) -> SearchState:
    return SearchState(
        nodes=objects["Node"],
        replicas=[copy.deepcopy(raw) for raw in _replicas_of(objects, volume["metadata"]["name"])],
        settings=settings,
        engine_images=list(objects["EngineImage"].values()) or None,
        instance_managers=list(objects["InstanceManager"].values()) or None,
        backing_images=objects["BackingImage"],
        kube_nodes=objects["v1 Node"] or None,
        source_replicas=_replicas_of(objects, _source_of(volume)),
        now=now,
        release=release,
    )


def _replicas_of(objects: Objects, volume: str) -> list[Raw]:
    return [raw for raw in objects["Replica"].values() if raw["spec"].get("volumeName") == volume]


def _source_of(volume: Raw) -> str:
    """The volume in `vol://<volume>` or `snap://<volume>/<snapshot>`."""
    _, _, rest = str(volume["spec"].get("dataSource") or "").partition("://")
    return rest.split("/")[0]


# Answers


def _schedule(state: SearchState, volume: Raw, details: Mapping[str, Any]) -> dict[str, Any]:
    names = details.get("replicas")
    if not isinstance(names, list) or any(map(checked.text, names)):
        raise InputError(f"question.schedule.replicas: {names!r} is not a list of strings")
    own = {replica["metadata"]["name"]: replica for replica in state.replicas}
    steps = []
    for name in names:
        if name not in own:
            raise InputError(f"question.schedule.replicas: volume {volume['metadata']['name']} has no Replica {name}")
        steps.append(_step(state, volume, own[name]))
    return {"steps": steps}


def _step(state: SearchState, volume: Raw, replica: Any) -> dict[str, Any]:
    """One call of Longhorn's scheduler; the pick is written into `replica`, the disks' figures stay as they were."""
    spec = replica["spec"]
    if spec.get("nodeID"):
        found = placement.SearchAnswer([], [Refusal("", "", "replica already scheduled", f"on node {spec['nodeID']}")])
    elif spec.get("failedAt") and not spec.get("healthyAt"):
        found = placement.SearchAnswer(
            [], [Refusal("", "", "unused failed replica is not supported", "it failed unused")]
        )
    else:
        found = placement.find_candidates(state, volume, replica)
    candidates = preference.near(state, volume, found.candidates)
    size = int(spec.get("volumeSize") or volume["spec"]["size"])
    chosen = placement.choose(state, volume, candidates, lambda _: 0, size=size)
    if chosen is not None:
        spec.update(nodeID=chosen.node, diskID=chosen.uuid)
        spec.setdefault("volumeSize", volume["spec"]["size"])
    refusals = sorted(found.refusals, key=lambda entry: (entry.node, entry.disk, entry.reason, entry.message))
    return {
        "replica": replica["metadata"]["name"],
        "scheduled": _place(chosen) if chosen is not None else None,
        "candidates": [_place(entry) for entry in candidates],
        "refusals": [
            {"node": entry.node, "disk": entry.disk, "reason": entry.reason, "message": entry.message}
            for entry in refusals
        ],
    }


def _place(entry: placement.Candidate) -> dict[str, str]:
    return {"node": entry.node, "disk": entry.disk, "diskUUID": entry.uuid}


def _expand(state: SearchState, volume: Raw, details: Mapping[str, Any]) -> dict[str, Any]:
    size = details.get("size")
    problem = checked.amount(size)
    if problem or not isinstance(size, int):
        raise InputError(f"question.expand.size: {problem}")
    growths = expansion.check_expansion(state, volume, size)
    return {
        "admitted": expansion.is_admitted(growths),
        "verdict": expansion.verdict(growths),
        "largestSize": expansion.largest_size(state, volume),
        "disks": [
            {
                "node": entry.node,
                "disk": entry.disk,
                "growth": entry.growth_bytes,
                "reason": entry.reason,
                "message": entry.message,
            }
            for entry in growths
        ],
    }


# The command


def answer_line(line: str) -> dict[str, Any]:
    try:
        return answer(json.loads(line))
    except (json.JSONDecodeError, RecursionError) as error:
        return {"error": f"the line is not JSON: {error}"}
    except InputError as error:
        return {"error": str(error)}


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return yaml.safe_load(text)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tests.longhorn.plan", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--lines", action="store_true", help="one JSON document a line, one answer a line")
    parser.add_argument("file", metavar="FILE", help="- reads standard input")
    given = parser.parse_args(arguments)
    try:
        with contextlib.nullcontext(sys.stdin) if given.file == "-" else Path(given.file).open() as source:
            if not given.lines:
                print(json.dumps(answer(_read(source.read())), indent=2))
            else:
                for line in filter(str.strip, source):
                    print(json.dumps(answer_line(line)), flush=True)
            return 0
    except (OSError, UnicodeDecodeError, RecursionError, yaml.YAMLError, InputError) as error:
        print(f"{given.file}: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
