"""What a build of the image is sent, and what it is built on."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from release.packages import python_of
from release.version import ROOT
from tests.e2e.build_context import BuildContext
from tests.e2e.image import steps_of

DOCKERFILE = (ROOT / "Dockerfile").read_text()
STEPS = list(steps_of(DOCKERFILE))
CONTEXT = BuildContext(ROOT)
# What the Dockerfile copies out of the context.
COPIED = [
    name for step in STEPS if step.word == "COPY" and "--from=" not in step.rest for name in step.rest.split()[:-1]
]


@pytest.mark.parametrize("name", COPIED)
def test_what_is_copied_is_sent(name: str) -> None:
    assert list(CONTEXT.files(name))


def test_nothing_else_is_sent() -> None:
    found = [path for path in ROOT.iterdir() if not path.name.startswith(".")]
    names = {name for path in found for name in CONTEXT.files(path.name)}
    assert {"controller/cli.py", "controller/rpc/disk_scheduler.proto", "requirements/runtime.lock"} <= names
    assert set() == {name for name in names if not any(name == one or name.startswith(f"{one}/") for one in COPIED)}
    suffixes = {".py", ".proto", ".pyi", ".html", ".js", ".css", ".svg", ".lock", ".toml", ".md", ""}
    assert suffixes == {Path(name).suffix for name in names}


@pytest.mark.parametrize(
    "name",
    [
        ".env",
        ".git/config",
        ".tools/bin/uv",
        ".venv/bin/python",
        "bench-output/large.json",
        "certs/.tls.key",
        "controller/__pycache__/cli.cpython-312.pyc",
        "controller/kube/.kubeconfig",
        "controller/cli.pyc",
        "dist/longhorn-scheduler-extender.cdx.json",
        "kubeconfig",
        "requirements/dev.lock",
        "tls.key",
    ],
)
def test_leavings_and_secrets_stay_here(name: str) -> None:
    assert not CONTEXT.has(name)


@pytest.mark.parametrize(
    ("rules", "sent", "kept"),
    [
        ("", "a", ""),
        ("a", "b/a", "a a/b"),
        ("*", "", "a a/b"),
        ("*\n!a", "a a/b a/c/d", "b"),
        ("*\n!a\na/b", "a/c", "a/b a/b/c"),
        ("a/b\n!a/b", "a/b", ""),
        ("*.key", "a/b.key", "b.key"),
        ("**/*.key", "a/b.keys", "b.key a/b.key a/b/c.key"),
        ("**/c", "abc", "c a/c a/c/d"),
        ("a/**/c", "c", "a/c a/b/c"),
        ("a/?.py[co]", "a/bb.pyc a/b.py", "a/b.pyc a/b.pyo"),
        ("# a\n/a/", "b", "a/b"),
    ],
)
def test_rules_are_read_as_engines_read_them(tmp_path: Path, rules: str, sent: str, kept: str) -> None:
    (tmp_path / ".dockerignore").write_text(rules)
    context = BuildContext(tmp_path)
    names = {name: context.has(name) for name in (*sent.split(), *kept.split())}
    assert {**dict.fromkeys(sent.split(), True), **dict.fromkeys(kept.split(), False)} == names


def test_both_stages_stand_on_one_image_of_a_pinned_version_that_can_be_replaced() -> None:
    """The environment of the first stage refers to its interpreter, so the last stage needs the same."""
    assert "ARG" == STEPS[0].word
    name, _, default = STEPS[0].rest.partition("=")
    assert {f"${{{name}}}"} == {step.rest.partition(" AS ")[0] for step in STEPS if step.word == "FROM"}
    assert re.fullmatch(r"python:\d+\.\d+\.\d+-slim-[a-z]+@sha256:[0-9a-f]{64}", default)
    assert default.startswith(f"python:{python_of(DOCKERFILE)}-")


def test_what_differs_in_every_build_comes_last() -> None:
    """Else no layer would be taken from an earlier build."""
    words = [step.word for step in STEPS]
    assert {"ARG", "LABEL"} == set(words[words.index("CMD") + 1 :])
    assert "VERSION" not in "".join(step.rest for step in STEPS[: words.index("CMD")])
