"""The gRPC server: when it serves, where the Service points, how many connections it holds, and gRPC's own services on
it, health and reflection."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from controller.rpc import disk_scheduler_pb2 as pb
from controller.rpc.server import THREADS
from controller.rpc.standard import MOST_REFLECTIONS, MOST_WATCHES
from controller.rpc.wire import MAX_MESSAGE_BYTES, SERVICE
from tests.unit.rpc.leaders import HOST, Chain, Leader, Reply, ask, caller
from tests.waiting import wait_until

CONNECTIONS = 16
HALF_OPEN = 4 * CONNECTIONS
SPARE = 8  # descriptors for the caller's own end and what gRPC opens once
SECONDS = 30.0
REQUEST = pb.HoldExpansionRequest(volume_name="v", size_bytes=1)
TOO_MUCH = grpc.StatusCode.RESOURCE_EXHAUSTED
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


@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
def test_a_message_over_the_limit_is_refused_however_small_it_is_on_the_wire(
    channel: grpc.Channel, compression: grpc.Compression
) -> None:
    call: Any = channel.unary_unary(f"/{SERVICE}/HoldExpansion")
    for length, code in ((MAX_MESSAGE_BYTES - 16, grpc.StatusCode.INVALID_ARGUMENT), (10**7, TOO_MUCH)):
        message = pb.HoldExpansionRequest(volume_name="v" * length).SerializeToString()
        with pytest.raises(grpc.RpcError) as raised:
            call(message, timeout=SECONDS, compression=compression)
        assert code is raised.value.code()
        assert len(raised.value.details() or "") < 1_000


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
    made = Leader(chain, connections=CONNECTIONS, handshake_seconds=2.0)
    with made as leader, caller(leader, chain.client) as known:
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


# Health and reflection


Status = health_pb2.HealthCheckResponse
Reflected = reflection_pb2.ServerReflectionRequest
LIST = Reflected(list_services="")


@pytest.fixture
def channel(chain: Chain, leader: Leader) -> Iterator[grpc.Channel]:
    with caller(leader, chain.client) as way, way.channel() as found:
        yield found


def checked(channel: grpc.Channel, service: str) -> int:
    request = health_pb2.HealthCheckRequest(service=service)
    return int(health_pb2_grpc.HealthStub(channel).Check(request, timeout=10).status)  # type: ignore[attr-defined]  # the stubs lack it


def watch(channel: grpc.Channel, service: str = SERVICE) -> Any:
    """The states of that service, each as it comes."""
    request = health_pb2.HealthCheckRequest(service=service)
    return health_pb2_grpc.HealthStub(channel).Watch(request, timeout=60)  # type: ignore[attr-defined]  # the stubs lack it


def reflected(channel: grpc.Channel, requests: Iterator[Reflected]) -> Any:
    return reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(requests, timeout=60)  # type: ignore[operator]  # the stubs lack it


def test_health_tells_whether_this_process_leads(leader: Leader, channel: grpc.Channel) -> None:
    wait_until(lambda: checked(channel, SERVICE) == Status.SERVING, "a leader that serves")
    leader.checks.is_leading = False
    wait_until(lambda: checked(channel, SERVICE) == Status.NOT_SERVING, "a follower that does not")
    assert Status.SERVING == checked(channel, "")
    with pytest.raises(grpc.RpcError) as raised:
        checked(channel, "another")
    assert grpc.StatusCode.NOT_FOUND is raised.value.code()
    assert Status.SERVICE_UNKNOWN == next(watch(channel, "another")).status


def test_watches_hear_of_changes_and_keep_no_thread(leader: Leader, channel: grpc.Channel) -> None:
    """As many as there are threads; other questions are answered meanwhile."""
    wait_until(lambda: checked(channel, SERVICE) == Status.SERVING, "a leader that serves")
    watches = [watch(channel) for _ in range(THREADS)]
    assert [Status.SERVING] * THREADS == [next(one).status for one in watches]
    leader.checks.is_leading = False
    assert [Status.NOT_SERVING] * THREADS == [next(one).status for one in watches]
    assert Status.NOT_SERVING == checked(channel, SERVICE)
    for one in watches:
        one.cancel()


def test_watches_that_go_while_they_are_told_stop_nobody(leader: Leader, channel: grpc.Channel) -> None:
    """gRPC tells of the end of a watch in the thread that finishes what is being sent to others."""
    services = leader.server._standard
    for number in range(100):
        watches = [watch(channel) for _ in range(8)]
        for one in watches:
            next(one)
        services.tell_leading(number % 2 == 0)
        for one in watches:
            one.cancel()
    services.tell_leading(True)
    wait_until(lambda: checked(channel, SERVICE) == Status.SERVING, "an answer")
    wait_until(lambda: not services._watches, "an end of all watches")


def test_only_so_many_may_watch_at_a_time(leader: Leader, channel: grpc.Channel) -> None:
    watches = [watch(channel, "") for _ in range(MOST_WATCHES)]
    assert [Status.SERVING] * MOST_WATCHES == [next(one).status for one in watches]
    with pytest.raises(grpc.RpcError) as raised:
        next(watch(channel, ""))
    assert grpc.StatusCode.RESOURCE_EXHAUSTED is raised.value.code()
    watches.pop().cancel()
    wait_until(lambda: len(leader.server._standard._watches) < MOST_WATCHES, "a free place")
    watches.append(watch(channel, ""))
    assert Status.SERVING == next(watches[-1]).status
    for one in watches:
        one.cancel()


def test_reflection_keeps_few_threads_whoever_asks(channel: grpc.Channel) -> None:
    asked = threading.Event()

    def never_ends() -> Iterator[Reflected]:
        yield LIST
        asked.wait(60)

    kept = [reflected(channel, never_ends()) for _ in range(MOST_REFLECTIONS)]
    for one in kept:
        next(one)
    with pytest.raises(grpc.RpcError) as raised:
        next(reflected(channel, iter([LIST])))
    assert grpc.StatusCode.RESOURCE_EXHAUSTED is raised.value.code()
    asked.set()
    for one in kept:
        assert not list(one)
    assert next(reflected(channel, iter([LIST])))


def test_a_server_that_ends_is_not_serving(leader: Leader, channel: grpc.Channel) -> None:
    states = watch(channel, "")
    assert Status.SERVING == next(states).status
    with ThreadPoolExecutor(1) as pool:
        pool.submit(leader.server.stop)
        assert Status.NOT_SERVING == next(states).status
        states.cancel()


def test_reflection_tells_every_call_of_the_service(channel: grpc.Channel) -> None:
    listed, described = reflected(channel, iter([LIST, Reflected(file_containing_symbol=SERVICE)]))
    names = {one.name for one in listed.list_services_response.service}
    assert {SERVICE, "grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"} == names
    assert [pb.DESCRIPTOR.serialized_pb] == list(described.file_descriptor_response.file_descriptor_proto)
