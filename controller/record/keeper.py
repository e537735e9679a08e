"""Keeps the record true to what the leader knows: finds out where it stands, and writes what differs.

Every 2 s it looks at the nodes of which something has changed, at the record or in the cluster, and every 5 minutes at
all. What grows is written on all of them before anything is taken off one.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final, Protocol

from controller.clock import Clock
from controller.errors import ClusterError, NotFoundError, NotLeaderError, NotReadyError, SchedulerError
from controller.kube.api import KubeApi
from controller.kube.store import Store
from controller.model.allocations import Allocation, NodeRecord, Purpose
from controller.process.worker import Part, Worker
from controller.record.backends import (
    LonghornNodeBackend,
    NodeDiskAllocationBackend,
    RecordBackend,
    found_backend,
)
from controller.record.writer import RecordWriter
from controller.settings import DISK_SCHEDULER, LiveSettings

EVERY_SECONDS: Final = 2.0
FULL_SECONDS: Final = 300.0
LOOK_SECONDS: Final = 60.0  # between looks where the record stands, once that is known
WRITE_SECONDS: Final = 5.0  # for one node
AT_ONCE: Final = 50  # nodes that are compared before others are let in
MOST_FAILURES: Final = 3  # in a row: what keeps so many nodes from being written may keep all

Name = tuple[Purpose, str]  # whatever disk it is on

_log = logging.getLogger(__name__)


class Projects(Protocol):
    """What records are to have, by the allocator."""

    def of_nodes(self, nodes: Iterable[str]) -> Mapping[str, tuple[Allocation, ...]]: ...
    def take_changed(self) -> Collection[str]: ...  # nodes, since the last call
    def written(self, node: str, there: Collection[Allocation]) -> None: ...
    def waiting(self) -> int: ...  # places that are given by name and shown by no object


class SeenRecords:
    """Records as the watch shows them, by node, at either place. Threads: any."""

    def __init__(self, namespace: str, stores: Mapping[str, Store[Any]]) -> None:
        self._namespace, self._nodes, self._own = namespace, stores["node"], stores["record"]

    def in_nodes(self) -> Sequence[NodeRecord]:
        return [node.record for node in self._nodes.values() if node.record is not None]

    def own(self) -> Sequence[NodeRecord]:
        return self._own.values()

    def nodes(self) -> Collection[str]:
        """Those that Longhorn has."""
        return {node.name for node in self._nodes.values()}

    def seen(self, node: str, *, in_node: bool) -> NodeRecord | None:
        facts = (self._nodes if in_node else self._own).get(f"{self._namespace}/{node}")
        record: NodeRecord | None = facts.record if in_node and facts is not None else facts
        return record


@dataclass(frozen=True, slots=True)
class Figures:
    """For metrics and the status page. `unreadable`: by node, what of its record is not understood. `unmatched`: places
    that are given by name, and that no object shows yet."""

    place: str = ""
    problem: str = ""
    is_kept: bool = False
    records: int = 0
    entries: int = 0
    unreadable: Mapping[str, str] = field(default_factory=dict)
    unmatched: int = 0
    writes: int = 0
    failures: int = 0
    last_failure: str = ""


@dataclass(frozen=True, slots=True)
class KeptRecord:
    """`entries`: what is on record of a name. `failed` is told of nodes that could not be written."""

    writer: RecordWriter
    entries: Callable[[Purpose, str], list[Allocation]]
    failed: Callable[[Collection[str]], None]

    def commit(self, nodes: Collection[str], deadline: float) -> None:
        """As `RecordWriter.commit`."""
        try:
            self.writer.commit(nodes, deadline)
        except BaseException:
            self.failed(nodes)
            raise


class RecordKeeper(Part):
    """Writes the record while this process leads and a record is to be kept.

    Threads: `worker`'s; the rest is for any. Blocks: `load`, for the API server; the worker, too. I/O: theirs.
    """

    def __init__(
        self,
        api: KubeApi,
        namespace: str,
        clock: Clock,
        projects: Projects,
        followed: SeenRecords,
        settings: Callable[[], LiveSettings],
        check: Callable[[], None],
        *,
        is_leading: Callable[[], bool],
        is_fresh: Callable[[], bool],
    ) -> None:
        """`check` raises NotLeaderError while this process does not lead. `is_fresh`: whether what is seen of the
        cluster is young enough to write by."""
        self._api, self._namespace, self._clock = api, namespace, clock
        self._projects, self._followed, self._settings, self._check = projects, followed, settings, check
        self._is_leading, self._is_fresh = is_leading, is_fresh
        self._writer: RecordWriter | None = None
        self._is_known = False  # whether a look has told if there is a place
        self._look_at = -inf
        self._problem = ""
        self._lock = threading.Lock()  # guards the next field
        self._news: set[str] | None = None  # nodes; None: all
        self._full_at = 0.0
        self._is_complete = False  # whether all records have been as they are to be, at this place
        self._failures, self._last_failure = 0, ""
        self._failing: dict[str, str] = {}  # nodes that could not be written the last time, and why
        self.worker = Worker("record-keeper", self.run_once)

    def changed(self, nodes: Iterable[str] | None = None) -> None:
        """These nodes' records may differ from what they are to have; None: any may. Never blocks."""
        with self._lock:
            if nodes is None:
                self._news = None
            elif self._news is not None:
                self._news.update(nodes)

    def known(self) -> KeptRecord | None:
        """The record, for those who give places by name; None without a place for one. NotReadyError until a look has
        told whether there is any."""
        if not self._is_known:
            raise NotReadyError(f"it is not known yet where allocations are on record: {self._problem or 'wait'}")
        return KeptRecord(self._writer, self.entries, self.changed) if self._writer is not None else None

    def load(self) -> list[Allocation]:
        """All that is on record, at either place, as the API server has it now: for a leader that begins. Nothing while
        nobody asks for places by name. Raises ClusterError."""
        found, writer = list[Allocation](), self._writer
        if writer is not None:
            writer.begin_term()
        if self._settings().allocation_authority != DISK_SCHEDULER:
            return found
        for backend in (LonghornNodeBackend, NodeDiskAllocationBackend):
            try:
                records = backend(self._api, self._namespace).records()
            except NotFoundError:
                continue  # the cluster has no such kind
            for one in records:
                found += one.record.allocations
                if one.record.problem:
                    _log.warning("record not understood node=%s: %s", one.record.node, one.record.problem)
        return found

    def entries(self, purpose: Purpose, name: str) -> list[Allocation]:
        """What the watch shows on record of that name. Costs: a look at each entry."""
        records = (*self._followed.in_nodes(), *self._followed.own())
        return [one for record in records for one in record.allocations if (one.purpose, one.name) == (purpose, name)]

    def figures(self) -> Figures:
        records, writer = self._records(), self._writer
        return Figures(
            writer.backend.name if writer is not None else "",
            self._problem,
            is_kept(self._settings()),
            len(records),
            sum(len(one.allocations) for one in records),
            {one.node: one.problem for one in records if one.problem},
            self._projects.waiting(),
            writer.writes if writer is not None else 0,
            self._failures,
            self._last_failure,
        )

    # The thread

    def run_once(self) -> float:
        if self._clock.now() >= self._look_at:
            self._look()
        writer = self._writer
        if writer is None or not (self._is_leading() and is_kept(self._settings()) and self._is_fresh()):
            self.changed()
            return EVERY_SECONDS
        news = self._take_news()
        try:
            nodes = self._nodes(news)
            if self._write_all(writer, nodes):
                self._is_complete |= news is None
                self._tidy(writer, nodes)
        except BaseException:
            self.changed(news)
            raise
        return EVERY_SECONDS

    def _look(self) -> None:
        """Where the record stands; as it was where that cannot be told."""
        try:
            backend = found_backend(self._api, self._namespace)
            backend.check()
        except NotFoundError as error:
            self._say(str(error))
            self._writer = None
        except ClusterError as error:
            self._say(str(error))
            return
        else:
            self._say("")
            self._write_to(backend)
        self._look_at = self._clock.now() + LOOK_SECONDS
        self._is_known = True

    def _write_to(self, backend: RecordBackend) -> None:
        if self._writer is None or self._writer.backend.name != backend.name:
            is_in_node = isinstance(backend, LonghornNodeBackend)
            self._writer = RecordWriter(
                backend,
                self._projects.of_nodes,
                self._check,
                self._clock,
                lambda node: self._followed.seen(node, in_node=is_in_node),
                self._projects.written,
            )
            self._is_complete = False
            self.changed()

    def _say(self, problem: str) -> None:
        if problem and problem != self._problem:
            _log.info("record of allocations: %s", problem)
        self._problem = problem

    def _records(self) -> Sequence[NodeRecord]:
        """At its place."""
        is_in_nodes = self._writer is not None and isinstance(self._writer.backend, LonghornNodeBackend)
        return self._followed.in_nodes() if is_in_nodes else self._followed.own()

    def _take_news(self) -> set[str] | None:
        changed = set(self._projects.take_changed())
        with self._lock:
            news, self._news = self._news, set()
        if news is None or self._clock.now() >= self._full_at:
            self._full_at = self._clock.now() + FULL_SECONDS
            return None
        return news | changed

    def _nodes(self, news: set[str] | None) -> list[str]:
        return sorted({*self._followed.nodes(), *(one.node for one in self._records())} if news is None else news)

    def _write_all(self, writer: RecordWriter, nodes: Sequence[str]) -> bool:
        """Whether all of them are as they are to be. What is not is looked at again."""
        there = {one.node: one for one in self._records()}
        lacking, differing = dict[str, set[Name]](), dict[str, set[Name]]()  # what is to come, what is to go
        for first in range(0, len(nodes), AT_ONCE):
            for node, wanted in self._projects.of_nodes(nodes[first : first + AT_ONCE]).items():
                record = there.get(node, NodeRecord(node))
                if record.allocations != wanted or record.problem:
                    known, goal = set(record.allocations), set(wanted)
                    differing[node] = _names(known - goal)
                    if goal - known:
                        lacking[node] = _names(goal - known)
        failed = self._write(writer, lacking, grows=True)
        blocked = set[Name]().union(*(lacking[node] for node in failed))  # they may move from one node to another
        free = [node for node, names in differing.items() if node not in failed and not names & blocked]
        failed |= self._write(writer, free)
        self.changed(differing if failed else ())
        return not failed

    def _write(self, writer: RecordWriter, nodes: Collection[str], *, grows: bool = False) -> set[str]:
        """Those that could not be written, or were not tried any more. Those that failed before come last, what was
        tried least lately first."""
        failed, in_a_row = set[str](), 0
        tried = {node: at for at, node in enumerate(self._failing)}
        for node in sorted(nodes, key=lambda name: (tried.get(name, -1), name)):
            if self.worker.is_stopping or not self._is_leading() or in_a_row >= MOST_FAILURES:
                failed.add(node)
                continue
            try:
                writer.write(node, self._clock.now() + WRITE_SECONDS, grows=grows, looks=True)
                in_a_row = 0
                self._failing.pop(node, None)
            except SchedulerError as error:
                failed.add(node)
                in_a_row += 1
                self._note_failure(node, error)
        return failed

    def _note_failure(self, node: str, error: SchedulerError) -> None:
        """It is said once, until that node can be written again."""
        if self._failing.pop(node, "") != str(error):
            _log.warning("record not written node=%s: %s", node, error)
        self._failing[node] = str(error)
        self._failures, self._last_failure = self._failures + 1, f"{node}: {error}"

    def _tidy(self, writer: RecordWriter, nodes: Sequence[str]) -> None:
        """Remove objects of ours that say nothing: of nodes that are gone, and all once Longhorn's Nodes carry the
        record. What is given on a node that is gone stays: no other object has it."""
        own, longhorn = NodeDiskAllocationBackend(self._api, self._namespace), self._followed.nodes()
        there = {one.node: one for one in self._followed.own()}
        is_moved = isinstance(writer.backend, LonghornNodeBackend)
        if is_moved:
            over = list(there) if self._is_complete else []
        else:
            over = [node for node in nodes if node in there and node not in longhorn and not there[node].allocations]
        for node in over:
            try:
                self._check()
                stored = own.read(node)
                if is_moved:
                    is_needed = node not in longhorn and bool(self._projects.of_nodes((node,))[node])
                else:
                    is_needed = bool(stored.record.allocations or stored.record.problem)
                if not is_needed:
                    own.forget(stored)
                    self._failing.pop(node, None)
            except NotLeaderError:
                return
            except SchedulerError as error:
                self._note_failure(node, error)
                self.changed((node,))


def _names(entries: Iterable[Allocation]) -> set[Name]:
    return {(one.purpose, one.name) for one in entries}


def is_kept(live: LiveSettings) -> bool:
    """Whether there is to be a record: it can do without one while Longhorn is the authority."""
    return live.allocation_record or live.allocation_authority == DISK_SCHEDULER
