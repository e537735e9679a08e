"""The ledger: promises that the cluster does not show yet.

A promise belongs to a volume and names a node (or ANYWHERE, for a volume that Longhorn may place where it likes).
Claimants make it: pods, by uid; the claim itself, while it is unbound and carries a selected node; the Longhorn
volume itself, while it is attached to the node and unplaced. Whatever the number of claimants, a volume counts once
on a node, at the largest size.

States and moves:

            hold            choose                 shown / withdrawn / end by time
    ABSENT ------> HELD --------------> ASSUMED ------------------------------------> ABSENT
       |             |                     ^
       |  choose     +-- end of hold --> ABSENT
       +-----------------------------------+
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, KeysView, Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from typing import Final, NamedTuple, TypeVar

from controller.errors import BugError
from controller.model.longhorn import DiskNeeds

ANYWHERE: Final = "*"

_Value = TypeVar("_Value")


class State(Enum):
    __hash__ = object.__hash__  # a filter call makes thousands of moves, and Enum's own hash is slow

    ABSENT = auto()
    HELD = auto()  # offered to the scheduler
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


NEXT: Final[dict[tuple[State, Verb], State]] = {  # a pair that is missing here is a bug
    (State.ABSENT, Verb.HOLD): State.HELD,
    (State.ABSENT, Verb.ASSUME): State.ASSUMED,  # chosen without a hold of ours, or under an earlier leader
    (State.ABSENT, Verb.FORGET): State.ABSENT,
    (State.HELD, Verb.HOLD): State.HELD,  # a retried filter call replaces its own hold
    (State.HELD, Verb.ASSUME): State.ASSUMED,
    (State.HELD, Verb.CONFIRM): State.ABSENT,
    (State.HELD, Verb.FORGET): State.ABSENT,
    (State.HELD, Verb.EXPIRE): State.ABSENT,
    (State.ASSUMED, Verb.HOLD): State.HELD,  # the choice was withdrawn and the pod came back
    (State.ASSUMED, Verb.ASSUME): State.ASSUMED,  # the same event, delivered again
    (State.ASSUMED, Verb.CONFIRM): State.ABSENT,
    (State.ASSUMED, Verb.FORGET): State.ABSENT,
    (State.ASSUMED, Verb.EXPIRE): State.ABSENT,
}


class Key(NamedTuple):
    volume: str  # the demand's key
    node: str  # or ANYWHERE
    claimant: str  # a pod's uid, or "claim:" / "volume:" for what stands without a pod


@dataclass(frozen=True, slots=True)
class Entry:
    """One claimant's promise. Sizes in bytes, times in monotonic seconds."""

    state: State
    kind: Kind
    size_bytes: int
    required_bytes: int
    needs: DiskNeeds
    since: float  # when it entered its state
    turn_at: float | None = None  # when Longhorn had its turn on that node


class Promise(NamedTuple):
    """A volume's promise on a node, its claimants taken together."""

    volume: str
    size_bytes: int
    required_bytes: int
    needs: DiskNeeds
    is_assumed: bool
    since: float


class Pile(NamedTuple):
    """All promises on one node, and sums of them."""

    promises: tuple[Promise, ...]
    sizes: tuple[int, ...]  # largest first
    needs: frozenset[DiskNeeds]
    required_bytes: int  # the most of any
    youngest_hold: float  # when the last one was made that is not chosen yet


class Ledger:
    """Entries by node, volume and claimant. Every change goes through the transition table.

    Threads: none of its own; the allocator's lock guards it.
    """

    def __init__(self) -> None:
        self._by_node: dict[str, dict[str, dict[str, Entry]]] = {}
        self._by_claimant: dict[str, set[tuple[str, str]]] = {}
        self._by_volume: dict[str, set[str]] = {}
        self._piles: dict[str, Pile] = {}  # by node, made when asked for, dropped by every change
        self._totals: dict[str, int] = {}  # pending bytes a node; a filter of thousands of nodes asks for each

    def get(self, key: Key) -> Entry | None:
        return self._by_node.get(key.node, {}).get(key.volume, {}).get(key.claimant)

    def put(self, verb: Verb, key: Key, entry: Entry) -> None:
        """Enter or replace; an illegal move raises BugError before anything changes."""
        volume, node, claimant = key
        volumes = self._by_node.get(node)
        claimants = volumes.get(volume) if volumes is not None else None
        old = claimants.get(claimant) if claimants is not None else None
        if self._next(verb, key, old) is not entry.state:
            raise BugError(f"{verb.name} of {key} makes {entry.state.name}")
        if volumes is None:
            volumes = self._by_node[node] = {}
        if claimants is None:
            claimants = volumes[volume] = {}
        before = _largest(claimants)
        claimants[claimant] = entry
        after = entry.size_bytes if len(claimants) == 1 else _largest(claimants)
        self._totals[node] = self._totals.get(node, 0) + after - before
        self._piles.pop(node, None)
        if old is None:
            _add(self._by_claimant, claimant, (volume, node))
            _add(self._by_volume, volume, node)

    def drop(self, verb: Verb, key: Key) -> Entry | None:
        """Leave the ledger; what stood there, or None (FORGET alone may find nothing)."""
        volume, node, claimant = key
        volumes = self._by_node.get(node)
        claimants = volumes.get(volume) if volumes is not None else None
        entry = claimants.get(claimant) if claimants is not None else None
        self._next(verb, key, entry)
        if entry is None or claimants is None or volumes is None:
            return None
        before = _largest(claimants)
        del claimants[claimant]
        self._piles.pop(node, None)
        self._totals[node] += _largest(claimants) - before
        _discard(self._by_claimant, claimant, (volume, node))
        if not claimants:
            del volumes[volume]
            _discard(self._by_volume, volume, node)
            if not volumes:
                del self._by_node[node], self._totals[node]
        return entry

    def of_claimant(self, claimant: str) -> list[tuple[Key, Entry]]:
        places = self._by_claimant.get(claimant, ())
        return [(Key(volume, node, claimant), self._by_node[node][volume][claimant]) for volume, node in sorted(places)]

    def claimants(self) -> KeysView[str]:
        """All that have any promise."""
        return self._by_claimant.keys()

    def of_volume(self, volume: str) -> list[tuple[Key, Entry]]:
        return [
            (Key(volume, node, claimant), entry)
            for node in sorted(self._by_volume.get(volume, ()))
            for claimant, entry in sorted(self._by_node[node][volume].items())
        ]

    def at(self, volume: str, node: str) -> list[Entry]:
        """Every claimant's entry of that volume on that node."""
        return list(self._by_node.get(node, {}).get(volume, {}).values())

    def nodes(self) -> KeysView[str]:
        """All nodes with promises, and ANYWHERE if anything roams."""
        return self._by_node.keys()

    def has_promises(self, node: str) -> bool:
        return node in self._by_node

    def pending_bytes(self, node: str) -> int:
        return self._totals.get(node, 0)

    def promises(self, node: str) -> tuple[Promise, ...]:
        """What is pending on `node` alone (ANYWHERE is a place of its own), each volume once."""
        return self.pile(node).promises

    def pile(self, node: str) -> Pile:
        """As `promises`, with what a question about thousands of nodes asks first."""
        found = self._piles.get(node)
        if found is None:
            found = self._piles[node] = _pile(self._by_node.get(node, {}))
        return found

    def entries(self) -> Iterator[tuple[Key, Entry]]:
        for node, volumes in self._by_node.items():
            for volume, claimants in volumes.items():
                for claimant, entry in claimants.items():
                    yield Key(volume, node, claimant), entry

    def _next(self, verb: Verb, key: Key, entry: Entry | None) -> State:
        state = State.ABSENT if entry is None else entry.state
        found = NEXT.get((state, verb))
        if found is None:
            raise BugError(f"{verb.name} of {key} while {state.name}")
        return found


def _pile(volumes: Mapping[str, Mapping[str, Entry]]) -> Pile:
    promises = tuple(_promise(volume, claimants.values()) for volume, claimants in volumes.items())
    return Pile(
        promises=promises,
        sizes=tuple(sorted((promise.size_bytes for promise in promises), reverse=True)),
        needs=frozenset(promise.needs for promise in promises),
        required_bytes=max((promise.required_bytes for promise in promises), default=0),
        youngest_hold=max((promise.since for promise in promises if not promise.is_assumed), default=float("-inf")),
    )


def _promise(volume: str, entries: Collection[Entry]) -> Promise:
    largest = max(entries, key=lambda entry: entry.size_bytes)
    return Promise(
        volume=volume,
        size_bytes=largest.size_bytes,
        required_bytes=max(entry.required_bytes for entry in entries),
        needs=largest.needs,
        is_assumed=any(entry.state is State.ASSUMED for entry in entries),
        since=max(entry.since for entry in entries),
    )


def _largest(claimants: dict[str, Entry]) -> int:
    if not claimants:
        return 0
    if len(claimants) == 1:  # nearly always
        for entry in claimants.values():
            return entry.size_bytes
    return max(entry.size_bytes for entry in claimants.values())


def _add(index: dict[str, set[_Value]], key: str, value: _Value) -> None:
    members = index.get(key)
    if members is None:
        index[key] = {value}
    else:
        members.add(value)


def _discard(index: dict[str, set[_Value]], key: str, value: _Value) -> None:
    members = index[key]
    members.discard(value)
    if not members:
        del index[key]
