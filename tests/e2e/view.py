"""A live view of collections of the API server, and waiting for what is to be seen in it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from typing import TypeVar

from tests.cluster.client import ApiClient, Object
from tests.cluster.watch import Reflector

T = TypeVar("T")

PODS = "/api/v1/pods"
CLAIMS = "/api/v1/persistentvolumeclaims"
VOLUMES = "/api/v1/persistentvolumes"
LONGHORN_VOLUMES = "/apis/longhorn.io/v1beta2/volumes"
LONGHORN_REPLICAS = "/apis/longhorn.io/v1beta2/replicas"
LONGHORN_NODES = "/apis/longhorn.io/v1beta2/nodes"
ALL = (PODS, CLAIMS, VOLUMES, LONGHORN_VOLUMES, LONGHORN_REPLICAS, LONGHORN_NODES)


class View:
    """Collections as their watches show them.

    Threads: any. Blocks: `wait_for`, until an event makes its condition true.
    """

    def __init__(self, api: ApiClient, paths: Collection[str] = ALL) -> None:
        self._changed = threading.Condition()
        self._watches = {path: Reflector(api, path, self._on_event) for path in paths}
        for watch in self._watches.values():
            watch.wait_synced()

    def all(self, path: str, namespace: str | None = None) -> list[Object]:
        items = self._watches[path].snapshot().values()
        return [item for item in items if namespace is None or item["metadata"].get("namespace") == namespace]

    def get(self, path: str, key: str) -> Object | None:
        return self._watches[path].get(key)

    def wait_for(self, condition: Callable[[], T], what: str, timeout: float) -> T:
        """The first true result of `condition`, asked again at every event. Raises TimeoutError that names `what`."""
        with self._changed:
            found: T = self._changed.wait_for(condition, timeout)
        if not found:
            raise TimeoutError(f"no {what} after {timeout:.0f} s")
        return found

    def close(self) -> None:
        for watch in self._watches.values():
            watch.stop()

    def _on_event(self, _: str, __: Object) -> None:
        with self._changed:
            self._changed.notify_all()
