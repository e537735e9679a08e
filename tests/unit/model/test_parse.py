"""Raw objects to facts: defaults for what is missing, a named field for what is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from controller.model import parse
from controller.model.workload import Pod
from tests.fakes.builders import EPOCH

GIB = 1024**3


def pod(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "a", "namespace": "ns", "uid": "u", "resourceVersion": "7"}, "spec": spec}


def test_a_pods_claims_are_those_it_names_and_those_of_its_ephemeral_volumes() -> None:
    volumes = [
        {"name": "data", "persistentVolumeClaim": {"claimName": "c"}},
        {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}},
        {"name": "cm", "configMap": {"name": "x"}},
    ]
    facts = parse.pod_facts(pod(volumes=volumes))

    assert [("c", False), ("a-scratch", True)] == [(entry.claim, entry.is_ephemeral) for entry in facts.volumes]
    assert 7 == facts.version


@pytest.mark.parametrize(
    ("gates", "is_gated"), [([{"name": "x"}], True), ([{"name": "x"}, {"name": "y"}], True), ([], False), (None, False)]
)
def test_a_pod_is_gated_while_it_has_scheduling_gates(gates: Any, is_gated: bool) -> None:
    assert is_gated == parse.pod_facts(pod(**({} if gates is None else {"schedulingGates": gates}))).is_gated


@pytest.mark.parametrize("group", ["containers", "initContainers"])
@pytest.mark.parametrize("kind", ["requests", "limits"])
def test_a_pod_is_opted_in_by_any_container_that_names_the_resource(group: str, kind: str) -> None:
    container = {"name": "c", "resources": {kind: {"longhorn.io/scheduler-extender": "1"}}}
    assert parse.pod_facts(pod(**{group: [{"name": "b"}, container]})).is_opted_in
    assert not parse.pod_facts(pod(**{group: [{"name": "b", "resources": {kind: {"cpu": "1"}}}]})).is_opted_in


LACKING = "0/4 nodes are available: 4 Insufficient longhorn.io/scheduler-extender."


def pod_with(condition: dict[str, Any], opted_in: bool = True) -> Pod:
    """Its facts, with that condition of the type PodScheduled."""
    requests = {"longhorn.io/scheduler-extender": "1"} if opted_in else {}
    raw = pod(containers=[{"name": "c", "resources": {"requests": requests}}], schedulerName="s")
    raw["status"] = {"conditions": [{"type": "PodScheduled", **condition}]}
    return parse.pod_facts(raw)


@pytest.mark.parametrize(
    ("status", "message", "opted_in", "lacks"),
    [
        ("False", LACKING, True, True),
        ("True", LACKING, True, False),
        ("False", LACKING, False, False),
        ("False", "0/4 nodes are available: 4 Insufficient cpu.", True, False),
        ("False", "4 Insufficient longhorn.io/scheduler-extender-x.", True, False),
        ("False", "4 Insufficient longhorn.io/scheduler-extender.x.", True, False),
    ],
)
def test_a_pod_lacks_the_extender_if_its_scheduler_says_so(
    status: str, message: str, opted_in: bool, lacks: bool
) -> None:
    facts = pod_with({"status": status, "message": message}, opted_in)
    assert (lacks, "s") == (facts.lacks_extender, facts.scheduler_name)


@pytest.mark.parametrize(
    ("condition", "since"),
    [
        ({"status": "False", "reason": "Unschedulable"}, EPOCH),
        ({"status": "False", "reason": "SchedulerError"}, EPOCH),
        ({"status": "False", "reason": "SchedulingGated"}, ""),
        ({"status": "True"}, ""),
        ({"status": "False", "reason": "Unschedulable", "lastTransitionTime": None}, ""),
        ({"status": "False", "type": "Ready"}, ""),
    ],
)
def test_since_when_a_pod_is_unschedulable_stands_in_its_condition(condition: dict[str, Any], since: str) -> None:
    assert since == pod_with({"lastTransitionTime": EPOCH, **condition}).unschedulable_since_utc


def test_a_claims_class_is_unknown_empty_or_named() -> None:
    def class_of(**spec: Any) -> str | None:
        return parse.claim_facts({"metadata": {"name": "c"}, "spec": spec}).class_name

    assert (None, "", "x") == (class_of(), class_of(storageClassName=""), class_of(storageClassName="x"))


def test_a_claims_signals_are_read() -> None:
    raw = {
        "metadata": {
            "name": "c",
            "namespace": "ns",
            "uid": "u",
            "annotations": {"volume.kubernetes.io/selected-node": "n1"},
            "ownerReferences": [{"kind": "Pod", "uid": "p", "controller": True}],
        },
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "resources": {"requests": {"storage": "1Gi"}},
            "dataSourceRef": {"kind": "VolumeSnapshot", "name": "s"},
        },
    }
    facts = parse.claim_facts(raw)

    found = facts.selected_node, facts.owner_pod_uid, facts.requested_bytes, facts.is_shared, facts.data_source
    assert ("n1", "p", GIB, True, "VolumeSnapshot/s") == found


def longhorn_node() -> dict[str, Any]:
    def disk(**fields: Any) -> dict[str, Any]:
        return {"conditions": [{"type": "Schedulable", "status": "True"}], "storageMaximum": 10, **fields}

    return {
        "metadata": {"name": "n1"},
        "spec": {
            "allowScheduling": True,
            "disks": {"a": {"allowScheduling": True, "storageReserved": 3, "tags": ["ssd"]}, "spec-only": {}},
        },
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}, {"type": "Schedulable", "status": "Unknown"}],
            "diskStatus": {"a": disk(diskUUID="u-a", scheduledReplica={"r": 5}), "status-only": disk()},
        },
    }


def test_a_disk_counts_only_in_spec_and_status_together() -> None:
    facts = parse.node_facts(longhorn_node())
    (disk,) = facts.disks

    assert (True, False) == (facts.ready, facts.schedulable)
    found = disk.name, disk.uuid, disk.reserved_bytes, disk.maximum_bytes, disk.available_bytes
    assert ("a", "u-a", 3, 10, 0) == found
    assert {"r": 5} == disk.scheduled_replicas


def test_missing_parts_have_the_apis_defaults() -> None:
    bare = {"metadata": {"name": "x"}}
    volume = parse.volume_facts(bare)
    assert ("v1", "disabled", "rwo") == (volume.needs.data_engine, volume.data_locality, volume.access_mode)
    assert parse.replica_facts(bare).active
    assert () == parse.node_facts(bare).disks
    assert not parse.class_facts(bare).is_default
    assert 0 == parse.claim_facts(bare).requested_bytes
