"""Reads from the API server that reviews cause: limited in number, and shared by equal questions.

Any client that reaches a port can ask about invented names, and each would be a read. So a process limits
its reads per second, and the threads that read at the same time. A further read is refused at once, for callers that
can do without. A caller that cannot may wait for a moment, as long as the reads that are under way are quick.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from controller.clock import Clock
from controller.errors import SchedulerError, TooManyReadsError, UnavailableError

Found = TypeVar("Found")
BURST_SECONDS: Final = 2.0  # after a pause so much may be read at once
SLOW_SECONDS: Final = 0.5  # a read that is under way for so long: nobody waits for a turn behind it


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """`a_second`, on average; `at_once`: threads that read, or wait for what another one reads; `shared_seconds`: how
    long what was found is shared with others who ask."""

    a_second: float
    at_once: int
    shared_seconds: float = 0.0


@dataclass(slots=True)
class _Read(Generic[Found]):
    """One read; what came of it is there once it is over."""

    over: threading.Event = field(default_factory=threading.Event)
    found: Found | None = None
    error: SchedulerError | None = None
    shared_until: float = 0.0

    def result(self) -> Found:
        if self.error is not None:
            raise self.error.with_traceback(None)
        assert self.found is not None
        return self.found


class BoundedReads(Generic[Found]):
    """What was found is shared for a moment. That something is not there is shared only with those who asked while it
    was read, since it may be made a moment later.

    Threads: any. Blocks: for the read's time, or until another thread has read the same. I/O: the reads, outside the
    lock.
    """

    def __init__(self, clock: Clock, limits: ReadLimits) -> None:
        self._clock, self._limits = clock, limits
        self._lock = threading.Condition()  # guards the fields below
        self._reads: dict[Hashable, _Read[Found]] = {}
        self._begun: list[float] = []  # when each thread that is busy began, the first first
        self._left = self._most  # reads that may be made now
        self._counted_at = clock.now()

    @property
    def _most(self) -> float:
        return max(1.0, BURST_SECONDS * self._limits.a_second)

    def get(
        self, key: Hashable, read: Callable[[], Found], seconds: float, *, patience_seconds: float = 0.0
    ) -> tuple[Found, bool]:
        """What `read` returns or raises, and whether another question had it read; `seconds`: how long to wait for
        that. TooManyReadsError where a limit is reached, at once unless there is patience to wait for a turn;
        UnavailableError where the other read takes longer."""
        with self._lock:
            until = self._clock.now() + patience_seconds
            while (known := self._known(key)) is None or not known.over.is_set():
                if len(self._begun) < self._limits.at_once:
                    break
                self._wait(until)
            if known is not None and known.over.is_set():
                return known.result(), True
            mine, begun = known or self._begin(key), self._clock.now()
            self._begun.append(begun)
        with self._turn(begun):
            if known is None:
                return self._make(key, mine, read), False
            if not known.over.wait(seconds):
                raise UnavailableError("the same read by another thread takes too long")
            return known.result(), True

    def _known(self, key: Hashable) -> _Read[Found] | None:
        """What is being read, or was a moment ago."""
        known = self._reads.get(key)
        is_old = known is not None and known.over.is_set() and self._clock.now() >= known.shared_until
        return None if is_old else known

    def _wait(self, until: float) -> None:
        """For a turn, or for what another one reads."""
        left = min(until, self._begun[0] + SLOW_SECONDS) - self._clock.now()
        if left <= 0:
            raise TooManyReadsError(f"{len(self._begun)} threads already read for callers")
        self._lock.wait(left)

    @contextmanager
    def _turn(self, begun: float) -> Iterator[None]:
        try:
            yield
        finally:
            with self._lock:
                self._begun.remove(begun)
                self._lock.notify_all()

    def _begin(self, key: Hashable) -> _Read[Found]:
        now = self._clock.now()
        self._left = min(self._most, self._left + (now - self._counted_at) * self._limits.a_second)
        self._counted_at = now
        if self._left < 1.0:
            raise TooManyReadsError(f"{self._limits.a_second:g} reads per second are allowed for callers")
        self._left -= 1.0
        for other in [key for key, one in self._reads.items() if one.over.is_set() and one.shared_until <= now]:
            del self._reads[other]
        read = self._reads[key] = _Read()
        return read

    def _make(self, key: Hashable, mine: _Read[Found], read: Callable[[], Found]) -> Found:
        try:
            mine.found = read()
            mine.shared_until = self._clock.now() + self._limits.shared_seconds
        except SchedulerError as error:
            mine.error = error
            raise
        except BaseException as error:
            mine.error = UnavailableError(f"the read failed: {error!r}")
            raise
        finally:
            with self._lock:
                if mine.error is not None and self._reads.get(key) is mine:
                    del self._reads[key]
            mine.over.set()
        return mine.found
