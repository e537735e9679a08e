"""What `simulate` answers: each class is one JSON object, with its field names as keys. Sizes are in bytes.

What decides the exit code stands in `findings`: what finds no place, and why.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CopyPlace:
    """Where a copy comes to lie, or stays."""

    node: str
    disk: str
    uuid: str


@dataclass(frozen=True, slots=True)
class VolumeOutcome:
    """A volume. `new`: copies that come with this simulation; `missing`: copies that find no disk; `text`: why."""

    claim: str
    volume: str
    size_bytes: int
    places: Sequence[CopyPlace]
    new: Sequence[CopyPlace]
    missing: int
    text: str


@dataclass(frozen=True, slots=True)
class PodOutcome:
    """A pod. `why`: "waits" (it did before), "moves" or "comes". `state`: "placed", "refused", "not-made" (its
    controller waits for the pod before it) or "ends" (nothing makes it again). `reason`, `text` and `change` as in an
    Explanation: a stable word, a sentence, the smallest change that would help."""

    namespace: str
    name: str
    owner: str
    why: str
    state: str
    node: str
    reason: str
    text: str
    change: str
    volumes: Sequence[VolumeOutcome]


@dataclass(frozen=True, slots=True)
class GrowthView:
    """A claim that is to grow. `verdict`: "admitted" or "refused". `largest_bytes`: of a refused one, what fits."""

    claim: str
    volume: str
    size_bytes: int
    verdict: str
    largest_bytes: int
    text: str


@dataclass(frozen=True, slots=True)
class RebuildOutcome:
    """A volume that lost copies. `state`: "rebuilt", "degraded" (a copy finds no disk), "waits" (it is attached
    nowhere, and rebuilt once it is), or "lost" (its only copies are gone)."""

    claim: str
    volume: str
    size_bytes: int
    state: str
    new: Sequence[CopyPlace]
    missing: int
    text: str


@dataclass(frozen=True, slots=True)
class DiskChange:
    """A disk before and after. `used`: what lies there by Longhorn's count, admitted growth among it; `taken`: plans
    and holds. `state`: "", "closed" or "lost"."""

    node: str
    disk: str
    uuid: str
    limit_before: int
    used_before: int
    taken_before: int
    limit_after: int
    used_after: int
    taken_after: int
    state: str


@dataclass(frozen=True, slots=True)
class Placeless:
    """Something that finds no place. `kind`: "pod", "claim" or "volume"; `about`: its name."""

    kind: str
    about: str
    reason: str
    text: str
    change: str = ""


@dataclass(frozen=True, slots=True)
class Simulation:
    """The answer. `source`: where the objects came from. `claims`: the volumes of claims that no pod uses here.
    `remarks`: what a reader should know of the answer."""

    time: str
    source: str
    question: Sequence[str]
    findings: Sequence[Placeless]
    pods: Sequence[PodOutcome]
    growths: Sequence[GrowthView]
    rebuilds: Sequence[RebuildOutcome]
    claims: Sequence[VolumeOutcome]
    disks: Sequence[DiskChange]
    remarks: Sequence[str]
