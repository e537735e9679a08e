"""What the gRPC service tells Prometheus. Labels never carry the name of a claim or a volume."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from controller.metrics import PREFIX

CALLS: Final = ("HoldExpansion",)
OUTCOMES: Final = (
    "admitted",
    "refused",
    "not-checked",
    "dry-run",
    "not-ready",
    "malformed",
    "denied",
    "gone",
    "internal",
)
_BUCKETS: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
_ENDED: Final = "expansions_expired"


class RpcMetrics:
    """Threads: any. Blocks: never. I/O: none."""

    def __init__(self, registry: CollectorRegistry, counters: Callable[[], Mapping[str, int]]) -> None:
        """`counters`: the allocator's."""
        self._calls = Counter(
            f"{PREFIX}_rpc_calls_total",
            "Calls of the gRPC service, by outcome.",
            ("call", "outcome"),
            registry=registry,
        )
        self._seconds = Histogram(
            f"{PREFIX}_rpc_duration_seconds",
            "Time from a decoded call to its answer.",
            ("call",),
            buckets=_BUCKETS,
            registry=registry,
        )
        for call in CALLS:
            self._seconds.labels(call)
            for outcome in OUTCOMES:
                self._calls.labels(call, outcome)
        registry.register(_Ended(counters))

    def called(self, call: str, outcome: str, seconds: float) -> None:
        self._calls.labels(call, outcome).inc()
        self._seconds.labels(call).observe(seconds)


class _Ended(Collector):
    def __init__(self, counters: Callable[[], Mapping[str, int]]) -> None:
        self._counters = counters

    def collect(self) -> Iterator[Metric]:
        found = CounterMetricFamily(
            f"{PREFIX}_expansion_holds_expired", "Admitted expansions that the cluster never showed."
        )
        found.add_metric((), self._counters().get(_ENDED, 0))
        yield found
