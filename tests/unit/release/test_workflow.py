"""The release workflow names what there is, and may not do more than it needs to."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

import yaml

from release.version import ROOT

TEXT = (ROOT / ".github" / "workflows" / "release.yaml").read_text()
WORKFLOW = yaml.safe_load(TEXT)
TARGETS = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
JOBS: dict[str, dict[str, Any]] = WORKFLOW["jobs"]
# What takes a registry; CONTRIBUTING.md says how far each was tried.
OTHERS = ("docker login", "helm push")


def steps() -> Iterator[dict[str, Any]]:
    for job in JOBS.values():
        yield from job["steps"]


def commands() -> list[list[str]]:
    return [shlex.split(line) for step in steps() for line in step.get("run", "").splitlines()]


def test_every_command_is_a_target_of_the_makefile_or_takes_a_registry() -> None:
    made = set[str]()
    for words in commands():
        if words[0] == "make":
            named = {word for word in words[1:] if "=" not in word}
            assert named and named <= TARGETS, words
            made |= named
        else:
            assert " ".join(words[:2]) in OTHERS, words
    assert {"check-tag", "lint", "test", "image", "package", "sbom", "wheels-amd64", "wheels-arm64"} == made


def test_nothing_is_pushed_that_was_not_tested() -> None:
    pushing = {name for name, job in JOBS.items() if "push" in str(job["steps"]).lower()}
    assert {"publish"} == pushing
    assert "test" == JOBS["publish"]["needs"]


def test_actions_are_of_one_version() -> None:
    actions = [step["uses"] for step in steps() if "uses" in step]
    assert [] == [action for action in actions if not re.fullmatch(r"[\w-]+/[\w-]+@v\d+\.\d+\.\d+", action)]
    assert len({action.partition("@")[0] for action in actions}) == len(set(actions))


def test_it_runs_for_tags_alone_and_may_only_read_the_repository() -> None:
    assert {"push": {"tags": ["v*"]}} == WORKFLOW[True]  # `on`, as YAML 1.1 reads it
    assert {"contents": "read"} == WORKFLOW["permissions"]
    assert [] == [name for name, job in JOBS.items() if "permissions" in job]
    checkouts = [step for step in steps() if step.get("uses", "").startswith("actions/checkout@")]
    assert [False] * len(JOBS) == [step["with"]["persist-credentials"] for step in checkouts]


def test_only_the_step_that_logs_in_sees_the_password() -> None:
    seeing = [step.get("run", "") for step in steps() if "secrets." in str(step)]
    assert [True] == [run.startswith("docker login ") for run in seeing]
    assert TEXT.count("secrets.") == 2
    # A name that somebody else chooses is never part of a script's text.
    assert [] == [step["run"] for step in steps() if "${{" in step.get("run", "")]


def test_files_that_it_names_are_there() -> None:
    named = [step["with"]["go-version-file"] for step in steps() if "go-version-file" in step.get("with", {})]
    assert 2 == len(named)
    assert [] == [name for name in named if not (ROOT / name).is_file()]
