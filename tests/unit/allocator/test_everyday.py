"""The everyday cluster: small ones, Longhorn's default StorageClass, shared volumes. All goes on as without us."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.allocator.outcome import Decision
from controller.model.longhorn import LonghornSettings
from controller.model.workload import PersistentVolume
from tests.fakes.builders import GIB, LATER, TestCluster, replica, volume

DEFAULT_CLASS = {"numberOfReplicas": "3", "staleReplicaTimeout": "30"}  # of Longhorn's chart: locality disabled


def cluster_of(count: int, *, free_gib: float = 400, settings: LonghornSettings | None = None) -> TestCluster:
    cluster = TestCluster(settings=settings)
    cluster.add_class("default", **DEFAULT_CLASS)
    cluster.add_class("shared", dataLocality="best-effort", numberOfReplicas="1")
    for index in range(count):
        cluster.add_node(f"n{index}", free_gib=free_gib)
    return cluster


def nodes(cluster: TestCluster) -> list[str]:
    return sorted(cluster.allocator._world.nodes)


def provision(cluster: TestCluster, name: str, gib: float, *replicas: str, **fields: Any) -> None:
    """The claim gets its volume, with replicas placed on those nodes, and is bound to it."""
    claim = cluster.claims[name]
    handle = f"pvc-{claim.uid}"
    facts = {"locality": "disabled", "replica_count": 3, **fields}
    cluster.allocator.observe_volume(handle, volume(handle, gib, **facts))
    for node in replicas:
        made = replica(f"{handle}-r-{node}", handle, gib, on=node)
        cluster.allocator.observe_replica(made.name, made)
    pv = PersistentVolume(handle, "driver.longhorn.io", handle, claim.uid, claim.key, int(gib * GIB), LATER)
    cluster.allocator.observe_pv(handle, pv)
    cluster.set_claim(replace(claim, volume_name=handle))


# One and two nodes, three replicas wanted


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("pods", [1, 3])
def test_small_clusters_take_new_three_replica_volumes_on_every_node(count: int, pods: int) -> None:
    cluster = cluster_of(count)
    for index in range(pods):
        cluster.add_claim(f"c{index}", 100, class_name="default")
        cluster.add_pod(f"p{index}", f"c{index}")
        outcome = cluster.filter(f"p{index}", *nodes(cluster))
        assert (Decision.OFFERED, nodes(cluster), {}) == (outcome.decision, list(outcome.passed), outcome.refused)


@pytest.mark.parametrize("count", [1, 2])
def test_the_replicas_that_a_small_cluster_cannot_place_stand_in_nobodys_way(count: int) -> None:
    cluster = cluster_of(count, free_gib=250)
    everywhere = nodes(cluster)
    for index in range(2):  # 200 of 250 GiB on every node, and each volume still waits for its third replica
        cluster.add_claim(f"c{index}", 100, class_name="default")
        cluster.add_pod(f"p{index}", f"c{index}")
        assert everywhere == list(cluster.filter(f"p{index}", *everywhere).passed)
        provision(cluster, f"c{index}", 100, *everywhere, attached_to=everywhere[0], robustness="degraded")
        cluster.bind(f"p{index}", everywhere[0])
    cluster.add_claim("c2", 50, class_name="default")
    cluster.add_pod("p2", "c2")
    assert everywhere == list(cluster.filter("p2", *everywhere).passed)
    cluster.add_claim("c3", 50, class_name="longhorn")  # one best-effort replica: next to its pod
    cluster.drop_pod("p2")
    cluster.drop_claim("c2")
    cluster.add_pod("p3", "c3")
    assert everywhere == list(cluster.filter("p3", *everywhere).passed)


@pytest.mark.parametrize("count", [1, 2])
def test_a_pod_of_a_placed_default_volume_runs_anywhere(count: int) -> None:
    cluster = cluster_of(count, free_gib=100)  # full
    cluster.add_claim("c", 100, class_name="default")
    provision(cluster, "c", 100, *nodes(cluster))
    cluster.add_pod("p", "c")
    outcome = cluster.filter("p", *nodes(cluster))
    assert (nodes(cluster), {}) == (list(outcome.passed), outcome.refused)


def test_a_default_volume_needs_room_for_one_replica_somewhere() -> None:
    for free_gib, decision in ((100, Decision.OFFERED), (99, Decision.REFUSED)):
        cluster = cluster_of(2, free_gib=free_gib)
        cluster.add_claim("c", 100, class_name="default")
        cluster.add_pod("p", "c")
        assert decision == cluster.filter("p", *nodes(cluster)).decision


def test_an_immediate_claim_that_is_bound_before_its_pod_is_seen_refuses_no_node() -> None:
    cluster = cluster_of(1, free_gib=100)
    cluster.add_claim("c", 100, class_name="default")
    provision(cluster, "c", 100)  # nothing placed yet
    cluster.add_pod("p", "c")
    assert ["n0"] == list(cluster.filter("p", "n0").passed)


def test_nodes_without_longhorn_run_pods_whose_volumes_may_lie_elsewhere() -> None:
    cluster = cluster_of(1)
    cluster.add_claim("c", 100, class_name="default")
    cluster.add_pod("p", "c")
    assert ["n0", "edge"] == list(cluster.filter("p", "n0", "edge").passed)


# Shared volumes


def test_sixty_pods_on_a_shared_volume_may_run_on_any_of_twenty_nodes() -> None:
    cluster = cluster_of(20, free_gib=100)
    everywhere = nodes(cluster)
    cluster.add_claim("shared", 100, class_name="default", shared=True)
    provision(cluster, "shared", 100, "n0", "n1", "n2", access_mode="rwx")
    running: dict[str, int] = dict.fromkeys(everywhere, 0)
    for index in range(60):  # as a topology spread constraint places them, if it is free to
        cluster.add_pod(f"p{index}", "shared")
        outcome = cluster.filter(f"p{index}", *everywhere)
        assert (everywhere, {}, 0) == (list(outcome.passed), outcome.refused, outcome.held_bytes)
        chosen = min(everywhere, key=lambda name: (running[name], name))
        cluster.bind(f"p{index}", chosen)
        running[chosen] += 1
        if not index:
            cluster.allocator.observe_volume(
                "pvc-uid-shared",
                volume("pvc-uid-shared", locality="disabled", replica_count=3, access_mode="rwx", attached_to="n7"),
            )
    assert {3} == set(running.values())
    assert {} == cluster.pending()


def test_sixty_pods_on_a_shared_volume_that_is_not_placed_yet_may_run_on_any_of_twenty_nodes() -> None:
    cluster = cluster_of(20)
    everywhere = nodes(cluster)
    cluster.add_claim("shared", 100, class_name="shared", shared=True)
    for index in range(60):
        cluster.add_pod(f"p{index}", "shared")
        outcome = cluster.filter(f"p{index}", *everywhere)
        assert (everywhere, {}) == (list(outcome.passed), outcome.refused)
    assert {"*": 100} == cluster.pending()


def test_ten_consumers_of_a_best_effort_shared_volume_promise_its_size_once() -> None:
    cluster = cluster_of(3)
    cluster.add_claim("shared", 100, class_name="shared", shared=True)
    for index in range(10):
        cluster.add_pod(f"p{index}", "shared")
        cluster.filter(f"p{index}", *nodes(cluster))
    assert {"*": 100} == cluster.pending()
    assert 1 == len(cluster.allocator.snapshot().promises)
    provision(cluster, "shared", 100, locality="best-effort", replica_count=1, access_mode="rwx")
    for index in range(10):
        cluster.bind(f"p{index}", f"n{index % 3}")
    assert {"*": 100} == cluster.pending()  # until the share manager's node is known and Longhorn has placed it
    cluster.allocator.observe_replica("r", replica("r", "pvc-uid-shared", 100, on="n2"))
    assert {} == cluster.pending()


def test_the_promise_of_a_shared_volume_counts_on_every_node_until_it_is_placed() -> None:
    cluster = cluster_of(2, free_gib=150)
    cluster.add_claim("shared", 100, class_name="shared", shared=True)
    cluster.add_pod("consumer", "shared")
    cluster.filter("consumer", *nodes(cluster))
    cluster.add_pod("other", gib=100)
    assert Decision.CONTENDED == cluster.filter("other", *nodes(cluster)).decision
    provision(cluster, "shared", 100, "n1", locality="best-effort", replica_count=1, access_mode="rwx")
    assert {"n0"} == cluster.offered("other", *nodes(cluster))
