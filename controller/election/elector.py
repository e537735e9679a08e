"""Leader election on one Lease.

Own code, because the client library's elector trusts the wall clock, has no request timeout, cannot be stopped and does
not let go. Another holder is judged by what we see change, never by the times that it wrote, so clocks may differ.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from typing import Final

from controller.clock import Clock
from controller.election.gate import Gate
from controller.errors import ClusterError, ConflictError
from controller.kube.lease import LeaseClient, LeaseRecord
from controller.log_line import say
from controller.process.repeated import Said
from controller.process.worker import Part, Worker
from controller.settings import LONGEST_LEASE_SECONDS

RELEASE_SECONDS: Final = 2.0
LARGEST_TERM: Final = 2**31 - 1  # `leaseTransitions` is an int32
LOOK_SECONDS: Final = 0.4  # between two reads of a follower: the Lease may be handed back at any moment
STOP_SECONDS: Final = 10.0  # for the call that is under way, and letting go

QUIET_PART: Final = 0.75  # of the time without a renewal after which a term ends

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds. renew_deadline < lease_duration, retry_period < renew_deadline."""

    lease_duration: int = 15
    renew_deadline: float = 10.0
    retry_period: float = 2.0


@dataclass(frozen=True, slots=True)
class View:
    """The last version of the Lease that was read, and when (monotonic) it was first seen."""

    resource_version: str = ""
    seen_at: float = 0.0


class LeaseMove(Enum):
    WAIT = auto()
    ACQUIRE = auto()
    RENEW = auto()


def observe(view: View, lease: LeaseRecord, now: float) -> View:
    """The view after a read of the Lease. A version that is new restarts the time."""
    return view if lease.resource_version == view.resource_version else View(lease.resource_version, now)


def step(view: View, lease: LeaseRecord, me: str, now: float, least_seconds: float = 0.0) -> LeaseMove:
    """What to do about a Lease that was just read. Pure.

    Another holder keeps it for the duration that it wrote, or `least_seconds` if that is longer: a Lease without a
    duration does not invite anybody. No leader may be set to hold it for more than LONGEST_LEASE_SECONDS.
    """
    if lease.holder == me:
        return LeaseMove.RENEW
    if not lease.holder or not lease.resource_version:
        return LeaseMove.ACQUIRE
    unchanged_seconds = now - view.seen_at
    kept_seconds = max(min(lease.duration_seconds, LONGEST_LEASE_SECONDS), least_seconds)
    return LeaseMove.ACQUIRE if unchanged_seconds > kept_seconds else LeaseMove.WAIT


def next_term(transitions: int | None, mine: int) -> int:
    """The number of a term that begins after that many transitions, other than `mine`, the last one of this process.
    None: there is no Lease.

    Past the largest number, and after one that nobody counts to, it begins anew at 1. So a later term may have a lower
    number, or one that was there before: numbers are compared for equality alone, and what a former leader could still
    write carries a random part as well.
    """
    if transitions is None:
        return (mine + 1) % LARGEST_TERM
    following = transitions + 1 if 0 <= transitions < LARGEST_TERM else 1
    return following if following != mine else following % LARGEST_TERM + 1


class Elector(Part):
    """Runs for the Lease until it is stopped; losing it only ends a term.

    `on_started` takes the term, and whether it had a predecessor, which may have caused changes that cannot be seen
    yet. It and `on_stopped` run in the elector's thread and must not block: renewals wait for them. The gate is closed
    before `on_stopped` is called. `me` is one process's own name: two that share one would both lead.
    Threads: `worker`'s. Blocks: `stop`. I/O: the Lease.
    """

    def __init__(
        self,
        leases: LeaseClient,
        gate: Gate,
        clock: Clock,
        me: str,
        timing: Timing,
        *,
        on_started: Callable[[int, bool], None],
        on_stopped: Callable[[], None],
    ) -> None:
        self._leases, self._gate, self._clock = leases, gate, clock
        self._me, self._timing = me, timing
        self._on_started, self._on_stopped = on_started, on_stopped
        self._view = View()
        self._holder = ""
        self._is_leading = False
        self._has_led = False
        self._term = -1  # of this process, the last one; its first may have number 0
        self._renewed_at = 0.0
        # In time to explain a term that ends for it; rights that an uninstallation takes are nothing to warn of.
        self._problem = Said(partial(_log.warning, "lease: %s"), QUIET_PART * timing.renew_deadline, clock.now)
        # Whatever failed, an elector that pauses longer would leave the Lease without a holder. The deadline still
        # counts.
        pace = (timing.retry_period, timing.retry_period)
        self.worker = Worker("elector", self._round, retry_seconds=pace, at_end=self.let_go)

    @property
    def holder(self) -> str:
        """Who held the Lease when it was last read; "" when nobody did."""
        return self._holder

    def stop(self) -> None:
        """Ends the term, hands the Lease back and ends the thread."""
        self.worker.stop(STOP_SECONDS)

    def _round(self) -> float:
        was_reached = self.run_once()
        often = was_reached and not self._is_leading
        return min(LOOK_SECONDS, self._timing.retry_period) if often else self._timing.retry_period

    def run_once(self) -> bool:
        """Reads the Lease, and writes it if that is due. Returns whether the API server answered; failures only count
        against the deadline."""
        timeout = max(0.5, min(self._timing.retry_period * 2, self._timing.renew_deadline / 2))
        try:
            lease = self._leases.read(timeout)
            now = self._clock.now()
            self._problem.note()
            self._view = observe(self._view, lease, now)
            self._holder = lease.holder
            self._end_lost_term(lease)
            if step(self._view, lease, self._me, now, self._timing.lease_duration) is not LeaseMove.WAIT:
                self._write(lease, timeout)
            return True
        except ConflictError:
            return True  # somebody wrote: the next read tells who
        except ClusterError as error:
            self._problem.note(error)
            return False
        finally:
            self._end_overdue_term()

    def _end_lost_term(self, lease: LeaseRecord) -> None:
        """A term is one unbroken time of holding the Lease: another holder meanwhile may have promised anything."""
        if lease.holder != self._me or lease.transitions != self._term:
            self._end_term(f"the Lease has changed hands, to {lease.holder or 'nobody'}")
        self._end_overdue_term()

    def _end_overdue_term(self) -> None:
        if self._clock.now() - self._renewed_at >= self._timing.renew_deadline:
            self._end_term("the Lease could not be renewed in time")

    def _write(self, lease: LeaseRecord, timeout: float) -> None:
        is_new = not self._is_leading
        transitions = lease.transitions
        if is_new:
            transitions = next_term(transitions if lease.resource_version else None, self._term)
            if not 0 <= lease.transitions < LARGEST_TERM:
                _log.warning("lease: leaseTransitions %d has no successor; term=%d", lease.transitions, transitions)
        sent_at, sent_at_utc = self._clock.now(), self._clock.now_utc().timestamp()
        written = self._leases.write(
            self._me, self._timing.lease_duration, transitions, is_new_term=is_new, timeout=timeout
        )
        self._view = View(written.resource_version, self._clock.now())
        self._holder = self._me
        self._renewed_at = sent_at
        self._gate.renewed(sent_at, sent_at_utc, self._timing.renew_deadline)
        if is_new:
            is_known = bool(lease.resource_version) or self._has_led  # a Lease that was deleted had a holder, too
            self._is_leading, self._has_led, self._term = True, True, transitions
            say(_log, "Lease held", term=transitions)
            self._on_started(transitions, is_known and not (not lease.holder and lease.is_settled))

    def _end_term(self, why: str, level: int = logging.WARNING) -> None:
        if not self._is_leading:
            return
        self._gate.close()
        self._is_leading = False
        _log.log(level, "no longer leading: %s", why)
        self._on_stopped()

    def let_go(self) -> None:
        """Ends the term and hands the Lease back, so that the next leader need not wait. For the end of the loop."""
        was_leading = self._is_leading
        self._end_term("stopping", logging.INFO)
        if was_leading:
            try:
                self._leases.release(self._me, RELEASE_SECONDS)
            except ClusterError as error:
                _log.info("lease: could not let go, so that it ends by itself: %s", error)
