"""Writes the records of nodes as wanted: callers that wait for the same node share its next write.

The record is a projection: each write contains all that its node should have at that moment, for whoever waits. So
writes need no order, a write without an answer is repeated, and a former leader's late one is overwritten. Additions
are written on all nodes before anything is removed: a crash leaves too much on record, never too little.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from controller.clock import Clock
from controller.errors import (
    ClusterError,
    ConflictError,
    NotFoundError,
    NotReadyError,
    RefusedWriteError,
    UnavailableError,
)
from controller.model.allocations import Allocation, NodeRecord, largest
from controller.model.reader import version_number
from controller.record.backends import RecordBackend, StoredRecord

PAUSE_SECONDS: Final = 0.05
GATHER_SECONDS: Final = 0.1
GATHER_TIMES: Final = 2.0  # the duration of the last write
SEND_SECONDS: Final = 10.0  # for one request


@dataclass(slots=True)
class _NodeWrites:
    """The writes of one node's record. `writing` is held by the caller that writes for all who wait, and guards
    `known`; the writer's lock guards the other fields. Writes are numbered from 1."""

    writing: threading.Lock = field(default_factory=threading.Lock)
    known: StoredRecord | None = None  # last written or read; None while somebody's late write may still arrive
    waiting: int = 0  # callers
    begun: int = 0  # number of the last write
    grown: int = 0  # number of the last write with all additions
    exact: int = 0  # number of the last write with all additions and removals
    expected: int = 0  # callers that wanted the last write, or came during it
    took: float = 0.0  # seconds, the last write
    ended_at: float = 0.0


class RecordWriter:
    """Writes records on behalf of many callers.

    Threads: any. Blocks: until the records are written, or the deadline. I/O: the API server.
    """

    def __init__(
        self,
        backend: RecordBackend,
        wanted: Callable[[Collection[str]], Mapping[str, tuple[Allocation, ...]]],
        check: Callable[[], None],
        clock: Clock,
        seen: Callable[[str], NodeRecord | None] = lambda _node: None,
        written: Callable[[str, Collection[Allocation]], None] = lambda _node, _there: None,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        """`wanted`: what nodes' records should contain now. `check` raises NotLeaderError while this process does not
        lead. `seen`: a node's record by a watch. `written` is told what is on record, before any caller returns."""
        self.backend, self._wanted, self._check, self._clock = backend, wanted, check, clock
        self._seen, self._written, self._pause = seen, written, pause
        self._lock = threading.Lock()  # guards _nodes, and their numbers
        self._came = threading.Condition(self._lock)  # notified when another caller waits
        self._nodes: dict[str, _NodeWrites] = {}
        self.writes = 0  # that were accepted

    def commit(self, nodes: Collection[str], deadline: float) -> None:
        """Have the records of these nodes contain what is wanted, now or later. `deadline`: monotonic seconds.

        Raises NotReadyError when this process does not lead, or the API server does not answer in time, and
        RefusedWriteError when it does not accept or keep a node's record."""
        for node in sorted(nodes) if len(nodes) > 1 else ():
            self.write(node, deadline, grows=True)
        for node in sorted(nodes):
            self.write(node, deadline)

    def begin_term(self) -> None:
        """Forget what is known of the records: from now on a former leader's late write may arrive on any node."""
        with self._lock:
            self._nodes = {}

    def write(self, node: str, deadline: float, *, grows: bool = False, looks: bool = False) -> None:
        """`commit` for one node. `grows`: additions only. `looks`: if the watch shows no record, it is read again."""
        with self._lock:
            state = self._nodes.setdefault(node, _NodeWrites())
            mine = state.begun + 1
            state.waiting += 1
            self._came.notify_all()
        try:
            with self._alone(node, state, deadline):
                self._gather(state, deadline)
                with self._lock:
                    if (state.grown if grows else state.exact) >= mine:
                        return  # a write that began after this call has served it
                    state.begun = number = state.begun + 1
                    wanted, began = state.waiting, self._clock.now()
                try:
                    self._store(node, state, deadline, grows=grows, looks=looks)
                except BaseException:
                    state.known = None
                    raise
                with self._lock:
                    state.grown, state.exact = number, state.exact if grows else number
                    state.expected, state.ended_at = max(wanted, state.waiting), self._clock.now()
                    state.took = state.ended_at - began
        finally:
            with self._lock:
                state.waiting -= 1

    def _gather(self, state: _NodeWrites, deadline: float) -> None:
        """Wait until as many callers want the next write as wanted the last one, but not for long. Otherwise callers
        fall into two halves, each waiting for the other's write: twice the writes for as many callers."""
        until = min(state.ended_at + GATHER_TIMES * state.took, deadline - state.took)
        with self._lock:
            left = min(GATHER_SECONDS, until - self._clock.now())
            if left > 0 and state.begun == state.grown:
                self._came.wait_for(lambda: state.waiting >= state.expected, left)

    @contextmanager
    def _alone(self, node: str, state: _NodeWrites, deadline: float) -> Iterator[None]:
        if not state.writing.acquire(timeout=max(0.0, deadline - self._clock.now())):
            raise NotReadyError(f"the record of {node} was not written in time")
        try:
            yield
        finally:
            state.writing.release()

    def _store(self, node: str, state: _NodeWrites, deadline: float, *, grows: bool, looks: bool) -> None:
        stored, conflicts = self._latest(node, state.known, looks=looks), 0
        while True:
            self._check()
            left = deadline - self._clock.now()
            if left <= 0:
                raise NotReadyError(f"the record of {node} was not written in time")
            try:
                stored = stored or self.backend.read(node, min(left, SEND_SECONDS))
                there, wanted = stored.record, self._wanted((node,))[node]
                goal = largest((*there.allocations, *wanted)) if grows else wanted
                if there.problem and stored.raw is None:
                    stored = None
                    continue
                must_fence = bool(goal) and state.known is None  # so that a late write is a conflict
                if goal != there.allocations or there.problem or must_fence:
                    there = self.backend.write(stored, goal, min(left, SEND_SECONDS)).record
                    self.writes += 1
                if there.allocations != goal:
                    raise RefusedWriteError(f"the API server did not keep the record of {node} as it was written", node)
                state.known = StoredRecord(replace(there, allocations=goal))
                self._written(node, goal)
                return
            except (ConflictError, UnavailableError) as error:
                stored, conflicts = None, conflicts + isinstance(error, ConflictError)
                if conflicts != 1:  # Longhorn writes its Nodes all the time
                    self._pause(PAUSE_SECONDS)
            except ClusterError as error:
                if isinstance(error, NotFoundError) and not self._wanted((node,))[node]:
                    self._written(node, ())
                    return
                raise RefusedWriteError(f"the record of {node} cannot be written: {error}", node) from error

    def _latest(self, node: str, known: StoredRecord | None, *, looks: bool) -> StoredRecord | None:
        """What this process has written last, or the watch has shown since. None: it has to be read."""
        seen = self._seen(node)
        if known is None or seen is None:
            return None if looks else known
        return known if version_number(seen.version) <= version_number(known.record.version) else StoredRecord(seen)
