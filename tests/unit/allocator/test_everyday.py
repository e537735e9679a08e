"""The everyday cluster at some size: many pods on a shared volume go on as without us.

tests/scenarios/everyday.txt tells of the smallest clusters.
"""

from __future__ import annotations

from typing import Any

from tests.fakes.builders import TestCluster

NODES = [f"n{index}" for index in range(10)]


def shared(free_gib: float, locality: str, copies: int) -> TestCluster:
    """Ten nodes, and a claim of several nodes that asks for 100 GiB."""
    cluster = TestCluster().add_nodes(**dict.fromkeys(NODES, free_gib))
    cluster.add_class("shared", dataLocality=locality, numberOfReplicas=str(copies))
    cluster.add_claim("shared", 100, class_name="shared", shared=True)
    return cluster


def test_many_pods_on_a_shared_volume_may_run_on_any_node() -> None:
    cluster = shared(100, "disabled", 3)
    facts: dict[str, Any] = {"locality": "disabled", "replica_count": 3, "access_mode": "rwx"}
    handle = cluster.provision("shared", copies=3, **facts)
    for number, node in enumerate(NODES[:3], 1):
        cluster.place(handle, node, number=number)
    running: dict[str, int] = dict.fromkeys(NODES, 0)
    for index in range(30):  # as a topology spread constraint places them, if it is free to
        cluster.add_pod(f"p{index}", "shared")
        outcome = cluster.filter(f"p{index}", *NODES)
        assert (NODES, {}, 0) == (list(outcome.passed), outcome.refused, outcome.held_bytes)
        chosen = min(NODES, key=lambda name: (running[name], name))
        cluster.bind(f"p{index}", chosen)
        running[chosen] += 1
        if not index:
            cluster.attach(handle, "n7", **facts)
    assert {3} == set(running.values())
    assert {} == cluster.pending()


def test_many_pods_on_a_shared_volume_that_is_not_placed_yet_may_run_on_any_node() -> None:
    cluster = shared(400, "best-effort", 1)
    for index in range(30):
        cluster.add_pod(f"p{index}", "shared")
        outcome = cluster.filter(f"p{index}", *NODES)
        assert (NODES, {}) == (list(outcome.passed), outcome.refused)
    assert 1 == len(cluster.allocator.snapshot().promises)
    assert [100] == list(cluster.pending().values())
