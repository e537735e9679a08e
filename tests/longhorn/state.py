"""What placement is asked about: raw objects as Longhorn's informers show them, and what it answers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from tests.longhorn.release import NEWEST, Release

Raw = Mapping[str, Any]
# Go's strconv.ParseBool knows exactly these.
_TRUE: Final = frozenset(("1", "t", "T", "true", "TRUE", "True"))
_FALSE: Final = frozenset(("0", "f", "F", "false", "FALSE", "False"))
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_LOWEST: Final = -(2**63)


@dataclass(frozen=True)
class Candidate:
    """A disk that Longhorn would take."""

    node: str
    disk: str
    uuid: str
    path: str


@dataclass(frozen=True)
class Refusal:
    """Why a node (`disk` empty) or a disk was not taken, with Longhorn's own reason."""

    node: str
    disk: str
    reason: str
    message: str


@dataclass
class SearchState:
    """The world that Longhorn's informers show it: possibly stale. None instead of objects: that rule is not applied.

    Settings that do not parse raise ValueError with the setting's name, as every caller in Longhorn fails on them.
    """

    nodes: Mapping[str, Raw]
    replicas: Sequence[Raw]  # of this volume
    settings: Mapping[str, str]
    engine_images: Sequence[Raw] | None = None
    instance_managers: Sequence[Raw] | None = None
    backing_images: Mapping[str, Raw] = field(default_factory=dict)
    kube_nodes: Mapping[str, Raw] | None = None
    source_replicas: Sequence[Raw] = ()  # of the volume that a linked clone is made of
    now: datetime | None = None
    release: Release | None = NEWEST  # None: a Longhorn whose version nobody can tell

    def flag(self, name: str, default: bool) -> bool:
        text = self.settings.get(name)
        if text is None:
            return default
        if text not in _TRUE | _FALSE:
            raise ValueError(f"setting {name}: {text!r} is neither true nor false")
        return text in _TRUE

    def number(self, name: str, default: int) -> int:
        text = self.settings.get(name)
        if text is None:
            return default
        if not _INTEGER.fullmatch(text):
            raise ValueError(f"setting {name}: {text!r} is not a whole number")
        digits = text.lstrip("+-").lstrip("0") or "0"
        value = -int(digits[:20]) if text.startswith("-") else int(digits[:20])
        if len(digits) > 19 or not _LOWEST <= value < -_LOWEST:
            raise ValueError(f"setting {name}: {text!r} does not fit in 64 bits")
        return value


@dataclass
class SearchAnswer:
    """`candidates` sorted by node and disk; `refusals` each once, in the order in which they were met.

    `attempt` is the try that yielded the candidates: 1, 2a, 2b unused, 2b evicting, 2c unused, 2c used.
    """

    candidates: list[Candidate]
    refusals: list[Refusal]
    attempt: str = ""


def is_true(conditions: Iterable[Raw] | None, kind: str) -> bool:
    """A missing condition counts as unknown, hence not true."""
    return any(entry.get("type") == kind and entry.get("status") == "True" for entry in conditions or ())


def has_reusable_data(replica: Raw) -> bool:
    """Whether a failed replica may be brought back instead of being replaced."""
    spec = replica["spec"]
    return bool(
        spec.get("failedAt")
        and spec.get("nodeID")
        and spec.get("diskID")
        and int(spec.get("rebuildRetryCount") or 0) < 5
        and not spec.get("evictionRequested")
    )
