"""Whether Longhorn expands a volume in its present state, room aside: never, not now, or at any time.

A claim that requests more passes Longhorn's CSI service, its API and its webhook for volumes, and is tried again until
all three let it through. A Volume object that is made larger passes only that webhook, and only once. Longhorn's
webhook for claims looks at room alone.

Sources: `csi/controller_server.go` (`ControllerExpandVolume`), `manager/volume.go`,
`webhook/resources/volume/validator.go`. What the objects do not tell, such as the state of a volume without a status,
is no reason to refuse.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from controller.model.longhorn import Disk, Replica, Volume
from controller.model.versions import Behaviour
from controller.rules.eligibility import check_file_system
from controller.rules.reasons import Reason, Rejection

STEADY: Final = frozenset({"attached", "detached", ""})


class Lasting(StrEnum):
    """For how long an obstacle to growth lasts."""

    NEVER = "never"  # for ever, unless somebody changes the volume
    NOT_NOW = "not-now"  # until it passes by itself


class Route(StrEnum):
    """Which object is made larger, and so which parts of Longhorn look at it."""

    CLAIM = "claim"
    VOLUME = "volume"


@dataclass(frozen=True, slots=True)
class Unexpandable:
    """Why a volume does not grow, with the names of `node` and `disk` if a disk is the reason."""

    lasting: Lasting
    rejection: Rejection
    node: str = ""
    disk: str = ""


@dataclass(frozen=True, slots=True)
class GrowthCase:
    """A volume that is to grow to `new_bytes`. `disks`: the disks that hold its replicas, with their nodes' names."""

    volume: Volume
    replicas: tuple[Replica, ...]
    disks: tuple[tuple[str, Disk], ...]
    new_bytes: int
    behaviour: Behaviour
    route: Route = Route.CLAIM


def check_expandable(case: GrowthCase) -> Unexpandable | None:
    """Return what keeps the volume from growing, what lasts for ever first; None if only room may."""
    found = obstructions(case)
    return min(found, key=lambda entry: entry.lasting is not Lasting.NEVER, default=None)


def obstructions(case: GrowthCase) -> list[Unexpandable]:
    """Return everything that keeps the volume from growing; what concerns the volume itself comes first.

    Some releases look at the disk of only one replica, whichever comes first. They let a growth through for certain
    only if every disk does, and refuse it for want of a place for certain only if no replica has one."""
    return [*_of_volume(case), *_of_disks(case)]


def _of_volume(case: GrowthCase) -> Iterator[Unexpandable]:
    volume = case.volume

    def entry(lasting: Lasting, reason: Reason, text: str) -> Unexpandable:
        return Unexpandable(lasting, Rejection(reason, f"{volume.name}: {text}"))

    if volume.needs.data_engine == "v2" and not case.behaviour.expands_v2:
        yield entry(Lasting.NEVER, Reason.ENGINE_NOT_EXPANDABLE, "this version of Longhorn cannot expand v2 volumes")
    elif volume.needs.data_engine == "v2" and volume.wanted_frontend == "ublk":
        text = "a v2 volume with frontend ublk cannot be expanded"
        yield entry(Lasting.NEVER, Reason.ENGINE_NOT_EXPANDABLE, text)
    is_cloned = volume.source_volume and volume.clone_state != "completed"
    if is_cloned and volume.clone_state == "failed":
        yield entry(Lasting.NEVER, Reason.CLONE_FAILED, "its clone has failed")
    elif is_cloned or volume.clone_state == "initiated":
        yield entry(Lasting.NOT_NOW, Reason.CLONING, "its clone is not complete")
    if volume.restore_required and not volume.is_standby:
        yield entry(Lasting.NOT_NOW, Reason.RESTORING, "it is being restored from a backup")
    if volume.robustness == "faulted":
        yield entry(Lasting.NOT_NOW, Reason.FAULTED, "it is faulted")
    unscheduled = _unscheduled(case)
    if unscheduled:
        yield entry(Lasting.NOT_NOW, Reason.NOT_SCHEDULED, unscheduled)
    if case.route is Route.CLAIM:
        if volume.state == "deleting":
            yield entry(Lasting.NEVER, Reason.IN_TRANSITION, "it is being deleted")
        elif volume.state not in STEADY:
            yield entry(Lasting.NOT_NOW, Reason.IN_TRANSITION, f"it is {volume.state}, neither attached nor detached")
        if volume.migration_node_id:
            yield entry(Lasting.NOT_NOW, Reason.MIGRATING, f"it is migrating to {volume.migration_node_id}")


def _unscheduled(case: GrowthCase) -> str:
    """The places of replicas that Longhorn misses; "" if none. A volume without condition Scheduled is not held
    back."""
    volume, behaviour = case.volume, case.behaviour
    places = [bool(replica.node) for replica in case.replicas]
    is_said = volume.scheduled is False or volume.scheduling_unknown
    if is_said and case.route is Route.CLAIM and behaviour.expansion_needs_scheduled:
        return "condition Scheduled is not True"
    if is_said and volume.state == "detached" and not all(places):
        return "condition Scheduled is not True while it is detached, and a replica is not placed"
    if behaviour.expansion_needs_all_placed and places and not any(places):
        return "no replica is placed yet"
    return ""


def _of_disks(case: GrowthCase) -> Iterator[Unexpandable]:
    for node, disk in case.disks:
        rejection = check_file_system(disk, case.volume.needs.data_engine, case.new_bytes)
        if rejection is not None:
            yield Unexpandable(Lasting.NEVER, rejection, node, disk.name)
        if not disk.ready:
            rejection = Rejection(Reason.DISK_NOT_READY, f"{disk.name}: the disk is not ready: {disk.not_ready}")
            yield Unexpandable(Lasting.NOT_NOW, rejection, node, disk.name)
