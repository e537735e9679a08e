"""Disks that are given by name to replicas, and to whom none is given."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from controller.allocator.by_name.beside import FoundDisks
from controller.allocator.outcome import LookFirstError, Mode
from controller.errors import NotFoundError, NotReadyError, PreconditionError, RefusedWriteError
from controller.model.allocations import Allocation, Purpose
from controller.model.longhorn import Replica
from controller.rules import eligibility
from controller.rules.demand import Missing
from controller.rules.reasons import Reason
from controller.settings import DISK_SCHEDULER, LONGHORN
from tests.fakes.builders import GIB, disk, node, replica, volume
from tests.fakes.counting import counted
from tests.unit.allocator.giving import SECONDS, cluster_of, place, why


def test_a_replica_gets_the_disk_that_longhorn_would_take_and_it_counts_at_once() -> None:
    cluster = cluster_of(n1=100, n2=200)
    cluster.show("v", 60)
    given = cluster.allocator.allocations.place_replica("v-r-1", SECONDS)
    assert (("n2", "d1"), True, 60 * GIB) == (place(given), given.is_new, given.size_bytes)
    assert ((entry(node="n2"),), ["n2"]) == (given.allocations, sorted(given.nodes))
    assert 140 == cluster.free_gib("n2")  # before it is written
    cluster.write(given)
    assert 140 == cluster.free_gib("n2")


def test_two_that_want_the_last_bytes_get_them_in_the_order_of_their_calls() -> None:
    cluster = cluster_of(n1=100)
    cluster.show("a", 60)
    cluster.show("b", 60)
    assert ("n1", "d1") == place(cluster.schedule("a-r-1"))
    refused = cluster.schedule("b-r-1")
    assert ((), {"n1": (Reason.INSUFFICIENT_STORAGE, 20)}) == (refused.allocations, why(refused))


def test_a_disk_that_is_free_again_while_refusals_are_sought_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """Why no disk takes it is found out without the lock, and may be no longer true by then."""
    cluster = cluster_of(n1=100)
    cluster.show("v", 60)
    cluster.show("other", 60, on="n1")
    disks, find = cluster.allocator.disks, cluster.allocator.disks.find

    def empty_and_find(*question: Any) -> FoundDisks:
        cluster.allocator.observe_replica("other-r-1", None)
        return find(*question)

    monkeypatch.setattr(disks, "find", empty_and_find)
    assert ("n1", "d1") == place(cluster.schedule("v-r-1"))


def test_of_many_full_disks_few_are_looked_at_for_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those with the fewest bytes missing are among them, and what no rule allows is not."""
    cluster = cluster_of(**{f"n{number}": number % 50 for number in range(300)})
    for number in range(290, 300):
        facts = node(f"n{number}", disk("d1", 100, node=f"n{number}"))
        cluster.allocator.observe_node(facts.name, replace(facts, allow_scheduling=False))
    cluster.show("v", 60)
    looks = counted(monkeypatch, eligibility, "check_disk_space")
    refused = cluster.schedule("v-r-1")
    assert len(looks) < 300
    assert [11] * 5 == sorted(one.missing_bytes // GIB for one in refused.obstacles)[:5]
    assert 300 == len(refused.obstacles) + refused.more


def test_what_a_watch_shows_a_moment_later_is_waited_for() -> None:
    cluster = cluster_of(n1=100)
    allocations = cluster.allocator.allocations
    needed = [Missing("volume", "", "v"), Missing("replica", "", "v-r-1")]
    assert not allocations.known.wait_known(needed, 0.0)
    with ThreadPoolExecutor(1) as pool:
        known = pool.submit(allocations.known.wait_known, needed, 30.0)
        cluster.allocator.observe_volume("v", volume("v", 10))
        cluster.allocator.observe_replica("v-r-1", replica("v-r-1", "v", 10))
        assert known.result()
    assert not allocations.known.wait_known([Missing("backing_image", "", "i")], 0.0)


def test_pods_that_nobody_asked_us_about_keep_no_call_off() -> None:
    """Both were bound to a disk that holds one of them: the first call wins, and nobody waits for the other."""
    cluster = cluster_of(n1=100)
    for name in ("a", "b"):
        cluster.add_pod(name, (name, 60))
        cluster.change_pod(name, is_opted_in=False)
        cluster.select_node(name, "n1")
        cluster.provision(name)
        cluster.bind(name, "n1")
    first, second = (f"pvc-{cluster.claims[name].uid}-r-1" for name in ("a", "b"))
    assert ("n1", "d1") == place(cluster.schedule(second))
    assert {"n1": (Reason.INSUFFICIENT_STORAGE, 20)} == why(cluster.schedule(first))


def test_what_cannot_be_placed_is_an_error() -> None:
    cluster = cluster_of(n1=100)
    with pytest.raises(NotFoundError, match="no replica 'v-r-1'"):
        cluster.schedule("v-r-1")
    cluster.show("v", 60)
    failed = replace(replica("v-r-1", "v", 60), failed_at="2026-01-01T00:00:00Z")
    cluster.allocator.observe_replica("v-r-1", failed)
    for name in ("v-r-1", cluster.show("w", 10, deleting=True)):
        with pytest.raises(PreconditionError, match="cannot be placed: it or its volume"):
            cluster.schedule(name)
    cluster.allocator.set_mode(Mode.BYPASS)
    with pytest.raises(NotReadyError, match="bypassed"):
        cluster.schedule("v-r-1")


def test_a_replica_that_longhorn_placed_is_told_and_recorded() -> None:
    cluster = cluster_of(n1=100)
    cluster.show("v", 60, on="n1")
    given = cluster.schedule("v-r-1")
    assert (("n1", "d1"), False, 1) == (place(given), given.is_new, len(given.nodes))
    assert 40 == cluster.free_gib("n1")


def test_a_disk_that_was_given_and_takes_no_replicas_now_is_not_told_again_unless_it_was_taken() -> None:
    cluster = cluster_of(n1=100)
    cluster.show("v", 10)
    cluster.schedule("v-r-1")
    n1 = cluster.allocator._world.nodes["n1"]
    cluster.put_node(replace(n1, schedulable=False))
    with pytest.raises(PreconditionError, match="on node n1 that takes it no more: n1: condition Schedulable is not"):
        cluster.schedule("v-r-1")
    cluster.show("v", 10, on="n1")
    assert ("n1", "d1") == place(cluster.schedule("v-r-1"))
    cluster.show("v", 10)
    cluster.put_node(n1)
    assert ("n1", "d1") == place(cluster.schedule("v-r-1"))


# What was told


def test_the_same_call_gives_the_same_disk_until_its_object_shows_one() -> None:
    cluster = cluster_of(n1=100, n2=100)
    cluster.show("v", 60)
    first = cluster.schedule("v-r-1")
    for _ in range(2):
        again = cluster.schedule("v-r-1")
        assert (first.allocations, False, first.nodes) == (again.allocations, again.is_new, again.nodes)
    cluster.show("v", 60, on=first.allocations[0].node)
    last = cluster.schedule("v-r-1")
    assert (first.allocations, False) == (last.allocations, last.is_new)
    assert 140 == cluster.free_gib("n1") + cluster.free_gib("n2")


def test_what_could_not_be_written_stands_and_is_told_again() -> None:
    """It may have arrived, and its replica waits."""
    cluster = cluster_of(n1=100, n2=100)
    name = cluster.show("v", 60)
    given = cluster.allocator.allocations.place_replica(name, SECONDS)
    cluster.allocator.allocations.failed(given, NotReadyError("no answer"))
    cluster.pass_time(1_000)
    assert given.allocations == cluster.schedule(name).allocations
    assert 140 == cluster.free_gib("n1") + cluster.free_gib("n2")


def test_a_node_whose_record_refuses_a_write_is_passed_by_for_a_minute() -> None:
    cluster = cluster_of(n1=200, n2=100)
    allocations, name = cluster.allocator.allocations, cluster.show("v", 60)
    given = allocations.place_replica(name, SECONDS)
    assert ("n1", "d1") == place(given)
    allocations.failed(given, RefusedWriteError("the record of n1 cannot be written: 403", "n1"))
    assert 200 == cluster.free_gib("n1")
    assert ("n2", "d1") == place(cluster.schedule(name))
    with pytest.raises(NotReadyError, match="no other node takes it, and the record of n1 cannot be written: 403"):
        cluster.schedule(cluster.show("w", 60))
    cluster.pass_time(61)
    assert ("n1", "d1") == place(cluster.schedule("w-r-1"))


def test_a_new_leader_goes_by_the_record() -> None:
    cluster = cluster_of(n1=100, n2=100)
    name = cluster.show("v", 60)
    unwritten = cluster.allocator.allocations.place_replica(name, SECONDS)
    cluster.lead_anew()
    assert 200 == cluster.free_gib("n1") + cluster.free_gib("n2")  # nobody was told
    given = cluster.schedule(name)
    cluster.lead_anew()
    assert (given.allocations, False) == ((again := cluster.schedule(name)).allocations, again.is_new)
    assert unwritten.allocations == given.allocations
    assert 140 == cluster.free_gib("n1") + cluster.free_gib("n2")


def entry(name: str = "v-r-1", node: str = "n1", gib: int = 60) -> Allocation:
    return Allocation(Purpose.REPLICA, name, node, f"{node}-d1", gib * GIB)


@pytest.mark.parametrize(
    "facts",
    [
        None,
        replica("v-r-1", "v", 60, failed_at="2026-01-01T00:00:00Z"),
        replica("v-r-1", "v", 60, deleting=True),
        replica("v-r-1", "v", 60, on="n2"),
    ],
    ids=["gone", "failed", "being deleted", "placed elsewhere"],
)
@pytest.mark.parametrize("is_inherited", [False, True])
def test_what_was_given_ends_with_the_replica_that_waits(facts: Replica | None, is_inherited: bool) -> None:
    cluster = cluster_of(n1=100, n2=100)
    cluster.show("v", 60)
    if not is_inherited:
        cluster.lead_anew([entry()])
        assert 40 == cluster.free_gib("n1")
    cluster.allocator.observe_replica("v-r-1", facts)
    if is_inherited:
        cluster.lead_anew([entry()])
    assert 100 == cluster.free_gib("n1")
    assert {} == {node: found for node, found in cluster.allocator.record.of_nodes(["n1"]).items() if entry() in found}


def test_another_replica_of_that_name_has_nothing_of_the_former_one() -> None:
    cluster = cluster_of(n1=100)
    cluster.schedule(cluster.show("v", 60))
    cluster.allocator.observe_replica("v-r-1", replica("v-r-1", "v", 60, uid="another"))
    assert 100 == cluster.free_gib("n1")


def test_of_two_disks_on_record_the_one_where_the_replica_has_to_be_stands() -> None:
    """The leader before has ended between the writes of a move."""
    cluster = cluster_of(n1=100, n2=100)
    cluster.show("v", 60, locality="strict-local", node_id="n2")
    cluster.lead_anew([entry(node="n1"), entry(node="n2")])
    assert (100, 40) == (cluster.free_gib("n1"), cluster.free_gib("n2"))
    assert ("n2", "d1") == place(cluster.schedule("v-r-1"))


def test_what_is_given_on_a_disk_goes_where_that_goes() -> None:
    cluster = cluster_of(n1=100, n2=10)
    given = cluster.schedule(cluster.show("v", 60))
    nodes = cluster.allocator._world.nodes
    (moved,) = nodes["n1"].disks
    cluster.put_node(replace(nodes["n1"], disks=()))
    assert given.allocations == cluster.allocator.record.of_nodes(["n1"])["n1"]  # its disk is nowhere
    cluster.put_node(replace(nodes["n2"], disks=(*nodes["n2"].disks, replace(moved, name="d2"))))
    assert 40 == cluster.free_gib("n2", "d2")
    assert ("n2", "n1-d1") == place(cluster.schedule("v-r-1"))
    found = cluster.allocator.record.of_nodes(["n1", "n2"])
    assert ((), ["v-r-1"]) == (found["n1"], [one.name for one in found["n2"]])


def test_what_was_told_before_longhorn_decides_again_stands_until_it_is_written_or_never_will_be() -> None:
    cluster = cluster_of(n1=100)
    cluster.schedule(cluster.show("v", 60))
    cluster.authority(LONGHORN)
    cluster.pass_time(29)
    assert 40 == cluster.free_gib("n1")
    with pytest.raises(PreconditionError, match="allocation-authority is longhorn"):
        cluster.schedule("v-r-1")
    switches = cluster.allocator.allocations.switches
    cluster.authority(DISK_SCHEDULER)
    with pytest.raises(NotReadyError, match="has changed since this was decided"):
        cluster.allocator.allocations.check_decides(switches)
    cluster.pass_time(31)
    assert 40 == cluster.free_gib("n1")  # who asks for places may have waited
    cluster.authority(LONGHORN)
    cluster.pass_time(31)
    assert 100 == cluster.free_gib("n1")


def test_where_the_replica_has_to_be_elsewhere_it_is_given_another_disk() -> None:
    cluster = cluster_of(n1=100, n2=100)
    cluster.show("v", 10, locality="strict-local", node_id="n1")
    cluster.schedule("v-r-1")
    cluster.show("v", 10, locality="strict-local", node_id="n2")
    with pytest.raises(LookFirstError):
        cluster.allocator.allocations.place_replica("v-r-1", SECONDS, is_looked_at=False)
    given = cluster.schedule("v-r-1")
    assert (("n2", "d1"), True, ["n1", "n2"]) == (place(given), given.is_new, sorted(given.nodes))
    assert (100, 90) == (cluster.free_gib("n1"), cluster.free_gib("n2"))
    assert ((), 1) == (cluster.records["n1"], len(cluster.records["n2"]))


# Freed


def test_a_replica_is_freed_only_without_a_disk() -> None:
    cluster = cluster_of(n1=100)
    cluster.schedule(cluster.show("v", 60))
    cluster.show("v", 60, on="n1")
    with pytest.raises(PreconditionError, match="replica 'v-r-1' still exists on node n1"):
        cluster.allocator.allocations.release_replica("v-r-1")
    cluster.allocator.allocations.release_replica("v-r-1", is_gone=True)  # by a live read: the watch lags
    assert 100 == cluster.free_gib("n1")
    assert () == cluster.allocator.record.of_nodes(["n1"])["n1"]


def test_what_is_freed_counts_until_the_record_does_not_show_it() -> None:
    cluster = cluster_of(n1=100)
    cluster.schedule(cluster.show("v", 60))
    freed = cluster.allocator.allocations.release_replica("v-r-1")
    assert ((entry(),), ["n1"]) == (freed.freed, sorted(freed.nodes))
    assert (40, ()) == (cluster.free_gib("n1"), cluster.allocator.record.of_nodes(["n1"])["n1"])
    cluster.allocator.record.written("n1", (entry(),))  # of a write that began before
    assert 40 == cluster.free_gib("n1")
    cluster.write(freed)
    assert 100 == cluster.free_gib("n1")
    assert () == cluster.allocator.allocations.release_replica("v-r-1").freed


def test_what_is_freed_and_asked_for_again_stays() -> None:
    cluster = cluster_of(n1=100)
    name = cluster.show("v", 60)
    given = cluster.schedule(name)
    freed = cluster.allocator.allocations.release_replica(name)
    again = cluster.allocator.allocations.place_replica(name, SECONDS)
    assert (given.allocations, False) == (again.allocations, again.is_new)
    cluster.write(freed)
    assert (40, (entry(),)) == (cluster.free_gib("n1"), cluster.records["n1"])
