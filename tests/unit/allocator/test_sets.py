"""Pods with volumes that Longhorn may place anywhere, beside or instead of volumes that need room on the pod's node."""

from __future__ import annotations

from controller.model.longhorn import LonghornSettings
from tests.fakes.builders import TestCluster, disk, replica


def mixed_pod() -> TestCluster:
    """One volume has to lie where the pod is, the other may lie anywhere; n1 has two disks, n2 one."""
    cluster = TestCluster()
    cluster.add_class("roaming", dataLocality="disabled", numberOfReplicas="1")
    cluster.add_node("n1", disk("d1", 100, node="n1"), disk("d2", 100, node="n1"))
    cluster.add_node("n2", free_gib=100)
    cluster.add_claim("local", 60)
    cluster.add_claim("anywhere", 60, class_name="roaming")
    cluster.add_pod("a", "local", "anywhere")
    return cluster


def test_a_node_where_both_volumes_fit_in_any_order_is_offered_at_discretion() -> None:
    assert mixed_pod().offered("a", "n1", "n2") == {"n1"}


def test_a_node_where_the_pods_roaming_volume_may_leave_no_room_for_its_local_one_is_not_offered() -> None:
    assert mixed_pod().offered("a", "n2") == set()


def half_placed(*, degraded: bool) -> TestCluster:
    """A volume of two replicas, of which one lies on n1, and the other finds no room on n2."""
    cluster = TestCluster(settings=LonghornSettings(degraded_availability=degraded))
    cluster.add_class("two", dataLocality="disabled", numberOfReplicas="2")
    cluster.add_node("n1", free_gib=400)
    cluster.add_node("n2", free_gib=50)
    cluster.add_claim("a", 100, class_name="two")
    cluster.add_pod("a")
    name = cluster.provision("a")
    cluster.attach(name, "", locality="disabled", replica_count=2)
    cluster.place(name, "n1")
    cluster.allocator.observe_replica(f"{name}-r-2", replica(f"{name}-r-2", name))
    return cluster


def test_one_placed_replica_is_enough_where_degraded_volumes_are_allowed() -> None:
    assert half_placed(degraded=True).offered("a", "n1", "n2") == {"n1", "n2"}


def test_the_whole_set_has_to_fit_where_they_are_not() -> None:
    assert half_placed(degraded=False).offered("a", "n1", "n2") == set()
