"""Port-forward against a server that speaks the API server's side of it: one websocket, two channels for the port."""

from __future__ import annotations

import base64
import hashlib
import socket
import struct
import threading
from collections.abc import Iterator

import pytest
from kubernetes import client

from controller.commands.leader import Way
from controller.errors import ForbiddenError, NotFoundError, SchedulerError, UnavailableError
from controller.kube.api import ClientKubeApi
from controller.kube.port_forward import forwarded

_KEY = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
REFUSED = '{"kind":"Status","message":"pods \\"a\\" is forbidden: User \\"u\\" cannot create","code":403}'


class Forwarder:
    """Accepts one connection; answers an HTTP request on the port, or refuses with `status`."""

    def __init__(self, status: str = "", body: str = "") -> None:
        self.status, self.body = status, body
        self.request = self.received = b""
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def close(self) -> None:
        self._socket.close()
        self._thread.join(30)
        assert not self._thread.is_alive()

    def _serve(self) -> None:
        connection, _ = self._socket.accept()
        connection.settimeout(30)
        with connection:
            while b"\r\n\r\n" not in self.request:
                self.request += connection.recv(4_096)
            if self.status:
                answer = f"HTTP/1.1 {self.status}\r\nContent-Length: {len(self.body)}\r\n\r\n{self.body}"
                connection.sendall(answer.encode())
                return
            self._upgrade(connection)
            number = struct.pack("<H", 9507)
            for channel in (b"\0", b"\1"):
                self._send(connection, channel + number)
            while data := self._receive(connection):
                self.received += data[1:]
                if self.received.endswith(b"\r\n\r\n"):
                    self._send(connection, b"\0HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

    def _upgrade(self, connection: socket.socket) -> None:
        lines = dict(line.split(b": ", 1) for line in self.request.split(b"\r\n")[1:] if b": " in line)
        key = {name.lower(): value for name, value in lines.items()}[b"sec-websocket-key"]
        accept = base64.b64encode(hashlib.sha1(key + _KEY).digest()).decode()
        connection.sendall(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Accept: {accept}\r\nSec-WebSocket-Protocol: v4.channel.k8s.io\r\n\r\n".encode()
        )

    def _send(self, connection: socket.socket, data: bytes) -> None:
        connection.sendall(bytes((0x82, len(data))) + data)

    def _receive(self, connection: socket.socket) -> bytes:
        """The next frame's data; b"" at its end."""
        head = self._exactly(connection, 2)
        if len(head) < 2 or head[0] & 0xF == 8:
            return b""
        length = head[1] & 0x7F
        if length == 126:
            (length,) = struct.unpack(">H", self._exactly(connection, 2))
        mask = self._exactly(connection, 4)
        return bytes(byte ^ mask[place % 4] for place, byte in enumerate(self._exactly(connection, length)))

    def _exactly(self, connection: socket.socket, count: int) -> bytes:
        found = b""
        while len(found) < count and (more := connection.recv(count - len(found))):
            found += more
        return found


@pytest.fixture
def forwarder() -> Iterator[Forwarder]:
    made = Forwarder()
    yield made
    made.close()


def api_of(port: int) -> ClientKubeApi:
    configuration = client.Configuration()
    configuration.host = f"http://127.0.0.1:{port}"
    configuration.api_key, configuration.api_key_prefix = {"authorization": "token"}, {"authorization": "Bearer"}
    return ClientKubeApi(configuration)


def test_what_is_sent_reaches_the_port_with_the_callers_token(forwarder: Forwarder) -> None:
    way = Way("port-forward", lambda: forwarded(api_of(forwarder.port), "longhorn-system", "a", 9507))
    assert b"{}" == way.ask("/overview")
    assert forwarder.received.startswith(b"GET /overview HTTP/1.1\r\nHost: localhost\r\n")
    line, _, headers = forwarder.request.partition(b"\r\n")
    assert b"/api/v1/namespaces/longhorn-system/pods/a/portforward?ports=9507" in line
    assert b"authorization: bearer token" in headers.lower()


@pytest.mark.parametrize(
    ("status", "body", "kind", "text"),
    [
        ("403 Forbidden", REFUSED, ForbiddenError, '403: pods "a" is forbidden: User "u" cannot create'),
        ("404 Not Found", "{}", NotFoundError, "404: "),
        ("500 Internal Server Error", "oops", UnavailableError, "500: "),
    ],
)
def test_a_refusal_is_told_in_the_api_servers_words(
    status: str, body: str, kind: type[SchedulerError], text: str
) -> None:
    forwarder = Forwarder(status, body)
    with pytest.raises(kind) as refused:
        forwarded(api_of(forwarder.port), "longhorn-system", "a", 9507)
    forwarder.close()
    assert str(refused.value).startswith(text) and "-+-+-" not in str(refused.value)


def test_an_api_server_that_is_away_is_unavailable() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        with pytest.raises(UnavailableError, match="refused"):
            forwarded(api_of(taken.getsockname()[1]), "longhorn-system", "a", 9507)
