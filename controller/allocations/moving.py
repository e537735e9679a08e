"""Moves the record from one backend to the other.

Each node's record is written to the new place and read back before it goes from the old one. If the move is
interrupted, the record is in both places, and the same command continues from there.
"""

from __future__ import annotations

from collections.abc import Callable

from controller.allocations.backends import RecordBackend
from controller.errors import UnreadableRecordError
from controller.model.allocations import Allocation


def move_records(source: RecordBackend, target: RecordBackend, say: Callable[[str], None]) -> int:
    """The number of nodes whose record was moved. Where both have an entry the larger one counts.

    Raises UnreadableRecordError before anything is written when a record cannot be read, and ClusterError.
    """
    found = [stored for stored in source.records() if stored.raw is not None]
    others = {stored.record.node: stored for stored in target.records()}
    for stored in (*found, *others.values()):
        if stored.record.problem:
            raise UnreadableRecordError(f"the record of {stored.record.node}: {stored.record.problem}; repair it first")
    moved = 0
    for stored in found:
        record = stored.record
        if record.allocations:
            there = others.get(record.node) or target.read(record.node)
            wanted = _larger(record.allocations, there.record.allocations)
            term = max(record.term, there.record.term)
            target.write(there, wanted, term)
            written = target.read(record.node)
            if written.record.problem or written.record.allocations != wanted:
                if not there.record.allocations:
                    target.forget(written)
                raise UnreadableRecordError(
                    f"{target.name} does not keep the record of {record.node}; it stays where it was"
                )
            moved += 1
            say(f"{record.node}: {len(wanted)} entries moved to {target.name}")
        source.forget(stored)
    return moved


def _larger(one: tuple[Allocation, ...], other: tuple[Allocation, ...]) -> tuple[Allocation, ...]:
    found = {allocation.key: allocation for allocation in one}
    for allocation in other:
        mine = found.get(allocation.key)
        if mine is None or mine.size_bytes < allocation.size_bytes:
            found[allocation.key] = allocation
    return tuple(found[key] for key in sorted(found))
