"""Pods that were refused, and which of them may be looked at again because there is room for them now, all together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from sys import intern
from typing import Final, Protocol

from controller.allocator.keeping import Keeping
from controller.allocator.ledger import Ledger, Promise
from controller.allocator.placement import Judge, Verdict
from controller.allocator.world import World
from controller.clock import Clock
from controller.model.demand import VolumeDemand
from controller.model.workload import Pod
from controller.settings import LiveSettings

BACKOFF_SECONDS: Final = (0.5, 1.0, 2.0, 5.0, 10.0)
PLAN_SECONDS: Final = 0.05  # under the allocator's lock
MOST_LISTS: Final = 64  # different lists of candidates, before those that nobody refers to are dropped
PATIENT_WAKES: Final = 2  # wake-ups without a filter call after which a pod reserves no room any more


@dataclass(frozen=True, slots=True)
class Refusal:
    """The last "no" to a pod. Times in monotonic seconds."""

    pod_uid: str
    candidates: tuple[str, ...]
    first_at: float
    at: float
    is_contended: bool
    wakes: int = 0  # since the last contended refusal
    unanswered: int = 0  # wake-ups since the last filter call
    next_wake_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Wakeup:
    pod_uid: str
    namespace: str
    name: str
    wakes: int


class PlanView(Protocol):
    """The state that a plan is made on, and the rules that a filter call would apply."""

    @property
    def world(self) -> World: ...
    @property
    def ledger(self) -> Ledger: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def now(self) -> float: ...
    @property
    def live(self) -> LiveSettings: ...
    def is_due_remotely(self, refusal: Refusal, demands: Sequence[VolumeDemand]) -> bool: ...


class Refusals:
    """Refused pods by uid. Threads: none of its own; the allocator's lock guards it."""

    def __init__(self) -> None:
        self._refused: dict[str, Refusal] = {}
        self.keeping = Keeping()
        self._lists: dict[tuple[str, ...], tuple[str, ...]] = {}  # equal lists of candidates are kept once

    def __len__(self) -> int:
        return len(self._refused)

    def get(self, pod_uid: str) -> Refusal | None:
        return self._refused.get(pod_uid)

    def refused(self, pod_uid: str, candidates: Sequence[str], is_contended: bool, now: float) -> None:
        old = self._refused.get(pod_uid)
        self._refused[pod_uid] = Refusal(
            pod_uid,
            self._shared(candidates),
            first_at=now if old is None else old.first_at,
            at=now,
            is_contended=is_contended,
            wakes=0 if old is None or is_contended else old.wakes,
            next_wake_at=now if old is None or is_contended else old.next_wake_at,
        )

    def _shared(self, candidates: Sequence[str]) -> tuple[str, ...]:
        """The candidates as one tuple for all pods that are asked about the same nodes, of names that exist once."""
        names = tuple(candidates)
        found = self._lists.get(names)
        if found is None:
            if len(self._lists) >= MOST_LISTS:
                self._lists = {entry.candidates: entry.candidates for entry in self._refused.values()}
            found = tuple(map(intern, names))
            self._lists[found] = found
        return found

    def drop(self, pod_uid: str) -> None:
        self._refused.pop(pod_uid, None)
        self.keeping.release(pod_uid)
        if not self._refused:
            self._lists.clear()

    def clear(self) -> None:
        self._refused.clear()
        self.keeping.clear()
        self._lists.clear()

    def all_uids(self) -> list[str]:
        return list(self._refused)

    def next_due(self, now: float) -> float | None:
        """Seconds until the earliest back-off of a refused pod ends; None when nothing waits for time alone."""
        waits = [entry.next_wake_at - now for entry in self._refused.values() if entry.next_wake_at > now]
        return min(waits, default=None)

    def mark_woken(self, pod_uid: str, now: float) -> Refusal:
        old = self._refused[pod_uid]
        backoff = BACKOFF_SECONDS[min(old.wakes, len(BACKOFF_SECONDS) - 1)]
        woken = replace(old, wakes=old.wakes + 1, unanswered=old.unanswered + 1, next_wake_at=now + backoff)
        self._refused[pod_uid] = woken
        return woken

    def plan(self, view: PlanView, demands_of: Callable[[Pod], Sequence[VolumeDemand]]) -> list[Wakeup]:
        """The refused pods that now fit together, by priority, then age; each is marked as woken.

        Planned as if every pod woken before took its room already, so that K pods are woken for room for K. A pod
        that was woken and does not come back (something else keeps it now) stops reserving room. Bounded by
        PLAN_SECONDS: what is not reached waits for the next round.
        """
        world, now = view.world, view.now
        order = sorted(
            (world.pods[uid] for uid in self._refused if uid in world.pods),
            key=lambda pod: (-pod.priority, pod.created_utc, pod.key),
        )
        extra: dict[str, list[Promise]] = {}
        hopeless: set[tuple[object, ...]] = set()
        wakeups = []
        starving = []
        for pod in order:
            if view.clock.now() > now + PLAN_SECONDS:
                break
            refusal = self._refused[pod.uid]
            demands = demands_of(pod)
            shape = (
                tuple((entry.size_bytes, entry.needs, entry.placed_nodes) for entry in demands),
                refusal.candidates,
            )
            judge = Judge(view.world, view.ledger, demands, view.now, extra, now_utc=view.clock.now_utc())
            node = None if shape in hopeless else self._sure_node(view, judge, pod, refusal.candidates, extra)
            comes_back = node is None or refusal.unanswered < PATIENT_WAKES
            if comes_back and self._is_starving(view, refusal, demands):
                starving.append((pod, judge, refusal.candidates))
            if node is None:
                hopeless.add(shape)
                if not view.is_due_remotely(refusal, demands):
                    continue
            elif refusal.unanswered < PATIENT_WAKES:
                extra.setdefault(node, []).extend(_as_promises(demands, node, now))
            if refusal.next_wake_at <= now:
                woken = self.mark_woken(pod.uid, now)
                wakeups.append(Wakeup(pod.uid, pod.namespace, pod.name, woken.wakes))
        self.keeping.renew(starving, view.ledger)
        return wakeups

    def _is_starving(self, view: PlanView, refusal: Refusal, demands: Sequence[VolumeDemand]) -> bool:
        after = view.live.starvation_after_seconds
        is_local = any(demand.is_local for demand in demands)
        return is_local and 0 < after <= view.now - refusal.first_at and not view.is_due_remotely(refusal, demands)

    def _sure_node(
        self,
        view: PlanView,
        judge: Judge,
        pod: Pod,
        candidates: Sequence[str],
        extra: dict[str, list[Promise]],
    ) -> str | None:
        """The least-promised candidate that is sure, if roaming volumes find room in the cluster."""
        found, _ = judge.open_among(candidates)
        kept = self.keeping.against(pod)

        def pending(node: str) -> int:
            return view.ledger.pending_bytes(node) + sum(promise.size_bytes for promise in extra.get(node, ()))

        for name in sorted(found, key=pending):
            if judge.judge(name).verdict is Verdict.SURE and (name not in kept or not judge.wanted_on(name)):
                return name
        return None


def _as_promises(demands: Sequence[VolumeDemand], node: str, now: float) -> list[Promise]:
    return [
        Promise(demand.key, demand.size_bytes, demand.required_bytes, demand.needs, True, now)
        for demand in demands
        if not demand.is_local or node not in demand.home_nodes
    ]
