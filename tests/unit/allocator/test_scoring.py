"""Scores of the nodes that passed: data first, then certainty, preferred room, and the strategy."""

from __future__ import annotations

import pytest

from controller.allocator.outcome import Mode
from controller.settings import LiveSettings
from tests.fakes.builders import TestCluster, disk


def scores(cluster: TestCluster, pod: str, *names: str) -> dict[str, int]:
    return dict(cluster.allocator.score_nodes(cluster.pods[pod].uid, list(names)))


def made(strategy: str = "off") -> TestCluster:
    return TestCluster(live=LiveSettings(enabled=True, strategy=strategy))


def test_a_node_with_the_pods_data_is_better_than_one_with_room() -> None:
    cluster = made()
    cluster.add_node("n1")
    cluster.add_node("n2")
    cluster.add_pod("a")
    cluster.place(cluster.provision("a"), "n1")

    assert scores(cluster, "a", "n2", "n1") == {"n2": 2, "n1": 6}  # both are robust


def test_half_of_the_data_is_worth_half_the_points() -> None:
    cluster = made()
    cluster.add_node("n1")
    cluster.add_node("n2")
    cluster.add_pod("a", "x", "y")
    cluster.place(cluster.provision("x"), "n1")
    cluster.place(cluster.provision("y"), "n2")

    assert scores(cluster, "a", "n1", "n2") == {"n1": 4, "n2": 4}


def test_a_node_where_every_choice_fits_is_better_than_one_where_only_some_do() -> None:
    """On n1 Longhorn may put the small volume on the large disk, and then the large one finds no room."""
    cluster = made()
    cluster.add_node("n1", disk("d1", 100, node="n1"), disk("d2", 50, node="n1"))
    cluster.add_node("n2", disk("d1", 150, node="n2"), disk("d2", 150, node="n2"))
    cluster.add_claim("large", 100)
    cluster.add_claim("small", 50)
    cluster.add_pod("a", "large", "small")

    assert cluster.offered("a", "n1", "n2") == {"n1", "n2"}
    assert scores(cluster, "a", "n1", "n2") == {"n1": 0, "n2": 2}


def test_best_effort_volumes_of_several_copies_prefer_a_node_with_room_for_one() -> None:
    cluster = made()
    cluster.add_class("three", dataLocality="best-effort", numberOfReplicas="3")
    for name, free in (("n1", 400), ("n2", 400), ("n3", 400), ("n4", 50)):
        cluster.add_node(name, free_gib=free)
    cluster.add_claim("c", 100, class_name="three")
    cluster.add_pod("a", "c")

    assert scores(cluster, "a", "n1", "n4") == {"n1": 2, "n4": 0}


@pytest.mark.parametrize(("strategy", "expected"), [("spread", (4, 3)), ("pack", (2, 3)), ("off", (2, 2))])
def test_the_strategy_prefers_the_emptier_or_the_fuller_node(strategy: str, expected: tuple[int, int]) -> None:
    cluster = made(strategy)
    cluster.add_node("n1", free_gib=1000)
    cluster.add_node("n2", free_gib=1000)
    cluster.add_pod("other", gib=600)
    cluster.filter("other", "n2")
    cluster.add_pod("a")

    assert tuple(scores(cluster, "a", "n1", "n2").values()) == expected


def test_the_best_node_has_ten_points() -> None:
    cluster = made("spread")
    cluster.add_class("two", dataLocality="best-effort", numberOfReplicas="2")
    cluster.add_node("n1", free_gib=100_000)
    cluster.add_claim("preferring", 100, class_name="two")
    cluster.add_pod("a", "local", "preferring")
    cluster.place(cluster.provision("local"), "n1")

    assert scores(cluster, "a", "n1") == {"n1": 10}


def test_nodes_that_longhorn_does_not_know_have_none() -> None:
    cluster = made("pack")
    cluster.add_pod("a")

    assert scores(cluster, "a", "nowhere") == {"nowhere": 0}


def test_bypass_has_no_opinion_and_nothing_is_ever_held() -> None:
    cluster = made("spread")
    cluster.add_node("n1")
    cluster.add_pod("a")
    assert scores(cluster, "a", "n1") == {"n1": 4}
    assert cluster.pending() == {}

    cluster.allocator.set_mode(Mode.BYPASS)
    assert scores(cluster, "a", "n1") == {"n1": 0}
