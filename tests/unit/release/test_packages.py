"""The packages of the image are those of its lock, each with its digests, its licence and what it needs."""

from __future__ import annotations

import sysconfig
import tomllib
from email.message import Message

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from release.packages import (
    Locked,
    LockError,
    described,
    image_environment,
    installed_below,
    licence_of,
    locked_in,
    python_of,
)
from release.version import ROOT

LOCK = (ROOT / "requirements" / "runtime.lock").read_text()
ENVIRONMENT = image_environment(python_of((ROOT / "Dockerfile").read_text()))
DIGESTS = ("0" * 64, "f" * 64)
HASHES = "".join(f" \\\n    --hash=sha256:{digest}" for digest in DIGESTS)


def test_every_package_of_the_lock_says_its_licence_and_is_needed() -> None:
    packages = described(locked_in(LOCK, ENVIRONMENT), installed_below(sysconfig.get_path("purelib")), ENVIRONMENT)
    assert LOCK.count("==") == len(packages)
    assert LOCK.count("--hash=") == sum(len(package.locked.digests) for package in packages)
    assert all(package.licence for package in packages)
    needs = {package.locked.name: package.needs for package in packages}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    reached, todo = set[str](), list[str]()
    todo += [canonicalize_name(Requirement(one).name) for one in project["dependencies"]]
    while todo:
        name = todo.pop()
        todo += [one for one in needs[name] if one not in reached]
        reached.add(name)
    assert set(needs) == reached


def test_entries_of_other_interpreters_do_not_count() -> None:
    lock = (
        f"# made by uv\nA_b==1.0{HASHES}\n"
        f"old==2 ; python_full_version < '3.12'{HASHES}\n"
        f"other==3 ; implementation_name == 'pypy'{HASHES}\n"
        f"here==4 ; python_full_version >= '3.12' and sys_platform == 'linux'{HASHES}\n"
    )
    expected = [Locked("a-b", "1.0", DIGESTS), Locked("here", "4", DIGESTS)]
    assert expected == locked_in(lock, image_environment("3.12.13"))


@pytest.mark.parametrize("line", ["a==1", f"a{HASHES}", f"a>=1{HASHES}"])
def test_an_entry_without_version_or_digest_is_an_error(line: str) -> None:
    with pytest.raises(LockError, match="a: the lock has no version of it, or no digest"):
        locked_in(line, ENVIRONMENT)


def test_another_version_here_is_an_error_since_its_licence_may_be_another() -> None:
    installed = installed_below(sysconfig.get_path("purelib"))
    with pytest.raises(LockError, match=r"flask: 0\.1 in the lock, .* here; make venv"):
        described([Locked("flask", "0.1", DIGESTS)], installed, ENVIRONMENT)
    with pytest.raises(LockError, match="nowhere: 1 in the lock, not installed here"):
        described([Locked("nowhere", "1", DIGESTS)], installed, ENVIRONMENT)


@pytest.mark.parametrize(
    ("said", "licence"),
    [
        ([("License-Expression", "MIT OR X"), ("License", "other")], "MIT OR X"),
        ([("License", " MPL-2.0"), ("Classifier", "License :: OSI Approved :: MIT License")], "MPL-2.0"),
        ([("License", "Apache 2.0")], "Apache-2.0"),
        ([("License", "A licence\nof many lines"), ("Classifier", "License :: OSI Approved :: MIT License")], "MIT"),
        ([("Classifier", "Topic :: System"), ("Classifier", "License :: OSI Approved :: BSD License")], "BSD License"),
        ([("License", ""), ("Classifier", "Topic :: System")], None),
    ],
)
def test_the_licence_is_what_a_package_says_most_exactly(said: list[tuple[str, str]], licence: str | None) -> None:
    metadata = Message()
    for name, value in said:
        metadata.add_header(name, value)
    assert licence == licence_of(metadata)
