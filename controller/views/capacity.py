"""How much fits: by node, disk and tag, what has to be rebuilt, and whether a node may be lost.

All places are found by `choose`, beside all that is planned, held and about to grow. What takes too long is cut short,
and a note says so.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from controller.allocator.choose.choose import Chooser
from controller.allocator.choose.packing import Budget
from controller.allocator.choose.wanted import Taken, Wanted, replica_to_come
from controller.allocator.plans.beside import Beside
from controller.allocator.verbs.views import Look
from controller.allocator.world.world import World
from controller.model.longhorn import DATA_LOCALITIES, SHARDED, DiskNeeds, Volume
from controller.model.places import Place
from controller.model.times import rfc3339
from controller.rules.demand import demand_of_volume
from controller.rules.eligibility import EXT_LIMIT_BYTES, check_node
from controller.rules.growth import GRANULE_BYTES
from controller.views.documents import Capacity, DiskView, NodeCapacity, Rebuild, Survival, TagCapacity
from controller.views.overview import claim_of, disk_views, totals_of

COPIES: Final = (1, 2, 3)
MOST_TAGS: Final = 50
MOST_REBUILDS: Final = 500  # that are told
REBUILD_MILLISECONDS, LOSS_MILLISECONDS, TAG_MILLISECONDS = 250, 500, 250
_DISK, _NODE = "disk", "node"


@dataclass(slots=True)
class Filling:
    """What is taken, and more and more places as well."""

    taken: Taken
    more: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def taken_bytes(self, node: str, disk_uuid: str) -> int:
        return self.taken.taken_bytes(node, disk_uuid) + self.more.get(disk_uuid, 0)

    def add(self, places: Iterable[Place]) -> None:
        for place in places:
            self.more[place.disk_uuid] += place.size_bytes

    def take_back(self, places: Iterable[Place]) -> None:
        for place in places:
            self.more[place.disk_uuid] -= place.size_bytes


@dataclass(frozen=True, slots=True)
class Placing:
    """Finds places for copies, one after the other, in one state of the facts."""

    look: Look
    world: World
    chooser: Chooser
    filling: Filling

    @classmethod
    def of(cls, look: Look, world: World | None = None) -> Placing:
        world = world or look.world
        return cls(look, world, Chooser(world), Filling(Beside(look.table)))

    def place(self, volume: Volume, copies: int) -> tuple[Place, ...]:
        """Return places for as many copies as find one; they are taken from now on."""
        found = tuple[Place, ...]()
        for _ in range(copies):
            wanted = Wanted(volume, replica_to_come(volume), found)
            place = self.chooser.choose(wanted, self.filling, self.look.now_utc).place
            if place is None:
                break
            self.filling.add((place,))
            found = (*found, place)
        return found

    def takes(self, volume: Volume, copies: int) -> bool:
        """Whether so many copies find places; nothing is taken."""
        found = self.place(volume, copies)
        self.filling.take_back(found)
        return len(found) == copies


def capacity_of(look: Look) -> Capacity:
    """Return the document. Costs: a look at each disk and replica, and some hundred placements."""
    disks, placing, notes = disk_views(look), Placing.of(look), list[str]()
    return Capacity(
        time=rfc3339(look.now_utc),
        totals=totals_of(disks),
        nodes=_nodes(look, disks),
        disks=disks,
        tags=_tags(look, placing, disks, notes),
        largest_bytes=_largest_by_copies(placing, DiskNeeds(), disks),
        rebuilds=_rebuilds(look, notes),
        survival=_survival(look, disks, notes),
        notes=notes,
    )


def _granules(size_bytes: int) -> int:
    return min(size_bytes, EXT_LIMIT_BYTES - 1) // GRANULE_BYTES * GRANULE_BYTES


# What fits


def _nodes(look: Look, disks: Sequence[DiskView]) -> list[NodeCapacity]:
    by_node, found = defaultdict[str, list[DiskView]](list), list[NodeCapacity]()
    for one in disks:
        by_node[one.node].append(one)
    for name in sorted(look.world.nodes):
        facts, room, here = look.world.nodes[name], look.world.room(name), by_node[name]
        plain = room.plain_disks if room is not None and look.world.has_node(name) else ()
        free = (disk.free_bytes - look.table.taken_bytes(name, disk.uuid) for disk in plain)
        largest = max((_granules(size) for size in free), default=0)
        lying = (one for uuid in {one.uuid for one in here} for one in look.world.replicas_on(uuid))
        found.append(
            NodeCapacity(
                node=name,
                is_schedulable=look.world.has_node(name) and check_node(facts) is None,
                limit_bytes=sum(one.limit_bytes for one in here),
                used_bytes=sum(one.used_bytes for one in here),
                taken_bytes=sum(one.planned_bytes + one.held_bytes + one.growth_bytes for one in here),
                free_bytes=sum(max(0, one.free_bytes) for one in here if not one.closed),
                largest_bytes=max(0, largest),
                copies=sum(1 for one in lying if one.node == name),
            )
        )
    return found


def _largest_by_copies(placing: Placing, needs: DiskNeeds, disks: Sequence[DiskView]) -> dict[str, int]:
    """The largest new volume by its number of copies. Some disk decides, which one or several copies fill."""
    free = [one.free_bytes for one in disks if not one.closed and one.free_bytes > 0]
    found = dict[str, int]()
    for copies in COPIES:
        sizes = sorted({_granules(size // share) for size in free for share in range(1, copies + 1)} - {0})
        found[str(copies)] = _largest(placing, needs, copies, sizes)
    return found


def _largest(placing: Placing, needs: DiskNeeds, copies: int, sizes: Sequence[int]) -> int:
    """The largest of `sizes`, in order, at which a new volume of so many copies finds places; 0 if none does."""
    low, high = -1, len(sizes)
    volume = Volume("new", 0, 0, copies, DATA_LOCALITIES[0], "rwo", False, needs=needs, image=_image(placing))
    while high - low > 1:
        middle = (low + high) // 2
        takes = placing.takes(replace(volume, size_bytes=sizes[middle]), copies)
        low, high = (middle, high) if takes else (low, middle)
    return sizes[low] if low >= 0 else 0


def _image(placing: Placing) -> str:
    return placing.world.default_engine_image()


def _tags(look: Look, placing: Placing, disks: Sequence[DiskView], notes: list[str]) -> list[TagCapacity]:
    tagged = defaultdict[tuple[str, str], list[DiskView]](list)
    for one in disks:
        for tag in one.tags:
            tagged[_DISK, tag].append(one)
        for tag in look.world.nodes[one.node].tags:
            tagged[_NODE, tag].append(one)
    found, budget = list[TagCapacity](), Budget.of(look.clock, TAG_MILLISECONDS)
    for (of, tag), members in sorted(tagged.items())[:MOST_TAGS]:
        largest = dict[str, int]()
        open_ones = [one for one in members if not one.closed]
        if not budget.is_spent():
            needs = DiskNeeds(disk_selector=(tag,)) if of == _DISK else DiskNeeds(node_selector=(tag,))
            largest = _largest_by_copies(placing, needs, open_ones)
        limit = sum(one.limit_bytes for one in members)
        free = sum(max(0, one.free_bytes) for one in open_ones)
        found.append(TagCapacity(of, tag, len(members), limit, free, largest))
    unasked = sum(1 for one in found if not one.largest_bytes)
    if unasked:
        notes.append(f"The largest volume was not worked out for {unasked} tags, for want of time.")
    if len(tagged) > MOST_TAGS:
        notes.append(f"{len(tagged) - MOST_TAGS} of {len(tagged)} tags are left out.")
    return found


# What has to be rebuilt


def _rebuilds(look: Look, notes: list[str]) -> list[Rebuild]:
    """Volumes with missing copies that nothing is planned for, the largest first."""
    found, budget, placing = list[Rebuild](), Budget.of(look.clock, REBUILD_MILLISECONDS), Placing.of(look)
    missing = sorted(_missing(look), key=lambda entry: (-entry[0].size_bytes, entry[0].name))
    for volume, copies in missing[:MOST_REBUILDS]:
        if budget.is_spent():
            break
        is_placeable = len(placing.place(volume, copies)) == copies
        found.append(Rebuild(volume.name, claim_of(look, volume.name), volume.size_bytes, copies, is_placeable))
    if len(found) < len(missing):
        text = f"Rebuilds: the {len(found)} largest of {len(missing)} volumes with missing copies are told."
        notes.append(text)
    return found


def _missing(look: Look) -> Iterator[tuple[Volume, int]]:
    world, settings = look.world, look.world.settings
    for name, volume in world.volumes.items():
        usable = sum(1 for one in world.replicas_of(name).values() if one.is_usable)
        if usable >= volume.replica_count or volume.deleting or volume.data_layout == SHARDED:
            continue
        demand = demand_of_volume(world.volume(name) or volume, world, settings)
        copies = demand.copies - len(look.table.places(name))
        if copies > 0:
            yield demand.facts, copies


# The loss of a node


def _survival(look: Look, disks: Sequence[DiskView], notes: list[str]) -> Survival | None:
    """What became of the data if the node with most bytes were lost."""
    used = defaultdict[str, int](int)
    for one in disks:
        used[one.node] += one.used_bytes
    if not used:
        return None
    name = min(used, key=lambda node: (-used[node], node))
    return survival_of(look, name, notes)


def survival_of(look: Look, name: str, notes: list[str]) -> Survival | None:
    """Return what became of the data if that node were lost: each of its copies is placed anew on the others, the
    largest first. None if no answer was found in time, as a note tells."""
    facts = look.world.nodes[name]
    copies = [one for disk in facts.disks for one in look.world.replicas_on(disk.uuid)]
    by_volume = defaultdict[str, int](int)
    for one in copies:
        by_volume[one.volume] += one.node == name and one.is_usable
    affected = [(volume, count) for key, count in by_volume.items() if count and (volume := look.world.volume(key))]
    affected.sort(key=lambda entry: (-entry[0].size_bytes, entry[0].name))
    placing, budget = Placing.of(_without(look, name)), Budget.of(look.clock, LOSS_MILLISECONDS)
    lost, homeless, missing, tried = list[str](), list[str](), 0, 0
    for volume, count in affected:
        others = (one for one in look.world.replicas_of(volume.name).values() if one.node != name)
        if not any(one.is_usable for one in others):
            lost.append(volume.name)
        elif not budget.is_spent():
            tried += 1
            short = count - len(placing.place(replace(volume, node_id=""), count))
            if short:
                homeless.append(volume.name)
                missing += short * volume.size_bytes
    untried = len(affected) - len(lost) - tried
    if untried:
        notes.append(
            f"Loss of {name}: {untried} of its {len(affected)} volumes were not placed anew, for want of time."
        )
    size = sum(volume.size_bytes * count for volume, count in affected)
    is_survived = not (lost or homeless)
    if is_survived and untried:
        return None
    return Survival(name, is_survived, sum(count for _, count in affected), size, lost, homeless, missing)


def _without(look: Look, name: str) -> Look:
    world = look.world.copy(look.growths)
    world.put_node(name, None)
    world.put_kube_node(name, None)
    return replace(look, world=world)
