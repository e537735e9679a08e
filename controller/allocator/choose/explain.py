"""Which disks would take a replica, and why each of the others does not: the reasons for what `Chooser.choose` finds.

It is Longhorn's whole search (controller/rules/candidates.py), with what is taken added to the disks' figures. Writing
a text for each of thousands of disks takes long, so nobody holds the allocator's lock for it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime

from controller.allocator.choose.wanted import Taken, Wanted, asked_of, image_bytes, view_of
from controller.allocator.world.world import World
from controller.model.longhorn import Disk, LonghornNode
from controller.model.places import MOST_BYTES
from controller.model.quantity import bytes_text
from controller.rules.candidates import Candidates, find_candidates
from controller.rules.reasons import Reason, Refusal, Rejection


@dataclass(frozen=True, slots=True)
class DiskFigures:
    """How many bytes of one disk are free, and why. `room_bytes`: left by over-provisioning beside what objects show.
    `image_bytes`: of a backing image that would come along."""

    limit_bytes: int
    room_bytes: int
    taken_bytes: int
    image_bytes: int

    @property
    def free_bytes(self) -> int:
        return self.room_bytes - self.taken_bytes

    @property
    def scheduled_bytes(self) -> int:
        return min(self.limit_bytes - self.free_bytes + self.image_bytes, MOST_BYTES)


@dataclass(frozen=True, slots=True)
class Explained:
    """What was found, and the figures of each disk that takes replicas at all, by node and disk."""

    found: Candidates
    figures: dict[tuple[str, str], DiskFigures]


def explain(
    wanted: Wanted,
    world: World,
    taken: Taken,
    now_utc: datetime | None = None,
    among: Collection[str] | None = None,
) -> Explained:
    """Return every disk of the try that decides, and why the others of the nodes that may be chosen do not do. `among`:
    the nodes that are looked at, those with copies of the volume among them; None: all.

    Costs: a look at each of their disks, with a text for most."""
    world.refresh()
    view = view_of(world, wanted, now_utc, world.engines)
    names = world.nodes.keys() if among is None else among
    figures = dict[tuple[str, str], DiskFigures]()
    for name in names:
        figures |= _figures(world, wanted, taken, name)
    own: dict[str, dict[str, int]] = {}  # by disk, copies of the volume that its figure includes
    for one in view.replicas:
        if one.disk_uuid:
            own.setdefault(one.disk_uuid, {})[one.name] = one.size_bytes
    joined = {name: _joined(wanted, world.nodes[name], figures, own) for name in names}
    nodes = joined if among is None else {**world.nodes, **joined}
    found = find_candidates(replace(view, nodes=nodes), wanted.volume, asked_of(view, wanted), among)
    only = wanted.only
    asked_about = (one for one in found.refusals if only is None or not one.node or one.node in only)
    refusals = tuple(_reworded(wanted, one, figures.get((one.node, one.disk))) for one in asked_about)
    return Explained(replace(found, refusals=refusals), figures)


def _figures(world: World, wanted: Wanted, taken: Taken, name: str) -> dict[tuple[str, str], DiskFigures]:
    """The figures of that node's disks that take replicas, by node and disk."""
    room, image = world.room(name), world.backing_image(wanted.volume.backing_image)
    return {
        (name, disk.name): DiskFigures(
            disk.limit_bytes,
            disk.free_bytes,
            taken.taken_bytes(name, disk.uuid),
            image_bytes(world, image, wanted.planned, disk.uuid),
        )
        for disk in (room.disks if room is not None else ())
    }


def _joined(
    wanted: Wanted,
    node: LonghornNode,
    figures: dict[tuple[str, str], DiskFigures],
    own: dict[str, dict[str, int]],
) -> LonghornNode:
    """The node, with what is taken added to its disks' figures. The disks of a node that may not be chosen are closed:
    the volume's copies there still count."""
    if wanted.only is not None and node.name not in wanted.only:
        return replace(node, disks=tuple(replace(disk, schedulable=False) for disk in node.disks))
    known = {disk.name: figures.get((node.name, disk.name)) for disk in node.disks}
    return replace(node, disks=tuple(_with(disk, known[disk.name], own.get(disk.uuid, {})) for disk in node.disks))


def _with(disk: Disk, known: DiskFigures | None, own: dict[str, int]) -> Disk:
    if known is None:
        return disk
    listed = {**disk.scheduled_replicas, **own}
    return replace(disk, scheduled_bytes=known.scheduled_bytes, scheduled_replicas=listed)


def _reworded(wanted: Wanted, refusal: Refusal, known: DiskFigures | None) -> Refusal:
    """The refusal, which says so where only what is taken, or the backing image, stands in the way."""
    node, disk, size = refusal.node, refusal.disk, wanted.volume.size_bytes
    if known is None or refusal.rejection.reason is not Reason.INSUFFICIENT_STORAGE:
        return refusal
    if size + known.image_bytes <= known.free_bytes:
        return refusal  # by a burden that older releases alone count
    free = f"{bytes_text(max(0, known.free_bytes))} are neither used nor promised"
    missing = size + known.image_bytes - known.free_bytes
    if size <= known.free_bytes:
        text = f"{bytes_text(known.image_bytes)} of the volume's backing image come along"
        return Refusal(node, disk, Rejection(Reason.BACKING_IMAGE, f"{disk}: {text}; {free}", missing))
    if size <= known.room_bytes:
        text = f"{bytes_text(known.taken_bytes)} are promised to other volumes"
        return Refusal(node, disk, Rejection(Reason.CONTENDED, f"{disk}: {text}; {free}", missing))
    return refusal
