"""What one volume finds beside all that others have: the disk that a call gives it, and what is told of all disks.

Others have what plans and holds take for them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from heapq import nlargest
from itertools import islice
from types import MappingProxyType
from typing import Self

from controller.allocator.choose.choose import Chooser, Chosen
from controller.allocator.choose.explain import DiskFigures, explain
from controller.allocator.choose.wanted import Taken, Wanted, asked_of, image_bytes, replica_to_come, view_of
from controller.allocator.outcome import Obstacle
from controller.allocator.world.world import World
from controller.model.longhorn import Disk, Replica, Volume
from controller.model.places import MOST_BYTES, Place
from controller.model.quantity import bytes_text
from controller.rules.affinity import Affinity, Try, Usage
from controller.rules.candidates import Candidate, PlacementView, check_search, needs_of, reached_nodes
from controller.rules.eligibility import check_disk_kind, check_disk_state, check_node_for, repeated
from controller.rules.preference import narrows_to_attach_node
from controller.rules.reasons import Reason, Refusal, Rejection

_Disk = tuple[str, str]  # node and UUID


@dataclass(frozen=True, slots=True)
class FoundDisk:
    """A disk that would take the replica. `free_bytes`: what is left of it for newcomers, this one included, beside the
    `promised_bytes` that plans and holds of others take."""

    node: str
    disk: str
    uuid: str
    free_bytes: int
    promised_bytes: int


@dataclass(frozen=True, slots=True)
class FoundDisks:
    """All disks that would take a replica of `size_bytes`, the one that it is given, and why not the others. `tried`:
    which group of nodes decided. `more`: how many obstacles there are beside those."""

    size_bytes: int
    disks: tuple[FoundDisk, ...] = ()
    preferred: FoundDisk | None = None
    obstacles: tuple[Obstacle, ...] = ()
    tried: Try | None = None
    more: int = 0


class BesideOthers:
    """One volume beside what others have, at one moment of the world; make a new one for each question."""

    def __init__(
        self,
        world: World,
        volume: Volume,
        taken: Taken,
        planned: Collection[Place] = (),
        now_utc: datetime | None = None,
        closed: Mapping[str, str] = MappingProxyType({}),
        *,
        among: frozenset[_Disk] | None = None,
    ) -> None:
        """`taken`: by others. `planned`: places that are planned for this volume, or held for it. `closed`: nodes by
        name, and disks by UUID, that take nothing, with the reason, which is not one of Longhorn's. `among`: the disks
        that may be chosen; None: all."""
        world.refresh()
        self._world, self._volume, self._taken, self._planned = world, volume, taken, planned
        self._now_utc, self._closed, self._among = now_utc, closed, among
        self._image = world.backing_image(volume.backing_image)

    def tries(self) -> Iterator[Self]:
        """What a call looks at, one after the other, until a disk is found: the volume's own places, then all disks.
        This is the last.

        Where Longhorn wants a copy on the attach node before all others, its places elsewhere do not count."""
        volume, places = self._volume, self._planned
        replicas = self._world.replicas_of(volume.name).values()
        if volume.node_id and narrows_to_attach_node(volume, replicas, self._world.settings.behaviour):
            places = [one for one in places if one.node == volume.node_id]
        if places:
            among = frozenset((one.node, one.disk_uuid) for one in places)
            parts = self._world, volume, self._taken, places, self._now_utc, self._closed
            yield type(self)(*parts, among=among)
        yield self

    # As `choose` asks

    def wanted(self, asked: Replica) -> Wanted:
        only = None if self._among is None else frozenset(node for node, _ in self._among)
        return Wanted(self._volume, asked, only=only)

    def choose(self, chooser: Chooser, asked: Replica) -> Chosen:
        """The disk that a call gives to `asked`. Costs: as `Chooser.choose`, for each of the tries."""
        chosen = (chooser.choose(view.wanted(asked), view, self._now_utc) for view in self.tries())
        return next((one for one in chosen if one.place is not None), Chosen())

    def taken_bytes(self, node: str, disk_uuid: str) -> int:
        """Bytes of that disk that others have; all of it where it may not be chosen."""
        if node in self._closed or disk_uuid in self._closed:
            return MOST_BYTES
        if self._among is not None and (node, disk_uuid) not in self._among:
            return MOST_BYTES
        return self._taken.taken_bytes(node, disk_uuid)

    # What is told

    def find(self, asked: Replica, chooser: Chooser) -> FoundDisks:
        """For `asked`, which may be one that does not exist yet: all disks that would take it, why not the others, and
        which one it is given."""
        told = self.told(asked)
        for view in self.tries():
            place = chooser.choose(view.wanted(asked), view, self._now_utc).place
            if place is None:
                continue
            given = told if view is self else view.told(asked)
            preferred = next(one for one in given.disks if (one.node, one.uuid) == (place.node, place.disk_uuid))
            there = {(one.node, one.disk) for one in given.disks}
            disks = (*given.disks, *(one for one in told.disks if (one.node, one.disk) not in there))
            obstacles = tuple(one for one in told.obstacles if (one.node, one.disk) not in there)
            return FoundDisks(told.size_bytes, disks, preferred, obstacles, given.tried)
        return told

    def find_nearest(self, asked: Replica, chooser: Chooser, most: int) -> FoundDisks:
        """As `find`, where no disk takes it: obstacles are told of the nodes with the `most` disks that have most room,
        plans aside, and of those with replicas of the volume. A text with its figures for each disk of thousands costs
        far more than to see that none takes it."""
        if self.choose(chooser, asked).place is not None:
            return self.find(asked, chooser)
        world, wanted = self._world, self.wanted(asked)
        view = view_of(world, wanted, self._now_utc, world.engines)
        replica = asked_of(view, wanted)
        reached = [name for name in reached_nodes(view, self._volume, replica) if name not in self._closed]
        rooms = [room for name in reached if (room := world.room(name)) is not None]
        disks = ((disk.free_bytes, room.name) for room in rooms for disk in room.disks)
        near = {name for _, name in nlargest(most, disks)}
        near.update(islice((name for name in world.nodes if name not in near), max(0, most - len(near))))
        uuids = {one.disk_uuid for one in view.replicas if one.disk_uuid}
        own = {one.node for one in view.replicas}.union(*(world.nodes_of_disk(uuid) for uuid in uuids))
        near |= own & world.nodes.keys()
        found = self.told(asked, near)
        if check_search(self._volume, replica, view.backing_image) is not None:
            return found
        obstacles = sum(len(world.nodes[name].disks) or 1 for name in reached if name not in near)
        closed = len(world.nodes) - len(near.union(reached))
        return replace(found, more=obstacles + closed)

    def told(self, asked: Replica, among: Collection[str] | None = None) -> FoundDisks:
        """Which one it is given aside."""
        told = explain(self.wanted(asked), self._world, self, self._now_utc, among)
        disks = (_found(one, told.figures[one.node, one.disk]) for one in told.found.candidates)
        obstacles = (self._obstacle(one, told.figures.get((one.node, one.disk))) for one in told.found.refusals)
        once = tuple(dict.fromkeys(obstacles))
        return FoundDisks(self._volume.size_bytes, tuple(disks), None, once, told.found.tried)

    def _obstacle(self, refusal: Refusal, known: DiskFigures | None) -> Obstacle:
        """With the bytes that are missing."""
        node, why = self._world.nodes.get(refusal.node), self._closed.get(refusal.node, "")
        if why:
            return Obstacle(refusal.node, "", 0, Rejection(Reason.RECORD_UNWRITABLE, f"{refusal.node}: {why}"))
        disk = next((one for one in node.disks if one.name == refusal.disk), None) if node is not None else None
        if disk is not None and disk.uuid in self._closed:
            full = Rejection(Reason.RECORD_UNWRITABLE, self._closed[disk.uuid])
            return Obstacle(refusal.node, disk.name, 0, full)
        is_space = refusal.rejection.reason in (Reason.INSUFFICIENT_STORAGE, Reason.CONTENDED, Reason.BACKING_IMAGE)
        missing = 0
        if is_space and known is not None:
            missing = max(0, self._volume.size_bytes + known.image_bytes - known.free_bytes)
        return Obstacle(refusal.node, refusal.disk, missing, refusal.rejection)

    # Where a replica is, or was given a disk

    def unjoined(self) -> PlacementView:
        """What Longhorn's rules that ask for no room look at."""
        wanted = self.wanted(replica_to_come(self._volume))
        view = view_of(self._world, wanted, self._now_utc, self._world.engines)
        stored = tuple(self._world.replicas_of(self._volume.name).values())
        return replace(view, replicas=stored)

    def check_larger(self, replica: Replica, known_bytes: int) -> Obstacle | None:
        """Why the volume's replica, of which so much was judged before, cannot be as large as the volume on its disk,
        which its node shows."""
        size, node = self._volume.size_bytes, self._world.nodes[replica.node]
        if size <= known_bytes:
            return None
        disk = next(one for one in node.disks if one.uuid == replica.disk_uuid)
        known = self._world.disk_room(node.name, disk.uuid)
        if known is None:
            return Obstacle(node.name, disk.name, 0, why_without_room(disk))
        counted = max(one.size_bytes for one in self._world.counted_on(disk.uuid) if one.name == replica.name)
        counted = max(counted, disk.scheduled_replicas.get(replica.name, 0))
        comes = image_bytes(self._world, self._image, (), disk.uuid)
        missing = size - counted + comes + self.taken_bytes(node.name, disk.uuid) - known.free_bytes
        if missing <= 0:
            return None
        text = f"{disk.name}: {bytes_text(size)} are {bytes_text(missing)} more than there is room for"
        text = f"{text}, with the {bytes_text(known_bytes)} that the replica has there"
        return Obstacle(node.name, disk.name, missing, Rejection(Reason.INSUFFICIENT_STORAGE, text))

    def check_place(self, replica: Replica) -> Rejection | None:
        """Why Longhorn's rules, room, engines and the volume's other replicas aside, keep its replica from its disk,
        which its node shows."""
        view, volume = self.unjoined(), self._volume
        node, affinity = view.nodes[replica.node], Affinity.of(volume, view.settings)
        disk = next(one for one in node.disks if one.uuid == replica.disk_uuid)
        others = [one for one in view.replicas if one.name != replica.name]
        usage = Usage.of(volume, others, view.nodes, view.settings, view.now_utc)
        needs, space = needs_of(volume, replica, view.backing_image), view.settings.space
        ignores_tags = affinity.shares_nodes and node.name in usage.nodes  # as in the last step of its search
        rejection = check_node_for(node, needs, space, with_tags=not ignores_tags) or check_disk_state(disk)
        reason = check_disk_kind(disk, needs, volume.size_bytes, space)
        text = f"{node.name} {disk.name}: {reason}"
        return rejection or (None if reason is None else Rejection(reason, text))


def _found(one: Candidate, known: DiskFigures) -> FoundDisk:
    return FoundDisk(one.node, one.disk, one.uuid, known.free_bytes, known.taken_bytes)


def why_without_room(disk: Disk) -> Rejection:
    """Why nothing is known of that disk's room."""
    return check_disk_state(disk) or repeated(disk)
