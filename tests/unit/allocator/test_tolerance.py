"""Volumes that roam may be a little too many for a disk, but never for all of the disks that one of them needs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.allocator.outcome import PromiseView
from controller.model.longhorn import InstanceManager, LonghornSettings
from controller.rules.reasons import Reason
from controller.settings import LiveSettings
from tests.fakes.builders import GIB, TestCluster, disk

NODES = ("n1", "n2", "n3", "n4")


def cluster_of(*free_gib: float, pct: int = 25, copies: int = 1) -> TestCluster:
    """A node of one disk of 100 GiB for each figure, so much of it free."""
    cluster = TestCluster(live=LiveSettings(enabled=True, roaming_overcommit_pct=pct))
    cluster.add_class("roaming", dataLocality="disabled", numberOfReplicas=str(copies))
    for name, free in zip(NODES, free_gib, strict=False):
        cluster.add_node(name, disk("d1", 100, node=name))
        if free < 100:
            cluster.add_pod(f"on-{name}", gib=100 - free)
            cluster.run(f"on-{name}", f"on-{name}", name, 100 - free)
    cluster.let_figures_follow()
    return cluster


def promises(cluster: TestCluster, source: str) -> list[PromiseView]:
    return [one for one in cluster.allocator.snapshot().promises if one.source == source]


def ask(cluster: TestCluster, name: str, gib: float, class_name: str = "roaming") -> set[str]:
    if name not in cluster.pods:
        cluster.add_pod(name, (name, gib, class_name))
    return cluster.offered(name, *NODES)


@pytest.mark.parametrize(("pct", "offers"), [(25, 3), (24, 2), (50, 4), (0, 2)])
def test_so_many_volumes_are_promised_at_once_as_exceed_no_disk_by_more_than_its_share(pct: int, offers: int) -> None:
    cluster = cluster_of(90, 90, 90, 90, pct=pct)
    answers = [ask(cluster, f"p{number}", 38.3 if pct != 50 else 35) for number in range(5)]

    assert offers == sum(map(bool, answers))


@pytest.mark.parametrize("beside", ["local", "growth"])
def test_nothing_exceeds_the_disks_of_a_node_where_something_has_to_find_room(beside: str) -> None:
    cluster = cluster_of(100, 100, 100, 100)
    if beside == "local":
        cluster.add_pod("local", gib=10)
        assert {"n1"} == cluster.offered("local", "n1")
    else:
        cluster.add_pod("grows", gib=10)
        cluster.run("grows", "grows", "n1", 10)
        cluster.let_figures_follow()
        cluster.set_claim(replace(cluster.claims["grows"], requested_bytes=20 * GIB))

    answers = [ask(cluster, f"p{number}", 40) for number in range(4)]
    assert 2 == sum(map(bool, answers))


def test_a_volume_is_left_enough_disks_whatever_the_others_close() -> None:
    """Two disks with room: what closes one of them leaves the other, and what closes both is not let through."""
    cluster = cluster_of(60, 60, 5, 5)
    assert ask(cluster, "a", 40)
    assert ask(cluster, "b", 40)  # 80 of 60, but either leaves the other a disk
    assert not ask(cluster, "c", 40)
    assert {Reason.CONTENDED} == set(cluster.filter("c", *NODES).refused.values())


@pytest.mark.parametrize(
    ("disk_soft", "disks", "class_name", "gib"), [(True, (80,), "three", 10), (False, (40, 40, 40), "two", 12)]
)
def test_copies_that_may_share_a_node_are_left_as_many_places_as_they_need(
    disk_soft: bool, disks: tuple[int, ...], class_name: str, gib: int
) -> None:
    """The other volume's copies cannot close the node, but leave no room there for all copies side by side."""
    soft = LonghornSettings(soft_anti_affinity=True, disk_soft_anti_affinity=disk_soft)
    cluster = TestCluster(live=LiveSettings(enabled=True, roaming_overcommit_pct=50), settings=soft)
    cluster.add_class("two", dataLocality="disabled", numberOfReplicas="2")
    cluster.add_class("three", dataLocality="disabled", numberOfReplicas="3")
    cluster.add_node("n1", *(disk(f"d{number}", size, node="n1") for number, size in enumerate(disks)))
    assert ask(cluster, "large", 30, "two")

    assert not ask(cluster, "small", gib, class_name)
    assert ask(cluster, "fits", 6, class_name)


def test_a_local_newcomer_makes_no_use_of_it() -> None:
    cluster = cluster_of(100, 100, 100, 100)
    assert ask(cluster, "a", 60)

    assert not ask(cluster, "b", 50, class_name="longhorn")
    assert ask(cluster, "c", 50)


@pytest.mark.parametrize("lacks", ["an engine", "Kubernetes"])
def test_a_node_that_longhorn_does_not_look_at_is_no_disk_for_anybody(lacks: str) -> None:
    cluster = cluster_of(100, 100)
    if lacks == "an engine":
        cluster.allocator.observe_instance_manager("im", InstanceManager("im", "n1", "v1", "im", "running"))
    else:
        cluster.allocator.observe_kube_node("n2", None)
    assert ask(cluster, "a", 60)
    assert not ask(cluster, "b", 60)  # 120 of 100, and no second disk to go to


@pytest.mark.parametrize("class_name", ["roaming", "shares-nodes"])
def test_a_disk_that_a_volume_may_close_is_none_for_others_although_that_volume_may_fall_back(class_name: str) -> None:
    """It roams, since its pod's volumes do not fit together, and Longhorn lays it on its pod's node if it can."""
    cluster = cluster_of(50, 5, pct=30)
    soft = {"replicaSoftAntiAffinity": "enabled", "replicaDiskSoftAntiAffinity": "disabled"}
    cluster.add_class("shares-nodes", dataLocality="disabled", numberOfReplicas="1", **soft)
    cluster.add_pod("two", ("near", 30), ("far", 25, "roaming"))
    for claim, locality in (("near", "best-effort"), ("far", "disabled")):
        cluster.select_node(claim, "n1")
        cluster.provision(claim, locality=locality)
    cluster.bind("two", "n1")
    cluster.attach("pvc-uid-near", "n1", state="attaching", gib=30)
    assert ("n1", 30) in [(one.node, one.size_bytes // GIB) for one in promises(cluster, "longhorn")]

    assert not ask(cluster, "newcomer", 25, class_name)
