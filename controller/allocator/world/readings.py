"""Records of allocations as they were read, or written, at their places."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

from controller.model.allocations import Allocation, NodeRecord


@dataclass(frozen=True, slots=True)
class RecordReading:
    """A record at one place. `allocations` and `term`: by the last reading that succeeded; None: there was none."""

    allocations: tuple[Allocation, ...] | None = None
    term: int = 0
    problem: str = ""
    version: str = ""


@dataclass(frozen=True, slots=True)
class Ahead:
    """This process has written more at a place than the watch has shown of it. `shown`: what counts again unless it
    shows that by then; None: nothing is there."""

    until: float
    shown: RecordReading | None


NEVER_READ: Final = RecordReading()


def read(record: NodeRecord | None, last: RecordReading) -> RecordReading | None:
    if record is None:
        return None
    if record.is_readable:
        return RecordReading(record.allocations, record.term, version=record.version)
    return replace(last, problem=record.problem, version=record.version)


def number(version: str) -> int:
    """Resource versions of one kind are ordered numbers."""
    return int(version) if version.isdigit() else 0


def together(lists: tuple[tuple[Allocation, ...], ...]) -> tuple[Allocation, ...]:
    if len(lists) < 2:  # nearly always
        return lists[0] if lists else ()
    found: dict[object, Allocation] = {}
    for one in chain.from_iterable(lists):
        there = found.get(one.key)
        found[one.key] = one if there is None or there.size_bytes < one.size_bytes else there
    return tuple(found.values())
