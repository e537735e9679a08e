"""Volumes that a populator (CDI, for one) makes through a prime claim and hands on: never without a promise."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pytest

from controller.model.workload import Claim, PersistentVolume
from tests.fakes.builders import LATEST, TestCluster, replica


def imported() -> tuple[TestCluster, Claim, Claim]:
    """A target claim that an importer fills, and its prime claim, whose volume is attached to n1 and not placed yet."""
    cluster = TestCluster()
    for name in ("n1", "n2"):
        cluster.add_node(name, free_gib=150)
    target = cluster.set_claim(replace(cluster.add_claim("disk"), data_source="VolumeImportSource/image"))
    cluster.add_claim("prime-uid-disk")
    cluster.add_pod("importer", "prime-uid-disk")
    cluster.filter("importer", "n1", "n2")
    cluster.select_node("prime-uid-disk", "n1")
    volume = cluster.provision("prime-uid-disk")
    cluster.bind("importer", "n1")
    cluster.attach(volume, "n1")
    return cluster, target, cluster.claims["prime-uid-disk"]


def takes_another(cluster: TestCluster) -> list[str]:
    """The nodes on which another pod's volume of the same size finds room."""
    if "other" not in cluster.pods:
        cluster.add_pod("other")
    return list(cluster.filter("other", "n1", "n2").passed)


def hand_over(cluster: TestCluster, target: Claim, prime: Claim) -> tuple[PersistentVolume, Claim]:
    pv = cluster.allocator._world.pvs[prime.volume_name]
    return replace(pv, claim_uid=target.uid, claim_key=target.key), replace(target, volume_name=pv.name)


def test_a_target_claim_asks_for_nothing_and_its_prime_claim_does() -> None:
    cluster = TestCluster()
    cluster.add_node("n1", free_gib=99)
    cluster.set_claim(replace(cluster.add_claim("disk"), data_source="VolumeImportSource/image"))
    cluster.add_pod("vm", "disk")
    assert {"n1"} == cluster.offered("vm", "n1")
    cluster.add_pod("importer", "prime-uid-disk")
    assert set() == cluster.offered("importer", "n1")


def test_the_importer_finds_room_where_the_node_that_was_chosen_for_the_first_pod_has_none() -> None:
    """A populator has its claim provisioned for that node, for which nobody has asked us."""
    cluster = TestCluster()
    cluster.add_node("n1", free_gib=90)
    cluster.add_node("n2", free_gib=150)
    cluster.set_claim(replace(cluster.add_claim("disk"), data_source="VolumeImportSource/image"))
    cluster.add_pod("vm", "disk")
    assert {"n1", "n2"} == cluster.offered("vm", "n1", "n2")
    cluster.select_node("disk", "n1")
    cluster.add_claim("prime-uid-disk")
    cluster.select_node("prime-uid-disk", "n1")
    cluster.add_pod("importer", "prime-uid-disk")
    assert set() == cluster.offered("importer", "n1")  # the only one until the claim is bound
    cluster.provision("prime-uid-disk")
    assert {"n2"} == cluster.offered("importer", "n1", "n2")


@pytest.mark.parametrize("order", list(permutations(("pv", "target", "importer"))), ids="-".join)
def test_the_room_stays_promised_whatever_is_seen_first(order: tuple[str, ...]) -> None:
    cluster, target, prime = imported()
    pv, claim = hand_over(cluster, target, prime)
    assert ["n2"] == takes_another(cluster)
    for step in order:
        if step == "pv":
            cluster.allocator.observe_pv(prime.volume_name, pv)
        elif step == "target":
            cluster.allocator.observe_claim(target.key, claim)
        else:
            cluster.drop_pod("importer")
        assert ["n2"] == takes_another(cluster)
    cluster.drop_claim("prime-uid-disk")  # the populator does so once the target is bound
    assert ["n2"] == takes_another(cluster)
    assert {"n1": 100} == {node: gib for node, gib in cluster.pending().items() if node == "n1"}


def test_the_promise_ends_when_the_volume_is_placed_whoever_has_it() -> None:
    cluster, target, prime = imported()
    pv, claim = hand_over(cluster, target, prime)
    cluster.allocator.observe_pv(prime.volume_name, pv)
    name = prime.volume_name
    cluster.allocator.observe_replica(f"{name}-r-1", replica(f"{name}-r-1", name, on="n1"))
    assert "n1" not in cluster.pending()
    cluster.drop_pod("importer")
    cluster.allocator.observe_claim(target.key, claim)
    cluster.drop_claim("prime-uid-disk")
    cluster.add_pod("vm", "disk", created=LATEST)
    assert {"n1"} == cluster.offered("vm", "n1", "n2")  # next to its data
