"""Kubernetes' objects: what is read, what is missing, and what is refused with the field's name."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest

from controller.errors import MalformedRequestError
from controller.kube.decoding import decode_event
from controller.model import workload
from controller.model.names import (
    CO_SCHEDULE_ANNOTATION,
    COMPONENT_LABEL,
    EXTENDER_RESOURCE,
    OPT_IN_MARK,
    SHARE_MANAGER,
    SHARED_VOLUME_LABEL,
)
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
        *({"name": f"again-{number}", "persistentVolumeClaim": {"claimName": "c"}} for number in range(9)),
    ]
    facts = workload.pod_facts(pod(volumes=volumes))

    assert [("c", False), ("a-scratch", True)] == [(entry.claim, entry.is_ephemeral) for entry in facts.volumes]
    assert 7 == facts.version


@pytest.mark.parametrize(
    ("gates", "is_gated"), [([{"name": "x"}], True), ([{"name": "x"}, {"name": "y"}], True), ([], False), (None, False)]
)
def test_a_pod_is_gated_while_it_has_scheduling_gates(gates: Any, is_gated: bool) -> None:
    assert is_gated == workload.pod_facts(pod(**({} if gates is None else {"schedulingGates": gates}))).is_gated


@pytest.mark.parametrize("group", ["containers", "initContainers"])
@pytest.mark.parametrize("kind", ["requests", "limits"])
def test_a_pod_is_opted_in_by_any_container_that_names_the_resource(group: str, kind: str) -> None:
    container = {"name": "c", "resources": {kind: {"longhorn.io/scheduler-extender": "1"}}}
    assert workload.pod_facts(pod(**{group: [{"name": "b"}, container]})).is_opted_in
    assert not workload.pod_facts(pod(**{group: [{"name": "b", "resources": {kind: {"cpu": "1"}}}]})).is_opted_in


LACKING = "0/4 nodes are available: 4 Insufficient longhorn.io/scheduler-extender."


def pod_with(condition: dict[str, Any], opted_in: bool = True) -> Pod:
    """Its facts, with that condition of the type PodScheduled."""
    requests = {"longhorn.io/scheduler-extender": "1"} if opted_in else {}
    raw = pod(containers=[{"name": "c", "resources": {"requests": requests}}], schedulerName="s")
    raw["status"] = {"conditions": [{"type": "PodScheduled", **condition}]}
    return workload.pod_facts(raw)


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
        return workload.claim_facts({"metadata": {"name": "c"}, "spec": spec}).class_name

    assert (None, "", "x") == (class_of(), class_of(storageClassName=""), class_of(storageClassName="x"))


def test_a_claims_signals_are_read() -> None:
    owner = {"kind": "Pod", "uid": "p", "controller": True}
    meta = {"name": "c", "annotations": {"volume.kubernetes.io/selected-node": "n1"}, "ownerReferences": [owner]}
    spec = {
        "accessModes": ["ReadWriteMany"],
        "resources": {"requests": {"storage": "1Gi"}},
        "dataSourceRef": {"kind": "VolumeSnapshot", "name": "s"},
    }
    facts = workload.claim_facts({"metadata": meta, "spec": spec})
    found = facts.selected_node, facts.owner_pod_uid, facts.requested_bytes, facts.is_shared, facts.data_source
    assert ("n1", "p", GIB, True, "VolumeSnapshot/s") == found


@pytest.mark.parametrize(("value", "expected"), [("true", True), ("false", False), ("", False), ("True", False)])
def test_a_kubernetes_node_may_be_closed_to_v2(value: str, expected: bool) -> None:
    raw = {"metadata": {"name": "n", "labels": {"node.longhorn.io/disable-v2-data-engine": value}}}
    assert expected == workload.kube_node_facts(raw).disables_v2


ODD_REQUEST = {"resources": {"requests": {"storage": "1e3Ki"}}}


@pytest.mark.parametrize(
    ("read", "raw", "field"),
    [
        (workload.pod_facts, {"metadata": "x"}, "metadata"),
        (workload.pod_facts, {"spec": {"volumes": {}}}, "spec.volumes"),
        (workload.pod_facts, {"spec": {"priority": "high"}}, "spec.priority"),
        (workload.pod_facts, {"spec": {"volumes": [{"name": 3}]}}, "spec.volumes[0].name"),
        (workload.claim_facts, {"spec": ODD_REQUEST}, "spec.resources.requests.storage"),
    ],
)
def test_a_wrong_value_is_named(read: Callable[[Any], object], raw: dict[str, Any], field: str) -> None:
    with pytest.raises(MalformedRequestError) as caught:
        read(raw)
    assert field == caught.value.field


def test_missing_parts_have_the_apis_defaults() -> None:
    bare = {"metadata": {"name": "x"}}
    assert not workload.class_facts(bare).is_default
    assert 0 == workload.claim_facts(bare).requested_bytes
    assert "" == workload.pv_facts(bare).claim_key
    assert "ns/c" == workload.pv_facts({**bare, "spec": {"claimRef": {"namespace": "ns", "name": "c"}}}).claim_key


def full_pod(*, opted_in: bool) -> dict[str, Any]:
    """With all that is read of a pod, and much that is not."""
    resources = {"limits": {EXTENDER_RESOURCE: "1"}} if opted_in else {}
    labels = {COMPONENT_LABEL: SHARE_MANAGER, SHARED_VOLUME_LABEL: "pvc-1", OPT_IN_MARK: "never"}
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": "o", "controller": True}
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": f"0/3 nodes are available: 3 Insufficient {EXTENDER_RESOURCE}.",
        "lastTransitionTime": EPOCH,
    }
    return {
        "metadata": {
            "name": "web-0",
            "namespace": "ns",
            "uid": "u",
            "resourceVersion": "7",
            "creationTimestamp": EPOCH,
            "deletionTimestamp": EPOCH,
            "labels": labels,
            "annotations": {CO_SCHEDULE_ANNOTATION: "true"},
            "ownerReferences": [owner],
            "managedFields": [{"fieldsV1": {"f:spec": {}}}],
        },
        "spec": {
            "containers": [{"name": "main", "args": ["a"] * 9, "resources": {}}],
            "initContainers": [{"name": "first", "env": [{"name": "a"}], "resources": resources}],
            "volumes": [
                {"name": "data", "persistentVolumeClaim": {"claimName": "c"}},
                {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
                {"name": "cm", "configMap": {"name": "x"}},
            ],
            "nodeName": "n1",
            "priority": 5,
            "schedulerName": "default-scheduler",
            "schedulingGates": [{"name": "x"}],
            "tolerations": [{"key": "x"}],
        },
        "status": {"phase": "Failed", "nominatedNodeName": "n2", "conditions": [condition]},
    }


def test_of_a_watched_pod_all_that_is_read_is_decoded_and_no_more() -> None:
    raws = [full_pod(opted_in=True), full_pod(opted_in=False)]
    blank = workload.pod_facts({"metadata": {"name": "", "uid": "", "namespace": ""}})
    known = [workload.pod_facts(raw) for raw in raws]
    for field in fields(Pod):  # what is not in a full pod here would not be missed
        assert any(getattr(facts, field.name) != getattr(blank, field.name) for facts in known), field.name
    events = [decode_event(json.dumps({"type": "ADDED", "object": raw}).encode(), "pods") for raw in raws]
    assert known == [workload.pod_facts(event["object"]) for event in events]
    for event in events:
        assert {"type", "object"} == set(event)
        assert not [word for word in ("args", "env", "managedFields", "configMap", "tolerations") if word in str(event)]


@pytest.mark.parametrize(
    "spec",
    [{"volumes": None, "nodeName": "n"}, {"volumes": [{"name": "a", "ephemeral": None}]}, {"containers": "none"}, None],
)
def test_of_a_watched_pod_of_another_shape_everything_is_decoded(spec: object) -> None:
    event = {"type": "ADDED", "object": {"metadata": {"name": "a"}, "spec": spec, "more": 1}}
    assert event == decode_event(json.dumps(event).encode(), "pods")
