"""List and watch one collection in a thread, as client-go's reflector does."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from tests.cluster.client import ApiClient, ApiError, Object, Stop

logger = logging.getLogger(__name__)

OnEvent = Callable[[str, Object], None]
FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS = 0.05, 1.0


def key_of(obj: Object) -> str:
    """`namespace/name`, or the name alone for an object of the whole cluster."""
    meta = obj["metadata"]
    return f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else str(meta["name"])


class Reflector:
    """Keeps `store` equal to a collection and tells `on_event` every change, in the API server's order.

    Threads: `on_event(type, obj)` runs in the reflector's own thread, after `store` has the change; `snapshot()` and
    `get()` may be called from any thread. Types are ADDED, MODIFIED, DELETED. After a relist the differences are told
    the same way (a DELETED one carries the last object known), so the listener never needs to know. `synced` is set
    after the first list was told, and cleared while the watch is broken. A collection that does not exist yet (a CRD
    to come) is retried. An exception out of `on_event` is logged and kept in `error`, and the thread goes on.
    """

    def __init__(
        self,
        api: ApiClient,
        path: str,
        on_event: OnEvent,
        *,
        field_selector: str | None = None,
        name: str | None = None,
        start: bool = True,
    ) -> None:
        self._api, self._path, self._on_event = api, path, on_event
        self._params: dict[str, Any] = {"fieldSelector": field_selector}
        self._stop = Stop()
        self._lock = threading.Lock()  # guards _store
        self._store: dict[str, Object] = {}
        self.synced = threading.Event()
        self.resource_version = ""
        self.error: Exception | None = None
        self._thread = threading.Thread(
            target=self._run, name=name or f"reflector-{path.rsplit('/', 1)[-1]}", daemon=True
        )
        if start:
            self.start()

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout: float = 5.0) -> None:
        """Ask the thread to end and wait for it; may be called twice, and from `on_event`."""
        self._stop.set()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(timeout)

    def wait_synced(self, timeout: float = 30.0) -> None:
        if not self.synced.wait(timeout):
            raise TimeoutError(f"{self._path}: not listed within {timeout} s; last error: {self.error}")

    def get(self, key: str) -> Object | None:
        with self._lock:
            return self._store.get(key)

    def snapshot(self) -> dict[str, Object]:
        """Key to object. The dict is a copy, the objects are shared: do not change them."""
        with self._lock:
            return dict(self._store)

    def _run(self) -> None:
        pause = FIRST_RETRY_SECONDS
        while not self._stop.is_set():
            try:
                self._relist()
                pause = FIRST_RETRY_SECONDS
                while not self._stop.is_set():
                    self._follow()
            except ApiError as error:
                self.synced.clear()
                self.error = error
                if not error.gone:
                    self._stop.wait(pause)
                    pause = min(pause * 2, LONGEST_RETRY_SECONDS)

    def _relist(self) -> None:
        answer = self._api.list(self._path, **self._params)
        fresh = {key_of(item): item for item in answer["items"]}
        with self._lock:
            old, self._store = self._store, fresh
        self.resource_version = answer["metadata"]["resourceVersion"]
        for key in old.keys() - fresh.keys():
            self._tell("DELETED", old[key])
        for key, item in fresh.items():
            before = old.get(key)
            if before is not None and before["metadata"]["uid"] != item["metadata"]["uid"]:
                self._tell("DELETED", before)
                before = None
            if before is None:
                self._tell("ADDED", item)
            elif before["metadata"]["resourceVersion"] != item["metadata"]["resourceVersion"]:
                self._tell("MODIFIED", item)
        self.synced.set()

    def _follow(self) -> None:
        for kind, obj in self._api.watch(self._path, self.resource_version, None, self._stop, **self._params):
            self.resource_version = obj["metadata"]["resourceVersion"]
            if kind == "BOOKMARK":
                continue
            with self._lock:
                if kind == "DELETED":
                    self._store.pop(key_of(obj), None)
                else:
                    self._store[key_of(obj)] = obj
            self._tell(kind, obj)

    def _tell(self, kind: str, obj: Object) -> None:
        try:
            self._on_event(kind, obj)
        except Exception as error:  # the listener's fault must not blind it to later events
            self.error = error
            logger.exception("listener of %s failed on %s %s", self._path, kind, key_of(obj))
