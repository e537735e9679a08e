"""What is installed in the image, by the lock that its build installs from."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from email.message import Message
from importlib.metadata import Distribution, distributions
from typing import Final

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

_IMAGE: Final = re.compile(r"^ARG PYTHON_IMAGE=python:(\d+\.\d+\.\d+)-", re.MULTILINE)
_DIGEST: Final = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_CLASSIFIER: Final = "License :: "
# Names that mean one licence of SPDX; "BSD License" does not.
_IN_SPDX: Final = {"MIT License": "MIT", "Apache 2.0": "Apache-2.0", "3-Clause BSD License": "BSD-3-Clause"}

Environment = dict[str, str]  # of markers


class LockError(Exception):
    """Why the list would be wrong."""


@dataclass(frozen=True, slots=True)
class Locked:
    """An entry of a lock. The digests are those of all files that may be installed, one for each platform and more."""

    name: str
    version: str
    digests: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Package:
    locked: Locked
    licence: str  # by SPDX where the package says it so
    needs: tuple[str, ...]  # names of other packages of the lock


def python_of(dockerfile: str) -> str:
    """The version of Python that the image has. Raises LockError."""
    found = _IMAGE.search(dockerfile)
    if found is None:
        raise LockError("Dockerfile: names no version of Python")
    return found[1]


def image_environment(python: str) -> Environment:
    """What markers are compared with in an image with that version of Python."""
    return {
        **{name: str(value) for name, value in default_environment().items()},
        "python_version": ".".join(python.split(".")[:2]),
        "python_full_version": python,
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "sys_platform": "linux",
        "platform_system": "Linux",
        "os_name": "posix",
    }


def locked_in(lock: str, environment: Environment) -> list[Locked]:
    """The entries that count there. Raises LockError for one without a version or digests."""
    found = []
    for line in lock.replace("\\\n", " ").splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        requirement = Requirement(line.partition(" --hash")[0])
        versions = [one.version for one in requirement.specifier if one.operator == "=="]
        digests = tuple(_DIGEST.findall(line))
        if len(versions) != 1 or not digests:
            raise LockError(f"{requirement.name}: the lock has no version of it, or no digest")
        if _counts(requirement, environment):
            found.append(Locked(canonicalize_name(requirement.name), versions[0], digests))
    return found


def licence_of(metadata: Message) -> str | None:
    """What the package says of its licence: an expression, else a short name, else a classifier."""
    if expression := metadata.get("License-Expression"):
        return expression
    name = (metadata.get("License") or "").strip()
    if not name or "\n" in name:  # a whole text
        classifiers = [one for one in metadata.get_all("Classifier") or () if one.startswith(_CLASSIFIER)]
        name = classifiers[0].rpartition(" :: ")[2] if classifiers else ""
    return _IN_SPDX.get(name, name) or None


def described(
    locked: Iterable[Locked], installed: Mapping[str, Distribution], environment: Environment
) -> list[Package]:
    """The entries with what the same versions, installed here, say of themselves. Raises LockError."""
    entries = {one.name: one for one in locked}
    found = []
    for name, entry in sorted(entries.items()):
        distribution = installed.get(name)
        if distribution is None or distribution.version != entry.version:
            here = distribution.version if distribution else "not installed"
            raise LockError(f"{name}: {entry.version} in the lock, {here} here; make venv")
        metadata = distribution.metadata
        assert isinstance(metadata, Message)
        licence = licence_of(metadata)
        if licence is None:
            raise LockError(f"{name} {entry.version}: says nothing of a licence")
        found.append(Package(entry, licence, _needs(distribution, entries, environment)))
    return found


def installed_below(folder: str) -> dict[str, Distribution]:
    return {canonicalize_name(one.name): one for one in distributions(path=[folder])}


def _needs(distribution: Distribution, among: Iterable[str], environment: Environment) -> tuple[str, ...]:
    requirements = map(Requirement, distribution.requires or ())
    counting = (one for one in requirements if _counts(one, environment))
    return tuple(sorted({canonicalize_name(one.name) for one in counting} & set(among)))


def _counts(requirement: Requirement, environment: Environment) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({**environment, "extra": ""})
