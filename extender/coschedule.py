"""Virtual machines beside the share-managers of their volumes.

A pod annotated `kubevirt-scheduler/co-schedule: "true"` runs where Longhorn serves its shared volumes, if they are
served anywhere: the candidates are narrowed before the allocator is asked, and that node gets the best score. Where the
volumes of one pod are served on several nodes, those that serve most of them stay. By `co-schedule-strictness` other
nodes are refused, or only scored lower; after `co-schedule-fallback-after` seconds of waiting they are not refused any
more.

A refused pod is woken once its volumes are served elsewhere, of which kube-scheduler hears nothing.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from controller.allocator.outcome import ServedPod, Wakeup
from controller.clock import Clock
from controller.model.times import utc_time
from controller.process.worker import Part, Worker
from controller.rules.reasons import Reason
from controller.settings import PREFERRED, LiveSettings
from extender import wire

LOOK_SECONDS: Final = 1.0
MOST_WAITING: Final = 10_000
BEST_SCORE: Final = 10
APART: Final = "LonghornSharedVolumesApart"
APART_TEXT: Final = (
    "The pod's shared volumes are served on several nodes ({nodes}), so it cannot run beside all of their "
    "share-managers; it goes to one that serves most of them"
)

_log = logging.getLogger(__name__)


class WhereServed(Protocol):
    def of_pod(self, pod_uid: str, namespace: str) -> ServedPod | None: ...


@dataclass(frozen=True, slots=True)
class Narrowed:
    """The candidates that are left, and why not the others. `best`: where the pod should run; empty: anywhere."""

    candidates: Sequence[str]
    refused: Mapping[str, Reason]
    best: frozenset[str] = frozenset()


class CoScheduling(Protocol):
    """Where pods may run that follow their shared volumes."""

    def narrow(self, pod: wire.PodRef, candidates: Sequence[str]) -> Narrowed: ...
    def ended(self, pod: wire.PodRef, narrowed: Narrowed, *, passed: bool) -> None: ...
    def scores(self, pod: wire.PodRef, candidates: Sequence[str]) -> Mapping[str, int] | None: ...


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A pod that was refused nodes: its names, and where its volumes were served then."""

    namespace: str
    name: str
    best: frozenset[str]
    wakes: int = 0


class CoScheduler(Part):
    """Threads: `narrow`, `scores` and `ended` from any; the rest is `worker`'s. Blocks: never. I/O: none."""

    def __init__(
        self,
        served: WhereServed,
        clock: Clock,
        live: Callable[[], LiveSettings],
        *,
        namespace: str,
        wake: Callable[[list[Wakeup]], None],
        tell: Callable[[wire.PodRef, str, str], None],
        is_leading: Callable[[], bool],
    ) -> None:
        """`namespace`: Longhorn's. `tell`: an Event about a pod, by reason and text."""
        self._served, self._clock, self._live = served, clock, live
        self._namespace, self._wake, self._tell, self._is_leading = namespace, wake, tell, is_leading
        self._lock = threading.Lock()  # guards the fields below
        self._waiting: dict[str, _Waiting] = {}  # by uid
        self._told: dict[str, str] = {}  # by uid, the last Event's text
        self.worker = Worker("co-schedule", self.run_once)

    def narrow(self, pod: wire.PodRef, candidates: Sequence[str]) -> Narrowed:
        """The candidates on which its shared volumes let the pod run, for the verbs filter and preempt. Costs a look-up
        for each of its claims."""
        served = self._served.of_pod(pod.uid, self._namespace)
        if served is None or not (best := served.best):
            return Narrowed(candidates, {})
        if len(served.volumes) > 1:
            self._tell_apart(pod, served)
        if not self._is_strict(served):
            return Narrowed(candidates, {}, best)
        refused = dict.fromkeys(candidates, Reason.SERVED_ELSEWHERE)
        left = sorted(best & refused.keys())
        for name in left:
            del refused[name]
        return Narrowed(left, refused, best)

    def _tell_apart(self, pod: wire.PodRef, served: ServedPod) -> None:
        """Has an Event say that the volumes are served on several nodes: once, until those nodes change."""
        text = APART_TEXT.format(nodes=", ".join(sorted(served.volumes)))
        with self._lock:
            if self._told.get(pod.uid) == text:
                return
            while len(self._told) >= MOST_WAITING:
                del self._told[next(iter(self._told))]
            self._told[pod.uid] = text
        self._tell(pod, APART, text)

    def _is_strict(self, served: ServedPod) -> bool:
        live = self._live()
        if live.co_schedule_strictness == PREFERRED:
            return False
        limit = live.co_schedule_fallback_after_seconds
        waited = self._clock.now_utc() - utc_time(served.created_utc)
        return not limit or waited.total_seconds() < limit

    def ended(self, pod: wire.PodRef, narrowed: Narrowed, *, passed: bool) -> None:
        """Notes how the call ended. A pod that got no node, and lost some to its shared volumes, is woken once these
        are served elsewhere."""
        with self._lock:
            old = self._waiting.pop(pod.uid, None)
            if not passed and narrowed.refused and len(self._waiting) < MOST_WAITING:
                wakes = old.wakes if old is not None else 0
                self._waiting[pod.uid] = _Waiting(pod.namespace, pod.name, narrowed.best, wakes)

    def scores(self, pod: wire.PodRef, candidates: Sequence[str]) -> Mapping[str, int] | None:
        """BEST_SCORE for the nodes where the pod should run, and 0 for the others; None for a pod that may run
        anywhere."""
        served = self._served.of_pod(pod.uid, self._namespace)
        if served is None or not (best := served.best):
            return None
        return {name: BEST_SCORE if name in best else 0 for name in candidates}

    def run_once(self) -> float:
        """Wakes the pods whose volumes are served elsewhere by now, or nowhere, and those whose fall-back time has
        come; returns the seconds until the next look."""
        with self._lock:
            waiting = dict(self._waiting)
        wakeups = []
        for uid, pod in waiting.items():
            served = self._served.of_pod(uid, self._namespace) if self._is_leading() else None
            if served is not None and served.best == pod.best and self._is_strict(served):
                continue
            with self._lock:
                self._waiting.pop(uid, None)
            if served is not None:
                wakeups.append(Wakeup(uid, pod.namespace, pod.name, pod.wakes + 1))
        if wakeups:
            _log.info("share-managers moved: %d pods are woken", len(wakeups))
            self._wake(wakeups)
        return LOOK_SECONDS
