"""The record of allocations as the allocator has it: what it is to show, and what a new leader takes from it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final

from msgspec.structs import replace as replace_entry

from controller.allocator.plans.given import Given
from controller.allocator.plans.growths import Growths
from controller.allocator.verbs.grow import Expansions
from controller.allocator.world.world import World
from controller.model.allocations import Allocation, Purpose
from controller.model.longhorn import BackingImage
from controller.rules.expandable import Route
from controller.rules.locality import bound_to

REUSED_SECONDS: Final = 90.0  # until a failed replica shows that it comes back, or does not


class OnRecord:
    """The allocator's part for the record's keeper. It has what lies on disks by Longhorn's objects, at the size that
    it may grow to, and what is given there by name.

    Threads: any; those that end in `_locked` with the allocator's lock held. Blocks: never. I/O: none.
    """

    def __init__(
        self,
        lock: threading.Condition,
        world: World,
        given: Given,
        growths: Growths,
        expansions: Expansions,
        settle: Callable[[str], None],
    ) -> None:
        """`settle`: as for `Allocations`."""
        self._lock, self._world, self._given = lock, world, given
        self._growths, self._expansions, self._settle = growths, expansions, settle
        self._renewed = world.listen_to_rooms()

    def of_nodes(self, nodes: Iterable[str]) -> dict[str, tuple[Allocation, ...]]:
        """What each of these nodes' records is to have: what lies on its disks, at the size that it may grow to, and
        what is given there. Costs: a look at each replica there."""
        with self._lock:
            images = list(self._world.backing_images.values())
            given = (one.allocation for one in self._given.all())
            away = [one for one in given if not self._world.nodes_of_disk(one.disk_uuid)]
            found: dict[str, tuple[Allocation, ...]] = {}
            for name in nodes:
                entries = (*self._entries(name, images), *(one for one in away if one.node == name))
                found[name] = tuple(sorted(one for one in entries if not self._given.is_leaving(one)))
            return found

    def _entries(self, name: str, images: Collection[BackingImage]) -> Iterator[Allocation]:
        node = self._world.nodes.get(name)
        for uuid in {disk.uuid for disk in node.disks if disk.uuid} if node is not None else ():
            holders = self._world.nodes_of_disk(uuid)
            for one in self._world.counted_on(uuid):
                if name == (one.node if one.node in holders else holders[-1]):
                    yield Allocation(Purpose.REPLICA, one.name, name, uuid, one.size_bytes)
            for image in images:  # Longhorn names disks by UUID alone: it counts on each that has it
                if image.names_disk(uuid):
                    yield Allocation(Purpose.BACKING_IMAGE, image.name, name, uuid, image.real_size_bytes)

    def take_changed(self) -> set[str]:
        """Nodes on which anything is another since the last call. Costs: a copy of their names."""
        with self._lock:
            found = self._renewed.copy()
            self._renewed.clear()
            return found

    def leaving(self) -> set[str]:
        """Nodes with something that was freed and may be on their records still. Costs: a look at each given place."""
        with self._lock:
            return {one.allocation.node for one in self._given.all() if one.is_leaving}

    def written(self, node: str, there: Collection[Allocation]) -> None:
        """That is on record of the node. What is leaving, and is not among it, is gone. Costs: a look at each."""
        with self._lock:
            for one in self._given.left(node, there):
                self._given.take_back(one)
                self._settle(self._given.volume_of(one))

    def waiting(self) -> int:
        """How many places are given that no object shows yet. Costs: a look at each."""
        with self._lock:
            return len(self._given.all())

    # A new leader

    def inherit_locked(self, entries: Collection[Allocation]) -> None:
        """What the leader before has given, as it is on record: what no object shows yet stands. Costs: a look at each
        entry."""
        counted = entries if self._given.is_authority else ()
        for one in sorted(counted, key=lambda one: (not self._given.is_on_its_disk(one), one)):
            if one.purpose is Purpose.BACKING_IMAGE:
                self._inherit_copy(one)
            elif self._given.replica(one.name) is None:
                self._inherit(one)

    def _inherit(self, one: Allocation) -> None:
        replica = self._world.replicas.get(one.name)
        if replica is None or replica.node or replica.failed_at or replica.deleting:
            return
        volume = self._world.volume(replica.volume)
        most_bytes = max(replica.size_bytes, volume.size_bytes if volume is not None else 0)
        here = self._followed(one, most_bytes)
        if volume is None or bound_to(volume, replica.hard_node_affinity) in ("", here.node):
            self._given.give(here, is_told=True)

    def _inherit_copy(self, one: Allocation) -> None:
        """One that has gone meanwhile counts until somebody frees it: the image does not tell it from one to come."""
        image = self._given.shown_image(one.name)
        if image is None or one.disk_uuid in image.disk_uuids:
            return
        most_bytes = image.real_size_bytes
        if not most_bytes:  # as large as its caller said, and no larger than the disk on which it was given
            disks = [
                disk for name in self._world.nodes_of_disk(one.disk_uuid) for disk in self._world.nodes[name].disks
            ]
            most_bytes = max((disk.maximum_bytes for disk in disks if disk.uuid == one.disk_uuid), default=0)
            if one.size_bytes > most_bytes:
                return
        self._given.give(self._followed(one, most_bytes), is_told=True)

    def _followed(self, one: Allocation, most_bytes: int) -> Allocation:
        """On the node where its disk is now, and no larger than a leader can have given it: whoever may write the
        record could close a node by it otherwise."""
        holders = self._world.nodes_of_disk(one.disk_uuid)
        node = one.node if one.node in holders or not holders else holders[-1]
        return replace_entry(one, node=node, size_bytes=min(one.size_bytes, most_bytes))

    def inherit_growth_locked(self, entries: Collection[Allocation]) -> None:
        """What the leader before has granted, as it is on record: as much of it as still fits. Costs: a look at each
        entry, and as an expansion's verdict for each volume that grows."""
        sizes: dict[str, int] = {}
        for one in entries if self._given.is_authority else ():
            replica = self._world.replicas.get(one.name) if one.purpose is Purpose.REPLICA else None
            if replica is not None and replica.is_placed and replica.disk_uuid == one.disk_uuid:
                sizes[replica.volume] = max(one.size_bytes, sizes.get(replica.volume, 0))
        for volume, size in sizes.items():
            if volume in self._world.volumes and size > self._growths.granted(volume):
                plan = self._expansions.plan_locked(volume, size, Route.VOLUME)
                if not plan.obstacles:
                    self._expansions.grant_locked(volume, size)

    # Time

    def sweep_locked(self, now: float) -> None:
        """End what nobody writes any more, and forget failed replicas that were to come back. Costs: a look at each."""
        for one in self._given.over(now):
            volume = self._given.volume_of(one)
            self._given.take_back(one)
            self._settle(volume)
        reused = self._world.reused
        for name in [name for name, since in reused.items() if now - since >= REUSED_SECONDS]:
            del reused[name]
