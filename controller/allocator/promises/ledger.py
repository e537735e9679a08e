"""The ledger: room that is claimed and that the cluster does not show yet, in one form whatever its source.

A promise belongs to a volume, never to a pod or a disk. Claimants make it: a pod, by its uid; the claim itself, while
it is being provisioned; Longhorn, while it has a replica to place; a nomination, a kept room or a wake-up plan of a
pod. Whatever the number of claimants, a volume counts once for each copy that may land on a disk, at the largest size.
A claimant has one promise of a volume at a time, and every change of it goes through one table:

            hold            assume                 shown / withdrawn / end by time
    ABSENT ------> HELD --------------> ASSUMED ------------------------------------> ABSENT
       |             |                     ^
       |  assume     +-- end of hold --> ABSENT
       +-----------------------------------+
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, KeysView
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from typing import Final, NamedTuple

from controller.errors import BugError
from controller.model.longhorn import DiskNeeds

ANYWHERE: Final = "*"  # the node that people are shown for what is bound to none
_NO_NODES: Final[frozenset[str]] = frozenset()


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


@dataclass(frozen=True, slots=True)
class OneOf:
    """Alternatives: the replica will land on one of `nodes`; None: on one of all nodes but the `excluded`."""

    nodes: frozenset[str] | None
    excluded: frozenset[str] = _NO_NODES

    def includes(self, node: str) -> bool:
        return node not in self.excluded if self.nodes is None else node in self.nodes


@dataclass(frozen=True, slots=True)
class Roams:
    """A set with exclusions: `copies` replicas may land on any nodes but the `excluded`, `per_node` on one of them.
    `fell_from` is the node that a first placement was to go to, and that takes it no more."""

    excluded: frozenset[str] = _NO_NODES
    copies: int = 1
    per_node: int = 1
    fell_from: str = ""

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
    places: Places
    since: float  # when it entered its state
    chance_at: float | None = None  # since when it has been Longhorn's to place it
    until: float | None = None  # it ends at that time at the latest
    against: Against | None = None  # None: it counts for every newcomer
    situation: Hashable = None  # in which it was made: after its end by time it is made again in another one only

    @property
    def nodes(self) -> frozenset[str]:
        """The nodes that it is bound to by name."""
        return (self.places.nodes or _NO_NODES) if isinstance(self.places, OneOf) else _NO_NODES


class PendingItem(NamedTuple):
    """A volume's promise on a node, its claimants taken together."""

    volume: str
    size_bytes: int
    required_bytes: int
    needs: DiskNeeds
    is_assumed: bool
    since: float


@dataclass(frozen=True, slots=True)
class RoamingItem:
    """A volume that may land on any node except the `barred` ones: `copies` times in all, `per_node` on one node."""

    item: PendingItem
    barred: frozenset[str] = _NO_NODES
    copies: int = 1
    per_node: int = 1


class Pile(NamedTuple):
    """All that is promised on one node, and sums of it."""

    items: tuple[PendingItem, ...]
    sizes: tuple[int, ...]  # largest first
    needs: frozenset[DiskNeeds]
    required_bytes: int  # the most of any
    youngest_hold: float  # when the last one was made that is not chosen yet


_Key = tuple[str, str]  # volume, claimant


class Ledger:
    """Promises by volume and claimant. Every change goes through the transition table.

    What counts for every newcomer is indexed by node; what does not (`against`) is told apart, and is little.

    Threads: none of its own; the allocator's lock guards it.
    """

    def __init__(self) -> None:
        self._by_volume: dict[str, dict[str, Promise]] = {}  # volume -> claimant
        self._by_claimant: dict[str, dict[str, Promise]] = {}  # claimant -> volume
        self._by_node: dict[str, dict[_Key, Promise]] = {}
        self._totals: dict[str, int] = {}  # pending bytes a node; a filter of thousands of nodes asks for each
        self._piles: dict[str, Pile] = {}  # by node, made when asked for, dropped by every change
        self._roaming: dict[str, dict[str, Promise]] = {}  # volume -> claimant, of what is bound to no node
        self._roaming_items: tuple[RoamingItem, ...] | None = None
        self._fallen: dict[str, dict[_Key, Promise]] = {}  # by the node that they fell from
        self._limited: dict[_Key, Promise] = {}  # those with `against`
        self._growth: dict[str, dict[_Key, int]] = {}  # disk UUID -> bytes by promise
        self._growing: dict[str, Promise] = {}  # by volume, what grows
        self._timed: dict[_Key, Promise] = {}  # those that time alone may end

    @classmethod
    def of(cls, promises: Iterable[Promise]) -> Ledger:
        """One with these promises."""
        ledger = cls()
        for promise in promises:
            ledger.put(Verb.HOLD if promise.state is State.HELD else Verb.ASSUME, promise)
        return ledger

    def get(self, volume: str, claimant: str) -> Promise | None:
        return self._by_volume.get(volume, {}).get(claimant)

    def put(self, verb: Verb, promise: Promise) -> None:
        """Enter or replace; an illegal move raises BugError before anything changes."""
        claimants = self._by_volume.get(promise.volume)
        old = claimants.get(promise.claimant) if claimants is not None else None
        if _next(verb, promise.volume, promise.claimant, old) is not promise.state:
            raise BugError(f"{verb.name} of {promise.volume} {promise.claimant} makes {promise.state.name}")
        if old is not None:
            self._unlink(old, kept=promise)
        self._by_volume.setdefault(promise.volume, {})[promise.claimant] = promise
        self._by_claimant.setdefault(promise.claimant, {})[promise.volume] = promise
        self._link(promise)

    def drop(self, verb: Verb, volume: str, claimant: str) -> Promise | None:
        """Leave the ledger; what stood there, or None (FORGET alone may find nothing)."""
        claimants = self._by_volume.get(volume)
        old = claimants.get(claimant) if claimants is not None else None
        _next(verb, volume, claimant, old)
        if old is None or claimants is None:
            return None
        self._unlink(old)
        del claimants[claimant]
        if not claimants:
            del self._by_volume[volume]
        volumes = self._by_claimant[claimant]
        del volumes[volume]
        if not volumes:
            del self._by_claimant[claimant]
        return old

    # Look-ups

    def of_claimant(self, claimant: str) -> list[Promise]:
        volumes = self._by_claimant.get(claimant)
        return [volumes[volume] for volume in sorted(volumes)] if volumes else []

    def of_volume(self, volume: str) -> list[Promise]:
        claimants = self._by_volume.get(volume)
        return [claimants[claimant] for claimant in sorted(claimants)] if claimants else []

    def claimants(self) -> KeysView[str]:
        """All that have any promise."""
        return self._by_claimant.keys()

    def promises(self) -> Iterator[Promise]:
        for claimants in self._by_volume.values():
            yield from claimants.values()

    def timed(self) -> Collection[Promise]:
        """Promises that time alone may end."""
        return self._timed.values()

    def limited(self) -> Collection[Promise]:
        """Promises that do not count for every newcomer."""
        return self._limited.values()

    def nodes(self) -> KeysView[str]:
        """All nodes that something is promised on by name."""
        return self._by_node.keys()

    def on_node(self, node: str) -> list[Promise]:
        """All that names that node, claimant by claimant, with what does not count for every newcomer."""
        limited = [promise for promise in self._limited.values() if node in promise.nodes]
        return [*self._by_node.get(node, {}).values(), *limited]

    def roams(self, volume: str) -> bool:
        """Whether anything of that volume is bound to no node."""
        return volume in self._roaming

    def placed_by_choice(self, node: str) -> list[Promise]:
        """First placements that were chosen for that node, whether it takes them now or not."""
        here, fallen = self._by_node.get(node), self._fallen.get(node)
        found = [one for one in here.values() if one.state is State.ASSUMED and one.kind is Kind.FIRST] if here else []
        return [*found, *fallen.values()] if fallen else found

    def pending_bytes(self, node: str) -> int:
        """No less than what may land on that node of all that is bound to it by name."""
        return self._totals.get(node, 0)

    def pile(self, node: str) -> Pile:
        """What is bound to that node by name, each volume once, with what a question about thousands of nodes asks
        first. A first placement that may go anywhere by another source is told with what roams."""
        found = self._piles.get(node)
        if found is None:
            found = self._piles[node] = _pile(self._merged(self._by_node.get(node, {})))
        return found

    def roaming(self) -> tuple[RoamingItem, ...]:
        """What is bound to no node, each volume once."""
        if self._roaming_items is None:
            self._roaming_items = tuple(
                roaming_item(volume, claimants.values()) for volume, claimants in self._roaming.items()
            )
        return self._roaming_items

    def target_of(self, volume: str) -> int:
        """The size that the Longhorn volume of that name is to grow to; 0 for none."""
        promise = self._growing.get(volume)
        return 0 if promise is None else promise.size_bytes

    def grows_on(self, disk_uuid: str) -> bool:
        return disk_uuid in self._growth

    def growing_by(self, disk_uuid: str) -> Iterable[tuple[str, int]]:
        """Volumes whose replicas on that disk may grow, and by how many bytes."""
        return [(volume, more) for (volume, _), more in self._growth.get(disk_uuid, {}).items()]

    def growths(self) -> Collection[Promise]:
        """All that grows, a volume once."""
        return self._growing.values()

    # Indices

    def _link(self, promise: Promise) -> None:
        key, places = (promise.volume, promise.claimant), promise.places
        if promise.chance_at is not None or promise.until is not None:
            self._timed[key] = promise
        if promise.against is not None:
            self._limited[key] = promise
        elif isinstance(places, OnDisks):
            self._growing[promise.volume] = promise
            for _, uuid, more in places.growth_bytes:
                members = self._growth.setdefault(uuid, {})
                members[key] = members.get(key, 0) + more
        elif isinstance(places, Roams) or places.nodes is None:
            self._roaming.setdefault(promise.volume, {})[promise.claimant] = promise
            self._touch_roaming(promise.volume)
            if isinstance(places, Roams) and places.fell_from:
                self._fallen.setdefault(places.fell_from, {})[key] = promise
        else:
            self._link_nodes(key, promise, places.nodes)

    def _link_nodes(self, key: _Key, promise: Promise, nodes: frozenset[str]) -> None:
        by_node, totals, size = self._by_node, self._totals, promise.size_bytes
        is_alone = len(self._by_volume[promise.volume]) == 1
        for node in nodes:
            here = by_node.get(node)
            if here is None:
                here = by_node[node] = {}
            if is_alone:  # nearly always
                old = here.get(key)
                totals[node] = totals.get(node, 0) + size - (old.size_bytes if old is not None else 0)
                here[key] = promise
            else:
                before = self._largest(here, promise.volume)
                here[key] = promise
                totals[node] = totals.get(node, 0) + self._largest(here, promise.volume) - before
            self._piles.pop(node, None)

    def _unlink(self, promise: Promise, kept: Promise | None = None) -> None:
        """Out of the indices, but for the nodes where `kept` takes its place anyway."""
        key, places = (promise.volume, promise.claimant), promise.places
        self._timed.pop(key, None)
        if promise.against is not None:
            self._limited.pop(key, None)
        elif isinstance(places, OnDisks):
            self._growing.pop(promise.volume, None)  # a volume has one at most
            for _, uuid, _ in places.growth_bytes:
                members = self._growth.get(uuid, {})
                members.pop(key, None)
                if not members:
                    self._growth.pop(uuid, None)
        elif isinstance(places, Roams) or places.nodes is None:
            members_of = self._roaming[promise.volume]
            del members_of[promise.claimant]
            if not members_of:
                del self._roaming[promise.volume]
            self._touch_roaming(promise.volume)
            if isinstance(places, Roams) and places.fell_from:
                fallen = self._fallen[places.fell_from]
                del fallen[key]
                if not fallen:
                    del self._fallen[places.fell_from]
        else:
            staying = kept.nodes if kept is not None and kept.against is None else _NO_NODES
            for node in places.nodes - staying if staying else places.nodes:
                self._unlink_node(key, node)

    def _unlink_node(self, key: _Key, node: str) -> None:
        here = self._by_node[node]
        before = self._largest(here, key[0])
        del here[key]
        self._piles.pop(node, None)
        if here:
            self._totals[node] += self._largest(here, key[0]) - before
        else:
            del self._by_node[node], self._totals[node]

    def _is_beside(self, promise: Promise) -> bool:
        """Whether it is a copy of its own beside what roams of its volume: a move, unless the former leader may have
        offered it anywhere."""
        roaming = self._roaming[promise.volume].values()
        return promise.kind is Kind.MOVE and any(one.kind is Kind.ROAMING for one in roaming)

    def _largest(self, here: dict[_Key, Promise], volume: str) -> int:
        """The largest promise of that volume on a node."""
        largest = 0
        for claimant in self._by_volume[volume]:
            found = here.get((volume, claimant))
            if found is not None and found.size_bytes > largest:
                largest = found.size_bytes
        return largest

    def _touch_roaming(self, volume: str) -> None:
        self._roaming_items = None
        for promise in self._by_volume.get(volume, {}).values():
            for node in promise.nodes:
                self._piles.pop(node, None)

    def _merged(self, here: dict[_Key, Promise]) -> Iterator[PendingItem]:
        by_volume: dict[str, list[Promise]] = {}
        for promise in here.values():
            if promise.volume not in self._roaming or self._is_beside(promise):
                by_volume.setdefault(promise.volume, []).append(promise)
        for volume, members in by_volume.items():
            yield pending_item(volume, members)


def pending_item(volume: str, promises: Collection[Promise]) -> PendingItem:
    """The promises of one volume as one."""
    largest = max(promises, key=lambda promise: promise.size_bytes)
    return PendingItem(
        volume=volume,
        size_bytes=largest.size_bytes,
        required_bytes=max(promise.required_bytes for promise in promises),
        needs=largest.needs,
        is_assumed=any(promise.state is State.ASSUMED for promise in promises),
        since=max(promise.since for promise in promises),
    )


def roaming_item(volume: str, promises: Collection[Promise]) -> RoamingItem:
    """The promises of one volume that are bound to no node as one."""
    barred, copies, per_node = None, 1, 1
    for promise in promises:
        places = promise.places
        if isinstance(places, OnDisks):
            continue
        barred = places.excluded if barred is None else barred & places.excluded
        if isinstance(places, Roams):
            copies, per_node = max(copies, places.copies), max(per_node, places.per_node)
    return RoamingItem(pending_item(volume, promises), barred or _NO_NODES, copies, per_node)


def _pile(found: Iterable[PendingItem]) -> Pile:
    items = tuple(found)
    return Pile(
        items=items,
        sizes=tuple(sorted((item.size_bytes for item in items), reverse=True)),
        needs=frozenset(item.needs for item in items),
        required_bytes=max((item.required_bytes for item in items), default=0),
        youngest_hold=max((item.since for item in items if not item.is_assumed), default=float("-inf")),
    )


def _next(verb: Verb, volume: str, claimant: str, promise: Promise | None) -> State:
    state = State.ABSENT if promise is None else promise.state
    found = NEXT.get((state, verb))
    if found is None:
        raise BugError(f"{verb.name} of {volume} {claimant} while {state.name}")
    return found
