"""What placement is asked about: raw objects as Longhorn's informers show them, and what it answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from tests.longhorn.release import NEWEST, Release

Raw = Mapping[str, Any]
# Go's strconv.ParseBool knows exactly these.
_TRUE: Final = frozenset(("1", "t", "T", "true", "TRUE", "True"))


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
    """The world that Longhorn's informers show: possibly stale. None instead of objects: that rule does not apply."""

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
        return self.settings[name] in _TRUE if name in self.settings else default

    def number(self, name: str, default: int) -> int:
        return int(self.settings.get(name, default))


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
