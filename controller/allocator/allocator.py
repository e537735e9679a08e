"""The allocator: everything that changes free space, behind one lock.

Observed facts and the table share the lock: a replica that becomes visible leaves its plan in the same critical section
in which its bytes start to count on the disk, or they would be counted twice, or not at all.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from controller.allocator.choose.budget import Budget
from controller.allocator.choose.choose import Chooser
from controller.allocator.outcome import Decision, Due, FilterOutcome, Mode, PodKnowledge, PromiseView, Snapshot, Wakeup
from controller.allocator.plans.answers import Answers
from controller.allocator.plans.ends import GROWTH, PLAN, Ends
from controller.allocator.plans.growths import Growths
from controller.allocator.plans.journal import ClaimTale, Journal
from controller.allocator.plans.nominations import Approvals
from controller.allocator.plans.plan import Hold, Plan
from controller.allocator.plans.quarantine import Quarantine
from controller.allocator.plans.shared_claims import SharedClaims
from controller.allocator.plans.table import Table
from controller.allocator.verbs.account import account_of, account_of_limit
from controller.allocator.verbs.allocate import Allocations
from controller.allocator.verbs.filter import Filtering
from controller.allocator.verbs.find import DiskQueries
from controller.allocator.verbs.grow import Expansions
from controller.allocator.verbs.observe import CLAIMS_AT_ONCE, Apply, EventContext, Events
from controller.allocator.verbs.place import Places
from controller.allocator.verbs.planning import Planner
from controller.allocator.verbs.prioritize import Strategy, score_nodes
from controller.allocator.verbs.settle import Settler
from controller.allocator.verbs.shares import ServedVolumes
from controller.allocator.verbs.views import rows_of, snapshot_of
from controller.allocator.waiting.kept_room import KeptUntil
from controller.allocator.waiting.refusals import Refusals
from controller.allocator.waiting.room import PodRoom
from controller.allocator.waiting.wake_plan import WakePlan
from controller.allocator.world.absences import ABSENT_SECONDS, known_demands
from controller.allocator.world.world import World
from controller.clock import Clock
from controller.errors import BugError, NotFoundError, NotReadyError, SchedulerError
from controller.model.longhorn import LonghornSettings
from controller.model.workload import Pod
from controller.rules.demand import Missing, demands_of_pod
from controller.settings import DISK_SCHEDULER, LiveSettings, places_replicas

__all__ = ["Allocator", "Decision", "Due", "FilterOutcome", "Mode", "PodKnowledge", "PromiseView", "Snapshot"]

COPY_SECONDS: Final = 1.0  # for which a copy serves those who explain
_ROOMS_AT_ONCE: Final = 100  # that the sweep works out before it lets others in
_KEEP_COPY: Final = 10  # times that, until the memory is given back


class Allocator(Events):
    """Answers who may have which bytes, and remembers what it answered until the cluster shows it.

    Threads: any. Blocks: only in the `wait_*` methods. I/O: none, logging included. "Costs:" tells what a method costs
    under the lock.
    """

    def __init__(self, clock: Clock, schedulers: Container[str] | None = None) -> None:
        """`schedulers`: the names of those that ask us, so that pods of others are told nothing; None: any."""
        self._clock, self._schedulers = clock, schedulers
        self._changed = threading.Condition(threading.Lock())  # guards every field below
        self._copied: tuple[World, Table] | None = None
        self._copied_at = -math.inf
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
        self._shared = SharedClaims(world, table)
        self._room = PodRoom(world, table, chooser, clock, approvals)
        parts = world, table, clock, self._journal, self._growths, self._shared, self._room, answers, approvals
        self._settler = Settler(*parts)
        planner = Planner(world, table, chooser, self._journal, self._settler.claimants, self._put_away)
        self._settler.planner = planner
        self._ends = Ends(world, table, self._growths, answers, self._journal)
        lock, resize, facts = self._changed, self._resize_locked, lambda: self._copy()[0]
        self.places = Places(lock, clock, world, table, chooser, planner, self._journal, resize, facts)
        self.served = ServedVolumes(lock, world)
        active = self._is_active_locked
        self.expansions = Expansions(lock, clock, world, table, self._growths, chooser, self._journal, active, resize)
        self.disks = DiskQueries(lock, world, table, self._growths, active)
        self.allocations = Allocations(
            lock, clock, world, table, chooser, self._growths, self.expansions, self.disks, active, resize
        )

    def _is_active_locked(self) -> bool:
        if self._failure:
            raise NotReadyError(self._failure)
        return self._mode is Mode.ACTIVE

    @property
    def _settles(self) -> bool:
        return self._is_leading and self._mode is Mode.ACTIVE

    # Facts

    def _observe(self, key: str, apply: Apply, is_outdated: Callable[[World], bool] | None = None) -> None:
        later: Sequence[str] = ()
        with self._changed:
            if is_outdated is not None and is_outdated(self._world):
                return
            with self._guarded(key):
                context = self._context_locked()
                later = apply(context)
                context.settle_changes()
            self._touch_locked()
        for first in range(0, len(later), CLAIMS_AT_ONCE):
            with self._changed, self._guarded(key):
                self._resettle_locked(later[first : first + CLAIMS_AT_ONCE])

    def _context_locked(self) -> EventContext:
        parts = self._world, self._table, self._settler, self._refusals, self._quarantine, self.places, self._clock
        return EventContext(*parts, self._settles)

    def _resize_locked(self, volume: str) -> None:
        """A growth of that volume was admitted, or its replicas changed."""
        claims = self._world.claims_of_volume(volume)
        with self._guarded(claims[0].key if claims else volume):
            if self._settles:
                self._settler.settle_volume(volume)
            self._resettle_locked([claim.key for claim in claims])

    def _resettle_locked(self, keys: Iterable[str]) -> None:
        context = self._context_locked()
        context.settle_claims(keys)
        context.settle_changes()
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
            self.allocations.decide_locked(live.allocation_authority == DISK_SCHEDULER)
            if longhorn != self._world.settings:
                self._world.put_settings(longhorn)
                with self._rebuilding_locked():
                    self._resettle_locked(list(self._world.claims))
            self._switch_places_locked()
            self._touch_locked()

    def _switch_places_locked(self) -> None:
        self.places.switch_locked(on=places_replicas(self._live) and self._settles, forgets=not self._is_leading)

    # Questions of the extender

    def knows_pod(self, uid: str, key: str) -> PodKnowledge:
        """Costs: one look-up."""
        return self.wait_for_pod(uid, key, 0)

    def wait_for_pod(self, uid: str, key: str, timeout: float) -> PodKnowledge:
        """As `knows_pod`, waiting up to `timeout` seconds for what the store may not show yet. Costs: one look-up after
        each change; the wait is without the lock."""
        with self._changed:
            self._changed.wait_for(lambda: not self._knowledge_locked(uid, key).may_be_old, timeout)
            return self._knowledge_locked(uid, key)

    def _knowledge_locked(self, uid: str, key: str) -> PodKnowledge:
        return PodKnowledge.of(self._world.pod_by_key(key), uid, self._schedulers)

    def hold_pod(self, pod_uid: str, candidates: Sequence[str], *, adds_up: bool = False) -> FilterOutcome:
        """Which candidates have room for all the pod's volumes, and a disk for each of them held on each that is
        offered: one step.

        A pod whose choice stands is answered with that node. A retried call replaces the pod's own hold, unless answers
        add up, as they do where anybody may have asked. A call without candidates is no question. Refused pods are
        remembered for the wake-up. Raises UnknownObjectError when the pod refers to something unknown, which is to be
        read live before the next try: one watch may be ahead of another, and what is not known would need no room.
        Costs: a place for each copy that is bound to no node, and a look at each candidate within the filter budget,
        which one search may overrun."""
        with self._changed:
            now = self._clock.now()
            if self._mode is not Mode.ACTIVE:
                return FilterOutcome(Decision.BYPASS, candidates, {}, False, self._version, 0)
            pod = self._pod_locked(pod_uid)
            if not candidates:
                return FilterOutcome(Decision.NOTHING_NEEDED, candidates, {}, False, self._version, 0)
            demands = known_demands(pod, self._world, now)
            for key in (pod.key, *(f"{pod.namespace}/{volume.claim}" for volume in pod.volumes)):
                self._quarantine.check(key, now)
            self._calls += 1
            with self._guarded(pod.key, reraise=True):
                filtering = self._filtering_locked(adds_up=adds_up)
                outcome = filtering.decide(pod, demands, candidates)
            if self._refusals.take_news() or filtering.has_freed:
                self._touch_locked()
            self._journal.counters[f"decisions_{outcome.decision}"] += 1
            unread = tuple(sorted({demand.unread_backup for demand in demands if demand.unread_backup}))
            return replace(outcome, serial=self._calls, version=self._version, unread_backups=unread)

    def nodes_with_room(self, pod_uid: str, candidates: Collection[str], *, adds_up: bool = False) -> Collection[str]:
        """The candidates that a filter call would let pass; the room of one that gets nominated is kept for the pod,
        including one of a former answer if answers add up. Raises as `hold_pod` does. Costs: as it, however many are
        sure."""
        with self._changed:
            if self._mode is not Mode.ACTIVE:
                return candidates
            pod = self._pod_locked(pod_uid)
            demands = known_demands(pod, self._world, self._clock.now())
            return self._filtering_locked(adds_up=adds_up).keep_candidates(pod, demands, candidates)

    def preemption_failed(self, pod_uid: str, candidates: Collection[str]) -> None:
        """We could not tell where the pod has room, and kube-scheduler does not ask again by itself. Costs: a copy of
        the candidates' names."""
        with self._changed:
            self._filtering_locked().fail_preemption(pod_uid, candidates)
            self._touch_locked()

    def score_nodes(self, pod_uid: str, candidates: Sequence[str]) -> Mapping[str, int]:
        """How good each candidate is for the pod, 0 to 10. Raises as `hold_pod` does. Costs: a look at each, within the
        filter budget."""
        with self._changed:
            if self._mode is not Mode.ACTIVE:
                return dict.fromkeys(candidates, 0)
            now, pod = self._clock.now(), self._pod_locked(pod_uid)
            demands = known_demands(pod, self._world, now)
            budget = Budget.of(self._clock, self._live.filter_budget_milliseconds)
            strategy = Strategy(self._live.strategy)
            return score_nodes(self._world, self._table, pod_uid, demands, candidates, strategy, budget)

    def account_of(self, pod_uid: str, candidates: Sequence[str]) -> str:
        """Why the pod finds no room there, for a person; "" when it does by now, or is gone. Worked out on a copy that
        may be a moment old, without the lock. Costs: copying facts by kind, and the table, once a second at most."""
        with self._changed:
            pod = self._world.pods.get(pod_uid)
            if pod is None or self._mode is not Mode.ACTIVE:
                return ""
            demands, _ = demands_of_pod(pod, self._world, self._world.settings)  # its claims may be newer than the copy
            limit = self._shared.limit_of(pod, demands)
        if not any(map(limit.includes, candidates)):
            return account_of_limit(limit)
        world, table = self._copy()
        room = PodRoom(world, table, Chooser(world), self._clock, self._settler.approvals)
        return account_of(room.fit(pod, demands), table, pod, candidates)

    def _copy(self) -> tuple[World, Table]:
        """World and table as they were less than `COPY_SECONDS` ago, to be asked and never changed."""
        with self._changed:
            now = self._clock.now()
            if self._copied is None or now - self._copied_at >= COPY_SECONDS:
                self._copied, self._copied_at = (self._world.copy(self._growths.copy()), self._table.copy()), now
            return self._copied

    @property
    def failure(self) -> str:
        """Why the table cannot be trusted any more; "" as long as it can. Only a new process mends it."""
        with self._changed:
            return self._failure

    def _pod_locked(self, uid: str) -> Pod:
        self._is_active_locked()  # or a failure of ours would look like a pod that is gone
        pod = self._world.pods.get(uid)
        if pod is None:
            raise NotFoundError(f"pod {uid} went away during its call")
        return pod

    def _filtering_locked(self, *, adds_up: bool = False) -> Filtering:
        parts = self._room, self._settler, self._shared, self._growths, self._refusals, self._live, self._clock
        return Filtering(*parts, self._version, self._calls, adds_up)

    def wait_for_change(self, version: int, timeout: float) -> bool:
        """Wait up to `timeout` seconds for anything to change since `version`; whether it did. Costs: nothing."""
        with self._changed:
            return self._changed.wait_for(lambda: self._version != version, timeout)

    @property
    def version(self) -> int:
        """A number that differs after every change. Costs: nothing."""
        with self._changed:
            return self._version

    def end_holds(self, pod_uid: str, serial: int) -> None:
        """The answer of that call never reached the scheduler, so what it held is not offered. Idempotent; what a later
        call of the same pod holds stays. Costs: the pod's hold."""
        with self._changed:
            if self._settler.answers.is_of_call(pod_uid, serial) and self._settler.end_hold(pod_uid, "answer_lost"):
                self._touch_locked()

    # Time

    def due(self, later: Collection[str] = ()) -> tuple[Due, ...]:
        """What has reached its end by time, unless a last look at the API server shows more; a hundred at most, and
        last those whose claimant or volume is in `later`. Costs: a look at each answer that no choice followed, at each
        plan, and at each growth."""
        with self._changed:
            return self._ends.due(self._clock.now(), self._clock.now_utc(), self._live, later)

    def backups_to_read(self) -> list[str]:
        """Names of Backups whose size decides how large a volume becomes, and that nobody has read yet; each again
        after a while. Costs: a look at all classes if there is any."""
        with self._changed:
            return self._world.backups.to_read(self._clock.now(), self._world.classes.values())

    def expire(self, due: Due) -> None:
        """A last look showed nothing. Nothing happens to a hold that is not due. Costs: the volumes of one pod, or one
        volume."""
        with self._changed, self._guarded(due.volume or due.claimant):
            if self._expire_locked(due):
                self._context_locked().settle_changes()
                self._touch_locked()

    def _expire_locked(self, due: Due) -> bool:
        now, settler = self._clock.now(), self._settler
        if due.claimant == GROWTH:
            if not self._growths.look(due.volume, now):
                return False
            self._journal.counters["expansions_expired"] += 1
            settler.settle_growth(due.volume, ends_hold=True)
            return True
        if due.claimant == PLAN:
            plan = self._table.plan(due.volume)
            if plan is None or not self._ends.is_unbound(plan, self._clock.now_utc()):
                return False
            settler.end_unbound(plan)
            return True
        return self._ends.is_due(due.claimant, now, self._live) and settler.expire(due.claimant)

    def sweep(self) -> None:
        """End what time alone ends. Call it every few hundred milliseconds. Costs: the rooms of a hundred changed nodes
        at a time; then a look at each hold that has an end by time, and all that end now."""
        while self._refresh_some():  # so that no filter call has to
            pass
        with self._changed:
            self.allocations.sweep_locked(self._clock.now(), self._live.allocation_grace_seconds)
            has_changes = self._world.has_changes
            if has_changes:
                self._context_locked().settle_changes()
            if self._ends.sweep(self._clock.now()) or has_changes:
                self._touch_locked()
            if self._clock.now() - self._copied_at > _KEEP_COPY * COPY_SECONDS:
                self._copied = None

    def _refresh_some(self) -> bool:
        with self._changed:
            is_left = self._world.refresh(_ROOMS_AT_ONCE)
            if not is_left:
                self._room.chooser.renew()
            return is_left

    # Terms and modes

    def begin_term(
        self, *, has_predecessor: bool = True, plans: Collection[Plan] = (), holds: Collection[Hold] = ()
    ) -> None:
        """Lead, with the plans and holds that the leader before has stored. Pods without one that wait for a node may
        have been refused by it, and are woken. Without a predecessor nobody has admitted an expansion either. Costs:
        all pods, and the volumes that they wait for."""
        with self._changed:
            self._is_leading = True
            with self._rebuilding_locked():
                is_unknown = self._left_growth or self.expansions.is_unknown_locked()
                self.expansions.begin_term_locked(has_predecessor=has_predecessor or is_unknown)
                self.allocations.begin_term_locked()
                self._world.refresh()
            self._start_locked(plans, holds, has_predecessor=has_predecessor)
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
            self.allocations.end_term_locked()
            self._start_locked()

    def set_mode(self, mode: Mode) -> None:
        """ACTIVE plans for all choices that stand; BYPASS and CLOSED empty the table. Costs: ACTIVE as `begin_term`."""
        with self._changed:
            if mode is self._mode:
                return
            if self._is_leading and mode is Mode.ACTIVE:  # until now growth went by unchecked
                self.expansions.begin_term_locked(has_predecessor=True)
            self._mode = mode
            if self._is_leading and mode is not Mode.ACTIVE:
                self._table.clear()  # what is stored ends, too
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
            self._journal.drain_tales()
            self._copied = None
            self._world.take_changes()
            if not self._settles:
                self._table.load(())
                return
            self._table.load(plans)
            self._settler.inherit(holds)
            self._settler.presume(self._refusals, self._schedulers, has_predecessor=has_predecessor)
            self._settler.settle_all()

    # Wake-up

    def wake_slices(self) -> Iterator[list[Wakeup]]:
        """Refused pods that fit now, all together; they count as woken, with a back-off each. Between two steps of the
        iterator the lock is free. Costs: 3 ms a step, or one question about a pod within the filter budget; the first
        one also puts all refused pods in order."""
        plan: WakePlan | None = None
        while plan is None or not plan.is_done:
            with self._changed:
                if self._mode is not Mode.ACTIVE:
                    return
                plan = plan or WakePlan(self._refusals, self._world, self._kept_until)
                wakeups = plan.advance(self._filtering_locked())
            yield wakeups

    def next_wakeup_due(self) -> float | None:
        """Seconds until time alone may change something for a refused pod, None when only changes matter. Costs: a
        look at each refused pod."""
        with self._changed:
            return self._refusals.next_due(self._clock.now(), self._live)

    def pending_opted_in(self) -> list[Pod]:
        """Pods that wait for a scheduler and carry the resource: they must never be stranded. Costs: a look at each pod
        that has volumes or carries it."""
        with self._changed:
            return [pod for pod in self._world.pods.values() if pod.is_opted_in and pod.is_pending]

    # Views

    def snapshot(self) -> Snapshot:
        """The rows are made of a copy, after the lock. Costs: lists of plans, holds and growths, and of all claims by
        name."""
        with self._changed:
            now, now_utc, names = self._clock.now(), self._clock.now_utc(), self._world.claim_names()
            plans, holds, growths = self._table.plans(), self._table.all_holds(), self._growths.all()
            mode, version, refused_count = self._mode, self._version, len(self._refusals)
            quarantined, counters = list(self._quarantine.keys()), dict(self._journal.counters)
            over = self._world.overdrawn()
        rows = rows_of(plans, holds, growths, names, now, now_utc)
        return snapshot_of(rows, mode, version, refused_count, quarantined, counters, over)

    def drain_records(self) -> tuple[tuple[str, float, bool], ...]:
        """Durations since the last call: (name, seconds, success). Costs: a copy of them."""
        with self._changed:
            return self._journal.drain()

    def drain_tales(self) -> tuple[ClaimTale, ...]:
        """What owners of claims are to be told, since the last call. Costs: a copy."""
        with self._changed:
            return self._journal.drain_tales()

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
