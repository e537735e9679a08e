"""Sizes of what is given by name: replicas whose volume has grown since, and volumes that are to grow."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.allocator.outcome import Allotment, LookFirstError
from controller.allocator.verbs.grow import UNKNOWN_SECONDS, GrowthOutcome, GrowthRequest, GrowthVerdict
from controller.errors import NotFoundError, NotReadyError, PreconditionError
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


# Failed, and brought back


def show_copies(cluster: Allocating, gib: float, *on: str) -> None:
    """Of the volume `v`, on those nodes, one after the other; without a disk for "", healthy otherwise."""
    cluster.allocator.observe_volume("v", volume("v", gib, locality="disabled", replica_count=len(on)))
    for number, name in enumerate(on, 1):
        cluster.allocator.observe_replica(f"v-r-{number}", replica(f"v-r-{number}", "v", gib, on=name))


def fail(cluster: Allocating, **facts: Any) -> None:
    """The first copy, which has 10 GiB on n1."""
    lost = replica("v-r-1", "v", 10, on="n1", failed_at="2026-01-01T00:00:00Z", **facts)
    cluster.allocator.observe_replica("v-r-1", lost)


def failing(cluster: Allocating) -> Allocating:
    """A failed replica of 10 GiB on n1, of a volume that has 50 by now."""
    show_copies(cluster, 50, "n1", "n2")
    fail(cluster)
    return cluster


def test_a_failed_replica_comes_back_where_it_lies_at_the_size_of_its_volume() -> None:
    cluster = failing(cluster_of(n1=100, n2=100))
    for _ in range(2):
        given = cluster.write(cluster.allocator.allocations.reuse_replica("v"))
        assert (("n1", "d1"), 50 * GIB) == (place(given), given.allocations[0].size_bytes)
        assert 50 == cluster.free_gib("n1")


def test_one_that_has_failed_too_often_does_not_come_back_nor_one_of_no_volume() -> None:
    cluster = failing(cluster_of(n1=100, n2=100))
    fail(cluster, rebuild_retry_count=5)
    assert () == cluster.allocator.allocations.reuse_replica("v").allocations
    with pytest.raises(NotFoundError, match="no Longhorn volume 'other'"):
        cluster.allocator.allocations.reuse_replica("other")


@pytest.mark.parametrize("is_promised", [False, True])
def test_without_room_for_the_difference_it_does_not_come_back(is_promised: bool) -> None:
    cluster = cluster_of(n1=100, n2=100)
    if is_promised:
        assert {"n1"} == cluster.ask("pod", 85, "n1")
    else:
        cluster.show("w", 85, on="n1")
    refused = failing(cluster).allocator.allocations.reuse_replica("v")
    assert ((), {"n1": (Reason.INSUFFICIENT_STORAGE, 35)}) == (refused.allocations, why(refused))
    assert 50 * GIB == refused.size_bytes


def test_a_disk_under_pressure_takes_it_back_as_it_is_and_no_larger() -> None:
    cluster = failing(cluster_of(n1=100, n2=100))
    n1 = cluster.allocator._world.nodes["n1"]
    cluster.put_node(replace(n1, disks=(replace(n1.disks[0], schedulable=False, is_under_pressure=True),)))
    refused = cluster.allocator.allocations.reuse_replica("v")
    assert ((), {"n1": (Reason.DISK_UNSCHEDULABLE, 0)}) == (refused.allocations, why(refused))
    show_copies(cluster, 10, "n1", "n2")
    fail(cluster)
    assert ("n1", "d1") == place(cluster.allocator.allocations.reuse_replica("v"))


# Volumes that grow


def grown(cluster: Allocating, gib: float) -> Allotment:
    return cluster.allocator.allocations.grow("v", int(gib * GIB))


def hold(cluster: Allocating, gib: float) -> GrowthOutcome:
    return cluster.allocator.expansions.hold(GrowthRequest("v", int(gib * GIB)))


def three_copies() -> Allocating:
    cluster = cluster_of(n1=100, n2=100, n3=100)
    show_copies(cluster, 40, "n1", "n2", "n3")
    return cluster


def test_a_volume_grows_on_all_disks() -> None:
    cluster = three_copies()
    given = grown(cluster, 90)
    assert ({"n1", "n2", "n3"}, True) == ({one.node for one in given.allocations}, given.is_new)
    assert {90 * GIB} == {one.size_bytes for one in given.allocations}
    assert [10, 10, 10] == [cluster.free_gib(name) for name in ("n1", "n2", "n3")]
    cluster.write(given)
    again = grown(cluster, 90)
    assert (given.allocations, False) == (again.allocations, again.is_new)


def test_a_volume_grows_on_none_where_one_is_full() -> None:
    cluster = three_copies()
    cluster.show("w", 30, on="n2")
    refused = grown(cluster, 90)
    assert ((), {"n2": (Reason.INSUFFICIENT_STORAGE, 20)}) == (refused.allocations, why(refused))
    assert [60, 30, 60] == [cluster.free_gib(name) for name in ("n1", "n2", "n3")]


def test_a_volume_without_a_disk_and_a_smaller_size_are_no_growth() -> None:
    cluster = cluster_of(n1=100)
    cluster.show("v", 10)
    with pytest.raises(PreconditionError, match="no replica of 'v' has a disk"):
        grown(cluster, 50)
    cluster.show("v", 10, on="n1")
    with pytest.raises(PreconditionError, match="size_bytes: 9663676416 is less than 10737418240"):
        grown(cluster, 9)
    assert ((10 * GIB,), False) == (tuple(one.size_bytes for one in grown(cluster, 10).allocations), False)


def two_copies(**free_gib: float) -> Allocating:
    """The first one lies on n1, the second one has no disk."""
    cluster = cluster_of(**free_gib)
    show_copies(cluster, 10, "n1", "")
    return cluster


def size_of(cluster: Allocating) -> int:
    found = cluster.allocator._world.volume("v")
    assert found is not None
    return found.size_bytes


def test_a_further_replica_is_given_room_at_the_size_that_the_others_were_given() -> None:
    cluster = two_copies(n1=100, n2=15)
    cluster.write(grown(cluster, 50))
    assert (Reason.INSUFFICIENT_STORAGE, 35) == why(cluster.schedule("v-r-2"))["n2"]
    cluster.add_nodes(n3=60)
    for _ in range(2):
        assert 50 * GIB == cluster.schedule("v-r-2").size_bytes
    assert [50, 15, 10] == [cluster.free_gib(name) for name in ("n1", "n2", "n3")]


def test_what_the_leader_before_admitted_is_waited_for_before_a_volume_grows() -> None:
    """As for an expansion that the webhook asks about."""
    cluster = three_copies()
    cluster.show("w", 30, on="n2")
    assert GrowthVerdict.ADMITTED is hold(cluster, 50).verdict
    cluster.allocator.observe_volume("v", volume("v", 50, locality="disabled", replica_count=3))
    cluster.allocator.begin_term(has_predecessor=True)
    assert GrowthVerdict.TRY_AGAIN is hold(cluster, 60).verdict
    with pytest.raises(NotReadyError, match="it fits, but the leader has just changed"):
        grown(cluster, 60)
    assert [50, 20, 50] == [cluster.free_gib(name) for name in ("n1", "n2", "n3")]
    assert {"n2": (Reason.INSUFFICIENT_STORAGE, 20)} == why(grown(cluster, 90))
    assert 3 == len(grown(cluster, 50).allocations)  # it was granted that much, as everybody sees
    cluster.pass_time(int(UNKNOWN_SECONDS) + 1)
    assert [60 * GIB] * 3 == [one.size_bytes for one in grown(cluster, 60).allocations]


def test_growth_that_was_admitted_is_there_for_the_call() -> None:
    cluster = three_copies()
    assert GrowthVerdict.ADMITTED is hold(cluster, 90).verdict
    cluster.show("w", 30)
    assert () == cluster.schedule("w-r-1").allocations  # it is granted to `v`
    given = cluster.write(grown(cluster, 90))
    assert (False, 3) == (given.is_new, len(given.allocations))
    assert [10, 10, 10] == [cluster.free_gib(name) for name in ("n1", "n2", "n3")]


def test_a_new_leader_grants_what_is_larger_on_record() -> None:
    cluster = two_copies(n1=100, n2=60)
    cluster.write(grown(cluster, 50))
    cluster.lead_anew()
    assert (50 * GIB, 50) == (size_of(cluster), cluster.free_gib("n1"))
    assert not grown(cluster, 50).is_new
    assert 50 * GIB == cluster.schedule("v-r-2").size_bytes


def test_and_nothing_that_does_not_fit_any_more() -> None:
    cluster = two_copies(n1=100)
    cluster.write(grown(cluster, 50))
    cluster.show("w", 60, on="n1")
    cluster.lead_anew()
    assert (10 * GIB, 30) == (size_of(cluster), cluster.free_gib("n1"))


def test_growth_that_nobody_asks_for_any_more_ends_after_a_minute() -> None:
    cluster = two_copies(n1=100, n2=60)
    grown(cluster, 50)
    cluster.pass_time(50)
    grown(cluster, 50)  # told once more
    cluster.pass_time(50)
    assert 50 * GIB == size_of(cluster)
    cluster.pass_time(30)
    assert (10 * GIB, 90) == (size_of(cluster), cluster.free_gib("n1"))
    assert grown(cluster, 50).is_new  # a caller whose name is known is not told that it asks for nothing
    assert 50 == cluster.free_gib("n1")
