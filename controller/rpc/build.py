"""Builds the leader's gRPC service out of the process's parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from prometheus_client import CollectorRegistry

from controller.allocator.allocator import Allocator
from controller.clock import Clock
from controller.follow.live import LiveReads
from controller.kube.api import KubeApi
from controller.kube.endpoint_slice import EndpointSlices, PodEndpoint
from controller.process.addition import Addition
from controller.process.flags import split_names
from controller.rpc.allocating import DiskAllocator, Record
from controller.rpc.calls import NamedCalls
from controller.rpc.credentials import Current
from controller.rpc.metrics import RpcMetrics
from controller.rpc.queries import DiskList
from controller.rpc.server import RpcServer
from controller.rpc.service import BoundedLiveReads, Checks, DiskScheduler
from controller.settings import ProcessSettings

PORT_NAME: Final = "grpc"  # of the Service's port that the EndpointSlice fills


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
) -> Addition:
    """What serves DiskScheduler. Starts nothing. `record`: writes allocations, if there is one."""
    metrics = RpcMetrics(registry)
    scheduler = DiskScheduler(allocator.expansions, checks, live, clock, metrics)
    calls = NamedCalls(split_names(settings.disk_scheduler_clients), clock, metrics)
    reads = BoundedLiveReads(live, clock)
    disks = DiskList(allocator.disks, checks, reads.read, clock)
    giving = DiskAllocator(allocator.allocations, record, checks, reads.read, clock)
    ports = {PORT_NAME: settings.grpc_endpoint_port or settings.grpc_port}
    host = f"[{settings.grpc_address}]" if ":" in settings.grpc_address else settings.grpc_address
    slices = EndpointSlices(api, settings.namespace, is_leading=is_leading)
    server = RpcServer(
        f"{host}:{settings.grpc_port}",
        scheduler.handler(settings.webhook_client_name, {**disks.handlers(calls), **giving.handlers(calls)}),
        credentials,
        PodEndpoint(slices, settings, settings.replica_scheduler_service, ports),
        clock,
        is_leading=is_leading,
    )
    return Addition("rpc", server, server.status)
