"""The application under a real gunicorn on loopback: bodies that stop half-way, keep-alive, crashes, signals."""

from __future__ import annotations

import gzip
import http.client
import json
import os
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from controller.serving.server import HELD_BYTES, ServedApplication, ServerOptions, check_one_worker
from tests.unit.extender.http_process import BODY_LIMIT
from tests.unit.extender.http_server import DEADLINE_SECONDS, ServerProcess, call_for, exchange
from tests.waiting import wait_until


class HttpServer(ServerProcess):
    def __init__(self, folder: Path, request_seconds: float = 20.0, drain_seconds: float = 0.0) -> None:
        super().__init__("tests.unit.extender.http_process", folder, request_seconds, drain_seconds)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServer]:
    server = HttpServer(tmp_path_factory.mktemp("server"))
    yield server
    server.stop()


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Callable[..., HttpServer]]:
    started: list[HttpServer] = []

    def start(**options: Any) -> HttpServer:
        started.append(HttpServer(tmp_path, **options))
        return started[-1]

    yield start
    for server in started:
        server.stop()


def preemption_for(pod: str) -> dict[str, Any]:
    victims = {node: {"Pods": [{"UID": "v"}], "NumPDBViolations": 0} for node in ("n1", "n2")}
    return {"Pod": call_for(pod, "n1")["Pod"], "NodeNameToMetaVictims": victims}


def binding_for(pod: str, node: str) -> dict[str, str]:
    return {"PodName": pod, "PodNamespace": "n", "PodUID": "u", "Node": node}


NO_POD = "Longhorn: the pod does not exist"
PASSED: dict[str, Any] = {
    "Nodes": None,
    "NodeNames": ["n1", "n2"],
    "FailedNodes": {},
    "FailedAndUnresolvableNodes": {},
    "Error": "",
}


@pytest.mark.parametrize("prefix", ["", "/api/scheduler", "/a/b/c"])
@pytest.mark.parametrize(
    ("verb", "request_", "expected"),
    [
        ("filter", call_for("p", "n1", "n2"), PASSED),
        ("filter", call_for("gone", "n1"), {**PASSED, "NodeNames": [], "Error": NO_POD}),
        ("prioritize", call_for("p", "n1", "n2"), [{"Host": "n1", "Score": 7}, {"Host": "n2", "Score": 7}]),
        ("prioritize", call_for("gone", "n1"), [{"Host": "n1", "Score": 0}]),
        (
            "preempt",
            preemption_for("p"),
            {"NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "v"}], "NumPDBViolations": 0}}},
        ),
        ("preempt", preemption_for("gone"), {"NodeNameToMetaVictims": {}}),  # nobody is evicted
        ("bind", binding_for("p", "n1"), {"Error": ""}),
        ("bind", binding_for("p", "n2"), {"Error": "no such node"}),
        ("bind", binding_for("gone", "n1"), {"Error": NO_POD}),
    ],
)
def test_each_verb_is_answered_below_any_prefix(
    server: HttpServer, prefix: str, verb: str, request_: dict[str, Any], expected: object
) -> None:
    """Never by calling a node unsuitable; the answers of prioritize and preempt have no place for an error."""
    status, answer, headers = server.call("POST", f"{prefix}/{verb}", request_)
    assert (status, headers["Content-Type"], answer) == (200, "application/json", expected)


def test_many_calls_share_one_connection(server: HttpServer) -> None:
    connection = server.connection()
    for number in range(20):
        status, answer, _ = exchange(connection, "POST", "/filter", call_for("p", f"n{number}"))
        assert (status, answer["NodeNames"]) == (200, [f"n{number}"])
        assert connection.sock is not None  # http.client drops it when the server says that it closes
    connection.close()


@pytest.mark.parametrize(
    "state",
    [
        pytest.param("nodelay True", id="answers leave at once although headers and body are two writes"),
        pytest.param("pauses 1", id="the garbage collector is kept from long pauses"),
    ],
)
def test_a_process_is_set_up_for_quick_answers(server: HttpServer, state: str) -> None:
    assert server.call("POST", "/filter", call_for(state.partition(" ")[0], "n1"))[1]["Error"] == state


@pytest.mark.parametrize(
    ("verb", "body", "field"),
    [
        ("filter", b"", "body"),
        ("filter", b"{", "body"),
        ("filter", b'{"NodeNames":[]}', "Pod"),
        ("filter", b"\x00\xff", "body"),
        ("filter", b'{"Pod":3}', "Pod"),
        # what nobody decodes here would be sent back as it came
        ("filter", json.dumps(call_for("p", "n1")).encode()[:-1] + b',"Nodes":{"items":[{"x":"\xff"}]}}', "body"),
        ("preempt", json.dumps({"Pod": call_for("p")["Pod"]}).encode(), "NodeNameToMetaVictims"),
    ],
)
def test_a_malformed_body_is_a_400_that_names_the_field(server: HttpServer, verb: str, body: bytes, field: str) -> None:
    status, answer, _ = server.call("POST", f"/{verb}", body)
    assert status == 400
    assert answer["Error"].startswith(f"{field}: ")


def test_a_fault_of_ours_is_an_error_that_tells_nothing(server: HttpServer) -> None:
    status, answer, _ = server.call("POST", "/filter", call_for("bug", "n1"))
    assert status == 500
    assert "secret" not in answer["Error"]
    assert answer["Error"]


def test_a_503_ends_its_connection_so_that_the_next_call_finds_the_leader(server: HttpServer) -> None:
    connection = server.connection()
    status, answer, headers = exchange(connection, "POST", "/filter", call_for("not-leading", "n1"))
    assert (status, answer["Error"]) == (503, "not leading")
    assert headers["Connection"] == "close"
    assert connection.sock is None


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/filter", 405), ("POST", "/nothing", 404)])
def test_other_routes_and_methods_do_not_exist(server: HttpServer, method: str, path: str, status: int) -> None:
    assert server.call(method, path)[0] == status


def test_a_body_over_the_limit_is_refused_before_it_is_read(server: HttpServer) -> None:
    head = b"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n{"
    with server.raw(head) as connection:
        assert connection.recv(65536).startswith(b"HTTP/1.1 413 ")
    assert server.is_well()


def test_a_chunked_body_over_the_limit_is_refused(server: HttpServer) -> None:
    connection = server.connection()
    chunks = (b"[" * 100_000 for _ in range(BODY_LIMIT // 100_000 + 2))
    connection.putrequest("POST", "/filter")
    connection.putheader("Transfer-Encoding", "chunked")
    connection.endheaders()
    try:
        for chunk in chunks:
            connection.send(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
        connection.send(b"0\r\n\r\n")
    except OSError:
        pass  # the server need not read to the end
    with connection.sock.dup() as peer:
        assert connection.getresponse().status == 413
        with suppress(ConnectionError):  # few threads read such bodies at a time: it has let go of this one
            while peer.recv(4096):
                pass


def test_a_chunked_body_within_the_limit_is_read(server: HttpServer) -> None:
    connection = server.connection()
    connection.request("POST", "/filter", iter([json.dumps(call_for("p", "n1")).encode()]), encode_chunked=True)
    assert json.loads(connection.getresponse().read())["NodeNames"] == ["n1"]


def test_a_client_that_leaves_while_its_call_waits_is_noticed(server: HttpServer) -> None:
    body = json.dumps(call_for("patient", "n1")).encode()
    head = f"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    connection = server.raw(head + body)
    server.wait_event("waiting gone=False")
    connection.close()
    server.wait_event("left gone=True")
    server.wait_event("failed client-gone")


def test_large_bodies_that_are_too_many_together_get_a_429(server: HttpServer) -> None:
    """In memory are as many as may be; and a small call is answered meanwhile, and one that is large alone."""
    count = HELD_BYTES // BODY_LIMIT + 6
    told = server.refuses_of_many(lambda: server.raw(b""), BODY_LIMIT - 1_000, count)
    refused = [answer for answer in told if answer.startswith(b"HTTP/1.1 429 ")]
    assert count - len(refused) == sum(answer.startswith(b"HTTP/1.1 400 ") for answer in told)
    assert 1 <= len(refused) <= 5
    assert all(b"\r\nRetry-After: 1\r\n" in answer for answer in refused)
    assert server.call("POST", "/filter", b" " * (BODY_LIMIT - 1_000))[0] == 400
    assert server.is_well()


def test_a_compressed_body_is_refused(server: HttpServer) -> None:
    body = gzip.compress(json.dumps(call_for("p", "n1")).encode())
    status, answer, _ = server.call("POST", "/filter", body, **{"Content-Encoding": "gzip"})
    assert (status, answer["Error"].partition(":")[0]) == (400, "body")


HALVES = (
    b"POST /fil",
    b"POST /filter HTTP/1.1\r\nHost: x\r\nX-Long: " + b"x" * 5_000,
    b"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\n{",
)
WHOLE = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
CHUNKED = b"POST /filter HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n32\r\n{"


@pytest.mark.parametrize(
    ("said", "count", "ended"),
    [
        pytest.param(HALVES, 100, slice(0), id="half requests take no thread"),
        pytest.param([CHUNKED], 20, slice(1, None), id="what only a thread can read takes few of them"),
        pytest.param([b""], 300, slice(1), id="of more silent ones than may wait the oldest makes room"),
        pytest.param(HALVES[:1], 300, slice(1), id="of more half requests than may wait the oldest makes room"),
        pytest.param([WHOLE], 200, slice(1), id="of more that idle than are kept the oldest makes room"),
    ],
)
def test_connections_that_do_not_go_on_keep_nobody_out(
    own_server: Callable[..., HttpServer], said: Sequence[bytes], count: int, ended: slice
) -> None:
    server = own_server(request_seconds=600.0)
    halves = [server.raw(said[number % len(said)]) for number in range(count)]
    for _ in range(10):
        assert server.is_well()  # three threads would be gone long ago
    assert all(map(is_ended, halves[ended]))
    for connection in halves:
        connection.close()
    assert server.is_well()


def test_many_that_idle_end_no_connection_of_another_host(server: HttpServer) -> None:
    address = (server.connection().host, server.port)
    with socket.create_connection(address, timeout=30, source_address=("127.0.0.2", 0)) as other:
        for _ in range(2):
            assert is_answered(other)
            assert all(is_answered(server.raw(b"")) for _ in range(200))
        assert is_answered(other)


def is_answered(connection: socket.socket) -> bool:
    connection.sendall(WHOLE)
    answer = b""
    while not answer.endswith(b"\r\n\r\nok\n") and (piece := connection.recv(4096)):
        answer += piece
    return answer.startswith(b"HTTP/1.1 200 ")


def is_ended(connection: socket.socket) -> bool:
    try:
        while connection.recv(4096):  # an answer
            pass
        return True
    except ConnectionError:
        return True


def test_half_a_request_that_goes_on_is_answered(server: HttpServer) -> None:
    with server.raw(HALVES[2]) as half:
        assert server.is_well()
        half.sendall(b" " * 49)
        assert half.recv(65_536).startswith(b"HTTP/1.1 400 ")  # a refusal of what it said


def test_half_a_request_ends_at_its_deadline(own_server: Callable[..., HttpServer]) -> None:
    server = own_server(request_seconds=1.0)
    halves = [server.raw(data) for data in (*HALVES, CHUNKED) * 3]  # a thread reads the last ones
    assert server.is_well()
    for connection in halves:
        while connection.recv(65536):
            pass  # an answer or none: in the end the server has closed


def test_clients_that_do_not_close_after_their_answer_keep_nobody_waiting(server: HttpServer) -> None:
    lingering = [server.raw(b"nonsense\r\n\r\n") for _ in range(30)]
    for connection in lingering:
        assert connection.recv(65_536).startswith(b"HTTP/1.1 400 ")
    # The server has said that it closes; the clients do not.
    assert server.is_well()


def test_a_worker_that_dies_is_started_again(own_server: Callable[..., HttpServer]) -> None:
    server = own_server()
    with pytest.raises((http.client.HTTPException, OSError)):
        server.call("POST", "/filter", call_for("crash", "n1"))
    server.wait_for(lambda: len(server.events("started")) == 2, "second worker")
    assert server.is_well()
    assert server.process.poll() is None


def test_a_second_worker_is_not_built_while_the_first_one_lives(own_server: Callable[..., HttpServer]) -> None:
    server = own_server()
    first = server.events("started")[0].split()[0]
    server.process.send_signal(signal.SIGTTIN)  # gunicorn: one worker more
    second = wait_until(lambda: workers_of(server.process.pid) - {first}, "second process", DEADLINE_SECONDS).pop()
    assert server.events("built") == [f"{first} built"]
    os.kill(int(first), signal.SIGTERM)
    server.wait_for(lambda: f"{second} started" in server.events("started"), "second worker's turn")
    lines = server.events()
    assert lines.index(f"{first} stopped") < lines.index(f"{second} built")


def workers_of(master: int) -> set[str]:
    return set(Path(f"/proc/{master}/task/{master}/children").read_text().split())


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_process_cleanly(own_server: Callable[..., HttpServer], ending: signal.Signals) -> None:
    server = own_server()
    connection = server.connection()
    assert exchange(connection, "POST", "/filter", call_for("p", "n1"))[0] == 200
    server.wait_event("answered")
    os.killpg(server.process.pid, ending)  # a terminal's interrupt reaches master and worker alike
    assert server.process.wait(DEADLINE_SECONDS) == 0
    assert server.events("asked to stop")
    assert server.events()[-1].endswith(" stopped")
    connection.close()


def test_a_server_that_drains_goes_on_serving_and_sends_its_clients_away(own_server: Callable[..., HttpServer]) -> None:
    server = own_server(drain_seconds=3.0)
    kept = server.connection()
    assert "close" != exchange(kept, "POST", "/filter", call_for("p", "n1"))[2].get("Connection")

    server.process.send_signal(signal.SIGTERM)
    server.wait_event("asked to stop")
    for connection in (kept, server.connection()):
        status, _, headers = exchange(connection, "POST", "/filter", call_for("p", "n1"))
        assert (200, "close") == (status, headers["Connection"])
        connection.close()

    assert server.process.wait(DEADLINE_SECONDS) == 0
    assert server.events()[-1].endswith(" stopped")


def test_a_server_with_more_than_one_worker_does_not_start() -> None:
    application = ServedApplication(ServerOptions("127.0.0.1", 0), build=lambda: pytest.fail("must not be built"))
    check_one_worker(application.cfg)
    assert application.cfg.control_socket_disable
    application.cfg.set("workers", 2)
    with pytest.raises(Exception, match="workers"):
        check_one_worker(application.cfg)
