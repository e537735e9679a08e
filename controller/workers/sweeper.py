"""Ends what only time can end: holds whose pod was not chosen a node, plans whose pods were not bound, and expansions
that the cluster did not show. Reads the sizes of backups that no filter call has read."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from controller.allocator.allocator import Allocator
from controller.allocator.outcome import Due
from controller.errors import ClusterError, UnavailableError
from controller.follow.live import LiveReads
from controller.log_line import say
from controller.process.worker import Part, Worker
from controller.rules.demand import Missing

SWEEP_EVERY_SECONDS: Final = 0.2
LIVE_READ_SECONDS: Final = 2.0
MAX_READS_A_ROUND: Final = 50

log = logging.getLogger(__name__)


class Sweeper(Part):
    """Expires holds and plans while this process leads.

    Before one expires, the objects concerned are read live, and the allocator sees them: a choice of a node or a new
    size that a read shows turns the hold into a plan. A read that fails keeps the hold, up to its cap. An object that
    cannot be parsed does not affect other holds; while the API server is unavailable, all stay.

    Threads: `worker`'s. Blocks: never. I/O: live reads, outside every lock.
    """

    def __init__(
        self,
        allocator: Allocator,
        live: LiveReads,
        *,
        is_leading: Callable[[], bool],
        after_round: Callable[[], None],
    ) -> None:
        self._allocator, self._live = allocator, live
        self._is_leading, self._after_round = is_leading, after_round
        self._unread: set[str] = set()  # claimants and volumes whose last read failed
        self.worker = Worker("sweeper", self.run_once)

    def run_once(self) -> float:
        if self._is_leading():
            self._allocator.sweep()
            self._end_what_is_due()
            self._read_backups()
            self._after_round()
        return SWEEP_EVERY_SECONDS

    def _end_what_is_due(self) -> None:
        unread, self._unread = self._unread, set()
        # Those whose last read failed come last, so that they cannot fill every round.
        for due in self._allocator.due(unread)[:MAX_READS_A_ROUND]:
            if not self._is_leading():
                return
            key = due.volume or due.claimant
            try:
                self._read_again(due)
            except ClusterError as error:
                if key not in unread:
                    what = {"claimant": due.claimant, "volume": due.volume}
                    say(log, "live read failed", logging.WARNING, **what, error=error)
                self._unread.add(key)
                if not due.is_capped:
                    if isinstance(error, UnavailableError):
                        self._unread |= unread
                        return
                    continue
            self._allocator.expire(due)  # a pod that was filtered again meanwhile has a new hold, which is not due

    def _read_backups(self) -> None:
        """Read backups that volumes are restored from and whose sizes are not known."""
        for name in self._allocator.backups_to_read()[:MAX_READS_A_ROUND]:
            try:
                self._live.refresh("backup", "", name, LIVE_READ_SECONDS)
            except ClusterError as error:
                say(log, "live read failed", logging.WARNING, kind="backup", name=name, error=error)

    def _read_again(self, due: Due) -> None:
        failure: ClusterError | None = None
        for kind, key in due.reads:
            namespace, _, name = key.rpartition("/")
            try:
                if not self._live.refresh(kind, namespace, name, LIVE_READ_SECONDS):
                    self._allocator.confirm_absent(Missing(kind, namespace, name))
            except UnavailableError:
                raise
            except ClusterError as error:
                failure = error  # an object that cannot be parsed does not affect the others
        if failure is not None:
            raise failure
