"""The status port's answers: documents in JSON, read only, for callers who may read them.

A page of somebody else in a browser reads nothing here: no answer names another origin, and on loopback, where nobody
has to say who he is, a request has to name a host that no stranger's name can stand for.
"""

from __future__ import annotations

import gzip
import ipaddress
import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs

import msgspec

from controller.errors import ClusterError, MalformedRequestError, NotFoundError, NotReadyError, SchedulerError

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

MOST_ANSWERS: Final = 16  # worked on at a time; who comes later is told to come again
COMPRESSED_BYTES: Final = 4_096  # smaller answers are sent as they are
_GZIP_LEVEL: Final = 1  # the network is never as slow as better ones would need it to be
OK: Final = "200 OK"
UNAVAILABLE: Final = "503 Service Unavailable"
_TEXT: Final = "text/plain; charset=utf-8"
_HEADERS: Final = (
    ("Cache-Control", "no-store"),
    ("X-Content-Type-Options", "nosniff"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)

log = logging.getLogger(__name__)

Sees = Callable[[str], bool]
"""Whether the caller may see names of the pods and claims of that namespace. May ask the API server. Raises
ClusterError."""


class StatusRefusedError(SchedulerError):
    """The caller may not read this. `status`: of HTTP."""

    def __init__(self, status: str, problem: str) -> None:
        super().__init__(problem)
        self.status = status


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked for: the path, its query, and what the caller may see."""

    path: str
    query: Mapping[str, str]
    sees: Sees

    def number(self, name: str) -> int:
        """The whole number of that name in the query; 0 if it is not there. MalformedRequestError otherwise."""
        text = self.query.get(name, "0")
        if not (text.isascii() and text.isdigit() and len(text) < 16):
            raise MalformedRequestError(name, f"is not a whole number: {text[:40]!r}")
        return int(text)


Answer = Callable[[Asked], Any]
Admit = Callable[[str, str], Sees]
"""Takes the caller's Authorization and the path. Raises StatusRefusedError, or ClusterError if nobody can tell."""


def admit_all(_authorization: str, _path: str) -> Sees:
    return _sees_all


def _sees_all(_namespace: str) -> bool:
    return True


class StatusApp:
    """`answers`: by path; one that ends in "/" is for all below it. They return what `msgspec` can encode, and raise
    NotReadyError (503), NotFoundError (404) and MalformedRequestError (400). `page`: what else is asked for. `hosts`:
    the names under which it may be called besides addresses; None: any.

    Threads: any. Blocks: as `admit` and the answers do. I/O: theirs.
    """

    def __init__(
        self,
        answers: Mapping[str, Answer],
        *,
        admit: Admit = admit_all,
        hosts: Collection[str] | None = ("localhost",),
        page: WSGIApplication | None = None,
    ) -> None:
        self._answers, self._admit, self._hosts, self._page = answers, admit, hosts, page
        self._places = threading.BoundedSemaphore(MOST_ANSWERS)

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """What is sent, whole: a slow reader has no place any more."""
        if not self._places.acquire(blocking=False):
            return _send(environ, start_response, UNAVAILABLE, b"too many callers at once\n", _TEXT)
        try:
            return self._answered(environ, start_response)
        finally:
            self._places.release()

    def _answered(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        try:
            return self._serve(environ, start_response)
        except StatusRefusedError as error:
            status, problem = error.status, str(error)
        except MalformedRequestError as error:
            status, problem = "400 Bad Request", str(error)
        except NotFoundError as error:
            status, problem = "404 Not Found", str(error)
        except NotReadyError as error:
            status, problem = UNAVAILABLE, str(error)
        except ClusterError as error:
            log.warning("a caller of %r could not be checked: %s", _path(environ), error)
            status, problem = UNAVAILABLE, "the API server could not check who may read this"
        except Exception:  # thread top
            log.exception("no answer to %r", _path(environ))
            status, problem = "500 Internal Server Error", "see the log"
        return _send(environ, start_response, status, f"{problem}\n".encode(), _TEXT)

    def _serve(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        path = _path(environ)
        self._check_host(str(environ.get("HTTP_HOST", "")))
        if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            raise StatusRefusedError("405 Method Not Allowed", "GET and HEAD are served")
        sees = self._admit(str(environ.get("HTTP_AUTHORIZATION", "")), path)
        answer = self._answers.get(path) or self._answers.get(f"{path[: path.find('/', 1)]}/")
        if answer is None and self._page is not None:
            return self._page(environ, start_response)
        if answer is None:
            raise NotFoundError("not found")
        asked = Asked(path, {key: values[-1] for key, values in _query(environ).items()}, sees)
        return _send(environ, start_response, OK, msgspec.json.encode(answer(asked)), "application/json")

    def _check_host(self, host: str) -> None:
        """A stranger's page can have its own name resolved to this address, and no address or name of ours."""
        if self._hosts is None or not host or _is_address(host):
            return
        if host.rsplit(":", 1)[0].rstrip(".").lower() not in self._hosts:
            raise StatusRefusedError("421 Misdirected Request", f"is not called by this name: {host[:100]!r}")


def _path(environ: WSGIEnvironment) -> str:
    return str(environ.get("PATH_INFO", ""))


def _query(environ: WSGIEnvironment) -> Mapping[str, list[str]]:
    try:
        return parse_qs(str(environ.get("QUERY_STRING", "")), max_num_fields=10)
    except ValueError as error:
        raise MalformedRequestError("query", str(error)) from error


def _is_address(host: str) -> bool:
    """Whether it is an IP address, with a port or without."""
    bare = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    try:
        ipaddress.ip_address(bare)
    except ValueError:
        return False
    return True


def _send(
    environ: WSGIEnvironment, start_response: StartResponse, status: str, body: bytes, mimetype: str
) -> Iterable[bytes]:
    headers = [("Content-Type", mimetype), ("Vary", "Accept-Encoding"), *_HEADERS]
    if len(body) >= COMPRESSED_BYTES and _takes_gzip(str(environ.get("HTTP_ACCEPT_ENCODING", ""))):
        body = gzip.compress(body, _GZIP_LEVEL, mtime=0)
        headers.append(("Content-Encoding", "gzip"))
    if status == UNAVAILABLE:
        headers.append(("Retry-After", "1"))
    if status.startswith("405"):
        headers.append(("Allow", "GET, HEAD"))
    if status.startswith("401"):
        headers.append(("WWW-Authenticate", "Bearer"))
    start_response(status, [*headers, ("Content-Length", str(len(body)))])
    return () if environ["REQUEST_METHOD"] == "HEAD" else (body,)


def _takes_gzip(accepted: str) -> bool:
    for one in accepted.lower().split(","):
        name, _, weight = one.partition(";")
        if name.strip() in ("gzip", "*"):
            return weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False
