"""Each of Longhorn's settings that docs/plan-format.md lists: another value is another answer, or another remark."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from controller.plan.command import answer
from controller.plan.complaints import InputError, Notes
from controller.plan.input import DECIDING, REMARKED
from tests.fakes import saved
from tests.fakes.saved import GIB, Raw, core, longhorn, node, replica, setting, storage_class, volume

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
SCHEDULE = {"schedule": {"volume": "v", "replicas": ["r2"]}}
FIT = {"fit": {"pod": "ns/p", "nodes": ["n1"]}}
ZONE = "topology.kubernetes.io/zone"


def placing(*objects: Raw, held: bool = False, **spec: Any) -> tuple[list[Raw], Raw]:
    """A replica that is to be placed; with `held`, beside one on n1."""
    return [*objects, volume(**spec), replica("r2"), *([replica("r1", "n1")] if held else [])], SCHEDULE


def fitting(*objects: Raw, **parameters: str) -> tuple[list[Raw], Raw]:
    """A pod with a claim whose volume is to be made by a class with these parameters."""
    spec = {"storageClassName": "c", "resources": {"requests": {"storage": "60Gi"}}}
    pod = {"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "d"}}]}
    claim = core("PersistentVolumeClaim", "d", "ns", spec=spec)
    return [*objects, storage_class("c", **parameters), claim, core("Pod", "p", "ns", spec=pod)], FIT


def coming_back() -> tuple[list[Raw], Raw]:
    """A pod with a v2 volume whose only replica has failed on n1, where there is no room for another one."""
    full = node(
        "n1", disks={"d1": {"gib": 60, "spec": {"diskType": "block"}, "status": {"storageScheduled": 60 * GIB}}}
    )
    (*_, claim, pod), question = fitting()
    claim["spec"]["volumeName"] = "pv"
    pv = core("PersistentVolume", "pv", spec={"csi": {"driver": "driver.longhorn.io", "volumeHandle": "v"}})
    v2 = volume(gib=60, numberOfReplicas=1, dataLocality="best-effort", dataEngine="v2")
    failed = replica("r1", "n1", gib=60, failedAt=saved.NOW, dataEngine="v2")
    return [full, claim, pod, pv, v2, failed], question


def pressed() -> list[Raw]:
    """A node whose first disk, which holds a replica, is under pressure, and whose second is empty."""
    return [node("n1", disks={"d1": {"status": {"storageAvailable": 5 * GIB}}, "d2": {}})]


def waiting() -> tuple[list[Raw], Raw]:
    """A volume that has been degraded for 100 s, whose other replica failed on the only node."""
    status = {"robustness": "degraded", "lastDegradedAt": "2026-01-01T11:58:20Z"}
    return [node("n1"), volume(status=status), replica("r1", "n1", failedAt=saved.NOW), replica("r2")], SCHEDULE


LOCAL = {"dataLocality": "best-effort", "numberOfReplicas": "1"}
SMALL = [node("n1", gib=50), node("n2")]
IMAGE: dict[str, Any] = {"spec": {"image": "e:1"}, "status": {"state": "deployed", "nodeDeploymentMap": {"n1": True}}}
MANAGER: dict[str, Any] = {
    "spec": {"nodeID": "n1", "image": "m:1", "type": "aio"},
    "status": {"currentState": "running"},
}
CASES: dict[str, tuple[tuple[list[Raw], Raw], str, str]] = {
    "allow-empty-disk-selector-volume": (
        placing(node("n1", disks={"d1": {"spec": {"tags": ["ssd"]}}})), "true", "false"),
    "allow-empty-node-selector-volume": (placing(node("n1", tags=["ssd"])), "true", "false"),
    "allow-volume-creation-with-degraded-availability": (fitting(node("n1"), numberOfReplicas="2"), "true", "false"),
    "csi-allowed-topology-keys": (fitting(node("n1", zone="z"), volumeTopology="zonal"), "", f"x/y, {ZONE}"),
    "current-longhorn-version": (fitting(*SMALL, **LOCAL), "v1.9.0", "v1.12.1"),
    "default-data-locality": (fitting(*SMALL, numberOfReplicas="1"), "disabled", "best-effort"),
    "default-engine-image": (fitting(node("n1"), longhorn("EngineImage", "e", **IMAGE), **LOCAL), "e:1", "e:2"),
    "default-instance-manager-image": (
        fitting(node("n1"), longhorn("InstanceManager", "m", **MANAGER), **LOCAL), "m:1", "m:2"),
    "default-min-number-of-backing-image-copies": (
        fitting(node("n1"), backingImage="i", backingImageDataSourceType="download"), "1", "3"),
    "default-replica-count": (fitting(node("n1"), dataLocality="strict-local"), "1", "3"),
    "disable-scheduling-on-cordoned-node": (
        placing(node("n1"), core("Node", "n1", spec={"unschedulable": True})), "true", "false"),
    "fast-replica-rebuild-enabled": (coming_back(), "true", '{"v2":"false"}'),
    "replica-auto-balance": (placing(*pressed(), held=True), "disabled", "best-effort"),
    "replica-auto-balance-disk-pressure-percentage": (
        placing(*pressed(), held=True, replicaAutoBalance="best-effort"), "0", "90"),
    "replica-disk-soft-anti-affinity": (
        placing(node("n1"), held=True, replicaSoftAntiAffinity="enabled"), "true", "false"),
    "replica-replenishment-wait-interval": (waiting(), "600", "60"),
    "replica-soft-anti-affinity": (placing(node("n1"), held=True), "true", "false"),
    "replica-zone-soft-anti-affinity": (
        placing(node("n1", zone="z"), node("n2", zone="z"), held=True), "true", "false"),
    "storage-minimal-available-percentage": (placing(node("n1")), "0", "100"),
    "storage-over-provisioning-percentage": (placing(node("n1"), gib=150), "100", "200"),
    "v1-data-engine": (fitting(node("n1"), **LOCAL), "true", "false"),
    "v2-data-engine": (
        fitting(node("n1", disks={"d1": {"spec": {"diskType": "block"}}}), dataEngine="v2", **LOCAL), "true", "false"),
    "v2-data-engine-fast-replica-rebuilding": (coming_back(), "true", "false"),
}  # fmt: skip


def asked(case: tuple[list[Raw], Raw], *more: Raw, **settings: str) -> tuple[Raw, list[str]]:
    """The answer, and what is remarked."""
    objects, question = case
    notes = Notes()
    return answer({"objects": [*objects, *more], "question": question, "settings": settings}, NOW, notes), notes.lines()


@pytest.mark.parametrize("name", sorted({*DECIDING, *REMARKED}))
def test_another_value_is_another_answer_or_remark(name: str) -> None:
    case, one, other = CASES[name]
    first, second = (asked(case, setting(name, value)) for value in (one, other))
    assert (name in DECIDING) is (first[0] != second[0])
    assert first != second
    assert [first, second] == [asked(case, **{name: value}) for value in (one, other)]


def test_a_setting_that_decides_about_scores_alone_is_none_of_them() -> None:
    name = "concurrent-replica-rebuild-per-node-limit"
    with pytest.raises(InputError, match=f"settings[.]{name}: nothing is decided by it"):
        asked(placing(node("n1")), **{name: "0"})


# Cordons, as Longhorn's node controller has them


def closed(reason: str) -> Raw:
    found = node("n1")
    found["status"]["conditions"][1] |= {"status": "False", "reason": reason}
    return found


@pytest.mark.parametrize(
    ("longhorn_node", "is_cordoned", "is_open", "told"),
    [
        (node("n1"), True, False, "counts as cordoned, by Node n1"),
        (node("n1"), False, True, ""),
        (closed("KubernetesNodeCordoned"), True, False, ""),
        (closed("KubernetesNodeCordoned"), False, True, "counts as not cordoned, by Node n1"),
        (closed("NodeDataEngineUpgradeRequested"), False, False, ""),
        (closed("NodeDataEngineUpgradeRequested"), True, False, ""),
        (closed("KubernetesNodeCordoned"), None, False, ""),
    ],
)
def test_a_cordon_closes_longhorns_node_and_its_end_opens_it(
    longhorn_node: Raw, is_cordoned: bool | None, is_open: bool, told: str
) -> None:
    kube = [] if is_cordoned is None else [core("Node", "n1", spec={"unschedulable": is_cordoned})]
    found, lines = asked(placing(longhorn_node, *kube))
    (step,) = found["steps"]
    assert (is_open, ["NodeUnschedulable"] * (not is_open)) == (
        bool(step["candidates"]),
        [one["reason"] for one in step["refusals"]],
    )
    assert [f"Node longhorn-system/n1: {told}"] * bool(told) == lines
    if told and not is_open:
        assert "n1: the Kubernetes node is cordoned" == step["refusals"][0]["message"]


@pytest.mark.parametrize("zone", ["", "z"])
def test_a_class_that_follows_the_zone_needs_its_label_allowed_where_nodes_have_it(zone: str) -> None:
    _, lines = asked(fitting(node("n1", zone=zone), volumeTopology="zonal"))
    problem = f"Longhorn makes no volume of its class while csi-allowed-topology-keys lacks {ZONE}"
    assert [f"PersistentVolumeClaim ns/d: {problem}"] * bool(zone) == lines
