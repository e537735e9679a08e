"""What is allocated on the disks of Longhorn's nodes, as the durable record has it. Sizes are bytes.

A record belongs to one node. It is changed by a sequence of changes, which become durable together or not at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class Resource(StrEnum):
    """What an allocation is for. The value is the code that metrics and logs show."""

    REPLICA = "replica"
    BACKING_IMAGE = "backing-image"


@dataclass(frozen=True, slots=True)
class Allocation:
    """Room for one replica, or for one copy of a backing image, on one disk; the disk's name is its key in the node's
    `spec.disks`."""

    resource: Resource
    name: str
    node: str
    disk: str
    size_bytes: int

    @property
    def key(self) -> tuple[Resource, str, str]:
        """Tells it from the others of its node: an image may have copies on several disks there."""
        return self.resource, self.name, self.disk


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """All that is on record for a node. One with a `problem` says nothing: it could not be read."""

    node: str
    allocations: tuple[Allocation, ...] = ()
    version: str = ""  # of the object that carries it
    problem: str = ""

    @property
    def is_readable(self) -> bool:
        return not self.problem


@dataclass(frozen=True, slots=True)
class Put:
    """That allocation is on record from now on, with its size, whatever stood there under its key before."""

    allocation: Allocation

    @property
    def node(self) -> str:
        return self.allocation.node


@dataclass(frozen=True, slots=True)
class Drop:
    """That allocation is not on record any more; nothing happens when it was not."""

    resource: Resource
    name: str
    node: str
    disk: str


Change = Put | Drop


class RecordWriter(Protocol):
    """Threads: any. Blocks: until the changes are durable, or `deadline`, in monotonic seconds. I/O: the API server."""

    def commit(self, changes: Sequence[Change], deadline: float) -> None:
        """Durable when it returns, all of `changes` or none. Raises NotReadyError when this process does not lead, or
        the API server does not answer in time; ConflictError when somebody else has changed the record itself."""
