"""Builds the leader's gRPC service."""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final

import grpc
from prometheus_client import CollectorRegistry

from controller.allocator.allocator import Allocator
from controller.clock import Clock
from controller.follow.live import LiveReads
from controller.kube.api import KubeApi
from controller.kube.endpoint_slice import EndpointSlices, PodEndpoint
from controller.process.flags import split_names
from controller.process.named_part import NamedPart
from controller.rpc.allocating import DiskAllocator, Record
from controller.rpc.calls import BoundedLiveReads, Called, Calls, Checks, Served, seconds_left
from controller.rpc.credentials import Current
from controller.rpc.metrics import RpcMetrics
from controller.rpc.server import RpcServer
from controller.rpc.service import FindDiskCandidates, HoldExpansion
from controller.rpc.wire import SERVICE
from controller.settings import ProcessSettings
from controller.views.decisions import NoteDecision, log_decision

PORT_NAME: Final = "grpc"  # of the Service's port that the EndpointSlice fills
HOLD_THREADS: Final = 8  # for HoldExpansion: the webhook waits for seconds only. Other calls share the server's


def disk_scheduler(
    allocator: Allocator,
    checks: Callable[[], Checks],
    live: LiveReads,
    clock: Clock,
    called: Called,
    *,
    webhook: str,
    disk_clients: Collection[str],
    record: Callable[[], Record | None] = lambda: None,
    note: NoteDecision = log_decision,
) -> grpc.GenericRpcHandler:
    """The handler of all calls of DiskScheduler. `webhook`: the name in the certificate of the client that may hold
    expansions; empty: any accepted client. `disk_clients`: those that may make the other calls."""
    calls, reads = Calls(clock, called), BoundedLiveReads(live, clock)
    hold = HoldExpansion(allocator.expansions, checks, BoundedLiveReads(live, clock), clock, note)
    threads = ThreadPoolExecutor(HOLD_THREADS, "rpc-hold")
    allowed = (webhook,) if webhook else None
    handlers = {"HoldExpansion": calls.handler("HoldExpansion", hold, allowed, f", not for {webhook}", threads)}
    answers: dict[str, Callable[[Any, grpc.ServicerContext], Served]] = {
        "FindDiskCandidates": FindDiskCandidates(allocator.disks, checks, reads, clock)
    }
    for call, answer in DiskAllocator(allocator.allocations, record, checks, reads.read, clock).calls().items():
        answers[call] = partial(_in_time, answer)
    for call, serve in answers.items():
        handlers[call] = calls.handler(call, serve, disk_clients, f", who may not call {call}")
    return grpc.method_handlers_generic_handler(SERVICE, handlers)


def _in_time(answer: Callable[[Any, float], Served], request: Any, context: grpc.ServicerContext) -> Served:
    return answer(request, seconds_left(context))


def build_rpc(
    settings: ProcessSettings,
    api: KubeApi,
    clock: Clock,
    allocator: Allocator,
    live: LiveReads,
    registry: CollectorRegistry,
    *,
    checks: Callable[[], Checks],
    is_leading: Callable[[], bool],
    credentials: Current,
    record: Callable[[], Record | None] = lambda: None,
    note: NoteDecision = log_decision,
) -> NamedPart:
    """The part that serves DiskScheduler. `record`: as in `DiskAllocator`. Starts nothing."""
    handler = disk_scheduler(
        allocator,
        checks,
        live,
        clock,
        RpcMetrics(registry).called,
        webhook=settings.webhook_client_name,
        disk_clients=split_names(settings.disk_scheduler_clients),
        record=record,
        note=note,
    )
    ports = {PORT_NAME: settings.grpc_endpoint_port or settings.grpc_port}
    host = f"[{settings.grpc_address}]" if ":" in settings.grpc_address else settings.grpc_address
    slices = EndpointSlices(api, settings.namespace, is_leading=is_leading)
    server = RpcServer(
        f"{host}:{settings.grpc_port}",
        handler,
        credentials,
        PodEndpoint(slices, settings, settings.replica_scheduler_service, ports),
        clock,
        is_leading=is_leading,
    )
    return NamedPart("rpc", server, server.status)
