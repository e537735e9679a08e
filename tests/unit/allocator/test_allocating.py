"""Room that is given away by name: to replicas, to growing volumes, to copies of backing images."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import permutations, product
from math import inf
from typing import Any

import pytest
from msgspec.structs import replace as other

from controller.allocator.choose.beside import FoundDisks
from controller.allocator.outcome import Allotment, LookFirstError, Mode
from controller.allocator.verbs.decisions import DOUBT_SECONDS, SHOWN_SECONDS
from controller.allocator.verbs.find import DiskQuestion
from controller.allocator.verbs.grow import UNKNOWN_SECONDS, GrowthOutcome, GrowthRequest, GrowthVerdict
from controller.errors import NotFoundError, NotReadyError, PreconditionError
from controller.model.allocations import Allocation, Drop, NodeRecord, Purpose, Put
from controller.model.records import MAX_ENTRIES
from controller.rules import eligibility
from controller.rules.demand import Missing
from controller.rules.reasons import Reason, Rejection
from controller.settings import DISK_SCHEDULER, LONGHORN, LiveSettings
from tests.fakes.builders import GIB, disk, node, replica, volume
from tests.fakes.counting import counted
from tests.fakes.rooms import OPEN
from tests.unit.allocator.giving import SECONDS, VERSIONS, Allocating, cluster_of, image, place, why


def without(found: dict[str, tuple[Reason, int]], name: str) -> dict[str, tuple[Reason, int]]:
    return {node: reason for node, reason in found.items() if node != name}


# Replicas


def test_a_replica_gets_the_disk_that_longhorn_would_take_and_it_counts_at_once() -> None:
    cluster = cluster_of(n1=100, n2=200)
    cluster.show("v", 60)
    given = cluster.allocator.allocations.place_replica("v-r-1", SECONDS)
    assert (("n2", "d1"), True, 60 * GIB) == (place(given), given.is_new, given.size_bytes)
    assert (Put(Allocation(Purpose.REPLICA, "v-r-1", "n2", "n2-d1", 60 * GIB)),) == given.changes
    assert 140 == cluster.free_gib("n2")  # before it is written
    cluster.write(given)
    assert 140 == cluster.free_gib("n2")


def test_what_the_watch_shows_before_the_writes_answer_counts_by_the_record_alone() -> None:
    cluster = cluster_of(n1=100)
    name = cluster.show("v", 60)
    given = cluster.allocator.allocations.place_replica(name, SECONDS)
    (one,) = given.allocations
    shown = NodeRecord("n1", (one,))
    cluster.allocator.observe_record("n1", shown)
    cluster.allocator.allocations.written(given)
    assert 40 == cluster.free_gib("n1")
    cluster.allocator.observe_record("n1", replace(shown, allocations=()))  # by hand
    assert 100 == cluster.free_gib("n1")


def test_what_was_forgotten_while_it_was_written_counts_again_once_it_is() -> None:
    cluster = cluster_of(n1=100)
    given = cluster.allocator.allocations.place_replica(cluster.show("v", 60), SECONDS)
    with cluster.allocator._changed:
        cluster.allocator.allocations.begin_term_locked()
    cluster.write(given, shows=False)
    assert 40 == cluster.free_gib("n1")


def test_what_the_object_shows_later_is_not_counted_again() -> None:
    cluster = cluster_of(n1=100)
    cluster.show("v", 60)
    cluster.schedule("v-r-1")
    cluster.show("v", 60, on="n1")
    assert 40 == cluster.free_gib("n1")
    cluster.let_figures_follow()
    assert 40 == cluster.free_gib("n1")


def test_the_same_call_gives_the_same_disk_once_and_has_it_written_until_its_object_shows_it() -> None:
    cluster = cluster_of(n1=100, n2=100)
    cluster.show("v", 60)
    first = cluster.allocator.allocations.place_replica("v-r-1", SECONDS)
    again = cluster.allocator.allocations.place_replica("v-r-1", SECONDS)
    assert (first.allocations, False, first.changes) == (again.allocations, again.is_new, again.changes)
    cluster.write(first)
    third = cluster.allocator.allocations.place_replica("v-r-1", SECONDS)
    assert (first.allocations, False, first.changes) == (third.allocations, third.is_new, third.changes)
    cluster.write(third)
    cluster.show("v", 60, on=first.allocations[0].node)
    fourth = cluster.allocator.allocations.place_replica("v-r-1", SECONDS)
    assert (first.allocations, False, ()) == (fourth.allocations, fourth.is_new, fourth.changes)
    assert 140 == cluster.free_gib("n1") + cluster.free_gib("n2")


def test_when_a_caller_was_told_is_known_for_the_grace_also_once_it_is_on_record() -> None:
    cluster = cluster_of(n1=100)
    cluster.show("v", 60)
    mine = cluster.allocator.allocations
    given = mine.place_replica("v-r-1", SECONDS)
    (one,) = given.allocations
    others = [other(one, node="n2"), other(one, size_bytes=1), other(one, name="v-r-2")]
    assert {one: inf} == mine.answers.told_at([one, *others])  # it is being written
    cluster.write(given)
    told = {one: cluster.clock.now()}
    assert told == mine.answers.told_at([one, *others])
    cluster.pass_time(LiveSettings().allocation_grace_seconds - 1)
    assert told == mine.answers.told_at([one])
    cluster.pass_time(2)
    assert {} == mine.answers.told_at([one])


def test_who_is_told_once_more_is_known_for_longer_than_who_was_told_after_the_first_time() -> None:
    cluster = cluster_of(n1=100)
    mine = cluster.allocator.allocations
    for name in ("v", "w"):
        cluster.show(name, 10)
        cluster.schedule(f"{name}-r-1")
        cluster.pass_time(10)
    (again,) = cluster.schedule("v-r-1").allocations
    cluster.pass_time(LiveSettings().allocation_grace_seconds - 1)
    (other,) = cluster.allocator._world.allocated.of(Purpose.REPLICA, "w-r-1")
    assert {again} == mine.answers.told_at([again, other]).keys()


def test_nobody_was_told_what_could_not_be_written() -> None:
    cluster = cluster_of(n1=100)
    cluster.show("v", 60)
    given = cluster.allocator.allocations.place_replica("v-r-1", SECONDS)
    cluster.allocator.allocations.failed(given)
    assert {} == cluster.allocator.allocations.answers.told_at(given.allocations)


@pytest.mark.parametrize("is_written", [True, False])
def test_what_somebody_takes_back_is_known_for_a_minute_at_any_size(is_written: bool) -> None:
    cluster = cluster_of(n1=100)
    mine = cluster.allocator.allocations
    (one,) = cluster.schedule(cluster.show("v", 60)).allocations
    assert not mine.answers.is_freed(one)
    freed = mine.release_replica(one.name)
    if is_written:
        cluster.write(freed)
    else:
        mine.failed(freed)  # it may have arrived
    others = [other(one, node="n2"), other(one, name="v-r-2")]
    assert [True, True, False, False] == [
        mine.answers.is_freed(each) for each in (one, other(one, size_bytes=1), *others)
    ]
    cluster.pass_time(int(SHOWN_SECONDS) - 1)
    assert mine.answers.is_freed(one)
    cluster.pass_time(2)
    assert not mine.answers.is_freed(one)


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
    other = NodeRecord("n1", (Allocation(Purpose.REPLICA, "other", "n1", "n1-d1", 60 * GIB),))
    cluster.allocator.observe_record("n1", other)
    disks, find = cluster.allocator.disks, cluster.allocator.disks.find

    def empty_and_find(*question: Any) -> FoundDisks:
        cluster.allocator.observe_record("n1", NodeRecord("n1"))
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


def test_a_decision_whose_write_failed_counts_until_it_can_not_have_arrived() -> None:
    cluster = cluster_of(n1=100)
    cluster.show("v", 60)
    given = cluster.allocator.allocations.place_replica("v-r-1", SECONDS)
    cluster.allocator.allocations.failed(given)
    cluster.pass_time(int(DOUBT_SECONDS) - 1)
    assert 40 == cluster.free_gib("n1")
    cluster.pass_time(2)
    assert 100 == cluster.free_gib("n1")


def test_a_failed_write_that_arrived_counts_by_the_record() -> None:
    cluster = cluster_of(n1=100)
    cluster.show("v", 60)
    given = cluster.allocator.allocations.place_replica("v-r-1", SECONDS)
    cluster.allocator.allocations.failed(given)
    cluster.allocator.observe_record("n1", NodeRecord("n1", given.allocations))
    cluster.pass_time(int(DOUBT_SECONDS) + 1)
    assert 40 == cluster.free_gib("n1")


def test_what_was_written_counts_before_the_record_shows_it_and_not_for_ever() -> None:
    cluster = cluster_of(n1=100)
    cluster.show("v", 60)
    cluster.write(cluster.allocator.allocations.place_replica("v-r-1", SECONDS), shows=False)
    cluster.pass_time(int(SHOWN_SECONDS) - 1)
    assert 40 == cluster.free_gib("n1")
    cluster.pass_time(2)
    assert 100 == cluster.free_gib("n1")


def test_a_new_leader_goes_by_the_record() -> None:
    cluster = cluster_of(n1=100)
    cluster.show("v", 60)
    given = cluster.allocator.allocations.place_replica("v-r-1", SECONDS)
    cluster.allocator.end_term()
    cluster.allocator.begin_term()
    assert 100 == cluster.free_gib("n1")  # the other leader may have placed it elsewhere, and nothing was written
    cluster.write(given)
    cluster.allocator.begin_term()
    assert 40 == cluster.free_gib("n1")


def test_an_entry_without_an_object_takes_its_bytes() -> None:
    cluster = cluster_of(n1=100)
    cluster.allocator.observe_record(
        "n1", NodeRecord("n1", (Allocation(Purpose.REPLICA, "gone", "n1", "n1-d1", 60 * GIB),))
    )
    assert 40 == cluster.free_gib("n1")
    cluster.allocator.observe_record("n1", None)
    assert 100 == cluster.free_gib("n1")


def test_an_object_that_lies_elsewhere_counts_there_and_the_entry_where_it_says() -> None:
    cluster = cluster_of(n1=100, n2=100)
    cluster.show("v", 60, on="n2")
    cluster.allocator.observe_record(
        "n1", NodeRecord("n1", (Allocation(Purpose.REPLICA, "v-r-1", "n1", "n1-d1", 60 * GIB),))
    )
    assert (40, 40) == (cluster.free_gib("n1"), cluster.free_gib("n2"))


def test_a_disk_of_another_uuid_has_nothing_of_the_one_that_had_its_name() -> None:
    cluster = cluster_of(n1=100)
    entry = Allocation(Purpose.REPLICA, "r", "n1", "n1-d1", 60 * GIB)
    cluster.allocator.observe_record("n1", NodeRecord("n1", (entry,)))
    n1 = cluster.allocator._world.nodes["n1"]
    cluster.put_node(replace(n1, disks=(replace(n1.disks[0], uuid="another"),)))
    assert 100 == cluster.free_gib("n1")
    cluster.put_node(replace(n1, disks=(replace(n1.disks[0], name="other"),)))
    assert 40 == cluster.free_gib("n1", "other")


def test_nothing_is_given_from_a_record_that_cannot_be_read() -> None:
    cluster = cluster_of(n1=100, n2=200)
    cluster.show("v", 60)
    cluster.allocator.observe_record("n2", NodeRecord("n2", problem="spec.disks: is a number"))
    assert ("n1", "d1") == place(cluster.schedule("v-r-1"))
    cluster.allocator.observe_record("n1", NodeRecord("n1", problem="spec.disks: is a number"))
    cluster.show("w", 10)
    refused = cluster.schedule("w-r-1")
    assert {"n1": (Reason.RECORD_UNREADABLE, 0), "n2": (Reason.RECORD_UNREADABLE, 0)} == why(refused)
    assert "its allocation record cannot be read: spec.disks: is a number" in refused.obstacles[0].rejection.message
    assert 40 == cluster.free_gib("n1")  # the last one that could be read counts on


BAD = NodeRecord("n1", problem="spec.disks: is a number")


def hold(cluster: Allocating, gib: float) -> GrowthOutcome:
    return cluster.allocator.expansions.hold(GrowthRequest("v", int(gib * GIB)))


def test_a_record_that_was_never_read_here_closes_its_node() -> None:
    """As for a new leader: what is on record there nobody knows."""
    cluster = cluster_of(n1=100, n2=100)
    cluster.show("v", 10, on="n1")
    cluster.allocator.observe_record("n1", BAD)
    cluster.add_pod("pod", ("pod", 10))
    outcome = cluster.filter("pod", "n1", "n2")
    assert (["n2"], {"n1": Reason.RECORD_UNREADABLE}) == (list(outcome.passed), outcome.refused)
    refused = hold(cluster, 20)
    (one,) = refused.obstacles
    assert (GrowthVerdict.REFUSED, "n1", 0) == (refused.verdict, one.node, one.missing_bytes)
    assert (
        Rejection(Reason.RECORD_UNREADABLE, f"n1: its allocation record cannot be read: {BAD.problem}") == one.rejection
    )
    cluster.show("w", 10)
    found = cluster.allocator.disks.find(DiskQuestion("w"), SECONDS)
    assert (["n2"], ["n1"]) == ([one.node for one in found.disks], [one.node for one in found.obstacles])
    assert BAD.problem in found.obstacles[0].rejection.message
    assert ("n2", "d1") == place(cluster.schedule("w-r-1"))
    told = cluster.allocator.account_of(cluster.pods["pod"].uid, ["n1"])
    assert f"n1: its allocation record cannot be read: {BAD.problem}" in told


def test_a_closed_node_opens_once_its_record_can_be_read() -> None:
    cluster = cluster_of(n1=100)
    cluster.show("v", 10, on="n1")
    cluster.allocator.observe_record("n1", BAD)
    assert not cluster.ask("pod", 50, "n1")
    cluster.allocator.observe_record("n1", NodeRecord("n1"))
    assert ["pod"] == cluster.woken()
    assert {"n1"} == cluster.offered("pod", "n1")
    assert GrowthVerdict.ADMITTED is hold(cluster, 20).verdict


@pytest.mark.parametrize(
    "known", [NodeRecord("n1"), NodeRecord("n1", (Allocation(Purpose.REPLICA, "r", "n1", "n1-d1", GIB),))]
)
def test_what_could_be_read_last_counts_and_closes_nothing(known: NodeRecord) -> None:
    cluster = cluster_of(n1=100)
    cluster.show("v", 10, on="n1")
    cluster.allocator.observe_record("n1", known)
    cluster.allocator.observe_record("n1", BAD)
    cluster.allocator.observe_record("n1", replace(BAD, version="2"))
    assert 90 - len(known.allocations) == cluster.free_gib("n1")
    assert {"n1"} == cluster.ask("pod", 50, "n1")
    assert GrowthVerdict.ADMITTED is hold(cluster, 20).verdict


def test_a_node_is_closed_by_its_record_only_while_that_decides() -> None:
    cluster = cluster_of(n1=100)
    cluster.show("v", 10, on="n1")
    cluster.authority(LONGHORN)
    cluster.allocator.observe_record("n1", BAD)
    assert {"n1"} == cluster.ask("first", 10, "n1")
    assert GrowthVerdict.ADMITTED is hold(cluster, 20).verdict
    cluster.authority(DISK_SCHEDULER)
    assert not cluster.ask("second", 10, "n1")
    assert GrowthVerdict.REFUSED is hold(cluster, 30).verdict
    cluster.authority(LONGHORN)
    assert {"n1"} == cluster.offered("second", "n1")


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_a_closed_node_is_the_same_in_whatever_order_a_leader_sees_it(order: Sequence[int]) -> None:
    """Its Longhorn Node, a record that cannot be read, and in the other place one that can."""
    cluster = Allocating()
    there = (Allocation(Purpose.REPLICA, "r", "n1", "n1-d1", 60 * GIB),)
    shown = replace(node("n1", free_gib=100), record=NodeRecord("n1", there))
    events = [
        lambda: cluster.put_node(replace(shown, record=None)),
        lambda: cluster.put_node(shown),
        lambda: cluster.allocator.observe_record("n1", BAD),
    ]
    for step in order:
        events[step]()
    cluster.put_node(shown)
    assert not cluster.ask("pod", 10, "n1")
    assert 40 == cluster.free_gib("n1")
    cluster.allocator.observe_record("n1", None)
    assert {"n1"} == cluster.offered("pod", "n1")


def test_a_volume_that_is_to_come_to_a_closed_node_does_not_grow() -> None:
    cluster = cluster_of(n1=100)
    cluster.ask("pod", 10, "n1")
    cluster.select_node("pod", "n1")
    name = cluster.provision("pod")
    cluster.allocator.observe_volume(name, volume(name, 10, locality="strict-local", attached_to="n1"))
    cluster.allocator.observe_replica(f"{name}-r-1", replica(f"{name}-r-1", name, 10))
    cluster.allocator.observe_record("n1", BAD)
    refused = cluster.allocator.expansions.hold(GrowthRequest(name, 20 * GIB))
    assert [("n1", Reason.RECORD_UNREADABLE)] == [(one.node, one.rejection.reason) for one in refused.obstacles]


def test_a_pod_runs_beside_its_data_on_a_closed_node() -> None:
    cluster = cluster_of(n1=100)
    cluster.ask("pod", 10, "n1")
    cluster.run("pod", "pod", "n1")
    cluster.allocator.observe_record("n1", BAD)
    cluster.add_pod("next", "pod")
    assert {"n1"} == cluster.offered("next", "n1")


def test_while_longhorn_decides_the_record_counts_nothing_and_gives_nothing() -> None:
    cluster = cluster_of(n1=100)
    cluster.allocator.observe_record(
        "n1", NodeRecord("n1", (Allocation(Purpose.REPLICA, "r", "n1", "n1-d1", 60 * GIB),))
    )
    cluster.authority("longhorn")
    assert 100 == cluster.free_gib("n1")
    cluster.show("v", 60)
    with pytest.raises(PreconditionError, match="allocation-authority is longhorn"):
        cluster.schedule("v-r-1")
    cluster.authority(DISK_SCHEDULER)
    assert 40 == cluster.free_gib("n1")


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
    assert (("n1", "d1"), False, 1) == (place(given), given.is_new, len(given.changes))
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


def test_what_was_given_on_another_node_than_the_replica_has_to_be_on_is_freed_and_given_anew() -> None:
    cluster = cluster_of(n1=100, n2=100)
    cluster.show("v", 10, locality="strict-local", node_id="n1")
    cluster.schedule("v-r-1")
    cluster.show("v", 10, locality="strict-local", node_id="n2")
    with pytest.raises(LookFirstError):
        cluster.allocator.allocations.place_replica("v-r-1", SECONDS, is_looked_at=False)
    freed = cluster.schedule("v-r-1")
    assert ((), [("n1", 10 * GIB)]) == (freed.allocations, [(one.node, one.size_bytes) for one in freed.freed])
    given = cluster.schedule("v-r-1")
    assert (("n2", "d1"), True, 100, 90) == (place(given), given.is_new, cluster.free_gib("n1"), cluster.free_gib("n2"))


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


# Freeing


def test_a_replica_is_freed_once_its_object_is_gone() -> None:
    cluster = cluster_of(n1=100)
    cluster.show("v", 60)
    cluster.schedule("v-r-1")
    cluster.show("v", 60, on="n1")
    with pytest.raises(PreconditionError, match="replica 'v-r-1' still exists on node n1"):
        cluster.allocator.allocations.release_replica("v-r-1")
    cluster.allocator.observe_replica("v-r-1", None)
    assert 40 == cluster.free_gib("n1")
    freed = cluster.allocator.allocations.release_replica("v-r-1")
    assert (Drop(Purpose.REPLICA, "v-r-1", "n1", "n1-d1"),) == freed.changes
    assert 40 == cluster.free_gib("n1")  # until it is durable
    cluster.write(freed, shows=False)
    assert 100 == cluster.free_gib("n1")
    assert () == cluster.allocator.allocations.release_replica("v-r-1").changes


def test_an_older_record_brings_nothing_back_that_was_freed() -> None:
    cluster = cluster_of(n1=100)
    cluster.show("v", 60)
    cluster.schedule("v-r-1")
    older = cluster.records["n1"]
    cluster.allocator.observe_replica("v-r-1", None)
    cluster.write(cluster.allocator.allocations.release_replica("v-r-1"), shows=False)
    cluster.allocator.observe_record("n1", older)
    assert 100 == cluster.free_gib("n1")


def test_older_records_take_nothing_away_that_was_given_anew() -> None:
    """What was given, freed and given again stands in the first one, and not in the second."""
    cluster = cluster_of(n1=100)
    cluster.show("v", 60)
    allocations, records = cluster.allocator.allocations, list[NodeRecord]()
    for _ in range(2):
        cluster.write(allocations.place_replica("v-r-1", SECONDS), shows=False)
        records.append(cluster.records["n1"])
        cluster.write(allocations.release_replica("v-r-1"), shows=False)
        records.append(cluster.records["n1"])
    given = cluster.write(allocations.place_replica("v-r-1", SECONDS), shows=False)
    for older in records:
        cluster.allocator.observe_record("n1", older)
        assert 40 == cluster.free_gib("n1")
    again = cluster.write(allocations.place_replica("v-r-1", SECONDS), shows=False)
    assert (given.allocations, False) == (again.allocations, again.is_new)
    cluster.show_records()
    cluster.pass_time(int(SHOWN_SECONDS) + 1)
    assert 40 == cluster.free_gib("n1")
    cluster.allocator.observe_record("n1", NodeRecord("n1"))
    assert 100 == cluster.free_gib("n1")


def test_a_record_whose_write_failed_and_was_taken_back_takes_nothing_away_that_was_given_anew() -> None:
    cluster = cluster_of(n1=100)
    cluster.show("v", 60)
    allocations = cluster.allocator.allocations
    failed = allocations.place_replica("v-r-1", SECONDS)
    allocations.failed(failed)
    arrived = NodeRecord("n1", failed.allocations)
    given = cluster.write(allocations.place_replica("v-r-1", SECONDS), shows=False)
    assert failed.allocations == given.allocations
    for older in (arrived, NodeRecord("n1")):
        cluster.allocator.observe_record("n1", older)
        assert 40 == cluster.free_gib("n1")


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
    assert (given.allocations, False, given.changes) == (again.allocations, again.is_new, again.changes)


def test_a_volume_grows_on_none_where_one_is_full() -> None:
    cluster = three_copies()
    cluster.show("w", 30, on="n2")
    refused = grown(cluster, 90)
    assert ((), {"n2": (Reason.INSUFFICIENT_STORAGE, 20)}) == (refused.changes, why(refused))
    assert [60, 30, 60] == [cluster.free_gib(name) for name in ("n1", "n2", "n3")]


def test_growth_that_was_admitted_becomes_the_allocation() -> None:
    cluster = three_copies()
    assert GrowthVerdict.ADMITTED is cluster.allocator.expansions.hold(GrowthRequest("v", 90 * GIB)).verdict
    cluster.show("w", 30)
    assert () == cluster.schedule("w-r-1").allocations  # it is granted to `v`
    given = cluster.write(grown(cluster, 90))
    assert 3 == len(given.changes)
    assert [10, 10, 10] == [cluster.free_gib(name) for name in ("n1", "n2", "n3")]


def test_a_volume_without_a_disk_and_a_smaller_size_are_no_growth() -> None:
    cluster = cluster_of(n1=100)
    cluster.show("v", 10)
    with pytest.raises(PreconditionError, match="no replica of volume 'v' has a disk"):
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


def test_a_new_leader_gives_further_replicas_what_the_record_has_of_the_others() -> None:
    cluster = two_copies(n1=100, n2=60)
    cluster.write(grown(cluster, 50))
    cluster.allocator.end_term()
    cluster.allocator.begin_term()
    cluster.show_records()
    assert 50 * GIB == cluster.schedule("v-r-2").size_bytes


@pytest.mark.parametrize("comes", [True, False])
def test_what_the_others_were_given_is_over_once_the_volume_has_it_or_the_record_no_more(comes: bool) -> None:
    cluster = two_copies(n1=100, n2=60)
    cluster.write(grown(cluster, 50))
    assert 50 * GIB == size_of(cluster)
    gib = 50 if comes else 10
    if comes:
        cluster.allocator.observe_volume("v", volume("v", gib, locality="disabled", replica_count=2))
        for name in ("v-r-1", "v-r-2"):
            cluster.allocator.observe_replica(name, replica(name, "v", gib, on="n1" if name == "v-r-1" else ""))
    else:
        cluster.write(Allotment(changes=(Put(Allocation(Purpose.REPLICA, "v-r-1", "n1", "n1-d1", gib * GIB)),)))
        cluster.pass_time(int(SHOWN_SECONDS) + 1)
    assert gib * GIB == size_of(cluster) == cluster.schedule("v-r-2").size_bytes
    assert [100 - gib, 60 - gib] == [cluster.free_gib(name) for name in ("n1", "n2")]


def test_an_admitted_expansion_is_held_beside_a_growth_on_record_that_comes_to_nothing() -> None:
    cluster = two_copies(n1=100, n2=60)
    cluster.write(grown(cluster, 50))
    cluster.pass_time(int(SHOWN_SECONDS) - 2)
    assert GrowthVerdict.ADMITTED is hold(cluster, 30).verdict
    cluster.write(Allotment(changes=(Put(Allocation(Purpose.REPLICA, "v-r-1", "n1", "n1-d1", 10 * GIB)),)))
    cluster.pass_time(3)
    assert 30 * GIB == size_of(cluster)
    assert 70 == cluster.free_gib("n1")


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
    assert grown(cluster, 50).is_new  # it was granted that much, as everybody sees
    cluster.pass_time(int(UNKNOWN_SECONDS) + 1)
    assert [60 * GIB] * 3 == [one.size_bytes for one in grown(cluster, 60).allocations]


def test_what_is_on_record_for_a_growth_a_new_leader_tells_at_once() -> None:
    cluster = three_copies()
    cluster.write(grown(cluster, 60))
    cluster.allocator.begin_term(has_predecessor=True)
    again = grown(cluster, 60)
    assert (False, 3) == (again.is_new, len(again.changes))  # written once more in its own term


# Backing images


def test_a_copy_of_an_image_goes_to_the_disk_with_most_room_on_a_node_without_one() -> None:
    cluster = cluster_of(n1=300, n2=100, n3=200)
    image(cluster, 20, "n1")
    given = cluster.write(cluster.allocator.allocations.place_image("i"))
    assert (("n3", "d1"), 180) == (place(given), cluster.free_gib("n3"))
    again = cluster.allocator.allocations.place_image("i")  # the image does not show it yet
    assert (given.allocations, False, given.changes) == (again.allocations, again.is_new, again.changes)
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
    cluster.write(cluster.allocator.allocations.release_image("i", "n1-d1"), shows=False)
    assert 100 == cluster.free_gib("n1")


def test_a_disk_of_which_the_record_has_no_place_for_more_is_passed_by() -> None:
    cluster = Allocating().add_nodes(n1=[100, 50], n2=40)

    def fill(*disks: str, count: int = MAX_ENTRIES) -> None:
        rows = product(disks, range(count))
        entries = [Allocation(Purpose.REPLICA, f"r{number}", "n1", f"n1-{name}", 1) for name, number in rows]
        cluster.records["n1"] = NodeRecord("n1", tuple(sorted(entries)), version=str(next(VERSIONS)))
        cluster.show_records()

    def asked() -> Allotment:
        given = cluster.allocator.allocations.place_replica(name, SECONDS)
        cluster.allocator.allocations.withdrawn(given)
        return given

    name = cluster.show("v", 30)
    assert ("n1", "d0") == place(asked())
    fill("d0")
    assert ("n1", "d1") == place(asked())
    image(cluster, 20)
    assert ("n1", "d0") == place(cluster.allocator.allocations.place_image("i"))
    fill("d0", "d1")
    assert ("n2", "d1") == place(asked())
    cluster.show("v", 45)
    told = {(one.node, one.disk): one.rejection for one in asked().obstacles}
    assert Reason.INSUFFICIENT_STORAGE is told["n2", "d1"].reason
    for full in ("d0", "d1"):
        text = f"the record of n1 has no place for more than 10000 replicas on n1-{full}"
        assert Rejection(Reason.RECORD_UNREADABLE, text) == told["n1", full]
    fill("d0", "d1", count=MAX_ENTRIES - 1)
    assert ("n1", "d0") == place(asked())


def test_so_is_one_that_has_none_for_more_images() -> None:
    cluster = cluster_of(n1=100, n2=50)
    entries = [Allocation(Purpose.BACKING_IMAGE, f"i{number}", "n1", "n1-d1", 1) for number in range(MAX_ENTRIES)]
    cluster.allocator.observe_record("n1", NodeRecord("n1", tuple(entries), version=str(next(VERSIONS))))
    image(cluster, 60)
    given = cluster.allocator.allocations.place_image("i")
    assert {"n1": (Reason.RECORD_UNREADABLE, 0), "n2": (Reason.TOO_FULL, 0)} == why(given)
    image(cluster, 20)
    assert ("n2", "d1") == place(cluster.allocator.allocations.place_image("i"))


def test_those_who_give_room_away_queue_for_their_turn_and_not_for_the_lock() -> None:
    cluster = cluster_of(n1=100)
    allocations, turns = cluster.allocator.allocations, list[bool]()
    lock = allocations._lock

    class TurnWatch:
        def __enter__(self) -> None:
            turns.append(allocations._turn.locked())
            lock.__enter__()

        def __exit__(self, *_: object) -> None:
            lock.__exit__(None, None, None)

    name = cluster.show("v", 10)
    allocations._lock = TurnWatch()  # type: ignore[assignment]
    cluster.write(allocations.place_replica(name, SECONDS))
    cluster.write(allocations.release_replica(name))
    assert (True, 6) == (all(turns), len(turns))


@pytest.mark.parametrize("others", [10, 45])
@pytest.mark.parametrize("is_image", [False, True])
def test_whom_a_doubt_alone_keeps_from_a_disk_hears_of_it(is_image: bool, others: int) -> None:
    """Among more disks than those that are told of, with more room than the one in doubt."""
    cluster = cluster_of(a=100, **{f"n{number}": 50 for number in range(others)})
    allocations = cluster.allocator.allocations
    given = allocations.place_replica(cluster.show("v", 60), SECONDS)
    assert "a" == given.allocations[0].node
    allocations.failed(given)
    image(cluster, 60)
    name = cluster.show("w", 60)
    found = allocations.place_image("i") if is_image else allocations.place_replica(name, SECONDS)
    assert not found.allocations
    with pytest.raises(NotReadyError, match="it is not known whether a write took the room on disk 'd1' of node a"):
        allocations.check_doubts(found.obstacles)
