"""What a call gives, and what is told of disks, beside all that others have, whatever happened before."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import pytest

from controller.allocator.by_name.beside import BesideOthers
from controller.allocator.by_name.find import beside_others
from controller.allocator.choose.choose import MOST_LOOKS, Chooser
from controller.allocator.plans.plan import Hold, Plan, Source
from controller.allocator.plans.table import Table
from controller.allocator.verbs.grow import places_to_come
from controller.allocator.world.world import World
from controller.model.longhorn import Replica, Volume
from controller.model.places import Place
from tests.oracle.worlds import NOW
from tests.unit.allocator.giving import SECONDS, cluster_of, image
from tests.unit.choose.random_worlds import GIB, asked, change, has_overflow, wanted_in, world_with, worlds

SEED = 41
WORLDS = 150
STEPS = 4


def table_of(dice: random.Random, world: World, volume: Volume) -> Table:
    """Some plans and holds; some are the volume's own."""
    table = Table()
    disks = [(name, disk.uuid) for name in sorted(world.nodes) for disk in world.nodes[name].disks if disk.uuid]
    for number in range(dice.choice((0, 0, 1, 3)) if disks else 0):
        owner = dice.choice((f"other-{number}", f"other-{number}", volume.name))
        size = volume.size_bytes if owner == volume.name else dice.choice((1, 5, 20, 100)) * GIB
        places = [Place(*disk, size) for disk in dice.sample(disks, min(len(disks), dice.choice((1, 2, 3))))]
        if dice.random() < 0.5:
            table.put(Plan(owner, owner, tuple(places), (), NOW))
        else:
            offered = {place.node: {owner: place} for place in places}
            table.put_hold(Hold(f"pod-{number}", Source.FILTER, offered, {}, 0.0, NOW))
    return table


Question = tuple[World, Table, Volume, Replica, dict[str, str]]


def questions() -> Iterator[tuple[Chooser, Question]]:
    """One chooser lives through all the changes of its world, and has to notice each."""
    for dice, world, one in worlds(SEED, WORLDS):
        chooser = Chooser(world)
        for _ in range(STEPS):
            current = world.volume(one.name)
            if has_overflow(world) or current is None:
                break
            replica, table = asked(dice, world, one), table_of(dice, world, one)
            closed = dict.fromkeys(dice.sample(sorted(world.nodes), dice.choice((0, 0, 1)) if world.nodes else 0), "x")
            yield chooser, (world, table, current, replica, closed)
            change(dice, world, one)


def test_a_call_gives_a_disk_with_room_beside_all_that_others_have_and_the_next_view_only_without_one() -> None:
    seen: Counter[str] = Counter()
    for chooser, (world, table, volume, replica, closed) in questions():
        beside = beside_others(world, table, volume, NOW, closed)
        chosen = beside.choose(chooser, replica)
        found = next((told for view in beside.tries() if (told := view.told(replica)).disks), None)
        if found is None:
            assert chosen.place is None
            seen["none"] += 1
            continue
        given = {(one.node, one.uuid): one.free_bytes for one in found.disks}
        assert chosen.place is not None and chosen.tried == found.tried
        assert given[chosen.place.node, chosen.place.disk_uuid] >= chosen.place.size_bytes
        seen["found"] += 1
        seen["taken"] += bool(table.taken_by_node())
        own = {(one.node, one.disk_uuid) for one in places_to_come(table, volume.name)}
        seen["own"] += (chosen.place.node, chosen.place.disk_uuid) in own
    assert min(seen["found"], seen["none"], seen["taken"]) > WORLDS // 4, seen
    assert seen["own"] > WORLDS // 10, seen


def test_where_no_disk_is_found_what_is_told_of_the_nearest_is_what_the_whole_search_says() -> None:
    """And the others are counted."""
    seen: Counter[str] = Counter()
    for number, (chooser, (world, table, volume, replica, closed)) in enumerate(questions()):
        beside = beside_others(world, table, volume, NOW, closed)
        found = beside.find_nearest(replica, chooser, number % STEPS + 1)
        if found.disks:
            continue
        expected = beside.find(replica, chooser)
        near = {entry.node for entry in found.obstacles}
        assert tuple(entry for entry in expected.obstacles if entry.node in near) == found.obstacles
        assert len(expected.obstacles) == len(found.obstacles) + found.more
        seen["more" if found.more else "all"] += 1
    assert min(seen["more"], seen["all"]) > WORLDS // 8, seen


# The volume's own places


def given(table: Table, *free_gib: float, closed: tuple[str, ...] = (), **fields: object) -> str:
    """The node of the disk that a replica of 10 GiB of the volume `v` gets."""
    world = world_with(*free_gib)
    wanted = wanted_in(world, 10, **fields)
    beside = beside_others(world, table, wanted.volume, closed=dict.fromkeys(closed, "x"))
    place = beside.choose(Chooser(world), wanted.replica).place
    return place.node if place is not None else ""


def planned(*names: str, volume: str = "v", gib: float = 10) -> Table:
    table = Table()
    table.put(Plan(volume, volume, tuple(Place(name, f"{name}-d1", int(gib * GIB)) for name in names), (), NOW))
    return table


def held(*names: str) -> Table:
    table = Table()
    offered = {name: {"v": Place(name, f"{name}-d1", 10 * GIB)} for name in names}
    table.put_hold(Hold("pod", Source.FILTER, offered, {}, 0.0, NOW))
    return table


@pytest.mark.parametrize("table", [planned("n1"), held("n1")], ids=["planned", "held"])
def test_its_own_place_comes_before_a_better_disk(table: Table) -> None:
    assert ("n0", "n1") == (given(Table(), 900, 100, 500), given(table, 900, 100, 500))


def test_of_several_own_places_longhorns_preference_decides() -> None:
    assert "n2" == given(planned("n1", "n2"), 900, 100, 500)


@pytest.mark.parametrize("closed", ["n1", "n1-d1"])
def test_an_own_place_that_takes_nothing_is_passed_by(closed: str) -> None:
    assert ("n0", "n2") == (
        given(planned("n1"), 900, 100, 500, closed=(closed,)),
        given(planned("n1", "n2"), 900, 100, 500, closed=(closed,)),
    )


def test_so_is_one_without_room() -> None:
    assert "n0" == given(planned("n1"), 900, 5, 500)


def test_a_place_of_another_volume_is_left_to_it() -> None:
    assert "n0" == given(planned("n1", volume="w", gib=95), 50, 100)
    assert "" == given(planned("n0", volume="w", gib=95), 100)


@pytest.mark.parametrize(("at", "expected"), [("", "n1"), ("n1", "n1"), ("n2", "n2"), ("n3", "n0")])
def test_where_longhorn_wants_a_copy_at_its_engine_places_elsewhere_count_for_nothing(at: str, expected: str) -> None:
    """On n3 there is no room."""
    assert expected == given(planned("n1"), 900, 100, 500, 5, locality="best-effort", node_id=at)


# Costs


@pytest.mark.parametrize("locality", ["disabled", "best-effort"])
@pytest.mark.parametrize("waits", [0, 10])
@pytest.mark.parametrize("has_image", [False, True])
def test_pods_that_wait_make_no_look_at_every_disk(
    monkeypatch: pytest.MonkeyPatch, locality: str, waits: int, has_image: bool
) -> None:
    cluster = cluster_of(**{f"n{number}": 4000 for number in range(200)})
    if has_image:
        image(cluster, 20)
    for number in range(waits):
        cluster.ask(f"p{number}", 20, *(f"n{number}" for number in range(200)))
    name = cluster.show("v", 10, locality=locality, node_id="n7", backing_image="i" if has_image else "")
    looks, taken_bytes = [], BesideOthers.taken_bytes

    def counted(self: BesideOthers, node: str, disk_uuid: str) -> int:
        looks.append(node)
        return taken_bytes(self, node, disk_uuid)

    monkeypatch.setattr(BesideOthers, "taken_bytes", counted)
    assert cluster.allocator.allocations.place_replica(name, SECONDS).allocations
    assert len(looks) <= MOST_LOOKS
