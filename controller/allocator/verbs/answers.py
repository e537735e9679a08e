"""What callers were told lately, and what was taken back from them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable
from itertools import islice
from math import inf
from typing import Final, TypeVar

from controller.allocator.world.allocated import Allocated
from controller.clock import Clock
from controller.model.allocations import Allocation, Key

FREED_SECONDS: Final = 90.0  # until nothing that is seen is from before
_AT_ONCE: Final = 250

_Noted = TypeVar("_Noted")


class Lately(OrderedDict[_Noted, float]):
    """When each was noted last, the oldest first."""

    def note(self, one: _Noted, now: float) -> None:
        self[one] = now
        self.move_to_end(one)

    def forget(self, now: float, seconds: float) -> None:
        """Those of so long ago."""
        while self and now - next(iter(self.values())) >= seconds:
            self.popitem(last=False)


class AnsweredCalls:
    """Threads: any, but the allocator's lock guards what ends with `_locked`. Costs: a look-up for each entry."""

    def __init__(self, lock: threading.Condition, clock: Clock, allocated: Allocated) -> None:
        self._lock, self._clock, self._allocated = lock, clock, allocated
        self._told = Lately[Allocation]()  # when last, for the grace
        self._freed_at = Lately[tuple[str, Key]]()  # by node, when last

    def told_at(self, entries: Iterable[Allocation]) -> dict[Allocation, float]:
        """When callers were told of those entries last, if within the grace; infinity of what is being written for one
        now. In lots that let others in."""
        rest, found = iter(entries), dict[Allocation, float]()
        is_written = self._allocated.is_being_written
        while lot := tuple(islice(rest, _AT_ONCE)):
            with self._lock:
                told = {one: inf if is_written(one) else self._told.get(one) for one in lot}
            found.update((one, at) for one, at in told.items() if at is not None)
        return found

    def is_told(self, one: Allocation) -> bool:
        """Whether somebody was told of it within the grace, and since it was last to be freed, or is about to be."""
        with self._lock:
            return one in self._told or self._allocated.is_being_written(one)

    def is_freed(self, one: Allocation) -> bool:
        """Whether somebody has lately taken back what is on record there, or is about to: what shows it there may be
        from before."""
        with self._lock:
            return self.is_freed_locked(one)

    def is_freed_locked(self, one: Allocation) -> bool:
        return (one.node, one.key) in self._freed_at

    def told_locked(self, entries: Iterable[Allocation]) -> None:
        for one in entries:
            self._told.note(one, self._clock.now())

    def freed_locked(self, entries: Iterable[Allocation]) -> None:
        """They are to go from the record."""
        for one in entries:
            self._freed_at.note((one.node, one.key), self._clock.now())
            for each in self._allocated.every(one):
                self._told.pop(each, None)

    def sweep_locked(self, now: float, grace_seconds: float) -> None:
        """Costs: a look at what was told a grace ago, or freed a minute and a half ago."""
        self._told.forget(now, grace_seconds)
        self._freed_at.forget(now, FREED_SECONDS)
