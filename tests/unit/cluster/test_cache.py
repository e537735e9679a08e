"""Where built files and running clusters are kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.cache import cache_root, state_root


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
