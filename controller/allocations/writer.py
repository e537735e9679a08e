"""Makes changes of the record durable, with as few writes as there are nodes that wait for one (group commit).

A crash at any point leaves too much on record, never too little: what grows is written on all nodes before anything is
freed, and what is taken back is taken back last.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from typing import Final, Protocol

from controller.allocations.backends import RecordBackend, StoredRecord
from controller.allocations.waiting import (
    NodeWrites,
    Sent,
    StillWanted,
    Ticket,
    Undo,
    applied,
    is_told,
    problem_of,
    refused,
    shows,
)
from controller.clock import Clock
from controller.errors import (
    ClusterError,
    ConflictError,
    NotFoundError,
    NotLeaderError,
    NotReadyError,
    OutdatedDecisionError,
    PreconditionError,
    SchedulerError,
    UnavailableError,
    UnreadableRecordError,
)
from controller.model.allocations import Allocation, Change, Drop, Key, NodeRecord, Put, version_number
from controller.model.records import MAX_ENTRIES

PAUSE_SECONDS: Final = 0.05
GATHER_SECONDS: Final = 0.1
GATHER_TIMES: Final = 2.0  # as long as a write took
ROLL_BACK_SECONDS: Final = 2.0
SEND_SECONDS: Final = 10.0  # for one request
ARRIVES_SECONDS: Final = 90.0  # from a write without an answer until it has arrived or never will: the API server gives
# a request 60 s unless it is told otherwise
_log = logging.getLogger(__name__)


class Learn(Protocol):
    """Hears of a node's record, and at which place of a backend it is."""

    def __call__(self, record: NodeRecord, place: str, *, is_written: bool) -> None: ...


def learn_nothing(record: NodeRecord, place: str, *, is_written: bool) -> None:
    """For programs without an allocator."""


class RecordWriter:
    """Threads: any. Blocks: until the changes are durable, or the deadline. I/O: the API server.

    `term` gives the term in which this process leads, and raises NotLeaderError when it does not.
    """

    def __init__(
        self,
        backend: RecordBackend,
        term: Callable[[], int],
        clock: Clock,
        pause: Callable[[float], None] = time.sleep,
        seen: Callable[[str], NodeRecord | None] = lambda _node: None,
        gather_seconds: float = GATHER_SECONDS,
        learn: Learn = learn_nothing,
    ) -> None:
        """`seen`: a node's record as a watch shows it. The first write in a term begins with that, and reads the record
        only if it is another one by now. `gather_seconds`: the most that a write waits for others who may share it.
        `learn` is told of each record that stands there by a write or a read, before any caller is."""
        self._backend, self._term, self._clock, self._pause, self._seen = backend, term, clock, pause, seen
        self._learn = learn
        self._gather_seconds = gather_seconds
        self._lock = threading.Lock()  # guards _nodes, and of each node what waits and what is owed
        self._nodes: dict[str, NodeWrites] = {}
        self.writes = 0  # PUTs and POSTs that were accepted

    @property
    def place(self) -> str:
        """Where it writes."""
        return self._backend.place

    def commit(
        self,
        changes: Sequence[Change],
        deadline: float,
        is_still_wanted: StillWanted = lambda _change, _there: True,
        seen: Sequence[NodeRecord] = (),
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """Durable when it returns, all of `changes` or none; `deadline` is in the clock's monotonic seconds. What is
        not wanted any more when its turn comes is left out; `is_still_wanted` may be asked again for another try.

        `seen`: records by which there is room for the changes. A former leader's write may arrive until this process
        has written the node's record in its own term; what that brought and was not seen takes the same room. `check`
        raises NotLeaderError once that term is over: a decision is not written in another one.

        What was written without an answer stays, since somebody may rely on it by then. Of changes on several nodes all
        growth is written first, and rolled back when one of the nodes fails. What is freed beside it follows; where
        that fails, it goes with that node's next write.

        Raises NotReadyError when this process does not lead or the API server does not answer in time, ConflictError
        when somebody else has changed the record itself, UnreadableRecordError when it cannot be read,
        OutdatedDecisionError when there is more in it of a former term than was seen, PreconditionError when it has no
        place for more, RefusedWriteError when the API server refuses it. Each has the nodes that are `untouched`.
        """
        nodes = sorted({change.node for change in changes})
        if len(nodes) == 1:
            self._write(nodes[0], changes, deadline, is_still_wanted, seen, check)
            return
        growth = [change for change in changes if isinstance(change, Put)]
        written: list[tuple[str, Ticket]] = []
        growing = sorted({change.node for change in growth})
        with self._open(growing):
            for number, node in enumerate(growing):
                try:
                    mine = [one for one in growth if one.node == node]
                    written.append(
                        (node, self._write(node, mine, deadline, is_still_wanted, seen, check, takes_back=True))
                    )
                except SchedulerError as error:
                    is_outdated = written and isinstance(error, OutdatedDecisionError)
                    failure = NotReadyError(str(error)) if is_outdated else copy(error)  # which others share
                    failure.untouched = error.untouched.union(self._take_back(written), growing[number + 1 :])
                    raise failure from error
        drops = [change for change in changes if isinstance(change, Drop)]
        for node in sorted({change.node for change in drops}):
            freed = [change for change in drops if change.node == node]
            try:
                self._write(node, freed, deadline, is_still_wanted, (), check)
            except SchedulerError as error:
                if not growth:
                    raise
                _log.warning("freed later node=%s entries=%d: %s", node, len(freed), error)
                with self._lock:
                    self._state_locked(node).owed_drops += [(written[-1][1].term, drop) for drop in freed]

    @contextmanager
    def _open(self, nodes: Collection[str]) -> Iterator[None]:
        """What is written on these nodes meanwhile may be taken back."""
        with self._lock:
            states = [self._state_locked(node) for node in nodes]
            for state in states:
                state.open += 1
        try:
            yield
        finally:
            with self._lock:
                for state in states:
                    state.open -= 1

    def rewrite(self, node: str, allocations: Sequence[Allocation], deadline: float) -> bool:
        """Whether `allocations` are on record of a node whose record could not be read, or is of a later term, in place
        of that; one that can be read by now stays. Raises NotReadyError or ClusterError."""
        with self._alone(node, deadline) as state:
            term, stored = self._term(), self._backend.read(node)
            if not stored.record.problem and stored.record.term <= term:
                return False
            try:
                self._send(state, stored, tuple(allocations), term)
            except (ConflictError, UnavailableError, NotFoundError):
                raise
            except ClusterError:  # as one of a later term, which the schema keeps
                self._backend.forget(stored)
                self._send(state, self._backend.read(node), tuple(allocations), term)
            return True

    def forget(self, node: str, deadline: float) -> bool:
        """Whether there was a record of that node with nothing in it, which is removed by that. Raises NotReadyError or
        ClusterError."""
        with self._alone(node, deadline):
            term, stored = self._term(), self._backend.read(node)
            record = stored.record
            if stored.raw is None or record.problem or record.allocations or record.term > term:
                return False
            self._backend.forget(stored)
            return True

    @contextmanager
    def _alone(self, node: str, deadline: float) -> Iterator[NodeWrites]:
        """Nobody else writes that node's record meanwhile, and whoever does next reads it before."""
        with self._lock:
            state = self._state_locked(node)
        if not state.writing.acquire(timeout=max(0.0, deadline - self._clock.now())):
            raise NotReadyError(f"the record of {node} was not written in time")
        try:
            state.known = None
            yield state
        finally:
            state.writing.release()

    def _write(
        self,
        node: str,
        changes: Sequence[Change],
        deadline: float,
        is_still_wanted: StillWanted = lambda _change, _there: True,
        seen: Sequence[NodeRecord] = (),
        check: Callable[[], None] = lambda: None,
        *,
        takes_back: bool = False,
    ) -> Ticket:
        """One node's share of a commit. The first caller writes for all who wait meanwhile."""
        mine = [one for one in seen if one.node == node]
        ticket = Ticket(changes, deadline, is_still_wanted, mine, check, takes_back)
        with self._lock:
            state = self._state_locked(node)
            state.waiting.append(ticket)
            if state.gathering is not None and state.has_gathered:
                state.gathering.release()
                state.gathering = None
            if not state.has_writer:
                self._call_writer_locked(state)
        if not ticket.woken.acquire(timeout=max(0.0, deadline - self._clock.now())):
            with self._lock:
                if not (ticket.is_done or ticket.is_to_write):
                    state.waiting = [one for one in state.waiting if one is not ticket]
                    ticket.is_abandoned = True  # somebody may be writing it at this moment
                    raise NotReadyError(f"the record of {node} was not written in time")
        if ticket.is_to_write:
            is_free = state.writing.acquire(timeout=max(0.0, deadline - self._clock.now()))
            try:
                if is_free:
                    self._write_all(node, state, ticket)
                else:  # it is being written anew
                    ticket.error = NotReadyError(f"the record of {node} was not written in time")
            finally:
                if is_free:
                    state.writing.release()
                with self._lock:
                    state.waiting = [one for one in state.waiting if one is not ticket]
                    self._call_writer_locked(state)
        if ticket.error is not None:
            raise ticket.error
        return ticket

    @staticmethod
    def _call_writer_locked(state: NodeWrites) -> None:
        """The first of those who wait, if there are any."""
        state.has_writer = bool(state.waiting)
        if state.waiting:
            state.waiting[0].is_to_write = True
            state.waiting[0].woken.release()

    def _write_all(self, node: str, state: NodeWrites, own: Ticket) -> None:
        """For all who wait. Where the time of `own` ends first, the others try again by themselves."""
        self._gather(state, own)
        began = self._clock.now()
        with self._lock:
            tickets, state.waiting = state.waiting, []
            owed, state.owed = state.owed, []
            drops, state.owed_drops = state.owed_drops, []
            counted_on = list(state.counted_on)
        error: SchedulerError | None = None
        try:
            self._store(node, state, (tickets, owed, drops, counted_on), own.deadline)
        except SchedulerError as caught:
            error = caught
        except BaseException as fault:
            error = NotReadyError(f"the record of {node} was not written: {fault!r}")
            raise
        finally:
            with self._lock:
                if error is not None:
                    state.known = None
                    state.owed = owed + state.owed
                    state.owed_drops = drops + state.owed_drops
                self._tell_locked(state, tickets, own, error)
                state.took = self._clock.now() - began
                state.expected = sum(one.is_done for one in tickets) + len(state.waiting)
                seconds = min(GATHER_TIMES * state.took, self._gather_seconds)
                state.gathers_until = self._clock.now() + seconds if state.expected > 1 else 0.0

    def _tell_locked(
        self, state: NodeWrites, tickets: Sequence[Ticket], own: Ticket, error: SchedulerError | None
    ) -> None:
        """Those whose changes were written, or could not be; who has time left waits for the next try."""
        for ticket in tickets:
            has_time = ticket is not own and not ticket.is_abandoned and ticket.deadline > self._clock.now()
            if isinstance(error, NotReadyError) and has_time and ticket.error is None:
                state.waiting.append(ticket)
                continue
            ticket.is_done, ticket.error = True, ticket.error or error
            if ticket is not own:
                ticket.woken.release()
        state.count_on(filter(is_told, tickets))

    def _gather(self, state: NodeWrites, own: Ticket) -> None:
        """Where several wanted the last write, the next one waits until as many want it, but not for long. Without that
        they would fall into two halves, of which one waits for the other's write: as many would be answered in the same
        time, with twice the writes."""
        wait = state.gathers_until - self._clock.now()
        with self._lock:
            if wait <= 0 or state.has_gathered:
                return
            state.gathering = own.woken
        own.woken.acquire(timeout=wait)
        with self._lock:
            state.gathering = None

    def _store(
        self,
        node: str,
        state: NodeWrites,
        wanted: tuple[Sequence[Ticket], Sequence[Undo], Sequence[tuple[int, Drop]], Sequence[Ticket]],
        deadline: float,
    ) -> None:
        """Until it stands there. A conflict is somebody else's doing only if the record itself is another one: Longhorn
        writes its Nodes all the time."""
        tickets, owed, drops, counted_on = wanted
        base: NodeRecord | None = None  # on which a write was tried that was not accepted, or not answered
        goal: tuple[Allocation, ...] = ()
        is_first, is_shown, tried_in = True, False, -1
        while True:
            term = self._term()
            if base is not None and term != tried_in:
                raise NotLeaderError(f"the term ended while the record of {node} was written")
            tried_in = term
            left = deadline - self._clock.now()
            if left <= 0:
                raise NotReadyError(f"the record of {node} was not written in time")
            try:
                known = self._known(node, state, term, is_first=is_first)
                is_first, is_shown = False, known is not None and known is not state.known
                stored = known or self._backend.read(node, min(left, SEND_SECONDS))
                _check_writable(stored.record, term)
                there = stored.record.allocations
                if base is not None and there not in (base.allocations, goal):
                    _check_ours(stored.record, base, term, state.sent)
                    base = None  # an earlier write has arrived, of ours or a former leader's
                if base is None:
                    tickets = self._left_of(tickets, state, stored.record, term)
                    if not (tickets or owed or drops):
                        return
                if base is None or there != goal:  # else the write without an answer has arrived
                    base, goal = stored.record, applied(there, tickets, owed, drops, counted_on, term)
                # What a former leader has sent may arrive as long as nothing is written in this term.
                is_ours = stored.record.term == term or not goal
                if goal == there and known is not None and is_ours:
                    state.known = base = None  # somebody may have edited it since
                    continue
                if goal != there or not is_ours:
                    stored = self._send(state, stored, goal, term, min(left, SEND_SECONDS))
                elif self._may_be_undone(state, stored, tickets):
                    raise NotReadyError(f"a write of the record of {node} without an answer may yet undo this")
                else:
                    self._learn(stored.record, self.place, is_written=False)
                if stored.record.allocations != goal:
                    raise UnreadableRecordError(f"the API server did not keep the record of {node} as it was written")
                state.known, state.known_term = StoredRecord(stored.record, None), term
                return
            except UnexpectedRecordError:
                raise
            except (ConflictError, UnavailableError) as error:
                state.known = None
                base = None if is_shown else base  # the watch may be behind: whose doing it was cannot be told
                if isinstance(error, UnavailableError):
                    self._pause(PAUSE_SECONDS)
            except ClusterError as error:
                raise refused(node, error, state.sent, self._clock.now()) from error

    def _known(self, node: str, state: NodeWrites, term: int, *, is_first: bool) -> StoredRecord | None:
        """What this process has written there last; before that, what the watch shows. Where somebody else has written
        the object since and the watch shows that, it need not come to a conflict."""
        known, shown = state.known, self._shown(node) if is_first else None
        if state.known_term != term:
            return shown
        if known is None or shown is None:
            return known
        if version_number(shown.record.version) > version_number(known.record.version):
            state.known = shown if replace(shown.record, version=known.record.version) == known.record else None
        return state.known

    @staticmethod
    def _left_of(tickets: Sequence[Ticket], state: NodeWrites, record: NodeRecord, term: int) -> Sequence[Ticket]:
        """Those that still hold, for which there was room by all that a former leader has written, and for which the
        record has a place; the others end with an error, and not with what is written for all."""
        if state.fence_term != term or record.term < term:
            state.fence, state.fence_term = record.allocations, term
        left, allocations = [], record.allocations
        may_be_full = len(allocations) + sum(len(one.changes) for one in tickets) > MAX_ENTRIES
        there = {one.key for one in allocations} if may_be_full else set[Key]()
        for ticket in tickets:
            text = ""
            try:
                ticket.check()
            except SchedulerError as error:
                text = str(error)
            if any(one.term != term and not shows(one.allocations, state.fence) for one in ticket.seen):
                text = f"a former leader has changed the record of {record.node} since this was decided; try again"
            problem = problem_of(ticket, record.node, there) if may_be_full and not text else ""
            if not (text or problem):
                left.append(ticket)
                continue
            asked = {change.key for change in ticket.changes}
            may_arrive = any(one.key in asked for sent in state.sent for one in sent.allocations)
            outdated = NotReadyError(text) if may_arrive else OutdatedDecisionError(text)
            ticket.error = PreconditionError(problem) if problem else outdated
            ticket.error.untouched = frozenset() if may_arrive else frozenset((record.node,))
        return left

    def _send(
        self,
        state: NodeWrites,
        stored: StoredRecord,
        goal: tuple[Allocation, ...],
        term: int,
        timeout: float = SEND_SECONDS,
    ) -> StoredRecord:
        try:
            written = self._backend.write(stored, goal, term, timeout)
        except UnavailableError:
            state.sent.append(Sent(stored.record.version, goal, self._clock.now() + ARRIVES_SECONDS))
            raise
        state.sent.clear()  # they were on top of what is no more
        self.writes += 1
        if written.record.allocations == goal:  # entries that are known already, and not as many once more
            written = replace(written, record=replace(written.record, allocations=goal))
        self._learn(written.record, self.place, is_written=True)
        return written

    def _may_be_undone(self, state: NodeWrites, stored: StoredRecord, tickets: Sequence[Ticket]) -> bool:
        """Whether it is as these ask for, and an earlier write that is under way yet would undo that. One that changes
        nothing would not keep that off."""
        version, now = stored.record.version, self._clock.now()
        state.sent = [one for one in state.sent if one.version == version and now < one.until]
        asked = {change.key for ticket in tickets for change in ticket.changes}
        entries = [one for one in stored.record.allocations if one.key in asked]
        freed = asked - {one.key for one in entries}
        return any(
            not shows(one.allocations, entries) or any(entry.key in freed for entry in one.allocations)
            for one in state.sent
        )

    def _shown(self, node: str) -> StoredRecord | None:
        """As a watch shows it, if that can be a beginning."""
        record = self._seen(node)
        is_of_use = record is not None and record.version and not record.problem
        return StoredRecord(record, None) if record is not None and is_of_use else None

    def _take_back(self, written: Sequence[tuple[str, Ticket]]) -> frozenset[str]:
        """Soon if the API server lets us, else with each node's next write; the nodes where it is done."""
        with self._lock:
            for node, ticket in written:
                state = self._state_locked(node)
                state.counted_on = [one for one in state.counted_on if one is not ticket]
                state.owed += reversed(ticket.undo)
        deadline = self._clock.now() + ROLL_BACK_SECONDS
        done = set[str]()
        for node, _ in written:
            try:
                self._write(node, (), deadline)
                done.add(node)
            except SchedulerError as error:
                _log.warning("rolled back later node=%s: %s", node, error)
        return frozenset(done)

    def _state_locked(self, node: str) -> NodeWrites:
        return self._nodes.setdefault(node, NodeWrites())


def _check_writable(record: NodeRecord, term: int) -> None:
    if record.problem:
        raise UnreadableRecordError(f"the record of {record.node} cannot be read: {record.problem}")
    if record.term > term:
        raise NotLeaderError(f"the record of {record.node} is of term {record.term}, later than {term}")


def _check_ours(record: NodeRecord, base: NodeRecord, term: int, sent: Sequence[Sent]) -> None:
    """Nobody writes in the term of this process but itself, and none of an earlier one after it."""
    if term in (record.term, base.term) and all(record.allocations != one.allocations for one in sent):
        raise UnexpectedRecordError(f"somebody else has changed the record of {record.node}")


class UnexpectedRecordError(ConflictError):
    """The record itself is another one than this process left there."""
