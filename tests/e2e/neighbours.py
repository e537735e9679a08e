"""Servers that stand beside the product, on loopback: another extender, and webhooks of somebody else."""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

from tests.cluster.client import ApiClient, Object, ignored_when_gone
from tests.cluster.components import LOOPBACK
from tests.e2e.webhooks import MUTATING, server_context, write_certificates

Answer = Callable[[str, bytes], bytes]
Change = Callable[[Object], list[Object]]  # a pod to JSON patch operations


class Neighbour:
    """An HTTP server; counts the calls of each path that were answered. ConnectionAbortedError of `answer`: none is.

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
                try:
                    reply = answer(self.path, body)
                except ConnectionAbortedError:
                    self.close_connection = True
                    return
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


def passes_everything(_: str, body: bytes) -> bytes:
    """What an extender without objections says to a filter call that names nodes."""
    request: dict[str, Any] = json.loads(body)
    return json.dumps({"NodeNames": request["NodeNames"], "FailedNodes": {}, "Error": ""}).encode()


def reviewing(answer: Callable[[str, Object], Object | None]) -> Answer:
    """`answer`: path and request of a review to a response without its uid; None: no answer at all."""

    def reply(path: str, body: bytes) -> bytes:
        review = json.loads(body)
        said = answer(path.partition("?")[0], review["request"])
        if said is None:
            raise ConnectionAbortedError("nobody is here")
        response = {"uid": review["request"]["uid"], **said}
        return json.dumps({**{key: review[key] for key in ("apiVersion", "kind")}, "response": response}).encode()

    return reply


class ForeignWebhook:
    """Somebody else's webhook, in the way from its start to its end; fail-closed.

    Threads: its own answer; start and stop from one.
    """

    def __init__(
        self,
        api: ApiClient,
        folder: Path,
        name: str,
        answer: Callable[[str, Object], Object | None],
        *,
        collection: str,
        operation: str,
        resource: str,
        **entry: Any,
    ) -> None:
        self._api, self._path = api, f"{collection}/{name}"
        authority = write_certificates(folder / name, LOOPBACK)
        self._server = Neighbour(reviewing(answer), server_context(folder / name))
        client = {
            "url": f"https://{LOOPBACK}:{self._server.port}/",
            "caBundle": base64.b64encode(authority).decode(),
        }
        rule = {"operations": [operation], "apiGroups": [""], "apiVersions": ["v1"], "resources": [resource]}
        webhook = {
            "name": f"{name}.example.org",
            "clientConfig": client,
            "rules": [rule],
            "failurePolicy": "Fail",
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            **entry,
        }
        api.create(collection, {"metadata": {"name": name}, "webhooks": [webhook]})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        with ignored_when_gone():
            self._api.delete(self._path)
        self._server.close()


class NeighbourWebhook(ForeignWebhook):
    """Changes pods of one namespace beside the product: mutating webhooks run in the order of their names.

    It is asked about each pod once, whatever others change afterwards.
    """

    def __init__(self, api: ApiClient, folder: Path, name: str, namespace: str, change: Change) -> None:
        self._change = change
        self.seen: list[Object] = []
        selector = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
        super().__init__(
            api,
            folder,
            name,
            self._answer,
            collection=MUTATING,
            operation="CREATE",
            resource="pods",
            namespaceSelector=selector,
        )

    def _answer(self, _: str, request: Object) -> Object:
        pod = request["object"]
        self.seen.append(pod)
        patch = base64.b64encode(json.dumps(self._change(pod)).encode()).decode()
        return {"allowed": True, "patchType": "JSONPatch", "patch": patch}
