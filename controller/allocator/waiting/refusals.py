"""Refused pods, and when each may be woken."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import chain
from sys import intern
from typing import Final

from controller.allocator.waiting.samples import NodeSets, Series
from controller.model.times import utc_time
from controller.model.workload import Pod
from controller.rules.reasons import Reason
from controller.settings import LiveSettings

BACKOFF_SECONDS: Final = (0.5, 1.0, 2.0, 5.0, 10.0)
PATIENCE_SECONDS: Final = 5.0  # that a woken pod may take until it is asked about; then it reserves no room any more
MOST_UNSEEN: Final = 100
UNSEEN_SECONDS: Final = 60.0  # longer than a watch may lag behind
_NO_REASONS: Final[Mapping[Reason, int]] = {}
MOST_LISTS: Final = 64  # different lists of candidates, before those that nobody refers to are dropped


@dataclass(frozen=True, slots=True)
class RefusedPod:
    """What is remembered of a pod's refusals. Times in monotonic seconds."""

    pod_uid: str
    candidates: tuple[str, ...]
    first_at: float
    waits_since: float  # no later than `first_at`: under an earlier leader it counts as well
    is_contended: bool = False
    is_presumed: bool = False  # the leader before us may have said it, and we have not been asked yet
    wakes: int = 0  # since the last contended refusal
    unanswered: int = 0  # wake-ups since the last filter call
    next_wake_at: float = 0.0
    woken_at: float = -math.inf
    series: Series | None = None  # where the candidates may be a sample
    unreached: frozenset[str] = frozenset()  # nodes that no question about the pod had the time to look at
    victims: tuple[str, ...] = ()  # where nobody may be evicted for the pod, since it would find no room there
    tried_at: float = -math.inf  # the last filter call
    reasons: Mapping[Reason, int] = field(default_factory=lambda: _NO_REASONS, hash=False)  # it refused so many nodes

    @property
    def nodes(self) -> Sequence[str]:
        """Nodes on which room would help the pod: those that filter refused, and that preemption may not empty."""
        return (*self.candidates, *self.victims) if self.victims else self.candidates

    def wake_due_at(self) -> float:
        """When the pod may be woken. One that was woken and not asked about since waits in kube-scheduler's queue, or
        something else keeps it: more wake-ups soon do not help."""
        return self.woken_at + BACKOFF_SECONDS[-1] if self.unanswered else self.next_wake_at

    def first_wake_at(self) -> float:
        """When the pod may be woken if the back-off starts again."""
        return min(self.next_wake_at, self.woken_at + BACKOFF_SECONDS[0])

    def is_expected(self, now: float) -> bool:
        """Whether the pod comes back from its wake-ups, so that it is asked about soon once it is woken."""
        return not self.unanswered or now < self.woken_at + PATIENCE_SECONDS


class Refusals:
    """Refused pods by uid. Threads: none of its own; the allocator's lock guards it."""

    def __init__(self) -> None:
        self._refused: dict[str, RefusedPod] = {}
        self.resting: set[str] = set()  # for want of room, and not woken since: they do not come back by themselves
        self.nodes = NodeSets()
        self._has_news = False
        self._lists: dict[tuple[str, ...], tuple[str, ...]] = {}  # equal lists of candidates are kept once
        self._unseen: dict[str, tuple[tuple[str, ...], float]] = {}  # by pod uid: victims, and since when

    def __len__(self) -> int:
        return len(self._refused)

    def get(self, pod_uid: str) -> RefusedPod | None:
        return self._refused.get(pod_uid)

    def all(self) -> dict[str, RefusedPod]:
        """Return them by uid, in a mapping of its own."""
        return self._refused.copy()

    def unreached(self, pod_uid: str) -> frozenset[str]:
        """Nodes for which no question about the pod had time so far, or, once each had its turn, those that the last
        question left out; they come first in the next one."""
        found = self._refused.get(pod_uid)
        return frozenset() if found is None else found.unreached

    def not_reached(self, pod_uid: str, names: Collection[str]) -> None:
        old = self._refused.get(pod_uid)
        if old is not None and (names or old.unreached):
            left = old.unreached.intersection(names) or frozenset(map(intern, names))
            self._put(replace(old, unreached=left))

    def _put(self, entry: RefusedPod) -> None:
        self._refused[entry.pod_uid] = entry
        (self.resting.discard if entry.is_contended or entry.unanswered else self.resting.add)(entry.pod_uid)

    def refused(
        self,
        pod_uid: str,
        candidates: Sequence[str],
        is_contended: bool,
        now: float,
        *,
        is_sample: bool = False,
        reasons: Mapping[Reason, int] = _NO_REASONS,
    ) -> RefusedPod:
        """Remember that filter refused the pod; what is remembered then. `is_sample`: there may be more candidates.
        `reasons`: how many it refused for what."""
        old = self._refused.get(pod_uid) or RefusedPod(pod_uid, (), now, waits_since=now)
        entry = RefusedPod(
            pod_uid,
            self._shared(candidates),
            old.first_at,
            old.waits_since,
            is_contended,
            wakes=0 if is_contended else old.wakes,
            next_wake_at=old.first_wake_at() if is_contended else old.next_wake_at,
            woken_at=old.woken_at,
            unreached=old.unreached,
            tried_at=now if reasons else old.tried_at,
            reasons=reasons or old.reasons,
        )
        if is_sample:
            series = (old.series or Series()).shown(self.nodes.of(entry.candidates), by_wake=old.unanswered > 0)
            entry = replace(entry, series=series, next_wake_at=now if series.is_fresh else entry.next_wake_at)
            self._has_news = True
        self._put(entry)
        return entry

    def refused_preemption(
        self, pod_uid: str, victims: Sequence[str], now: float, *, is_contended: bool = True
    ) -> None:
        """Remember that nobody may be evicted on these nodes for the pod. What filter refused stays as it is:
        kube-scheduler asks about nodes without enough CPU or memory after the others, in the same attempt."""
        old = self._refused.get(pod_uid)
        if old is None or old.is_presumed or not old.candidates:  # filter was not asked: this is the whole refusal
            self.refused(pod_uid, (), is_contended, now)
        elif is_contended:
            self._put(replace(old, is_contended=True, next_wake_at=old.first_wake_at()))
        self.preempts(pod_uid, victims)

    def preempts(self, pod_uid: str, victims: Sequence[str]) -> None:
        """Remember the nodes on which preemption would not help a pod that filter refused; it may go on elsewhere."""
        old = self._refused.get(pod_uid)
        if old is not None:
            self._put(replace(old, victims=self._shared(victims)))

    def presume(self, pod: Pod, candidates: Sequence[str], now: float, now_utc: datetime) -> None:
        """Count the pod as refused until it is asked about: the leader before may have refused it, and then it sleeps
        until it is woken. It has waited for as long as its own condition says. Nothing changes for a pod that we have
        refused."""
        if pod.uid not in self._refused:
            since = _moment(pod.unschedulable_since_utc, now, now_utc)
            names = self._shared(candidates)
            entry = RefusedPod(pod.uid, names, now, since, is_contended=True, is_presumed=True)
            self._put(entry)

    def take_news(self) -> bool:
        """Whether a pod was refused since the last call for which nodes that it was not shown may have room."""
        news, self._has_news = self._has_news, False
        return news

    def end_series(self, pod_uid: str) -> None:
        """End the pod's series of attempts: no node has room for it."""
        old = self._refused.get(pod_uid)
        if old is not None and old.series is not None:
            self._put(replace(old, series=old.series.over()))

    def _shared(self, candidates: Sequence[str]) -> tuple[str, ...]:
        """The candidates as the tuple, of interned names, that all pods with the same candidates share."""
        names = tuple(candidates)
        if names not in self._lists:
            if len(self._lists) >= MOST_LISTS:
                entries = self._refused.values()
                self._lists = {names: names for entry in entries for names in (entry.candidates, entry.victims)}
            self._lists[names] = tuple(map(intern, names))
        return self._lists[names]

    def expect(self, pod_uid: str, victims: Sequence[str], now: float) -> None:
        """Do as `refused_preemption`, contended, for a pod that our stores do not show, as soon as they do."""
        self._unseen[pod_uid] = (tuple(victims), now)
        fresh = [entry for entry in self._unseen.items() if now < entry[1][1] + UNSEEN_SECONDS]
        self._unseen = dict(fresh[-MOST_UNSEEN:])

    def see(self, pod: Pod) -> None:
        """Take note of the pod as it is now."""
        unseen = self._unseen.pop(pod.uid, None)
        if not pod.is_pending:
            self.drop(pod.uid)
            return
        if unseen is not None:
            self.refused_preemption(pod.uid, *unseen)

    def drop(self, pod_uid: str) -> None:
        self._refused.pop(pod_uid, None)
        self.resting.discard(pod_uid)
        if not self._refused:
            self._forget_names()

    def clear(self) -> None:
        self._refused.clear()
        self.resting.clear()
        self._unseen.clear()
        self._forget_names()

    def _forget_names(self) -> None:
        self._lists.clear()
        self.nodes.clear()

    def all_uids(self) -> list[str]:
        return list(self._refused)

    def next_due(self, now: float, live: LiveSettings) -> float | None:
        """Seconds until a back-off ends, or other rules hold for a pod that was refused for so long; None if nothing
        waits for time alone."""
        remote, starving = (
            seconds or math.inf for seconds in (live.remote_fallback_after_seconds, live.starvation_after_seconds)
        )
        dues = chain.from_iterable(
            (entry.wake_due_at(), entry.first_at + remote, entry.waits_since + starving)
            for entry in self._refused.values()
        )
        return min((due - now for due in dues if now < due < math.inf), default=None)

    def mark_woken(self, pod_uid: str, now: float) -> RefusedPod:
        old = self._refused[pod_uid]
        backoff = BACKOFF_SECONDS[min(old.wakes, len(BACKOFF_SECONDS) - 1)]
        woken = replace(
            old, wakes=old.wakes + 1, unanswered=old.unanswered + 1, next_wake_at=now + backoff, woken_at=now
        )
        self._put(woken)
        return woken


def _moment(text: str, now: float, now_utc: datetime) -> float:
    """That time on the clock that shows `now`: `now` itself if the text tells no time or a future one."""
    try:
        return now - max(0.0, (now_utc - utc_time(text)).total_seconds())
    except ValueError:
        return now
