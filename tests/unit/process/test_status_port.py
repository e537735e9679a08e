"""The server of the other ports, on 127.0.0.1: what callers do to its connections, and what is said of it."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from controller.process.status_app import StatusApp
from controller.process.status_port import LOOPBACK, MOST_CONNECTIONS, StatusServer
from controller.serving.tls import Material, make_context
from tests.unit.serving.tls_files import authority, server_of

SECONDS = 30.0


@pytest.fixture
def server() -> Iterator[StatusServer]:
    """Over TLS."""
    ca = authority()
    made = server_of(ca)
    context = make_context(Material(made.certificate, made.key, b""), lets_anybody_in=True)
    app = StatusApp({"/status": lambda _: 1}, hosts=None)
    server = StatusServer("status-tls", app, LOOPBACK, 0, lambda: context)
    server.start()
    yield server
    server.stop()


def said_until_the_end(server: StatusServer, sent: bytes) -> bytes:
    """To the other side, by somebody who speaks no TLS; what comes back until the connection is closed."""
    with socket.create_connection((LOOPBACK, server.port), timeout=SECONDS) as sock:
        sock.sendall(sent)
        found = b""
        with suppress(ConnectionError):
            while part := sock.recv(4096):
                found += part
        return found


@pytest.mark.parametrize(
    "sent", [b"GET /status HTTP/1.0\r\n\r\n", b"\x16\x03\x01\x00\x05hello", b"\0" * 64], ids=["http", "hello", "zeros"]
)
def test_strangers_who_speak_no_tls_learn_nothing_and_fill_no_log(
    server: StatusServer, capfd: pytest.CaptureFixture[str], sent: bytes
) -> None:
    assert b"HTTP" not in said_until_the_end(server, sent)
    assert "" == capfd.readouterr().err


def test_a_fault_of_ours_is_told(capfd: pytest.CaptureFixture[str]) -> None:
    def broken(_environ: Any, _start: Any) -> Any:
        raise ZeroDivisionError("of ours")

    server = StatusServer("metrics", broken, LOOPBACK, 0)
    server.start()
    assert b"500" in said_until_the_end(server, b"GET /metrics HTTP/1.0\r\n\r\n")
    server.stop()
    assert "of ours" in capfd.readouterr().err


def test_who_makes_room_for_others_is_sent_nothing_in_plain_text(
    server: StatusServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`SSLSocket.shutdown` takes the encryption off first, and a thread that is just sending goes on without it."""
    ends, shut = list[int](), ssl.SSLSocket.shutdown

    def shutdown(sock: ssl.SSLSocket, how: int) -> None:
        ends.append(how)
        shut(sock, how)

    monkeypatch.setattr(ssl.SSLSocket, "shutdown", shutdown)
    held = [socket.create_connection((LOOPBACK, server.port), timeout=SECONDS) for _ in range(MOST_CONNECTIONS + 1)]
    with suppress(ConnectionError):
        assert b"" == held[0].recv(1)
    assert socket.SHUT_RDWR not in ends
    for sock in held:
        sock.close()
