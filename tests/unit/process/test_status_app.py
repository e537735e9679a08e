"""What the status port answers, to whom, and how: routes, methods, names of hosts, headers, compression."""

from __future__ import annotations

import gzip
import logging
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from werkzeug.test import Client, TestResponse

from controller.errors import (
    MalformedRequestError,
    NotFoundError,
    NotLeaderError,
    UnavailableError,
)
from controller.process.status_app import MOST_ANSWERS, Asked, Sees, StatusApp, StatusRefusedError, admit_all

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

HOSTS = ("localhost", "extender.longhorn.svc")
LARGE = ["x" * 100] * 100


def raising(error: Exception) -> Any:
    def answer(_asked: Asked) -> Any:
        raise error

    return answer


ANSWERS = {
    "/status": lambda _: {"mode": "active"},
    "/large": lambda _: LARGE,
    "/decisions": lambda asked: asked.number("after"),
    "/explain/": lambda asked: [asked.path, asked.sees("team")],
    "/follower": raising(NotLeaderError("the leader is b")),
    "/gone": raising(NotFoundError("not found")),
    "/malformed": raising(MalformedRequestError("after", "is not a whole number")),
    "/broken": raising(ZeroDivisionError("of ours")),
}


def page(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    start_response("200 OK", [("Content-Type", "text/html")])
    return (f"page {environ['PATH_INFO']}".encode(),)


def ask(path: str, method: str = "GET", *, host: str = "", **app: Any) -> TestResponse:
    made = StatusApp(ANSWERS, **{"hosts": HOSTS, **app})
    return Client(made).open(path, method=method, headers={"Host": host} if host else {})


@pytest.mark.parametrize(
    ("path", "status", "body"),
    [
        ("/status", 200, {"mode": "active"}),
        ("/decisions", 200, 0),
        ("/decisions?after=17", 200, 17),
        ("/explain/pods/team/app", 200, ["/explain/pods/team/app", True]),
        ("/explain/../status", 200, ["/explain/../status", True]),  # a path is a name here, and leads nowhere else
        ("/decisions?after=-1", 400, None),
        ("/decisions?after=1e9", 400, None),
        ("/decisions?" + "&".join("after=1" for _ in range(20)), 400, None),
        ("/malformed", 400, None),
        ("/explain", 404, None),
        ("/status/", 404, None),
        ("/", 404, None),
        ("/gone", 404, None),
        ("/follower", 503, None),
        ("/broken", 500, None),
    ],
)
def test_a_path_has_its_document(path: str, status: int, body: object) -> None:
    answer = ask(path)
    assert status == answer.status_code
    if body is not None:
        assert ("application/json", body) == (answer.headers["Content-Type"], answer.json)
    assert ("no-store", "nosniff") == (answer.headers["Cache-Control"], answer.headers["X-Content-Type-Options"])
    assert "Access-Control-Allow-Origin" not in answer.headers


def test_a_follower_names_the_leader_and_a_fault_of_ours_tells_nothing(caplog: pytest.LogCaptureFixture) -> None:
    assert "the leader is b\n" == ask("/follower").text
    with caplog.at_level(logging.ERROR):
        assert "see the log\n" == ask("/broken").text
    assert any("of ours" in str(record.exc_info) for record in caplog.records)


def test_what_is_no_document_is_the_page_s() -> None:
    assert ["page /", "page /page/main.js"] == [ask(path, page=page).text for path in ("/", "/page/main.js")]
    assert {"mode": "active"} == ask("/status", page=page).json


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"])
def test_nothing_but_reading_is_served(method: str) -> None:
    answer = ask("/status", method, page=page)
    assert (405, "GET, HEAD") == (answer.status_code, answer.headers["Allow"])


def test_head_has_the_headers_alone() -> None:
    answer, whole = ask("/status", "HEAD"), ask("/status")
    assert (200, b"", whole.headers["Content-Length"]) == (
        answer.status_code,
        answer.data,
        answer.headers["Content-Length"],
    )


@pytest.mark.parametrize(
    ("host", "is_served"),
    [
        ("localhost", True),
        ("LOCALHOST.:9507", True),
        ("127.0.0.1:9507", True),
        ("[::1]:9507", True),
        ("::1", False),  # no browser writes it so
        ("extender.longhorn.svc:9507", True),
        ("rebound.example.com", False),
        ("rebound.example.com:9507", False),
        ("localhost.example.com", False),
        ("127.0.0.1.example.com", False),
        ("[rebound.example.com]", False),
    ],
)
def test_a_name_that_a_stranger_can_have_resolved_to_loopback_is_refused(host: str, is_served: bool) -> None:
    assert (200 if is_served else 421) == ask("/status", host=host).status_code
    assert 200 == ask("/status", host=host, hosts=None).status_code  # where a token is needed besides


@pytest.mark.parametrize(
    ("accepted", "is_compressed"),
    [("gzip", True), ("br, GZIP;q=0.5", True), ("*", True), ("gzip;q=0", False), ("br", False), ("", False)],
)
def test_a_large_answer_is_compressed_for_those_who_take_that(accepted: str, is_compressed: bool) -> None:
    answer = Client(StatusApp(ANSWERS)).get("/large", headers={"Accept-Encoding": accepted})
    assert is_compressed == (answer.headers.get("Content-Encoding") == "gzip")
    body = gzip.decompress(answer.data) if is_compressed else answer.data
    assert (len(answer.data), body[:5]) == (int(answer.headers["Content-Length"]), b'["xxx')
    assert (
        "Content-Encoding" not in Client(StatusApp(ANSWERS)).get("/status", headers={"Accept-Encoding": "gzip"}).headers
    )


def test_who_is_not_admitted_learns_nothing_of_what_there_is() -> None:
    asked: list[tuple[str, str]] = []

    def admit(authorization: str, path: str) -> Sees:
        asked.append((authorization, path))
        if authorization == "Bearer away":
            raise UnavailableError("503: 10.0.0.1 is away")
        if authorization != "Bearer known":
            raise StatusRefusedError("401 Unauthorized", "a bearer token is needed")
        return admit_all("", "")

    app = StatusApp(ANSWERS, admit=admit, page=page)
    for path in ("/status", "/none", "/", "/page/main.js", "/broken"):
        answer = Client(app).get(path)
        assert (401, "Bearer") == (answer.status_code, answer.headers["WWW-Authenticate"])
        answer = Client(app).get(path, headers={"Authorization": "Bearer away"})
        assert (503, "the API server could not check who may read this\n") == (answer.status_code, answer.text)
    assert 200 == Client(app).get("/status", headers={"Authorization": "Bearer known"}).status_code
    assert ("Bearer known", "/status") == asked[-1]


def test_so_many_are_answered_at_a_time_and_others_are_sent_away_at_once() -> None:
    """A thread that works on an answer does not hear that its caller is gone: without a limit they pile up."""
    begun, ends = threading.Semaphore(0), threading.Event()

    def slow(_asked: Asked) -> None:
        begun.release()
        assert ends.wait(30)

    app = StatusApp({"/slow": slow, "/status": lambda _: 1})
    with ThreadPoolExecutor(MOST_ANSWERS) as pool:
        working = [pool.submit(Client(app).get, "/slow") for _ in range(MOST_ANSWERS)]
        assert all(begun.acquire(timeout=30) for _ in working)
        refused = Client(app).get("/status")
        ends.set()
        assert {200} == {one.result(30).status_code for one in working}
    assert (503, "1") == (refused.status_code, refused.headers["Retry-After"])
    assert 200 == Client(app).get("/status").status_code
    for _ in range(2 * MOST_ANSWERS):  # a place that is not given back would show
        assert 405 == Client(app).post("/status").status_code
