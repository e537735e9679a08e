"""Where Longhorn finds no disk on the node that was chosen, it takes a disk of any node, unless the volume is bound to
that node."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from controller.allocator.allocator import Decision
from controller.allocator.verbs.grow import GrowthRequest, GrowthVerdict
from controller.model.longhorn import EngineImage
from tests.fakes.builders import GIB, LATER, TestCluster, disk, node

HOME = node("n1", free_gib=100)
VOLUME = "pvc-uid-a"
IMAGE = "longhorn-engine:1"


def see_image(cluster: TestCluster, *nodes: str) -> None:
    cluster.allocator.observe_engine_image("ei", EngineImage("ei", IMAGE, "deployed", frozenset(nodes)))


def chosen(class_name: str = "longhorn", *, gib: float = 100) -> TestCluster:
    """Three nodes of 100 GiB; the volume of `a` is made for n1, and its pod is bound there."""
    cluster = TestCluster().add_nodes(n1=100, n2=100, n3=100)
    see_image(cluster, "n1", "n2", "n3")
    cluster.add_claim("a", gib, class_name=class_name)
    cluster.add_pod("a")
    assert {"n1"} == cluster.offered("a", "n1")
    cluster.select_node("a", "n1")
    locality = "best-effort" if class_name == "longhorn" else "strict-local"
    cluster.provision("a", locality=locality, image=IMAGE)
    cluster.bind("a", "n1")
    return cluster


def press(cluster: TestCluster) -> None:
    full = replace(disk(free_gib=100), schedulable=False, is_under_pressure=True)
    cluster.put_node(node("n1", full))


def cordon(cluster: TestCluster) -> None:
    cluster.put_node(replace(HOME, allow_scheduling=False))


def lose_image(cluster: TestCluster) -> None:
    see_image(cluster, "n2", "n3")


def go_down(cluster: TestCluster) -> None:
    cluster.put_node(replace(HOME, ready=False))


def fill(cluster: TestCluster) -> None:
    """A pod that nobody asked us about is bound there, and is faster."""
    cluster.add_pod("direct", gib=50)
    cluster.run("direct", "direct", "n1", gib=50)


def relieve(cluster: TestCluster) -> None:
    cluster.put_node(HOME)
    see_image(cluster, "n1", "n2", "n3")
    if "direct" in cluster.pods:
        cluster.delete_volume("direct")


WAYS = (press, cordon, lose_image, go_down, fill)
Change = Callable[[TestCluster], None]


def other_pod(cluster: TestCluster, name: str = "b", gib: float = 100) -> str:
    return cluster.add_pod(name, gib=gib, created=LATER).name


@pytest.mark.parametrize("is_new_leader", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_a_volume_whose_node_takes_it_no_more_may_take_the_last_room_of_any_other_until_it_is_placed(
    way: Change, is_new_leader: bool
) -> None:
    cluster = chosen()
    way(cluster)
    if is_new_leader:
        cluster.allocator.begin_term()
    assert Decision.CONTENDED is cluster.filter(other_pod(cluster), "n2", "n3").decision
    cluster.attach(VOLUME, "n1", state="attaching", image=IMAGE)
    cluster.pass_time(3)
    assert Decision.CONTENDED is cluster.filter("b", "n2", "n3").decision

    cluster.place(VOLUME, "n2")
    assert {"n3"} == cluster.offered("b", "n2", "n3")


@pytest.mark.parametrize("way", WAYS)
def test_a_volume_whose_node_takes_it_again_is_promised_there_alone(way: Change) -> None:
    cluster = chosen()
    before = cluster.pending()
    way(cluster)
    relieve(cluster)
    cluster.let_doubts_pass()

    assert {"n1": 100} == before == cluster.pending()
    assert {"n2", "n3"} == cluster.offered(other_pod(cluster), "n1", "n2", "n3")


@pytest.mark.parametrize("way", WAYS)
def test_a_volume_that_is_bound_to_its_node_waits_for_it(way: Change) -> None:
    cluster = chosen("strict")
    way(cluster)

    assert {"n2", "n3"} == cluster.offered(other_pod(cluster), "n2", "n3")


def test_a_volume_that_is_not_made_yet_falls_back_as_well() -> None:
    cluster = TestCluster().add_nodes(n1=100, n2=100)
    cluster.add_pod("a")
    assert {"n1"} == cluster.offered("a", "n1")
    cluster.select_node("a", "n1")
    cordon(cluster)

    assert Decision.CONTENDED is cluster.filter(other_pod(cluster), "n2").decision


def go_on(cluster: TestCluster) -> None:
    cluster.bind("a", "n1")


@pytest.mark.parametrize("counts_again", [go_on, TestCluster.let_doubts_pass])
def test_a_choice_that_is_older_than_an_answer_to_anybody_falls_back_as_soon_as_it_counts_again(
    counts_again: Change,
) -> None:
    cluster = TestCluster().add_nodes(n1=100, n2=100, n3=100)
    cluster.adds_up = True
    cluster.add_pod("a")
    assert {"n1"} == cluster.offered("a", "n1")
    cluster.select_node("a", "n1")
    cluster.provision("a")
    assert {"n2"} == cluster.offered("a", "n2")
    press(cluster)
    assert {"n1": 100, "n2": 100} == cluster.pending()

    cluster.clock.advance(5)
    counts_again(cluster)
    assert {"*": 100} == cluster.pending()


def test_a_pod_that_was_bound_directly_to_a_full_node_takes_room_elsewhere() -> None:
    cluster = TestCluster().add_nodes(n1=100, n2=100)
    cluster.run("full", cluster.add_pod("full").name, "n1")
    cluster.add_claim("a")
    cluster.provision("a")
    cluster.add_pod("a")
    cluster.bind("a", "n1")
    cluster.attach(VOLUME, "n1", state="attaching")

    assert Decision.CONTENDED is cluster.filter(other_pod(cluster), "n2").decision


def test_a_volume_that_was_granted_more_than_its_node_can_hold_still_comes_there_as_it_is() -> None:
    cluster = TestCluster().add_nodes(n1=4, n2=10)
    name = cluster.add_volume("a", 4, on="n2")
    grant = GrowthRequest(name, 6 * GIB, "ns", "a")
    assert GrowthVerdict.ADMITTED is cluster.allocator.expansions.hold(grant).verdict
    cluster.add_pod("a")
    cluster.bind("a", "n1")
    assert 4 == cluster.pending()["n1"]

    cluster.put_node(node("n1", free_gib=6))
    assert 6 == cluster.pending()["n1"]


def test_a_volume_that_falls_back_and_a_pod_beside_it_are_offered_what_holds_both() -> None:
    cluster = chosen(gib=40)
    cordon(cluster)

    assert {"n2", "n3"} == cluster.offered(other_pod(cluster, gib=60), "n2", "n3")
    assert Decision.CONTENDED is cluster.filter(other_pod(cluster, "c", gib=1), "n2", "n3").decision
