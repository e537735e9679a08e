"""What is allocated on the disks of Longhorn's nodes, as the durable record has it. Sizes are bytes.

A record belongs to one node. It is changed by a sequence of changes, which become durable together or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

import msgspec


class Purpose(StrEnum):
    """What an allocation is for. The value is the code that metrics and logs show."""

    REPLICA = "replica"
    BACKING_IMAGE = "backing-image"


Key = tuple[Purpose, str, str]  # purpose, name and UUID of the disk


class Allocation(msgspec.Struct, frozen=True, order=True, gc=False):
    """Room for one replica, or for one copy of a backing image, on one disk, which goes by its UUID: its name may be
    another disk's tomorrow. `node` is the one whose record has it. Those of a node are in the order of their keys.

    Not a dataclass: a record is read and compared at each write, and making and hashing its entries was most of that.
    """

    purpose: Purpose
    name: str
    node: str
    disk_uuid: str
    size_bytes: int

    @property
    def key(self) -> Key:
        """Tells it from the others of its node: an image may have copies on several disks there."""
        return self.purpose, self.name, self.disk_uuid


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """All that is on record for a node. One with a `problem` says nothing: it could not be read."""

    node: str
    allocations: tuple[Allocation, ...] = ()
    version: str = ""  # of the object that carries it
    term: int = 0  # of the leader that wrote it last
    problem: str = ""

    @property
    def is_readable(self) -> bool:
        return not self.problem


def version_number(version: str) -> int:
    """Resource versions of one kind are ordered numbers."""
    return int(version) if version.isdigit() else 0


@dataclass(frozen=True, slots=True)
class Put:
    """That allocation is on record from now on, with its size, whatever stood there under its key before."""

    allocation: Allocation

    @property
    def node(self) -> str:
        return self.allocation.node

    @property
    def key(self) -> Key:
        return self.allocation.key


@dataclass(frozen=True, slots=True)
class Drop:
    """That allocation is not on record any more; nothing happens when it was not."""

    purpose: Purpose
    name: str
    node: str
    disk_uuid: str

    @property
    def key(self) -> Key:
        return self.purpose, self.name, self.disk_uuid


Change = Put | Drop


def largest(entries: Iterable[Allocation]) -> dict[Key, Allocation]:
    """Of those with the same key the one with most bytes, the first of several."""
    found: dict[Key, Allocation] = {}
    for one in entries:
        there = found.get(one.key)
        found[one.key] = one if there is None or there.size_bytes < one.size_bytes else there
    return found


def apply(changes: Iterable[Change], found: dict[Key, Allocation]) -> None:
    """In their order, in what is on record of one node, by key."""
    for change in changes:
        if isinstance(change, Put):
            found[change.key] = change.allocation
        else:
            found.pop(change.key, None)


def lowers_nothing(change: Change, there: Allocation | None) -> bool:
    """Whether `change` takes nothing from what stands under its key: another call may have given more meanwhile."""
    return isinstance(change, Drop) or there is None or there.size_bytes < change.allocation.size_bytes


def changed(allocations: Iterable[Allocation], changes: Iterable[Change]) -> tuple[Allocation, ...]:
    """What is on record of one node after `changes`, in their order; sorted, so that equal records are equal."""
    found = {one.key: one for one in allocations}
    apply(changes, found)
    return tuple(sorted(found.values()))
