"""A large pod does not starve behind small ones: after a while one node's room is kept for it, and not for ever.

tests/scenarios/kept_room.txt tells where, how much and against whom.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.allocator.waiting.kept_room import KEPT_SECONDS, REST_SECONDS, KeptUntil
from controller.rules.reasons import Reason
from tests.fakes.builders import TestCluster

AFTER = 300
HOUR = 3600
NODES = ("n1", "n2", "n3")  # in a cluster of fewer nodes nothing is kept


@pytest.fixture
def cluster() -> TestCluster:
    """n1 is full of four small pods whose data goes with them; the large one, which fits nowhere else, has waited."""
    cluster = TestCluster().add_nodes(n1=400, n2=1, n3=1)
    for index in range(4):
        run_ephemeral(cluster, f"small-{index}", "n1")
    cluster.let_figures_follow()
    cluster.add_pod("large", gib=350)
    assert not cluster.offered("large", *NODES)
    cluster.clock.advance(AFTER)
    return cluster


def run_ephemeral(cluster: TestCluster, name: str, on: str, gib: float = 100) -> None:
    cluster.add_claim(name, gib)
    cluster.set_claim(replace(cluster.claims[name], owner_pod_uid=f"pod-{name}"))
    cluster.run(name, cluster.add_pod(name, gib=gib).name, on, gib=gib)


def open_to(cluster: TestCluster, gib: float, *nodes: str) -> set[str]:
    """Where a pod that has just come is offered room; it goes again."""
    offered = cluster.ask("next", gib, *nodes)
    cluster.drop_pod("next")
    cluster.drop_claim("next")
    return offered


def test_a_pod_that_goes_while_its_node_is_sought_keeps_nothing(cluster: TestCluster) -> None:
    cluster.make_looks_cost(0.004)  # longer than a slice
    for number, _ in enumerate(cluster.allocator.wake_slices(), 1):
        if number == 2:  # one slice to see that it finds no room, one to find its node
            cluster.drop_pod("large")
    cluster.delete_volume("small-0")

    assert {"n1"} == open_to(cluster, 100, "n1")


def test_room_is_kept_no_longer_for_a_pod_that_was_bound_by_hand(cluster: TestCluster) -> None:
    cluster.plan_wakeups()
    cluster.delete_volume("small-0")
    assert set() == open_to(cluster, 60, "n1")
    cluster.bind("large", "n2")

    assert {"n1"} == open_to(cluster, 60, "n1")


def test_the_table_made_anew_takes_no_refusal_back(cluster: TestCluster) -> None:
    with cluster.allocator._changed:
        cluster.allocator._rebuild_locked()
    cluster.plan_wakeups()
    cluster.delete_volume("small-0")
    cluster.add_pod("next")

    assert cluster.filter("next", "n1").refused == {"n1": Reason.KEPT}


@pytest.mark.parametrize(("count", "kept"), [(2, 0), (3, 1), (10, 1), (20, 2)])
def test_room_is_kept_on_few_nodes_however_many_pods_wait(count: int, kept: int) -> None:
    nodes = tuple(f"n{number}" for number in range(count))
    cluster = TestCluster().add_nodes(**dict.fromkeys(nodes, 400))
    for name in nodes:
        run_ephemeral(cluster, f"goes-{name}", name, 350)
    cluster.let_figures_follow()
    for number in range(count):
        cluster.add_pod(f"large-{number}", gib=400)
        assert set() == cluster.offered(f"large-{number}", *nodes)
    cluster.clock.advance(AFTER)
    cluster.plan_wakeups()

    assert kept == count - sum(bool(open_to(cluster, 50, name)) for name in nodes)


@pytest.mark.parametrize("comes_back", [True, False])
def test_room_is_not_kept_for_ever(cluster: TestCluster, comes_back: bool) -> None:
    cluster.plan_wakeups()
    cluster.delete_volume("small-0")
    assert set() == open_to(cluster, 60, "n1")
    was_open = False
    for _ in range(HOUR // 30):
        cluster.clock.advance(30)
        cluster.allocator.sweep()
        if comes_back:
            assert set() == cluster.offered("large", *NODES)
        cluster.plan_wakeups()
        was_open = was_open or bool(open_to(cluster, 60, "n1"))

    assert was_open


def test_room_of_a_pod_that_was_woken_and_does_not_come_back_is_open_again_after_some_time(
    cluster: TestCluster,
) -> None:
    cluster.plan_wakeups()
    for number in range(4):
        cluster.delete_volume(f"small-{number}")
    assert ["large"] == [wakeup.name for wakeup in cluster.plan_wakeups()]
    for _ in range(HOUR // 30):
        cluster.clock.advance(30)
        cluster.plan_wakeups()

    assert {"n1"} == open_to(cluster, 400, "n1")


def test_a_pod_for_which_room_was_kept_long_enough_rests_for_a_while() -> None:
    kept, end = KeptUntil(), KEPT_SECONDS
    assert end == kept.keep_until("pod-large", 0)
    moments = end - 1, end, end + REST_SECONDS - 1, end + REST_SECONDS
    assert [False, True, True, False] == [kept.is_resting("pod-large", now) for now in moments]
