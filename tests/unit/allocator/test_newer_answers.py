"""A choice speaks for the volumes that it was made for, until the pod is asked about without the chosen node."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from controller.allocator.allocator import Decision
from controller.model.workload import PersistentVolume
from tests.fakes.builders import EPOCH, GIB, LATER, LATEST, TestCluster, replica

VOLUME = "pvc-uid-a"
STRICT = {"dataLocality": "strict-local", "numberOfReplicas": "1"}


def see_claim(cluster: TestCluster) -> None:
    cluster.set_claim(replace(cluster.claims["a"], version=7, requested_bytes=99 * GIB))


def see_volume(cluster: TestCluster) -> None:
    locality = "best-effort" if cluster.claims["a"].class_name == "longhorn" else "strict-local"
    cluster.attach(VOLUME, "", robustness="unknown", locality=locality)


def see_replica(cluster: TestCluster) -> None:
    cluster.allocator.observe_replica(f"{VOLUME}-r-1", replica(f"{VOLUME}-r-1", VOLUME, image="engine"))


def see_pv(cluster: TestCluster) -> None:
    facts = PersistentVolume(VOLUME, "driver.longhorn.io", VOLUME, "uid-a", "ns/a", 101 * GIB, LATER)
    cluster.allocator.observe_pv(VOLUME, facts)


def see_pod(cluster: TestCluster) -> None:
    cluster.change_pod("a", unschedulable_since_utc=LATER)


EVENTS = (see_claim, see_volume, see_replica, see_pv, see_pod)


def after_a_failed_bind(class_name: str = "longhorn") -> TestCluster:
    """n1 and n2 of 100 GiB; the volume of `a` was made for n1, then its binding failed."""
    cluster = TestCluster()
    cluster.add_class("strict", **STRICT)
    for name in ("n1", "n2"):
        cluster.add_node(name, free_gib=100)
    cluster.add_claim("a", class_name=class_name)
    cluster.add_pod("a")
    assert {"n1", "n2"} == cluster.offered("a", "n1", "n2")
    cluster.select_node("a", "n1")
    cluster.provision("a", locality="best-effort" if class_name == "longhorn" else "strict-local")
    return cluster


def answered_anew(class_name: str = "longhorn") -> TestCluster:
    """The same, and n1 is no candidate any more, so that n2 was offered."""
    cluster = after_a_failed_bind(class_name)
    assert {"n2"} == cluster.offered("a", "n2")
    return cluster


def other_pod(cluster: TestCluster, name: str = "b", gib: float = 100) -> str:
    return cluster.add_pod(name, gib=gib, created=LATER).name


@pytest.mark.parametrize("class_name", ["longhorn", "strict"])
@pytest.mark.parametrize("event", EVENTS)
def test_the_promise_stays_where_the_newer_answer_put_it(class_name: str, event: Callable[[TestCluster], None]) -> None:
    cluster = answered_anew(class_name)
    event(cluster)

    assert Decision.CONTENDED is cluster.filter(other_pod(cluster), "n2").decision
    assert {"n2"} == {row.node for row in cluster.allocator.snapshot().promises}


@pytest.mark.parametrize("event", EVENTS)
def test_the_node_of_the_older_choice_is_open_to_others(event: Callable[[TestCluster], None]) -> None:
    cluster = answered_anew()
    event(cluster)

    assert {"n1"} == cluster.offered(other_pod(cluster), "n1")


def test_a_node_once_chosen_is_checked_like_any_other_after_a_newer_answer() -> None:
    cluster = answered_anew()
    assert {"n1"} == cluster.offered(other_pod(cluster), "n1")
    cluster.select_node("b", "n1")

    assert {"n2"} == cluster.offered("a", "n1", "n2")


def test_so_it_is_when_preemption_asks_about_it() -> None:
    cluster = answered_anew()
    assert {"n1"} == cluster.offered(other_pod(cluster), "n1")
    cluster.select_node("b", "n1")

    assert {"n2"} == set(cluster.allocator.nodes_with_room("pod-a", ["n1", "n2"]))


def test_a_newer_refusal_takes_the_older_choice_back_as_well() -> None:
    cluster = after_a_failed_bind()
    assert {"n2"} == cluster.offered(other_pod(cluster, "c"), "n2")
    assert Decision.CONTENDED is cluster.filter("a", "n2").decision
    see_claim(cluster)

    assert {"n1"} == cluster.offered(other_pod(cluster), "n1")


def test_what_is_chosen_after_the_newer_answer_stands() -> None:
    cluster = answered_anew()
    cluster.bind("a", "n2")
    see_volume(cluster)

    assert {"n2": 100} == cluster.pending()
    assert {"n1"} == cluster.offered(other_pod(cluster), "n1", "n2")


def test_a_pod_that_is_asked_about_with_its_chosen_node_is_answered_with_it_and_nothing_changes() -> None:
    """kube-scheduler was restarted while it bound the pod."""
    cluster = after_a_failed_bind()
    before = cluster.allocator.snapshot().promises

    outcome = cluster.filter("a", "n1", "n2")

    assert (Decision.CHOSEN, ["n1"]) == (outcome.decision, list(outcome.passed))
    assert before == cluster.allocator.snapshot().promises


# The pod's other volumes


def with_a_second_volume(locality: str, *, is_placed: bool, gib: float = 60) -> TestCluster:
    """A finished pod had claim `a` made for n1, which has 150 GiB; `second` is as old and asks for a new claim too."""
    cluster = TestCluster()
    cluster.add_class("kind", dataLocality=locality, numberOfReplicas="1")
    cluster.add_node("n1", free_gib=150)
    cluster.add_node("n2", free_gib=400)
    cluster.add_claim("a", gib, class_name="kind")
    cluster.add_pod("first", "a")
    assert {"n1"} == cluster.offered("first", "n1")
    cluster.select_node("a", "n1")
    cluster.provision("a", locality=locality)
    cluster.bind("first", "n1")
    if is_placed:
        cluster.attach(VOLUME, "n1", gib, locality=locality)
        cluster.place(VOLUME, "n1", gib)
    cluster.change_pod("first", is_finished=True)
    cluster.attach(VOLUME, "", gib, locality=locality)
    cluster.add_claim("b", 100)
    cluster.add_pod("second", "a", "b", created=EPOCH)
    return cluster


@pytest.mark.parametrize("is_placed", [True, False])
@pytest.mark.parametrize("locality", ["best-effort", "disabled"])
def test_a_choice_of_one_volume_leaves_the_others_to_be_checked(locality: str, is_placed: bool) -> None:
    cluster = with_a_second_volume(locality, is_placed=is_placed)

    assert {"n2"} == cluster.offered("second", "n1", "n2")
    assert {"n2"} == set(cluster.allocator.nodes_with_room("pod-second", ["n1", "n2"]))


def test_a_pod_whose_data_is_bound_to_a_node_without_room_for_its_other_volume_is_refused() -> None:
    cluster = with_a_second_volume("strict-local", is_placed=True)

    assert set() == cluster.offered("second", "n1", "n2")


def test_a_choice_that_a_former_user_left_on_an_unbound_claim_leaves_the_others_to_be_checked() -> None:
    cluster = TestCluster()
    cluster.add_node("n1", free_gib=150)
    cluster.add_pod("first", "a", gib=60)
    assert {"n1"} == cluster.offered("first", "n1")
    cluster.select_node("a", "n1")
    cluster.drop_pod("first")
    cluster.add_claim("b", 100)
    cluster.add_pod("second", "a", "b")

    assert set() == cluster.offered("second", "n1")
    assert {"ns/a"} == {row.claim for row in cluster.allocator.snapshot().promises}


def test_what_the_former_leader_may_have_offered_is_checked_although_a_choice_of_another_volume_narrowed_it() -> None:
    """Of a pod that was made again, one claim was provisioned and not placed, and the other one still is being."""
    cluster = TestCluster()
    cluster.add_node("n1", free_gib=4)
    cluster.add_pod("p", "made", "unmade", gib=1)
    cluster.offered("p", "n1")
    cluster.select_node("made", "n1")
    cluster.provision("made")
    cluster.select_node("unmade", "n1")
    cluster.drop_pod("p")
    cluster.add_pod("large", gib=3)
    cluster.add_pod("again", "made", "unmade", created="2026-01-01T00:02:00Z")
    assert ({"n1"}, set()) == (cluster.offered("large", "n1"), cluster.offered("again", "n1"))
    cluster.allocator.begin_term()

    assert set() == cluster.offered("again", "n1")


def test_a_pod_that_was_offered_the_node_with_all_its_volumes_is_answered_with_it_once_one_of_them_shows() -> None:
    """kube-scheduler writes its choice into one claim after the other."""
    cluster = TestCluster()
    for name in ("n1", "n2"):
        cluster.add_node(name, free_gib=200)
    cluster.add_pod("a", "a", "b")
    assert {"n1", "n2"} == cluster.offered("a", "n1", "n2")
    cluster.select_node("a", "n1")
    cluster.provision("a")

    assert {"n1"} == cluster.offered("a", "n1", "n2")
    assert {"n2"} == cluster.offered(other_pod(cluster, "c", gib=200), "n1", "n2")


@pytest.mark.parametrize("last", [LATEST, LATER])
def test_of_volumes_that_were_made_for_several_nodes_the_last_one_tells(last: str) -> None:
    """The binding to n1 failed between the two, perhaps within a second, and we were not asked."""
    cluster = TestCluster()
    for name in ("n1", "n2"):
        cluster.add_node(name, free_gib=200)
    cluster.add_pod("a", "a", "b")
    for claim, name, created, version in (("a", "n1", LATER, 7), ("b", "n2", last, 8)):
        cluster.select_node(claim, name)
        cluster.provision(claim, created=created, version=version)
    cluster.let_doubts_pass()

    assert [("ns/b", "n2")] == [(row.claim, row.node) for row in cluster.allocator.snapshot().promises]


def test_a_shared_volume_that_was_made_last_tells_that_no_other_node_is_the_one() -> None:
    """It may be used anywhere later, and was made for n2 all the same, where the pod is nominated."""
    cluster = TestCluster()
    for name in ("n1", "n2"):
        cluster.add_node(name, free_gib=200)
    cluster.add_claim("shared", 10, shared=True)
    cluster.add_pod("a", "a", "shared")
    cluster.select_node("a", "n1")
    cluster.provision("a")
    cluster.allocator.begin_term()
    cluster.change_pod("a", nominated_node="n2")
    cluster.select_node("shared", "n2")
    cluster.provision("shared", created=LATEST, access_mode="rwx")

    assert [("ns/a", "n2")] == cluster.local_promises()


# A new leader


def test_under_a_new_leader_a_pod_chosen_only_by_a_bound_claim_may_go_anywhere() -> None:
    """Its binding may have failed, and another node may have been offered since."""
    cluster = answered_anew()
    cluster.allocator.begin_term()
    other_pod(cluster)

    assert Decision.CONTENDED is cluster.filter("b", "n1").decision
    assert Decision.CONTENDED is cluster.filter("b", "n2").decision
    cluster.pass_time(6)
    assert {"n2"} == cluster.offered("b", "n2")


def test_under_a_new_leader_the_same_holds_of_a_pod_with_a_second_volume() -> None:
    cluster = TestCluster()
    for name in ("n1", "n2"):
        cluster.add_node(name, free_gib=200)
    cluster.add_pod("a", "a", "b")
    cluster.filter("a", "n1")
    cluster.select_node("a", "n1")
    cluster.provision("a")
    cluster.filter("a", "n2")
    cluster.allocator.begin_term()

    assert Decision.CONTENDED is cluster.filter(other_pod(cluster, "c", gib=101), "n2").decision


@pytest.mark.parametrize("how", ["unbound claim", "node name"])
def test_under_a_new_leader_a_choice_that_is_sure_keeps_no_other_node(how: str) -> None:
    cluster = after_a_failed_bind()
    if how == "node name":
        cluster.bind("a", "n1")
    else:
        cluster.set_claim(replace(cluster.claims["a"], volume_name=""))
    cluster.allocator.begin_term()

    assert {"n2"} == cluster.offered(other_pod(cluster), "n1", "n2")


def test_a_choice_that_a_bound_claim_tells_counts_once_what_a_former_leader_may_have_offered_has_ended() -> None:
    cluster = after_a_failed_bind()
    cluster.allocator.begin_term()
    assert {"*": 100} == cluster.pending()
    cluster.pass_time(60)

    assert {"n1": 100} == cluster.pending()


def test_a_volume_that_was_made_in_the_second_in_which_its_pod_was_made_again_says_nothing_of_it() -> None:
    """The watch of claims lags behind, and the answer names nodes beside the one that the former pod was given."""
    cluster = TestCluster()
    for name in ("n1", "n2"):
        cluster.add_node(name, free_gib=100)
    claim = cluster.add_claim("a")
    cluster.add_pod("a", created=LATER)
    assert {"n1", "n2"} == cluster.offered("a", "n1", "n2")
    cluster.set_claim(replace(claim, selected_node="n1", volume_name=VOLUME))
    see_pv(cluster)
    see_volume(cluster)
    cluster.allocator.observe_replica(f"{VOLUME}-r-1", replica(f"{VOLUME}-r-1", VOLUME))

    assert {"n1": 100, "n2": 100} == cluster.pending()
