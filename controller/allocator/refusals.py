"""Pods that were refused, and which of them may be looked at again because there is room for them now, all together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from controller.allocator.ledger import Ledger, Promise
from controller.allocator.placement import Judge, Verdict
from controller.allocator.world import World
from controller.model.demand import VolumeDemand
from controller.model.workload import Pod

BACKOFF_SECONDS: Final = (0.5, 1.0, 2.0, 5.0, 10.0)


@dataclass(frozen=True, slots=True)
class Refusal:
    """The last "no" to a pod. Times in monotonic seconds."""

    pod_uid: str
    candidates: tuple[str, ...]
    first_at: float
    at: float
    is_contended: bool
    wakes: int = 0  # since the last contended refusal
    next_wake_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Wakeup:
    pod_uid: str
    namespace: str
    name: str
    wakes: int


class Refusals:
    """Refused pods by uid. Threads: none of its own; the allocator's lock guards it."""

    def __init__(self) -> None:
        self._refused: dict[str, Refusal] = {}

    def __len__(self) -> int:
        return len(self._refused)

    def get(self, pod_uid: str) -> Refusal | None:
        return self._refused.get(pod_uid)

    def refused(self, pod_uid: str, candidates: Sequence[str], is_contended: bool, now: float) -> None:
        old = self._refused.get(pod_uid)
        self._refused[pod_uid] = Refusal(
            pod_uid,
            tuple(candidates),
            first_at=now if old is None else old.first_at,
            at=now,
            is_contended=is_contended,
            wakes=0 if old is None or is_contended else old.wakes,
            next_wake_at=now if old is None or is_contended else old.next_wake_at,
        )

    def drop(self, pod_uid: str) -> None:
        self._refused.pop(pod_uid, None)

    def clear(self) -> None:
        self._refused.clear()

    def all_uids(self) -> list[str]:
        return list(self._refused)

    def next_due(self, now: float) -> float | None:
        """Seconds until the earliest back-off of a refused pod ends; None when nothing waits for time alone."""
        waits = [entry.next_wake_at - now for entry in self._refused.values() if entry.next_wake_at > now]
        return min(waits, default=None)

    def mark_woken(self, pod_uid: str, now: float) -> Refusal:
        old = self._refused[pod_uid]
        backoff = BACKOFF_SECONDS[min(old.wakes, len(BACKOFF_SECONDS) - 1)]
        woken = replace(old, wakes=old.wakes + 1, next_wake_at=now + backoff)
        self._refused[pod_uid] = woken
        return woken

    def plan(
        self,
        world: World,
        ledger: Ledger,
        demands_of: Callable[[Pod], Sequence[VolumeDemand]],
        now: float,
        is_due_remotely: Callable[[Refusal, Sequence[VolumeDemand]], bool],
    ) -> list[Wakeup]:
        """The refused pods that now fit together, by priority, then age; each is marked as woken.

        Planned as if every pod woken before took its room already, so that K pods are woken for room for K.
        """
        order = sorted(
            (world.pods[uid] for uid in self._refused if uid in world.pods),
            key=lambda pod: (-pod.priority, pod.created_utc, pod.key),
        )
        extra: dict[str, list[Promise]] = {}
        hopeless: set[tuple[object, ...]] = set()
        wakeups = []
        for pod in order:
            refusal = self._refused[pod.uid]
            demands = demands_of(pod)
            shape = (
                tuple((entry.size_bytes, entry.needs, entry.placed_nodes) for entry in demands),
                refusal.candidates,
            )
            node = None
            if shape not in hopeless:
                node = _sure_node(Judge(world, ledger, demands, now, extra), refusal.candidates, demands, ledger, extra)
            if node is None:
                hopeless.add(shape)
                if not is_due_remotely(refusal, demands):
                    continue
            else:
                extra.setdefault(node, []).extend(_as_promises(demands, node, now))
            if refusal.next_wake_at <= now:
                woken = self.mark_woken(pod.uid, now)
                wakeups.append(Wakeup(pod.uid, pod.namespace, pod.name, woken.wakes))
        return wakeups


def _sure_node(
    judge: Judge,
    candidates: Sequence[str],
    demands: Sequence[VolumeDemand],
    ledger: Ledger,
    extra: dict[str, list[Promise]],
) -> str | None:
    """The least-promised candidate that is sure; roaming volumes need room anywhere."""

    def pending(node: str) -> int:
        return ledger.pending_bytes(node) + sum(promise.size_bytes for promise in extra.get(node, ()))

    for demand in demands:
        if demand.is_roaming and not demand.placed_nodes:
            if judge.judge_cluster(demand, candidates, 1).verdict is not Verdict.SURE:
                return None
    for name in sorted(candidates, key=pending):
        if judge.judge(name).verdict is Verdict.SURE:
            return name
    return None


def _as_promises(demands: Sequence[VolumeDemand], node: str, now: float) -> list[Promise]:
    return [
        Promise(demand.key, demand.size_bytes, demand.required_bytes, demand.needs, True, now)
        for demand in demands
        if not demand.is_local or node not in demand.usable_nodes
    ]
