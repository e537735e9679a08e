"""What a call that gives room away by name comes to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from controller.allocator.judge.growth import Obstacle
from controller.model.allocations import Allocation, Change, NodeRecord, Purpose, Put
from controller.model.longhorn import LonghornNode, Replica
from controller.rules.placing import NotYet


class LookFirstError(Exception):
    """Where the replica goes, or may stay, depends on `what` (kind and name), of which our stores may be behind."""

    def __init__(self, *what: tuple[str, str]) -> None:
        super().__init__()
        self.what = what


@dataclass(frozen=True, slots=True)
class Allotment:
    """What was given, and the `changes` that make it durable. `obstacles`: nothing was given, for these reasons and so
    many `more`. `is_new`: it was not given before. `freed`: nothing was given but these taken back. `seen`: the records
    by which there is room for it."""

    allocations: tuple[Allocation, ...] = ()
    changes: tuple[Change, ...] = ()
    is_new: bool = False
    obstacles: tuple[Obstacle, ...] = ()
    more: int = 0
    freed: tuple[Allocation, ...] = ()
    size_bytes: int = 0
    seen: tuple[NodeRecord, ...] = ()
    number: int = 0  # of the decision, until what becomes of it is told

    @property
    def put(self) -> tuple[Allocation, ...]:
        """What the changes bring on record."""
        return tuple(change.allocation for change in self.changes if isinstance(change, Put))


class HeldPlace(StrEnum):
    """What is on record, or decided, for a replica without a disk."""

    NOTHING = "nothing"
    PLACE = "place"  # that it may be written to
    CLOSED = "closed"  # by the rules, room aside, or because it has no room for what the volume has grown by
    IN_DOUBT = "in-doubt"  # that room may be missing only because a write of ours was not answered
    ELSEWHERE = "elsewhere"  # not on the node that it has to be on
    TOLD = "told"  # one of these two, and its caller was told so lately that it may be writing it


@dataclass(frozen=True, slots=True)
class HeldAt:
    """`why`: it may not be written to."""

    place: HeldPlace
    why: str = ""


@dataclass(frozen=True, slots=True)
class PlacementTurn:
    """Whether a replica without a disk is to get one now. `affinity`: the node that it has to be bound to first."""

    volume: str
    not_yet: NotYet | None = None
    affinity: str = ""
    held: HeldPlace = HeldPlace.NOTHING


def allocation_of(nodes: Mapping[str, LonghornNode], replica: Replica, size_bytes: int = 0) -> Allocation | None:
    """Of a replica that has a disk, and is that large at least; None where its node does not show the disk."""
    node = nodes.get(replica.node)
    disks = node.disks if node is not None else ()
    if not any(one.uuid == replica.disk_uuid for one in disks):
        return None
    size = max(replica.size_bytes, size_bytes)
    return Allocation(Purpose.REPLICA, replica.name, replica.node, replica.disk_uuid, size)
