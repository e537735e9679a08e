"""A yes holds on every disk that Longhorn may choose, for the newcomer and for everything that was promised before."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.allocator.outcome import Decision
from controller.allocator.verbs.grow import GrowthRequest, GrowthVerdict
from controller.model.longhorn import LonghornSettings
from tests.fakes.builders import GIB, TestCluster, disk


def cluster_of(*disks_gib: float, nodes: int = 1, settings: LonghornSettings | None = None) -> TestCluster:
    """So many nodes with these disks."""
    cluster = TestCluster(settings=settings)
    cluster.add_class("roaming", dataLocality="disabled", numberOfReplicas="1")
    cluster.add_class("strict", dataLocality="strict-local", numberOfReplicas="1")
    for number in range(1, nodes + 1):
        name = f"n{number}"
        cluster.add_node(name, *(disk(f"d{index}", gib, node=name) for index, gib in enumerate(disks_gib)))
    return cluster


def ask(cluster: TestCluster, name: str, gib: float, *nodes: str, class_name: str = "longhorn") -> set[str]:
    cluster.add_claim(name, gib, class_name=class_name)
    cluster.add_pod(name)
    return cluster.offered(name, *nodes)


def test_a_newcomer_may_not_take_an_earlier_promises_only_disk() -> None:
    """40 GiB may go to the disk of 90, and then nothing takes the 60 that were promised."""
    cluster = cluster_of(90, 40)
    assert ask(cluster, "earlier", 60, "n1")
    cluster.select_node("earlier", "n1")

    assert not ask(cluster, "newcomer", 40, "n1")
    assert ask(cluster, "small", 30, "n1")  # beside it on either disk


@pytest.mark.parametrize("class_name", ["longhorn", "strict"])
def test_what_roams_may_not_take_the_bytes_of_a_local_promise(class_name: str) -> None:
    cluster = cluster_of(100, nodes=4)
    for number in (1, 2, 3):
        assert ask(cluster, f"local-{number}", 60, f"n{number}", class_name=class_name)
        cluster.select_node(f"local-{number}", f"n{number}")

    assert not ask(cluster, "roams", 60, "n4", class_name="roaming")  # Longhorn does not ask where the pod runs
    assert ask(cluster, "small", 40, "n4", class_name="roaming")


def test_every_copy_of_a_volume_is_judged_where_degraded_availability_is_allowed() -> None:
    cluster = cluster_of(100, nodes=3, settings=LonghornSettings(degraded_availability=True))
    cluster.add_class("three", dataLocality="disabled", numberOfReplicas="3")
    assert ask(cluster, "local", 60, "n1")
    cluster.select_node("local", "n1")

    assert not ask(cluster, "copies", 60, "n2", "n3", class_name="three")
    assert ask(cluster, "small", 40, "n2", "n3", class_name="three")


def test_two_volumes_are_not_promised_while_they_may_end_on_one_disk() -> None:
    cluster = cluster_of(100, 100)
    assert ask(cluster, "first", 60, "n1")

    assert not ask(cluster, "second", 60, "n1")


def test_a_disk_that_is_full_but_not_reported_so_is_a_trap() -> None:
    """The Replica object shows on a disk that Longhorn's figure still shows as empty: it may choose that disk again."""
    cluster = cluster_of(100, 100)
    assert ask(cluster, "first", 60, "n1")
    cluster.run("first", "first", "n1", 60)
    cluster.place("pvc-uid-first", "n1", 60, disk_name="d0")
    assert not ask(cluster, "second", 60, "n1")

    cluster._show_figures(lambda _disk, _name: True)
    assert not cluster.offered("second", "n1")  # Longhorn may have decided by the figure of a moment ago
    cluster.let_figures_follow()
    assert cluster.offered("second", "n1")


def test_a_pod_that_a_trap_kept_out_is_woken_once_nobody_believes_in_it_any_more() -> None:
    cluster = cluster_of(100, 100)
    assert ask(cluster, "first", 60, "n1")
    cluster.run("first", "first", "n1", 60)
    cluster.place("pvc-uid-first", "n1", 60, disk_name="d0")
    cluster._show_figures(lambda _disk, _name: True)
    assert not ask(cluster, "second", 60, "n1")
    cluster.clock.advance(4)
    version = cluster.allocator.version
    cluster.allocator.sweep()
    assert version == cluster.allocator.version
    assert not cluster.plan_wakeups()

    cluster.clock.advance(1)
    cluster.allocator.sweep()
    assert version != cluster.allocator.version
    assert ["second"] == [wakeup.name for wakeup in cluster.plan_wakeups()]


def test_the_volumes_of_one_pod_may_share_a_disk_at_longhorns_discretion_alone() -> None:
    cluster = cluster_of(100, 100)
    for name in ("a", "b"):
        cluster.add_claim(name, 60)
    cluster.add_pod("pair", "a", "b")
    assert ask(cluster, "other", 1, "n1")
    assert not cluster.offered("pair", "n1")

    cluster.drop_pod("other")
    cluster.drop_claim("other")
    cluster.let_doubts_pass()
    assert Decision.AT_DISCRETION is cluster.filter("pair", "n1").decision


@pytest.mark.parametrize("class_name", ["longhorn", "strict"])
def test_a_pods_own_volume_that_roams_may_not_take_the_room_of_its_local_one(class_name: str) -> None:
    cluster = cluster_of(100, nodes=2)
    cluster.add_claim("local", 60, class_name=class_name)
    cluster.add_claim("roams", 60, class_name="roaming")
    cluster.add_pod("mixed", "local", "roams")
    outcome = cluster.filter("mixed", "n1", "n2")

    # strict-local: it would never start. best-effort: Longhorn would place it on the other node.
    assert not outcome.passed
    cluster.add_claim("less", 40, class_name="roaming")
    cluster.add_pod("fits", "local", "less")
    cluster.drop_pod("mixed")
    assert cluster.offered("fits", "n1", "n2")


def test_growth_of_an_unplaced_volume_needs_room_where_longhorn_attaches_it() -> None:
    """400 GiB on the owner's node, 300 of them promised: 50 -> 200 would be placed there."""
    cluster = cluster_of(400, nodes=2)
    assert ask(cluster, "p", 50, "n1")
    cluster.select_node("p", "n1")
    cluster.provision("p", owner_id="n2")
    assert ask(cluster, "other", 300, "n2")
    cluster.select_node("other", "n2")

    verdicts = [
        cluster.allocator.expansions.hold(GrowthRequest("pvc-uid-p", gib * GIB, "ns", "p")).verdict
        for gib in (200, 100)
    ]
    assert [GrowthVerdict.REFUSED, GrowthVerdict.ADMITTED] == verdicts


def test_a_displaced_volume_that_falls_back_counts_wherever_longhorn_may_put_it() -> None:
    cluster = cluster_of(100, nodes=3)
    assert ask(cluster, "displaced", 60, "n1")
    cluster.select_node("displaced", "n1")
    cluster.provision("displaced")
    cluster.bind("displaced", "n1")
    cluster.attach("pvc-uid-displaced", "n1", 60)
    assert ask(cluster, "before", 60, "n2")
    cluster.drop_pod("before")
    cluster.let_doubts_pass()

    world = cluster.allocator._world
    cluster.put_node(replace(world.nodes["n1"], schedulable=False))
    cluster.clock.advance(5)
    assert not ask(cluster, "after", 60, "n2", "n3")
    assert ask(cluster, "small", 40, "n2", "n3")


def test_a_trap_counts_for_what_roams_also_where_the_disk_is_over_its_limit() -> None:
    """12 of 8 lie there, and the figure still shows the disk as empty: Longhorn may choose it again."""
    cluster = cluster_of(100)
    cluster.add_node("n2", disk("full", 8, node="n2"))
    for name, gib in (("a", 8), ("b", 4)):
        assert ask(cluster, name, gib, "n1")
        cluster.run(name, name, "n1", gib)
        cluster.place(f"pvc-uid-{name}", "n2", gib, disk_name="full")

    assert not ask(cluster, "roams", 1, "n1", "n2", class_name="roaming")
    cluster.let_figures_follow()
    assert cluster.offered("roams", "n1", "n2")
