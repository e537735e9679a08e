"""Places that were given by name to a replica or a copy of a backing image, and that Longhorn does not show yet.

They resemble the leader's own writes: the world shows the copy where it will lie, so that nobody who asks what a disk
holds, or where a volume lies, need know of them. But somebody else writes the object, at any later time. A given place
stands as long as the replica waits for a disk, or the image exists without that copy; whoever asks again is told the
same. The record of allocations consists of them, and a new leader reads them there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from msgspec.structs import replace as replace_entry

from controller.allocator.outcome import PlaceWrite
from controller.allocator.plans.plan import Hold
from controller.allocator.plans.table import Table
from controller.allocator.world.world import World
from controller.model.allocations import Allocation, Purpose
from controller.model.longhorn import BackingImage, LonghornNode, Replica

WRITTEN_SECONDS: Final = 30.0  # within which a caller writes the place that it was told


@dataclass(slots=True)
class OwnWrite:
    """A place that the leader decided on and that is not known to be stored. `shown`: the Replica as the watch has it.
    `holds`: the answers that held a place for its volume."""

    write: PlaceWrite
    shown: Replica
    holds: Sequence[Hold] = ()

    def placed(self) -> Replica:
        where = self.write.place
        return replace(self.shown, node=where.node, disk_uuid=where.disk_uuid)


@dataclass(slots=True)
class GivenPlace:
    """A place that was given by name. `holds`: the answers that held a place for the replica's volume. `is_told`: a
    caller knows it. `is_leaving`: it was freed, and counts until the record shows that."""

    allocation: Allocation
    holds: Sequence[Hold] = ()
    is_told: bool = False
    is_leaving: bool = False


class Given:
    """All places that were given by name. Threads: none of its own; the allocator's lock guards it."""

    def __init__(self, world: World, table: Table) -> None:
        self._world, self._table = world, table
        self.is_authority = False  # whether those who place replicas ask for the place
        self.switches = 0  # how often that changed
        self._until = math.inf  # when all of them end, in monotonic seconds, since nobody asks for places any more
        self._replicas: dict[str, GivenPlace] = {}
        self._copies: dict[str, dict[str, GivenPlace]] = {}  # by image and UUID of the disk
        self._shown: dict[str, Replica] = {}  # as the watch has them, of those replicas
        self._images: dict[str, BackingImage] = {}  # and of the images with such copies

    # Look-ups

    def all(self) -> list[GivenPlace]:
        """Return all given places. Costs: a look at each."""
        return [*self._replicas.values(), *(one for members in self._copies.values() for one in members.values())]

    def replica(self, name: str) -> Allocation | None:
        given = self._replicas.get(name)
        return given.allocation if given is not None else None

    def copies(self, image: str) -> list[Allocation]:
        """Return the given copies of that image, also those that are leaving."""
        return [given.allocation for given in self._copies.get(image, {}).values()]

    def at(self, one: Allocation) -> GivenPlace | None:
        """Return what is given under that name on that disk."""
        if one.purpose is Purpose.BACKING_IMAGE:
            return self._copies.get(one.name, {}).get(one.disk_uuid)
        given = self._replicas.get(one.name)
        return given if given is not None and given.allocation.disk_uuid == one.disk_uuid else None

    def is_leaving(self, one: Allocation) -> bool:
        given = self.at(one)
        return given is not None and given.is_leaving

    def stands(self, one: Allocation) -> bool:
        """Whether that copy lies on that disk, or is to, and is not leaving."""
        if one.purpose is Purpose.REPLICA:
            replica = self._world.replicas.get(one.name)
            is_there = replica is not None and replica.disk_uuid == one.disk_uuid
        else:
            image = self._world.backing_image(one.name)
            is_there = image is not None and image.names_disk(one.disk_uuid)
        return is_there and not self.is_leaving(one)

    def volume_of(self, one: Allocation) -> str:
        """Return the volume whose copy that is; "" for a copy of an image."""
        replica = self._world.replicas.get(one.name) if one.purpose is Purpose.REPLICA else None
        return replica.volume if replica is not None else ""

    def is_on_its_disk(self, one: Allocation) -> bool:
        """Whether its node shows that disk."""
        return one.node in self._world.nodes_of_disk(one.disk_uuid)

    def shown_replica(self, name: str) -> Replica | None:
        """Return the Replica as Longhorn shows it."""
        return self._shown.get(name) or self._world.replicas.get(name)

    def shown_image(self, name: str) -> BackingImage | None:
        """Return the BackingImage as Longhorn shows it."""
        return self._images.get(name) or self._world.backing_image(name)

    # What the watch shows

    def show_replica(self, name: str, facts: Replica | None) -> Replica | None:
        """Take an event of a Replica; return the Replica as the world is to show it."""
        given, shown = self._replicas.get(name), self._shown.get(name)
        if given is None or shown is None:
            return facts
        if facts is None or facts.uid != shown.uid or facts.node or facts.failed_at or facts.deleting:
            del self._replicas[name], self._shown[name]
            return facts
        self._shown[name] = facts
        one = given.allocation
        size = max(one.size_bytes, facts.size_bytes)
        return replace(facts, node=one.node, disk_uuid=one.disk_uuid, size_bytes=size)

    def show_image(self, name: str, facts: BackingImage | None) -> BackingImage | None:
        """Take an event of a BackingImage; return the image as the world is to show it."""
        is_sized = facts is not None and facts.real_size_bytes > 0
        shown = facts.disk_uuids if facts is not None and is_sized else frozenset[str]()  # they count by themselves
        members = self._copies.pop(name, {})
        left = {uuid: given for uuid, given in members.items() if uuid not in shown}
        self._images.pop(name, None)
        if facts is None or not left:
            return facts
        self._copies[name], self._images[name] = left, facts
        size = max(facts.real_size_bytes, *(given.allocation.size_bytes for given in left.values()))
        return replace(facts, disk_uuids=facts.disk_uuids | left.keys(), real_size_bytes=size)

    # Changes

    def move(self, old: LonghornNode | None, new: LonghornNode | None) -> set[str]:
        """Move what is given on disks that came to a node, or left it, along with them; return the claims that this
        touches."""
        places, touched = self.all(), set[str]()
        if not places:
            return touched
        uuids = [{disk.uuid for disk in node.disks} if node is not None else set[str]() for node in (old, new)]
        moved = uuids[0] ^ uuids[1]
        for given in places if moved else ():
            one = given.allocation
            holders = self._world.nodes_of_disk(one.disk_uuid) if one.disk_uuid in moved else ()
            if holders and one.node not in holders:
                touched |= self._put(replace(given, allocation=replace_entry(one, node=holders[-1])))
        return touched

    def give(self, one: Allocation, *, is_told: bool = False) -> None:
        """Let that place count from now on, instead of what the replica, or the copy on that disk, had. It is told if
        it was told before."""
        former, replica = self.at(one), self.shown_replica(one.name) if one.purpose is Purpose.REPLICA else None
        holds = former.holds if former is not None else self._table.holding(replica.volume) if replica else ()
        self._put(GivenPlace(one, holds, is_told or (former is not None and former.is_told)))

    def _put(self, given: GivenPlace) -> set[str]:
        one = given.allocation
        if one.purpose is Purpose.BACKING_IMAGE:
            self._copies.setdefault(one.name, {})[one.disk_uuid] = given
            return self._world.put_backing_image(one.name, self.show_image(one.name, self.shown_image(one.name)))
        shown = self.shown_replica(one.name)
        if shown is None:
            return set()
        self._replicas[one.name], self._shown[one.name] = given, shown
        return self._world.put_replica(one.name, self.show_replica(one.name, shown))

    def take_back(self, one: Allocation) -> None:
        """Let that place count no more; its volume's places are held again where pods still wait. Idempotent."""
        given = self.at(one)
        if given is None:
            return
        if one.purpose is Purpose.REPLICA:
            del self._replicas[one.name]
            shown = self._shown.pop(one.name)
            self._table.hold_again(shown.volume, given.holds)
            self._world.put_replica(one.name, shown)
        else:
            image = self.shown_image(one.name)
            del self._copies[one.name][one.disk_uuid]
            self._world.put_backing_image(one.name, self.show_image(one.name, image))

    def leave(self, one: Allocation) -> None:
        """Free that place. Its bytes are free once the record lacks it: else the next leader would find it there beside
        what others were given."""
        given = self.at(one)
        if given is not None:
            given.is_leaving = True

    def switch(self, now: float, *, is_authority: bool) -> None:
        """Note whether places are asked for from now on. If not, what was told stands a while: it may still come."""
        if is_authority is not self.is_authority:
            self.is_authority, self.switches = is_authority, self.switches + 1
            self._until = math.inf if is_authority else now + WRITTEN_SECONDS

    def over(self, now: float) -> list[Allocation]:
        """Return the places that end because nobody has asked for places for so long."""
        return [given.allocation for given in self.all()] if self._until <= now else []

    def clear(self) -> None:
        """Take all places back."""
        for given in self.all():
            self.take_back(given.allocation)

    def left(self, node: str, there: Iterable[Allocation]) -> list[Allocation]:
        """Return what is leaving that node and is not `there` on its record any more."""
        leaving = [given.allocation for given in self.all() if given.is_leaving]
        keys = {one.key for one in there} if leaving else set()
        return [one for one in leaving if one.node == node and one.key not in keys]
