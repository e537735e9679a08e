"""Several changes that make sense together only: what a rule needs to have a say at all."""

from __future__ import annotations

from tests.longhorn.placement import fresh_bytes
from tests.longhorn.space import DiskFigures
from tests.oracle import node_changes as nodes
from tests.oracle import volume_changes as volumes
from tests.oracle.limits import state_of
from tests.oracle.volume_changes import set_flag
from tests.oracle.worlds import OracleWorld, place_replica


def all_nodes_used(world: OracleWorld, *, soft_zone: bool, soft_node: bool) -> None:
    volumes.few_zones(world)
    set_flag(world, "replicaZoneSoftAntiAffinity", soft_zone)
    set_flag(world, "replicaSoftAntiAffinity", soft_node)
    for node in world.nodes:
        if world.dice.chance(0.85):
            place_replica(world, node)


def pressed_nodes(world: OracleWorld) -> None:
    """Every node has a replica and auto-balance wants to move one within its node."""
    all_nodes_used(world, soft_zone=True, soft_node=False)
    set_flag(world, "replicaDiskSoftAntiAffinity", world.dice.chance(0.7))
    volumes.auto_balance(world)


def late_replacements(world: OracleWorld) -> None:
    """Failed replicas block their nodes until they are to be replaced."""
    all_nodes_used(world, soft_zone=world.dice.chance(0.6), soft_node=False)
    for raw in world.placed:
        raw["spec"]["rebuildRetryCount"] = 0
    volumes.due_replacements(world)


def dead_neighbours(world: OracleWorld) -> None:
    """Replicas on nodes that take nothing block no zone."""
    volumes.few_zones(world)
    set_flag(world, "replicaZoneSoftAntiAffinity", world.dice.chance(0.2))
    for node in nodes.some_nodes(world, 0.6):
        place_replica(world, node)
        if world.dice.chance(0.8):
            node["spec"]["allowScheduling"] = False


def leaving_replicas(world: OracleWorld) -> None:
    """Replicas that are being deleted: their nodes are free, their disks are not yet."""
    all_nodes_used(world, soft_zone=True, soft_node=world.dice.chance(0.3))
    set_flag(world, "replicaDiskSoftAntiAffinity", world.dice.chance(0.5))
    volumes.deleted_replicas(world)


def moving_replicas(world: OracleWorld) -> None:
    """Every node has a replica that is to go away."""
    all_nodes_used(world, soft_zone=world.dice.chance(0.75), soft_node=world.dice.chance(0.2))
    for raw in world.placed:
        raw["spec"]["evictionRequested"] = world.dice.chance(0.8)


def piled_replicas(world: OracleWorld) -> None:
    """Several new replicas of one volume on the disks of one or two nodes, of which the figures know nothing yet."""
    dice = world.dice
    set_flag(world, "replicaZoneSoftAntiAffinity", True)
    set_flag(world, "replicaSoftAntiAffinity", True)
    set_flag(world, "replicaDiskSoftAntiAffinity", dice.chance(0.85))
    del world.nodes[dice.between(1, 2) :]
    for _ in range(dice.between(1, 3)):
        place_replica(world, dice.one(world.nodes))
    state = state_of(world)
    for node, _, spec, status in world.disks():
        status["scheduledReplica"] = {}
        fresh = fresh_bytes(state, node["metadata"]["name"], status)
        limit = DiskFigures.of(state, spec, status).limit
        status["storageScheduled"] = limit - world.size - dice.one((fresh, fresh, fresh // 2, 0)) + dice.between(-1, 1)


def near_its_node(world: OracleWorld) -> None:
    nodes.locality(world)
    world.volume["spec"]["dataLocality"] = "best-effort"
    if world.dice.chance(0.5):
        volumes.set_flag(world, "replicaSoftAntiAffinity", True)


def clone_of_few(world: OracleWorld) -> None:
    """A linked clone with sources of which some do not count."""
    nodes.linked_clone(world)
    world.volume["spec"]["cloneMode"] = "linked-clone"
    for source in world.others:
        if source["kind"] == "Replica" and world.dice.chance(0.4):
            nodes.spoil_source(world, source)


def old_ways(world: OracleWorld) -> None:
    """A scene that older releases play otherwise."""
    world.dice.one((pressed_nodes, piled_replicas, near_its_node, clone_of_few))(world)
    volumes.other_releases(world)
