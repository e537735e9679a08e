"""List and watch of one kind, one thread each.

Own code, because the client library's informer has no signal for "in step with the cluster", swallows what its handlers
raise and cannot be ended, and its watch waits for ever on a silent connection. This one reads raw lines with a read
timeout, uses bookmarks, lists anew at once on 410, and says how old its knowledge is.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from controller.clock import Clock
from controller.errors import ClusterError, GoneError, MalformedRequestError, NotFoundError, UnavailableError
from controller.kube.api import KubeApi, WatchStream
from controller.kube.resources import Resource
from controller.kube.store import Store

PAGE_SIZE: Final = 500
WATCH_SECONDS: Final = 30  # the server ends the watch after this, with a bookmark that proves what was seen
SILENCE_SECONDS: Final = 40.0  # no byte for so long: the connection is dead
PROOF_SECONDS: Final = 3
STALE_SECONDS: Final = 60.0
ABSENT_RETRY_SECONDS: Final = 10.0
MAX_BACKOFF_SECONDS: Final = 10.0

_log = logging.getLogger(__name__)


class Informer:
    """Keeps one store in step with the cluster until it is stopped.

    Threads: its own, `informer-<plural>`. Blocks: `catch_up` and `stop`, for the time given. I/O: list and watch.
    """

    def __init__(
        self,
        api: KubeApi,
        resource: Resource,
        store: Store[Any],
        clock: Clock,
        *,
        namespace: str | None = None,
        on_failure: Callable[[str, BaseException], None] | None = None,
    ) -> None:
        self.resource, self.store = resource, store
        self._api, self._clock, self._namespace = api, clock, namespace
        self._on_failure = on_failure
        self._changed = threading.Condition()  # guards the fields below
        self._resource_version = ""
        self._current_at: float | None = None  # when the store was last known to match the cluster
        self._proof_wanted = False
        self._stream: WatchStream | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name=f"informer-{self.resource.plural}", daemon=True)
        self._thread.start()

    def stop(self, timeout: float = 5.0) -> None:
        """End the thread, also out of a blocking read."""
        self._stop.set()
        self._close_stream()
        if self._thread is not None:
            self._thread.join(timeout)

    @property
    def resource_version(self) -> str:
        """Up to which version the store has seen everything; "" while it begins anew."""
        with self._changed:
            return self._resource_version

    def age(self) -> float:
        """Seconds since the store was last known to be current; infinite before the first list."""
        with self._changed:
            at = self._current_at
        return float("inf") if at is None else max(0.0, self._clock.now() - at)

    def catch_up(self, timeout: float) -> bool:
        """Whether the store has seen, within `timeout` seconds, all that was written before this call.

        A quorum read of one object tells the cluster's version of this moment; an idle watch learns of it by the
        bookmark that closes a short watch from its own version. Resource versions of one kind are ordered numbers.
        """
        deadline = self._clock.now() + timeout
        try:
            wanted = self._api.list_page(self.resource, self._namespace, limit=1).resource_version
        except NotFoundError:
            return True  # no such kind: there is nothing to see
        except ClusterError:
            return False
        with self._changed:
            if self._has_seen(wanted):
                return True
            self._proof_wanted = True
        self._close_stream()
        with self._changed:
            self._changed.wait_for(lambda: self._has_seen(wanted) or self._stop.is_set(), deadline - self._clock.now())
            self._proof_wanted = False
            return self._has_seen(wanted)

    def _has_seen(self, wanted: str) -> bool:
        return bool(self._resource_version) and _number(self._resource_version) >= _number(wanted)

    def _run(self) -> None:
        failures = 0
        while not self._stop.is_set():
            try:
                if not self._resource_version:
                    self._list()
                self._watch()
                failures = 0
            except GoneError:
                self._forget_position()
            except NotFoundError:
                self._be_absent()
            except (ClusterError, MalformedRequestError, msgspec.DecodeError) as error:
                failures += 1
                self._failed(error, failures)
            except Exception as error:  # thread top
                failures += 1
                self._forget_position()  # a subscriber may have missed a change: begin anew
                self._failed(error, failures)

    def _failed(self, error: BaseException, failures: int) -> None:
        level = logging.WARNING if isinstance(error, ClusterError) else logging.ERROR
        _log.log(level, "informer kind=%s failures=%d error=%s", self.resource.plural, failures, error)
        if self._on_failure is not None and not isinstance(error, ClusterError):
            self._on_failure(self.resource.plural, error)
        if self.age() > STALE_SECONDS:
            self.store.synced.clear()
        backoff = min(MAX_BACKOFF_SECONDS, 0.25 * 2 ** min(failures, 6))
        self._stop.wait(backoff * random.uniform(0.5, 1.0))

    def _be_absent(self) -> None:
        """The kind does not exist (yet): nothing of it exists, which is knowledge too."""
        self.store.replace(())
        self._forget_position()
        self._mark_current()
        self.store.synced.set()
        self._stop.wait(ABSENT_RETRY_SECONDS)

    def _forget_position(self) -> None:
        with self._changed:
            self._resource_version = ""

    def _list(self) -> None:
        versions: list[str] = []
        self.store.replace(self._pages(versions))
        self._seen(versions[-1])
        self.store.synced.set()

    def _pages(self, versions: list[str]) -> Iterator[dict[str, Any]]:
        """Every object of the kind, one page in memory at a time; the list's version is appended to `versions`."""
        token = ""
        while True:
            if self._stop.is_set():
                raise UnavailableError("stopped in the middle of a list")
            query: dict[str, object] = {"limit": PAGE_SIZE}
            if token:
                query["continue"] = token
            page = self._api.list_page(self.resource, self._namespace, **query)
            yield from page.items
            token = page.continue_token
            if not token:
                versions.append(page.resource_version)
                return

    def _watch(self) -> None:
        with self._changed:
            seconds = PROOF_SECONDS if self._proof_wanted else WATCH_SECONDS
            version = self._resource_version
        if self._stop.is_set() or not version:
            return
        stream = self._api.watch(
            self.resource, self._namespace, version, timeout_seconds=seconds, read_timeout=SILENCE_SECONDS
        )
        with self._changed:
            self._stream = stream
            is_late = self._stop.is_set() or (self._proof_wanted and seconds != PROOF_SECONDS)
        try:
            if not is_late:
                self._follow(stream)
        finally:
            with self._changed:
                self._stream = None
            stream.close()

    def _follow(self, stream: WatchStream) -> None:
        for line in stream:
            event = msgspec.json.decode(line)
            verb, raw = event.get("type"), event.get("object")
            if not isinstance(raw, dict):
                raise UnavailableError("watch: an event without an object")
            if verb == "ERROR":
                raise _error_of(raw)
            if verb != "BOOKMARK":
                self.store.apply(str(verb), raw)
            self._seen(str((raw.get("metadata") or {}).get("resourceVersion", "")))
            if self._stop.is_set():
                return

    def _seen(self, version: str) -> None:
        with self._changed:
            if version:
                self._resource_version = version
            self._current_at = self._clock.now()
            self._changed.notify_all()

    def _mark_current(self) -> None:
        with self._changed:
            self._current_at = self._clock.now()

    def _close_stream(self) -> None:
        with self._changed:
            stream = self._stream
        if stream is not None:
            stream.close()


def _number(version: str) -> int:
    return int(version) if version.isascii() and version.isdigit() else 0


def _error_of(status: dict[str, Any]) -> ClusterError:
    code, message = status.get("code"), str(status.get("message", ""))
    if code == 410:
        return GoneError(message)
    return UnavailableError(f"watch: {code} {message}")
