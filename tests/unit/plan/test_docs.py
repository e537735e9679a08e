"""docs/plan-format.md: its questions are answered as it says, and its bad input is refused."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from controller.plan.command import answer
from controller.plan.input import DECIDING, PARTS, REMARKED
from controller.plan.yaml_reader import load_yaml

PAGE = Path(__file__).resolve().parents[3] / "docs" / "plan-format.md"
YAML = re.compile(r"```yaml\n(.*?)```\n+(?:```json\n(.*?)```)?", re.DOTALL)
(OBJECTS, _), *EXAMPLES = YAML.findall(PAGE.read_text())
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(("question", "expected"), EXAMPLES)
def test_an_example_is_answered_as_the_page_says(question: str, expected: str) -> None:
    assert json.loads(expected) == answer(load_yaml(OBJECTS + question), NOW)


def test_every_question_has_an_example() -> None:
    asked = re.findall(r"^question: \{(\w+)", "".join(text for text, _ in EXAMPLES), re.MULTILINE)
    assert ["schedule", "expand", "fit"] == asked


def test_every_part_of_a_question_is_described() -> None:
    section = PAGE.read_text().split("## The question\n", 1)[1].split("\nObjects that are read", 1)[0]
    assert PARTS == set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE))


def test_the_settings_that_are_read_are_named() -> None:
    section = PAGE.read_text().split("## Settings that decide\n", 1)[1].split("\n## ", 1)[0]
    found = [re.findall(r"`([a-z0-9-]+)`", part) for part in section.split("\n\n", 1)]
    assert [sorted(DECIDING), sorted(REMARKED)] == [sorted(names) for names in found]
