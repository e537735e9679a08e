"""The server over TLS on loopback: who is let in, certificates that change under load, clients that stop half-way."""

from __future__ import annotations

import hashlib
import http.client
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from certs.authority import Pair, bundle_of
from controller.serving.server import HELD_BYTES
from tests.unit.extender.http_process import BODY_LIMIT
from tests.unit.extender.http_server import DEADLINE_SECONDS, ServerProcess, call_for, exchange
from tests.unit.serving import tls_files
from tests.unit.serving.tls_files import CLIENT, HOST, Mounted, authority, client_of, expired, server_of

REFUSED = (ssl.SSLError, ConnectionError, http.client.HTTPException)


class TlsServer(ServerProcess):
    """It serves the files of a directory; clients show a certificate of its authority, unless told otherwise."""

    def __init__(self, folder: Path, *, handshake_seconds: float = 60.0, handshakes: int = 256) -> None:
        self.files = Mounted(folder / "tls")
        self.ca = authority()
        self.client = client_of(self.ca)
        arguments = (self.files.path, handshake_seconds, handshakes)
        super().__init__("tests.unit.serving.tls_process", folder, *arguments)

    def is_up(self) -> bool:
        return bool(self.events("started"))

    def serve(self, leaf: Pair, trusted: bytes | None = None) -> None:
        """Have the server take this leaf, and wait until it does."""
        self.files.put(leaf, trusted if trusted is not None else self.ca.certificate)
        self.wait_for(lambda: self.served_leaf() == leaf.facts.fingerprint, "new leaf")

    def served_leaf(self) -> str:
        """The fingerprint of the certificate that a new connection is shown."""
        blind = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        blind.check_hostname, blind.verify_mode = False, ssl.CERT_NONE
        try:
            with self.connected(blind) as sock:
                return hashlib.sha256(sock.getpeercert(binary_form=True) or b"").hexdigest()
        except OSError:
            return ""

    def context(self, client: Pair | None = None, trusted: bytes | None = None) -> ssl.SSLContext:
        return tls_files.context(self.folder, trusted or self.ca.certificate, client or self.client)

    def connected(self, context: ssl.SSLContext | None = None) -> ssl.SSLSocket:
        plain = socket.create_connection((HOST, self.port), timeout=DEADLINE_SECONDS)
        return (context or self.context()).wrap_socket(plain, server_hostname=HOST)

    def connection(self, context: ssl.SSLContext | None = None) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(HOST, self.port, timeout=DEADLINE_SECONDS, context=context or self.context())

    def call_with(self, context: ssl.SSLContext) -> int:
        """The status of a good call."""
        with closing(self.connection(context)) as connection:
            return exchange(connection, "POST", "/filter", call_for("p", "n1"))[0]


EXPIRED_CA, EXPIRED_CLIENT = expired(CLIENT)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsServer]:
    server = TlsServer(tmp_path_factory.mktemp("tls"))
    server.serve(server_of(server.ca), bundle_of((server.ca, EXPIRED_CA)))
    yield server
    server.stop()


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Any]:
    started: list[TlsServer] = []

    def start(*, serves: bool = True, **options: Any) -> TlsServer:
        started.append(TlsServer(tmp_path, **options))
        if serves:
            started[-1].serve(server_of(started[-1].ca))
        return started[-1]

    yield start
    for server in started:
        server.stop()


def test_large_bodies_that_are_too_many_together_get_a_429(server: TlsServer) -> None:
    length = BODY_LIMIT - 1_000
    told = server.refuses_of_many(server.connected, length, HELD_BYTES // length + 4)
    assert {b"400", b"429"} == {answer.split()[1] for answer in told}


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


VERSIONS = (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_client_of_our_authority_is_answered(server: TlsServer, version: ssl.TLSVersion) -> None:
    assert 200 == server.call_with(only(version, server.context()))


def only(version: ssl.TLSVersion, context: ssl.SSLContext) -> ssl.SSLContext:
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.options &= ~(ssl.OP_NO_TLSv1 | ssl.OP_NO_TLSv1_1)
    context.minimum_version = context.maximum_version = version
    return context


STRANGERS: dict[str, Callable[[TlsServer], ssl.SSLContext]] = {
    "an older version of TLS": lambda server: only(ssl.TLSVersion.TLSv1_1, server.context()),
    "of another authority, TLS 1.2": lambda server: only(VERSIONS[0], server.context(client_of(authority()))),
    "of another authority, TLS 1.3": lambda server: only(VERSIONS[1], server.context(client_of(authority()))),
    "a server's certificate": lambda server: server.context(server_of(server.ca)),
    "expired": lambda server: server.context(EXPIRED_CLIENT),
    "no certificate": lambda server: tls_files.context(server.folder, server.ca.certificate, None),
}


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion")
@pytest.mark.parametrize("stranger", STRANGERS.values(), ids=STRANGERS)
def test_others_are_refused(server: TlsServer, stranger: Callable[[TlsServer], ssl.SSLContext]) -> None:
    with pytest.raises(REFUSED):
        server.call_with(stranger(server))
    assert server.is_well()


def test_the_log_says_why_somebody_is_refused(server: TlsServer) -> None:
    with pytest.raises(REFUSED):
        server.call_with(tls_files.context(server.folder, server.ca.certificate, None))
    refusal = b"PEER_DID_NOT_RETURN_A_CERTIFICATE"
    server.wait_for(lambda: refusal in server.log_file.read_bytes(), "reason in the log")


def test_the_log_says_where_it_listens_and_that_it_is_over_tls(server: TlsServer) -> None:
    said = server.log_file.read_text()
    assert f"listening at https://{HOST}:{server.port}" in said
    assert "http://" not in said


def test_plain_http_is_refused(server: TlsServer) -> None:
    connection = http.client.HTTPConnection(HOST, server.port, timeout=DEADLINE_SECONDS)
    with pytest.raises(REFUSED):
        exchange(connection, "POST", "/filter", call_for("p", "n1"))
    assert server.is_well()


def test_a_large_body_is_read_whole_and_its_connection_stays(server: TlsServer) -> None:
    nodes = [f"node-{number:05}" for number in range(50_000)]
    with closing(server.connection()) as connection:
        for asked in (nodes, nodes[:1]):
            status, answer, _ = exchange(connection, "POST", "/filter", call_for("p", *asked))
            assert (status, asked) == (200, answer["NodeNames"])
            assert connection.sock is not None


def test_a_second_request_in_the_same_record_is_answered_too(server: TlsServer) -> None:
    body = json.dumps(call_for("p", "n1")).encode()
    # The first one's body ends where gunicorn has not read to, so the second is decrypted and not on the socket.
    body += b" " * (9_000 - len(body))
    one = f"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
    two = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    with server.connected() as sock:
        sock.sendall(one + two)
        answers = b""
        while data := sock.recv(65_536):
            answers += data
    assert 2 == answers.count(b"HTTP/1.1 200 ")


def test_files_that_cannot_be_used_leave_the_certificate_in_use(own_server: Any) -> None:
    server = own_server(serves=False)
    with pytest.raises(REFUSED):
        server.is_well()
    good, other = server_of(server.ca), server_of(server.ca)
    server.serve(good)
    trusted = server.ca.certificate
    spoilings: list[Callable[[], object]] = [
        lambda: server.files.put(other, trusted, key=good.key),
        lambda: server.files.put(other, trusted, key=b""),
        lambda: server.files.put(other, b"garbage"),
        lambda: server.files.put(other, b""),  # opens no server that is meant to know its clients
        lambda: server.files.put(other, other.certificate),
        (server.files.path / "..data").unlink,
    ]
    for number, spoil in enumerate(spoilings, start=1):
        spoil()
        server.wait_for(lambda: server.log_file.read_bytes().count(b"are not used: ") >= number, "it in the log")  # noqa: B023
        assert good.facts.fingerprint == server.served_leaf()
        assert server.is_well()
    server.serve(other)
    assert server.is_well()


class TlsLoad:
    """Threads that call without a pause; half of them keep their connection."""

    def __init__(self, server: TlsServer, context: ssl.SSLContext, threads: int = 4) -> None:
        self._server, self._context = server, context
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self.calls, self.failures = 0, list[str]()
        self._threads = [
            threading.Thread(target=self._run, args=(bool(number % 2),), daemon=True) for number in range(threads)
        ]

    def __enter__(self) -> TlsLoad:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(DEADLINE_SECONDS)

    def wait_for_more(self, calls: int) -> None:
        wanted = self.calls + calls
        self._server.wait_for(lambda: self.calls >= wanted or self.failures, "more calls")

    def _run(self, keeps: bool) -> None:
        connection = self._server.connection(self._context)
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
                connection = self._server.connection(self._context)
        connection.close()


def test_certificates_change_under_load_without_a_failed_call(own_server: Any) -> None:
    server = own_server(serves=False)
    old, new = server.ca, authority()
    both = bundle_of((old, new))
    server.serve(server_of(old), both)
    with TlsLoad(server, server.context(trusted=both)) as load:
        for ca in (old, old, old, new, new):
            server.serve(server_of(ca), both)
            load.wait_for_more(40)
    assert [] == load.failures
    # Once the old authority is gone, so are its clients; those of the new one are served.
    server.serve(server_of(new), new.certificate)
    with pytest.raises(REFUSED):
        server.call_with(server.context(trusted=both))
    assert 200 == server.call_with(server.context(client_of(new), both))


def test_half_handshakes_and_half_requests_take_no_thread_and_do_not_hold_up_the_end(own_server: Any) -> None:
    server = own_server(handshake_seconds=600.0)
    hello = client_hello()
    halves = [server.raw(said) for said in (hello[: len(hello) // 2], hello, b"") for _ in range(25)]
    begun = b"POST /filter HTTP/1.1\r\nHost: x"
    for said in (begun, begun + b"\r\nContent-Length: 90000\r\n\r\n" + b" " * 40_000):
        for _ in range(25):
            halves.append(server.connected())
            halves[-1].sendall(said)

    for _ in range(10):
        assert server.is_well()  # three threads would be gone long ago
    assert 0 == server.stop()
    assert server.events()[-1].endswith(" stopped")
    for connection in halves:
        connection.close()


@pytest.mark.parametrize(
    ("options", "ended"),
    [({"handshake_seconds": 1.0}, -1), ({"handshake_seconds": 600.0, "handshakes": 8}, 0)],
    ids=["at its deadline", "as the oldest of too many"],
)
def test_a_half_handshake_ends_and_keeps_nobody_out(own_server: Any, options: dict[str, Any], ended: int) -> None:
    server = own_server(**options)
    halves = [server.raw(client_hello()[:40]) for _ in range(100)]
    assert server.is_well()
    assert is_closed(halves[ended])
