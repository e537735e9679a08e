"""What every process of the suite shows of itself alike: its stores, workers and certificates, as metrics and in
`/status`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from prometheus_client import CollectorRegistry, ProcessCollector, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from controller.process.worker import Worker

PREFIX: Final = "longhorn_scheduler_extender"  # of the leader's metrics


def new_registry() -> CollectorRegistry:
    """One that shows the process' own memory, time and files, and no series about when others began: those are more
    than a quarter of a page, and nobody reads them."""
    disable_created_metrics()  # type: ignore[no-untyped-call]  # of the whole process: there is no other way
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    return registry


@dataclass(frozen=True, slots=True)
class StoreState:
    """One kind of objects as our stores know it. `age_seconds`: since it was last known current; infinite before."""

    kind: str
    is_synced: bool
    objects: int
    bad: int
    age_seconds: float


def store_entries(states: Iterable[StoreState], bad: Callable[[str], Mapping[str, str]]) -> list[dict[str, Any]]:
    """The stores' entries in `/status`; `bad` tells why objects of a kind cannot be read."""
    return [
        {
            "kind": state.kind,
            "is_synced": state.is_synced,
            "objects": state.objects,
            "bad": bad(state.kind),
            "age_seconds": round(state.age_seconds, 3) if state.age_seconds < float("inf") else None,
        }
        for state in states
    ]


def store_metrics(prefix: str, states: Iterable[StoreState]) -> Iterator[Metric]:
    synced = GaugeMetricFamily(f"{prefix}_store_synced", "1 while the store of that kind is in sync.", labels=("kind",))
    objects = GaugeMetricFamily(f"{prefix}_store_objects", "Objects of that kind in the store.", labels=("kind",))
    bad = GaugeMetricFamily(f"{prefix}_bad_objects", "Objects of that kind that cannot be read.", labels=("kind",))
    age = GaugeMetricFamily(
        f"{prefix}_store_age_seconds",
        "Time since the store of that kind was last known to be current.",
        labels=("kind",),
    )
    for state in states:
        synced.add_metric((state.kind,), 1.0 if state.is_synced else 0.0)
        objects.add_metric((state.kind,), state.objects)
        bad.add_metric((state.kind,), state.bad)
        age.add_metric((state.kind,), state.age_seconds)
    yield from (synced, objects, bad, age)


def worker_metrics(prefix: str, workers: Iterable[Worker]) -> Iterator[Metric]:
    rounds = CounterMetricFamily(f"{prefix}_worker_rounds", "Rounds of the worker.", labels=("worker",))
    failures = CounterMetricFamily(f"{prefix}_worker_failures", "Rounds of the worker that failed.", labels=("worker",))
    for state in (worker.state() for worker in workers):
        rounds.add_metric((state.name,), state.rounds)
        failures.add_metric((state.name,), state.failures)
    yield from (rounds, failures)


def crowded_metric(prefix: str, requests: int) -> Metric:
    text = "Requests that were refused with 429, because large ones took too much memory together."
    return CounterMetricFamily(f"{prefix}_crowded_requests", text, value=requests)


def certificate_metrics(
    prefix: str, ends: Mapping[str, float], problems: int, handshakes: Mapping[str, int]
) -> Iterator[Metric]:
    """`ends`: seconds until each certificate ends, by its name; `handshakes`: how many, by how they ended."""
    expiry = GaugeMetricFamily(
        f"{prefix}_certificate_expiry_seconds",
        "Time until the certificate expires; negative afterwards.",
        labels=("name",),
    )
    for name, seconds in sorted(ends.items()):
        expiry.add_metric((name,), seconds)
    yield expiry
    text = "Problems found with certificates or their Secrets."
    yield GaugeMetricFamily(f"{prefix}_certificate_problems", text, value=problems)
    ended = CounterMetricFamily(f"{prefix}_handshakes", "TLS handshakes by outcome.", labels=("outcome",))
    for outcome, count in sorted(handshakes.items()):
        ended.add_metric((outcome,), count)
    yield ended
