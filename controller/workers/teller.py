"""Events on pods: why the extender refused one, with the numbers, and whose promises stand in the way.

The text that kube-scheduler writes into the pod's condition is constant, or it would look at the pod again at every
change of a figure. So the figures are told here, at most once a minute a pod.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from controller.allocator.outcome import Decision
from controller.clock import Clock
from controller.kube.recorder import Recorder, Target
from controller.process.worker import Part, Worker

EVERY_SECONDS: Final = 60.0  # a pod
QUEUE_LIMIT: Final = 1_000
REMEMBERED: Final = 10_000
NO_ROOM: Final = "LonghornNoRoom"
FAULT: Final = "LonghornSchedulerExtenderFault"
FAULT_TEXT: Final = (
    "The scheduler extender gives no answer for this pod for up to five minutes, because of a fault of its own, which "
    "is worth a report: {}"
)
REMOTE_TEXT: Final = (
    "No node with room for the pod's Longhorn volumes was found for a while, so it may run on a node away from its data"
)
DISCRETION_TEXT: Final = (
    "The pod's own Longhorn volumes may be too many for one disk of the node that it was offered: which disks they "
    "come to is Longhorn's choice. A disk may end over its limit, or a volume find no disk there: then it goes to "
    "another node, or, if it is strict-local, waits"
)
# By decision, of pods that were let through although not all was as it should be: the Event's reason and text.
LET_THROUGH: Final[Mapping[Decision, tuple[str, str]]] = {
    Decision.REMOTE: ("LonghornRemoteFallback", REMOTE_TEXT),
    Decision.AT_DISCRETION: ("AtLonghornsDiscretion", DISCRETION_TEXT),
}


class Accounts(Protocol):
    """The allocator, as far as it explains itself."""

    def account_of(self, pod_uid: str, candidates: Sequence[str]) -> str: ...


@dataclass(frozen=True, slots=True)
class Told:
    """A pod, and the nodes that it was refused on; none: it was let through, by that decision."""

    pod: Target
    candidates: Sequence[str]
    decision: Decision = Decision.REFUSED
    fault: str = ""  # ours: it is answered by an error


class Teller(Part):
    """Has Events written about refused pods.

    Threads: `refused` and `let_through` from any; the rest is `worker`'s. Blocks: never. I/O: none.
    """

    def __init__(self, accounts: Accounts, recorder: Recorder, clock: Clock) -> None:
        self._accounts, self._recorder, self._clock = accounts, recorder, clock
        self._lock = threading.Lock()  # guards the fields below
        self._waiting: OrderedDict[str, Told] = OrderedDict()  # by pod uid, the latest refusal
        self._told_at: OrderedDict[str, float] = OrderedDict()
        self.worker = Worker("teller", self.tell_next)

    def refused(self, uid: str, namespace: str, name: str, candidates: Sequence[str]) -> None:
        """Never blocks, never raises. A refusal within a minute of one that was told is not told; while that one still
        waits, its nodes are added: one attempt of kube-scheduler asks about some nodes by filter, by preempt of others.
        """
        self._put(uid, Told(Target("Pod", namespace, name, uid), candidates))

    def let_through(self, uid: str, namespace: str, name: str, decision: Decision) -> None:
        self._put(uid, Told(Target("Pod", namespace, name, uid), (), decision))

    def broken(self, uid: str, namespace: str, name: str, what: str) -> None:
        """A rule of ours was broken for that pod; told at most once a minute."""
        self._put(uid, Told(Target("Pod", namespace, name, uid), (), fault=what))

    def _put(self, uid: str, told: Told) -> None:
        now = self._clock.now()
        with self._lock:
            last, earlier = self._told_at.get(uid), self._waiting.get(uid)
            if told.candidates and earlier is not None and earlier.candidates:
                known = frozenset(earlier.candidates)
                more = [name for name in told.candidates if name not in known]
                self._waiting[uid] = Told(told.pod, [*earlier.candidates, *more])
                return
            is_repeatable = bool(told.candidates or told.fault)
            if (is_repeatable and last is not None and now < last + EVERY_SECONDS) or (
                uid not in self._waiting and len(self._waiting) >= QUEUE_LIMIT
            ):
                return
            self._told_at[uid] = now
            self._told_at.move_to_end(uid)
            if len(self._told_at) > REMEMBERED:
                self._told_at.popitem(last=False)
            self._waiting[uid] = told
        self.worker.wake()

    def tell_next(self) -> float | None:
        """Tell of the pod that waits longest; 0 when there was one, None otherwise."""
        with self._lock:
            if not self._waiting:
                return None
            uid, told = self._waiting.popitem(last=False)
        if told.fault:
            self._recorder.note(told.pod, FAULT, FAULT_TEXT.format(told.fault), is_warning=True)
            return 0.0
        if not told.candidates:
            self._recorder.note(told.pod, *LET_THROUGH[told.decision])
            return 0.0
        text = self._accounts.account_of(uid, told.candidates)
        if text:
            self._recorder.note(told.pod, NO_ROOM, text, is_warning=True)
        return 0.0
