"""`fit` questions: saved objects on the way in, verdicts on the way out.

`cases.jsonl` has one case a line: `case`, `because`, `document` (the question as docs/plan-format.md has it) and
`expected`, by node the verdict, or verdict, `placement` and `reasons` that are among its refusals'. They were written
from the rules, by hand, before the answers were seen.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from controller.plan import command as plan
from tests.fakes.saved import GIB, Raw, core, longhorn, node, replica, storage_class, volume
from tests.unit.plan.asking import (
    CLASS_PARAMETERS,
    NOW,
    bound,
    claim,
    fit,
    pod,
    promise,
    reasons,
    refused,
    told,
    verdicts,
)

CASES = [json.loads(line) for line in (Path(__file__).parent / "cases.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("case", CASES, ids=[case["case"] for case in CASES])
def test_a_case(case: Raw) -> None:
    found = plan.answer(case["document"], NOW)["nodes"]
    for name, given in case["expected"].items():
        expected = {"verdict": given} if isinstance(given, str) else dict(given)
        reasons = {refusal["reason"] for refusal in found[name]["refusals"]}
        assert reasons >= set(expected.pop("reasons", ())), case["because"]
        assert expected == {part: found[name][part] for part in expected}, case["because"]


@pytest.mark.parametrize(
    ("modes", "spec", "open_to"),
    [
        (["ReadWriteMany"], {"accessMode": "rwx", "migratable": True}, "ab"),
        (["ReadWriteMany"], {"accessMode": "rwx"}, "abc"),  # a share-manager serves it
        (["ReadWriteOnce"], {}, "a"),
    ],
)
def test_a_claim_that_others_use_is_attached_to_no_further_node(modes: list[str], spec: Raw, open_to: str) -> None:
    nodes = [node(name) for name in "abc"]
    users = [pod("data", name=f"on-{name}") for name in "ab"]
    for number, user in enumerate(users):
        user["metadata"]["creationTimestamp"] = f"2026-01-01T00:00:0{number}Z"
        user["spec"]["nodeName"] = "ab"[number]
    volume = bound("data", replica("v-r-1", "a"), dataLocality="disabled", **spec)
    volume[0]["spec"]["accessModes"] = modes
    found = fit([*nodes, *users, pod("data"), *volume], *"abc")
    assert set(open_to) == {name for name, entry in found.items() if entry["verdict"] == "sure"}
    others = [entry for name, entry in found.items() if name not in open_to]
    assert all(("unsuitable", ["VolumeInUseElsewhere"]) == (one["verdict"], reasons(one)) for one in others)


def test_every_verdict_with_what_goes_with_it() -> None:
    nodes = [node("a"), node("b"), node("c", gib=50), node("d", allowScheduling=False)]
    found = fit([*nodes, pod("data"), claim("data")], "d", "c", "b", "a", promises=[promise("b", 50)])

    assert ["a", "b", "c", "d"] == list(found)
    assert ["sure", "contended", "full", "unsuitable"] == [entry["verdict"] for entry in found.values()]
    assert [[], ["Contended"], ["InsufficientStorage"], ["NodeUnschedulable"]] == list(map(reasons, found.values()))
    assert [{"pvc-uid-data": "d1"}, {}, {}, {}] == [entry["placement"] for entry in found.values()]
    assert not any(entry["bounded"] for entry in found.values())


def test_a_promise_lies_only_on_disks_that_take_its_volume() -> None:
    disks = {"d1": {}, "d2": {"spec": {"tags": ["fast"]}}}
    objects = [node("a", disks=disks), pod("data"), claim("data"), volume("w", gib=60, diskSelector=["fast"])]
    strict = {"allow-empty-disk-selector-volume": False}
    assert {"a": "sure"} == verdicts(objects, "a", promises=[promise("a", 60, "w")], settings=strict)
    assert {"a": "contended"} == verdicts(objects, "a", promises=[promise("a", 60, "x")], settings=strict)


def test_a_node_is_longhorns_and_where_room_is_needed_also_kubernetes() -> None:
    kube, objects = [core("Node", name) for name in ("a", "b")], [node("a"), node("c"), pod("data"), claim("data")]
    assert {"a": "sure", "b": "unsuitable", "c": "unsuitable"} == verdicts([*objects, *kube], "a", "b", "c")
    assert {"c": "sure"} == verdicts(objects, "c")
    spread = [storage_class("spread", numberOfReplicas="1"), claim("data", of_class="spread")]
    spread += [node("a"), node("c"), *kube, pod("data")]
    assert {"a": "sure", "b": "unsuitable", "c": "sure"} == verdicts(spread, "a", "b", "c")


def test_instance_managers_are_asked_only_where_there_are_any() -> None:
    spec = {"nodeID": "b", "dataEngine": "v1", "type": "aio"}
    manager = longhorn("InstanceManager", "m", spec=spec, status={"currentState": "running"})
    objects = [node("a"), node("b"), pod("data"), *bound("data", replica("r", of="v", gib=60), image="i")]
    assert {"a": "sure", "b": "sure"} == verdicts(objects, "a", "b")
    found = fit([*objects, manager], "a", "b")
    assert (["EngineNotReady"], "sure") == (reasons(found["a"]), found["b"]["verdict"])


def test_what_is_not_among_the_objects_counts_as_nothing_and_is_named() -> None:
    objects = [node("a"), pod("none", "lost"), claim("lost", bound="gone")]
    assert "Pod ns/p: there is no PersistentVolumeClaim ns/none in objects" == str(refused(objects, "a"))
    assert [
        "sure",
        "Pod ns/p: there is no PersistentVolumeClaim ns/none in objects, which counts as nothing",
        "Pod ns/p: there is no PersistentVolume gone in objects, which counts as nothing",
    ] == told(objects, "a")


def test_a_claim_without_a_class_counts_as_nothing_and_is_named() -> None:
    objects = [node("a"), pod("data"), claim("data", 9000, of_class=None)]
    found = refused(objects, "a")
    assert "spec.storageClassName" == found.field_name
    assert "is missing, and no StorageClass in objects is the default one" == found.problem
    assert ["sure", f"{found}, which counts as nothing"] == told(objects, "a")


def test_claims_without_a_uid_are_told_apart_by_their_names() -> None:
    objects = [node("a"), pod("x", "y"), claim("x", 30, uid=""), claim("y", 30, uid="")]
    assert {"pvc-ns/x": "d1", "pvc-ns/y": "d1"} == fit(objects, "a")["a"]["placement"]


def with_template(gib: int = 60, *, of_class: str | None = "local", **meta: Any) -> Raw:
    """A pod with a generic ephemeral volume."""
    spec: Raw = {"storageClassName": of_class, "resources": {"requests": {"storage": f"{gib}Gi"}}}
    ephemeral = {"volumeClaimTemplate": {"metadata": meta, "spec": spec}}
    return core("Pod", "p", "ns", spec={"volumes": [{"name": "empty"}, {"name": "v", "ephemeral": ephemeral}]})


@pytest.mark.parametrize("lenient", [False, True])
def test_an_ephemeral_volume_without_its_claim_is_judged_by_its_template(lenient: bool) -> None:
    """On a node with 100 GiB."""
    by_annotation = {"annotations": {"volume.beta.kubernetes.io/storage-class": "local"}}
    nodes = [node("a")]
    assert {"pvc-ns/p-v": "d1"} == fit([*nodes, with_template()], "a", lenient=lenient)["a"]["placement"]
    assert {"a": "full"} == verdicts([*nodes, with_template(150)], "a", lenient=lenient)
    assert {"a": "full"} == verdicts([*nodes, with_template(150, of_class=None, **by_annotation)], "a", lenient=lenient)
    assert {"a": "sure"} == verdicts([*nodes, with_template(150, of_class="")], "a", lenient=lenient)
    assert {"a": "sure"} == verdicts([*nodes, pod("p-v", name="other"), with_template()], "a", lenient=lenient)


def test_a_template_without_a_class_is_named() -> None:
    found = refused([node("a"), with_template(of_class=None)], "a")
    assert ("Pod ns/p, claim ns/p-v", "spec.storageClassName") == (found.object_name, found.field_name)


@pytest.mark.parametrize(
    ("uid", "kind", "is_controller", "is_its_own"),
    [
        ("uid-p", "Pod", True, True),
        ("uid-p", "Pod", False, False),
        ("uid-former", "Pod", True, False),
        ("uid-p", "StatefulSet", True, False),
        ("", "", True, False),
    ],
)
@pytest.mark.parametrize("lenient", [False, True])
def test_an_ephemeral_volumes_claim_that_was_made_for_another_keeps_the_pod_off_every_node(
    uid: str, kind: str, is_controller: bool, is_its_own: bool, lenient: bool
) -> None:
    """As kube-scheduler refuses it, which asks for the claim's controller."""
    owners = [{"kind": kind, "name": "p", "uid": uid, "controller": is_controller}] if uid else []
    found = fit([node("a"), with_template(), claim("p-v", ownerReferences=owners)], "a", lenient=lenient)["a"]
    assert ("sure" if is_its_own else "unsuitable", [] if is_its_own else ["NeverPlaced"]) == (
        found["verdict"],
        reasons(found),
    )
    assert is_its_own or "a: claim ns/p-v: was not made for the pod" in found["refusals"][0]["message"]


def test_no_nodes_are_no_answer() -> None:
    assert {} == fit([node("a"), pod("data"), claim("data")])


URL = "s3://bucket/?backup=backup-1&volume=vol-1"
NO_BACKUP = "Pod ns/p: there is no Backup backup-1 in objects, so that the volume counts as large as is requested"


@pytest.mark.parametrize(("gib", "expected"), [(90, ["full"]), (70, ["sure"]), (None, ["sure", NO_BACKUP])])
def test_a_restored_volume_counts_as_large_as_its_backup(gib: int | None, expected: list[str]) -> None:
    """On a node with 80 GiB, where 60 are asked for."""
    restored = storage_class("local", **CLASS_PARAMETERS, fromBackup=URL)
    status = {"url": URL, "volumeSize": str((gib or 0) * GIB)}
    backups = [] if gib is None else [longhorn("Backup", "backup-1", status=status)]
    objects = [restored, claim("c"), pod("c"), node("n1", gib=80), *backups]
    assert expected == told(objects, "n1", lenient=gib is None)


def test_a_promise_that_no_disk_of_its_node_has_room_for_counts_as_nothing_and_is_named() -> None:
    """Those of the pod's own volumes never count."""
    objects = [node("a"), node("b"), pod("data"), claim("data")]
    promises = [promise("a", 99), promise("b", 101, "w"), promise("a", 2, "v"), promise("b", 200, "pvc-uid-data")]
    assert [
        "contended",
        "sure",
        "question.fit.promises[1]: no disk of b has room for 101 GiB, so that it counts as nothing",
        "question.fit.promises[2]: no disk of a has room for 2 GiB, so that it counts as nothing",
    ] == told(objects, "a", "b", promises=promises, lenient=False)


@pytest.mark.parametrize(
    ("parameters", "field"),
    [
        ({}, "parameters.backingImage"),
        ({"backingImageDataSourceType": "upload"}, "parameters.backingImage"),
        ({"backingImageDataSourceType": "download"}, ""),
    ],
)
def test_a_class_needs_its_backing_image_unless_it_says_how_to_make_it(parameters: Raw, field: str) -> None:
    made = storage_class("local", **CLASS_PARAMETERS, backingImage="image", **parameters)
    objects = [node("a"), pod("data"), claim("data")]
    if field:
        assert field == refused([made, *objects], "a").field_name
    else:
        assert fit([made, *objects], "a")
    assert fit([made, *objects], "a", lenient=True)
    assert fit([made, *objects, longhorn("BackingImage", "image")], "a")


def test_a_volume_needs_its_backing_image() -> None:
    found = refused([node("a"), pod("data"), *bound("data", backingImage="image")], "a")
    assert ("Volume longhorn-system/v", "spec.backingImage") == (found.object_name, found.field_name)


def test_several_questions_are_answered_as_each_of_them_alone() -> None:
    for case in CASES[::10]:
        document = {name: part for name, part in case["document"].items() if name != "question"}
        question = case["document"]["question"]
        alone = plan.answer(case["document"], NOW)
        assert {"answers": [alone] * 3} == plan.answer({**document, "questions": [question] * 3}, NOW)
