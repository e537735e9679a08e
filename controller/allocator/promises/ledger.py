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
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, KeysView, Mapping, Sequence
from typing import Final

from controller.allocator.promises.items import (
    BoundItems,
    PendingItem,
    RoamingItem,
    bound_items_of,
    pending_item,
    roaming_item,
)
from controller.allocator.promises.promise import Kind, OnDisks, Promise, Roams, State, Verb
from controller.allocator.promises.sums import Sums
from controller.errors import BugError

_NO_NODES: Final[frozenset[str]] = frozenset()
_NOTHING_KNOWN: Final[Mapping[str, BoundItems]] = {}
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


_AS_ENTERED: Final = {State.HELD: Verb.HOLD, State.ASSUMED: Verb.ASSUME}
_Key = tuple[str, str]  # volume, claimant


class Ledger:
    """Promises by volume and claimant. Every change goes through the transition table.

    What counts for every newcomer is indexed by node; what does not (`against`) is kept apart, and is little.

    Threads: none of its own; the allocator's lock guards it.
    """

    def __init__(self) -> None:
        self._by_volume: dict[str, dict[str, Promise]] = {}  # volume -> claimant
        self._by_claimant: dict[str, dict[str, Promise]] = {}  # claimant -> volume
        self._by_node: dict[str, dict[_Key, Promise]] = {}
        self._totals: dict[str, int] = {}  # pending bytes a node; a filter of thousands of nodes asks for each
        self._bound_items: dict[str, BoundItems] = {}  # by node, made when asked for, dropped by every change
        self._roaming: dict[str, dict[str, Promise]] = {}  # volume -> claimant, of what is bound to no node
        self._roaming_items: tuple[RoamingItem, ...] | None = None
        self._item_of: dict[str, RoamingItem] = {}  # by volume, but for the stale ones
        self._stale_roaming: set[str] = set()
        self._roaming_sums: dict[Hashable, Sums] = {}  # by kind of disk
        self._barred: dict[str, list[RoamingItem]] | None = None
        self._special: list[RoamingItem] | None = None
        self._is_roaming_plain: bool | None = None
        self._fallen: dict[str, dict[_Key, Promise]] = {}  # by the node that they fell from
        self._limited: dict[_Key, Promise] = {}  # those with `against`
        self._growth: dict[str, dict[_Key, int]] = {}  # disk UUID -> bytes by promise
        self._growing: dict[str, Promise] = {}  # by volume, what grows
        self._timed: dict[_Key, Promise] = {}  # those that time alone may end
        self._charged: Counter[str] = Counter()  # bytes by namespace
        self._binds: Callable[[Promise], bool] | None = None
        self._binding: Ledger | None = None
        self.chosen_changed: set[str] = set()  # volumes of which what is chosen may be another thing; taken by `Places`
        self._offered: Ledger | None = None

    @classmethod
    def of(cls, promises: Iterable[Promise], known: Mapping[str, BoundItems] = _NOTHING_KNOWN) -> Ledger:
        """One with these promises; `known` is what the ledger that they are of has `bound_known`."""
        ledger = cls()
        for promise in promises:
            ledger.put(_AS_ENTERED[promise.state], promise)
        ledger._bound_items.update(known)
        return ledger

    def bound_known(self) -> dict[str, BoundItems]:
        """Of all `bound_items`, by node, what is worked out already."""
        return self._bound_items.copy()

    # What binds whoever gives room away by name

    def keep_binding(self, binds: Callable[[Promise], bool] | None) -> None:
        """From now on `binding` has those promises for which `binds` is true when they are entered; None: it is not
        needed. Costs: a look at each promise, and entering those."""
        self._binds = binds
        self._binding = None if binds is None else Ledger.of(filter(binds, self.promises()))

    @property
    def offered(self) -> Ledger:
        """What is held: answers, and rooms that are kept, that no choice has followed yet. Kept beside the rest from
        the first question on."""
        if self._offered is None:
            self._offered = Ledger.of(filter(_is_offered, self.promises()))
        return self._offered

    @property
    def binding(self) -> Ledger:
        """Those of the promises that bind, kept up to date as they come and go, since there may be thousands. All of
        them while nobody asked for less."""
        return self if self._binding is None else self._binding

    def get(self, volume: str, claimant: str) -> Promise | None:
        return self._by_volume.get(volume, {}).get(claimant)

    def put(self, verb: Verb, promise: Promise) -> None:
        """Enter or replace; an illegal move raises BugError before anything changes."""
        claimants = self._by_volume.get(promise.volume)
        old = claimants.get(promise.claimant) if claimants is not None else None
        if _next(verb, promise.volume, promise.claimant, old) is not promise.state:
            raise BugError(f"{verb.name} of {promise.volume} {promise.claimant} makes {promise.state.name}")
        if State.ASSUMED in (promise.state, old.state if old is not None else None):
            self.chosen_changed.add(promise.volume)
        if old is not None:
            self._unlink(old, kept=promise)
        self._by_volume.setdefault(promise.volume, {})[promise.claimant] = promise
        self._by_claimant.setdefault(promise.claimant, {})[promise.volume] = promise
        self._link(promise)
        self.bind(promise)
        if self._offered is not None:
            _keep(self._offered, promise, belongs=_is_offered(promise))

    def bind(self, promise: Promise) -> None:
        """Whether that promise binds may be another thing by now, although it is the same."""
        if self._binding is not None and self._binds is not None:
            _keep(self._binding, promise, belongs=self._binds(promise))

    def drop(self, verb: Verb, volume: str, claimant: str) -> Promise | None:
        """Removes the entry and returns it, or None (only FORGET may find nothing)."""
        claimants = self._by_volume.get(volume)
        old = claimants.get(claimant) if claimants is not None else None
        _next(verb, volume, claimant, old)
        if old is None or claimants is None:
            return None
        if old.state is State.ASSUMED:
            self.chosen_changed.add(volume)
        self._unlink(old)
        del claimants[claimant]
        if not claimants:
            del self._by_volume[volume]
        volumes = self._by_claimant[claimant]
        del volumes[volume]
        if not volumes:
            del self._by_claimant[claimant]
        for part in (self._binding, self._offered):
            if part is not None:
                part.drop(Verb.FORGET, volume, claimant)
                part.chosen_changed.clear()
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

    def bound_items(self, node: str) -> BoundItems:
        """What is bound to that node by name, each volume once, with what a question about thousands of nodes asks
        first. A first placement that may go anywhere by another source is listed with what roams."""
        found = self._bound_items.get(node)
        if found is None:
            found = self._bound_items[node] = bound_items_of(self._merged(self._by_node.get(node, {})))
        return found

    def roaming(self) -> tuple[RoamingItem, ...]:
        """What is bound to no node, each volume once."""
        if self._roaming_items is None:
            for volume in self._stale_roaming:
                claimants = self._roaming.get(volume)
                self._item_of.pop(volume, None)
                if claimants:
                    self._item_of[volume] = roaming_item(volume, claimants.values())
            self._stale_roaming.clear()
            self._roaming_items = tuple(self._item_of.values())
        return self._roaming_items

    def roaming_of(self, volume: str) -> RoamingItem | None:
        """That volume's part of `roaming`."""
        self.roaming()
        return self._item_of.get(volume)

    def roaming_sums(self, kind: Hashable, takes: Callable[[PendingItem], bool]) -> Sums:
        """Bytes of what roams and may lie on disks of that kind, as `takes` tells; what is `special` is left out."""
        found = self._roaming_sums.get(kind)
        if found is None:
            sizes = [one.item.size_bytes for one in self.roaming() if one.is_summed and takes(one.item)]
            found = self._roaming_sums[kind] = Sums((size, size) for size in sizes)
        return found

    def has_unbound_local(self) -> bool:
        """Whether a local volume may have been promised any node."""
        return any(entry.is_local for entry in self.roaming())

    def is_roaming_plain(self, is_plain: Callable[[RoamingItem], bool]) -> bool:
        """Whether that holds of all that roams; it is told once."""
        if self._is_roaming_plain is None:
            self._is_roaming_plain = all(map(is_plain, self.roaming()))
        return self._is_roaming_plain

    def special(self) -> Sequence[RoamingItem]:
        """What roams, several replicas of a volume on one disk, or with a backing image."""
        if self._special is None:
            self._special = [one for one in self.roaming() if not one.is_summed]
        return self._special

    def barred_on(self, node: str) -> Sequence[RoamingItem]:
        """What roams, but not on that node."""
        if self._barred is None:
            self._barred = {}
            for entry in self.roaming():
                for name in entry.barred:
                    self._barred.setdefault(name, []).append(entry)
        return self._barred.get(node, ())

    def target_of(self, volume: str) -> int:
        """The size that the Longhorn volume of that name is to grow to; 0 for none."""
        promise = self._growing.get(volume)
        return 0 if promise is None else promise.size_bytes

    def grows_on(self, disk_uuid: str) -> bool:
        return disk_uuid in self._growth

    def growing_by(self, disk_uuid: str) -> Iterable[tuple[str, int]]:
        """Volumes whose replicas on that disk may grow, and by how many bytes."""
        return [(volume, more) for (volume, _), more in self._growth.get(disk_uuid, {}).items()]

    def charged(self, namespace: str) -> int:
        """Bytes promised to that namespace without a pod that kube-scheduler chose a node for."""
        return self._charged[namespace]

    def growths(self) -> Collection[Promise]:
        """All that grows, a volume once."""
        return self._growing.values()

    # Indices

    def _link(self, promise: Promise) -> None:
        key, places = (promise.volume, promise.claimant), promise.places
        if promise.chance_at is not None or promise.until is not None:
            self._timed[key] = promise
        if promise.charged_to:
            self._charged[promise.charged_to] += promise.most_bytes
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
            self._bound_items.pop(node, None)

    def _unlink(self, promise: Promise, kept: Promise | None = None) -> None:
        """Out of the indices, but for the nodes where `kept` takes its place anyway."""
        key, places = (promise.volume, promise.claimant), promise.places
        self._timed.pop(key, None)
        if promise.charged_to:
            self._charged[promise.charged_to] -= promise.most_bytes
            if not self._charged[promise.charged_to]:
                del self._charged[promise.charged_to]
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
        self._bound_items.pop(node, None)
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
        self._stale_roaming.add(volume)
        self._roaming_sums, self._barred, self._special, self._is_roaming_plain = {}, None, None, None
        for promise in self._by_volume.get(volume, {}).values():
            for node in promise.nodes:
                self._bound_items.pop(node, None)

    def _merged(self, here: dict[_Key, Promise]) -> Iterator[PendingItem]:
        by_volume: dict[str, list[Promise]] = {}
        for promise in here.values():
            if promise.volume not in self._roaming or self._is_beside(promise):
                by_volume.setdefault(promise.volume, []).append(promise)
        for volume, members in by_volume.items():
            yield pending_item(volume, members)


def _is_offered(promise: Promise) -> bool:
    return promise.state is State.HELD and promise.kind is not Kind.GROWTH


def _keep(part: Ledger, promise: Promise, *, belongs: bool) -> None:
    """That part of a ledger has the promise as long as it belongs there."""
    if belongs:
        part.put(_AS_ENTERED[promise.state], promise)
    else:
        part.drop(Verb.FORGET, promise.volume, promise.claimant)
    part.chosen_changed.clear()  # only the whole ledger's are taken


def _next(verb: Verb, volume: str, claimant: str, promise: Promise | None) -> State:
    state = State.ABSENT if promise is None else promise.state
    found = NEXT.get((state, verb))
    if found is None:
        raise BugError(f"{verb.name} of {volume} {claimant} while {state.name}")
    return found
