"""Where built files and running clusters are kept."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.cluster.cache import cache_root, locked, state_root


def test_the_cache_is_named_by_its_own_variable_then_by_xdg_then_by_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LONGHORN_SCHED_CACHE", str(tmp_path / "own"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_root() == tmp_path / "own"
    monkeypatch.delenv("LONGHORN_SCHED_CACHE")
    assert cache_root() == tmp_path / "xdg" / "longhorn-scheduler-extender"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_root() == tmp_path / "home" / ".cache" / "longhorn-scheduler-extender"


@pytest.mark.parametrize("home", ["", "/dev/null/home"])
def test_without_a_home_the_cache_lies_in_the_clone(home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.cluster.cache.REPOSITORY", tmp_path)
    monkeypatch.delenv("LONGHORN_SCHED_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", home)
    assert cache_root() == tmp_path / ".cache"


def test_a_named_folder_that_cannot_be_made_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGHORN_SCHED_CACHE", "/dev/null/cache")
    with pytest.raises(OSError, match="/dev/null/cache"):
        cache_root()


def test_the_folder_of_running_clusters_is_closed_to_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LONGHORN_SCHED_STATE", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert state_root().stat().st_mode & 0o777 == 0o700


def test_only_one_holds_a_lock_and_the_other_is_told_that_it_waits(tmp_path: Path) -> None:
    inside, waiting = threading.Event(), threading.Event()
    order: list[str] = []

    def second() -> None:
        assert inside.wait(10)
        with locked(tmp_path / "lock", waiting.set):
            order.append("second")

    thread = threading.Thread(target=second)
    thread.start()
    with locked(tmp_path / "lock", lambda: pytest.fail("nobody else holds it")):
        inside.set()
        assert waiting.wait(10)
        order.append("first")
    thread.join(10)
    assert order == ["first", "second"]
