"""The extender's application over made-up facts: nodes with disks, and one pod. No cluster, no certificates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from bench.echo import create_echo_blueprint
from controller.allocator.allocator import Allocator
from controller.allocator.outcome import Mode
from controller.clock import SystemClock
from controller.settings import LiveSettings
from extender.app import Verbs, create_app
from extender.contention import WaitBudget
from extender.coschedule import CoScheduling
from extender.preconditions import Preconditions
from extender.preemption import PreemptionService
from extender.priorities import PriorityService
from extender.service import ExtenderService
from extender.wire import ClusterSize
from tests.fakes.builders import TestCluster, disk
from tests.fakes.edges import Anywhere, FakeGate, FakeObserver
from tests.fakes.served import OnlyApplication

LARGEST_CLUSTER: Final = 5_000  # nodes, by which requests are limited


class _NoReads:
    def refresh(self, kind: str, namespace: str, name: str, timeout_seconds: float) -> bool:
        raise AssertionError(f"{kind} {namespace}/{name} is not in the store ({timeout_seconds} s)")


class ExtenderProcess(OnlyApplication):
    """The product's application over this allocator, and the echo route."""

    def __init__(self, allocator: Allocator, co_scheduler: CoScheduling | None = None) -> None:
        clock, silent, co_scheduler = SystemClock(), FakeObserver(), co_scheduler or Anywhere()
        preconditions = Preconditions(
            allocator, FakeGate(), _NoReads(), clock, mode=lambda: Mode.ACTIVE, stale_kind=lambda: None
        )
        service = ExtenderService(
            allocator,
            preconditions,
            clock,
            silent,
            silent,
            contention_wait_seconds=lambda: 0.0,
            budget=WaitBudget(),
            co_scheduler=co_scheduler,
        )
        preempting = PreemptionService(allocator, preconditions, silent, silent, co_scheduler)
        scoring = PriorityService(allocator, preconditions, co_scheduler)
        verbs = Verbs(service, scoring.prioritize, preempting.preempt, lambda args: f"{args.node}: not here")
        limits: dict[str, Any] = {"max_body_bytes": 64 * 1024**2, "cluster_size": lambda: ClusterSize(LARGEST_CLUSTER)}
        app = create_app(verbs, silent, clock, **limits)
        app.register_blueprint(create_echo_blueprint())
        super().__init__(app.wsgi_app)


def make_cluster(live: LiveSettings) -> TestCluster:
    """In real time; its default class has volumes of one copy."""
    return TestCluster(live=live, make_allocator=lambda _: Allocator(SystemClock()))


def node_name(index: int) -> str:
    return f"worker-{index:05d}.cluster.example"


def add_pod(cluster: TestCluster, sizes_gib: Mapping[str, float], name: str = "p") -> None:
    """A pod with a new claim of each name."""
    cluster.add_pod(name, *sizes_gib.items(), uid=f"uid-{name}")


def add_nodes(cluster: TestCluster, count: int, sizes_gib: Callable[[int], Mapping[str, int]]) -> list[str]:
    """Empty nodes with these disks; their names."""
    for index in range(count):
        cluster.add_node(node_name(index), *(disk(name, gib) for name, gib in sizes_gib(index).items()))
    return [node_name(index) for index in range(count)]


def pod_document(claims: Iterable[str], name: str = "p") -> dict[str, object]:
    """The same pod, as kube-scheduler sends it."""
    volumes = [{"name": f"v-{claim}", "persistentVolumeClaim": {"claimName": claim}} for claim in claims]
    return {
        "metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}"},
        "spec": {"volumes": volumes, "containers": [{"name": "c"}]},
    }
