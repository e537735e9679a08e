"""What kube-apiserver's egress proxy makes of CONNECT requests. Real sockets on loopback."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from tests.cluster import egress
from tests.cluster.egress import HEAD_LIMIT_BYTES, Egress, address_of
from tests.cluster.endpoints import Target
from tests.cluster.forwarder import Listener

DEADLINE = 10.0
POD = Target("10.244.0.1", 9443)
T = TypeVar("T")


class Rig:
    """An egress proxy whose one Service 10.96.0.7:443 leads to a plain server."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "egress.sock"
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._thread.start()
        self.server = socket.create_server(("127.0.0.1", 0))
        self.server.settimeout(DEADLINE)
        self.routes = {POD: int(self.server.getsockname()[1])}
        self.listener = self.call(lambda: Listener(self.loop, "127.0.0.1", 0, self.routes.get))
        self.call(lambda: self.listener.set_targets([POD]))
        services = {("10.96.0.7", 443): self.listener}
        self.egress = self.call(lambda: Egress(self.path, lambda host, port: services.get((host, port))))

    def call(self, function: Callable[[], T]) -> T:
        async def run() -> T:
            return function()

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(DEADLINE)

    def ask(self, request: bytes) -> tuple[socket.socket, bytes]:
        """The connection, and the head of the answer."""
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(DEADLINE)
        sock.connect(str(self.path))
        sock.sendall(request)
        head = b""
        while b"\r\n\r\n" not in head:
            piece = sock.recv(1)
            assert piece, f"the answer ends: {head!r}"
            head += piece
        return sock, head

    def close(self) -> None:
        self.call(self.egress.close)
        self.call(self.listener.close)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(DEADLINE)
        self.server.close()


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    yield made
    made.close()


def test_a_connection_leads_to_the_endpoint_and_back(rig: Rig) -> None:
    front, head = rig.ask(b"CONNECT 10.96.0.7:443 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ")
    with front, rig.server.accept()[0] as back:
        back.settimeout(DEADLINE)
        front.sendall(b"hello")
        assert b"hello" == back.recv(5)
        back.sendall(b"there")
        assert b"there" == front.recv(5)
        front.shutdown(socket.SHUT_WR)
        assert b"" == back.recv(1)


@pytest.mark.parametrize(
    ("request_head", "code"),
    [
        (b"CONNECT 10.96.0.8:443 HTTP/1.1\r\n\r\n", b"503"),
        (b"CONNECT 10.96.0.7:444 HTTP/1.1\r\n\r\n", b"503"),
        (b"GET / HTTP/1.1\r\n\r\n", b"400"),
        (b"CONNECT 10.96.0.7 HTTP/1.1\r\n\r\n", b"400"),
        (b"CONNECT 10.96.0.7:443 HTTP/1.1\r\n\r\ntoo early", b"400"),
        (b"x" * (HEAD_LIMIT_BYTES + 1), b"400"),
    ],
)
def test_what_leads_nowhere_is_refused(rig: Rig, request_head: bytes, code: bytes) -> None:
    front, head = rig.ask(request_head)
    with front:
        assert code == head.split(b" ")[1]


def test_without_an_endpoint_or_its_process_the_caller_is_refused_at_once(rig: Rig) -> None:
    rig.routes.clear()
    front, head = rig.ask(b"CONNECT 10.96.0.7:443 HTTP/1.1\r\n\r\n")
    front.close()
    assert b"502" == head.split(b" ")[1]
    rig.call(lambda: rig.listener.set_targets([]))
    front, head = rig.ask(b"CONNECT 10.96.0.7:443 HTTP/1.1\r\n\r\n")
    front.close()
    assert b"503" == head.split(b" ")[1]


def test_addresses_are_read_as_kube_apiserver_writes_them() -> None:
    assert ("10.96.0.7", 443) == address_of(b"CONNECT 10.96.0.7:443 HTTP/1.1\r\nHost: x\r\n\r\n")
    assert ("fd00::7", 443) == address_of(b"CONNECT [fd00::7]:443 HTTP/1.1\r\n\r\n")


def test_only_the_way_into_the_cluster_is_proxied(tmp_path: Path) -> None:
    (selection,) = egress.configuration(tmp_path)["egressSelections"]
    assert "cluster" == selection["name"]
    assert str(tmp_path / egress.SOCKET) == selection["connection"]["transport"]["uds"]["udsName"]
