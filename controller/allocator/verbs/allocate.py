"""Room that is given away by name: to a replica, to a copy of a backing image, to all replicas of a volume that grows.

What is given counts from the moment of the decision, under the allocator's lock, on that disk and nowhere else: a
promise to its volume counts no more beside it, and ends once that is on record. It is durable only once the caller has
written the changes that come with it, and said so; a decision whose writing failed counts on for a while, since the
write may have arrived, and whoever asks for the same again gets the same.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from itertools import count
from math import inf
from typing import Final

from msgspec.structs import replace as replace_entry

from controller.allocator.choose.choose import Chooser
from controller.allocator.judge.beside import BesidePromises
from controller.allocator.judge.growth import plan_growth
from controller.allocator.judge.images import CopyToCome, check_image_growth, copy_to_come, find_image_disk
from controller.allocator.outcome import Allotment, HeldPlace, LookFirstError, Obstacle
from controller.allocator.promises.binding import binding_of
from controller.allocator.verbs.answers import AnsweredCalls
from controller.allocator.verbs.closed import Closed, in_doubt
from controller.allocator.verbs.find import DiskQueries, DiskQuestion
from controller.allocator.verbs.grow import LEADER_CHANGED, Expansions, UnderLock
from controller.allocator.verbs.held import (
    check_former,
    check_one_place,
    check_others,
    check_place,
    held,
    judged_bytes,
    stands,
)
from controller.allocator.verbs.known import ShownObjects
from controller.allocator.world.world import World
from controller.clock import Clock
from controller.errors import NotFoundError, NotReadyError, PreconditionError, RefusedWriteError, SchedulerError
from controller.model.allocations import Allocation, Drop, NodeRecord, Purpose, Put
from controller.model.longhorn import LOCALITY_DISABLED, LOCALITY_STRICT, BackingImage, LonghornNode, Replica, Volume
from controller.model.places import Place
from controller.rules.expandable import Route
from controller.rules.provisioning import rounded_volume_bytes
from controller.rules.reuse import find_reusable

SHOWN_SECONDS: Final = 90.0  # until the watch shows what was written, or it is there no more; a store is stale before
DOUBT_SECONDS: Final = 90.0  # for which a write that failed may arrive all the same, as the writer's ARRIVES_SECONDS
NEAREST: Final = 40  # disks that are looked at for reasons: more than are told, since promises change the order
LONGHORN_DECIDES: Final = "allocation-authority is longhorn: Longhorn places replicas by itself"
_MOST_TRIES: Final = 3


class Allocations:
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
        under_lock: UnderLock,
        disks: DiskQueries,
        expansions: Expansions,
    ) -> None:
        self._lock, self._clock, self._world = lock, clock, world
        self._under_lock, self._disks, self._expansions = under_lock, disks, expansions
        self._chooser, self._closed = Chooser(world), Closed(world, clock)
        # Taken before the lock by those who give room away: others wait for one of them then, however many there are.
        self._turn = threading.Lock()
        self._numbers = count(1)
        self._began_at = -inf  # the term
        self.answers, self.known = AnsweredCalls(lock, clock, world.allocated), ShownObjects(lock, world)

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
        ledger = self._under_lock.ledger().binding

        def find(more: Mapping[str, str]) -> tuple[Place | None, None]:
            return BesidePromises(self._world, ledger, volume, now_utc, more).choose(self._chooser, asked).place, None

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
                beside = self._under_lock.ledger().binding
                plan = plan_growth(self._world, beside, volume_name, size, self._clock, now_utc, Route.VOLUME)
                if plan.obstacles:
                    if not is_new:
                        check_former(self._world, plan.obstacles[0])
                    return Allotment(obstacles=plan.obstacles, size_bytes=size)
                if (
                    is_new
                    and self._expansions.is_unknown_locked()
                    and size > self._under_lock.growths().granted(volume_name)
                ):
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
            question = self._world, self._under_lock.ledger().binding, image, size
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
            beside = self._under_lock.ledger().binding
            obstacle = check_image_growth(self._world, beside, image, one, size)
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

    # What became of it

    def learn(self, record: NodeRecord, place: str = "", *, is_written: bool = True) -> None:
        """This process has written a node's record like that, or read it, before the watch shows it. Costs: what
        changed in it."""
        with self._turn, self._lock:
            until = self._clock.now() + SHOWN_SECONDS
            self._change_locked(self._world.allocated.learn(record, until, place, is_written=is_written))

    def written(self, allotment: Allotment) -> None:
        """The changes are durable, and `learn` has told what is on record since. Costs: what they touch."""
        with self._turn, self._lock:
            self._change_locked(self._world.allocated.end(allotment.number, allotment.put))
            self._change_locked(self._world.allocated.told(next(self._numbers), allotment.put) or None)
            self.answers.told_locked(allotment.put)

    def withdrawn(self, allotment: Allotment) -> None:
        """The changes were not sent, and will not be. Costs: what they touch."""
        with self._turn, self._lock:
            self._change_locked(self._world.allocated.end(allotment.number, allotment.put))
            self._world.allocated.not_written(allotment.number, allotment.put)

    def failed(self, allotment: Allotment, place: str = "", error: BaseException | None = None) -> None:
        """The changes may or may not have become durable at that place, but for nodes that are `untouched` by the
        `error`. Costs: what they touch."""
        untouched = error.untouched if isinstance(error, SchedulerError) else ()
        with self._turn, self._lock:
            if isinstance(error, RefusedWriteError):
                self._closed.refused(error)
            until, allocated = self._clock.now() + DOUBT_SECONDS, self._world.allocated
            doubtful = [one for one in allotment.put if one.node not in untouched]
            ended = set(allotment.put).difference(doubtful)
            self._change_locked(allocated.end(allotment.number, ended))
            allocated.not_written(allotment.number, ended)
            self._change_locked(allocated.doubt(allotment.number, doubtful, until, place))

    @property
    def switches(self) -> int:
        """How often it changed whether the record decides."""
        return self._world.allocated.switches

    def check_decides(self, since: int) -> None:
        """What was decided before the record decided no more, after so many `switches`, is not given."""
        if not self._world.allocated.counts:
            raise PreconditionError(LONGHORN_DECIDES)
        if self.switches != since:
            raise NotReadyError("allocation-authority has changed since this was decided; try again")

    def check_doubts(self, obstacles: Collection[Obstacle]) -> None:
        """NotReadyError where room may be missing only because a write of ours was not answered. Costs: as `in_doubt`,
        if there are obstacles."""
        if obstacles:
            with self._turn, self._lock:
                found = in_doubt(self._world, obstacles)
            if found is not None:
                where = f"on disk {found.disk!r} of node {found.node}"
                raise NotReadyError(f"it is not known whether a write took the room {where}; try again")

    def decide_locked(self, decides: bool) -> None:
        """Whether the record decides from now on. Costs: every allocation where that changes, else nothing."""
        if decides != self._world.allocated.counts:
            volumes = self._world.allocated.count(decides)
            self._under_lock.ledger().keep_binding(binding_of(self._world, self._under_lock.memory()))
            self._change_locked(volumes)

    def begin_term_locked(self) -> None:
        """The record tells what was given before. Costs: a look at each entry."""
        self._began_at = self._clock.now()
        self._world.volumes_touched(self._world.allocated.begin_term())

    def end_term_locked(self) -> None:
        """Nothing is given away here any more."""
        self._world.allocated.has_former = False

    def sweep_locked(self, now: float, grace_seconds: float) -> None:
        """What was decided and came to nothing ends. Costs: a look at each decision that the record does not show."""
        self.answers.sweep_locked(now, grace_seconds)
        if now - self._began_at >= DOUBT_SECONDS:
            self._world.allocated.has_former = False
        volumes = self._world.allocated.expire(now)
        if volumes:
            self._change_locked(volumes)

    # Steps

    @contextmanager
    def _active(self) -> Iterator[None]:
        with self._turn, self._lock:
            if not self._under_lock.is_active():
                raise NotReadyError("the scheduler extender is bypassed or switched off")
            if not self._world.allocated.counts:
                raise PreconditionError(LONGHORN_DECIDES)
            yield

    def _beside(self, volume: Volume, now_utc: datetime | None = None) -> BesidePromises:
        return BesidePromises(self._world, self._under_lock.ledger().binding, volume, now_utc)

    def _check_readable(self, node: str) -> None:
        problem = self._world.allocated.unreadable(node)
        if problem:
            raise PreconditionError(f"{node}: {problem}")

    def _give_locked(self, one: Allocation) -> Allotment:
        given = Allotment((one,), is_new=True, size_bytes=one.size_bytes)
        return self._decided_locked(given, is_judged=True)

    def _repeated(self, one: Allocation, volume: str = "") -> Allotment:
        """Given before, and written once more."""
        given = Allotment((one,), size_bytes=one.size_bytes)
        return self._decided_locked(given, volume, is_judged=False)

    def _decided_locked(self, given: Allotment, volume: str = "", *, is_judged: bool) -> Allotment:
        number, entries = next(self._numbers), given.allocations
        changed = self._world.allocated.decide(number, entries, is_judged=is_judged)
        self._change_locked({volume, *changed} - {""})
        seen = self._world.allocated.seen_by(number, entries)
        return replace(given, number=number, seen=seen, changes=tuple(Put(one) for one in entries))

    def _stands(self, one: Allocation) -> bool:
        """What somebody is about to take back is written once more as well."""
        return not self.answers.is_freed_locked(one) and stands(self._world, one)

    def _freed(self, allocations: Iterable[Allocation]) -> Allotment:
        entries = tuple(allocations)
        self._world.allocated.disown(entries)
        self.answers.freed_locked(entries)
        changes = tuple(Drop(one.purpose, one.name, one.node, one.disk_uuid) for one in entries)
        return Allotment(freed=entries, changes=changes)

    def _change_locked(self, volumes: Iterable[str] | None) -> None:
        """Those volumes' replicas may be others; None: nothing is."""
        if volumes is None:
            return
        volumes = set(volumes)
        self._world.volumes_touched(volumes)
        for name in volumes or {""}:
            self._under_lock.settle(name)


def _allocation_of(nodes: Mapping[str, LonghornNode], replica: Replica, size_bytes: int = 0) -> Allocation | None:
    """Of a replica that has a disk, and is that large at least; None where its node does not show the disk."""
    node = nodes.get(replica.node)
    disks = node.disks if node is not None else ()
    if not any(one.uuid == replica.disk_uuid for one in disks):
        return None
    size = max(replica.size_bytes, size_bytes)
    return Allocation(Purpose.REPLICA, replica.name, replica.node, replica.disk_uuid, size)
