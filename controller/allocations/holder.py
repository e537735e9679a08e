"""The record as the leader has it: where it is kept, and what writes it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

from controller.allocations.backends import RecordBackend, found_backend
from controller.allocations.writer import Learn, RecordWriter, learn_nothing
from controller.clock import Clock
from controller.errors import NotFoundError, NotReadyError
from controller.kube.api import KubeApi
from controller.model.allocations import NodeRecord
from controller.process.repeated import Repeated
from controller.process.worker import Part

LOOK_EVERY_SECONDS: Final = 60.0
RETRY_SECONDS: Final = 2.0

_log = logging.getLogger(__name__)


def tell_no_record(problem: str) -> None:
    _log.info("no record of allocations: %s", problem)


class RecordHolder(Part):
    """Finds out every minute where the record is kept: a CRD may be added or removed, or get the field.

    Threads: `worker`'s; the rest is for any. Blocks: never. I/O: one list in each round.
    """

    def __init__(
        self,
        api: KubeApi,
        namespace: str,
        term: Callable[[], int],
        clock: Clock,
        say: Callable[[str], None],
        seen: Callable[[str], NodeRecord | None] = lambda _node: None,
        learn: Learn = learn_nothing,
    ) -> None:
        """`term`: that writes carry; raises NotLeaderError while this process does not lead. `seen`: a node's record as
        a watch shows it. `learn`: as `RecordWriter`'s."""
        self._api, self._namespace, self.term, self._clock, self._seen = api, namespace, term, clock, seen
        self._learn = learn
        self._backend: RecordBackend | None = None
        self._writer: RecordWriter | None = None
        self._is_known = False  # whether a look has told if there is a place
        pause = {True: LOOK_EVERY_SECONDS, False: RETRY_SECONDS}
        self._steps = Repeated(self.look, pause.__getitem__, say, thread="record")
        self.worker = self._steps.worker

    @property
    def backend(self) -> RecordBackend | None:
        """None: there is no record, or it is not known yet where; `problem` says which."""
        return self._backend

    @property
    def problem(self) -> str:
        return "; ".join(self._steps.problems)

    def writer(self) -> RecordWriter | None:
        """What makes changes durable while this process leads; None without a record."""
        return self._writer

    def known_writer(self) -> RecordWriter | None:
        """The same; NotReadyError until a look has told whether there is a record."""
        if not self._is_known:
            why = self.problem or "nobody has looked"
            raise NotReadyError(f"it is not known yet where allocations are on record: {why}")
        return self._writer

    def look(self) -> None:
        """Raises NotFoundError when the cluster has no place for a record, and another ClusterError when that cannot be
        told: then it stays as it was."""
        try:
            found = found_backend(self._api, self._namespace)
            found.check()
        except NotFoundError:
            self._backend = self._writer = None
            self._is_known = True
            raise
        if self._backend is None or found.name != self._backend.name:
            self._backend = found
            self._writer = RecordWriter(found, self.term, self._clock, seen=self._seen, learn=self._learn)
        self._is_known = True
        self._steps.note(())

    def status(self) -> dict[str, Any]:
        backend = self._backend
        return {"place": backend.name if backend is not None else "", "problem": self.problem}
