"""The one loop of all threads of the suite: a round, again and again, whatever goes wrong in it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Protocol

RETRY_SECONDS: Final = (1.0, 5.0)  # after a round that failed: first, and at most; doubled in between
JOIN_SECONDS: Final = 5.0
STUCK_SECONDS: Final = 60.0  # in one round, the network aside

log = logging.getLogger(__name__)
_mine = threading.local()  # the Worker whose thread this is


@dataclass(frozen=True, slots=True)
class WorkerState:
    """How a worker does. `idle_seconds`: since its last round ended, None before the first; `busy_seconds`: for how
    long it has been in a round without a pause and without the network; `last_failure`: "" while none has failed."""

    name: str
    rounds: int
    failures: int
    idle_seconds: float | None
    busy_seconds: float
    last_failure: str
    failed_seconds_ago: float | None
    is_gone: bool  # its thread has ended without being asked to

    @property
    def problem(self) -> str:
        """Why the process has to be started anew; "" if it need not."""
        if self.is_gone:
            return f"thread {self.name} has ended"
        return f"thread {self.name} is stuck for {self.busy_seconds:.0f} s" if self.busy_seconds > STUCK_SECONDS else ""


class Worker:
    """Does `run` again and again in a thread of its own until it is stopped.

    `run` is one round. It returns the seconds until the next one, None to wait for `wake`, which also ends a pause
    early. A round that raises is logged with its trace and counted; the next one follows after a pause that doubles
    with each failure in a row (`retry_seconds`: the first, and the longest), and that `wake` does not end. `at_end` is
    done once in the thread, after the last round. A worker that was stopped can be started again.

    Threads: its own, named `name`; start and stop from one, the rest from any. Blocks: `stop`, until the round that is
    under way has ended. I/O: that of `run`.
    """

    def __init__(
        self,
        name: str,
        run: Callable[[], float | None],
        *,
        retry_seconds: tuple[float, float] = RETRY_SECONDS,
        at_end: Callable[[], None] | None = None,
    ) -> None:
        self.name = name
        self._run, self._retry_seconds, self._at_end = run, retry_seconds, at_end
        self._stop, self._signal = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        # The thread's own; read by `state`.
        self._rounds = self._failures = 0
        self._busy_since: float | None = None
        self._idle_since: float | None = None
        self._last_failure, self._failed_at = "", 0.0

    # From other threads

    def start(self, first_after_seconds: float = 0.0) -> None:
        # Events of its own for each start: a thread that outlived `stop` does not come to life again.
        self._stop, self._signal = threading.Event(), threading.Event()
        thread = threading.Thread(
            target=self._loop, args=(self._stop, self._signal, first_after_seconds), name=self.name, daemon=True
        )
        thread.start()
        self._thread = thread

    def wake(self) -> None:
        """Has the next round begin at once, or as soon as the present one is over."""
        self._signal.set()

    def begin_stop(self) -> None:
        """Lets no further round begin. Safe in a signal handler."""
        self._stop.set()
        self._signal.set()

    def stop(self, timeout: float = JOIN_SECONDS) -> bool:
        """Lets no further round begin; returns whether the present one ended in time."""
        self.begin_stop()
        if self._thread is None:
            return True
        self._thread.join(timeout)
        has_ended = not self._thread.is_alive()
        if not has_ended:
            log.error("thread %s did not end within %g s", self.name, timeout)
        self._thread = None
        return has_ended

    def state(self) -> WorkerState:
        now, thread = time.monotonic(), self._thread
        busy, idle = self._busy_since, self._idle_since
        return WorkerState(
            self.name,
            self._rounds,
            self._failures,
            None if idle is None else max(0.0, now - idle),
            0.0 if busy is None else max(0.0, now - busy),
            self._last_failure,
            now - self._failed_at if self._last_failure else None,
            thread is not None and not thread.is_alive() and not self._stop.is_set(),
        )

    # From the rounds

    @property
    def is_stopping(self) -> bool:
        return self._my_stop.is_set()

    @property
    def _my_stop(self) -> threading.Event:
        """Of the thread that asks: one that outlived `stop` is to end although another one was started since."""
        return _mine.stop if getattr(_mine, "worker", None) is self else self._stop

    def wait(self, seconds: float) -> bool:
        """Pauses within a round; `wake` does not end it. Returns whether the worker has to stop."""
        with self._idle():
            return self._my_stop.wait(seconds)

    # The thread

    def _loop(self, stop: threading.Event, signal: threading.Event, pause: float | None) -> None:
        _mine.worker, _mine.stop = self, stop
        in_a_row = 0
        while not stop.is_set():
            if pause is None or pause > 0:
                (stop if in_a_row else signal).wait(pause)
            if stop.is_set():
                break
            signal.clear()
            self._busy_since = time.monotonic()
            try:
                pause, in_a_row = self._run(), 0
            except Exception as error:  # thread top
                in_a_row += 1
                pause = backoff_seconds(in_a_row, self._retry_seconds)
                self._failures, self._failed_at = self._failures + 1, time.monotonic()
                self._last_failure = f"{type(error).__name__}: {error}"
                log.exception("a round of thread %s failed, the next one starts in %g s", self.name, pause)
            self._rounds += 1
            self._busy_since, self._idle_since = None, time.monotonic()
        if self._at_end is not None:
            try:
                self._at_end()
            except Exception:  # thread top
                log.exception("thread %s failed at its end", self.name)

    @contextmanager
    def _idle(self) -> Iterator[None]:
        self._busy_since = None
        try:
            yield
        finally:
            self._busy_since = time.monotonic()


class ProcessPart(Protocol):
    """A part that runs from the start of the process to its end, on followers too."""

    @property
    def workers(self) -> Sequence[Worker]: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...


class Part:
    """A part of the process that has one worker, and starts and stops with it."""

    worker: Worker

    @property
    def workers(self) -> Sequence[Worker]:
        """All of the part's own."""
        return (self.worker,)

    def start(self) -> None:
        self.worker.start()

    def stop(self) -> None:
        self.worker.stop()


def backoff_seconds(failures: int, bounds: tuple[float, float]) -> float:
    """The pause after so many failures in a row: the first of `bounds`, doubled by each, up to the second."""
    first, most = bounds
    return min(most, first * 2.0 ** min(failures - 1, 32))


class Group:
    """Parts of the process that start and stop together, in their order."""

    def __init__(self, parts: Iterable[ProcessPart]) -> None:
        self._parts = tuple(parts)

    @property
    def workers(self) -> Sequence[Worker]:
        return [worker for part in self._parts for worker in part.workers]

    def start(self) -> None:
        for part in self._parts:
            part.start()

    def stop(self) -> None:
        for part in self._parts:
            part.stop()


@contextmanager
def waiting() -> Iterator[None]:
    """The present thread waits, for the network or for something to happen; a timeout of its own ends that."""
    worker: Worker | None = getattr(_mine, "worker", None)
    if worker is None:
        yield
        return
    with worker._idle():  # noqa: SLF001
        yield


def health_problem(workers: Iterable[Worker]) -> str:
    """Why the process has to be started anew; "" if it need not."""
    return "; ".join(problem for worker in workers if (problem := worker.state().problem))


def worker_entries(workers: Iterable[Worker]) -> Mapping[str, Mapping[str, Any]]:
    """The workers' entries in `/status`, by name."""
    found = {}
    for worker in workers:
        state = worker.state()
        failed = state.failed_seconds_ago
        found[state.name] = {
            "rounds": state.rounds,
            "last_round_seconds_ago": None if state.idle_seconds is None else round(state.idle_seconds, 3),
            "failures": state.failures,
            "last_failure": state.last_failure or None,
            "last_failure_seconds_ago": None if failed is None else round(failed, 3),
            "problem": state.problem or None,
        }
    return found
