"""A webhook of somebody else, served on loopback by the test's own process."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from certs.authority import LeafSpec, make_authority, sign
from tests.cluster.client import Object
from tests.cluster.components import LOOPBACK

Answer = Callable[[Object], Object | None]  # a request to a response without its uid; None: no answer at all


class LocalWebhook:
    """Serves until it is stopped. Threads: its own answer; start and stop from one."""

    def __init__(self, folder: Path, name: str, answer: Answer) -> None:
        self._server = ThreadingHTTPServer((LOOPBACK, 0), _handler(answer))
        self.authority = self._secure(folder / name)
        self._thread = threading.Thread(target=self._server.serve_forever, name=name, daemon=True)
        self._thread.start()
        self.url = f"https://{LOOPBACK}:{self._server.server_address[1]}/"

    def _secure(self, folder: Path) -> bytes:
        now, life = datetime.now(UTC), timedelta(days=1)
        authority = make_authority("neighbour", 2 * life, now)
        leaf = sign(authority, LeafSpec("neighbour", life, (LOOPBACK,)), now)
        folder.mkdir(parents=True)
        file = folder / "server.pem"
        file.write_bytes(leaf.certificate + leaf.key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        return authority.certificate

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)


def _handler(answer: Answer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            said = answer(review["request"])
            if said is None:
                self.close_connection = True
                return
            response = {"uid": review["request"]["uid"], **said}
            body = json.dumps({**{key: review[key] for key in ("apiVersion", "kind")}, "response": response}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            return

    return Handler
