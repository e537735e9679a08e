"""Whether the disk that a replica was given may still be told, and written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from controller.allocator.choose.beside import BesideOthers
from controller.allocator.outcome import HeldPlace, Obstacle
from controller.allocator.verbs.closed import in_doubt
from controller.allocator.world.world import World
from controller.errors import NotReadyError, PreconditionError
from controller.model.allocations import Allocation, Purpose
from controller.model.longhorn import Replica, Volume
from controller.rules.affinity import Affinity
from controller.rules.placing import wanted_affinity


@dataclass(frozen=True, slots=True)
class HeldAt:
    """`why`: it may not be written to."""

    place: HeldPlace
    why: str = ""


def held(world: World, beside: Callable[[], BesideOthers], volume: Volume, shown: Replica) -> HeldAt:
    """What is on record, or decided, for that replica without a disk. Of several disks the one that counts is told, if
    it may be; what may still be written to one of them keeps all."""
    entries, affinity = world.allocated.held_of(shown.name), wanted_affinity(volume, shown)
    elsewhere = [one for one in entries if affinity not in ("", world.allocated.place_of(one)[0])]
    if len(elsewhere) == len(entries):
        return HeldAt(HeldPlace.ELSEWHERE if entries else HeldPlace.NOTHING)
    if entries[0] in elsewhere:
        return HeldAt(HeldPlace.CLOSED, "it was given another disk where it has to be")
    if len(entries) > 1 and not world.allocated.is_ours(entries[0]):
        return HeldAt(HeldPlace.CLOSED, "it was given several disks, and which one was told last is not known")
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
    is_unknown = not is_ours and volume.size_bytes <= one.size_bytes and world.allocated.has_former
    is_doubted = is_unknown or in_doubt(world, [obstacle]) is not None
    return HeldAt(HeldPlace.IN_DOUBT if is_doubted else HeldPlace.CLOSED, obstacle.rejection.message)


def check_one_place(world: World, replica: str) -> None:
    """PreconditionError where a replica without a disk was given several, or one that no node shows: its caller may be
    writing it to one that does not count as its place."""
    shown = world.allocated.shown_replica(replica)
    entries = world.allocated.of(Purpose.REPLICA, replica) if shown is None or not shown.is_placed else ()
    if not entries:
        return
    if any(not world.allocated.place_of(one)[0] for one in entries):
        raise PreconditionError(f"replica {replica!r} was given a disk that no node shows now")
    if len({one.disk_uuid for one in entries}) > 1:
        raise PreconditionError(f"replica {replica!r} was given several disks; deallocate it")


def check_others(world: World, volume: Volume, replica: str) -> None:
    """NotReadyError where the rules keep it apart from another replica of its volume that has no disk yet, and it is
    not known where that one is to lie: in which zone, or on which disk of its node, while no node shows that disk; or
    on which of several."""
    allocated, affinity = world.allocated, Affinity.of(volume, world.settings)
    if affinity.shares_nodes:
        return
    for name, other in world.replicas_of(volume.name).items():
        shown = allocated.shown_replica(name) or other
        entries = () if name == replica or shown.is_placed else allocated.of(Purpose.REPLICA, name)
        there = allocated.held_of(name) if entries else []
        is_open = any(map(allocated.is_being_written, there[1:]))  # another answer may be the last one
        is_unclear = len(there) > 1 and (is_open or not allocated.is_ours(there[0]))
        is_away = not there and (not affinity.zone_soft or any(one.node in world.nodes for one in entries))
        if entries and (is_unclear or is_away):
            where = "several disks" if there else "a disk that no node shows now"
            raise NotReadyError(f"replica {name!r} of the same volume was given {where}; try again")


def check_former(world: World, obstacle: Obstacle) -> None:
    """NotReadyError where what was given before may only seem to have no room: of what the leader before has answered
    it is not known yet whether it still stands."""
    if world.allocated.has_former:
        text = "the leader has changed, and it is not known yet which answers of the one before still stand"
        raise NotReadyError(f"{obstacle.node}: {obstacle.rejection.message}; {text}; try again")


def check_place(held: HeldAt, replica: Replica) -> None:
    """Raises where the replica is neither told that place nor given another."""
    where = f"replica {replica.name!r} was given a disk on node {replica.node}"
    if held.place is HeldPlace.IN_DOUBT:
        raise NotReadyError(f"{where}, and it is not known yet whether the room there is taken: {held.why}; try again")
    if held.place is HeldPlace.CLOSED:
        text = f"{where} that takes it no more: {held.why}"
        raise PreconditionError(f"{text}; to have another one chosen, deallocate it")


def judged_bytes(world: World, replica: Replica) -> int:
    """So much of the replica need not be judged any more."""
    entries = world.allocated.of(Purpose.REPLICA, replica.name)
    return replica.size_bytes if all(map(world.allocated.is_ours, entries)) else 0


def stands(world: World, one: Allocation) -> bool:
    """Whether the record has it, and a replica shows as much: nobody takes it back then. Anything else is written once
    more before it is told again: what no object shows goes after the grace, and a leader before may be writing."""
    shown = world.allocated.shown_replica(one.name)
    is_shown = shown is not None and shown.is_placed and shown.size_bytes >= one.size_bytes
    return is_shown and world.allocated.is_on_record(one)
