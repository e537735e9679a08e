"""Servers that stand beside the product in tests of kube-scheduler: another extender, and a front that speaks TLS."""

from __future__ import annotations

import json
import ssl
import threading
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.cluster.components import LOOPBACK

Answer = Callable[[str, bytes], bytes]


class Neighbour:
    """An HTTP server on loopback; counts the calls of each path that were answered.

    Threads: any. Blocks: never.
    """

    def __init__(self, answer: Answer, context: ssl.SSLContext | None = None) -> None:
        self.calls: Counter[str] = Counter()
        calls = self.calls

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                reply = answer(self.path, body)
                calls[self.path] += 1
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(reply)))
                self.end_headers()
                self.wfile.write(reply)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer((LOOPBACK, 0), Handler)
        self._server.daemon_threads = True
        if context is not None:
            # Handshakes belong to the threads that serve, not to the one that accepts.
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, name="neighbour", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10.0)


@contextmanager
def neighbour(answer: Answer, context: ssl.SSLContext | None = None) -> Iterator[Neighbour]:
    server = Neighbour(answer, context)
    try:
        yield server
    finally:
        server.close()


def passes_everything(_: str, body: bytes) -> bytes:
    """What an extender without objections says to a filter call that names nodes."""
    request: dict[str, Any] = json.loads(body)
    return json.dumps({"NodeNames": request["NodeNames"], "FailedNodes": {}, "Error": ""}).encode()


def hands_on_to(address: tuple[str, int]) -> Answer:
    """Has the server there answer, over plain HTTP."""
    host, port = address

    def answer(path: str, body: bytes) -> bytes:
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"http://{host}:{port}{path}", data=body, headers=headers)
        with urllib.request.urlopen(request, timeout=10) as reply:
            data: bytes = reply.read()
        return data

    return answer
