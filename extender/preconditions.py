"""What must hold before any verb is answered, and what must be known of the pod: shared by all verbs.

A failure of ours is never "no room": it is raised, and the routes turn it into an error that makes kube-scheduler try
the pod again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from controller.allocator.outcome import Mode, PodKnowledge
from controller.clock import Clock
from controller.errors import ClusterError, NotReadyError, NotSyncedError, SchedulerError
from controller.follow.live import LiveReads
from controller.rules.demand import Missing

POD_STORE_WAIT_SECONDS: Final = 0.1
LIVE_READ_SECONDS: Final = 0.5
MAX_LIVE_READS: Final = 64

log = logging.getLogger(__name__)


class PodFailedError(SchedulerError):
    """The call cannot be decided. The text is constant, or the pod's condition would change at every call."""


class Pods(Protocol):
    """What is asked of the allocator about pods and what they refer to."""

    def knows_pod(self, uid: str, key: str) -> PodKnowledge: ...
    def wait_for_pod(self, uid: str, key: str, timeout: float) -> PodKnowledge: ...
    def missing(self, pod_uid: str) -> Sequence[Missing]: ...
    def confirm_absent(self, missing: Missing) -> None: ...


class Gate(Protocol):
    """Open only while this process leads; `check` raises NotLeaderError."""

    @property
    def term(self) -> int: ...
    def check(self) -> None: ...


class RefusalListener(Protocol):
    """Told of pods that found no room, for the people who own them. Must not block."""

    def refused(self, uid: str, namespace: str, name: str, candidates: Sequence[str]) -> None: ...


class Preconditions:
    """Whether this process may answer, and for whom.

    Threads: any. Blocks: for the store and live reads (0.6 s at most). I/O: live reads of what the stores do not have.
    """

    def __init__(
        self,
        pods: Pods,
        gate: Gate,
        live: LiveReads,
        clock: Clock,
        *,
        mode: Callable[[], Mode],
        stale_kind: Callable[[], str | None],
    ) -> None:
        self._pods, self._gate, self._live, self._clock = pods, gate, live, clock
        self._mode, self._stale_kind = mode, stale_kind

    @property
    def mode(self) -> Mode:
        return self._mode()

    def check_leading(self) -> None:
        self._gate.check()

    def begin(self) -> int:
        """The term that an answer would belong to. NotReadyError: not leading, or switched off."""
        self._gate.check()
        if self._mode() is Mode.CLOSED:
            raise NotReadyError("the scheduler extender is disabled")
        return self._gate.term

    def check_term(self, term: int) -> None:
        """Right before the answer leaves: still leading, and in the same term."""
        self._gate.check()
        if self._gate.term != term:
            raise NotReadyError("the term in which this was decided has ended")

    def check_fresh(self) -> None:
        stale = self._stale_kind()
        if stale is not None:
            raise NotSyncedError(f"what is known of {stale} is too old")

    def know_pod(self, uid: str, namespace: str, name: str) -> None:
        """Our stores show the pod pending under that uid, after a short wait and one live read.

        PodFailedError if not, so nobody makes promises by calling us with pods that do not exist.
        """
        key = f"{namespace}/{name}"
        known = self._pods.knows_pod(uid, key)
        if known in (PodKnowledge.UNKNOWN, PodKnowledge.OTHER_UID):
            known = self._pods.wait_for_pod(uid, key, POD_STORE_WAIT_SECONDS)
        if known in (PodKnowledge.UNKNOWN, PodKnowledge.OTHER_UID):
            if not self._read("pod", namespace, name, LIVE_READ_SECONDS):
                raise PodFailedError("Longhorn: the pod does not exist")
            known = self._pods.knows_pod(uid, key)
        if known is not PodKnowledge.PENDING:
            raise PodFailedError(_NOT_PENDING[known])

    def know_objects(self, pod_uid: str) -> None:
        """All that the pod refers to is known, or known to be absent, by live reads of half a second together."""
        deadline = self._clock.now() + LIVE_READ_SECONDS
        last: Missing | None = None
        for _ in range(MAX_LIVE_READS):
            missing = self._pods.missing(pod_uid)
            if not missing:
                return
            first = missing[0]
            left = deadline - self._clock.now()
            if left <= 0 or first == last:  # it is there, and another pod's
                break
            last = first
            if not self._read(first.kind, first.namespace, first.name, left):
                self._pods.confirm_absent(first)
        raise PodFailedError("Longhorn: the pod's volumes could not be read in time")

    def _read(self, kind: str, namespace: str, name: str, timeout_seconds: float) -> bool:
        try:
            return self._live.refresh(kind, namespace, name, timeout_seconds)
        except ClusterError as error:
            log.warning("live read failed kind=%s name=%s/%s error=%s", kind, namespace, name, error)
            raise PodFailedError(f"Longhorn: the API server did not answer about the {kind}") from error


_NOT_PENDING: Final = {
    PodKnowledge.FINISHED: "Longhorn: the pod has ended or is being deleted",
    PodKnowledge.BOUND: "Longhorn: the pod is bound already",
    PodKnowledge.OTHER_UID: "Longhorn: another pod of that name exists",
    PodKnowledge.UNKNOWN: "Longhorn: the pod could not be read",
}
