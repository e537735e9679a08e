"""What Longhorn never makes, never attaches or can never grow takes no room from anybody, and a person is told."""

from __future__ import annotations

from typing import Final

import pytest

from controller.allocator.allocator import Decision
from tests.fakes.builders import LATER, TestCluster, disk, replica
from tests.unit.allocator.test_growth import ALL, Growing

ONE: Final = {"numberOfReplicas": "1"}
IMPOSSIBLE: Final = {  # class parameters, and what the person has to read
    "two local copies": ({"dataLocality": "strict-local", "numberOfReplicas": "2"}, "strict-local"),
    "strict-local without a count": ({"dataLocality": "strict-local"}, "strict-local"),
    "misspelt locality": ({"dataLocality": "best_effort", **ONE}, "best_effort"),
    "empty locality": ({"dataLocality": "", **ONE}, "dataLocality"),
    "too many copies": ({"dataLocality": "disabled", "numberOfReplicas": "21"}, "21"),
    "another frontend": ({"dataLocality": "best-effort", "frontend": "iscsi", **ONE}, "iscsi"),
    "another frontend, anywhere": ({"dataLocality": "disabled", "frontend": "iscsi", **ONE}, "iscsi"),
}
POSSIBLE: Final = {
    "strict-local": {"dataLocality": "strict-local", **ONE},
    "twenty copies": {"dataLocality": "disabled", "numberOfReplicas": "20"},
    "frontend by name": {"dataLocality": "best-effort", "frontend": "blockdev", **ONE},
}
NODES = ("n1", "n2")
each_impossible = pytest.mark.parametrize("kind", IMPOSSIBLE)


def cluster_with(parameters: dict[str, str]) -> TestCluster:
    """Two nodes of 100 GiB, and a pod `asks` whose claim of 80 has a class with those parameters."""
    cluster = TestCluster()
    cluster.add_class("kind", **parameters)
    for name in NODES:
        cluster.add_node(name, free_gib=100)
    cluster.add_claim("asks", 80, class_name="kind")
    cluster.add_pod("asks")
    return cluster


def next_is_offered(cluster: TestCluster) -> set[str]:
    cluster.add_pod("next", gib=100, created=LATER)
    return cluster.offered("next", *NODES)


@each_impossible
def test_a_pod_whose_volume_will_never_come_is_refused_everywhere_and_holds_nothing(kind: str) -> None:
    cluster = cluster_with(IMPOSSIBLE[kind][0])
    outcome = cluster.filter("asks", *NODES)

    assert (Decision.REFUSED, set(NODES), False) == (outcome.decision, set(outcome.refused), outcome.waitable)
    assert {} == cluster.pending()
    assert set(NODES) == next_is_offered(cluster)


@each_impossible
def test_its_account_names_the_claim_and_what_is_wrong_with_its_class(kind: str) -> None:
    parameters, word = IMPOSSIBLE[kind]
    cluster = cluster_with(parameters)
    cluster.filter("asks", *NODES)
    text = cluster.allocator.account_of("pod-asks", NODES)

    assert ("ns/asks" in text, word in text) == (True, True), text


@each_impossible
def test_its_other_volumes_hold_nothing_either(kind: str) -> None:
    cluster = cluster_with(IMPOSSIBLE[kind][0])
    cluster.add_claim("fine", 10)
    cluster.add_pod("asks", "asks", "fine")

    assert set() == cluster.offered("asks", *NODES)
    assert {} == cluster.pending()


# Of another frontend and locality `disabled`: nobody attaches it, but its replicas are placed when it is made.
@pytest.mark.parametrize("kind", [kind for kind in IMPOSSIBLE if kind != "another frontend, anywhere"])
def test_neither_a_choice_nor_a_new_leader_makes_room_for_it(kind: str) -> None:
    cluster = cluster_with(IMPOSSIBLE[kind][0])
    cluster.allocator.begin_term()
    assert {} == cluster.pending()
    cluster.select_node("asks", "n1")
    assert {} == cluster.pending()
    cluster.bind("asks", "n1")

    assert {} == cluster.pending()
    assert set(NODES) == next_is_offered(cluster)


@each_impossible
def test_it_is_not_woken_when_room_appears(kind: str) -> None:
    cluster = cluster_with(IMPOSSIBLE[kind][0])
    assert set() == cluster.offered("asks", *NODES)
    cluster.add_node("n3", free_gib=1000)
    cluster.clock.advance(10)

    assert [] == cluster.plan_wakeups()


@pytest.mark.parametrize("kind", POSSIBLE)
def test_classes_that_longhorn_serves_are_offered_room(kind: str) -> None:
    assert set(NODES) == cluster_with(POSSIBLE[kind]).offered("asks", *NODES)


# Growth that no disk of the volume could take. It was stored while nobody checked.


def grown(size: float, **disks: float) -> Growing:
    """A volume of 400 GiB on d1 whose claim asks for `size` by now."""
    world = Growing(ALL, **disks)
    world.add("a", 400)
    world.grow_claim("a", size)
    return world


def is_offered(world: Growing, gib: float, on: str = "n1") -> bool:
    """Whether a pod that has just come is offered the node; it goes again."""
    world.cluster.add_pod("next", gib=gib, created=LATER)
    found = world.cluster.offered("next", on)
    world.cluster.drop_pod("next")
    world.cluster.drop_claim("next")
    return found == {on}


def test_growth_beyond_the_disk_leaves_what_is_free_beside_the_volume() -> None:
    world = grown(900, d1=600)

    assert (True, False) == (is_offered(world, 200), is_offered(world, 201))


def test_growth_beyond_the_disk_leaves_the_nodes_other_disk() -> None:
    world = grown(900, d1=400, d2=150)
    world.cluster.let_figures_follow()

    assert (True, False) == (is_offered(world, 150), is_offered(world, 151))


@pytest.mark.parametrize("shown", ["claim", "pv", "volume"])
def test_so_it_is_however_far_the_growth_has_come(shown: str) -> None:
    world = grown(900, d1=600)
    if shown != "claim":
        world.grow_pv("a", 900)
    if shown == "volume":
        world.grow_volume(world.cluster.claims["a"].volume_name, 900)

    assert is_offered(world, 200)


def test_growth_that_one_disk_could_not_take_counts_on_none() -> None:
    """Replicas grow all together or not at all."""
    world = Growing(d1=600)
    world.cluster.add_node("n2", disk("d1", 2000))
    name = world.add("a", 400)
    world.allocator.observe_replica(f"{name}-r-2", replica(f"{name}-r-2", name, 400, on="n2"))
    world.grow_claim("a", 900)

    assert is_offered(world, 1600, on="n2")


def test_growth_of_two_replicas_on_a_disk_is_counted_together() -> None:
    world = Growing(d1=1000)
    name = world.add("a", 400)
    world.allocator.observe_replica(f"{name}-r-2", replica(f"{name}-r-2", name, 400, on="n1"))
    world.grow_claim("a", 600)

    assert is_offered(world, 200)


def test_growth_counts_once_the_disk_is_large_enough() -> None:
    world = grown(900, d1=600)
    world.cluster.add_node("n1", disk("d1", 1000))

    assert (True, False) == (is_offered(world, 100), is_offered(world, 101))


def test_growth_that_other_data_stands_in_the_way_of_counts() -> None:
    """It is taken as soon as that data leaves."""
    world = grown(550, d1=600)
    world.add("b", 100)

    assert not is_offered(world, 1)
