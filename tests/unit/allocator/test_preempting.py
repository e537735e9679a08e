"""On which nodes pods may be evicted for another one: where filter would let it pass. And what is remembered of it.

Case by case in tests/scenarios/preempting.txt.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controller.allocator.plans.nominations import APPROVAL_SECONDS, MOST_APPROVALS
from controller.allocator.waiting.refusals import MOST_UNSEEN, UNSEEN_SECONDS
from controller.settings import LiveSettings
from tests.fakes.builders import TestCluster, disk

HIGH = 1000


def kept(cluster: TestCluster, pod: str, *nodes: str) -> set[str]:
    return set(cluster.allocator.nodes_with_room(cluster.pods[pod].uid, list(nodes)))


def with_high(**free_gib: float) -> TestCluster:
    """Nodes with so much room each, and a pod `high` of 100 GiB."""
    cluster = TestCluster().add_nodes(**free_gib)
    cluster.add_pod("high", priority=HIGH)
    return cluster


# The same rules as filter's


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


def test_a_preemption_refused_for_what_others_hold_begins_the_back_off_anew() -> None:
    cluster = with_high(busy=500, idle=50)
    for _ in range(6):  # up to ten seconds between wake-ups
        cluster.filter("high", "idle")
        assert {"busy"} == kept(cluster, "high", "busy")
        cluster.allocator.preemption_failed("pod-high", ["busy"])
        assert ["high"] == cluster.woken()
        cluster.clock.advance(0.6)


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


def test_the_pod_itself_is_woken_where_its_likes_find_no_room(nominated: TestCluster) -> None:
    """Others of its size and priority come first in the plan, and what they do not get is not full for it."""
    for name in ("a", "b"):
        nominated.add_pod(name, priority=HIGH, created="2025-01-01T00:00:00Z")
    for name in ("a", "b", "high"):
        assert set() == nominated.offered(name, "idle")
        nominated.allocator.preemption_failed(f"pod-{name}", ["n1"])

    assert ["high"] == nominated.woken()


def test_what_it_is_woken_for_counts_once_in_the_plan(nominated: TestCluster) -> None:
    nominated.add_pod("beside")
    assert set() == nominated.offered("beside", "n1")
    nominated.filter("high", "idle")
    nominated.allocator.preemption_failed("pod-high", ["n1"])
    nominated.add_node("n1", free_gib=200)

    assert ["high", "beside"] == nominated.woken()


@pytest.mark.parametrize("ends", ["in a filter call", "by time"])
def test_the_end_of_a_reservation_is_news_for_the_wake_up(nominated: TestCluster, ends: str) -> None:
    nominated.add_node("n1", free_gib=99)
    version = nominated.allocator.version
    if ends == "by time":
        nominated.clock.advance(APPROVAL_SECONDS)
        nominated.allocator.sweep()
    else:
        nominated.filter("high", "n1")

    assert version < nominated.allocator.version


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
