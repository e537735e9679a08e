"""The plugin of kubectl as an archive: it runs where it is unpacked, by a Python without any packages."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from collections.abc import Sequence
from importlib.metadata import distribution
from pathlib import Path

import pytest
import yaml

from release.packages import Locked
from release.plugin import (
    COMPLETES,
    PLATFORMS,
    PROGRAM,
    PYTHONS,
    SERVERS,
    PluginPlatform,
    build,
    manifest,
    needed,
)
from release.version import ROOT, current
from tests.fakes.saved import node, replica, volume

HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"
LOCK = (ROOT / "requirements" / "runtime.lock").read_text()
DEPENDENCIES = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]


def installed_wheels(_platform: PluginPlatform, python: str, locked: Sequence[Locked], folder: Path) -> None:
    """What is installed here as wheels again, in place of those that pip would fetch."""
    assert HERE == python
    for one in locked:
        found = distribution(one.name)
        assert one.version == found.version
        files = [file for file in found.files or () if ".." not in file.parts and file.suffix != ".pyc"]
        is_pure = not any(file.suffix == ".so" for file in files)
        tag = "py3-none-any" if is_pure else f"cp{HERE.replace('.', '')}-cp{HERE.replace('.', '')}-linux_x86_64"
        name = f"{one.name.replace('-', '_')}-{one.version}-{tag}.whl"
        with zipfile.ZipFile(folder / name, "w", zipfile.ZIP_STORED) as wheel:
            for file in files:
                wheel.write(str(file.locate()), str(file))


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plugin")
    locked = {HERE: needed(LOCK, DEPENDENCIES, sysconfig.get_path("purelib"), f"{HERE}.0")}
    return build(folder, current().in_python, locked, installed_wheels, PLATFORMS[0], level=1)


@pytest.fixture(scope="module")
def unpacked(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("store")
    with tarfile.open(archive) as content:
        content.extractall(folder, filter="data")
    return folder


def run(unpacked: Path, *words: str, name: str = PROGRAM, **environment: str) -> subprocess.CompletedProcess[str]:
    """By the link that krew makes, with the Python that made this one's environment, which has no packages of ours."""
    links = unpacked.parent / f"{unpacked.name}-bin"
    links.mkdir(exist_ok=True)
    link = links / name
    link.unlink(missing_ok=True)
    link.symlink_to(unpacked / name)
    python = Path(sys.base_prefix) / "bin"
    env = {"PATH": f"{python}:/usr/bin:/bin", "HOME": str(links), **environment}
    return subprocess.run([str(link), *words], env=env, capture_output=True, text=True, timeout=120, check=False)


def test_it_runs_by_a_python_that_has_none_of_its_packages(unpacked: Path) -> None:
    done = run(unpacked, "--version")
    assert (f"kubectl longhorn_scheduling {current().in_python}\n", 0) == (done.stdout, done.returncode), done.stderr
    path = unpacked.parent / "question.json"
    question = {"schedule": {"volume": "v", "replicas": ["r1"]}}
    path.write_text(json.dumps({"objects": [node("n1"), volume(), replica("r1")], "question": question}))
    done = run(unpacked, "plan", str(path))
    assert (0, "") == (done.returncode, done.stderr)
    assert "n1" == json.loads(done.stdout)["steps"][0]["scheduled"]["node"]


@pytest.mark.parametrize(
    "words",
    ["status", "explain pod a/b", "capacity", "certs show", "record check", "render-scheduler-config --for plain"],
)
def test_each_command_has_what_it_imports(unpacked: Path, words: str, tmp_path: Path) -> None:
    done = run(unpacked, *words.split(), KUBECONFIG=str(tmp_path / "none"))
    assert 2 == done.returncode, done.stderr
    assert f"error: kubeconfig {tmp_path}/none: No such file or directory" in done.stderr


def test_it_has_no_server_and_says_so(unpacked: Path) -> None:
    done = run(unpacked, "run")
    assert (2, True) == (done.returncode, "No such command 'run'" in done.stderr)


def test_kubectl_completes_by_the_other_name(unpacked: Path) -> None:
    done = run(unpacked, "cap", name=COMPLETES)
    assert ("capacity\tShow what still fits.\n:4\n", "") == (done.stdout, done.stderr)


def test_without_a_python_that_it_is_made_for_it_says_which(unpacked: Path, tmp_path: Path) -> None:
    old = tmp_path / "python3"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    for tool in ("readlink", "dirname", "basename"):
        (tmp_path / tool).symlink_to(f"/usr/bin/{tool}")
    done = run(unpacked, "--version", PATH=str(tmp_path))
    told = f"error: this plugin needs Python {HERE} to {HERE}; LONGHORN_SCHEDULING_PYTHON may name one\n"
    assert (2, "", told) == (done.returncode, done.stdout, done.stderr)
    named = run(unpacked, "--version", PATH=str(tmp_path), LONGHORN_SCHEDULING_PYTHON=f"{sys.base_prefix}/bin/python3")
    assert 0 == named.returncode, named.stderr


def test_nothing_of_this_machine_is_in_the_archive(archive: Path) -> None:
    with tarfile.open(archive) as content:
        entries = content.getmembers()
    assert {0} == {entry.mtime for entry in entries} | {entry.uid for entry in entries}
    assert [] == [entry.name for entry in entries if "__pycache__" in entry.name]
    assert {PROGRAM, COMPLETES} == {entry.name for entry in entries if entry.isfile() and entry.mode & 0o111}


def test_the_manifest_names_each_archive_by_its_digest(tmp_path: Path) -> None:
    archives = {one: tmp_path / one.archive for one in PLATFORMS}
    for one, path in archives.items():
        path.write_text(one.archive)
    made = yaml.safe_load(yaml.safe_dump(manifest("1.2.3", "https://example.com/v1.2.3/", archives)))
    assert ("longhorn-scheduling", "v1.2.3") == (made["metadata"]["name"], made["spec"]["version"])
    platforms = made["spec"]["platforms"]
    assert 3 == len({tuple(one["selector"]["matchLabels"].values()) for one in platforms})
    for one in platforms:
        name = one["uri"].rpartition("/")[2]
        assert hashlib.sha256(name.encode()).hexdigest() == one["sha256"]
        assert f"https://example.com/v1.2.3/{name}" == one["uri"]
        assert PROGRAM == one["bin"]


@pytest.mark.parametrize("python", PYTHONS)
def test_what_people_need_is_in_the_lock_for_each_python(python: str) -> None:
    names = {one.name for one in needed(LOCK, DEPENDENCIES, sysconfig.get_path("purelib"), f"{python}.0")}
    assert {"click", "rich", "kubernetes", "msgspec", "cryptography", "websocket-client", "markdown-it-py"} <= names
    assert set() == names & SERVERS
