"""An API server in memory, behind the same protocol as the adapter: resource versions, conflicts, watches, faults on
demand."""

from __future__ import annotations

import copy
import math
import threading
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import msgspec

from controller.errors import ConflictError, GoneError, NotFoundError, SchedulerError, UnavailableError
from controller.kube.api import KubeApi, Page, Raw
from controller.kube.decoding import MISFIT
from controller.kube.resources import PODS, Resource

Key = tuple[str, str, str]  # path of the collection's kind, namespace, name
Selects = Callable[[Key, Raw], bool]


def _selection(resource: Resource, namespace: str | None, selector: object) -> Selects:
    """Which objects are listed or watched."""
    wanted = [part.split("=", 1) for part in str(selector or "").split(",") if part]

    def selects(key: Key, raw: Raw) -> bool:
        path, where, _ = key
        is_there = path == resource.path() and namespace in (None, where)
        return is_there and all(_field(raw, field) == value for field, value in wanted)

    return selects


def _field(raw: Raw, field: str) -> Any:
    """As field selectors see it: "" where it is missing."""
    found: Any = raw
    for step in field.split("."):
        found = (found or {}).get(step)
    return found or ""


class FakeWatch:
    """A stream of lines that ends when it is closed, when its time is up, or as a script says."""

    def __init__(self, server: FakeApiServer, selects: Selects, version: int, *, is_short: bool) -> None:
        self._server, self._selects = server, selects
        self._version, self._is_short = version, is_short
        self.is_closed = False

    def close(self) -> None:
        with self._server.changed:
            self.is_closed = True
            self._server.changed.notify_all()

    def _news(self) -> list[tuple[int, str, Raw]]:
        log = self._server.log
        return [(at, verb, raw) for at, verb, key, raw in log if at > self._version and self._selects(key, raw)]

    def _is_to_look(self) -> bool:
        return self.is_closed or self._server.cut is not None or self._server.bookmark or bool(self._news())

    def __iter__(self) -> Iterator[bytes]:
        while not self._server.ends_watches:
            for version, verb, raw in self._news():
                self._version = version
                yield self._server.garble(_line(verb, raw))
            with self._server.changed:
                if self._news():  # come since the look above; a bookmark must not go past them
                    continue
                if self._server.cut is not None:
                    cut, self._server.cut = self._server.cut, None
                    fault = cut()
                    if isinstance(fault, bytes):
                        tail = fault
                    else:
                        raise fault
                elif self.is_closed or (self._is_short and not self._server.has_bookmarks):
                    return
                elif self._is_short or self._server.bookmark:
                    self._server.bookmark = False
                    tail = _line("BOOKMARK", {"metadata": {"resourceVersion": str(self._server.version)}})
                    self._version = self._server.version
                else:
                    self._server.changed.wait_for(self._is_to_look, timeout=10)
                    continue
            yield tail
            if self._is_short:
                return


class FakeApiServer(KubeApi):
    """KubeApi in memory. `fail` is asked before every call and may raise; `admit` before a patch is stored, with the
    object before and after, and the field manager; `cut` breaks the next idle watch; `garble` changes lines of watches.

    Threads: any. Blocks: watches only.
    """

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.version = 100
        self.objects: dict[Key, Raw] = {}
        self.log: list[tuple[int, str, Key, Raw]] = []  # version, verb, of which object, and how it is now
        self.oldest = 0  # watches from before this version are gone
        self.fail: Callable[[str, Resource], None] = lambda _verb, _resource: None
        self.admit: Callable[[Resource, Raw, Raw, str], None] = lambda _resource, _old, _new, _manager: None
        self.date: Callable[[], datetime | None] = lambda: None
        self.cut: Callable[[], bytes | SchedulerError] | None = None
        self.garble: Callable[[bytes], bytes] = lambda line: line
        self.bookmark = False
        self.absent: set[str] = set()  # plurals whose CRD does not exist
        self.page_size: int | None = None
        self.has_bookmarks = True  # False: a short watch ends without its closing bookmark
        self.ends_watches = False  # every watch ends as soon as it is open
        self.logs: dict[tuple[str, str], bytes] = {}  # by pod and container

    def fail_with(
        self, error: SchedulerError, *verbs: str, about: Resource | None = None, times: float = math.inf
    ) -> None:
        """Calls of these verbs, of all if none is named, raise this; only those about such objects, and only so many of
        them, where that is said."""
        left = times

        def fail(verb: str, resource: Resource) -> None:
            nonlocal left
            if left > 0 and verb in (verbs or (verb,)) and about in (None, resource):
                left -= 1
                raise error

        self.fail = fail

    def work(self) -> None:
        """Again, after failures."""
        self.fail = lambda _verb, _resource: None

    def _enter(self, verb: str, resource: Resource) -> None:
        self.fail(verb, resource)
        if resource.plural in self.absent:
            raise NotFoundError(f"404: no {resource.plural}")

    def server_utc(self) -> datetime | None:
        return self.date()

    def get(self, resource: Resource, namespace: str | None, name: str, **_: object) -> Raw:
        self._enter("get", resource)
        with self.changed:
            return copy.deepcopy(self._at(resource, namespace, name))

    def _at(self, resource: Resource, namespace: str | None, name: str) -> Raw:
        key = (resource.path(), namespace or "", name)
        if key not in self.objects:
            raise NotFoundError(f"404: {name}")
        return self.objects[key]

    def list_page(self, resource: Resource, namespace: str | None = None, **query: object) -> Page:
        self._enter("list", resource)
        with self.changed:
            selects = _selection(resource, namespace, query.get("fieldSelector"))
            found = [copy.deepcopy(raw) for key, raw in sorted(self.objects.items()) if selects(key, raw)]
            if labels := str(query.get("labelSelector") or ""):
                label, _, value = labels.partition("=")
                found = [raw for raw in found if (raw["metadata"].get("labels") or {}).get(label) == value]
            start = int(str(query.get("continue", "0")))
            limit = min(int(str(query.get("limit", len(found) or 1))), self.page_size or 10**9)
            more = str(start + limit) if start + limit < len(found) else ""
            return Page(found[start : start + limit], str(self.version), more)

    def read_log(self, namespace: str, pod: str, container: str, **_: object) -> bytes:
        self._enter("log", PODS)
        if (pod, container) not in self.logs:
            raise UnavailableError("500: no kubelet")
        return self.logs[pod, container]

    def watch(
        self, resource: Resource, namespace: str | None, resource_version: str, *, timeout_seconds: int, **more: object
    ) -> FakeWatch:
        self._enter("watch", resource)
        version = int(resource_version)
        if version < self.oldest:
            raise GoneError("410: too old resource version")
        return FakeWatch(
            self, _selection(resource, namespace, more.get("field_selector")), version, is_short=timeout_seconds <= 5
        )

    def create(self, resource: Resource, namespace: str | None, body: Raw, **more: object) -> Raw:
        assert not more.get("subresource"), f"{more}: not imitated here"
        self._enter("create", resource)
        with self.changed:
            key = (resource.path(), namespace or "", str(body["metadata"]["name"]))
            if key in self.objects:
                raise ConflictError("409: exists")
            return copy.deepcopy(body) if more.get("dry_run") else self._store(key, "ADDED", body)

    def put(self, resource: Resource, namespace: str | None, body: Raw) -> Raw:
        """Create it, in place of the one of that name if there is one."""
        self.objects.pop((resource.path(), namespace or "", body["metadata"]["name"]), None)
        return self.create(resource, namespace, body)

    def replace(self, resource: Resource, namespace: str | None, name: str, body: Raw, *, timeout: float = 10.0) -> Raw:
        self._enter("replace", resource)
        with self.changed:
            old = self._at(resource, namespace, name)
            if body["metadata"].get("resourceVersion") not in (None, old["metadata"]["resourceVersion"]):
                raise ConflictError("409: changed meanwhile")
            return self._store((resource.path(), namespace or "", name), "MODIFIED", body)

    def patch(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        body: object,
        *,
        field_manager: str = "",
        dry_run: bool = False,
        **_: object,
    ) -> Raw:
        self._enter("patch", resource)
        with self.changed:
            old = self._at(resource, namespace, name)
            version = body.get("metadata", {}).get("resourceVersion") if isinstance(body, dict) else None
            if version not in (None, old["metadata"]["resourceVersion"]):
                raise ConflictError("409: changed meanwhile")
            merged = _with_operations(old, body) if isinstance(body, list) else _merge(old, body)
            self.admit(resource, copy.deepcopy(old), copy.deepcopy(merged), field_manager)
            if dry_run:
                return copy.deepcopy(merged)
            return self._store((resource.path(), namespace or "", name), "MODIFIED", merged)

    def delete(
        self, resource: Resource, namespace: str | None, name: str, *, uid: str = "", version: str = "", **_: object
    ) -> None:
        self._enter("delete", resource)
        with self.changed:
            raw = self._at(resource, namespace, name)
            for key, value in (("uid", uid), ("resourceVersion", version)):
                if value and raw["metadata"].get(key) != value:
                    raise ConflictError(f"409: another {key}")
            place = (resource.path(), namespace or "", name)
            self._store(place, "DELETED", raw)
            del self.objects[place]

    def _store(self, key: Key, verb: str, body: Raw) -> Raw:
        self.version += 1
        raw = copy.deepcopy(body)
        raw["metadata"]["resourceVersion"] = str(self.version)
        if key[1]:
            raw["metadata"]["namespace"] = key[1]
        self.objects[key] = raw
        self.log.append((self.version, verb, key, copy.deepcopy(raw)))
        self.changed.notify_all()
        return copy.deepcopy(raw)

    def break_watches(self, fault: Callable[[], bytes | SchedulerError]) -> None:
        """The next idle watch yields these bytes and goes on, or fails with this error."""
        with self.changed:
            self.cut = fault
            self.changed.notify_all()

    def send_bookmark(self) -> None:
        with self.changed:
            self.bookmark = True
            self.changed.notify_all()


def _line(verb: str, raw: Any) -> bytes:
    return msgspec.json.encode({"type": verb, "object": raw})


def _merge(old: Any, new: Any) -> Any:
    if not isinstance(new, dict):
        return new
    before = old if isinstance(old, dict) else {}
    merged = {**before, **{key: _merge(before.get(key), value) for key, value in new.items()}}
    return {key: value for key, value in merged.items() if value is not None}


def _with_operations(old: Raw, operations: list[Raw]) -> Raw:
    """The object after a JSON patch, of whose operations those are known that end at a field of an object."""
    new = copy.deepcopy(old)
    for operation in operations:
        *way, last = (step.replace("~1", "/").replace("~0", "~") for step in operation["path"].split("/")[1:])
        place = new
        for step in way:
            if step not in place:
                raise ConflictError(f"422: {MISFIT}")
            place = place[step]
        match operation["op"]:
            case "test":
                if place.get(last) != operation["value"]:
                    raise ConflictError(f"422: {MISFIT}")
            case "add" | "replace":
                place[last] = copy.deepcopy(operation["value"])
            case "remove":
                if last not in place:
                    raise ConflictError(f"422: {MISFIT}")
                del place[last]
    return new
