"""What is pending for one question: all that is promised to others and may land beside the newcomer.

Some of it is bound to nodes, the rest roams: Longhorn may put it on any node that suits, each volume in as many places
at most as it has copies left to place.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from controller.allocator.promises.ledger import (
    Ledger,
    OneOf,
    PendingItem,
    Pile,
    Promise,
    RoamingItem,
    Source,
    pending_item,
    roaming_item,
)
from controller.allocator.promises.own import roaming_places
from controller.allocator.world.world import World
from controller.model.demand import VolumeDemand
from controller.model.longhorn import DEFAULT_NEEDS, DiskNeeds
from controller.rules.eligibility import EXT_LIMIT_BYTES


@dataclass(frozen=True, slots=True)
class Newcomer:
    """Who asks, as far as promises that do not count for everybody go. `serial` orders approvals of preemption."""

    pod_uid: str
    priority: int
    serial: float = float("inf")
    is_planning: bool = False  # the wake-up plans several pods together

    def meets(self, promise: Promise, *, is_local: bool) -> bool:
        """Whether that promise stands in this newcomer's way."""
        against = promise.against
        if against is None:
            return True
        if promise.claimant.endswith(":" + self.pod_uid) or (against.is_for_local and not is_local):
            return False
        if promise.source is Source.WAKE_PLAN:
            return self.is_planning
        if against.priority == self.priority:
            return against.serial < self.serial
        return against.priority > self.priority


class Pending:
    """What others may still take, as one question sees it. `own` are the keys of the asking pod's own volumes;
    `newcomer` None: what does not count for everybody does not count."""

    def __init__(
        self,
        world: World,
        ledger: Ledger,
        own: frozenset[str],
        newcomer: Newcomer | None = None,
        *,
        is_local: bool = True,
    ) -> None:
        self._world, self._ledger, self._own = world, ledger, own
        self.roamers = [entry for entry in ledger.roaming() if entry.item.volume not in own]
        self._extra: dict[str, list[PendingItem]] = {}
        self.kept: dict[str, list[PendingItem]] = {}  # by node, room that is not there yet and is kept all the same
        if newcomer is not None and ledger.limited():
            self._add_limited(newcomer, is_local)
        self.roaming_bytes = 0  # that may come to one node
        self._roaming: list[PendingItem] = []
        self.is_plain = True  # all that roams may lie on every plain disk
        for roamer in self.roamers:
            self._count(roamer)
        self._own_nodes = {node for volume in own for promise in ledger.of_volume(volume) for node in promise.nodes}
        self.of_others = len(self.roamers)  # the first ones; what is added is the pod's own

    def _add_limited(self, newcomer: Newcomer, is_local: bool) -> None:
        """What stands in this newcomer's way alone, where the volume is not promised for everybody anyway."""
        roaming = {entry.item.volume for entry in self.roamers}
        by_place: dict[tuple[str, str, bool], list[Promise]] = {}
        for promise in self._ledger.limited():
            is_kept = promise.source is Source.KEPT_ROOM
            if promise.volume in self._own or (promise.volume in roaming and not is_kept):
                continue
            if newcomer.meets(promise, is_local=is_local):
                for node in promise.nodes if isinstance(promise.places, OneOf) else ("",):
                    by_place.setdefault((node, promise.volume, is_kept), []).append(promise)
        for (node, volume, is_kept), promises in by_place.items():
            if is_kept:
                self.kept.setdefault(node, []).append(pending_item(volume, promises))
            elif not node:
                self.roamers.append(roaming_item(volume, promises))
            elif all(item.volume != volume for item in self._ledger.pile(node).items):
                self._extra.setdefault(node, []).append(pending_item(volume, promises))

    def add(self, roamer: RoamingItem) -> None:
        self.roamers.append(roamer)
        self._count(roamer)

    def _count(self, roamer: RoamingItem) -> None:
        self.roaming_bytes += roamer.item.size_bytes * roamer.per_node
        self._roaming += [roamer.item] * roamer.per_node
        self.is_plain = self.is_plain and not roamer.barred and is_plain(roamer.item)

    def bound_to(self, name: str) -> list[PendingItem]:
        """What is pending on that node and nowhere else, as far as its volume goes."""
        here = [item for item in self._ledger.pile(name).items if item.volume not in self._own]
        if name in self._extra:
            here += self._extra[name]
        return here

    def pile(self, name: str) -> Pile | None:
        """What is promised on that node, when that is all that is bound to it and nothing of it is the pod's own."""
        if name in self._own_nodes or name in self._extra:
            return None
        return self._ledger.pile(name)

    def on(self, name: str) -> list[PendingItem]:
        """All that may come to that node."""
        found = self.bound_to(name)
        for roamer in self.roamers:
            if name not in roamer.barred:
                found += [roamer.item] * roamer.per_node
        return found

    @property
    def roaming_items(self) -> Sequence[PendingItem]:
        """What may come to any node, when nothing that roams is barred from one, as often as it may."""
        return self._roaming

    def crowded(self, names: Collection[str]) -> list[str]:
        """Those of `names` on which something is pending that does not roam."""
        found = [name for name in self._ledger.nodes() if name in names]
        if self._extra:
            found += [name for name in self._extra if name in names]
        return found

    def has_others(self) -> bool:
        """Whether anything of other pods is pending anywhere."""
        if self._extra or self.of_others:
            return True
        return any(
            item.volume not in self._own for name in self._ledger.nodes() for item in self._ledger.pile(name).items
        )

    def bound_bytes(self, name: str) -> int:
        """No less than the bytes of `bound_to`, own volumes included."""
        total = self._ledger.pending_bytes(name)
        if name in self._extra:
            total += sum(item.size_bytes for item in self._extra[name])
        return total


def roamer_of(item: PendingItem, demand: VolumeDemand, world: World) -> RoamingItem:
    """Where Longhorn may put that volume's further copies."""
    places = roaming_places(world, demand, demand.copies)
    return RoamingItem(item, places.excluded, places.copies, places.per_node)


def item_of_demand(demand: VolumeDemand, now: float) -> PendingItem:
    return PendingItem(demand.key, demand.size_bytes, demand.required_bytes, demand.needs, True, now)


def is_plain(item: PendingItem) -> bool:
    return not item.required_bytes and item.size_bytes < EXT_LIMIT_BYTES and is_plain_need(item.needs)


def is_plain_need(needs: DiskNeeds) -> bool:
    """Whether nothing is asked for but room; the engine image is a matter of nodes, not of disks."""
    return needs is DEFAULT_NEEDS or (
        needs.data_engine == "v1"
        and not (needs.node_selector or needs.disk_selector or needs.topology)
        and needs.image is None
    )


def older_than(items: Iterable[PendingItem], since: float) -> list[PendingItem]:
    """Without the holds that are younger."""
    return [item for item in items if item.is_assumed or item.since <= since]
