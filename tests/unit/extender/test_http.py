"""The application under a real gunicorn on loopback: bodies that stop half-way, keep-alive, crashes, signals."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from controller.serving.server import ServedApplication, ServerOptions, check_one_worker
from tests.fakes.ports import free_port
from tests.unit.extender.http_process import BODY_LIMIT

ROOT = Path(__file__).parents[3]
DEADLINE_SECONDS = 30.0


def until(condition: Callable[[], Any], what: str) -> Any:
    """The first true value of `condition`; fails when there is none in time."""
    end = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.01)
    raise AssertionError(f"not in time: {what}")


class Server:
    """One gunicorn master with its worker, in a session of its own."""

    def __init__(self, directory: Path, request_seconds: float = 20.0, drain_seconds: float = 0.0) -> None:
        self.port, self.events_file = free_port(), directory / "events"
        self.log = (directory / "log").open("wb")
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.unit.extender.http_process",
                str(self.port),
                str(self.events_file),
                str(request_seconds),
                str(drain_seconds),
            ],
            cwd=ROOT,
            stdout=self.log,
            stderr=self.log,
            start_new_session=True,
        )
        until(lambda: self.process.poll() is not None or self.events("started"), "the worker starts")
        until(self._listens, "the port answers")

    def _listens(self) -> bool:
        try:
            return self.call("GET", "/healthz")[0] == 200
        except OSError:
            return False

    def events(self, ending: str = "") -> list[str]:
        lines = self.events_file.read_text().splitlines() if self.events_file.exists() else []
        return [line for line in lines if line.endswith(ending)]

    def connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE_SECONDS)

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any, dict[str, str]]:
        connection = self.connection()
        try:
            return exchange(connection, method, path, body, **headers)
        finally:
            connection.close()

    def raw(self, data: bytes) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=DEADLINE_SECONDS)
        connection.sendall(data)
        return connection

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(DEADLINE_SECONDS)
        self.log.close()
        return code


def exchange(
    connection: http.client.HTTPConnection, method: str, path: str, body: Any = None, **headers: str
) -> tuple[int, Any, dict[str, str]]:
    connection.request(method, path, body if isinstance(body, bytes) or body is None else json.dumps(body), headers)
    response = connection.getresponse()
    data = response.read()
    parsed = json.loads(data) if response.headers.get_content_type() == "application/json" else data
    return response.status, parsed, dict(response.headers)


def call_for(pod: str, *nodes: str) -> dict[str, Any]:
    return {"Pod": {"metadata": {"name": pod, "namespace": "n", "uid": "u"}}, "NodeNames": list(nodes)}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("server"))
    yield server
    server.stop()


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    started: list[Server] = []

    def start(**options: Any) -> Server:
        started.append(Server(tmp_path, **options))
        return started[-1]

    yield start
    for server in started:
        server.stop()


@pytest.mark.parametrize("path", ["/filter", "/api/scheduler/filter", "/a/b/c/filter"])
def test_filter_is_served_below_any_url_prefix(server: Server, path: str) -> None:
    status, answer, headers = server.call("POST", path, call_for("p", "n1", "n2"))

    assert status == 200
    assert answer["NodeNames"] == ["n1", "n2"]
    assert headers["Content-Type"] == "application/json"


def test_prioritize_answers_every_node_in_the_form_of_a_list(server: Server) -> None:
    _, answer, _ = server.call("POST", "/api/scheduler/prioritize", call_for("p", "n1", "n2"))
    assert answer == [{"Host": "n1", "Score": 7}, {"Host": "n2", "Score": 7}]

    _, answer, _ = server.call("POST", "/prioritize", call_for("gone", "n1"))
    assert answer == [{"Host": "n1", "Score": 0}]


def preemption_for(pod: str) -> dict[str, Any]:
    victims = {node: {"Pods": [{"UID": "v"}], "NumPDBViolations": 0} for node in ("n1", "n2")}
    return {"Pod": call_for(pod, "n1")["Pod"], "NodeNameToMetaVictims": victims}


@pytest.mark.parametrize("path", ["/preempt", "/api/scheduler/preempt"])
def test_preempt_is_served_below_any_url_prefix(server: Server, path: str) -> None:
    status, answer, _ = server.call("POST", path, preemption_for("p"))

    assert (status, list(answer["NodeNameToMetaVictims"])) == (200, ["n1"])


def test_a_preemption_that_cannot_be_decided_evicts_nobody(server: Server) -> None:
    status, answer, _ = server.call("POST", "/preempt", preemption_for("gone"))

    assert (status, answer) == (200, {"NodeNameToMetaVictims": {}})


def test_a_malformed_preemption_is_a_400_that_names_the_field(server: Server) -> None:
    status, answer, _ = server.call("POST", "/preempt", {"Pod": call_for("p", "n1")["Pod"]})

    assert status == 400
    assert "NodeNameToMetaVictims" in answer["Error"]


@pytest.mark.parametrize(
    ("pod", "node", "error"), [("p", "n1", ""), ("p", "n2", "no such node"), ("gone", "n1", "does not exist")]
)
def test_bind_says_by_its_error_whether_the_pod_is_bound(server: Server, pod: str, node: str, error: str) -> None:
    request = {"PodName": pod, "PodNamespace": "n", "PodUID": "u", "Node": node}
    status, answer, _ = server.call("POST", "/api/scheduler/bind", request)

    assert status == 200
    assert bool(answer["Error"]) == bool(error)
    assert error in answer["Error"]


def test_many_calls_share_one_connection(server: Server) -> None:
    connection = server.connection()
    for number in range(20):
        status, answer, _ = exchange(connection, "POST", "/filter", call_for("p", f"n{number}"))
        assert (status, answer["NodeNames"]) == (200, [f"n{number}"])
        assert connection.sock is not None  # http.client drops it when the server says that it closes
    connection.close()


def test_answers_leave_at_once_although_headers_and_body_are_two_writes(server: Server) -> None:
    _, answer, _ = server.call("POST", "/filter", call_for("nodelay", "n1"))

    assert json.loads(answer["Error"]) == {"nodelay": True}


def test_the_garbage_collector_is_kept_from_long_pauses(server: Server) -> None:
    _, answer, _ = server.call("POST", "/filter", call_for("pauses", "n1"))
    assert json.loads(answer["Error"]) == {"pauses": 1}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"", "body"),
        (b"{", "body"),
        (b'{"NodeNames":[]}', "Pod"),
        (b"\x00\xff", "body"),
        (b'{"Pod":3}', "Pod"),
        # what nobody decodes here would be sent back as it came
        (json.dumps(call_for("p", "n1")).encode()[:-1] + b',"Nodes":{"items":[{"x":"\xff"}]}}', "body"),
    ],
)
def test_a_malformed_body_is_a_400_that_names_the_field(server: Server, body: bytes, field: str) -> None:
    status, answer, _ = server.call("POST", "/filter", body)

    assert status == 400
    assert answer["Error"].startswith(f"{field}: ")


def test_failures_are_errors_and_never_say_that_nodes_are_unsuitable(server: Server) -> None:
    status, answer, _ = server.call("POST", "/filter", call_for("gone", "n1"))
    assert (status, answer["Error"]) == (200, "Longhorn: the pod does not exist")
    assert answer["FailedAndUnresolvableNodes"] == {}

    status, answer, _ = server.call("POST", "/filter", call_for("bug", "n1"))
    assert status == 500
    assert "secret" not in answer["Error"]
    assert answer["Error"]


def test_a_503_ends_its_connection_so_that_the_next_call_finds_the_leader(server: Server) -> None:
    connection = server.connection()

    status, answer, headers = exchange(connection, "POST", "/filter", call_for("not-leading", "n1"))

    assert (status, answer["Error"]) == (503, "not leading")
    assert headers["Connection"] == "close"
    assert connection.sock is None


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/filter", 405), ("POST", "/nothing", 404)])
def test_other_routes_and_methods_do_not_exist(server: Server, method: str, path: str, status: int) -> None:
    assert server.call(method, path)[0] == status


def test_a_body_over_the_limit_is_refused_before_it_is_read(server: Server) -> None:
    head = b"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n{"
    with server.raw(head) as connection:
        assert connection.recv(65536).startswith(b"HTTP/1.1 413 ")
    assert server.call("POST", "/filter", call_for("p", "n1"))[0] == 200


def test_a_chunked_body_over_the_limit_is_refused(server: Server) -> None:
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


def test_a_chunked_body_within_the_limit_is_read(server: Server) -> None:
    connection = server.connection()
    connection.request("POST", "/filter", iter([json.dumps(call_for("p", "n1")).encode()]), encode_chunked=True)

    assert json.loads(connection.getresponse().read())["NodeNames"] == ["n1"]


def test_a_client_that_leaves_in_the_middle_of_its_body_harms_nobody(server: Server) -> None:
    for _ in range(10):
        server.raw(b"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: 5000\r\n\r\n" + b'{"Pod":').close()

    assert server.call("POST", "/filter", call_for("p", "n1"))[0] == 200


def test_a_client_that_leaves_while_its_call_waits_is_noticed(server: Server) -> None:
    body = json.dumps(call_for("patient", "n1")).encode()
    head = f"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    connection = server.raw(head + body)
    until(lambda: server.events("waiting gone=False"), "the call waits")

    connection.close()

    until(lambda: server.events("left gone=True"), "the service sees that the client left")
    until(lambda: server.events("failed client-gone"), "the call is counted")


HALVES = (
    b"POST /fil",
    b"POST /filter HTTP/1.1\r\nHost: x\r\nX-Long: " + b"x" * 5_000,
    b"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\n{",
)
CHUNKED = b"POST /filter HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n32\r\n{"


def test_a_hundred_half_requests_take_no_thread(own_server: Callable[..., Server]) -> None:
    server = own_server(request_seconds=600.0)
    halves = [server.raw(HALVES[number % len(HALVES)]) for number in range(100)]
    for _ in range(10):
        assert server.call("POST", "/filter", call_for("p", "n1"))[0] == 200  # three threads would be gone long ago
    halves[2].sendall(b" " * 49)  # one that goes on is answered, if with a refusal of what it said
    assert halves[2].recv(65_536).startswith(b"HTTP/1.1 400 ")
    for connection in halves:
        connection.close()
    assert server.call("POST", "/filter", call_for("p", "n1"))[0] == 200


def test_requests_that_only_a_thread_can_read_take_few_of_them(own_server: Callable[..., Server]) -> None:
    server = own_server(request_seconds=600.0)
    halves = [server.raw(CHUNKED) for _ in range(20)]
    for _ in range(10):
        assert server.call("POST", "/filter", call_for("p", "n1"))[0] == 200
    ended = [connection for connection in halves[1:] if is_ended(connection)]
    assert 19 == len(ended)
    for connection in halves:
        connection.close()


def test_more_half_requests_than_may_wait_do_not_keep_others_out(own_server: Callable[..., Server]) -> None:
    server = own_server(request_seconds=600.0)
    halves = [server.raw(HALVES[0]) for _ in range(300)]
    assert server.call("POST", "/filter", call_for("p", "n1"))[0] == 200
    assert is_ended(halves[0])  # the oldest made place
    for connection in halves:
        connection.close()


def is_ended(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


def test_half_a_request_ends_at_its_deadline(own_server: Callable[..., Server]) -> None:
    server = own_server(request_seconds=1.0)
    half_bodies = [server.raw(b"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\n{") for _ in range(3)]
    half_heads = [server.raw(b"POST /fil") for _ in range(3)]
    half_heads.append(server.raw(CHUNKED))  # a thread reads this one

    assert server.call("POST", "/filter", call_for("p", "n1"))[0] == 200

    for connection in half_bodies + half_heads:
        while connection.recv(65536):
            pass  # an answer or none: in the end the server has closed
        connection.close()


def test_connections_that_say_nothing_take_no_thread(server: Server) -> None:
    silent = [server.raw(b"") for _ in range(300)]  # more than may wait
    assert server.call("POST", "/filter", call_for("p", "n1"))[0] == 200
    assert silent[0].recv(1) == b""  # the oldest made place
    for connection in silent:
        connection.close()


def test_clients_that_do_not_close_after_their_answer_keep_nobody_waiting(server: Server) -> None:
    lingering = []
    for _ in range(30):
        connection = server.raw(b"nonsense\r\n\r\n")
        assert connection.recv(65_536).startswith(b"HTTP/1.1 400 ")
        lingering.append(connection)  # the server has said that it closes; the client does not
    assert server.call("POST", "/filter", call_for("p", "n1"))[0] == 200
    for connection in lingering:
        connection.close()


def test_a_worker_that_dies_is_started_again(own_server: Callable[..., Server]) -> None:
    server = own_server()

    with pytest.raises((http.client.HTTPException, OSError)):
        server.call("POST", "/filter", call_for("crash", "n1"))

    until(lambda: len(server.events("started")) == 2, "a second worker")
    assert server.call("POST", "/filter", call_for("p", "n1"))[0] == 200
    assert server.process.poll() is None


def test_a_second_worker_is_not_built_while_the_first_one_lives(own_server: Callable[..., Server]) -> None:
    server = own_server()
    first = server.events("started")[0].split()[0]

    server.process.send_signal(signal.SIGTTIN)  # gunicorn: one worker more
    second = until(lambda: workers_of(server.process.pid) - {first}, "a second process").pop()
    assert server.events("built") == [f"{first} built"]
    os.kill(int(first), signal.SIGTERM)

    until(lambda: f"{second} started" in server.events("started"), "the second worker's turn")
    lines = server.events()
    assert lines.index(f"{first} stopped") < lines.index(f"{second} built")


def workers_of(master: int) -> set[str]:
    return set(Path(f"/proc/{master}/task/{master}/children").read_text().split())


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_process_cleanly(own_server: Callable[..., Server], ending: signal.Signals) -> None:
    server = own_server()
    connection = server.connection()
    assert exchange(connection, "POST", "/filter", call_for("p", "n1"))[0] == 200
    until(lambda: server.events("answered"), "the answer is counted")

    os.killpg(server.process.pid, ending)  # a terminal's interrupt reaches master and worker alike

    assert server.process.wait(DEADLINE_SECONDS) == 0
    assert server.events("asked to stop")
    assert server.events()[-1].endswith(" stopped")
    connection.close()


def test_a_server_that_drains_goes_on_serving_and_sends_its_clients_away(own_server: Callable[..., Server]) -> None:
    server = own_server(drain_seconds=5.0)
    kept = server.connection()
    assert "close" != exchange(kept, "POST", "/filter", call_for("p", "n1"))[2].get("Connection")

    server.process.send_signal(signal.SIGTERM)
    until(lambda: server.events("asked to stop"), "the worker is told")
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
