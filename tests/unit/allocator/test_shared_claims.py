"""Pods that share a claim: what one of them chooses says nothing about what the others hold or ask for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.allocator.allocator import Decision
from tests.fakes.builders import LATER, LATEST, TestCluster

KINDS = {  # of the shared claim: none of them binds Longhorn to a pod's node
    "one-copy": {"dataLocality": "disabled", "numberOfReplicas": "1"},
    "three-copies": {"dataLocality": "disabled", "numberOfReplicas": "3"},
    "best-effort": {"dataLocality": "best-effort", "numberOfReplicas": "1"},
}


def two_pods(kind: str = "one-copy", n1_gib: float = 150) -> TestCluster:
    """Two nodes, n2 of 150 GiB; p1 and p2 have a local volume of 100 GiB each and share one of 10 GiB. p1 was offered
    n1 alone, p2 n2 alone."""
    cluster = TestCluster()
    cluster.add_class("shared", **KINDS[kind])
    cluster.add_node("n1", free_gib=n1_gib)
    cluster.add_node("n2", free_gib=150)
    cluster.add_claim("shared", 10, class_name="shared", shared=True)
    for pod, own, node in (("p1", "own1", "n1"), ("p2", "own2", "n2")):
        cluster.add_pod(pod, own, "shared")
        assert {node} == cluster.offered(pod, node)
    return cluster


def offered_to_another(cluster: TestCluster, *nodes: str, gib: float = 100) -> set[str]:
    cluster.add_pod("p3", gib=gib, created=LATER)
    return cluster.offered("p3", *nodes)


def nodes_of(cluster: TestCluster, claim: str) -> set[str]:
    return {row.node for row in cluster.allocator.snapshot().promises if row.claim == f"ns/{claim}"}


@pytest.mark.parametrize("order", [("shared", "own1"), ("own1", "shared")])
@pytest.mark.parametrize("kind", KINDS)
def test_the_choice_of_one_user_leaves_what_the_other_was_offered(kind: str, order: tuple[str, str]) -> None:
    cluster = two_pods(kind)
    for claim in order:
        cluster.select_node(claim, "n1")

    assert set() == offered_to_another(cluster, "n2")
    assert {"n2"} == nodes_of(cluster, "own2")


def test_the_choice_of_one_user_promises_nothing_for_the_others_own_claims() -> None:
    cluster = two_pods(n1_gib=210)
    cluster.select_node("own1", "n1")
    cluster.select_node("shared", "n1")

    assert {"n1"} == offered_to_another(cluster, "n1")  # beside own1 and the shared volume


def test_both_users_choices_stand_on_their_own_nodes() -> None:
    cluster = two_pods()
    cluster.select_node("shared", "n1")
    cluster.select_node("own1", "n1")
    cluster.select_node("own2", "n2")
    cluster.select_node("shared", "n2")

    assert ({"n1"}, {"n2"}) == (nodes_of(cluster, "own1"), nodes_of(cluster, "own2"))
    assert set() == offered_to_another(cluster, "n1", "n2")


def test_a_user_that_was_not_asked_about_yet_is_checked_where_the_other_went() -> None:
    cluster = two_pods()
    cluster.add_pod("p4", "own4", "shared")
    cluster.select_node("own1", "n1")
    cluster.select_node("shared", "n1")

    assert set() == cluster.offered("p4", "n1")
    assert set() == nodes_of(cluster, "own4")


def test_a_shared_claim_that_goes_with_the_node_leaves_the_other_users_hold() -> None:
    """A claim of one node and its pods: its volume is local."""
    cluster = TestCluster()
    for name in ("n1", "n2"):
        cluster.add_node(name, free_gib=150)
    cluster.add_claim("common", 20)
    for pod, own, node in (("p1", "own1", "n1"), ("p2", "own2", "n2")):
        cluster.add_pod(pod, own, "common")
        assert {node} == cluster.offered(pod, node)
    cluster.select_node("common", "n1")

    assert set() == offered_to_another(cluster, "n2")


def test_under_a_new_leader_one_users_choice_tells_nothing_of_where_the_other_was_offered() -> None:
    cluster = two_pods()
    cluster.allocator.begin_term()
    cluster.select_node("own1", "n1")
    cluster.select_node("shared", "n1")

    assert set() == offered_to_another(cluster, "n2")
    cluster.pass_time(6)
    assert {"n2"} == offered_to_another(cluster, "n2")


@pytest.mark.parametrize("kind", KINDS)
def test_a_nomination_of_a_node_that_was_not_offered_leaves_what_was(kind: str) -> None:
    """Preemption nominates nodes that nobody checked."""
    cluster = two_pods(kind)
    cluster.change_pod("p2", nominated_node="n1")

    assert set() == offered_to_another(cluster, "n2")
    assert {"n2"} == nodes_of(cluster, "own2")


def test_a_nomination_of_a_node_that_was_offered_frees_the_other_ones() -> None:
    cluster = two_pods()
    cluster.add_node("n3", free_gib=150)
    assert {"n2", "n3"} == cluster.offered("p2", "n2", "n3")
    cluster.change_pod("p2", nominated_node="n3")

    assert {"n2"} == offered_to_another(cluster, "n2")
    assert Decision.CONTENDED is cluster.filter("p3", "n3").decision


def test_a_claim_that_was_bound_by_another_user_leaves_this_pods_hold() -> None:
    """A claim of one node keeps its annotation when it is bound, and both users are older than its volume."""
    cluster = TestCluster()
    cluster.add_class("roaming", dataLocality="disabled", numberOfReplicas="1")
    for name in ("n1", "n2"):
        cluster.add_node(name, free_gib=150)
    cluster.add_claim("common", 10, class_name="roaming")
    for pod, own, node in (("p1", "own1", "n1"), ("p2", "own2", "n2")):
        cluster.add_pod(pod, own, "common")
        assert {node} == cluster.offered(pod, node)
    cluster.select_node("own1", "n1")
    cluster.select_node("common", "n1")
    cluster.provision("common", locality="disabled")
    cluster.set_claim(replace(cluster.claims["common"], version=7))

    assert set() == offered_to_another(cluster, "n2")


def test_what_a_pod_is_answered_beside_another_ones_promise_outlives_that_one() -> None:
    """p2 comes for a claim of its own that is chosen already, and for the shared one, which p1 was bound with."""
    cluster = two_pods("best-effort")
    cluster.select_node("own1", "n1")
    cluster.select_node("shared", "n1")
    cluster.provision("shared", access_mode="rwx")
    cluster.bind("p1", "n1")
    cluster.drop_pod("p2")
    cluster.select_node("own2", "n2")
    cluster.add_pod("p2", "own2", "shared", uid="again", created=LATEST)
    assert Decision.CHOSEN is cluster.filter("p2", "n2").decision
    cluster.drop_pod("p1")

    assert {"*"} == nodes_of(cluster, "shared")
