"""Which failed replica is brought back, and when a new one is made."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.model.longhorn import (
    BackingImage,
    DiskNeeds,
    EngineImage,
    ImageNeeds,
    InstanceManager,
    SpacePolicy,
)
from controller.model.versions import Behaviour
from controller.model.workload import KubeNode
from controller.rules.eligibility import Engines
from controller.rules.reasons import Reason
from controller.rules.reuse import Reuse, find_reusable, wait_seconds
from tests.fakes.rooms import OPEN
from tests.unit.allocator.placing import disk, failed, node, replica, view, volume


def reused(found: Reuse) -> str | None:
    return None if found.replica is None else found.replica.name


def only_reason(found: Reuse) -> Reason | None:
    (refusal,) = found.refusals
    return refusal.rejection.reason


def test_a_failed_replica_comes_back_without_a_look_at_space() -> None:
    full = disk(size=100, available_bytes=1, scheduled_bytes=1000)
    assert "a" == reused(find_reusable(view(node("n1", full), replicas=[failed("a", "n1")]), volume()))


def test_without_failed_replicas_there_is_nothing_to_reuse() -> None:
    assert Reuse(None) == find_reusable(view(node("n1"), replicas=[replica("a", "n1")]), volume())


@pytest.mark.parametrize(
    ("part", "change", "expected"),
    [
        ("replica", {"active": False}, Reason.NOT_REUSABLE),
        ("replica", {"node": ""}, Reason.NOT_REUSABLE),
        ("replica", {"disk_uuid": ""}, Reason.NOT_REUSABLE),
        ("replica", {"rebuild_retry_count": 5}, Reason.NOT_REUSABLE),
        ("replica", {"rebuild_retry_count": 4}, None),
        ("replica", {"eviction_requested": True}, Reason.NOT_REUSABLE),
        ("replica", {"node": "n9"}, Reason.NO_LONGHORN_NODE),
        ("replica", {"disk_uuid": "elsewhere"}, Reason.DISK_NOT_FOUND),
        ("node", {"ready": False}, Reason.NODE_NOT_READY),
        ("node", {"tags": frozenset({"x"})}, None),
        ("disk", {"ready": False}, Reason.DISK_UNSCHEDULABLE),
        ("disk", {"allow_scheduling": False}, Reason.DISK_UNSCHEDULABLE),
        ("disk", {"eviction_requested": True}, Reason.DISK_UNSCHEDULABLE),
        ("disk", {"schedulable": False}, Reason.DISK_UNSCHEDULABLE),
        ("disk", {"schedulable": False, "is_under_pressure": True, "available_bytes": 251}, None),
        (
            "disk",
            {"schedulable": False, "is_under_pressure": True, "available_bytes": 250},
            Reason.DISK_UNSCHEDULABLE,
        ),
        ("disk", {"available_bytes": 250}, None),
        ("disk", {"tags": frozenset({"x"})}, None),
    ],
)
def test_the_replica_its_node_and_its_disk_are_asked(
    part: str, change: dict[str, Any], expected: Reason | None
) -> None:
    changes = {"replica": {}, "node": {}, "disk": {}, part: change}
    seen = view(
        node("n1", disk(**changes["disk"]), **changes["node"]),
        replicas=[failed("a", "n1", **changes["replica"])],
        settings=replace(OPEN, space=SpacePolicy(minimal_available_pct=25)),
    )
    found = find_reusable(seen, volume())
    assert (expected is None) == (reused(found) == "a")
    assert expected is None or expected == only_reason(found)


def test_tags_of_node_and_disk_are_asked() -> None:
    seen = view(node("n1"), replicas=[failed("a", "n1")])
    assert Reason.NODE_TAGS == only_reason(find_reusable(seen, volume(needs=DiskNeeds(node_selector=("ssd",)))))
    assert Reason.DISK_TAGS == only_reason(find_reusable(seen, volume(needs=DiskNeeds(disk_selector=("ssd",)))))
    image = BackingImage("bi", disk_selector=("ssd",))
    found = find_reusable(replace(seen, backing_image=image), volume(backing_image="bi"))
    assert Reason.DISK_TAGS == only_reason(found)
    assert ImageNeeds((), ("ssd",), image.name) == image.needs


def test_engine_image_and_instance_manager_are_asked() -> None:
    images = (EngineImage("a", "e:1", "deployed", frozenset({"n1"})),)
    seen = view(node("n1"), replicas=[failed("a", "n1", image="e:1")], engines=Engines.of(images, None))
    assert "a" == reused(find_reusable(seen, volume()))
    gone = replace(seen, engines=Engines.of([replace(images[0], nodes=frozenset())], None))
    assert Reason.ENGINE_NOT_READY == only_reason(find_reusable(gone, volume()))
    stopped = replace(seen, engines=Engines.of(images, [InstanceManager("i", "n1", "v1", "im", "stopped")]))
    assert Reason.ENGINE_NOT_READY == only_reason(find_reusable(stopped, volume()))


def test_a_wanted_node_leaves_only_its_own_replica() -> None:
    seen = view(node("n1"), node("n2"), replicas=[failed("a", "n1"), failed("b", "n2")])
    assert "b" == reused(find_reusable(seen, volume(), "n2"))
    assert reused(find_reusable(seen, volume(), "n3")) is None


def test_the_latest_failure_wins_and_time_zones_are_minded() -> None:
    early, late = "2026-01-01T11:00:00+02:00", "2026-01-01T10:00:00Z"  # 09:00 and 10:00 in UTC
    both = [replica("a", "n1", failed_at=early), replica("b", "n2", failed_at=late)]
    for replicas in (both, both[::-1]):
        assert "b" == reused(find_reusable(view(node("n1"), node("n2"), replicas=replicas), volume()))


def test_anti_affinity_holds_against_healthy_replicas_and_not_against_failed_ones() -> None:
    replicas = [failed("a", "n1"), replica("b", "n1", "d2")]
    assert reused(find_reusable(view(node("n1", disk("d1"), disk("d2")), replicas=replicas), volume())) is None
    soft = replace(OPEN, soft_anti_affinity=True)
    seen = view(node("n1", disk("d1"), disk("d2")), replicas=replicas, settings=soft)
    assert "a" == reused(find_reusable(seen, volume()))
    seen = view(node("n1", disk("d1"), disk("d2")), replicas=[failed("a", "n1"), failed("b", "n1", disk_name="d2")])
    assert "b" == reused(find_reusable(seen, volume()))


def test_a_failed_replica_does_not_bar_its_own_disk() -> None:
    hard = replace(OPEN, disk_soft_anti_affinity=False)
    assert "a" == reused(find_reusable(view(node("n1"), replicas=[failed("a", "n1")], settings=hard), volume()))
    both = [failed("a", "n1"), replica("b", "n1", deleting=True)]
    assert reused(find_reusable(view(node("n1"), replicas=both, settings=hard), volume())) is None


def test_a_new_zone_comes_before_a_later_failure() -> None:
    replicas = [
        replica("healthy", "n0"),
        replica("new-zone", "n1", failed_at="2026-01-01T01:00:00Z"),
        replica("old-zone", "n2", failed_at="2026-01-01T02:00:00Z"),
    ]
    nodes = node("n0", zone="a"), node("n1", zone="b"), node("n2", zone="a")
    # Only nodes with reusable replicas are candidates, so n0 blocks no zone.
    assert "old-zone" == reused(find_reusable(view(*nodes, replicas=replicas), volume()))
    replicas.append(replica("twin", "n2", "d2"))
    nodes = node("n0", zone="a"), node("n1", zone="b"), node("n2", disk("d1"), disk("d2"), zone="a")
    assert "new-zone" == reused(find_reusable(view(*nodes, replicas=replicas), volume()))


@pytest.mark.parametrize(
    ("setting", "default", "expected"),
    [(True, True, "a"), (False, True, None), (None, True, "a"), (None, False, None), (True, False, "a")],
)
def test_v2_replicas_come_back_where_the_setting_or_the_release_says_so(
    setting: bool | None, default: bool, expected: str | None
) -> None:
    seen = view(
        node("n1", disk(type="block")),
        replicas=[failed("a", "n1")],
        settings=replace(OPEN, fast_rebuild_v2=setting, behaviour=Behaviour(reuses_failed_v2_replicas=default)),
    )
    v2 = volume(needs=DiskNeeds(data_engine="v2"))
    assert expected == reused(find_reusable(seen, v2))
    labelled = {"n1": KubeNode("n1", unschedulable=False, disables_v2=True)}
    assert reused(find_reusable(replace(seen, kube_nodes=labelled), v2)) is None
    assert "a" == reused(find_reusable(replace(seen, kube_nodes=labelled), volume()))  # v1 does not ask
    open_ones = {"n1": KubeNode("n1", unschedulable=False)}
    assert expected == reused(find_reusable(replace(seen, kube_nodes=open_ones), v2))
    down = {"n1": replace(seen.nodes["n1"], ready=False)}
    assert reused(find_reusable(replace(seen, kube_nodes=open_ones, nodes=down), v2)) is None


def test_a_linked_clones_replica_needs_its_source_on_the_same_disk() -> None:
    clone = volume(clone_mode="linked-clone", data_source="vol://src")
    seen = view(node("n1"), replicas=[failed("a", "n1")], source_replicas=(replica("s", "n1", of="src"),))
    assert "a" == reused(find_reusable(seen, clone))
    elsewhere = replace(seen, source_replicas=(replica("s", "n1", "d2", of="src"),))
    assert Reason.LINKED_CLONE == only_reason(find_reusable(elsewhere, clone))


# A new one


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"robustness": "healthy"}, None),
        ({"last_degraded_at": "2026-01-01T11:49:59Z"}, None),
        ({"last_degraded_at": "2026-01-01T11:50:00Z"}, None),
        ({"last_degraded_at": "2026-01-01T11:50:01Z"}, 2),
        ({"last_degraded_at": "2026-01-01T11:59:00Z"}, 541),
    ],
)
def test_a_new_replica_waits_for_a_failed_one(change: dict[str, str], expected: float | None) -> None:
    fields: dict[str, Any] = {"robustness": "degraded", "last_degraded_at": "2026-01-01T11:59:00Z", **change}
    seen = view(node("n1"), replicas=[failed("a", "n1")])
    assert expected == wait_seconds(seen, volume(**fields))


def test_without_a_time_to_wait_from_a_new_replica_is_made_at_once() -> None:
    seen = view(node("n1"), replicas=[failed("a", "n1")])
    assert wait_seconds(seen, volume(robustness="degraded")) is None
    degraded = volume(robustness="degraded", last_degraded_at="2026-01-01T11:59:00Z")
    assert wait_seconds(replace(seen, now_utc=None), degraded) is None


def test_without_a_reusable_replica_a_new_one_is_made_at_once() -> None:
    degraded = volume(robustness="degraded", last_degraded_at="2026-01-01T11:59:00Z")
    seen = view(node("n1"), replicas=[failed("a", "n1", rebuild_retry_count=5), replica("b", "n1")])
    assert wait_seconds(seen, degraded) is None
