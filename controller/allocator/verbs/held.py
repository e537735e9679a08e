"""Whether the disk that a replica was given may still be told, and written."""

from __future__ import annotations

from collections.abc import Callable

from controller.allocator.judge.joined import JoinedDisks
from controller.allocator.verbs.allotment import HeldPlace
from controller.allocator.verbs.closed import in_doubt
from controller.allocator.world.world import World
from controller.errors import NotReadyError, PreconditionError
from controller.model.allocations import Allocation, Purpose
from controller.model.longhorn import Replica, Volume
from controller.rules.eligibility import check_disk_state, check_node
from controller.rules.placing import wanted_affinity

_Beside = Callable[[], JoinedDisks]


def held(world: World, beside: _Beside, volume: Volume, shown: Replica) -> HeldPlace:
    """What is on record, or decided, for that replica without a disk. Of several disks the first one is told, if it may
    be; what may still be written to one of them keeps all."""
    entries = [one for one in world.allocated.of(Purpose.REPLICA, shown.name) if world.allocated.place_of(one)[0]]
    found = [_held_at(world, beside, one, volume, shown) for one in entries]
    if not found or all(one is HeldPlace.ELSEWHERE for one in found):
        return HeldPlace.ELSEWHERE if found else HeldPlace.NOTHING
    return HeldPlace.CLOSED if found[0] is HeldPlace.ELSEWHERE else found[0]


def check_place(place: HeldPlace, replica: Replica, *, frees: bool) -> None:
    """Raises where the replica is neither told that place nor, if that `frees` one elsewhere, given another."""
    if place is HeldPlace.ELSEWHERE and not frees:
        raise PreconditionError(f"replica {replica.name!r} is placed by replica-placement, on another node now")
    if place is HeldPlace.IN_DOUBT:
        text = f"it is not known whether a write took the room by which replica {replica.name!r} grows"
        raise NotReadyError(f"{text} on node {replica.node}; try again")
    if place is HeldPlace.CLOSED:
        why = "which takes no replicas now, or has no room for what the volume has grown by"
        text = f"replica {replica.name!r} was given a disk on node {replica.node}, {why}"
        raise PreconditionError(f"{text}; to have another one chosen, deallocate it")


def _held_at(
    world: World, beside: Callable[[], JoinedDisks], one: Allocation, volume: Volume, shown: Replica
) -> HeldPlace:
    name, _ = world.allocated.place_of(one)
    if wanted_affinity(volume, shown) not in ("", name):
        return HeldPlace.ELSEWHERE
    node, replica = world.nodes[name], world.placed.get(shown.name)
    disk = next(each for each in node.disks if each.uuid == one.disk_uuid)
    if check_node(node) or check_disk_state(disk):
        return HeldPlace.CLOSED
    if replica is None or not replica.is_placed or volume.size_bytes <= one.size_bytes:
        return HeldPlace.PLACE
    obstacle = beside().check_larger(replica, one.size_bytes)
    if obstacle is None:
        return HeldPlace.PLACE
    return HeldPlace.CLOSED if in_doubt(world, [obstacle]) is None else HeldPlace.IN_DOUBT


def judged_bytes(world: World, replica: Replica) -> int:
    """So much of the replica need not be judged any more."""
    entries = world.allocated.of(Purpose.REPLICA, replica.name)
    return replica.size_bytes if all(map(world.allocated.is_ours, entries)) else 0


def stands(world: World, one: Allocation) -> bool:
    """Whether the record has it, and a replica shows as much: nobody takes it back then. Anything else is written once
    more before it is told again: a write that failed is taken back with the node's next one, and what no object shows
    goes after the grace."""
    shown = world.allocated.shown_replica(one.name)
    is_shown = shown is not None and shown.is_placed and shown.size_bytes >= one.size_bytes
    return is_shown and world.allocated.is_on_record(one)
