"""What placement tells Prometheus. Labels never carry the name of a replica, a volume or a node."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from controller.allocator.outcome import REASONS
from controller.placement.gate import GateFigures, GateState
from controller.placement.placer import PlacementFigures, PlacementOutcome
from controller.placement.plan_objects import PlanFigures
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


class PlanMetrics(Collector):
    """Threads: any. Blocks: never. I/O: none."""

    def __init__(self, figures: Callable[[], PlanFigures]) -> None:
        self._figures = figures

    def describe(self) -> Iterable[Metric]:
        return ()  # registering must not read anything

    def collect(self) -> Iterator[Metric]:
        found = self._figures()
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


class GateMetrics(Collector):
    """Threads: any. Blocks: never. I/O: none."""

    def __init__(self, figures: Callable[[], GateFigures]) -> None:
        self._figures = figures

    def describe(self) -> Iterable[Metric]:
        return ()  # registering must not read anything

    def collect(self) -> Iterator[Metric]:
        found = self._figures()
        state = GaugeMetricFamily(
            f"{PREFIX}_gate_state",
            "1 for the state of the policy by which only the leader gives Replicas their first disk.",
            labels=("state",),
        )
        for one in GateState:
            state.add_metric((one.value,), 1.0 if one is found.state else 0.0)
        yield state
        renewals = CounterMetricFamily(
            f"{PREFIX}_gate_renewals", "Times that the leader told the gate that it lives.", labels=("outcome",)
        )
        renewals.add_metric(("done",), found.renewals)
        renewals.add_metric(("failed",), found.failed_renewals)
        yield renewals
        proofs = CounterMetricFamily(
            f"{PREFIX}_gate_proofs",
            "Dry runs that the gate has to refuse, by what became of them.",
            labels=("outcome",),
        )
        for proof, count in found.proofs.items():
            proofs.add_metric((proof.value,), count)
        yield proofs
        yield CounterMetricFamily(
            f"{PREFIX}_gate_mended", "Times that somebody else changed the gate and the leader undid it.", found.mended
        )
