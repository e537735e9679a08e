"""An API server in memory, behind the same protocol as the adapter: resource versions, conflicts, watches, faults on
demand."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from controller.errors import ConflictError, GoneError, NotFoundError, SchedulerError
from controller.kube.api import Page, Raw
from controller.kube.resources import Resource

Key = tuple[str, str, str]  # path of the collection's kind, namespace, name


def _is_selected(name: str, selector: object) -> bool:
    """By the one field selector that the product uses."""
    return selector is None or selector == f"metadata.name={name}"


class FakeWatch:
    """A stream of lines that ends when it is closed, when its time is up, or as a script says."""

    def __init__(
        self,
        server: FakeApiServer,
        resource: Resource,
        namespace: str | None,
        version: int,
        is_short: bool,
        selector: str | None,
    ) -> None:
        self._server, self._resource, self._namespace, self._selector = server, resource, namespace, selector
        self._version, self._is_short = version, is_short
        self.is_closed = False

    def close(self) -> None:
        with self._server.changed:
            self.is_closed = True
            self._server.changed.notify_all()

    def __iter__(self) -> Iterator[bytes]:
        while not self._server.ends_watches:
            for version, verb, raw in self._server.events_after(
                self._version, self._resource, self._namespace, self._selector
            ):
                self._version = version
                yield _line(verb, raw)
            with self._server.changed:
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
                    self._server.changed.wait_for(lambda: self._server.has_news(self), timeout=10)
                    continue
            yield tail
            if self._is_short:
                return


class FakeApiServer:
    """KubeApi in memory. `fail` is asked before every call and may raise; `cut` breaks the next idle watch.

    Threads: any. Blocks: watches only.
    """

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.version = 100
        self.objects: dict[Key, Raw] = {}
        self.log: list[tuple[int, str, str, str, Raw]] = []  # version, verb, kind path, namespace, object
        self.oldest = 0  # watches from before this version are gone
        self.fail: Callable[[str, Resource], None] = lambda _verb, _resource: None
        self.cut: Callable[[], bytes | SchedulerError] | None = None
        self.bookmark = False
        self.absent: set[str] = set()  # plurals whose CRD does not exist
        self.page_size: int | None = None
        self.has_bookmarks = True  # False: a short watch ends without its closing bookmark
        self.ends_watches = False  # every watch ends as soon as it is open

    def has_news(self, watch: FakeWatch) -> bool:
        return (
            watch.is_closed
            or self.cut is not None
            or self.bookmark
            or bool(self.events_after(watch._version, watch._resource, watch._namespace, watch._selector))
        )

    def events_after(
        self, version: int, resource: Resource, namespace: str | None, selector: str | None
    ) -> list[tuple[int, str, Raw]]:
        path = resource.path()
        return [
            (at, verb, raw)
            for at, verb, kind, where, raw in self.log
            if at > version
            and kind == path
            and namespace in (None, where)
            and _is_selected(raw["metadata"]["name"], selector)
        ]

    def _enter(self, verb: str, resource: Resource) -> None:
        self.fail(verb, resource)
        if resource.plural in self.absent:
            raise NotFoundError(f"404: no {resource.plural}")

    def get(self, resource: Resource, namespace: str | None, name: str, *, timeout: float = 10.0) -> Raw:
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
            selector = query.get("fieldSelector")
            found = [
                copy.deepcopy(raw)
                for (path, where, name), raw in sorted(self.objects.items())
                if path == resource.path() and namespace in (None, where) and _is_selected(name, selector)
            ]
            start = int(str(query.get("continue", "0")))
            limit = min(int(str(query.get("limit", len(found) or 1))), self.page_size or 10**9)
            more = str(start + limit) if start + limit < len(found) else ""
            return Page(found[start : start + limit], str(self.version), more)

    def watch(
        self,
        resource: Resource,
        namespace: str | None,
        resource_version: str,
        *,
        timeout_seconds: int,
        read_timeout: float,
        field_selector: str | None = None,
    ) -> FakeWatch:
        self._enter("watch", resource)
        version = int(resource_version)
        if version < self.oldest:
            raise GoneError("410: too old resource version")
        return FakeWatch(self, resource, namespace, version, timeout_seconds <= 5, field_selector)

    def create(
        self,
        resource: Resource,
        namespace: str | None,
        body: Raw,
        *,
        name: str = "",
        subresource: str = "",
        timeout: float = 10.0,
    ) -> Raw:
        assert not subresource, f"{name}/{subresource}: not imitated here"
        self._enter("create", resource)
        with self.changed:
            key = (resource.path(), namespace or "", str(body["metadata"]["name"]))
            if key in self.objects:
                raise ConflictError("409: exists")
            return self._store(key, "ADDED", body)

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
        kind: str = "merge",
        subresource: str = "",
        timeout: float = 10.0,
    ) -> Raw:
        self._enter("patch", resource)
        with self.changed:
            merged = _merge(self._at(resource, namespace, name), body)
            return self._store((resource.path(), namespace or "", name), "MODIFIED", merged)

    def delete(self, resource: Resource, namespace: str | None, name: str, *, uid: str = "") -> None:
        self._enter("delete", resource)
        with self.changed:
            raw = self._at(resource, namespace, name)
            if uid and raw["metadata"].get("uid") != uid:
                raise ConflictError("409: another uid")
            key = (resource.path(), namespace or "", name)
            self._store(key, "DELETED", raw)
            del self.objects[key]

    def _store(self, key: Key, verb: str, body: Raw) -> Raw:
        self.version += 1
        raw = copy.deepcopy(body)
        raw["metadata"]["resourceVersion"] = str(self.version)
        if key[1]:
            raw["metadata"]["namespace"] = key[1]
        self.objects[key] = raw
        self.log.append((self.version, verb, key[0], key[1], copy.deepcopy(raw)))
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
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    merged = {**old, **{key: _merge(old.get(key), value) for key, value in new.items()}}
    return {key: value for key, value in merged.items() if value is not None}
