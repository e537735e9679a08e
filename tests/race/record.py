"""The durable record of allocations as the API server has it: what is written there fails, arrives without an answer,
arrives late, is refused, or meets somebody else's write."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from controller.errors import ConflictError, ForbiddenError, UnavailableError
from controller.model.allocations import Allocation, NodeRecord
from controller.record.backends import RecordBackend, StoredRecord

LATE_SECONDS: Final = 20.0  # from a write without an answer until it arrives, at most


class WriteFault(StrEnum):
    """What becomes of one write."""

    NONE = "is written"
    LOST = "never arrives"
    UNANSWERED = "arrives without an answer"
    LAST = "arrives without an answer, and nobody can be asked any more"
    LATE = "is under way for long"
    OVERTAKEN = "meets another write of the object"
    REFUSED = "is refused"
    PRUNED = "is accepted, and not kept"
    AWAY = "is not tried: nobody can be asked"


@dataclass(frozen=True)
class _UnderWay:
    stored: StoredRecord
    allocations: tuple[Allocation, ...]
    since: float


class RaceRecord(RecordBackend):
    """Each write takes the next of `faults`; `meanwhile` happens while it is on its way, before or
    after it arrives. Once it `is_cut_off` nothing is read or written until the next call."""

    name = "race"

    def __init__(self, put: Callable[[str, NodeRecord], None], now: Callable[[], float], log: list[str]) -> None:
        """`put` stores a node's record and tells the watch."""
        self._put, self._now, self._log = put, now, log
        self.entries: dict[str, NodeRecord] = {}
        self.faults: deque[WriteFault] = deque()
        self.refused_at: dict[str, float] = {}  # by node, when a write was refused last
        self.meanwhile: Callable[[], None] | None = None
        self.is_cut_off = False
        self._under_way: list[_UnderWay] = []
        self._version = 0

    def records(self) -> list[StoredRecord]:
        """What a live list returns to a leader that reaches the API server."""
        return [StoredRecord(self._there(node), {}) for node in sorted(self.entries)]

    def read(self, node: str, timeout: float = 0.0) -> StoredRecord:
        del timeout
        self._check_reach()
        return StoredRecord(self._there(node), {})

    def _there(self, node: str) -> NodeRecord:
        return self.entries.get(node) or NodeRecord(node, version="0")

    def write(self, stored: StoredRecord, allocations: Sequence[Allocation], timeout: float = 0.0) -> StoredRecord:
        del timeout
        self._check_reach()
        node, fault = stored.record.node, self.faults.popleft() if self.faults else WriteFault.NONE
        if fault is not WriteFault.NONE:
            self._log.append(f"  the write of the record of {node} {fault}")
        if fault is WriteFault.OVERTAKEN:
            self._touch(node)
        if fault in (WriteFault.REFUSED, WriteFault.PRUNED):
            self.refused_at[node] = self._now()
        if fault is WriteFault.REFUSED:
            raise ForbiddenError("not allowed")
        if fault in (WriteFault.LOST, WriteFault.LATE):
            if fault is WriteFault.LATE:
                self._under_way.append(_UnderWay(stored, tuple(allocations), self._now()))
            raise UnavailableError("no answer")
        self._store(stored, stored.record.allocations if fault is WriteFault.PRUNED else allocations)
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        if fault in (WriteFault.UNANSWERED, WriteFault.LAST):
            self.is_cut_off = fault is WriteFault.LAST
            raise UnavailableError("no answer")
        return self.read(node)

    def _check_reach(self) -> None:
        if self.faults and self.faults[0] is WriteFault.AWAY:
            self.faults.clear()
            self.is_cut_off = True
        if self.is_cut_off:
            raise UnavailableError("no connection")

    def check(self) -> None:
        """Nothing has to be installed for it."""

    def _store(self, stored: StoredRecord, allocations: Collection[Allocation]) -> None:
        node = stored.record.node
        if self._there(node).version != stored.record.version:
            raise ConflictError("somebody else was faster")
        self._version += 1
        self._put_record(NodeRecord(node, tuple(allocations), str(self._version)))

    def _touch(self, node: str) -> None:
        """Somebody else writes the object, and leaves its record as it is."""
        self._version += 1
        self._put_record(replace(self._there(node), version=str(self._version)))

    def _put_record(self, record: NodeRecord) -> None:
        self.entries[record.node] = record
        self._put(record.node, record)

    # What is under way for long

    def under_way(self) -> list[_UnderWay]:
        return list(self._under_way)

    def arrive(self, write: _UnderWay) -> None:
        """A late write arrives; it is stored if nobody has written the object since."""
        self._under_way.remove(write)
        if self._there(write.stored.record.node).version == write.stored.record.version:
            self._store(write.stored, write.allocations)

    def lose(self, choice: int = 0, older_than: float = 0.0) -> None:
        """Each write that has been under way for so long arrives now, or never, as the bits of `choice` say."""
        for number, write in enumerate(self.under_way()):
            if self._now() - write.since < older_than:
                continue
            if choice >> number & 1:
                self.arrive(write)
            else:
                self._under_way.remove(write)
