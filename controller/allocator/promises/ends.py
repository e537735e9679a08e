"""When a promise expires.

A hold ends when its pod was answered long ago and choices of pods answered later have been seen; whoever asks looks at
the API server once more before. An assumption ends some time after Longhorn had its chance to place the volume. What is
kept for a pod carries its end.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from itertools import chain, islice
from typing import Final

from controller.allocator.outcome import Due
from controller.allocator.promises.claims import CLAIM
from controller.allocator.promises.growths import GROWTH, MOST_HELD_SECONDS
from controller.allocator.promises.journal import Journal
from controller.allocator.promises.ledger import Ledger
from controller.allocator.promises.memory import Memory
from controller.allocator.promises.promise import Kind, Promise, Source, State, Verb
from controller.allocator.promises.settle import Settler
from controller.allocator.world.absences import missing_for
from controller.allocator.world.world import World
from controller.model.workload import Claim
from controller.rules.demand import Missing
from controller.settings import LiveSettings

OWN_SECONDS: Final = 90.0  # that Longhorn has for copies of its own; a manager that is dead must not close a cluster
MOST_DUE: Final = 100  # that are told at a time
MOST_GROWTHS_DUE: Final = 10  # among them: strangers may have many read
ALONE_SECONDS: Final = 60.0  # that a claim without a pod is waited for until its volume shows


def ends_at(promise: Promise, reservation_seconds: float) -> float:
    """When time ends it without a further look; never (infinity) while only events do."""
    if promise.kind is Kind.GROWTH:
        return math.inf  # what was admitted ends after a look at the API server
    until = math.inf if promise.until is None else promise.until
    if promise.state is not State.ASSUMED or promise.chance_at is None:
        return until
    if promise.source is Source.LONGHORN or promise.kind is Kind.ROAMING:
        seconds = OWN_SECONDS
    else:
        seconds = ALONE_SECONDS if promise.claimant == CLAIM else reservation_seconds
    return min(until, promise.chance_at + seconds)


class Ends:
    """Threads: none of its own; the allocator's lock guards it."""

    def __init__(self, world: World, ledger: Ledger, memory: Memory, settler: Settler, journal: Journal) -> None:
        self._world, self._ledger, self._memory = world, ledger, memory
        self._settler, self._journal = settler, journal

    def sweep(self, now: float, live: LiveSettings) -> bool:
        """End what needs no further look; whether there was anything."""
        seconds = live.node_reservation_timeout_seconds
        over = [promise for promise in self._ledger.timed() if ends_at(promise, seconds) <= now]
        for promise in over:
            if promise.state is State.ASSUMED:
                self._settler.expire(promise, now)
                is_own = promise.source is Source.LONGHORN
                self._journal.counters["longhorn_copies_given_up" if is_own else "assumptions_expired"] += 1
                continue
            self._ledger.drop(Verb.EXPIRE, promise.volume, promise.claimant)
            self._journal.counters[f"ended_{promise.source}"] += 1
        inherited = self._memory.end_inherited(now)
        for uid in inherited:
            pod = self._world.pods.get(uid)
            if pod is not None:
                self._settler.settle_own(pod, now)  # its claims' nodes are their owner's word from now on
        has_turned = self._memory.turns.sweep(now)
        return bool(over or inherited) or has_turned

    def due(self, now: float, live: LiveSettings, later: Collection[str] = ()) -> tuple[Due, ...]:
        """What has reached its end by time, unless a last look at the API server shows more: `MOST_DUE` at a time,
        those of the claimants and volumes named in `later` last."""
        growths = islice(self._due_growths(now, later), MOST_GROWTHS_DUE)
        return tuple(islice(chain(growths, self._due_holds(now, live, later)), MOST_DUE))

    def _due_holds(self, now: float, live: LiveSettings, later: Collection[str]) -> Iterator[Due]:
        """Pods that were answered and not chosen."""
        answers = self._memory.answers
        over = answers.due(now, live.pod_scheduling_timeout_seconds, live.hold_cap_seconds)
        for uid, is_capped in sorted(over, key=lambda entry: entry[0] in later) if later else over:
            pod = self._world.pods.get(uid)
            reads = [("pod", pod.key)] if pod is not None else []
            for claim in self._claims(uid):
                reads.append(("claim", claim.key))
                demand = self._world.demand_of(claim.uid) if pod is None or pod.is_over else None
                if demand is not None and demand.exists:  # it may be up by now, and that may not be seen yet
                    reads.append(("volume", demand.volume))
            reads += [(one.kind, one.name) for one in self._unseen(uid, now)]
            yield Due(uid, "", tuple(reads), is_capped)

    def _claims(self, claimant: str) -> list[Claim]:
        claims = (self._world.claim_by_uid(one.volume) for one in self._ledger.of_claimant(claimant))
        return [claim for claim in claims if claim is not None]

    def _unseen(self, claimant: str, now: float) -> list[Missing]:
        """What the claims name and our stores lack, unless a live read just said that it is not there."""
        return list(missing_for(self._claims(claimant), self._world, now))

    def _due_growths(self, now: float, later: Collection[str]) -> Iterator[Due]:
        """Expansions that the cluster has not asked for since they were admitted."""
        growths = self._ledger.growths()
        for promise in sorted(growths, key=lambda one: one.volume in later) if later else growths:
            if promise.until is not None and now >= promise.until:
                claim = self._world.claim_of_volume(promise.volume)
                reads = (("claim", claim.key),) if claim is not None else ()
                is_capped = now >= promise.since + MOST_HELD_SECONDS
                yield Due(GROWTH, promise.volume, (*reads, ("volume", promise.volume)), is_capped)

    def expire(self, due: Due, now: float, live: LiveSettings) -> bool:
        """A last look showed nothing; whether anything has ended. Nothing happens to a hold that is not due."""
        if due.claimant == GROWTH:
            if not self._settler.growths.look(due.volume, now):
                return False
            self._journal.counters["expansions_expired"] += 1
            self._settler.settle_growth(due.volume, now, ends_hold=True)
            return True
        limits = live.pod_scheduling_timeout_seconds, live.hold_cap_seconds
        if not self._memory.answers.is_due(due.claimant, now, *limits):
            return False
        if self._unseen(due.claimant, now):
            return False  # a claim was bound that way; next time that is read as well
        pod = self._world.pods.get(due.claimant)
        is_believed = self._memory.believe_again(due.claimant)
        if is_believed and pod is not None:
            self._settler.settle_pod(pod, now)  # narrows what is held to a choice that stands after all
        has_ended = self._settler.end_holds(due.claimant, Verb.EXPIRE, now, "expired")
        if has_ended and pod is not None:
            self._settler.settle_pod(pod, now)  # a choice that the hold was not narrowed by may stand all the same
        return has_ended or is_believed
