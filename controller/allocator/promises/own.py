"""What Longhorn has to place by itself: Replica objects without a disk, and volumes without any Replica object.

Only what can be seen counts, as soon as Longhorn may place it: a volume without data locality at once, any other one
while it is attached or being attached (`spec.nodeID`), or has been up without a replica in sight. Rebuilds that will
fall due later are no promises.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from controller.allocator.promises.promise import Kind, OneOf, Places, Roams
from controller.allocator.world.suitable import barred_nodes, takes_now
from controller.allocator.world.world import World
from controller.model.longhorn import LOCALITY_BEST_EFFORT, SHARDED, Volume
from controller.rules.affinity import Affinity, copies_per_disk
from controller.rules.demand import VolumeDemand
from controller.rules.placing import places_detached

OWN: Final = "volume:"  # the claimant, and the node that a copy is bound to, if any


@dataclass(frozen=True, slots=True)
class OwnCopies:
    """Replicas of one volume that Longhorn may place now. `node`: bound to it whatever happens, "" otherwise."""

    node: str
    kind: Kind
    places: Places
    demand: VolumeDemand
    situation: Hashable


def own_copies(world: World, demand: VolumeDemand) -> Iterator[OwnCopies]:
    """By the facts of the demand's volume and its replicas alone; `demand` is what the volume asks for."""
    volume = world.volume(demand.volume)
    if volume is None or volume.deleting or volume.data_layout == SHARDED:
        return
    at = volume.node_id or world.grows_at(volume) or world.placed.hidden_at(volume.name)
    if not (at or is_placeable(world, volume)):
        return
    replicas = [entry for entry in world.replicas_of(volume.name).values() if not entry.deleting]
    waiting = [entry for entry in replicas if not entry.node and not entry.failed_at]
    size = max([demand.size_bytes, *(entry.size_bytes for entry in waiting)])
    asked = demand if size == demand.size_bytes else replace(demand, size_bytes=size)
    for node in sorted({entry.hard_node_affinity for entry in waiting if entry.hard_node_affinity}):
        if world.has_node(node):
            kind = Kind.MOVE if demand.placed_nodes else Kind.FIRST
            names = frozenset(entry.name for entry in waiting if entry.hard_node_affinity == node)
            yield OwnCopies(node, kind, OneOf(frozenset((node,))), asked, (at, names))
    free = [entry for entry in waiting if not entry.hard_node_affinity]
    if replicas and not free:
        return
    situation = at, frozenset(entry.name for entry in free)
    if demand.is_local and at and not demand.placed_nodes:
        places = first_places(world, asked, at)
        if places is not None:
            yield OwnCopies("", Kind.FIRST, places, asked, situation)
    else:
        roams = roaming_places(world, asked, len(free) or volume.replica_count)
        yield OwnCopies("", Kind.ROAMING, roams, asked, situation)


def is_placeable(world: World, volume: Volume) -> bool:
    """Whether Longhorn places it while it is attached nowhere."""
    return places_detached(volume, world.settings)


def first_places(world: World, demand: VolumeDemand, node: str, *, falls_back: bool = False) -> Places | None:
    """Where the volume's first replica may land when its engine is to run on that node; None for a node that is not
    there. Longhorn puts a best-effort one on any node when this one has no disk for it, which may come about by the
    pod's own other volumes (`falls_back`)."""
    if not world.has_node(node):
        return None
    if demand.facts.data_locality == LOCALITY_BEST_EFFORT and (falls_back or not takes_now(world, node, demand)):
        return Roams(barred_nodes(world, demand), fell_from=node)
    return OneOf(frozenset((node,)))


def roaming_places(world: World, demand: VolumeDemand, copies: int) -> Roams:
    """Where Longhorn may put so many further copies."""
    copies, affinity = max(1, copies), Affinity.of(demand.facts, world.settings)
    per_disk = copies_per_disk(affinity, copies)
    barred = barred_nodes(world, demand)
    return Roams(barred, copies, per_disk, by_zone=not affinity.zone_soft, shares_nodes=affinity.shares_nodes)
