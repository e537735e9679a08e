"""What is pending for one question: all that is promised to others, and where it may land.

A pending item may land on every disk that passes Longhorn's rules, room included as far as Longhorn may still believe
in it. The *load* of a disk is the bytes of all pending items that may land there. Some items are bound to nodes, the
rest roams: Longhorn may put it on any node that suits, each volume as often on one disk as anti-affinity allows.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from typing import Final

from controller.allocator.promises.items import BoundItems, PendingItem, RoamingItem, pending_item, roaming_item
from controller.allocator.promises.ledger import Ledger
from controller.allocator.promises.own import roaming_places
from controller.allocator.promises.promise import OneOf, Promise, Source
from controller.allocator.promises.sums import Sums
from controller.allocator.world.world import World
from controller.model.longhorn import DEFAULT_NEEDS, DiskNeeds
from controller.rules.demand import VolumeDemand
from controller.rules.eligibility import (
    EXT_LIMIT_BYTES,
    DiskRoom,
    NodeRoom,
    check_disk_kind,
    check_node_tags,
    check_topology,
)

_CLOSED_BYTES: Final = 2**62  # more than any disk has
_FEW: Final = 6  # items that are gone through one by one


@dataclass(frozen=True, slots=True)
class Newcomer:
    """Who asks, as far as promises that do not count for everybody go. `serial` orders approvals of preemption."""

    pod_uid: str
    priority: int
    serial: float = float("inf")
    is_planning: bool = False  # the wake-up plans several pods together
    closed: frozenset[str] = frozenset()  # nodes on which nothing new is promised to it now

    def meets(self, promise: Promise, *, is_local: bool) -> bool:
        """Whether that promise limits this newcomer."""
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


@dataclass(frozen=True, slots=True)
class EvenLoad:
    """Bytes that may come to each disk, the largest item among them, and nodes to which some of them never come."""

    load_bytes: int
    largest_bytes: int
    barred: frozenset[str]


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
        self._own_roaming = [entry for volume in own if (entry := ledger.roaming_of(volume)) is not None]
        self._extra_roaming: list[RoamingItem] = []
        self._extra: dict[str, list[PendingItem]] = {}
        self._closed = newcomer.closed if newcomer is not None else frozenset[str]()
        self.kept: dict[str, list[PendingItem]] = {}  # by node, room that is kept although it is not free yet
        if newcomer is not None and ledger.limited():
            self._add_limited(newcomer, is_local)
        self._own_nodes = {node for volume in own for promise in ledger.of_volume(volume) for node in promise.nodes}
        self._suits: dict[tuple[Hashable, DiskNeeds], bool] = {}
        self._own_images: dict[str, set[str]] = {}  # by disk UUID
        self._young: list[RoamingItem] | None = None
        self._young_sums: dict[Hashable, Sums] = {}

    def _add_limited(self, newcomer: Newcomer, is_local: bool) -> None:
        """What stands in this newcomer's way alone, where the volume is not promised for everybody anyway."""
        by_place: dict[tuple[str, str, bool], list[Promise]] = {}
        for promise in self._ledger.limited():
            is_kept = promise.source is Source.KEPT_ROOM
            if promise.volume in self._own or (self._ledger.roams(promise.volume) and not is_kept):
                continue
            if newcomer.meets(promise, is_local=is_local):
                for node in promise.nodes if isinstance(promise.places, OneOf) else ("",):
                    by_place.setdefault((node, promise.volume, is_kept), []).append(promise)
        for (node, volume, is_kept), promises in by_place.items():
            if is_kept:
                self.kept.setdefault(node, []).append(pending_item(volume, promises))
            elif not node:
                self._extra_roaming.append(roaming_item(volume, promises))
            elif all(item.volume != volume for item in self._ledger.bound_items(node).items):
                self._extra.setdefault(node, []).append(pending_item(volume, promises))

    # Loads

    def loads(self, room: NodeRoom, *, roaming: bool = True) -> list[int]:
        """For each disk of the room, the pending bytes that may come there, with or without roaming volumes."""
        name = room.name
        bound = self._ledger.bound_items(name)
        here: Sequence[PendingItem] = ()
        sums = None
        if len(bound.items) > _FEW and name not in self._own_nodes and name not in self._extra and _is_plain(bound):
            sums = bound.sums  # many, and the same disks suit them all
        else:
            here = self.bound_to(name)
        found = []
        for disk in room.disks:
            images = set[str]()
            total = self._roaming_load(room, disk, images) if roaming else 0
            total += _CLOSED_BYTES if name in self._closed else 0
            if sums is not None and self._takes(room, disk, bound.items[0]):
                total += sums.upto(disk.reach_bytes)
            for item in here:
                if item.size_bytes <= disk.reach_bytes and self._takes(room, disk, item):
                    total += item.size_bytes
                    _note_image(images, item)
            found.append(total + self._image_bytes(images, disk) if images else total)
        return found

    def loads_by_disk(self, room: NodeRoom, *, roaming: bool = True) -> dict[str, int]:
        """The same, by the UUIDs of the disks."""
        return dict(zip((disk.uuid for disk in room.disks), self.loads(room, roaming=roaming), strict=True))

    def _image_bytes(self, names: set[str], disk: DiskRoom) -> int:
        """Bytes of backing images that come to the disk with the volumes that may come there."""
        others = names - self._own_images.get(disk.uuid, set())
        images = map(self._world.backing_images.get, others)
        known = (image for image in images if image is not None)
        return sum(image.real_size_bytes for image in known if self._world.lacks_image(image, disk.uuid))

    def own_image(self, disk_uuid: str, name: str) -> None:
        """That backing image counts on that disk with the asking pod's own volumes already."""
        self._own_images.setdefault(disk_uuid, set()).add(name)

    def _roaming_load(self, room: NodeRoom, disk: DiskRoom, images: set[str]) -> int:
        """`images` gets the names of backing images that come along."""
        reach = disk.reach_bytes
        sums = self._ledger.roaming_sums(disk.kind, lambda item: self._takes(room, disk, item))
        total, special = sums.upto(reach), self._ledger.special()
        if not total and not special and not self._extra_roaming:
            return 0
        for entry in self._ledger.barred_on(room.name):
            if entry.is_summed and entry.item.volume not in self._own:
                total -= self._bytes_on(room, disk, entry)
        for entry in self._own_roaming:
            if entry.is_summed:
                total -= self._bytes_on(room, disk, entry)
        for entry in (*special, *self._extra_roaming):
            if room.name not in entry.barred and entry.item.volume not in self._own:
                found = self._bytes_on(room, disk, entry)
                total += found
                if found:
                    _note_image(images, entry.item)
        return total

    def _bytes_on(self, room: NodeRoom, disk: DiskRoom, entry: RoamingItem) -> int:
        """What may come to that disk of something that roams."""
        found = entry.bytes_within(disk.reach_bytes)
        return found if found and self._takes(room, disk, entry.item) else 0

    def _takes(self, room: NodeRoom, disk: DiskRoom, item: PendingItem) -> bool:
        """Whether the disk suits the volume, whatever its room. Temporary states (a node that is not ready, a missing
        instance manager, little available space) are ignored: they may end before the volume is placed."""
        if item.size_bytes >= EXT_LIMIT_BYTES:
            return self._suits_disk(room, disk, item.needs, item.size_bytes)
        key = disk.kind, item.needs
        found = self._suits.get(key)
        if found is None:
            found = self._suits[key] = self._suits_disk(room, disk, item.needs, item.size_bytes)
        return found

    def _suits_disk(self, room: NodeRoom, disk: DiskRoom, needs: DiskNeeds, size_bytes: int) -> bool:
        space = self._world.settings.space
        if check_disk_kind(disk, needs, size_bytes, space) is not None or not check_node_tags(room.tags, needs, space):
            return False
        node = self._world.nodes.get(room.name)
        return not needs.topology or (node is not None and check_topology(node, needs) is None)

    def younger(self, room: NodeRoom, since: float) -> list[int]:
        """As `loads`, of holds alone that were made after `since`. Where they may be bound to a node, or barred from
        it, it may be more."""
        here = [item for item in self.bound_to(room.name) if item.is_young(since)]
        roaming = self._young_roaming(since)
        found = []
        for disk in room.disks:
            total = 0
            if roaming:
                sums = self._young_sums.get(disk.kind)
                if sums is None:
                    suits = (one for one in roaming if self._takes(room, disk, one.item))
                    sums = self._young_sums[disk.kind] = Sums(
                        (one.item.size_bytes, one.item.size_bytes) for one in suits
                    )
                total = sums.upto(disk.reach_bytes)
            for item in here:
                if item.size_bytes <= disk.reach_bytes and self._takes(room, disk, item):
                    total += item.size_bytes
            found.append(total)
        return found

    def _young_roaming(self, since: float) -> list[RoamingItem]:
        """Each question asks with one `since`."""
        if self._young is None:
            self._young = [one for one in self.roaming() if one.item.is_young(since)]
        return self._young

    @property
    def roams(self) -> bool:
        """Whether anything of others is bound to no node."""
        return bool(self._extra_roaming) or len(self._ledger.roaming()) > len(self._own_roaming)

    def most_roaming(self) -> tuple[Sums, bool]:
        """No less than what roams and may come to any one disk; and whether it is just that for a disk that takes plain
        volumes, on whatever node."""
        sums, special = self._ledger.roaming_sums("any", lambda _item: True), self._ledger.special()
        more = [one for one in (*special, *self._extra_roaming) if one.item.volume not in self._own]
        is_exact = not more and self._ledger.is_roaming_plain(is_plain)
        own = [one.item.size_bytes for one in self._own_roaming if one.is_summed]
        if own:
            sums = sums.without((size, size) for size in own)
        if more:
            sums = sums.with_more((one.item.size_bytes, self.most_on_a_disk(one)) for one in more)
        return sums, is_exact

    def most_on_a_disk(self, entry: RoamingItem) -> int:
        """No less than what may come to one disk of that, and with it."""
        return entry.item.size_bytes * entry.per_disk + self.image_bytes(entry.item)

    def image_bytes(self, item: PendingItem) -> int:
        """Bytes of the backing image that comes with the item to disks without a copy."""
        image = self._world.backing_images.get(item.needs.image.name) if item.needs.image is not None else None
        return image.real_size_bytes if image is not None else 0

    def older_roaming(self, since: float) -> Sums | None:
        """As `most_roaming` where that is exact, without holds made after `since`; None without any such."""
        items = [one.item for one in self._ledger.roaming() if one.item.volume not in self._own]
        older = [item for item in items if not item.is_young(since)]
        return Sums((item.size_bytes, item.size_bytes) for item in older) if len(older) < len(items) else None

    def even_load(self) -> EvenLoad | None:
        """What roams, where it burdens all disks alike that take plain volumes and that its largest part may reach;
        None where some of it is not plain. Costs: a look at all that roams."""
        entries = self.roaming()
        if not all(one.is_summed and one.item.size_bytes < EXT_LIMIT_BYTES for one in entries):
            return None
        if not all(is_plain_need(one.item.needs) for one in entries):
            return None
        sizes = [one.item.size_bytes for one in entries]
        barred = frozenset[str]().union(*(one.barred for one in entries))
        return EvenLoad(sum(sizes), max(sizes, default=0), barred)

    def roaming(self) -> list[RoamingItem]:
        """What roams and is not the pod's own."""
        entries = (*self._ledger.roaming(), *self._extra_roaming)
        return [entry for entry in entries if entry.item.volume not in self._own]

    @property
    def allows_no_excess(self) -> bool:
        """Whether a local volume may have been offered any node."""
        return self._ledger.has_unbound_local()

    def allows_excess(self, room: NodeRoom) -> bool:
        """Whether nothing is pending on that node that can only be placed there: no growth and no local volume,
        including those that may have been offered any node."""
        if self.allows_no_excess or self.bound_to(room.name):
            return False
        return not any(self._ledger.grows_on(disk.uuid) for disk in room.disks)

    # By node

    def bound_to(self, name: str) -> list[PendingItem]:
        """What is pending on that node and nowhere else, as far as its volume goes."""
        here = [item for item in self._ledger.bound_items(name).items if item.volume not in self._own]
        if name in self._extra:
            here += self._extra[name]
        return here

    def on(self, name: str) -> list[PendingItem]:
        """All that may come to that node."""
        roaming = (*self._ledger.roaming(), *self._extra_roaming)
        found = self.bound_to(name)
        for entry in roaming:
            if name not in entry.barred and entry.item.volume not in self._own:
                found += [entry.item] * entry.per_disk
        return found

    def occupied(self, names: Collection[str]) -> list[str]:
        """Those of `names` on which something is pending that does not roam, or nothing new is promised."""
        found = [name for name in self._ledger.nodes() if name in names]
        if self._extra:
            found += [name for name in self._extra if name in names]
        if self._closed:
            found += [name for name in self._closed if name in names]
        return found

    def has_others(self) -> bool:
        """Whether anything of other pods is pending anywhere."""
        if self._extra or self._closed or self.roams:
            return True
        return any(
            item.volume not in self._own
            for name in self._ledger.nodes()
            for item in self._ledger.bound_items(name).items
        )

    def bound_bytes(self, name: str) -> int:
        """No less than the bytes of `bound_to`, own volumes included."""
        total = self._ledger.pending_bytes(name)
        if name in self._extra:
            total += sum(item.size_bytes for item in self._extra[name])
        return total

    @property
    def roaming_bytes(self) -> int:
        """No less than what may come to one disk of all that roams, own volumes included."""
        return sum(map(self.most_on_a_disk, (*self._ledger.roaming(), *self._extra_roaming)))


def roaming_item_of(item: PendingItem, demand: VolumeDemand, world: World) -> RoamingItem:
    """Where Longhorn may put that volume's further copies."""
    places = roaming_places(world, demand, demand.copies)
    return RoamingItem(
        item, places.excluded, places.copies, places.per_disk, places.by_zone, shares_nodes=places.shares_nodes
    )


def item_of_demand(demand: VolumeDemand) -> PendingItem:
    return PendingItem(demand.key, demand.size_bytes, demand.required_bytes, demand.needs, True, -math.inf)


def is_plain(entry: RoamingItem) -> bool:
    """Whether every disk that takes plain volumes may get it, on every node."""
    return not entry.barred and entry.item.size_bytes < EXT_LIMIT_BYTES and is_plain_need(entry.item.needs)


def _note_image(names: set[str], item: PendingItem) -> None:
    if item.needs.image is not None:
        names.add(item.needs.image.name)


def _is_plain(bound: BoundItems) -> bool:
    return bound.largest_bytes < EXT_LIMIT_BYTES and all(map(is_plain_need, bound.needs))


def is_plain_demand(world: World, demand: VolumeDemand) -> bool:
    """Whether the volume is new and every disk with room for it that takes plain volumes takes it."""
    return (
        not world.replicas_of(demand.volume)
        and not demand.required_bytes
        and demand.clone_disks is None
        and demand.size_bytes < EXT_LIMIT_BYTES
        and is_plain_need(demand.needs)
        and demand.image is None
    )


def is_plain_need(needs: DiskNeeds) -> bool:
    """Whether nothing is asked for but room; the engine image is a matter of nodes, not of disks."""
    return needs is DEFAULT_NEEDS or (
        needs.data_engine == "v1"
        and not (needs.node_selector or needs.disk_selector or needs.topology)
        and needs.image is None
    )
