"""Plays every scene of this folder's transcripts, and each once more with a change of leader after every line.

The language is told in stage.py. With changes of leader only safety is checked: no node is promised more than its disks
hold.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.scenarios.stage import Stage

TRANSCRIPTS = sorted(Path(__file__).parent.glob("*.txt"))
KINDS = ("claim", "pv", "volume", "replica")
FOLLOWS_A_CHOICE = ("provision", "see", "bind", "attach", "refuse", "place", "schedule")


@dataclass(frozen=True)
class Transcript:
    promise: str
    lines: tuple[tuple[str, str | None], ...]  # a command, and what must come of it


def scenes_of(text: str) -> Iterator[Transcript]:
    given: list[str] = []
    where = ""
    for paragraph in text.split("\n\n"):
        lines = [line.strip() for line in paragraph.splitlines() if line.strip()]
        said = next(number for number, line in enumerate(lines) if not line.startswith("#"))
        promise = " ".join(line.lstrip("# ") for line in lines[:said])
        assert promise, lines
        if promise.startswith("Given"):
            given, where = lines[said:], f"{promise.removeprefix('Given ')}: "
            continue
        for variant, made in variants([*given, *lines[said:]]):
            yield Transcript(
                where + promise + variant, tuple(parsed(line) for line in made if not line.startswith("#"))
            )


def variants(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """The scene with each value in its place; what was put in, and the lines."""
    for at, line in enumerate(lines):
        if line.startswith("each "):
            name, _, values = line.removeprefix("each ").partition(":")
            for value in map(str.strip, values.split("|")):
                for variant, made in variants([*lines[:at], *lines[at + 1 :]]):
                    yield f" {value};{variant}", [one.replace(name, value) for one in made]
            return
    yield "", lines


def parsed(line: str) -> tuple[str, str | None]:
    command, arrow, expected = line.partition("#")[0].partition("->")
    return command.strip(), expected.strip() if arrow else None


def is_told(expected: str, told: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, expected.split("..."))), told, re.DOTALL) is not None


def safely(stage: Stage, command: str) -> bool:
    """Whether the cluster could come to this under the leader of this moment."""
    verb, name, *words = [*command.split(), ""]
    if verb in ("off", "resize"):  # nobody checks then, and an admitted growth may not be stored yet
        return False
    if verb == "choose" or (verb == "run" and name not in stage.chosen):
        if words[0] == "-" or not stage.users(name):
            return False
        told = (stage.play(f"filter {pod} on {words[0]}") for pod in stage.users(name))
        return any(words[0] in answer.partition(";")[0].split() for answer in told)
    if verb in FOLLOWS_A_CHOICE or name in ("pv", "volume", "replica"):
        claim = (words[0] if name in KINDS else name).partition("/")[0]
        return claim in stage.chosen or claim not in stage.wanted
    return True


SCENES = [
    pytest.param(scene, id=f"{path.stem}: {scene.promise}")
    for path in TRANSCRIPTS
    for scene in scenes_of(path.read_text())
]


@pytest.mark.parametrize("scene", SCENES)
def test_the_transcript_is_what_happens(scene: Transcript) -> None:
    stage = Stage()
    for command, expected in scene.lines:
        told = stage.play(command)
        assert expected is None or is_told(expected, told), f"{command} -> {told}, where {expected} was to come"


@pytest.mark.parametrize("scene", SCENES)
def test_a_change_of_leader_after_every_line_promises_nothing_twice(scene: Transcript) -> None:
    stage = Stage()
    for command, _ in scene.lines:
        if safely(stage, command):
            stage.play(command)
        stage.cluster.change_leader()
        for node, room in stage.room.items():
            assert stage.promised(node) <= room


@pytest.mark.parametrize(
    ("check", "text"),
    [
        (test_the_transcript_is_what_happens, "# Told\nnode n1 100\nfilter a 101 on n1 -> n1"),
        (
            test_a_change_of_leader_after_every_line_promises_nothing_twice,
            "# Twice\nnode n1 100\nhas a 60 n1\nhas b 60 n1",
        ),
    ],
)
def test_what_does_not_happen_and_what_is_promised_twice_is_found(
    check: Callable[[Transcript], None], text: str
) -> None:
    with pytest.raises(AssertionError):
        check(*scenes_of(text))
