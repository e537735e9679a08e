"""Volumes that a populator (CDI, for one) makes through a prime claim and hands on, in whatever order that is
seen: never without a promise. tests/scenarios/virtual_machines.txt has the rest."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pytest

from controller.model.workload import Claim
from tests.fakes.builders import TestCluster


def imported() -> tuple[TestCluster, Claim, Claim]:
    """A target claim that an importer fills, and its prime claim, whose volume is attached to n1 and not placed yet."""
    cluster = TestCluster().add_nodes(n1=150, n2=150)
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


@pytest.mark.parametrize("order", list(permutations(("pv", "target", "importer"))), ids="-".join)
def test_the_room_stays_promised_whatever_is_seen_first(order: tuple[str, ...]) -> None:
    cluster, target, prime = imported()
    pv = cluster.allocator._world.pvs[prime.volume_name]
    assert ["n2"] == takes_another(cluster)
    for step in order:
        if step == "pv":
            cluster.allocator.observe_pv(pv.name, replace(pv, claim_uid=target.uid, claim_key=target.key))
        elif step == "target":
            cluster.set_claim(replace(target, volume_name=pv.name))
        else:
            cluster.drop_pod("importer")
        assert ["n2"] == takes_another(cluster)
    cluster.drop_claim("prime-uid-disk")  # the populator does so once the target is bound
    assert ["n2"] == takes_another(cluster)
    assert 100 == cluster.pending()["n1"]
