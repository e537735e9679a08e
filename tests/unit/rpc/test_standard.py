"""gRPC's own services on the leader's server: who leads, as health tells it, and our calls without the .proto file."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from controller.rpc import disk_scheduler_pb2 as pb
from controller.rpc.server import THREADS
from controller.rpc.standard import MOST_REFLECTIONS, MOST_WATCHES
from controller.rpc.wire import SERVICE
from tests.unit.rpc.leaders import Chain, Leader, caller
from tests.waiting import wait_until

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
