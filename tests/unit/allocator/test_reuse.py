"""Why a failed replica is not brought back, and when a new one is made. Which one of several is: tests/oracle."""

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
    Replica,
    SpacePolicy,
)
from controller.model.versions import Behaviour
from controller.model.workload import KubeNode
from controller.rules.eligibility import Engines
from controller.rules.placing import Reuse, find_reusable, wait_seconds
from controller.rules.reasons import Reason
from tests.fakes.rooms import OPEN
from tests.unit.allocator.placing import disk, failed, node, replica, view, volume

CLOSED = Reason.DISK_UNSCHEDULABLE


def reused(found: Reuse) -> str | None:
    return None if found.replica is None else found.replica.name


def only_reason(found: Reuse) -> Reason | None:
    (refusal,) = found.refusals
    return refusal.rejection.reason


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
        ("disk", {"ready": False}, CLOSED),
        ("disk", {"allow_scheduling": False, "available_bytes": 251}, CLOSED),
        ("disk", {"eviction_requested": True}, CLOSED),
        ("disk", {"schedulable": False}, CLOSED),
        ("disk", {"schedulable": False, "is_under_pressure": True, "available_bytes": 251}, None),
        ("disk", {"schedulable": False, "is_under_pressure": True, "available_bytes": 250}, CLOSED),
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


def test_the_latest_failure_wins_and_time_zones_are_minded() -> None:
    early, late = "2026-01-01T11:00:00+02:00", "2026-01-01T10:00:00Z"  # 09:00 and 10:00 in UTC
    both = [replica("a", "n1", failed_at=early), replica("b", "n2", failed_at=late)]
    for replicas in (both, both[::-1]):
        assert "b" == reused(find_reusable(view(node("n1"), node("n2"), replicas=replicas), volume()))


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


@pytest.mark.parametrize(
    ("change", "replicas", "expected"),
    [
        pytest.param({}, [failed("a", "n1")], 541, id="until ten minutes after the failure, and a second"),
        pytest.param({"last_degraded_at": "2026-01-01T11:50:01Z"}, [failed("a", "n1")], 2, id="a second before that"),
        pytest.param({"last_degraded_at": "2026-01-01T11:50:00Z"}, [failed("a", "n1")], None, id="its time is over"),
        pytest.param({"last_degraded_at": ""}, [failed("a", "n1")], None, id="not known since when"),
        pytest.param({"robustness": "healthy"}, [failed("a", "n1")], None, id="not degraded"),
        pytest.param(
            {}, [failed("a", "n1", rebuild_retry_count=5), replica("b", "n1")], None, id="none can be brought back"
        ),
    ],
)
def test_for_how_long_a_new_replica_waits_for_a_failed_one(
    change: dict[str, Any], replicas: list[Replica], expected: float | None
) -> None:
    fields: dict[str, Any] = {"robustness": "degraded", "last_degraded_at": "2026-01-01T11:59:00Z", **change}
    degraded = volume(**fields)
    seen = view(node("n1"), replicas=replicas)
    assert expected == wait_seconds(seen, degraded)
    assert wait_seconds(replace(seen, now_utc=None), degraded) is None
