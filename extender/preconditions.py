"""What must hold before any verb is answered, and what must be known of the pod: shared by all verbs.

A failure of ours is never "no room": it is raised, and the routes turn it into an error that makes kube-scheduler try
the pod again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

from controller.allocator.allocator import Allocator
from controller.allocator.outcome import MOST_CLAIMS, Mode, PodKnowledge, UnknownObjectError
from controller.clock import Clock
from controller.errors import ClusterError, NotReadyError, NotSyncedError, SchedulerError
from controller.follow.live import LiveReads
from controller.log_line import say
from controller.rules.demand import Missing
from controller.settings import ENABLED
from extender.wire import PodRef

POD_STORE_WAIT_SECONDS: Final = 0.1
LIVE_READ_SECONDS: Final = 0.5
MAX_LIVE_READS: Final = 64

log = logging.getLogger(__name__)
T = TypeVar("T")


class PodFailedError(SchedulerError):
    """The call cannot be decided. The text is constant, or the pod's condition would change at every call."""


class CheckedGate(Protocol):
    """Open only while this process leads, each time under another number; `check` raises NotLeaderError."""

    @property
    def openings(self) -> int: ...
    def check(self) -> None: ...


class RefusalListener(Protocol):
    """Told of pods that got no node, because there is no room or by a fault of ours, for the people who own them. Must
    not block. In the product `Teller` of controller.workers, which must not be imported here."""

    def refused(self, uid: str, namespace: str, name: str) -> None: ...


class Preconditions:
    """Whether this process may answer, and about which pods. `knows_callers`: callers prove by a certificate that they
    are schedulers. Otherwise anybody may call, and an answer ends nothing that a pod was promised before.

    Threads: any. Blocks: for the store and live reads (0.6 s at most). I/O: live reads of what the stores do not have.
    """

    def __init__(
        self,
        allocator: Allocator,
        gate: CheckedGate,
        live: LiveReads,
        clock: Clock,
        *,
        mode: Callable[[], Mode],
        stale_kind: Callable[[], str | None],
        knows_callers: bool = True,
    ) -> None:
        self.knows_callers = knows_callers
        self._allocator, self._gate, self._live, self._clock = allocator, gate, live, clock
        self._mode, self._stale_kind = mode, stale_kind

    @property
    def mode(self) -> Mode:
        return self._mode()

    def check_leading(self) -> None:
        self._gate.check()

    def begin(self) -> int:
        """The term that an answer would belong to. NotReadyError: not leading, switched off, or not known whether."""
        self._gate.check()
        self.check_open()
        return self._gate.openings

    def check_open(self) -> None:
        """Raises NotReadyError in a mode in which no pod is let through. The texts are constant, as for
        PodFailedError."""
        problem = _NOT_OPEN.get(self._mode())
        if problem is not None:
            raise NotReadyError(problem)

    def check_term(self, term: int) -> None:
        """Raises NotReadyError unless this process still leads, in that term. To be called right before the answer."""
        self._gate.check()
        if self._gate.openings != term:
            raise NotReadyError("the term in which this was decided has ended")

    def check_fresh(self) -> None:
        """Raises NotSyncedError, which names the kind, while a store may be too old to decide by."""
        stale = self._stale_kind()
        if stale is not None:
            raise NotSyncedError(f"the data about {stale} is too old")

    def know_pod(self, pod: PodRef) -> None:
        """Returns once our stores show the pod under its uid, pending and of one of our schedulers: at once, after a
        short wait, or after one live read.

        Raises PodFailedError otherwise: a call about a pod that no scheduler may ask about must promise nothing.
        """
        known = self._allocator.knows_pod(pod.uid, pod.key)
        if known.may_be_old:
            known = self._allocator.wait_for_pod(pod.uid, pod.key, POD_STORE_WAIT_SECONDS)
        if known.may_be_old:
            if not self._read("pod", pod.namespace, pod.name, LIVE_READ_SECONDS):
                raise PodFailedError("Longhorn: the pod does not exist")
            known = self._allocator.knows_pod(pod.uid, pod.key)
        if known is not PodKnowledge.PENDING:
            raise PodFailedError(_NOT_PENDING[known])

    def ask(self, question: Callable[[], T]) -> T:
        """The allocator's answer about a pod. What it does not know of the pod's volumes is read live for half a
        second together, and then it is asked again."""
        deadline = self._clock.now() + LIVE_READ_SECONDS
        last: Missing | None = None
        for _ in range(MAX_LIVE_READS):
            try:
                return question()
            except UnknownObjectError as error:
                first = error.missing
            left = deadline - self._clock.now()
            if first.kind == "backup":
                self._read_backup(first, left)
                continue
            if left <= 0 or first == last:  # it is there, and another pod's
                break
            last = first
            if not self._read(first.kind, first.namespace, first.name, left):
                self._allocator.confirm_absent(first)
        raise PodFailedError("Longhorn: the pod's volumes could not be read in time")

    def _read_backup(self, missing: Missing, left: float) -> None:
        """Reads the backup if there is time. Without its size, the volume counts as large as the claim requests, so
        that no pod waits for a backup."""
        is_there = False
        if left > 0:
            try:
                is_there = self._live.refresh(missing.kind, "", missing.name, left)
            except ClusterError as error:
                say(log, "live read failed", logging.WARNING, kind="backup", name=missing.name, error=error)
        if not is_there:
            self._allocator.confirm_absent(missing)

    def _read(self, kind: str, namespace: str, name: str, timeout_seconds: float) -> bool:
        try:
            return self._live.refresh(kind, namespace, name, timeout_seconds)
        except ClusterError as error:
            what = {"kind": kind, "namespace": namespace, "name": name}
            say(log, "live read failed", logging.WARNING, **what, error=error)
            raise PodFailedError(f"Longhorn: the API server did not answer about the {kind}") from error


_NOT_OPEN: Final = {
    Mode.CLOSED: "the scheduler extender is disabled",
    Mode.UNKNOWN: f"it is not known whether the scheduler extender is enabled: set {ENABLED} in its ConfigMap",
}
_NOT_PENDING: Final = {
    PodKnowledge.FINISHED: "Longhorn: the pod has ended or is being deleted",
    PodKnowledge.BOUND: "Longhorn: the pod is already bound",
    PodKnowledge.FOREIGN: "Longhorn: the extender does not serve the pod's scheduler (--scheduler-names)",
    PodKnowledge.GATED: "Longhorn: the pod has scheduling gates",
    PodKnowledge.TOO_MANY: f"Longhorn: the pod has more than {MOST_CLAIMS} claims",
    PodKnowledge.OTHER_UID: "Longhorn: another pod of that name exists",
    PodKnowledge.UNKNOWN: "Longhorn: the pod could not be read",
}
