"""Reports by Events: on pods, why the extender refused them, with the numbers of what is in the way; on claims, why no
room is held for their growth; on both, why no disk takes a replica.

The text that kube-scheduler writes into a pod's condition is constant, since it would try the pod again at every change
of a number. So the numbers are in these Events, at most once a minute for each pod.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from controller.allocator.allocator import Allocator
from controller.allocator.outcome import Decision, SharedDisk, Unplaceable
from controller.allocator.plans.journal import ClaimEvent, ClaimEventKind
from controller.clock import Clock
from controller.kube.recorder import NAMESPACE_LIMIT, QUEUE_LIMIT, Recorder, Target
from controller.kube.resources import LONGHORN_VOLUMES
from controller.model.quantity import bytes_text
from controller.process.fair_queue import FairQueue
from controller.process.worker import Part, Worker

EVERY_SECONDS: Final = 60.0  # between two reports on a pod, a replica, or a kind of event of a claim
REMEMBERED: Final = 10_000
REST: Final = 9.0  # an inquiry about a replica is followed by a rest of so many times its duration
AGAIN_SECONDS: Final = 5.0  # until the next inquiry about a replica that seemed to have room
MOST_PODS: Final = 10  # that get an Event about a replica of their volume
NO_ROOM: Final = "LonghornNoRoom"
FAULT: Final = "LonghornSchedulerExtenderFault"
FAULT_TEXT: Final = (
    "A fault in the scheduler extender keeps it from answering for this pod for up to five minutes. Please report it, "
    "with the controller's log"
)
REMOTE_TEXT: Final = (
    "For some time, no node with the pod's data had room for its Longhorn volumes, so the pod may now run on a node "
    "without its data"
)
# By decision, for pods that were let through although something was not as it should be: the Event's reason and text.
LET_THROUGH: Final[Mapping[Decision, tuple[str, str]]] = {
    Decision.REMOTE: ("LonghornRemoteFallback", REMOTE_TEXT),
}
NOT_HELD_TEXT: Final = (
    "An expansion of this claim to {asked} was requested, but no room is held for it, because it or an earlier one was "
    "not stored, for example because of a quota or another webhook. The claim can still grow while there is room. If "
    "nobody requested it, find out who calls the webhook"
)
TOO_FAR_TEXT: Final = (
    "The claim requests {asked}, but its volume can never be larger than {most} on its disk ({where}). Longhorn does "
    "not grow it, and no room is held for it. Request less, or make the disk larger"
)
LATER_TEXT: Final = (
    "The claim requests {asked}, but its disk ({where}) now has room only for a volume of {most}. Longhorn grows it "
    "once there is room; no room is held for it"
)
NEVER_TEXT: Final = (
    "The claim requests {asked}, but Longhorn cannot grow its volume beyond {most} ({where}), and no room is held for "
    "it"
)
SHARED: Final = "DisksShareUUID"
SHARED_TEXT: Final = (
    "Disks have the same UUID {uuid}, as of nodes that were cloned: {disks}. Longhorn counts what lies on one of them "
    "on all, and may move replicas between them. To give one a UUID of its own, evict its replicas, remove it from "
    "the Longhorn node, delete its longhorn-disk.cfg, and add it again"
)
MOST_DISKS: Final = 10  # that an Event names
NO_PLACE: Final = "LonghornNoPlace"
NO_PLACE_TEXT: Final = (
    "No disk takes the first replica of volume {volume} of {asked} now: {why}. It is placed as soon as one does; after "
    "five minutes, Longhorn places it where it sees room"
)
LOST_TEXT: Final = (
    "A disk that was planned for this volume of {asked} takes it no more, and no other disk does now. It is placed as "
    "soon as there is room"
)
# By kind of a claim's event: the Kubernetes Event's reason and text.
OF_CLAIMS: Final[Mapping[ClaimEventKind, tuple[str, str]]] = {
    ClaimEventKind.GROWTH_NOT_HELD: ("LonghornGrowthNotHeld", NOT_HELD_TEXT),
    ClaimEventKind.GROWS_TOO_FAR: ("LonghornCannotGrow", TOO_FAR_TEXT),
    ClaimEventKind.GROWS_LATER: ("LonghornGrowsLater", LATER_TEXT),
    ClaimEventKind.NEVER_GROWS: ("LonghornCannotGrow", NEVER_TEXT),
    ClaimEventKind.PLACE_LOST: ("LonghornPlaceLost", LOST_TEXT),
}


@dataclass(frozen=True, slots=True)
class Report:
    """An Event to be written about a pod. `text`: worked out by the `candidates`, nodes that refused it, if empty."""

    pod: Target
    candidates: Sequence[str] = ()
    reason: str = NO_ROOM
    text: str = ""
    is_warning: bool = True  # others are not limited to one a minute


class Teller(Part):
    """Has Events written about refused pods, claims that cannot grow, and replicas that find no disk.

    Threads: `tell_next` is `worker`'s; the other methods are for any. Blocks: never. I/O: none; the recorder writes.
    """

    def __init__(self, allocator: Allocator, recorder: Recorder, clock: Clock, namespace: str) -> None:
        """`namespace`: Longhorn's."""
        self._allocator, self._recorder, self._clock, self._namespace = allocator, recorder, clock, namespace
        self._lock = threading.Lock()  # guards the fields below
        self._waiting: FairQueue[str, Report] = FairQueue(QUEUE_LIMIT, NAMESPACE_LIMIT)  # of namespaces, by pod uid
        self._dropped = 0
        self._told_at: OrderedDict[str, float] = OrderedDict()  # by what the report is about
        self._unplaced: OrderedDict[str, None] = OrderedDict()  # replicas to inquire about
        self._lacks: OrderedDict[str, Mapping[str, int]] = OrderedDict()  # results of the last inquiries, by replica
        self._rest_until = -math.inf  # the worker thread's own
        self._shared: tuple[SharedDisk, ...] = ()  # told last; of the thread that calls `tell_of_disks`
        self.worker = Worker("teller", self.tell_next)

    def refused(self, uid: str, namespace: str, name: str, candidates: Sequence[str]) -> None:
        """Report that the pod was refused on these nodes, at most once a minute. Never blocks, never raises.

        The nodes are added to a report that still waits: one attempt of kube-scheduler asks about some nodes by filter,
        and about others by preempt. A call that names no node is not reported.
        """
        if candidates:
            self._put(uid, Report(Target("Pod", namespace, name, uid), candidates))

    def let_through(self, uid: str, namespace: str, name: str, decision: Decision) -> None:
        """Report why the pod was let through, each time. `decision`: one of LET_THROUGH."""
        reason, text = LET_THROUGH[decision]
        self._put(uid, Report(Target("Pod", namespace, name, uid), (), reason, text, is_warning=False))

    def broken(self, uid: str, namespace: str, name: str) -> None:
        """Report a fault of ours on the pod, at most once a minute. Details, which may name others, are in the log."""
        self._put(uid, Report(Target("Pod", namespace, name, uid), (), FAULT, FAULT_TEXT))

    @property
    def dropped(self) -> int:
        """Reports on pods that were never written, because there were too many."""
        with self._lock:
            return self._dropped

    def tell_of_claims(self) -> None:
        """Report the allocator's events of claims, each at most once a minute. The leader calls it now and then."""
        for event in self._allocator.drain_claim_events():
            if self._is_due(f"{event.uid} {event.kind}"):
                self._recorder.note(*_of_claim(event), is_warning=True)

    def tell_of_disks(self, tell: Callable[[str, str, bool], None]) -> None:
        """Report UUIDs that several disks have, each once until other disks have it. The leader calls it now and
        then."""
        shared, told = self._allocator.shared_disks(), self._shared
        self._shared = shared
        for one in shared:
            if one not in told:
                names = [f"{disk} of {node}" for node, disk in one.disks]
                more = len(names) - MOST_DISKS
                text = ", ".join(names[:MOST_DISKS]) + (f" and {more} more" if more > 0 else "")
                tell(SHARED, SHARED_TEXT.format(uuid=one.uuid, disks=text), True)

    def unplaced(self, replica: str) -> None:
        """Inquire why no disk takes that replica, at most once a minute."""
        if self._is_due(_key_of(replica)):
            with self._lock:
                if len(self._unplaced) < QUEUE_LIMIT:
                    self._unplaced[replica] = None
            self.worker.wake()

    def reasons_of(self, replica: str) -> Mapping[str, int]:
        """Why no disk takes that replica: the number of nodes and disks by reason, by the last inquiry."""
        with self._lock:
            return self._lacks.get(replica, {})

    def _is_due(self, key: str) -> bool:
        """Whether that may be reported now; if so, it may not again for EVERY_SECONDS."""
        now = self._clock.now()
        with self._lock:
            if now < self._told_at.get(key, -math.inf) + EVERY_SECONDS:
                return False
            self._remember(key, now)
            return True

    def _remember(self, key: str, now: float) -> None:
        self._told_at[key] = now
        self._told_at.move_to_end(key)
        if len(self._told_at) > REMEMBERED:
            self._told_at.popitem(last=False)

    def _put(self, uid: str, report: Report) -> None:
        now = self._clock.now()
        with self._lock:
            earlier = self._waiting.get(report.pod.namespace, uid)
            if report.candidates and earlier is not None and earlier.candidates:
                together = tuple(dict.fromkeys((*earlier.candidates, *report.candidates)))
                self._waiting.put(report.pod.namespace, uid, Report(report.pod, together))
                return
            if report.is_warning and now < self._told_at.get(uid, -math.inf) + EVERY_SECONDS:
                return
            self._remember(uid, now)
            dropped = self._waiting.put(report.pod.namespace, uid, report)
            if dropped is not None:
                self._dropped += 1
                self._told_at.pop(dropped[0], None)
        self.worker.wake()

    def tell_next(self) -> float | None:
        """Write the next namespace's oldest report; of replicas, when there is none of pods. Returns the seconds until
        the next one, or None."""
        began = self._clock.now()
        with self._lock:
            taken = self._waiting.take()
            if taken is None and (not self._unplaced or began < self._rest_until):
                return self._rest_until - began if self._unplaced else None
            report = taken[1] if taken is not None else None
            replica = self._unplaced.popitem(last=False)[0] if report is None else ""
        if report is not None:
            self._tell_of_pod(report)
        else:
            self._tell_of_replica(replica)
            self._rest_until = began + (1 + REST) * (self._clock.now() - began)
        return 0.0

    def _tell_of_pod(self, report: Report) -> None:
        text = report.text or self._allocator.account_of(report.pod.uid, report.candidates)
        if text:
            self._recorder.note(report.pod, report.reason, text, is_warning=report.is_warning)

    def _tell_of_replica(self, name: str) -> None:
        """Find out why the replica finds no disk, and report on a first copy: on claim and pods, or the Volume."""
        lack = self._allocator.lack_of(name)
        with self._lock:
            self._lacks.pop(name, None)
            if lack is None:
                self._remember(_key_of(name), self._clock.now() - EVERY_SECONDS + AGAIN_SECONDS)
                return
            self._lacks[name] = lack.reasons
            if len(self._lacks) > REMEMBERED:
                self._lacks.popitem(last=False)
        if lack.is_first:
            asked = bytes_text(lack.volume.size_bytes)
            text = NO_PLACE_TEXT.format(volume=lack.volume.name, asked=asked, why=lack.text)
            for target in self._owners(lack):
                self._recorder.note(target, NO_PLACE, text, is_warning=True)

    def _owners(self, lack: Unplaceable) -> list[Target]:
        claim, volume = lack.claim, lack.volume
        if claim is None:
            return [Target("Volume", self._namespace, volume.name, volume.uid, LONGHORN_VOLUMES.api_version)]
        pods = [one for one in lack.pods if not one.is_finished][:MOST_PODS]
        of_pods = [Target("Pod", one.namespace, one.name, one.uid) for one in pods]
        return [Target("PersistentVolumeClaim", claim.namespace, claim.name, claim.uid), *of_pods]


def _key_of(replica: str) -> str:
    return f"replica {replica}"


def _of_claim(event: ClaimEvent) -> tuple[Target, str, str]:
    """The Event's target, reason and text."""
    reason, text = OF_CLAIMS[event.kind]
    asked, most = bytes_text(event.asked_bytes), bytes_text(event.most_bytes)
    target = Target("PersistentVolumeClaim", event.namespace, event.name, event.uid)
    return target, reason, text.format(asked=asked, most=most, where=event.where)
