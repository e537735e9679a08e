"""Random worlds from the oracle's generator, so that each of Longhorn's rules decides some of them, and changes of
them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from controller.allocator.choose.wanted import Wanted, replica_to_come
from controller.allocator.world.world import World
from controller.model.longhorn import BackingImage, LonghornNode, Replica, Volume
from controller.model.places import Place
from controller.plan.complaints import InputError, Notes
from controller.plan.input import decode_document
from controller.plan.objects import world_of
from controller.rules.eligibility import EXT_LIMIT_BYTES
from tests.fakes.builders import disk, node, replica, volume
from tests.fakes.rooms import OPEN
from tests.oracle.mix import world_of as oracle_world
from tests.oracle.worlds import NOW, VOLUME

GIB = 1024**3


@dataclass(frozen=True)
class TakenOf:
    """Bytes by node and UUID; nothing elsewhere."""

    bytes_by_disk: Mapping[tuple[str, str], int]

    def taken_bytes(self, node: str, disk_uuid: str) -> int:
        return self.bytes_by_disk.get((node, disk_uuid), 0)


def worlds(seed: int, count: int) -> Iterator[tuple[random.Random, World, Volume]]:
    for index in range(count):
        document = oracle_world(seed, index).document()
        try:
            decoded = decode_document(document, NOW, Notes(is_lenient=True))
        except InputError:
            continue
        volume = decoded.objects.by_kind["volume"].get(VOLUME)
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
    one = replica_to_come(volume, dice.choice(("", "", "", *world.nodes)))
    world.put_replica(one.name, one)
    return one


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


def questions(seed: int, count: int) -> Iterator[tuple[World, Wanted, TakenOf]]:
    """Random worlds with random things taken, planned, and nodes that may be chosen."""
    for dice, world, one in worlds(seed, count):
        for _ in range(2):
            now_volume = world.volume(one.name)
            if has_overflow(world) or now_volume is None or not world.nodes:
                break
            disks = [(name, disk.uuid) for name in sorted(world.nodes) for disk in world.nodes[name].disks if disk.uuid]
            taken = {
                place: dice.choice((0, 1, 30, 200)) * GIB + dice.randrange(3) for place in disks if dice.random() < 0.5
            }
            planned = tuple(
                Place(*place, now_volume.size_bytes)
                for place in dice.sample(disks, min(len(disks), dice.choice((0, 0, 1, 2))))
            )
            names = sorted(world.nodes)
            only = frozenset(dice.sample(names, dice.randint(1, len(names)))) if dice.random() < 0.3 else None
            yield world, Wanted(now_volume, asked(dice, world, one), planned, only), TakenOf(taken)
            change(dice, world, one)


# Small worlds


def world_with(*free_gib: float, size_gib: float = 1000, **fields: Any) -> World:
    """Nodes n0, n1, ... with a disk of that size each, and so much of it free."""
    world = World()
    world.put_settings(fields.pop("settings", OPEN))
    for number, free in enumerate(free_gib):
        name = f"n{number}"
        used = round((size_gib - free) * GIB)
        facts = replace(disk("d1", size_gib, node=name), scheduled_bytes=used, scheduled_replicas={"other": used})
        world.put_node(name, node(name, facts, **fields))
    return world


def wanted_in(world: World, gib: float = 10, **fields: Any) -> Wanted:
    facts = volume("v", gib, **{"locality": "disabled", **fields})
    world.put_volume("v", facts)
    world.put_replica("v-r-1", replica("v-r-1", "v", gib))
    return Wanted(facts, world.replicas_of("v")["v-r-1"])
