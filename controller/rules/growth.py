"""Whether a volume may grow: Longhorn's check of the room on every disk that holds a replica of it, and of the states
in which it expands no volume (controller/rules/expandable.py).

Source: `scheduler/replica_scheduler.go` (`CheckReplicasSizeExpansion`). No condition rounds the growth, so the largest
size that fits is computed, not searched for. A sum beyond 64 bits, which would wrap around in Longhorn, is refused
here: whatever is admitted is admitted for every smaller growth, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from controller.model.longhorn import Disk, LonghornNode, Replica, SpacePolicy, Volume, repeated_disk_uuids
from controller.model.quantity import bytes_text
from controller.model.versions import NEWEST, Behaviour
from controller.rules.eligibility import (
    check_limit,
    file_system_limit,
    limit_text,
    minimal_available,
    minimum_text,
    no_space,
    provisioning_limit,
)
from controller.rules.expandable import GrowthCase, Lasting, Route, Unexpandable, obstructions
from controller.rules.reasons import Reason, Rejection

GRANULE_BYTES: Final = 2 * 1024**2  # volumes have multiples of this
LARGEST_BYTES: Final = 2**63 - GRANULE_BYTES


class Prospect(StrEnum):
    """What becomes of a growth that is requested now."""

    NOW = "now"
    NOT_NOW = "not-now"  # the volume's state, or a disk's, keeps it from growing until it passes
    NO_ROOM = "no-room"  # a disk refuses it: Longhorn's webhook lets no claim ask for it
    NEVER = "never"  # nothing that passes by itself helps, nor would disks that hold nothing else


@dataclass(frozen=True, slots=True)
class DiskGrowth:
    """What the new size needs on one disk. `disk` is "" if its node does not show that UUID. `rejection`: why there is
    no room. `is_hopeless`: there would be none if the disk held nothing else."""

    node: str
    disk: str
    uuid: str
    growth_bytes: int
    rejection: Rejection | None
    is_hopeless: bool = False


@dataclass(frozen=True, slots=True)
class ExpansionPlan:
    """What becomes of a growth. `largest_bytes`: the largest size that would be admitted now, a multiple of 2 MiB or
    the present size; `largest_later_bytes`: the same once what passes by itself has passed. `obstructions`: what keeps
    the volume from growing, room aside. `disks`, sorted by node and name, have their own rejections."""

    largest_bytes: int
    largest_later_bytes: int
    disks: tuple[DiskGrowth, ...]
    obstructions: tuple[Unexpandable, ...] = ()

    @property
    def prospect(self) -> Prospect:
        refused = [entry for entry in self.disks if entry.rejection is not None]
        if self.never or any(entry.is_hopeless for entry in refused):
            return Prospect.NEVER
        if refused:
            return Prospect.NO_ROOM
        return Prospect.NOT_NOW if self.obstructions else Prospect.NOW

    @property
    def admitted(self) -> bool:
        return self.prospect is Prospect.NOW

    @property
    def never(self) -> tuple[Unexpandable, ...]:
        return tuple(entry for entry in self.obstructions if entry.lasting is Lasting.NEVER)

    @property
    def not_now(self) -> tuple[Unexpandable, ...]:
        return tuple(entry for entry in self.obstructions if entry.lasting is Lasting.NOT_NOW)


def plan_expansion(
    nodes: Mapping[str, LonghornNode],
    volume: Volume,
    replicas: Iterable[Replica],
    new_bytes: int,
    space: SpacePolicy,
    behaviour: Behaviour = NEWEST,
    route: Route = Route.CLAIM,
) -> ExpansionPlan:
    """Return what becomes of `volume` with its `replicas` at `new_bytes`; nothing is rounded. A smaller size is checked
    for room alone."""
    own = tuple(replicas)
    is_growth = new_bytes > volume.size_bytes
    counts = Counter((one.node, one.disk_uuid) for one in own if one.node)  # failed ones included
    disks, found = [], []
    room: int | None = None  # what each replica may grow by
    for (node, uuid), here in sorted(counts.items()):
        disk = _disk_of(nodes, node, uuid)
        # Of nodes that share the UUID Longhorn adds up the copies.
        count = here if disk is None else sum(more for (_, other), more in counts.items() if other == uuid)
        growth = count * (new_bytes - volume.size_bytes)
        if disk is None:
            gone = Rejection(Reason.DISK_NOT_FOUND, f"{node}: has no single disk with the UUID {uuid!r}")
            disks.append(DiskGrowth(node, "", uuid, growth, gone))
            room = 0
            continue
        found.append((node, disk))
        refused = check_growth(disk, growth, space, behaviour)
        empty = most_if_empty(disk, space)
        is_hopeless = is_growth and refused is not None and empty is not None and count * new_bytes > empty
        disks.append(DiskGrowth(node, disk.name, uuid, growth, refused, is_hopeless))
        most = max(0, largest_growth(disk, space, behaviour)) // count
        limit = file_system_limit(volume.needs.data_engine, disk.filesystem)
        if limit is not None:
            most = min(most, max(0, limit - 1 - volume.size_bytes))
        room = most if room is None else min(room, most)
    disks.sort(key=lambda entry: (entry.node, entry.disk, entry.uuid))
    largest = _largest(volume.size_bytes, room)
    # What speaks against any growth, and not only against this size.
    at_all = obstructions(GrowthCase(volume, own, tuple(found), volume.size_bytes + 1, behaviour, route))
    is_possible = not any(entry.lasting is Lasting.NEVER for entry in at_all)
    return ExpansionPlan(
        largest if not at_all else volume.size_bytes,
        largest if is_possible else volume.size_bytes,
        tuple(disks),
        tuple(obstructions(GrowthCase(volume, own, tuple(found), new_bytes, behaviour, route))) if is_growth else (),
    )


def most_if_empty(disk: Disk, space: SpacePolicy) -> int | None:
    """Return the bytes of replicas that the disk could take if it held nothing else; None if its figures do not tell
    its size, as for a disk that is not ready. No volume that is larger, new or growing, ever fits there."""
    if not disk.ready or disk.maximum_bytes <= 0:
        return None
    return provisioning_limit(disk, space)


def check_growth(disk: Disk, growth_bytes: int, space: SpacePolicy, behaviour: Behaviour = NEWEST) -> Rejection | None:
    """Return why the disk does not take that growth of all the volume's replicas on it, or None; also for 0 or less."""
    minimum = minimal_available(disk, space)
    limit = provisioning_limit(disk, space)
    if growth_bytes > 0 and behaviour.expansion_checks_physical_space:
        if not disk.shows_space:
            return no_space(disk)
        after = _used(disk) + growth_bytes
        problems, missing = [], max(after - limit, minimum - (disk.maximum_bytes - after))
        if disk.maximum_bytes - after < minimum:
            problems.append(f"leaves less than {minimum_text(disk, minimum, space)}")
        if after > limit:
            problems.append(limit_text(disk, after - limit, limit, space))
        if problems:
            text = f"{disk.name}: {bytes_text(_used(disk))} used + {bytes_text(growth_bytes)} growth"
            text = f"{text} = {bytes_text(after)}, which {' and '.join(problems)}"
            return Rejection(Reason.PHYSICAL_SPACE, text, missing)
    if disk.available_bytes <= minimum:
        left = f"{bytes_text(disk.available_bytes)} available"
        text = f"{disk.name}: {left} is not above {minimum_text(disk, minimum, space)}"
        return Rejection(Reason.TOO_FULL, text, minimum + 1 - disk.available_bytes)
    total = growth_bytes + disk.scheduled_bytes
    return check_limit(disk, growth_bytes, disk.scheduled_bytes, total, space, " growth")


def largest_growth(disk: Disk, space: SpacePolicy, behaviour: Behaviour = NEWEST) -> int:
    """Return the bytes by which the volume's replicas on the disk may grow together; 0 or less if they may not."""
    minimum = minimal_available(disk, space)
    limit = provisioning_limit(disk, space)
    if disk.available_bytes <= minimum:
        return 0
    most = limit - disk.scheduled_bytes
    if behaviour.expansion_checks_physical_space:
        if disk.maximum_bytes <= 0:
            return 0
        most = min(most, disk.maximum_bytes - minimum - _used(disk), limit - _used(disk))
    return most


def _used(disk: Disk) -> int:
    """The bytes in use, with what is reserved counted as free."""
    return disk.maximum_bytes - disk.available_bytes - disk.reserved_bytes


def _largest(present_bytes: int, room_bytes: int | None) -> int:
    """The largest multiple of 2 MiB within `room_bytes`, None for any; never below the present size."""
    most = LARGEST_BYTES if room_bytes is None else min(present_bytes + room_bytes, LARGEST_BYTES)
    return max(present_bytes, most // GRANULE_BYTES * GRANULE_BYTES)


def _disk_of(nodes: Mapping[str, LonghornNode], node: str, uuid: str) -> Disk | None:
    is_there = uuid and node in nodes and uuid not in repeated_disk_uuids(nodes[node])
    return next((disk for disk in nodes[node].disks if disk.uuid == uuid), None) if is_there else None
