"""Keeps the record in accordance with what the leader knows: finds out where it is kept, and writes what differs.

Every 2 s it compares the nodes of which something has changed, in the record or in the cluster, and every 5 minutes all
nodes. Additions are written on all of them before anything is removed from one.
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
from controller.log_line import say
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
LOOK_SECONDS: Final = 60.0  # between searches for where the record is kept, once that is known
WRITE_SECONDS: Final = 5.0  # for one node
AT_ONCE: Final = 50  # nodes that are compared in one call of the allocator, which holds its lock
MOST_FAILURES: Final = 3  # in a row, after which a round writes no more: what has failed on these may fail on all

Name = tuple[Purpose, str]  # of an allocation, whichever disk it is on

_log = logging.getLogger(__name__)


class WantedRecords(Protocol):
    """What the records should contain. In the product the allocator's `record`."""

    def of_nodes(self, nodes: Iterable[str]) -> Mapping[str, tuple[Allocation, ...]]: ...
    def take_changed(self) -> Collection[str]: ...  # nodes, since the last call
    def leaving(self) -> Collection[str]: ...  # nodes with something that was freed, until `written` shows it gone
    def written(self, node: str, there: Collection[Allocation]) -> None: ...
    def waiting(self) -> int: ...  # the number of places that were given by name and that no object shows


class SeenRecords:
    """Records as the watches show them, both in Longhorn's Nodes and in our own objects. Threads: any."""

    def __init__(self, namespace: str, stores: Mapping[str, Store[Any]]) -> None:
        self._namespace, self._nodes, self._own = namespace, stores["node"], stores["record"]

    def in_nodes(self) -> Sequence[NodeRecord]:
        return [node.record for node in self._nodes.values() if node.record is not None]

    def own(self) -> Sequence[NodeRecord]:
        return self._own.values()

    def nodes(self) -> Collection[str]:
        """The names of Longhorn's Nodes."""
        return {node.name for node in self._nodes.values()}

    def of_node(self, node: str, *, in_node: bool) -> NodeRecord | None:
        """The node's record, in the Longhorn Node or in our own object."""
        facts = (self._nodes if in_node else self._own).get(f"{self._namespace}/{node}")
        record: NodeRecord | None = facts.record if in_node and facts is not None else facts
        return record


@dataclass(frozen=True, slots=True)
class Figures:
    """For metrics and the status page. `place`: the backend's name, "" while there is none, which is a `problem` where
    the record is required. `unreadable`: by node, what of its record cannot be parsed. `unmatched`: places that were
    given by name, and that no object shows yet."""

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
    """The record, for those who give places by name. `failed` is told which nodes could not be written."""

    writer: RecordWriter
    entries: Callable[[Purpose, str], list[Allocation]]
    failed: Callable[[Collection[str]], None]

    def commit(self, nodes: Collection[str], deadline: float) -> None:
        """`RecordWriter.commit`, with its errors."""
        try:
            self.writer.commit(nodes, deadline)
        except BaseException:
            self.failed(nodes)
            raise


class RecordKeeper(Part):
    """Writes the record while this process leads and a record should be kept.

    Threads: `worker`'s; its methods are for any. Blocks: `load` and the worker, for the API server. I/O: their calls.
    """

    def __init__(
        self,
        api: KubeApi,
        namespace: str,
        clock: Clock,
        wanted: WantedRecords,
        seen: SeenRecords,
        settings: Callable[[], LiveSettings],
        check: Callable[[], None],
        *,
        is_leading: Callable[[], bool],
        is_fresh: Callable[[], bool],
    ) -> None:
        """`check` raises NotLeaderError while not leading. `is_fresh`: whether the stores are up to date."""
        self._api, self._namespace, self._clock = api, namespace, clock
        self._wanted, self._seen, self._settings, self._check = wanted, seen, settings, check
        self._is_leading, self._is_fresh = is_leading, is_fresh
        self._writer: RecordWriter | None = None
        self._is_known = False  # whether it was found out if there is a place for the record
        self._look_at = -inf
        self._problem = self._absence = ""  # `_absence`: why the cluster has no place for the record
        self._lock = threading.Lock()  # guards the next field
        self._news: set[str] | None = None  # nodes; None: all
        self._full_at = 0.0
        self._is_complete = False  # whether all records have once been as wanted, at this place
        self._failures, self._last_failure = 0, ""
        self._failing: dict[str, str] = {}  # nodes whose last write failed, and why
        self.worker = Worker("record-keeper", self.run_once)

    def changed(self, nodes: Iterable[str] | None = None) -> None:
        """Note that the records of these nodes may differ from what is wanted; None: those of all. Never blocks."""
        with self._lock:
            if nodes is None:
                self._news = None
            elif self._news is not None:
                self._news.update(nodes)

    def known(self) -> KeptRecord | None:
        """The record, for those who give places by name; None if there is none. NotReadyError until that is known."""
        if not self._is_known:
            raise NotReadyError(f"it is not known yet where allocations are on record: {self._problem or 'wait'}")
        return KeptRecord(self._writer, self.entries, self.changed) if self._writer is not None else None

    def load(self) -> list[Allocation]:
        """All that is on record, at either place, as the API server has it now: for the beginning of a term. Nothing
        while nobody asks for places by name. Raises ClusterError."""
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
                    what = {"node": one.record.node, "problem": one.record.problem}
                    say(_log, "record not understood", logging.WARNING, **what)
        return found

    def entries(self, purpose: Purpose, name: str) -> list[Allocation]:
        """What the watch shows on record of that name. Costs: time by the number of all entries."""
        records = (*self._seen.in_nodes(), *self._seen.own())
        return [one for record in records for one in record.allocations if (one.purpose, one.name) == (purpose, name)]

    def figures(self) -> Figures:
        records, writer = self._records(), self._writer
        return Figures(
            writer.backend.name if writer is not None else "",
            self._problem or (self._absence if is_required(self._settings()) else ""),
            is_kept(self._settings()),
            len(records),
            sum(len(one.allocations) for one in records),
            {one.node: one.problem for one in records if one.problem},
            self._wanted.waiting(),
            writer.writes if writer is not None else 0,
            self._failures,
            self._last_failure,
        )

    # The thread

    def run_once(self) -> float:
        if self._clock.now() >= self._look_at:
            self._find_backend()
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

    def _find_backend(self) -> None:
        """Find out where the record is kept. If that fails, it is where it was."""
        try:
            backend = found_backend(self._api, self._namespace)
            backend.check()
        except NotFoundError as error:
            self._set_problem("")
            if self._absence != str(error):
                _log.info("record of allocations: %s", error)
            self._absence, self._writer = str(error), None
        except ClusterError as error:
            self._set_problem(str(error))
            return
        else:
            self._set_problem("")
            self._absence = ""
            self._write_to(backend)
        self._look_at = self._clock.now() + LOOK_SECONDS
        self._is_known = True

    def _write_to(self, backend: RecordBackend) -> None:
        if self._writer is None or self._writer.backend.name != backend.name:
            is_in_node = isinstance(backend, LonghornNodeBackend)
            self._writer = RecordWriter(
                backend,
                self._wanted.of_nodes,
                self._check,
                self._clock,
                lambda node: self._seen.of_node(node, in_node=is_in_node),
                self._wanted.written,
            )
            self._is_complete = False
            self.changed()

    def _set_problem(self, problem: str) -> None:
        if problem and problem != self._problem:
            _log.info("record of allocations: %s", problem)
        self._problem = problem

    def _records(self) -> Sequence[NodeRecord]:
        """The records at the place where they are kept now."""
        is_in_nodes = self._writer is not None and isinstance(self._writer.backend, LonghornNodeBackend)
        return self._seen.in_nodes() if is_in_nodes else self._seen.own()

    def _take_news(self) -> set[str] | None:
        changed = set(self._wanted.take_changed())
        with self._lock:
            news, self._news = self._news, set()
        if news is None or self._clock.now() >= self._full_at:
            self._full_at = self._clock.now() + FULL_SECONDS
            return None
        return news | changed

    def _nodes(self, news: set[str] | None) -> list[str]:
        return sorted({*self._seen.nodes(), *(one.node for one in self._records())} if news is None else news)

    def _write_all(self, writer: RecordWriter, nodes: Sequence[str]) -> bool:
        """Write the records of these nodes as wanted. Returns whether all are; the next round compares the others."""
        there, leaving = {one.node: one for one in self._records()}, self._wanted.leaving()
        lacking, differing = dict[str, set[Name]](), dict[str, set[Name]]()  # what to add, what to remove, by node
        for first in range(0, len(nodes), AT_ONCE):
            for node, wanted in self._wanted.of_nodes(nodes[first : first + AT_ONCE]).items():
                record = there.get(node, NodeRecord(node))
                if record.allocations != wanted or record.problem or node in leaving:
                    known, goal = set(record.allocations), set(wanted)
                    differing[node] = _names(known - goal)
                    if goal - known:
                        lacking[node] = _names(goal - known)
        failed = self._write(writer, lacking, grows=True)
        blocked = set[Name]().union(*(lacking[node] for node in failed))  # these may be moving between nodes
        free = [node for node, names in differing.items() if node not in failed and not names & blocked]
        failed |= self._write(writer, free)
        self.changed(differing if failed else ())
        return not failed

    def _write(self, writer: RecordWriter, nodes: Collection[str], *, grows: bool = False) -> set[str]:
        """Write these nodes. Returns those that could not be written, or were not tried. Nodes that failed before come
        last, the one whose last try is longest ago first."""
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
        """Count the failure, and log it unless it is the node's last one again."""
        if self._failing.pop(node, "") != str(error):
            say(_log, "record not written", logging.WARNING, node=node, error=error)
        self._failing[node] = str(error)
        self._failures, self._last_failure = self._failures + 1, f"{node}: {error}"

    def _tidy(self, writer: RecordWriter, nodes: Sequence[str]) -> None:
        """Delete objects of ours that are not needed: those of nodes that are gone, and all once Longhorn's Nodes carry
        the record. Those with allocations on a node that is gone stay, since no other object has them."""
        own, longhorn = NodeDiskAllocationBackend(self._api, self._namespace), self._seen.nodes()
        there = {one.node: one for one in self._seen.own()}
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
                    is_needed = node not in longhorn and bool(self._wanted.of_nodes((node,))[node])
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
    """Whether a record should be kept where there is a place for it."""
    return live.allocation_record or is_required(live)


def is_required(live: LiveSettings) -> bool:
    """Whether it is a fault that there is no place for the record: otherwise no choice depends on it."""
    return live.allocation_authority == DISK_SCHEDULER
