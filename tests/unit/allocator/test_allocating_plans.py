"""Plans and holds beside a decision about their volume's disk, which may come to nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from controller.allocator.outcome import Allotment
from controller.errors import RefusedWriteError
from tests.fakes.builders import EPOCH
from tests.unit.allocator.giving import SECONDS, Allocating, cluster_of, place

LOCALITIES = {"longhorn": "best-effort", "strict": "strict-local", "roaming": "disabled"}  # by class


def refuse(cluster: Allocating, given: Allotment) -> None:
    """The record does not take it."""
    cluster.allocator.allocations.failed(given, RefusedWriteError("no", "none"))


def take_back(cluster: Allocating, given: Allotment) -> None:
    (one,) = given.allocations
    cluster.write(given)
    cluster.write(cluster.allocator.allocations.release_replica(one.name))


LAPSES = [refuse, take_back]
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
