"""The everyday cluster at some size: many pods on a shared volume go on as without us.

tests/scenarios/everyday.txt tells of the smallest clusters.
"""

from __future__ import annotations

from typing import Any

import pytest

from controller.allocator.outcome import Decision
from controller.model.workload import KubeNode, PersistentVolume
from controller.rules.reasons import Reason
from controller.settings import LiveSettings
from tests.fakes.builders import DRIVER, EPOCH, GIB, TestCluster, claim, storage_class

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


@pytest.mark.parametrize("locality", ["disabled", "best-effort"])
@pytest.mark.parametrize("is_shared", [False, True])
def test_pods_with_volumes_run_only_where_longhorn_does(locality: str, is_shared: bool) -> None:
    """longhorn/longhorn#2826, #2858, #3073, #3758, #8065: Longhorn's attacher knows no other nodes, whatever lies
    where. Pods without volumes of Longhorn's run anywhere."""
    cluster = TestCluster().add_nodes(n1=100, n2=100)
    cluster.add_class("c", dataLocality=locality, numberOfReplicas="2")
    cluster.allocator.observe_kube_node("gpu", KubeNode("gpu", unschedulable=False))
    cluster.add_claim("placed", 50, class_name="c", shared=is_shared)
    facts: dict[str, Any] = {"locality": locality, "access_mode": "rwx" if is_shared else "rwo"}
    handle = cluster.provision("placed", copies=2, **facts)
    for number, node in enumerate(("n1", "n2"), 1):
        cluster.place(handle, node, 50, number=number)
    cluster.add_claim("new", 10, class_name="c", shared=is_shared)
    for name in ("placed", "new"):
        cluster.add_pod(name, name)
        outcome = cluster.filter(name, "gpu", "n2", "n1")
        assert (["n1", "n2"], {"gpu": Reason.NO_LONGHORN_NODE}) == (sorted(outcome.passed), outcome.refused)
    cluster.allocator.observe_class("nfs", storage_class("nfs", {}, provisioner="nfs.csi.k8s.io"))
    cluster.add_claim("other", class_name="nfs")
    cluster.add_pod("other", "other")
    assert {"gpu", "n1"} == cluster.offered("other", "gpu", "n1")


@pytest.mark.parametrize(("source", "is_kept"), [("", True), ("VolumeImportSource/image", False)])
def test_so_do_pods_whose_volume_is_one_that_exists_or_that_others_fill(source: str, is_kept: bool) -> None:
    """It needs no room, and is attached like any other."""
    cluster = TestCluster().add_nodes(n1=100)
    cluster.allocator.observe_kube_node("gpu", KubeNode("gpu", unschedulable=False))
    kept = PersistentVolume("kept", DRIVER, "kept", "", "", GIB, EPOCH, class_name="longhorn", is_spare=True)
    cluster.allocator.observe_pv("kept", kept if is_kept else None)
    cluster.set_claim(claim("data", data_source=source))
    cluster.add_pod("p", "data")
    outcome = cluster.filter("p", "gpu", "n1")
    assert (["n1"], {"gpu": Reason.NO_LONGHORN_NODE}, 0) == (list(outcome.passed), outcome.refused, outcome.held_bytes)
    assert Decision.REFUSED is cluster.filter("p", "gpu").decision
    cluster.add_node("gpu", free_gib=0)
    assert ["p"] == cluster.woken()
    assert {"gpu"} == cluster.offered("p", "gpu")


def test_a_pod_that_waits_for_longhorn_on_its_node_is_woken_when_it_comes() -> None:
    cluster = TestCluster().add_nodes(n1=100)
    cluster.allocator.observe_kube_node("new", KubeNode("new", unschedulable=False))
    cluster.add_claim("data", 50, shared=True)
    handle = cluster.provision("data", access_mode="rwx")
    cluster.place(handle, "n1", 50)
    cluster.add_pod("p", "data")

    assert Decision.REFUSED is cluster.filter("p", "new").decision
    assert "1 node NoLonghornNode" in cluster.allocator.account_of(cluster.pods["p"].uid, ["new"])
    assert [] == cluster.woken()
    cluster.add_node("new", free_gib=1)
    assert ["p"] == cluster.woken()
    assert {"new"} == cluster.offered("p", "new")


def test_a_pod_that_gives_up_its_data_stays_where_longhorn_is() -> None:
    cluster = TestCluster(live=LiveSettings(enabled=True, remote_fallback_after_seconds=60))
    cluster.add_nodes(n1=100, n2=10)
    cluster.add_volume("data", on="n1")
    cluster.add_pod("p", "data")
    for expected in (set[str](), {"n2"}):
        assert expected == cluster.offered("p", "n2", "gpu")
        assert set() == cluster.offered("p", "gpu")
        cluster.clock.advance(61)
