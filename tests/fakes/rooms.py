"""Worlds of a few bytes for questions about room, and the demands that are asked of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from controller.allocator.world.world import World
from controller.model.longhorn import DEFAULT_NEEDS, Disk, LonghornSettings, SpacePolicy
from controller.rules.demand import VolumeDemand
from tests.fakes.builders import disk, node, volume

OPEN = LonghornSettings(space=SpacePolicy(minimal_available_pct=0))


def room(name: str, free: int, *, size: int = 100, **fields: Any) -> Disk:
    facts = replace(disk(name), maximum_bytes=size, available_bytes=size, scheduled_bytes=size - free)
    return replace(facts, **fields)


def world_of(*disks: Disk, settings: LonghornSettings = OPEN, names: Sequence[str] = ("n1",), **fields: Any) -> World:
    world = World()
    world.put_settings(settings)
    for name in names:
        world.put_node(name, replace(node(name, *disks), **fields))
    return world


def local(size: int, name: str = "v", **fields: Any) -> VolumeDemand:
    facts = replace(volume(name), size_bytes=size)
    demand = VolumeDemand(
        key=f"uid-{name}",
        claim=f"ns/{name}",
        volume=name,
        size_bytes=size,
        required_bytes=0,
        needs=DEFAULT_NEEDS,
        is_local=True,
        is_pinned=False,
        is_roaming=False,
        copies=1,
        usable_nodes=frozenset(),
        placed_nodes=frozenset(),
        home_nodes=frozenset(),
        facts=facts,
    )
    return replace(demand, **fields)


def roaming(size: int, name: str = "r", copies: int = 1) -> VolumeDemand:
    facts = replace(volume(name, locality="disabled", replica_count=copies), size_bytes=size)
    return replace(local(size, name), is_local=False, is_roaming=True, copies=copies, facts=facts)
