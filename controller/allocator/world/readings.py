"""Records of allocations as they were read, or written, at their places, and what is about to be written."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

from controller.model.allocations import Allocation, NodeRecord, largest


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


@dataclass(frozen=True, slots=True)
class Decided:
    """What one caller was given, and the record need not show yet. `seen`: its node's record as it was when that was
    decided, by which there is room. `until`: nobody knows whether it was written at that `place`, and it counts until
    then; None while it is being written."""

    number: int
    allocation: Allocation
    seen: NodeRecord
    until: float | None = None
    place: str = ""


NEVER_READ: Final = RecordReading()


def read(record: NodeRecord | None, last: RecordReading) -> RecordReading | None:
    if record is None:
        return None
    if record.is_readable:
        return RecordReading(record.allocations, record.term, version=record.version)
    return replace(last, problem=record.problem, version=record.version)


def together(lists: tuple[tuple[Allocation, ...], ...]) -> tuple[Allocation, ...]:
    if len(lists) < 2:  # nearly always
        return lists[0] if lists else ()
    return tuple(largest(chain.from_iterable(lists)).values())
