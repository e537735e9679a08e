"""`plan [--lines] [--lenient] [FILE]`: questions about saved objects, answered offline by the same
rules.

FILE is JSON or YAML, with `--lines` one JSON document a line; without FILE, or for `-`, standard input is read.
docs/plan-format.md describes questions and answers. Exit code 0; 2 on bad input, with the file, the object and the
field on standard error. With `--lines` a bad line's answer is its `error`, and the rest goes on. Nothing but FILE is
read, and no connection is made.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import IO, Final

import click

from controller.clock import SystemClock
from controller.plan.answers import Json
from controller.plan.complaints import InputError, LeftOutError, Notes, printable
from controller.plan.input import decode_document
from controller.plan.questions import Questions
from controller.plan.reading import MOST_BYTES, MemoryBound, parse_document, parse_line, read_document, read_lines
from controller.plan.saved import saved_objects
from controller.process.command_line import EXIT_MISUSE, EXIT_WELL

FAULT: Final = "the planner failed on it"


def answer(raw: object, now_utc: datetime, notes: Notes | None = None) -> Json:
    """The answer to the document in a file, or to each of its questions; InputError names the object and the field.
    Pure. Without `notes` it is strict."""
    said = Notes() if notes is None else notes
    document = decode_document(raw, now_utc, said)
    questions = Questions(document, said)
    if not document.is_list:
        return questions.answer(document.questions[0], "question")
    return {"answers": [_answer_one(questions, one, index) for index, one in enumerate(document.questions)]}


def _answer_one(questions: Questions, raw: object, index: int) -> Json:
    try:
        return questions.answer(raw, f"questions[{index}]")
    except LeftOutError as error:
        return {"error": str(error)}


@click.command("plan")
@click.option("--lines", is_flag=True, help="Read one JSON document per line, and write one answer per line.")
@click.option(
    "--strict/--lenient",
    default=True,
    help="Refuse input that would be ignored, such as a misspelt setting (default), or remark on it.",
)
@click.option(
    "--objects", "saved", metavar="PATH", help="The objects, in a file, a folder or a bundle, besides FILE's."
)
@click.argument("file", metavar="[FILE]", default="-")
def command(file: str, saved: str | None, *, lines: bool, strict: bool) -> int:
    """Answer questions about saved objects.

    Decides by the extender's rules, without a cluster. FILE has JSON or YAML; - reads standard input, as does no FILE.
    """
    notes = Notes(is_lenient=not strict)
    if saved is not None and lines:
        raise click.UsageError("--lines takes no --objects: each line has its own")
    try:
        besides = saved_objects(saved) if saved is not None else []
        bound = MemoryBound()
        with contextlib.nullcontext(sys.stdin.buffer) if file == "-" else Path(file).open("rb") as stream:
            if lines:
                _answer_lines(stream, notes, bound)
            else:
                _answer_file(stream, notes, bound, besides)
    except BrokenPipeError:
        raise
    except (OSError, InputError) as error:
        problem = error.strerror or str(error) if isinstance(error, OSError) else str(error)
        _say(f"{printable(file)}: {problem}")
        return EXIT_MISUSE
    for line in notes.lines():
        _say(f"{printable(file)}: {line}")
    return EXIT_WELL


def _write(chunks: Iterable[str]) -> None:
    """JSON, whose encoder escapes what is no printable ASCII."""
    for chunk in chunks:
        sys.stdout.write(chunk)
    sys.stdout.write("\n")
    sys.stdout.flush()


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")


def _answer_file(stream: IO[bytes], notes: Notes, bound: MemoryBound, besides: list[object]) -> None:
    data = read_document(stream)
    with bound.of(MOST_BYTES if besides else len(data)), _barrier():
        document = parse_document(data)
        if besides and isinstance(document, dict):
            given = document.get("objects") or []
            document["objects"] = [*besides, *(given if isinstance(given, list) else [given])]
        found = answer(document, SystemClock().now_utc(), notes)
    _write(json.JSONEncoder(indent=2).iterencode(found))


def _answer_lines(stream: IO[bytes], notes: Notes, bound: MemoryBound) -> None:
    for number, line in read_lines(stream):
        try:
            with bound.of(len(line or b"")), _barrier():
                found = answer(parse_line(line), SystemClock().now_utc(), notes)
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
