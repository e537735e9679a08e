"""What the allocator answers: values that leave its lock."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, StrEnum, auto
from typing import Final

from controller.errors import NotSyncedError
from controller.model.allocations import Allocation
from controller.model.longhorn import Volume
from controller.model.places import Place
from controller.model.workload import Claim, Pod
from controller.rules.demand import Missing
from controller.rules.placing import Wait
from controller.rules.reasons import Reason, Rejection


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
    RESTART = "restart"
    CHOSEN = "chosen"
    REFUSED = "refused"
    CONTENDED = "contended"
    BYPASS = "bypass"
    REMOTE = "remote-fallback"


MOST_CLAIMS: Final = 256  # of a pod that is answered: no node takes more, and each one costs time that others wait


class PodKnowledge(Enum):
    """What the stores know of the pod that a filter call is about."""

    PENDING = auto()
    FINISHED = auto()  # terminal or being deleted
    BOUND = auto()
    FOREIGN = auto()  # of a scheduler that is none of ours
    GATED = auto()  # no scheduler asks about it yet
    TOO_MANY = auto()  # it has more than `MOST_CLAIMS`
    OTHER_UID = auto()
    UNKNOWN = auto()

    @property
    def may_be_old(self) -> bool:
        """Whether a store that lags behind may say so of a pod that a scheduler asks about."""
        return self in (PodKnowledge.UNKNOWN, PodKnowledge.OTHER_UID, PodKnowledge.GATED)

    @classmethod
    def of(cls, pod: Pod | None, uid: str, schedulers: Container[str] | None) -> PodKnowledge:
        """What is known of the pod of that uid; `pod` is the one that the stores have under its name. `schedulers`:
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
        if len(pod.volumes) > MOST_CLAIMS:
            return cls.TOO_MANY
        return cls.GATED if pod.is_gated else cls.PENDING


@dataclass(frozen=True, slots=True)
class FilterOutcome:
    """The answer to a filter call. `passed`: the request's own list if all candidates pass. `refused`: a reason for
    every candidate if none passes. `waitable`: other pods' holds are in the way, and some are young."""

    decision: Decision
    passed: Sequence[str]
    version: int
    refused: Mapping[str, Reason] = field(default_factory=dict)
    waitable: bool = False
    held_bytes: int = 0
    is_bounded: bool = False
    serial: int = 0  # which call this answers; names the holds that it made
    # Of volumes to be restored that count as large as is requested, and may be larger.
    unread_backups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PromiseView:
    """What one volume takes on a node, for people and metrics. `kind`: "answer", "plan", "growth", "nomination",
    "kept-room" or "wake-plan"; `state`: "HELD" before a node is chosen, or before the cluster asks for a growth, else
    "PLANNED". `claimants`: UIDs of pods. Sizes in bytes, age in seconds."""

    volume: str
    claim: str
    node: str
    kind: str
    state: str
    size_bytes: int
    claimants: tuple[str, ...]
    age_seconds: float


@dataclass(frozen=True, slots=True)
class DiskOver:
    """A disk on which more lies, or may grow to lie, than its limit."""

    node: str
    disk: str
    over_bytes: int


@dataclass(frozen=True, slots=True)
class SharedDisk:
    """A UUID that several disks have, as of nodes that were cloned; each with its node."""

    uuid: str
    disks: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class TableView:
    """The table at one moment. A volume counts once on a node for each kind, whatever the number of claimants."""

    mode: Mode
    promises: tuple[PromiseView, ...]
    held_count: int
    held_bytes: int
    planned_count: int
    planned_bytes: int
    oldest_hold_seconds: float
    refused_count: int
    quarantined: tuple[str, ...]
    counters: Mapping[str, int]
    disks_over: tuple[DiskOver, ...]
    shared_disks: tuple[SharedDisk, ...] = ()


class TurnStep(StrEnum):
    """What the placer has to do with a Replica that has no node."""

    PLACE = "place"
    HOLD = "hold"  # mark it, so that Longhorn does not place it
    RELEASE = "release"  # take that mark off
    LEAVE = "leave"  # mark it, so that Longhorn places it at once
    WAIT = "wait"
    NOTHING = "nothing"  # it is gone, has a node, or is not ours to place


class WaitReason(StrEnum):
    """Why a Replica waits; `Wait` has further reasons."""

    NEW = "new"  # and not looked at yet
    NO_VOLUME = "no-volume"
    NOT_CHOSEN = "not-chosen"  # its pod's node, though its place is held
    WRITTEN = "written"  # and not shown yet
    LEFT = "left"  # Longhorn places it
    NO_ROOM = "no-room"
    ILLEGAL = "illegal-place"  # the two functions disagree: a fault of ours
    FAULT = "fault"  # another one of ours: there was no decision


class TakenBytes(StrEnum):
    """Which bytes of its disk a place takes."""

    PLANNED = "planned"
    FREE = "free"
    MOVED = "plans-moved"  # planned ones, whose plans all found other places
    DISPLACED = "plans-displaced"  # planned ones, whatever becomes of the plans


REASONS: Final = (*(one.value for one in WaitReason), *(one.value for one in Wait))


@dataclass(frozen=True, slots=True)
class PlaceWrite:
    """A place that is decided and has to be written. `number` names the decision. `hard_node_affinity` "": it stays as
    it is. `how`: which bytes the place takes, of `TakenBytes`."""

    number: int
    replica: str
    uid: str
    volume: str
    place: Place
    disk_path: str
    hard_node_affinity: str
    is_held: bool
    how: str


@dataclass(frozen=True, slots=True)
class ReplicaTurn:
    """What the placer has to do with one Replica now. `reason`: why it waits. `seconds`: after which to look again if
    nothing happens before. `fault`: the trace of an error of ours that prevented a decision."""

    step: TurnStep
    volume: str = ""
    uid: str = ""
    reason: str = ""
    seconds: float = 0.0
    write: PlaceWrite | None = None
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Unplaceable:
    """Why no disk takes a Replica. `reasons`: the number of nodes and disks by reason; `text`: the same in words.
    `claim`, `pods`: who uses the volume. `is_first`: it has no copy yet."""

    volume: Volume
    claim: Claim | None
    pods: tuple[Pod, ...]
    is_first: bool
    reasons: Mapping[str, int]
    text: str


class UnknownObjectError(NotSyncedError):
    """A pod refers to `missing`, which our stores do not have and no live read found absent just now."""

    def __init__(self, pod: Pod, missing: Missing) -> None:
        super().__init__(f"pod {pod.key}: {missing.kind} {missing.name} is not known yet")
        self.missing = missing


@dataclass(frozen=True, slots=True)
class Obstacle:
    """What prevents a growth: a disk, or the volume itself (`node` and `disk` ""). `missing_bytes` 0: more room would
    not help."""

    node: str
    disk: str
    missing_bytes: int
    rejection: Rejection


@dataclass(frozen=True, slots=True)
class Due:
    """A hold, plan or growth that is to end by time, once a live read of `reads` (kind, key) has shown nothing new.
    `is_capped`: it ends even if the API server cannot be asked, unless a claim is bound to something that nobody has
    seen. `claimant` and `volume` ("" for all of the claimant's) name it."""

    claimant: str
    volume: str
    reads: tuple[tuple[str, str], ...]
    is_capped: bool


@dataclass(frozen=True, slots=True)
class Wakeup:
    """A refused pod that kube-scheduler is to try again. `wakes`: how often it was woken, this time included."""

    pod_uid: str
    namespace: str
    name: str
    wakes: int


@dataclass(frozen=True, slots=True)
class ServedPod:
    """A pending pod that follows its shared volumes. `volumes`: how many of them each node serves that is ready."""

    created_utc: str
    volumes: Mapping[str, int]

    @property
    def best(self) -> frozenset[str]:
        """The nodes that serve most of them; empty: none is served anywhere."""
        most = max(self.volumes.values(), default=0)
        return frozenset(node for node, count in self.volumes.items() if count == most)


class LookFirstError(Exception):
    """Where the replica goes, or may stay, depends on objects `what` (kind and name) that are to be read live first."""

    def __init__(self, *what: tuple[str, str]) -> None:
        super().__init__()
        self.what = what


@dataclass(frozen=True, slots=True)
class Allotment:
    """What was given by name. `nodes`: whose records have to show it. `is_new`: it was not given before. `obstacles`:
    why nothing was given, and how many `more` there are. `freed`: what was taken back instead."""

    allocations: tuple[Allocation, ...] = ()
    nodes: frozenset[str] = frozenset()
    is_new: bool = False
    obstacles: tuple[Obstacle, ...] = ()
    more: int = 0
    freed: tuple[Allocation, ...] = ()
    size_bytes: int = 0
