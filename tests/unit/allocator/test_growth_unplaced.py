"""A volume that is not placed yet and grows: Longhorn attaches it to its owner's node, and places it there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.allocator.verbs.grow import GrowthRequest, GrowthVerdict
from tests.fakes.builders import GIB, TestCluster, replica, volume


def unplaced(owner_free_gib: float = 400) -> TestCluster:
    """A volume of 50 GiB that was provisioned for n1, where its pod is bound, and that n2 owns."""
    cluster = TestCluster()
    for name, free in (("n1", 400), ("n2", owner_free_gib)):
        cluster.add_node(name, free_gib=free)
    cluster.add_pod("p", gib=50)
    assert {"n1"} == cluster.offered("p", "n1")
    cluster.select_node("p", "n1")
    cluster.provision("p", owner_id="n2")
    cluster.bind("p", "n1")
    return cluster


def grow(cluster: TestCluster, gib: float) -> GrowthVerdict:
    request = GrowthRequest("pvc-uid-p", int(gib * GIB), "ns", "p")
    return cluster.allocator.expansions.hold(request).verdict


def test_growth_of_an_unplaced_volume_counts_on_its_owners_node_as_well() -> None:
    cluster = unplaced()
    assert GrowthVerdict.ADMITTED is grow(cluster, 200)

    assert {"n1": 200, "n2": 200} == cluster.pending()


def test_it_is_refused_where_the_owners_node_has_no_room_for_it() -> None:
    cluster = unplaced(owner_free_gib=199)
    assert GrowthVerdict.REFUSED is grow(cluster, 200)
    assert GrowthVerdict.ADMITTED is grow(cluster, 199)


def test_it_counts_there_while_the_cluster_asks_for_it_and_until_it_is_placed() -> None:
    cluster = unplaced()
    cluster.set_claim(replace(cluster.claims["p"], requested_bytes=200 * GIB))
    assert {"n1": 200, "n2": 200} == cluster.pending()
    cluster.attach("pvc-uid-p", "n2", 200, owner_id="n2")
    cluster.place("pvc-uid-p", "n2", 200)

    assert {"n1": 200} == cluster.pending()


@pytest.mark.parametrize("sign", ["flag", "replica"])
def test_it_counts_there_until_longhorn_has_grown_it(sign: str) -> None:
    """Longhorn writes the volume's size first, then the replicas', and attaches it to grow after that."""
    cluster = unplaced()
    assert GrowthVerdict.ADMITTED is grow(cluster, 200)
    cluster.set_claim(replace(cluster.claims["p"], requested_bytes=200 * GIB))
    facts = volume("pvc-uid-p", 200, owner_id="n2", expansion_required=sign == "flag")
    cluster.allocator.observe_volume(facts.name, facts)
    if sign == "flag":
        cluster.allocator.observe_replica(f"{facts.name}-r-1", replica(f"{facts.name}-r-1", facts.name, 200))
    assert {"n1": 200, "n2": 200} == cluster.pending()

    cluster.allocator.observe_replica(f"{facts.name}-r-1", replica(f"{facts.name}-r-1", facts.name, 200))
    cluster.allocator.observe_volume(facts.name, replace(facts, expansion_required=False))
    assert {"n1": 200} == cluster.pending()


def test_a_volume_that_does_not_grow_counts_where_its_pod_is() -> None:
    assert {"n1": 50} == unplaced().pending()
