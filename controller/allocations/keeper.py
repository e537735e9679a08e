"""Keeps the record true to Longhorn's objects: adopts what exists, and repairs what differs.

What only adds is written at once. An entry that no object shows, or shows smaller, may belong to an object that is on
its way: it goes when it has been like that for the grace, and longer while something tells that the object comes.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, Final, Protocol

from controller.allocations.expected import (
    LonghornObjects,
    expected_among,
    moved_among,
    surplus_of,
    waiting_among,
    wanted_bytes,
)
from controller.allocations.holder import RecordHolder
from controller.allocations.repair import Repair, RepairReason, by_node, plan_repairs
from controller.allocations.writer import RecordWriter
from controller.clock import Clock
from controller.errors import NotLeaderError, SchedulerError
from controller.model.allocations import Allocation, Change, Drop, NodeRecord, Purpose, Put
from controller.model.longhorn import LonghornNode, Replica
from controller.process.worker import Part, Worker
from controller.settings import DISK_SCHEDULER, LiveSettings

EVERY_SECONDS: Final = 2.0
FULL_SECONDS: Final = 300.0
WRITE_SECONDS: Final = 5.0  # for one node's share of a round
MOST_FAILURES: Final = 3  # in a row: what keeps so many nodes from being written may keep all
MOST_NEWS: Final = 20_000  # that are kept for the next round; beyond it looks at all
NAMED: Final = 5  # entries that a line of the log names
REWRITTEN: Final = "unreadable"  # the reason, beside those of RepairReason
REASONS: Final = (*(one.value for one in RepairReason), REWRITTEN)

_log = logging.getLogger(__name__)
_Key = tuple[str, tuple[Purpose, str, str]]


@dataclass(frozen=True, slots=True)
class Scope:
    """What has changed, and is to be looked at: on `nodes` the entries and objects of these `names`, on those of them
    in `whole` all; and of `images` all copies, wherever."""

    nodes: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()
    whole: frozenset[str] = frozenset()
    images: frozenset[str] = frozenset()

    @classmethod
    def of(cls, entries: Iterable[Allocation | Replica]) -> Scope:
        entries = list(entries)
        return cls(frozenset(one.node for one in entries), frozenset(one.name for one in entries))

    @classmethod
    def together(cls, scopes: Collection[Scope]) -> Scope:
        return cls(*(frozenset[str]().union(*(getattr(one, name) for one in scopes)) for name in cls.__slots__))

    def has(self, one: Allocation) -> bool:
        if one.node in self.whole or (one.name in self.names and one.node in self.nodes):
            return True
        return one.purpose is Purpose.BACKING_IMAGE and one.name in self.images

    def records_of(self, records: Iterable[NodeRecord]) -> list[NodeRecord]:
        """As much of them as is looked at."""
        mine = [one for one in records if self.images or one.node in self.nodes]
        return [replace(one, allocations=tuple(entry for entry in one.allocations if self.has(entry))) for one in mine]

    def objects_of(self, objects: LonghornObjects, records: Iterable[NodeRecord]) -> LonghornObjects:
        """With the replicas and images alone that are looked at, or that are on these records, wherever they are."""
        names = self.names.union(self.images, (entry.name for record in records for entry in record.allocations))
        uuids = {disk.uuid for node in objects.nodes if node.name in self.whole for disk in node.disks}
        replicas = [
            one for one in objects.replicas if one.name in names or one.node in self.whole or one.disk_uuid in uuids
        ]
        images = [one for one in objects.images if self.whole or one.name in names]
        return replace(objects, replicas=replicas, images=images)


@dataclass(frozen=True, slots=True)
class Figures:
    """For metrics and the status page. `waiting`: entries that no object shows, or shows smaller, for less than the
    grace."""

    has_place: bool = False
    is_kept: bool = False
    records: int = 0
    entries: int = 0
    unreadable: Mapping[str, str] = field(default_factory=dict)  # node -> why
    waiting: int = 0
    repairs: Mapping[str, int] = field(default_factory=dict)  # reason -> how many
    writes: int = 0
    failures: int = 0
    last_failure: str = ""


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a round's repairs were planned by."""

    entries: Mapping[_Key, Allocation]
    told_at: Mapping[Allocation, float]
    term: int


class KnownCalls(Protocol):
    """What calls did, by the keeper's clock."""

    def told_at(self, entries: Iterable[Allocation]) -> Mapping[Allocation, float]:
        """When callers were told of such entries last, if lately."""
        ...

    def is_freed(self, one: Allocation) -> bool:
        """Whether a call has lately taken such an entry off the record."""
        ...


class RecordKeeper(Part):
    """Brings the record to what the objects show while this process leads and a record is to be kept.

    While Longhorn is the authority nothing depends on the record, and one that cannot be read is written anew. Else it
    stays as it is, no room is given on its node, and a person decides.

    Threads: `worker`'s; `changed` and `figures` from any. Blocks: never. I/O: the writer's.
    """

    def __init__(
        self,
        holder: RecordHolder,
        records: Callable[[], Sequence[NodeRecord]],
        objects: Callable[[], LonghornObjects],
        settings: Callable[[], LiveSettings],
        clock: Clock,
        *,
        is_leading: Callable[[], bool],
        is_fresh: Callable[[], bool],
        answers: KnownCalls,
        lost_records: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        """`is_fresh`: whether what is seen of the cluster is young enough to write by. `lost_records`: by node, why
        what stands at another place of the record cannot be read."""
        self._holder, self._records, self._objects = holder, records, objects
        self._settings, self._clock = settings, clock
        self._is_leading, self._is_fresh = is_leading, is_fresh
        self._answers, self._lost_records = answers, lost_records
        # By name: entries that no object shows, or shows smaller, and since when, or since their caller was told.
        self._since: dict[str, dict[Allocation, float]] = {}
        self._oldest = inf  # none of them is older
        self._away = dict[str, float]()  # UUIDs of disks that no node shows, with such entries, and since when
        self._lock = threading.Lock()  # guards the next field
        self._news: list[Scope] | None = None  # None: all
        self._authority = ""  # at the last round
        self._full_at = 0.0  # when all are looked at again, whatever is heard
        self._repairs = Counter[str]()
        self._failures, self._last_failure = 0, ""
        self._is_failing = self._has_failed = False  # since some round; in this one
        self._failed_at = {False: "", True: ""}  # the last node that could not be written, by what frees
        self.worker = Worker("record-keeper", self.run_once)

    def changed(self, scope: Scope | None = None) -> None:
        """Objects or records of that scope are others now; None: any may be."""
        with self._lock:
            if scope is None or len(self._news or ()) >= MOST_NEWS:
                self._news = None
            elif self._news is not None:
                self._news.append(scope)

    def run_once(self) -> float:
        live = self._settings()
        if not (self._is_leading() and is_kept(live)):
            self._since, self._oldest, self._away = {}, inf, {}
            self.changed()
            return EVERY_SECONDS
        writer = self._holder.writer()
        if writer is None or not self._is_fresh():
            self._away = {}  # nobody has seen whether they were back meanwhile
        else:
            if live.allocation_authority != self._authority:
                self._authority = live.allocation_authority
                self.changed()
            scope = self._scope(live)
            if scope is None or scope.nodes or scope.images:
                self._round(writer, live, scope)
        return EVERY_SECONDS

    def _scope(self, live: LiveSettings) -> Scope | None:
        """What is to be looked at; None: all. What waits is looked at once its grace is over, and where something of
        its name has changed anywhere."""
        with self._lock:
            news, self._news = self._news, []
        now = self._clock.now()
        if news is None or now >= self._full_at:
            self._full_at = now + FULL_SECONDS
            return None
        oldest, found = now - live.allocation_grace_seconds, Scope.together(news)
        due = [one for name in found.names for one in self._since.get(name, ())]
        if self._oldest <= oldest:
            waiting = [(one, began) for entries in self._since.values() for one, began in entries.items()]
            due += [one for one, began in waiting if began <= oldest]
            self._oldest = min((began for _, began in waiting), default=inf)
        return Scope.together((found, Scope.of(due)))

    def figures(self) -> Figures:
        records, term = self._records(), self._term()
        writer = self._holder.writer()
        return Figures(
            writer is not None,
            is_kept(self._settings()),
            len(records),
            sum(len(one.allocations) for one in records),
            {**self._lost_records(), **{one.node: problem for one in records if (problem := _problem_of(one, term))}},
            sum(map(len, list(self._since.values()))),
            {reason: self._repairs[reason] for reason in REASONS},
            writer.writes if writer is not None else 0,
            self._failures,
            self._last_failure,
        )

    # A round

    def _round(self, writer: RecordWriter, live: LiveSettings, scope: Scope | None) -> None:
        self._has_failed, term = False, self._term()
        objects, records = self._objects(), self._records()
        left = _left_of_nodes_gone(records, objects.nodes, term, scope)
        unreadable = [] if live.allocation_authority == DISK_SCHEDULER else self._rewritten_among(records, scope)
        if scope is not None:
            scope = replace(scope, whole=scope.whole.union(one.node for one in unreadable))
            records = scope.records_of(records)
            objects = scope.objects_of(objects, records)
        records = [_as_written_in(term, one) for one in records]
        shown = objects.shown()
        mine = shown if scope is None else [one for one in shown if scope.has(one)]
        now = self._clock.now()
        waiting = waiting_among(records, objects)
        extra = surplus_of(records, [*mine, *waiting])
        told_at = self._answers.told_at(extra)
        since = {
            one: max(self._since.get(one.name, {}).get(one, now), min(now, told_at.get(one, 0.0))) for one in extra
        }
        self._note(since, scope)
        waits = {one for one, began in since.items() if now - began < live.allocation_grace_seconds}
        written = {one for one, at in told_at.items() if at > now}  # for somebody who has not been told yet
        expected = expected_among(extra, objects, shown)
        lost = self._lost_among(expected, objects.nodes, live.allocation_grace_seconds, scope)
        kept = (waits - (moved_among(extra, shown) - told_at.keys())) | written | (expected - lost)
        plan = plan_repairs(records, [*shown, *waiting], kept, wanted_bytes(objects), lost)
        repairs = [one for one in plan if scope is None or scope.has(one.allocation)]
        self._rewrite(writer, unreadable, mine)
        there = {(one.node, entry.key): entry for one in records for entry in one.allocations}
        self._repair(writer, repairs, _Seen(there, told_at, term))
        self._forget(writer, left)
        self._is_failing = self._has_failed
        if repairs:
            self.changed(Scope.of(one.allocation for one in repairs))  # once more, as the watch shows them then
        again = frozenset(one.node for one in unreadable).union(left) if self._has_failed else frozenset[str]()
        if again:
            self.changed(Scope(again, whole=again))

    def _note(self, since: Mapping[Allocation, float], scope: Scope | None) -> None:
        """These wait, of what was looked at."""
        names = scope.names | scope.images if scope is not None and not scope.whole else frozenset(self._since)
        for name in names:
            there = self._since.pop(name, {})
            left = {one: began for one, began in there.items() if scope is not None and not scope.has(one)}
            if left:
                self._since[name] = left
        for one, began in since.items():
            self._since.setdefault(one.name, {})[one] = began
            self._oldest = min(self._oldest, began)

    def _lost_among(
        self, expected: Iterable[Allocation], nodes: Iterable[LonghornNode], seconds: float, scope: Scope | None
    ) -> set[Allocation]:
        """Those whose disk no node has shown for so long."""
        there, now = {disk.uuid for node in nodes for disk in node.disks}, self._clock.now()
        away = {one for one in expected if one.disk_uuid not in there}
        since = {one.disk_uuid: self._away.get(one.disk_uuid, now) for one in away}
        others = self._away if scope is not None else {}
        self._away = {uuid: began for uuid, began in others.items() if uuid not in there} | since
        return {one for one in away if now - since[one.disk_uuid] >= seconds}

    def _rewritten_among(self, records: Iterable[NodeRecord], scope: Scope | None) -> list[NodeRecord]:
        """Those that cannot be read, or are of a later term."""
        term = self._term()
        mine = (one for one in records if scope is None or one.node in scope.nodes)
        return [one for one in mine if _problem_of(one, term)]

    def _rewrite(self, writer: RecordWriter, records: Iterable[NodeRecord], shown: Sequence[Allocation]) -> None:
        for record in records:
            try:
                mine = tuple(one for one in shown if one.node == record.node)
                if writer.rewrite(record.node, mine, self._clock.now() + WRITE_SECONDS):
                    self._repairs[REWRITTEN] += 1
                    why = _problem_of(record, self._term())
                    _log.warning("record written anew node=%s entries=%d: %s", record.node, len(mine), why)
            except SchedulerError as error:
                self._failed(record.node, error)

    def _forget(self, writer: RecordWriter, nodes: Iterable[str]) -> None:
        for node in nodes:
            if self.worker.is_stopping or not self._is_leading() or self._has_failed:
                return
            try:
                if writer.forget(node, self._clock.now() + WRITE_SECONDS):
                    _log.info("record removed node=%s: the node is gone", node)
            except SchedulerError as error:
                self._failed(node, error)

    def _term(self) -> int:
        try:
            return self._holder.term()
        except SchedulerError:
            return 2**63  # not led any more: nothing is written in a moment

    def _repair(self, writer: RecordWriter, repairs: Sequence[Repair], seen: _Seen) -> None:
        """A node at a time; what is freed after all that grows, and only if that could be written. After too many
        failures the rest waits for the next round, which begins with that."""
        unwritten = set[tuple[Purpose, str]]()
        for frees in (False, True):
            in_a_row, members = 0, [one for one in repairs if isinstance(one.change, Drop) == frees]
            for node, found in by_node(members, self._failed_at[frees]):
                mine = [one for one in found if (one.allocation.purpose, one.allocation.name) not in unwritten]
                if self.worker.is_stopping or not self._is_leading():
                    return
                try:
                    if in_a_row < MOST_FAILURES:
                        self._write(writer, node, mine, seen)
                        in_a_row = 0
                        continue
                except SchedulerError as error:
                    in_a_row, self._failed_at[frees] = in_a_row + 1, node
                    self._failed(node, error)
                unwritten |= {(one.allocation.purpose, one.allocation.name) for one in mine}

    def _write(self, writer: RecordWriter, node: str, repairs: Sequence[Repair], seen: _Seen) -> None:
        made: dict[Change, bool] = {}

        def is_still_wanted(change: Change, there: Allocation | None) -> bool:
            # Else a call has changed it since, or freed what our stores show yet, or its caller was told once more.
            wanted = there == seen.entries.get((node, change.key))
            is_raised = (
                isinstance(change, Put) and there is not None and there.size_bytes < change.allocation.size_bytes
            )
            if there is not None and not is_raised:
                wanted = wanted and self._answers.told_at((there,)).items() <= seen.told_at.items()
            elif there is None and isinstance(change, Put):
                wanted = wanted and not self._answers.is_freed(change.allocation)
            made[change] = wanted
            return wanted

        def check() -> None:
            if self._term() != seen.term:
                raise NotLeaderError("the term in which the repairs were planned has ended")

        deadline = self._clock.now() + WRITE_SECONDS
        writer.commit([one.change for one in repairs], deadline, is_still_wanted, check=check)
        for one in repairs:  # the same, given anew before the next round, is young
            was = seen.entries.get((node, one.allocation.key), one.allocation)
            self._since.get(was.name, {}).pop(was, None)
        for reason in RepairReason:
            names = [one.allocation.name for one in repairs if one.reason is reason and made.get(one.change)]
            if names:
                self._repairs[reason.value] += len(names)
                some = ",".join(names[:NAMED])
                _log.info("repaired node=%s reason=%s entries=%d such as %s", node, reason.value, len(names), some)

    def _failed(self, node: str, error: SchedulerError) -> None:
        """Said once for as long as the rounds fail."""
        if not self._is_failing:
            _log.warning("record not repaired node=%s: %s", node, error)
        self._has_failed = self._is_failing = True
        self._failures, self._last_failure = self._failures + 1, str(error)


def is_kept(live: LiveSettings) -> bool:
    """Whether there is to be a record: it can do without one while Longhorn is the authority."""
    return live.allocation_record or live.allocation_authority == DISK_SCHEDULER


def news_of(kind: str, old: Any, new: Any) -> Scope | None:
    """What has to be looked at when an object of that kind, None where there is none, became another one; None: all."""
    facts = [one for one in (old, new) if one is not None]
    if kind == "record":
        return _differing(facts)
    if kind == "replica":
        return Scope.of(one for one in facts if one.node)
    if kind == "node":
        disks = [{disk.uuid for disk in one.disks} if one is not None else set() for one in (old, new)]
        is_same = disks[0] == disks[1]  # else a disk may have come from any node
        return _differing([one.record for one in facts if one.record is not None]) if is_same else None
    return Scope(images=frozenset(one.name for one in facts)) if kind == "backing_image" else Scope()


def _differing(records: Sequence[NodeRecord]) -> Scope:
    """What not all of them have; one that cannot be read says nothing of any entry."""
    nodes = frozenset(one.node for one in records)
    if not all(one.is_readable for one in records):
        return Scope(nodes, whole=nodes)
    entries = [set(one.allocations) for one in records]
    common = entries[0] & entries[1] if len(records) == 2 else set()
    return Scope(nodes, frozenset(one.name for one in set[Allocation]().union(*entries) - common))


def _left_of_nodes_gone(
    records: Iterable[NodeRecord], nodes: Iterable[LonghornNode], term: int, scope: Scope | None
) -> list[str]:
    """The names of nodes that are gone, and have a record with nothing in it."""
    there = {one.name for one in nodes}
    mine = [one for one in records if scope is None or one.node in scope.nodes]
    return [one.node for one in mine if not (one.node in there or one.allocations or _problem_of(one, term))]


def _problem_of(record: NodeRecord, term: int) -> str:
    """Why nothing can be written there in that term; "" of a good one."""
    if record.is_readable and record.term > term:
        return f"it is of term {record.term}, later than {term}"
    return record.problem


def _as_written_in(term: int, record: NodeRecord) -> NodeRecord:
    """One where nothing can be written says nothing of what there is to repair."""
    problem = _problem_of(record, term)
    return replace(record, allocations=(), problem=problem) if problem else record


def status_of(figures: Figures) -> Mapping[str, Any]:
    """Its section of the status document."""
    return {
        "is_kept": figures.is_kept,
        "records": figures.records,
        "entries": figures.entries,
        "unreadable": dict(figures.unreadable),
        "waiting": figures.waiting,
        "repairs": {reason: count for reason, count in figures.repairs.items() if count},
        "writes": figures.writes,
        "failures": figures.failures,
        "last_failure": figures.last_failure,
    }
