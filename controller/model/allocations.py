"""What is allocated on the disks of Longhorn's nodes, as the durable record has it. Sizes are bytes."""

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
    """All that is on record for a node. `problem`: what of it could not be read and is not among the allocations."""

    node: str
    allocations: tuple[Allocation, ...] = ()
    version: str = ""  # of the object that carries it
    problem: str = ""


def largest(entries: Iterable[Allocation]) -> tuple[Allocation, ...]:
    """The largest of the entries with the same key; sorted, so that equal records are equal."""
    found: dict[Key, Allocation] = {}
    for one in entries:
        there = found.get(one.key)
        if there is None or there.size_bytes < one.size_bytes:
            found[one.key] = one
    return tuple(sorted(found.values()))
