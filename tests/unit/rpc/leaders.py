"""A leader with a real gRPC server on loopback, over the real allocator, and certificates for both sides."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self

from certs.authority import LeafSpec, Pair, sign
from certs.webhook import CLIENT_SUBJECT
from controller.allocator.outcome import Mode
from controller.clock import SystemClock
from controller.errors import NotLeaderError, NotReadyError
from controller.rpc.server import MOST_CONNECTIONS, RpcServer
from controller.rpc.service import DiskScheduler
from controller.serving.tls import Material
from tests.fakes.builders import TestCluster
from tests.fakes.waiting import wait_until
from tests.unit.serving.tls_files import DAY, authority, now

HOST = "127.0.0.1"
NAME = "longhorn-replica-scheduler.longhorn-system.svc"


class Chain:
    """One authority, the server's leaf and the client's."""

    def __init__(self) -> None:
        self.ca: Pair = authority()
        self.server = self.leaf(LeafSpec("server", DAY, (NAME,)))
        self.client = self.leaf(LeafSpec(CLIENT_SUBJECT, DAY, is_client=True))

    def leaf(self, spec: LeafSpec) -> Material:
        made = sign(self.ca, spec, now())
        return Material(made.certificate, made.key, self.ca.certificate)


class Checks:
    """Whether the process leads, as the tests say."""

    def __init__(self) -> None:
        self.mode = Mode.ACTIVE
        self.is_leading, self.is_fresh = True, True
        self.term = 1

    def check_leading(self) -> None:
        if not self.is_leading:
            raise NotLeaderError("this process does not lead")

    def begin(self) -> int:
        self.check_leading()
        return self.term

    def check_term(self, term: int) -> None:
        self.check_leading()
        if term != self.term:
            raise NotReadyError("the term in which this was decided has ended")

    def check_fresh(self) -> None:
        if not self.is_fresh:
            raise NotReadyError("what is known of claim is too old")


class Reads:
    """Live reads: what exists only there comes with the first read of it."""

    def __init__(self) -> None:
        self.reads: list[tuple[str, str]] = []

    def refresh(self, kind: str, namespace: str, name: str, timeout_seconds: float) -> bool:
        self.reads.append((kind, name))
        return False


class Endpoint:
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


class Leader:
    """Threads: those of the server."""

    def __init__(
        self, chain: Chain, port: int = 0, *, connections: int = MOST_CONNECTIONS, client_name: str = CLIENT_SUBJECT
    ) -> None:
        self.cluster, self.checks, self.reads = TestCluster(), Checks(), Reads()
        self.endpoint, self.calls = Endpoint(), Calls()
        self.material: Material | None = chain.server
        self.slow = threading.Event()  # set: answers wait until it is cleared
        scheduler = DiskScheduler(
            self.cluster.allocator.expansions, lambda: self.checks, self.reads, SystemClock(), self.calls
        )
        self.server = RpcServer(
            f"{HOST}:{port}",
            scheduler.handler(client_name),
            lambda: self.material,
            self.endpoint,
            SystemClock(),
            is_leading=lambda: self.checks.is_leading,
            connections=connections,
        )

    @property
    def address(self) -> str:
        return f"{HOST}:{self.server.port}"

    def __enter__(self) -> Self:
        self.server.start()
        wait_until(lambda: self.server.port > 0)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.server.stop()
