"""Changes of what disks can take that no promise explains are recorded for ten minutes, for people and checkers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from controller.allocator.world import reach
from controller.allocator.world.reach import RECORD_SECONDS
from controller.model.longhorn import BackingImage, InstanceManager, LonghornNode, LonghornSettings, SpacePolicy
from controller.model.workload import KubeNode
from controller.settings import LiveSettings
from tests.fakes.builders import GIB, TestCluster, disk, node, observe, replica

MOST = 200  # changes that are remembered
N1 = node("n1", disk("a", 100), disk("b", 50))
Change = Callable[[LonghornNode], LonghornNode]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> TestCluster:
    monkeypatch.setattr(reach, "MOST_RECORDS", MOST)
    cluster = TestCluster()
    cluster.add_node("n1", *N1.disks)
    cluster.clock.advance(RECORD_SECONDS)
    return cluster


def records(cluster: TestCluster) -> list[tuple[str, str, str, int]]:
    changes = cluster.allocator.snapshot().reach_changes
    return [(one.node, one.disk, one.change, one.size_bytes // GIB) for one in changes]


def on_a(**facts: object) -> Change:
    return lambda known: replace(known, disks=(replace(known.disks[0], **facts), *known.disks[1:]))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (on_a(scheduled_bytes=10 * GIB), []),  # what is promised, or Longhorn's own, shows
        (on_a(maximum_bytes=120 * GIB), [("n1", "a", "more-room", 20)]),
        (on_a(maximum_bytes=70 * GIB), [("n1", "a", "lower-limit", 30)]),
        (on_a(reserved_bytes=30 * GIB), [("n1", "a", "lower-limit", 30)]),
        (on_a(schedulable=False), [("n1", "a", "closed", 0)]),
        (on_a(allow_scheduling=False), [("n1", "a", "closed", 0)]),
        (on_a(tags=frozenset({"ssd"})), [("n1", "a", "retagged", 0)]),
        (lambda known: replace(known, zone="z2"), [("n1", "a", "retagged", 0), ("n1", "b", "retagged", 0)]),
        (lambda known: replace(known, schedulable=False), [("n1", "a", "closed", 0), ("n1", "b", "closed", 0)]),
    ],
)
def test_a_changed_node_is_told_by_disk(
    cluster: TestCluster, change: Change, expected: list[tuple[str, str, str, int]]
) -> None:
    cluster.put_node(change(N1))
    assert expected == sorted(records(cluster))


def test_a_disk_that_comes_back_and_a_replica_that_goes_are_told(cluster: TestCluster) -> None:
    cluster.put_node(on_a(schedulable=False)(N1))
    cluster.put_node(on_a(scheduled_bytes=30 * GIB)(N1))
    cluster.put_node(N1)
    assert [("closed", 0), ("opened", 70), ("more-room", 30)] == [entry[2:] for entry in records(cluster)]


def test_nodes_that_come_and_go_are_told_and_those_seen_at_the_start_are_not(cluster: TestCluster) -> None:
    assert not records(cluster)
    cluster.add_node("n2", disk("c", 10, node="n2"))
    cluster.allocator.observe_node("n2", None)
    assert [("n2", "c", "opened", 10), ("n2", "c", "closed", 0)] == records(cluster)


def test_settings_that_change_what_disks_take_are_told(cluster: TestCluster) -> None:
    less = LonghornSettings(space=SpacePolicy(over_provisioning_pct=50))
    cluster.allocator.configure(LiveSettings(enabled=True), less)
    assert {("n1", "a", "lower-limit", 50), ("n1", "b", "lower-limit", 25)} == set(records(cluster))
    cluster.allocator.configure(LiveSettings(enabled=True), LonghornSettings())
    assert ("n1", "a", "more-room", 50) in records(cluster)


def test_a_lower_limit_is_not_believed_at_once(cluster: TestCluster) -> None:
    """For a moment Longhorn may still place by the former one."""
    less = LonghornSettings(space=SpacePolicy(over_provisioning_pct=50))
    cluster.allocator.configure(LiveSettings(enabled=True), less)
    cluster.add_pod("p", gib=40)
    assert not cluster.offered("p", "n1")  # it may go to b, which has 25 left
    cluster.clock.advance(5)
    assert cluster.offered("p", "n1")


def test_copies_that_only_longhorn_wanted_and_images_are_told(cluster: TestCluster) -> None:
    cluster.add_pod("asked", gib=10)
    assert cluster.offered("asked", "n1")
    cluster.run("asked", "asked", "n1", 10)
    cluster.place("pvc-uid-asked", "n1", 10, disk_name="a")
    assert not records(cluster)

    twin = replica("pvc-uid-asked-r-2", "pvc-uid-asked", 10, on="n1", disk_name="b")
    cluster.allocator.observe_replica(twin.name, twin)
    cluster.allocator.observe_replica("x-r-1", replica("x-r-1", "x", 5, on="n1", disk_name="a"))
    image = BackingImage("i", real_size_bytes=2 * GIB, disk_uuids=frozenset({"n1-b"}))
    cluster.allocator.observe_backing_image("i", image)
    cluster.allocator.observe_backing_image("i", image)
    wanted = [("b", "longhorn-copy", 10), ("a", "longhorn-copy", 5), ("b", "backing-image", 2)]
    assert wanted == [entry[1:] for entry in records(cluster)]


def test_what_lies_beyond_a_disks_limit_is_shown_while_it_does(cluster: TestCluster) -> None:
    """Also where Longhorn has closed the disk: it calls one that is over its limit unschedulable."""

    def over() -> list[tuple[str, str, int]]:
        return [(one.node, one.disk, one.over_bytes // GIB) for one in cluster.allocator.snapshot().disks_over]

    for number, gib in enumerate((60, 45)):
        name = f"x{number}-r-1"
        cluster.allocator.observe_replica(name, replica(name, f"x{number}", gib, on="n1", disk_name="a"))
    assert [("n1", "a", 5)] == over()
    cluster.put_node(on_a(schedulable=False)(N1))
    assert [("n1", "a", 5)] == over()

    cluster.allocator.observe_replica("x1-r-1", None)
    assert [] == over()


def test_they_are_forgotten_after_ten_minutes_and_never_too_many(cluster: TestCluster) -> None:
    cluster.put_node(on_a(schedulable=False)(N1))
    cluster.clock.advance(RECORD_SECONDS - 1)
    assert 1 == len(records(cluster))
    cluster.clock.advance(1)
    assert not records(cluster)

    for number in range(MOST):
        cluster.put_node(on_a(schedulable=bool(number % 2))(N1))
        cluster.put_node(on_a(schedulable=not number % 2)(N1))
    assert MOST == len(records(cluster))


def test_a_node_that_can_run_engines_again_or_that_kubernetes_has_again_is_opened(cluster: TestCluster) -> None:
    for kind, key, facts, change in (
        ("instance_manager", "im", InstanceManager("im", "n1", "v1", "im", "stopped"), "closed"),
        ("instance_manager", "im", InstanceManager("im", "n1", "v1", "im", "running"), "opened"),
        ("kube_node", "n1", None, "closed"),
        ("kube_node", "n1", KubeNode("n1", unschedulable=False), "opened"),
    ):
        observe(cluster.allocator, kind, key, facts)
        assert [("a", change), ("b", change)] == sorted(entry[1:3] for entry in records(cluster)[-2:])


@pytest.mark.parametrize("how", [{"failed_at": "2026-01-01T00:00:00Z"}, {"eviction_requested": True}])
def test_a_replica_that_counts_no_more_opens_its_node_to_others_of_its_volume(
    cluster: TestCluster, how: dict[str, object]
) -> None:
    cluster.allocator.observe_replica("r", replica("r", "v", 10, on="n1", disk_name="a"))
    before = records(cluster)
    cluster.allocator.observe_replica("r", replica("r", "v", 10, on="n1", disk_name="a", **how))
    assert [("n1", "a", "replica-lost", 0), ("n1", "b", "replica-lost", 0)] == records(cluster)[len(before) :]


def test_nothing_is_said_of_a_disk_that_is_not_ready(cluster: TestCluster) -> None:
    cluster.allocator.observe_replica("r", replica("r", "v", 20, on="n1", disk_name="a"))
    gone = on_a(ready=False, schedulable=False, maximum_bytes=0, available_bytes=0, scheduled_bytes=0)
    cluster.put_node(gone(N1))
    assert () == cluster.allocator.snapshot().disks_over
