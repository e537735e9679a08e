"""The documents that the leader serves on its status port, for the command, the page and scripts (docs/status.md).

Each class is one JSON object, with its field names as keys. Sizes are in bytes and durations in seconds; moments are
RFC 3339 in UTC, "" where there is none. A text is a sentence for people; what programs compare are the words in
`reason`, `decision`, `verdict`, `state` and `kind`. What the caller may not see has `name` "" and is summed up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is not as it should be. `severity`: "failure" or "warning"; `what`: a short constant word, as in
    "gate"; `hint`: what to do."""

    severity: str
    what: str
    text: str
    hint: str


@dataclass(frozen=True, slots=True)
class DiskView:
    """A disk. `limit_bytes`: what Longhorn may schedule on it at most; `used_bytes`: what lies on it by Longhorn's
    count, `planned_bytes`: plans, `held_bytes`: holds without a choice, `growth_bytes`: admitted growth; `free_bytes`:
    what is left, below 0 where the disk is over its limit. `maximum_bytes`, `reserved_bytes`, `available_bytes`: the
    disk itself. `over_percent`: the over-provisioning setting. `closed`: why nothing more is placed on it, or ""."""

    node: str
    disk: str
    uuid: str
    tags: Sequence[str]
    maximum_bytes: int
    reserved_bytes: int
    available_bytes: int
    limit_bytes: int
    over_percent: int
    used_bytes: int
    planned_bytes: int
    held_bytes: int
    growth_bytes: int
    free_bytes: int
    closed: str


@dataclass(frozen=True, slots=True)
class WaitingPod:
    """A pod that was refused and still waits. `since`: its creation; `decision`: of the last filter call; `reasons`:
    nodes by reason, the most frequent first; `text`: one sentence."""

    namespace: str
    name: str
    uid: str
    scheduler: str
    since: str
    tried: str
    decision: str
    reasons: Mapping[str, int]
    text: str


@dataclass(frozen=True, slots=True)
class Totals:
    nodes: int
    disks: int
    maximum_bytes: int
    limit_bytes: int
    used_bytes: int
    planned_bytes: int
    held_bytes: int
    growth_bytes: int
    free_bytes: int


@dataclass(frozen=True, slots=True)
class TakenView:
    """What one volume takes on a node. `kind`: as in docs/rules/plans.md; `claim`: "namespace/name" or ""."""

    volume: str
    claim: str
    node: str
    kind: str
    size_bytes: int
    age_seconds: float


@dataclass(frozen=True, slots=True)
class DecisionEntry:
    """One decision. `kind`: "filter", "preempt", "growth", "place", "wake", "term", "mode", "gate"; `about`: the object
    as "Pod namespace/name", or ""; `reasons`: counts by reason; `text`: a sentence or ""."""

    serial: int
    time: str
    kind: str
    about: str
    decision: str
    reasons: Mapping[str, int]
    text: str
    milliseconds: float


@dataclass(frozen=True, slots=True)
class Overview:
    """`/overview`. `problems` first, the worst before others. `gate`: its state, as in docs/operations.md;
    `held_replicas`, `left_replicas`: names that the leader holds, and left to Longhorn. `oldest_data_seconds`: of the
    store that is furthest behind. `time`: when this was made."""

    time: str
    identity: str
    node: str
    is_leading: bool
    holder: str
    term: int | None
    since: str
    mode: str
    version: str
    longhorn: str
    gate: str
    wiring: Mapping[str, str]
    problems: Sequence[Problem]
    totals: Totals
    disks: Sequence[DiskView]
    waiting: Sequence[WaitingPod]
    more_waiting: int
    plans: Sequence[TakenView]
    more_plans: int
    held_replicas: Sequence[str]
    left_replicas: Sequence[str]
    waiting_replicas: Mapping[str, int]
    workers: Mapping[str, str]
    oldest_data_seconds: float


# explain


@dataclass(frozen=True, slots=True)
class Holder:
    """Who has bytes there. `name`: the claim or, without one, the volume; "" for a sum over `count` volumes of
    namespaces that the caller may not see. `until`: when the promise ends by itself, or ""."""

    kind: str
    name: str
    count: int
    size_bytes: int
    until: str


@dataclass(frozen=True, slots=True)
class PlaceView:
    """Where a copy lies or will. `kind`: "stored", "plan" or "hold"; `why`: why there, in a sentence."""

    node: str
    disk: str
    uuid: str
    size_bytes: int
    kind: str
    why: str


@dataclass(frozen=True, slots=True)
class VolumeAnswer:
    """One volume of what is explained. `is_local`: a copy has to lie on the pod's node. `reason` and `text`: why it
    finds no place wherever the pod goes; "" if it does."""

    claim: str
    volume: str
    size_bytes: int
    copies: int
    is_local: bool
    places: Sequence[PlaceView]
    reason: str
    text: str


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """What is said of one node. `verdict`: "sure", "contended", "full" or "unsuitable". `reason`: the first rule that
    refuses, of docs/rules/refusals.md, with `text`; for which `claim`, on which `disk` ("": the node itself), and
    where bytes decide, its figures and what is missing."""

    node: str
    verdict: str
    reason: str
    text: str
    claim: str
    disk: str
    limit_bytes: int
    used_bytes: int
    taken_bytes: int
    free_bytes: int
    missing_bytes: int
    holders: Sequence[Holder]


@dataclass(frozen=True, slots=True)
class Explanation:
    """`/explain/...`. `state`: "waits", "let-through", "runs", "not-ours" (nobody asks the extender about it) or
    "gone"; `cause`: a constant word for the one true cause, a reason where there is one; `text`: it in one sentence;
    `change`: the smallest change that would help, or "". Nodes are sorted, the nearest miss first."""

    kind: str
    namespace: str
    name: str
    state: str
    since: str
    cause: str
    text: str
    change: str
    volumes: Sequence[VolumeAnswer]
    nodes: Sequence[NodeAnswer]
    more_nodes: int


# capacity


@dataclass(frozen=True, slots=True)
class NodeCapacity:
    """`largest_bytes`: the largest volume of one copy that fits there now. `copies`: replicas that lie there."""

    node: str
    is_schedulable: bool
    limit_bytes: int
    used_bytes: int
    taken_bytes: int
    free_bytes: int
    largest_bytes: int
    copies: int


@dataclass(frozen=True, slots=True)
class TagCapacity:
    """Disks that have this tag; `of`: "disk" or "node". `largest_bytes`: by the number of copies."""

    of: str
    tag: str
    disks: int
    limit_bytes: int
    free_bytes: int
    largest_bytes: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Rebuild:
    """Copies that are missing now. `is_placeable`: they find disks."""

    volume: str
    claim: str
    size_bytes: int
    copies: int
    is_placeable: bool


@dataclass(frozen=True, slots=True)
class Survival:
    """Whether all data could be rebuilt if `node`, the one with most bytes, were lost. `lost`: volumes whose only copy
    lies there; `homeless`: those whose copy finds no other disk, with `missing_bytes` in all."""

    node: str
    is_survived: bool
    copies: int
    size_bytes: int
    lost: Sequence[str]
    homeless: Sequence[str]
    missing_bytes: int


@dataclass(frozen=True, slots=True)
class Capacity:
    """`/capacity`. `largest_bytes`: of a plain new volume, by the number of copies ("1", "2", "3"). `survival` None:
    there is no node, or no answer was found in time, as `notes` tell."""

    time: str
    totals: Totals
    nodes: Sequence[NodeCapacity]
    disks: Sequence[DiskView]
    tags: Sequence[TagCapacity]
    largest_bytes: Mapping[str, int]
    rebuilds: Sequence[Rebuild]
    survival: Survival | None = None
    notes: Sequence[str] = field(default=())
