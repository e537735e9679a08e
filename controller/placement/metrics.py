"""Prometheus metrics of placement. No label has the name of a replica, a volume or a node."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from controller.allocator.outcome import REASONS
from controller.placement.gate import GateFigures, GateState
from controller.placement.placer import PlacementFigures
from controller.placement.plan_objects import PlanFigures
from controller.placement.writes import PlacementOutcome
from controller.process.common_metrics import PREFIX


class PlacementMetrics(Collector):
    """Threads: any. Blocks: never. I/O: none."""

    def __init__(
        self,
        placer: Callable[[], PlacementFigures],
        plans: Callable[[], PlanFigures],
        gate: Callable[[], GateFigures],
    ) -> None:
        self._placer, self._plans, self._gate = placer, plans, gate

    def describe(self) -> Iterable[Metric]:
        return ()  # so that registration reads nothing

    def collect(self) -> Iterator[Metric]:
        yield from _of_placer(self._placer())
        yield from _of_plans(self._plans())
        yield from _of_gate(self._gate())


def _of_placer(found: PlacementFigures) -> Iterator[Metric]:
    text = "Tries to place a Replica without a disk."
    outcomes = {one.value: found.outcomes.get(one.value, 0) for one in PlacementOutcome}
    yield _family(CounterMetricFamily, "replica_placements", text, "outcome", outcomes)
    text = "Replicas without a disk that the leader is to place."
    reasons = {one: found.waiting.get(one, 0) for one in REASONS}
    yield _family(GaugeMetricFamily, "replica_placement_waiting", text, "reason", reasons)
    text = "How long one of these Replicas has waited for that reason at most."
    oldest = {one: found.oldest.get(one, 0.0) for one in REASONS}
    yield _family(GaugeMetricFamily, "replica_placement_oldest_seconds", text, "reason", oldest)


def _of_plans(found: PlanFigures) -> Iterator[Metric]:
    for name, text, value in (
        ("plans", "Plans in the leader's memory.", found.plans),
        ("plan_holds", "Answers in the leader's memory that stand beside the plans.", found.holds),
        ("plans_unwritten", "Plans and holds that no ConfigMap has, as yet or for good.", found.unwritten),
        ("plan_config_maps", "ConfigMaps for plans and holds that are known to exist.", found.shards),
        ("plan_bytes", "Keys and values in these ConfigMaps.", found.size_bytes),
        ("plan_fullest_bytes", "Keys and values in the fullest of them.", found.fullest_bytes),
        ("plan_last_commit_seconds", "How long the last writes of them took.", found.last_commit_seconds),
    ):
        yield GaugeMetricFamily(f"{PREFIX}_{name}", text, value)
    for name, text, value in (
        ("plan_commits", "ConfigMaps with plans and holds that were written.", found.commits),
        ("plan_commit_failures", "Writes of them that failed.", found.failures),
        ("plans_overwritten", "Plans and holds that others damaged, changed or removed.", found.overwritten),
    ):
        yield CounterMetricFamily(f"{PREFIX}_{name}", text, value)


def _of_gate(found: GateFigures) -> Iterator[Metric]:
    text = "1 for the state of the policy by which only the leader gives Replicas their first disk."
    states = {one.value: float(one is found.state) for one in GateState}
    yield _family(GaugeMetricFamily, "gate_state", text, "state", states)
    text = "Times that the leader told the gate that it lives."
    renewals = {"done": found.renewals, "failed": found.failed_renewals}
    yield _family(CounterMetricFamily, "gate_renewals", text, "outcome", renewals)
    text = "Dry runs that the gate has to refuse, by what became of them."
    yield _family(CounterMetricFamily, "gate_proofs", text, "outcome", found.proofs)
    text = "Times that somebody else changed the gate and the leader undid it."
    yield CounterMetricFamily(f"{PREFIX}_gate_mended", text, found.mended)


def _family(
    kind: type[CounterMetricFamily | GaugeMetricFamily], name: str, text: str, label: str, values: Mapping[str, float]
) -> Metric:
    family = kind(f"{PREFIX}_{name}", text, labels=(label,))
    for value, count in values.items():
        family.add_metric((value,), count)
    return family
