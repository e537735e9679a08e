"""Small worlds, in which every placement can be tried: a pod is sure where there is one, and its places are one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import combinations, product
from typing import Any, Final

from hypothesis import event, given, settings
from hypothesis import strategies as st

from controller.allocator.choose.choose import Chooser
from controller.allocator.choose.pod_fit import PlacesByVolume, PodFit
from controller.allocator.choose.verdict import Verdict
from controller.allocator.plans.nominations import Approvals
from controller.allocator.plans.plan import Hold, Source
from controller.allocator.plans.table import Table
from controller.allocator.waiting.room import PodRoom
from controller.allocator.world.world import World
from controller.model.longhorn import BackingImage
from controller.model.places import Place
from controller.rules.demand import VolumeDemand
from controller.rules.eligibility import EXT_LIMIT_BYTES
from controller.rules.reasons import Reason
from tests.fakes.builders import node, pod
from tests.fakes.clock import VirtualClock
from tests.fakes.rooms import OPEN, local, roaming, room
from tests.unit.choose.random_worlds import GIB, TakenOf, worlds

SIBLINGS: Final = (Reason.DISK_ANTI_AFFINITY, Reason.NODE_ANTI_AFFINITY, Reason.ZONE_ANTI_AFFINITY)

NOW: Final = datetime(2026, 1, 1, tzinfo=UTC)
IMAGE: Final = BackingImage("i", real_size_bytes=3, disk_uuids=frozenset({"n0-d1"}))
REASONS: Final = (
    Reason.CONTENDED,
    Reason.INSUFFICIENT_STORAGE,
    Reason.NODE_TAGS,
    Reason.DISK_TAGS,
    Reason.NO_LONGHORN_NODE,
    Reason.TOO_FULL,
)
Disk = tuple[str, str]  # node and UUID


@dataclass(frozen=True)
class Small:
    """Bytes free and held by another pod, by node and disk. `locals_` and `others`: sizes of the pod's volumes, the
    others with their copies. `shares`: the other pod claims the first of these, too, and was told its places."""

    free: tuple[tuple[int, ...], ...]
    held: tuple[tuple[int, ...], ...]
    zones: tuple[str, ...]
    locals_: tuple[int, ...]
    others: tuple[tuple[int, int], ...]
    has_image: bool = False
    size: int = 100
    zone_soft: bool = True
    node_soft: bool = False
    disk_soft: bool = True
    degraded: bool = True
    shares: bool = False

    @property
    def names(self) -> list[str]:
        return [f"n{number}" for number in range(len(self.free))]

    @property
    def demands(self) -> list[VolumeDemand]:
        image = IMAGE if self.has_image else None
        own = [local(size, f"l{number}", image=image) for number, size in enumerate(self.locals_)]
        return own + [roaming(size, f"r{number}", copies) for number, (size, copies) in enumerate(self.others)]

    def bytes_of(self, rows: tuple[tuple[int, ...], ...]) -> dict[Disk, int]:
        return {
            (name, f"{name}-d{number}"): one
            for name, row in zip(self.names, rows, strict=True)
            for number, one in enumerate(row)
        }

    def left(self) -> dict[Disk, int]:
        held = self.bytes_of(self.held)
        return {disk: free - held[disk] for disk, free in self.bytes_of(self.free).items()}


def world_of(small: Small) -> World:
    world = World()
    soft: dict[str, Any] = {
        "soft_anti_affinity": small.node_soft,
        "zone_soft_anti_affinity": small.zone_soft,
        "disk_soft_anti_affinity": small.disk_soft,
        "degraded_availability": small.degraded,
    }
    world.put_settings(replace(OPEN, **soft))
    for name, frees, zone in zip(small.names, small.free, small.zones, strict=True):
        disks = (room(f"d{number}", free, size=small.size) for number, free in enumerate(frees))
        world.put_node(name, node(name, *disks, zone=zone))
    return world


def table_of(small: Small, known: Sequence[Place]) -> Table:
    """What the other pod holds."""
    table = Table()
    anywhere: dict[str, tuple[Place, ...]] = {
        f"held-{number}": (Place(*disk, size),)
        for number, (disk, size) in enumerate(small.bytes_of(small.held).items())
        if size
    }
    if known:
        anywhere["r0"] = tuple(known)
    table.put_hold(Hold("other", Source.FILTER, None, anywhere, 0.0, NOW))
    return table


def asked(small: Small, known: Sequence[Place] = ()) -> tuple[PodFit, Table]:
    world, table = world_of(small), table_of(small, known)
    room = PodRoom(world, table, Chooser(world), VirtualClock(), Approvals())
    return room.fit(pod("asks"), small.demands), table


@st.composite
def small_worlds(draw: st.DrawFn, *, locals_: tuple[int, int], others: tuple[int, int]) -> Small:
    """`locals_` and `others`: the least and the most volumes of either kind."""
    count, bytes_free = draw(st.integers(1, 3)), st.integers(0, 12)
    free = tuple(tuple(draw(st.lists(bytes_free, min_size=1, max_size=2))) for _ in range(count))
    sizes = st.integers(1, 8)
    return Small(
        free=free,
        held=tuple(tuple(draw(st.sampled_from((0, 0, min(one, 3), one // 2))) for one in row) for row in free),
        zones=tuple(draw(st.sampled_from("ab")) for _ in range(count)),
        locals_=tuple(draw(st.lists(sizes, min_size=locals_[0], max_size=locals_[1]))),
        others=tuple(draw(st.lists(st.tuples(sizes, st.integers(1, 3)), min_size=others[0], max_size=others[1]))),
        has_image=draw(st.booleans()),
        size=draw(st.sampled_from((12, 100))),
        zone_soft=draw(st.booleans()),
        node_soft=draw(st.booleans()),
        disk_soft=draw(st.booleans()),
        degraded=draw(st.booleans()),
        shares=draw(st.booleans()),
    )


# By trying all


def local_bytes(small: Small, disks: Sequence[Disk]) -> Counter[Disk]:
    """What the local volumes take on these disks, one each."""
    taken = Counter[Disk]()
    for disk, size in zip(disks, small.locals_, strict=True):
        taken[disk] += size
    if small.has_image:
        for disk in set(disks):
            taken[disk] += 0 if disk[1] in IMAGE.disk_uuids else IMAGE.real_size_bytes
    return taken


def has_local_place(small: Small, name: str, free: dict[Disk, int]) -> bool:
    here = [disk for disk in free if disk[0] == name]
    choices = product(here, repeat=len(small.locals_))
    return any(all(size <= free[disk] for disk, size in local_bytes(small, one).items()) for one in choices)


def may_lie(small: Small, disks: Sequence[Disk]) -> bool:
    """Whether copies of one volume may lie there, by anti-affinity."""
    zones = dict(zip(small.names, small.zones, strict=True))
    if not small.zone_soft:
        return len({zones[name] for name, _ in disks}) == len(disks)
    if not small.node_soft:
        return len({name for name, _ in disks}) == len(disks)
    return small.disk_soft or len(set(disks)) == len(disks)


def most_copies(small: Small, free: dict[Disk, int]) -> int:
    """Of the pod's only other volume."""
    ((size, copies),) = small.others
    slots = [disk for disk, left in free.items() for _ in range(left // size)]
    for count in range(min(copies, len(slots)), 0, -1):
        if any(may_lie(small, one) for one in combinations(slots, count)):
            return count
    return 0


def expected(is_sure: bool, is_possible: bool) -> Verdict:
    return Verdict.SURE if is_sure else Verdict.CONTENDED if is_possible else Verdict.FULL


# What holds


@settings(max_examples=300, deadline=None)
@given(small_worlds(locals_=(1, 3), others=(0, 0)))
def test_local_volumes_are_sure_on_a_node_if_they_can_be_packed_there(small: Small) -> None:
    fit, _ = asked(small)
    assert (small.names, {}) == fit.open_among(small.names)
    for name, found in fit.judge_all(small.names).items():
        wanted = expected(
            has_local_place(small, name, small.left()), has_local_place(small, name, small.bytes_of(small.free))
        )
        bare = replace(small, has_image=False)
        if wanted is Verdict.FULL and has_local_place(bare, name, bare.bytes_of(bare.free)):
            wanted = Verdict.CONTENDED  # the image may come to lie there without them
        assert wanted is found.verdict
        event(wanted.name)


@settings(max_examples=300, deadline=None)
@given(small_worlds(locals_=(0, 0), others=(1, 1)))
def test_a_volume_that_is_bound_to_no_node_is_sure_if_its_copies_can_be_placed(small: Small) -> None:
    fit, _ = asked(small)
    ((_, copies),) = small.others
    least = 1 if small.degraded else copies
    found, most = most_copies(small, small.left()), most_copies(small, small.bytes_of(small.free))
    wanted = expected(found >= least, most >= least)

    names, closed = fit.open_among(small.names)

    assert (small.names if wanted is Verdict.SURE else []) == list(names)
    by_siblings = {one for one in closed.values() if one.reason in SIBLINGS}
    assert {Verdict.UNSUITABLE} >= {one.verdict for one in by_siblings}
    assert not by_siblings or (wanted is Verdict.FULL and set(closed.values()) == by_siblings)
    assert by_siblings or {wanted} - {Verdict.SURE} == {one.verdict for one in closed.values()}
    assert wanted is not Verdict.SURE or found == len(fit.anywhere["r0"])
    event(wanted.name)


@settings(max_examples=300, deadline=None)
@given(small_worlds(locals_=(0, 2), others=(0, 2)))
def test_places_are_on_bytes_that_nobody_has_and_where_they_may_lie(small: Small) -> None:
    known: tuple[Place, ...] = ()
    if small.shares and small.others:
        known = asked_alone(small)
        event(f"known {len(known)}")
    fit, table = asked(small, known)
    names, _ = fit.open_among(small.names)
    for name, found in fit.judge_all(names).items():
        if found.is_sure:
            check(small, name, found.places, fit.anywhere, table)
            event("sure")
    packed = fit.pack_first(small.names)
    if packed is not None:
        check(small, packed[0], packed[1].places, fit.anywhere, table)
        event("together")


def test_many_nodes_are_judged_as_each_of_them_alone() -> None:
    """By each of Longhorn's rules. Of disks that serve alike either may be named."""
    seen = Counter[object]()
    for dice, world, volume in worlds(53, 250):
        names = [*sorted(world.nodes), "unknown"]
        disks = [(name, disk.uuid) for name in names[:-1] for disk in world.nodes[name].disks if disk.uuid]
        taken = TakenOf({one: dice.choice((0, 1, 30, 200)) * GIB for one in disks})
        tags = tuple(dice.sample(("ssd", "fast"), dice.randrange(3)))
        for needs in (
            volume.needs,
            replace(volume.needs, node_selector=tags),
            replace(volume.needs, disk_selector=tags),
        ):
            facts = replace(volume, name="new", needs=needs)
            demand = local(dice.choice((1, GIB, 10 * GIB, EXT_LIMIT_BYTES)), "new", needs=needs)
            demand = replace(demand, facts=replace(facts, size_bytes=demand.size_bytes))
            fit = PodFit(world, Chooser(world), [demand], taken, now_utc=NOW)
            for name, found in fit.judge_all(names).items():
                alone = fit.judge(name)
                assert (alone.verdict, alone.reason) == (found.verdict, found.reason), name
                for place in found.places.values():
                    room = world.room(name)
                    assert room is not None
                    (free,) = (one.free_bytes for one in room.disks if one.uuid == place.disk_uuid)
                    assert place.size_bytes <= free - taken.taken_bytes(name, place.disk_uuid)
                seen[found.reason or found.verdict] += 1
    assert min(seen[one] for one in (Verdict.SURE, *REASONS)) > 5, seen


def asked_alone(small: Small) -> tuple[Place, ...]:
    """Where the first of the other volumes goes for another pod."""
    fit, _ = asked(replace(small, locals_=(), others=small.others[:1]))
    fit.open_among(small.names)
    return fit.anywhere.get("r0", ())


def check(small: Small, name: str, places: Mapping[str, Place], anywhere: PlacesByVolume, table: Table) -> None:
    assert {f"l{number}" for number in range(len(small.locals_))} == places.keys()
    assert {name} >= {one.node for one in places.values()}
    assert {f"r{number}" for number in range(len(small.others))} == anywhere.keys()
    for number, (size, copies) in enumerate(small.others):
        here = anywhere[f"r{number}"]
        assert (1 if small.degraded else copies) <= len(here) <= copies
        assert {size} == {one.size_bytes for one in here}
        assert may_lie(small, [(one.node, one.disk_uuid) for one in here])
    assert sum(local_bytes(small, [(one.node, one.disk_uuid) for one in places.values()]).values()) == sum(
        one.size_bytes for one in places.values()
    )
    table.put_hold(Hold("asks", Source.FILTER, {name: places}, anywhere, 0.0, NOW))
    for disk, free in small.bytes_of(small.free).items():
        assert table.taken_bytes(*disk) <= free
    table.end_hold("asks")
