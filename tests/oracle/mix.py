"""The mix of worlds: how often what is changed, and how often a limit or a question of growth is aimed at."""

from __future__ import annotations

from typing import Final

from tests.oracle import disk_changes as disks
from tests.oracle import node_changes as nodes
from tests.oracle import scenes
from tests.oracle import volume_changes as volumes
from tests.oracle.limits import to_the_brink
from tests.oracle.nulls import nulls
from tests.oracle.worlds import MIB, Change, Dice, OracleWorld, calm_world, place_replica

# How often each is drawn, relative to the others. Those come often that decide only together with others.
WEIGHTS: Final[dict[Change, int]] = {
    nodes.unready_nodes: 4,
    nodes.unschedulable_nodes: 4,
    nodes.closed_nodes: 2,
    nodes.evicting_nodes: 1,
    nodes.deleted_nodes: 4,
    nodes.second_engine: 8,
    nodes.first_engine_label: 1,
    nodes.zones: 3,
    nodes.topology: 5,
    nodes.hard_affinity: 3,
    nodes.locality: 5,
    nodes.linked_clone: 4,
    nodes.engine_images: 4,
    nodes.instance_managers: 7,
    nodes.node_tags: 7,
    nodes.backing_image: 11,
    disks.closed_disks: 4,
    disks.evicting_disks: 4,
    disks.unschedulable_disks: 3,
    disks.unready_disks: 1,
    disks.other_types: 2,
    disks.disk_tags: 6,
    disks.odd_selectors: 1,
    disks.lonely_disks: 4,
    disks.few_disks: 1,
    disks.blank_disks: 2,
    disks.negative_figures: 1,
    disks.large_reserves: 1,
    disks.full_disks: 3,
    disks.used_up_disks: 3,
    disks.file_system_limits: 4,
    disks.huge_file_system_limits: 1,
    disks.big_figures: 3,
    disks.percentages: 4,
    disks.real_bytes: 3,
    disks.fresh_replicas: 4,
    volumes.soft_flags: 5,
    volumes.few_zones: 3,
    volumes.everywhere: 3,
    volumes.evicting_replicas: 3,
    volumes.failed_replicas: 4,
    volumes.due_replacements: 4,
    volumes.deleted_replicas: 5,
    volumes.inactive_replicas: 1,
    volumes.auto_balance: 3,
    volumes.tries: 14,
    volumes.disk_affinity: 6,
    volumes.foreign_replicas: 2,
    volumes.unplaced_failures: 6,
    volumes.asked_again: 6,
    volumes.strangers: 2,
    volumes.other_releases: 4,
    volumes.sizeless_replicas: 2,
    scenes.pressed_nodes: 17,
    scenes.late_replacements: 20,
    scenes.dead_neighbours: 11,
    scenes.moving_replicas: 6,
    scenes.leaving_replicas: 4,
    scenes.piled_replicas: 6,
    scenes.near_its_node: 3,
    scenes.clone_of_few: 10,
    scenes.old_ways: 9,
}
_DRAWN: Final = tuple(change for change, weight in WEIGHTS.items() for _ in range(weight))
_ORDER: Final = {change: place for place, change in enumerate(WEIGHTS)}
GROWTH_SHARE: Final = 0.28
STATE_SHARE: Final = 0.13  # of worlds in which nothing but the state of a volume that is to grow matters
BRINK_SHARE: Final = 0.34
BRINK_SHARE_OF_GROWTH: Final = 0.6


def world_of(seed: int, index: int) -> OracleWorld:
    """World `index` of that seed."""
    dice = Dice((seed << 40) + index)
    world = calm_world(dice)
    if dice.chance(STATE_SHARE):
        return _with_a_state(world)
    changes = {dice.one(_DRAWN) for _ in range(dice.one((1, 1, 2, 2, 3, 3, 4, 6)))}
    for change in sorted(changes, key=_ORDER.__getitem__):
        change(world)
    if dice.chance(GROWTH_SHARE):
        ask_for_growth(world)
    if dice.chance(0.04):
        nulls(world)
    if dice.chance(BRINK_SHARE if world.asked else BRINK_SHARE_OF_GROWTH):
        to_the_brink(world)
    world.has_setting_objects = dice.chance(0.3)
    return world


def _with_a_state(world: OracleWorld) -> OracleWorld:
    """Room there is: it is the state that decides."""
    dice = world.dice
    world.asked = []
    for _ in range(dice.one((0, 1, 1, 2))):
        place_replica(world)
    world.grown_size = world.size + dice.between(1, 5) * 2 * MIB
    if dice.chance(0.4):
        world.version = dice.one(("v1.9.3", "v1.10.2", "v1.11.0", "v1.11.3", "v1.12.0", "v1.12.1"))
    volumes.stuck_volume(world)
    return world


def ask_for_growth(world: OracleWorld) -> None:
    dice = world.dice
    world.asked = []
    where = dice.shuffled(world.nodes)
    for _ in range(dice.one((0, 1, 1, 2, 3))):
        place_replica(world, where[0] if dice.chance(0.8) else dice.one(where))
    if dice.chance(0.2):
        volumes.failed_replicas(world)
    kind = dice.one(("small", "small", "large", "large", "large", "odd", "shrink", "same"))
    if kind == "same":
        world.grown_size = world.size
    elif kind == "shrink":
        world.grown_size = dice.between(0, world.size)
    elif kind == "odd":
        world.grown_size = world.size + dice.between(1, 4 * MIB)
    else:
        steps = dice.between(1, 5) if kind == "small" else dice.between(1, 200 * 512)
        world.grown_size = world.size + steps * 2 * MIB
    if dice.chance(0.4):
        world.version = dice.one(("v1.9.3", "v1.10.1", "v1.10.2", "v1.11.0", "v1.12.0"))
    if dice.chance(0.3):
        volumes.stuck_volume(world)
    if dice.chance(0.3):
        roomy_but_used(world)
    if dice.chance(0.1):
        disks.file_system_limits(world)
        world.grown_size = world.size + dice.between(0, 2)
    if world.size > 2**61:
        world.grown_size = world.size


def roomy_but_used(world: OracleWorld) -> None:
    """Much may be scheduled, but less is left than the growth takes."""
    world.settings["storage-over-provisioning-percentage"] = "300"
    growth = max(0, world.grown_size - world.size)
    for _, _, spec, status in world.disks():
        maximum = status.get("storageMaximum", 0)
        spec["storageReserved"] = world.dice.one((0, maximum // 10))
        status["storageAvailable"] = maximum * 26 // 100 + world.dice.between(0, 2 * growth)
