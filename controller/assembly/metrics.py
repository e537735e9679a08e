"""Prometheus metrics: four of the enhancement text "Longhorn Scheduler Extender", with its names, types and labels,
and our own.

The registry is built where the process is assembled; nothing registers at import. No label has the name of a pod, a
claim or a volume. Gauges are read from the allocator's snapshot at the moment of a scrape, so they cannot drift.

What the four mean here, where nothing waits inside a filter call:

- `heartbeat{node}`: 1 on the leader, 0 on the others;
- `filter_duration_seconds`: from the decoding of a request to the end of its answer;
- `pod_scheduling_wait_duration_seconds{pod_scheduled}`: from the answer to the cluster's choice of a node (true), or
  to the end of the hold without one (false);
- `node_reservation_duration_seconds{replicas_scheduled}`: from that choice to the replica's placement (true), or to the
  plan's end by time (false).
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from controller.allocator.outcome import Decision, Mode, TableView
from controller.allocator.plans.journal import NODE_RESERVATION, SCHEDULING_WAIT
from controller.assembly.certificates import CertificateWorker
from controller.canary.proof import Finding, Wiring
from controller.process.common_metrics import PREFIX, certificate_metrics
from controller.rules.reasons import Reason

_CALL_BUCKETS: Final = (0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_WAIT_BUCKETS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0)
_ENDED: Final = "holds_ended_"
_HOWS: Final = ("answer_lost", "expired", "filtered_again", "pod_gone")
_TOTALS: Final = (  # metric, the allocator's counter, help
    ("plans_expired", "plans_expired", "Plans that ended by time although a node had been chosen."),
    ("kept_rooms_expired", "ended_kept-room", "Rooms kept for a waiting pod that ended by time."),
    ("nominations_expired", "ended_nomination", "Holds of pods nominated by preemption that ended by time."),
    ("expansion_holds_expired", "expansions_expired", "Admitted expansions that never appeared in the cluster."),
    ("expansions_impossible", "claims_grows-too-far", "Claims found to request more than their volume can ever have."),
    (
        "expansions_put_off",
        "expansions_put_off",
        "Expansions that fit but have to be requested again because the leader had just changed.",
    ),
    (
        "foreign_placements",
        "foreign_placements",
        "Replicas whose first node somebody else than the leader wrote, but for those that it left to Longhorn.",
    ),
    (
        "left_placements",
        "foreign_placements_left",
        "Replicas that Longhorn was free to place, because the leader left them to it or had only just begun.",
    ),
    ("holds_given_up", "holds_given_up", "Replicas without room that were left to Longhorn after five minutes."),
    (
        "plans_moved",
        "plans_moved",
        "Planned copies that were planned on another disk, because theirs took them no more.",
    ),
    ("plans_lost", "plans_lost", "Times that a planned copy lost its disk, and no other one took it."),
    (
        "places_illegal",
        "places_illegal",
        "Places that one function chose and the other one found illegal: a fault of this program.",
    ),
)
FAILURES: Final = ("malformed", "too-large", "not-ready", "pod", "client-gone", "internal")


class LeaderMetrics(Collector):
    """Counts events and times them. `show` adds what each scrape reads elsewhere.

    Threads: any. Blocks: never. I/O: none.
    """

    def __init__(
        self, registry: CollectorRegistry, version: str, drain_records: Callable[[], Iterable[tuple[str, float, bool]]]
    ) -> None:
        """`drain_records` returns what the allocator has recorded since the last call."""
        self.registry = registry
        self._drain_records = drain_records
        self._shown: Callable[[], Iterable[Metric]] = tuple
        registry.register(self)  # first, so that a scrape shows in the histograms what it takes
        self._filter = Histogram(
            f"{PREFIX}_filter_duration_seconds",
            "Time from the decoding of a request to the end of its answer.",
            buckets=_CALL_BUCKETS,
            registry=registry,
        )
        self._waits = Histogram(
            f"{PREFIX}_pod_scheduling_wait_duration_seconds",
            "Time from the answer to the choice of a node (pod_scheduled=true), or to the end of the hold (false).",
            ("pod_scheduled",),
            buckets=_WAIT_BUCKETS,
            registry=registry,
        )
        self._reservations = Histogram(
            f"{PREFIX}_node_reservation_duration_seconds",
            "Time from the choice of a node until the volume's replica is placed (replicas_scheduled=true), or until "
            "the plan ended by time (false).",
            ("replicas_scheduled",),
            buckets=_WAIT_BUCKETS,
            registry=registry,
        )
        self._choice_lag = self._gauge(
            "choice_lag_seconds", "Time from the answer to the choice of a node, for the latest choice."
        )
        self._decisions = self._counter("decisions", "Filter calls by decision.", "decision")
        self._refusals = self._counter("refusals", "Nodes refused, by reason.", "reason")
        self._preemptions = self._counter(
            "preemption_candidates", "Nodes that preemption considered, by whether they would have had room.", "kept"
        )
        self._failures = self._counter("failures", "Calls answered by an error, by kind.", "kind")
        self._waited = self._counter("contention_waits", "Filter calls that waited for other pods' holds to end.")
        self._waited_seconds = self._counter("contention_wait_seconds", "Time spent in those waits.")
        self._bounded = self._counter("bounded", "Filter calls that reached a limit of time or steps.")
        self._expose_labels(version)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"{PREFIX}_{name}_total", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"{PREFIX}_{name}", text, labels, registry=self.registry)

    def _expose_labels(self, version: str) -> None:
        """Makes every series exist from the start, at zero, so that rates and alerts work for the first event."""
        for value in ("true", "false"):
            self._waits.labels(value)
            self._reservations.labels(value)
        for decision in Decision:
            self._decisions.labels(decision.value)
        for reason in Reason:
            self._refusals.labels(reason.value)
        for kind in FAILURES:
            self._failures.labels(kind)
        build = self._gauge(
            "build_info", "Always 1; the labels name the versions of the product and of Python.", "version", "python"
        )
        build.labels(version, platform.python_version()).set(1)

    # Events

    def filter_answered(self, seconds: float) -> None:
        self._filter.observe(seconds)

    def decided(self, decision: Decision, reasons: Mapping[Reason, int], is_bounded: bool) -> None:
        self._decisions.labels(decision.value).inc()
        for reason, count in reasons.items():
            self._refusals.labels(reason.value).inc(count)
        if is_bounded:
            self._bounded.inc()

    def preempted(self, kept: int, dropped: int) -> None:
        self._preemptions.labels("true").inc(kept)
        self._preemptions.labels("false").inc(dropped)

    def contention_waited(self, seconds: float) -> None:
        self._waited.inc()
        self._waited_seconds.inc(seconds)

    def failed(self, kind: str) -> None:
        self._failures.labels(kind).inc()

    def drain(self) -> None:
        """Takes the durations that the allocator recorded under its lock; called outside of it."""
        for name, seconds, success in self._drain_records():
            label = "true" if success else "false"
            if name == SCHEDULING_WAIT:
                self._waits.labels(label).observe(seconds)
                if success:
                    self._choice_lag.set(seconds)
            elif name == NODE_RESERVATION:
                self._reservations.labels(label).observe(seconds)

    # A scrape

    def show(self, read: Callable[[], Iterable[Metric]]) -> None:
        """Has each scrape also show what `read` yields, which is quick and takes no lock but its owner's."""
        self._shown = read

    def describe(self) -> Iterable[Metric]:
        return ()  # registering must not read anything

    def collect(self) -> Iterator[Metric]:
        self.drain()
        yield from self._shown()


def of_process(
    node: str, is_leading: bool, wakeups: tuple[int, int], settings_problems: int, dropped: int
) -> Iterator[Metric]:
    """`wakeups`: sent, and failed. `dropped`: Events that were never written."""
    heartbeat = GaugeMetricFamily(
        f"{PREFIX}_heartbeat",
        "1 on the leader, 0 on the other controllers; the label names the node.",
        labels=("node",),
    )
    heartbeat.add_metric((node,), 1.0 if is_leading else 0.0)
    yield heartbeat
    sent, failed = wakeups
    yield _total("wakeups", "Refused pods that were woken, so that kube-scheduler tries them again.", sent)
    yield _total("wakeup_failures", "Wake-ups that failed at the API server.", failed)
    yield _total("events_dropped", "Events that were not written: too many, or not taken by the API server.", dropped)
    text = "Settings that are not used because their value or name is wrong."
    yield _one("settings_problems", text, settings_problems)


def of_certificates(certificates: Iterable[CertificateWorker], handshakes: Mapping[str, int]) -> Iterator[Metric]:
    """`handshakes`: how many, by outcome."""
    workers = tuple(certificates)
    ends = {name: seconds for one in workers for name, seconds in one.expiries().items()}
    return certificate_metrics(PREFIX, ends, sum(len(one.problems) for one in workers), handshakes)


def of_snapshot(snapshot: TableView) -> Iterator[Metric]:
    modes = GaugeMetricFamily(f"{PREFIX}_mode", "1 for what the process does with filter calls.", labels=("mode",))
    for mode in Mode:
        modes.add_metric((mode.value,), float(mode is snapshot.mode))
    yield modes
    counts = GaugeMetricFamily(
        f"{PREFIX}_holds", "Volumes by node and state: held before a node is chosen, planned after.", labels=("state",)
    )
    sizes = GaugeMetricFamily(f"{PREFIX}_hold_bytes", "Their bytes by state.", labels=("state",))
    for state, count, size in (
        ("held", snapshot.held_count, snapshot.held_bytes),
        ("planned", snapshot.planned_count, snapshot.planned_bytes),
    ):
        counts.add_metric((state,), count)
        sizes.add_metric((state,), size)
    yield counts
    yield sizes
    yield _one(
        "oldest_hold_seconds",
        "Age of the oldest answer for which no node has been chosen.",
        snapshot.oldest_hold_seconds,
    )
    yield _one("refused_pods", "Refused pods that wait for room.", snapshot.refused_count)
    yield _one("disks_over", "Disks that hold more than their limit.", len(snapshot.disks_over))
    over_bytes = sum(one.over_bytes for one in snapshot.disks_over)
    yield _one("disks_over_bytes", "Bytes by which disks exceed their limits.", over_bytes)
    yield _one("shared_disk_uuids", "UUIDs that several disks have.", len(snapshot.shared_disks))
    yield _one(
        "quarantined", "Pods and claims in quarantine, which are answered by an error.", len(snapshot.quarantined)
    )
    ended = CounterMetricFamily(
        f"{PREFIX}_holds_ended", "Pods whose holds ended before a node was chosen, by how they ended.", labels=("how",)
    )
    seen = {name.removeprefix(_ENDED): count for name, count in snapshot.counters.items() if name.startswith(_ENDED)}
    for how, count in sorted({**dict.fromkeys(_HOWS, 0), **seen}.items()):
        ended.add_metric((how.replace("_", "-"),), count)
    yield ended
    for name, counter, text in _TOTALS:
        yield _total(name, text, snapshot.counters.get(counter, 0))


def of_wiring(findings: Iterable[Finding], canaries: Mapping[str, int], late_calls: int) -> Iterator[Metric]:
    """`canaries`: how many, by outcome."""
    wiring = GaugeMetricFamily(
        f"{PREFIX}_wiring",
        "1 for the state of the scheduler: whether it asks the extender. Only on the leader.",
        labels=("scheduler", "state"),
    )
    for finding in findings:
        for state in Wiring:
            wiring.add_metric((finding.scheduler, state.value), 1.0 if finding.state is state else 0.0)
    yield wiring
    sent = CounterMetricFamily(f"{PREFIX}_canaries", "Canary pods by outcome.", labels=("outcome",))
    for outcome, count in sorted(canaries.items()):
        sent.add_metric((outcome,), count)
    yield sent
    yield _total("canary_late_calls", "Filter calls about a canary that was no longer needed.", late_calls)


def of_admission(figures: Mapping[str, float], missed: Mapping[str, int]) -> Iterator[Metric]:
    """`figures`: of the webhook configurations. `missed`: pods, by scheduler."""
    text = "Pods with Longhorn volumes that nobody checks, by the scheduler that they name."
    gauge = GaugeMetricFamily(f"{PREFIX}_missed_pods", text, labels=("scheduler",))
    for scheduler, count in missed.items():
        gauge.add_metric((scheduler,), count)
    yield gauge
    for name, text in (
        ("opt_in", "1 while new pods opt in automatically."),
        ("stuck_pods", "Pending pods whose scheduler looks for the extender's resource on the nodes."),
        ("growth_unchecked", "1 on the leader while the webhook's questions about growth do not reach it."),
    ):
        yield _one(name, text, figures[name])
    for name, text in (
        ("writes", "Writes of webhook configurations."),
        ("repairs", "Writes of webhook configurations that undid another writer's change."),
        ("failures", "Reads and writes of webhook configurations that failed."),
    ):
        yield _total(f"webhook_configuration_{name}", text, figures[name])


def _one(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"{PREFIX}_{name}", text, value=value)


def _total(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(f"{PREFIX}_{name}", text, value=value)
