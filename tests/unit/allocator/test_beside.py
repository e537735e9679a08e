"""What a call gives, and what is told of disks, beside all that is promised to others, whatever happened before."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import pytest

from controller.allocator.choose.choose import Chooser
from controller.allocator.judge.beside import BesidePromises
from controller.allocator.judge.pending import Pending
from controller.allocator.promises.ledger import Ledger
from controller.allocator.promises.promise import Kind, OneOf, Places, Promise, Roams, Source, State, Verb
from controller.allocator.world.world import World
from controller.model.longhorn import DiskNeeds, ImageNeeds, Replica, Volume
from controller.rules.eligibility import NodeRoom
from tests.oracle.worlds import NOW
from tests.unit.allocator.giving import SECONDS, cluster_of, image
from tests.unit.choose.random_worlds import GIB, asked, change, has_overflow, worlds

SEED = 41
WORLDS = 250
STEPS = 4


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


Question = tuple[World, Ledger, Volume, Replica, dict[str, str]]


def questions() -> Iterator[tuple[Chooser, Question]]:
    """One chooser lives through all the changes of its world, and has to notice each."""
    for dice, world, one in worlds(SEED, WORLDS):
        chooser = Chooser(world)
        for _ in range(STEPS):
            current = world.volume(one.name)
            if has_overflow(world) or current is None:
                break
            replica, beside = asked(dice, world, one), promises(dice, world, one)
            closed = dict.fromkeys(dice.sample(sorted(world.nodes), dice.choice((0, 0, 1)) if world.nodes else 0), "x")
            yield chooser, (world, beside, current, replica, closed)
            change(dice, world, one)


def test_a_call_gives_a_disk_with_room_beside_all_that_is_promised_and_the_next_view_only_without_one() -> None:
    seen: Counter[str] = Counter()
    for chooser, (world, ledger, volume, replica, closed) in questions():
        beside = BesidePromises(world, ledger, volume, NOW, closed)
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
        seen["promised"] += bool(list(ledger.promises()))
    assert min(seen.values()) > WORLDS // 4, seen


def test_what_is_taken_is_the_load_of_each_disk_whether_it_is_worked_out_or_the_same_everywhere() -> None:
    loaded = 0
    for _, (world, ledger, volume, _, closed) in questions():
        beside = BesidePromises(world, ledger, volume, NOW, closed)
        keys = frozenset({volume.name, *(claim.uid for claim in world.claims_of_volume(volume.name))})
        pending, copied = Pending(world, ledger, keys), world.backing_image(volume.backing_image)
        for name in world.nodes:
            room = world.room(name)
            assert room is not None
            for disk in room.disks:
                if copied is not None and copied.real_size_bytes and world.lacks_image(copied, disk.uuid):
                    pending.own_image(disk.uuid, copied.name)
            for disk, load in zip(room.disks, pending.loads(room), strict=True):
                assert (2**62 if name in closed else load) == beside.taken_bytes(name, disk.uuid)
                loaded += bool(load)
    assert loaded > 100


def test_where_no_disk_is_found_what_is_told_of_the_nearest_is_what_the_whole_search_says() -> None:
    """And the others are counted."""
    seen: Counter[str] = Counter()
    for number, (chooser, (world, ledger, volume, replica, closed)) in enumerate(questions()):
        beside = BesidePromises(world, ledger, volume, NOW, closed)
        found = beside.find_nearest(replica, chooser, number % STEPS + 1)
        if found.disks:
            continue
        expected = beside.find(replica, chooser)
        near = {entry.node for entry in found.obstacles}
        assert tuple(entry for entry in expected.obstacles if entry.node in near) == found.obstacles
        assert len(expected.obstacles) == len(found.obstacles) + found.more
        seen["more" if found.more else "all"] += 1
    assert min(seen["more"], seen["all"]) > WORLDS // 8, seen


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
    looks, loads = [], Pending.loads

    def counted(self: Pending, room: NodeRoom, *, roaming: bool = True) -> list[int]:
        looks.append(room.name)
        return loads(self, room, roaming=roaming)

    monkeypatch.setattr(Pending, "loads", counted)
    assert cluster.allocator.allocations.place_replica(name, SECONDS).allocations
    assert len(looks) <= 4
