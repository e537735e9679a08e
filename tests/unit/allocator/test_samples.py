"""A scheduler that asks about a part of the nodes at a time: pods that fit elsewhere come back, and not for ever."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from controller.allocator.waiting.samples import MOST_REPEATS, NodeSets, is_sample
from tests.fakes.builders import TestCluster, node

NODES = [f"n{number:03}" for number in range(250)]
SAMPLES = [NODES[begin : begin + 100] for begin in (0, 100, 150)]


@pytest.fixture
def cluster() -> TestCluster:
    """250 nodes, none of which has room for the pod."""
    cluster = TestCluster().add_nodes(**dict.fromkeys(NODES, 50))
    cluster.add_pod("p")
    return cluster


def grow(cluster: TestCluster, name: str) -> None:
    cluster.put_node(node(name, free_gib=100))


def refuse(cluster: TestCluster, names: Sequence[str]) -> None:
    assert not cluster.offered("p", *names)


def give_up(cluster: TestCluster) -> None:
    """The scheduler goes on showing nodes that the pod may use, and none of them has room."""
    for _ in range(20):
        if not cluster.woken():
            cluster.clock.advance(10)
            if not cluster.woken():
                return
        refuse(cluster, SAMPLES[0])
    raise AssertionError("still woken")


def test_a_pod_is_looked_at_again_at_once_until_its_node_is_in_the_sample(cluster: TestCluster) -> None:
    refuse(cluster, SAMPLES[0])
    grow(cluster, NODES[200])
    assert cluster.woken()
    refuse(cluster, SAMPLES[1])
    assert cluster.woken()

    assert {NODES[200]} == cluster.offered("p", *SAMPLES[2])
    assert not cluster.woken()


def test_a_refusal_that_may_be_due_to_the_sample_is_news(cluster: TestCluster) -> None:
    version = cluster.allocator.version
    refuse(cluster, SAMPLES[0])
    assert cluster.allocator.wait_for_change(version, 0)
    version = cluster.allocator.version
    refuse(cluster, NODES[:99])
    assert not cluster.allocator.wait_for_change(version, 0)


def test_an_attempt_that_shows_nothing_new_waits_for_its_back_off(cluster: TestCluster) -> None:
    grow(cluster, NODES[200])
    refuse(cluster, SAMPLES[0])
    assert cluster.woken()
    refuse(cluster, SAMPLES[0])

    assert not cluster.woken()
    cluster.clock.advance(0.5)
    assert cluster.woken()


def test_nodes_that_are_never_shown_are_taken_for_nodes_that_the_pod_may_not_use(cluster: TestCluster) -> None:
    grow(cluster, NODES[200])
    refuse(cluster, SAMPLES[0])
    attempts = 0
    while attempts < 50:
        cluster.clock.advance(10)
        if not cluster.woken():
            break
        refuse(cluster, SAMPLES[0])
        attempts += 1

    assert MOST_REPEATS == attempts


def test_a_node_that_was_shown_before_wakes_the_pod_again(cluster: TestCluster) -> None:
    refuse(cluster, SAMPLES[1])
    grow(cluster, NODES[240])
    assert cluster.woken()
    refuse(cluster, SAMPLES[0])
    give_up(cluster)

    grow(cluster, NODES[50])
    cluster.clock.advance(10)
    assert cluster.woken()
    assert {NODES[50]} == cluster.offered("p", *SAMPLES[0])


def test_what_the_scheduler_does_by_itself_begins_anew(cluster: TestCluster) -> None:
    refuse(cluster, SAMPLES[0])
    grow(cluster, NODES[240])
    give_up(cluster)

    refuse(cluster, SAMPLES[0])  # a core event: its node may be open to it now
    cluster.clock.advance(10)
    assert cluster.woken()


def test_a_later_wake_up_looks_at_all_nodes_again_at_once(cluster: TestCluster) -> None:
    refuse(cluster, SAMPLES[0])
    grow(cluster, NODES[200])
    assert cluster.woken()
    refuse(cluster, SAMPLES[1])
    assert cluster.woken()
    cluster.put_node(node(NODES[200], free_gib=50))  # another pod was quicker
    refuse(cluster, SAMPLES[2])
    assert not cluster.woken()

    cluster.clock.advance(10)
    grow(cluster, NODES[20])
    assert cluster.woken()
    for sample in SAMPLES[1:]:
        refuse(cluster, sample)
        assert cluster.woken()


def test_fewer_nodes_than_kube_scheduler_stops_at_are_all_that_the_pod_may_use(cluster: TestCluster) -> None:
    grow(cluster, NODES[200])
    refuse(cluster, NODES[:99])
    assert not cluster.woken()


@pytest.mark.parametrize(("candidates", "nodes", "expected"), [(99, 500, False), (100, 101, True), (100, 100, False)])
def test_when_candidates_may_be_a_part(candidates: int, nodes: int, expected: bool) -> None:
    assert expected is is_sample(candidates, nodes)


def test_sets_of_nodes() -> None:
    sets = NodeSets()
    odd, some = sets.of(NODES[1::2]), sets.of(NODES[:10])
    assert NODES[1:10:2] == sets.within(NODES, odd & some)
    assert sets.of(NODES) == odd | sets.of(NODES[::2])
    assert [] == sets.within(["never-seen"], odd)
