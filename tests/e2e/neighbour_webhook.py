"""Somebody else's mutating webhook, which changes pods beside the product's."""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from certs.authority import LeafSpec, make_authority, sign
from tests.cluster.client import ApiClient, Object
from tests.cluster.components import LOOPBACK
from tests.e2e.webhooks import MUTATING, drop_configuration

Change = Callable[[Object], list[Object]]  # a pod to JSON patch operations


class NeighbourWebhook:
    """Serves on loopback and is configured under `name`: mutating webhooks run in the order of these names.

    It is asked about pods of one namespace, and about each once, whatever others change afterwards.
    Threads: its own answer; start and stop from one.
    """

    def __init__(self, api: ApiClient, folder: Path, name: str, namespace: str, change: Change) -> None:
        self._api, self.name = api, name
        self.seen: list[Object] = []
        self._server = ThreadingHTTPServer((LOOPBACK, 0), _handler(self.seen, change))
        authority = self._secure(folder / name)
        self._thread = threading.Thread(target=self._server.serve_forever, name=name, daemon=True)
        self._thread.start()
        port = self._server.server_address[1]
        self._configure(namespace, f"https://{LOOPBACK}:{port}/", authority)

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

    def _configure(self, namespace: str, url: str, authority: bytes) -> None:
        entry = {
            "name": f"{self.name}.example.org",
            "clientConfig": {"url": url, "caBundle": base64.b64encode(authority).decode()},
            "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            "failurePolicy": "Fail",
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }
        self._api.create(
            MUTATING,
            {
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": "MutatingWebhookConfiguration",
                "metadata": {"name": self.name},
                "webhooks": [entry],
            },
        )

    def stop(self) -> None:
        drop_configuration(self._api, self.name)
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)


def _handler(seen: list[Object], change: Change) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            pod = review["request"]["object"]
            seen.append(pod)
            patch = base64.b64encode(json.dumps(change(pod)).encode()).decode()
            response = {"uid": review["request"]["uid"], "allowed": True, "patchType": "JSONPatch", "patch": patch}
            body = json.dumps({**{key: review[key] for key in ("apiVersion", "kind")}, "response": response}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            return

    return Handler
