"""A promise: room for one volume, as one claimant asks for it, in one form whatever its source."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, replace
from enum import Enum, StrEnum, auto
from typing import Final

from controller.model.longhorn import DiskNeeds

ANYWHERE: Final = "*"  # the node that people are shown for what is bound to none
_NO_NODES: Final[frozenset[str]] = frozenset()
_ANY_NODE: Final = frozenset({ANYWHERE})


class State(Enum):
    __hash__ = object.__hash__  # a filter call makes thousands of moves, and Enum's own hash is slow

    ABSENT = auto()
    HELD = auto()  # offered to the scheduler, or kept for a pod
    ASSUMED = auto()  # the cluster chose; waiting to be seen as a placed replica


class Verb(Enum):
    __hash__ = object.__hash__

    HOLD = auto()
    ASSUME = auto()
    CONFIRM = auto()  # a replica shows it
    FORGET = auto()  # undone by an event; idempotent
    EXPIRE = auto()  # undone by time


class Kind(StrEnum):
    FIRST = "first-placement"  # the volume has no replica anywhere yet
    MOVE = "move"  # a locality rebuild on this node, a replica exists elsewhere
    ROAMING = "roaming"  # Longhorn may place it on any node that suits
    GROWTH = "expansion"  # replicas that are to become larger, on the disks where they lie


class Source(StrEnum):
    """Who claims the room."""

    FILTER = "filter"  # a yes of ours
    FORMER = "former-leader"  # the leader before may have said yes
    CHOICE = "choice"  # the cluster chose
    LONGHORN = "longhorn"  # Longhorn has a replica to place, whoever asked for it
    GROWTH = "growth"
    NOMINATION = "nomination"  # pods are evicted for this one
    KEPT_ROOM = "kept-room"  # for a pod that has waited for long
    WAKE_PLAN = "wake-plan"  # for a pod that is about to be woken


@dataclass(frozen=True, slots=True)
class OneOf:
    """Alternatives: the replica will land on one of `nodes`; None: on one of all nodes but the `excluded`."""

    nodes: frozenset[str] | None
    excluded: frozenset[str] = _NO_NODES

    def includes(self, node: str) -> bool:
        return node not in self.excluded if self.nodes is None else node in self.nodes


NOWHERE: Final = OneOf(_NO_NODES)


@dataclass(frozen=True, slots=True)
class Roams:
    """A set with exclusions: `copies` replicas may land on any nodes but the `excluded`, `per_disk` on one disk, each
    in a zone or on a node of its own unless it `shares_nodes`. `fell_from` is the node that a first placement was to go
    to, and that takes it no more."""

    excluded: frozenset[str] = _NO_NODES
    copies: int = 1
    per_disk: int = 1
    fell_from: str = ""
    by_zone: bool = False
    shares_nodes: bool = False

    def includes(self, node: str) -> bool:
        return node not in self.excluded


@dataclass(frozen=True, slots=True)
class OnDisks:
    """Bytes by which replicas may grow, by the UUID of their disk and its node."""

    growth_bytes: tuple[tuple[str, str, int], ...]  # (node, disk UUID, bytes)

    def includes(self, node: str) -> bool:
        return any(name == node for name, _, _ in self.growth_bytes)

    def bytes_by_node(self) -> Counter[str]:
        """Bytes that replicas may gain on each node."""
        found: Counter[str] = Counter()
        for node, _, more in self.growth_bytes:
            found[node] += more
        return found


Places = OneOf | Roams | OnDisks


def either(old: Places, new: Places) -> Places:
    """Where one volume may land that either may hold for. Of two that roam, or grow, the new one."""
    if isinstance(old, OneOf) and isinstance(new, OneOf):
        if old.nodes is not None and new.nodes is not None:
            return OneOf(old.nodes | new.nodes)
        barred = [one.excluded for one in (old, new) if one.nodes is None]
        return OneOf(None, frozenset.intersection(*barred).difference(old.nodes or (), new.nodes or ()))
    if isinstance(new, OneOf):
        old, new = new, old
    if isinstance(new, Roams) and isinstance(old, OneOf):
        return replace(new, excluded=new.excluded.difference(old.nodes or ()), fell_from="")
    if isinstance(new, Roams) and isinstance(old, Roams) and old.fell_from != new.fell_from:
        return replace(new, fell_from="")
    return new


@dataclass(frozen=True, slots=True)
class Against:
    """Whom a promise keeps out, when it is not everybody: newcomers of lower priority, and of the same one if they
    have no promise of this kind or a later one (`serial`); `is_for_local` with volumes that need a node's room."""

    priority: int
    serial: int = -1
    is_for_local: bool = False


@dataclass(frozen=True, slots=True)
class Promise:
    """Room for one volume, as one claimant asks for it. Sizes in bytes, times in monotonic seconds."""

    volume: str  # the demand's key: the claim's uid, or the Longhorn volume's name without a claim
    claimant: str
    source: Source
    state: State
    kind: Kind
    size_bytes: int  # GROWTH: the size that the volume is to have
    required_bytes: int
    needs: DiskNeeds
    places: Places  # where it counts
    since: float  # when it entered its state
    chance_at: float | None = None  # since when it has been Longhorn's to place it
    until: float | None = None  # it ends at that time at the latest
    against: Against | None = None  # None: it counts for every newcomer
    charged_to: str = ""  # the namespace of a claim for which nobody is known to have asked but its owner
    situation: Hashable = None  # in which it was made: after its end by time it is made again in another one only
    asked: Places | None = None  # its places if what was given by name, and shows by no object yet, comes to nothing

    @property
    def as_asked(self) -> Promise:
        """As if nothing was given but what Longhorn shows."""
        return self if self.asked is None else replace(self, places=self.asked, asked=None)

    @property
    def most_bytes(self) -> int:
        """No less than the bytes that it may come to take in all."""
        if isinstance(self.places, OnDisks):
            return self.places.bytes_by_node().total()
        if self.places == NOWHERE:
            return 0
        return self.size_bytes * (self.places.copies if isinstance(self.places, Roams) else 1)

    @property
    def nodes(self) -> frozenset[str]:
        """The nodes that it is bound to by name."""
        return (self.places.nodes or _NO_NODES) if isinstance(self.places, OneOf) else _NO_NODES

    @property
    def listed_nodes(self) -> frozenset[str]:
        """The same, or ANYWHERE for what is bound to none."""
        is_named = isinstance(self.places, OneOf) and self.places.nodes is not None
        return self.nodes if is_named else _ANY_NODE
