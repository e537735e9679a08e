"""On which nodes pods may be evicted for another one: where filter would let it pass. And what is remembered of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controller.allocator.outcome import Decision, Mode
from controller.allocator.plans.nominations import APPROVAL_SECONDS, MOST_APPROVALS
from controller.allocator.waiting.refusals import MOST_UNSEEN, UNSEEN_SECONDS
from controller.rules.reasons import Reason
from controller.settings import LiveSettings
from tests.fakes.builders import GIB, LATEST, TestCluster, disk

HIGH = 1000


def kept(cluster: TestCluster, pod: str, *nodes: str) -> set[str]:
    return set(cluster.allocator.nodes_with_room(cluster.pods[pod].uid, list(nodes)))


def with_high(**free_gib: float) -> TestCluster:
    """Nodes with so much room each, and a pod `high` of 100 GiB."""
    cluster = TestCluster().add_nodes(**free_gib)
    cluster.add_pod("high", priority=HIGH)
    return cluster


# The same rules as filter's


def away_from_home(created: str = LATEST, priority: int = 0) -> TestCluster:
    """A pod whose data lies on a node that is no candidate; the others have no room for it."""
    cluster = TestCluster(live=LiveSettings(enabled=True, remote_fallback_after_seconds=60))
    cluster.add_nodes(home=100, busy=10, idle=10)
    cluster.add_pod("db")
    volume = cluster.run("db", "db", "home")
    cluster.drop_pod("db")
    cluster.attach(volume, "")
    cluster.clock.advance(10)
    cluster.add_pod("db", uid="another", created=created, priority=priority)
    return cluster


@pytest.mark.parametrize("is_filtered", [False, True])
def test_a_pod_that_filter_would_let_run_away_from_its_data_may_have_others_evicted(is_filtered: bool) -> None:
    """The wait for that begins without any filter call."""
    cluster = away_from_home()
    if is_filtered:
        assert cluster.filter("db", "idle").decision is Decision.REFUSED
    assert set() == kept(cluster, "db", "busy")
    cluster.clock.advance(59)
    assert set() == kept(cluster, "db", "busy")
    cluster.clock.advance(1)

    assert {"busy"} == kept(cluster, "db", "busy")
    assert cluster.filter("db", "busy").decision is Decision.REMOTE


def test_nothing_is_reserved_for_a_pod_that_runs_away_from_its_data() -> None:
    cluster = away_from_home(priority=HIGH)
    kept(cluster, "db", "busy")
    cluster.clock.advance(61)
    assert {"busy"} == kept(cluster, "db", "busy")
    cluster.change_pod("db", nominated_node="busy")
    cluster.add_pod("small", gib=10)

    assert {"busy"} == cluster.offered("small", "busy")


@pytest.mark.parametrize(("scheduled_gib", "expected"), [(0, {"n1"}), (90, set())])
def test_a_chosen_node_is_kept_as_long_as_its_places_stand(scheduled_gib: int, expected: set[str]) -> None:
    cluster = TestCluster().add_nodes(n1=100)
    cluster.add_pod("a")
    cluster.offered("a", "n1")
    cluster.select_node("a", "n1")
    cluster.add_node("n1", replace(disk(free_gib=100), scheduled_bytes=scheduled_gib * GIB))

    assert expected == kept(cluster, "a", "n1") == cluster.offered("a", "n1")


NODES = ("n1", "n2", "n3")
Actions = list[tuple[str, int, int]]


def play(cluster: TestCluster, frees: list[list[int]], actions: Actions) -> None:
    """A state with holds, choices, replicas, refusals, kept nodes and nominations of several pods."""
    cluster.add_class("many", dataLocality="best-effort", numberOfReplicas="3")
    for name, free in zip(NODES, frees, strict=True):
        cluster.add_node(name, *(disk(f"d{index}", gib, node=name) for index, gib in enumerate(free)))
    for number, (action, which, size) in enumerate(actions):
        pods = sorted(cluster.pods)
        target = pods[which % len(pods)] if pods else ""
        node = NODES[which % 3]
        if action == "pod" or not pods:
            claims = [cluster.add_claim(f"c{number}", size, class_name=kind(which)).name]
            if which % 2:
                claims.append(cluster.add_claim(f"d{number}", size // 2 + 10, class_name=kind(which + size)).name)
            cluster.add_pod(f"p{number}", *claims, priority=size % 3)
        elif not cluster.pods[target].node_name:
            change(cluster, action, target, node, size)


def kind(number: int) -> str:
    return ("longhorn", "roaming", "strict", "longhorn", "many")[number % 5]


def change(cluster: TestCluster, action: str, pod: str, node: str, size: int) -> None:
    claim = cluster.pods[pod].volumes[0].claim
    match action:
        case "filter":
            cluster.filter(pod, *NODES[: size % 3 + 1])
        case "preempt":
            for name in kept(cluster, pod, *NODES[size % 3 :]):
                cluster.change_pod(pod, nominated_node=name)
        case "choose" if not cluster.claims[claim].volume_name:
            if node in cluster.offered(pod, *NODES):
                cluster.select_node(claim, node)
        case "place" if not cluster.claims[claim].volume_name:
            name = cluster.provision(claim)
            cluster.place(name, node, cluster.claims[claim].requested_bytes / 1024**3)
        case "wait":
            cluster.clock.advance(size)
            cluster.plan_wakeups()


GIBS = st.sampled_from((10, 50, 100, 150, 200))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    frees=st.lists(st.lists(GIBS, min_size=1, max_size=2), min_size=3, max_size=3),
    actions=st.lists(
        st.tuples(
            st.sampled_from(("pod", "pod", "filter", "preempt", "choose", "place", "wait")),
            st.integers(0, 9),
            st.sampled_from((10, 20, 50, 70, 100)),
        ),
        min_size=2,
        max_size=14,
    ),
    asked=st.sampled_from((NODES, NODES[:1], NODES[1:])),
)
def test_preempt_keeps_whatever_filter_would_let_pass(
    frees: list[list[int]], actions: Actions, asked: tuple[str, ...]
) -> None:
    def world() -> TestCluster:
        cluster = TestCluster(
            live=LiveSettings(
                enabled=True,
                max_offers=0,
                remote_fallback_after_seconds=60,
                starvation_after_seconds=90,
                filter_budget_milliseconds=2_000,
            )
        )
        play(cluster, frees, actions)
        return cluster

    first = world()
    for pod, facts in first.pods.items():
        if facts.is_pending:
            passed = world().offered(pod, *asked)
            assert passed <= kept(world(), pod, *asked)


# The wake-up


ATTEMPTS: dict[str, Callable[[TestCluster], Any]] = {
    "filter refused it elsewhere": lambda cluster: (cluster.filter("high", "idle"), kept(cluster, "high", "busy")),
    "filter was never asked": lambda cluster: kept(cluster, "high", "busy"),
    "preemption goes on elsewhere": lambda cluster: (
        cluster.filter("high", "idle"),
        kept(cluster, "high", "busy", "roomy"),
    ),
}


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_room_on_a_node_with_victims_wakes_a_pod_whose_preemption_left_that_node_out(attempt: str) -> None:
    cluster = with_high(busy=50, idle=50, roomy=100)
    ATTEMPTS[attempt](cluster)
    assert attempt == "preemption goes on elsewhere" or [] == cluster.woken()
    cluster.add_node("busy", free_gib=500)

    assert ["high"] == cluster.woken()
    assert {"busy"} == kept(cluster, "high", "busy")


def test_pods_that_were_refused_on_other_nodes_with_victims_are_not_taken_for_alike() -> None:
    cluster = TestCluster().add_nodes(first=50, second=50)
    for name in ("first", "second"):
        cluster.add_pod(f"on-{name}")
        assert set() == kept(cluster, f"on-{name}", name)
    cluster.add_node("second", free_gib=500)

    assert ["on-second"] == cluster.woken()


def test_the_next_filter_call_begins_a_new_attempt_whose_victims_are_not_known_yet() -> None:
    cluster = with_high(busy=50, idle=50)
    cluster.filter("high", "idle")
    kept(cluster, "high", "busy")
    cluster.filter("high", "idle")
    cluster.add_node("busy", free_gib=500)

    assert [] == cluster.woken()


def test_a_preemption_refused_for_what_others_hold_begins_the_back_off_anew() -> None:
    cluster = with_high(busy=500, idle=50)
    for _ in range(6):  # up to ten seconds between wake-ups
        cluster.filter("high", "idle")
        assert {"busy"} == kept(cluster, "high", "busy")
        cluster.allocator.preemption_failed("pod-high", ["busy"])
        assert ["high"] == cluster.woken()
        cluster.clock.advance(0.6)


def test_no_node_is_kept_for_long_where_only_victims_could_make_place() -> None:
    cluster = TestCluster(live=LiveSettings(enabled=True, starvation_after_seconds=300)).add_nodes(busy=100)
    cluster.run("small", cluster.add_pod("small", gib=50).name, "busy", gib=50)
    cluster.add_pod("large")
    assert set() == kept(cluster, "large", "busy")
    cluster.clock.advance(400)
    cluster.plan_wakeups()
    cluster.add_pod("next", gib=50)

    assert {"busy"} == cluster.offered("next", "busy")


def test_what_a_leader_before_may_have_refused_ends_with_the_first_preemption() -> None:
    cluster = with_high(busy=50, idle=50)
    cluster.allocator.end_term()
    cluster.allocator.begin_term()
    cluster.let_doubts_pass()
    kept(cluster, "high", "busy")
    cluster.add_node("idle", free_gib=500)
    assert [] == cluster.woken()
    cluster.add_node("busy", free_gib=500)

    assert ["high"] == cluster.woken()


def test_a_failed_preemption_of_pods_that_never_show_leaves_little_and_not_for_long() -> None:
    allocator = TestCluster().allocator
    for number in range(MOST_UNSEEN + 10):
        allocator.preemption_failed(f"uid-{number}", ["n1"])
    unseen = allocator._refusals._unseen
    assert (MOST_UNSEEN, f"uid-{MOST_UNSEEN + 9}") == (len(unseen), list(unseen)[-1])

    allocator._clock.advance(UNSEEN_SECONDS)  # type: ignore[attr-defined]
    allocator.preemption_failed("last", ["n1"])
    assert ["last"] == list(allocator._refusals._unseen)
    allocator.end_term()
    assert not allocator._refusals._unseen


# Room for the pod that is nominated


@pytest.fixture
def nominated() -> TestCluster:
    """One node with room; kube-scheduler evicts there for the pod `high`, whose victims take their time."""
    cluster = with_high(idle=50, n1=100)
    cluster.filter("high", "idle")
    assert {"n1"} == kept(cluster, "high", "n1")
    cluster.change_pod("high", nominated_node="n1")
    cluster.clock.advance(15)
    cluster.plan_wakeups()
    return cluster


def low_gets(cluster: TestCluster, priority: int = 0) -> set[str]:
    if "low" not in cluster.pods:
        cluster.add_pod("low", created=LATEST, priority=priority)
    return cluster.offered("low", "idle", "n1")


@pytest.mark.parametrize("priority", [0, HIGH])
def test_no_pod_of_lower_or_equal_priority_takes_its_room_while_its_victims_end(
    nominated: TestCluster, priority: int
) -> None:
    nominated.add_pod("low", priority=priority)

    assert nominated.filter("low", "n1").refused == {"n1": Reason.CONTENDED}
    assert set() == kept(nominated, "low", "n1")
    assert {"n1"} == nominated.offered("high", "n1")
    assert {} == {node: gib for node, gib in nominated.pending().items() if node != "n1"}


def test_a_pod_of_higher_priority_takes_it_as_it_takes_cpu_from_kube_scheduler(nominated: TestCluster) -> None:
    assert {"n1"} == low_gets(nominated, HIGH + 1)


def test_what_fits_beside_it_is_offered(nominated: TestCluster) -> None:
    nominated.add_node("n1", free_gib=150)
    nominated.add_pod("small", gib=50)

    assert {"n1"} == nominated.offered("small", "n1")


def test_filter_calls_about_other_nodes_do_not_end_it(nominated: TestCluster) -> None:
    """While its victims are there, kube-scheduler may look at the pod again and ask about the other nodes."""
    nominated.filter("high", "idle")
    kept(nominated, "high", "n1")

    assert set() == low_gets(nominated)


def fill(cluster: TestCluster) -> None:
    cluster.add_node("n1", free_gib=99)
    assert set() == cluster.offered("high", "n1")
    cluster.add_node("n1", free_gib=100)


def elsewhere(cluster: TestCluster) -> None:
    cluster.add_node("other", free_gib=100)
    assert {"other"} == cluster.offered("high", "other")


def asked_in_vain(cluster: TestCluster) -> None:
    cluster.add_node("n1", free_gib=99)
    assert set() == kept(cluster, "high", "n1")
    cluster.add_node("n1", free_gib=100)


def bound_elsewhere(cluster: TestCluster) -> None:
    cluster.add_node("idle", free_gib=100)
    cluster.bind("high", "idle")


def time_is_over(cluster: TestCluster) -> None:
    cluster.clock.advance(APPROVAL_SECONDS)
    cluster.allocator.sweep()


ENDS: dict[str, Callable[[TestCluster], Any]] = {
    "filtered there, refused": fill,
    "filtered elsewhere, offered": elsewhere,
    "asked for again, nothing kept": asked_in_vain,
    "nomination withdrawn": lambda cluster: cluster.change_pod("high", nominated_node=""),
    "nominated elsewhere": lambda cluster: cluster.change_pod("high", nominated_node="idle"),
    "pod gone": lambda cluster: cluster.drop_pod("high"),
    "pod being deleted": lambda cluster: cluster.change_pod("high", is_deleting=True),
    "pod bound": bound_elsewhere,
    "its time": time_is_over,
}


@pytest.mark.parametrize("end", ENDS)
def test_it_ends(nominated: TestCluster, end: str) -> None:
    assert set() == low_gets(nominated)
    ENDS[end](nominated)

    assert "n1" in low_gets(nominated)


CUTS: dict[str, Callable[[TestCluster], None]] = {
    "a new term": lambda cluster: cluster.allocator.end_term(),
    "another mode": lambda cluster: cluster.allocator.set_mode(Mode.BYPASS),
}


@pytest.mark.parametrize("end", [*CUTS, *(end for end in ENDS if end != "its time")])
def test_nothing_stays_behind(nominated: TestCluster, end: str) -> None:
    (ENDS | CUTS)[end](nominated)

    assert "pod-high" not in nominated.allocator._settler.approvals
    assert not nominated.allocator._table.limited()


@pytest.mark.parametrize(
    "shows",
    [
        pytest.param({"unschedulable_since_utc": LATEST}, id="before the nomination shows"),
        pytest.param({"nominated_node": "n2"}, id="one that we never approved, as for a new leader"),
    ],
)
def test_without_an_approved_nomination_nothing_is_reserved(shows: dict[str, str]) -> None:
    cluster = with_high(n1=100, n2=100)
    kept(cluster, "high", "n1")
    cluster.change_pod("high", **shows)

    assert {"n1", "n2"} == cluster.offered(cluster.add_pod("low").name, "n1", "n2")


def test_of_two_equal_pods_the_one_that_was_approved_first_gets_the_room() -> None:
    cluster = TestCluster().add_nodes(n1=100)
    for name in ("first", "second"):
        cluster.add_pod(name, priority=HIGH)
        assert {"n1"} == kept(cluster, name, "n1")
    for name in ("second", "first"):
        cluster.change_pod(name, nominated_node="n1")

    assert {"n1"} == kept(cluster, "first", "n1")  # asked again, it keeps its turn
    assert set() == cluster.offered("second", "n1")
    assert {"n1"} == cluster.offered("first", "n1")


def test_a_volume_that_may_lie_anywhere_keeps_its_room_anywhere() -> None:
    cluster = TestCluster()
    cluster.add_node("n1", free_gib=100)
    cluster.add_pod("high", ("c", 100, "roaming"), priority=HIGH)
    kept(cluster, "high", "n1")
    cluster.change_pod("high", nominated_node="n1")

    assert set() == cluster.offered(cluster.add_pod("low").name, "n1")


def test_the_wake_up_does_not_wake_others_into_it_and_does_so_when_it_ends(nominated: TestCluster) -> None:
    assert set() == low_gets(nominated)
    nominated.clock.advance(11)
    assert [] == nominated.woken()
    nominated.change_pod("high", nominated_node="")

    assert ["low"] == nominated.woken()


def test_what_has_ended_by_time_goes_with_the_next_approval(nominated: TestCluster) -> None:
    time_is_over(nominated)
    nominated.add_pod("next")
    assert {"n1"} == kept(nominated, "next", "n1")

    assert "pod-high" not in nominated.allocator._settler.approvals


def test_others_are_woken_when_it_ends_by_time(nominated: TestCluster) -> None:
    assert set() == low_gets(nominated)
    version = nominated.allocator.version
    time_is_over(nominated)

    assert version < nominated.allocator.version
    assert ["low"] == nominated.woken()


def test_the_end_of_a_reservation_in_a_filter_call_is_news_for_the_wake_up(nominated: TestCluster) -> None:
    nominated.add_node("n1", free_gib=99)
    version = nominated.allocator.version
    nominated.filter("high", "n1")

    assert nominated.allocator.version != version


def test_the_pod_itself_is_woken_where_its_likes_find_no_room(nominated: TestCluster) -> None:
    """Others of its size and priority come first in the plan, and what they do not get is not full for it."""
    for name in ("a", "b"):
        nominated.add_pod(name, priority=HIGH, created="2025-01-01T00:00:00Z")
    for name in ("a", "b", "high"):
        assert set() == nominated.offered(name, "idle")
        nominated.allocator.preemption_failed(f"pod-{name}", ["n1"])

    assert ["high"] == nominated.woken()


def test_what_it_holds_there_already_counts_once() -> None:
    cluster = with_high(n1=200)
    assert {"n1"} == cluster.offered("high", "n1") == kept(cluster, "high", "n1")
    cluster.change_pod("high", nominated_node="n1")

    assert {"n1"} == cluster.offered(cluster.add_pod("beside").name, "n1")


def test_a_volume_that_two_of_them_share_counts_once() -> None:
    cluster = TestCluster().add_nodes(n1=200)
    for name in ("first", "second"):
        cluster.add_pod(name, "shared", priority=HIGH)
        assert {"n1"} == kept(cluster, name, "n1")
        cluster.change_pod(name, nominated_node="n1")

    assert {"n1"} == cluster.offered(cluster.add_pod("beside").name, "n1")


def test_what_it_is_woken_for_counts_once_in_the_plan(nominated: TestCluster) -> None:
    nominated.add_pod("beside")
    assert set() == nominated.offered("beside", "n1")
    nominated.filter("high", "idle")
    nominated.allocator.preemption_failed("pod-high", ["n1"])
    nominated.add_node("n1", free_gib=200)

    assert ["high", "beside"] == nominated.woken()


def test_a_pod_comes_back_to_its_data_where_room_is_kept_for_another_one() -> None:
    """Filter takes it back there, so the pods in its way may be evicted."""
    cluster = TestCluster(live=LiveSettings(enabled=True, starvation_after_seconds=300)).add_nodes(n1=400)
    cluster.add_pod("large", gib=350)
    cluster.add_pod("old", gib=200)
    cluster.attach(cluster.run("old", "old", "n1", gib=200), "", gib=200)
    cluster.drop_pod("old")
    cluster.let_doubts_pass()
    assert not cluster.offered("large", "n1")
    cluster.clock.advance(300)
    cluster.plan_wakeups()
    cluster.add_pod("old", "old", ("more", 50), uid="again", created=LATEST)

    assert {"n1"} == kept(cluster, "old", "n1")
    assert cluster.filter("old", "n1").decision is Decision.RESTART


@pytest.mark.parametrize("method", ["nodes_with_room", "preemption_failed"])
def test_a_call_without_candidates_leaves_nothing(method: str) -> None:
    cluster = TestCluster()
    pod = cluster.add_pod("a")
    getattr(cluster.allocator, method)(pod.uid, [])

    assert 0 == cluster.allocator.snapshot().refused_count


def test_no_more_than_so_many_are_remembered() -> None:
    cluster = TestCluster().add_nodes(n1=400)
    names = [f"p{number}" for number in range(MOST_APPROVALS + 1)]
    for name in names:
        cluster.add_pod(name, gib=1)
        assert {"n1"} == kept(cluster, name, "n1")
    approvals = cluster.allocator._settler.approvals

    assert names[1:] == [name for name in names if f"pod-{name}" in approvals]
