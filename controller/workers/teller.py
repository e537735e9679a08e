"""Reports by Events: on pods, why the extender refused them, with the numbers of what is in the way; on claims, why no
room is held for their growth; on both, why no disk takes a replica.

The text that kube-scheduler writes into a pod's condition is constant, since it would try the pod again at every change
of a number. So the numbers are in these Events, at most once a minute for each pod. What comes within a minute of an
Event waits until it is over, and is told as it is then, so that the last Event says why the pod waits now.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from controller.allocator.allocator import Allocator
from controller.allocator.outcome import Decision, SharedDisk, Unplaceable
from controller.allocator.plans.journal import ClaimEvent, ClaimEventKind
from controller.clock import Clock
from controller.errors import BugError
from controller.kube.recorder import NAMESPACE_LIMIT, QUEUE_LIMIT, Recorder, Target
from controller.kube.resources import LONGHORN_VOLUMES
from controller.model.quantity import bytes_text
from controller.process.fair_queue import FairQueue
from controller.process.worker import Part, Worker

EVERY_SECONDS: Final = 60.0  # between two reports on a pod, a replica, or a kind of event of a claim
REMEMBERED: Final = 10_000
REST: Final = 9.0  # an inquiry about a replica is followed by a rest of so many times its duration
AGAIN_SECONDS: Final = 5.0  # until the next inquiry about what seemed to have room: it was made on an older copy
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
    """An Event to be written. `of`: an event of a claim, told if it still holds then, or why a pod was let through,
    told as it is; None: why the pod waits then, if it does. `seemed_free`: it had room when it was looked into."""

    target: Target
    of: ClaimEvent | Decision | None = None
    seemed_free: bool = False


class Teller(Part):
    """Has Events written about refused pods, claims that cannot grow, and replicas that find no disk.

    Threads: `tell_next` is `worker`'s; the other methods are for any. Blocks: never. I/O: none; the recorder writes.
    """

    def __init__(self, allocator: Allocator, recorder: Recorder, clock: Clock, namespace: str) -> None:
        """`namespace`: Longhorn's."""
        self._allocator, self._recorder, self._clock, self._namespace = allocator, recorder, clock, namespace
        self._lock = threading.Lock()  # guards the fields below
        # Of namespaces, by the pod's uid, or by that of a claim and what happened: due when its minute is over.
        self._waiting: FairQueue[str, Report] = FairQueue(QUEUE_LIMIT, NAMESPACE_LIMIT)
        self._dropped = 0
        self._told_at: OrderedDict[str, float] = OrderedDict()  # by the same keys, and those of replicas
        self._unplaced: OrderedDict[str, None] = OrderedDict()  # replicas to inquire about
        self._lacks: OrderedDict[str, Mapping[str, int]] = OrderedDict()  # results of the last inquiries, by replica
        self._rest_until = -math.inf  # the worker thread's own
        self._shared: tuple[SharedDisk, ...] = ()  # told last; of the thread that calls `tell_of_disks`
        self.worker = Worker("teller", self.tell_next)

    def refused(self, uid: str, namespace: str, name: str) -> None:
        """Report why the pod, which got no node, waits: for room, or because of a fault of ours, of which details are
        in the log, since they may name others. At most once a minute, and only if it still waits then. Never blocks,
        never raises."""
        self._put(uid, Report(Target("Pod", namespace, name, uid)))

    def let_through(self, uid: str, namespace: str, name: str, decision: Decision) -> None:
        """Report why the pod was let through, each time. `decision`: one of LET_THROUGH."""
        self._put(uid, Report(Target("Pod", namespace, name, uid), decision), -math.inf)

    @property
    def dropped(self) -> int:
        """Reports on pods and claims that were never written, because there were too many."""
        with self._lock:
            return self._dropped

    def tell_of_claims(self) -> None:
        """Report the allocator's events of claims, each kind at most once a minute for a claim, and only if it still
        holds then. The leader calls it now and then."""
        for event in self._allocator.drain_claim_events():
            target = Target("PersistentVolumeClaim", event.namespace, event.name, event.uid)
            self._put(f"{event.uid} {event.kind}", Report(target, event))

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
        """Inquire why no disk takes that replica, at most once a minute. Its placer asks again for as long as it finds
        none, so the last Event is never older than that."""
        key, now = _key_of(replica), self._clock.now()
        with self._lock:
            if now < self._due_at(key) or len(self._unplaced) >= QUEUE_LIMIT:
                return
            self._remember(key, now)
            self._unplaced[replica] = None
        self.worker.wake()

    def reasons_of(self, replica: str) -> Mapping[str, int]:
        """Why no disk takes that replica: the number of nodes and disks by reason, by the last inquiry."""
        with self._lock:
            return self._lacks.get(replica, {})

    def _due_at(self, key: str) -> float:
        """When that may be told again."""
        return self._told_at.get(key, -math.inf) + EVERY_SECONDS

    def _remember(self, key: str, now: float) -> None:
        self._told_at[key] = now
        self._told_at.move_to_end(key)
        if len(self._told_at) > REMEMBERED:
            self._told_at.popitem(last=False)

    def _put(self, key: str, report: Report, due_at: float | None = None) -> None:
        """Have it told then, or when its minute is over, in place of what waits to be told of the same."""
        with self._lock:
            due_at = self._due_at(key) if due_at is None else due_at
            if self._waiting.put(report.target.namespace, key, report, due_at) is not None:
                self._dropped += 1
        self.worker.wake()

    def tell_next(self) -> float | None:
        """Write the next namespace's report that is due; of replicas, when there is none. Returns the seconds until the
        next one, or None."""
        began = self._clock.now()
        with self._lock:
            taken = self._waiting.take(began)
            if taken is None and (not self._unplaced or began < self._rest_until):
                due_at = min(self._waiting.due_at(), self._rest_until if self._unplaced else math.inf)
                return due_at - began if due_at < math.inf else None
            replica = self._unplaced.popitem(last=False)[0] if taken is None else ""
        if taken is not None:
            self._tell(*taken)
        else:
            self._tell_of_replica(replica)
            self._rest_until = began + (1 + REST) * (self._clock.now() - began)
        return 0.0

    def _tell(self, key: str, report: Report) -> None:
        reason, text = self._words_of(report)
        now = self._clock.now()
        if text:
            with self._lock:
                self._remember(key, now)
            self._recorder.note(report.target, reason, text, is_warning=not isinstance(report.of, Decision))
        elif report.of is None and not report.seemed_free:
            with self._lock:
                is_newest = self._waiting.get(report.target.namespace, key) is None
            if is_newest:
                self._put(key, replace(report, seemed_free=True), now + AGAIN_SECONDS)

    def _words_of(self, report: Report) -> tuple[str, str]:
        """The Event's reason and text, as of now; no text if there is nothing to tell any more."""
        if isinstance(report.of, Decision):
            return LET_THROUGH[report.of]
        if report.of is not None:
            return _of_claim(report.of) if self._allocator.is_so(report.of) else ("", "")
        uid = report.target.uid
        try:
            nodes = self._allocator.refused_on(uid)
        except BugError:
            return FAULT, FAULT_TEXT
        return NO_ROOM, self._allocator.account_of(uid, nodes) if nodes else ""

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


def _of_claim(event: ClaimEvent) -> tuple[str, str]:
    """The Event's reason and text."""
    reason, text = OF_CLAIMS[event.kind]
    asked, most = bytes_text(event.asked_bytes), bytes_text(event.most_bytes)
    return reason, text.format(asked=asked, most=most, where=event.where)
