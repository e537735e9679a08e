"""Room is kept for a large pod only where running data will plausibly leave it, in bytes, on few nodes, for a while."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from controller.rules.reasons import Reason
from controller.settings import LiveSettings
from tests.fakes.builders import EPOCH, LATER, TestCluster, disk, replica, volume

AFTER = 300
HOUR = 3600


def empty_cluster() -> TestCluster:
    cluster = TestCluster(live=LiveSettings(enabled=True, starvation_after_seconds=AFTER))
    cluster.add_class("roaming", dataLocality="disabled", numberOfReplicas="1")
    return cluster


def running(cluster: TestCluster, name: str, on: str, gib: float = 100, *, disk_name: str = "d1", **pod: Any) -> str:
    """A pod that runs with its volume there; the volume's name."""
    cluster.add_pod(name, gib=gib, **pod)
    cluster.select_node(name, on)
    handle = cluster.provision(name)
    cluster.bind(name, on)
    cluster.attach(handle, on, gib)
    cluster.place(handle, on, gib, disk_name)
    return handle


def passing(cluster: TestCluster, name: str, on: str, gib: float = 100) -> str:
    """The same with an ephemeral volume, which goes with its pod."""
    cluster.set_claim(replace(cluster.add_claim(name, gib), owner_pod_uid=f"pod-{name}"))
    return running(cluster, name, on, gib)


def starve(cluster: TestCluster, *pods: str, gib: float, nodes: tuple[str, ...]) -> None:
    """Large pods that are refused everywhere, and go on waiting until room may be kept for them."""
    cluster.let_figures_follow()
    for pod in pods:
        cluster.add_pod(pod, gib=gib)
        assert set() == cluster.offered(pod, *nodes)
    cluster.clock.advance(AFTER)
    cluster.plan_wakeups()


def open_to(cluster: TestCluster, gib: float, *nodes: str, priority: int = 0) -> set[str]:
    """Where a pod that has just come is offered room; it goes again."""
    cluster.add_pod("next", gib=gib, created=LATER, priority=priority)
    offered = cluster.offered("next", *nodes)
    cluster.drop_pod("next")
    cluster.drop_claim("next")
    return offered


NODES = ("n1", "n2", "n3")


def three_used_nodes() -> TestCluster:
    """Two disks of 1000 GiB each, of which ordinary data takes 300."""
    cluster = empty_cluster()
    for name in NODES:
        cluster.add_node(name, disk("d1", 1000), disk("d2", 1000))
        for disk_name in ("d1", "d2"):
            running(cluster, f"{name}-{disk_name}", name, 300, disk_name=disk_name)
    return cluster


def one_passing_node() -> TestCluster:
    """n1, of 400 GiB, is full of four pods with ephemeral volumes of 100; n2 and n3 are small, and full."""
    cluster = empty_cluster()
    for name, size in (("n1", 400), ("n2", 100), ("n3", 100)):
        cluster.add_node(name, free_gib=size)
    for number in range(4):
        passing(cluster, f"job-{number}", "n1")
    for name in ("n2", "n3"):
        running(cluster, f"on-{name}", name)
    return cluster


# Where


@pytest.mark.parametrize("later", [0, HOUR, 24 * HOUR])
def test_pods_that_will_never_fit_beside_ordinary_data_close_no_node(later: int) -> None:
    cluster = three_used_nodes()
    starve(cluster, "large-1", "large-2", "large-3", gib=900, nodes=NODES)
    cluster.clock.advance(later)
    cluster.plan_wakeups()

    assert set(NODES) == open_to(cluster, 1, *NODES)


def see_replica(cluster: TestCluster, name: str, **facts: Any) -> None:
    """Of a volume that nobody uses."""
    cluster.drop_pod(next(entry.name for entry in cluster.claims.values() if entry.volume_name == name))
    cluster.attach(name, "")
    made = replica(f"{name}-r-1", name, on="n1", **{"healthy_at": EPOCH, **facts})
    cluster.allocator.observe_replica(made.name, made)


def deleting_replica(cluster: TestCluster, name: str) -> None:
    see_replica(cluster, name, deleting=True)


def failed_replica(cluster: TestCluster, name: str) -> None:
    see_replica(cluster, name, failed_at=EPOCH)


def evicting_replica(cluster: TestCluster, name: str) -> None:
    see_replica(cluster, name, eviction_requested=True)


def deleting_volume(cluster: TestCluster, name: str) -> None:
    cluster.allocator.observe_volume(name, volume(name, attached_to="n1", deleting=True))


def deleting_claim(cluster: TestCluster, name: str) -> None:
    claim = next(entry for entry in cluster.claims.values() if entry.volume_name == name)
    cluster.set_claim(replace(claim, is_deleting=True))


def ephemeral(cluster: TestCluster, name: str) -> None:
    claim = next(entry for entry in cluster.claims.values() if entry.volume_name == name)
    cluster.set_claim(replace(claim, owner_pod_uid=f"pod-{claim.name}"))


def ordinary(_cluster: TestCluster, _name: str) -> None:
    """Nothing says that it will ever leave."""


def half_empty_node(leave: Callable[[TestCluster, str], None]) -> TestCluster:
    """n1, of 400 GiB, has 100 of ordinary data, 200 that leave, and 100 free; n2 and n3 are too small for 300."""
    cluster = empty_cluster()
    for name, size in (("n1", 400), ("n2", 250), ("n3", 250)):
        cluster.add_node(name, free_gib=size)
    running(cluster, "stays", "n1")
    for number in range(2):
        leave(cluster, running(cluster, f"goes-{number}", "n1"))
    return cluster


@pytest.mark.parametrize(
    "leave", [deleting_replica, failed_replica, evicting_replica, deleting_volume, deleting_claim, ephemeral]
)
def test_room_is_kept_where_what_leaves_will_make_it(leave: Callable[[TestCluster, str], None]) -> None:
    cluster = half_empty_node(leave)
    assert set(NODES) == open_to(cluster, 50, *NODES)
    starve(cluster, "large", gib=300, nodes=NODES)

    assert {"n2", "n3"} == open_to(cluster, 50, *NODES)


def test_room_is_not_kept_where_nothing_leaves() -> None:
    cluster = half_empty_node(ordinary)
    starve(cluster, "large", gib=300, nodes=NODES)

    assert set(NODES) == open_to(cluster, 50, *NODES)


@pytest.mark.parametrize(("large_gib", "kept"), [(200, 1), (201, 0)])
def test_room_is_not_kept_where_what_leaves_is_too_little(large_gib: float, kept: int) -> None:
    cluster = empty_cluster()
    for name in NODES:
        cluster.add_node(name, free_gib=400)
        running(cluster, f"stays-{name}", name, 200)
        passing(cluster, f"goes-{name}", name)
    starve(cluster, "large", gib=large_gib, nodes=NODES)

    assert kept == len(NODES) - len(open_to(cluster, 50, *NODES))


@pytest.mark.parametrize(("count", "kept"), [(2, 0), (3, 1), (10, 1), (20, 2)])
def test_room_is_kept_on_few_nodes_however_many_pods_wait(count: int, kept: int) -> None:
    cluster = empty_cluster()
    nodes = tuple(f"n{number}" for number in range(count))
    for name in nodes:
        cluster.add_node(name, free_gib=400)
        passing(cluster, f"goes-{name}", name, 350)
    starve(cluster, *(f"large-{number}" for number in range(count)), gib=400, nodes=nodes)

    assert kept == count - len(open_to(cluster, 50, *nodes))


# How much


def test_room_gathers_until_the_large_pod_fits_and_what_is_left_beside_it_is_open() -> None:
    cluster = one_passing_node()
    starve(cluster, "large", gib=350, nodes=NODES)
    for number in range(3):
        cluster.delete_volume(f"job-{number}")
        cluster.let_doubts_pass()
        assert set() == open_to(cluster, 51, "n1")
    cluster.delete_volume("job-3")
    cluster.let_doubts_pass()
    assert ["large"] == [wakeup.name for wakeup in cluster.plan_wakeups()]

    assert (set(), {"n1"}) == (open_to(cluster, 51, "n1"), open_to(cluster, 50, "n1"))
    assert {"n1"} == cluster.offered("large", "n1")


def test_a_disk_that_is_too_small_for_the_large_pod_stays_open() -> None:
    cluster = empty_cluster()
    cluster.add_node("n1", disk("d1", 400), disk("d2", 150))
    for number in range(4):
        passing(cluster, f"job-{number}", "n1")
    for name in ("n2", "n3"):
        cluster.add_node(name, free_gib=50)
    starve(cluster, "large", gib=300, nodes=NODES)

    assert {"n1"} == open_to(cluster, 100, *NODES)


def test_a_pod_that_fits_beside_the_kept_bytes_is_offered_the_node_while_they_gather() -> None:
    """Of 1000 GiB, 500 stay taken, 300 leave, and 200 are free: beside 400 for the large pod, 100 remain."""
    cluster = empty_cluster()
    for name, size in (("n1", 1000), ("n2", 100), ("n3", 100)):
        cluster.add_node(name, free_gib=size)
    running(cluster, "stays", "n1", 500)
    passing(cluster, "goes", "n1", 300)
    starve(cluster, "large", gib=400, nodes=NODES)

    assert ({"n1"}, set()) == (open_to(cluster, 100, "n1"), open_to(cluster, 101, "n1"))


# Against whom


def test_only_room_that_would_be_enough_is_said_to_be_kept_for_somebody_else() -> None:
    cluster = one_passing_node()
    starve(cluster, "large", gib=350, nodes=NODES)
    cluster.delete_volume("job-0")
    cluster.let_doubts_pass()
    cluster.add_pod("one", gib=60)
    cluster.add_pod("two", "first", "second", gib=60)  # which the 100 GiB that are free could not take either

    assert {"n1": Reason.KEPT} == cluster.filter("one", "n1").refused
    assert {"n1": Reason.INSUFFICIENT_STORAGE} == cluster.filter("two", "n1").refused


def test_a_pod_that_comes_back_to_its_data_needs_none_of_the_room_that_is_kept() -> None:
    cluster = half_empty_node(ephemeral)
    starve(cluster, "large", gib=300, nodes=NODES)
    assert set() == open_to(cluster, 50, "n1")
    cluster.drop_pod("stays")
    cluster.attach(cluster.claims["stays"].volume_name, "")
    cluster.select_node("stays", "")
    cluster.add_pod("again", "stays")

    assert {"n1"} == cluster.offered("again", "n1")


def test_volumes_that_go_anywhere_are_not_kept_out() -> None:
    cluster = one_passing_node()
    starve(cluster, "large", gib=350, nodes=NODES)
    cluster.delete_volume("job-0")
    cluster.let_doubts_pass()
    assert set() == open_to(cluster, 60, "n1")
    cluster.let_figures_follow()
    cluster.add_claim("loose", 60, class_name="roaming")
    cluster.add_pod("free", "loose")

    assert set(NODES) == cluster.offered("free", *NODES)


def test_pods_of_higher_priority_are_not_held_back() -> None:
    cluster = one_passing_node()
    starve(cluster, "large", gib=350, nodes=NODES)
    cluster.delete_volume("job-0")
    cluster.let_doubts_pass()

    assert set() == open_to(cluster, 60, "n1")
    assert {"n1"} == open_to(cluster, 60, "n1", priority=1)


# For how long


@pytest.mark.parametrize("comes_back", [True, False])
def test_room_is_not_kept_for_ever(comes_back: bool) -> None:
    cluster = one_passing_node()
    starve(cluster, "large", gib=350, nodes=NODES)
    cluster.delete_volume("job-0")
    cluster.let_doubts_pass()
    assert set() == open_to(cluster, 60, "n1")
    was_open = False
    for _ in range(HOUR // 30):
        cluster.clock.advance(30)
        cluster.allocator.sweep()
        if comes_back:
            assert set() == cluster.offered("large", *NODES)
        cluster.plan_wakeups()
        was_open = was_open or bool(open_to(cluster, 60, "n1"))

    assert was_open


def test_room_of_a_pod_that_was_woken_and_does_not_come_back_is_open_again_after_some_time() -> None:
    cluster = one_passing_node()
    starve(cluster, "large", gib=350, nodes=NODES)
    for number in range(4):
        cluster.delete_volume(f"job-{number}")
    cluster.let_doubts_pass()
    assert ["large"] == [wakeup.name for wakeup in cluster.plan_wakeups()]
    for _ in range(HOUR // 30):
        cluster.clock.advance(30)
        cluster.plan_wakeups()

    assert {"n1"} == open_to(cluster, 400, "n1")
