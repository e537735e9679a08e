"""How what a pod holds becomes plans: disk by disk, as no transcript (tests/scenarios) tells it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.allocator.plans.plan import Hold
from controller.model.longhorn import Backup
from controller.model.places import Place
from tests.fakes import builders
from tests.fakes.builders import EPOCH, GIB, LATER
from tests.unit.allocator.placed_cluster import PlacedCluster, made_plan


def planned(site: PlacedCluster) -> dict[str, list[str]]:
    """Disks by volume."""
    return {plan.volume: sorted(place.disk_uuid for place in plan.places) for plan in site.table.plans()}


def held(site: PlacedCluster, pod: str) -> list[tuple[str, str]]:
    """Volumes and disks."""
    hold = site.table.hold(f"pod-{pod}")
    return sorted((volume, place.disk_uuid) for volume, place in hold.places()) if hold is not None else []


def hold_of(site: PlacedCluster, pod: str) -> Hold:
    found = site.table.hold(f"pod-{pod}")
    assert found is not None
    return found


def close(site: PlacedCluster, name: str, *closed: str, **free_gib: float) -> None:
    """The node with those disks, of which some take nothing."""
    disks = [
        replace(builders.disk(disk, gib, node=name), allow_scheduling=disk not in closed)
        for disk, gib in free_gib.items()
    ]
    site.put_node(builders.node(name, *disks))


def taken(site: PlacedCluster, *disks: str) -> list[int]:
    return [site.table.taken_bytes(disk.partition("-")[0], disk) // GIB for disk in disks]


def claim_events(site: PlacedCluster) -> list[tuple[str, str]]:
    return [(str(one.kind), one.name) for one in site.allocator.drain_claim_events()]


# A node is chosen


@pytest.mark.parametrize("shows", ["select", "nominate", "bind"])
def test_the_places_that_were_held_there_become_plans_and_nothing_else_stays(shows: str) -> None:
    site = PlacedCluster().add_nodes(n1=[100, 50], n2=[100, 50], n3=900)
    site.add_pod("p", ("a", 80), ("b", 40), ("c", 30, "roaming"))
    assert {"n1", "n2"} == site.offered("p", "n1", "n2")
    told = dict(hold_of(site, "p").at("n2"))

    if shows == "select":
        site.select_node("a", "n2")
    elif shows == "nominate":
        site.change_pod("p", nominated_node="n2")
    else:
        site.bind("p", "n2")

    plans = {plan.volume: plan for plan in site.table.plans()}
    assert told == {volume: plan.places for volume, plan in plans.items()}
    assert {("pod-p",)} == {plan.pods for plan in plans.values()}
    assert [] == held(site, "p")
    assert [0, 0, 80, 40, 30] == taken(site, "n1-d0", "n1-d1", "n2-d0", "n2-d1", "n3-d1")


def test_all_places_of_a_pod_are_plans_before_one_that_was_lost_is_found_anew() -> None:
    """It would take the disk that is held for another volume of the same pod."""
    site = PlacedCluster().add_nodes(n1=[45, 60, 40])
    site.add_pod("p", ("a", 40), ("b", 60))
    assert {"n1"} == site.offered("p", "n1")
    lost = dict(held(site, "p"))["pvc-uid-a"]
    assert "n1-d1" == dict(held(site, "p"))["pvc-uid-b"]
    close(site, "n1", lost.removeprefix("n1-"), d0=45, d1=60, d2=40)

    site.select_node("a", "n1")

    other = {"n1-d0": "n1-d2", "n1-d2": "n1-d0"}[lost]
    assert {"pvc-uid-a": [other], "pvc-uid-b": ["n1-d1"]} == planned(site)


@pytest.mark.parametrize("class_name", ["longhorn", "strict", "roaming"])
def test_a_place_that_is_lost_meanwhile_is_found_anew_on_what_is_free(class_name: str) -> None:
    site = PlacedCluster().add_nodes(n1=[100, 90, 80])
    site.ask("a", 60, "n1", class_name=class_name)
    ((_, lost),) = held(site, "a")
    site.ask("b", 60, "n1")
    ((_, other),) = held(site, "b")
    close(site, "n1", lost.removeprefix("n1-"), d0=100, d1=90, d2=80)

    site.select_node("a", "n1")

    (third,) = {"n1-d0", "n1-d1", "n1-d2"} - {lost, other}
    assert {"pvc-uid-a": [third]} == planned(site)


def test_where_nothing_is_left_its_owner_is_told_and_it_comes_back_with_the_room() -> None:
    site = PlacedCluster().add_nodes(n1=100)
    site.ask("a", 60, "n1", class_name="strict")
    close(site, "n1", "d1", d1=100)
    site.select_node("a", "n1")
    assert {} == planned(site)
    told = claim_events(site)

    close(site, "n1", d1=100)

    assert {"pvc-uid-a": ["n1-d1"]} == planned(site)
    assert [("place-lost", "a")] == told


def test_so_does_the_lost_place_of_a_pod_that_is_bound_before_its_volume_is_seen() -> None:
    site = PlacedCluster().add_nodes(n1=100)
    site.ask("a", 60, "n1")
    site.bind("a", "n1")
    close(site, "n1", "d1", d1=100)
    assert {} == planned(site)
    assert [("place-lost", "a")] == claim_events(site)

    close(site, "n1", d1=100)

    assert {"pvc-uid-a": ["n1-d1"]} == planned(site)


def test_a_node_that_was_not_offered_is_no_choice_before_the_pod_is_bound() -> None:
    site = PlacedCluster().add_nodes(n1=100, n2=100)
    site.ask("a", 60, "n1")
    site.select_node("a", "n2")
    site.change_pod("a", nominated_node="n2")
    assert ({}, [("pvc-uid-a", "n1-d1")]) == (planned(site), held(site, "a"))

    site.bind("a", "n2")
    assert ({"pvc-uid-a": ["n2-d1"]}, []) == (planned(site), held(site, "a"))


# It is another one later


@pytest.mark.parametrize("class_name", ["longhorn", "strict"])
def test_another_of_the_offered_nodes_is_planned_where_it_has_room(class_name: str) -> None:
    site = PlacedCluster().add_nodes(n1=100, n2=[60, 100])
    site.ask("a", 60, "n1", "n2", class_name=class_name)
    site.select_node("a", "n1")
    site.ask("b", 90, "n2")

    site.select_node("a", "n2")

    assert {"pvc-uid-a": ["n2-d0"]} == planned(site)
    assert [0, 60, 90] == taken(site, "n1-d1", "n2-d0", "n2-d1")


def test_where_that_has_none_what_was_planned_stays_for_a_volume_that_may_lie_elsewhere() -> None:
    site = PlacedCluster().add_nodes(n1=100, n2=100)
    site.ask("a", 60, "n1", "n2")
    site.select_node("a", "n1")
    site.ask("b", 60, "n2")

    site.select_node("a", "n2")

    assert {"pvc-uid-a": ["n1-d1"]} == planned(site)
    assert [60, 60] == taken(site, "n1-d1", "n2-d1")


def test_a_choice_that_is_older_than_the_answer_counts_once_nobody_acts_on_that() -> None:
    site = PlacedCluster().add_nodes(n1=100, n2=100)
    site.ask("a", 60, "n1", "n2")
    site.select_node("a", "n1")
    site.drop_pod("a")
    site.add_pod("a", uid="again")
    assert {"n1", "n2"} == site.offered("a", "n1", "n2")
    assert ({}, [60, 60]) == (planned(site), taken(site, "n1-d1", "n2-d1"))

    site.pass_time(5)

    assert ({"pvc-uid-a": ["n1-d1"]}, [60, 0]) == (planned(site), taken(site, "n1-d1", "n2-d1"))


# Without an answer


@pytest.mark.parametrize("class_name", ["longhorn", "roaming"])
def test_a_bound_pod_without_a_yes_has_a_plan_once_its_volume_exists_on_what_is_free(class_name: str) -> None:
    site = PlacedCluster().add_nodes(n1=[100, 80])
    site.ask("a", 90, "n1")
    site.ask("b", 40, "n1")
    site.select_node("b", "n1")
    before = taken(site, "n1-d0", "n1-d1")
    assert [90, 40] == before
    site.add_pod("x", ("x", 50, class_name))
    site.bind("x", "n1")
    assert ["pvc-uid-b"] == list(planned(site))

    locality = "disabled" if class_name == "roaming" else "best-effort"
    site.provision("x", locality=locality)
    assert ["pvc-uid-b"] == list(planned(site))  # there are not so many bytes

    site.drop_pod("b")
    site.bind("x", "n1")
    assert {"pvc-uid-x": ["n1-d1"]} == planned(site)
    assert [90, 50] == taken(site, "n1-d0", "n1-d1")


def test_a_pending_pod_that_nobody_asked_about_has_none_whatever_its_claim_says() -> None:
    site = PlacedCluster().add_nodes(n1=100)
    site.add_pod("x")
    site.select_node("x", "n1")
    site.provision("x")
    site.change_pod("x", nominated_node="n1")
    assert {} == planned(site)


# Several pods, one volume


def test_of_two_bound_pods_the_one_that_stays_decides() -> None:
    site = PlacedCluster().add_nodes(n1=100, n2=100)
    site.chosen("a", 60, "n1")
    site.provision("a")
    site.bind("a", "n1")
    site.add_pod("next", "a", created=LATER)
    site.bind("next", "n2")
    assert {"pvc-uid-a": ["n1-d1"]} == planned(site)

    site.change_pod("a", is_deleting=True)
    assert {"pvc-uid-a": ["n2-d1"]} == planned(site)
    site.drop_pod("a")
    assert ({"pvc-uid-a": ["n2-d1"]}, [0, 60]) == (planned(site), taken(site, "n1-d1", "n2-d1"))


def test_a_shared_volume_that_two_pods_were_offered_counts_once() -> None:
    site = PlacedCluster().add_nodes(n1=100, n2=100)
    site.add_claim("s", 60, shared=True)
    for name in ("p", "q"):
        site.add_pod(name, "s")
        assert {"n1", "n2"} == site.offered(name, "n1", "n2")
    assert held(site, "p") == held(site, "q")
    assert 60 == sum(taken(site, "n1-d1", "n2-d1"))

    site.select_node("s", "n1")
    assert 60 == sum(taken(site, "n1-d1", "n2-d1"))
    (plan,) = site.table.plans()
    assert {"pod-p", "pod-q"} == set(plan.pods)
    site.drop_pod("p")
    site.drop_pod("q")
    assert [0, 0] == taken(site, "n1-d1", "n2-d1")


# It ends


@pytest.mark.parametrize("over", [{"is_finished": True}, {"is_deleting": True}], ids=str)
@pytest.mark.parametrize("is_chosen", [False, True])
def test_of_a_pod_that_is_over_nothing_stays(over: dict[str, Any], is_chosen: bool) -> None:
    site = PlacedCluster().add_nodes(n1=100, n2=100)
    site.ask("a", 60, "n1", "n2")
    if is_chosen:
        site.select_node("a", "n1")
    site.change_pod("a", **over)
    assert ({}, [], [0, 0]) == (planned(site), site.table.holds(), taken(site, "n1-d1", "n2-d1"))


def test_a_claim_that_is_gone_takes_its_own_places_out_of_what_is_held() -> None:
    site = PlacedCluster().add_nodes(n1=200, n2=200)
    site.add_pod("p", ("a", 80), ("b", 40), ("c", 30, "roaming"))
    site.offered("p", "n1", "n2")

    site.drop_claim("a")
    assert {"pvc-uid-b", "pvc-uid-c"} == {volume for volume, _ in held(site, "p")}
    site.drop_claim("c")
    assert [("pvc-uid-b", "n1-d1"), ("pvc-uid-b", "n2-d1")] == held(site, "p")
    site.select_node("b", "n2")
    assert {"pvc-uid-b": ["n2-d1"]} == planned(site)
    site.drop_claim("b")
    assert {} == planned(site)


def test_a_node_that_is_gone_is_no_longer_offered_and_its_plans_go_elsewhere() -> None:
    site = PlacedCluster().add_nodes(n1=100, n2=100, n3=100)
    site.chosen("free", 60, "n1", "roaming")
    ((at,),) = planned(site).values()
    gone = at.removesuffix("-d1")
    others = {"n1", "n2", "n3"} - {gone}
    site.ask("a", 40, "n1", "n2", "n3")
    assert 3 == len(held(site, "a"))

    site.allocator.observe_node(gone, None)

    ((now_at,),) = planned(site).values()
    assert now_at.removesuffix("-d1") in others
    assert others == set(hold_of(site, "a").nodes or ())
    assert {f"{name}-d1" for name in others} == {disk for _, disk in held(site, "a")}


def test_the_plan_of_an_attached_volume_outlives_its_pod() -> None:
    site = PlacedCluster().add_nodes(n1=100)
    site.chosen("a", 60, "n1")
    site.provision("a")
    site.bind("a", "n1")
    site.attach("pvc-uid-a", "n1", 60)
    site.drop_pod("a")
    assert {"pvc-uid-a": ["n1-d1"]} == planned(site)
    site.attach("pvc-uid-a", "", 60)
    assert {} == planned(site)


# Where anybody may ask


@pytest.fixture
def open_site() -> PlacedCluster:
    """Two nodes, of which a pod was offered the first; what is asked next may be asked by anybody."""
    site = PlacedCluster().add_nodes(n1=100, n2=100)
    site.adds_up = True
    assert {"n1"} == site.ask("a", 60, "n1")
    return site


def test_an_answer_ends_nothing_that_was_offered_before(open_site: PlacedCluster) -> None:
    assert {"n2"} == open_site.offered("a", "n2")
    assert [("pvc-uid-a", "n1-d1"), ("pvc-uid-a", "n2-d1")] == held(open_site, "a")

    open_site.select_node("a", "n1")

    assert ({"pvc-uid-a": ["n1-d1"]}, [60, 0]) == (planned(open_site), taken(open_site, "n1-d1", "n2-d1"))


def test_what_it_adds_lies_beside_what_the_pod_holds_already() -> None:
    """Its other volume was given a disk by the first answer, and has it whichever of the nodes is chosen."""
    site = PlacedCluster().add_nodes(n1=50, n2=50)
    site.adds_up = True
    site.add_pod("p", ("a", 30), ("r", 30, "roaming"))
    assert {"n1"} == site.offered("p", "n1")
    assert set() == site.offered("p", "n2")
    assert [30, 30] == taken(site, "n1-d1", "n2-d1")


def test_one_after_the_choice_is_held_beside_it_for_a_while(open_site: PlacedCluster) -> None:
    open_site.select_node("a", "n1")
    assert {"n2"} == open_site.offered("a", "n2")
    assert ({"pvc-uid-a": ["n1-d1"]}, [60, 60]) == (planned(open_site), taken(open_site, "n1-d1", "n2-d1"))

    open_site.pass_time(8)
    assert ({"pvc-uid-a": ["n1-d1"]}, [60, 0]) == (planned(open_site), taken(open_site, "n1-d1", "n2-d1"))
    assert {"n1", "n2"} == set(hold_of(open_site, "a").nodes or ())


# A change of leader


@pytest.mark.parametrize("is_chosen", [False, True])
def test_the_next_leader_has_the_same_disks(is_chosen: bool) -> None:
    site = PlacedCluster().add_nodes(n1=[100, 50], n2=[50, 100], n3=900)
    site.add_pod("p", ("a", 80), ("b", 40, "roaming"))
    site.offered("p", "n1", "n2")
    if is_chosen:
        site.select_node("a", "n2")
    before = planned(site), held(site, "p")

    site.change_leader()

    assert before == (planned(site), held(site, "p"))
    site.select_node("a", "n1")
    assert ["n1-d0"] == planned(site)["pvc-uid-a"]


def test_holds_of_pods_that_are_gone_are_dropped() -> None:
    site = PlacedCluster().add_nodes(n1=200)
    for name in ("a", "b"):
        site.ask(name, 60, "n1")
    holds = site.table.holds()
    site.allocator.end_term()
    site.drop_pod("a")
    site.change_pod("b", is_finished=True)

    site.allocator.begin_term(holds=holds)

    assert ([], [0]) == (site.table.holds(), taken(site, "n1-d1"))


def test_stored_plans_without_their_pods_holds_are_choices() -> None:
    """A new leader may find the one without the other: plans outlive holds."""
    site = PlacedCluster().add_nodes(n1=[100, 100])
    site.chosen("a", 60, "n1")
    plan = made_plan("pvc-uid-a", "uid-a", [Place("n1", "n1-d1", 60 * GIB)], "pod-a")
    site.allocator.end_term()

    site.allocator.begin_term(plans=[plan])

    assert ({"pvc-uid-a": ["n1-d1"]}, "n1") == (planned(site), hold_of(site, "a").chosen)
    assert {"n1"} == site.offered("a", "n1")
    assert {"pvc-uid-a": ["n1-d1"]} == planned(site)


def test_places_of_another_leader_that_are_not_legal_any_more_are_found_anew() -> None:
    site = PlacedCluster().add_nodes(n1=[100, 100])
    site.ask("a", 60, "n1")
    ((_, disk),) = held(site, "a")
    holds = site.table.holds()
    site.allocator.end_term()
    close(site, "n1", disk.removeprefix("n1-"), d0=100, d1=100)

    site.allocator.begin_term(holds=holds)
    site.select_node("a", "n1")

    assert {"pvc-uid-a": [{"n1-d0": "n1-d1", "n1-d1": "n1-d0"}[disk]]} == planned(site)


def test_a_stored_place_keeps_its_size_until_the_backup_of_its_volume_is_read() -> None:
    """The next leader has not read it yet, and may not give the rest to others meanwhile."""
    url = "s3://bucket/?backup=b&volume=v"
    former, site = (PlacedCluster().add_nodes(n1=400) for _ in range(2))
    for one in (former, site):
        one.add_class("restored", dataLocality="best-effort", numberOfReplicas="1", fromBackup=url)
        one.add_pod("a", ("a", 100, "restored"))
    former.allocator.observe_backup("b", Backup("b", url, 300 * GIB))
    former.offered("a", "n1")
    former.select_node("a", "n1")
    site.allocator.end_term()
    site.select_node("a", "n1")

    site.allocator.begin_term(plans=former.table.plans(), holds=former.table.holds())

    assert [300] == taken(site, "n1-d1")
    assert set() == site.ask("b", 250, "n1")


def test_a_copy_that_the_leader_before_has_placed_takes_no_bytes_twice() -> None:
    site = PlacedCluster().add_nodes(n1=100)
    volume = site.chosen("a", 60, "n1")
    site.provision("a")
    plans, holds = site.table.plans(), site.table.holds()
    site.allocator.end_term()
    facts = builders.replica(f"{volume}-r-1", volume, 60, on="n1", healthy_at=EPOCH)
    site.allocator.observe_replica(facts.name, facts)

    site.allocator.begin_term(plans=plans, holds=holds)

    assert ({}, [0]) == (planned(site), taken(site, "n1-d1"))
    assert {"n1"} == site.ask("b", 40, "n1")
