"""What `helm test` tries, against an API server in memory and an extender that answers as it is told."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from controller.installation.check import CheckResult, CheckTarget, check_installation
from controller.kube.resources import MUTATING_WEBHOOKS, SECRETS
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.clock import VirtualClock
from tests.ports import free_port

KEYS = ("ca.crt", "tls.crt", "tls.key")
CONFIGURATION = "zz-longhorn-scheduler-extender"


class Extender:
    """Over plain HTTP. Threads: its own."""

    def __init__(self) -> None:
        self.status, self.answer = 200, {"NodeNames": ["longhorn-scheduler-extender-check"], "Error": ""}
        self.asked: list[Any] = []
        extender = self

        class AnswerHandler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                extender.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                body = json.dumps(extender.answer).encode()
                self.send_response(extender.status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), AnswerHandler)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        self.address = f"127.0.0.1:{self._server.server_port}"

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def extender() -> Iterator[Extender]:
    made = Extender()
    yield made
    made.stop()


def configured(server: FakeApiServer, *entries: str) -> None:
    body = {"metadata": {"name": CONFIGURATION}, "webhooks": [{"name": name} for name in entries]}
    server.put(MUTATING_WEBHOOKS, None, body)


def check(
    server: FakeApiServer, extender: Extender, *, secret: str = "", seconds: float = 5.0
) -> dict[str, CheckResult]:
    clock = VirtualClock()
    target = CheckTarget("longhorn-system", "default", "default-scheduler", extender.address, "extender.test", secret)
    found = check_installation(server, clock, target, wait_seconds=seconds, pause=clock.advance)
    return {one.what: one for one in found}


def test_both_are_tried(extender: Extender) -> None:
    server = FakeApiServer()
    configured(server, "pods.scheduling.longhorn.io")
    found = check(server, extender)
    assert ("ok", True) == (found["extender"].outcome, found["extender"].is_well)
    assert [["longhorn-scheduler-extender-check"]] == [args["NodeNames"] for args in extender.asked]
    # Nobody changed the pod: in memory there is no admission.
    assert "failed: webhook: a pod with a claim in default does not get" in found["webhook"].line
    assert not [key for key in server.objects if "pods" in key[0]]  # a dry run


@pytest.mark.parametrize("entries", [None, (), ("share-managers.scheduling.longhorn.io",)])
def test_a_webhook_that_nobody_asks_yet_is_no_failure(extender: Extender, entries: tuple[str, ...] | None) -> None:
    server = FakeApiServer()
    if entries is not None:
        configured(server, *entries)
    assert "skipped" == check(server, extender)["webhook"].outcome


@pytest.mark.parametrize(
    ("status", "answer", "text"),
    [
        (503, {"x": "not leading"}, "answers 503"),
        (200, {"Error": "no"}, "refuses a pod without volumes: no"),
        (200, {"NodeNames": []}, "refuses a pod without volumes"),
    ],
)
def test_an_extender_that_does_not_answer_fails(
    extender: Extender, status: int, answer: dict[str, Any], text: str
) -> None:
    extender.status, extender.answer = status, answer
    found = check(FakeApiServer(), extender)["extender"]
    assert (False, True) == (found.is_well, text in found.text)
    assert 6 == len(extender.asked)  # again and again, until the time is over


def test_what_cannot_be_tried_is_told(extender: Extender) -> None:
    server = FakeApiServer()
    assert "404" in check(server, extender, secret="client")["extender"].text
    server.put(SECRETS, "longhorn-system", {"metadata": {"name": "client"}, "data": {"ca.crt": "eA=="}})
    found = check(server, extender, secret="client")["extender"]
    assert "the Secret longhorn-system/client has no tls.crt" in found.text
    server.put(SECRETS, "longhorn-system", {"metadata": {"name": "client"}, "data": dict.fromkeys(KEYS, "eA==")})
    assert "failed" == check(server, extender, secret="client")["extender"].outcome


def test_a_closed_port_is_told(extender: Extender) -> None:
    extender.address = f"127.0.0.1:{free_port()}"
    assert "ConnectionRefusedError" in check(FakeApiServer(), extender, seconds=0.0)["extender"].text
