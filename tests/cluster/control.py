"""One JSON object in, one out, over a Unix socket: how a cluster's helper processes are spoken to."""

from __future__ import annotations

import logging
import os
import socket
import socketserver
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

logger = logging.getLogger(__name__)

Handler = Callable[[dict[str, Any]], dict[str, Any]]


class ControlError(Exception):
    """The helper process could not be asked, or it refused."""


class ControlServer(socketserver.ThreadingUnixStreamServer):
    """Answers on `path` with what `handler` returns; an exception of its becomes an `error` in the answer.

    Threads: `handler` runs in one thread a caller.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, path: Path, handler: Handler) -> None:
        self.handler = handler
        path.unlink(missing_ok=True)
        super().__init__(str(path), _Connection)
        path.chmod(0o600)

    def start(self) -> None:
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.2}, name="control", daemon=True).start()


class _Connection(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        assert isinstance(self.server, ControlServer)
        for line in self.rfile:
            try:
                answer = self.server.handler(msgspec.json.decode(line))
            except Exception as error:  # top of a thread; the caller gets the reason
                logger.exception("control request failed")
                answer = {"error": f"{type(error).__name__}: {error}"}
            try:
                self.wfile.write(msgspec.json.encode(answer) + b"\n")
            except OSError:
                return


def call(path: Path, request: dict[str, Any], timeout: float = 10.0) -> dict[str, Any]:
    """One request and its answer. Raises ControlError when nobody answers in time or the answer is an error."""
    try:
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(timeout)
            sock.connect(os.fspath(path))
            sock.sendall(msgspec.json.encode(request) + b"\n")
            with sock.makefile("rb") as file:
                answer: dict[str, Any] = msgspec.json.decode(file.readline())
    except (OSError, msgspec.DecodeError) as error:
        raise ControlError(f"{path.name}: {request.get('op')}: {type(error).__name__} {error}") from error
    if "error" in answer:
        raise ControlError(f"{path.name}: {request.get('op')}: {answer['error']}")
    return answer
