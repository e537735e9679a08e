"""What the record tells Prometheus. Labels never carry the name of a volume or a node."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from controller.allocations.keeper import Figures
from controller.process.common_metrics import PREFIX


class RecordMetrics(Collector):
    """Threads: any. Blocks: never. I/O: none."""

    def __init__(self, figures: Callable[[], Figures], is_leading: Callable[[], bool]) -> None:
        self._figures, self._is_leading = figures, is_leading

    def describe(self) -> Iterable[Metric]:
        return ()  # registering must not read anything

    def collect(self) -> Iterator[Metric]:
        found = self._figures()
        kept = found.is_kept and found.has_place and self._is_leading()
        for name, text, value in (
            ("kept", "1 on the leader while it keeps the record of allocations.", float(kept)),
            ("entries", "Replicas and copies of backing images in the record.", found.entries),
            ("unreadable", "Nodes whose record cannot be read.", len(found.unreadable)),
            (
                "unmatched",
                "Entries that no object shows yet, or shows with a smaller size.",
                found.waiting,
            ),
        ):
            yield GaugeMetricFamily(f"{PREFIX}_allocation_record_{name}", text, value=value)
        repairs = CounterMetricFamily(
            f"{PREFIX}_allocation_record_repairs", "Entries of the record that were repaired.", labels=("reason",)
        )
        for reason, count in found.repairs.items():
            repairs.add_metric((reason,), count)
        yield repairs
        for name, text, value in (
            ("writes", "Successful writes of the record.", found.writes),
            ("repair_failures", "Repairs of a node's record that could not be written.", found.failures),
        ):
            yield CounterMetricFamily(f"{PREFIX}_allocation_record_{name}", text, value=value)
