"""What people met and reported in public, as questions about the objects that they showed; the numbers are those of the
reports. Other reports have their tests beside the code that they concern."""

from __future__ import annotations

from typing import Any

import pytest

from controller.plan import command as plan
from controller.plan.complaints import Notes
from tests.fakes import saved
from tests.fakes.saved import GIB, Raw, core, node, replica, schedule, setting, storage_class, volume
from tests.unit.plan.asking import CLASS, CLASS_PARAMETERS, NOW, claim, fit, pod, pv, reasons, told

TIB = 1024 * GIB
SOFT = {"replica-soft-anti-affinity": True}


def of(name: str, raw: Raw, **spec: Any) -> Raw:
    """The object under another name, with these fields in its spec."""
    return {**raw, "metadata": {**raw["metadata"], "name": name}, "spec": {**raw["spec"], **spec}}


# Where Longhorn puts another copy


def disks_of(objects: list[Raw], **more: Any) -> list[str]:
    return saved.places(schedule(objects, "new", **more)[0])


@pytest.mark.parametrize(
    ("version", "expected"), [("v1.10.2", []), ("v1.11.0", []), ("v1.11.1", ["n1/d2"]), ("v1.12.1", ["n1/d2"])]
)
def test_a_fresh_copy_counted_on_every_disk_of_its_node(version: str, expected: list[str]) -> None:
    """longhorn/longhorn#12653, mended in 1.11.1: 60 of 100 GiB, and the other disk of the node empty."""
    objects = [node("n1", disks={"d1": {}, "d2": {}}), volume(gib=60, numberOfReplicas=2)]
    objects += [replica("first", "n1", gib=60), replica("new", gib=60)]
    assert expected == disks_of(objects, settings=SOFT, longhornVersion=version)


@pytest.mark.parametrize("is_unused", [True, False])
def test_a_failed_copy_keeps_its_node_until_it_is_replaced(is_unused: bool) -> None:
    """longhorn/longhorn#8043: the disks are of `ext2/ext3`, as Longhorn calls ext4, and the copy has just failed."""
    disks = {"d1": {"status": {"filesystemType": "ext2/ext3"}}}
    status = {"state": "attached", "robustness": "degraded", "lastDegradedAt": "2026-01-01T11:55:00Z"}
    healthy = "" if is_unused else "2026-01-01T10:00:00Z"
    failed = replica("failed", "n1", failedAt="2026-01-01T11:55:00Z", healthyAt=healthy)
    objects = [node("n1", disks=disks), node("n2", disks=disks), volume(numberOfReplicas=3, status=status), failed]
    assert ["n2/d1"] == disks_of([*objects, replica("new")])


@pytest.mark.parametrize(("tib", "expected"), [(15, ["n1/d1"]), (16, [])])
def test_what_longhorn_calls_ext_has_the_limit_of_ext4(tib: int, expected: list[str]) -> None:
    """longhorn/longhorn#12677: the same name for ext2, ext3 and ext4."""
    disks = {"d1": {"gib": 32 * 1024, "status": {"filesystemType": "ext2/ext3"}}}
    size = tib * 1024
    assert expected == disks_of([node("n1", disks=disks), volume(gib=size), replica("new", gib=size)])


def test_all_tags_have_to_be_on_one_node() -> None:
    """longhorn/longhorn#8903: `node1` and `node2` on a node each is no place for a volume that asks for both."""
    nodes = [node("n1", tags=["node1"]), node("n2", tags=["node2"]), node("n3", tags=["node1", "node2"])]
    wanted = [volume(nodeSelector=["node1", "node2"]), replica("new")]
    assert ["n3/d1"] == disks_of([*nodes, *wanted])
    (step,) = schedule([*nodes[:2], *wanted], "new")
    assert {"NodeTagsNotFulfilled"} == {refusal["reason"] for refusal in step["refusals"]}


# Which nodes a pod fits on


def on_a(disk: Raw, *others: Raw) -> Raw:
    """The verdict on node `a` with that disk, for a new volume of 60 GiB."""
    return fit([node("a", disks={"d1": disk}), *others, pod("data"), claim("data")], "a")["a"]


@pytest.mark.parametrize(
    ("disk", "verdict", "reason"),
    [
        # longhorn/longhorn#971: after a shutdown, more reserved than there is
        (
            {"status": {"storageMaximum": 0, "storageAvailable": 0}, "spec": {"storageReserved": 150 * GIB}},
            "full",
            "DiskPressure",
        ),
        # longhorn/longhorn#2966: a third is reserved by default
        ({"spec": {"storageReserved": 41 * GIB}}, "full", "InsufficientStorage"),
        ({"spec": {"storageReserved": 200 * GIB}}, "full", "InsufficientStorage"),
        # longhorn/longhorn#5579: a hundred replicas that do not exist
        (
            {"status": {"storageScheduled": 100 * GIB, "scheduledReplica": {f"r{n}": GIB for n in range(100)}}},
            "full",
            "InsufficientStorage",
        ),
        # longhorn/longhorn#10116: a block disk takes v2 volumes alone
        ({"spec": {"diskType": "block"}}, "unsuitable", "DiskType"),
    ],
)
def test_disks_that_take_nothing(disk: Raw, verdict: str, reason: str) -> None:
    found = on_a(disk)
    assert verdict == found["verdict"]
    assert reason in reasons(found)


@pytest.mark.parametrize(
    ("name", "value", "fits"),
    [
        ("default-replica-count", "1", True),  # longhorn/longhorn#11940
        ("default-replica-count", '{"v1":"1","v2":"3"}', True),
        ("default-replica-count", '{"v2":"1"}', False),
        ("default-replica-count", "NaN", None),  # longhorn/longhorn#11468
        ("default-replica-count", '{"v1":1}', None),
        ("replica-disk-soft-anti-affinity", "enabled", None),  # longhorn/longhorn#11864
        ("replica-disk-soft-anti-affinity", '{"v1":"true"}', None),
        ("storage-over-provisioning-percentage", "0", False),
        ("storage-over-provisioning-percentage", '{"v1":"100","v2":"50"}', None),
    ],
)
def test_values_of_settings_as_releases_write_them(name: str, value: str, fits: bool | None) -> None:
    """None: Longhorn takes no such value either, and what it has by default is told and taken."""
    many = storage_class("local", dataLocality="disabled")
    strict = setting("allow-volume-creation-with-degraded-availability", "false")
    objects = [many, strict, setting(name, value)] if name.startswith("default") else [CLASS, setting(name, value)]
    found = told([*objects, node("a"), pod("data"), claim("data")], "a", lenient=False)
    if fits is None:
        assert 1 == len([line for line in found if line.startswith(f"Setting longhorn-system/{name}: value: ")])
    else:
        assert fits == (found == ["sure"])


def test_a_volume_under_two_claims_needs_no_room_and_may_grow_by_either() -> None:
    """longhorn/longhorn#2795, #3397: a PersistentVolume for each namespace, with the same handle."""
    shared = volume("v", gib=10, accessMode="rwx", numberOfReplicas=1)
    objects: list[Raw] = [node("a"), node("b", gib=1), shared, replica("r", "a", of="v")]
    for name in ("x", "y"):
        objects += [claim(name, 10, bound=f"pv-{name}"), of(f"pv-{name}", pv("v", name), capacity={"storage": "10Gi"})]
    assert {"a": "sure", "b": "sure"} == {
        name: one["verdict"] for name, one in fit([*objects, pod("y")], "a", "b").items()
    }
    for name in ("x", "y"):
        found = saved.ask(objects, {"expand": {"claim": f"ns/{name}", "size": "11Gi"}})
        assert ("now", GIB) == (found["verdict"], found["disks"][0]["growth"])


def kept_volume(**spec: Any) -> list[Raw]:
    facts = {"storageClassName": "local", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "60Gi"}}
    csi = {"driver": "driver.longhorn.io", "volumeHandle": "kept"}
    kept = core("PersistentVolume", "kept", spec={"csi": csi, **facts, **spec}, status={"phase": "Available"})
    return [
        volume("kept", gib=60, numberOfReplicas=1, dataLocality="best-effort"),
        kept,
        replica("r", "a", of="kept", gib=60),
    ]


def test_a_claim_for_a_volume_that_was_kept_needs_no_room_for_another() -> None:
    """longhorn/longhorn#525, kubernetes/kubernetes#48609: its `claimRef` was removed, and the claim made again."""
    full = node("a", disks={"d1": {"status": {"storageScheduled": 60 * GIB, "scheduledReplica": {"r": 60 * GIB}}}})
    objects = [full, pod("data"), claim("data"), *kept_volume()]
    assert "sure" == fit(objects, "a")["a"]["verdict"]
    assert "full" == fit([*objects[:-3], *kept_volume(volumeMode="Block")], "a")["a"]["verdict"]


def test_a_claim_that_waits_for_its_restore_needs_no_room() -> None:
    """velero-io/velero#7946: with such a selector nobody makes a volume, until Velero has filled one."""
    waits = of("data", claim("data"), selector={"matchLabels": {"velero.io/dynamic-pv-restore": "ns.data.x2f9k"}})
    assert "sure" == fit([node("a", gib=1), pod("data"), waits], "a")["a"]["verdict"]


def test_a_pod_stays_where_longhorn_runs() -> None:
    """longhorn/longhorn#2858, #8065: nodes without Longhorn, by a node selector or a taint."""
    objects = [storage_class("local", numberOfReplicas="1"), node("a"), core("Node", "a"), core("Node", "gpu")]
    found = fit([*objects, pod("data"), claim("data")], "a", "gpu")
    assert ("sure", "unsuitable") == (found["a"]["verdict"], found["gpu"]["verdict"])
    assert ["NoLonghornNode"] == reasons(found["gpu"])


# How far a volume may grow


def test_a_size_that_no_disk_ever_holds_is_told_apart() -> None:
    """longhorn/longhorn#4658: a typing error of 9999999Gi, from which no claim came back."""
    found = saved.expand([node("n1"), volume(), replica("r", "n1")], 9999999 * GIB)
    assert ("never", False) == (found["verdict"], found["admitted"])
    assert found["largestSize"] < 100 * GIB


@pytest.mark.parametrize(
    ("classes", "told"),
    [
        ([], ""),
        ([storage_class("local", **CLASS_PARAMETERS) | {"allowVolumeExpansion": True}], ""),
        ([storage_class("local", **CLASS_PARAMETERS)], "has no allowVolumeExpansion"),
        ([storage_class("other")], "is not in objects"),
    ],
)
def test_a_class_that_lets_no_claim_grow_is_told(classes: list[Raw], told: str) -> None:
    """longhorn/longhorn#5860: Kubernetes refuses it before Longhorn is asked."""
    objects = [*classes, node("a"), volume("v"), replica("r", "a"), claim("data", 10, bound="v"), pv("v", "data")]
    notes = Notes()
    found = plan.answer({"objects": objects, "question": {"expand": {"claim": "ns/data", "size": "11Gi"}}}, NOW, notes)
    assert "now" == found["verdict"]
    text = f"question.expand.claim: StorageClass local {told}; Kubernetes refuses the growth of its claims"
    assert ([text] if told else []) == list(notes.lines())
