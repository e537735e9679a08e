"""List and watch of one kind, one thread each.

Own code, because the client library's informer has no signal for "in step with the cluster", swallows what its handlers
raise and cannot be ended, and its watch waits for ever on a silent connection. This one reads raw lines with a read
timeout, uses bookmarks, lists anew at once on 410, and says how old its knowledge is.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Iterator
from typing import Any, Final

from controller.clock import Clock
from controller.errors import ClusterError, GoneError, NotFoundError, UnavailableError
from controller.kube.api import KubeApi, Page, WatchStream, pages
from controller.kube.decoding import decode_event
from controller.kube.resources import Resource
from controller.kube.store import Store
from controller.log_line import say
from controller.model.reader import version_number
from controller.process.common_metrics import StoreState
from controller.process.repeated import QUIET_SECONDS
from controller.process.worker import Part, Worker, backoff_seconds

WATCH_SECONDS: Final = 30  # the server ends the watch after this, with a bookmark that proves what was seen
SILENCE_SECONDS: Final = 40.0  # without a byte for this long, the connection is dead
PROOF_SECONDS: Final = 3
FEW: Final = 250  # objects, which a list shows sooner than a bookmark comes
STALE_SECONDS: Final = 60.0
DOUBT_SECONDS: Final = STALE_SECONDS / 2  # a proof takes time, and has to arrive before the store is stale
ABSENT_RETRY_SECONDS: Final = 10.0
MOMENT_RETRY_SECONDS: Final = 1.0  # of a kind that was there a moment ago
BACKOFF_SECONDS: Final = 0.25  # after a first failure at least
MAX_BACKOFF_SECONDS: Final = 10.0
SHORT_WATCH_SECONDS: Final = 1.0
TRIES_BEFORE_LIST: Final = 4  # a position that the server refuses for this long may be one that it never had

_log = logging.getLogger(__name__)


class Informer(Part):
    """Keeps one store in step with the cluster until it is stopped.

    Whatever fails is tried again with a growing pause. Where etcd reports no progress, the API server has no bookmark
    for a kind that nobody changes; so a store without news for DOUBT_SECONDS is checked again: by the bookmark of a
    watch from its own version, or by a list. One that is older than STALE_SECONDS is not `synced` until then. With a
    `name`, it watches only that object; the rights to list and watch may then be limited to it. After a fault of ours,
    such as a subscriber's, the subscribers get the changes again.
    Threads: `worker`'s. Blocks: `catch_up` and `stop`, for the time given. I/O: list and watch.
    """

    def __init__(
        self,
        api: KubeApi,
        resource: Resource,
        store: Store[Any],
        clock: Clock,
        *,
        namespace: str | None = None,
        name: str | None = None,
        backoff_seconds: float = BACKOFF_SECONDS,
    ) -> None:
        self.resource, self.store = resource, store
        self._api, self._clock, self._namespace = api, clock, namespace
        self._selector = f"metadata.name={name}" if name else None
        self._backoff_seconds = backoff_seconds
        self._failures = 0  # in a row; the thread's own
        self._changed = threading.Condition()  # guards the fields below
        self._resource_version = ""
        self._current_at: float | None = None  # when the store was last known to match the cluster
        self._proofs_wanted = 0
        self._stream: WatchStream | None = None
        self._is_cut = False  # the stream was closed by us
        self.worker = Worker(f"informer-{store.kind}", self._round)

    def stop(self) -> None:
        """End the thread, even during a blocking read."""
        self.worker.begin_stop()
        self._close_stream()
        self.worker.stop()

    @property
    def resource_version(self) -> str:
        """The version up to which the store has seen everything; "" while it starts again."""
        with self._changed:
            return self._resource_version

    def age(self) -> float:
        """Seconds since the store was last known to be current; infinite before the first list."""
        with self._changed:
            at = self._current_at
        return float("inf") if at is None else max(0.0, self._clock.now() - at)

    def state(self) -> StoreState:
        store = self.store
        return StoreState(store.kind, store.synced.is_set(), len(store), len(store.bad), self.age())

    def catch_up(self, timeout: float) -> bool:
        """Whether the store has seen, within `timeout` seconds, all that was written before this call.

        A quorum read tells the cluster's version of this moment. If there are few objects, they are listed anew, which
        takes less time than the second or two until a bookmark. If there are many, an idle watch learns it from the
        bookmark that closes a short watch from its own version. Resource versions of one kind are ordered numbers.
        """
        deadline = self._clock.now() + timeout
        try:
            page = next(self._pages(most=FEW))
        except NotFoundError:
            return True  # no such kind: there is nothing to see
        except ClusterError:
            return False
        wanted = page.resource_version
        with self._changed:
            if self._has_seen(wanted):
                return True
            self._proofs_wanted += 1
            if not page.continue_token:
                self._resource_version = ""
        self._close_stream()
        self.worker.wake()
        with self._changed:
            left = deadline - self._clock.now()
            self._changed.wait_for(lambda: self._has_seen(wanted) or self.worker.is_stopping, left)
            self._proofs_wanted -= 1
            return self._has_seen(wanted)

    def _has_seen(self, wanted: str) -> bool:
        return version_number(self._resource_version) >= version_number(wanted) > 0

    def _round(self) -> float:
        """Lists and watches until the watch ends; returns the seconds until the next time. Raises a fault of ours."""
        try:
            try:
                self._follow_once()
            except NotFoundError:
                return self._be_absent()
        except ClusterError as error:
            if self.worker.is_stopping:
                return 0.0
            # A moment without the API server, or without rights in an uninstallation, is nothing to warn of.
            level = logging.WARNING if self.age() > QUIET_SECONDS else logging.INFO
            what = {"kind": self.resource.plural, "failures": self._failures + 1}
            say(_log, "informer failed", level, **what, error=repr(error))
            return self._failed(is_too_old=isinstance(error, GoneError))
        except Exception:
            self._failed()
            raise
        return 0.0

    def _follow_once(self) -> None:
        """Lists if the position is unknown, then watches until the watch ends."""
        if not self._resource_version:
            self._list()
        self._watch()

    def _failed(self, *, is_too_old: bool = False) -> float:
        """Counts the failure; returns the seconds until the next try: none after a first "too old", else a back-off."""
        self._failures += 1
        if is_too_old or self._failures % TRIES_BEFORE_LIST == 0:
            self._forget_position()
        if self.age() > STALE_SECONDS:
            self.store.synced.clear()
        if is_too_old and self._failures == 1:
            return 0.0
        longest = backoff_seconds(self._failures, (2 * self._backoff_seconds, MAX_BACKOFF_SECONDS))
        return longest * random.uniform(0.5, 1.0)

    def _be_absent(self) -> float:
        """Empties the store: the kind does not exist (yet), and so none of its objects. But if there was one a moment
        ago, and no event told of its end, the API server may only not serve the kind for a moment: the store stays."""
        self._forget_position()
        if len(self.store) and self.age() <= STALE_SECONDS:
            return MOMENT_RETRY_SECONDS
        self.store.replace(())
        self._mark_current()
        self._failures = 0
        return ABSENT_RETRY_SECONDS

    def _forget_position(self) -> None:
        with self._changed:
            self._resource_version = ""

    def _list(self) -> None:
        began_at, version = self._clock.now(), ""

        def objects() -> Iterator[dict[str, Any]]:
            nonlocal version
            for page in self._pages():
                yield from page.items
                version = page.resource_version
                if self.worker.is_stopping:
                    raise UnavailableError("stopped in the middle of a list")

        self.store.replace(objects())
        self._seen(version)
        self._mark_current(began_at)  # all pages show the cluster as it was at the first one

    def _pages(self, **query: Any) -> Iterator[Page]:
        return pages(self._api, self.resource, self._namespace, fieldSelector=self._selector, **query)

    def _watch(self) -> None:
        in_doubt = self.age() > DOUBT_SECONDS
        if in_doubt:
            next(self._pages(most=1))  # advances an idle kind's watch cache, without which there is no bookmark
        with self._changed:
            is_proof = in_doubt or self._proofs_wanted > 0
            version = self._resource_version
        if not version:
            return  # forgotten since the list, by `catch_up`, which waits for another one
        opened_at = self._clock.now()
        stream = self._api.watch(
            self.resource,
            self._namespace,
            version,
            timeout_seconds=PROOF_SECONDS if is_proof else WATCH_SECONDS,
            read_timeout=SILENCE_SECONDS,
            field_selector=self._selector,
        )
        with self._changed:
            self._stream, self._is_cut = stream, False
            is_late = self.worker.is_stopping or (self._proofs_wanted > 0 and not is_proof)
        try:
            lines = 0 if is_late else self._follow(stream, in_doubt=in_doubt)
        finally:
            with self._changed:
                self._stream = None
                is_cut = self._is_cut or is_late
            stream.close()
        if not lines and not is_cut and self._clock.now() - opened_at < SHORT_WATCH_SECONDS:
            raise UnavailableError("watch: ended at once")
        if not is_cut:
            self._failures = 0

    def _follow(self, stream: WatchStream, *, in_doubt: bool) -> int:
        """Applies every event to the store; returns how many lines there were.

        In doubt, only a bookmark tells that the store is current: the events before it may be a backlog.
        """
        lines = 0
        for line in stream:
            verb, raw = _event_of(line, self.resource.plural)
            if verb == "ERROR":
                raise _error_of(raw)
            if verb != "BOOKMARK":
                self.store.apply(verb, raw)
            metadata = raw.get("metadata")
            self._seen(metadata.get("resourceVersion") if isinstance(metadata, dict) else None)
            in_doubt = in_doubt and verb != "BOOKMARK"
            if not in_doubt:
                self._mark_current()
            lines += 1
            self._failures = 0
            if self.worker.is_stopping:
                return lines
        if in_doubt and not self._is_cut:
            self._forget_position()  # no bookmark came: a list tells
        return lines

    def _seen(self, version: object) -> None:
        with self._changed:
            if version_number(version):
                self._resource_version = str(version)
            self._changed.notify_all()

    def _mark_current(self, at: float | None = None) -> None:
        with self._changed:
            self._current_at = self._clock.now() if at is None else at
        self.store.synced.set()

    def _close_stream(self) -> None:
        with self._changed:
            stream, self._is_cut = self._stream, True
        if stream is not None:
            stream.close()


def _event_of(line: bytes, plural: str) -> tuple[str, dict[str, Any]]:
    """Verb and object. UnavailableError for what is no event: it is read again, and in the end a list shows what it was
    about."""
    try:
        event = decode_event(line, plural)
    except (ValueError, RecursionError) as error:
        raise UnavailableError(f"watch: {error}") from error
    verb, raw = (event.get("type"), event.get("object")) if isinstance(event, dict) else (None, None)
    if verb not in ("ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR") or not isinstance(raw, dict):
        raise UnavailableError("watch: an event without a verb or an object")
    return verb, raw


def _error_of(status: dict[str, Any]) -> ClusterError:
    code, message = status.get("code"), str(status.get("message", ""))
    if code == 410:
        return GoneError(message)
    return UnavailableError(f"watch: {code} {message}")
