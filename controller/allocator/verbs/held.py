"""Whether the disk that a replica was given may still be told, and written."""

from __future__ import annotations

from collections.abc import Callable

from controller.allocator.judge.joined import JoinedDisks
from controller.allocator.verbs.allotment import HeldAt, HeldPlace
from controller.allocator.verbs.closed import in_doubt
from controller.allocator.world.world import World
from controller.errors import NotReadyError, PreconditionError
from controller.model.allocations import Allocation, Purpose
from controller.model.longhorn import Replica, Volume
from controller.rules.placing import wanted_affinity


def held(world: World, beside: Callable[[], JoinedDisks], volume: Volume, shown: Replica) -> HeldAt:
    """What is on record, or decided, for that replica without a disk. Of several disks the one that counts is told, if
    it may be; what may still be written to one of them keeps all."""
    entries, affinity = world.allocated.held_of(shown.name), wanted_affinity(volume, shown)
    elsewhere = [one for one in entries if affinity not in ("", world.allocated.place_of(one)[0])]
    if len(elsewhere) == len(entries):
        return HeldAt(HeldPlace.ELSEWHERE if entries else HeldPlace.NOTHING)
    if entries[0] in elsewhere:
        return HeldAt(HeldPlace.CLOSED, "it was given another disk where it has to be")
    one, replica = entries[0], world.placed.get(shown.name)
    if replica is None or not replica.is_placed:
        return HeldAt(HeldPlace.PLACE)
    is_ours, joined = world.allocated.is_ours(one), beside()
    rejection = joined.check_place(replica, with_others=not is_ours)
    if rejection is not None:
        return HeldAt(HeldPlace.CLOSED, rejection.message)
    obstacle = joined.check_larger(replica, one.size_bytes if is_ours else 0)
    if obstacle is None:
        return HeldAt(HeldPlace.PLACE)
    is_doubted = in_doubt(world, [obstacle]) is not None
    return HeldAt(HeldPlace.IN_DOUBT if is_doubted else HeldPlace.CLOSED, obstacle.rejection.message)


def check_place(held: HeldAt, replica: Replica, *, frees: bool) -> None:
    """Raises where the replica is neither told that place nor, if that `frees` one elsewhere, given another."""
    if held.place is HeldPlace.ELSEWHERE and not frees:
        text = f"replica {replica.name!r} has to be on another node than {replica.node}, where it was given a disk"
        raise NotReadyError(f"{text}, and replica-placement may be writing it there; try again")
    where = f"replica {replica.name!r} was given a disk on node {replica.node}"
    if held.place is HeldPlace.IN_DOUBT:
        raise NotReadyError(f"{where}, and it is not known whether a write took the room there: {held.why}; try again")
    if held.place is HeldPlace.CLOSED:
        text = f"{where} that takes it no more: {held.why}"
        raise PreconditionError(f"{text}; to have another one chosen, deallocate it")


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
