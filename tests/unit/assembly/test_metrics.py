"""The metrics page, read back with Prometheus' own text parser, over the whole process."""

from __future__ import annotations

import urllib.request
from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from werkzeug.test import Client

from controller.allocator.outcome import Decision
from controller.allocator.plans.growths import HOLD_SECONDS
from controller.allocator.plans.journal import NODE_RESERVATION
from controller.allocator.plans.nominations import APPROVAL_SECONDS
from controller.allocator.verbs.grow import GrowthRequest
from controller.allocator.waiting.kept_room import KEPT_SECONDS
from controller.assembly.gauges import Gauges, page_of
from controller.assembly.metrics import LeaderMetrics
from controller.errors import ConfigError
from controller.process.common_metrics import PREFIX
from controller.process.status_port import StatusServer, create_metrics_app
from controller.rules.reasons import Reason
from controller.views.documents import Capacity, Survival
from controller.views.overview import disk_views
from tests.fakes import view_documents
from tests.fakes.builders import GIB, TestCluster, disk
from tests.fakes.builders import node as make_node
from tests.unit.assembly.processes import Page

PROPOSAL = {
    f"{PREFIX}_heartbeat": ("gauge", {"node"}),
    f"{PREFIX}_filter_duration_seconds": ("histogram", set()),
    f"{PREFIX}_pod_scheduling_wait_duration_seconds": ("histogram", {"pod_scheduled"}),
    f"{PREFIX}_node_reservation_duration_seconds": ("histogram", {"replicas_scheduled"}),
}


@pytest.fixture
def page() -> Page:
    return Page()


def test_the_four_metrics_of_the_enhancement_have_their_names_types_and_labels(page: Page) -> None:
    families = page.families()
    for name, (kind, labels) in PROPOSAL.items():
        assert families[name].type == kind
        assert {label for sample in families[name].samples for label in sample.labels} - {"le"} == labels


def test_the_heartbeat_names_the_leaders_node_and_is_zero_elsewhere(page: Page) -> None:
    assert page.value("heartbeat", node="worker-1") == 1
    page.gate.close()
    assert page.value("heartbeat", node="worker-1") == 0


def test_the_wiring_of_a_scheduler_is_one_of_three_states_and_nothing_without_a_finding(page: Page) -> None:
    name = f"{PREFIX}_wiring"
    assert [] == page.families()[name].samples
    page.controller.proof.begin()
    page.controller.prover.outcomes["seen"] = 4
    samples = page.families()[name].samples
    assert {"unwired": 0, "wired": 0, "unknown": 1} == {s.labels["state"]: s.value for s in samples}
    assert {"default-scheduler"} == {sample.labels["scheduler"] for sample in samples}
    assert [4, 0] == [page.value("canaries_total", outcome=outcome) for outcome in ("seen", "lacking")]


def test_holds_are_counted_with_their_bytes_and_their_age(page: Page) -> None:
    page.cluster.add_pod("a", gib=100)
    page.cluster.filter("a", "n1")
    page.cluster.clock.advance(1.5)
    assert page.value("holds", state="held") == 1
    assert page.value("hold_bytes", state="held") == 100 * GIB
    assert page.value("oldest_hold_seconds") == 1.5
    page.cluster.change_pod("a", node_name="n1")
    assert page.value("holds", state="held") == 0
    assert page.value("hold_bytes", state="planned") == 100 * GIB
    assert page.value("pod_scheduling_wait_duration_seconds_count", pod_scheduled="true") == 1
    assert page.value("pod_scheduling_wait_duration_seconds_sum", pod_scheduled="true") == 1.5
    assert page.value("choice_lag_seconds") == 1.5


def test_an_expired_hold_counts_as_not_scheduled_and_every_end_is_there_before_the_first_one(page: Page) -> None:
    for how in ("answer-lost", "expired", "filtered-again", "pod-gone"):
        assert page.value("holds_ended_total", how=how) == 0
    page.cluster.add_pod("a")
    page.cluster.filter("a", "n1")
    page.cluster.clock.advance(6)
    (due,) = page.cluster.allocator.due()
    page.cluster.allocator.expire(due)
    assert page.value("pod_scheduling_wait_duration_seconds_count", pod_scheduled="false") == 1
    assert page.value("holds_ended_total", how="expired") == 1


def test_expansions_that_were_never_seen_or_put_off_after_a_change_of_leader_are_counted(page: Page) -> None:
    name, allocator = page.cluster.add_volume("a"), page.cluster.allocator
    allocator.expansions.hold(GrowthRequest(name, 200 * GIB))
    assert page.value("expansion_holds_expired_total") == 0
    page.cluster.clock.advance(HOLD_SECONDS)
    page.cluster.expire_growth(name)
    allocator.begin_term()
    allocator.expansions.hold(GrowthRequest(name, 200 * GIB))
    assert [1, 1] == [page.value(f"expansion{name}_total") for name in ("_holds_expired", "s_put_off")]


def test_room_that_is_kept_for_a_pod_until_its_time_is_over_is_counted(page: Page) -> None:
    for node in ("n1", "n2", "n3"):
        page.cluster.add_node(node, free_gib=100)
    claim = page.cluster.add_claim("job", 100)
    page.cluster.set_claim(replace(claim, owner_pod_uid="pod-job"))
    page.cluster.add_pod("job")
    page.cluster.run("job", "job", "n1")
    for name in ("n2", "n3"):
        page.cluster.add_pod(f"on-{name}", gib=50)
        page.cluster.run(f"on-{name}", f"on-{name}", name, 50)
    page.cluster.add_pod("large", gib=100)
    page.cluster.filter("large", "n1", "n2", "n3")
    page.cluster.clock.advance(page.cluster.live.starvation_after_seconds)
    page.cluster.plan_wakeups()
    assert page.value("kept_rooms_expired_total") == 0

    page.cluster.clock.advance(KEPT_SECONDS)
    page.cluster.allocator.sweep()
    assert page.value("kept_rooms_expired_total") == 1


def test_a_nomination_that_came_to_nothing_is_counted(page: Page) -> None:
    page.cluster.add_pod("p")
    page.cluster.allocator.nodes_with_room(page.cluster.pods["p"].uid, ["n1"])
    page.cluster.change_pod("p", nominated_node="n1")
    assert page.value("nominations_expired_total") == 0
    page.cluster.clock.advance(APPROVAL_SECONDS)
    page.cluster.allocator.sweep()
    assert page.value("nominations_expired_total") == 1


def test_a_planned_copy_that_is_placed_and_one_that_is_not_are_timed(page: Page) -> None:
    records = iter([(NODE_RESERVATION, 2.0, True), (NODE_RESERVATION, 9.0, False)])
    registry = CollectorRegistry()
    LeaderMetrics(registry, "1.2.3", lambda: records)
    for label, seconds in (("true", 2.0), ("false", 9.0)):
        name = f"{PREFIX}_node_reservation_duration_seconds_sum"
        assert seconds == registry.get_sample_value(name, {"replicas_scheduled": label})


def test_decisions_refusals_waits_and_failures_are_counted(page: Page) -> None:
    page.metrics.decided(Decision.REFUSED, {Reason.TOO_FULL: 3, Reason.NODE_TAGS: 1}, True)
    page.metrics.contention_waited(0.25)
    page.metrics.failed("malformed")
    page.metrics.filter_answered(0.004)

    assert page.value("decisions_total", decision="refused") == 1
    assert page.value("decisions_total", decision="offered") == 0
    assert page.value("refusals_total", reason="DiskPressure") == 3
    assert page.value("bounded_total") == 1
    assert page.value("contention_waits_total") == 1
    assert page.value("contention_wait_seconds_total") == 0.25
    assert page.value("failures_total", kind="malformed") == 1
    assert page.value("filter_duration_seconds_bucket", le="0.005") == 1
    assert page.value("filter_duration_seconds_bucket", le="0.002") == 0


def test_stores_and_wakeups_are_shown(page: Page) -> None:
    store = page.controller.stores.by_kind["class"]
    store.replace([{"metadata": {"name": "c"}, "provisioner": "p"}, {"metadata": {"name": 3}}])
    page.controller.waker.woken, page.controller.waker.failed = 3, 1
    assert [0, 1, 1] == [page.value(name, kind="class") for name in ("store_synced", "store_objects", "bad_objects")]
    store.synced.set()
    assert 1 == page.value("store_synced", kind="class")
    assert [3, 1, 0] == list(map(page.value, ("wakeups_total", "wakeup_failures_total", "settings_problems")))


def test_the_page_tells_of_the_process_and_not_when_series_began(page: Page) -> None:
    assert page.registry.get_sample_value("process_resident_memory_bytes")
    assert [] == [line for line in page.text().splitlines() if "_created" in line]


def test_a_disks_free_bytes_are_its_limit_without_what_is_used_and_planned(page: Page) -> None:
    page.cluster.add_node("n2", free_gib=200)
    page.cluster.add_pod("a", gib=50)
    page.cluster.filter("a", "n2")
    page.cluster.change_pod("a", node_name="n2")
    free = f"{PREFIX}_disk_free_bytes"
    assert free not in page.families()
    page.controller.gauges.run_once()
    found, families = list[float](), page.families()
    for name in ("limit", "used", "planned", "free"):
        samples = families[f"{PREFIX}_disk_{name}_bytes"].samples
        found += [sample.value for sample in samples if sample.labels["node"] == "n2"]
    assert 50 * GIB == found[2]
    assert found[3] == found[0] - found[1] - found[2]
    page.gate.close()
    assert free not in page.families()


def test_labels_of_disks_are_read_back_as_they_are() -> None:
    cluster, name = TestCluster(), 'a"b\\c\nd'
    cluster.put_node(make_node("n1", replace(disk("d", 1), name=name)))
    (made, *_) = text_string_to_metric_families(page_of(disk_views(cluster.allocator.look())).decode())
    assert [{"node": "n1", "disk": name}] == [sample.labels for sample in made.samples]


def test_what_fits_and_whether_a_node_can_be_lost_is_told_by_the_leader() -> None:
    survival = Survival("n1", False, 3, 30 * GIB, (), ("v",), 10 * GIB)
    capacity = view_documents.capacity([view_documents.disk("n1")], survival=survival, largest_bytes={"1": GIB, "2": 0})
    registry, is_leading, asked = CollectorRegistry(), [True], list[Capacity]()

    def ask() -> Capacity:
        asked.append(capacity)
        return capacity

    gauges = Gauges(TestCluster().allocator, ask, lambda: is_leading[0])
    registry.register(Collected(gauges.collect))
    found = registry.get_sample_value
    assert None is found(f"{PREFIX}_node_loss_survived")
    for _ in range(2):
        gauges.run_once()
    assert 1 == len(asked)  # a minute has not passed
    assert [0, 10 * GIB] == [found(f"{PREFIX}_node_loss_{name}") for name in ("survived", "missing_bytes")]
    assert [GIB, 0] == [found(f"{PREFIX}_largest_volume_bytes", {"copies": copies}) for copies in "12"]
    is_leading[0] = False
    assert None is found(f"{PREFIX}_node_loss_survived")
    gauges.run_once()
    is_leading[0] = True
    gauges.run_once()
    assert 2 == len(asked)  # at once for a new term


class Collected(Collector):
    """What a function yields."""

    def __init__(self, collect: Callable[[], Iterable[Metric]]) -> None:
        self._collect = collect

    def collect(self) -> Iterable[Metric]:
        return self._collect()

    def describe(self) -> Iterable[Metric]:
        return ()


def test_the_mode_is_one_of_four(page: Page) -> None:
    assert [1, 0, 0, 0] == [page.value("mode", mode=mode) for mode in ("active", "bypass", "closed", "unknown")]


def test_no_label_names_a_pod_or_a_volume(page: Page) -> None:
    page.cluster.add_pod("very-special-name")
    page.cluster.filter("very-special-name", "n1")
    assert "very-special-name" not in page.text()


def test_health_and_readiness_are_for_the_network_and_the_status_document_is_not(page: Page) -> None:
    def asked(path: str, problem: str = "", *, is_ready: bool = True) -> tuple[int, str]:
        app = create_metrics_app(page.registry, problem=lambda: problem, is_ready=lambda: is_ready)
        answer = Client(app).get(path)
        return answer.status_code, answer.text

    assert (200, "ok\n") == asked("/healthz")
    assert (503, "sweeper has ended\n") == asked("/healthz", "sweeper has ended")
    assert [200, 503] == [asked("/readyz", is_ready=is_ready)[0] for is_ready in (True, False)]
    assert [200, 404, 404] == [asked(path)[0] for path in ("/metrics", "/status", "/elsewhere")]


def test_a_port_is_served_and_one_that_is_taken_is_a_configuration_error_that_names_it(page: Page) -> None:
    app = create_metrics_app(page.registry, problem=str, is_ready=bool)
    first = StatusServer("metrics", app, "127.0.0.1", 0)
    first.start()
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{first.port}/healthz", timeout=20) as answer:
            assert b"ok\n" == answer.read()
        with pytest.raises(ConfigError, match=f"metrics-port {first.port}"):
            StatusServer("metrics", app, "127.0.0.1", first.port).start()
    finally:
        first.stop()
