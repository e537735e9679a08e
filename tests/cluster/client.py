"""A small Kubernetes API client on raw JSON, for the test cluster and for what stands in for Longhorn on it.

Objects are plain dicts, paths are API paths (`/api/v1/namespaces/default/pods/a`). There is no cache, no model class
and no client-side rate limit, because the tests race the API server on purpose.
"""

from __future__ import annotations

import base64
import socket
import ssl
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode

import msgspec
import urllib3
import yaml

Object = dict[str, Any]
PATCH_TYPES = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}
# An answer with a Retry-After is waited out, as client-go does; a request that may have been heard is not repeated.
RETRIES = urllib3.Retry(
    9, connect=0, read=0, redirect=0, other=0, allowed_methods=None, raise_on_status=False, retry_after_max=5
)
MOST_CONNECTIONS = 100


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
    def is_unanswered(self) -> bool:
        """Whether it could not be asked, or had too much to do: the same request may succeed later."""
        return self.unavailable or self.status == 429 or self.status >= 500

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


class Stop(threading.Event):
    """Ends the watch that it was given to, one at a time, at once: also while that waits for bytes."""

    _sock: socket.socket | None = None

    def set(self) -> None:
        super().set()
        if self._sock is not None:
            with suppress(OSError):  # it has ended meanwhile
                socket.socket.shutdown(self._sock, socket.SHUT_RDWR)  # that of a TLS socket would take its state away

    def lines_of(self, response: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
        """Complete lines of a streamed answer, until it ends or this is set. An answer that breaks off is an error."""
        self._sock, rest = getattr(response.connection, "sock", None), b""
        try:
            pieces = response.stream()
            while not self.is_set() and (piece := next(pieces, b"")):
                *lines, rest = (rest + piece).split(b"\n")
                yield from filter(None, lines)
        except (urllib3.exceptions.HTTPError, OSError):
            if not self.is_set():
                raise
        finally:
            self._sock = None


class ApiClient:
    """Requests to one API server as one user.

    Threads: any; they share a pool of connections. Blocks: until the answer or `timeout`.
    """

    def __init__(self, endpoint: Endpoint, *, timeout: float = 60.0, user_agent: str = "test-cluster") -> None:
        self._url, self._timeout = endpoint.url, timeout
        self._headers = {"Accept": "application/json", "User-Agent": user_agent}
        if endpoint.token:
            self._headers["Authorization"] = f"Bearer {endpoint.token}"
        self._pool = urllib3.PoolManager(maxsize=MOST_CONNECTIONS, ssl_context=endpoint.tls, retries=RETRIES)

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
        with self._answer("GET", _with_query(path, params), headers={"Accept": "*/*"}) as response:
            return response.data.decode()

    def watch(
        self,
        path: str,
        resource_version: str | None = None,
        timeout_seconds: int | None = None,
        stop: Stop | None = None,
        **params: Any,
    ) -> Iterator[tuple[str, Object]]:
        """Yield (ADDED | MODIFIED | DELETED | BOOKMARK, object) until the server or `stop` ends the watch.

        Ends quietly when the server closes the stream. Raises ApiError for a refused watch, for an ERROR event (`gone`
        when the version is compacted) and, with status 0, for a broken connection.
        """
        query = {"watch": True, "allowWatchBookmarks": True, **params}
        query.update(resourceVersion=resource_version, timeoutSeconds=timeout_seconds)
        forever = urllib3.Timeout(connect=self._timeout, read=None)
        with self._answer("GET", _with_query(path, query), preload_content=False, timeout=forever) as response:
            for line in (stop or Stop()).lines_of(response):
                event = msgspec.json.decode(line)
                if event["type"] == "ERROR":
                    status = event["object"]
                    raise ApiError(int(status.get("code", 500)), status.get("reason", ""), status.get("message", ""))
                yield event["type"], event["object"]

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
        headers = {} if payload is None else {"Content-Type": content_type}
        with self._answer(method, _with_query(path, params or {}), body=payload, headers=headers) as response:
            answer: Object = msgspec.json.decode(response.data)
        return answer

    @contextmanager
    def _answer(
        self, method: str, target: str, *, headers: dict[str, str] | None = None, **options: Any
    ) -> Iterator[urllib3.BaseHTTPResponse]:
        """A good answer to one request; one that was not read to its end is closed with the block."""
        options = {"headers": self._headers | (headers or {}), "timeout": self._timeout, **options}
        try:
            response = self._pool.request(method, self._url + target, **options)
            try:
                if not 200 <= response.status < 300:
                    raise ApiError.from_status(response.status, response.data)
                yield response
            finally:
                response.close()
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise ApiError(0, "ConnectionError", f"{method} {target}: {error}") from error


def _with_query(path: str, params: dict[str, Any]) -> str:
    given = {
        key: str(value).lower() if isinstance(value, bool) else value
        for key, value in params.items()
        if value is not None
    }
    return f"{path}?{urlencode(given)}" if given else path
