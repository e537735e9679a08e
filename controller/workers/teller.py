"""Events on pods: why the extender refused one, with the numbers of what is in the way. And on claims: why no room is
promised to one, or kept for its growth.

The text that kube-scheduler writes into the pod's condition is constant, or it would try the pod again at every change
of a number. So the numbers are told here, at most once a minute for each pod.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from controller.allocator.allocator import Allocator
from controller.allocator.outcome import Decision
from controller.allocator.promises.journal import ClaimTale, Tale
from controller.clock import Clock
from controller.kube.recorder import Recorder, Target
from controller.model.quantity import bytes_text
from controller.process.worker import Part, Worker

EVERY_SECONDS: Final = 60.0  # a pod
QUEUE_LIMIT: Final = 1_000
REMEMBERED: Final = 10_000
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
DISCRETION_TEXT: Final = (
    "The pod's own Longhorn volumes may not all fit on the node that it was offered. A volume that finds no disk there "
    "goes to another node, or waits if it is strict-local"
)
# By decision, of pods that were let through although not all was as it should be: the Event's reason and text.
LET_THROUGH: Final[Mapping[Decision, tuple[str, str]]] = {
    Decision.REMOTE: ("LonghornRemoteFallback", REMOTE_TEXT),
    Decision.AT_DISCRETION: ("AtLonghornsDiscretion", DISCRETION_TEXT),
}
CAPPED_TEXT: Final = (
    "No room is held for this claim of {asked} until a pod that uses it is scheduled: its namespace has reached the "
    "limit of {most} for claims and expansions without a scheduled pod (scheduler-extender-namespace-cap-percent)"
)
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
NO_PLACE_TEXT: Final = (
    "No disk takes a replica of this volume of {asked} now: what is free is planned for other volumes or not enough, "
    "or a rule forbids the disk. The replica is placed as soon as there is room. After five minutes, Longhorn places "
    "it where it sees room"
)
LOST_TEXT: Final = (
    "A disk that was planned for this volume of {asked} takes it no more, and no other disk does now. It is placed as "
    "soon as there is room"
)
# By what is told of a claim: the Event's reason and text.
OF_CLAIMS: Final[Mapping[Tale, tuple[str, str]]] = {
    Tale.CAPPED: ("LonghornRoomNotPromised", CAPPED_TEXT),
    Tale.GROWTH_NOT_HELD: ("LonghornGrowthNotHeld", NOT_HELD_TEXT),
    Tale.GROWS_TOO_FAR: ("LonghornCannotGrow", TOO_FAR_TEXT),
    Tale.GROWS_LATER: ("LonghornGrowsLater", LATER_TEXT),
    Tale.NEVER_GROWS: ("LonghornCannotGrow", NEVER_TEXT),
    Tale.NO_PLACE: ("LonghornNoPlace", NO_PLACE_TEXT),
    Tale.PLACE_LOST: ("LonghornPlaceLost", LOST_TEXT),
}


@dataclass(frozen=True, slots=True)
class Told:
    """A pod, and the nodes that it was refused on; none: it was let through, by that decision."""

    pod: Target
    candidates: Sequence[str]
    decision: Decision = Decision.REFUSED
    is_fault: bool = False  # ours: it is answered by an error


class Teller(Part):
    """Has Events written about refused pods.

    Threads: `refused` and `let_through` from any; the rest is `worker`'s. Blocks: never. I/O: none.
    """

    def __init__(self, allocator: Allocator, recorder: Recorder, clock: Clock) -> None:
        self._allocator, self._recorder, self._clock = allocator, recorder, clock
        self._lock = threading.Lock()  # guards the fields below
        self._waiting: OrderedDict[str, Told] = OrderedDict()  # by pod uid, the latest refusal
        self._told_at: OrderedDict[str, float] = OrderedDict()
        self.worker = Worker("teller", self.tell_next)

    def refused(self, uid: str, namespace: str, name: str, candidates: Sequence[str]) -> None:
        """Never blocks, never raises. Refusals are reported at most once a minute. While a report still waits, the
        nodes of a new refusal are added to it: one attempt of kube-scheduler asks about some nodes by filter, and about
        others by preempt.
        """
        self._put(uid, Told(Target("Pod", namespace, name, uid), candidates))

    def let_through(self, uid: str, namespace: str, name: str, decision: Decision) -> None:
        self._put(uid, Told(Target("Pod", namespace, name, uid), (), decision))

    def broken(self, uid: str, namespace: str, name: str) -> None:
        """An internal rule was broken for that pod; reported at most once a minute. The details may name objects of
        others, so they only go to the log."""
        self._put(uid, Told(Target("Pod", namespace, name, uid), (), is_fault=True))

    def tell_of_claims(self) -> None:
        """Reports what the allocator has found out about claims, each at most once a minute. The leader calls it from
        time to time."""
        for tale in self._allocator.drain_tales():
            if self._is_due(f"{tale.uid} {tale.tale}"):
                self._recorder.note(*_of_claim(tale), is_warning=True)

    def _is_due(self, key: str) -> bool:
        """Whether that may be told now; if so, not again for a while."""
        now = self._clock.now()
        with self._lock:
            last = self._told_at.get(key)
            if last is not None and now < last + EVERY_SECONDS:
                return False
            self._remember(key, now)
            return True

    def _remember(self, key: str, now: float) -> None:
        self._told_at[key] = now
        self._told_at.move_to_end(key)
        if len(self._told_at) > REMEMBERED:
            self._told_at.popitem(last=False)

    def _put(self, uid: str, told: Told) -> None:
        now = self._clock.now()
        with self._lock:
            last, earlier = self._told_at.get(uid), self._waiting.get(uid)
            if told.candidates and earlier is not None and earlier.candidates:
                known = frozenset(earlier.candidates)
                more = [name for name in told.candidates if name not in known]
                self._waiting[uid] = Told(told.pod, [*earlier.candidates, *more])
                return
            is_repeatable = bool(told.candidates) or told.is_fault
            if (is_repeatable and last is not None and now < last + EVERY_SECONDS) or (
                uid not in self._waiting and len(self._waiting) >= QUEUE_LIMIT
            ):
                return
            self._remember(uid, now)
            self._waiting[uid] = told
        self.worker.wake()

    def tell_next(self) -> float | None:
        """Reports on the pod that has waited longest; returns 0 if there was one, None otherwise."""
        with self._lock:
            if not self._waiting:
                return None
            uid, told = self._waiting.popitem(last=False)
        if told.is_fault:
            self._recorder.note(told.pod, FAULT, FAULT_TEXT, is_warning=True)
            return 0.0
        if not told.candidates:
            self._recorder.note(told.pod, *LET_THROUGH[told.decision])
            return 0.0
        text = self._allocator.account_of(uid, told.candidates)
        if text:
            self._recorder.note(told.pod, NO_ROOM, text, is_warning=True)
        return 0.0


def _of_claim(tale: ClaimTale) -> tuple[Target, str, str]:
    """The claim, the Event's reason and its text."""
    reason, text = OF_CLAIMS[tale.tale]
    asked, most = bytes_text(tale.asked_bytes), bytes_text(tale.most_bytes)
    target = Target("PersistentVolumeClaim", tale.namespace, tale.name, tale.uid)
    return target, reason, text.format(asked=asked, most=most, where=tale.where)
