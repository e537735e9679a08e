"""Prometheus metrics of the webhook. No label carries the name of a pod, a claim or a volume.

The registry is built where the process is assembled; nothing registers at import.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

PREFIX: Final = "longhorn_scheduler_webhook"
_BUCKETS: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0)
FAILURES: Final = ("malformed", "too-large", "http", "internal")
POD_OUTCOMES: Final = (
    *("opted-in", "asks-already", "no-longhorn-claim", "no-claim", "bound", "namespace", "scheduler"),
    *("opted-out", "not-marked", "not-asked-for"),
)
SHARE_MANAGER_OUTCOMES: Final = ("pointed", "as-it-is", "no-consumer", "unread", "off", "not-asked-for")
EXPANSION_OUTCOMES: Final = (
    *("admitted", "admitted-later", "refused", "try-again", "not-checked", "nothing-to-check"),
    *("allowed-unchecked", "denied-unchecked"),
)
READ_OUTCOMES: Final = ("found", "absent", "failed", "shared", "refused")
READ_KINDS: Final = (
    *("persistentvolumeclaims", "persistentvolumes", "storageclasses", "namespaces"),
    "volumeattachments",
)


class WebhookMetrics:
    """The instruments that code tells of events.

    Threads: any. Blocks: never. I/O: none.
    """

    def __init__(self, registry: CollectorRegistry, version: str, routes: Iterable[str]) -> None:
        self.registry = registry
        self._reviews = Histogram(
            f"{PREFIX}_review_duration_seconds",
            "Time from the decoding of a request to the end of its answer.",
            ("route",),
            buckets=_BUCKETS,
            registry=registry,
        )
        self._pods = self._counter("pod_reviews", "Reviewed pods by outcome.", "outcome")
        self._share_managers = self._counter(
            "share_manager_reviews", "Reviewed share-manager pods by outcome.", "outcome"
        )
        self._reads = self._counter(
            "live_reads", "Reads of objects that the stores lacked, by outcome.", "kind", "outcome"
        )
        self._expansions = self._counter("expansion_reviews", "Reviewed expansions by outcome.", "kind", "outcome")
        self._expansion_seconds = Histogram(
            f"{PREFIX}_expansion_duration_seconds",
            "Time of an expansion's review, the call to the leader included.",
            ("kind",),
            buckets=_BUCKETS,
            registry=registry,
        )
        self._failures = self._counter("failures", "Requests answered by an error, by kind.", "route", "kind")
        self._expose_labels(version, tuple(routes))

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"{PREFIX}_{name}_total", text, labels, registry=self.registry)

    def _expose_labels(self, version: str, routes: tuple[str, ...]) -> None:
        """Every series is there from the start, at zero, so that rates and alerts work on the first event."""
        for route in routes:
            self._reviews.labels(route)
            for kind in FAILURES:
                self._failures.labels(route, kind)
        for outcome in POD_OUTCOMES:
            self._pods.labels(outcome)
        for outcome in SHARE_MANAGER_OUTCOMES:
            self._share_managers.labels(outcome)
        for kind in ("claim", "volume"):
            self._expansion_seconds.labels(kind)
            for outcome in EXPANSION_OUTCOMES:
                self._expansions.labels(kind, outcome)
        for kind in READ_KINDS:
            for outcome in READ_OUTCOMES:
                self._reads.labels(kind, outcome)
        build = Gauge(
            f"{PREFIX}_build_info",
            "Always 1; the labels name the versions of the product and of Python.",
            ("version", "python"),
            registry=self.registry,
        )
        build.labels(version, platform.python_version()).set(1)

    def answered(self, route: str, seconds: float) -> None:
        self._reviews.labels(route).observe(seconds)

    def failed(self, route: str, kind: str) -> None:
        self._failures.labels(route, kind).inc()

    def pod_reviewed(self, outcome: str) -> None:
        self._pods.labels(outcome).inc()

    def share_manager_reviewed(self, outcome: str) -> None:
        self._share_managers.labels(outcome).inc()

    def read_live(self, kind: str, outcome: str) -> None:
        self._reads.labels(kind, outcome).inc()

    def expansion_reviewed(self, kind: str, outcome: str, seconds: float) -> None:
        self._expansions.labels(kind, outcome).inc()
        self._expansion_seconds.labels(kind).observe(seconds)
