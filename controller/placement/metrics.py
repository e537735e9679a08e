"""What placement tells Prometheus. Labels never carry the name of a replica, a volume or a node."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from controller.placement.placer import REASONS, PlacementFigures, PlacementOutcome
from controller.process.common_metrics import PREFIX


class PlacementMetrics(Collector):
    """Threads: any. Blocks: never. I/O: none."""

    def __init__(self, figures: Callable[[], PlacementFigures]) -> None:
        self._figures = figures

    def describe(self) -> Iterable[Metric]:
        return ()  # registering must not read anything

    def collect(self) -> Iterator[Metric]:
        found = self._figures()
        tries = CounterMetricFamily(
            f"{PREFIX}_replica_placements", "Tries to place a Replica without a disk.", labels=("outcome",)
        )
        for outcome in PlacementOutcome:
            tries.add_metric((outcome.value,), found.outcomes.get(outcome.value, 0))
        yield tries
        waiting = GaugeMetricFamily(
            f"{PREFIX}_replica_placement_waiting",
            "Replicas without a disk that the leader is to place.",
            labels=("reason",),
        )
        for reason in REASONS:
            waiting.add_metric((reason,), found.waiting.get(reason, 0))
        yield waiting
