"""How long the allocator's lock is held at a time, and in which of its public methods.

The lock inside the allocator's Condition is replaced by one that looks at the time when it is acquired and before it is
released, so that what waits for the lock, or waits on the Condition, holds nothing. The allocator is called through a
stand-in that notes the name of the public method; a generator holds what each of its steps holds.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, cast

from bench.stalls import Stalls
from controller.allocator.allocator import Allocator

PARTS: Final = ("expansions",)  # of the allocator: objects with public methods of their own, behind the same lock
STALLED_PART: Final = 0.1  # of a time, from which on it tells more of the machine than of us
_OLDEST: Final = 2  # generation of the garbage collector


class Held(NamedTuple):
    """One acquisition of the lock; seconds by `time.monotonic`."""

    method: str
    case: str
    began: float
    ended: float

    @property
    def seconds(self) -> float:
        return self.ended - self.began


def is_stalled(stalls: Stalls, began: float, ended: float) -> bool:
    """Whether the machine stood still for a good part of that time. A long time is not left out for a short stall, or
    the longest ones would be the first to go."""
    stood = sum(max(0.0, min(last, ended) - max(first, began)) for first, last in stalls.times)
    return stood > STALLED_PART * (ended - began)


class Book:
    """What held the lock during calls that were announced. `case` says what the calls are about.

    Threads: any; a call counts in the thread that makes it.
    """

    def __init__(self) -> None:
        self.case = ""
        self.holds: list[Held] = []
        self._thread = threading.local()

    @contextmanager
    def calling(self, method: str) -> Iterator[None]:
        """The outermost of several methods is the one that counts."""
        outer: str = self.method
        self._thread.method = outer or method
        try:
            yield
        finally:
            self._thread.method = outer

    @property
    def method(self) -> str:
        """What this thread calls; "" for nothing that was announced."""
        return getattr(self._thread, "method", "")


class TimedLock:
    """A lock that tells the book how long it was held."""

    def __init__(self, book: Book) -> None:
        self._book, self._lock, self._began = book, threading.Lock(), 0.0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        is_ours = self._lock.acquire(blocking, timeout)
        if is_ours:
            self._began = time.monotonic()
        return is_ours

    def release(self) -> None:
        began, ended = self._began, time.monotonic()
        self._lock.release()
        method = self._book.method
        if method:
            self._book.holds.append(Held(method, self._book.case, began, ended))

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


def timed(allocator: Allocator, book: Book) -> Allocator:
    """The same allocator behind a lock that is timed, as a stand-in to be called. Nobody may use it yet."""
    conditions = [value for value in vars(allocator).values() if isinstance(value, threading.Condition)]
    if len(conditions) != 1:
        raise RuntimeError(f"the allocator has {len(conditions)} conditions, not the one that guards everything")
    # In place, since the allocator's parts share the object.
    threading.Condition.__init__(conditions[0], cast("threading.Lock", TimedLock(book)))
    return cast("Allocator", _StandIn(allocator, book))


class _StandIn:
    """Calls the object behind it, and announces each call."""

    def __init__(self, behind: object, book: Book, prefix: str = "") -> None:
        self._behind, self._book, self._prefix = behind, book, prefix

    def __getattr__(self, name: str) -> Any:
        label = self._prefix + name
        with self._book.calling(label):  # it may be a property
            found = getattr(self._behind, name)
        if name in PARTS:
            return _StandIn(found, self._book, f"{name}.")
        if not callable(found):
            return found

        def call(*args: Any, **named: Any) -> Any:
            with self._book.calling(label):
                answer = found(*args, **named)
            return self._steps(label, answer) if isinstance(answer, Iterator) else answer

        return call

    def _steps(self, label: str, steps: Iterator[Any]) -> Iterator[Any]:
        while True:
            with self._book.calling(label):
                try:
                    step = next(steps)
                except StopIteration:
                    return
            yield step


def public_methods(allocator: Allocator) -> set[str]:
    """What there is to be measured. A name that ends in `_locked` is for callers that hold the lock."""
    found = set()
    for prefix, owner in (("", allocator), *((f"{part}.", getattr(allocator, part, None)) for part in PARTS)):
        if owner is not None:
            found |= {prefix + name for name in vars(type(owner)) if not name.startswith("_")}
    return {name for name in found if not name.endswith("_locked")}


class Collections:
    """When the garbage collector looked at all objects (`gc.callbacks`); seconds of each look."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._began = 0.0

    def __call__(self, phase: str, info: Mapping[str, int]) -> None:
        if info["generation"] == _OLDEST:
            if phase == "start":
                self._began = time.monotonic()
            else:
                self.seconds.append(time.monotonic() - self._began)
