"""The term that writes of the record carry."""

from __future__ import annotations

import threading
from collections.abc import Callable


class RecordTerm:
    """The Lease's term, or the next one after the latest on record where that is no less: a Lease that was deleted
    starts to count again. Found out once for each opening of the gate, so that no former leader overtakes its
    successor.

    Threads: any. Blocks: never. I/O: none.
    """

    def __init__(
        self, lease_term: Callable[[], int], openings: Callable[[], int], latest_on_record: Callable[[], int]
    ) -> None:
        """`lease_term` raises NotLeaderError while this process does not lead."""
        self._lease_term, self._openings, self._latest_on_record = lease_term, openings, latest_on_record
        self._lock = threading.Lock()  # guards the fields below
        self._opening, self._term = -1, 0

    def __call__(self) -> int:
        term, opening = self._lease_term(), self._openings()
        with self._lock:
            if self._opening == opening:
                return self._term
        latest = self._latest_on_record()  # a look at each record, once in a term
        with self._lock:
            if self._opening != opening:
                self._opening, self._term = opening, max(term, latest + 1)
            return self._term
