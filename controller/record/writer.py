"""Has the records of nodes show what they are to have, with as few writes as there are nodes that wait for one.

The record is a projection: each write brings all that its node is to have at that moment, for whoever waits. So writes
need no order, a write without an answer is simply done again, and a former leader's late one is overwritten. What
grows is written on all nodes before anything is taken off one: a crash leaves too much on record, never too little.
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
GATHER_TIMES: Final = 2.0  # as long as a write took
SEND_SECONDS: Final = 10.0  # for one request


@dataclass(slots=True)
class _NodeWrites:
    """`writing` is held by the caller who writes for all that wait, and guards `known`: what this process has written
    or read last; None while a write of a former leader, or one of ours without an answer, may still arrive. Guarded by
    the writer's lock: how many callers wait; the numbers of the last write that has begun, of the last that has brought
    all growth, and of the last that has brought exactly what is to be there, which is growth, too; how many callers
    wanted the last one or came meanwhile, how long it took, and when it ended."""

    writing: threading.Lock = field(default_factory=threading.Lock)
    known: StoredRecord | None = None
    waiting: int = 0
    begun: int = 0
    grown: int = 0
    exact: int = 0
    expected: int = 0
    took: float = 0.0
    ended_at: float = 0.0


class RecordWriter:
    """Threads: any. Blocks: until the records stand there, or the deadline. I/O: the API server."""

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
        """`wanted`: what nodes' records are to have now. `check` raises NotLeaderError while this process does not
        lead. `seen`: a node's record as a watch shows it. `written` is told what stands there, before any caller is."""
        self.backend, self._wanted, self._check, self._clock = backend, wanted, check, clock
        self._seen, self._written, self._pause = seen, written, pause
        self._lock = threading.Lock()  # guards _nodes, and their numbers
        self._came = threading.Condition(self._lock)  # told of each caller who comes to wait
        self._nodes: dict[str, _NodeWrites] = {}
        self.writes = 0  # that were accepted

    def commit(self, nodes: Collection[str], deadline: float) -> None:
        """Have the records of these nodes show what they are to have, as it is now or later. `deadline`: in the clock's
        monotonic seconds.

        Raises NotReadyError when this process does not lead, or the API server does not answer in time, and
        RefusedWriteError when it does not accept or keep a node's record."""
        for node in sorted(nodes) if len(nodes) > 1 else ():
            self.write(node, deadline, grows=True)
        for node in sorted(nodes):
            self.write(node, deadline)

    def begin_term(self) -> None:
        """What a former leader has sent may arrive from now on, on whatever node. Costs: little."""
        with self._lock:
            self._nodes = {}

    def write(self, node: str, deadline: float, *, grows: bool = False, looks: bool = False) -> None:
        """The same of one node; `grows`: without taking anything off it. `looks`: where the watch shows no record, it
        is read, since somebody may have removed it."""
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
                        return  # somebody who began after that has written for this caller, too
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
        """Where several wanted the last write, the next one waits until as many want it, but not for long. Without that
        they fall into two halves, of which one waits for the other's write: as many would be answered in the same time,
        with twice the writes."""
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
                misses_late = bool(goal) and state.known is None  # a write that is late finds another version then
                if goal != there.allocations or there.problem or misses_late:
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
        """What this process has written last, or what the watch shows of later. None: it has to be read."""
        seen = self._seen(node)
        if known is None or seen is None:
            return None if looks else known
        return known if version_number(seen.version) <= version_number(known.record.version) else StoredRecord(seen)
