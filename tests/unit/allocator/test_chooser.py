"""The disk that is chosen under the lock is the one that the whole search prefers, whatever happened before.

Worlds come from the oracle's generator, so that each of Longhorn's rules decides some of them. One chooser lives
through all the changes of its world, and has to notice each.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest

from controller.allocator.judge.chooser import DiskChooser
from controller.allocator.judge.joined import DiskSum, JoinedDisks
from controller.allocator.promises.ledger import Ledger
from controller.allocator.promises.promise import Kind, OneOf, Places, Promise, Roams, Source, State, Verb
from controller.allocator.world.world import World
from controller.model.longhorn import BackingImage, DiskNeeds, ImageNeeds, LonghornNode, Replica, Volume
from controller.plan.complaints import InputError, Notes
from controller.plan.input import decode_document
from controller.plan.world import world_of
from controller.rules.candidates import Candidate
from controller.rules.eligibility import EXT_LIMIT_BYTES, NodeRoom
from tests.fakes.builders import TestCluster, disk, node, replica, volume
from tests.fakes.rooms import OPEN
from tests.oracle.mix import world_of as oracle_world
from tests.oracle.worlds import NOW, VOLUME
from tests.unit.allocator.giving import SECONDS, cluster_of, image

SEED = 41
WORLDS = 400
STEPS = 4
GIB = 1024**3


def worlds() -> Iterator[tuple[random.Random, World, Volume]]:
    for index in range(WORLDS):
        document = oracle_world(SEED, index).document()
        try:
            decoded = decode_document(document, NOW, Notes(is_lenient=True))
        except InputError:
            continue
        volume = decoded.objects.volumes.get(VOLUME)
        if volume is not None:
            yield random.Random(index), world_of(decoded.objects, decoded.settings), volume


def has_overflow(world: World) -> bool:
    """Whether sums about a disk may leave 64 bits, so that a full one seems empty to the search: 4 EiB."""
    rooms = [room for name in world.nodes if (room := world.room(name)) is not None]
    return any(disk.limit_bytes > 2**62 for room in rooms for disk in room.disks)


def asked(dice: random.Random, world: World, volume: Volume) -> Replica:
    """One of the volume's that has no place, or a further one."""
    waiting = [one for one in world.replicas_of(volume.name).values() if not one.node]
    if waiting and dice.random() < 0.8:
        return dice.choice(waiting)
    one = Replica(
        name=f"{volume.name}-new",
        volume=volume.name,
        size_bytes=volume.size_bytes,
        node="",
        disk_uuid="",
        hard_node_affinity=dice.choice(("", "", "", *world.nodes)),
        active=True,
        healthy_at="",
        failed_at="",
        eviction_requested=False,
        rebuild_retry_count=0,
        deleting=False,
        image=volume.image,
        data_engine=volume.needs.data_engine,
        backing_image=volume.backing_image,
    )
    world.put_replica(one.name, one)
    return one


def promises(dice: random.Random, world: World, volume: Volume) -> Ledger:
    """Some that are bound to nodes, some that roam, with and without images; some are the volume's own."""
    ledger, nodes = Ledger(), sorted(world.nodes)
    for number in range(dice.choice((0, 0, 1, 3))):
        size = dice.choice((1, 5, 20, 100)) * GIB
        places: Places = Roams(frozenset(dice.sample(nodes, min(len(nodes), dice.choice((0, 0, 1))))))
        if nodes and dice.random() < 0.6:
            places = OneOf(frozenset(dice.sample(nodes, dice.randint(1, len(nodes)))))
        image = ImageNeeds(name=dice.choice(sorted(world.backing_images) or [""])) if dice.random() < 0.3 else None
        owner = dice.choice((f"other-{number}", f"other-{number}", volume.name))
        kind = Kind.FIRST if isinstance(places, OneOf) else Kind.ROAMING
        facts = size, 0, DiskNeeds(image=image), places, 0.0
        ledger.put(Verb.HOLD, Promise(owner, f"pod-{number}", Source.FILTER, State.HELD, kind, *facts))
    return ledger


def change(dice: random.Random, world: World, volume: Volume) -> None:
    """One thing of the cluster is another now."""
    nodes = [world.nodes[name] for name in sorted(world.nodes)]
    node = dice.choice(nodes) if nodes else None
    event = dice.randrange(8)
    if event == 0 and node is not None:
        world.put_node(node.name, replace(node, allow_scheduling=not node.allow_scheduling))
    elif event == 1 and node is not None:
        world.put_node(node.name, with_other_disks(dice, node))
    elif event == 2 and node is not None:
        world.put_node(node.name, None if dice.random() < 0.3 else replace(node, zone=dice.choice(("", "a", "b"))))
    elif event == 3 and node is not None and node.disks:
        name, disk = f"{dice.choice((volume.name, 'stranger'))}-{dice.randrange(99)}", dice.choice(node.disks)
        there = asked(random.Random(0), world, volume)
        of = volume.name if name.startswith(volume.name) else "stranger"
        put = replace(there, name=name, volume=of, node=node.name, disk_uuid=disk.uuid, hard_node_affinity="")
        world.put_replica(name, put)
    elif event == 4:
        settings = world.settings
        space = replace(settings.space, over_provisioning_pct=dice.choice((50, 100, 200)))
        world.put_settings(replace(settings, space=space, soft_anti_affinity=dice.random() < 0.5))
    elif event == 5 and world.backing_images:
        image = world.backing_images[dice.choice(sorted(world.backing_images))]
        world.put_backing_image(image.name, with_another_copy(dice, image, nodes))
    elif event == 6:
        engines = world.engines.images
        for one in list(engines.values()) if engines else ():
            world.put_engine_image(one.name, replace(one, nodes=frozenset()))
    else:
        resized = replace(volume, size_bytes=dice.choice((GIB, 10 * GIB, 300 * GIB, EXT_LIMIT_BYTES)))
        world.put_volume(volume.name, resized)


def with_other_disks(dice: random.Random, node: LonghornNode) -> LonghornNode:
    disks = []
    for one in node.disks:
        changes = (
            {"allow_scheduling": not one.allow_scheduling},
            {"tags": frozenset(dice.sample(("ssd", "fast"), dice.randrange(3)))},
            {"available_bytes": dice.choice((0, one.available_bytes, one.maximum_bytes))},
            {"scheduled_bytes": one.scheduled_bytes + dice.choice((-1, 1)) * GIB},
        )
        disks.append(replace(one, **dice.choice(changes)))
    return replace(node, disks=tuple(disks))


def with_another_copy(dice: random.Random, image: BackingImage, nodes: list[LonghornNode]) -> BackingImage:
    uuids = [disk.uuid for node in nodes for disk in node.disks]
    return replace(image, disk_uuids=frozenset(dice.sample(uuids, min(len(uuids), 2))))


def test_it_is_the_one_that_the_whole_search_prefers_after_any_change() -> None:
    seen: Counter[str] = Counter()
    for dice, world, one in worlds():
        chooser = DiskChooser(world)
        for _ in range(STEPS):
            if has_overflow(world):
                break
            now_volume = world.volume(one.name)
            assert now_volume is not None
            replica, beside = asked(dice, world, one), promises(dice, world, one)
            closed = dict.fromkeys(dice.sample(sorted(world.nodes), dice.choice((0, 0, 1)) if world.nodes else 0), "x")
            views = JoinedDisks(world, beside, now_volume, NOW, closed).tries()
            expected = next((one_found for view in views if (one_found := view.find(replica).preferred)), None)
            found = chooser.choose(now_volume, replica, beside, NOW, closed)
            assert (None if expected is None else Candidate(expected.node, expected.disk, expected.uuid)) == found
            seen["found" if found is not None else "none"] += 1
            seen["promised"] += bool(list(beside.promises()))
            change(dice, world, one)
    assert min(seen.values()) > WORLDS // 2, seen


def test_where_no_disk_is_found_what_is_told_of_the_nearest_is_what_the_whole_search_says() -> None:
    """And the others are counted."""
    seen: Counter[str] = Counter()
    for dice, world, one in worlds():
        for most in range(1, STEPS):
            current = world.volume(one.name)
            assert current is not None
            replica, beside = asked(dice, world, one), promises(dice, world, one)
            closed = dict.fromkeys(dice.sample(sorted(world.nodes), dice.choice((0, 0, 1)) if world.nodes else 0), "x")
            expected = JoinedDisks(world, beside, current, NOW, closed).find(replica)
            if not expected.disks:
                found = JoinedDisks(world, beside, current, NOW, closed).find_nearest(replica, most)
                near = {entry.node for entry in found.obstacles}
                assert tuple(entry for entry in expected.obstacles if entry.node in near) == found.obstacles
                assert len(expected.obstacles) == len(found.obstacles) + found.more
                seen["more" if found.more else "all"] += 1
            change(dice, world, one)
    assert min(seen["more"], seen["all"]) > WORLDS // 8, seen


@pytest.mark.parametrize("kinds", [1, 40])
def test_a_kind_of_need_that_was_not_asked_for_lately_is_up_to_date_all_the_same(kinds: int) -> None:
    for dice, world, one in worlds():
        chooser = DiskChooser(world)
        replica = asked(dice, world, one)
        chooser.choose(one, replica, Ledger(), NOW)
        for number in range(kinds):
            change(dice, world, one)
            other = replace(one, needs=replace(one.needs, disk_selector=(f"tag-{number}",)))
            chooser.choose(other, replica, Ledger(), NOW)
        if has_overflow(world):
            continue
        current, replica = world.volumes[one.name], world.replicas_of(one.name)[replica.name]
        expected = JoinedDisks(world, Ledger(), current, NOW).find(replica).preferred
        found = chooser.choose(current, replica, Ledger(), NOW)
        assert (None if expected is None else expected.uuid) == (None if found is None else found.uuid)


def test_where_no_disk_of_the_best_node_has_that_much_usable_the_first_of_all_disks_is_taken() -> None:
    """Balancing finds no answer there, and chance decides in Longhorn; here, the names do."""
    cluster = TestCluster(settings=OPEN)
    for name, gib in (("n1", 30), ("n2", 40)):
        disks = [replace(disk(f"d{number}", 100), available_bytes=gib * GIB) for number in (1, 2, 3)]
        cluster.allocator.observe_node(name, node(name, *disks))
    world, one = cluster.allocator._world, volume("v", 50, locality="disabled")
    world.put_volume("v", one)
    world.put_replica("v-r-1", replica("v-r-1", "v", 50))
    chosen = DiskChooser(world).choose(one, world.replicas_of("v")["v-r-1"], Ledger())
    assert chosen is not None and ("n1", "d1") == (chosen.node, chosen.disk)


@pytest.mark.parametrize("locality", ["disabled", "best-effort"])
@pytest.mark.parametrize("waits", [0, 10])
@pytest.mark.parametrize("has_image", [False, True])
def test_pods_that_wait_make_no_look_at_every_node(
    monkeypatch: pytest.MonkeyPatch, locality: str, waits: int, has_image: bool
) -> None:
    cluster = cluster_of(**{f"n{number}": 4000 for number in range(40)})
    if has_image:
        image(cluster, 20)
    for number in range(waits):
        cluster.ask(f"p{number}", 20, *(f"n{number}" for number in range(40)))
    name = cluster.show("v", 10, locality=locality, node_id="n7", backing_image="i" if has_image else "")
    looks, sums = [], JoinedDisks.sums

    def counted(self: JoinedDisks, room: NodeRoom) -> list[DiskSum]:
        looks.append(room.name)
        return sums(self, room)

    monkeypatch.setattr(JoinedDisks, "sums", counted)
    assert cluster.allocator.allocations.place_replica(name, SECONDS).allocations
    assert len(looks) <= 4
