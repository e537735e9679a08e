"""The adapter against a real HTTP server: what each answer becomes, and watches that break in every way."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest
import yaml
from kubernetes import client

from controller.errors import (
    ClusterError,
    ConflictError,
    ForbiddenError,
    GoneError,
    NotFoundError,
    UnavailableError,
)
from controller.kube.api import DATE_SECONDS, MOST_PAGE_BYTES, ClientKubeApi, pages
from controller.kube.decoding import MISFIT
from controller.kube.line_stream import MOST_LINE_BYTES
from controller.kube.resources import CLAIMS, NODES, PODS
from tests.fakes.clock import VirtualClock
from tests.waiting import wait_until

Answer = Callable[["ScriptedHandler"], object]


class ScriptedHandler(BaseHTTPRequestHandler):
    """Answers as its server's script says, and notes what it was asked."""

    protocol_version = "HTTP/1.1"
    server: ScriptedServer

    def handle_any(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        self.server.asked.append((self.command, self.path, body))
        self.server.headers_seen.append({name.lower(): value for name, value in self.headers.items()})
        self.server.answer(self)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_any  # noqa: N815

    def reply(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def date_time_string(self, timestamp: float | None = None) -> str:
        return self.server.date or super().date_time_string(timestamp)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Nothing on the screen."""


class ScriptedServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), ScriptedHandler)
        self.asked: list[tuple[str, str, object]] = []
        self.headers_seen: list[dict[str, str]] = []
        self.answer: Answer = lambda handler: handler.reply(200, b"{}")
        self.date = ""  # what answers say that it is; "": what it is
        self.released = threading.Event()  # lets handlers that hang go on

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that went away are part of the tests."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def api(self) -> ClientKubeApi:
        return api_at(self.url)


def api_at(host: str) -> ClientKubeApi:
    configuration = client.Configuration()
    configuration.host = host
    return ClientKubeApi(configuration)


def status(code: int, message: str = "because") -> Answer:
    return lambda handler: handler.reply(code, json.dumps({"kind": "Status", "message": message}).encode())


def stream(*pieces: bytes, then: str = "ends") -> Answer:
    """These pieces; then the stream ends as it should, is cut in the middle of a piece, or says nothing more."""

    def answer(handler: ScriptedHandler) -> None:
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        for piece in pieces:
            handler.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
        if then == "ends":
            handler.wfile.write(b"0\r\n\r\n")
        elif then == "is cut":
            handler.wfile.write(b'20\r\n{"b"')
            handler.close_connection = True
        else:
            handler.server.released.wait(30)

    return answer


SILENT = stream(b'{"a":1}\n', then="is silent")


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    server = ScriptedServer()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.released.set()
    server.shutdown()
    thread.join()
    server.server_close()


ERRORS = {
    ClusterError: (401, 422),
    ForbiddenError: (403,),
    NotFoundError: (404,),
    ConflictError: (409,),
    GoneError: (410,),
    UnavailableError: (429, 500, 503),
}


@pytest.mark.parametrize(("code", "error"), [(code, error) for error, codes in ERRORS.items() for code in codes])
def test_every_status_becomes_its_error(server: ScriptedServer, code: int, error: type[ClusterError]) -> None:
    server.answer = status(code)
    with pytest.raises(ClusterError, match=f"{code}: because") as caught:
        server.api.get(PODS, "ns", "p")
    assert error is type(caught.value)


@pytest.mark.parametrize(
    ("code", "body", "told"),
    [(200, body, "/api/v1/namespaces/ns/pods/p") for body in (b"not json", b"[]", b"")]
    + [(502, b"<html>bad gateway", "502: <html>bad gateway"), (502, b"\xff", "502: \ufffd")],
)
def test_an_answer_that_is_no_object_is_a_failure(server: ScriptedServer, code: int, body: bytes, told: str) -> None:
    server.answer = lambda handler: handler.reply(code, body)
    with pytest.raises(UnavailableError, match=told):
        server.api.get(PODS, "ns", "p")


def _innermost(found: object) -> object:
    while isinstance(found, list):
        found = found[0]
    return found


@pytest.mark.parametrize(
    ("text", "read"),
    [
        (b'"a\xffb"', "a\ufffdb"),
        (b'"\\ud83d\\ude00 \\ud83d \\\\ud83d"', "\U0001f600 \ufffd \\ud83d"),
        (b'"{\\"[" ', '{"['),
        (b"[" * 2_000 + b"]" * 2_000, None),
    ],
    ids=["no UTF-8", "half a pair", "brackets", "deep"],
)
def test_one_odd_object_does_not_keep_a_list_from_being_read(server: ScriptedServer, text: bytes, read: object) -> None:
    items = b'[{"a": {"b": %s}}, {"c": "caf\xc3\xa9", "d": 10000000000000000001}, {"e": "\xff"}]' % text
    server.answer = lambda handler: handler.reply(200, b'{"items": %s, "metadata": {}}' % items)
    odd, good, _ = server.api.list_page(CLAIMS).items
    assert read == _innermost(odd["a"]["b"])
    assert {"c": "caf\u00e9", "d": 10_000_000_000_000_000_001} == good


def test_what_no_server_knows_is_told_as_a_kind_that_is_missing(server: ScriptedServer) -> None:
    server.answer = lambda handler: handler.reply(404, b"404 page not found\n")
    with pytest.raises(NotFoundError, match=r"is its CRD installed\?.*: 404 page not found$"):
        server.api.get(PODS, "ns", "p")


@pytest.mark.parametrize(
    ("host", "told"), [("http://nowhere.invalid:1", "name cannot be resolved"), ("http://127.0.0.1:1", "Connection")]
)
def test_a_server_that_is_not_there_is_named_in_a_sentence(host: str, told: str) -> None:
    with pytest.raises(UnavailableError, match=f"^GET {host}/api/v1/namespaces/ns/pods/p: .*{told}") as caught:
        api_at(host).get(PODS, "ns", "p", timeout=20)
    assert not [word for word in ("object at", "Errno", "Pool") if word in str(caught.value)]


def test_no_connection_and_no_answer_are_unavailable(server: ScriptedServer) -> None:
    server.answer = lambda _: server.released.wait(30)
    with pytest.raises(UnavailableError, match="timed out"):
        server.api.get(PODS, "ns", "p", timeout=0.1)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        with pytest.raises(UnavailableError):
            api_at(f"http://127.0.0.1:{taken.getsockname()[1]}").get(PODS, "ns", "p")


def test_each_verb_asks_for_the_right_path_with_the_right_body(server: ScriptedServer) -> None:
    server.api.create(CLAIMS, "ns", {"a": 1})
    server.api.replace(NODES, None, "n1", {"a": 2})
    server.api.patch(PODS, "ns", "p", [{"op": "remove"}], kind="json", subresource="status")
    server.api.patch(PODS, "ns", "p", {"a": 3}, field_manager="of term 7", dry_run=True)
    server.api.delete(PODS, "ns", "odd/name", uid="u1")
    server.api.delete(PODS, "ns", "old", uid="u1", version="7")
    server.api.delete(PODS, "ns", "p")

    assert [
        ("POST", "/api/v1/namespaces/ns/persistentvolumeclaims", {"a": 1}),
        ("PUT", "/api/v1/nodes/n1", {"a": 2}),
        ("PATCH", "/api/v1/namespaces/ns/pods/p/status", [{"op": "remove"}]),
        ("PATCH", "/api/v1/namespaces/ns/pods/p?fieldManager=of+term+7&dryRun=All", {"a": 3}),
        ("DELETE", "/api/v1/namespaces/ns/pods/odd%2Fname", {"preconditions": {"uid": "u1"}}),
        ("DELETE", "/api/v1/namespaces/ns/pods/old", {"preconditions": {"uid": "u1", "resourceVersion": "7"}}),
        ("DELETE", "/api/v1/namespaces/ns/pods/p", None),
    ] == server.asked
    assert ["application/json-patch+json", "application/merge-patch+json"] == [
        seen["content-type"] for seen in server.headers_seen[2:4]
    ]


def test_the_end_of_a_log_is_read_as_it_is_and_no_more_than_asked_for(server: ScriptedServer) -> None:
    server.answer = lambda handler: handler.reply(200, b"no json \xff\n")
    assert b"no json \xff\n" == server.api.read_log("ns", "p", "main", previous=True, most_bytes=100)
    (_, path, _) = server.asked[-1]
    assert "/api/v1/namespaces/ns/pods/p/log" == urlsplit(path).path
    wanted = {"container": "main", "previous": "true", "limitBytes": "100", "tailLines": "20000", "timestamps": "true"}
    assert wanted == dict(parse_qsl(urlsplit(path).query))

    with pytest.raises(UnavailableError, match="more than 5 bytes"):
        server.api.read_log("ns", "p", "main", most_bytes=5)
    server.answer = status(403)
    with pytest.raises(ForbiddenError):
        server.api.read_log("ns", "p", "main", most_bytes=5)


def test_a_json_patch_that_does_not_fit_is_a_conflict(server: ScriptedServer) -> None:
    server.answer = status(422, MISFIT)
    with pytest.raises(ConflictError, match="422"):
        server.api.patch(PODS, "ns", "p", [{"op": "test"}], kind="json")


def test_the_servers_time_is_that_of_its_last_answer_until_that_is_old(server: ScriptedServer) -> None:
    clock, configuration = VirtualClock(), client.Configuration()
    configuration.host = server.url
    api = ClientKubeApi(configuration, clock)
    assert api.server_utc() is None

    server.date = "Fri, 02 Jan 2026 03:04:05 GMT"
    api.get(PODS, "ns", "p")
    clock.advance(DATE_SECONDS)
    assert datetime(2026, 1, 2, 3, 6, 5, tzinfo=UTC) == api.server_utc()
    clock.advance(0.1)
    assert api.server_utc() is None

    server.date = "Fri, 02 Jan 2026 02:00:00 GMT"
    api.get(PODS, "ns", "p")
    server.date = "yesterday"
    api.get(PODS, "ns", "p")
    assert datetime(2026, 1, 2, 2, tzinfo=UTC) == api.server_utc()


def test_a_page_carries_items_version_and_the_way_on(server: ScriptedServer) -> None:
    answer = {"metadata": {"resourceVersion": "7", "continue": "next"}, "items": [{"metadata": {"name": "a"}}]}
    server.answer = lambda handler: handler.reply(200, json.dumps(answer).encode())
    page = server.api.list_page(PODS, limit=2, labelSelector="a=b", resourceVersion=None)
    assert ([{"metadata": {"name": "a"}}], "7", "next") == (page.items, page.resource_version, page.continue_token)
    assert "/api/v1/pods?limit=2&labelSelector=a%3Db" == server.asked[0][1]


@pytest.mark.parametrize(
    ("sizes", "asked"),
    [
        pytest.param([1] * 3, [(500, 0)], id="small objects"),
        pytest.param(
            [MOST_PAGE_BYTES // 4] * 5, [(500, 0), (125, 0), (31, 0), (7, 0), (1, 0), (2, 1), (4, 3)], id="large"
        ),
        pytest.param([MOST_PAGE_BYTES + 1], [(500, 0), (125, 0), (31, 0), (7, 0), (1, 0)], id="one that is too large"),
    ],
)
def test_large_objects_come_in_pages_of_few(
    server: ScriptedServer, sizes: list[int], asked: list[tuple[int, int]]
) -> None:
    """However many bytes somebody has put into objects, of a page no more than that are in memory."""
    seen: list[tuple[int, int]] = []

    def answer(handler: ScriptedHandler) -> None:
        query = dict(parse_qsl(urlsplit(handler.path).query))
        limit, begin = int(query["limit"]), int(query.get("continue", "0"))
        seen.append((limit, begin))
        end = min(begin + limit, len(sizes))
        more = str(end) if end < len(sizes) else ""
        items = [{"metadata": {"name": str(number)}, "x": "x" * sizes[number]} for number in range(begin, end)]
        body = {"metadata": {"resourceVersion": "7", "continue": more}, "items": items}
        handler.reply(200, json.dumps(body).encode())

    server.answer = answer
    found = [item["metadata"]["name"] for page in pages(server.api, PODS) for item in page.items]
    assert list(map(str, range(len(sizes)))) == found
    assert asked == seen


def watch(api: ClientKubeApi, read_timeout: float = 20.0, selector: str | None = None) -> Iterator[bytes]:
    return iter(api.watch(PODS, None, "5", timeout_seconds=30, read_timeout=read_timeout, field_selector=selector))


def test_lines_are_whole_however_they_were_cut(server: ScriptedServer) -> None:
    server.answer = stream(b'{"a"', b":1}\n{", b'"b":2}\n\n{"c":3}\n')
    assert [b'{"a":1}', b'{"b":2}', b'{"c":3}'] == list(watch(server.api))
    list(watch(server.api, selector="metadata.name=a"))
    path = "/api/v1/pods?watch=true&allowWatchBookmarks=true&resourceVersion=5&timeoutSeconds=30"
    assert [path, f"{path}&fieldSelector=metadata.name%3Da"] == [asked for _, asked, _ in server.asked]


@pytest.mark.parametrize(
    "answer", [stream(b'{"a":1}\n{"b"'), stream(b'{"a":1}\n', then="is cut"), SILENT], ids=["half", "cut", "silent"]
)
def test_a_watch_that_breaks_is_unavailable_after_its_whole_lines(server: ScriptedServer, answer: Answer) -> None:
    server.answer = answer
    lines = watch(server.api, read_timeout=0.5)
    assert b'{"a":1}' == next(lines)
    with pytest.raises(UnavailableError, match="watch: "):
        next(lines)


def test_a_line_of_absurd_size_is_refused_by_its_size_and_a_large_one_is_read(server: ScriptedServer) -> None:
    piece = b"x" * 1024**2
    server.answer = stream(*[piece] * (MOST_LINE_BYTES // len(piece)), b"\n", *[piece] * 100)
    lines = watch(server.api)
    assert MOST_LINE_BYTES == len(next(lines))
    with pytest.raises(UnavailableError, match=f"watch: a line has more than {MOST_LINE_BYTES} bytes"):
        next(lines)


def test_a_refused_watch_is_the_error_that_it_names(server: ScriptedServer) -> None:
    server.answer = status(410, "too old")
    with pytest.raises(GoneError, match="410: too old"):
        watch(server.api)


def test_a_refusal_that_never_ends_is_still_a_refusal(server: ScriptedServer) -> None:
    def answer(handler: ScriptedHandler) -> None:
        handler.send_response(503)
        handler.send_header("Content-Length", "100")
        handler.end_headers()
        server.released.wait(30)

    server.answer = answer
    with pytest.raises(UnavailableError, match="503"):
        watch(server.api, read_timeout=0.2)


def test_closing_ends_a_blocking_read_in_another_thread(server: ScriptedServer) -> None:
    server.answer = SILENT
    stream = server.api.watch(PODS, None, "5", timeout_seconds=30, read_timeout=60)
    lines: list[bytes] = []
    with ThreadPoolExecutor(1) as pool:
        reader = pool.submit(lines.extend, stream)
        wait_until(lambda: bool(lines))
        stream.close()
        reader.result(10)
    assert [b'{"a":1}'] == lines


def test_closing_ends_a_stream_whose_reader_is_busy_with_a_line(server: ScriptedServer) -> None:
    server.answer = SILENT
    stream = server.api.watch(PODS, None, "5", timeout_seconds=30, read_timeout=60)
    lines = iter(stream)
    assert b'{"a":1}' == next(lines)
    stream.close()
    assert [] == list(lines)


def kubeconfig(path: Path, server: str, **user: object) -> str:
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "one",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "contexts": [{"name": "one", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(yaml.safe_dump(document))
    return str(path)


def test_a_kubeconfig_says_where_and_as_whom(server: ScriptedServer, tmp_path: Path) -> None:
    ClientKubeApi.load(kubeconfig(tmp_path / "config", server.url, token="secret")).get(PODS, "ns", "p")
    assert "Bearer secret" == server.headers_seen[0]["authorization"]
