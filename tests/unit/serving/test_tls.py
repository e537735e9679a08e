"""The server over TLS on loopback: who is let in, certificates that change under load, clients that stop half-way."""

from __future__ import annotations

import hashlib
import http.client
import json
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from certs.authority import Pair, bundle_of
from tests.fakes.ports import free_port
from tests.unit.extender.test_http import DEADLINE_SECONDS, ROOT, call_for, exchange, until
from tests.unit.serving import tls_files
from tests.unit.serving.tls_files import CLIENT, HOST, Mounted, authority, client_of, expired, server_of

REFUSED = (ssl.SSLError, ConnectionError, http.client.HTTPException)


class TlsServer:
    """One gunicorn that serves the files of a directory, and how clients call it."""

    def __init__(self, folder: Path, *, handshake_seconds: float = 60.0, handshakes: int = 256) -> None:
        self.folder, self.port = folder, free_port()
        self.files = Mounted(folder / "tls")
        self.events_file = folder / "events"
        self.log_file = folder / "log"
        self.ca = authority()
        self.client = client_of(self.ca)
        self._log = self.log_file.open("wb")
        arguments = [self.port, self.events_file, self.files.path, handshake_seconds, handshakes]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.unit.serving.tls_process", *map(str, arguments)],
            cwd=ROOT,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )
        until(lambda: self.process.poll() is not None or self.events("started"), "the worker starts")

    def events(self, ending: str = "") -> list[str]:
        lines = self.events_file.read_text().splitlines() if self.events_file.exists() else []
        return [line for line in lines if line.endswith(ending)]

    def serve(self, leaf: Pair, trusted: bytes | None = None) -> None:
        """Have the server take this leaf, and wait until it does."""
        self.files.put(leaf, trusted if trusted is not None else self.ca.certificate)
        until(lambda: self.served_leaf() == leaf.facts.fingerprint, "the new certificate is served")

    def served_leaf(self) -> str:
        """The fingerprint of the certificate that a new connection is shown."""
        blind = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        blind.check_hostname, blind.verify_mode = False, ssl.CERT_NONE
        try:
            with (
                socket.create_connection((HOST, self.port), timeout=DEADLINE_SECONDS) as plain,
                blind.wrap_socket(plain) as sock,
            ):
                return hashlib.sha256(sock.getpeercert(binary_form=True) or b"").hexdigest()
        except OSError:
            return ""

    def context(self, client: Pair | None = None, trusted: bytes | None = None) -> ssl.SSLContext:
        return tls_files.context(self.folder, trusted or self.ca.certificate, client or self.client)

    def call(self, context: ssl.SSLContext, pod: str = "p") -> tuple[int, Any, dict[str, str]]:
        connection = http.client.HTTPSConnection(HOST, self.port, timeout=DEADLINE_SECONDS, context=context)
        try:
            return exchange(connection, "POST", "/filter", call_for(pod, "n1"))
        finally:
            connection.close()

    def is_well(self) -> bool:
        status, answer, _ = self.call(self.context())
        return (status, answer["NodeNames"]) == (200, ["n1"])

    def raw(self, data: bytes) -> socket.socket:
        connection = socket.create_connection((HOST, self.port), timeout=DEADLINE_SECONDS)
        connection.sendall(data)
        return connection

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.terminate()
        code = self.process.wait(DEADLINE_SECONDS)
        self._log.close()
        return code


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsServer]:
    server = TlsServer(tmp_path_factory.mktemp("tls"))
    server.serve(server_of(server.ca))
    yield server
    server.stop()


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Any]:
    started: list[TlsServer] = []

    def start(**options: Any) -> TlsServer:
        started.append(TlsServer(tmp_path, **options))
        return started[-1]

    yield start
    for server in started:
        server.stop()


def client_hello() -> bytes:
    """The first bytes of a real client."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing).do_handshake()
    return outgoing.read()


def is_closed(connection: socket.socket) -> bool:
    """Wait until the other side is gone."""
    try:
        return connection.recv(65_536) == b""
    except ConnectionError:
        return True


def test_a_client_of_our_authority_is_answered(server: TlsServer) -> None:
    assert server.is_well()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_both_versions_of_tls_are_spoken(server: TlsServer, version: ssl.TLSVersion) -> None:
    context = server.context()
    context.minimum_version = context.maximum_version = version
    assert 200 == server.call(context)[0]


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion")
def test_older_versions_are_not(server: TlsServer) -> None:
    context = server.context()
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.options &= ~(ssl.OP_NO_TLSv1 | ssl.OP_NO_TLSv1_1)
    context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    with pytest.raises(REFUSED):
        server.call(context)


def test_who_shows_no_certificate_is_refused(server: TlsServer) -> None:
    context = tls_files.context(server.folder, server.ca.certificate, None)
    with pytest.raises(REFUSED):
        server.call(context, "unknown")
    assert server.is_well()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_client_of_another_authority_is_refused(server: TlsServer, version: ssl.TLSVersion) -> None:
    context = server.context(client_of(authority()))
    context.minimum_version = context.maximum_version = version
    with pytest.raises(REFUSED):
        server.call(context)
    assert server.is_well()


def test_a_servers_certificate_makes_no_client(server: TlsServer) -> None:
    with pytest.raises(REFUSED):
        server.call(server.context(server_of(server.ca)))


def test_plain_http_is_refused(server: TlsServer) -> None:
    connection = http.client.HTTPConnection(HOST, server.port, timeout=DEADLINE_SECONDS)
    with pytest.raises(REFUSED):
        exchange(connection, "POST", "/filter", call_for("p", "n1"))
    assert server.is_well()


def test_an_expired_client_is_refused(own_server: Any) -> None:
    server = own_server()
    ca, late = expired(CLIENT)
    server.serve(server_of(ca), ca.certificate)
    with pytest.raises(REFUSED):
        server.call(server.context(late, ca.certificate))
    assert 200 == server.call(server.context(client_of(ca), ca.certificate))[0]


def test_clients_refuse_a_server_that_has_expired_or_is_not_ours(own_server: Any) -> None:
    server = own_server()
    ca, late = expired(tls_files.SERVER)
    server.serve(late, ca.certificate)
    with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
        server.call(server.context(client_of(ca), ca.certificate))

    server.serve(server_of(ca), ca.certificate)
    with pytest.raises(ssl.SSLCertVerificationError):
        server.call(server.context(client_of(ca), authority().certificate))
    assert 200 == server.call(server.context(client_of(ca), ca.certificate))[0]


def test_many_calls_share_one_connection(server: TlsServer) -> None:
    connection = http.client.HTTPSConnection(HOST, server.port, timeout=DEADLINE_SECONDS, context=server.context())
    for number in range(20):
        status, answer, _ = exchange(connection, "POST", "/filter", call_for("p", f"n{number}"))
        assert (status, answer["NodeNames"]) == (200, [f"n{number}"])
        assert connection.sock is not None
    connection.close()


def test_a_large_body_is_read_whole(server: TlsServer) -> None:
    connection = http.client.HTTPSConnection(HOST, server.port, timeout=DEADLINE_SECONDS, context=server.context())
    nodes = [f"node-{number:05}" for number in range(50_000)]
    status, answer, _ = exchange(connection, "POST", "/filter", call_for("p", *nodes))
    assert (status, nodes) == (200, answer["NodeNames"])
    connection.close()


def test_a_second_request_in_the_same_record_is_answered_too(server: TlsServer) -> None:
    body = json.dumps(call_for("p", "n1")).encode()
    # The first one's body ends where gunicorn has not read to, so the second is decrypted and not on the socket.
    body += b" " * (9_000 - len(body))
    one = f"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
    two = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    with (
        socket.create_connection((HOST, server.port), timeout=DEADLINE_SECONDS) as plain,
        server.context().wrap_socket(plain, server_hostname=HOST) as sock,
    ):
        sock.sendall(one + two)
        answers = b""
        while data := sock.recv(65_536):
            answers += data
    assert 2 == answers.count(b"HTTP/1.1 200 ")


def test_a_503_ends_its_connection(server: TlsServer) -> None:
    connection = http.client.HTTPSConnection(HOST, server.port, timeout=DEADLINE_SECONDS, context=server.context())
    status, _, headers = exchange(connection, "POST", "/filter", call_for("not-leading", "n1"))
    assert (503, "close") == (status, headers["Connection"])
    assert connection.sock is None


def test_a_client_that_leaves_while_its_call_waits_is_noticed(server: TlsServer) -> None:
    body = json.dumps(call_for("patient", "n1")).encode()
    plain = socket.create_connection((HOST, server.port), timeout=DEADLINE_SECONDS)
    sock = server.context().wrap_socket(plain, server_hostname=HOST)
    sock.sendall(f"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
    until(lambda: server.events("waiting gone=False"), "the call waits")
    sock.close()
    until(lambda: server.events("left gone=True"), "the service sees that the client left")


def test_without_a_certificate_nobody_is_served_and_with_one_everybody(own_server: Any) -> None:
    server = own_server()
    with pytest.raises(REFUSED):
        server.is_well()
    server.serve(server_of(server.ca))
    assert server.is_well()


def test_files_that_cannot_be_used_leave_the_certificate_in_use(own_server: Any) -> None:
    server = own_server()
    good = server_of(server.ca)
    server.serve(good)
    other = server_of(server.ca)
    trusted = server.ca.certificate
    spoilings: list[Callable[[], object]] = [
        lambda: server.files.put(other, trusted, key=good.key),
        lambda: server.files.put(other, trusted, key=b""),
        lambda: server.files.put(other, b"garbage"),
        lambda: server.files.put(other, other.certificate),
        (server.files.path / "..data").unlink,
    ]
    for number, spoil in enumerate(spoilings, start=1):
        spoil()
        until(lambda: server.log_file.read_bytes().count(b"are not used: ") >= number, "the log names the problem")  # noqa: B023
        assert good.facts.fingerprint == server.served_leaf()
        assert server.is_well()
    server.serve(other)
    assert server.is_well()


class Load:
    """Threads that call without a pause; half of them keep their connection."""

    def __init__(self, server: TlsServer, context: ssl.SSLContext, threads: int = 4) -> None:
        self._server, self._context = server, context
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self.calls, self.failures = 0, list[str]()
        self._threads = [
            threading.Thread(target=self._run, args=(bool(number % 2),), daemon=True) for number in range(threads)
        ]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(DEADLINE_SECONDS)

    def wait_for_more(self, calls: int) -> None:
        wanted = self.calls + calls
        until(lambda: self.calls >= wanted or self.failures, f"{calls} more calls")

    def _run(self, keeps: bool) -> None:
        connection = self._connect()
        while not self._stop.is_set():
            try:
                status, answer, _ = exchange(connection, "POST", "/filter", call_for("p", "n1"))
                problem = "" if (status, answer["NodeNames"]) == (200, ["n1"]) else f"{status} {answer}"
            except Exception as error:  # thread top: every failure counts
                problem = repr(error)
            with self._lock:
                self.calls += 1
                if problem:
                    self.failures.append(problem)
            if problem or not keeps:
                connection.close()
                connection = self._connect()
        connection.close()

    def _connect(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(HOST, self._server.port, timeout=DEADLINE_SECONDS, context=self._context)


def test_certificates_change_under_load_without_a_failed_call(own_server: Any) -> None:
    server = own_server()
    old, new = server.ca, authority()
    both = bundle_of((old, new))
    server.serve(server_of(old), both)
    with Load(server, server.context(trusted=both)) as load:
        for _ in range(6):
            server.serve(server_of(old), both)
            load.wait_for_more(20)
        for _ in range(4):
            server.serve(server_of(new), both)
            load.wait_for_more(20)
    assert [] == load.failures
    assert load.calls >= 200
    # Once the old authority is gone, so are its clients; those of the new one are served.
    server.serve(server_of(new), new.certificate)
    with pytest.raises(REFUSED):
        server.call(server.context(trusted=both))
    assert 200 == server.call(server.context(client_of(new), both))[0]


def test_a_hundred_half_handshakes_take_no_thread(own_server: Any) -> None:
    server = own_server(handshake_seconds=600.0)
    server.serve(server_of(server.ca))
    hello = client_hello()
    halves = [server.raw(hello[: len(hello) // 2]) for _ in range(50)]
    halves += [server.raw(hello) for _ in range(25)]  # and then nothing
    halves += [server.raw(b"") for _ in range(25)]

    for _ in range(10):
        assert server.is_well()  # three threads would be gone long ago
    for connection in halves:
        connection.close()
    assert server.is_well()


def test_a_hundred_half_requests_take_no_thread(own_server: Any) -> None:
    server = own_server()
    server.serve(server_of(server.ca))
    begun = [
        b"POST /filter HTTP/1.1\r\nHost: x",
        b"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: 90000\r\n\r\n" + b" " * 40_000,
    ]
    halves = []
    for number in range(100):
        plain = socket.create_connection((HOST, server.port), timeout=DEADLINE_SECONDS)
        sock = server.context().wrap_socket(plain, server_hostname=HOST)
        sock.sendall(begun[number % 2])
        halves.append(sock)
    for _ in range(10):
        assert server.is_well()
    for sock in halves:
        sock.close()
    assert server.is_well()


def test_half_a_handshake_ends_at_its_deadline_though_bytes_go_on_coming(own_server: Any) -> None:
    server = own_server(handshake_seconds=1.0)
    server.serve(server_of(server.ca))
    hello = client_hello()
    silent = server.raw(hello[:40])
    trickling = server.raw(hello[:40])
    ended = threading.Event()

    def trickle() -> None:
        for byte in hello[40:]:
            if ended.wait(0.1):
                return
            try:
                trickling.sendall(bytes([byte]))
            except OSError:
                return

    thread = threading.Thread(target=trickle, daemon=True)
    thread.start()
    assert is_closed(silent)
    assert thread.is_alive()
    assert is_closed(trickling)
    ended.set()
    thread.join()
    assert server.is_well()


def test_more_half_handshakes_than_are_let_wait_do_not_keep_others_out(own_server: Any) -> None:
    server = own_server(handshake_seconds=600.0, handshakes=8)
    server.serve(server_of(server.ca))
    hello = client_hello()
    halves = [server.raw(hello[:40]) for _ in range(100)]
    assert server.is_well()
    assert is_closed(halves[0])  # the oldest made place
    for connection in halves:
        connection.close()


def test_the_process_ends_although_handshakes_are_under_way(own_server: Any) -> None:
    server = own_server(handshake_seconds=600.0)
    server.serve(server_of(server.ca))
    halves = [server.raw(client_hello()[:40]) for _ in range(20)]
    assert 0 == server.stop()
    assert server.events()[-1].endswith(" stopped")
    for connection in halves:
        connection.close()


def test_the_log_says_why_a_client_was_refused(own_server: Any) -> None:
    server = own_server()
    server.serve(server_of(server.ca))
    with pytest.raises(REFUSED):
        server.call(tls_files.context(server.folder, server.ca.certificate, None))
    until(lambda: b"PEER_DID_NOT_RETURN_A_CERTIFICATE" in server.log_file.read_bytes(), "the reason in the log")
