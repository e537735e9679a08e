"""One command changes the version in all files that state it, and only forwards."""

from __future__ import annotations

import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from release import version as module
from release.version import CHANGELOG, PLACES, ROOT, Version, VersionError, change, current, newest_release

CHART = ROOT / "helm" / "longhorn-scheduler-extender"


def test_all_files_state_one_version() -> None:
    version = current()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert version.in_python == project["version"]
    assert {str(version)} == {chart["version"], chart["appVersion"]}
    assert (not version.is_final) == (chart["annotations"]["artifacthub.io/prerelease"] == "true")


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with the files that state the version, 0.1.0-dev.0."""
    for path in {place.path for place in PLACES}:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, tmp_path / path)
    for place in PLACES:
        text = (tmp_path / place.path).read_text()
        (tmp_path / place.path).write_text(place.changed(text, Version.parse("0.1.0-dev.0")))
    (tmp_path / CHANGELOG).write_text("# Changelog\n\n## Unreleased\n\n### Added\n\n- All of it.\n")
    return tmp_path


@pytest.fixture
def clone(files: Path) -> Path:
    """The same, committed."""
    git(files, "init", "--quiet")
    commit(files)
    return files


def git(folder: Path, *words: str) -> None:
    who = ("-c", "user.name=n", "-c", "user.email=e", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)


def commit(folder: Path) -> None:
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "-")


def contents(folder: Path) -> dict[Path, str]:
    return {path: path.read_text() for path in folder.rglob("*") if path.is_file() and ".git" not in path.parts}


def test_a_release_is_stated_everywhere_and_begins_a_new_list_of_changes(clone: Path) -> None:
    changed = change(clone, Version.parse("1.2.3"), "2026-01-31")
    assert {*(place.path for place in PLACES), CHANGELOG} == set(changed)
    assert Version((1, 2, 3)) == current(clone) == newest_release(clone)
    assert "## Unreleased\n\n## 1.2.3 - 2026-01-31\n\n### Added\n" in (clone / CHANGELOG).read_text()
    assert [] == [name for name, text in contents(clone).items() if "0.1.0" in text]


def test_a_pre_release_is_spelt_for_helm_and_for_pip_and_leaves_the_changes_unreleased(clone: Path) -> None:
    assert CHANGELOG not in change(clone, Version.parse("0.2.0-rc.1"), "2026-01-31")
    assert "0.2.0-rc.1" == str(current(clone))
    assert "0.2.0rc1" == tomllib.loads((clone / "pyproject.toml").read_text())["project"]["version"]
    commit(clone)
    change(clone, Version.parse("0.2.0"), "2026-02-28")
    assert Version((0, 2, 0)) == current(clone) == newest_release(clone)


@pytest.mark.parametrize("version", ["0.1.0-dev.0", "0.0.9", "0.1.0-alpha.1"])
def test_a_version_that_is_not_newer_is_refused(files: Path, version: str) -> None:
    before = contents(files)
    with pytest.raises(VersionError, match=r"is not newer than 0\.1\.0-dev\.0"):
        change(files, Version.parse(version), "2026-01-31")
    assert before == contents(files)


@pytest.mark.parametrize("name", ["new.txt", CHANGELOG])
def test_a_dirty_tree_is_refused(clone: Path, name: str) -> None:
    with (clone / name).open("a") as file:
        file.write("more\n")
    before = contents(clone)
    with pytest.raises(VersionError, match=f"commit or stash first:\n.* {name}"):
        change(clone, Version.parse("1.0.0"), "2026-01-31")
    assert before == contents(clone)


def test_a_release_of_nothing_is_refused(clone: Path) -> None:
    change(clone, Version.parse("1.0.0"), "2026-01-31")
    commit(clone)
    before = contents(clone)
    with pytest.raises(VersionError, match="nothing under '## Unreleased'"):
        change(clone, Version.parse("1.0.1"), "2026-01-31")
    assert before == contents(clone)


@pytest.mark.parametrize("place", PLACES, ids=lambda place: f"{place.path} {place.pattern}")
def test_a_file_that_states_another_version_is_noticed(files: Path, place: module.Place) -> None:
    path = files / place.path
    path.write_text(place.changed(path.read_text(), Version.parse("0.3.0")))
    with pytest.raises(VersionError, match=r"not '(0\.3\.0|0\.1\.0-dev\.0|0\.1\.0\.dev0|true)'"):
        current(files)


@pytest.mark.parametrize(
    ("version", "heading"),
    [("1.0.0", "## 1.0.1 - 2026-01-31"), ("1.0.0", ""), ("0.1.0-dev.0", "## 0.1.0 - 2026-01-31")],
)
def test_a_changelog_that_does_not_go_with_the_version_is_noticed(files: Path, version: str, heading: str) -> None:
    for place in PLACES:
        text = (files / place.path).read_text()
        (files / place.path).write_text(place.changed(text, Version.parse(version)))
    (files / CHANGELOG).write_text(f"## Unreleased\n\n{heading}\n")
    with pytest.raises(VersionError, match=CHANGELOG):
        current(files)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1",
        "1.2",
        "1.2.3.4",
        "01.2.3",
        "1.2.03",
        "v1.2.3",
        "1.2.3-",
        "1.2.3-rc1",
        "1.2.3-rc.01",
        "1.2.3+b",
        "1.2.3\n",
    ],
)
def test_what_is_no_version_for_all_is_refused(text: str) -> None:
    with pytest.raises(VersionError):
        Version.parse(text)


def test_newer_is_what_helm_and_pip_both_hold_for_newer() -> None:
    rising = [
        "0.9.9",
        "1.0.0-dev.1",
        "1.0.0-dev.10",
        "1.0.0-rc.2",
        "1.0.0-rc.10",
        "1.0.0",
        "1.0.1",
        "1.1.0",
        "2.0.0-alpha.0",
    ]
    for place, text in enumerate(rising):
        newer = [one for one in rising if Version.parse(one).is_newer_than(Version.parse(text))]
        assert rising[place + 1 :] == newer
    dev, alpha = Version.parse("1.0.0-dev.0"), Version.parse("1.0.0-alpha.1")
    assert not dev.is_newer_than(alpha)
    assert not alpha.is_newer_than(dev)


def test_a_tag_is_compared_with_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == module.main(["show"])
    version = capsys.readouterr().out.strip()
    assert str(current()) == version
    assert 0 == module.main(["check", f"v{version}"])
    assert 1 == module.main(["check", version])
    assert f"is not that of the version, v{version}" in capsys.readouterr().err
