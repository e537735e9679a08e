"""A pod's or claim's volumes with the places of their copies, and why these are there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from controller.allocator.choose.choose import PACKED_FROM_PCT
from controller.allocator.plans.plan import Hold
from controller.allocator.verbs.views import Look
from controller.model.longhorn import Replica, Volume
from controller.model.places import Place
from controller.rules.demand import VolumeDemand
from controller.views.documents import PlaceView, VolumeAnswer

STORED, PLAN, HOLD = "stored", "plan", "hold"
MOST_PLACES: Final = 50  # of a volume


def volume_answer(
    look: Look, demand: VolumeDemand, hold: Hold | None = None, reason: str = "", text: str = ""
) -> VolumeAnswer:
    """Return the volume with its places. `hold`: of the pod that is explained."""
    return VolumeAnswer(
        claim=demand.claim,
        volume=demand.volume if demand.exists else "",
        size_bytes=demand.size_bytes,
        copies=demand.facts.replica_count,
        is_local=demand.is_local,
        places=tuple(_places(look, demand, hold))[:MOST_PLACES],
        reason=reason,
        text=text,
    )


def _places(look: Look, demand: VolumeDemand, hold: Hold | None) -> Iterator[PlaceView]:
    replicas = sorted(look.world.replicas_of(demand.volume).values(), key=lambda one: one.name)
    stored = [one for one in replicas if one.is_placed and not one.deleting]
    for one in stored:
        yield _view(look, Place(one.node, one.disk_uuid, one.size_bytes), STORED, _why_stored(one, demand.facts))
    planned = look.table.places(demand.volume)
    for place in planned:
        yield _view(look, place, PLAN, _why(look, demand, place, [*stored, *_others(planned, place)]))
    held = hold.places_of(demand.volume) if hold is not None else ()
    for place in held:  # those on offered nodes are alternatives to each other
        others = _others(held, place) if not demand.is_local else []
        yield _view(look, place, HOLD, _why(look, demand, place, [*stored, *others]))


def _others(places: Sequence[Place], place: Place) -> list[Place]:
    return [one for one in places if one is not place]


def _view(look: Look, place: Place, kind: str, why: str) -> PlaceView:
    disk = look.world.disk(place.node, place.disk_uuid)
    return PlaceView(place.node, disk.name if disk is not None else "", place.disk_uuid, place.size_bytes, kind, why)


def _why_stored(replica: Replica, volume: Volume) -> str:
    if replica.failed_at:
        return f"A copy that failed at {replica.failed_at}."
    if replica.eviction_requested:
        return "A copy that is being moved away."
    near = " on the node where the volume is attached" if replica.node == volume.node_id else ""
    return f"A copy lies here{near}."


def _why(look: Look, demand: VolumeDemand, place: Place, others: Iterable[Replica | Place]) -> str:
    """Why that disk: what decided on the node, and on the disk among those that take the copy."""
    nodes, there = look.world.nodes, {one.node for one in others}
    node = nodes.get(place.node)
    if node is None:
        return "The node is gone."
    zones = {nodes[name].zone for name in there if name in nodes}
    if demand.is_local:
        where = "The volume follows its pod to this node"
    elif not there:
        where = "The first copy may go to any node with a suitable disk"
    elif node.zone not in zones:
        where = f"No other copy is in zone {node.zone or 'without a name'}"
    elif node.name not in there:
        where = "No other copy is on this node"
    else:
        where = "Copies may share a node"
    return f"{where}; {_why_disk(look, place)}."


def _why_disk(look: Look, place: Place) -> str:
    room = look.world.room(place.node)
    disks = room.disks if room is not None else ()
    if len(disks) == 1:
        return "it has one disk that takes replicas"
    limit = sum(disk.limit_bytes for disk in disks)
    free = sum(disk.free_bytes - look.table.taken_bytes(place.node, disk.uuid) for disk in disks)
    if limit and (limit - free) * 100 >= PACKED_FROM_PCT * limit:
        return f"its disks are {PACKED_FROM_PCT} % taken or more, so the disk that the copy fills best takes it"
    return "of the disks that suit, the one with most room"
