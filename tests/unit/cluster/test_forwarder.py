"""Forwarded connections behave as if there were nothing in between, as do those that kube-apiserver asks the egress
proxy for. Real sockets on loopback."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import egress, forwarder
from tests.cluster.endpoints import EndpointTarget
from tests.cluster.forwarder import PIECE_BYTES, Listener

DEADLINE = 10.0
A, B = EndpointTarget("10.0.0.1", 80), EndpointTarget("10.0.0.2", 80)
CONNECT = b"CONNECT 10.96.0.7:443 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


class ForwarderRig:
    """An event loop in a thread, a listener in it that is the Service 10.96.0.7:443, and a plain server for each of the
    targets A and B."""

    def __init__(self, folder: Path) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._thread.start()
        self.servers = {target: socket.create_server(("127.0.0.1", 0)) for target in (A, B)}
        for server in self.servers.values():
            server.settimeout(DEADLINE)
        ports = {target: server.getsockname()[1] for target, server in self.servers.items()}
        self.listener = self.call(lambda: Listener(self.loop, "127.0.0.1", 0, ports.get))
        self.path = folder / "egress.sock"
        services = {("10.96.0.7", 443): self.listener}
        serving = egress.serve(self.path, lambda host, port: services.get((host, port)))
        self.egress = asyncio.run_coroutine_threadsafe(serving, self.loop).result(DEADLINE)

    def call(self, function: Callable[[], Any]) -> Any:
        async def run() -> Any:
            return function()

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(DEADLINE)

    def lead_to(self, *targets: EndpointTarget) -> None:
        self.call(lambda: self.listener.set_targets(list(targets)))

    def connect(self) -> socket.socket:
        return socket.create_connection(self.listener.address, timeout=DEADLINE)

    def ask(self, request: bytes) -> tuple[socket.socket, bytes]:
        """The connection to the egress proxy, and the status that it answers."""
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(DEADLINE)
        sock.connect(str(self.path))
        sock.sendall(request)
        head = b""
        while b"\r\n\r\n" not in head:
            head += read_exactly(sock, 1)
        return sock, head.split(b" ")[1]

    def accept(self, target: EndpointTarget) -> socket.socket:
        connection, _ = self.servers[target].accept()
        connection.settimeout(DEADLINE)
        return connection

    def close(self) -> None:
        self.call(self.listener.close)
        self.call(self.egress.close)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(DEADLINE)
        for server in self.servers.values():
            server.close()


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[ForwarderRig]:
    made = ForwarderRig(tmp_path)
    yield made
    made.close()


def read_exactly(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = sock.recv(size - len(data))
        assert piece, "the connection ended early"
        data += piece
    return data


def test_without_targets_callers_are_refused_and_the_port_stays_ours(rig: ForwarderRig) -> None:
    for _ in range(2):
        with pytest.raises(ConnectionRefusedError):
            rig.connect()
        with pytest.raises(OSError, match="in use"), socket.socket() as other:
            other.bind(rig.listener.address)
        rig.lead_to(A)
        with rig.connect(), rig.accept(A):
            pass
        rig.lead_to()


def test_new_connections_go_to_the_targets_in_turn(rig: ForwarderRig) -> None:
    rig.lead_to(A, B)
    for target in (A, B, A):
        with rig.connect(), rig.accept(target):
            pass


def test_bytes_of_any_amount_pass_both_ways_and_a_half_closed_connection_still_carries_the_answer(
    rig: ForwarderRig,
) -> None:
    rig.lead_to(A)
    data = bytes(range(256)) * 40_000
    with rig.connect() as client, rig.accept(A) as server:
        for sender, receiver in ((client, server), (server, client)):
            thread = threading.Thread(target=sender.sendall, args=(data,))
            thread.start()
            assert read_exactly(receiver, len(data)) == data
            thread.join(DEADLINE)
            sender.shutdown(socket.SHUT_WR)
            assert receiver.recv(1) == b""


def test_a_reset_reaches_the_other_side_as_a_reset(rig: ForwarderRig) -> None:
    rig.lead_to(A)
    with rig.connect() as client, rig.accept(A) as server:
        client.sendall(b"x")
        assert read_exactly(server, 1) == b"x"
        server.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        server.close()
        with pytest.raises(ConnectionResetError):
            client.recv(1)


def test_a_target_where_nobody_listens_resets_the_caller(rig: ForwarderRig) -> None:
    rig.lead_to(EndpointTarget("10.0.0.3", 80))
    with pytest.raises(ConnectionResetError), rig.connect() as client:  # the reset may come while it connects
        client.recv(1)


def test_small_writes_are_never_held_back(rig: ForwarderRig, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    async def look(*sides: forwarder.Streams) -> None:
        for _, writer in sides:
            seen.append(writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

    monkeypatch.setattr(forwarder, "tie", look)
    rig.lead_to(A)
    with rig.connect() as client, rig.accept(A):
        assert client.recv(1) == b""
    assert [1, 1] == seen


def test_what_the_api_server_asks_for_leads_to_the_endpoint_and_back(rig: ForwarderRig) -> None:
    rig.lead_to(A)
    front, status = rig.ask(CONNECT)
    with front, rig.accept(A) as back:
        front.sendall(b"hello")
        back.sendall(b"there")
        assert (b"200", b"hello", b"there") == (status, read_exactly(back, 5), read_exactly(front, 5))


@pytest.mark.parametrize(
    ("request_head", "targets", "expected"),
    [
        pytest.param(CONNECT.replace(b".7:", b".8:"), [A], b"503", id="no such address"),
        pytest.param(CONNECT.replace(b":443", b":444"), [A], b"503", id="no such port"),
        pytest.param(CONNECT, [], b"503", id="no endpoint"),
        pytest.param(CONNECT, [EndpointTarget("10.0.0.3", 80)], b"502", id="an endpoint without its process"),
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", [A], b"400", id="another method"),
        pytest.param(CONNECT.replace(b":443", b""), [A], b"400", id="no port"),
        pytest.param(b"x" * (PIECE_BYTES + 10), [A], b"400", id="a head without an end"),
    ],
)
def test_what_leads_nowhere_is_refused_at_once(
    rig: ForwarderRig, request_head: bytes, targets: list[EndpointTarget], expected: bytes
) -> None:
    rig.lead_to(*targets)
    front, status = rig.ask(request_head)
    front.close()
    assert expected == status
