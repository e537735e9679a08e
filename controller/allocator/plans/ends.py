"""Which holds, plans and growths end by time.

A pod's hold ends when its answer is old and choices of pods that were answered later have shown; a plan, when its pods
have not been bound for long. The caller reads the API server once more before. Other holds carry the time of their end.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import datetime
from itertools import chain, islice
from typing import Final

from controller.allocator.outcome import Due
from controller.allocator.plans.answers import Answers
from controller.allocator.plans.growths import MOST_HELD_SECONDS, Growths
from controller.allocator.plans.journal import Journal
from controller.allocator.plans.plan import Plan
from controller.allocator.plans.table import Table
from controller.allocator.world.absences import missing_for
from controller.allocator.world.world import World
from controller.model.workload import Claim, Pod
from controller.rules.demand import Missing
from controller.settings import LiveSettings

GROWTH: Final = "growth:"  # the claimant of a `Due` about a growth
PLAN: Final = "plan:"  # the claimant of a `Due` about a plan
BIND_SECONDS: Final = 600.0  # for which kube-scheduler waits for a volume to be provisioned, before it asks again
MOST_DUE: Final = 100  # entries that are returned at a time
MOST_READS: Final = 500  # that they ask for; a pod may have hundreds of claims
MOST_GROWTHS_DUE: Final = 10  # growths among them: anybody may have many of those read


class Ends:
    """Finds what ends by time. Threads: none of its own; the allocator's lock guards it."""

    def __init__(self, world: World, table: Table, growths: Growths, answers: Answers, journal: Journal) -> None:
        self._world, self._table, self._growths = world, table, growths
        self._answers, self._journal = answers, journal

    def sweep(self, now: float) -> bool:
        """End the holds that carry their end and have reached it; return whether there were any."""
        over = [hold for hold in self._table.limited() if hold.until is not None and hold.until <= now]
        for hold in over:
            self._table.end_hold(hold.pod, hold.source)
            self._journal.counters[f"ended_{hold.source}"] += 1
        return bool(over)

    def due(self, now: float, now_utc: datetime, live: LiveSettings, later: Collection[str] = ()) -> tuple[Due, ...]:
        """Return what has reached its end by time, unless a last read of the API server shows otherwise: `MOST_DUE` at
        most, and none after `MOST_READS`; those of the claimants and volumes in `later` come last."""
        growths, found, reads = islice(self._due_growths(now, later), MOST_GROWTHS_DUE), list[Due](), 0
        for one in chain(growths, self._due_holds(now, live, later), self._due_plans(now_utc)):
            found.append(one)
            reads += len(one.reads)
            if len(found) == MOST_DUE or reads >= MOST_READS:
                break
        return tuple(found)

    def _due_holds(self, now: float, live: LiveSettings, later: Collection[str]) -> Iterator[Due]:
        """The pods that were answered and have no chosen node."""
        over = self._answers.due(now, live.pod_scheduling_timeout_seconds, live.hold_cap_seconds)
        for uid, is_capped in sorted(over, key=lambda entry: entry[0] in later) if later else over:
            yield Due(uid, "", self._reads(uid, now), is_capped)

    def _reads(self, pod_uid: str, now: float) -> tuple[tuple[str, str], ...]:
        pod, claims = self._world.pods.get(pod_uid), self._claims(pod_uid)
        reads = [("pod", pod.key)] if pod is not None else []
        reads += [("claim", claim.key) for claim in claims]
        return (*reads, *((one.kind, one.name) for one in self.unseen(pod_uid, now)))

    def _claims(self, pod_uid: str) -> list[Claim]:
        pod = self._world.pods.get(pod_uid)
        return self._world.claims_of(pod) if pod is not None else []

    def unseen(self, pod_uid: str, now: float) -> list[Missing]:
        """Return what the pod's claims name and the stores lack, unless a live read just found that it is gone."""
        return list(missing_for(self._claims(pod_uid), self._world, now))

    def _due_plans(self, now_utc: datetime) -> Iterator[Due]:
        """The plans whose pods have not been bound for long."""
        for plan in self._table.plans():
            if self.is_unbound(plan, now_utc):
                pods = [self._world.pods[uid] for uid in plan.pods if uid in self._world.pods]
                claims = self._world.claims_of_volume(plan.volume)
                reads = [*(("pod", pod.key) for pod in pods), *(("claim", claim.key) for claim in claims)]
                yield Due(PLAN, plan.volume, tuple(reads), False)

    def is_unbound(self, plan: Plan, now_utc: datetime) -> bool:
        """Whether none of the plan's pods is bound, though they should have been by now."""
        answers = (hold.since_utc for uid in plan.pods if (hold := self._table.hold(uid)) is not None)
        if any((now_utc - since).total_seconds() < BIND_SECONDS for since in chain((plan.since_utc,), answers)):
            return False
        pods: list[Pod] = [self._world.pods[uid] for uid in plan.pods if uid in self._world.pods]
        return bool(pods) and all(pod.is_pending for pod in pods)

    def is_due(self, pod_uid: str, now: float, live: LiveSettings) -> bool:
        """Whether the pod's hold may end now."""
        limits = live.pod_scheduling_timeout_seconds, live.hold_cap_seconds
        return self._answers.is_due(pod_uid, now, *limits) and not self.unseen(pod_uid, now)

    def _due_growths(self, now: float, later: Collection[str]) -> Iterator[Due]:
        """The growths that were admitted and do not show in the cluster."""
        growths = self._growths.held()
        for growth in sorted(growths, key=lambda one: one.volume in later) if later else growths:
            if growth.until is not None and now >= growth.until:
                claim = self._world.claim_of_volume(growth.volume)
                reads = (("claim", claim.key),) if claim is not None else ()
                is_capped = now >= growth.since + MOST_HELD_SECONDS
                yield Due(GROWTH, growth.volume, (*reads, ("volume", growth.volume)), is_capped)
