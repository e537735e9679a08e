"""What pods and claims are promised while a decision about their volume's disk may come to nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from controller.allocator.outcome import Allotment
from controller.allocator.promises.promise import Roams
from controller.allocator.verbs.allocate import DOUBT_SECONDS
from controller.allocator.verbs.grow import GrowthRequest
from controller.model.allocations import Allocation, NodeRecord, Purpose
from tests.fakes.builders import EPOCH, GIB
from tests.unit.allocator.giving import SECONDS, Allocating, cluster_of

LOCALITIES = {"longhorn": "best-effort", "strict": "strict-local", "roaming": "disabled"}  # by class


def withdraw(cluster: Allocating, given: Allotment) -> None:
    cluster.allocator.allocations.withdrawn(given)


def never_arrive(cluster: Allocating, given: Allotment) -> None:
    """Nobody knows for a while."""
    cluster.allocator.allocations.failed(given)
    cluster.clock.advance(DOUBT_SECONDS)
    cluster.allocator.sweep()


LAPSES = [withdraw, never_arrive]
Lapse = Callable[[Allocating, Allotment], None]


def offered(class_name: str = "longhorn", **free_gib: float) -> tuple[Allocating, str]:
    """Pod "pod" was offered the nodes, and its volume of 60 GiB waits for a disk; the volume."""
    cluster = cluster_of(**(free_gib or {"n1": 100}))
    assert cluster.ask("pod", 60, *(free_gib or ("n1",)), class_name=class_name)
    return cluster, provision(cluster, class_name)


def provision(cluster: Allocating, class_name: str = "longhorn") -> str:
    """Where it is attached nowhere, nothing is Longhorn's own to place."""
    at = "n1" if class_name == "strict" else ""
    return cluster.provision("pod", locality=LOCALITIES[class_name], attached_to=at, created=EPOCH)


def has_room(cluster: Allocating, gib: int) -> bool:
    """Whether another replica finds any."""
    name, allocator = cluster.show("other", gib), cluster.allocator
    given = allocator.allocations.place_replica(name, SECONDS)
    allocator.allocations.withdrawn(given)
    allocator.observe_replica(name, None)
    allocator.observe_volume("other", None)
    return bool(given.allocations)


def decide(cluster: Allocating, volume: str) -> Allotment:
    given = cluster.allocator.allocations.place_replica(f"{volume}-r-1", SECONDS)
    assert given.allocations
    return given


@pytest.mark.parametrize("lapse", LAPSES)
@pytest.mark.parametrize("class_name", LOCALITIES)
def test_a_hold_outlasts_a_decision_that_comes_to_nothing(class_name: str, lapse: Lapse) -> None:
    cluster, name = offered(class_name)
    given = decide(cluster, name)
    assert ({}, 40) == (cluster.pending(), cluster.free_gib("n1"))
    assert {"n1"} == cluster.ask("small", 40, "n1")
    lapse(cluster, given)
    assert 100 == sum(cluster.pending().values())
    assert set() == cluster.ask("other", 60, "n1")
    assert not has_room(cluster, 60)


@pytest.mark.parametrize("lapse", LAPSES)
def test_a_hold_on_several_nodes_has_them_all_again(lapse: Lapse) -> None:
    cluster, name = offered(n1=100, n2=90)
    assert {"n1": 60, "n2": 60} == cluster.pending()
    given = decide(cluster, name)
    assert {"n2": 60} == cluster.pending()
    cluster.change_pod("pod", priority=1)  # any event about it
    assert {"n2": 60} == cluster.pending()
    lapse(cluster, given)
    assert {"n1": 60, "n2": 60} == cluster.pending()


@pytest.mark.parametrize("is_told", [True, False])
def test_a_hold_outlasts_what_is_on_record_and_freed(is_told: bool) -> None:
    """On record by the write's answer, or by the watch when that was lost."""
    cluster, name = offered()
    given = decide(cluster, name)
    if is_told:
        cluster.write(given)
    else:
        cluster.allocator.allocations.failed(given)
        cluster.allocator.observe_record("n1", NodeRecord("n1", given.allocations))
    cluster.clock.advance(DOUBT_SECONDS)
    cluster.allocator.sweep()
    assert ({}, 40) == (cluster.pending(), cluster.free_gib("n1"))
    cluster.allocator.observe_record("n1", NodeRecord("n1", version="9" * 9))  # freed
    assert ({"n1": 60}, 100) == (cluster.pending(), cluster.free_gib("n1"))
    cluster.place(name, "n1", 60)
    cluster.allocator.observe_replica(f"{name}-r-1", None)
    assert ({}, 100) == (cluster.pending(), cluster.free_gib("n1"))


def test_a_hold_ends_with_what_its_replica_shows() -> None:
    cluster, name = offered()
    given = decide(cluster, name)
    cluster.place(name, "n1", 60)
    cluster.allocator.allocations.withdrawn(given)
    cluster.allocator.observe_replica(f"{name}-r-1", None)
    assert {} == cluster.pending()


@pytest.mark.parametrize("lapse", LAPSES)
@pytest.mark.parametrize("adds_up", [False, True])
@pytest.mark.parametrize("class_name", LOCALITIES)
def test_a_yes_that_goes_by_a_decision_holds_what_comes_of_it(class_name: str, adds_up: bool, lapse: Lapse) -> None:
    cluster, name = offered(class_name)
    given = decide(cluster, name)
    cluster.adds_up = adds_up
    assert {"n1"} == cluster.offered("pod", "n1")
    assert {} == cluster.pending()
    lapse(cluster, given)
    assert [60] == list(cluster.pending().values())
    assert set() == cluster.ask("other", 60, "n1")
    assert not has_room(cluster, 60)
    cluster.pass_time(130)
    assert "pod-pod" not in cluster.claimants()


def test_a_yes_to_a_stranger_that_goes_by_a_decision_ends_nothing() -> None:
    cluster, name = offered(n1=100, n2=90)
    given = decide(cluster, name)
    cluster.adds_up = True
    assert {"n1"} == cluster.offered("pod", "n1")
    withdraw(cluster, given)
    assert {"n1": 60, "n2": 60} == cluster.pending()


@pytest.mark.parametrize("lapse", LAPSES)
def test_a_choice_that_was_nominated_stands_again(lapse: Lapse) -> None:
    cluster, name = offered(n1=100, n2=90)
    cluster.change_pod("pod", nominated_node="n1")
    assert {"n1": 60} == cluster.pending()
    given = decide(cluster, name)
    cluster.pass_time(10)
    assert {} == cluster.pending()
    lapse(cluster, given)
    assert {"n1": 60} == cluster.pending()


@pytest.mark.parametrize("lapse", LAPSES)
def test_a_choice_that_is_withdrawn_meanwhile_is_held_in_doubt(lapse: Lapse) -> None:
    cluster, name = offered(n1=100, n2=90)
    cluster.change_pod("pod", nominated_node="n1")
    given = decide(cluster, name)
    cluster.change_pod("pod", nominated_node="")
    assert {"n2": 60} == cluster.pending()
    lapse(cluster, given)
    assert {"n1": 60, "n2": 60} == cluster.pending()
    cluster.let_doubts_pass()
    assert {} == cluster.pending()


@pytest.mark.parametrize("lapse", LAPSES)
def test_a_claims_own_promise_goes_on(lapse: Lapse) -> None:
    """Nobody asked about its pod, and its volume is attached nowhere."""
    cluster = cluster_of(n1=1000)
    cluster.add_pod("pod", ("pod", 60, "roaming"))
    cluster.select_node("pod", "n1")
    name = cluster.provision("pod", locality="disabled", created=EPOCH)
    assert "claim:" in cluster.claimants()
    given = decide(cluster, name)
    assert {} == cluster.pending()
    lapse(cluster, given)
    assert "claim:" in cluster.claimants()


def test_a_bound_pod_that_goes_meanwhile_leaves_its_promise_in_doubt() -> None:
    cluster, name = offered("roaming")
    cluster.attach(name, "", 60, locality="disabled")
    cluster.bind("pod", "n1")
    given = decide(cluster, name)
    cluster.drop_pod("pod")
    withdraw(cluster, given)
    assert "pod-pod" in cluster.claimants()
    cluster.let_doubts_pass()
    assert "pod-pod" not in cluster.claimants()


@pytest.mark.parametrize("lapse", LAPSES)
@pytest.mark.parametrize("is_asked", [False, True])
def test_a_growth_that_was_admitted_outlasts_a_call_that_comes_to_nothing(is_asked: bool, lapse: Lapse) -> None:
    """`is_asked`: the volume shows the size, its replica does not."""
    cluster, name = offered()
    cluster.place(name, "n1", 60)
    cluster.allocator.expansions.hold(GrowthRequest(name, 90 * GIB))
    if is_asked:
        cluster.attach(name, "n1", 90)
    assert {"n1": 30} == cluster.pending()
    given = cluster.allocator.allocations.grow(name, 90 * GIB)
    assert not has_room(cluster, 20)
    lapse(cluster, given)
    assert {"n1": 30} == cluster.pending()
    assert not has_room(cluster, 20)


def test_what_a_replica_of_that_name_lay_on_tells_nothing_of_the_next_one() -> None:
    cluster, name = offered()
    given = decide(cluster, name)
    cluster.allocator.observe_replica(f"{name}-r-1", None)
    cluster.allocator.allocations.withdrawn(given)
    cluster.place(name, "n1", 60)
    assert {} == cluster.pending()
    cluster.allocator.observe_replica(f"{name}-r-1", None)
    assert {} == cluster.pending()


@pytest.mark.parametrize("asks_again", [False, True])
@pytest.mark.parametrize("has_event", [False, True])
def test_of_two_copies_that_may_land_anywhere_the_one_without_a_disk_counts_once(
    has_event: bool, asks_again: bool
) -> None:
    """And not where the other one was given a disk that it does not show yet."""
    cluster = cluster_of(n1=130, n2=100, n3=100)
    assert cluster.ask("pod", 60, "n1", "n2", "n3", class_name="roaming")
    name = cluster.provision("pod", locality="disabled", created=EPOCH, copies=2)
    cluster.schedule(f"{name}-r-1")
    assert 70 == cluster.free_gib("n1")
    if asks_again:
        assert cluster.offered("pod", "n1", "n2", "n3")
    if has_event:
        cluster.change_pod("pod", priority=1)
    (places,) = (one.places for one in cluster.allocator._ledger.promises() if one.claimant == "pod-pod")
    assert isinstance(places, Roams)
    assert (1, {"n1"}) == (places.copies, set(places.excluded))
    assert {"n1"} == cluster.ask("small", 20, "n1")
    cluster.write(cluster.allocator.allocations.release_replica(f"{name}-r-1"))
    cluster.change_pod("pod", priority=2)
    (places,) = (one.places for one in cluster.allocator._ledger.promises() if one.claimant == "pod-pod")
    assert isinstance(places, Roams)
    assert (2 if asks_again else 1, set()) == (places.copies, set(places.excluded))


def test_a_claim_that_counts_nowhere_is_not_charged_to_its_namespace() -> None:
    cluster = cluster_of(n1=1000)  # of which it may have 100
    cluster.add_pod("pod", ("pod", 60, "roaming"))
    cluster.select_node("pod", "n1")
    name = cluster.provision("pod", locality="disabled", created=EPOCH)
    cluster.schedule(f"{name}-r-1")
    assert {} == cluster.pending()
    cluster.add_pod("next", ("next", 60, "roaming"))
    cluster.select_node("next", "n1")
    assert 60 == sum(cluster.pending().values())


@pytest.mark.parametrize("is_freed", [False, True])
def test_what_a_pod_that_is_gone_was_to_move_to_counts_no_more(is_freed: bool) -> None:
    """Its volume's replica was given another node, and shows no disk yet."""
    cluster, name = offered(n1=100, n2=100)
    cluster.bind("pod", "n1")
    there = Allocation(Purpose.REPLICA, f"{name}-r-1", "n2", "n2-d1", 60 * GIB)
    cluster.allocator.observe_record("n2", NodeRecord("n2", (there,), version="9"))
    assert {"n1": 60} == cluster.pending()  # where the pod runs
    cluster.drop_pod("pod")
    assert {} == cluster.pending()
    if is_freed:
        cluster.allocator.observe_record("n2", NodeRecord("n2", version="99"))
        assert {"n1": 60} == cluster.pending()  # it may be up there


def test_another_pod_of_the_claim_waits_for_none_whose_volume_was_given_its_disk() -> None:
    cluster, name = offered()
    cluster.schedule(f"{name}-r-1")
    cluster.add_pod("other")
    cluster.change_pod("other", volumes=cluster.pods["pod"].volumes)
    assert {"n1"} == cluster.offered("other", "n1")


def test_what_a_claim_is_promised_by_its_owners_word_ends_when_its_pod_is_bound_elsewhere() -> None:
    """Also where the claim was seen as bound before, while another user of it might have gone there."""
    cluster = cluster_of(n1=1000, n2=1000)
    cluster.add_pod("pod", ("pod", 60, "longhorn"))
    cluster.select_node("pod", "n1")
    name = f"pvc-{cluster.claims['pod'].uid}"
    cluster.show(name, 60, locality="best-effort", node_id="n1")
    cluster.place(name, "n2", 60)
    assert {"n1": 60} == cluster.pending()
    cluster.provision("pod", locality="best-effort", created=EPOCH)
    cluster.place(name, "n2", 60)
    assert {"n1": 60} == cluster.pending()
    cluster.bind("pod", "n2")
    assert {} == cluster.pending()
