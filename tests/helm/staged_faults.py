"""Faults, each staged in the program itself, so that what an alert reads is what the program shows.

Each is a generator. It yields the pages as Prometheus would scrape them, brings the fault about, yields what goes on
happening until it is mended (or nothing), mends it, and ends. No time passes but by the stage's own clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from werkzeug.test import Client

from controller.admission.growth_path import TELL_AFTER
from controller.allocator.outcome import Mode, TurnStep, WaitReason
from controller.errors import ForbiddenError, UnavailableError
from controller.kube.resources import POLICIES, POLICY_BINDINGS
from controller.kube.store import Change
from controller.model.names import GATE, LEADER_ANSWERS, LEADER_IS_SILENT
from controller.placement.gate import GateFigures
from controller.placement.gate_policy import Enforcement
from controller.placement.metrics import PlacementMetrics
from controller.placement.placer import PlacementFigures
from controller.placement.plan_objects import PlanFigures
from controller.process.common_metrics import PREFIX, certificate_metrics
from controller.views.documents import Survival
from tests.fakes import view_documents
from tests.fakes.builders import GIB, disk, node, pod, replica
from tests.unit.assembly.processes import Page
from tests.unit.placement.gate_stage import GateCell, GateLeader
from tests.unit.placement.placer_stage import PlacerStage, turn
from tests.unit.placement.plan_stage import PlanSite, plan
from tests.unit.record.stage import RecordLeader, set_field
from tests.unit.webhook.stage import WebhookStage
from webhook.metrics import PREFIX as WEBHOOK

Scrape = Callable[[], Iterable[str]]  # a page for each process
Fault = Iterator[Any]  # first a Scrape, then what goes on, or None
DAY: Final = 86400.0


@dataclass(frozen=True, slots=True)
class Staged:
    """A fault, and the alert that it has to cause. `shows`: how its description words `$value`."""

    stage: Callable[[], Fault]
    shows: str = ""
    labels: Mapping[str, str] | None = None


def _page_of(registry: CollectorRegistry) -> Scrape:
    return lambda: [generate_latest(registry).decode()]


# The leader


def nobody_leads() -> Fault:
    page = Page()
    yield lambda: [page.text()]
    page.gate.close()
    yield None
    page.gate.renewed(page.cluster.clock.now(), page.cluster.clock.now_utc().timestamp(), float("inf"))
    page.gate.open()


def one_copy_is_left() -> Fault:
    pages = [Page(), Page()]
    yield lambda: [page.text() for page in pages]
    lost = pages.pop()
    yield None
    pages.append(lost)


def bypass() -> Fault:
    page = Page()
    yield lambda: [page.text()]
    page.controller.allocator.set_mode(Mode.BYPASS)
    yield None
    page.controller.allocator.set_mode(Mode.ACTIVE)


def a_watch_breaks() -> Fault:
    page = Page()
    informers = page.controller.stores.followed

    def list_but(kind: str = "") -> None:
        for name, informer in informers.items():
            if name != kind:
                informer._list()

    list_but()
    yield lambda: [page.text()]
    page.cluster.clock.advance(90)
    list_but("class")
    yield None
    list_but()


def an_object_is_odd() -> Fault:
    page = Page()
    store = page.controller.stores.by_kind["class"]
    yield lambda: [page.text()]
    store.replace([{"metadata": {"name": 3}}, {"metadata": {"name": "c"}, "provisioner": "p"}])
    yield None
    store.replace([])


def calls_are_malformed() -> Fault:
    page = Page()
    client = Client(page.controller.app)

    def call() -> None:
        assert 400 == client.post("/filter", data=b"{", content_type="application/json").status_code

    yield lambda: [page.text()]
    yield call


def a_rule_is_broken() -> Fault:
    page = Page()
    quarantine = page.controller.allocator._quarantine
    yield lambda: [page.text()]
    quarantine.put("ns/a", "a place of nobody", page.cluster.clock.now())
    yield None
    quarantine.release("ns/a")


def a_thread_fails() -> Fault:
    page = Page()
    (worker,) = page.controller.support.workers

    def fail() -> None:
        worker._failures += 5

    yield lambda: [page.text()]
    yield fail


def a_setting_is_wrong() -> Fault:
    page = Page()
    maps, lifecycle = page.controller.stores.config_maps, page.controller.lifecycle

    def put(value: str) -> None:
        name = "longhorn-scheduler-extender"
        data = {"scheduler-extender-enabled": "true", "scheduler-extender-max-offers": value}
        maps.replace([{"metadata": {"name": name, "namespace": "longhorn-system", "uid": "u"}, "data": data}])
        lifecycle.configured = lifecycle._read_settings()

    put("100")
    yield lambda: [page.text()]
    put("many")
    yield None
    put("100")


# Placement


def _placement(
    placer: Callable[[], PlacementFigures] = PlacementFigures,
    plans: Callable[[], PlanFigures] = PlanFigures,
    gate: Callable[[], GateFigures] | None = None,
) -> Scrape:
    """A page with the metrics of placement alone. Without a `gate`, of one that nobody looks at."""
    registry = CollectorRegistry()
    registry.register(PlacementMetrics(placer, plans, gate or GateLeader(GateCell()).gate.figures))
    return _page_of(registry)


def the_gates_policy_is_gone() -> Fault:
    cell = GateCell()
    leader = GateLeader(cell).settled()
    yield _placement(gate=leader.gate.figures)
    cell.drop(POLICIES)
    leader.go_on(120)
    yield None
    cell.put_policy(GATE)
    leader.go_on(120)


def the_gate_only_audits() -> Fault:
    leader = GateLeader(GateCell()).settled()
    yield _placement(gate=leader.gate.figures)
    leader.wanted = Enforcement.AUDIT
    leader.go_on(10)
    yield None
    leader.wanted = Enforcement.DENY
    leader.go_on(120)


def the_gates_binding_is_deleted() -> Fault:
    cell = GateCell()
    leader = GateLeader(cell).settled()
    yield _placement(gate=leader.gate.figures)
    cell.drop(POLICY_BINDINGS)
    leader.go_on(10)
    yield None


def others_place() -> Fault:
    page = Page()
    yield lambda: [page.text()]
    page.controller.allocator._journal.counters["foreign_placements"] += 3
    yield None


def a_copy_has_no_room() -> Fault:
    stage = PlacerStage()
    yield _placement(stage.placer.figures)
    stage.add("v-r-1", told=turn(TurnStep.WAIT, "v-r-1", WaitReason.NO_ROOM))
    stage.round()
    stage.clock.advance(90)
    stage.round()
    yield None
    stage.decides.turns.clear()
    stage.drop("v-r-1")
    stage.round(after_seconds=30)


def a_decision_fails() -> Fault:
    stage = PlacerStage()
    yield _placement(stage.placer.figures)
    stage.add("v-r-1", told=RuntimeError("odd"))
    stage.round()
    yield None
    stage.drop("v-r-1")
    stage.round()


def places_are_refused() -> Fault:
    stage = PlacerStage()
    yield _placement(stage.placer.figures)
    stage.refuse_places(ForbiddenError("403"))
    stage.add("v-r-1")

    def go_on() -> None:
        stage.round(after_seconds=60)

    yield go_on
    stage.drop("v-r-1")
    stage.round()


def plans_cannot_be_written() -> Fault:
    site = PlanSite()
    plans = site.leader("v0")
    yield _placement(plans=plans.figures)
    site.api.fail_with(UnavailableError("503"), "create", "replace", "patch")
    plans.put(plan("v1"))
    plans.run_once()
    yield None
    site.api.work()
    site.pass_time(plans, 60)


def a_shard_is_full() -> Fault:
    found = [PlanFigures()]
    yield _placement(plans=lambda: found[0])
    found[0] = PlanFigures(fullest_bytes=900_000)
    yield None
    found[0] = PlanFigures(fullest_bytes=1000)


def plans_end_by_time() -> Fault:
    page = Page()
    yield lambda: [page.text()]
    page.controller.allocator._journal.counters["plans_expired"] += 2
    yield None


def the_record_is_damaged() -> Fault:
    leader = RecordLeader()
    yield _page_of(leader.registry)
    set_field(leader.api, leader.backend, "n2", {"n2-d1": {"replicas": {"r1": 10, "r2": "x"}}})
    leader.round()
    yield None
    leader.round()
    leader.see()


# Scheduling


WAITER: Final = pod("a", scheduler_name="default-scheduler", lacks_extender=True)


def a_scheduler_is_not_wired() -> Fault:
    page = Page()
    proof = page.controller.proof
    proof._is_serving = True
    proof.begin()
    yield lambda: [page.text()]
    proof.pods_changed([Change("ns/a", None, WAITER)])
    yield None
    proof.pods_changed([Change("ns/a", WAITER, None)])
    proof.end()
    proof.begin()


def wiring_is_unknown() -> Fault:
    page = Page()
    proof = page.controller.proof
    yield lambda: [page.text()]
    proof.begin()
    yield None
    proof.end()


def pods_are_stuck() -> Fault:
    page = Page()
    stuck = page.controller.admission.stuck
    yield lambda: [page.text()]
    stuck.pods_changed([Change("ns/a", None, WAITER)])
    yield None
    stuck.pods_changed([Change("ns/a", WAITER, None)])


def pods_are_missed() -> Fault:
    page = Page()
    found = dict[str, int]()
    page.controller.admission.missed.by_scheduler = lambda: dict(found)  # type: ignore[method-assign]
    yield lambda: [page.text()]
    found["gpu"] = 4
    yield None
    found.clear()


def a_pod_finds_no_room() -> Fault:
    page = Page()
    yield lambda: [page.text()]
    page.cluster.add_pod("large", gib=100_000)
    page.cluster.filter("large", "n1")
    yield None
    page.cluster.drop_pod("large")


def choices_are_late() -> Fault:
    page = Page()
    page.cluster.add_pod("a", gib=10)
    yield lambda: [page.text()]
    page.cluster.filter("a", "n1")
    page.cluster.clock.advance(45)
    yield None
    page.cluster.change_pod("a", node_name="n1")


# Disks


def a_disk_is_over() -> Fault:
    page = Page()
    page.cluster.put_node(node("n1", disk("d1", 100)))
    yield lambda: [page.text()]
    page.controller.allocator.observe_replica("r", replica("r", "v", 150, on="n1", disk_name="d1"))
    yield None
    page.controller.allocator.observe_replica("r", None)


def disks_share_a_uuid() -> Fault:
    page = Page()
    yield lambda: [page.text()]
    for name in ("n1", "n2"):
        page.cluster.add_node(name)
        clone = node(name, disk("d1", 100))
        page.cluster.put_node(replace(clone, disks=(replace(clone.disks[0], uuid="same"),)))
    yield None
    page.cluster.put_node(node("n2", disk("d1", 100)))


def a_node_cannot_be_lost() -> Fault:
    page = Page()
    gauges, missing = page.controller.gauges, [0]

    def look() -> None:
        survival = Survival("n1", not missing[0], 3, 30 * GIB, (), (), missing[0])
        gauges._capacity = lambda: view_documents.capacity([view_documents.disk("n1")], survival=survival)
        gauges._capacity_at = 0.0  # the minute is over
        gauges.run_once()

    look()
    yield lambda: [page.text()]
    missing[0] = 10 * GIB
    look()
    yield None
    missing[0] = 0
    look()


# Certificates


class _Certificates(Collector):
    """As both programs show theirs."""

    def __init__(self, prefix: str) -> None:
        self.registry, self._prefix = CollectorRegistry(), prefix
        self.ends = {"server": 89 * DAY, "webhook-ca": 300 * DAY}
        self.problems = 0
        self.registry.register(self)

    def collect(self) -> Iterator[Metric]:
        return certificate_metrics(self._prefix, self.ends, self.problems, {})


def _ends_in(prefix: str, name: str, left_seconds: float, renewed_seconds: float) -> Fault:
    made = _Certificates(prefix)
    yield _page_of(made.registry)
    made.ends[name] = left_seconds
    yield None
    made.ends[name] = renewed_seconds


def a_certificate_is_not_renewed() -> Fault:
    return _ends_in(WEBHOOK, "server", 19 * DAY, 90 * DAY)


def an_authority_is_not_renewed() -> Fault:
    return _ends_in(PREFIX, "webhook-ca", 50 * DAY, 365 * DAY)


def a_certificate_ends() -> Fault:
    return _ends_in(PREFIX, "server", 3600.0, 90 * DAY)


def a_secret_is_damaged() -> Fault:
    made = _Certificates(WEBHOOK)
    yield _page_of(made.registry)
    made.problems = 1
    yield None
    made.problems = 0


# Growth and webhook


def the_leader_is_silent() -> Fault:
    page = Page()
    path = page.controller.admission.growth_path
    path._is_asked = lambda: True
    said = [LEADER_ANSWERS]

    def fail(_verb: str, _resource: object) -> None:
        raise ForbiddenError(f"403: denied the request: {said[0]}")

    page.api.fail = fail
    yield lambda: [page.text()]
    said[0] = LEADER_IS_SILENT
    for _ in range(TELL_AFTER):
        path.run_once()
    yield None
    said[0] = LEADER_ANSWERS
    path.run_once()


def volumes_grow_unchecked() -> Fault:
    stage = WebhookStage()
    yield _page_of(stage.webhook.metrics.registry)
    stage.webhook.metrics.expansion_reviewed("claim", "allowed-unchecked", 3.5)
    yield None


def the_webhook_is_gone() -> Fault:
    pages = [WebhookStage().webhook.metrics.registry]
    yield lambda: [generate_latest(one).decode() for one in pages]
    lost = pages.pop()
    yield None
    pages.append(lost)


def a_review_fails() -> Fault:
    stage = WebhookStage()
    yield _page_of(stage.webhook.metrics.registry)
    stage.webhook.metrics.failed("mutate-pods", "internal")
    yield None


def the_webhook_is_skipped() -> Fault:
    """The API server's own metric, which it shows from the first time on."""
    count = [0]

    def page() -> list[str]:
        name = "apiserver_admission_webhook_fail_open_count"
        return [f'{name}{{name="pods.scheduling.longhorn.io",type="admit"}} {count[0]}\n']

    def skip() -> None:
        count[0] += 6

    yield page
    yield skip


def the_configuration_is_contested() -> Fault:
    page = Page()
    yield lambda: [page.text()]
    page.controller.admission.reconciler.repairs += 5
    yield None


def the_configuration_cannot_be_written() -> Fault:
    page = Page()

    def fail() -> None:
        page.controller.admission.reconciler.failures += 3

    yield lambda: [page.text()]
    yield fail


FAULTS: Final[Mapping[str, tuple[Staged, ...]]] = {
    "NobodyLeads": (Staged(nobody_leads),),
    "TooFewCopies": (Staged(one_copy_is_left, "1"),),
    "Bypassed": (Staged(bypass, labels={"mode": "bypass"}),),
    "StoreStale": (Staged(a_watch_breaks, "1m 30s", {"kind": "class"}),),
    "BadObjects": (Staged(an_object_is_odd, "1", {"kind": "class"}),),
    "CallsFail": (Staged(calls_are_malformed, "16.67m", {"kind": "malformed"}),),
    "Quarantined": (Staged(a_rule_is_broken, "1"),),
    "WorkerFails": (Staged(a_thread_fails, "83.33m", {"worker": "support"}),),
    "SettingsProblem": (Staged(a_setting_is_wrong, "1"),),
    "GateOpen": (Staged(the_gates_policy_is_gone),),
    "GateNotEnforced": (Staged(the_gate_only_audits, labels={"state": "audit"}),),
    "GateMended": (Staged(the_gates_binding_is_deleted, "1"),),
    "ForeignPlacements": (Staged(others_place, "3"),),
    "CopyHeld": (Staged(a_copy_has_no_room, "1m 30s", {"reason": "no-room"}),),
    "PlacementFault": (Staged(a_decision_fails, "1"),),
    "PlacementsFail": (Staged(places_are_refused, "16.67m"),),
    "PlansUnwritten": (Staged(plans_cannot_be_written, "1"),),
    "PlansNearlyFull": (Staged(a_shard_is_full, "878.9ki"),),
    "PlansExpire": (Staged(plans_end_by_time, "2"),),
    "RecordFails": (Staged(the_record_is_damaged, "1"),),
    "NotWired": (Staged(a_scheduler_is_not_wired, labels={"scheduler": "default-scheduler"}),),
    "WiringUnknown": (Staged(wiring_is_unknown, labels={"scheduler": "default-scheduler"}),),
    "StuckPods": (Staged(pods_are_stuck, "1"),),
    "MissedPods": (Staged(pods_are_missed, "4", {"scheduler": "gpu"}),),
    "NoRoom": (Staged(a_pod_finds_no_room, "1"),),
    "ChoicesLate": (Staged(choices_are_late, "45s"),),
    "DisksOver": (Staged(a_disk_is_over, "1"),),
    "NodeLossNotSurvived": (Staged(a_node_cannot_be_lost),),
    "SharedDiskUUIDs": (Staged(disks_share_a_uuid, "1"),),
    "CertificateEnds": (
        Staged(a_certificate_is_not_renewed, "19d 0h 0m 0s", {"name": "server"}),
        Staged(an_authority_is_not_renewed, "50d 0h 0m 0s", {"name": "webhook-ca"}),
    ),
    "CertificateExpired": (Staged(a_certificate_ends, "1h 0m 0s", {"name": "server"}),),
    "CertificateProblem": (Staged(a_secret_is_damaged, "1"),),
    "GrowthUnchecked": (Staged(the_leader_is_silent),),
    "GrowthAllowedUnchecked": (Staged(volumes_grow_unchecked, "1"),),
    "WebhookGone": (Staged(the_webhook_is_gone),),
    "WebhookFails": (Staged(a_review_fails, "1", {"route": "mutate-pods"}),),
    "WebhookSkipped": (Staged(the_webhook_is_skipped, "100m", {"name": "pods.scheduling.longhorn.io"}),),
    "WebhookConfigurationContested": (Staged(the_configuration_is_contested, "5"),),
    "WebhookConfigurationFails": (Staged(the_configuration_cannot_be_written, "50m"),),
}
