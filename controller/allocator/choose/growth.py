"""Whether a volume may grow beside all that others have: on every disk that holds it or will hold it, or not at all.

Longhorn checks a growth against the disks' figures of that moment (controller/rules/growth.py). Here the figures also
have the growths that were granted and have not happened yet. Besides, the growth of the copies on a disk, and the
larger copies that are to come there, have to fit into what plans and holds of other volumes leave.

A volume that lies nowhere, and has no place planned, may have any size that some disk of the cluster takes: the leader
will place it, wherever Longhorn attaches it to grow.

A size that is refused is refused at any larger size, too, so the largest one is found by bisection. The allocator's
lock is held meanwhile, so that time is bounded; then it is the largest size that was proved to fit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, Protocol

from controller.allocator.choose.choose import Chooser
from controller.allocator.choose.packing import Budget
from controller.allocator.choose.wanted import Taken, Wanted, image_bytes, replica_to_come
from controller.allocator.outcome import Obstacle
from controller.allocator.world.world import World
from controller.clock import Clock
from controller.model.longhorn import SHARDED, Disk, LonghornNode
from controller.model.places import Place
from controller.model.quantity import bytes_text
from controller.rules.eligibility import file_system_limit, observed_scheduled
from controller.rules.expandable import Route, Unexpandable
from controller.rules.growth import GRANULE_BYTES, DiskGrowth, ExpansionPlan, largest_growth, plan_expansion
from controller.rules.reasons import Reason, Rejection

SEARCH_MILLISECONDS: Final = 50.0  # for the largest size, which is for people
_LACKS_BYTES: Final = (Reason.INSUFFICIENT_STORAGE, Reason.PHYSICAL_SPACE)


class GrantedGrowths(Protocol):
    """The growths that were granted so far."""

    def granted(self, name: str) -> int: ...  # the size to which the volume may grow at any moment
    def growing_by(self, disk_uuid: str) -> Iterable[tuple[str, int]]: ...  # volumes, and by how many bytes there


@dataclass(frozen=True, slots=True)
class GrowthQuestion:
    """Whether the volume of that name, which exists, may have `new_bytes`: a multiple of 2 MiB, more than it was
    granted. `taken`: what plans and holds of other volumes take. `planned`: places for its own copies that no object
    shows yet, one for each copy that may come to a disk."""

    name: str
    new_bytes: int
    taken: Taken
    planned: tuple[Place, ...] = ()
    route: Route = Route.CLAIM


@dataclass(frozen=True, slots=True)
class GrowthPlan:
    """The verdict on a growth. Without `obstacles` the volume may grow, as soon as what stands in `not_yet` has passed.
    `largest_bytes`: the largest size that would be granted now, at least what was granted already; more may fit if
    `is_largest` is false, since time was up."""

    obstacles: tuple[Obstacle, ...]
    largest_bytes: int
    is_largest: bool = True
    not_yet: tuple[Obstacle, ...] = ()


def plan_growth(
    world: World,
    chooser: Chooser,
    growths: GrantedGrowths,
    question: GrowthQuestion,
    clock: Clock,
    now_utc: datetime | None = None,
) -> GrowthPlan:
    """Return the verdict; nothing changes.

    Costs: a look at each disk of the volume; without any, as `Chooser.choose`. For a refusal as often as sizes are
    tried, within `SEARCH_MILLISECONDS`, which one try may overrun."""
    growing, new = _GrowthCheck(world, chooser, growths, question, now_utc), question.new_bytes
    plan = growing.by_longhorn(new)
    obstacles = growing.obstacles(plan, new)
    if not obstacles:
        return GrowthPlan((), new, not_yet=tuple(map(_space_aside, plan.not_now)))
    budget = Budget.of(clock, SEARCH_MILLISECONDS)
    largest = growing.largest(min(plan.largest_later_bytes, new - GRANULE_BYTES), budget)
    return GrowthPlan(tuple(_filled_in(entry, new - largest) for entry in obstacles), largest, not budget.is_over)


@dataclass(frozen=True, slots=True)
class _OwnDisk:
    """A disk with so many `placed` and `planned` copies of the volume. `free_bytes` do not count this volume's growth;
    `image_bytes` of its backing image come along; a copy there has to stay below `limit_bytes`."""

    node: str
    name: str
    placed: int
    planned: int
    free_bytes: int
    taken_bytes: int
    image_bytes: int
    limit_bytes: int | None

    def check(self, old_bytes: int, new_bytes: int) -> Obstacle | None:
        """Return why the copies there cannot have `new_bytes` each beside what others have, or None."""
        if self.limit_bytes is not None and new_bytes >= self.limit_bytes:
            text = f"{bytes_text(new_bytes)} is not below {bytes_text(self.limit_bytes)}, the limit of its file system"
            return Obstacle(self.node, self.name, 0, Rejection(Reason.INCOMPATIBLE_SIZE, f"{self.name}: {text}"))
        growth, to_come = self.placed * (new_bytes - old_bytes), self.planned * new_bytes + self.image_bytes
        missing = growth + to_come + self.taken_bytes - self.free_bytes
        if missing <= 0:
            return None
        sums = ((growth, "growth"), (to_come, "to come"), (self.taken_bytes, "planned for other volumes"))
        text = " + ".join(f"{bytes_text(size)} {what}" for size, what in sums if size)
        text = f"{self.name}: {text} exceed the {bytes_text(max(0, self.free_bytes))} that are free"
        reason = Reason.CONTENDED if missing <= self.taken_bytes else Reason.INSUFFICIENT_STORAGE
        return Obstacle(self.node, self.name, missing, Rejection(reason, text))


class _GrowthCheck:
    """One question about one volume's growth, in one state of the world."""

    def __init__(
        self, world: World, chooser: Chooser, growths: GrantedGrowths, asked: GrowthQuestion, now_utc: datetime | None
    ) -> None:
        self._world, self._chooser, self._growths, self._now_utc = world, chooser, growths, now_utc
        self._asked, self._volume = asked, world.volumes[asked.name]
        self._replicas = world.replicas_of(asked.name).values()
        self._placed = {(one.node, one.disk_uuid) for one in self._replicas if one.node}
        # What the disks have scheduled of this volume: their figures and the replicas, before they grow.
        shown = (one.size_bytes for one in self._replicas if one.node and one.size_bytes > 0)
        self._base_bytes = min((self._volume.size_bytes, *shown))
        nodes = ((name, world.nodes.get(name)) for name in {name for name, _ in self._placed})
        self._nodes = {name: self._without_growth(node) for name, node in nodes if node is not None}
        self._figures = {(name, disk.uuid): disk for name, node in self._nodes.items() for disk in node.disks}
        self._disks = list(self._own_disks())
        self._lies_nowhere = not self._placed and not self._disks and self._volume.data_layout != SHARDED

    def obstacles(self, plan: ExpansionPlan, new_bytes: int) -> list[Obstacle]:
        """Return why the volume may not have that size, where Longhorn would do as in `plan`; nothing if it may, now or
        later."""
        if plan.never:
            return [_space_aside(entry) for entry in plan.never]
        found = [
            Obstacle(entry.node, entry.disk, self._missing(entry), self._explained(entry, entry.rejection))
            for entry in plan.disks
            if entry.rejection is not None
        ]
        return found or list(self._in_the_way(new_bytes))

    def largest(self, most_bytes: int, budget: Budget) -> int:
        """Return the largest size up to `most_bytes` that would be granted, or was proved when the budget was over."""
        granted = self._growths.granted(self._asked.name)
        low, high = granted // GRANULE_BYTES, most_bytes // GRANULE_BYTES
        if high > low and self._fits(high * GRANULE_BYTES):  # usual: nobody else is in the way
            return high * GRANULE_BYTES
        while low < high and not budget.is_spent():
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self._fits(middle * GRANULE_BYTES) else (low, middle - 1)
        return max(granted, low * GRANULE_BYTES)

    def _fits(self, new_bytes: int) -> bool:
        """Whether there are no obstacles to that size; stops at the first."""
        plan = self.by_longhorn(new_bytes)
        is_refused = plan.never or any(entry.rejection is not None for entry in plan.disks)
        return not is_refused and next(self._in_the_way(new_bytes), None) is None

    # Longhorn's rule

    def by_longhorn(self, new_bytes: int) -> ExpansionPlan:
        """Return what Longhorn would do once all granted growths of other volumes have happened."""
        space, behaviour = self._world.settings.space, self._world.settings.behaviour
        volume = replace(self._volume, size_bytes=self._base_bytes)
        return plan_expansion(self._nodes, volume, self._replicas, new_bytes, space, behaviour, self._asked.route)

    def _missing(self, growth: DiskGrowth) -> int:
        """The bytes that the disk lacks by Longhorn's rule; 0 if more room would not help."""
        if growth.rejection is None or growth.rejection.reason not in _LACKS_BYTES:
            return 0
        disk, settings = self._figures[growth.node, growth.uuid], self._world.settings
        return growth.growth_bytes - largest_growth(disk, settings.space, settings.behaviour)

    def _explained(self, growth: DiskGrowth, rejection: Rejection) -> Rejection:
        """The rejection, which also names granted growths: Longhorn's figures do not show them yet."""
        granted = sum(more for name, more in self._growths.growing_by(growth.uuid) if name != self._asked.name)
        if rejection.reason is not Reason.INSUFFICIENT_STORAGE or not granted:
            return rejection
        text = f"{rejection.message}; {bytes_text(granted)} of what is scheduled are for other expansions"
        return replace(rejection, message=text)

    def _without_growth(self, node: LonghornNode) -> LonghornNode:
        """The node with the granted growths of other volumes added to its disks' figures, and without this volume's."""
        return replace(node, disks=tuple(map(self._figure_of, node.disks)))

    def _figure_of(self, disk: Disk) -> Disk:
        replicas, name = self._world.counted_on(disk.uuid), self._asked.name
        others = (one for one in replicas if one.volume != name)
        total = observed_scheduled(disk, others, self._world.images_on(disk.uuid))
        for one in replicas:
            if one.volume == name:
                counted = disk.scheduled_replicas.get(one.name, 0)
                total += (self._base_bytes if one.node else one.size_bytes) - counted
        return replace(disk, scheduled_bytes=total)

    # What others have

    def _own_disks(self) -> Iterator[_OwnDisk]:
        """The disks that hold copies of the volume or will. One that takes nothing now is left out: plans leave it."""
        world = self._world
        places = {*self._placed, *((place.node, place.disk_uuid) for place in self._asked.planned)}
        placed = Counter(one.disk_uuid for one in self._replicas if one.node)  # by UUID, as they are summed up
        planned = Counter(place.disk_uuid for place in self._asked.planned)
        engine, image = self._volume.needs.data_engine, world.backing_image(self._volume.backing_image)
        for node, uuid in sorted(places):
            disk, figure = world.disk_room(node, uuid), self._figures.get((node, uuid))
            if disk is None:
                continue
            free = disk.free_bytes if figure is None else disk.limit_bytes - figure.scheduled_bytes
            taken, more = self._asked.taken.taken_bytes(node, uuid), image_bytes(world, image, (), uuid)
            counts, limit = (placed[uuid], planned[uuid]), file_system_limit(engine, disk.filesystem)
            yield _OwnDisk(node, disk.name, *counts, free, taken, more, limit)

    def _in_the_way(self, new_bytes: int) -> Iterator[Obstacle]:
        """Obstacles by what others have."""
        for disk in self._disks:
            obstacle = disk.check(self._base_bytes, new_bytes)
            if obstacle is not None:
                yield obstacle
        if self._lies_nowhere and not self._has_a_disk(new_bytes):
            text = f"no disk in the cluster takes a replica of {bytes_text(new_bytes)} beside what others have"
            yield Obstacle("", "", 0, Rejection(Reason.NO_ROOM_IN_CLUSTER, text))

    def _has_a_disk(self, new_bytes: int) -> bool:
        volume = replace(self._volume, size_bytes=new_bytes)
        asked = next((one for one in self._replicas if one.active and not one.failed_at), replica_to_come(volume))
        return self._chooser.choose(Wanted(volume, asked), self._asked.taken, self._now_utc).place is not None


def _space_aside(entry: Unexpandable) -> Obstacle:
    return Obstacle(entry.node, entry.disk, 0, entry.rejection)


def _filled_in(obstacle: Obstacle, growth_bytes: int) -> Obstacle:
    """The obstacle with its missing bytes: where no disk takes the volume, all beyond the largest size."""
    is_nowhere = obstacle.rejection.reason is Reason.NO_ROOM_IN_CLUSTER
    return replace(obstacle, missing_bytes=growth_bytes) if is_nowhere else obstacle
