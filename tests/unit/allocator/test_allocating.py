"""Room that is given away by name: to replicas, to growing volumes, to copies of backing images."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest

from controller.allocator.by_name import allocate, images
from controller.allocator.by_name.beside import FoundDisks
from controller.allocator.by_name.find import DiskQuestion
from controller.allocator.outcome import Allotment, LookFirstError, Mode
from controller.allocator.verbs.grow import UNKNOWN_SECONDS, GrowthOutcome, GrowthRequest, GrowthVerdict
from controller.errors import NotFoundError, NotReadyError, PreconditionError, RefusedWriteError
from controller.model.allocations import Allocation, Purpose
from controller.model.longhorn import BackingImage, Replica
from controller.rules import eligibility
from controller.rules.demand import Missing
from controller.rules.reasons import Reason, Rejection
from controller.settings import DISK_SCHEDULER, LONGHORN
from tests.fakes.builders import GIB, disk, node, replica, volume
from tests.fakes.counting import counted
from tests.fakes.rooms import OPEN
from tests.unit.allocator.giving import SECONDS, Allocating, cluster_of, image, place, why


def without(found: dict[str, tuple[Reason, int]], name: str) -> dict[str, tuple[Reason, int]]:
    return {node: reason for node, reason in found.items() if node != name}


# Replicas


def test_a_replica_gets_the_disk_that_longhorn_would_take_and_it_counts_at_once() -> None:
    cluster = cluster_of(n1=100, n2=200)
    cluster.show("v", 60)
    given = cluster.allocator.allocations.place_replica("v-r-1", SECONDS)
    assert (("n2", "d1"), True, 60 * GIB) == (place(given), given.is_new, given.size_bytes)
    assert ((entry(node="n2"),), ["n2"]) == (given.allocations, sorted(given.nodes))
    assert 140 == cluster.free_gib("n2")  # before it is written
    cluster.write(given)
    assert 140 == cluster.free_gib("n2")


def test_what_the_object_shows_later_is_not_counted_again() -> None:
    cluster = cluster_of(n1=100)
    cluster.show("v", 60)
    cluster.schedule("v-r-1")
    cluster.show("v", 60, on="n1")
    assert 40 == cluster.free_gib("n1")
    cluster.let_figures_follow()
    assert 40 == cluster.free_gib("n1")


def test_two_that_want_the_last_bytes_get_them_in_the_order_of_their_calls() -> None:
    cluster = cluster_of(n1=100)
    cluster.show("a", 60)
    cluster.show("b", 60)
    assert ("n1", "d1") == place(cluster.schedule("a-r-1"))
    refused = cluster.schedule("b-r-1")
    assert ((), {"n1": (Reason.INSUFFICIENT_STORAGE, 20)}) == (refused.allocations, why(refused))


def test_what_a_pod_was_offered_is_not_given_away() -> None:
    cluster = cluster_of(n1=100)
    assert {"n1"} == cluster.ask("pod", 60, "n1")
    cluster.show("v", 60)
    assert {"n1": (Reason.CONTENDED, 20)} == why(cluster.schedule("v-r-1"))


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


def beside_copies_that_roam(**free_gib: float) -> tuple[Allocating, str, str]:
    """A pod on n1 with a volume of three copies, which may share nodes but no disk, and a local one that no node but n1
    was offered; the volumes."""
    cluster = Allocating(replace(OPEN, degraded_availability=True, disk_soft_anti_affinity=False))
    cluster.add_nodes(**free_gib)
    cluster.add_class("three", dataLocality="disabled", numberOfReplicas="3", replicaSoftAntiAffinity="enabled")
    cluster.add_pod("pod", ("roams", 40, "three"), ("local", 60))
    assert {"n1"} == cluster.offered("pod", "n1")
    cluster.select_node("roams", "n1")
    cluster.select_node("local", "n1")
    roams = cluster.provision("roams", locality="disabled", replica_count=3, soft_anti_affinity="enabled", copies=3)
    local = cluster.provision("local")
    cluster.bind("pod", "n1")
    return cluster, roams, local


def test_who_was_promised_a_node_waits_for_nobody_who_may_go_anywhere() -> None:
    """The copies that roam have no other disk, and one place was planned for them."""
    cluster, roams, local = beside_copies_that_roam(n1=100)
    assert ("n1", "d1") == place(cluster.schedule(f"{roams}-r-1"))
    assert not cluster.schedule(f"{roams}-r-2").allocations
    cluster.attach(local, "n1", 60)
    assert ("n1", "d1") == place(cluster.schedule(f"{local}-r-1"))


def test_who_was_promised_a_node_comes_there_though_copies_that_roam_may_take_the_rest() -> None:
    """Another node has more room."""
    cluster, roams, local = beside_copies_that_roam(n1=100, n2=200)
    cluster.place(roams, "n1", 40)
    cluster.attach(local, "n1", 60)
    found = cluster.allocator.disks.find(DiskQuestion(local, f"{local}-r-1"), SECONDS)
    assert found.preferred is not None
    assert ("n1", ["n1", "n2"], ()) == (found.preferred.node, [one.node for one in found.disks], found.obstacles)
    assert ("n1", "d1") == place(cluster.schedule(f"{local}-r-1"))


def test_of_several_nodes_that_were_offered_the_one_of_its_engine_comes_first() -> None:
    cluster = Allocating().add_nodes(n1=100, n2=200)
    assert cluster.ask("roams", 40, "n1", "n2", class_name="roaming")
    assert {"n1", "n2"} == cluster.ask("local", 60, "n1", "n2")
    local = cluster.provision("local")
    cluster.show("other", 20, on="n1")
    cluster.attach(local, "n1", 60)
    assert ("n1", "d1") == place(cluster.schedule(f"{local}-r-1"))


@pytest.mark.parametrize("order", list(permutations("abc")))
def test_volumes_of_one_pod_find_their_disks_in_whatever_order_they_ask(order: Sequence[str]) -> None:
    """They fill both disks, and only together in one way."""
    cluster = Allocating().add_nodes(n1=[150, 150], n2=400)
    sizes = {"a": 80, "b": 70, "c": 150}
    cluster.add_pod("pod", *sizes.items())
    assert {"n1"} == cluster.offered("pod", "n1")
    for name, gib in sizes.items():
        cluster.select_node(name, "n1")
        cluster.attach(cluster.provision(name), "n1", gib, state="attaching")
    given = {name: place(cluster.schedule(f"pvc-uid-{name}-r-1")) for name in order}
    assert {"n1"} == {node for node, _ in given.values()}
    assert given["a"] == given["b"] != given["c"]
    assert {} == cluster.pending()


def test_on_its_node_it_leaves_copies_that_roam_their_room_if_it_can() -> None:
    cluster = Allocating()
    fast = disk("d1", 100, node="n1", tags=("ssd",))
    cluster.add_node("n1", disk("d0", 60, node="n1"), fast)
    cluster.add_class("fast", dataLocality="disabled", numberOfReplicas="1", diskSelector="ssd")
    assert {"n1"} == cluster.ask("roams", 50, "n1", class_name="fast")
    assert {"n1"} == cluster.ask("local", 50, "n1")
    cluster.select_node("local", "n1")
    local = cluster.provision("local")
    cluster.attach(local, "n1", 50)
    cluster.add_node("n1", disk("d0", 60, node="n1"), replace(fast, maximum_bytes=90 * GIB))
    assert ("n1", "d0") == place(cluster.schedule(f"{local}-r-1"))


def test_what_was_given_away_is_not_offered_to_a_pod() -> None:
    cluster = cluster_of(n1=100)
    cluster.show("v", 60)
    cluster.schedule("v-r-1")
    assert set() == cluster.ask("pod", 60, "n1")
    assert {"n1"} == cluster.ask("small", 40, "n1")


@pytest.mark.parametrize("goes_to", ["n1", "n2"])
def test_the_plan_of_a_volume_becomes_its_allocation_on_whatever_node(goes_to: str) -> None:
    cluster = cluster_of(n1=100, n2=100)
    assert {"n1"} == cluster.ask("pod", 60, "n1", class_name="roaming")
    cluster.select_node("pod", "n1")
    name = cluster.provision("pod", locality="disabled")
    assert 60 == sum(cluster.pending().values())
    other = "n2" if goes_to == "n1" else "n1"
    cluster.put_node(replace(cluster.allocator._world.nodes[other], allow_scheduling=False))
    assert (goes_to, "d1") == place(cluster.schedule(f"{name}-r-1"))
    assert {} == cluster.pending()
    assert 40 == cluster.free_gib(goes_to)


def test_a_copy_beside_the_pods_node_leaves_the_local_one_planned_once_that_is_open() -> None:
    """Best-effort: Longhorn moves the data to the node of the pod."""
    cluster = cluster_of(n1=100, n2=100)
    assert {"n1"} == cluster.ask("pod", 60, "n1")
    cluster.select_node("pod", "n1")
    name = cluster.provision("pod")
    n1 = cluster.allocator._world.nodes["n1"]
    cluster.put_node(replace(n1, allow_scheduling=False))
    assert ("n2", "d1") == place(cluster.schedule(f"{name}-r-1"))
    cluster.put_node(n1)
    assert {"n1": 60} == cluster.pending()


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


def hold(cluster: Allocating, gib: float) -> GrowthOutcome:
    return cluster.allocator.expansions.hold(GrowthRequest("v", int(gib * GIB)))


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


def test_a_failed_replica_comes_back_where_it_lies() -> None:
    cluster = cluster_of(n1=100)
    cluster.show("v", 60, on="n1", robustness="degraded")
    failed = replace(replica("v-r-1", "v", 60, on="n1"), failed_at="2026-01-01T00:00:00Z")
    cluster.allocator.observe_replica("v-r-1", failed)
    given = cluster.write(cluster.allocator.allocations.reuse_replica("v"))
    assert ("n1", "d1") == place(given)
    assert 40 == cluster.free_gib("n1")
    cluster.allocator.observe_replica("v-r-1", replace(failed, rebuild_retry_count=5))
    assert () == cluster.allocator.allocations.reuse_replica("v").allocations
    with pytest.raises(NotFoundError, match="no Longhorn volume 'other'"):
        cluster.allocator.allocations.reuse_replica("other")


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


def test_so_is_one_that_has_none_for_more_images(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "MAX_ENTRIES", 1)
    cluster = cluster_of(n1=100, n2=50)
    there = BackingImage("there", real_size_bytes=1, disk_uuids=frozenset(("n1-d1",)))
    cluster.allocator.observe_backing_image("there", there)
    image(cluster, 60)
    given = cluster.allocator.allocations.place_image("i")
    assert {"n1": (Reason.RECORD_UNWRITABLE, 0), "n2": (Reason.TOO_FULL, 0)} == why(given)
    image(cluster, 20)
    assert ("n2", "d1") == place(cluster.allocator.allocations.place_image("i"))


# Freeing


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


# Growth


def grown(cluster: Allocating, gib: float) -> Allotment:
    return cluster.allocator.allocations.grow("v", int(gib * GIB))


def three_copies(gib: float = 40) -> Allocating:
    cluster = cluster_of(n1=100, n2=100, n3=100)
    cluster.allocator.observe_volume("v", volume("v", gib, locality="disabled", replica_count=3))
    for number, name in enumerate(("n1", "n2", "n3"), 1):
        cluster.allocator.observe_replica(f"v-r-{number}", replica(f"v-r-{number}", "v", gib, on=name))
        cluster.schedule(f"v-r-{number}")
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
    cluster.allocator.observe_volume("v", volume("v", 10, locality="disabled", replica_count=2))
    cluster.allocator.observe_replica("v-r-1", replica("v-r-1", "v", 10, on="n1"))
    cluster.allocator.observe_replica("v-r-2", replica("v-r-2", "v", 10))
    return cluster


def size_of(cluster: Allocating) -> int:
    found = cluster.allocator._world.volume("v")
    assert found is not None
    return found.size_bytes


def test_a_further_replica_is_given_room_at_the_size_that_the_others_were_given() -> None:
    cluster = two_copies(n1=100, n2=15)
    cluster.write(grown(cluster, 50))
    assert {"n2": (Reason.INSUFFICIENT_STORAGE, 35)} == without(why(cluster.schedule("v-r-2")), "n1")
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


# Backing images


def test_a_copy_of_an_image_goes_to_the_disk_with_most_room_on_a_node_without_one() -> None:
    cluster = cluster_of(n1=300, n2=100, n3=200)
    image(cluster, 20, "n1")
    given = cluster.write(cluster.allocator.allocations.place_image("i"))
    assert (("n3", "d1"), 180) == (place(given), cluster.free_gib("n3"))
    again = cluster.allocator.allocations.place_image("i")  # the image does not show it yet
    assert (given.allocations, False) == (again.allocations, again.is_new)
    image(cluster, 20, "n1", "n3")
    assert ("n2", "d1") == place(cluster.allocator.allocations.place_image("i"))


def test_an_image_gets_no_disk_that_others_hold() -> None:
    cluster = cluster_of(n1=100)
    image(cluster, 50)
    assert {"n1"} == cluster.ask("pod", 60, "n1")
    assert {"n1": (Reason.INSUFFICIENT_STORAGE, 10)} == why(cluster.allocator.allocations.place_image("i"))


def test_an_image_of_no_known_size_needs_one() -> None:
    cluster = cluster_of(n1=100)
    image(cluster, 0)
    with pytest.raises(PreconditionError, match="size of backing image 'i' is not known"):
        cluster.allocator.allocations.place_image("i")
    assert 20 * GIB == cluster.allocator.allocations.place_image("i", 20 * GIB).size_bytes


@pytest.mark.parametrize("is_known", [True, False])
def test_a_copy_grows_on_its_disk_or_not_at_all(is_known: bool) -> None:
    """`is_known`: Longhorn tells the size, and not the caller."""
    cluster = cluster_of(n1=100, n2=60)
    image(cluster, 0)

    def asked(gib: int) -> Allotment:
        image(cluster, gib if is_known else 0)
        return cluster.write(cluster.allocator.allocations.place_image("i", 0 if is_known else gib * GIB))

    for gib, is_new, free_gib in ((10, True, 90), (50, True, 50), (50, False, 50), (10, False, 50)):
        given = asked(gib)
        assert (("n1", "d1"), is_new, free_gib) == (place(given), given.is_new, cluster.free_gib("n1"))
        assert (100 - free_gib) * GIB == given.size_bytes == given.allocations[0].size_bytes
    cluster.show("v", 20, on="n1")
    assert {"n1"} == cluster.ask("pod", 20, "n1")
    assert ((), {"n1": (Reason.INSUFFICIENT_STORAGE, 5)}) == ((refused := asked(65)).allocations, why(refused))
    assert 60 * GIB == asked(60).size_bytes


@pytest.mark.parametrize(("on", "seen_on"), [(["n1"], ["n1"]), (["n1"], []), ([], ["n1"])])
def test_a_copy_is_freed_once_no_map_names_its_disk(on: list[str], seen_on: list[str]) -> None:
    cluster = cluster_of(n1=100)
    image(cluster, 20)
    cluster.write(cluster.allocator.allocations.place_image("i"))
    image(cluster, 20, *on, seen_on=seen_on)
    assert not cluster.allocator.allocations.known.is_shown_without_copy("i", "n1-d1")
    with pytest.raises(PreconditionError, match="'i' still names disk 'n1-d1'"):
        cluster.allocator.allocations.release_image("i", "n1-d1")
    assert 80 == cluster.free_gib("n1")
    image(cluster, 20)
    assert cluster.allocator.allocations.known.is_shown_without_copy("i", "n1-d1")
    cluster.write(cluster.allocator.allocations.release_image("i", "n1-d1"))
    assert 100 == cluster.free_gib("n1")
