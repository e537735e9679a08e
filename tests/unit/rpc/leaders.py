"""A leader with a real gRPC server on loopback, over the real allocator, and certificates for both sides."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Self

import grpc
import pytest
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from certs.authority import LeafSpec, Pair, sign
from certs.webhook import CLIENT_SUBJECT
from controller.allocator.outcome import Mode
from controller.clock import SystemClock
from controller.errors import NotLeaderError, NotReadyError
from controller.model.allocations import Allocation, Purpose
from controller.rpc import disk_scheduler_pb2 as pb
from controller.rpc.allocating import Record
from controller.rpc.build import disk_scheduler
from controller.rpc.credentials import ReloadingChannel
from controller.rpc.server import HANDSHAKE_SECONDS, MOST_CONNECTIONS, RpcServer
from controller.rpc.wire import METHODS, SERVICE
from controller.serving.tls import Material
from controller.views.decisions import DecisionLog
from tests.fakes.builders import TestCluster, replica, volume
from tests.fakes.edges import FakeReads
from tests.fakes.rpc_client import DiskSchedulerClient
from tests.unit.serving.tls_files import DAY, authority, now
from tests.waiting import wait_until

HOST = "127.0.0.1"
DISK_CLIENT = "longhorn-manager"  # who may ask about disks
NAME = "longhorn-replica-scheduler.longhorn-system.svc"
Reply = pb.HoldExpansionReply


class Chain:
    """One authority, the server's leaf, the webhook's, and that of a client that may ask about disks."""

    def __init__(self) -> None:
        self.ca: Pair = authority()
        self.server = self.leaf(LeafSpec("server", DAY, (NAME,)))
        self.client = self.leaf_of(CLIENT_SUBJECT)
        self.disk_client = self.leaf_of(DISK_CLIENT)

    def leaf_of(self, subject: str, *names: str) -> Material:
        """Of a client."""
        return self.leaf(LeafSpec(subject, DAY, names, is_client=True))

    def leaf(self, spec: LeafSpec) -> Material:
        made = sign(self.ca, spec, now())
        return Material(made.certificate, made.key, self.ca.certificate)


class Checks:
    """Whether the process leads, as the tests say."""

    def __init__(self) -> None:
        self.mode = Mode.ACTIVE
        self.is_leading, self.is_fresh = True, True
        self.term = 1

    @property
    def is_open(self) -> bool:
        return self.is_leading

    def check(self) -> None:
        self.check_leading()

    def check_leading(self) -> None:
        if not self.is_leading:
            raise NotLeaderError("this process does not lead")

    def begin(self) -> int:
        self.check_leading()
        if self.mode in (Mode.CLOSED, Mode.UNKNOWN):
            raise NotReadyError("switched off, or not known whether")
        return self.term

    def check_term(self, term: int) -> None:
        self.check_leading()
        if term != self.term:
            raise NotReadyError("the term in which this was decided has ended")

    def check_fresh(self) -> None:
        if not self.is_fresh:
            raise NotReadyError("what is known of claim is too old")


class CountedEndpoint:
    def __init__(self) -> None:
        self.points = 0
        self.cleared = 0

    def point_here(self) -> None:
        self.points += 1

    def clear(self) -> None:
        self.cleared += 1


class Calls:
    """Outcomes that the observer was told of."""

    def __init__(self) -> None:
        self.outcomes: list[str] = []

    def called(self, call: str, outcome: str, seconds: float) -> None:
        self.outcomes.append(outcome)


def ask(way: ReloadingChannel, request: Message, *, seconds: float = 10, waits: bool = False) -> Any:
    """The answer to the call that has such a request. `waits`: until a connection is made, if one cannot be made at
    once."""
    name = type(request).__name__.removesuffix("Request")
    with way.channel() as channel:
        call: Any = channel.unary_unary(
            f"/{SERVICE}/{name}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=GetMessageClass(METHODS[name].output_type).FromString,
        )
        return call(request, timeout=seconds, wait_for_ready=waits)


@contextmanager
def caller(leader: Leader, material: Material) -> Iterator[ReloadingChannel]:
    way = ReloadingChannel(leader.address, NAME, lambda: material)
    try:
        yield way
    finally:
        way.close()


class Leader:
    """Threads: those of the server."""

    def __init__(
        self,
        chain: Chain,
        port: int = 0,
        *,
        connections: int = MOST_CONNECTIONS,
        handshake_seconds: float = HANDSHAKE_SECONDS,
        client_name: str = CLIENT_SUBJECT,
    ) -> None:
        self.chain = chain
        self.cluster, self.checks = TestCluster(), Checks()
        self.reads = FakeReads(self.cluster.allocator)
        self.endpoint, self.calls = CountedEndpoint(), Calls()
        self.material: Material | None = chain.server
        self.record: Record | None = None
        self.noted = DecisionLog(SystemClock())
        handler = disk_scheduler(
            self.cluster.allocator,
            lambda: self.checks,
            self.reads,
            SystemClock(),
            self.calls.called,
            webhook=client_name,
            disk_clients=(DISK_CLIENT, "another.client"),
            record=lambda: self.record,
            note=self.noted.note,
        )
        self.server = RpcServer(
            f"{HOST}:{port}",
            handler,
            lambda: self.material,
            self.endpoint,
            SystemClock(),
            is_leading=lambda: self.checks.is_leading,
            connections=connections,
            handshake_seconds=handshake_seconds,
        )

    @property
    def address(self) -> str:
        return f"{HOST}:{self.server.port}"

    def __enter__(self) -> Self:
        self.server.start()
        wait_until(lambda: self.server.port > 0)
        return self

    def __exit__(self, *_: object) -> None:
        self.server.stop()

    def ask(self, request: Message, material: Material | None = None, **more: Any) -> Any:
        """By a client with that certificate, or one that may make that call."""
        is_webhooks = isinstance(request, pb.HoldExpansionRequest)
        shown = material or (self.chain.client if is_webhooks else self.chain.disk_client)
        with caller(self, shown) as way:
            return ask(way, request, **more)

    def refusal(self, request: Message, material: Material | None = None, **more: Any) -> str:
        """The code and the words of the error that such a call gets."""
        with pytest.raises(grpc.RpcError) as raised:
            self.ask(request, material, **more)
        return f"{raised.value.code().name}: {raised.value.details()}"


class FakeRecord:
    """Keeps what nodes are to have; `failure` is raised instead, before anything is kept."""

    def __init__(self, leader: Leader) -> None:
        self._record, self._lock = leader.cluster.allocator.record, threading.Lock()
        self.records: dict[str, tuple[Allocation, ...]] = {}
        self.commits = 0
        self.failure: Exception | None = None

    def entries(self, purpose: Purpose, name: str) -> list[Allocation]:
        known = (one for entries in self.records.values() for one in entries)
        return [one for one in known if (one.purpose, one.name) == (purpose, name)]

    def commit(self, nodes: Collection[str], deadline: float) -> None:
        del deadline
        if self.failure is not None:
            raise self.failure
        with self._lock:
            self.commits += 1
            for node, wanted in self._record.of_nodes(nodes).items():
                self.records[node] = wanted
                self._record.written(node, wanted)

    def bytes_on(self, node: str) -> int:
        return sum(one.size_bytes for one in self.records.get(node, ()))


def show(leader: Leader, name: str, gib: float, on: str = "") -> None:
    leader.cluster.allocator.observe_volume(name, volume(name, gib, locality="disabled"))
    leader.cluster.allocator.observe_replica(f"{name}-r-1", replica(f"{name}-r-1", name, gib, on=on))


class DiskScene(NamedTuple):
    """A leader of a node n1 with 100 GiB, its record, and a client that may ask it about disks."""

    leader: Leader
    record: FakeRecord
    client: DiskSchedulerClient
