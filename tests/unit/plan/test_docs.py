"""docs/plan-format.md: its questions are answered as it says, and its bad input is refused."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from controller.plan.command import answer
from controller.plan.input import DECIDING, PARTS, REMARKED
from controller.plan.yaml_reader import load_yaml
from tests.fakes.saved import core, node, replica, volume

PAGE = Path(__file__).resolve().parents[3] / "docs" / "plan-format.md"
YAML = re.compile(r"```yaml\n(.*?)```\n+(?:```json\n(.*?)```)?", re.DOTALL)
(OBJECTS, _), *EXAMPLES = YAML.findall(PAGE.read_text())
CONSOLE = re.compile(r"```console\n(.*?)```", re.DOTALL)
PIPES = [block for block in CONSOLE.findall(PAGE.read_text()) if block.startswith("jq ")]
ROOT = PAGE.parents[1]
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(("question", "expected"), EXAMPLES)
def test_an_example_is_answered_as_the_page_says(question: str, expected: str) -> None:
    assert json.loads(expected) == answer(load_yaml(OBJECTS + question), NOW)


def test_every_question_has_an_example() -> None:
    asked = re.findall(r"^question: \{(\w+)", "".join(text for text, _ in EXAMPLES), re.MULTILINE)
    assert ["schedule", "expand", "fit"] == asked


def test_each_question_of_the_table_is_one() -> None:
    """Those that are asked of the objects as they stand."""
    found = re.findall(r"`ask '(.*?)'`", PAGE.read_text())
    assert len(found) >= 4
    pod = core("Pod", "db-0", "shop", spec={"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]})
    claim = core("PersistentVolumeClaim", "data", "shop", spec={"volumeName": "pv"})
    pv = core("PersistentVolume", "pv", spec={"csi": {"driver": "driver.longhorn.io", "volumeHandle": "v"}})
    objects = [*map(node, ("n1", "n2", "n3")), volume(), replica("r1", "n1"), claim, pv, pod]
    for question in found:
        document: Any = load_yaml(f"{{question: {question}}}")  # as `ask` puts it into one
        assert answer({"objects": objects, **document}, NOW)


def test_every_part_of_a_question_is_described() -> None:
    section = PAGE.read_text().split("## The question\n", 1)[1].split("\nObjects that are read", 1)[0]
    assert PARTS == set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE))


def test_the_settings_that_are_read_are_named() -> None:
    section = PAGE.read_text().split("## Settings that decide\n", 1)[1].split("\n## ", 1)[0]
    found = [re.findall(r"`([a-z0-9-]+)`", part) for part in section.split("\n\n", 1)]
    assert [sorted(DECIDING), sorted(REMARKED)] == [sorted(names) for names in found]


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
@pytest.mark.parametrize(("command", "reason"), [*zip(PIPES, ("NodeAntiAffinity", "NodeUnschedulable"), strict=True)])
def test_the_commands_that_add_objects_are_answered(command: str, reason: str, tmp_path: Path) -> None:
    """A replica of `pvc-1` lies on n1. Another one goes to n2: n1 has one already, or takes none as it is drained."""
    objects = [*map(node, ("n1", "n2")), volume("pvc-1"), replica("r1", "n1", of="pvc-1")]
    for name, items in (("longhorn", objects), ("cluster", [])):
        (tmp_path / f"{name}.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    line = command.replace("python -m", f"{sys.executable} -m")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(
        ["bash", "-c", line], cwd=tmp_path, env=environment, capture_output=True, timeout=60, check=True
    )
    (step,) = json.loads(ended.stdout)["steps"]
    assert "n2" == step["scheduled"]["node"]
    assert [("n1", reason)] == [(one["node"], one["reason"]) for one in step["refusals"]]
