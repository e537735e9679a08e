"""Watches of different kinds lag behind each other, and the leader before us is unknown: still nothing is promised
twice."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.allocator.allocator import Decision
from controller.allocator.outcome import Mode
from controller.errors import NotSyncedError
from controller.model.workload import PersistentVolume
from controller.rules.demand import Missing
from tests.fakes.builders import GIB, LATER, LATEST, TestCluster, node, replica, volume


def with_roaming_pod(name: str = "a", gib: float = 100) -> TestCluster:
    """One node of 100 GiB, and a pod with a volume of locality `disabled` that was chosen for it."""
    cluster = TestCluster()
    cluster.add_class("roaming", dataLocality="disabled", numberOfReplicas="1")
    cluster.add_node("n1", free_gib=100)
    cluster.add_claim(name, gib, class_name="roaming")
    cluster.add_pod(name, name)
    assert {"n1"} == cluster.offered(name, "n1")
    cluster.select_node(name, "n1")
    return cluster


def assert_nothing_left(cluster: TestCluster) -> None:
    cluster.add_pod("late")
    assert Decision.CONTENDED is cluster.filter("late", "n1").decision


def test_a_roaming_volume_that_is_being_made_outlives_its_pod() -> None:
    cluster = with_roaming_pod()
    cluster.drop_pod("a")
    assert_nothing_left(cluster)


def test_a_roaming_volume_whose_pv_is_not_seen_yet_keeps_its_promise() -> None:
    cluster = with_roaming_pod()
    cluster.set_claim(replace(cluster.claims["a"], volume_name="pvc-uid-a"))
    assert_nothing_left(cluster)


def test_a_claim_that_names_a_pv_that_is_not_seen_yet_is_no_claim_that_needs_nothing() -> None:
    cluster = TestCluster()
    cluster.add_node("n1", free_gib=100)
    cluster.add_pod("a")
    cluster.set_claim(replace(cluster.claims["a"], volume_name="pvc-uid-a"))  # after the live reads of the call
    for ask in (cluster.allocator.hold_pod, cluster.allocator.nodes_with_room):
        with pytest.raises(NotSyncedError, match="pv pvc-uid-a is not known yet"):
            ask("pod-a", ["n1"])
    cluster.allocator.confirm_absent(Missing("pv", "", "pvc-uid-a"))
    assert Decision.NOTHING_NEEDED is cluster.filter("a", "n1").decision


def test_a_shared_volume_that_is_bound_before_its_pod_keeps_its_promise() -> None:
    cluster = TestCluster()
    cluster.add_node("n1", free_gib=100)
    claim = cluster.add_claim("a", shared=True)
    cluster.add_pod("a", "a")
    cluster.filter("a", "n1")
    claim, name = cluster.select_node("a", "n1"), f"pvc-{claim.uid}"
    cluster.allocator.observe_volume(name, volume(name, access_mode="rwx"))
    cluster.allocator.observe_replica(f"{name}-r", replica(f"{name}-r", name))
    pv = PersistentVolume(name, "driver.longhorn.io", name, claim.uid, claim.key, 100 * GIB, LATER)
    cluster.allocator.observe_pv(name, pv)
    cluster.set_claim(replace(claim, volume_name=name))
    assert_nothing_left(cluster)


def test_a_nomination_that_was_answered_anew_does_not_narrow_the_new_answer() -> None:
    cluster = TestCluster()
    cluster.add_node("n1", free_gib=100)
    cluster.add_node("n2", free_gib=100)
    cluster.add_pod("a")
    cluster.filter("a", "n1")
    cluster.change_pod("a", nominated_node="n1")
    cluster.put_node(replace(node("n1", free_gib=100), allow_scheduling=False))
    assert {"n2"} == cluster.offered("a", "n1", "n2")

    cluster.set_claim(replace(cluster.claims["a"], requested_bytes=99 * GIB))  # any event of the claim

    cluster.add_pod("b")
    assert Decision.CONTENDED is cluster.filter("b", "n2").decision


def test_another_pods_choice_of_a_shared_claim_is_not_taken_unchecked() -> None:
    cluster = TestCluster()
    cluster.add_node("n1", free_gib=100)
    cluster.add_claim("shared", 60)
    cluster.add_claim("own", 60)
    cluster.add_pod("a", "shared")
    cluster.filter("a", "n1")
    cluster.select_node("shared", "n1")
    cluster.add_pod("b", "shared", "own")

    assert not cluster.offered("b", "n1")
    assert {"n1": 60} == cluster.pending()


def test_a_pods_roaming_volumes_are_counted_against_each_other_and_against_its_local_ones() -> None:
    cluster = TestCluster()
    cluster.add_class("roaming", dataLocality="disabled", numberOfReplicas="1")
    cluster.add_node("n1", free_gib=100)
    for name in ("x", "y"):
        cluster.add_claim(name, class_name="roaming")
    cluster.add_pod("two-roaming", "x", "y")
    assert not cluster.offered("two-roaming", "n1")

    cluster.add_pod("roaming-and-local", "x", "z")
    assert not cluster.offered("roaming-and-local", "n1")
    cluster.add_node("n2", free_gib=300)
    assert {"n2"} == cluster.offered("roaming-and-local", "n1", "n2")


def test_what_was_absent_is_asked_for_again_by_a_later_call() -> None:
    cluster = TestCluster()
    cluster.add_node("n1", free_gib=10)
    cluster.add_pod("a")
    cluster.drop_claim("a")
    missing = (Missing("claim", "ns", "a"),)
    assert missing == cluster.allocator.missing("pod-a")
    cluster.allocator.confirm_absent(missing[0])
    assert () == cluster.allocator.missing("pod-a")

    cluster.clock.advance(1.1)

    assert missing == cluster.allocator.missing("pod-a")


def test_a_new_leader_wakes_pods_that_the_one_before_had_refused() -> None:
    cluster = TestCluster()
    cluster.add_node("n1", free_gib=100)
    cluster.add_pod("a")
    cluster.run("a", "a", "n1")
    cluster.add_pod("b")
    assert Decision.REFUSED is cluster.filter("b", "n1").decision
    cluster.allocator.end_term()
    cluster.allocator.begin_term()
    assert [] == cluster.plan_wakeups()

    cluster.delete_volume("a")

    assert ["b"] == [wakeup.name for wakeup in cluster.plan_wakeups()]


def test_room_for_a_roaming_volume_on_a_node_that_is_no_candidate_wakes_its_pod() -> None:
    cluster = TestCluster()
    cluster.add_class("roaming", dataLocality="disabled", numberOfReplicas="1")
    cluster.add_node("compute", free_gib=10)
    cluster.add_claim("a", class_name="roaming")
    cluster.add_pod("a", "a")
    assert Decision.REFUSED is cluster.filter("a", "compute").decision

    cluster.add_node("storage", free_gib=400)

    assert ["a"] == [wakeup.name for wakeup in cluster.plan_wakeups()]


def test_a_woken_pod_that_does_not_come_back_stops_keeping_room_from_the_next() -> None:
    cluster = TestCluster()
    cluster.add_node("n1", free_gib=50)
    cluster.add_pod("a")
    cluster.add_pod("b", created=LATER)
    for name in ("a", "b"):
        cluster.filter(name, "n1")
    cluster.put_node(node("n1", free_gib=100))
    woken = []
    for _ in range(4):
        woken.append([wakeup.name for wakeup in cluster.plan_wakeups()])
        cluster.clock.advance(10)

    assert [["a"], ["a", "b"], ["a", "b"], ["a", "b"]] == woken


def test_durations_are_recorded_once_and_only_for_answers_of_ours() -> None:
    cluster = TestCluster()
    cluster.add_node("n1")
    cluster.add_pod("a")
    cluster.filter("a", "n1")
    cluster.run("a", "a", "n1")
    assert (("pod_scheduling_wait", 0.0, True), ("node_reservation", 0.0, True)) == cluster.allocator.drain_records()

    cluster.add_pod("b")
    cluster.allocator.begin_term()
    cluster.clock.advance(5)
    cluster.let_doubts_pass()
    assert {} == cluster.pending()
    assert () == cluster.allocator.drain_records()


def test_bypass_keeps_the_ledger_empty_whatever_goes() -> None:
    cluster = TestCluster()
    cluster.add_node("n1")
    cluster.add_pod("a")
    cluster.select_node("a", "n1")
    cluster.allocator.set_mode(Mode.BYPASS)

    cluster.drop_pod("a")

    assert {} == cluster.pending()


def test_what_a_live_read_has_shown_is_not_undone_by_an_older_event() -> None:
    """The watch delivers late what was true before the read."""
    cluster = TestCluster()
    cluster.add_node("n1", free_gib=100)
    pod = cluster.add_pod("a")
    cluster.filter("a", "n1")
    seen = cluster.set_claim(replace(cluster.claims["a"], selected_node="n1", version=7))
    cluster.set_claim(replace(seen, selected_node="", version=6))

    assert cluster.allocator.due() == ()
    (promise,) = cluster.allocator.snapshot().promises
    assert (promise.node, promise.state) == ("n1", "ASSUMED")

    cluster.set_claim(replace(seen, selected_node="", version=8))  # withdrawn, in truth
    (promise,) = cluster.allocator.snapshot().promises
    assert (promise.node, promise.state, promise.claimants) == ("n1", "HELD", (pod.uid,))


def test_an_older_deletion_does_not_take_away_an_object_that_was_made_again() -> None:
    cluster = TestCluster()
    cluster.add_node("n1", free_gib=100)
    old = cluster.add_claim("a")
    cluster.set_claim(replace(old, uid="another", version=9))
    cluster.add_pod("a")
    cluster.allocator.observe_claim(old.key, None, gone=old)

    assert cluster.offered("a", "n1") == {"n1"}
    assert cluster.pending() == {"n1": 100}


def test_an_older_event_of_a_former_object_does_not_take_the_place_of_the_next_one() -> None:
    """The live read was ahead of the watch, which delivers the former claim, its end, and the next claim."""
    cluster = TestCluster()
    cluster.add_node("n1", free_gib=100)
    former = replace(cluster.add_claim("a"), uid="former", version=3)
    claim = cluster.set_claim(replace(former, uid="next", version=8))
    cluster.add_pod("a")
    assert cluster.offered("a", "n1") == {"n1"}

    for facts, gone in ((former, None), (None, former), (claim, None)):
        cluster.allocator.observe_claim(claim.key, facts, gone)
        assert cluster.pending() == {"n1": 100}


def test_a_former_pods_choice_that_comes_late_gives_way_to_the_next_ones() -> None:
    """The pod was made again and answered before the watch told that its claim was chosen, and bound, for n2."""
    cluster = TestCluster()
    for name in ("n1", "n2"):
        cluster.add_node(name, free_gib=200)
    cluster.add_claim("old")
    cluster.add_pod("a", "old", "new", created=LATEST)
    assert {"n1", "n2"} == cluster.offered("a", "n1", "n2")
    cluster.select_node("old", "n2")
    cluster.provision("old")
    cluster.select_node("new", "n1")

    assert {"n1": 200} == cluster.pending()


@pytest.mark.parametrize("first", ["pv", "claim"])
def test_a_former_pods_choice_that_comes_late_takes_nothing_from_the_answer_to_the_next_one(first: str) -> None:
    """The watches first show what the former pod chose, then, in any order, that it was not this one's choice."""
    cluster = TestCluster()
    for name in ("n1", "n2"):
        cluster.add_node(name, free_gib=100)
    cluster.add_claim("a")
    cluster.add_pod("a", created=LATEST)
    assert {"n1", "n2"} == cluster.offered("a", "n1", "n2")
    cluster.select_node("a", "n1")
    assert {"n1": 100} == cluster.pending()
    if first == "claim":
        cluster.set_claim(replace(cluster.claims["a"], volume_name="pvc-uid-a"))

    cluster.provision("a")

    assert {"n1": 100, "n2": 100} == cluster.pending()


def test_an_older_volume_does_not_tell_while_a_later_one_is_not_seen_yet() -> None:
    """Under a new leader: the binding to n1 failed, n2 was chosen, and the claim's event comes before its PV's."""
    cluster = TestCluster()
    cluster.add_class("roaming", dataLocality="disabled", numberOfReplicas="1")
    for name in ("n1", "n2"):
        cluster.add_node(name, free_gib=200)
    cluster.add_claim("last", 10, class_name="roaming")
    cluster.add_pod("a", "first", "last")
    cluster.select_node("first", "n1")
    cluster.provision("first")
    cluster.allocator.begin_term()
    cluster.select_node("last", "n2")
    assert [("ns/first", "n2")] == cluster.local_promises()

    cluster.set_claim(replace(cluster.claims["last"], volume_name="pvc-uid-last"))
    assert [("ns/first", "n2")] == cluster.local_promises()
    cluster.provision("last", created=LATEST, locality="disabled")

    assert [("ns/first", "n2")] == cluster.local_promises()


def bound_to_n1() -> TestCluster:
    """A pod that is bound to the only node, 100 GiB; its volume is provisioned, and seen attached nowhere yet."""
    cluster = TestCluster()
    cluster.add_node("n1", free_gib=100)
    cluster.add_pod("a")
    assert {"n1"} == cluster.offered("a", "n1")
    cluster.select_node("a", "n1")
    cluster.provision("a")
    cluster.bind("a", "n1")
    return cluster


def test_a_bound_pod_that_goes_before_its_volume_was_seen_attached_leaves_a_doubt() -> None:
    """The volume may have been attached, and placed, and nobody saw it: what is not so ends with a last look."""
    cluster = bound_to_n1()
    cluster.drop_pod("a")
    assert_nothing_left(cluster)
    cluster.clock.advance(3)
    (due,) = cluster.allocator.due()
    assert due.reads == (("claim", "ns/a"), ("volume", "pvc-uid-a"))
    cluster.allocator.expire(due)
    assert {} == cluster.pending()


def test_a_volume_that_was_up_has_a_replica_that_is_not_seen_yet() -> None:
    cluster = bound_to_n1()
    cluster.attach("pvc-uid-a", "n1", state="attached")
    cluster.drop_pod("a")
    cluster.allocator.observe_volume("pvc-uid-a", volume("pvc-uid-a", 100))
    cluster.let_doubts_pass()
    assert_nothing_left(cluster)

    cluster.place("pvc-uid-a", "n1")
    cluster.drop_pod("late")
    assert {} == cluster.pending()


def test_a_volume_that_went_has_no_replica_anywhere() -> None:
    cluster = bound_to_n1()
    cluster.attach("pvc-uid-a", "n1", state="attached")
    cluster.delete_volume("a")
    assert {} == cluster.pending()


def gone_before_its_volume_was_seen() -> TestCluster:
    cluster = TestCluster()
    cluster.add_node("n1", free_gib=100)
    cluster.add_pod("a")
    assert {"n1"} == cluster.offered("a", "n1")
    cluster.set_claim(replace(cluster.claims["a"], volume_name="pvc-uid-a"))
    cluster.bind("a", "n1")
    cluster.drop_pod("a")
    return cluster


def test_a_bound_pod_that_goes_before_anything_of_its_volume_was_seen_leaves_a_doubt() -> None:
    cluster = gone_before_its_volume_was_seen()
    assert_nothing_left(cluster)

    cluster.provision("a")
    assert Decision.CONTENDED is cluster.filter("late", "n1").decision
    cluster.let_doubts_pass()
    assert cluster.offered("late", "n1")


def test_the_last_look_goes_on_to_what_the_claim_of_a_pod_that_is_gone_is_bound_to() -> None:
    cluster = gone_before_its_volume_was_seen()
    cluster.clock.advance(3)
    (due,) = cluster.allocator.due()
    assert due.reads == (("claim", "ns/a"), ("pv", "pvc-uid-a"))
    cluster.allocator.expire(due)
    assert_nothing_left(cluster)


def test_a_finished_pods_volume_is_read_before_its_promise_ends() -> None:
    cluster = bound_to_n1()
    cluster.change_pod("a", is_finished=True)
    cluster.clock.advance(3)
    (due,) = cluster.allocator.due()
    assert ("volume", "pvc-uid-a") in due.reads
