"""The allocator: everything that changes free space, behind one lock.

Observed facts and pending promises share the lock: a replica that becomes visible leaves the ledger in the same
critical section in which its bytes start to count on the disk, or they would be counted twice, or not at all.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from controller.allocator.judge.node import Judge
from controller.allocator.outcome import Decision, Due, FilterOutcome, Mode, PodKnowledge, PromiseView, Snapshot, Wakeup
from controller.allocator.plans.plan import Plan
from controller.allocator.promises.binding import new_ledger
from controller.allocator.promises.ends import Ends
from controller.allocator.promises.growths import GrantedBy
from controller.allocator.promises.holds import kept_for
from controller.allocator.promises.journal import ClaimTale, Journal
from controller.allocator.promises.ledger import Ledger
from controller.allocator.promises.memory import Answers, Memory
from controller.allocator.promises.promise import State, Verb
from controller.allocator.promises.quarantine import Quarantine
from controller.allocator.promises.settle import Settler
from controller.allocator.promises.views import promise_views, snapshot_of
from controller.allocator.verbs.account import account_of, account_of_tie
from controller.allocator.verbs.allocate import Allocations
from controller.allocator.verbs.filter import Filtering, newcomer_of
from controller.allocator.verbs.find import DiskQueries
from controller.allocator.verbs.grow import Expansions, UnderLock
from controller.allocator.verbs.observe import CLAIMS_AT_ONCE, Apply, Events, Observing
from controller.allocator.verbs.place import Places
from controller.allocator.verbs.shares import ServedVolumes
from controller.allocator.waiting.refusals import Refusals
from controller.allocator.waiting.waking import WakePlan
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
        """`schedulers`: the names of those that ask us, so that pods of others are promised nothing; None: any."""
        self._clock, self._schedulers = clock, schedulers
        self._changed = threading.Condition(threading.Lock())  # guards every field below
        self._copied_at = -math.inf
        self._version = self._calls = 0
        self._mode = Mode.CLOSED
        self._is_leading = False
        self._live = LiveSettings()
        self._world = World(GrantedBy(lambda: self._ledger), clock)
        self._journal = Journal()
        self._refusals = Refusals()
        self._quarantine = Quarantine()
        self._failure = ""
        self._left_growth = False  # when the ledger was emptied the last time, an expansion was held that nobody sees
        self._start_ledger()
        parts = lambda: self._ledger, lambda: self._settler.growths, lambda: self._memory, self._resize_locked
        under_lock = UnderLock(self._is_active_locked, *parts)
        self.expansions = Expansions(self._changed, clock, self._world, self._journal, under_lock)
        self.disks = DiskQueries(self._changed, self._world, under_lock)
        self.served = ServedVolumes(self._changed, self._world)
        self.allocations = Allocations(self._changed, clock, self._world, under_lock, self.disks, self.expansions)
        promised = lambda: self._ledger, lambda promise: self._settler.home_of(promise)  # noqa: PLW0108 -- replaced
        parts_of_places = self._changed, clock, self._world, self._journal, self._resize_locked
        self.places = Places(*parts_of_places, *promised, self._put_away, self._copy)

    def _is_active_locked(self) -> bool:
        if self._failure:
            raise NotReadyError(self._failure)
        return self._mode is Mode.ACTIVE

    def _start_ledger(self) -> None:
        self._memory = Memory(Answers())
        self._ledger = new_ledger(self._world, self._memory)
        self._copied: tuple[World, Ledger] | None = None
        self._journal.drain_tales()
        self._settler = Settler(self._world, self._ledger, self._memory, self._journal, lambda: self._live)
        self._ends = Ends(self._world, self._ledger, self._memory, self._settler, self._journal)

    # Facts

    def _observe(self, key: str, apply: Apply, is_outdated: Callable[[World], bool] | None = None) -> None:
        later: Sequence[str] = ()
        with self._changed:
            if is_outdated is not None and is_outdated(self._world):
                return
            with self._guarded(key):
                observing = self._observing_locked()
                later = apply(observing)
                observing.settle_changes()
            self._plan_locked()
            self._touch_locked()
        for first in range(0, len(later), CLAIMS_AT_ONCE):
            with self._changed, self._guarded(key):
                self._resettle_locked(later[first : first + CLAIMS_AT_ONCE])

    def _observing_locked(self) -> Observing:
        parts = self._world, self._settler, self._refusals, self._quarantine, self.places
        return Observing(*parts, self._clock.now(), self._mode is Mode.ACTIVE, self._is_leading)

    def _resize_locked(self, volume: str) -> None:
        """A growth of that volume was admitted."""
        claims = self._world.claims_of_volume(volume)
        with self._guarded(claims[0].key if claims else volume):
            self._resettle_locked([claim.key for claim in claims])

    def _resettle_locked(self, keys: Iterable[str]) -> None:
        observing = self._observing_locked()
        observing.settle_claims(keys)
        observing.settle_changes()
        self._plan_locked()
        self._touch_locked()

    def _plan_locked(self) -> None:
        """Plans follow in the same step. One that cannot be made puts its key into quarantine, and the rest goes on."""
        while key := self.places.next_to_settle_locked():
            with self._guarded(key):
                self.places.settle_locked(key)

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

    def _switch_places_locked(self, plans: Collection[Plan] = ()) -> None:
        is_placer = places_replicas(self._live) and self._is_leading and self._mode is Mode.ACTIVE
        self.places.switch_locked(plans, on=is_placer, forgets=self._is_leading)

    # Questions of the extender

    def knows_pod(self, uid: str, key: str) -> PodKnowledge:
        """Costs: one look-up."""
        with self._changed:
            return self._knowledge_locked(uid, key)

    def wait_for_pod(self, uid: str, key: str, timeout: float) -> PodKnowledge:
        """As `knows_pod`, waiting up to `timeout` seconds for what the store may not show yet. Costs: one look-up after
        each change; the wait is without the lock."""
        with self._changed:
            self._changed.wait_for(lambda: not self._knowledge_locked(uid, key).may_be_old, timeout)
            return self._knowledge_locked(uid, key)

    def _knowledge_locked(self, uid: str, key: str) -> PodKnowledge:
        return PodKnowledge.of(self._world.pod_by_key(key), uid, self._schedulers)

    def hold_pod(self, pod_uid: str, candidates: Sequence[str], *, adds_up: bool = False) -> FilterOutcome:
        """Which candidates have room for all the pod's volumes, and a promise on each that is offered: one step.

        A pod whose choice stands is answered with that node: what the choice is about stays as it is, and its other
        volumes are checked and held there. A retried call replaces the pod's own holds, unless answers add up, as they
        do where anybody may have asked. A call without candidates is no question. Refused pods are remembered for the
        wake-up. Raises UnknownObjectError when the pod refers to something unknown, which is to be read live before the
        next try: one watch may be ahead of another, and what is not known would need no room. Costs: a look at all that
        roams, at each candidate within the filter budget, which one search may overrun, and a promise on each node
        offered."""
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
            with self._guarded(pod.key, reraise=True):
                filtering = self._filtering_locked(now, adds_up=adds_up)
                outcome = filtering.decide(pod, demands, candidates)
            if self._refusals.take_news() or filtering.has_freed:
                self._touch_locked()
            self._journal.counters[f"decisions_{outcome.decision}"] += 1
            self._journal.counters["overcommitted"] += outcome.is_overcommitted
            self._calls += 1
            self._memory.answers.name_call(pod_uid, self._calls)
            unread = tuple(sorted({demand.unread_backup for demand in demands if demand.unread_backup}))
            return replace(outcome, serial=self._calls, version=self._version, unread_backups=unread)

    def nodes_with_room(self, pod_uid: str, candidates: Collection[str], *, adds_up: bool = False) -> Collection[str]:
        """The candidates that a filter call would let pass; the room of one that gets nominated is kept for the pod,
        including one of a former answer if answers add up. Raises as `hold_pod` does. Costs: as it, however many are
        sure."""
        with self._changed:
            if self._mode is not Mode.ACTIVE:
                return candidates
            now = self._clock.now()
            pod = self._pod_locked(pod_uid)
            demands = known_demands(pod, self._world, now)
            return self._filtering_locked(now, adds_up=adds_up).keep_candidates(pod, demands, candidates)

    def preemption_failed(self, pod_uid: str, candidates: Collection[str]) -> None:
        """We could not tell where the pod has room, and kube-scheduler does not ask again by itself. Costs: a copy of
        the candidates' names."""
        with self._changed:
            self._filtering_locked(self._clock.now()).fail_preemption(pod_uid, candidates)
            self._touch_locked()

    def score_nodes(self, pod_uid: str, candidates: Sequence[str]) -> Mapping[str, int]:
        """How good each candidate is for the pod, 0 to 10. Raises as `hold_pod` does. Costs: a look at each, within the
        filter budget."""
        with self._changed:
            if self._mode is not Mode.ACTIVE:
                return dict.fromkeys(candidates, 0)
            now = self._clock.now()
            pod = self._pod_locked(pod_uid)
            demands = known_demands(pod, self._world, now)
            return self._filtering_locked(now).score_nodes(pod, demands, candidates)

    def account_of(self, pod_uid: str, candidates: Sequence[str]) -> str:
        """Why the pod finds no room there, for a person; "" when it does by now, or is gone. Worked out on a copy that
        may be a moment old, without the lock. Costs: copying facts by kind, and promises, once a second at most."""
        with self._changed:
            pod = self._world.pods.get(pod_uid)
            if pod is None or self._mode is not Mode.ACTIVE:
                return ""
            asks, live = newcomer_of(pod, self._memory), self._live
            demands, _ = demands_of_pod(pod, self._world, self._world.settings)  # its claims may be newer than the copy
            tie = self._settler.users.tie_of(pod, demands, candidates)
        if not any(map(tie.includes, candidates)):
            return account_of_tie(tie)
        world, ledger = self._copy()
        now, now_utc = self._clock.now(), self._clock.now_utc()
        kept_on = next((node for one in kept_for(ledger, pod_uid) for node in one.nodes), "")
        judge = Judge(world, ledger, demands, now, asks, None, now_utc, live.roaming_overcommit_pct)
        return account_of(judge, pod.namespace, candidates, kept_on, allows_stranding=live.allow_stranding)

    def _copy(self) -> tuple[World, Ledger]:
        """World and ledger as they were less than `COPY_SECONDS` ago, to be asked and never changed."""
        with self._changed:
            now = self._clock.now()
            if self._copied is not None and now - self._copied_at < COPY_SECONDS:
                return self._copied
            world, promises = self._world.copy(GrantedBy(lambda: ledger)), list(self._ledger.promises())
        ledger = Ledger.of(promises)
        with self._changed:
            self._copied, self._copied_at = (world, ledger), now
        return world, ledger

    @property
    def failure(self) -> str:
        """Why no promise can be trusted any more; "" as long as they can. Only a new process mends it. Costs:
        nothing."""
        with self._changed:
            return self._failure

    def _pod_locked(self, uid: str) -> Pod:
        if self._failure:
            raise NotReadyError(self._failure)
        pod = self._world.pods.get(uid)
        if pod is None:
            raise NotFoundError(f"pod {uid} went away during its call")
        return pod

    def _filtering_locked(self, now: float, *, adds_up: bool = False) -> Filtering:
        parts = self._world, self._ledger, self._settler, self._settler.holds, self._memory, self._refusals
        return Filtering(*parts, self._live, self._clock, now, self._version, adds_up)

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
        """The answer of that call never reached the scheduler, so what it held is not offered. Idempotent; holds that
        a later call of the same pod has made stay. Costs: the pod's promises."""
        with self._changed:
            is_latest = self._memory.answers.is_of_call(pod_uid, serial)
            if is_latest and self._settler.end_holds(pod_uid, Verb.FORGET, self._clock.now(), "answer_lost"):
                self._touch_locked()

    # Time

    def due(self, later: Collection[str] = ()) -> tuple[Due, ...]:
        """What has reached its end by time, unless a last look at the API server shows more; a hundred at most, and
        last those whose claimant or volume is in `later`. Costs: a look at each answer that no choice followed, and at
        each growth."""
        with self._changed:
            return self._ends.due(self._clock.now(), self._live, later)

    def backups_to_read(self) -> list[str]:
        """Names of Backups whose size decides how large a volume becomes, and that nobody has read yet; each again
        after a while. Costs: a look at all classes if there is any."""
        with self._changed:
            return self._world.backups.to_read(self._clock.now(), self._world.classes.values())

    def expire(self, due: Due) -> None:
        """A last look showed nothing. Nothing happens to a hold that is not due. Costs: the promises of one pod, or of
        one volume."""
        with self._changed:
            now = self._clock.now()
            with self._guarded(due.volume or due.claimant):
                if self._ends.expire(due, now, self._live):
                    self._observing_locked().settle_changes()
                    self._plan_locked()
                    self._touch_locked()

    def sweep(self) -> None:
        """End what time alone ends. Call it every few hundred milliseconds. Costs: the rooms of a hundred changed nodes
        at a time; then a look at each promise that has an end by time, and all that end now."""
        while self._refresh_some():  # so that no filter call has to
            pass
        with self._changed:
            self.allocations.sweep_locked(self._clock.now(), self._live.allocation_grace_seconds)
            has_changes = self._world.has_changes  # what Longhorn believed of a disk is over
            if has_changes:
                self._observing_locked().settle_changes()
            if self._ends.sweep(self._clock.now(), self._live) or has_changes:
                self._plan_locked()
                self._touch_locked()
            if self._clock.now() - self._copied_at > _KEEP_COPY * COPY_SECONDS:
                self._copied = None

    def _refresh_some(self) -> bool:
        with self._changed:
            return self._world.refresh(_ROOMS_AT_ONCE)

    # Terms and modes

    def begin_term(self, *, has_predecessor: bool = True, plans: Collection[Plan] = ()) -> None:
        """Lead, with the `plans` that the leader before has stored: promises of the time before are derived anew, and
        every pending opted-in pod without a choice counts as held on every node, since the leader before may have
        offered it any. Pods that nobody asks us about, such as gated ones, do not count. Without a predecessor nobody
        has admitted an expansion either. Costs: all pods, claims and volumes."""
        with self._changed:
            self._is_leading = True
            with self._rebuilding_locked():
                is_unknown = self._left_growth or self.expansions.is_unknown_locked()
                self.expansions.begin_term_locked(has_predecessor=has_predecessor or is_unknown)
                self.allocations.begin_term_locked()
                self._world.refresh()
            self._derive_locked(holds_everywhere=True)
            self._switch_places_locked(plans)

    def has_unseen_growth(self) -> bool:
        """Whether an expansion was admitted in this term, or in the one that has just ended, that the cluster does not
        ask for yet. Costs: a look at each growth."""
        with self._changed:
            is_unchecked = self._mode is Mode.BYPASS or self.expansions.is_unknown_locked()
            return is_unchecked or self._left_growth or self._holds_growth_locked()

    def _holds_growth_locked(self) -> bool:
        return any(promise.state is State.HELD for promise in self._ledger.growths())

    def end_term(self) -> None:
        """Follows: nothing is offered any more; present choices are tracked. Costs: as `begin_term`."""
        with self._changed:
            self._is_leading = False
            self._switch_places_locked()
            self._refusals.clear()
            self.allocations.end_term_locked()
            self._derive_locked(holds_everywhere=False)

    def set_mode(self, mode: Mode) -> None:
        """ACTIVE derives all promises again; BYPASS and CLOSED empty the ledger. Costs: ACTIVE as `begin_term`."""
        with self._changed:
            if mode is self._mode:
                return
            if self._is_leading and mode is Mode.ACTIVE:  # until now growth went by unchecked
                self.expansions.begin_term_locked(has_predecessor=True)
            self._mode = mode
            self._world.reach.forget_records()
            self._refusals.clear()
            self._derive_locked(holds_everywhere=self._is_leading)
            self._switch_places_locked()

    def _derive_locked(self, *, holds_everywhere: bool) -> None:
        """Derives all promises again, from the facts alone."""
        with self._rebuilding_locked():
            self._derive_anew_locked(holds_everywhere=holds_everywhere)

    def _derive_anew_locked(self, *, holds_everywhere: bool) -> None:
        self._touch_locked()
        now = self._clock.now()
        self._left_growth = self._settler.growths.leave()
        if self._left_growth and self._is_leading:  # rebuilt in the midst of a term
            self.expansions.begin_term_locked(has_predecessor=True)
        self._start_ledger()
        self._world.take_changes()
        if self._mode is not Mode.ACTIVE:
            return
        self._memory.former = set(self._world.pods)
        for pod in self._world.pods.values():
            known = PodKnowledge.of(pod, pod.uid, self._schedulers)
            if holds_everywhere and pod.is_opted_in and known is PodKnowledge.PENDING:
                self._memory.inherit(pod.uid, now)
                self._refusals.presume(pod, list(self._world.nodes), now, self._clock.now_utc())
                if self._live.pod_scheduling_timeout_seconds > 0:
                    self._settler.holds.hold_everywhere(pod, now)
        self._settler.settle_all(now)
        self.places.settle_all_locked()

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
                plan = plan or WakePlan(self._refusals, self._world)
                wakeups = plan.advance(self._filtering_locked(self._clock.now()))
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
        """The rows are made of a copy, after the lock. Costs: a list of the promises, and of all claims by name."""
        with self._changed:
            now, promises, names = self._clock.now(), list(self._ledger.promises()), self._world.claim_names()
            mode, version, refused_count = self._mode, self._version, len(self._refusals)
            quarantined, counters = list(self._quarantine.keys()), dict(self._journal.counters)
            changes, over = self._world.reach.records(), self._world.overdrawn()
        return snapshot_of(
            promise_views(promises, names, now),
            mode=mode,
            version=version,
            refused_count=refused_count,
            quarantined=quarantined,
            counters=counters,
            changes=changes,
            over=over,
            now=now,
        )

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
        """A broken invariant puts `key` into quarantine and has the ledger rebuilt. After a rebuild that failed nothing
        is promised any more, and `failure` says why."""
        try:
            yield
        except Exception as error:  # fault barrier
            if isinstance(error, SchedulerError) and not isinstance(error, BugError):
                raise
            broken = error if isinstance(error, BugError) else BugError(repr(error))
            self._put_away(key, broken)
            self._derive_locked(holds_everywhere=self._is_leading)
            if reraise:
                raise broken from (None if broken is error else error)

    def _put_away(self, key: str, fault: Exception) -> None:
        """Into quarantine."""
        self._quarantine.put(key, str(fault) or repr(fault), self._clock.now())
        self._journal.counters["quarantines"] += 1

    @contextmanager
    def _rebuilding_locked(self) -> Iterator[None]:
        """A failure inside leaves a ledger of which nobody knows what is missing."""
        try:
            yield
        except Exception as error:
            self._failure = f"the ledger could not be rebuilt: {error!r}"
            raise

    def _touch_locked(self) -> None:
        self._version += 1
        self._changed.notify_all()
