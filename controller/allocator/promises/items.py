"""What is pending, seen by volume: the promises of one volume taken together, however many claimants it has."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from controller.allocator.promises.promise import OnDisks, Promise, Roams, Source, State
from controller.allocator.promises.sums import Sums
from controller.model.longhorn import DiskNeeds

_NO_NODES: Final[frozenset[str]] = frozenset()


class PendingItem(NamedTuple):
    """A volume's promise on a node, its claimants taken together."""

    volume: str
    size_bytes: int
    required_bytes: int
    needs: DiskNeeds
    is_assumed: bool
    young_at: float  # since when it may be about to resolve

    def is_young(self, since: float) -> bool:
        """Whether it was offered after that moment, so that a choice may show soon."""
        return not self.is_assumed and self.young_at > since


@dataclass(frozen=True, slots=True)
class RoamingItem:
    """A volume that may land on any node except the `barred` ones: `copies` times in all, `per_disk` on one disk."""

    item: PendingItem
    barred: frozenset[str] = _NO_NODES
    copies: int = 1
    per_disk: int = 1
    by_zone: bool = False  # each copy in a zone of its own
    is_local: bool = False  # one of all nodes is the one
    shares_nodes: bool = False  # several copies may lie on one node

    @property
    def is_summed(self) -> bool:
        """Whether it counts by its size alone, once on each disk that it may come to."""
        return self.per_disk == 1 and self.item.needs.image is None

    def bytes_within(self, room_bytes: int) -> int:
        """What may come to one disk that has so much room: Longhorn counts replicas of the same volume at once."""
        size = self.item.size_bytes
        if size > room_bytes:
            return 0
        return size if self.per_disk == 1 or not size else size * min(self.per_disk, room_bytes // size)


class BoundItems(NamedTuple):
    """All that is promised on one node, and sums of it."""

    items: tuple[PendingItem, ...]
    largest_bytes: int
    needs: frozenset[DiskNeeds]
    sums: Sums


def pending_item(volume: str, promises: Collection[Promise]) -> PendingItem:
    """The promises of one volume as one."""
    largest = max(promises, key=lambda promise: promise.size_bytes)
    return PendingItem(
        volume=volume,
        size_bytes=largest.size_bytes,
        required_bytes=max(promise.required_bytes for promise in promises),
        needs=largest.needs,
        is_assumed=any(promise.state is State.ASSUMED for promise in promises),
        young_at=max((one.since for one in promises if one.source is not Source.FORMER), default=-math.inf),
    )


def roaming_item(volume: str, promises: Collection[Promise]) -> RoamingItem:
    """The promises of one volume that are bound to no node as one."""
    barred, copies, per_disk, by_zone, is_local, shares_nodes = None, 1, 1, False, False, False
    for promise in promises:
        places = promise.places
        if isinstance(places, OnDisks):
            continue
        barred = places.excluded if barred is None else barred & places.excluded
        if isinstance(places, Roams):
            copies, per_disk = max(copies, places.copies), max(per_disk, places.per_disk)
            by_zone, shares_nodes = by_zone or places.by_zone, shares_nodes or places.shares_nodes
        else:
            is_local = True
    item = pending_item(volume, promises)
    return RoamingItem(item, barred or _NO_NODES, copies, per_disk, by_zone, is_local, shares_nodes)


def bound_items_of(found: Iterable[PendingItem]) -> BoundItems:
    items = tuple(found)
    return BoundItems(
        items=items,
        largest_bytes=max((item.size_bytes for item in items), default=0),
        needs=frozenset(item.needs for item in items),
        sums=Sums((item.size_bytes, item.size_bytes) for item in items),
    )
