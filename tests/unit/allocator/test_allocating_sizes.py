"""Replicas that have grown, or whose volume has, since they were given their disk."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.allocator.outcome import LookFirstError
from controller.allocator.verbs.grow import GrowthRequest, GrowthVerdict
from controller.errors import PreconditionError
from controller.rules.reasons import Reason
from tests.fakes.builders import GIB, replica, volume
from tests.unit.allocator.giving import SECONDS, Allocating, cluster_of, place, why


def waiting(**free_gib: float) -> Allocating:
    """A replica without a disk that was given 10 GiB on n1."""
    cluster = cluster_of(**free_gib)
    assert ("n1", "d1") == place(cluster.schedule(cluster.show("v", 10)))
    return cluster


# Waiting for a disk


def test_what_has_grown_meanwhile_gets_the_difference_on_its_disk() -> None:
    cluster = waiting(n1=100)
    cluster.show("w", 40, on="n1")
    cluster.show("v", 60)
    given = cluster.schedule("v-r-1")
    assert (("n1", "d1"), False, 60 * GIB) == (place(given), given.is_new, given.size_bytes)
    assert 0 == cluster.free_gib("n1")


def test_it_is_as_large_as_its_volume_whatever_its_own_object_says() -> None:
    cluster = waiting(n1=100)
    cluster.allocator.observe_volume("v", volume("v", 60, locality="disabled"))
    assert (60 * GIB, 40) == (cluster.schedule("v-r-1").size_bytes, cluster.free_gib("n1"))


def outgrows(cluster: Allocating) -> None:
    """Its place may be being written at that moment, so it goes only when somebody says so."""
    with pytest.raises(LookFirstError):
        cluster.allocator.allocations.place_replica("v-r-1", SECONDS, is_looked_at=False)
    with pytest.raises(PreconditionError, match="more than there is room for"):
        cluster.schedule("v-r-1")


def test_without_room_for_the_difference_it_stays_until_it_is_deallocated() -> None:
    cluster = waiting(n1=100, n2=90)
    cluster.show("w", 60, on="n1")
    cluster.show("v", 50)
    outgrows(cluster)
    assert (-10, 90) == (cluster.free_gib("n1"), cluster.free_gib("n2"))
    freed = cluster.write(cluster.allocator.allocations.release_replica("v-r-1")).freed
    assert [("n1", 10 * GIB)] == [(one.node, one.size_bytes) for one in freed]
    given = cluster.schedule("v-r-1")
    assert (("n2", "d1"), True, 50 * GIB) == (place(given), given.is_new, given.size_bytes)
    assert (40, 40) == (cluster.free_gib("n1"), cluster.free_gib("n2"))


def test_where_no_disk_has_room_for_it_the_refusals_say_why() -> None:
    cluster = waiting(n1=100)
    cluster.show("w", 60, on="n1")
    cluster.show("v", 50)
    outgrows(cluster)
    cluster.write(cluster.allocator.allocations.release_replica("v-r-1"))
    refused = cluster.schedule("v-r-1")
    assert ((), {"n1": (Reason.INSUFFICIENT_STORAGE, 10)}) == (refused.allocations, why(refused))
    assert 40 == cluster.free_gib("n1")


def test_the_difference_takes_no_room_that_others_were_promised() -> None:
    cluster = waiting(n1=100, n2=60)
    assert {"n1"} == cluster.ask("pod", 60, "n1")
    cluster.show("v", 40)
    assert ("n1", "d1") == place(cluster.schedule("v-r-1"))
    cluster.show("v", 41)
    outgrows(cluster)
    cluster.write(cluster.allocator.allocations.release_replica("v-r-1"))
    assert ("n2", "d1") == place(cluster.schedule("v-r-1"))


def test_what_it_was_granted_to_grow_by_is_there() -> None:
    cluster = waiting(n1=100)
    assert GrowthVerdict.ADMITTED is cluster.allocator.expansions.hold(GrowthRequest("v", 50 * GIB)).verdict
    cluster.show("w", 51)
    assert () == cluster.schedule("w-r-1").allocations
    assert (50 * GIB, 50) == (cluster.schedule("v-r-1").size_bytes, cluster.free_gib("n1"))


def test_a_place_is_known_by_a_disk_that_has_another_name_since() -> None:
    cluster = waiting(n1=100)
    n1 = cluster.allocator._world.nodes["n1"]
    cluster.put_node(replace(n1, disks=(replace(n1.disks[0], name="other"),)))
    assert ("n1", "d1") == place(cluster.schedule("v-r-1"))
    assert 90 == cluster.free_gib("n1", "other")


# Failed, and brought back


def failing(cluster: Allocating) -> Allocating:
    """A replica of 10 GiB on n1, of a volume that has 50 by now."""
    cluster.allocator.observe_volume("v", volume("v", 50, locality="disabled", replica_count=2))
    lost = replica("v-r-1", "v", 10, on="n1", failed_at="2026-01-01T00:00:00Z")
    cluster.allocator.observe_replica("v-r-1", lost)
    cluster.allocator.observe_replica("v-r-2", replica("v-r-2", "v", 50, on="n2"))
    return cluster


def test_a_failed_replica_comes_back_at_the_size_of_its_volume() -> None:
    cluster = failing(cluster_of(n1=100, n2=100))
    for _ in range(2):
        given = cluster.write(cluster.allocator.allocations.reuse_replica("v"))
        assert (("n1", "d1"), 50 * GIB) == (place(given), given.allocations[0].size_bytes)
        assert 50 == cluster.free_gib("n1")


@pytest.mark.parametrize("is_promised", [False, True])
def test_without_room_for_the_difference_it_does_not_come_back(is_promised: bool) -> None:
    cluster = cluster_of(n1=100, n2=100)
    if is_promised:
        assert {"n1"} == cluster.ask("pod", 85, "n1")
    else:
        cluster.show("w", 85, on="n1")
        cluster.let_figures_follow()
    refused = failing(cluster).allocator.allocations.reuse_replica("v")
    assert ((), {"n1": (Reason.INSUFFICIENT_STORAGE, 35)}) == (refused.allocations, why(refused))
    assert 50 * GIB == refused.size_bytes


def test_a_disk_under_pressure_takes_it_back_as_it_is_and_no_larger() -> None:
    cluster = failing(cluster_of(n1=100, n2=100))
    n1 = cluster.allocator._world.nodes["n1"]
    cluster.put_node(replace(n1, disks=(replace(n1.disks[0], schedulable=False, is_under_pressure=True),)))
    refused = cluster.allocator.allocations.reuse_replica("v")
    assert ((), {"n1": (Reason.DISK_UNSCHEDULABLE, 0)}) == (refused.allocations, why(refused))
    cluster.allocator.observe_volume("v", volume("v", 10, locality="disabled", replica_count=2))
    cluster.allocator.observe_replica("v-r-2", replica("v-r-2", "v", 10, on="n2"))
    assert ("n1", "d1") == place(cluster.allocator.allocations.reuse_replica("v"))
