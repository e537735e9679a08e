"""Room that is given away by name: to a replica, to a copy of a backing image, to all replicas of a volume that grows.

A volume's own place, planned or held, comes first; otherwise anything that nobody else has. A planned place leaves its
plan in the step in which the decision counts; where that comes to nothing, the volume is planned anew.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Final

from msgspec.structs import replace as replace_entry

from controller.allocator.choose.beside import BesideOthers
from controller.allocator.choose.choose import Chooser
from controller.allocator.choose.images import CopyToCome, check_image_growth, copy_to_come, find_image_disk
from controller.allocator.outcome import Allotment, HeldPlace, LookFirstError, Obstacle
from controller.allocator.plans.beside import Beside
from controller.allocator.plans.growths import Growths
from controller.allocator.plans.table import Table
from controller.allocator.verbs.closed import in_doubt
from controller.allocator.verbs.decisions import Decisions
from controller.allocator.verbs.find import DiskQueries, DiskQuestion, beside_others
from controller.allocator.verbs.grow import LEADER_CHANGED, Expansions
from controller.allocator.verbs.held import (
    check_former,
    check_one_place,
    check_others,
    check_place,
    held,
    judged_bytes,
    stands,
)
from controller.allocator.world.world import World
from controller.clock import Clock
from controller.errors import NotFoundError, NotReadyError, PreconditionError
from controller.model.allocations import Allocation, Purpose
from controller.model.longhorn import LOCALITY_DISABLED, LOCALITY_STRICT, BackingImage, LonghornNode, Replica, Volume
from controller.model.places import Place
from controller.rules.expandable import Route
from controller.rules.provisioning import rounded_volume_bytes
from controller.rules.reuse import find_reusable

NEAREST: Final = 40  # disks that are looked at for reasons: more than are told, since what is taken changes the order
_MOST_TRIES: Final = 3


class Allocations(Decisions):
    """The allocator's part that gives room away by name, while the record is what decides (`allocation-authority`).

    Every method raises PreconditionError while it is not, and NotReadyError when nothing is answered at all.

    Threads: any. Blocks: for others who give room away; `place_replica` that finds no disk, for questions before, no
    longer than its `seconds`. I/O: none.
    """

    def __init__(
        self,
        lock: threading.Condition,
        clock: Clock,
        world: World,
        table: Table,
        chooser: Chooser,
        growths: Growths,
        expansions: Expansions,
        disks: DiskQueries,
        is_active: Callable[[], bool],
        settle: Callable[[str], None],
    ) -> None:
        """`is_active`, `settle`: as for `Decisions`."""
        super().__init__(lock, clock, world, is_active, settle)
        self._table, self._chooser, self._growths = table, chooser, growths
        self._expansions, self._disks = expansions, disks

    # Replicas

    def place_replica(
        self,
        name: str,
        seconds: float,
        now_utc: datetime | None = None,
        volume_name: str = "",
        *,
        is_looked_at: bool = True,
    ) -> Allotment:
        """A disk for that replica, which is there and has none; the same again when it was given one before, larger if
        its volume is by now. When it has to be on another node, that is `freed`: to be asked for anew once that is
        durable. `volume_name`: whose it has to be.

        Raises NotFoundError when our stores do not show it or its volume; and, unless all `is_looked_at`,
        LookFirstError when the replica goes where its volume is attached, and by our stores that is nowhere yet, or
        when it was given a disk that it may not be written to any more. Costs: as `Chooser.choose`; why no disk
        takes it is told by a question about disks, mostly without the lock.
        """
        deadline = self._clock.now() + seconds
        for _ in range(_MOST_TRIES):
            with self._active():
                given, asked = self._given_before(name, volume_name, is_looked_at=is_looked_at)
                if given is not None:
                    return given
                volume = self._world.volume(asked.volume)
                if volume is None:
                    raise NotFoundError(f"there is no Longhorn volume {asked.volume!r}")
                check_others(self._world, volume, name)
                closed = self._closed.of(Purpose.REPLICA)
                place = self._chosen(volume, asked, now_utc, closed)
                if place is not None:
                    one = Allocation(Purpose.REPLICA, name, place.node, place.disk_uuid, volume.size_bytes)
                    return self._give_locked(one)
            question = DiskQuestion(asked.volume, name, size_bytes=volume.size_bytes)
            found = self._disks.find(question, deadline - self._clock.now(), now_utc, closed, NEAREST)
            if found.preferred is None:
                return Allotment(obstacles=found.obstacles, more=found.more, size_bytes=found.size_bytes)
        raise NotReadyError("no disk was found because the disks kept changing; try again")

    def _chosen(
        self, volume: Volume, asked: Replica, now_utc: datetime | None, closed: Mapping[str, str]
    ) -> Place | None:
        def find(more: Mapping[str, str]) -> tuple[Place | None, None]:
            return self._beside(volume, now_utc, more).choose(self._chooser, asked).place, None

        return self._closed.find(closed, find)[0]

    def _given_before(self, name: str, volume_name: str, *, is_looked_at: bool) -> tuple[Allotment | None, Replica]:
        replica = self._world.placed.get(name)
        if replica is None:
            raise NotFoundError(f"there is no replica {name!r}")
        if volume_name not in ("", replica.volume):
            raise PreconditionError(f"replica {name!r} is of volume {replica.volume!r}, not of {volume_name!r}")
        volume = self._world.volume(replica.volume)
        if replica.is_placed:
            return self._placed_before(replica, volume, is_looked_at=is_looked_at), replica
        is_attached = volume is None or volume.data_locality == LOCALITY_DISABLED or bool(volume.node_id)
        if not (is_attached or is_looked_at):
            raise LookFirstError(("volume", replica.volume))
        if replica.node or replica.deleting or replica.failed_at or (volume is not None and volume.deleting):
            raise PreconditionError(
                f"replica {name!r} cannot be placed: it or its volume is being deleted, or it failed or has a node"
            )
        if volume is not None and volume.data_locality == LOCALITY_STRICT and not volume.node_id:
            raise PreconditionError(f"volume {volume.name!r} is strict-local and not attached to any node yet")
        return None, replica

    def _placed_before(self, replica: Replica, volume: Volume | None, *, is_looked_at: bool) -> Allotment:
        """Where its object is, or, without a disk there, where it was given one, if it may still be written to that."""
        shown = self._world.allocated.shown_replica(replica.name)
        if shown is None or shown.is_placed or volume is None:
            return self._at_its_place(replica)
        there = held(self._world, lambda: self._beside(volume), volume, shown)
        if there.place not in (HeldPlace.PLACE, HeldPlace.NOTHING) and not is_looked_at:
            raise LookFirstError(("volume", volume.name), ("replica", replica.name))
        check_place(there, replica)
        if there.place is HeldPlace.ELSEWHERE:
            return self._freed(self._world.allocated.shown_of(replica.name))
        return self._at_its_place(replica, volume.size_bytes)

    def _at_its_place(self, replica: Replica, size_bytes: int = 0) -> Allotment:
        """Where it lies by its object, or by an allocation."""
        one = _allocation_of(self._world.nodes, replica, size_bytes)
        if one is None:
            raise PreconditionError(f"the disk of replica {replica.name!r} is on no node that Longhorn shows")
        if self._stands(one):
            return Allotment((one,), size_bytes=one.size_bytes)
        return self._repeated(one, replica.volume)

    def reuse_replica(self, volume_name: str, affinity: str = "", now_utc: datetime | None = None) -> Allotment:
        """The failed replica of that volume that comes back where it lies, at the volume's size; without one, or
        without room for that, there are no allocations.

        Costs: a look at the nodes of failed replicas."""
        with self._active():
            volume = self._world.volume(volume_name)
            if volume is None:
                raise NotFoundError(f"there is no Longhorn volume {volume_name!r}")
            beside = self._beside(volume, now_utc)
            found = find_reusable(beside.unjoined(), volume, affinity)
            if found.replica is None:
                refused = tuple(Obstacle(one.node, one.disk, 0, one.rejection) for one in found.refusals)
                return Allotment(obstacles=refused, size_bytes=volume.size_bytes)
            self._check_readable(found.replica.node)
            obstacle = beside.check_larger(found.replica, judged_bytes(self._world, found.replica))
            if obstacle is not None:
                return Allotment(obstacles=(obstacle,), size_bytes=volume.size_bytes)
            self._world.allocated.reused[found.replica.name] = self._clock.now()
            return self._at_its_place(found.replica, volume.size_bytes)

    def release_replica(self, name: str, *, is_gone: bool = False) -> Allotment:
        """What it has on record is to go: its object is gone, or has no disk by itself. PreconditionError when our
        stores show it on a disk, unless a live read said that it `is_gone`. Costs: a look-up."""
        with self._active():
            shown = self._world.allocated.shown_replica(name)
            if shown is not None and shown.is_placed and not is_gone:
                raise PreconditionError(f"replica {name!r} still exists on node {shown.node}")
            return self._freed(self._world.allocated.of(Purpose.REPLICA, name))

    # Growth

    def grow(self, volume_name: str, size_bytes: int, now_utc: datetime | None = None) -> Allotment:
        """Room for all replicas of the volume at that size, which is rounded as Longhorn does; on all disks or on none.
        NotReadyError also while it is not known what the leader before has admitted.

        Costs: as an expansion's verdict."""
        size = rounded_volume_bytes(size_bytes)
        with self._active():
            volume = self._world.volumes.get(volume_name)
            if volume is None:
                raise NotFoundError(f"there is no Longhorn volume {volume_name!r}")
            if size < volume.size_bytes:
                have = f"{volume.size_bytes}, which volume {volume_name!r} has"
                raise PreconditionError(f"size_bytes: {size} is less than {have}")
            members = self._world.replicas_of(volume_name)
            for name in members:
                check_one_place(self._world, name)
            placed = [members[name] for name in sorted(members) if members[name].is_placed]
            if not placed:
                raise PreconditionError(
                    f"no replica of volume {volume_name!r} has a disk: each is given room at the volume's size"
                )
            wanted = [(one, _allocation_of(self._world.nodes, one, size)) for one in placed]
            for one, allocation in wanted:
                if allocation is None:
                    raise PreconditionError(f"the disk of replica {one.name!r} is on no node that Longhorn shows")
            allocations = tuple(allocation for _, allocation in wanted if allocation is not None)
            new = tuple(one for one in allocations if not self._stands(one))
            for allocation in new:
                self._check_readable(allocation.node)
            is_new = any(one.size_bytes < size for one in placed)
            if is_new or not all(map(self._world.allocated.is_ours, new)):
                plan = self._expansions.plan_locked(volume_name, size, Route.VOLUME, now_utc)
                if plan.obstacles:
                    if not is_new:
                        check_former(self._world, plan.obstacles[0])
                    return Allotment(obstacles=plan.obstacles, size_bytes=size)
                is_unseen = is_new and size > self._growths.granted(volume_name)
                if is_unseen and self._expansions.is_unknown_locked():
                    raise NotReadyError(f"it fits, but {LEADER_CHANGED.message}; try again")
            given = self._decided_locked(Allotment(new), volume_name, is_judged=is_new)
            return replace(given, allocations=allocations, is_new=is_new, size_bytes=size)

    # Backing images

    def place_image(self, name: str, size_bytes: int = 0) -> Allotment:
        """A disk for a further copy of that backing image; the same again as long as the image does not show it, with
        more room there if the size is another by now. `size_bytes` where Longhorn does not know it yet.
        PreconditionError also when that disk takes no copies now.

        Costs: as `find_image_disk`."""
        with self._active():
            image = self._world.backing_image(name)
            if image is None:
                raise NotFoundError(f"there is no backing image {name!r}")
            size = image.real_size_bytes or size_bytes
            if size <= 0:
                raise PreconditionError(f"the size of backing image {name!r} is not known yet, and none was given")
            known = copy_to_come(self._world, image)
            if known is not None:
                return self._same_copy(image, known, size)
            question = self._world, Beside(self._table), image, size
            closed = self._closed.of(Purpose.BACKING_IMAGE)
            choice, others = self._closed.find(closed, lambda more: find_image_disk(*question, more, NEAREST))
            if choice is None:
                return Allotment(obstacles=others.obstacles, more=others.more, size_bytes=size)
            one = Allocation(Purpose.BACKING_IMAGE, name, choice.node, choice.uuid, size)
            return self._give_locked(one)

    def _same_copy(self, image: BackingImage, known: CopyToCome, size_bytes: int) -> Allotment:
        """The copy that was given before, larger if that is wanted and fits. It is written once more, as `stands`
        tells."""
        one = known.allocation
        why = "which takes no copies now" if known.is_closed else ""
        size, is_ours = max(size_bytes, one.size_bytes), self._world.allocated.is_ours(one)
        is_larger = size > one.size_bytes
        if not why and (is_larger or not is_ours):
            self._check_readable(one.node)
            obstacle = check_image_growth(self._world, Beside(self._table), image, one, size)
            if obstacle is not None and not is_ours:
                check_former(self._world, obstacle)
            if obstacle is not None and (is_ours or in_doubt(self._world, [obstacle])):
                return Allotment(obstacles=(obstacle,), size_bytes=size)
            why = f"where it has no room: {obstacle.rejection.message}" if obstacle is not None else ""
        if why:
            text = f"backing image {image.name!r} was given disk {one.disk_uuid!r} on node {one.node}, {why}"
            raise PreconditionError(f"{text}; to have another one chosen, deallocate it")
        if is_larger:
            return self._give_locked(replace_entry(one, size_bytes=size))
        return self._repeated(one)

    def release_image(self, name: str, disk_uuid: str, *, is_gone: bool = False) -> Allotment:
        """The copy on that disk is to go from the record. PreconditionError while either of the image's maps names
        the disk, unless a live read said that the image `is_gone`. Costs: a look-up."""
        with self._active():
            shown = self._world.allocated.shown_image(name)
            if shown is not None and not is_gone and disk_uuid in shown.copy_disk_uuids:
                raise PreconditionError(f"backing image {name!r} still names disk {disk_uuid!r}")
            entries = self._world.allocated.of(Purpose.BACKING_IMAGE, name)
            return self._freed([one for one in entries if one.disk_uuid == disk_uuid])

    # Steps

    def _beside(
        self, volume: Volume, now_utc: datetime | None = None, closed: Mapping[str, str] | None = None
    ) -> BesideOthers:
        return beside_others(self._world, self._table, volume, now_utc, closed or {})

    def _stands(self, one: Allocation) -> bool:
        """What somebody is about to take back is written once more as well."""
        return not self.answers.is_freed_locked(one) and stands(self._world, one)


def _allocation_of(nodes: Mapping[str, LonghornNode], replica: Replica, size_bytes: int = 0) -> Allocation | None:
    """Of a replica that has a disk, and is that large at least; None where its node does not show the disk."""
    node = nodes.get(replica.node)
    disks = node.disks if node is not None else ()
    if not any(one.uuid == replica.disk_uuid for one in disks):
        return None
    size = max(replica.size_bytes, size_bytes)
    return Allocation(Purpose.REPLICA, replica.name, replica.node, replica.disk_uuid, size)
