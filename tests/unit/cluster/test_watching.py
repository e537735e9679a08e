"""Reading watches: the stream, the reflector, the recorder. A scripted API server makes the faults."""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.client import ApiClient, ApiError, Endpoint, Stop
from tests.cluster.history import HistoryFollower, RecordedKind, Writer, read_history
from tests.cluster.kubeconfig import write_kubeconfig
from tests.cluster.pki import Authority
from tests.cluster.watch import Reflector

PODS = RecordedKind("", "v1", "pods", "Pod")
DEADLINE = 20.0


def obj(name: str, version: int, uid: str = "u") -> dict[str, Any]:
    return {"metadata": {"namespace": "d", "name": name, "uid": uid, "resourceVersion": str(version)}}


class ScriptedApiServer(ThreadingHTTPServer):
    """Answers lists and watches from a script, in order; a watch beyond it stays open and silent.

    An answer is a list of objects (for a list) or of events (for a watch); an int is an HTTP status; the word
    "break" in a watch cuts the connection there.
    """

    daemon_threads = True

    def __init__(self, lists: list[Any], watches: list[Any]) -> None:
        self.lists, self.watches, self.seen = lists, watches, list[str]()
        self.finished = threading.Event()
        super().__init__(("127.0.0.1", 0), Answers)


class Answers(BaseHTTPRequestHandler):
    server: ScriptedApiServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        query = dict(pair.split("=") for pair in self.path.partition("?")[2].split("&") if pair)
        if "watch" not in query:
            self._list(self.server.lists.pop(0))
        else:
            self.server.seen.append(query["resourceVersion"])
            self._watch(self.server.watches.pop(0) if self.server.watches else None)

    def _list(self, answer: Any) -> None:
        version, items = answer
        self._send(200, {"kind": "PodList", "metadata": {"resourceVersion": str(version)}, "items": items})

    def _watch(self, answer: Any) -> None:
        if isinstance(answer, int):
            self._send(answer, {"kind": "Status", "reason": "Expired", "message": "too old"})
            return
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for event in answer or []:
            if event == "break":
                self.close_connection = True
                self.wfile.write(b"9\r\ntw")
                return
            line = json.dumps({"type": event[0], "object": event[1]}).encode() + b"\n"
            for piece in (line[:5], line[5:]):  # lines are whole however the chunks are cut
                self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
        if answer is None:
            self.server.finished.wait(DEADLINE)
        self.wfile.write(b"0\r\n\r\n")

    def _send(self, status: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Any]:
    """Start a scripted server with TLS; the call returns it and a client for it."""
    authority = Authority.new("ca")
    certificate, key = authority.server("server", ["127.0.0.1"]).write(tmp_path, "server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    running: list[ScriptedApiServer] = []

    def start(lists: list[Any], watches: list[Any]) -> tuple[ScriptedApiServer, ApiClient]:
        server = ScriptedApiServer(lists, watches)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        running.append(server)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        trust = ssl.create_default_context(cadata=authority.pair.certificate.decode())
        return server, ApiClient(Endpoint(f"https://127.0.0.1:{server.server_address[1]}", trust))

    yield start
    for server in running:
        server.finished.set()
        server.shutdown()
        server.server_close()


def test_a_reflector_tells_what_a_relist_reveals(serve: Any) -> None:
    first = (10, [obj("same", 1), obj("gone", 2), obj("changed", 3), obj("reborn", 4, "old")])
    second = (20, [obj("same", 1), obj("changed", 13), obj("reborn", 14, "new"), obj("fresh", 15)])
    server, api = serve([first, second], [[("ADDED", obj("seen", 11)), ("BOOKMARK", obj("", 12))], 410])
    told: list[tuple[str, str, str]] = []
    enough = threading.Event()

    def listen(kind: str, item: dict[str, Any]) -> None:
        told.append((kind, item["metadata"]["name"], item["metadata"]["uid"]))
        if item["metadata"]["name"] == "fresh":
            enough.set()

    reflector = Reflector(api, PODS.path, listen)
    try:
        assert enough.wait(DEADLINE)
    finally:
        reflector.stop()
    assert told[:5] == [("ADDED", name, uid) for name, uid in
                        (("same", "u"), ("gone", "u"), ("changed", "u"), ("reborn", "old"), ("seen", "u"))]  # fmt: skip
    assert set(told[5:7]) == {("DELETED", "gone", "u"), ("DELETED", "seen", "u")}
    assert told[7:] == [("MODIFIED", "changed", "u"), ("DELETED", "reborn", "old"), ("ADDED", "reborn", "new"),
                        ("ADDED", "fresh", "u")]  # fmt: skip
    assert server.seen[:2] == ["10", "12"]
    assert reflector.snapshot().keys() == {"d/same", "d/changed", "d/reborn", "d/fresh"}


def test_a_stop_is_noticed_while_no_bytes_come(serve: Any) -> None:
    _, api = serve([], [])
    stop = Stop()
    timer = threading.Timer(0.2, stop.set)
    timer.start()
    assert list(api.watch(PODS.path, "1", stop=stop)) == []
    assert list(api.watch(PODS.path, "1", stop=stop)) == [], "one that was set before"
    timer.join()


def test_a_recorder_goes_on_after_a_broken_connection_without_loss(serve: Any, tmp_path: Path) -> None:
    server, api = serve([(5, [obj("a", 3)])], [[("MODIFIED", obj("a", 6)), "break"], [("DELETED", obj("a", 7))]])
    lines = _record(api, tmp_path, 4)
    assert [(line["type"], line["rv"]) for line in lines] == [
        ("LISTED", 3), ("START", 5), ("MODIFIED", 6), ("DELETED", 7)]  # fmt: skip
    assert server.seen[:2] == ["5", "6"]


def test_a_recorder_that_lost_its_place_says_so(serve: Any, tmp_path: Path) -> None:
    gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
    _, api = serve([(5, []), (9, [obj("a", 8)])], [[("ERROR", gone)]])
    lines = _record(api, tmp_path, 3)
    assert [(line["type"], line["rv"]) for line in lines] == [("START", 5), ("LISTED", 8), ("GAP", 9)]


def test_a_connection_that_fails_does_not_end_what_waits_for_the_recorder(
    serve: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, api = serve([(5, []), (6, [])], [[("BOOKMARK", obj("", 6))]])
    follower = HistoryFollower(api, PODS, Writer(tmp_path / "history.jsonl"))
    assert follower.started.wait(DEADLINE)
    listed, failures = api.list, [ApiError(0, "ConnectionError", "tlsv1 alert decode error")]

    def fail_once(*args: Any, **query: Any) -> Any:
        if failures:
            raise failures.pop()
        return listed(*args, **query)

    monkeypatch.setattr(api, "list", fail_once)
    try:
        assert follower.catch_up(time.monotonic() + DEADLINE) == 6
    finally:
        follower.stop()


def _record(api: ApiClient, folder: Path, count: int) -> list[dict[str, Any]]:
    enough = threading.Event()

    class Counting(Writer):
        def write(self, *args: Any) -> None:
            super().write(*args)
            nonlocal count
            count -= 1
            if count == 0:
                enough.set()

    follower = HistoryFollower(api, PODS, Counting(folder / "history.jsonl"))
    try:
        assert enough.wait(DEADLINE)
    finally:
        follower.stop()
    return list(read_history(folder / "history.jsonl"))


def test_a_history_is_read_in_order_without_its_unfinished_last_line(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text('{"rv": 9, "type": "ADDED"}\n{"rv": 2, "type": "ADDED"}\n{"rv": 11, "ty')
    assert [line["rv"] for line in read_history(path)] == [2, 9]
    path.write_text('{"rv": 9}\nnonsense\n')
    with pytest.raises(ValueError, match=r"history\.jsonl:2"):
        read_history(path)


def test_an_answer_that_is_no_status_still_becomes_an_error() -> None:
    error = ApiError.from_status(503, b"apiserver is shutting down")
    assert (error.status, error.reason, error.message) == (503, "", "apiserver is shutting down")
    known = ApiError.from_status(409, b'{"kind": "Status", "reason": "AlreadyExists", "message": "m"}')
    assert known.conflict
    assert known.already_exists


def test_a_kubeconfig_without_its_user_is_refused_by_name(tmp_path: Path) -> None:
    path = write_kubeconfig(tmp_path / "k", "https://127.0.0.1:1", Authority.new("ca").pair.certificate, user="u")
    path.write_text(path.read_text().replace("user: u\n", "user: other\n"))
    with pytest.raises(ValueError, match=r"/k: no entry 'other'"):
        ApiClient.from_kubeconfig(path)
