"""Which binary is used, when a new one is made, and where all that is kept. A script stands in for Go: the real build
takes minutes."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path

import pytest

from tests.cluster import build as build_module
from tests.cluster.build import binaries, build, cache_key, releases
from tests.cluster.cache import cache_root, state_root
from tests.cluster.toolchain import BuildError, choose_go, go_environment

GO_MOD = "module m\n\ngo 1.26.0\n\nrequire (\n\tk8s.io/kubernetes v1.36.3\n)\n"
FAKE_GO = """#!/bin/sh
case "$1" in
env) echo go$FAKE_GO_VERSION ;;
list) echo a; echo b ;;
build)
  echo "$1 $2" >> "$FAKE_GO_LOG"
  test -z "$FAKE_GO_GATE" || cat "$FAKE_GO_GATE"
  test -z "$FAKE_GO_FAILS" || { echo "no such package" >&2; exit 1; }
  while test "$1" != -o; do shift; done
  echo binary > "$2" ;;
esac
"""


@pytest.fixture
def module(tmp_path: Path) -> Path:
    folder = tmp_path / "module"
    folder.mkdir()
    (folder / "go.mod").write_text(GO_MOD)
    (folder / "go.sum").write_text("")
    (folder / "main.go").write_text("package main\n")
    return folder


@pytest.fixture
def go_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Puts the script first on PATH; the file gets one line for every build."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "go").write_text(FAKE_GO)
    (folder / "go").chmod(0o755)
    log = tmp_path / "builds"
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_GO_LOG", str(log))
    monkeypatch.setenv("FAKE_GO_VERSION", "1.26.8")
    return log


@pytest.fixture
def older(module: Path) -> Path:
    path = module / "go-1.34.mod"
    path.write_text(GO_MOD.replace("1.36.3", "1.34.4"))
    path.with_suffix(".sum").write_text("")
    return path


def test_the_key_changes_with_every_source_of_its_release_and_with_the_toolchain(module: Path, older: Path) -> None:
    def key_of(version: str = "go1.26.8") -> str:
        return cache_key(module / "go.mod", version, "-s")

    keys = [key_of(), key_of("go1.26.9"), cache_key(module / "go.mod", "go1.26.8", "-w")]
    for name in ("go.sum", "main.go", "more.go"):
        (module / name).write_text("changed")
        keys.append(key_of())
    older.with_suffix(".sum").write_text("changed")
    assert key_of() == keys[-1]
    assert len(keys) == len(set(keys))


def test_a_release_is_built_from_the_same_sources_and_its_own_go_mod(
    module: Path, older: Path, go_log: Path, tmp_path: Path
) -> None:
    newest = build(lambda _: None, module=module, cache=tmp_path)
    assert newest == build(pytest.fail, release="1.36", module=module, cache=tmp_path)
    other = build(lambda _: None, release="1.34", module=module, cache=tmp_path)
    assert newest != other
    assert go_log.read_text() == "build -modfile=go.mod\nbuild -modfile=go-1.34.mod\n"
    assert list(releases(module)) == ["1.36", "1.34"]
    with pytest.raises(BuildError, match=r"'1\.33'.*1\.36, 1\.34"):
        build(pytest.fail, release="1.33", module=module, cache=tmp_path)


@pytest.mark.parametrize(
    ("version", "is_pinned"), [("1.26", False), ("1.26.8", False), ("1.100rc1", False), ("1.25.9", True), ("1.9", True)]
)
def test_an_old_go_on_the_path_is_passed_over_for_the_pinned_one(
    module: Path, go_log: Path, monkeypatch: pytest.MonkeyPatch, version: str, is_pinned: bool
) -> None:
    monkeypatch.setenv("FAKE_GO_VERSION", version)
    chosen = choose_go(module / "go.mod")
    assert (chosen.own, chosen.path is None, chosen.version != f"go{version}") == (is_pinned,) * 3


def test_without_a_home_go_keeps_everything_below_the_cache(module: Path, go_log: Path, tmp_path: Path) -> None:
    go = choose_go(module / "go.mod")
    assert "GOCACHE" not in go_environment(go, tmp_path, {"HOME": str(tmp_path)})
    for base in ({}, {"HOME": str(tmp_path / "missing")}):
        assert go_environment(go, tmp_path, base)["GOCACHE"] == str(tmp_path / "go-build")


def test_a_second_builder_waits_for_the_first_and_uses_its_binary(
    module: Path, go_log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    monkeypatch.setenv("FAKE_GO_GATE", str(gate))
    waiting = threading.Event()
    paths: list[Path] = []

    def run() -> None:
        paths.append(build(lambda line: waiting.set() if "waiting" in line else None, module=module, cache=tmp_path))

    builders = [threading.Thread(target=run) for _ in range(2)]
    for builder in builders:
        builder.start()
    assert waiting.wait(30)
    gate.write_text("")  # blocks until the first build has come to the gate, then lets it through
    for builder in builders:
        builder.join(30)

    assert paths[0] == paths[1]
    assert paths[0].read_text() == "binary\n"
    assert go_log.read_text() == "build -modfile=go.mod\n"
    assert build(pytest.fail, module=module, cache=tmp_path) == paths[0]


def test_a_failed_build_says_why_and_leaves_nothing_behind(
    module: Path, go_log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_GO_FAILS", "1")
    with pytest.raises(BuildError, match="no such package"):
        build(lambda _: None, module=module, cache=tmp_path)
    assert list((tmp_path / "cluster").iterdir()) == []


def test_given_programs_are_used_and_only_the_missing_ones_are_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    monkeypatch.setattr(build_module, "build", lambda _, release: Path("/own"))
    with pytest.raises(BuildError, match="no program etcd"):
        binaries()
    for name in ("etcd", "kube-apiserver", "kubectl"):
        shutil.copy("/bin/true", tmp_path / name)
    found = binaries()
    assert found.command("etcd") == [str(tmp_path / "etcd")]
    assert found.command("kube-scheduler") == ["/own", "kube-scheduler"]
    with pytest.raises(BuildError, match=r"KUBEBUILDER_ASSETS and the release 1\.34"):
        binaries(release="1.34")


# Where built files and running clusters are kept


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"LONGHORN_SCHED_CACHE": "own", "XDG_CACHE_HOME": "xdg", "HOME": "home"}, "own"),
        ({"XDG_CACHE_HOME": "xdg", "HOME": "home"}, "xdg/longhorn-scheduler-extender"),
        ({"HOME": "home"}, "home/.cache/longhorn-scheduler-extender"),
        ({}, "clone/.cache"),
        ({"HOME": "/dev/null/home"}, "clone/.cache"),
    ],
)
def test_the_cache_is_named_by_its_own_variable_then_by_xdg_then_by_home_else_it_lies_in_the_clone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], expected: str
) -> None:
    monkeypatch.setattr("tests.cluster.cache.REPOSITORY", tmp_path / "clone")
    for name in ("LONGHORN_SCHED_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.setenv(name, str(tmp_path / environment[name]) if name in environment else "")
    assert cache_root() == tmp_path / expected


def test_a_named_folder_that_cannot_be_made_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGHORN_SCHED_CACHE", "/dev/null/cache")
    with pytest.raises(OSError, match="/dev/null/cache"):
        cache_root()


def test_the_folder_of_running_clusters_is_closed_to_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LONGHORN_SCHED_STATE", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert state_root().stat().st_mode & 0o777 == 0o700
