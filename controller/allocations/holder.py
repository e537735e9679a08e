"""The record as the leader has it: where it is kept, and what writes it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import Any, Final

from controller.allocations.backends import (
    LonghornNodeBackend,
    NodeDiskAllocationBackend,
    RecordBackend,
    found_backend,
)
from controller.allocations.moving import move_while_leading
from controller.allocations.writer import Learn, RecordWriter, learn_nothing
from controller.clock import Clock
from controller.errors import (
    ConflictError,
    NotFoundError,
    NotReadyError,
    PreconditionError,
    SchedulerError,
    UnreadableRecordError,
)
from controller.kube.api import KubeApi
from controller.model.allocations import NodeRecord
from controller.process.repeated import Repeated
from controller.process.worker import Part

LOOK_EVERY_SECONDS: Final = 60.0
RETRY_SECONDS: Final = 2.0
MOVE_SECONDS: Final = 5.0  # for one node's record
MOST_FAILURES: Final = 3  # in a row: what keeps so many records from being moved may keep all

_OF_ONE_NODE: Final = (NotFoundError, ConflictError, UnreadableRecordError, PreconditionError)
_log = logging.getLogger(__name__)


def tell_problem(problem: str) -> None:
    _log.info("record of allocations: %s", problem)


class RecordHolder(Part):
    """Finds out every minute where the record is kept: a CRD may be added or removed, or get the field. What is left at
    the former place then moves, a minute later.

    Threads: `worker`'s; the rest is for any. Blocks: `look`, while it moves. I/O: one list in each round, and moves.
    """

    def __init__(
        self,
        api: KubeApi,
        namespace: str,
        term: Callable[[], int],
        clock: Clock,
        say: Callable[[str], None],
        seen: Callable[[str], NodeRecord | None] = lambda _node: None,
        learn: Learn = learn_nothing,
        left: Callable[[], Collection[str]] = lambda: (),
    ) -> None:
        """`term`: that writes carry; raises NotLeaderError while this process does not lead. `seen`: a node's record as
        a watch shows it. `learn`: as `RecordWriter`'s. `left`: the nodes for which a watch shows a NodeDiskAllocation,
        while this process is to write the record."""
        self._api, self._namespace, self.term, self._clock, self._seen = api, namespace, term, clock, seen
        self._learn, self._left = learn, left
        self._backend: RecordBackend | None = None
        self._writer: RecordWriter | None = None
        self._writers: dict[str, RecordWriter] = {}  # by place: each knows what it has sent
        self._is_known = False  # whether a look has told if there is a place
        pause = {True: LOOK_EVERY_SECONDS, False: RETRY_SECONDS}
        self._steps = Repeated(self.look, pause.__getitem__, say, thread="record")
        self.worker = self._steps.worker

    @property
    def backend(self) -> RecordBackend | None:
        """None: there is no record, or it is not known yet where; `problem` says which."""
        return self._backend

    @property
    def problem(self) -> str:
        """Why there is no record, or why some of it stays at its former place."""
        return "; ".join(self._steps.problems)

    def writer(self) -> RecordWriter | None:
        """What makes changes durable while this process leads; None without a record."""
        return self._writer

    def known_writer(self) -> RecordWriter | None:
        """The same; NotReadyError until a look has told whether there is a record."""
        if not self._is_known:
            why = self.problem or "nobody has looked"
            raise NotReadyError(f"it is not known yet where allocations are on record: {why}")
        return self._writer

    def look(self) -> None:
        """Raises NotFoundError when the cluster has no place for a record any more, as while a CRD is replaced, and
        another ClusterError when that cannot be told: then it stays as it was."""
        try:
            found = found_backend(self._api, self._namespace)
            found.check()
        except NotFoundError as error:
            self._backend = self._writer = None
            self._is_known = True
            if self._writers:
                raise
            self._steps.note((str(error),))
            return
        former = self._writer
        if self._backend is None or self._writer is None or found.name != self._backend.name:
            self._backend = found
            writer = RecordWriter(found, self.term, self._clock, seen=self._seen, learn=self._learn)
            self._writer = self._writers.setdefault(found.name, writer)
        self._is_known = True
        has_changed = former is not None and former is not self._writer  # calls under way may write by the former
        self._steps.note(() if has_changed else self._moved(self._backend, self._writer))

    def _moved(self, backend: RecordBackend, writer: RecordWriter) -> tuple[str, ...]:
        """What stood in NodeDiskAllocations is in Longhorn's Nodes by this; why some of it is not, if so. The other way
        there is nothing to move: where the CRD lacks the field no Node has it."""
        nodes = sorted(self._left()) if isinstance(backend, LonghornNodeBackend) else []
        source, stay, in_a_row = NodeDiskAllocationBackend(self._api, self._namespace), len(nodes), 0
        why = ""
        for node in nodes:
            if in_a_row >= MOST_FAILURES or self.worker.is_stopping:
                break
            try:
                until = self._clock.now() + MOVE_SECONDS
                entries = move_while_leading(node, source, backend, writer, self.term, until)
            except SchedulerError as error:
                in_a_row += not isinstance(error, _OF_ONE_NODE)
                why = why or f"{node}: {error}"
                continue
            stay, in_a_row = stay - 1, 0
            _log.info("record moved node=%s entries=%d from=%s to=%s", node, entries, source.name, backend.name)
        return (f"records that stay in {source.name}: {stay} ({why})",) if why else ()

    def status(self) -> dict[str, Any]:
        backend = self._backend
        return {"place": backend.name if backend is not None else "", "problem": self.problem}
