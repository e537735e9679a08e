"""What is pending for one question: promises of others and replicas that Longhorn may place at any moment.

Some of it is bound to a node, the rest roams: Longhorn may put it on any node that suits, each volume in as many places
at most as it has copies left to place.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import Final

from controller.allocator.promises.awaited import awaited_replicas
from controller.allocator.promises.ledger import ANYWHERE, Ledger, Pile, Promise
from controller.allocator.world.world import World
from controller.model.demand import VolumeDemand
from controller.model.longhorn import DEFAULT_NEEDS, DiskNeeds
from controller.rules.affinity import Affinity, copies_per_node
from controller.rules.eligibility import EXT_LIMIT_BYTES

MOST_COPIES: Final = 20  # of a volume, by Longhorn


@dataclass(frozen=True, slots=True)
class Roamer:
    """A volume that may land on any node except the `barred` ones: `copies` times in all, `per_node` on one node."""

    promise: Promise
    barred: frozenset[str] = frozenset()
    copies: int = 1
    per_node: int = 1


class Pending:
    """What others may still take, as one question sees it. `own` are the keys of the asking pod's own volumes, `extra`
    promises by node that are not in the ledger."""

    def __init__(
        self,
        world: World,
        ledger: Ledger,
        own: frozenset[str],
        extra: Mapping[str, Sequence[Promise]] | None = None,
        now_utc: datetime | None = None,
    ) -> None:
        self._world, self._ledger, self._own = world, ledger, own
        self._extra = {
            name: others
            for name, promises in (extra or {}).items()
            if name != ANYWHERE and (others := [promise for promise in promises if promise.volume not in own])
        }
        self._bound: dict[str, list[Promise]] = {}  # replicas to come with a hard node affinity
        self.roamers = [
            self._roamer(promise)
            for promise in chain(ledger.promises(ANYWHERE), (extra or {}).get(ANYWHERE, ()))
            if promise.volume not in self._own
        ]
        self._add_awaited(now_utc)
        self.roaming_bytes = 0  # that may come to one node
        self._roaming: list[Promise] = []
        self.is_plain = True  # all that roams may lie on every plain disk
        for roamer in self.roamers:
            self._count(roamer)
        self._own_nodes = {key.node for volume in own for key, _ in ledger.of_volume(volume)}
        self.of_others = len(self.roamers)  # the first ones; what is added is the pod's own

    def add(self, roamer: Roamer) -> None:
        self.roamers.append(roamer)
        self._count(roamer)

    def _count(self, roamer: Roamer) -> None:
        self.roaming_bytes += roamer.promise.size_bytes * roamer.per_node
        self._roaming += [roamer.promise] * roamer.per_node
        self.is_plain = self.is_plain and not roamer.barred and is_plain(roamer.promise)

    def _roamer(self, promise: Promise) -> Roamer:
        """A roaming promise of the ledger; where nothing is known of its volume, the careful figures."""
        demand = self._world.demand_of(promise.volume)
        if demand is None:
            return Roamer(promise, frozenset(), MOST_COPIES)
        if demand.is_local:
            return Roamer(promise, self._world.barred_nodes(demand.volume))  # one of all nodes, not known which
        return roamer_of(promise, demand, self._world)

    def _add_awaited(self, now_utc: datetime | None) -> None:
        for entry in awaited_replicas(self._world, self._ledger, self._own, now_utc):
            if entry.node:
                self._bound.setdefault(entry.node, []).append(entry.promise)
            else:
                self.roamers.append(Roamer(entry.promise, entry.barred, entry.copies, entry.per_node))

    def bound_to(self, name: str) -> list[Promise]:
        """What is pending on that node and nowhere else, as far as its volume goes."""
        here = [promise for promise in self._ledger.promises(name) if promise.volume not in self._own]
        if name in self._bound or name in self._extra:
            here += [*self._bound.get(name, ()), *self._extra.get(name, ())]
        return here

    def pile(self, name: str) -> Pile | None:
        """What is promised on that node, when that is all that is bound to it and nothing of it is the pod's own."""
        if name in self._own_nodes or name in self._bound or name in self._extra:
            return None
        return self._ledger.pile(name)

    def on(self, name: str) -> list[Promise]:
        """All that may come to that node."""
        found = self.bound_to(name)
        for roamer in self.roamers:
            if name not in roamer.barred:
                found += [roamer.promise] * roamer.per_node
        return found

    @property
    def roaming_promises(self) -> Sequence[Promise]:
        """What may come to any node, when nothing that roams is barred from one, as often as it may."""
        return self._roaming

    def crowded(self, names: Collection[str]) -> list[str]:
        """Those of `names` on which something is pending that does not roam."""
        found = [name for name in self._ledger.nodes() if name in names]
        if self._bound or self._extra:
            found += [name for name in {*self._bound, *self._extra} if name in names]
        return found

    def has_others(self) -> bool:
        """Whether anything of other pods is pending anywhere."""
        if self._bound or self._extra or self.of_others:
            return True
        return any(
            promise.volume not in self._own for name in self._ledger.nodes() for promise in self._ledger.promises(name)
        )

    def bound_bytes(self, name: str) -> int:
        """No less than the bytes of `bound_to`, own volumes included."""
        total = self._ledger.pending_bytes(name)
        if not self._bound and not self._extra:
            return total
        for promises in (self._bound.get(name), self._extra.get(name)):
            if promises:
                total += sum(promise.size_bytes for promise in promises)
        return total


def roamer_of(promise: Promise, demand: VolumeDemand, world: World) -> Roamer:
    """Where Longhorn may put that volume's further copies."""
    affinity = Affinity.of(demand.facts, world.settings)
    copies = max(1, demand.copies)
    return Roamer(promise, world.barred_nodes(demand.volume), copies, copies_per_node(affinity, copies))


def promise_of_demand(demand: VolumeDemand, now: float) -> Promise:
    return Promise(demand.key, demand.size_bytes, demand.required_bytes, demand.needs, True, now)


def is_plain(promise: Promise) -> bool:
    return not promise.required_bytes and promise.size_bytes < EXT_LIMIT_BYTES and is_plain_need(promise.needs)


def is_plain_need(needs: DiskNeeds) -> bool:
    """Whether nothing is asked for but room; the engine image is a matter of nodes, not of disks."""
    return needs is DEFAULT_NEEDS or (
        needs.data_engine == "v1"
        and not (needs.node_selector or needs.disk_selector or needs.topology)
        and needs.image is None
    )


def older_than(promises: Iterable[Promise], since: float) -> list[Promise]:
    """Without the holds that are younger."""
    return [promise for promise in promises if promise.is_assumed or promise.since <= since]
