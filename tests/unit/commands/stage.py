"""A cluster in memory whose leader serves documents on a real port."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from certs.authority import LeafSpec, make_authority, sign
from controller.cli import program
from controller.commands.leader import ADDRESSES, StatusReader
from controller.kube.api import KubeApi
from controller.kube.resources import CONFIG_MAPS, LEASES, NAMESPACES, PODS
from controller.process.command_line import run_command
from tests.fakes import view_documents
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.clock import VirtualClock

NAMESPACE, LEASE = "longhorn-system", "longhorn-manager-disk-scheduler-lock"


class Copy:
    """A process that serves these documents; `token`: what its callers have to show."""

    def __init__(self, name: str, tls: ssl.SSLContext | None = None, token: str = "") -> None:
        self.name, self.token, self.asked = name, token, list[str]()
        self.documents: dict[str, Any] = {
            "/overview": view_documents.healthy(),
            "/capacity": view_documents.capacity(view_documents.healthy().disks),
            "/explain/pods/shop/full": view_documents.explanation(),
            "/explain/pods/shop/orders-0": view_documents.let_through(),
        }
        copy = self

        class Documents(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                copy.asked.append(self.path)
                status, body = copy.answer(self.path, self.headers.get("Authorization", ""))
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Documents)
        self.port = self._server.server_port
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def answer(self, path: str, authorization: str) -> tuple[int, bytes]:
        if self.token and authorization != f"Bearer {self.token}":
            return 401, b"the API server does not know this token\n"
        document = self.documents.get(path)
        if isinstance(document, int):
            return document, b"this copy does not lead\n"
        return (404, b"not found\n") if document is None else (200, view_documents.encoded(document))

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class TokenApi(FakeApiServer):
    """Its caller has a token."""

    token = ""

    def bearer(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.token}"} if self.token else {}


class LedCluster:
    """Copies, and a Lease that names one of them; each is reached by port-forward, unless that is cut."""

    def __init__(self, folder: Path) -> None:
        self.api, self.clock, self.folder = TokenApi(), VirtualClock(), folder
        self.copies: dict[str, Copy] = {}
        self.forwarded: list[str] = []
        self.cut: Exception | None = None
        self.api.create(NAMESPACES, None, {"metadata": {"name": NAMESPACE}})

    def add(self, name: str, tls: ssl.SSLContext | None = None, **more: Any) -> Copy:
        self.copies[name] = made = Copy(name, tls, **more)
        port = {"name": "status", "containerPort": made.port}
        pod = {
            "metadata": {"name": name, "labels": {"app.kubernetes.io/name": "longhorn-scheduler-extender"}},
            "spec": {"containers": [{"name": "controller", "ports": [port]}]},
            "status": {"phase": "Running", "podIP": "127.0.0.1"},
        }
        self.api.put(PODS, NAMESPACE, pod)
        return made

    def lead(self, name: str) -> None:
        spec = {"leaseDurationSeconds": 15, "renewTime": self.clock.stamp()}
        spec |= {"holderIdentity": f"{name}_1a2b"} if name else {}
        self.api.put(LEASES, NAMESPACE, {"metadata": {"name": LEASE}, "spec": spec})

    def forward(self, _api: KubeApi, _namespace: str, pod: str, port: int) -> socket.socket:
        assert 9507 == port
        self.forwarded.append(pod)
        if self.cut is not None:
            raise self.cut
        return socket.create_connection(("127.0.0.1", self.copies[pod].port), 5)

    def reader(self) -> StatusReader:
        return StatusReader(connect=lambda *_: self.api, forward=self.forward, clock=self.clock)

    def run(self, *words: str) -> int:
        return run_command(program, words, obj=self.reader())

    def tls(self) -> ssl.SSLContext:
        """Of a leader whose authority is published."""
        now, life = self.clock.now_utc(), timedelta(days=3_000)
        authority = make_authority("status", life, now)
        name = f"longhorn-scheduler-extender.{NAMESPACE}.svc"
        leaf = sign(authority, LeafSpec("status", life, names=(name,)), now)
        certificate = self.folder / "tls.pem"
        certificate.write_bytes(leaf.certificate + leaf.key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        trust = {"metadata": {"name": "longhorn-scheduler-extender-status"}}
        self.api.put(CONFIG_MAPS, NAMESPACE, {**trust, "data": {"ca.crt": authority.certificate.decode()}})
        return context


@contextmanager
def staged(folder: Path, environment: pytest.MonkeyPatch) -> Iterator[LedCluster]:
    """Asked from outside of it, and by no table of addresses."""
    for variable in (ADDRESSES, "POD_NAME", "POD_NAMESPACE"):
        environment.delenv(variable, raising=False)
    stage = LedCluster(folder)
    try:
        yield stage
    finally:
        for copy in stage.copies.values():
            copy.close()
