"""Reads from the API server that reviews cause: limited in number, and shared by equal questions.

Any client that reaches a port for reviews can ask about invented names, and each would be a read. So a process limits
its reads per second, and the threads that read at the same time. Another read is refused at once, and its caller can do
without.
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


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """`a_second`, on average; `at_once`: threads that read, or wait for what another one reads; `shared_seconds`: that
    what was found is told to others who ask."""

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
    """What was found is shared for a moment; that something is not there only with those who asked while it was read,
    since it may be made a moment later.

    Threads: any. Blocks: for the read's time, or until another thread has read the same. I/O: the reads, outside the
    lock.
    """

    def __init__(self, clock: Clock, limits: ReadLimits) -> None:
        self._clock, self._limits = clock, limits
        self._lock = threading.Lock()  # guards the fields below
        self._reads: dict[Hashable, _Read[Found]] = {}
        self._busy = 0  # threads
        self._left = self._most  # reads that may be made now
        self._counted_at = clock.now()

    @property
    def _most(self) -> float:
        return max(1.0, BURST_SECONDS * self._limits.a_second)

    def get(self, key: Hashable, read: Callable[[], Found], seconds: float) -> tuple[Found, bool]:
        """What `read` returns or raises, and whether another question had it read; `seconds`: for which that is waited
        for. TooManyReadsError at once where a limit is reached; UnavailableError where the other one takes longer."""
        with self._lock:
            known = self._reads.get(key)
            if known is not None and known.over.is_set():
                if self._clock.now() < known.shared_until:
                    return known.result(), True
                known = None
            if self._busy >= self._limits.at_once:
                raise TooManyReadsError(f"{self._busy} threads already read for reviews")
            mine = known or self._begin(key)
            self._busy += 1
        with self._turn():
            if known is None:
                return self._make(key, mine, read), False
            if not known.over.wait(seconds):
                raise UnavailableError("the same read by another thread takes too long")
            return known.result(), True

    @contextmanager
    def _turn(self) -> Iterator[None]:
        try:
            yield
        finally:
            with self._lock:
                self._busy -= 1

    def _begin(self, key: Hashable) -> _Read[Found]:
        now = self._clock.now()
        self._left = min(self._most, self._left + (now - self._counted_at) * self._limits.a_second)
        self._counted_at = now
        if self._left < 1.0:
            raise TooManyReadsError(f"{self._limits.a_second:g} reads per second are allowed for reviews")
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
