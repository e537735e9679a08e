"""Whether a volume may grow beside all that is promised: Longhorn's own rule on every disk, and no promise harmed.

Longhorn checks a growth with the disks' figures of that moment (controller/rules/growth.py). Here a disk's
figure is what its replicas may become by growths that were granted already, and the growth has to fit wherever
Longhorn puts what is pending: promises of pods and replicas that it may place at any moment. The other way round holds
as well: if the growth fits after every legal placement of those, none of them is stranded by it.

A volume that is not placed yet grows on the nodes where room is promised to it: there the larger replica must fit. Of
replicas that may go anywhere, as many must surely fit as have a place at the size that is promised.

The largest size is looked for by bisection, as if whatever is refused were refused at every larger size too. That holds
but for volumes that are not placed yet, where a larger replica may reach fewer disks: the size that is reported is then
one that fits, and perhaps not the largest. The allocator's lock is held meanwhile, so time is bounded: a verdict that
was not found in time is a refusal that says so, and the largest size is then the largest one proved.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from controller.allocator.judge.budget import Budget
from controller.allocator.judge.node import Judge
from controller.allocator.judge.pending import Pending
from controller.allocator.judge.sets import SetJudge, WantedCopies
from controller.allocator.judge.verdict import Judgement, Verdict
from controller.allocator.outcome import Obstacle
from controller.allocator.promises.ledger import Ledger
from controller.allocator.promises.promise import ANYWHERE, Kind
from controller.allocator.world.rooms import make_room
from controller.allocator.world.world import World
from controller.clock import Clock
from controller.model.longhorn import LOCALITY_DISABLED, Disk, LonghornNode
from controller.model.quantity import bytes_text
from controller.rules.affinity import Affinity
from controller.rules.demand import VolumeDemand
from controller.rules.eligibility import check_disk_state, unlisted_bytes
from controller.rules.expandable import Route, Unexpandable
from controller.rules.growth import (
    GRANULE_BYTES,
    DiskGrowth,
    ExpansionPlan,
    largest_growth,
    plan_expansion,
)
from controller.rules.reasons import Reason, Rejection

MOST_TRIES: Final = 48  # of sizes, to find the largest one
VERDICT_MILLISECONDS: Final = 250.0  # usually a few; this much only where pending promises fit in very many ways
SEARCH_MILLISECONDS: Final = 50.0  # for the largest size, which is for people
_LACKS_BYTES: Final = (Reason.INSUFFICIENT_STORAGE, Reason.PHYSICAL_SPACE)


@dataclass(frozen=True, slots=True)
class GrowthPlan:
    """`obstacles` empty: the volume may grow, once everything that is `not_yet` in order has passed. `largest_bytes`:
    the largest size that would be granted now, at least what was granted already. `is_largest` False: the largest one
    that was proved in time; more may fit."""

    obstacles: tuple[Obstacle, ...]
    largest_bytes: int
    is_largest: bool = True
    not_yet: tuple[Obstacle, ...] = ()


def plan_growth(
    world: World,
    ledger: Ledger,
    name: str,
    new_bytes: int,
    clock: Clock,
    now_utc: datetime | None = None,
    route: Route = Route.CLAIM,
) -> GrowthPlan:
    """The verdict on the volume of that name, which is there, at `new_bytes`, a multiple of 2 MiB above what it was
    granted. Nothing changes."""
    growing = Growing(world, ledger, name, clock, now_utc, route)
    obstacles = growing.obstacles(new_bytes)
    if not obstacles:
        return GrowthPlan((), new_bytes, not_yet=tuple(growing.not_yet(new_bytes)))
    largest = growing.largest(new_bytes)
    if not growing.is_late:
        obstacles = [_filled_in(entry, new_bytes - largest) for entry in obstacles]
    return GrowthPlan(tuple(obstacles), largest, not growing.is_late)


@dataclass(frozen=True, slots=True)
class _Beside:
    """A node's disks, by UUID: free bytes without this volume's growth, the largest of its replicas that may come
    there, and bytes that are promised to others and may come there."""

    free: Mapping[str, int]
    reach: Mapping[str, int]
    loads: Mapping[str, int]


class Growing:
    """One volume's growth in one state of world and ledger; make a new one for each question. `is_late`: something ran
    out of time."""

    def __init__(
        self,
        world: World,
        ledger: Ledger,
        name: str,
        clock: Clock,
        now_utc: datetime | None,
        route: Route = Route.CLAIM,
    ) -> None:
        world.refresh()
        self._world, self._ledger, self._name, self._route = world, ledger, name, route
        self._clock, self._now_utc = clock, now_utc
        self._budget = Budget.of(clock, VERDICT_MILLISECONDS)
        self._volume = world.volumes[name]
        self._replicas = [entry for entry in world.replicas_of(name).values() if entry.node]
        self._keys = frozenset(claim.uid for claim in world.claims_of_volume(name)) or frozenset({name})
        # What the disks have scheduled of this volume: their figures and the replicas, before they grow.
        shown = (replica.size_bytes for replica in self._replicas if replica.size_bytes > 0)
        self._base_bytes = min((self._volume.size_bytes, *shown))
        self._nodes = {node: self._without_growth(node) for node in {replica.node for replica in self._replicas}}
        self._pending = Pending(world, ledger, self._keys)
        # What is the same at every size, worked out once.
        self._copies_coming = self._copies_beside()
        self._beside: dict[str, _Beside | None] = {}
        self._judges: dict[str, Judge] = {}
        self._copies: dict[str, int] = {}
        self._hopeless: dict[tuple[str, str], bool] = {}

    @property
    def is_late(self) -> bool:
        return self._budget.is_over

    # Steps

    def obstacles(self, new_bytes: int) -> list[Obstacle]:
        """Why the volume may not have that size; empty: it may, if only later."""
        plan = self.by_longhorn(new_bytes)
        if plan.never:
            return [_space_aside(entry) for entry in plan.never]
        found = [
            Obstacle(entry.node, entry.disk, self._missing(entry), self._explained(entry, entry.rejection))
            for entry in plan.disks
            if entry.rejection is not None
        ]
        return found or list(self._in_the_way(plan, new_bytes))

    def fits(self, new_bytes: int) -> bool:
        """As `obstacles`, up to the first."""
        plan = self.by_longhorn(new_bytes)
        is_refused = plan.never or any(entry.rejection is not None for entry in plan.disks)
        return not is_refused and next(self._in_the_way(plan, new_bytes), None) is None

    def not_yet(self, new_bytes: int) -> list[Obstacle]:
        """What keeps Longhorn from giving the volume that size until it passes."""
        return [_space_aside(entry) for entry in self.by_longhorn(new_bytes).not_now]

    def _in_the_way(self, plan: ExpansionPlan, new_bytes: int) -> Iterator[Obstacle]:
        """Records that nobody can read, and promises to others and to the volume itself, that prevent it. A check that
        ran out of time counts as an obstacle."""
        yield from self._on_closed(plan.disks)
        yield from self._against_pending(plan.disks, new_bytes)
        if not self.is_late:
            yield from self._of_promises(new_bytes)
        if self.is_late:
            text = "the check against promised space did not finish in time"
            yield Obstacle("", "", 0, Rejection(Reason.NOT_EVALUATED, text))

    def _on_closed(self, growths: Iterable[DiskGrowth]) -> Iterator[Obstacle]:
        for name in sorted({entry.node for entry in growths if entry.growth_bytes > 0}):
            closed = self._world.allocated.check_closed(name)
            if closed is not None:
                yield Obstacle(name, "", 0, closed)

    def by_longhorn(self, new_bytes: int) -> ExpansionPlan:
        """Longhorn's rule, with the disks as full as growths that were granted make them."""
        settings = self._world.settings
        nodes = {name: node for name, node in self._nodes.items() if node is not None}
        volume = replace(self._volume, size_bytes=self._base_bytes)
        replicas = self._world.replicas_of(self._name).values()
        return plan_expansion(nodes, volume, replicas, new_bytes, settings.space, settings.behaviour, self._route)

    def largest(self, refused_bytes: int) -> int:
        """The largest size that would be granted, below `refused_bytes`; if it `is_late`, the largest proved one. After
        a late verdict on that size itself, only the granted size."""
        granted = max(self._volume.size_bytes, self._ledger.target_of(self._name))
        if self.is_late:
            return granted
        self._budget = Budget.of(self._clock, SEARCH_MILLISECONDS)
        top = min(self.by_longhorn(refused_bytes).largest_later_bytes, refused_bytes - GRANULE_BYTES)
        low, high = granted // GRANULE_BYTES, top // GRANULE_BYTES
        if high > low and self.fits(high * GRANULE_BYTES):  # usual: no promise is in the way
            return high * GRANULE_BYTES
        for _ in range(MOST_TRIES):
            if low >= high or self._budget.is_spent():
                break
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.fits(middle * GRANULE_BYTES) else (low, middle - 1)
        return max(granted, low * GRANULE_BYTES)

    def _missing(self, growth: DiskGrowth) -> int:
        """Bytes that the disk lacks by Longhorn's rule; 0 if more room would not help."""
        if growth.rejection is None or growth.rejection.reason not in _LACKS_BYTES:
            return 0
        node, settings = self._nodes[growth.node], self._world.settings
        disk = next((entry for entry in node.disks if entry.uuid == growth.uuid), None) if node is not None else None
        most = largest_growth(disk, settings.space, settings.behaviour) if disk is not None else 0
        return growth.growth_bytes - max(0, most)

    def _explained(self, growth: DiskGrowth, rejection: Rejection) -> Rejection:
        """With the part of what is scheduled that Longhorn does not show yet."""
        granted = self._granted_to_others(growth.uuid) if rejection.reason is Reason.INSUFFICIENT_STORAGE else 0
        if not granted:
            return rejection
        text = f"{rejection.message}; {bytes_text(granted)} of what is scheduled are for other expansions"
        return replace(rejection, message=text)

    def _granted_to_others(self, disk_uuid: str) -> int:
        """Bytes by which other volumes' replicas on that disk may grow."""
        return sum(more for volume, more in self._ledger.growing_by(disk_uuid) if volume != self._name)

    # Disks as they are without this volume's growth

    def _without_growth(self, name: str) -> LonghornNode | None:
        """The node, with all that was granted to other volumes in its disks' figures. A disk that shares its UUID is
        left out."""
        node = self._world.nodes.get(name)
        if node is None:
            return None
        disks = (self._disk(disk) for disk in node.disks if not self._world.is_shared_disk(disk.uuid))
        return replace(node, disks=tuple(disks))

    def _disk(self, disk: Disk) -> Disk:
        listed = disk.scheduled_replicas
        total = disk.scheduled_bytes + unlisted_bytes(disk, self._world.extra_on(disk.uuid))
        for replica in self._world.counted_on(disk.uuid):
            counted = listed.get(replica.name, 0)
            if replica.volume == self._name:
                total += (self._base_bytes if replica.node else replica.size_bytes) - counted
            else:
                total += max(0, replica.size_bytes - counted)
        return replace(disk, scheduled_bytes=total)

    # What is pending

    def _against_pending(self, growths: Iterable[DiskGrowth], new_bytes: int) -> Iterator[Obstacle]:
        """Disks whose growth would be in danger: Longhorn may put what is pending there first, the volume's own other
        replicas included."""
        by_node: dict[str, list[DiskGrowth]] = {}
        for growth in growths:
            if growth.growth_bytes > 0:
                by_node.setdefault(growth.node, []).append(growth)
        for name, members in by_node.items():
            if name not in self._beside:
                self._beside[name] = self._promised_beside(name)
            beside = self._beside[name]
            if beside is None or not (self._copies_coming or any(beside.loads.values())):
                continue
            if self._budget.is_spent():
                return
            yield from _contended(name, members, beside, new_bytes, self._copies_coming)

    def _copies_beside(self) -> int:
        """How many of its replicas that are still to be placed may come to a disk that holds one."""
        affinity = Affinity.of(self._volume, self._world.settings)
        if not (affinity.shares_nodes and affinity.disk_soft):
            return 0
        pending = (self._ledger.roaming_of(key) for key in self._keys)
        return max((entry.per_disk for entry in pending if entry is not None), default=0)

    def _promised_beside(self, name: str) -> _Beside | None:
        """None for an unknown node."""
        node = self._nodes[name]
        if node is None or self._world.room(name) is None:
            return None
        # Disks that take no replicas have no promise on them either, so that Longhorn's rule is all there is to ask.
        usable = replace(node, disks=tuple(disk for disk in node.disks if check_disk_state(disk) is None))
        room = make_room(usable, lambda _uuid: (), self._world.is_shared_disk, self._world.settings.space)
        seen = self._world.room(name)
        loads = dict(zip((disk.uuid for disk in seen.disks), self._pending.loads(seen), strict=True)) if seen else {}
        reach = {disk.uuid: disk.reach_bytes for disk in seen.disks} if seen else {}
        return _Beside({disk.uuid: disk.free_bytes for disk in room.disks}, reach, loads)

    # What is promised to the volume itself

    def _of_promises(self, new_bytes: int) -> Iterator[Obstacle]:
        """Places promised to the volume in which it would no longer surely find room."""
        for key in sorted(self._keys):
            promises = [one for one in self._ledger.of_volume(key) if one.kind is not Kind.GROWTH]
            places = {node for one in promises for node in one.listed_nodes} | self._places_to_grow()
            demand = self._world.demand_of(key) if places else None
            if demand is None:
                continue
            for name in sorted(places):
                if self._budget.is_spent():
                    return
                obstacle = self._anywhere(demand, new_bytes) if name == ANYWHERE else self._at(name, demand, new_bytes)
                if obstacle is not None and not self.is_late:
                    yield obstacle

    def _places_to_grow(self) -> set[str]:
        """The nodes for the replicas of a volume that is not placed yet: to grow, it is attached to its owner's
        node."""
        volume = self._volume
        if self._replicas or volume.node_id or volume.data_locality == LOCALITY_DISABLED:
            return set()
        if volume.replica_count > 1:
            return {ANYWHERE}
        return {volume.owner_id} if volume.owner_id in self._world.nodes else set()

    def _at(self, name: str, demand: VolumeDemand, new_bytes: int) -> Obstacle | None:
        """The replica that is to go to that node."""
        closed = self._world.allocated.check_closed(name)
        if closed is not None:
            return Obstacle(name, "", 0, closed)
        judge = self._judges.get(demand.key)
        if judge is None:
            now = self._clock.now()
            judge = self._judges[demand.key] = Judge(self._world, self._ledger, [demand], now, now_utc=self._now_utc)
        if (demand.key, name) not in self._hopeless:
            # Where it cannot be placed as it is, a larger one harms nobody.
            as_it_is = judge.judge_room(name, [demand])
            self._hopeless[demand.key, name] = as_it_is.verdict is Verdict.UNSUITABLE
        if self._hopeless[demand.key, name]:
            return None
        judgement = judge.judge_room(name, [_resized(demand, new_bytes)])
        if judgement.verdict is Verdict.SURE:
            return None
        text = f"a replica of {bytes_text(new_bytes)} still has to be placed here, and may not fit"
        return Obstacle(name, "", 0, Rejection(judgement.reason or Reason.CONTENDED, text))

    def _anywhere(self, demand: VolumeDemand, new_bytes: int) -> Obstacle | None:
        """The replicas that may go to any node: those that have a place as it is must surely have one then. The others
        take nothing from anybody."""
        if demand.key not in self._copies:
            self._copies[demand.key] = self._copies_with_a_place(demand)
        copies = self._copies[demand.key]
        if not copies:
            return None
        judgement = self._judge_set(_resized(demand, new_bytes), copies)
        if judgement.verdict is Verdict.SURE:
            return None
        what = "1 replica still has" if copies == 1 else f"{copies} replicas still have"
        text = f"{what} to be placed on any node, and {bytes_text(new_bytes)} may not fit"
        return Obstacle("", "", 0, Rejection(judgement.reason or Reason.CONTENDED, text))

    def _copies_with_a_place(self, demand: VolumeDemand) -> int:
        for copies in range(max(1, demand.copies), 0, -1):
            if self._judge_set(demand, copies).verdict in (Verdict.SURE, Verdict.CONTENDED):
                return copies
        return 0

    def _judge_set(self, demand: VolumeDemand, copies: int) -> Judgement:
        wanted = [WantedCopies(demand, copies, needs_all=True)]
        judge = SetJudge(self._world, wanted, self._pending, budget=self._budget, now_utc=self._now_utc)
        return judge.judge()


def _space_aside(entry: Unexpandable) -> Obstacle:
    return Obstacle(entry.node, entry.disk, 0, entry.rejection)


def _resized(demand: VolumeDemand, new_bytes: int) -> VolumeDemand:
    return replace(demand, size_bytes=max(new_bytes, demand.size_bytes))


def _contended(
    name: str, growths: Iterable[DiskGrowth], beside: _Beside, new_bytes: int, copies: int
) -> list[Obstacle]:
    """The growths on that node's disks that do not fit beside what is promised and may come there, `copies` more of the
    volume included."""
    found = []
    for entry in growths:
        load, free = beside.loads.get(entry.uuid, 0), beside.free.get(entry.uuid)
        own = new_bytes * copies if new_bytes <= beside.reach.get(entry.uuid, 0) else 0
        if free is not None and (load or own) and entry.growth_bytes + load + own > free:
            text = f"{bytes_text(load)} are promised to other volumes that Longhorn may place on this disk"
            if own:
                text = f"{bytes_text(load + own)} are still to be placed, some of this volume, and may go to this disk"
            found.append(Obstacle(name, entry.disk, 0, Rejection(Reason.CONTENDED, f"{entry.disk}: {text}")))
    return found


def _filled_in(obstacle: Obstacle, growth_bytes: int) -> Obstacle:
    """With the missing bytes: if promises prevent the growth, or the volume itself is still to be placed, the whole
    growth is missing."""
    is_promise = obstacle.rejection.reason is Reason.CONTENDED or (
        bool(obstacle.node) and not obstacle.disk and obstacle.rejection.reason is Reason.INSUFFICIENT_STORAGE
    )
    return replace(obstacle, missing_bytes=growth_bytes) if is_promise else obstacle
