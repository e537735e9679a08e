"""How many connections the gRPC server holds, and that who has the right certificate gets in all the same."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from controller.rpc import disk_scheduler_pb2 as pb
from tests.unit.rpc.leaders import HOST, Chain, Leader, Reply, caller, hold_expansion
from tests.waiting import wait_until

CONNECTIONS = 16
HALF_OPEN = 4 * CONNECTIONS
SPARE = 8  # descriptors for the caller's own end and what gRPC opens once
SECONDS = 30.0
REQUEST = pb.HoldExpansionRequest(volume_name="v", size_bytes=1)
BEGINNING = b"\x16\x03\x01"  # of a handshake, and no more of it


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


def descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_half_open_connections_are_few_and_the_next_caller_gets_in_as_they_end(chain: Chain) -> None:
    with Leader(chain, connections=CONNECTIONS) as leader, caller(leader, chain.client) as known:
        hold_expansion(known, REQUEST, seconds=SECONDS)
        before, looks = descriptors(), list[int]()
        with half_open(leader) as clients, caller(leader, chain.client) as new:

            def has_at_most(count: int) -> bool:
                looks.append(descriptors() - before)
                return open_of(clients) <= count

            wait_until(
                lambda: has_at_most(CONNECTIONS - 1), "free place", SECONDS
            )  # the known caller has the last place
            hold_expansion(known, REQUEST, seconds=SECONDS)  # what is open stays
            with ThreadPoolExecutor(1) as pool:
                waiting = pool.submit(hold_expansion, new, REQUEST, seconds=SECONDS, waits=True)
                wait_until(lambda: has_at_most(0), "end of all", SECONDS)  # each handshake's time is over
                assert Reply.NOT_CHECKED == waiting.result(SECONDS).verdict
        assert max(looks) <= HALF_OPEN + CONNECTIONS + SPARE
        assert 3 == len(leader.calls.outcomes)


def test_places_that_were_taken_are_free_again(chain: Chain) -> None:
    with Leader(chain, connections=CONNECTIONS) as leader:
        for _ in range(3):
            with half_open(leader) as clients:
                wait_until(lambda held=clients: open_of(held) <= CONNECTIONS)  # type: ignore[misc]
            with caller(leader, chain.client) as new:
                hold_expansion(new, REQUEST, seconds=SECONDS, waits=True)
