"""How many connections the gRPC server holds, and that who has the right certificate gets in all the same."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from controller.rpc import disk_scheduler_pb2 as pb
from controller.rpc.credentials import ReloadingChannel
from controller.rpc.wire import HOLD_EXPANSION
from tests.fakes.waiting import wait_until
from tests.unit.rpc.leaders import HOST, NAME, Chain, Leader

CONNECTIONS = 16
HALF_OPEN = 4 * CONNECTIONS
SPARE = 8  # descriptors for the caller's own end and what gRPC opens once
SECONDS = 30.0
BEGINNING = b"\x16\x03\x01"  # of a handshake, and no more of it


@pytest.fixture(scope="module")
def chain() -> Chain:
    return Chain()


@contextmanager
def caller(chain: Chain, leader: Leader) -> Iterator[ReloadingChannel]:
    way = ReloadingChannel(leader.address, NAME, lambda: chain.client)
    try:
        yield way
    finally:
        way.close()


def call(way: ReloadingChannel, *, waits: bool) -> pb.HoldExpansionReply:
    """`waits`: until a connection is made, if one cannot be made at once."""
    with way.channel() as channel:
        to_call = channel.unary_unary(
            HOLD_EXPANSION,
            request_serializer=pb.HoldExpansionRequest.SerializeToString,
            response_deserializer=pb.HoldExpansionReply.FromString,
        )
        request = pb.HoldExpansionRequest(volume_name="v", size_bytes=1)
        answer: pb.HoldExpansionReply = to_call(request, timeout=SECONDS, wait_for_ready=waits)
        return answer


@contextmanager
def half_open(leader: Leader) -> Iterator[list[socket.socket]]:
    """Clients that begin a handshake and say no more."""
    clients: list[socket.socket] = []
    try:
        for _ in range(HALF_OPEN):
            client = socket.create_connection((HOST, leader.server.port), timeout=SECONDS)
            clients.append(client)
            with suppress(ConnectionError):  # closed already
                client.sendall(BEGINNING)
            client.setblocking(False)
        yield clients
    finally:
        for client in clients:
            client.close()


def is_open(client: socket.socket) -> bool:
    try:
        return bool(client.recv(1))
    except BlockingIOError:
        return True
    except ConnectionError:
        return False


def open_of(clients: list[socket.socket]) -> int:
    return sum(is_open(client) for client in clients)


class Descriptors:
    """How many this process has beyond those it had, and the most it had at any look."""

    def __init__(self) -> None:
        self._before = self._now()
        self.most = 0

    def look(self) -> None:
        self.most = max(self.most, self._now() - self._before)

    def _now(self) -> int:
        return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_half_open_connections_are_few_and_the_next_caller_gets_in_as_they_end(chain: Chain) -> None:
    with Leader(chain, connections=CONNECTIONS) as leader, caller(chain, leader) as known:
        call(known, waits=False)
        descriptors = Descriptors()
        with half_open(leader) as clients, caller(chain, leader) as new:

            def has_at_most(count: int) -> bool:
                descriptors.look()
                return open_of(clients) <= count

            wait_until(lambda: has_at_most(CONNECTIONS - 1), SECONDS)  # the known caller has the last place
            call(known, waits=False)  # what is open stays
            with ThreadPoolExecutor(1) as pool:
                waiting = pool.submit(call, new, waits=True)
                wait_until(lambda: has_at_most(0), SECONDS)  # each handshake's time is over
                assert pb.HoldExpansionReply.NOT_CHECKED == waiting.result(SECONDS).verdict
        assert descriptors.most <= HALF_OPEN + CONNECTIONS + SPARE
        assert 3 == len(leader.calls.outcomes)


def test_places_that_were_taken_are_free_again(chain: Chain) -> None:
    with Leader(chain, connections=CONNECTIONS) as leader:
        for _ in range(3):
            with half_open(leader) as clients:
                wait_until(lambda held=clients: open_of(held) <= CONNECTIONS)  # type: ignore[misc]
            with caller(chain, leader) as new:
                call(new, waits=True)
