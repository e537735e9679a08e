"""What a call gives, and what is told of disks, beside all that others have, whatever happened before."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from controller.allocator.by_name.beside import BesideOthers, FoundDisks
from controller.allocator.by_name.find import DiskQuestion, beside_others
from controller.allocator.choose.choose import MOST_LOOKS, Chooser
from controller.allocator.outcome import Mode
from controller.allocator.plans.plan import Hold, Plan, Source
from controller.allocator.plans.table import Table
from controller.allocator.verbs.grow import places_to_come
from controller.allocator.world.world import World
from controller.errors import NotFoundError, NotReadyError
from controller.model.longhorn import Replica, Volume
from controller.model.places import Place
from controller.rules.affinity import Try
from controller.rules.reasons import Reason
from tests.fakes.builders import node
from tests.fakes.counting import counted
from tests.fakes.rooms import OPEN
from tests.oracle.worlds import NOW
from tests.unit.allocator.giving import SECONDS, Allocating, cluster_of, image, why
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


# Which disks would take a replica: Longhorn's own procedure, beside what others have


def asked_about(**free_gib: float) -> Allocating:
    """A disk of that size on each node, and the volume `v` of 40 GiB with one unplaced replica `v-r-1`."""
    cluster = cluster_of(**free_gib)
    cluster.show("v", 40)
    return cluster


def find(cluster: Allocating, replica_name: str = "v-r-1", **question: Any) -> FoundDisks:
    return cluster.allocator.disks.find(DiskQuestion("v", replica_name, **question), SECONDS)


def nodes(found: FoundDisks) -> list[str]:
    return [entry.node for entry in found.disks]


def test_beside_nothing_it_is_longhorns_own_answer() -> None:
    cluster = asked_about(n1=100, n2=30, n3=200)
    found = find(cluster)
    assert [("n1", "d1", "n1-d1", 100), ("n3", "d1", "n3-d1", 200)] == [
        (entry.node, entry.disk, entry.uuid, entry.free_bytes // GIB) for entry in found.disks
    ]
    assert (40 * GIB, Try.NEW_ZONE) == (found.size_bytes, found.tried)
    assert found.preferred is not None and "n3" == found.preferred.node
    assert {"n2": (Reason.INSUFFICIENT_STORAGE, 10)} == why(found)


def test_a_disk_whose_room_a_pod_was_promised_is_refused_with_what_is_missing() -> None:
    cluster = asked_about(n1=100, n2=100)
    assert {"n1"} == cluster.ask("pod", 70, "n1")
    found = find(cluster)
    assert ["n2"] == nodes(found)
    assert {"n1": (Reason.CONTENDED, 10)} == why(found)
    assert "d1: 70 GiB are promised" in found.obstacles[0].rejection.message


def test_what_is_promised_and_leaves_enough_is_told_with_the_disk() -> None:
    cluster = asked_about(n1=100)
    assert {"n1"} == cluster.ask("pod", 50, "n1")
    (entry,) = find(cluster).disks
    assert (50, 50) == (entry.free_bytes // GIB, entry.promised_bytes // GIB)


def test_what_a_volume_holds_is_its_own_on_any_node() -> None:
    cluster = cluster_of(n1=100, n2=200)
    assert {"n1"} == cluster.ask("pod", 70, "n1")
    name = cluster.provision("pod")
    found = cluster.allocator.disks.find(DiskQuestion(name, f"{name}-r-1"), SECONDS)
    assert ["n1", "n2"] == nodes(found)
    assert [0, 0] == [entry.promised_bytes for entry in found.disks]
    assert found.preferred is not None and "n1" == found.preferred.node


def test_where_holds_close_the_first_group_of_nodes_the_next_one_is_tried() -> None:
    cluster = Allocating(replace(OPEN, soft_anti_affinity=True))
    for name, zone in (("n1", "a"), ("n2", "a"), ("n3", "b")):
        cluster.allocator.observe_node(name, node(name, free_gib=100, zone=zone))
    cluster.show("v", 40, on="n1")
    found = find(cluster, "")
    assert (["n3"], Try.NEW_ZONE) == (nodes(found), found.tried)
    assert {"n3"} == cluster.ask("pod", 70, "n3")
    found = find(cluster, "")
    assert (["n2"], Try.NEW_NODE_SOFT) == (nodes(found), found.tried)


@pytest.mark.parametrize(
    ("image_gib", "is_there", "reason"),
    [(50, False, None), (70, False, Reason.BACKING_IMAGE), (60, True, None), (70, True, Reason.INSUFFICIENT_STORAGE)],
)
def test_the_backing_image_takes_its_bytes_whether_it_is_there_or_comes_along(
    image_gib: int, is_there: bool, reason: Reason | None
) -> None:
    cluster = asked_about(n1=100)
    image(cluster, image_gib, *(["n1"] if is_there else []))
    cluster.show("v", 40, backing_image="i")
    found = find(cluster)
    assert (["n1"] if reason is None else []) == nodes(found)
    assert ({} if reason is None else {"n1": (reason, 10)}) == why(found)


def test_an_image_that_comes_with_another_volume_too_is_counted_for_each() -> None:
    cluster = cluster_of(n1=100)
    image(cluster, 20)
    cluster.add_class("image", dataLocality="best-effort", numberOfReplicas="1", backingImage="i")
    assert {"n1"} == cluster.ask("pod", 40, "n1", class_name="image")
    cluster.show("v", 20, backing_image="i")
    assert ["n1"] == nodes(find(cluster))
    cluster.show("v", 21, backing_image="i")
    assert [] == nodes(find(cluster))


def test_a_further_replica_is_bound_where_longhorn_would_bind_it() -> None:
    cluster = asked_about(n1=100, n2=100)
    assert ["n1", "n2"] == nodes(find(cluster, ""))
    assert ["n2"] == nodes(find(cluster, "", hard_node_affinity="n2"))
    cluster.show("v", 40, locality="strict-local", attached_to="n1")
    found = find(cluster, "")
    assert (["n1"], Reason.HARD_AFFINITY) == (nodes(found), why(found)["n2"][0])


def test_a_replica_that_has_a_place_finds_none() -> None:
    cluster = asked_about(n1=100)
    cluster.show("v", 40, on="n1")
    assert {"": (Reason.ALREADY_SCHEDULED, 0)} == why(find(cluster))


def test_who_is_not_there_is_named() -> None:
    cluster = asked_about(n1=100)
    with pytest.raises(NotFoundError, match="volume 'x'"):
        cluster.allocator.disks.find(DiskQuestion("x"), SECONDS)
    with pytest.raises(NotFoundError, match="replica 'v-r-9'"):
        find(cluster, "v-r-9")
    assert cluster.allocator.disks.knows("v") and not cluster.allocator.disks.knows("x")


def test_a_question_changes_nothing() -> None:
    cluster = asked_about(n1=100)
    cluster.ask("pod", 50, "n1")
    before = cluster.allocator.snapshot()
    find(cluster)
    assert before == cluster.allocator.snapshot()


def test_nothing_is_promised_while_the_extender_lets_everything_pass() -> None:
    cluster = asked_about(n1=100)
    cluster.ask("pod", 70, "n1")
    cluster.allocator.set_mode(Mode.BYPASS)
    assert ["n1"] == nodes(find(cluster))


def test_a_question_waits_for_the_one_before_no_longer_than_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = asked_about(n1=100)
    queries = cluster.allocator.disks
    is_in, may_go = threading.Event(), threading.Event()
    real = queries._copy

    def slow(volume: str) -> Any:
        is_in.set()
        assert may_go.wait(10)
        return real(volume)

    monkeypatch.setattr(queries, "_copy", slow)
    first = threading.Thread(target=find, args=(cluster,))
    first.start()
    try:
        assert is_in.wait(10)
        with pytest.raises(NotReadyError):
            queries.find(DiskQuestion("v"), 0.01)
    finally:
        may_go.set()
        first.join(10)
    assert ["n1"] == nodes(find(cluster))


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
    looks = counted(monkeypatch, BesideOthers, "taken_bytes")
    assert cluster.allocator.allocations.place_replica(name, SECONDS).allocations
    assert len(looks) <= MOST_LOOKS
