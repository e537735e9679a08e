"""Prometheus metrics of the gRPC service. No label has the name of a claim or a volume."""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram

from controller.process.common_metrics import PREFIX
from controller.rpc.wire import METHODS

OUTCOMES: Final = (
    "admitted",
    "refused",
    "try-again",
    "not-checked",
    "dry-run",
    "found",
    "none-found",
    "allocated",
    "already-allocated",
    "no-room",
    "freed",
    "nothing-to-free",
    "not-ready",
    "malformed",
    "denied",
    "gone",
    "too-many-reads",
    "not-found",
    "precondition",
    "internal",
)
_BUCKETS: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class RpcMetrics:
    """Threads: any. Blocks: never. I/O: none."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._calls = Counter(
            f"{PREFIX}_rpc_calls_total",
            "Calls of the gRPC service, by outcome.",
            ("call", "outcome"),
            registry=registry,
        )
        self._seconds = Histogram(
            f"{PREFIX}_rpc_duration_seconds",
            "Time from the decoding of a call to its answer.",
            ("call",),
            buckets=_BUCKETS,
            registry=registry,
        )
        for call in METHODS:
            self._seconds.labels(call)
            for outcome in OUTCOMES:
                self._calls.labels(call, outcome)

    def called(self, call: str, outcome: str, seconds: float) -> None:
        """Count a call. `outcome`: one of OUTCOMES."""
        self._calls.labels(call, outcome).inc()
        self._seconds.labels(call).observe(seconds)
