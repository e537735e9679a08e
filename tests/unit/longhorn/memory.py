"""An API server in memory, what watches it, and timers that move only when a test says so."""

from __future__ import annotations

import copy
import heapq
import itertools
import re
import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from tests.cluster.client import ApiError
from tests.cluster.watch import key_of
from tests.longhorn.timers import Timers

Raw = dict[str, Any]
_PATH = re.compile(r"(/api/v1|/apis/[^/]+/[^/]+)(?:/namespaces/([^/]+))?/([^/]+)(?:/([^/]+))?(?:/(status))?")


class MemoryApi:
    """What the stand-in uses of an API server: versions, conflicts, finalizers, and events told when asked to."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str, str], Raw] = {}  # collection, namespace, name
        self.events: deque[tuple[str, str, Raw]] = deque()
        self.watches: list[MemoryReflector] = []
        self.is_closed = False  # nothing gets its first node
        self.refusals = 0
        self._versions = itertools.count(1)

    def get_or_none(self, path: str) -> Raw | None:
        return copy.deepcopy(self.objects.get(_key(path)))

    def get(self, path: str) -> Raw:
        return copy.deepcopy(self._at(_key(path)))

    def list(self, path: str, label_selector: str = "", **_: Any) -> Raw:
        collection, namespace, _name = _key(path)
        label, _sign, value = label_selector.partition("=")
        found = [
            copy.deepcopy(raw)
            for (where, space, _name), raw in sorted(self.objects.items())
            if where == collection and namespace in ("", space)
            if not label or (raw["metadata"].get("labels") or {}).get(label) == value
        ]
        return {"items": found}

    def create(self, path: str, raw: Raw) -> Raw:
        collection, namespace, _name = _key(path)
        key = (collection, namespace, str(raw["metadata"]["name"]))
        if key in self.objects:
            raise ApiError(409, "AlreadyExists", key[2])
        new = copy.deepcopy(raw)
        new["metadata"] |= {"uid": f"uid-{next(self._versions)}", **({"namespace": namespace} if namespace else {})}
        return self._store("ADDED", key, new)

    def replace(self, path: str, raw: Raw) -> Raw:
        key = _key(path)
        old = self._at(key)
        if raw["metadata"]["resourceVersion"] != old["metadata"]["resourceVersion"]:
            raise ApiError(409, "Conflict", key[2])
        if self.is_closed and raw["spec"].get("nodeID") and "diskID" in raw["spec"] and not old["spec"].get("nodeID"):
            self.refusals += 1
            raise ApiError(403, "Forbidden", key[2])
        is_status = path.endswith("/status")
        new = copy.deepcopy(old)
        for part in ("status",) if is_status else ("metadata", "spec", "value"):
            if part in raw:
                new[part] = copy.deepcopy(raw[part])
        if new == old:
            return new
        return self._store("MODIFIED", key, new)

    def patch(self, path: str, patch: Raw, **_: Any) -> Raw:
        key = _key(path)
        return self._store("MODIFIED", key, _merged(self._at(key), patch))

    def delete(self, path: str, **_: Any) -> None:
        key = _key(path)
        new = copy.deepcopy(self._at(key))
        new["metadata"].setdefault("deletionTimestamp", "2026-01-01T00:00:00Z")
        self._store("MODIFIED", key, new)

    def _at(self, key: tuple[str, str, str]) -> Raw:
        if key not in self.objects:
            raise ApiError(404, "NotFound", key[2])
        return self.objects[key]

    def _store(self, verb: str, key: tuple[str, str, str], new: Raw) -> Raw:
        new["metadata"]["resourceVersion"] = str(next(self._versions))
        self.objects[key] = new
        if new["metadata"].get("deletionTimestamp") and not new["metadata"].get("finalizers"):
            verb = "DELETED"
            del self.objects[key]
        self.events.append((verb, key[0], copy.deepcopy(new)))
        return copy.deepcopy(new)


class MemoryReflector:
    """Stands in for `Reflector`: shows what its API server has told so far."""

    def __init__(self, api: MemoryApi, path: str, on_event: Callable[[str, Raw], None], **_: Any) -> None:
        self.collection, self._on_event = _key(path)[0], on_event
        self._store: dict[str, Raw] = {}
        api.watches.append(self)

    def tell(self, verb: str, raw: Raw) -> None:
        if verb == "DELETED":
            self._store.pop(key_of(raw), None)
        else:
            self._store[key_of(raw)] = raw
        self._on_event(verb, raw)

    def get(self, key: str) -> Raw | None:
        return self._store.get(key)

    def snapshot(self) -> dict[str, Raw]:
        return dict(self._store)


class ManualTimers(Timers):
    """Work is done while `advance` runs, in the order of its times, with all events told in between."""

    def __init__(self, api: MemoryApi) -> None:
        self._api, self.time = api, 0.0
        self._heap = []
        self._count = itertools.count()
        self._changed = threading.Condition()
        self._is_stopped = False
        self.failures = []

    def after(self, seconds: float, work: Callable[..., Any], *args: Any) -> None:
        heapq.heappush(self._heap, (self.time + seconds, next(self._count), work, args))

    def advance(self, seconds: float) -> None:
        until = self.time + seconds
        self._tell()
        while self._heap and self._heap[0][0] <= until:
            self.time, _, work, args = heapq.heappop(self._heap)
            work(*args)
            self._tell()
        self.time = until

    def _tell(self) -> None:
        while self._api.events:
            verb, collection, raw = self._api.events.popleft()
            for watch in self._api.watches:
                if watch.collection == collection:
                    watch.tell(verb, raw)


def _key(path: str) -> tuple[str, str, str]:
    match = _PATH.fullmatch(path)
    assert match is not None, path
    return f"{match[1]}/{match[3]}", match[2] or "", match[4] or ""


def _merged(old: Any, new: Any) -> Any:
    if not isinstance(old, Mapping) or not isinstance(new, Mapping):
        return copy.deepcopy(new)
    return {**copy.deepcopy(old), **{key: _merged(old.get(key), value) for key, value in new.items()}}
