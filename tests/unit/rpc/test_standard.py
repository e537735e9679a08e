"""gRPC's own services on the leader's server: who leads, as health tells it, and our calls without the .proto file."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

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


@pytest.fixture
def channel(chain: Chain, leader: Leader) -> Iterator[grpc.Channel]:
    with caller(leader, chain.client) as way, way.channel() as found:
        yield found


def checked(channel: grpc.Channel, service: str) -> int:
    request = health_pb2.HealthCheckRequest(service=service)
    return int(health_pb2_grpc.HealthStub(channel).Check(request, timeout=10).status)  # type: ignore[attr-defined]  # the stubs lack it


def test_health_tells_whether_this_process_leads(leader: Leader, channel: grpc.Channel) -> None:
    wait_until(lambda: checked(channel, SERVICE) == Status.SERVING, "a leader that serves")
    leader.checks.is_leading = False
    wait_until(lambda: checked(channel, SERVICE) == Status.NOT_SERVING, "a follower that does not")
    assert Status.SERVING == checked(channel, "")
    with pytest.raises(grpc.RpcError) as raised:
        checked(channel, "another")
    assert grpc.StatusCode.NOT_FOUND is raised.value.code()


def test_watches_hear_of_changes_and_keep_no_thread(leader: Leader, channel: grpc.Channel) -> None:
    """As many as there are threads; other questions are answered meanwhile."""
    wait_until(lambda: checked(channel, SERVICE) == Status.SERVING, "a leader that serves")
    stub = health_pb2_grpc.HealthStub(channel)
    watches = [stub.Watch(health_pb2.HealthCheckRequest(service=SERVICE), timeout=60) for _ in range(THREADS)]  # type: ignore[attr-defined]  # the stubs lack it
    assert [Status.SERVING] * THREADS == [next(watch).status for watch in watches]
    leader.checks.is_leading = False
    assert [Status.NOT_SERVING] * THREADS == [next(watch).status for watch in watches]
    assert Status.NOT_SERVING == checked(channel, SERVICE)
    for watch in watches:
        watch.cancel()


def test_watches_that_go_while_they_are_told_stop_nobody(leader: Leader, channel: grpc.Channel) -> None:
    """gRPC tells of the end of a watch in the thread that finishes what is being sent to others."""
    stub = health_pb2_grpc.HealthStub(channel)
    request = health_pb2.HealthCheckRequest(service=SERVICE)
    services = leader.server._standard
    for number in range(100):
        watches = [stub.Watch(request, timeout=60) for _ in range(8)]  # type: ignore[attr-defined]  # the stubs lack it
        for watch in watches:
            next(watch)
        services.tell_leading(number % 2 == 0)
        for watch in watches:
            watch.cancel()
    services.tell_leading(True)
    wait_until(lambda: checked(channel, SERVICE) == Status.SERVING, "an answer")
    wait_until(lambda: not services._watches, "an end of all watches")


def test_only_so_many_may_watch_at_a_time(leader: Leader, channel: grpc.Channel) -> None:
    stub = health_pb2_grpc.HealthStub(channel)
    request = health_pb2.HealthCheckRequest(service="")
    watches = [stub.Watch(request, timeout=60) for _ in range(MOST_WATCHES)]  # type: ignore[attr-defined]  # the stubs lack it
    assert [Status.SERVING] * MOST_WATCHES == [next(watch).status for watch in watches]
    with pytest.raises(grpc.RpcError) as raised:
        next(stub.Watch(request, timeout=60))  # type: ignore[attr-defined]  # the stubs lack it
    assert grpc.StatusCode.RESOURCE_EXHAUSTED is raised.value.code()
    watches.pop().cancel()
    wait_until(lambda: len(leader.server._standard._watches) < MOST_WATCHES, "a free place")
    watches.append(stub.Watch(request, timeout=60))  # type: ignore[attr-defined]  # the stubs lack it
    assert Status.SERVING == next(watches[-1]).status
    for watch in watches:
        watch.cancel()


def test_who_watches_a_service_that_is_not_there_is_told_so(channel: grpc.Channel) -> None:
    stub = health_pb2_grpc.HealthStub(channel)
    watch = stub.Watch(health_pb2.HealthCheckRequest(service="another"), timeout=60)  # type: ignore[attr-defined]  # the stubs lack it
    assert Status.SERVICE_UNKNOWN == next(watch).status
    watch.cancel()


def test_reflection_keeps_few_threads_whoever_asks(channel: grpc.Channel) -> None:
    stub = reflection_pb2_grpc.ServerReflectionStub(channel)
    asked = threading.Event()

    def never_ends() -> Iterator[reflection_pb2.ServerReflectionRequest]:
        yield reflection_pb2.ServerReflectionRequest(list_services="")
        asked.wait(60)

    kept = [stub.ServerReflectionInfo(never_ends(), timeout=60) for _ in range(MOST_REFLECTIONS)]  # type: ignore[operator]  # the stubs lack it
    for one in kept:
        next(one)
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    with pytest.raises(grpc.RpcError) as raised:
        next(stub.ServerReflectionInfo(iter([request]), timeout=10))  # type: ignore[operator]  # the stubs lack it
    assert grpc.StatusCode.RESOURCE_EXHAUSTED is raised.value.code()
    asked.set()
    for one in kept:
        assert not list(one)
    assert next(stub.ServerReflectionInfo(iter([request]), timeout=10))  # type: ignore[operator]  # the stubs lack it


def test_a_server_that_ends_is_not_serving(leader: Leader, channel: grpc.Channel) -> None:
    stub = health_pb2_grpc.HealthStub(channel)
    watch = stub.Watch(health_pb2.HealthCheckRequest(service=""), timeout=60)  # type: ignore[attr-defined]  # the stubs lack it
    assert Status.SERVING == next(watch).status
    with ThreadPoolExecutor(1) as pool:
        pool.submit(leader.server.stop)
        assert Status.NOT_SERVING == next(watch).status
        watch.cancel()


def test_reflection_tells_every_call_of_the_service(leader: Leader, channel: grpc.Channel) -> None:
    stub = reflection_pb2_grpc.ServerReflectionStub(channel)
    requests = [
        reflection_pb2.ServerReflectionRequest(list_services=""),
        reflection_pb2.ServerReflectionRequest(file_containing_symbol=SERVICE),
    ]
    listed, described = stub.ServerReflectionInfo(iter(requests), timeout=10)  # type: ignore[operator]  # the stubs lack it
    names = {one.name for one in listed.list_services_response.service}
    assert {SERVICE, "grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"} == names
    assert [pb.DESCRIPTOR.serialized_pb] == list(described.file_descriptor_response.file_descriptor_proto)
