"""Work at a later moment: one thread for the clock, a pool for the work."""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from tests.cluster.client import ApiError

TRIES: Final = 5
RETRY_SECONDS: Final = 0.5

logger = logging.getLogger(__name__)


class Timers:
    """`after(seconds, work)` runs `work` in the pool, and again where the API server had no answer, as a controller
    does. Threads: `timers` and the pool's; any may call."""

    def __init__(self, workers: int) -> None:
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="longhorn")
        self._changed = threading.Condition()
        self._heap: list[tuple[float, int, Callable[..., Any], tuple[Any, ...]]] = []
        self._count = itertools.count()
        self._is_stopped = False
        self.failures: list[str] = []
        self._thread = threading.Thread(target=self._run, name="timers", daemon=True)
        self._thread.start()

    def after(self, seconds: float, work: Callable[..., Any], *args: Any) -> None:
        with self._changed:
            if not self._is_stopped:
                heapq.heappush(self._heap, (time.monotonic() + seconds, next(self._count), work, args))
                self._changed.notify()

    def now(self, work: Callable[..., Any], *args: Any) -> None:
        self.after(0.0, work, *args)

    def stop(self) -> None:
        with self._changed:
            self._is_stopped = True
            self._heap.clear()
            self._changed.notify()
        self._thread.join(5)
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._is_stopped and (not self._heap or self._heap[0][0] > time.monotonic()):
                    self._changed.wait(self._heap[0][0] - time.monotonic() if self._heap else None)
                if self._is_stopped:
                    return
                _, _, work, args = heapq.heappop(self._heap)
            self._pool.submit(self._do, work, args)

    def _do(self, work: Callable[..., Any], args: tuple[Any, ...], tries: int = TRIES) -> None:
        try:
            work(*args)
        except Exception as error:  # thread top
            name = getattr(work, "__name__", work)
            if isinstance(error, ApiError) and error.is_unanswered and tries > 1:
                logger.warning("%s%r is tried again: %s", name, args, error)
                self.after(RETRY_SECONDS, self._do, work, args, tries - 1)
                return
            self.failures.append(f"{name}: {error!r}")
            logger.exception("work failed: %s%r", name, args)
