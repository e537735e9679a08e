"""The allocator: everything that changes free space, behind one lock."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final

from controller.allocator.choose.explain import explain
from controller.allocator.choose.packing import Budget
from controller.allocator.choose.wanted import NothingTaken, Plus, Wanted, check_image
from controller.allocator.core import LOOK_SECONDS, AllocatorCore
from controller.allocator.outcome import (
    Decision,
    Due,
    FilterOutcome,
    Mode,
    PodKnowledge,
    PromiseView,
    SharedDisk,
    TableView,
    Unplaceable,
    Wakeup,
)
from controller.allocator.plans.beside import Beside
from controller.allocator.plans.ends import GROWTH, PLAN
from controller.allocator.plans.journal import ClaimEvent, ClaimEventKind
from controller.allocator.verbs.account import MOST_NODES, account_of, account_of_disks, account_of_limit
from controller.allocator.verbs.filter import Filtering
from controller.allocator.verbs.observe import MOVES_AT_ONCE
from controller.allocator.verbs.place import has_placed
from controller.allocator.verbs.prioritize import Strategy, score_nodes
from controller.allocator.verbs.views import rows_of, snapshot_of, sums_of
from controller.allocator.waiting.wake_plan import WakePlan
from controller.allocator.world.absences import known_demands
from controller.errors import NotFoundError
from controller.model.workload import Pod
from controller.rules.provisioning import provisioned_name

__all__ = ["Allocator", "Decision", "Due", "FilterOutcome", "Mode", "PodKnowledge", "PromiseView", "TableView"]

_ROOMS_AT_ONCE: Final = 100  # that the sweep works out before it lets others in
_ACCOUNT_MILLISECONDS: Final = 500  # after which nodes count as not evaluated
_KEEP_LOOK: Final = 10  # times that, until the memory is given back


class Allocator(AllocatorCore):
    """Answers who may have which bytes, and remembers what it answered until the cluster shows it.

    Threads: any. Blocks: only in the `wait_*` methods. I/O: none, logging included. "Costs:" tells what a method costs
    under the lock.
    """

    # Questions of the extender

    def knows_pod(self, uid: str, key: str) -> PodKnowledge:
        """What the store knows of the pod. Costs: one look-up."""
        return self.wait_for_pod(uid, key, 0)

    def wait_for_pod(self, uid: str, key: str, timeout: float) -> PodKnowledge:
        """The same, after a wait of up to `timeout` seconds for what the store may not show yet. Costs: one look-up
        after each change; the wait is without the lock."""
        with self._changed:
            self._changed.wait_for(lambda: not self._knowledge_locked(uid, key).may_be_old, timeout)
            return self._knowledge_locked(uid, key)

    def _knowledge_locked(self, uid: str, key: str) -> PodKnowledge:
        return PodKnowledge.of(self._world.pod_by_key(key), uid, self._schedulers)

    def hold_pod(self, pod_uid: str, candidates: Sequence[str], *, adds_up: bool = False) -> FilterOutcome:
        """Answer a filter call: offer candidates that have room for all the pod's volumes, and hold a disk for each
        volume on each of them, in one step.

        A pod whose choice stands is offered that node. A retried call replaces the pod's own hold, unless answers add
        up, as they do where anybody may have asked. A call without candidates is no question. Refused pods are
        remembered for the wake-up. Raises UnknownObjectError for an object to which the pod refers and that is not
        known: the caller reads it live and tries again, since what is not known would need no room. Costs: a place for
        each copy that is bound to no node, and a look at each candidate within the filter budget, which one search may
        overrun."""
        with self._changed:
            now = self._clock.now()
            if self._mode is not Mode.ACTIVE:
                return FilterOutcome(Decision.BYPASS, candidates, version=self._version)
            pod = self._pod_locked(pod_uid)
            if not candidates:
                return FilterOutcome(Decision.NOTHING_NEEDED, candidates, version=self._version)
            demands = known_demands(pod, self._world, now)
            self._quarantine.check(pod, now)
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
        """The candidates that a filter call would let pass. If one of them is nominated, its room is kept for the pod;
        also one of a former answer if answers add up. Raises as `hold_pod`. Costs: as it, however many are sure."""
        with self._changed:
            if self._mode is not Mode.ACTIVE:
                return candidates
            pod = self._pod_locked(pod_uid)
            demands = known_demands(pod, self._world, self._clock.now())
            return self._filtering_locked(adds_up=adds_up).keep_candidates(pod, demands, candidates)

    def preemption_failed(self, pod_uid: str, candidates: Collection[str]) -> None:
        """Count the pod as contended, since the preempt call failed and kube-scheduler does not ask again by itself.
        Costs: a copy of the candidates' names."""
        with self._changed:
            self._filtering_locked().fail_preemption(pod_uid, candidates)
            self._touch_locked()

    def score_nodes(self, pod_uid: str, candidates: Sequence[str]) -> Mapping[str, int]:
        """How good each candidate is for the pod, 0 to 10. Raises as `hold_pod`. Costs: a look at each, within the
        filter budget."""
        with self._changed:
            if self._mode is not Mode.ACTIVE:
                return dict.fromkeys(candidates, 0)
            now, pod = self._clock.now(), self._pod_locked(pod_uid)
            demands = known_demands(pod, self._world, now)
            budget = Budget.of(self._clock, self._live.filter_budget_milliseconds)
            strategy = Strategy(self._live.strategy)
            return score_nodes(self._world, self._table, pod_uid, demands, candidates, strategy, budget)

    def refused_on(self, pod_uid: str) -> Sequence[str]:
        """The nodes on which room would help the pod; none unless it waits, and was refused the last time that it was
        asked about. Raises BugError while it is in quarantine. Costs: a copy of the names."""
        with self._changed:
            pod, refusal = self._world.pods.get(pod_uid), self._refusals.get(pod_uid)
            if pod is not None and pod.is_pending and self._is_leading:
                self._quarantine.check(pod, self._clock.now())
            return tuple(dict.fromkeys(refusal.nodes)) if refusal is not None else ()

    def account_of(self, pod_uid: str, candidates: Sequence[str]) -> str:
        """Why the pod finds no room there, for a person; "" if it does by now, or is gone. Worked out without the lock,
        on a `look`, which may be a moment old. Costs: as `look`."""
        with self._changed:
            pod = self._world.pods.get(pod_uid)
            if pod is None or self._mode is not Mode.ACTIVE:
                return ""
            demands, _ = self._world.demands_of(pod)  # its claims may be newer than the copy
            limit = self._shared.limit_of(pod, demands)
        if not any(map(limit.includes, candidates)):
            return account_of_limit(limit)
        look = self.look()
        budget = Budget.of(self._clock, _ACCOUNT_MILLISECONDS)
        return account_of(look.room().fit(pod, demands, budget), look.table, pod, candidates)

    def lack_of(self, name: str) -> Unplaceable | None:
        """Why no disk takes that Replica, as of a moment ago; None if one does, or it needs none any more. Costs: as
        `look`, and a copy of the plans on the nodes that are told of."""
        with self._changed:
            world, replica = self._world, self._world.replicas.get(name)
            volume = world.volume(replica.volume) if replica is not None else None
            if replica is None or replica.node or volume is None:
                return None
            claim, is_first = world.claim_of_volume(volume.name), not has_placed(world, volume.name, or_failed=True)
            pods = world.pods_of_claim(claim.key) if claim is not None else ()
            own = {one.node for one in world.replicas_of(volume.name).values()}
            names = own.union(islice(world.nodes, MOST_NODES)) & world.nodes.keys()
            planned, table = self._table.places(volume.name), self._table.on_nodes(names)
        unsized = check_image(world.backing_image(volume.backing_image)) if is_first else None
        if unsized is not None:
            return Unplaceable(volume, claim, tuple(pods), is_first, {unsized.reason.value: 1}, unsized.message)
        taken = Plus(Beside(table, (volume.name,)), planned) if is_first else NothingTaken()
        world = self.look().world
        names &= world.nodes.keys()
        found = explain(Wanted(volume, replica, planned), world, taken, self._clock.now_utc(), names).found
        if found.candidates:
            return None
        reasons, text = account_of_disks(found.refusals, len(world.nodes) - len(names))
        return Unplaceable(volume, claim, tuple(pods), is_first, reasons, text)

    def _pod_locked(self, uid: str) -> Pod:
        self._is_active_locked()  # or a failure of ours would look like a pod that is gone
        pod = self._world.pods.get(uid)
        if pod is None:
            raise NotFoundError(f"pod {uid} went away during its call")
        return pod

    def _filtering_locked(self, *, adds_up: bool = False) -> Filtering:
        parts = self._room, self._settler, self._shared, self._growths, self._refusals, self._live, self._clock
        return Filtering(*parts, self._version, self._calls, adds_up)

    def end_holds(self, pod_uid: str, serial: int) -> None:
        """End what that call held, whose answer never reached the scheduler. Idempotent; what a later call of the same
        pod holds stays. Costs: the pod's hold."""
        with self._changed:
            if self._settler.answers.is_of_call(pod_uid, serial) and self._settler.end_hold(pod_uid, "answer_lost"):
                self._touch_locked()

    # Time

    def due(self, later: Collection[str] = ()) -> tuple[Due, ...]:
        """What is to end by time unless a last look at the API server shows more; a hundred at most, with those last
        whose claimant or volume is in `later`. Costs: a look at each answer that no choice followed, at each plan, and
        at each growth."""
        with self._changed:
            return self._ends.due(self._clock.now(), self._clock.now_utc(), self._live, later)

    def backups_to_read(self) -> list[str]:
        """Names of Backups that nobody has read yet and whose size decides how large a volume becomes; each comes again
        after a while. Costs: a look at all classes if there is any."""
        with self._changed:
            return self._world.backups.to_read(self._clock.now(), self._world.classes.values())

    def expire(self, due: Due) -> None:
        """End what is due, since a last look showed nothing; nothing happens to what is not due any more. Costs: the
        volumes of one pod, or one volume."""
        key = due.volume or due.claimant
        with self._changed, self._guarded(key):
            if self._expire_locked(due):
                self._context_locked().settle_changes(MOVES_AT_ONCE)
                self._touch_locked()
        self._settle_rest(key)

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
            self.record.sweep_locked(self._clock.now())
            has_changes = self._world.has_changes or self._has_rest_locked()
            if has_changes:
                self._context_locked().settle_changes(MOVES_AT_ONCE)
            if self._ends.sweep(self._clock.now()) or has_changes:
                self._touch_locked()
            if self._looked is not None and self._clock.now() - self._looked.now > _KEEP_LOOK * LOOK_SECONDS:
                self._looked = None

    def _refresh_some(self) -> bool:
        with self._changed:
            return self._world.refresh(_ROOMS_AT_ONCE) or self._room.chooser.renew()

    # Wake-up

    def wake_slices(self) -> Iterator[list[Wakeup]]:
        """Refused pods that fit now, all together, in slices; they count as woken, with a back-off each. The lock is
        free between two slices. Costs: 3 ms a slice, or one question about a pod within the filter budget; the first
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
        """Pods that wait for a scheduler and carry the extender's resource: they must never be stranded. Costs: a look
        at each pod that has volumes or carries it."""
        with self._changed:
            return [pod for pod in self._world.pods.values() if pod.is_opted_in and pod.is_pending]

    # Views

    def snapshot(self, *, with_promises: bool = True) -> TableView:
        """The table as people and metrics see it, whose `promises` are for people; they are made after the lock. Costs:
        lists of plans, holds and growths, and for promises copies of the names of claims."""
        with self._changed:
            now, now_utc, mode, refused = self._clock.now(), self._clock.now_utc(), self._mode, len(self._refusals)
            names = self._world.claim_names() if with_promises else None
            plans, holds, growths = self._table.plans(), self._table.all_holds(), self._growths.all()
            quarantined, counters = list(self._quarantine.keys()), dict(self._journal.counters)
            over, shared = self._world.overdrawn(), self._world.shared_disks()
        rows = rows_of(plans, holds, growths, names.of, now, now_utc) if names is not None else ()
        sums = sums_of(plans, holds, growths, now)
        return snapshot_of(rows, sums, mode, refused, quarantined, counters, over, shared)

    def shared_disks(self) -> tuple[SharedDisk, ...]:
        """UUIDs that several disks have. Costs: a look at the nodes of each."""
        with self._changed:
            return self._world.shared_disks()

    def drain_records(self) -> tuple[tuple[str, float, bool], ...]:
        """Durations since the last call: (name, seconds, success). Costs: a copy of them."""
        with self._changed:
            return self._journal.drain()

    def is_so(self, event: ClaimEvent) -> bool:
        """Whether what the claim's owner is to be told holds: nothing was placed, stored or grown since. Costs: a look
        at its volume's replicas."""
        with self._changed:
            claim = self._world.claims.get(f"{event.namespace}/{event.name}")
            if not self._is_leading or claim is None or claim.uid != event.uid:
                return False
            pv = self._world.pvs.get(claim.volume_name)
            name = pv.handle if pv is not None else provisioned_name(claim)
            if event.kind is ClaimEventKind.PLACE_LOST:
                return self._settler.planner.has_lost(name)
            return self._growths.is_so(event, name)

    def drain_claim_events(self) -> tuple[ClaimEvent, ...]:
        """What owners of claims are to be told, since the last call. Costs: a copy."""
        with self._changed:
            return self._journal.drain_claim_events()
