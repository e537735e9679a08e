"""The second port of the process: metrics, health, readiness and a status document. Plain HTTP, inside the cluster."""

from __future__ import annotations

import logging
import socket
import socketserver
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final
from wsgiref.simple_server import WSGIRequestHandler, make_server

import msgspec
from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer

from controller.errors import ConfigError
from controller.process.worker import Part, Worker

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

READ_SECONDS: Final = 10.0
POLL_SECONDS: Final = 0.2  # until `stop` is heard
_UNAVAILABLE: Final = "503 Service Unavailable"

log = logging.getLogger(__name__)


class _Handler(WSGIRequestHandler):
    """Silent, and gone after a while when a client sends nothing."""

    timeout = READ_SECONDS

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002, ARG002
        return


class _Server(ThreadingWSGIServer):
    daemon_threads = True
    allow_reuse_address = True
    timeout = POLL_SECONDS

    def server_bind(self) -> None:
        """As the base class does it, but without asking the name service for the host's full name."""
        socketserver.TCPServer.server_bind(self)
        host, port = self.server_address[:2]
        self.server_name, self.server_port = str(host), int(port)
        self.setup_environ()


class _ServerV6(_Server):
    address_family = socket.AF_INET6


def create_status_app(
    registry: CollectorRegistry,
    *,
    problem: Callable[[], str],
    is_ready: Callable[[], bool],
    status: Callable[[], Mapping[str, Any]],
) -> WSGIApplication:
    """`/metrics`, `/healthz` (503 with the `problem` for which the process has to be started anew; never one of the
    network), `/readyz` (stores synced, followers too), `/status` (JSON)."""
    metrics: WSGIApplication = make_wsgi_app(registry)

    def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        match environ.get("PATH_INFO"):
            case "/metrics":
                return metrics(environ, start_response)
            case "/healthz":
                text = problem()
                return _answer(start_response, _UNAVAILABLE if text else "200 OK", f"{text or 'ok'}\n".encode())
            case "/readyz":
                ready = is_ready()
                text = "ok" if ready else "not synced"
                return _answer(start_response, "200 OK" if ready else _UNAVAILABLE, f"{text}\n".encode())
            case "/status":
                return _answer(start_response, "200 OK", msgspec.json.encode(status()), "application/json")
            case _:
                return _answer(start_response, "404 Not Found", b"not found\n")

    return app


def _answer(
    start_response: StartResponse, status: str, body: bytes, mimetype: str = "text/plain; charset=utf-8"
) -> Iterable[bytes]:
    start_response(status, [("Content-Type", mimetype), ("Content-Length", str(len(body)))])
    return (body,)


class StatusServer(Part):
    """Serves a WSGI application on a thread of its own.

    Threads: start and stop from one. Blocks: `stop`, until the thread has ended. I/O: listens.
    """

    def __init__(self, app: WSGIApplication, address: str, port: int) -> None:
        self._app, self._address, self._port = app, address, port
        self._server: _Server | None = None
        self.worker = Worker("status", self._serve)

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
            raise ConfigError(f"metrics-address {self._address}, metrics-port {self._port}: {error}") from error
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
