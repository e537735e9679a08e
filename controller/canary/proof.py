"""Finds out whether kube-scheduler asks the extender: the findings, and the evidence for them.

A pod that requests the extender's resource is scheduled only by a kube-scheduler whose configuration names the
extender; otherwise it waits for ever. So the leader keeps one of three findings for each scheduler name. Everything
that is seen of a scheduler may change it at once:

    wired      it asked the extender about the leader's canary, or about any pod with the resource. If callers show no
               certificate, anybody may ask about such a pod, so the scheduler has to place the pod as well
    unwired    it looked for the resource on nodes, as a pod's condition shows, or it placed the canary
    unknown    nothing was seen of it yet, or it did not consider a canary

Only schedulers that exist are checked: the cluster's own one, and any other name once somebody renews its Lease, or a
pod names it. So the list may name a scheduler before it is installed, at no cost. One that was removed is not checked
any more: nobody renews its Lease, which kube-scheduler leaves behind with its holder, or it has none and is silent. But
while pods wait for it, it stays.

Evidence of both kinds may arrive out of order. Evidence against a wired scheduler therefore also sends a canary, whose
verdict corrects the finding if the evidence was out of date.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, StrEnum, auto
from typing import Any, Final

from controller.canary.pod import canary_name
from controller.clock import Clock
from controller.kube.store import Change
from controller.model.names import DEFAULT_SCHEDULER, EXTENDER_RESOURCE
from controller.model.workload import Pod

UNPROVEN_SECONDS: Final = 60.0  # between canaries while a scheduler is not known to be wired
LEAST_GAP_SECONDS: Final = 2.0  # between canaries, whatever asks for them
CREATION_SECONDS: Final = 1.0  # a filter call may overtake the answer that tells the canary's uid
MOST_DISMISSED: Final = 64  # former canaries that are remembered
MOST_ASKED: Final = 1_000  # pods that somebody asked about, until they are placed

NOT_PROVEN: Final = "not proven yet"
NOT_RENEWED: Final = "nobody renews its Lease"
ASKED_ABOUT_CANARY: Final = "it asked the extender about the canary"
ASKED_ABOUT_POD: Final = "it asked the extender about a pod"
LACKS: Final = (
    f"it looks for {EXTENDER_RESOURCE} on the nodes: its configuration does not name the extender, or does not set "
    "ignoredByScheduler for the resource"
)
PLACED: Final = (
    f"it placed a pod that requests {EXTENDER_RESOURCE} without asking the extender: a node offers that resource, "
    "another extender manages it, or this one is ignorable and could not be reached"
)


class Wiring(StrEnum):
    WIRED = "wired"
    UNWIRED = "unwired"
    UNKNOWN = "unknown"


class Outcome(StrEnum):
    """What became of a canary."""

    SEEN = "seen"  # the scheduler asked the extender about it
    LACKING = "lacking"  # the scheduler missed the resource on the nodes
    PLACED = "placed"  # the scheduler bound it
    SILENT = "silent"  # nothing of all that in time
    GONE = "gone"  # somebody else deleted it
    FAILED = "failed"  # it could not be made


# What a canary's outcome proves about its scheduler, and the cause. The other outcomes prove nothing: at most they are
# the reason why nothing is known.
SHOWS: Final = {
    Outcome.SEEN: (Wiring.WIRED, ASKED_ABOUT_CANARY),
    Outcome.LACKING: (Wiring.UNWIRED, LACKS),
    Outcome.PLACED: (Wiring.UNWIRED, PLACED),
}


class Recognition(Enum):
    """What kind of pod a filter call is about."""

    NO_CANARY = auto()
    OURS = auto()
    LATE = auto()  # a former canary, just deleted or about to be
    STRAY = auto()  # it has a canary's name, and is not the pod that this leader made


@dataclass(frozen=True, slots=True)
class Finding:
    """One scheduler's wiring; `cause` is a phrase about it for people, `at` monotonic seconds."""

    scheduler: str
    state: Wiring
    cause: str
    at: float


@dataclass(slots=True)
class _Track:
    """One scheduler name in one term. `canary_uid`: "" without a canary, None while its creation is under way."""

    finding: Finding
    is_there: bool  # the scheduler exists, as far as is known
    runs: bool = False  # it renews its Lease
    waiting: set[str] = field(default_factory=set)  # uids of pods that wait for it; not kept of the cluster's own one
    canary_uid: str | None = ""
    outcome: Outcome | None = None  # of that canary
    sent_at: float = float("-inf")
    heard_at: float = float("-inf")
    is_wanted: bool = True  # a canary should be sent as soon as possible
    failures: int = 0  # creations in a row that failed


class WiringProof:
    """The findings, and the evidence for them. Nothing is known while this process does not lead.

    Threads: any. Blocks: `recognise`, for CREATION_SECONDS at most and only for a canary's name. I/O: none.
    """

    def __init__(
        self, schedulers: Iterable[str], namespace: str, clock: Clock, pod_of: Callable[[str], Pod | None]
    ) -> None:
        """`pod_of`: the store's pod by its key."""
        self._namespace, self._clock, self._pod_of = namespace, clock, pod_of
        self._lock = threading.Condition()  # guards the fields below
        self._tracks = {name: self._new_track(name, is_there=name == DEFAULT_SCHEDULER) for name in schedulers}
        self._scheduler_of = {canary_name(scheduler): scheduler for scheduler in self._tracks}
        self._is_serving = False
        self._news: list[Finding] = []
        self._dismissed: deque[str] = deque(maxlen=MOST_DISMISSED)  # uids
        self._asked: deque[str] = deque(maxlen=MOST_ASKED)  # uids of pods that somebody asked about
        self.late_calls = 0  # read by the metrics
        self.changed = threading.Event()  # something has happened; the prover clears it

    def _new_track(self, scheduler: str, **known: Any) -> _Track:
        return _Track(Finding(scheduler, Wiring.UNKNOWN, NOT_PROVEN, self._clock.now()), **known)

    # What is known

    @property
    def schedulers(self) -> Sequence[str]:
        return tuple(self._tracks)

    def findings(self) -> list[Finding]:
        """One for each scheduler that exists; none while this process does not lead."""
        with self._lock:
            return [track.finding for track in self._tracks.values() if track.is_there and self._is_serving]

    def status(self) -> Mapping[str, Mapping[str, object]]:
        """The findings as the status page shows them, by scheduler."""
        now = self._clock.now()
        return {
            finding.scheduler: {
                "state": finding.state,
                "cause": finding.cause,
                "since_seconds": round(max(0.0, now - finding.at), 1),
            }
            for finding in self.findings()
        }

    # Evidence, from other threads

    def heard(self, scheduler: str, pod_uid: str, pod_key: str, *, is_sure: bool) -> None:
        """The scheduler asked about this pod; unless it `is_sure`, it may have been anybody else.

        It counts only if our store knows the pod, as a pod could be made up, and if the pod requests the resource: a
        configuration without `managedResources` asks about other pods, too. If it is not sure, the pod's placement
        proves that the caller was a scheduler, and one that does not look for the resource on nodes.
        """
        track = self._tracks.get(scheduler)
        if track is None or not self._is_serving:
            return
        pod = self._pod_of(pod_key)
        if pod is None or pod.uid != pod_uid or pod.scheduler_name != scheduler or not pod.is_opted_in:
            return
        track.heard_at = self._clock.now()
        if track.finding.state is not Wiring.WIRED:  # else nothing changes, and no lock is needed
            with self._lock:
                if is_sure:
                    self._find_locked(scheduler, Wiring.WIRED, ASKED_ABOUT_POD)
                elif pod_uid not in self._asked:
                    self._asked.append(pod_uid)

    def recognise(self, pod_uid: str, pod_namespace: str, pod_name: str) -> Recognition:
        """Whether a filter call is about our canary, which then has done its work. Only its uid proves it.
        kube-scheduler may already be scheduling a canary when that is deleted.

        Such a late call proves nothing: another kube-scheduler may have taken over meanwhile.
        """
        scheduler = self._canarys_scheduler(pod_namespace, pod_name)
        if scheduler is None:
            return Recognition.NO_CANARY
        with self._lock:
            if pod_uid in self._dismissed:
                self.late_calls += 1
                return Recognition.LATE
            self._lock.wait_for(lambda: self._tracks[scheduler].canary_uid is not None, CREATION_SECONDS)
            track = self._tracks[scheduler]
            if not track.canary_uid or track.canary_uid != pod_uid:
                return Recognition.STRAY
            track.heard_at = self._clock.now()
            self._end_locked(scheduler, Outcome.SEEN)
            return Recognition.OURS

    def pods_changed(self, changes: Iterable[Change[Pod]]) -> None:
        """Take evidence from pods: the fate of canaries, and other pods that lack the resource or are placed."""
        for change in changes:
            pod = change.new or change.old
            if pod is None:
                continue
            scheduler = self._canarys_scheduler(pod.namespace, pod.name)
            if scheduler is not None:
                with self._lock:
                    self._judge_locked(scheduler, pod, is_gone=change.new is None)
            elif pod.scheduler_name in self._tracks:
                if pod.scheduler_name != DEFAULT_SCHEDULER:
                    waiting = self._tracks[pod.scheduler_name].waiting
                    waiting.difference_update([change.old.uid] if change.old is not None else ())
                    waiting.update([pod.uid] if change.new is not None and pod.is_pending else ())
                if change.new is not None:
                    self._pod_seen(change.old, pod)

    def _pod_seen(self, old: Pod | None, pod: Pod) -> None:
        """Take evidence from a pod that is not a canary, and whose scheduler is checked."""
        lacked = old is not None and old.lacks_extender and old.uid == pod.uid
        lacks = pod.lacks_extender and pod.is_pending and not lacked
        may_prove = bool(pod.node_name and self._asked)
        is_new = pod.is_pending or old is None or old.is_pending
        if not lacks and not may_prove and (self._tracks[pod.scheduler_name].is_there or not is_new):
            return  # nothing changes, and no lock is needed
        with self._lock:
            track = self._tracks[pod.scheduler_name]
            track.is_there |= is_new
            if may_prove and pod.uid in self._asked:
                self._asked.remove(pod.uid)
                self._find_locked(pod.scheduler_name, Wiring.WIRED, ASKED_ABOUT_POD)
            if lacks:
                track.is_wanted |= track.finding.state is Wiring.WIRED
                self._find_locked(pod.scheduler_name, Wiring.UNWIRED, LACKS)
            self.changed.set()

    def runs(self, scheduler: str) -> None:
        """Somebody new renews its Lease: a kube-scheduler that has begun, perhaps with another configuration."""
        with self._lock:
            track = self._tracks[scheduler]
            track.is_there = track.is_wanted = track.runs = True
            self.changed.set()

    def stopped(self, scheduler: str) -> None:
        """Nobody renews its Lease any more. (Of the cluster's own one a canary tells.)"""
        if scheduler != DEFAULT_SCHEDULER:
            with self._lock:
                self._tracks[scheduler].runs = False
                self._gone_locked(scheduler, NOT_RENEWED)

    # For the prover's thread

    def begin(self) -> None:
        """This process leads from now on, and knows nothing."""
        with self._lock:
            self._is_serving = True
            for scheduler, track in self._tracks.items():
                known = {"is_there": track.is_there, "runs": track.runs, "waiting": track.waiting}
                self._tracks[scheduler] = self._new_track(scheduler, **known)
            self._news.clear()
            self._asked.clear()

    def end(self) -> None:
        with self._lock:
            self._is_serving = False

    def is_due(self, scheduler: str, every_seconds: float) -> bool:
        """Whether to send a canary now. Wired schedulers are checked every so many seconds; with 0 none is."""
        with self._lock:
            track, pause = self._tracks[scheduler], every_seconds
            if track.is_wanted:
                pause = min(UNPROVEN_SECONDS, LEAST_GAP_SECONDS * 2.0 ** min(track.failures, 10))
            elif track.finding.state is not Wiring.WIRED:
                pause = min(every_seconds, UNPROVEN_SECONDS)
            is_time = self._clock.now() >= track.sent_at + pause
            return self._is_serving and track.is_there and every_seconds > 0 and is_time

    def creating(self, scheduler: str) -> None:
        """A canary is about to be created: calls about its name wait for its uid."""
        with self._lock:
            track = self._tracks[scheduler]
            track.canary_uid, track.is_wanted, track.outcome = None, False, None
            track.sent_at = self._clock.now()

    def created(self, scheduler: str, uid: str) -> None:
        """The canary exists; what the store already shows of it counts."""
        with self._lock:
            track = self._tracks[scheduler]
            track.canary_uid, track.failures = uid, 0
            self._lock.notify_all()
        pod = self._pod_of(f"{self._namespace}/{canary_name(scheduler)}")
        if pod is not None:
            with self._lock:
                self._judge_locked(scheduler, pod)

    def not_created(self, scheduler: str, problem: str) -> None:
        """The next try comes after a pause that grows."""
        with self._lock:
            track = self._tracks[scheduler]
            track.canary_uid, track.is_wanted = "", True
            track.failures += 1
            self._lock.notify_all()
            if track.finding.state is Wiring.UNKNOWN:
                self._find_locked(scheduler, Wiring.UNKNOWN, f"the canary pod could not be created: {problem}")

    def outcome(self, scheduler: str) -> Outcome | None:
        """The outcome of the present canary; None while nothing is decided."""
        with self._lock:
            return self._tracks[scheduler].outcome

    def last_look(self, scheduler: str, pod: Pod | None, why_silent: str, *, is_answer: bool = False) -> Outcome:
        """The outcome of a canary whose time is over, by a live read; `pod` is None if there is none. A scheduler that
        asked about other pods meanwhile was merely busy. `is_answer`: `why_silent` is what the scheduler said."""
        with self._lock:
            track = self._tracks[scheduler]
            if pod is None or pod.uid != track.canary_uid:
                self._end_locked(scheduler, Outcome.GONE)
            else:
                self._judge_locked(scheduler, pod)
            if track.outcome is None:
                track.outcome = Outcome.SILENT
                if track.heard_at >= track.sent_at:
                    return track.outcome
                if is_answer or track.runs:
                    self._find_locked(scheduler, Wiring.UNKNOWN, why_silent)
                else:
                    self._gone_locked(scheduler, why_silent)
            return track.outcome

    def settled(self, scheduler: str) -> str:
        """End the present canary, which is about to be deleted. Returns its uid."""
        with self._lock:
            track = self._tracks[scheduler]
            uid, track.canary_uid, track.outcome = track.canary_uid or "", "", None
            self.dismissed(uid)
            return uid

    def dismissed(self, pod_uid: str) -> None:
        """That canary is about to be deleted: ours, or one that another leader left."""
        with self._lock:
            if pod_uid not in self._dismissed:
                self._dismissed.append(pod_uid)

    def take_news(self) -> list[Finding]:
        """Findings that are new since the last call."""
        with self._lock:
            news, self._news = self._news, []
            return news

    # Under the lock

    def _judge_locked(self, scheduler: str, pod: Pod, *, is_gone: bool = False) -> None:
        """Take evidence from the pod if it is our canary, and not another pod of that name."""
        if pod.uid != self._tracks[scheduler].canary_uid:
            return
        if pod.node_name:
            self._end_locked(scheduler, Outcome.PLACED)
        elif pod.lacks_extender:
            self._end_locked(scheduler, Outcome.LACKING)
        elif is_gone:
            self._end_locked(scheduler, Outcome.GONE)

    def _end_locked(self, scheduler: str, outcome: Outcome) -> None:
        """Note an outcome of the canary. Its first one stays; each is evidence."""
        track = self._tracks[scheduler]
        track.outcome = track.outcome or outcome
        if outcome in SHOWS:
            self._find_locked(scheduler, *SHOWS[outcome])
        self.changed.set()

    def _gone_locked(self, scheduler: str, cause: str) -> None:
        """The scheduler does not run. That is nobody's concern unless pods wait for it, or it is the cluster's own."""
        track = self._tracks[scheduler]
        if track.waiting or scheduler == DEFAULT_SCHEDULER:
            if track.finding.cause != NOT_RENEWED:  # which says more
                self._find_locked(scheduler, Wiring.UNKNOWN, cause)
            return
        track.is_there, track.is_wanted = False, True
        track.finding = Finding(scheduler, Wiring.UNKNOWN, NOT_PROVEN, self._clock.now())
        self.changed.set()

    def _find_locked(self, scheduler: str, state: Wiring, cause: str) -> None:
        """Change the finding. Its first cause stays while its state does, unless that is UNKNOWN."""
        track = self._tracks[scheduler]
        is_known = track.finding.state is state and (state is not Wiring.UNKNOWN or track.finding.cause == cause)
        if is_known or not self._is_serving:
            return
        track.finding = Finding(scheduler, state, cause, self._clock.now())
        if state is Wiring.UNWIRED:
            self._asked.clear()  # what was asked before proves nothing of what comes after
        self._news.append(track.finding)
        self.changed.set()

    def _canarys_scheduler(self, namespace: str, name: str) -> str | None:
        """The scheduler for which a canary of that name is, whoever made the pod; None if the name is no canary's."""
        return self._scheduler_of.get(name) if namespace == self._namespace else None
