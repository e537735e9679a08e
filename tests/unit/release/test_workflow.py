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
OTHERS = ("docker login", "cosign sign", "cosign attest")


def steps() -> Iterator[dict[str, Any]]:
    for job in JOBS.values():
        yield from job["steps"]


def commands() -> list[list[str]]:
    return [shlex.split(line) for step in steps() for line in step.get("run", "").splitlines()]


def test_every_command_is_a_target_of_the_makefile_or_takes_a_registry() -> None:
    made = set[str]()
    for words in commands():
        if words[0] == "make":
            named = {word for word in words[1:] if "=" not in word and not word.startswith(">>")}
            assert named and named <= TARGETS, words
            made |= named
        else:
            assert " ".join(words[:2]) in OTHERS, words
    pushing = {"image", "package", "push-chart", "pushed", "sbom", "wheels-amd64", "wheels-arm64"}
    assert {"check-tag", "docs", "lint", "test"} | pushing == made


def test_nothing_is_pushed_that_was_not_tested() -> None:
    pushing = {name for name, job in JOBS.items() if "push" in str(job["steps"]).lower()}
    assert {"publish", "sign"} == pushing
    assert ("test", "publish") == (JOBS["publish"]["needs"], JOBS["sign"]["needs"])


def test_what_is_signed_is_named_by_the_digest_that_was_pushed() -> None:
    signed = [words[-1] for words in commands() if words[0] == "cosign"]
    assert ["$CHART", "$IMAGE"] == sorted(signed)
    for name in ("image", "chart"):
        digest = f"${{{{ needs.publish.outputs.{name} }}}}"
        assert JOBS["sign"]["env"][name.upper()].endswith(f"longhorn-scheduler-extender@{digest}")
        assert f"${{{{ steps.pushed.outputs.{name} }}}}" == JOBS["publish"]["outputs"][name]
        assert digest in {step.get("with", {}).get("subject-digest") for step in JOBS["sign"]["steps"]}


def test_actions_are_named_by_their_commit_and_their_version_for_readers() -> None:
    lines = [line.strip().removeprefix("- ") for line in TEXT.splitlines() if "uses:" in line]
    assert len(lines) == sum("uses" in step for step in steps())
    pinned = re.compile(r"uses: ([\w-]+/[\w-]+)@[0-9a-f]{40} # v\d+\.\d+\.\d+")
    assert [] == [line for line in lines if not pinned.fullmatch(line)]
    assert len({line.partition("@")[0] for line in lines}) == len(set(lines))  # each of one version


def test_it_runs_for_tags_alone_and_only_what_signs_may_do_more_than_read() -> None:
    assert {"push": {"tags": ["v*"]}} == WORKFLOW[True]  # `on`, as YAML 1.1 reads it
    assert {} == WORKFLOW["permissions"]
    reads, signs = {"contents": "read"}, {"id-token": "write", "attestations": "write"}
    assert {"test": reads, "publish": reads, "sign": signs} == {name: job["permissions"] for name, job in JOBS.items()}
    assert not any(
        "checkout" in step.get("uses", "") or "make" in step.get("run", "") for step in JOBS["sign"]["steps"]
    )
    checkouts = [step for step in steps() if step.get("uses", "").startswith("actions/checkout@")]
    assert [False] * 2 == [step["with"]["persist-credentials"] for step in checkouts]


def test_only_the_step_that_logs_in_sees_the_password() -> None:
    seeing = [step.get("run", "") for step in steps() if "secrets." in str(step)]
    assert [True] * 2 == [run.startswith("docker login ") for run in seeing]
    assert TEXT.count("secrets.") == 4
    # A name that somebody else chooses is never part of a script's text.
    assert [] == [step["run"] for step in steps() if "${{" in step.get("run", "")]


def test_files_that_it_names_are_there() -> None:
    named = [step["with"]["go-version-file"] for step in steps() if "go-version-file" in step.get("with", {})]
    assert 2 == len(named)
    assert [] == [name for name in named if not (ROOT / name).is_file()]
