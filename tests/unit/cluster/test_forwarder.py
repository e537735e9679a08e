"""Forwarded connections behave as if there were nothing in between. Real sockets on loopback."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pytest

from tests.cluster.endpoints import Target
from tests.cluster.forwarder import Listener

DEADLINE = 10.0
A, B = Target("10.0.0.1", 80), Target("10.0.0.2", 80)
T = TypeVar("T")


class Rig:
    """An event loop in a thread, a listener in it, and one plain server for each of the targets A and B."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._thread.start()
        self.servers = {target: socket.create_server(("127.0.0.1", 0)) for target in (A, B)}
        for server in self.servers.values():
            server.settimeout(DEADLINE)
        ports = {target: server.getsockname()[1] for target, server in self.servers.items()}
        self.listener = self.call(lambda: Listener(self.loop, "127.0.0.1", 0, ports.get))

    def call(self, function: Callable[[], T]) -> T:
        async def run() -> T:
            return function()

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(DEADLINE)

    def lead_to(self, *targets: Target) -> None:
        self.call(lambda: self.listener.set_targets(list(targets)))

    def connect(self) -> socket.socket:
        return socket.create_connection(self.listener.address, timeout=DEADLINE)

    def accept(self, target: Target) -> socket.socket:
        connection, _ = self.servers[target].accept()
        connection.settimeout(DEADLINE)
        return connection

    def close(self) -> None:
        self.call(self.listener.close)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(DEADLINE)
        for server in self.servers.values():
            server.close()


@pytest.fixture
def rig() -> Iterator[Rig]:
    made = Rig()
    yield made
    made.close()


def read_exactly(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = sock.recv(size - len(data))
        assert piece, "the connection ended early"
        data += piece
    return data


def test_without_targets_callers_are_refused_and_the_port_stays_ours(rig: Rig) -> None:
    for _ in range(2):
        with pytest.raises(ConnectionRefusedError):
            rig.connect()
        with pytest.raises(OSError, match="in use"), socket.socket() as other:
            other.bind(rig.listener.address)
        rig.lead_to(A)
        with rig.connect(), rig.accept(A):
            pass
        rig.lead_to()


def test_new_connections_go_to_the_targets_in_turn(rig: Rig) -> None:
    rig.lead_to(A, B)
    for target in (A, B, A):
        with rig.connect() as client, rig.accept(target) as server:
            client.sendall(b"hello")
            assert read_exactly(server, 5) == b"hello"


def test_bytes_of_any_amount_pass_both_ways_and_back_pressure_loses_none(rig: Rig) -> None:
    rig.lead_to(A)
    data = bytes(range(256)) * 40_000
    with rig.connect() as client, rig.accept(A) as server:
        for sender, receiver in ((client, server), (server, client)):
            thread = threading.Thread(target=sender.sendall, args=(data,))
            thread.start()
            assert read_exactly(receiver, len(data)) == data
            thread.join(DEADLINE)


def test_a_half_closed_connection_still_carries_the_answer(rig: Rig) -> None:
    rig.lead_to(A)
    with rig.connect() as client, rig.accept(A) as server:
        client.sendall(b"question")
        client.shutdown(socket.SHUT_WR)
        assert read_exactly(server, 8) == b"question"
        assert server.recv(1) == b""
        server.sendall(b"answer")
        server.close()
        assert read_exactly(client, 6) == b"answer"
        assert client.recv(1) == b""


def test_a_reset_reaches_the_other_side_as_a_reset(rig: Rig) -> None:
    rig.lead_to(A)
    with rig.connect() as client, rig.accept(A) as server:
        client.sendall(b"x")
        assert read_exactly(server, 1) == b"x"
        server.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        server.close()
        with pytest.raises(ConnectionResetError):
            client.recv(1)


def test_a_target_where_nobody_listens_resets_the_caller(rig: Rig) -> None:
    rig.lead_to(Target("10.0.0.3", 80))
    with pytest.raises(ConnectionResetError), rig.connect() as client:  # the reset may come while it connects
        client.recv(1)


def test_small_writes_are_never_held_back(rig: Rig) -> None:
    rig.lead_to(A)
    with rig.connect() as client, rig.accept(A) as server:
        client.sendall(b"x")
        assert read_exactly(server, 1) == b"x"
        sockets: list[Any] = rig.call(
            lambda: [pipe.transport.get_extra_info("socket") for pipe in rig.listener.pipes if pipe.transport]
        )
        assert [sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) for sock in sockets] == [1, 1]
