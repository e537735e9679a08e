"""Whether a volume may grow: Longhorn's check of every disk that holds a replica of it, and what its API asks first.

Sources: `scheduler/replica_scheduler.go` (`CheckReplicasSizeExpansion`), `manager/volume.go`. No condition rounds the
growth, so the largest size that fits is worked out, not searched for. A sum beyond 64 bits, which would wrap around in
Longhorn, is refused here: what is admitted stays admitted for every smaller growth.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from controller.model.longhorn import Disk, LonghornNode, Replica, SpacePolicy, Volume, shared_disk_uuids
from controller.model.quantity import bytes_text
from controller.model.versions import NEWEST, Behaviour
from controller.rules.eligibility import file_system_limit, limit_text, minimal_available, provisioning_limit
from controller.rules.reasons import Reason, Rejection

GRANULE_BYTES: Final = 2 * 1024**2
LARGEST_BYTES: Final = 2**63 - GRANULE_BYTES


@dataclass(frozen=True, slots=True)
class DiskGrowth:
    """What the new size asks of one disk; `disk` is empty when its node does not show that UUID."""

    node: str
    disk: str
    uuid: str
    growth_bytes: int
    rejection: Rejection | None


@dataclass(frozen=True, slots=True)
class ExpansionPlan:
    """`largest_bytes`: the largest size that would be admitted now, a multiple of 2 MiB above the present size, or the
    present size. `rejection` is about the volume itself; disks, sorted by node and name, have their own."""

    admitted: bool
    largest_bytes: int
    disks: tuple[DiskGrowth, ...]
    rejection: Rejection | None = None


def plan_expansion(
    nodes: Mapping[str, LonghornNode],
    volume: Volume,
    replicas: Iterable[Replica],
    new_bytes: int,
    space: SpacePolicy,
    behaviour: Behaviour = NEWEST,
) -> ExpansionPlan:
    """The verdict on `volume` with its `replicas` at `new_bytes`; nothing is rounded. Shrinking is checked too."""
    own = tuple(replicas)
    rejection = check_expandable(volume, own, behaviour) if new_bytes > volume.size_bytes else None
    disks = []
    shared = shared_disk_uuids(nodes.values())
    room: int | None = None  # what each replica may grow by
    for (node, uuid), count in sorted(_replicas_by_disk(own).items()):
        disk = None if uuid in shared else _disk_of(nodes, node, uuid)
        growth = count * (new_bytes - volume.size_bytes)
        if disk is None:
            refused: Rejection | None = Rejection(
                Reason.DISK_NOT_FOUND, f"{node}: not one disk of UUID {uuid!r} is there"
            )
            most = 0
        else:
            refused = check_growth(disk, growth, space, behaviour)
            most = max(0, largest_growth(disk, space, behaviour)) // count
            limit = file_system_limit(volume.needs.data_engine, disk.filesystem)
            if limit is not None and new_bytes > volume.size_bytes:
                refused = _check_file(disk, new_bytes, limit) or refused
            if limit is not None:
                most = min(most, max(0, limit - 1 - volume.size_bytes))
        disks.append(DiskGrowth(node, disk.name if disk is not None else "", uuid, growth, refused))
        room = most if room is None else min(room, most)
    admitted = rejection is None and all(entry.rejection is None for entry in disks)
    blocked = check_expandable(volume, own, behaviour) is not None
    largest = volume.size_bytes if blocked else _largest(volume.size_bytes, room)
    disks.sort(key=lambda entry: (entry.node, entry.disk, entry.uuid))
    return ExpansionPlan(admitted, largest, tuple(disks), rejection)


def check_expandable(volume: Volume, replicas: Iterable[Replica], behaviour: Behaviour) -> Rejection | None:
    """Why Longhorn's API and webhook refuse any growth of the volume in its present state, space aside.

    A release that looks at one replica, whichever it meets first, refuses for certain only if none is placed.
    """
    places = [bool(replica.node) for replica in replicas]
    problem = ""
    if volume.needs.data_engine == "v2" and not behaviour.expands_v2:
        problem = "this Longhorn expands no v2 volume"
    elif volume.needs.data_engine == "v2" and volume.frontend == "ublk":
        problem = "a v2 volume with frontend ublk cannot be expanded"
    elif behaviour.expansion_needs_scheduled and (volume.scheduled is False or volume.scheduling_unknown):
        problem = "condition Scheduled is not True"
    elif volume.robustness == "faulted":
        problem = "it is faulted"
    elif volume.clone_state == "initiated":
        problem = "its clone is not complete"
    elif behaviour.expansion_needs_all_placed and places and not any(places):
        problem = "no replica is placed yet"
    return Rejection(Reason.NOT_EXPANDABLE, f"{volume.name}: {problem}") if problem else None


def check_growth(disk: Disk, growth_bytes: int, space: SpacePolicy, behaviour: Behaviour = NEWEST) -> Rejection | None:
    """Why the disk does not take that growth of all the volume's replicas on it; also asked for none and for less."""
    minimum = minimal_available(disk, space)
    limit = provisioning_limit(disk, space)
    if growth_bytes > 0 and behaviour.expansion_checks_physical_space:
        if disk.maximum_bytes <= 0 or disk.available_bytes <= 0:
            text = f"{disk.name}: {bytes_text(disk.available_bytes)} available of {bytes_text(disk.maximum_bytes)}"
            return Rejection(Reason.TOO_FULL, text)
        after = _used(disk) + growth_bytes
        problems = []
        if disk.maximum_bytes - after < minimum:
            problems.append(f"leaves less than {bytes_text(minimum)} of {bytes_text(disk.maximum_bytes)}")
        if after > limit:
            problems.append(f"is {bytes_text(after - limit)} more than {bytes_text(limit)}")
        if problems:
            text = f"{disk.name}: {bytes_text(_used(disk))} used + {bytes_text(growth_bytes)} growth"
            text = f"{text} = {bytes_text(after)} {' and '.join(problems)}"
            return Rejection(Reason.PHYSICAL_SPACE, text)
    if disk.available_bytes <= minimum:
        return Rejection(
            Reason.TOO_FULL,
            f"{disk.name}: {bytes_text(disk.available_bytes)} available is not more than {bytes_text(minimum)}, "
            f"{space.minimal_available_pct} % of {bytes_text(disk.maximum_bytes)}",
        )
    total = growth_bytes + disk.scheduled_bytes
    if total > limit:
        return Rejection(
            Reason.INSUFFICIENT_STORAGE,
            f"{disk.name}: {bytes_text(growth_bytes)} growth + {bytes_text(disk.scheduled_bytes)} scheduled is "
            f"{limit_text(disk, total - limit, limit, space)}",
        )
    return None


def _check_file(disk: Disk, new_bytes: int, limit_bytes: int) -> Rejection | None:
    """Longhorn's webhook looks at one placed replica's disk, whichever comes first; so that none refuses, all must
    do."""
    if new_bytes < limit_bytes:
        return None
    text = f"{disk.name}: {bytes_text(new_bytes)} is not below {bytes_text(limit_bytes)}, {disk.filesystem}'s limit"
    return Rejection(Reason.INCOMPATIBLE_SIZE, text)


def largest_growth(disk: Disk, space: SpacePolicy, behaviour: Behaviour = NEWEST) -> int:
    """The most that the volume's replicas on the disk may grow by together; 0 or less when by nothing."""
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
    """Bytes in use, what is reserved counted as free."""
    return disk.maximum_bytes - disk.available_bytes - disk.reserved_bytes


def _largest(present_bytes: int, room_bytes: int | None) -> int:
    """The largest multiple of the granule within the room, None for no bound; never below the present size."""
    most = LARGEST_BYTES if room_bytes is None else min(present_bytes + room_bytes, LARGEST_BYTES)
    return max(present_bytes, most // GRANULE_BYTES * GRANULE_BYTES)


def _replicas_by_disk(replicas: Iterable[Replica]) -> dict[tuple[str, str], int]:
    """How many placed replicas, failed ones included, lie on which disk."""
    found: dict[tuple[str, str], int] = {}
    for replica in replicas:
        if replica.node:
            key = (replica.node, replica.disk_uuid)
            found[key] = found.get(key, 0) + 1
    return found


def _disk_of(nodes: Mapping[str, LonghornNode], node: str, uuid: str) -> Disk | None:
    facts = nodes.get(node)
    if facts is None or not uuid:
        return None
    return next((disk for disk in facts.disks if disk.uuid == uuid), None)
