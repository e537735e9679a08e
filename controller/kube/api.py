"""The API server as raw JSON: its verbs, and the calls that they become on the `kubernetes` package.

Of that package only configuration, credentials and the TLS connection pool are used. Its typed models decode ten to
twenty times slower than raw JSON, and its watch hangs for ever when the network goes silent, so neither is used.
"""

from __future__ import annotations

import contextlib
import email.utils
import os
import re
import socket
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import urlencode

import msgspec
import urllib3
import yaml
from kubernetes import client, config

from controller.clock import Clock, SystemClock
from controller.errors import ConfigError, NotFoundError, UnavailableError
from controller.kube.decoding import decode, error_of
from controller.kube.line_stream import LineStream
from controller.kube.resources import PODS, Resource
from controller.process.worker import waiting

Raw = dict[str, Any]
PATCH_TYPES: Final = {
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "json": "application/json-patch+json",
}
CALL_SECONDS: Final = 10.0
LIST_SECONDS: Final = 60.0
POOL_SIZE: Final = 64
DATE_SECONDS: Final = 120.0  # an answer's Date that is older tells no time any more
PAGE: Final = 500
# Of pods that somebody has filled with small values, twenty times as much once it is decoded.
MOST_PAGE_BYTES: Final = 8 * 1024**2
_JSON: Final = "application/json"
_NOT_NAMED: Final = re.compile(r"Expected object with name (\S+) in .*/(\w+)s list$")  # in the library's words


@dataclass(frozen=True, slots=True)
class Call:
    """One request to the API server. `timeout`: seconds for the answer, of a watch between two lines. `most_bytes`: of
    the answer."""

    method: str
    path: str
    query: Mapping[str, object] = field(default_factory=dict)  # parameters that are None are left out
    body: object = None
    content_type: str = _JSON
    timeout: float = CALL_SECONDS
    most_bytes: int | None = None


class LargePageError(UnavailableError):
    """So many objects take more than MOST_PAGE_BYTES: fewer have to be asked for."""


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a list; `continue_token` is "" on the last one."""

    items: list[Raw]
    resource_version: str
    continue_token: str


class WatchStream(Protocol):
    """An open watch: an iterator of raw lines, which `close` ends from any thread, even during a blocking read."""

    def __iter__(self) -> Iterator[bytes]: ...
    def close(self) -> None: ...


class KubeApi:
    """Raw objects in and out, one call each. Errors: ClusterError, by kind NotFoundError, ConflictError (also where a
    JSON patch does not fit what is stored), ForbiddenError, GoneError and UnavailableError."""

    def server_utc(self) -> datetime | None:
        """The API server's time, from the Date of its last answer, and up to a second behind; None without a recent
        answer."""
        raise NotImplementedError

    def get(self, resource: Resource, namespace: str | None, name: str, *, timeout: float = CALL_SECONDS) -> Raw:
        return self._object(Call("GET", resource.path(namespace, name), timeout=timeout))

    def list_page(
        self, resource: Resource, namespace: str | None = None, *, timeout: float = LIST_SECONDS, **query: object
    ) -> Page:
        """One page; `query` takes the API's own parameters (limit, continue, resourceVersion, labelSelector, ...).
        LargePageError where a limit of several objects leaves too many bytes."""
        most = MOST_PAGE_BYTES if query.get("limit", 1) != 1 else None
        raw = self._object(Call("GET", resource.path(namespace), query, timeout=timeout, most_bytes=most))
        meta = raw.get("metadata") or {}
        return Page(raw.get("items") or [], str(meta.get("resourceVersion", "")), str(meta.get("continue") or ""))

    def watch(
        self,
        resource: Resource,
        namespace: str | None,
        resource_version: str,
        *,
        timeout_seconds: int,
        read_timeout: float,
        field_selector: str | None = None,
    ) -> WatchStream:
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": timeout_seconds,
            "fieldSelector": field_selector,
        }
        return self._stream(Call("GET", resource.path(namespace), query, timeout=read_timeout))

    def create(
        self,
        resource: Resource,
        namespace: str | None,
        body: Raw,
        *,
        name: str = "",
        subresource: str = "",
        dry_run: bool = False,
        timeout: float = CALL_SECONDS,
    ) -> Raw:
        """A new object of the collection; with `name` and `subresource`, one below an object that exists. `dry_run`:
        admission looks at it, and nothing is stored."""
        query = {"dryRun": "All"} if dry_run else {}
        path = resource.path(namespace, name or None, subresource)
        return self._object(Call("POST", path, query, body, timeout=timeout))

    def replace(
        self, resource: Resource, namespace: str | None, name: str, body: Raw, *, timeout: float = CALL_SECONDS
    ) -> Raw:
        return self._object(Call("PUT", resource.path(namespace, name), body=body, timeout=timeout))

    def patch(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        body: object,
        *,
        kind: str = "merge",
        subresource: str = "",
        field_manager: str = "",
        dry_run: bool = False,
        timeout: float = CALL_SECONDS,
    ) -> Raw:
        """`body` is a list of operations for kind "json". `dry_run`: admission looks at it, and nothing is stored."""
        query = {"fieldManager": field_manager} if field_manager else {}
        query |= {"dryRun": "All"} if dry_run else {}
        path = resource.path(namespace, name, subresource)
        return self._object(Call("PATCH", path, query, body, PATCH_TYPES[kind], timeout))

    def delete(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        *,
        uid: str = "",
        version: str = "",
        timeout: float = CALL_SECONDS,
    ) -> None:
        """ConflictError where the object has another uid or resourceVersion than those that are given."""
        wanted = {key: value for key, value in (("uid", uid), ("resourceVersion", version)) if value}
        body = {"preconditions": wanted} if wanted else None
        self._object(Call("DELETE", resource.path(namespace, name), body=body, timeout=timeout))

    def bearer(self) -> dict[str, str]:
        """The caller's token as headers; none where he has a certificate."""
        return {}

    def read_log(
        self, namespace: str, pod: str, container: str, *, previous: bool = False, most_bytes: int, lines: int = 20_000
    ) -> bytes:
        """The last lines that the container has written; `previous`: before its last restart."""
        end = {"tailLines": lines, "limitBytes": most_bytes, "timestamps": "true"}
        query = {"container": container, "previous": "true" if previous else None, **end}
        path = PODS.path(namespace, pod, "log")
        return self._bytes(Call("GET", path, query, timeout=LIST_SECONDS, most_bytes=most_bytes))

    # The request itself

    def _bytes(self, call: Call) -> bytes:
        """The answer as it is."""
        raise NotImplementedError

    def _object(self, call: Call) -> Raw:
        """The object in the answer."""
        raise NotImplementedError

    def _stream(self, call: Call) -> WatchStream:
        """The lines of the answer."""
        raise NotImplementedError


class ClientKubeApi(KubeApi):
    """KubeApi on the `kubernetes` package.

    Threads: any. Blocks: for the call's timeout at most. I/O: the API server; nothing is retried here.
    """

    def __init__(self, configuration: client.Configuration, clock: Clock | None = None) -> None:
        configuration.connection_pool_maxsize = POOL_SIZE
        self._configuration = configuration
        self._client = client.ApiClient(configuration)
        self._pool: urllib3.PoolManager = self._client.rest_client.pool_manager
        self._host = str(configuration.host).rstrip("/")
        # With a certificate and no token there is nothing to refresh, and the package reads the kubeconfig once more.
        self._has_token = bool(configuration.api_key) or not configuration.cert_file
        self._clock = clock or SystemClock()
        self._dated: tuple[datetime, float] | None = None  # the last answer's Date, and when it was received

    @classmethod
    def load(cls, kubeconfig: str = "", context: str = "") -> ClientKubeApi:
        """The API server of a kubeconfig file's context, by default the current one. Without a file, that of
        `$KUBECONFIG`, else of the pod's service account, or outside of a pod of ~/.kube/config. Raises ConfigError if
        there is none of these, or the file is not a kubeconfig."""
        kubeconfig, usual = kubeconfig or os.environ.get("KUBECONFIG", ""), Path.home() / ".kube" / "config"
        if not kubeconfig and "KUBERNETES_SERVICE_HOST" not in os.environ and usual.exists():
            kubeconfig = str(usual)
        configuration = client.Configuration()
        configuration.retries = False
        if not kubeconfig:
            try:
                config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
            except config.ConfigException as error:
                problem = "no --kubeconfig, $KUBECONFIG or ~/.kube/config, and no service account of a pod"
                raise ConfigError(f"{problem}: {error}") from error
            return cls(configuration)
        try:
            if os.pathsep not in kubeconfig:
                Path(kubeconfig).read_bytes()
            config.load_kube_config(  # type: ignore[no-untyped-call]
                kubeconfig, context or None, client_configuration=configuration, persist_config=False
            )
            _check_connection(configuration)
        except OSError as error:
            raise ConfigError(f"kubeconfig {kubeconfig}: {error.strerror or error}") from error
        except (config.ConfigException, yaml.YAMLError, ValueError) as error:
            text = " ".join(str(error).split())
            if named := _NOT_NAMED.search(text):
                text = f"it has no {named[2]} {named[1]}"
            raise ConfigError(f"kubeconfig {kubeconfig}: {text}") from error
        except (TypeError, AttributeError, LookupError) as error:  # what the library makes of another shape
            raise ConfigError(f"kubeconfig {kubeconfig}: it lacks fields of a kubeconfig") from error
        return cls(configuration)

    @property
    def configuration(self) -> client.Configuration:
        return self._configuration

    def bearer(self) -> dict[str, str]:
        return {name: text for name, text in self._credentials().items() if text.startswith("Bearer ")}

    def server_utc(self) -> datetime | None:
        if (dated := self._dated) is None:
            return None
        date, received = dated
        elapsed = self._clock.now() - received
        return date + timedelta(seconds=elapsed) if elapsed <= DATE_SECONDS else None

    def _object(self, call: Call) -> Raw:
        response = self._response(call, call.timeout, is_streamed=call.most_bytes is not None)
        data = response.data if call.most_bytes is None else _bounded(response, call, call.most_bytes)
        if response.status >= 300:
            raise error_of(response.status, data)
        try:
            decoded = decode(data, f"{call.method} {call.path}")
        except ValueError as error:
            raise UnavailableError(f"{call.method} {call.path}: the answer is not JSON: {error}") from error
        if not isinstance(decoded, dict):
            raise UnavailableError(f"{call.method} {call.path}: the answer is not an object")
        return decoded

    def _bytes(self, call: Call) -> bytes:
        response = self._response(call, call.timeout, is_streamed=True)
        if response.status >= 300:
            raise error_of(response.status, _rest_of(response))
        return _bounded(response, call, call.most_bytes or MOST_PAGE_BYTES)

    def _stream(self, call: Call) -> WatchStream:
        response = self._response(call, min(call.timeout, CALL_SECONDS), is_streamed=True)
        if response.status != 200:
            raise error_of(response.status, _rest_of(response))
        return LineStream(response, call.timeout)

    def _response(self, call: Call, timeout: float, *, is_streamed: bool) -> urllib3.BaseHTTPResponse:
        url = f"{self._host}{call.path}"
        if call.query:
            url += "?" + urlencode({name: value for name, value in call.query.items() if value is not None})
        headers = {"Accept": f"{_JSON}, */*", "User-Agent": "longhorn-scheduler-extender", **self._credentials()}
        data = None
        if call.body is not None:
            headers["Content-Type"], data = call.content_type, msgspec.json.encode(call.body)
        try:
            with waiting():
                response = self._pool.request(
                    call.method,
                    url,
                    body=data,
                    headers=headers,
                    timeout=urllib3.Timeout(connect=min(timeout, 5.0), read=timeout),
                    retries=False,
                    preload_content=not is_streamed,
                )
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise UnavailableError(f"{call.method} {self._host}{call.path}: {why_unreachable(error)}") from error
        with contextlib.suppress(ValueError):
            date = email.utils.parsedate_to_datetime(response.headers.get("Date", ""))
            self._dated = date.replace(tzinfo=UTC), self._clock.now()
        return response

    def _credentials(self) -> dict[str, str]:
        """The headers that say who calls; a token that is due is refreshed first."""
        try:
            settings: Mapping[str, Any] = self._configuration.auth_settings() if self._has_token else {}
        except (config.ConfigException, OSError) as error:
            raise UnavailableError(f"credentials: {error}") from error
        found = [one for one in settings.values() if one.get("in") == "header" and one.get("value")]
        return {str(one["key"]): str(one["value"]) for one in found}


def _check_connection(configuration: client.Configuration) -> None:
    """ValueError for an address or certificates with which no call can succeed; OSError for a file that is missing."""
    if not str(configuration.host).startswith(("https://", "http://")):
        raise ValueError(f"the server is not an http or https address: {configuration.host!r}")
    try:
        context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
        if configuration.cert_file:
            context.load_cert_chain(configuration.cert_file, configuration.key_file)
    except ssl.SSLError as error:
        raise ValueError(f"its certificates cannot be used: {error}") from error


def _bounded(response: urllib3.BaseHTTPResponse, call: Call, most: int) -> bytes:
    """The body, of at most so many bytes."""
    try:
        with waiting():
            data = response.read(most + 1)
    except (urllib3.exceptions.HTTPError, OSError) as error:
        response.close()
        raise UnavailableError(f"{call.method} {call.path}: {why_unreachable(error)}") from error
    if len(data) > most:
        response.close()
        raise LargePageError(f"{call.method} {call.path}: more than {most} bytes")
    response.release_conn()
    return data


def _rest_of(response: urllib3.BaseHTTPResponse) -> bytes:
    """The body of a refusal, as far as it can be read."""
    try:
        return response.data
    except (urllib3.exceptions.HTTPError, OSError):
        return b""
    finally:
        response.close()


def why_unreachable(error: BaseException) -> str:
    """What a call met that had no answer, as a phrase without addresses in memory, which are others each time."""
    if isinstance(error, urllib3.exceptions.HTTPError) and error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, socket.gaierror):
        return "the server's name cannot be resolved: is the address right, and is this machine on its network?"
    if isinstance(error, urllib3.exceptions.TimeoutError | TimeoutError):
        return "timed out"
    strerror = None if isinstance(error, ssl.SSLError) else getattr(error, "strerror", None)
    return str(strerror or error) or repr(error)


def find(
    api: KubeApi, resource: Resource, namespace: str | None, name: str, *, timeout: float = CALL_SECONDS
) -> Raw | None:
    """The object; None if there is none."""
    try:
        return api.get(resource, namespace, name, timeout=timeout)
    except NotFoundError:
        return None


def pages(
    api: KubeApi, resource: Resource, namespace: str | None = None, *, most: int = PAGE, **query: Any
) -> Iterator[Page]:
    """All objects of a kind as they were at one moment, in pages, of which one at a time is in memory, with fewer
    objects where these are large."""
    more, limit = dict[str, Any](), most
    while True:
        try:
            page = api.list_page(resource, namespace, limit=limit, **query, **more)
        except LargePageError:
            limit = max(1, limit // 4)
            continue
        yield page
        if not page.continue_token:
            return
        more, limit = {"continue": page.continue_token}, min(most, 2 * limit)


def listed(api: KubeApi, resource: Resource, namespace: str | None = None, **query: Any) -> Iterator[Raw]:
    """All objects one by one, read as `pages` does."""
    for page in pages(api, resource, namespace, **query):
        yield from page.items
