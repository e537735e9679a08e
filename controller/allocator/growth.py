"""Whether a volume may grow beside all that is promised: Longhorn's own rule on every disk, and no promise harmed.

Longhorn checks a growth with the disks' figures of that moment (controller/allocator/expansion.py). Here a disk's
figure is what its replicas may become by growths that were granted already, and the growth has to fit wherever
Longhorn puts what is pending: promises of pods and replicas that it may place at any moment. The other way round holds
as well: if the growth fits after every legal placement of those, none of them is stranded by it.

A volume that is not placed yet grows on the nodes where room is promised to it: there the larger replica must fit.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from controller.allocator.budget import Budget
from controller.allocator.cluster import SetJudge
from controller.allocator.expansion import (
    GRANULE_BYTES,
    DiskGrowth,
    ExpansionPlan,
    largest_growth,
    plan_expansion,
)
from controller.allocator.ledger import ANYWHERE, Ledger
from controller.allocator.packing import COVER_STEPS, Item, Steps, is_sure
from controller.allocator.pending import Pending
from controller.allocator.placement import Judge
from controller.allocator.policy import check_disk_state
from controller.allocator.reasons import Reason, Rejection
from controller.allocator.rooms import make_room
from controller.allocator.shape import promised_items
from controller.allocator.verdict import Judgement, Verdict
from controller.allocator.world import World
from controller.model.demand import VolumeDemand
from controller.model.longhorn import Disk, LonghornNode
from controller.model.quantity import bytes_text

MOST_TRIES: Final = 48  # of sizes, to find the largest one
_LACKS_BYTES: Final = (Reason.INSUFFICIENT_STORAGE, Reason.PHYSICAL_SPACE)


@dataclass(frozen=True, slots=True)
class Obstacle:
    """What stands in the way; `disk` and `node` are empty where the volume itself does. `missing_bytes` 0: no number
    of bytes would help."""

    node: str
    disk: str
    missing_bytes: int
    rejection: Rejection


@dataclass(frozen=True, slots=True)
class GrowthPlan:
    """`obstacles` empty: the volume may grow. `largest_bytes`: the largest size that would be granted now, at least
    what was granted already."""

    obstacles: tuple[Obstacle, ...]
    largest_bytes: int


def plan_growth(
    world: World, ledger: Ledger, name: str, new_bytes: int, now: float, now_utc: datetime | None = None
) -> GrowthPlan:
    """The verdict on the volume of that name, which is there, at `new_bytes`, a multiple of 2 MiB above what it was
    granted. Nothing changes."""
    growing = Growing(world, ledger, name, now, now_utc)
    obstacles = growing.obstacles(new_bytes)
    if not obstacles:
        return GrowthPlan((), new_bytes)
    largest = growing.largest(new_bytes)
    return GrowthPlan(tuple(_filled_in(entry, new_bytes - largest) for entry in obstacles), largest)


class Growing:
    """One volume's growth in one state of world and ledger; make a new one for each question."""

    def __init__(self, world: World, ledger: Ledger, name: str, now: float, now_utc: datetime | None) -> None:
        world.refresh()
        self._world, self._ledger, self._name = world, ledger, name
        self._now, self._now_utc = now, now_utc
        self._volume = world.sizes.shown[name]
        self._replicas = [entry for entry in world.placed.shown(name).values() if entry.node]
        self._keys = frozenset(claim.uid for claim in world.claims_of_volume(name)) or frozenset({name})
        # What the disks have scheduled of this volume: their figures and the replicas, before they grow.
        shown = (replica.size_bytes for replica in self._replicas if replica.size_bytes > 0)
        self._base_bytes = min((self._volume.size_bytes, *shown))
        self._nodes = {node: self._without_growth(node) for node in {replica.node for replica in self._replicas}}
        self._pending = Pending(world, ledger, self._keys, now_utc=now_utc)

    # Steps

    def obstacles(self, new_bytes: int) -> list[Obstacle]:
        """Why the volume may not have that size; empty: it may."""
        plan = self.by_longhorn(new_bytes)
        if plan.rejection is not None:
            return [Obstacle("", "", 0, plan.rejection)]
        found = [
            Obstacle(entry.node, entry.disk, self._missing(entry), entry.rejection)
            for entry in plan.disks
            if entry.rejection is not None
        ]
        return found or [*self._against_pending(plan.disks), *self._of_promises(new_bytes)]

    def by_longhorn(self, new_bytes: int) -> ExpansionPlan:
        """Longhorn's rule, with the disks as full as growths that were granted make them."""
        settings = self._world.settings
        nodes = {name: node for name, node in self._nodes.items() if node is not None}
        volume = replace(self._volume, size_bytes=self._base_bytes)
        return plan_expansion(nodes, volume, self._replicas, new_bytes, settings.space, settings.behaviour)

    def largest(self, refused_bytes: int) -> int:
        """The largest size that would be granted, below a size that is not."""
        granted = self._world.sizes.granted(self._name)
        top = min(self.by_longhorn(refused_bytes).largest_bytes, refused_bytes - GRANULE_BYTES)
        low, high = granted // GRANULE_BYTES, top // GRANULE_BYTES
        if high > low and not self.obstacles(high * GRANULE_BYTES):  # usual: no promise is in the way
            return high * GRANULE_BYTES
        for _ in range(MOST_TRIES):
            if low >= high:
                break
            middle = (low + high + 1) // 2
            low, high = (low, middle - 1) if self.obstacles(middle * GRANULE_BYTES) else (middle, high)
        return max(granted, low * GRANULE_BYTES)

    def _missing(self, growth: DiskGrowth) -> int:
        """Bytes that the disk lacks by Longhorn's rule; 0 where none would help."""
        if growth.rejection is None or growth.rejection.reason not in _LACKS_BYTES:
            return 0
        node, settings = self._nodes[growth.node], self._world.settings
        disk = next((entry for entry in node.disks if entry.uuid == growth.uuid), None) if node is not None else None
        most = largest_growth(disk, settings.space, settings.behaviour) if disk is not None else 0
        return growth.growth_bytes - max(0, most)

    # Disks as they are without this volume's growth

    def _without_growth(self, name: str) -> LonghornNode | None:
        """The node, its disks' figures with all that was granted to other volumes; a disk whose UUID is not its own
        alone is left out."""
        node = self._world.nodes.get(name)
        if node is None:
            return None
        disks = (self._disk(disk) for disk in node.disks if not self._world.is_shared_disk(disk.uuid))
        return replace(node, disks=tuple(disks))

    def _disk(self, disk: Disk) -> Disk:
        listed = disk.scheduled_replicas
        total = disk.scheduled_bytes
        for replica in self._world.replicas_on(disk.uuid):
            counted = listed.get(replica.name, 0)
            size = self._base_bytes if replica.volume == self._name and replica.node else replica.size_bytes
            total += size - counted if replica.volume == self._name else max(0, size - counted)
        return replace(disk, scheduled_bytes=total)

    # What is pending

    def _against_pending(self, growths: Iterable[DiskGrowth]) -> list[Obstacle]:
        """Disks whose growth would be in danger: Longhorn may put what is pending there first."""
        by_node: dict[str, list[DiskGrowth]] = {}
        for growth in growths:
            if growth.growth_bytes > 0:
                by_node.setdefault(growth.node, []).append(growth)
        found = []
        for name, members in by_node.items():
            found += self._contended_on(name, members)
        return found

    def _contended_on(self, name: str, growths: list[DiskGrowth]) -> list[Obstacle]:
        node = self._nodes[name]
        if node is None or self._world.room(name) is None:
            return []
        # Disks that take no replicas have no promise on them either, so that Longhorn's rule is all there is to ask.
        usable = replace(node, disks=tuple(disk for disk in node.disks if check_disk_state(disk) is None))
        room = make_room(usable, {}, self._world.is_shared_disk, self._world.settings.space)
        index = {disk.uuid: number for number, disk in enumerate(room.disks)}
        items = [Item(entry.growth_bytes, (index[entry.uuid],)) for entry in growths if entry.uuid in index]
        others = promised_items(self._world, room, self._pending.on(name))
        free = [disk.free_bytes for disk in room.disks]
        if not items or not others or is_sure(items, others, free, Steps(COVER_STEPS)):
            return []
        promised = bytes_text(sum(item.size_bytes for item in others))
        text = f"{promised} on the node are promised to other volumes, which Longhorn may place on this disk"
        return [
            Obstacle(name, entry.disk, 0, Rejection(Reason.CONTENDED, f"{entry.disk}: {text}"))
            for entry in growths
            if entry.uuid in index
        ]

    # What is promised to the volume itself

    def _of_promises(self, new_bytes: int) -> list[Obstacle]:
        """Places promised to the volume in which it would no longer surely find room."""
        found: list[Obstacle] = []
        for key in sorted(self._keys):
            places = {entry.node for entry, _ in self._ledger.of_volume(key)}
            demand = self._world.demand_of(key) if places else None
            if demand is not None:
                found += self._of_places(replace(demand, size_bytes=new_bytes), places)
        return found

    def _of_places(self, demand: VolumeDemand, places: Iterable[str]) -> list[Obstacle]:
        found = []
        for name in sorted(places):
            if name == ANYWHERE:
                judgement = self._judge_anywhere(demand)
            else:
                judge = Judge(self._world, self._ledger, [demand], self._now, now_utc=self._now_utc)
                judgement = judge.judge_room(name, [demand])
            # Where it cannot be placed at any size, a larger one harms nobody.
            is_hopeless = judgement.verdict is Verdict.UNSUITABLE and judgement.reason is not Reason.INCOMPATIBLE_SIZE
            if judgement.verdict is not Verdict.SURE and not is_hopeless:
                reason = judgement.reason or Reason.CONTENDED
                text = f"{name}: the volume is to be placed there" if name != ANYWHERE else "the volume is to be placed"
                node = "" if name == ANYWHERE else name
                rejection = Rejection(reason, f"{text}, and {bytes_text(demand.size_bytes)} do not surely fit")
                found.append(Obstacle(node, "", 0, rejection))
        return found

    def _judge_anywhere(self, demand: VolumeDemand) -> Judgement:
        """Copies that find no place whatever is pending take nothing from anybody; those that do must do so surely."""
        for copies in range(max(1, demand.copies), 0, -1):
            judge = SetJudge(self._world, demand, copies, self._pending, budget=Budget(), now_utc=self._now_utc)
            judgement = judge.judge()
            if judgement.verdict in (Verdict.SURE, Verdict.CONTENDED):
                return judgement
        return Judgement(Verdict.SURE)


def _filled_in(obstacle: Obstacle, growth_bytes: int) -> Obstacle:
    """Where promises are in the way, what is missing is what the volume cannot have."""
    return replace(obstacle, missing_bytes=growth_bytes) if obstacle.rejection.reason is Reason.CONTENDED else obstacle
