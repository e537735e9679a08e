"""What pods that come all at once are offered, and how often they stand in each other's way."""

from __future__ import annotations

import random

import pytest

from controller.allocator.choose.pod_fit import LOT, PodFit
from controller.allocator.outcome import Decision
from controller.allocator.waiting.sharing import MANY
from controller.settings import LiveSettings
from tests.fakes.builders import TestCluster, disk
from tests.fakes.counting import counted
from tests.unit.allocator.bursts import run_crowd


def crowd(nodes: int, places: int, pods: int, *, live: LiveSettings | None = None) -> tuple[TestCluster, list[str]]:
    """Nodes with so many free places of 100 GiB each, and pending pods `p0`, `p1`, ... that need one each."""
    names = [f"n{index:03}" for index in range(nodes)]
    cluster = TestCluster(live=live).add_nodes(**dict.fromkeys(names, 100 * places))
    for index in range(pods):
        cluster.add_pod(f"p{index}")
    return cluster, names


def pods_of(count: int) -> list[str]:
    return [f"p{index}" for index in range(count)]


def slow(chance: random.Random) -> float:
    return 0.4 + chance.expovariate(1 / 0.4)


def test_a_burst_on_nodes_that_are_nearly_full_hardly_contends() -> None:
    cluster, nodes = crowd(nodes=100, places=3, pods=250)

    figures = run_crowd(cluster, nodes, pods_of(250), lag_seconds=slow)

    assert figures.contended_share <= 0.05
    assert figures.chosen.total() == 250
    assert max(figures.chosen.values()) <= 3
    assert figures.offers[0] > 1  # the first ones still leave kube-scheduler something to choose


def test_where_room_suffices_exactly_every_pod_of_a_crowd_is_answered_at_once() -> None:
    cluster, nodes = crowd(nodes=4, places=4, pods=16)

    figures = run_crowd(cluster, nodes, pods_of(16), lag_seconds=slow)

    assert figures.decisions == {Decision.OFFERED: 16}
    assert dict.fromkeys(nodes, 4) == figures.chosen


def test_with_ample_room_a_burst_is_offered_as_many_nodes_as_a_single_pod() -> None:
    cluster, nodes = crowd(nodes=130, places=400, pods=40)

    figures = run_crowd(cluster, nodes, pods_of(40), lag_seconds=slow)

    assert {100} == set(figures.offers)


def test_no_more_nodes_are_looked_at_than_are_offered_where_the_others_have_ample_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster, nodes = crowd(nodes=400, places=30, pods=40)
    looks = counted(monkeypatch, PodFit, "_judge_new")

    assert 100 == len(cluster.filter("p0", *nodes).passed)
    assert 100 + LOT > len(looks)


def test_room_on_nodes_that_were_not_looked_at_counts_as_far_as_the_others_suit() -> None:
    cluster, nodes = crowd(nodes=400, places=2, pods=40, live=LiveSettings(max_offers=10))
    for name in nodes:
        if not name.endswith(("0", "4", "8")):  # by its total such a node has room as well
            cluster.add_node(name, *(disk(f"d{number}", 50, node=name) for number in range(4)))

    assert 120 * 2 // 40 == len(cluster.filter("p0", *nodes).passed)


def test_fewer_pods_than_a_crowd_are_offered_all_that_fits() -> None:
    cluster, nodes = crowd(nodes=4, places=MANY, pods=MANY - 1)

    offers = [len(cluster.filter(pod, *nodes).passed) for pod in pods_of(MANY - 1)]

    assert [4] * (MANY - 1) == offers


def test_a_pod_of_a_crowd_is_offered_its_share_of_the_places_that_are_left() -> None:
    cluster, nodes = crowd(nodes=10, places=4, pods=MANY)

    first, second = (cluster.filter(pod, *nodes) for pod in pods_of(2))

    assert 40 // MANY == len(first.passed)
    # 35 places are left; the answer before is waiting for its choice, and the next ones may be as many as wait.
    assert 35 // (MANY - 1) == len(second.passed)
    assert set(first.passed).isdisjoint(second.passed)


def test_pods_without_any_room_do_not_narrow_what_another_one_is_offered() -> None:
    cluster, nodes = crowd(nodes=4, places=2, pods=0)
    for index in range(3 * MANY):
        cluster.add_pod(f"huge{index}", gib=1000)
        assert Decision.REFUSED is cluster.filter(f"huge{index}", *nodes).decision
    cluster.add_pod("small")

    assert set(nodes) == cluster.offered("small", *nodes)


def test_pods_that_run_or_are_chosen_are_no_part_of_the_crowd() -> None:
    cluster, nodes = crowd(nodes=4, places=20, pods=2 * MANY)
    for pod in pods_of(MANY):
        cluster.run(pod, pod, nodes[0])
    for pod in pods_of(2 * MANY)[MANY:]:
        cluster.select_node(pod, nodes[1])
    cluster.add_pod("late")

    assert {"n000", "n001", "n002", "n003"} == cluster.offered("late", *nodes)


def test_a_pod_that_was_deleted_is_no_part_of_the_crowd() -> None:
    cluster, nodes = crowd(nodes=2, places=2, pods=MANY)
    for pod in pods_of(MANY)[1:]:
        cluster.drop_pod(pod)

    assert set(nodes) == cluster.offered("p0", *nodes)


def test_pods_that_wait_when_a_leader_begins_are_part_of_the_crowd() -> None:
    cluster, nodes = crowd(nodes=10, places=4, pods=MANY)
    cluster.change_leader()

    assert 40 // MANY == len(cluster.filter("p0", *nodes).passed)


def test_max_offers_stays_the_most_for_a_crowd_too() -> None:
    cluster, nodes = crowd(nodes=20, places=10, pods=MANY, live=LiveSettings(enabled=True, max_offers=3))

    assert 3 == len(cluster.filter("p0", *nodes).passed)


def test_the_places_of_several_disks_are_added_and_what_is_held_taken_off() -> None:
    cluster = TestCluster()
    cluster.add_node("n1", disk("d1", free_gib=250), disk("d2", free_gib=390))  # two places and three
    cluster.add_node("n2", disk("d1", free_gib=350), disk("d2", free_gib=90))  # three
    for index in range(MANY):
        cluster.add_pod(f"p{index}")
    names = ["n1", "n2"]

    assert 1 == len(cluster.filter("p0", *names).passed)  # the eighth part of eight places
    cluster.add_node("n3", free_gib=800)
    assert 2 == len(cluster.filter("p1", *names, "n3").passed)  # of seven and eight, for seven that are to come


def test_pods_that_come_one_by_one_share_with_as_many_as_wait_for_their_choice() -> None:
    cluster, nodes = crowd(nodes=12, places=2, pods=0)
    for index in range(MANY - 1):
        cluster.add_pod(f"p{index}")
        cluster.filter(f"p{index}", *nodes[:4])
    cluster.add_pod("last")

    assert 16 // MANY == len(cluster.filter("last", *nodes[4:]).passed)


def test_a_pod_that_comes_back_is_not_offered_the_same_single_node_for_ever() -> None:
    cluster, nodes = crowd(nodes=MANY, places=1, pods=MANY)
    seen = set()
    for turn in range(2 * MANY):
        (node,) = cluster.filter("p0", *nodes).passed
        seen.add(node)
        cluster.add_node("elsewhere", free_gib=turn)  # the cluster goes on

    assert len(seen) > 1
