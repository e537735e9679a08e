"""The life of promises: held, assumed, shown, withdrawn, ended by time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.allocator.allocator import Decision
from controller.allocator.outcome import Mode
from controller.allocator.verbs.observe import CLAIMS_AT_ONCE
from controller.model.longhorn import LonghornSettings
from controller.rules.reasons import Reason
from controller.settings import LiveSettings
from tests.fakes.builders import GIB, LATER, LATEST, TestCluster, disk, node, observe, replica


def cluster_of(*nodes: str, free_gib: float = 400, live: LiveSettings | None = None) -> TestCluster:
    cluster = TestCluster(live=live)
    for name in nodes:
        cluster.add_node(name, free_gib=free_gib)
    return cluster


def test_a_pod_is_offered_every_node_with_room_and_holds_it_there() -> None:
    cluster = cluster_of("n1", "n2")
    cluster.add_pod("a")

    assert {"n1", "n2"} == cluster.offered("a", "n1", "n2")
    assert {"n1": 100, "n2": 100} == cluster.pending()


def test_bytes_held_for_one_pod_are_not_offered_to_another() -> None:
    cluster = cluster_of("n1", free_gib=100)
    cluster.add_pod("a")
    cluster.add_pod("b")
    cluster.filter("a", "n1")

    outcome = cluster.filter("b", "n1")

    assert (Decision.CONTENDED, {"n1": Reason.CONTENDED}, True) == (outcome.decision, outcome.refused, outcome.waitable)


def test_a_node_that_is_full_without_promises_is_refused_for_good() -> None:
    cluster = cluster_of("n1", free_gib=99)
    cluster.add_pod("a")

    outcome = cluster.filter("a", "n1")

    assert (Decision.REFUSED, {"n1": Reason.INSUFFICIENT_STORAGE}) == (outcome.decision, outcome.refused)
    assert not outcome.waitable


def test_a_second_filter_call_replaces_the_pods_own_hold() -> None:
    cluster = cluster_of("n1", "n2", free_gib=100)
    cluster.add_pod("a")
    cluster.filter("a", "n1", "n2")

    assert {"n2"} == cluster.offered("a", "n2")
    assert {"n2": 100} == cluster.pending()


def test_the_choice_narrows_the_hold_to_its_node() -> None:
    cluster = cluster_of("n1", "n2", free_gib=100)
    cluster.add_pod("a")
    cluster.add_pod("b")
    cluster.filter("a", "n1", "n2")
    assert not cluster.offered("b", "n1", "n2")

    cluster.change_pod("a", nominated_node="n1")

    assert {"n2"} == cluster.offered("b", "n1", "n2")


def test_a_nomination_of_a_node_that_was_never_offered_promises_nothing() -> None:
    cluster = cluster_of("n1", "n2")
    cluster.add_pod("a")
    cluster.filter("a", "n1")

    cluster.change_pod("a", nominated_node="n2")

    assert {"n1": 100} == cluster.pending()


def test_a_withdrawn_nomination_frees_the_bytes() -> None:
    cluster = cluster_of("n1")
    cluster.add_pod("a")
    cluster.filter("a", "n1")
    cluster.change_pod("a", nominated_node="n1")

    cluster.change_pod("a", nominated_node="")

    assert {"n1": 100} == cluster.pending()  # a selected node may be on its way
    cluster.let_doubts_pass()
    assert {} == cluster.pending()


def test_a_selected_node_that_is_taken_away_frees_the_bytes() -> None:
    cluster = cluster_of("n1")
    cluster.add_pod("a")
    cluster.filter("a", "n1")
    cluster.select_node("a", "n1")
    assert {"n1": 100} == cluster.pending()

    cluster.select_node("a", "")
    cluster.let_doubts_pass()

    assert {} == cluster.pending()


def test_binding_keeps_the_promise_when_it_clears_the_nomination() -> None:
    cluster = cluster_of("n1")
    cluster.add_pod("a")
    cluster.filter("a", "n1")
    cluster.change_pod("a", nominated_node="n1")

    cluster.bind("a", "n1")

    assert {"n1": 100} == cluster.pending()


def test_a_promise_lasts_until_the_replica_shows_however_long_that_takes() -> None:
    cluster = cluster_of("n1", free_gib=100)
    cluster.add_pod("a")
    cluster.add_pod("b")
    cluster.filter("a", "n1")
    cluster.select_node("a", "n1")
    name = cluster.provision("a")
    cluster.bind("a", "n1")
    for _ in range(120):
        cluster.clock.advance(1)
        cluster.allocator.sweep()
        assert not cluster.offered("b", "n1")

    cluster.attach(name, "n1")
    cluster.place(name, "n1")

    assert {} == cluster.pending()
    assert Decision.REFUSED is cluster.filter("b", "n1").decision  # the replica's bytes count, the disk's figures lag


def test_a_claim_whose_pv_has_not_arrived_keeps_its_promise() -> None:
    cluster = cluster_of("n1")
    cluster.add_pod("a")
    cluster.filter("a", "n1")
    claim = cluster.select_node("a", "n1")

    cluster.set_claim(replace(claim, volume_name="pvc-unseen"))

    assert {"n1": 100} == cluster.pending()


def test_an_assumption_ends_by_time_only_after_longhorn_had_its_turn() -> None:
    cluster = cluster_of("n1")
    cluster.add_pod("a")
    cluster.filter("a", "n1")
    cluster.select_node("a", "n1")
    name = cluster.provision("a")
    cluster.bind("a", "n1")
    cluster.attach(name, "n1", state="attaching", scheduled=False)
    cluster.clock.advance(4.9)
    cluster.allocator.sweep()
    assert "pod-a" in cluster.claimants()

    cluster.clock.advance(0.2)
    cluster.allocator.sweep()

    assert {"volume:"} == cluster.claimants()  # Longhorn still has the replica to place
    cluster.clock.advance(90)
    cluster.allocator.sweep()
    assert {} == cluster.pending()


def test_the_unplaced_replica_of_an_ended_assumption_still_counts_as_pending() -> None:
    cluster = cluster_of("n1", free_gib=100)
    cluster.add_pod("a")
    cluster.add_pod("b")
    cluster.filter("a", "n1")
    cluster.select_node("a", "n1")
    name = cluster.provision("a")
    cluster.bind("a", "n1")
    cluster.attach(name, "n1", state="attaching", scheduled=False)
    cluster.clock.advance(10)
    cluster.allocator.sweep()

    assert Decision.CONTENDED is cluster.filter("b", "n1").decision


def test_reservation_timeout_zero_ends_an_assumption_the_moment_longhorn_had_its_turn() -> None:
    cluster = cluster_of("n1", live=LiveSettings(enabled=True, node_reservation_timeout_seconds=0))
    cluster.add_pod("a")
    cluster.filter("a", "n1")
    cluster.select_node("a", "n1")
    name = cluster.provision("a")
    cluster.bind("a", "n1")
    cluster.allocator.sweep()
    assert {"n1": 100} == cluster.pending()

    cluster.attach(name, "n1", state="attaching", scheduled=False)
    cluster.allocator.sweep()

    assert {"volume:"} == cluster.claimants()


def test_scheduling_timeout_zero_holds_nothing_at_filter() -> None:
    cluster = cluster_of("n1", live=LiveSettings(enabled=True, pod_scheduling_timeout_seconds=0))
    cluster.add_pod("a")

    assert {"n1"} == cluster.offered("a", "n1")
    assert {} == cluster.pending()
    cluster.select_node("a", "n1")
    assert {"n1": 100} == cluster.pending()


@pytest.mark.parametrize("how", ["deleted", "finished", "deleting"])
def test_a_pod_that_goes_before_it_is_bound_holds_nothing(how: str) -> None:
    cluster = cluster_of("n1", "n2")
    cluster.add_pod("a")
    cluster.filter("a", "n1", "n2")

    if how == "deleted":
        cluster.drop_pod("a")
    else:
        cluster.change_pod("a", is_finished=how == "finished", is_deleting=how == "deleting")

    assert {"n1": 100, "n2": 100} == cluster.pending()  # the scheduler may be writing its choice
    cluster.let_doubts_pass()
    assert {} == cluster.pending()


def test_a_choice_that_shows_after_its_pod_went_keeps_the_bytes() -> None:
    cluster = cluster_of("n1", "n2", free_gib=100)
    cluster.add_pod("a")
    cluster.add_pod("b")
    cluster.filter("a", "n1", "n2")
    cluster.drop_pod("a")
    assert Decision.CONTENDED is cluster.filter("b", "n1", "n2").decision

    cluster.select_node("a", "n1")
    cluster.let_doubts_pass()

    assert {"n1": 100} == cluster.pending()
    assert {"n2"} == cluster.offered("b", "n1", "n2")


def test_a_pod_deleted_during_provisioning_leaves_the_promise_of_its_claim() -> None:
    cluster = cluster_of("n1", free_gib=100)
    cluster.add_pod("a")
    cluster.filter("a", "n1")
    cluster.select_node("a", "n1")
    cluster.drop_pod("a")
    assert {"n1": 100} == cluster.pending()  # kube-scheduler binds any user of this claim to n1

    cluster.add_pod("a", uid="pod-a2", created=LATEST)

    assert Decision.CHOSEN is cluster.filter("a", "n1").decision
    assert {"n1": 100} == cluster.pending()


def test_a_claim_bound_after_its_pod_went_promises_nothing() -> None:
    cluster = cluster_of("n1")
    cluster.add_pod("a")
    cluster.filter("a", "n1")
    cluster.select_node("a", "n1")
    cluster.drop_pod("a")

    cluster.provision("a")

    assert {} == cluster.pending()


def test_a_recreated_pod_is_not_chosen_by_the_old_selected_node_of_a_bound_claim() -> None:
    cluster = cluster_of("n1", "n2", free_gib=100)
    cluster.add_pod("a")
    cluster.select_node("a", "n1")
    cluster.provision("a", created=LATER)
    cluster.drop_pod("a")
    cluster.add_pod("b")
    cluster.run("b", "b", "n1")

    cluster.add_pod("a", uid="pod-a2", created=LATEST)

    assert {"n2"} == cluster.offered("a", "n1", "n2")
    assert {"n2": 100} == cluster.pending()


def test_a_pod_whose_volume_stays_attached_leaves_the_promise_of_the_volume() -> None:
    cluster = cluster_of("n1")
    cluster.add_pod("a")
    cluster.select_node("a", "n1")
    name = cluster.provision("a")
    cluster.bind("a", "n1")
    cluster.attach(name, "n1", state="attaching")
    cluster.drop_pod("a")
    assert {"n1": 100} == cluster.pending()

    cluster.attach(name, "")

    assert {} == cluster.pending()


def test_a_volume_shared_by_two_pods_is_promised_once() -> None:
    cluster = cluster_of("n1", free_gib=100)
    cluster.add_pod("a", "shared")
    cluster.add_pod("b", "shared")
    cluster.filter("a", "n1")

    assert {"n1"} == cluster.offered("b", "n1")
    assert {"n1": 100} == cluster.pending()
    cluster.drop_pod("a")
    assert {"n1": 100} == cluster.pending()
    cluster.drop_pod("b")
    cluster.let_doubts_pass()
    assert {} == cluster.pending()


@pytest.mark.parametrize("kind", ["node", "kube_node"])
def test_a_node_that_goes_takes_its_promises_with_it(kind: str) -> None:
    cluster = cluster_of("n1", "n2")
    cluster.add_pod("a")
    cluster.filter("a", "n1", "n2")

    observe(cluster.allocator, kind, "n1", None)

    assert {"n2": 100} == cluster.pending()
    cluster.select_node("a", "n1")
    assert {} == cluster.pending()


def test_a_claim_that_is_deleted_takes_its_promise_with_it() -> None:
    cluster = cluster_of("n1")
    cluster.add_pod("a")
    cluster.filter("a", "n1")

    cluster.drop_claim("a")

    assert {} == cluster.pending()


def test_a_filter_call_for_a_chosen_pod_is_answered_with_its_node_unchecked() -> None:
    cluster = cluster_of("n1", "n2", free_gib=100)
    cluster.add_pod("a")
    cluster.filter("a", "n1", "n2")
    cluster.select_node("a", "n1")
    cluster.put_node(node("n1", disk(free_gib=1)))

    outcome = cluster.filter("a", "n1", "n2")

    assert (Decision.CHOSEN, ("n1",)) == (outcome.decision, tuple(outcome.passed))
    assert {"*": 100} == cluster.pending()  # n1 does not take it any more, so Longhorn may put it anywhere


def test_a_restarted_pod_is_sent_back_to_its_replica() -> None:
    cluster = cluster_of("n1", "n2")
    cluster.add_pod("a")
    cluster.run("a", "a", "n1")
    cluster.drop_pod("a")
    cluster.add_pod("a", uid="pod-a2", created=LATEST)

    outcome = cluster.filter("a", "n2", "n1")

    assert (Decision.RESTART, {"n1"}, {}) == (outcome.decision, set(outcome.passed), cluster.pending())


def test_a_pod_whose_data_is_elsewhere_needs_room_where_it_goes() -> None:
    cluster = cluster_of("n1", "n2", "n3")
    cluster.put_node(node("n3", free_gib=50))
    cluster.add_pod("a")
    cluster.run("a", "a", "n1")
    cluster.drop_pod("a")
    cluster.add_pod("a", uid="pod-a2", created=LATEST)

    assert {"n2"} == cluster.offered("a", "n2", "n3")


def test_a_pod_that_finds_no_room_near_any_candidate_may_run_away_from_its_data_after_a_while() -> None:
    cluster = cluster_of("n1", "n2")
    cluster.add_pod("a")
    cluster.run("a", "a", "n1")
    cluster.put_node(node("n2", free_gib=50))
    cluster.drop_pod("a")
    cluster.add_pod("a", uid="pod-a2", created=LATEST)
    assert Decision.REFUSED is cluster.filter("a", "n2").decision

    cluster.clock.advance(60)

    assert ["pod-a2"] == [wakeup.pod_uid for wakeup in cluster.plan_wakeups()]
    assert Decision.REMOTE is cluster.filter("a", "n2").decision


def test_a_strict_local_volume_is_only_offered_where_it_lies() -> None:
    cluster = cluster_of("n1", "n2")
    cluster.add_class("strict", dataLocality="strict-local", numberOfReplicas="1")
    cluster.add_claim("a", class_name="strict")
    cluster.add_pod("a")
    cluster.select_node("a", "n1")
    name = cluster.provision("a")
    cluster.attach(name, "n1", locality="strict-local")
    cluster.place(name, "n1")
    cluster.drop_pod("a")
    cluster.add_pod("a", uid="pod-a2", created=LATEST)

    assert {"n1"} == cluster.offered("a", "n1", "n2")
    assert {"n2": Reason.REPLICA_ELSEWHERE} == cluster.filter("a", "n2").refused


def test_an_unused_hold_ends_when_time_has_passed_and_choices_have_stopped() -> None:
    cluster = cluster_of("n1")
    cluster.add_pod("a")
    cluster.filter("a", "n1")
    cluster.clock.advance(4.9)
    assert () == cluster.allocator.due()

    cluster.clock.advance(0.2)
    (due,) = cluster.allocator.due()
    cluster.allocator.expire(due)

    assert ((("pod", "ns/a"), ("claim", "ns/a")), False) == (due.reads, due.is_capped)
    assert {} == cluster.pending()


def test_an_unused_hold_does_not_end_while_choices_of_its_moment_are_still_coming_in() -> None:
    cluster = cluster_of("n1", free_gib=4000)
    cluster.add_pod("a")
    cluster.filter("a", "n1")
    for second in range(8):
        cluster.add_pod(f"b{second}")
    for second in range(8):  # answered within 0.8 s of `a`, chosen one a second: `a` may be in the same queue
        cluster.clock.advance(0.1)
        cluster.filter(f"b{second}", "n1")
    for second in range(8):
        cluster.clock.advance(1)
        cluster.select_node(f"b{second}", "n1")
        assert "pod-a" not in {due.claimant for due in cluster.allocator.due()}

    cluster.add_pod("c")
    cluster.filter("c", "n1")
    cluster.select_node("c", "n1")

    assert {"pod-a"} == {due.claimant for due in cluster.allocator.due()}


def test_no_hold_outlives_the_cap() -> None:
    cluster = cluster_of("n1", free_gib=40_000)
    cluster.add_pod("a")
    cluster.filter("a", "n1")
    for _ in range(120):
        cluster.clock.advance(1)

    assert [True] == [due.is_capped for due in cluster.allocator.due()]


def test_a_new_leader_counts_pending_pods_as_held_on_every_node() -> None:
    cluster = cluster_of("n1", "n2", free_gib=100)
    cluster.add_pod("a")
    cluster.add_pod("b")
    cluster.filter("a", "n1", "n2")

    cluster.allocator.begin_term()

    assert {"*": 200} == cluster.pending()
    assert Decision.CONTENDED is cluster.filter("b", "n1", "n2").decision
    cluster.change_pod("a", nominated_node="n1")  # by preemption, for all that the new leader knows
    assert {"*": 100} == cluster.pending()
    cluster.select_node("a", "n1")
    assert {"n1": 100} == cluster.pending()
    assert {"n2"} == cluster.offered("b", "n1", "n2")


def test_a_new_leader_derives_what_stands_chosen() -> None:
    cluster = cluster_of("n1", "n2")
    cluster.add_pod("a")
    cluster.select_node("a", "n1")
    cluster.add_pod("b")
    cluster.bind("b", "n2")
    before = cluster.pending()

    cluster.allocator.begin_term()

    assert {"n1": 100, "n2": 100} == before == cluster.pending()


def test_bypass_passes_everything_and_empties_the_ledger() -> None:
    cluster = cluster_of("n1", free_gib=1)
    cluster.add_pod("a")
    assert not cluster.offered("a", "n1")

    cluster.allocator.set_mode(Mode.BYPASS)

    assert (Decision.BYPASS, ["n1"]) == (cluster.filter("a", "n1").decision, cluster.filter("a", "n1").passed)
    cluster.select_node("a", "n1")
    assert {} == cluster.pending()
    cluster.allocator.set_mode(Mode.ACTIVE)
    assert {"*": 100} == cluster.pending()  # n1 is too small, so Longhorn may put it anywhere


def test_at_most_max_offers_nodes_are_offered_least_promised_first() -> None:
    cluster = cluster_of("n1", "n2", "n3", live=LiveSettings(enabled=True, max_offers=2))
    cluster.add_pod("a")
    cluster.add_pod("b")

    assert {"n1", "n2"} == cluster.offered("a", "n1", "n2", "n3")
    assert ["n3", "n1"] == list(cluster.filter("b", "n1", "n2", "n3").passed)


def test_sixteen_pods_fill_four_nodes_exactly_when_each_choice_is_seen() -> None:
    names = ("n1", "n2", "n3", "n4")
    cluster = cluster_of(*names)
    for index in range(16):
        cluster.add_pod(f"p{index}")
        passed = cluster.filter(f"p{index}", *names).passed
        cluster.select_node(f"p{index}", passed[0])
    cluster.add_pod("late")

    assert dict.fromkeys(names, 400) == cluster.pending()
    assert not cluster.offered("late", *names)


def test_freed_space_wakes_as_many_refused_pods_as_fit_together_oldest_first() -> None:
    cluster = cluster_of("n1")
    for index in range(4):
        cluster.add_pod(f"p{index}")
        cluster.run(f"p{index}", f"p{index}", "n1")
    for index in range(3):
        cluster.add_pod(f"w{index}", created=f"2026-01-01T00:01:0{3 - index}Z")
        assert Decision.REFUSED is cluster.filter(f"w{index}", "n1").decision
    assert [] == cluster.plan_wakeups()

    for name in ("p0", "p1"):
        cluster.delete_volume(name)

    assert ["w2", "w1"] == [wakeup.name for wakeup in cluster.plan_wakeups()]
    assert [] == cluster.plan_wakeups()  # their back-off runs
    cluster.clock.advance(10)
    assert ["w2", "w1", "w0"] == [wakeup.name for wakeup in cluster.plan_wakeups()]  # nobody asked about the first two


def test_a_pod_with_several_volumes_needs_a_packing_not_a_sum() -> None:
    cluster = TestCluster()
    cluster.add_node("n1", disk("d1", 150), disk("d2", 150))
    cluster.add_node("n2", disk("d1", 100), disk("d2", 200))
    cluster.add_pod("a", "c1", "c2", "c3", gib=100)

    assert {"n2"} == cluster.offered("a", "n1", "n2")


def test_pending_bytes_may_land_on_any_disk() -> None:
    cluster = TestCluster()
    cluster.add_node("n1", disk("d1", 100), disk("d2", 150))
    cluster.add_claim("small", 60)
    cluster.add_claim("large", 120)
    cluster.add_pod("a", "small")
    cluster.add_pod("b", "large")
    cluster.filter("a", "n1")

    assert not cluster.offered("b", "n1")  # the 60 may be put on d2
    cluster.run("a", "small", "n1", gib=60)  # shown on d1
    assert {"n1"} == cluster.offered("b", "n1")


def test_a_replica_listed_by_the_disk_counts_once() -> None:
    cluster = cluster_of("n1", free_gib=200)
    cluster.add_pod("a")
    name = cluster.run("a", "a", "n1")
    shown = replace(disk(free_gib=200), scheduled_bytes=100 * GIB, scheduled_replicas={f"{name}-r-1": 100 * GIB})
    cluster.put_node(node("n1", shown))
    cluster.add_pod("b")

    assert {"n1"} == cluster.offered("b", "n1")
    cluster.allocator.observe_replica(f"{name}-r-1", replica(f"{name}-r-1", name, 101, on="n1"))  # grown, not listed
    assert Decision.REFUSED is cluster.filter("b", "n1").decision


def one_node_with_a_degraded_volume() -> TestCluster:
    """One node, and Longhorn's default class: of three replicas two find no node, for ever."""
    cluster = cluster_of("n1", free_gib=400)
    cluster.add_class("default", numberOfReplicas="3", dataLocality="disabled")
    cluster.add_claim("a", class_name="default")
    cluster.add_pod("a")
    assert {"n1"} == cluster.offered("a", "n1")
    cluster.select_node("a", "n1")
    name = cluster.provision("a")
    for index in (2, 3):
        cluster.allocator.observe_replica(f"{name}-r-{index}", replica(f"{name}-r-{index}", name))
    cluster.place(name, "n1")
    cluster.bind("a", "n1")
    cluster.attach(name, "n1", locality="disabled", replica_count=3, scheduled=False)
    return cluster


def test_replicas_that_find_no_node_apart_from_their_twins_take_no_room() -> None:
    cluster = one_node_with_a_degraded_volume()
    for index in range(3):
        cluster.add_pod(f"b{index}")
        cluster.select_node(f"b{index}", "n1") if cluster.offered(f"b{index}", "n1") else None

    assert {"n1": 300, "*": 100} == cluster.pending()
    cluster.clock.advance(90)
    cluster.allocator.sweep()
    cluster.change_pod("a", priority=1)  # any later event
    assert {"n1": 300} == cluster.pending()


def test_copies_that_were_given_up_count_again_once_their_volume_is_detached() -> None:
    """Then they are Longhorn's to place anew at the next attachment; the pod is bound all the while."""
    cluster = cluster_of("n1", "n2", free_gib=400)
    cluster.add_class("near-two", numberOfReplicas="2", dataLocality="best-effort")
    cluster.add_claim("a", class_name="near-two")
    cluster.add_pod("a")
    assert {"n1", "n2"} == cluster.offered("a", "n1", "n2")
    cluster.select_node("a", "n1")
    name = cluster.provision("a", copies=2)
    cluster.bind("a", "n1")
    cluster.attach(name, "n1", replica_count=2)
    cluster.place(name, "n1")
    assert {"*": 100} == cluster.pending()
    cluster.clock.advance(90)
    cluster.allocator.sweep()
    assert {} == cluster.pending()

    for to in ("", "n1"):
        cluster.attach(name, to, replica_count=2)
        assert {"*": 100} == cluster.pending()


def test_roaming_replicas_take_room_where_they_may_go() -> None:
    cluster = one_node_with_a_degraded_volume()
    cluster.add_node("n2", free_gib=100)
    cluster.add_pod("b")

    assert {"n1"} == cluster.offered("b", "n1", "n2")


def test_soft_anti_affinity_lets_replicas_come_back_to_a_node() -> None:
    cluster = one_node_with_a_degraded_volume()
    cluster.allocator.configure(cluster.live, LonghornSettings(soft_anti_affinity=True))
    cluster.add_pod("b", gib=250)

    assert not cluster.offered("b", "n1")


def test_a_filter_call_that_replaces_an_answer_ends_the_wait_for_its_choice_unfulfilled() -> None:
    cluster = TestCluster()
    cluster.add_node("n1", free_gib=100)
    cluster.add_pod("a")
    cluster.filter("a", "n1")
    cluster.clock.advance(3)
    cluster.filter("a", "n1")

    assert cluster.allocator.drain_records() == (("pod_scheduling_wait", 3.0, False),)
    assert cluster.allocator.snapshot().counters["holds_ended_filtered_again"] == 1


def test_a_class_that_comes_late_settles_all_its_claims_however_many() -> None:
    """It is done a few claims at a time, so that others are let in between."""
    cluster = TestCluster()
    cluster.add_node("n1", free_gib=1000)
    for number in range(2 * CLAIMS_AT_ONCE + 1):
        cluster.add_claim(f"c{number}", 1, class_name="late")
        cluster.select_node(f"c{number}", "n1")
    assert {} == cluster.pending()

    cluster.add_class("late", dataLocality="best-effort", numberOfReplicas="1")

    assert {"n1": 2 * CLAIMS_AT_ONCE + 1} == cluster.pending()
