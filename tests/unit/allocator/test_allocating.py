"""Disks that are given by name to replicas, and what is on record of them.

tests/unit/rpc tells what comes of answers that are lost and of writes that fail, arrive late or are refused.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from controller.allocator.by_name import allocate
from controller.allocator.by_name.beside import FoundDisks
from controller.allocator.outcome import LookFirstError, Mode
from controller.errors import NotFoundError, NotReadyError, PreconditionError
from controller.model.allocations import Allocation, Purpose
from controller.model.longhorn import Replica
from controller.rules import eligibility
from controller.rules.demand import Missing
from controller.rules.reasons import Reason, Rejection
from controller.settings import DISK_SCHEDULER, LONGHORN
from tests.fakes.builders import GIB, disk, node, replica, volume
from tests.fakes.counting import counted
from tests.unit.allocator.giving import SECONDS, Allocating, cluster_of, image, place, why


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


# The record


def test_the_record_has_what_lies_on_the_disks_and_what_is_given_there() -> None:
    cluster = cluster_of(n1=300, n2=100)
    cluster.show("placed", 10, on="n1")
    failed = replica("failed-r-1", "failed", 10, on="n1", failed_at="2026-01-01T00:00:00Z")
    cluster.allocator.observe_replica("failed-r-1", failed)
    image(cluster, 20, "n2", seen_on=["n1"])
    cluster.schedule(cluster.show("given", 30))
    found = cluster.allocator.record.of_nodes(["n1", "n2", "gone"])
    assert [("failed-r-1", 10), ("given-r-1", 30), ("i", 20), ("placed-r-1", 10)] == sorted(
        (one.name, one.size_bytes // GIB) for one in found["n1"]
    )
    assert [("i", 20)] == [(one.name, one.size_bytes // GIB) for one in found["n2"]]
    assert () == found["gone"]


def test_nodes_are_told_of_once_that_have_changed() -> None:
    cluster = cluster_of(n1=100, n2=100)
    cluster.allocator.sweep()
    assert {"n1", "n2"} == cluster.allocator.record.take_changed()
    given = cluster.schedule(cluster.show("v", 60))
    cluster.allocator.sweep()
    assert given.nodes == cluster.allocator.record.take_changed()
    cluster.show("w", 10, on="n2")
    cluster.allocator.sweep()
    assert {"n2"} == cluster.allocator.record.take_changed()
    assert set() == cluster.allocator.record.take_changed()


def test_a_disk_of_which_the_record_has_no_place_for_more_is_passed_by(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocate, "MAX_ENTRIES", 2)
    cluster = Allocating().add_nodes(n1=[100, 90], n2=40)
    for number in range(2):
        cluster.allocator.observe_replica(f"r{number}", replica(f"r{number}", "other", 1, on="n1", disk_name="d0"))
    name = cluster.show("v", 30)
    assert ("n1", "d1") == place(cluster.schedule(name))
    for number in range(2, 4):
        cluster.allocator.observe_replica(f"r{number}", replica(f"r{number}", "other", 1, on="n1", disk_name="d1"))
    assert ("n2", "d1") == place(cluster.schedule(cluster.show("w", 30)))
    told = {(one.node, one.disk): one.rejection for one in cluster.schedule(cluster.show("x", 30)).obstacles}
    assert Reason.INSUFFICIENT_STORAGE is told["n2", "d1"].reason
    for full in ("d0", "d1"):
        text = f"the record of n1 has no place for more than 10000 replicas on n1-{full}"
        assert Rejection(Reason.RECORD_UNWRITABLE, text) == told["n1", full]
