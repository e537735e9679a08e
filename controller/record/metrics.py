"""Prometheus metrics of the record. No label has the name of a volume or a node."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from controller.process.common_metrics import PREFIX
from controller.record.keeper import Figures


class RecordMetrics(Collector):
    """Threads: any. Blocks: never. I/O: none."""

    def __init__(self, figures: Callable[[], Figures], is_leading: Callable[[], bool]) -> None:
        self._figures, self._is_leading = figures, is_leading

    def describe(self) -> Iterable[Metric]:
        return ()  # so that registration reads nothing

    def collect(self) -> Iterator[Metric]:
        found = self._figures()
        kept = found.is_kept and bool(found.place) and self._is_leading()
        for name, text, value in (
            ("kept", "1 on the leader while it keeps the record of allocations.", float(kept)),
            ("entries", "Replicas and copies of backing images in the record.", found.entries),
            ("unreadable", "Nodes of whose record something is not understood.", len(found.unreadable)),
            ("unmatched", "Places that were given by name, and that no object shows yet.", found.unmatched),
        ):
            yield GaugeMetricFamily(f"{PREFIX}_allocation_record_{name}", text, value=value)
        for name, text, value in (
            ("writes", "Successful writes of the record.", found.writes),
            ("failures", "Writes of a node's record that did not succeed.", found.failures),
        ):
            yield CounterMetricFamily(f"{PREFIX}_allocation_record_{name}", text, value=value)
