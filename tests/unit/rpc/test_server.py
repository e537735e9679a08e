"""The gRPC server: when it serves, where the Service points, and how many connections it holds while who has the right
certificate gets in all the same."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from controller.rpc import disk_scheduler_pb2 as pb
from tests.unit.rpc.leaders import HOST, Chain, Leader, Reply, ask, caller
from tests.waiting import wait_until

CONNECTIONS = 16
HALF_OPEN = 4 * CONNECTIONS
SPARE = 8  # descriptors for the caller's own end and what gRPC opens once
SECONDS = 30.0
REQUEST = pb.HoldExpansionRequest(volume_name="v", size_bytes=1)
BEGINNING = b"\x16\x03\x01"  # of a handshake, and no more of it


def test_the_service_is_pointed_here_while_leading_and_let_go_at_the_end_though_the_term_is_over(chain: Chain) -> None:
    leader = Leader(chain)
    leader.checks.is_leading = False
    with leader:
        assert 0 == leader.endpoint.points
        leader.checks.is_leading = True
        wait_until(lambda: leader.endpoint.points == 1)
        leader.checks.is_leading = False
        wait_until(lambda: not leader.server.status()["points_here"])
    assert 1 == leader.endpoint.cleared


def test_without_a_certificate_nothing_is_served_and_the_reason_is_shown(chain: Chain) -> None:
    leader = Leader(chain)
    leader.material = None
    leader.server.start()
    try:
        wait_until(lambda: "certificate" in leader.server.status()["problem"])
        assert 0 == leader.endpoint.points
        leader.material = chain.server
        wait_until(lambda: bool(leader.server.status()["is_serving"]))
    finally:
        leader.server.stop()


def test_a_port_that_is_taken_is_told(chain: Chain, leader: Leader) -> None:
    second = Leader(chain, leader.server.port)
    second.server.start()
    try:
        wait_until(lambda: "cannot listen" in second.server.status()["problem"])
    finally:
        second.server.stop()


# Connections


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


def descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_half_open_connections_are_few_and_the_next_caller_gets_in_as_they_end(chain: Chain) -> None:
    with Leader(chain, connections=CONNECTIONS) as leader, caller(leader, chain.client) as known:
        ask(known, REQUEST, seconds=SECONDS)
        before, looks = descriptors(), list[int]()
        with half_open(leader) as clients, caller(leader, chain.client) as new:

            def has_at_most(count: int) -> bool:
                looks.append(descriptors() - before)
                return sum(map(is_open, clients)) <= count

            # The known caller has the last place.
            wait_until(lambda: has_at_most(CONNECTIONS - 1), "free place", SECONDS)
            ask(known, REQUEST, seconds=SECONDS)  # what is open stays
            with ThreadPoolExecutor(1) as pool:
                waiting = pool.submit(ask, new, REQUEST, seconds=SECONDS, waits=True)
                wait_until(lambda: has_at_most(0), "end of all", SECONDS)  # each handshake's time is over
                assert Reply.NOT_CHECKED == waiting.result(SECONDS).verdict
        assert max(looks) <= HALF_OPEN + CONNECTIONS + SPARE
        assert 3 == len(leader.calls.outcomes)


def test_places_that_were_taken_are_free_again(chain: Chain) -> None:
    with Leader(chain, connections=CONNECTIONS) as leader:
        for _ in range(3):
            with half_open(leader) as clients:
                wait_until(lambda held=clients: sum(map(is_open, held)) <= CONNECTIONS)  # type: ignore[misc]
            with caller(leader, chain.client) as new:
                ask(new, REQUEST, seconds=SECONDS, waits=True)
