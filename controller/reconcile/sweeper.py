"""What time alone brings about: assumptions that end, holds whose pod was never chosen, and expansions that were
admitted and never shown by the cluster."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from controller.allocator.promises.ends import Due
from controller.allocator.verbs.grow import DueGrowth
from controller.errors import ClusterError, SchedulerError, UnavailableError

SWEEP_EVERY_SECONDS: Final = 0.2
LIVE_READ_SECONDS: Final = 2.0
MAX_READS_A_ROUND: Final = 50

log = logging.getLogger(__name__)


class Sweepable(Protocol):
    """The allocator, as far as time changes it."""

    def sweep(self) -> None: ...
    def due(self) -> tuple[Due, ...]: ...
    def expire(self, due: Due) -> None: ...


class Expirable(Protocol):
    """Admitted expansions, as far as time changes them."""

    def due(self) -> tuple[DueGrowth, ...]: ...
    def expire(self, volume: str) -> None: ...


class LiveReads(Protocol):
    def refresh(self, kind: str, namespace: str, name: str, timeout_seconds: float) -> bool: ...


class Sweeper:
    """Runs while this process leads.

    A hold ends by time only after a live read of its pod and claims, which reaches the allocator: a choice that it
    shows turns the hold into an assumption, and there is nothing left to expire. A read that fails keeps the hold, up
    to the cap. An expansion's hold ends in the same way, by a read of claim and volume. An object that cannot be
    parsed keeps nobody else's hold; an API server that is away keeps all of them, until next time.

    Threads: its own, `sweeper`. Blocks: `stop` joins it. I/O: live reads, outside every lock.
    """

    def __init__(
        self,
        allocator: Sweepable,
        expansions: Expirable,
        live: LiveReads,
        *,
        is_leading: Callable[[], bool],
        after_round: Callable[[], None],
    ) -> None:
        self._allocator, self._expansions, self._live = allocator, expansions, live
        self._is_leading, self._after_round = is_leading, after_round
        self._unread: set[str] = set()  # volumes whose last read failed
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(self._stop,), name="sweeper", daemon=True)
        self._thread.start()

    def stop(self, timeout: float = 5.0) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout)
            self._thread = None

    def run_once(self) -> None:
        if not self._is_leading():
            return
        self._allocator.sweep()
        over = self._unchosen(self._allocator.due()[:MAX_READS_A_ROUND])
        if over:
            for due in over:  # a pod that was filtered again while we read has a new hold, which is not due
                self._allocator.expire(due)
        self._end_growths()
        self._after_round()

    def _end_growths(self) -> None:
        """Expansions that were never seen end after a live read; without one they stay, up to their cap."""
        unread, self._unread = self._unread, set()
        # Those that could not be read come last, so that they cannot fill every round.
        for due in sorted(self._expansions.due(), key=lambda due: due.volume in unread)[:MAX_READS_A_ROUND]:
            if not self._is_leading():
                return
            try:
                self._read_growth(due)
            except ClusterError as error:
                if due.volume not in unread:
                    log.warning("live read failed claim=%s volume=%s error=%s", due.claim, due.volume, error)
                self._unread.add(due.volume)
                if not due.is_capped:
                    if isinstance(error, UnavailableError):
                        self._unread |= unread
                        return
                    continue
            self._expansions.expire(due.volume)

    def _read_growth(self, due: DueGrowth) -> None:
        namespace, _, name = due.claim.partition("/")
        if name:
            self._live.refresh("claim", namespace, name, LIVE_READ_SECONDS)
        self._live.refresh("volume", "", due.volume, LIVE_READ_SECONDS)

    def _unchosen(self, dues: Iterable[Due]) -> list[Due]:
        """Pods whose hold may end: read again, as far as the API server can be asked, or at their cap."""
        over = []
        for due in dues:
            if not self._is_leading():
                return []
            try:
                self._read_again(due)
            except ClusterError as error:
                log.warning("live read failed uid=%s error=%s", due.claimant, error)
                if not due.is_capped:
                    break
            over.append(due)
        return over

    def _read_again(self, due: Due) -> None:
        for kind, key in due.reads:
            namespace, _, name = key.rpartition("/")
            self._live.refresh(kind, namespace, name, LIVE_READ_SECONDS)

    def _run(self, stop: threading.Event) -> None:
        while not stop.wait(SWEEP_EVERY_SECONDS):
            try:
                self.run_once()
            except SchedulerError:
                log.exception("a sweep failed; going on")
