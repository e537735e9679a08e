"""What the allocator answers: values that leave its lock."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum, auto

from controller.model.workload import Pod
from controller.rules.reasons import Reason


class Mode(StrEnum):
    """ACTIVE decides and holds; BYPASS lets everything pass and holds nothing; CLOSED answers nobody; UNKNOWN answers
    everybody by an error: nobody has said in a readable way whether the extender is enabled."""

    ACTIVE = "active"
    BYPASS = "bypass"
    CLOSED = "closed"
    UNKNOWN = "unknown"


class Decision(StrEnum):
    NOTHING_NEEDED = "nothing-needed"
    OFFERED = "offered"
    AT_DISCRETION = "at-discretion"  # Longhorn may over-commit a disk by the pod's own volumes
    RESTART = "restart"
    CHOSEN = "chosen"
    REFUSED = "refused"
    CONTENDED = "contended"
    BYPASS = "bypass"
    REMOTE = "remote-fallback"


class PodKnowledge(Enum):
    """What the stores know of the pod that a filter call names."""

    PENDING = auto()
    FINISHED = auto()  # terminal or being deleted
    BOUND = auto()
    FOREIGN = auto()  # of a scheduler that is none of ours
    GATED = auto()  # no scheduler asks about it yet
    OTHER_UID = auto()
    UNKNOWN = auto()

    @property
    def may_be_old(self) -> bool:
        """Whether a store that lags behind may say so of a pod that a scheduler asks about."""
        return self in (PodKnowledge.UNKNOWN, PodKnowledge.OTHER_UID, PodKnowledge.GATED)

    @classmethod
    def of(cls, pod: Pod | None, uid: str, schedulers: Container[str] | None) -> PodKnowledge:
        """What is known of the pod of that uid, when `pod` is what the stores have under its name. `schedulers` are
        ours, by name; None: all are."""
        if pod is None:
            return cls.UNKNOWN
        if pod.uid != uid:
            return cls.OTHER_UID
        if pod.is_finished or pod.is_deleting:
            return cls.FINISHED
        if pod.node_name:
            return cls.BOUND
        if schedulers is not None and pod.scheduler_name not in schedulers:
            return cls.FOREIGN
        return cls.GATED if pod.is_gated else cls.PENDING


@dataclass(frozen=True, slots=True)
class FilterOutcome:
    """`passed` is the request's own list where all candidates pass; `refused` covers every candidate when none
    passes."""

    decision: Decision
    passed: Sequence[str]
    refused: Mapping[str, Reason]
    waitable: bool
    version: int
    held_bytes: int
    is_bounded: bool = False
    serial: int = 0  # which call this answers; names the holds that it made
    is_overcommitted: bool = False  # volumes that roam may be too many for a disk, within the tolerance
    unread_backups: tuple[
        str, ...
    ] = ()  # of volumes to be restored that count as large as is requested, and may be larger


@dataclass(frozen=True, slots=True)
class PromiseView:
    """One volume's promise on a node ("*": anywhere), for people and metrics. Sizes in bytes, age in seconds."""

    volume: str
    claim: str
    node: str
    kind: str
    state: str
    source: str
    size_bytes: int
    claimants: tuple[str, ...]
    age_seconds: float


@dataclass(frozen=True, slots=True)
class ReachView:
    """A change of what a disk can take that no promise of ours explains, so many seconds ago."""

    node: str
    disk: str
    change: str
    size_bytes: int
    age_seconds: float


@dataclass(frozen=True, slots=True)
class DiskOver:
    """A disk on which more lies, or may grow to lie, than its limit."""

    node: str
    disk: str
    over_bytes: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The ledger at one moment. A volume counts once on a node, whatever the number of claimants."""

    mode: Mode
    version: int
    promises: tuple[PromiseView, ...]
    held_count: int
    held_bytes: int
    assumed_count: int
    assumed_bytes: int
    oldest_hold_seconds: float
    refused_count: int
    quarantined: tuple[str, ...]
    counters: Mapping[str, int]
    reach_changes: tuple[ReachView, ...]
    disks_over: tuple[DiskOver, ...]
