"""A pod whose own volumes satisfy the sums nowhere gets a turn: for a while nothing new is promised on its node."""

from __future__ import annotations

import pytest

from controller.allocator.promises.turns import PAUSE_SECONDS, REST_SECONDS, TURN_SECONDS, WIDE_PAUSE_SECONDS, Turns
from controller.settings import LiveSettings
from tests.fakes.builders import TestCluster

AFTER = 300
NODES = ("n1", "n2")


@pytest.fixture
def cluster() -> TestCluster:
    """`pair` has two volumes that Longhorn may put on one disk, on every node; small pods come all the time, so that
    something is always pending on each node."""
    return cluster_of(AFTER)


def cluster_of(after: int) -> TestCluster:
    cluster = TestCluster(live=LiveSettings(enabled=True, starvation_after_seconds=after))
    return cluster.add_nodes(n1=(100, 100), n2=(100, 100))


def add_pair(cluster: TestCluster, name: str) -> None:
    cluster.add_pod(name, (f"{name}-1", 60), (f"{name}-2", 60))


def starve(cluster: TestCluster, *names: str) -> None:
    """Something is pending on each node whenever the pods are asked about."""
    for node in NODES:
        assert cluster.ask(f"small-{node}", 5, node)
        cluster.select_node(f"small-{node}", node)
    for name in names or ("pair",):
        add_pair(cluster, name)
        assert not cluster.offered(name, *NODES)
    cluster.clock.advance(AFTER)
    cluster.plan_wakeups()


def settle(cluster: TestCluster, node: str) -> None:
    cluster.run(f"small-{node}", f"small-{node}", node, 5)
    cluster.place(f"pvc-uid-small-{node}", node, 5, disk_name="d0")
    cluster.let_figures_follow()


def closed(cluster: TestCluster) -> set[str]:
    """Nodes on which a small newcomer is promised nothing."""
    name = f"probe-{cluster.clock.now()}"
    found = set(NODES) - cluster.ask(name, 1, *NODES)
    cluster.drop_pod(name)
    cluster.drop_claim(name)
    cluster.pass_time(3)
    return found


def test_without_others_it_needs_no_turn(cluster: TestCluster) -> None:
    add_pair(cluster, "pair")
    assert cluster.offered("pair", *NODES)


def test_before_its_time_the_others_go_on(cluster: TestCluster) -> None:
    starve(cluster, "pair")
    other = cluster_of(2 * AFTER)
    starve(other, "pair")

    assert 1 == len(closed(cluster))
    assert not closed(other)


def test_nothing_new_is_promised_on_one_node_and_there_it_finds_its_room(cluster: TestCluster) -> None:
    starve(cluster)
    (node,) = closed(cluster)
    assert not cluster.offered("pair", *NODES)  # what was promised there before is still pending

    settle(cluster, node)
    assert {"pair"} == {wakeup.name for wakeup in cluster.plan_wakeups()}
    assert {node} == cluster.offered("pair", *NODES)
    assert cluster.ask("next", 5, *NODES)  # and everybody goes on


def test_what_roams_and_would_reach_the_node_waits_as_well(cluster: TestCluster) -> None:
    starve(cluster)
    assert not cluster.ask("anywhere", 1, *NODES, class_name="roaming")

    cluster.clock.advance(TURN_SECONDS)
    cluster.allocator.sweep()
    assert cluster.offered("anywhere", *NODES)


def test_a_pod_whose_volumes_roam_closes_all_that_they_reach(cluster: TestCluster) -> None:
    assert cluster.ask("small-n1", 5, "n1")
    cluster.select_node("small-n1", "n1")
    cluster.add_pod("roams", ("r1", 60, "roaming"), ("r2", 60, "roaming"))
    assert not cluster.offered("roams", *NODES)
    cluster.clock.advance(AFTER)
    cluster.plan_wakeups()

    assert set(NODES) == closed(cluster)
    settle(cluster, "n1")
    assert cluster.offered("roams", *NODES)


def test_a_pod_of_higher_priority_and_one_whose_data_is_there_go_on(cluster: TestCluster) -> None:
    starve(cluster)
    (node,) = closed(cluster)
    settle(cluster, node)
    assert cluster.ask("urgent", 5, node, priority=1)

    cluster.drop_pod(f"small-{node}")
    cluster.add_pod(f"small-{node}", uid="restarted")
    assert {node} == cluster.offered(f"small-{node}", *NODES)


def test_a_turn_that_is_not_used_ends_and_others_come_after_a_pause(cluster: TestCluster) -> None:
    starve(cluster, "earlier", "later")
    cluster.clock.advance(TURN_SECONDS)
    version = cluster.allocator.version
    cluster.allocator.sweep()
    assert version != cluster.allocator.version  # the wake-up looks again
    cluster.plan_wakeups()
    assert not closed(cluster)

    cluster.clock.advance(PAUSE_SECONDS)
    version = cluster.allocator.version
    cluster.allocator.sweep()
    assert version != cluster.allocator.version
    cluster.plan_wakeups()
    turn = cluster.allocator._memory.turns.current
    assert turn is not None
    assert "pod-later" == turn.pod_uid
    assert turn.nodes == closed(cluster)


def test_after_a_turn_on_all_nodes_everybody_goes_on_for_longer() -> None:
    for nodes, pause in ((frozenset(("n1",)), PAUSE_SECONDS), (frozenset(NODES), WIDE_PAUSE_SECONDS)):
        turns = Turns()
        turns.give("p", 0, nodes, 0.0)
        assert turns.sweep(TURN_SECONDS)
        assert not turns.is_free_for("q", TURN_SECONDS + pause - 1)
        assert not turns.sweep(TURN_SECONDS + pause - 1)
        assert turns.is_free_for("q", TURN_SECONDS + pause)
        assert turns.sweep(TURN_SECONDS + pause)


def test_the_same_pod_rests_before_it_gets_another_one(cluster: TestCluster) -> None:
    starve(cluster)
    for seconds, count in ((TURN_SECONDS, 0), (PAUSE_SECONDS, 0), (REST_SECONDS - PAUSE_SECONDS, 1)):
        cluster.clock.advance(seconds)
        cluster.allocator.sweep()
        cluster.plan_wakeups()
        assert count == len(closed(cluster))


def test_it_ends_with_its_pod(cluster: TestCluster) -> None:
    starve(cluster)
    assert closed(cluster)
    cluster.drop_pod("pair")
    assert not closed(cluster)


def test_a_pod_that_promises_alone_keep_out_gets_none(cluster: TestCluster) -> None:
    for node in NODES:
        for name in ("x", "y"):
            assert cluster.ask(f"{name}-{node}", 30, node)
    cluster.add_pod("large", gib=70)
    assert not cluster.offered("large", *NODES)
    cluster.clock.advance(AFTER)
    cluster.plan_wakeups()

    assert cluster.allocator._memory.turns.current is None


def land(cluster: TestCluster, number: int) -> None:
    """A small volume lands on each node where it may, and the figures show it."""
    for node in NODES:
        name = f"small-{node}-{number}"
        if cluster.ask(name, 0.125, node):
            cluster.run(name, name, node, 0.125)
            cluster.place(f"pvc-uid-{name}", node, 0.125, disk_name=f"d{number % 2}")
        else:
            cluster.drop_pod(name)
            cluster.drop_claim(name)
    cluster._show_figures(lambda _disk, _name: True)


def test_it_comes_also_where_pods_land_all_the_time(cluster: TestCluster) -> None:
    """So that the figures of the disks are always a little behind."""
    land(cluster, 0)
    began = cluster.clock.now()
    add_pair(cluster, "pair")
    while not cluster.offered("pair", *NODES):
        assert cluster.clock.now() < began + AFTER + 2 * TURN_SECONDS
        cluster.pass_time(2)
        land(cluster, int(cluster.clock.now()))
        cluster.plan_wakeups()
    assert cluster.clock.now() > began + AFTER
