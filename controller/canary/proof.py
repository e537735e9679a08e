"""Whether kube-scheduler asks the extender: what is known, and by which evidence.

A pod that requests the extender's resource is scheduled only by a kube-scheduler whose configuration names the
extender; otherwise it waits for ever. So the leader keeps one of three findings for each scheduler name. Everything
that is seen of a scheduler may change it at once:

    wired      it asked the extender: about the leader's canary, or about anybody's pod with the resource. Where
               callers show no certificate, anybody may ask about such a pod, so it has to place the pod as well
    unwired    it looked for the resource on nodes, which the condition of a pod tells, or it placed the canary
    unknown    nothing was seen of it yet, or it did not look at a canary

Only schedulers that exist are checked: the cluster's own one, and any other name once its Lease, or a pod that names
it, has been seen. So the list may name a scheduler before it is installed, at no cost.

Evidence of both kinds may arrive out of order. Evidence against a wired scheduler therefore also sends a canary, whose
verdict corrects the finding if the evidence was out of date.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from typing import Final

from controller.clock import Clock
from controller.kube.store import Change
from controller.model.names import DEFAULT_SCHEDULER, EXTENDER_RESOURCE
from controller.model.workload import Pod

DEFAULT_LEASE: Final = "kube-system/kube-scheduler"
UNPROVEN_SECONDS: Final = 60.0  # between canaries while a scheduler is not known to be wired
LEAST_GAP_SECONDS: Final = 2.0  # between canaries, whatever asks for them
CREATION_SECONDS: Final = 1.0  # a filter call may overtake the answer that tells the canary's uid
MOST_DISMISSED: Final = 64  # canaries that are remembered after their end
MOST_ASKED: Final = 1_000  # pods that are remembered until they are placed

NOT_PROVEN: Final = "not proven yet"
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


class Outcome(Enum):
    """What became of a canary."""

    SEEN = auto()  # the scheduler asked the extender about it
    LACKING = auto()  # the scheduler missed the resource on the nodes
    PLACED = auto()  # the scheduler bound it
    SILENT = auto()  # nothing of all that in time
    GONE = auto()  # somebody else deleted it
    FAILED = auto()  # it could not be made


class Recognition(Enum):
    """What kind of pod a filter call is about."""

    NO_CANARY = auto()
    OURS = auto()
    LATE = auto()  # one that has done its work: deleted just now, or about to be
    STRAY = auto()  # a canary's name, and not the pod that this leader made


@dataclass(frozen=True, slots=True)
class Finding:
    """One scheduler's wiring; `cause` is a phrase about it for people, `at` monotonic seconds."""

    scheduler: str
    state: Wiring
    cause: str
    at: float


@dataclass(slots=True)
class _Track:
    """One scheduler name. `canary_uid` "" while there is no canary, or while its creation is under way."""

    canary_name: str
    finding: Finding
    is_there: bool  # its Lease was seen, or a pod that names it
    canary_uid: str = ""
    is_creating: bool = False
    outcome: Outcome | None = None
    sent_at: float = float("-inf")
    is_wanted: bool = True  # a canary is, as soon as may be
    failures: int = 0  # creations in a row that failed
    heard_at: float = float("-inf")


class WiringProof:
    """The findings, and the evidence for them. Nothing is known while this process does not lead.

    Threads: any. Blocks: `recognise`, for CREATION_SECONDS at most and only for a canary's name; `wait`. I/O: none.
    """

    def __init__(
        self,
        canary_names: Mapping[str, str],
        namespace: str,
        clock: Clock,
        pod_of: Callable[[str], Pod | None],
    ) -> None:
        """`canary_names`: scheduler name -> the name of its canary. `pod_of`: the store's pod by its key."""
        self._namespace, self._clock, self._pod_of = namespace, clock, pod_of
        self._changed = threading.Condition()  # guards the fields below
        self._tracks = {
            scheduler: _Track(
                name, Finding(scheduler, Wiring.UNKNOWN, NOT_PROVEN, clock.now()), scheduler == DEFAULT_SCHEDULER
            )
            for scheduler, name in canary_names.items()
        }
        self._scheduler_of = {name: scheduler for scheduler, name in canary_names.items()}
        self._is_serving = False
        self._version = 0
        self._news: list[Finding] = []
        self._dismissed: deque[str] = deque(maxlen=MOST_DISMISSED)  # uids
        self._asked: deque[str] = deque(maxlen=MOST_ASKED)  # uids of pods that somebody asked about
        self.late_calls = 0  # read by the metrics

    # What is known

    def state(self, scheduler: str = DEFAULT_SCHEDULER) -> Wiring:
        """UNKNOWN for a scheduler that is not checked, and while this process does not lead."""
        with self._changed:
            track = self._tracks.get(scheduler)
            return track.finding.state if track is not None and self._is_serving else Wiring.UNKNOWN

    def findings(self) -> list[Finding]:
        """One for each scheduler that exists; none while this process does not lead."""
        with self._changed:
            return [track.finding for track in self._tracks.values() if track.is_there and self._is_serving]

    @property
    def schedulers(self) -> Sequence[str]:
        return tuple(self._tracks)

    def canary_name(self, scheduler: str) -> str:
        return self._tracks[scheduler].canary_name

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
            with self._changed:
                if is_sure:
                    self._find_locked(track, Wiring.WIRED, ASKED_ABOUT_POD)
                elif pod_uid not in self._asked:
                    self._asked.append(pod_uid)

    def recognise(self, pod_uid: str, pod_namespace: str, pod_name: str) -> Recognition:
        """Whether a filter call is about our canary, which then has done its work. Only its uid proves it.
        kube-scheduler may already be scheduling a canary when that is deleted.

        Such a late call proves nothing: another kube-scheduler may have taken over meanwhile.
        """
        scheduler = self._scheduler_of.get(pod_name) if pod_namespace == self._namespace else None
        if scheduler is None:
            return Recognition.NO_CANARY
        track = self._tracks[scheduler]
        with self._changed:
            if pod_uid in self._dismissed:
                self.late_calls += 1
                return Recognition.LATE
            self._changed.wait_for(lambda: not track.is_creating, CREATION_SECONDS)
            if not track.canary_uid or track.canary_uid != pod_uid:
                return Recognition.STRAY
            track.heard_at = self._clock.now()
            self._end_locked(track, Outcome.SEEN)
            self._find_locked(track, Wiring.WIRED, ASKED_ABOUT_CANARY)
            return Recognition.OURS

    def pods_changed(self, changes: Iterable[Change[Pod]]) -> None:
        """Takes canaries that were judged, and real pods that now lack the resource."""
        for change in changes:
            pod = change.new or change.old
            if pod is None:
                continue
            if pod.namespace == self._namespace and pod.name in self._scheduler_of:
                self._canary_changed(self._tracks[self._scheduler_of[pod.name]], pod, is_gone=change.new is None)
            elif change.new is not None and change.new.scheduler_name in self._tracks:
                self._pod_seen(change.new)
                if change.new.node_name and change.new.uid in self._asked:
                    self._pod_placed(change.new)
                if change.new.lacks_extender and change.new.is_pending:
                    if change.old is None or not change.old.lacks_extender or change.old.uid != change.new.uid:
                        self._pod_lacks(change.new)

    def _pod_seen(self, pod: Pod) -> None:
        track = self._tracks[pod.scheduler_name]
        if not track.is_there:  # else nothing changes, and no lock is needed
            with self._changed:
                track.is_there = True
                self._tell_locked()

    def _pod_placed(self, pod: Pod) -> None:
        with self._changed:
            if pod.uid in self._asked:
                self._asked.remove(pod.uid)
                self._find_locked(self._tracks[pod.scheduler_name], Wiring.WIRED, ASKED_ABOUT_POD)

    def _pod_lacks(self, pod: Pod) -> None:
        track = self._tracks[pod.scheduler_name]
        with self._changed:
            track.is_wanted = track.is_wanted or track.finding.state is Wiring.WIRED
            self._find_locked(track, Wiring.UNWIRED, LACKS)

    def _canary_changed(self, track: _Track, pod: Pod, *, is_gone: bool) -> None:
        with self._changed:
            if pod.uid == track.canary_uid:
                self._judge_locked(track, pod, is_gone=is_gone)

    def _judge_locked(self, track: _Track, pod: Pod, *, is_gone: bool) -> None:
        if pod.node_name:
            self._end_locked(track, Outcome.PLACED)
            self._find_locked(track, Wiring.UNWIRED, PLACED)
        elif pod.lacks_extender:
            self._end_locked(track, Outcome.LACKING)
            self._find_locked(track, Wiring.UNWIRED, LACKS)
        elif is_gone:
            self._end_locked(track, Outcome.GONE)

    def leases_changed(self, changes: Iterable[Change[str]]) -> None:
        """Another kube-scheduler is active, perhaps with another configuration."""
        for change in changes:
            if change.new is None:
                continue
            for scheduler, track in self._tracks.items():
                if change.key == lease_of(scheduler, self._namespace):
                    with self._changed:
                        track.is_there = track.is_wanted = True
                        self._tell_locked()

    # For the prover's thread

    def begin(self) -> None:
        """This process leads from now on, and knows nothing."""
        with self._changed:
            self._is_serving = True
            for scheduler, track in self._tracks.items():
                track.finding = Finding(scheduler, Wiring.UNKNOWN, NOT_PROVEN, self._clock.now())
                track.canary_uid, track.outcome, track.is_creating, track.is_wanted = "", None, False, True
                track.sent_at = track.heard_at = float("-inf")
                track.failures = 0
            self._news.clear()
            self._asked.clear()
            self._tell_locked()

    def end(self) -> None:
        with self._changed:
            self._is_serving = False
            self._tell_locked()

    def is_due(self, scheduler: str, every_seconds: float) -> bool:
        """Whether to send a canary now; a proven scheduler is checked again after `every_seconds`."""
        with self._changed:
            track, now = self._tracks[scheduler], self._clock.now()
            if track.finding.state is not Wiring.WIRED:
                every_seconds = min(every_seconds, UNPROVEN_SECONDS)
            if track.is_wanted:
                every_seconds = min(UNPROVEN_SECONDS, LEAST_GAP_SECONDS * 2.0 ** min(track.failures, 10))
            return self._is_serving and track.is_there and now >= track.sent_at + every_seconds

    def creating(self, scheduler: str) -> None:
        """A canary is about to be made: calls about its name wait for its uid."""
        with self._changed:
            track = self._tracks[scheduler]
            track.is_creating, track.is_wanted, track.outcome = True, False, None
            track.sent_at = self._clock.now()

    def created(self, scheduler: str, uid: str) -> None:
        """The canary exists; what the store has heard of it already counts."""
        with self._changed:
            track = self._tracks[scheduler]
            track.is_creating, track.canary_uid, track.failures = False, uid, 0
            self._tell_locked()
        pod = self._pod_of(f"{self._namespace}/{track.canary_name}")
        if pod is not None:
            self._canary_changed(track, pod, is_gone=False)

    def not_created(self, scheduler: str, problem: str) -> None:
        """The next try comes after a pause that grows."""
        with self._changed:
            track = self._tracks[scheduler]
            track.is_creating, track.is_wanted = False, True
            track.failures += 1
            if track.finding.state is Wiring.UNKNOWN:
                self._find_locked(track, Wiring.UNKNOWN, f"the canary pod could not be created: {problem}")
            self._tell_locked()

    def outcome(self, scheduler: str) -> Outcome | None:
        """The outcome of the present canary; None while nothing is decided."""
        with self._changed:
            return self._tracks[scheduler].outcome

    def looked_at(self, scheduler: str, pod: Pod | None) -> Outcome | None:
        """What a live read of the canary shows; `pod` is None if there is none."""
        with self._changed:
            track = self._tracks[scheduler]
            if pod is None or pod.uid != track.canary_uid:
                self._end_locked(track, Outcome.GONE)
            else:
                self._judge_locked(track, pod, is_gone=False)
            return track.outcome

    def was_silent(self, scheduler: str, words: str) -> Outcome:
        """The scheduler did not judge the canary in time. If it asked about other pods meanwhile, it was merely
        busy."""
        with self._changed:
            track = self._tracks[scheduler]
            self._end_locked(track, Outcome.SILENT)
            if track.heard_at < track.sent_at and track.outcome is Outcome.SILENT:
                self._find_locked(track, Wiring.UNKNOWN, words)
            return track.outcome or Outcome.SILENT

    def settled(self, scheduler: str) -> None:
        """The canary has done its work, and is being removed."""
        with self._changed:
            track = self._tracks[scheduler]
            track.canary_uid, track.outcome = "", None

    def dismissed(self, pod_uid: str) -> None:
        """That canary is about to be deleted: ours, or one that another leader left."""
        with self._changed:
            if pod_uid not in self._dismissed:
                self._dismissed.append(pod_uid)

    def take_news(self) -> list[Finding]:
        """Findings that are new since the last call."""
        with self._changed:
            news, self._news = self._news, []
            return news

    def wait(self, version: int, timeout: float) -> int:
        """Waits until something has happened after `version`, or the time is up; returns the version."""
        with self._changed:
            self._changed.wait_for(lambda: self._version != version, timeout)
            return self._version

    # Under the lock

    def _end_locked(self, track: _Track, outcome: Outcome) -> None:
        if track.outcome is None:
            track.outcome = outcome
            self._tell_locked()

    def _find_locked(self, track: _Track, state: Wiring, cause: str) -> None:
        """The first cause of a finding stays, unless it only says why nothing is known."""
        old = track.finding
        if not self._is_serving or (old.state is state and (state is not Wiring.UNKNOWN or old.cause == cause)):
            return
        track.finding = Finding(old.scheduler, state, cause, self._clock.now())
        if state is Wiring.UNWIRED:
            self._asked.clear()  # what was asked before proves nothing of what comes after
        self._news.append(track.finding)
        self._tell_locked()

    def _tell_locked(self) -> None:
        self._version += 1
        self._changed.notify_all()


def lease_of(scheduler: str, namespace: str) -> str:
    """The key of the Lease that a scheduler's copies elect their leader on: the cluster's own one, or, of a second
    scheduler as `render-scheduler-config` makes it, one of its name beside us."""
    return DEFAULT_LEASE if scheduler == DEFAULT_SCHEDULER else f"{namespace}/{scheduler}"
