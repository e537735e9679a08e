"""Disks that are given by name, beside plans and holds: the volume's own, where a decision lapses, and others'."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import permutations

import pytest

from controller.allocator.by_name.find import DiskQuestion
from controller.allocator.outcome import Allotment
from controller.errors import RefusedWriteError
from tests.fakes.builders import EPOCH, GIB, disk
from tests.fakes.rooms import OPEN
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


# Beside what others were promised


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
