"""What waits for the next write of a node's record, and what became of the writes before."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from controller.allocations.backends import StoredRecord
from controller.errors import ClusterError, RefusedWriteError, SchedulerError
from controller.model.allocations import Allocation, Change, Drop, Key, NodeRecord, Put, apply
from controller.model.records import MAX_ENTRIES, no_place

StillWanted = Callable[[Change, Allocation | None], bool]
"""Whether a change is still to be made, by what stands under its key at that moment."""

Told = Mapping[Key, Allocation | None]  # what callers were told stands under a key, None: nothing


@dataclass(frozen=True, slots=True)
class Undo:
    """Takes back what was added to the record, unless something else is under its key by then. Nothing is taken back in
    another term than that of the change: another leader may have told somebody what stands there. Nor is what was freed
    given back: once that shows, others get the room."""

    added: Allocation
    former: Allocation | None
    term: int

    def on(self, allocations: Mapping[Key, Allocation], told: Told) -> list[Change]:
        """What somebody else was `told` since stays."""
        key = self.added.key
        there, kept = allocations.get(key), told.get(key, self.former)
        if there is None or there != self.added or there == kept:
            return []
        if self.former is not None and kept is not None and kept.size_bytes < self.former.size_bytes:
            kept = self.former
        return [Drop(there.purpose, there.name, there.node, there.disk_uuid) if kept is None else Put(kept)]


@dataclass(slots=True)
class Ticket:
    """What one caller wants on one node."""

    changes: Sequence[Change]
    deadline: float
    is_still_wanted: StillWanted
    seen: Sequence[NodeRecord] = ()  # of this node, by which there is room for the changes
    check: Callable[[], None] = lambda: None  # raises NotLeaderError once the decision does not hold any more
    takes_back: bool = False  # what was written on this node, where another one fails
    woken: threading.Lock = field(default_factory=threading.Lock)  # free once it is done, or is to write
    is_to_write: bool = False  # for all who wait
    is_done: bool = False
    is_abandoned: bool = False  # its caller has gone with an error
    error: SchedulerError | None = None
    term: int = -1  # in which it was last tried
    undo: list[Undo] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.woken.acquire()


@dataclass(frozen=True, slots=True)
class Sent:
    """A write on top of that version that was not answered: it may arrive as long as nothing else is written there."""

    version: str
    allocations: tuple[Allocation, ...]
    until: float


@dataclass(slots=True)
class NodeWrites:
    """`writing` is held by the caller who writes for all that wait; it guards `known`, `known_term` and `sent`.
    `has_writer`: one of those who wait writes, or is about to; it wakes each when its changes are written, and then the
    next writer, so that nobody is woken for nothing."""

    writing: threading.Lock = field(default_factory=threading.Lock)
    has_writer: bool = False
    waiting: list[Ticket] = field(default_factory=list)
    owed: list[Undo] = field(default_factory=list)  # to be taken back with the next write
    owed_drops: list[tuple[int, Drop]] = field(default_factory=list)  # with their term
    open: int = 0  # commits that may yet take back what they wrote
    counted_on: list[Ticket] = field(default_factory=list)  # since something was written that may be taken back
    known: StoredRecord | None = None
    known_term: int = -1
    sent: list[Sent] = field(default_factory=list)
    fence: tuple[Allocation, ...] = ()  # what stood there when this process wrote in a term for the first time
    fence_term: int = -1
    expected: int = 0  # who wanted the last write or waited at its end: so many may want the next one
    took: float = 0.0  # the last write, in seconds
    gathers_until: float = 0.0  # if several wanted it
    gathering: threading.Lock | None = None  # of the one who is to write, to be freed once they are there

    @property
    def has_gathered(self) -> bool:
        """Whether the next write waits for no others: as many are there, or one of them has no time for that."""
        latest = self.gathers_until + self.took
        return len(self.waiting) >= self.expected or any(one.deadline <= latest for one in self.waiting)

    def count_on(self, tickets: Iterable[Ticket]) -> None:
        """After a write: what these asked for stands there. Nothing is kept while nothing can be taken back."""
        if self.open or self.owed:
            self.counted_on += tickets
        else:
            self.counted_on.clear()


def told_by(counted_on: Iterable[Ticket], term: int) -> Told:
    """What must not be taken back by others in that term."""
    found = dict[Key, Allocation | None]()
    for ticket in (one for one in counted_on if one.term == term):
        for change in ticket.changes:
            allocation = change.allocation if isinstance(change, Put) else None
            known = found.get(change.key)
            if allocation is None or known is None or known.size_bytes < allocation.size_bytes:
                found[change.key] = allocation
    return found


def shows(allocations: Sequence[Allocation], entries: Iterable[Allocation]) -> bool:
    """Whether all of `entries` are there, as large at least."""
    if allocations == entries:
        return True
    sizes = {one.key: one.size_bytes for one in allocations}
    return all(sizes.get(one.key, -1) >= one.size_bytes for one in entries)


def is_told(ticket: Ticket) -> bool:
    """Whether its caller hears that it is done."""
    return ticket.is_done and ticket.error is None and not ticket.is_abandoned


def refused(node: str, error: ClusterError, sent: Iterable[Sent], now: float) -> RefusedWriteError:
    """What its callers are told of such a write: there is nothing of it unless an earlier one may arrive."""
    found = RefusedWriteError(f"the record of {node} cannot be written: {error}", node)
    if all(one.until <= now for one in sent):
        found.untouched = frozenset((node,))
    return found


def problem_of(ticket: Ticket, node: str, there: set[Key]) -> str:
    """Why the record of that node has no place for what the ticket adds to `there`; "" if it has: it is there then."""
    new = {change.key for change in ticket.changes if isinstance(change, Put)} - there
    if len(there) + len(new) > MAX_ENTRIES:
        counts = Counter((purpose, disk) for purpose, _, disk in (*there, *new))
        for purpose, _, disk in new:
            if counts[purpose, disk] > MAX_ENTRIES:
                return no_place(purpose, node, disk)
    there |= new
    return ""


def applied(
    there: tuple[Allocation, ...],
    tickets: Sequence[Ticket],
    owed: Sequence[Undo],
    drops: Sequence[tuple[int, Drop]],
    counted_on: Sequence[Ticket],
    term: int,
) -> tuple[Allocation, ...]:
    """First what is owed in that term, then each ticket in its turn; each notes how to take it back."""
    found, told = {one.key: one for one in there}, told_by(counted_on, term)
    for undo in owed:
        if undo.term == term:
            apply(undo.on(found, told), found)
    apply([drop for of_term, drop in drops if of_term == term], found)
    for ticket in tickets:
        ticket.undo, ticket.term = [], term
        for change in ticket.changes:
            former = found.get(change.key)
            if not ticket.is_still_wanted(change, former):
                continue
            least = former.size_bytes if former is not None else -1
            if ticket.takes_back and isinstance(change, Put) and least < change.allocation.size_bytes:
                ticket.undo.append(Undo(change.allocation, former, term))
            apply([change], found)
    return tuple(sorted(found.values()))
