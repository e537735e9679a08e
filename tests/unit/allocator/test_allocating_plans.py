"""Plans and holds beside a decision about their volume's disk, which may come to nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from controller.allocator.outcome import Allotment
from controller.allocator.verbs.decisions import DOUBT_SECONDS
from controller.allocator.verbs.grow import GrowthRequest
from controller.model.allocations import NodeRecord
from tests.fakes.builders import EPOCH, GIB
from tests.unit.allocator.giving import SECONDS, Allocating, cluster_of, place

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


def chosen(class_name: str = "longhorn", **free_gib: float) -> tuple[Allocating, str]:
    """Pod "pod" goes to n1, and its volume of 60 GiB waits for a disk; the volume."""
    cluster = cluster_of(**(free_gib or {"n1": 100}))
    assert cluster.ask("pod", 60, *(free_gib or ("n1",)), class_name=class_name)
    cluster.select_node("pod", "n1")
    return cluster, provision(cluster, class_name)


def provision(cluster: Allocating, class_name: str = "longhorn") -> str:
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
def test_a_plan_makes_way_for_the_decision_and_is_made_anew_where_that_comes_to_nothing(
    class_name: str, lapse: Lapse
) -> None:
    cluster, name = chosen(class_name)
    assert {"n1": 60} == cluster.pending()
    given = decide(cluster, name)
    assert ({}, 40) == (cluster.pending(), cluster.free_gib("n1"))
    assert {"n1"} == cluster.ask("small", 40, "n1")
    lapse(cluster, given)
    assert {"n1": 100} == cluster.pending()
    assert set() == cluster.ask("other", 1, "n1")
    assert not has_room(cluster, 1)


@pytest.mark.parametrize("is_told", [True, False])
def test_so_it_is_after_what_was_on_record_and_freed(is_told: bool) -> None:
    """On record by the write's answer, or by the watch when that was lost."""
    cluster, name = chosen()
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


@pytest.mark.parametrize("lapse", [None, *LAPSES])
def test_a_decision_about_the_volume_of_a_pod_that_is_not_chosen_leaves_it_its_nodes(lapse: Lapse | None) -> None:
    cluster = cluster_of(n1=100, n2=90)
    assert {"n1", "n2"} == cluster.ask("pod", 60, "n1", "n2")
    name = provision(cluster)
    assert {"n1": 60, "n2": 60} == cluster.pending()
    given = decide(cluster, name)
    assert (("n1", "d1"), 40) == (place(given), cluster.free_gib("n1"))
    assert 60 == cluster.pending()["n2"]
    if lapse is not None:
        lapse(cluster, given)
    cluster.bind("pod", "n1")
    assert ({} if lapse is None else {"n1": 60}) == cluster.pending()


@pytest.mark.parametrize("lapse", LAPSES)
def test_a_choice_that_was_nominated_stands_again(lapse: Lapse) -> None:
    cluster = cluster_of(n1=100, n2=90)
    assert {"n1", "n2"} == cluster.ask("pod", 60, "n1", "n2")
    cluster.change_pod("pod", nominated_node="n1")
    name = provision(cluster)
    assert {"n1": 60} == cluster.pending()
    given = decide(cluster, name)
    assert {} == cluster.pending()
    lapse(cluster, given)
    assert {"n1": 60} == cluster.pending()


@pytest.mark.parametrize("lapse", LAPSES)
@pytest.mark.parametrize("is_asked", [False, True])
def test_a_growth_that_was_admitted_outlasts_a_call_that_comes_to_nothing(is_asked: bool, lapse: Lapse) -> None:
    """`is_asked`: the volume shows the size, its replica does not."""
    cluster, name = chosen()
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


def test_of_two_copies_the_one_without_a_disk_keeps_its_place() -> None:
    cluster = cluster_of(n1=130, n2=100, n3=90)
    cluster.add_class("two", dataLocality="disabled", numberOfReplicas="2")
    assert cluster.ask("pod", 60, "n1", "n2", "n3", class_name="two")
    cluster.select_node("pod", "n3")
    name = cluster.provision("pod", locality="disabled", created=EPOCH, copies=2)
    assert {"n1": 60, "n2": 60} == cluster.pending()
    assert ("n1", "d1") == place(cluster.schedule(f"{name}-r-1"))
    assert ({"n2": 60}, 70) == (cluster.pending(), cluster.free_gib("n1"))
    cluster.write(cluster.allocator.allocations.release_replica(f"{name}-r-1"))
    assert {"n1": 60, "n2": 60} == cluster.pending()
    assert ("n1", "d1") == place(cluster.schedule(f"{name}-r-2"))
    assert ("n2", "d1") == place(cluster.schedule(f"{name}-r-1"))
    assert {} == cluster.pending()


def test_another_pod_of_the_claim_waits_for_none_whose_volume_was_given_its_disk() -> None:
    cluster, name = chosen()
    cluster.schedule(f"{name}-r-1")
    cluster.add_pod("other")
    cluster.change_pod("other", volumes=cluster.pods["pod"].volumes)
    assert {"n1"} == cluster.offered("other", "n1")
