"""Generic ephemeral volumes: a pod's claim is its own, and goes with it. One that is made again under the same name
gets another claim of the same name, and our watch of claims may lag behind."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.allocator.allocator import Decision
from controller.allocator.outcome import UnknownObjectError
from controller.model.workload import Claim, Pod, PodVolume
from tests.fakes.builders import LATER, LATEST, TestCluster


def add_pod(cluster: TestCluster, uid: str, created: str) -> Pod:
    pod = replace(cluster.add_pod("a", uid=uid, created=created), volumes=(PodVolume("v0", "a", is_ephemeral=True),))
    return cluster.set_pod(pod)


def made_again() -> tuple[TestCluster, Claim]:
    """A node of 100 GiB; the pod of 100 GiB that was there goes, and its claim is still seen. The next one's claim."""
    cluster = TestCluster()
    cluster.add_node("n1", free_gib=100)
    claim = cluster.set_claim(replace(cluster.add_claim("a"), owner_pod_uid="former"))
    add_pod(cluster, "former", LATER)
    cluster.drop_pod("a")
    add_pod(cluster, "next", LATEST)
    return cluster, replace(claim, uid="uid-next", owner_pod_uid="next", version=9)


def test_a_former_pods_claim_is_not_taken_for_nothing_needed() -> None:
    cluster, claim = made_again()
    with pytest.raises(UnknownObjectError, match="claim a is not known yet"):
        cluster.filter("a", "n1")

    cluster.set_claim(claim)
    assert {"n1"} == cluster.offered("a", "n1")
    cluster.add_pod("b")
    assert Decision.CONTENDED is cluster.filter("b", "n1").decision


def test_a_former_pods_choice_is_not_the_next_ones() -> None:
    cluster, claim = made_again()
    cluster.add_node("n2", free_gib=100)
    cluster.set_claim(replace(cluster.claims["a"], selected_node="n2", version=5))
    assert {"next"}.isdisjoint(cluster.claimants())

    cluster.set_claim(claim)
    assert {"n1", "n2"} == cluster.offered("a", "n1", "n2")
