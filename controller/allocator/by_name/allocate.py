"""Room that is given away by name: to a replica, to a copy of a backing image, to all replicas of a volume that grows.

A volume's own place, planned or held, comes first; otherwise anything that nobody else has. What is given counts from
that moment, under the allocator's lock. It is durable once its caller has the record written, and says so.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Final, TypeVar

from msgspec.structs import replace as replace_entry

from controller.allocator.by_name.beside import FoundDisk
from controller.allocator.by_name.find import DiskQueries, DiskQuestion, beside_others
from controller.allocator.by_name.images import (
    CopyToCome,
    OtherDisks,
    check_image_growth,
    copy_to_come,
    find_image_disk,
    full_of_images,
)
from controller.allocator.by_name.known import ShownObjects
from controller.allocator.choose.choose import Chooser
from controller.allocator.outcome import Allotment, LookFirstError, Obstacle
from controller.allocator.plans.beside import Beside
from controller.allocator.plans.given import Given
from controller.allocator.plans.growths import Growths
from controller.allocator.plans.table import Table
from controller.allocator.verbs.grow import LEADER_CHANGED, Expansions
from controller.allocator.world.world import World
from controller.clock import Clock
from controller.errors import NotFoundError, NotReadyError, PreconditionError, RefusedWriteError
from controller.model.allocations import Allocation, Purpose
from controller.model.longhorn import BackingImage, Replica, Volume
from controller.model.places import Place
from controller.model.records import MAX_ENTRIES, no_place
from controller.rules.expandable import Route
from controller.rules.locality import Reach, bound_to, locality_of
from controller.rules.placing import find_reusable
from controller.rules.provisioning import rounded_volume_bytes
from controller.rules.reasons import Rejection

LONGHORN_DECIDES: Final = "allocation-authority is longhorn: Longhorn places replicas by itself"
NEAREST: Final = 40  # disks that are looked at for reasons: more than are told, since what is taken changes the order
PASSED_SECONDS: Final = 60.0  # that a node is passed by after its record refused a write
_MOST_TRIES: Final = 3
Found = TypeVar("Found")


class Allocations:
    """The allocator's part that gives room away by name, while `allocation-authority` is `disk-scheduler`.

    Every method raises PreconditionError while it is not, and NotReadyError when nothing is answered at all.

    Threads: any; those that end in `_locked` with the allocator's lock held. Blocks: for others who give room away;
    `place_replica` that finds no disk, for questions before, no longer than its `seconds`. I/O: none.
    """

    def __init__(
        self,
        lock: threading.Condition,
        clock: Clock,
        world: World,
        table: Table,
        chooser: Chooser,
        given: Given,
        growths: Growths,
        expansions: Expansions,
        disks: DiskQueries,
        is_active: Callable[[], bool],
        settle: Callable[[str], None],
    ) -> None:
        """Both under the lock. `is_active`: raises NotReadyError when nothing can be trusted any more. `settle`: brings
        plans in line with a change of that volume's replicas; "": of anything else."""
        self._lock, self._clock, self._world, self._table = lock, clock, world, table
        self._chooser, self._given, self._growths = chooser, given, growths
        self._expansions, self._disks = expansions, disks
        self._is_active, self._settle = is_active, settle
        # Taken before the lock by those who give room away: others wait for one of them then, however many there are.
        self._turn = threading.Lock()
        self._refused: dict[str, tuple[float, str]] = {}  # by node, when and why its record refused a write last
        self.known = ShownObjects(lock, world, given)

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
        """A disk for that replica, which is there and has none; the same again when it was given one before; another
        one where it has to be on another node by now. `volume_name`: whose it has to be.

        Raises NotFoundError when our stores do not show it or its volume; and, unless all `is_looked_at`,
        LookFirstError where the answer is another one if our stores are behind. Costs: as `Chooser.choose`; why no disk
        takes it is told by a question about disks, mostly without the lock."""
        deadline = self._clock.now() + seconds
        for _ in range(_MOST_TRIES):
            with self._active():
                before, asked = self._given_before(name, volume_name, is_looked_at=is_looked_at)
                if before is not None:
                    return before
                volume = self._volume(asked.volume)
                place, closed = self._chosen(volume, asked, now_utc)
                if place is not None:
                    one = Allocation(Purpose.REPLICA, name, place.node, place.disk_uuid, volume.size_bytes)
                    return self._give(one)
            question = DiskQuestion(asked.volume, name, size_bytes=volume.size_bytes)
            found = self._disks.find(question, deadline - self._clock.now(), now_utc, closed, NEAREST)
            if found.preferred is None:
                return Allotment(obstacles=found.obstacles, more=found.more, size_bytes=found.size_bytes)
        raise NotReadyError("no disk was found because the disks kept changing; try again")

    def _chosen(
        self, volume: Volume, asked: Replica, now_utc: datetime | None
    ) -> tuple[Place | None, Mapping[str, str]]:
        """With what is closed for it."""
        full: dict[str, str] = {}

        def find(closed: Mapping[str, str]) -> tuple[str, Place | None]:
            beside = beside_others(self._world, self._table, volume, now_utc, closed)
            place = beside.choose(self._chooser, asked).place
            return place.node if place is not None else "", place

        while True:
            place = self._open(full, find)
            if place is None or len(self._world.replicas_on(place.disk_uuid)) < MAX_ENTRIES:
                return place, full | self._refusing()
            full[place.disk_uuid] = no_place(Purpose.REPLICA, place.node, place.disk_uuid)

    def _given_before(self, name: str, volume_name: str, *, is_looked_at: bool) -> tuple[Allotment | None, Replica]:
        """What the replica has, and its object; None where it is to be given a disk."""
        replica = self._given.shown_replica(name)
        if replica is None:
            raise NotFoundError(f"there is no replica {name!r}")
        if volume_name not in ("", replica.volume):
            raise PreconditionError(f"replica {name!r} is of volume {replica.volume!r}, not of {volume_name!r}")
        volume, given = self._world.volume(replica.volume), self._given.replica(name)
        if replica.is_placed:
            if is_looked_at:
                return _at_its_place(self._placed(replica, 0)), replica
            raise LookFirstError(("replica", name))  # one of that name may have been there before
        is_attached = volume is None or locality_of(volume).reach is Reach.ANYWHERE or bool(volume.node_id)
        if given is not None and volume is not None:
            there = self._again(volume, replica, given, is_looked_at=is_looked_at)
            if there is not None:
                return there, replica
        elif not (is_attached or is_looked_at):
            raise LookFirstError(("volume", replica.volume))
        if replica.node or replica.deleting or replica.failed_at or (volume is not None and volume.deleting):
            raise PreconditionError(
                f"replica {name!r} cannot be placed: it or its volume is being deleted, or it failed or has a node"
            )
        if volume is not None and locality_of(volume).reach is Reach.NODE_ONLY and not volume.node_id:
            raise PreconditionError(
                f"volume {volume.name!r} is {volume.data_locality} and not attached to any node yet"
            )
        return None, replica

    def _again(self, volume: Volume, shown: Replica, one: Allocation, *, is_looked_at: bool) -> Allotment | None:
        """Where it was given a disk, if it may still be written to that; None where it has to be elsewhere."""
        affinity, placed = bound_to(volume, shown.hard_node_affinity), self._world.replicas.get(one.name)
        is_elsewhere = affinity not in ("", one.node) or not self._given.is_on_its_disk(one) or placed is None
        rejection: Rejection | None = None
        if placed is not None and not is_elsewhere:
            beside = beside_others(self._world, self._table, volume)
            rejection = beside.check_place(placed)
            obstacle = beside.check_larger(placed, one.size_bytes) if rejection is None else None
            rejection = obstacle.rejection if obstacle is not None else rejection
        if (is_elsewhere or rejection is not None) and not is_looked_at:
            raise LookFirstError(("volume", volume.name), ("replica", one.name))
        if is_elsewhere:
            return None
        if rejection is not None:
            text = f"replica {one.name!r} was given a disk on node {one.node} that takes it no more"
            raise PreconditionError(f"{text}: {rejection.message}; to have another one chosen, deallocate it")
        return self._give(replace_entry(one, size_bytes=volume.size_bytes), is_new=False)

    def _placed(self, replica: Replica, size_bytes: int) -> Allocation:
        size = max(replica.size_bytes, size_bytes)
        one = Allocation(Purpose.REPLICA, replica.name, replica.node, replica.disk_uuid, size)
        if not self._given.is_on_its_disk(one):
            raise PreconditionError(f"the disk of replica {replica.name!r} is on no node that Longhorn shows")
        return one

    def reuse_replica(self, volume_name: str, affinity: str = "", now_utc: datetime | None = None) -> Allotment:
        """The failed replica of that volume that comes back where it lies, at the volume's size; without one, or
        without room for that, there are no allocations.

        Costs: a look at the nodes of failed replicas."""
        with self._active():
            volume = self._volume(volume_name)
            beside = beside_others(self._world, self._table, volume, now_utc)
            found = find_reusable(beside.unjoined(), volume, affinity)
            if found.replica is None:
                refused = tuple(Obstacle(one.node, one.disk, 0, one.rejection) for one in found.refusals)
                return Allotment(obstacles=refused, size_bytes=volume.size_bytes)
            obstacle = beside.check_larger(found.replica, found.replica.size_bytes)
            if obstacle is not None:
                return Allotment(obstacles=(obstacle,), size_bytes=volume.size_bytes)
            self._world.reused[found.replica.name] = self._clock.now()
            self._world.volumes_touched((volume_name,))
            self._settle(volume_name)
            return _at_its_place(self._placed(found.replica, volume.size_bytes))

    def release_replica(self, name: str, *, is_gone: bool = False) -> Allotment:
        """What it was given is to go: its object is gone, or has no disk by itself. PreconditionError when our stores
        show it on a disk, unless a live read said that it `is_gone`. Costs: a look-up."""
        with self._active():
            shown, given = self._given.shown_replica(name), self._given.replica(name)
            if shown is not None and is_gone:  # our watch lags
                self._world.put_replica(name, self._given.show_replica(name, None))
                self._settle(shown.volume)
            elif shown is not None and shown.is_placed:
                raise PreconditionError(f"replica {name!r} still exists on node {shown.node}")
            return self._release([given] if given is not None else [])

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
                raise PreconditionError(
                    f"size_bytes: {size} is less than {volume.size_bytes}, which {volume_name!r} has"
                )
            members = self._world.replicas_of(volume_name)
            placed = [members[name] for name in sorted(members) if members[name].is_placed]
            if not placed:
                raise PreconditionError(f"no replica of {volume_name!r} has a disk: each is given room at its size")
            entries = tuple(self._placed(one, size) for one in placed)
            is_new = size > self._growths.granted(volume_name)
            if is_new:
                plan = self._expansions.plan_locked(volume_name, size, Route.VOLUME, now_utc)
                if plan.obstacles:
                    return Allotment(obstacles=plan.obstacles, size_bytes=size)
                if self._expansions.is_unknown_locked():
                    raise NotReadyError(f"it fits, but {LEADER_CHANGED.message}; try again")
            self._expansions.grant_locked(volume_name, size)
            return Allotment(entries, frozenset(one.node for one in entries), is_new, size_bytes=size)

    # Backing images

    def place_image(self, name: str, size_bytes: int = 0, *, is_looked_at: bool = True) -> Allotment:
        """A disk for a further copy of that backing image; the same again as long as the image does not show it, with
        more room there if the size is another by now. `size_bytes` where Longhorn does not know it yet.
        PreconditionError also when that disk takes no copies now; unless it `is_looked_at`, LookFirstError before it is
        told again: the copy may have come and gone.

        Costs: as `find_image_disk`."""
        with self._active():
            image = self._given.shown_image(name)
            if image is None:
                raise NotFoundError(f"there is no backing image {name!r}")
            size = image.real_size_bytes or size_bytes
            if size <= 0:
                raise PreconditionError(f"the size of backing image {name!r} is not known yet, and none was given")
            given = (one for one in self._given.copies(name) if not image.names_disk(one.disk_uuid))
            known = copy_to_come(self._world, image, given)
            if known is not None and not is_looked_at:
                raise LookFirstError(("backing_image", name))
            if known is not None:
                return self._same_copy(image, known, size)
            question = self._world, Beside(self._table), image, size

            def find(closed: Mapping[str, str]) -> tuple[str, tuple[FoundDisk | None, OtherDisks]]:
                found = find_image_disk(*question, closed, NEAREST)
                return found[0].node if found[0] is not None else "", found

            choice, others = self._open(full_of_images(self._world), find)
            if choice is None:
                return Allotment(obstacles=others.obstacles, more=others.more, size_bytes=size)
            return self._give(Allocation(Purpose.BACKING_IMAGE, name, choice.node, choice.uuid, size))

    def _same_copy(self, image: BackingImage, known: CopyToCome, size_bytes: int) -> Allotment:
        """The copy that was given before, larger if that is wanted and fits."""
        one = known.allocation
        size = max(size_bytes, one.size_bytes)
        if known.is_closed:
            text = f"backing image {image.name!r} was given disk {one.disk_uuid!r} on node {one.node}"
            raise PreconditionError(f"{text}, which takes no copies now; to have another one chosen, deallocate it")
        if size > one.size_bytes:
            obstacle = check_image_growth(self._world, Beside(self._table), image, one, size)
            if obstacle is not None:
                return Allotment(obstacles=(obstacle,), size_bytes=size)
        return self._give(replace_entry(one, size_bytes=size), is_new=size > one.size_bytes)

    def release_image(self, name: str, disk_uuid: str, *, is_gone: bool = False) -> Allotment:
        """The copy on that disk is to go from the record. PreconditionError while either of the image's maps names
        the disk, unless a live read said that the image `is_gone`. Costs: a look-up."""
        with self._active():
            shown = self._given.shown_image(name)
            if shown is not None and is_gone:  # our watch lags
                self._world.put_backing_image(name, self._given.show_image(name, None))
                self._settle("")
            elif shown is not None and shown.names_disk(disk_uuid):
                raise PreconditionError(f"backing image {name!r} still names disk {disk_uuid!r}")
            return self._release(one for one in self._given.copies(name) if one.disk_uuid == disk_uuid)

    # Steps

    @contextmanager
    def _active(self) -> Iterator[None]:
        with self._turn, self._lock:
            if not self._is_active():
                raise NotReadyError("the scheduler extender is bypassed or switched off")
            if not self._given.is_authority:
                raise PreconditionError(LONGHORN_DECIDES)
            yield

    def _volume(self, name: str) -> Volume:
        volume = self._world.volume(name)
        if volume is None:
            raise NotFoundError(f"there is no Longhorn volume {name!r}")
        return volume

    def _refusing(self) -> dict[str, str]:
        """Nodes whose record refused a write of late, and why."""
        since = self._clock.now() - PASSED_SECONDS
        return {node: why for node, (at, why) in self._refused.items() if at > since}

    def _open(self, closed: Mapping[str, str], find: Callable[[Mapping[str, str]], tuple[str, Found]]) -> Found:
        """What `find` finds beside what is `closed`, on a node that refused no write of late; it also says on which.
        NotReadyError where only such a one would do."""
        refusing = self._refusing()
        node, found = find({**closed, **refusing})
        if not node and refusing:
            node, found = find(closed)
            if node:
                raise NotReadyError(f"no other node takes it, and {refusing.get(node)}; try again")
        return found

    def _give(self, one: Allocation, *, is_new: bool = True) -> Allotment:
        former = self._given.replica(one.name) if one.purpose is Purpose.REPLICA else None
        nodes = {one.node} | ({former.node} if former is not None else set())
        self._given.give(one)
        self._settle(self._given.volume_of(one))
        return Allotment((one,), nodes=frozenset(nodes), is_new=is_new, size_bytes=one.size_bytes)

    def _release(self, entries: Iterable[Allocation]) -> Allotment:
        freed = tuple(entries)
        for one in freed:
            self._given.leave(one)
        return Allotment(freed=freed, nodes=frozenset(one.node for one in freed))

    # What became of it

    def told(self, allotment: Allotment) -> None:
        """It is on record, and its caller hears of it now. NotReadyError where some of it was freed, or moved,
        meanwhile. Costs: a look-up for each."""
        with self._lock:
            for one in allotment.allocations:
                if not self._given.stands(one):
                    raise NotReadyError(f"{one.name!r} was freed, or given another disk, meanwhile; try again")
            for given in filter(None, map(self._given.at, allotment.allocations)):
                given.is_told = True

    def failed(self, allotment: Allotment, error: BaseException) -> None:
        """The record was not written, or nobody knows. What was given stands, and is told again, unless the record is
        known to refuse it and nobody was told. Costs: what it touches."""
        with self._turn, self._lock:
            if not isinstance(error, RefusedWriteError):
                return
            self._refused[error.node] = self._clock.now(), str(error)
            for given in filter(None, map(self._given.at, allotment.allocations)):
                if not given.is_told:
                    self._given.take_back(given.allocation)
                    self._settle(self._given.volume_of(given.allocation))

    # Who decides

    @property
    def switches(self) -> int:
        """How often it changed whether places are given by name."""
        return self._given.switches

    def check_decides(self, since: int) -> None:
        """What was decided before the record decided no more, after so many `switches`, is not given."""
        if not self._given.is_authority:
            raise PreconditionError(LONGHORN_DECIDES)
        if self.switches != since:
            raise NotReadyError("allocation-authority has changed since this was decided; try again")


def _at_its_place(one: Allocation) -> Allotment:
    return Allotment((one,), frozenset((one.node,)), size_bytes=one.size_bytes)
