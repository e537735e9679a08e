"""A small Kubernetes API client on raw JSON, for the test cluster and for what stands in for Longhorn on it.

Objects are plain dicts, paths are API paths (`/api/v1/namespaces/default/pods/a`). There is no cache, no model class
and no client-side rate limit, because the tests race the API server on purpose.
"""

from __future__ import annotations

import base64
import http.client
import ssl
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode, urlsplit

import msgspec
import yaml

from tests.cluster.http_stream import open_stream

IDLE_SECONDS = 30.0  # after 90 the API server closes a connection that nothing came on

Object = dict[str, Any]
PATCH_TYPES = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}
TOO_MANY_REQUESTS_TRIES = 10


class ApiError(Exception):
    """The API server said no, or (status 0) could not be asked. `reason` is Kubernetes' machine-readable reason."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status, self.reason, self.message = status, reason, message

    @property
    def not_found(self) -> bool:
        return self.status == 404

    @property
    def conflict(self) -> bool:
        """True for a stale resourceVersion and for an object that exists already; `reason` tells them apart."""
        return self.status == 409

    @property
    def already_exists(self) -> bool:
        return self.status == 409 and self.reason == "AlreadyExists"

    @property
    def gone(self) -> bool:
        """The resourceVersion asked for is compacted away: list again."""
        return self.status == 410

    @property
    def forbidden(self) -> bool:
        return self.status == 403

    @property
    def unavailable(self) -> bool:
        """No answer at all. A write may or may not have happened."""
        return self.status == 0

    @classmethod
    def from_status(cls, code: int, body: bytes) -> Self:
        """From an answer that is normally a `Status` object, but may be text of a proxy or of a starting server."""
        try:
            status = msgspec.json.decode(body)
        except msgspec.DecodeError:
            status = None
        if isinstance(status, dict) and status.get("kind") == "Status":
            return cls(code, str(status.get("reason", "")), str(status.get("message", "")))
        return cls(code, "", body[:500].decode("utf-8", "replace"))


@contextmanager
def ignored_when_gone() -> Iterator[None]:
    """For calls about an object that may be gone already."""
    try:
        yield
    except ApiError as error:
        if not error.not_found:
            raise


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where an API server is and how to prove who we are to it."""

    url: str
    tls: ssl.SSLContext
    token: str | None = None

    @property
    def host(self) -> str:
        return urlsplit(self.url).hostname or "127.0.0.1"

    @property
    def port(self) -> int:
        return urlsplit(self.url).port or 443


def endpoint_from_kubeconfig(path: Path | str) -> Endpoint:
    """The current context of a kubeconfig. Knows client certificates (inline or files) and bearer tokens.

    Raises ValueError that names the file when the context, its cluster or its user is missing.
    """
    config = yaml.safe_load(Path(path).read_text())
    contexts, clusters, users = (
        {item["name"]: item for item in config.get(kind) or []} for kind in ("contexts", "clusters", "users")
    )
    try:
        context = contexts[config["current-context"]]["context"]
        cluster, user = clusters[context["cluster"]]["cluster"], users[context["user"]]["user"]
    except KeyError as error:
        raise ValueError(f"{path}: no entry {error} for the current context") from error
    authority = _pem(cluster, "certificate-authority")
    tls = ssl.create_default_context(cadata=authority.decode() if authority else None)
    certificate, key = _pem(user, "client-certificate"), _pem(user, "client-key")
    if certificate and key:
        # The ssl module reads certificates from files only; the pair in one file is accepted.
        with tempfile.NamedTemporaryFile(suffix=".pem") as pair:
            pair.write(certificate + b"\n" + key)
            pair.flush()
            tls.load_cert_chain(pair.name)
    return Endpoint(cluster["server"], tls, user.get("token"))


def _pem(entry: dict[str, Any], name: str) -> bytes | None:
    if f"{name}-data" in entry:
        return base64.b64decode(entry[f"{name}-data"])
    return Path(entry[name]).read_bytes() if name in entry else None


class ApiClient:
    """Requests to one API server as one user.

    Threads: any; every thread gets a keep-alive connection of its own. Blocks: until the answer or `timeout`.
    I/O: one request a call; a 429 answer is waited out as its Retry-After says, as client-go does.
    """

    def __init__(self, endpoint: Endpoint, *, timeout: float = 60.0, user_agent: str = "test-cluster") -> None:
        self._endpoint, self._timeout = endpoint, timeout
        self._headers = {"Accept": "application/json", "User-Agent": user_agent}
        if endpoint.token:
            self._headers["Authorization"] = f"Bearer {endpoint.token}"
        self._local = threading.local()

    @classmethod
    def from_kubeconfig(cls, path: Path | str, *, timeout: float = 60.0, user_agent: str = "test-cluster") -> Self:
        return cls(endpoint_from_kubeconfig(path), timeout=timeout, user_agent=user_agent)

    # -- verbs ---------------------------------------------------------------------------------------------------

    def get(self, path: str, **params: Any) -> Object:
        return self._object("GET", path, params=params)

    def get_or_none(self, path: str, **params: Any) -> Object | None:
        try:
            return self.get(path, **params)
        except ApiError as error:
            if error.not_found:
                return None
            raise

    def list(self, path: str, label_selector: str | None = None, **params: Any) -> Object:
        """The whole List object: `items`, and `metadata.resourceVersion` to start a watch from.

        Items get their `kind` and `apiVersion` filled in, which the API server leaves out of lists.
        """
        answer = self._object("GET", path, params={"labelSelector": label_selector, **params})
        kind, version = str(answer.get("kind", "")).removesuffix("List"), answer.get("apiVersion", "")
        answer["items"] = answer.get("items") or []
        for item in answer["items"]:
            item.setdefault("kind", kind)
            item.setdefault("apiVersion", version)
        return answer

    def create(self, path: str, obj: Object, **params: Any) -> Object:
        """POST to a collection, or to a subresource such as `.../binding`."""
        return self._object("POST", path, body=obj, params=params)

    def replace(self, path: str, obj: Object, **params: Any) -> Object:
        return self._object("PUT", path, body=obj, params=params)

    def patch(self, path: str, patch: Any, type: str = "merge", **params: Any) -> Object:  # noqa: A002 (API of this package)
        """`type`: merge, json, strategic, or apply (server-side, forced unless `force=False`)."""
        if type == "apply":
            params = {"fieldManager": "test-cluster", "force": True, **params}
        return self._object("PATCH", path, body=patch, content_type=PATCH_TYPES[type], params=params)

    def delete(self, path: str, **options: Any) -> Object:
        """`options` are fields of DeleteOptions (gracePeriodSeconds, propagationPolicy, preconditions).

        On a collection `label_selector` and `field_selector` choose what goes.
        """
        params = {
            "labelSelector": options.pop("label_selector", None),
            "fieldSelector": options.pop("field_selector", None),
        }
        body = {"kind": "DeleteOptions", "apiVersion": "v1", **options} if options else None
        return self._object("DELETE", path, body=body, params=params)

    def text(self, path: str, **params: Any) -> str:
        """A non-JSON answer: /metrics, /readyz, a pod's log."""
        return self._request("GET", path, params, None, "", accept="*/*").decode()

    def watch(
        self,
        path: str,
        resource_version: str | None = None,
        timeout_seconds: int | None = None,
        stop_event: threading.Event | None = None,
        **params: Any,
    ) -> Iterator[tuple[str, Object]]:
        """Yield (ADDED | MODIFIED | DELETED | BOOKMARK, object) until the server or `stop_event` ends the watch.

        Ends quietly when the server closes the stream. Raises ApiError for a refused watch, for an ERROR event (`gone`
        when the version is compacted) and, with status 0, for a broken connection. Uses a connection of its own. A
        stop is noticed within a quarter of a second.
        """
        decode = msgspec.json.Decoder().decode
        for line in self.watch_lines(path, resource_version, timeout_seconds, stop_event, **params):
            event = decode(line)
            if event["type"] == "ERROR":
                status = event["object"]
                raise ApiError(int(status.get("code", 500)), status.get("reason", ""), status.get("message", ""))
            yield event["type"], event["object"]

    def watch_lines(
        self,
        path: str,
        resource_version: str | None = None,
        timeout_seconds: int | None = None,
        stop_event: threading.Event | None = None,
        **params: Any,
    ) -> Iterator[bytes]:
        """The watch's events as JSON texts, ERROR events included; ends and raises as `watch` does."""
        query = {"watch": True, "allowWatchBookmarks": True, **params}
        query.update(resourceVersion=resource_version, timeoutSeconds=timeout_seconds)
        target = _with_query(path, query)
        stopped = stop_event.is_set if stop_event is not None else None
        at = self._endpoint
        try:
            with open_stream(at.host, at.port, at.tls, target, self._headers, self._timeout) as stream:
                if stream.status != 200:
                    raise ApiError.from_status(stream.status, stream.read_all())
                yield from stream.lines(stopped)
        except (OSError, http.client.HTTPException) as error:
            raise ApiError(0, "ConnectionError", f"watch {path}: {error}") from error

    def close(self) -> None:
        """Close this thread's connection; others close when their thread ends."""
        connection = getattr(self._local, "connection", None)
        if connection is not None:
            connection.close()
            self._local.connection = None

    # -- transport -----------------------------------------------------------------------------------------------

    def _object(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        content_type: str = "application/json",
        params: dict[str, Any] | None = None,
    ) -> Object:
        payload = None if body is None else msgspec.json.encode(body)
        answer: Object = msgspec.json.decode(self._request(method, path, params or {}, payload, content_type))
        return answer

    def _request(
        self,
        method: str,
        path: str,
        params: dict[str, Any],
        payload: bytes | None,
        content_type: str,
        *,
        accept: str | None = None,
    ) -> bytes:
        headers = dict(self._headers)
        if payload is not None:
            headers["Content-Type"] = content_type
        if accept is not None:
            headers["Accept"] = accept
        target = _with_query(path, params)
        status, retry_after, body = self._exchange(method, target, payload, headers)
        tries = 1
        while status == 429 and retry_after is not None and tries < TOO_MANY_REQUESTS_TRIES:
            time.sleep(min(float(retry_after), 5.0))
            status, retry_after, body = self._exchange(method, target, payload, headers)
            tries += 1
        if not 200 <= status < 300:
            raise ApiError.from_status(status, body)
        return body

    def _exchange(
        self, method: str, target: str, payload: bytes | None, headers: dict[str, str]
    ) -> tuple[int, str | None, bytes]:
        """One request: status, Retry-After and body.

        A keep-alive connection that turns out dead is replaced, if the request did not get out or only reads. One that
        was idle for long is not used at all: the API server may be closing it just now.
        """
        if time.monotonic() - getattr(self._local, "used_at", 0.0) > IDLE_SECONDS:
            self.close()
        while True:
            self._local.used_at = time.monotonic()
            connection = getattr(self._local, "connection", None)
            reused = connection is not None
            if connection is None:
                connection = http.client.HTTPSConnection(
                    self._endpoint.host, self._endpoint.port, timeout=self._timeout, context=self._endpoint.tls
                )
                self._local.connection = connection
            sent = False
            try:
                connection.request(method, target, payload, headers)
                sent = True
                response = connection.getresponse()
                body = response.read()
                return response.status, response.headers.get("Retry-After"), body
            except (OSError, http.client.HTTPException) as error:
                self.close()
                timed_out = isinstance(error, TimeoutError)
                if reused and not timed_out and (method == "GET" or not sent):
                    continue
                raise ApiError(0, "ConnectionError", f"{method} {target}: {type(error).__name__} {error}") from error


def _with_query(path: str, params: dict[str, Any]) -> str:
    given = {
        key: str(value).lower() if isinstance(value, bool) else value
        for key, value in params.items()
        if value is not None
    }
    return f"{path}?{urlencode(given)}" if given else path
