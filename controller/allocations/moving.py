"""Moves the record from one backend to the other.

Each node's record stands at the new place before it goes from the old one. If the move is interrupted, the record is
in both places, and the next move continues from there.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, TypeVar

from controller.allocations.backends import RecordBackend, StoredRecord
from controller.allocations.writer import RecordWriter
from controller.errors import ConflictError, NotFoundError, NotLeaderError, UnreadableRecordError
from controller.model.allocations import Allocation, NodeRecord, Put, largest, lowers_nothing

TRIES: Final = 5  # of a step whose object somebody else writes meanwhile, as Longhorn does with its Nodes
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class Moved:
    """How many nodes' records are at the new place by this, and how many stay because it has no object of their name:
    a Longhorn Node may be gone."""

    moved: int
    stayed: int


def move_records(source: RecordBackend, target: RecordBackend, say: Callable[[str], None]) -> Moved:
    """Where both have an entry the larger one counts.

    Raises UnreadableRecordError before anything is written when a record cannot be read, and ClusterError. What is not
    moved by then stays where it was.
    """
    found = [stored for stored in source.records() if stored.raw is not None]
    for stored in (*found, *target.records()):
        _readable(stored)
    moved = stayed = 0
    for node in (stored.record.node for stored in found):
        try:
            entries = _tried(_Step(node, source, target).move, node)
        except NotFoundError as error:
            stayed += 1
            say(f"{node}: its record stays in {source.name}: {error}")
            continue
        if entries:
            moved += 1
            say(f"{node}: {entries} entries moved to {target.name}")
    return Moved(moved, stayed)


def move_while_leading(
    node: str,
    source: RecordBackend,
    target: RecordBackend,
    writer: RecordWriter,
    term: Callable[[], int],
    deadline: float,
) -> int:
    """How many entries of that node `source` had, and has no more. `writer` is that of `target`, and others may write
    by it meanwhile; `term` raises NotLeaderError while this process does not lead.

    NotFoundError: the node has no object at `target`; another SchedulerError: its record stays for another reason. What
    did not go from `source` counts there.
    """
    began = term()

    def check() -> None:
        if term() != began:
            raise NotLeaderError(f"the term ended while the record of {node} was moved")

    stored = source.read(node)
    record = _readable(stored)
    if record.term > began:
        raise UnreadableRecordError(f"the record of {node} is of term {record.term}, later than {began}")
    if record.allocations:
        target.read(node)
        changes = [Put(one) for one in record.allocations]
        writer.commit(changes, deadline, lowers_nothing, check=check)
        check()  # what stands there by now is seen by the next leader before it decides anything
    source.forget(stored)
    return len(record.allocations)


class _Step:
    """One node's part. Each try reads both places anew, since what was read before may be old."""

    def __init__(self, node: str, source: RecordBackend, target: RecordBackend) -> None:
        self._node, self._source, self._target = node, source, target

    def move(self) -> int:
        """How many entries are at the new place by it. ConflictError: an object was changed between read and write."""
        stored = self._source.read(self._node)
        record = _readable(stored)
        wanted = self._bring(record) if record.allocations else ()
        self._source.forget(stored)
        return len(wanted)

    def _bring(self, record: NodeRecord) -> tuple[Allocation, ...]:
        stored = self._target.read(self._node)
        there = _readable(stored)
        wanted = _larger(record.allocations, there.allocations)
        self._target.write(stored, wanted, max(record.term, there.term))
        written = self._target.read(self._node).record.allocations
        if _larger(wanted, written) != written:
            if not there.allocations:
                _tried(lambda: self._take_back(wanted), self._node)
            text = f"{self._target.name} does not keep the record of {self._node}; it stays where it was"
            raise UnreadableRecordError(text)
        return wanted

    def _take_back(self, ours: tuple[Allocation, ...]) -> None:
        stored = self._target.read(self._node)
        if set(stored.record.allocations) <= set(ours):
            self._target.forget(stored)


def _tried(step: Callable[[], _Result], node: str) -> _Result:
    """What a step returns that is tried again after a ConflictError."""
    for _ in range(TRIES - 1):
        with suppress(ConflictError):
            return step()
    try:
        return step()
    except ConflictError as error:
        text = f"the record of {node}: somebody else changed its object at each of {TRIES} tries; move it again"
        raise ConflictError(f"{text} ({error})") from error


def _readable(stored: StoredRecord) -> NodeRecord:
    record = stored.record
    if record.problem:
        raise UnreadableRecordError(f"the record of {record.node}: {record.problem}; repair it first")
    return record


def _larger(one: tuple[Allocation, ...], other: tuple[Allocation, ...]) -> tuple[Allocation, ...]:
    found = largest((*one, *other))
    return tuple(found[key] for key in sorted(found))
