"""What lies beyond a disk's limit is shown while it does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.model.longhorn import LonghornNode
from tests.fakes.builders import GIB, TestCluster, disk, node, replica

N1 = node("n1", disk("a", 100), disk("b", 50))


@pytest.fixture
def cluster() -> TestCluster:
    cluster = TestCluster()
    cluster.put_node(N1)
    return cluster


def with_a(**facts: object) -> LonghornNode:
    """The node, with another disk "a"."""
    return replace(N1, disks=(replace(N1.disks[0], **facts), *N1.disks[1:]))  # type: ignore[arg-type]


def show(cluster: TestCluster, name: str, gib: int) -> None:
    cluster.allocator.observe_replica(name, replica(name, f"volume-of-{name}", gib, on="n1", disk_name="a"))


def over(cluster: TestCluster) -> list[tuple[str, str, int]]:
    return [(one.node, one.disk, one.over_bytes // GIB) for one in cluster.allocator.snapshot().disks_over]


def test_a_disk_with_more_than_its_limit_is_shown_though_longhorn_has_closed_it(cluster: TestCluster) -> None:
    """It calls one that is over its limit unschedulable."""
    show(cluster, "r", 60)
    show(cluster, "s", 45)
    assert [("n1", "a", 5)] == over(cluster)
    cluster.put_node(with_a(schedulable=False))
    assert [("n1", "a", 5)] == over(cluster)

    cluster.allocator.observe_replica("s", None)
    assert [] == over(cluster)


def test_nothing_is_said_of_a_disk_that_is_not_ready(cluster: TestCluster) -> None:
    show(cluster, "r", 20)
    cluster.put_node(with_a(ready=False, schedulable=False, maximum_bytes=0, available_bytes=0, scheduled_bytes=0))
    assert [] == over(cluster)
