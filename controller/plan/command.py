"""`python -m controller.plan [--lines] FILE`: one question about saved objects, answered offline by the same rules.

FILE is JSON or YAML, with `--lines` one JSON document a line; `-` is standard input. docs/plan-format.md describes
questions and answers. Exit code 0; 2 on bad input, with the file, the object and the field on standard error. With
`--lines` a bad line's answer is its `error`, and the rest goes on. Nothing is read but FILE, and nothing is connected.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import IO, Final

from controller.allocator.verbs.fit import fit_pod
from controller.clock import SystemClock
from controller.model.longhorn import Replica, Volume
from controller.model.versions import parse_version, support_of
from controller.plan.answers import Json, encode_expansion, encode_fit, encode_step
from controller.plan.input import (
    Document,
    ExpandQuestion,
    FitQuestion,
    ScheduleQuestion,
    decode_document,
    unread_settings,
)
from controller.plan.objects import InputError, Objects
from controller.plan.world import world_of
from controller.plan.yaml_reader import load_yaml
from controller.process.flags import add_version
from controller.rules.candidates import PlacementView
from controller.rules.demand import demands_of_pod
from controller.rules.growth import plan_expansion
from controller.rules.schedule import schedule_replicas

EXIT_INPUT: Final = 2
_KINDS: Final = {
    "claim": "PersistentVolumeClaim",
    "class": "StorageClass",
    "pv": "PersistentVolume",
    "volume": "Volume",
    "backup": "Backup",
}


@dataclass(slots=True)
class Notes:
    """What a person should know besides the answer; each thing is said once however many questions there are."""

    ignored: Counter[str] = field(default_factory=Counter)
    warnings: dict[str, None] = field(default_factory=dict)

    def warn(self, text: str) -> None:
        self.warnings[text] = None

    def take(self, raw: object, document: Document) -> None:
        self.ignored.update(document.objects.ignored)
        for name in unread_settings(raw):
            self.warn(f"settings.{name}: nothing is decided by it")
        version = document.version
        if version is not None and parse_version(version) is None:
            self.warn(f"longhornVersion: {version!r} is no version, taken for the newest")
        own = "diskschedules.longhorn.io" if document.objects.ignored["DiskSchedule.longhorn.io"] else ""
        support = support_of(version, crds=[own], settings=document.objects.settings)
        if not support.is_supported:
            self.warn(f"not supported: {support.problem}")

    def lines(self) -> list[str]:
        found = list(self.warnings)
        if self.ignored:
            kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self.ignored.items()))
            found.append(f"objects of kinds that nothing is decided by: {kinds}")
        return found


def answer(raw: object, now_utc: datetime, notes: Notes | None = None) -> Json:
    """The answer to one question as it stands in a file; InputError names the object and the field. Pure."""
    document = decode_document(raw, now_utc)
    said = Notes() if notes is None else notes
    said.take(raw, document)
    match document.question:
        case ScheduleQuestion() as schedule:
            return _schedule(document, schedule)
        case ExpandQuestion() as expand:
            return _expand(document, expand)
        case FitQuestion() as fit:
            return _fit(document, fit, said)


def _schedule(document: Document, question: ScheduleQuestion) -> Json:
    objects, volume = document.objects, question.volume
    own = {replica.name: _sized(replica, volume) for replica in _replicas_of(objects, volume.name)}
    view = PlacementView(
        nodes=objects.nodes,
        replicas=tuple(own.values()),
        settings=document.settings,
        backing_image=objects.backing_images.get(volume.backing_image),
        engine_images=tuple(objects.engine_images.values()) or None,
        instance_managers=tuple(objects.instance_managers.values()) or None,
        kube_nodes=objects.kube_nodes or None,
        source_replicas=_replicas_of(objects, volume.source_volume),
        now_utc=document.now_utc,
        behaviour=document.settings.behaviour,
    )
    steps = schedule_replicas(view, volume, [own[replica.name] for replica in question.replicas])
    return {"steps": [encode_step(step) for step in steps]}


def _sized(replica: Replica, volume: Volume) -> Replica:
    """Longhorn gives a replica its volume's size; one that is to be placed and has none is taken for such."""
    return replica if replica.size_bytes or replica.node else replace(replica, size_bytes=volume.size_bytes)


def _replicas_of(objects: Objects, volume: str) -> tuple[Replica, ...]:
    return tuple(replica for replica in objects.replicas.values() if volume and replica.volume == volume)


def _expand(document: Document, question: ExpandQuestion) -> Json:
    objects, volume, settings = document.objects, question.volume, document.settings
    replicas = _replicas_of(objects, volume.name)
    return encode_expansion(
        plan_expansion(objects.nodes, volume, replicas, question.size_bytes, settings.space, settings.behaviour)
    )


def _fit(document: Document, question: FitQuestion, notes: Notes) -> Json:
    """As a filter call decides. What a pod refers to and is not among the objects does not exist, and needs nothing."""
    world = world_of(document.objects, document.settings)
    demands, missing = demands_of_pod(question.pod, world, document.settings)
    for entry in missing:
        where = f"{entry.namespace}/{entry.name}" if entry.namespace else entry.name
        as_what = (
            "so that the volume counts as large as is requested"
            if entry.kind == "backup"
            else "which counts as nothing"
        )
        notes.warn(f"Pod {question.pod.key}: there is no {_KINDS[entry.kind]} {where}, {as_what}")
    return encode_fit(fit_pod(world, demands, question.nodes, question.promises, document.now_utc))


# The command


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the process's exit code."""
    parser = argparse.ArgumentParser(prog="controller.plan", description=(__doc__ or "").splitlines()[0])
    add_version(parser)
    parser.add_argument("--lines", action="store_true", help="one JSON document a line, one answer a line")
    parser.add_argument("file", metavar="FILE", help="JSON or YAML; - reads standard input")
    given = parser.parse_args(arguments)
    notes = Notes()
    try:
        with contextlib.nullcontext(sys.stdin.buffer) if given.file == "-" else Path(given.file).open("rb") as stream:
            if given.lines:
                _answer_lines(stream, notes)
            else:
                _write(json.dumps(answer(_parsed(stream.read()), _now(), notes), indent=2))
    except BrokenPipeError:
        # Who reads has enough. Python would complain of it once more when it closes its standard output.
        sys.stdout = None
        return 0
    except (OSError, InputError) as error:
        problem = error.strerror or str(error) if isinstance(error, OSError) else str(error)
        _say(f"{given.file}: {problem}")
        return EXIT_INPUT
    for line in notes.lines():
        _say(f"{given.file}: {line}")
    return 0


def _now() -> datetime:
    return SystemClock().now_utc()


def _write(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")


def _answer_lines(stream: IO[bytes], notes: Notes) -> None:
    for line in stream:
        if line.strip():
            _write(json.dumps(_answer_line(line, notes)))


def _answer_line(line: bytes, notes: Notes) -> Json:
    try:
        return answer(_json(_text(line)), _now(), notes)
    except InputError as error:
        return {"error": str(error)}


def _parsed(data: bytes) -> object:
    """JSON by its first character, else YAML, of which JSON is a part."""
    text = _text(data)
    return _json(text) if text.lstrip()[:1] == "{" else load_yaml(text)


def _text(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError("", "", f"is not UTF-8 text: byte {error.start} {error.reason}") from error


def _json(text: str) -> object:
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise InputError("", "", f"is not JSON: {error}") from error


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is no number")
