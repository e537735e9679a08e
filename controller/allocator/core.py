"""What the allocator consists of, and its terms, modes and faults.

Observed facts and the table share the lock: a replica that becomes visible leaves its plan in the same critical section
in which its bytes start to count on the disk, or they would be counted twice, or not at all.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from controller.allocator.by_name.allocate import Allocations
from controller.allocator.by_name.find import DiskQueries
from controller.allocator.by_name.on_record import OnRecord
from controller.allocator.choose.choose import Chooser
from controller.allocator.outcome import Mode
from controller.allocator.plans.answers import Answers
from controller.allocator.plans.ends import Ends
from controller.allocator.plans.given import Given
from controller.allocator.plans.growths import Growths
from controller.allocator.plans.journal import Journal
from controller.allocator.plans.nominations import Approvals
from controller.allocator.plans.plan import Hold, Plan
from controller.allocator.plans.quarantine import Quarantine
from controller.allocator.plans.shared_claims import SharedClaims
from controller.allocator.plans.table import Table
from controller.allocator.verbs.claimants import Claimants
from controller.allocator.verbs.grow import Expansions
from controller.allocator.verbs.observe import (
    CLAIMS_AT_ONCE,
    MOVES_AT_ONCE,
    EventContext,
    Events,
    F,
    Known,
    Put,
    React,
    is_outdated,
)
from controller.allocator.verbs.place import PlaceDecisions
from controller.allocator.verbs.planning import Planner
from controller.allocator.verbs.served import ServedVolumes
from controller.allocator.verbs.settle import Settler
from controller.allocator.verbs.views import Look
from controller.allocator.waiting.kept_room import KeptUntil
from controller.allocator.waiting.refusals import Refusals
from controller.allocator.waiting.room import PodRoom
from controller.allocator.world.absences import ABSENT_SECONDS
from controller.allocator.world.world import World
from controller.clock import Clock
from controller.errors import BugError, NotReadyError, SchedulerError
from controller.model.allocations import Allocation
from controller.model.longhorn import LonghornSettings
from controller.rules.demand import Missing
from controller.settings import DISK_SCHEDULER, LiveSettings, places_replicas

LOOK_SECONDS: Final = 1.0  # for which a look serves those who explain
TURN_PAUSE_SECONDS: Final = 0.0002
MOST_TURNS: Final = 1_000  # of the lock for one event, if plans move; what is left after them is seen with the next one


class AllocatorCore(Events):
    """The allocator but for the questions of others.

    Threads, blocks, I/O and costs: as those of the `Allocator`.
    """

    def __init__(self, clock: Clock, schedulers: Container[str] | None = None) -> None:
        """`schedulers`: the names of those that ask us, so that pods of others are told nothing; None: any."""
        self._clock, self._schedulers = clock, schedulers
        self._changed = threading.Condition(threading.Lock())  # guards every field below
        self._looked: Look | None = None
        self._version = self._calls = 0
        self._mode = Mode.CLOSED
        self._is_leading = False
        self._live = LiveSettings()
        self._failure = ""
        self._left_growth = False  # when the table was emptied the last time, an expansion was held that nobody sees
        self._journal = Journal()
        self._growths = Growths(self._journal)
        self._world = world = World(self._growths)
        self._growths.world = world
        self._table = table = Table()
        self._refusals, self._quarantine, self._kept_until = Refusals(), Quarantine(), KeptUntil()
        answers, approvals, chooser = Answers(), Approvals(), Chooser(world)
        self._shared, given = SharedClaims(world, table), Given(world, table)
        self._given = given
        self._room = PodRoom(world, table, chooser, clock, approvals)
        parts = world, table, clock, self._journal, self._growths, self._shared, self._room, answers, approvals
        lost = set[str]()
        claimants = Claimants(world, table, clock, self._shared, given, lost)
        planner = Planner(world, table, chooser, self._journal, claimants.of, self._put_volume_away, lost)
        self._settler = Settler(*parts, given, claimants, planner)
        self._ends = Ends(world, table, self._growths, answers, self._journal)
        lock, resize = self._changed, self._resize_locked
        self.places = PlaceDecisions(lock, clock, world, table, chooser, planner, self._journal, resize)
        self.served = ServedVolumes(lock, world)
        active = self._is_active_locked
        self.expansions = Expansions(lock, clock, world, table, self._growths, chooser, self._journal, active, resize)
        self.disks = DiskQueries(lock, world, table, self._growths, active)
        self.allocations = Allocations(
            lock, clock, world, table, chooser, given, self._growths, self.expansions, self.disks, active, resize
        )
        self.record = OnRecord(lock, world, given, self._growths, self.expansions, resize)

    def _is_active_locked(self) -> bool:
        if self._failure:
            raise NotReadyError(self._failure)
        return self._mode is Mode.ACTIVE

    @property
    def _settles(self) -> bool:
        return self._is_leading and self._mode is Mode.ACTIVE

    # Facts

    def _observe(
        self, key: str, facts: F | None, put: Put[F], react: React[F] = None, known: Known = None, gone: Any = None
    ) -> None:
        later: Sequence[str] = ()
        with self._changed:
            if known is not None and is_outdated(known(self._world, key), facts, gone):
                return
            with self._guarded(key):
                context = self._context_locked()
                later = react(context, key, facts) if react else context.settle_first(put(self._world, key, facts))
                context.settle_changes(MOVES_AT_ONCE)
            self._touch_locked()
        for first in range(0, len(later), CLAIMS_AT_ONCE):
            with self._changed, self._guarded(key):
                self._resettle_locked(later[first : first + CLAIMS_AT_ONCE], MOVES_AT_ONCE)
        self._settle_rest(key)

    def _settle_rest(self, key: str) -> None:
        """Settle what is left of an event, a little at a time, while others are let in."""
        for _ in range(MOST_TURNS):
            with self._changed, self._guarded(key):
                if self._has_rest_locked():
                    self._context_locked().settle_changes(MOVES_AT_ONCE)
                    self._touch_locked()
                if not self._has_rest_locked():
                    break
            time.sleep(TURN_PAUSE_SECONDS)  # or whoever waits for the lock would not get it

    def _has_rest_locked(self) -> bool:
        return self._settles and (self._world.has_changes or self._settler.has_marked)

    def _context_locked(self) -> EventContext:
        parts = self._world, self._settler, self._refusals, self._quarantine
        return EventContext(*parts, self.places, self._given, self._clock, self._settles)

    def _resize_locked(self, volume: str) -> None:
        """A growth of that volume was admitted, or its replicas changed."""
        claims = self._world.claims_of_volume(volume)
        with self._guarded(claims[0].key if claims else volume):
            if self._settles:
                self._settler.settle_volume(volume)
            self._resettle_locked([claim.key for claim in claims])

    def _resettle_locked(self, keys: Iterable[str], most: int | None = None) -> None:
        context = self._context_locked()
        context.settle_claims(keys)
        context.settle_changes(most)
        self._touch_locked()

    def confirm_absent(self, missing: Missing) -> None:
        """A live read said that the object does not exist: its claim needs nothing in this call. A later call asks
        again, since the object may have been made meanwhile and our watch may lag. Costs: one entry."""
        with self._changed:
            now = self._clock.now()
            self._world.absent = {one: at for one, at in self._world.absent.items() if now - at < ABSENT_SECONDS}
            self._world.absent[missing] = now
            self._touch_locked()

    def configure(self, live: LiveSettings, longhorn: LonghornSettings) -> None:
        """Costs: every node, volume and claim when Longhorn's settings have changed, else nothing."""
        with self._changed:
            self._live = live
            self._given.switch(self._clock.now(), is_authority=live.allocation_authority == DISK_SCHEDULER)
            if longhorn != self._world.settings:
                self._world.put_settings(longhorn)
                with self._rebuilding_locked():
                    self._resettle_locked(list(self._world.claims))
            self._switch_places_locked()
            self._touch_locked()

    def _switch_places_locked(self) -> None:
        self.places.switch_locked(on=places_replicas(self._live) and self._settles, forgets=not self._is_leading)

    # What others wait for

    @property
    def failure(self) -> str:
        """Why the table cannot be trusted any more; "" as long as it can. Only a new process mends it."""
        with self._changed:
            return self._failure

    def wait_for_change(self, version: int, timeout: float) -> bool:
        """Wait up to `timeout` seconds for anything to change since `version`; whether it did. Costs: nothing."""
        with self._changed:
            return self._changed.wait_for(lambda: self._version != version, timeout)

    @property
    def version(self) -> int:
        """A number that differs after every change. Costs: nothing."""
        with self._changed:
            return self._version

    def look(self) -> Look:
        """What this allocator had less than `LOOK_SECONDS` ago. Costs: copying facts by kind, and lists of plans, holds
        and refused pods, once in that time; the rest is worked out without the lock."""
        with self._changed:
            now, now_utc, looked = self._clock.now(), self._clock.now_utc(), self._looked
            if looked is not None and now - looked.now < LOOK_SECONDS:
                return looked
            growths = self._growths.copy()
            world, mode, live = self._world.copy(growths), self._mode, self._live
            plans, holds, refused = self._table.plans(), self._table.all_holds(), self._refusals.all()
            quarantined, approvals = frozenset(self._quarantine.keys()), self._settler.approvals
        growths.world = world.complete()
        table, kept = Table.of(plans, holds), self._schedulers
        made = Look(world, table, growths, refused, quarantined, approvals, mode, live, kept, self._clock, now, now_utc)
        with self._changed:
            self._looked = made
        return made

    # Terms and modes

    def begin_term(
        self,
        *,
        has_predecessor: bool = True,
        plans: Collection[Plan] = (),
        holds: Collection[Hold] = (),
        record: Collection[Allocation] = (),
    ) -> None:
        """Lead, with the plans and holds that the leader before has stored, and what it has on `record`. Pods without
        one that wait for a node may have been refused by it, and are woken. Without a predecessor nobody has admitted
        an expansion either. Costs: all pods, and the volumes that they wait for."""
        with self._changed:
            self._is_leading = True
            with self._rebuilding_locked():
                is_unknown = self._left_growth or self.expansions.is_unknown_locked()
                self.expansions.begin_term_locked(has_predecessor=has_predecessor or is_unknown)
                self._given.clear()
                self.record.inherit_locked(record)
                self._world.refresh()
            self._start_locked(plans, holds, has_predecessor=has_predecessor)
            self.record.inherit_growth_locked(record)
            self._switch_places_locked()

    def has_unseen_growth(self) -> bool:
        """Whether an expansion was admitted in this term, or in the one that has just ended, that the cluster does not
        ask for yet. Costs: a look at each growth."""
        with self._changed:
            is_unchecked = self._mode is Mode.BYPASS or self.expansions.is_unknown_locked()
            return is_unchecked or self._left_growth or bool(self._growths.held())

    def end_term(self) -> None:
        """Follows: nothing is offered, and nothing planned, any more. Costs: what was planned."""
        with self._changed:
            self._is_leading = False
            self._switch_places_locked()
            self._given.clear()
            self._start_locked()

    def set_mode(self, mode: Mode) -> None:
        """ACTIVE plans for all choices that stand; BYPASS and CLOSED empty the table. Costs: ACTIVE as `begin_term`."""
        with self._changed:
            if mode is self._mode:
                return
            if self._is_leading and mode is Mode.ACTIVE:  # until now growth went by unchecked
                self.expansions.begin_term_locked(has_predecessor=True)
            self._mode = mode
            self._start_locked()
            self._switch_places_locked()

    def _start_locked(
        self, plans: Collection[Plan] = (), holds: Collection[Hold] = (), *, has_predecessor: bool = False
    ) -> None:
        """Replace the table by these plans and holds, and what the facts say."""
        with self._rebuilding_locked():
            self._touch_locked()
            self._left_growth = self._growths.clear()
            if self._left_growth and self._settles:
                self.expansions.begin_term_locked(has_predecessor=True)
            self._refusals.clear()
            self._kept_until = KeptUntil()
            self._settler.restart()
            self._journal.drain_claim_events()
            self._looked = None
            self._world.take_changes()
            if not self._settles:
                self._table.load(())
                return
            self._table.load(plans)
            self._settler.inherit(holds)
            self._settler.presume(self._refusals, self._schedulers, has_predecessor=has_predecessor)
            self._settler.settle_all()

    # Faults

    @contextmanager
    def _guarded(self, key: str, *, reraise: bool = False) -> Iterator[None]:
        """A broken invariant puts `key` into quarantine and has the table rebuilt. After a rebuild that failed nothing
        is decided any more, and `failure` says why."""
        try:
            yield
        except Exception as error:  # fault barrier
            if isinstance(error, SchedulerError) and not isinstance(error, BugError):
                raise
            broken = error if isinstance(error, BugError) else BugError(repr(error))
            self._put_away(key, broken)
            self._rebuild_locked()
            if reraise:
                raise broken from (None if broken is error else error)

    def _rebuild_locked(self) -> None:
        """The table anew, of the plans and answers that it has."""
        with self._rebuilding_locked():
            self._table.rebuild()
            if self._settles:
                self._settler.settle_all()
            self._touch_locked()

    def _put_volume_away(self, volume: str, fault: Exception) -> None:
        """The pods of its claim are told, or nobody is."""
        for key in [claim.key for claim in self._world.claims_of_volume(volume)] or [volume]:
            self._put_away(key, fault)

    def _put_away(self, key: str, fault: Exception) -> None:
        """Into quarantine."""
        self._quarantine.put(key, str(fault) or repr(fault), self._clock.now())
        self._journal.counters["quarantines"] += 1

    @contextmanager
    def _rebuilding_locked(self) -> Iterator[None]:
        """A failure inside leaves a table of which nobody knows what is missing."""
        try:
            yield
        except Exception as error:
            self._failure = f"the table could not be rebuilt: {error!r}"
            raise

    def _touch_locked(self) -> None:
        self._version += 1
        self._changed.notify_all()
