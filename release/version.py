"""The version: the files that state it, and the one command that changes all of them.

`python -m release.version show` prints it, `check TAG` compares it with a tag, `set VERSION --date DATE` changes it.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
CHANGELOG: Final = "CHANGELOG.md"
UNRELEASED: Final = "## Unreleased\n"

_NUMBER = r"(?:0|[1-9]\d*)"
_FINAL: Final = "final"
_IN_PYTHON: Final = {"dev": ".dev", "alpha": "a", "beta": "b", "rc": "rc", _FINAL: ""}
_SEMVER: Final = re.compile(rf"({_NUMBER})\.({_NUMBER})\.({_NUMBER})(?:-([0-9A-Za-z.-]+))?(\+[0-9A-Za-z.-]+)?")
_PRE_RELEASE: Final = re.compile(rf"(dev|alpha|beta|rc)\.({_NUMBER})")


class VersionError(Exception):
    """Why the version stays as it is."""


@dataclass(frozen=True, slots=True)
class Version:
    """A semantic version that Python's packaging can tell, too."""

    numbers: tuple[int, int, int]
    kind: str = _FINAL  # a key of _IN_PYTHON
    count: int = 0

    @classmethod
    def parse(cls, text: str) -> Version:
        """Raises VersionError."""
        match = _SEMVER.fullmatch(text)
        if match is None:
            raise VersionError(f"{text!r} is no semantic version, as in 1.2.3 or 1.2.3-rc.1")
        major, minor, patch, suffix, build = match.groups()
        if build is not None:
            raise VersionError(f"{text!r}: the tag of an image has no place for build metadata, {build!r}")
        if suffix is None:
            return cls((int(major), int(minor), int(patch)))
        pre_release = _PRE_RELEASE.fullmatch(suffix)
        if pre_release is None:
            raise VersionError(f"{text!r}: a pre-release ends in -dev.N, -alpha.N, -beta.N or -rc.N")
        return cls((int(major), int(minor), int(patch)), pre_release[1], int(pre_release[2]))

    def __str__(self) -> str:
        return self._numbers if self.is_final else f"{self._numbers}-{self.kind}.{self.count}"

    @property
    def _numbers(self) -> str:
        return ".".join(map(str, self.numbers))

    @property
    def is_final(self) -> bool:
        return self.kind == _FINAL

    @property
    def in_python(self) -> str:
        """The same in pyproject.toml, by PEP 440."""
        return self._numbers if self.is_final else f"{self._numbers}{_IN_PYTHON[self.kind]}{self.count}"

    def is_newer_than(self, other: Version) -> bool:
        """For Helm and for pip: Helm puts `dev` between `beta` and `rc`, pip before `alpha`."""
        kinds = list(_IN_PYTHON)
        for order in (kinds, [*sorted(kinds[:-1]), _FINAL]):
            mine, its = ((one.numbers, order.index(one.kind), one.count) for one in (self, other))
            if mine <= its:
                return False
        return True


@dataclass(frozen=True, slots=True)
class Place:
    """A file that states the version; the pattern's only group holds it."""

    path: str
    pattern: str
    spell: Callable[[Version], str] = str

    def stated(self, root: Path) -> str:
        return self._found((root / self.path).read_text())[1]

    def changed(self, text: str, version: Version) -> str:
        found = self._found(text)
        return text[: found.start(1)] + self.spell(version) + text[found.end(1) :]

    def _found(self, text: str) -> re.Match[str]:
        found = list(re.finditer(self.pattern, text, re.MULTILINE))
        if len(found) != 1:
            raise VersionError(f"{self.path}: states the version {len(found)} times, not once ({self.pattern})")
        return found[0]


_CHART: Final = "helm/longhorn-scheduler-extender"
PLACES: Final = (
    Place(f"{_CHART}/Chart.yaml", r"^version: (\S+)$"),
    Place(f"{_CHART}/Chart.yaml", r"^appVersion: (\S+)$"),
    Place(
        f"{_CHART}/Chart.yaml",
        r'^  artifacthub\.io/prerelease: "(\w+)"$',
        lambda version: str(not version.is_final).lower(),
    ),
    Place(f"{_CHART}/README.md", r"This is version (\S+) of the chart"),
    Place("pyproject.toml", r'^version = "(\S+)"$', lambda version: version.in_python),
)


def current(root: Path = ROOT) -> Version:
    """The version that all files state. Raises VersionError when one states another."""
    version = Version.parse(PLACES[0].stated(root))
    for place in PLACES:
        if place.stated(root) != place.spell(version):
            raise VersionError(f"{place.path}: {place.stated(root)!r}, not {place.spell(version)!r}")
    newest = newest_release(root)
    if version.is_final and newest != version:
        raise VersionError(f"{CHANGELOG}: its newest release is {newest}, not {version}")
    if newest is not None and newest != version and not version.is_newer_than(newest):
        raise VersionError(f"{CHANGELOG}: {version} is not newer than the release {newest}")
    return version


def newest_release(root: Path = ROOT) -> Version | None:
    """The first release that CHANGELOG.md lists."""
    found = re.search(r"^## (\d\S*) - \d{4}-\d\d-\d\d$", (root / CHANGELOG).read_text(), re.MULTILINE)
    return Version.parse(found[1]) if found else None


def change(root: Path, version: Version, date: str) -> list[str]:
    """Have all files state `version`; which ones these are. Raises VersionError, and then none is changed."""
    now = current(root)
    if not version.is_newer_than(now):
        raise VersionError(f"{version} is not newer than {now}")
    if dirty := _git(root, "status", "--porcelain"):
        raise VersionError(f"commit or stash first:\n{dirty.rstrip()}")
    texts: dict[str, str] = {}
    for place in PLACES:
        texts[place.path] = place.changed(texts.get(place.path) or (root / place.path).read_text(), version)
    if version.is_final:  # what a pre-release brings stays among the unreleased
        texts[CHANGELOG] = _with_heading((root / CHANGELOG).read_text(), version, date)
    for path, text in texts.items():
        (root / path).write_text(text)
    return list(texts)


def _with_heading(changelog: str, version: Version, date: str) -> str:
    before, heading, after = changelog.partition(UNRELEASED)
    if not heading or not after.partition("\n## ")[0].strip():
        raise VersionError(f"{CHANGELOG}: there is nothing under {UNRELEASED.strip()!r} to release")
    return f"{before}{heading}\n## {version} - {date}\n{after}"


def _git(root: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise VersionError(f"git {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m release.version", description="Prints, checks or changes the version of the product."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("show", help="print the version")
    commands.add_parser("check", help="check that it is the version of a tag").add_argument("tag", help="as in v1.2.3")
    setting = commands.add_parser("set", help="change the version in all files that state it")
    setting.add_argument("version", help="as in 1.2.3 or 1.2.3-rc.1")
    setting.add_argument("--date", required=True, help="of the heading in the changelog, as in 2026-01-31")
    options = parser.parse_args(arguments)
    try:
        if options.command == "show":
            print(current())
        elif options.command == "check":
            if options.tag != f"v{current()}":
                raise VersionError(f"the tag {options.tag} is not that of the version, v{current()}")
        else:
            for path in change(ROOT, Version.parse(options.version), options.date):
                print(path)
    except VersionError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
