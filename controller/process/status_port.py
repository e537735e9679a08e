"""The server of the process's other ports, and what one of them serves: metrics, health and readiness, for everybody
inside the cluster, so they name no object. The documents of the status port, which name many: `status_app`."""

from __future__ import annotations

import gzip
import logging
import socket
import socketserver
import ssl
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from wsgiref.simple_server import ServerHandler, WSGIRequestHandler, make_server

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, ThreadingWSGIServer

from controller.errors import ConfigError
from controller.process.worker import Part, Worker

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

LOOPBACK: Final = "127.0.0.1"
READ_SECONDS: Final = 10.0
MOST_LINE: Final = 65_536  # bytes of the first one
MOST_CONNECTIONS: Final = 16  # each has a thread; the oldest one makes room for the next
POLL_SECONDS: Final = 0.2  # until `stop` is heard
_UNAVAILABLE: Final = "503 Service Unavailable"

log = logging.getLogger(__name__)


class _Answering(ServerHandler):
    """Tells of faults of ours; a caller who leaves is none."""

    def log_exception(self, exc_info: Any) -> None:
        if not isinstance(exc_info[1], OSError):
            super().log_exception(exc_info)


class _Handler(WSGIRequestHandler):
    """Silent, and gone after a while when a client sends nothing."""

    timeout = READ_SECONDS

    def handle(self) -> None:
        """As the base class does it."""
        self.raw_requestline = self.rfile.readline(MOST_LINE + 1)
        if len(self.raw_requestline) > MOST_LINE:
            self.requestline = self.request_version = self.command = ""
            self.send_error(HTTPStatus.REQUEST_URI_TOO_LONG)
        elif self.parse_request():
            out: Any = self.wfile
            answering = _Answering(self.rfile, out, self.get_stderr(), self.get_environ(), multithread=False)
            answering.request_handler = self  # type: ignore[attr-defined]
            answering.run(self.server.get_app())  # type: ignore[attr-defined]

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002, ARG002
        return


class _Server(ThreadingWSGIServer):
    """A caller that asks and reads is done within milliseconds, so its connection is never the oldest of many."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128
    timeout = POLL_SECONDS
    make_context: Callable[[], ssl.SSLContext] | None = None

    def get_request(self) -> tuple[socket.socket, Any]:
        """A connection; its handshake, if it has one, is its own thread's, at the first read."""
        sock, client = super().get_request()
        if self.make_context is None:
            return sock, client
        try:
            return self.make_context().wrap_socket(sock, server_side=True, do_handshake_on_connect=False), client
        except OSError:
            sock.close()
            raise  # this connection alone

    def __init__(self, *args: Any, **options: Any) -> None:
        self._lock = threading.Lock()  # guards the field below
        self._open: dict[int, socket.socket] = {}
        super().__init__(*args, **options)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._open[id(request)] = request
            oldest = self._open.pop(next(iter(self._open))) if len(self._open) > MOST_CONNECTIONS else None
        if oldest is not None:
            with suppress(OSError):
                # Its thread ends then. Of TLS, without taking the encryption off, in which it may be sending.
                socket.socket.shutdown(oldest, socket.SHUT_RDWR)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.pop(id(request), None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Of a connection alone: strangers who speak no TLS, or leave, could fill the log."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)

    def server_bind(self) -> None:
        """As the base class does it, but without asking the name service for the host's full name."""
        socketserver.TCPServer.server_bind(self)
        host, port = self.server_address[:2]
        self.server_name, self.server_port = str(host), int(port)
        self.setup_environ()


class _ServerV6(_Server):
    address_family = socket.AF_INET6


def create_metrics_app(
    registry: CollectorRegistry,
    *,
    problem: Callable[[], str],
    is_ready: Callable[[], bool],
    rendered: Callable[[], bytes] = bytes,
) -> WSGIApplication:
    """`/metrics` (in Prometheus' text format, which costs half of OpenMetrics'), `/healthz` (503 with the `problem` for
    which the process has to be started anew; never one of the network), `/readyz` (stores synced, followers too).
    `rendered`: what the page of metrics has besides those of the registry, in that format."""

    def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        match environ.get("PATH_INFO"):
            case "/metrics":
                return _metrics(generate_latest(registry) + rendered(), environ, start_response)
            case "/healthz":
                wrong = problem()
            case "/readyz":
                wrong = "" if is_ready() else "not synced"
            case _:
                return _answer(start_response, "404 Not Found", b"not found\n")
        return _answer(start_response, _UNAVAILABLE if wrong else "200 OK", f"{wrong or 'ok'}\n".encode())

    return app


def _metrics(body: bytes, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    headers = [("Content-Type", CONTENT_TYPE_PLAIN_0_0_4)]
    if "gzip" in str(environ.get("HTTP_ACCEPT_ENCODING", "")):
        headers.append(("Content-Encoding", "gzip"))
        body = gzip.compress(body, 1)  # a large cluster's page is 2 MB, and shrinks to a tenth
    start_response("200 OK", [*headers, ("Content-Length", str(len(body)))])
    return (body,)


def _answer(start_response: StartResponse, status: str, body: bytes) -> Iterable[bytes]:
    start_response(status, [("Content-Type", "text/plain; charset=utf-8"), ("Content-Length", str(len(body)))])
    return (body,)


class StatusServer(Part):
    """Serves a WSGI application on a thread of its own, which has the `name`; with `make_context`, over TLS.

    Threads: start and stop from one. Blocks: `stop`, until the thread has ended. I/O: listens.
    """

    def __init__(
        self,
        name: str,
        app: WSGIApplication,
        address: str,
        port: int,
        make_context: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        self._app, self._address, self._port, self._make_context = app, address, port, make_context
        self._server: _Server | None = None
        self.worker = Worker(name, self._serve)

    @property
    def port(self) -> int:
        """The port that is listened on; it differs from the one asked for when that was 0."""
        return self._port

    def start(self) -> None:
        """Listen; ConfigError when the address cannot be had."""
        kind = _ServerV6 if ":" in self._address else _Server
        try:
            server = make_server(self._address, self._port, self._app, kind, _Handler)
        except OSError as error:
            raise ConfigError(f"{self.worker.name}-port {self._port} of {self._address}: {error}") from error
        server.make_context = self._make_context
        self._server, self._port = server, server.server_port
        self.worker.start()

    def stop(self) -> None:
        self.worker.stop()
        if self._server is not None:
            self._server.server_close()
            self._server = None

    def _serve(self) -> float:
        """One request, which has a thread of its own, or none within a moment."""
        assert self._server is not None
        self._server.handle_request()
        return 0.0
