"""`python -m controller.plan [--lines] [--lenient] [FILE]`: questions about saved objects, answered offline by the same
rules.

FILE is JSON or YAML, with `--lines` one JSON document a line; without FILE, or for `-`, standard input is read.
docs/plan-format.md describes questions and answers. Exit code 0; 2 on bad input, with the file, the object and the
field on standard error. With `--lines` a bad line's answer is its `error`, and the rest goes on. Nothing but FILE is
read, and no connection is made.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import IO, Final, NoReturn

from controller.allocator.plans.table import Table
from controller.allocator.verbs.fit import fit_pod, put_promises
from controller.allocator.world.world import World
from controller.clock import SystemClock
from controller.model.longhorn import Replica, Volume
from controller.model.quantity import bytes_text
from controller.model.versions import parse_version, support_of
from controller.plan.answers import Json, encode_expansion, encode_fit, encode_step
from controller.plan.complaints import InputError, Notes, printable
from controller.plan.input import Document, ExpandQuestion, FitQuestion, Question, ScheduleQuestion, decode_document
from controller.plan.objects import Objects
from controller.plan.reading import MemoryBound, parse_document, parse_line, read_document, read_lines
from controller.plan.world import world_of
from controller.process.flags import add_version
from controller.rules.candidates import PlacementView
from controller.rules.demand import VolumeDemand, demands_of_pod
from controller.rules.growth import plan_expansion
from controller.rules.schedule import schedule_replicas

EXIT_INPUT: Final = 2
_MADE_IMAGES: Final = ("download", "export-from-volume")  # data sources of backing images that come with a volume
FAULT: Final = "the planner failed on it"
_KINDS: Final = {
    "claim": "PersistentVolumeClaim",
    "class": "StorageClass",
    "pv": "PersistentVolume",
    "volume": "Volume",
    "backup": "Backup",
}


def answer(raw: object, now_utc: datetime, notes: Notes | None = None) -> Json:
    """The answer to the document in a file, or to each of its questions; InputError names the object and the field.
    Pure. Without `notes` it is strict."""
    said = Notes() if notes is None else notes
    document = decode_document(raw, now_utc, said)
    _note_objects(document, said)
    answers = _Answers(document, said)
    found = [answers.to(question) for question in document.questions]
    return {"answers": found} if document.is_list else found[0]


def _note_objects(document: Document, notes: Notes) -> None:
    """What a person should know of the objects and of the release that runs."""
    notes.ignored.update(document.objects.ignored)
    version = document.version
    if version is not None and parse_version(version) is None:
        notes.remark(f"longhornVersion: {version!r} is not a version; the newest is assumed")
    own = "diskschedules.longhorn.io" if document.objects.ignored["DiskSchedule.longhorn.io"] else ""
    support = support_of(version, crds=[own], settings=document.objects.settings)
    if not support.is_supported:
        notes.remark(f"not supported: {support.problem}")


class _Answers:
    """Answers to the questions of one document."""

    def __init__(self, document: Document, notes: Notes) -> None:
        self._document, self._objects, self._notes = document, document.objects, notes

    def to(self, question: Question) -> Json:
        match question:
            case ScheduleQuestion() as schedule:
                return _schedule(self._document, schedule)
            case ExpandQuestion() as expand:
                return self._expand(expand)
            case FitQuestion() as fit:
                return self._fit(fit)

    @cached_property
    def _world(self) -> World:
        return world_of(self._objects, self._document.settings)

    def _expand(self, question: ExpandQuestion) -> Json:
        objects, volume, settings = self._objects, question.volume, self._document.settings
        replicas, wanted = _replicas_of(objects, volume.name), volume.replica_count
        if len(replicas) < wanted:
            found = f"{len(replicas)} of its {wanted} Replicas" if replicas else "no Replica of it"
            self._notes.remark(f"{question.path}: {found} in objects, so that no other disk is asked: {volume.name}")
        if question.size_bytes < volume.size_bytes:
            least, size = bytes_text(question.size_bytes), bytes_text(volume.size_bytes)
            self._notes.remark(f"{question.path}: {least} is less than the present {size}, so that nothing grows")
        return encode_expansion(
            plan_expansion(objects.nodes, volume, replicas, question.size_bytes, settings.space, settings.behaviour)
        )

    def _fit(self, question: FitQuestion) -> Json:
        """As a filter call decides. What a pod refers to and is not among the objects does not exist, and needs
        nothing: a lenient answer is given without it."""
        world, settings = self._world, self._document.settings
        demands, missing = demands_of_pod(question.pod, world, settings)
        for entry in missing:
            where = f"{entry.namespace}/{entry.name}" if entry.namespace else entry.name
            so_that = "so that the volume counts as large as is requested"
            as_what = so_that if entry.kind == "backup" else "which counts as nothing"
            problem = f"there is no {_KINDS[entry.kind]} {where} in objects"
            self._notes.pass_over(InputError(f"Pod {question.pod.key}", "", problem), as_what)
        for claim in world.claims_of(question.pod):
            if claim.class_name is None and not claim.volume_name and world.storage_class(None) is None:
                problem = "is missing, and no StorageClass in objects is the default one"
                error = InputError(self._objects.names["claims", claim.key], "spec.storageClassName", problem)
                self._notes.pass_over(error, "which counts as nothing")
        for demand in demands:
            self._check_image(demand)
        self._note_promises(question, demands)
        return encode_fit(fit_pod(world, demands, question.nodes, question.promises, self._document.now_utc))

    def _check_image(self, demand: VolumeDemand) -> None:
        """A backing image has to be there, or its class has to say how it is made: else Longhorn makes no volume on it
        (`checkAndPrepareBackingImage`)."""
        name = demand.facts.backing_image
        if not name or demand.image is not None:
            return
        owner, field = self._objects.names.get(("volumes", demand.volume), ""), "spec.backingImage"
        if not demand.exists:
            claim = self._objects.claims[demand.claim]
            found = self._world.storage_class(claim.class_name)
            if found is None or found.parameters.get("backingImageDataSourceType") in _MADE_IMAGES:
                return
            owner, field = self._objects.names["classes", found.name], "parameters.backingImage"
        problem = f"there is no BackingImage {name} in objects"
        self._notes.pass_over(InputError(owner, field, problem), "which is taken for one without selectors")

    def _note_promises(self, question: FitQuestion, demands: Sequence[VolumeDemand]) -> None:
        lost = set(put_promises(self._world, Table(), demands, question.promises))
        for index, promise in enumerate(question.promises):
            if promise in lost:
                path, size = f"{question.path}.promises[{index}]", bytes_text(promise.size_bytes)
                problem = f"no disk of {promise.node} has room for {size}"
                self._notes.remark(f"{path}: {problem}, so that it counts as nothing")


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
    """Longhorn gives a replica its volume's size; a replica without a size that has to be placed is given it, too."""
    return replica if replica.size_bytes or replica.node else replace(replica, size_bytes=volume.size_bytes)


def _replicas_of(objects: Objects, volume: str) -> tuple[Replica, ...]:
    return tuple(replica for replica in objects.replicas.values() if volume and replica.volume == volume)


# The command


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        super().error(printable(message))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the process's exit code."""
    given = _parser().parse_args(arguments)
    notes, bound = Notes(is_lenient=given.lenient), MemoryBound()
    try:
        with contextlib.nullcontext(sys.stdin.buffer) if given.file == "-" else Path(given.file).open("rb") as stream:
            if given.lines:
                _answer_lines(stream, notes, bound)
            else:
                _answer_file(stream, notes, bound)
    except BrokenPipeError:
        # The reader has had enough. Python would complain of it once more when it closes its standard output.
        sys.stdout = None
        return 0
    except (OSError, InputError) as error:
        problem = error.strerror or str(error) if isinstance(error, OSError) else str(error)
        _say(f"{printable(given.file)}: {problem}")
        return EXIT_INPUT
    for line in notes.lines():
        _say(f"{printable(given.file)}: {line}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="controller.plan",
        description="Answers questions about saved objects by the extender's rules, without a cluster.",
    )
    add_version(parser)
    parser.add_argument(
        "--lines", action="store_true", help="read one JSON document per line, and write one answer per line"
    )
    how = parser.add_mutually_exclusive_group()
    text = "refuse input that would be ignored, such as a misspelt setting (default)"
    how.add_argument("--strict", action="store_true", help=text)
    how.add_argument("--lenient", action="store_true", help="ignore such input, with a remark on standard error")
    parser.add_argument(
        "file", metavar="FILE", nargs="?", default="-", help="file with JSON or YAML; - reads standard input (default)"
    )
    return parser


def _now() -> datetime:
    return SystemClock().now_utc()


def _write(chunks: Iterable[str]) -> None:
    """JSON, whose encoder escapes what is no printable ASCII."""
    for chunk in chunks:
        sys.stdout.write(chunk)
    sys.stdout.write("\n")
    sys.stdout.flush()


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")


def _answer_file(stream: IO[bytes], notes: Notes, bound: MemoryBound) -> None:
    data = read_document(stream)
    with bound.of(len(data)), _barrier():
        found = answer(parse_document(data), _now(), notes)
    _write(json.JSONEncoder(indent=2).iterencode(found))


def _answer_lines(stream: IO[bytes], notes: Notes, bound: MemoryBound) -> None:
    for number, line in read_lines(stream):
        try:
            with bound.of(len(line or b"")), _barrier():
                found = answer(parse_line(line), _now(), notes)
                text = json.dumps({"line": number, **found})
        except InputError as error:
            text = json.dumps({"line": number, "error": str(error)})
        _write((text,))


@contextlib.contextmanager
def _barrier() -> Iterator[None]:
    """A fault of ours concerns the one document alone."""
    try:
        yield
    except (InputError, MemoryError):
        raise
    except Exception as error:  # fault barrier
        raise InputError("", "", f"{FAULT}: {type(error).__name__}: {error}") from error
