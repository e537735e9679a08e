"""One odd object among many is left out, or read as it stands, as by the running extender, and told. Questions about
something else are answered as without it; one that needs what was left out names object and field."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.follow.kinds import KINDS
from controller.kube.store import Store
from controller.model.workload import Claim, Pod
from controller.plan.command import answer
from controller.plan.complaints import InputError, Notes
from controller.plan.objects import Objects, decode_objects
from tests.fakes import saved
from tests.fakes.plan_documents import QUESTIONS, document
from tests.fakes.saved import Raw, core, longhorn, node, replica, setting, storage_class, volume
from tests.fuzz.requests import changed

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
LEFT_OUT, AS_IT_STANDS = "; it is left out", "; it is read as it stands"


def with_field(raw: Raw, path: str, value: Any) -> Raw:
    """`raw` with the field at the dotted path replaced."""
    name, _, rest = path.partition(".")
    return {**raw, name: with_field(raw.get(name) or {}, rest, value) if rest else value}


POD = core("Pod", "odd", "ns")
CLAIM = core("PersistentVolumeClaim", "odd", "ns")
TEMPLATE = {"volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": {"resources": {"requests": 1}}}}}]}
# What no reader of facts takes, by the object, the field and its value.
UNREADABLE: list[tuple[Raw, str, Any]] = [
    (node("odd"), "spec.tags", "ssd"),
    (node("odd"), "status.conditions", [1]),
    (node("odd"), "status.conditions", [{"type": "Ready", "status": True}]),
    (node("odd"), "status.diskStatus.d1.conditions", [None]),
    (volume("odd"), "spec.dataLocality", "always"),
    (volume("odd"), "status.robustness", ["healthy"]),
    (replica("odd", of="other"), "spec.failedAt", "2026-01-01"),
    (longhorn("BackingImage", "odd"), "status.realSize", "1"),
    (longhorn("Backup", "odd"), "status.volumeSize", "10Gi"),
    (longhorn("EngineImage", "odd"), "status.nodeDeploymentMap", {"n1": "yes"}),
    (longhorn("InstanceManager", "odd"), "spec.nodeID", 5),
    (setting("replica-auto-balance", ""), "value", 5),
    (core("Node", "odd"), "metadata.labels", []),
    (CLAIM, "spec.resources.requests.storage", "much"),
    (core("PersistentVolume", "odd"), "spec.csi.driver", 5),
    (storage_class("odd"), "parameters.numberOfReplicas", 3),
    (POD, "spec.volumes", {}),
]
# What is read, and what Kubernetes or Longhorn would have refused.
READABLE: list[tuple[Raw, str, Any]] = [
    (node("odd"), "status.conditions", [{"type": "Ready", "status": "true"}]),
    (node("odd"), "status.conditions", [{"type": "Ready"}]),
    (node("odd"), "status.conditions", [{"type": "Ready", "status": "True"}, {"status": "True"}]),
    (node("odd"), "status.diskStatus.d1.conditions", [{"type": "Ready", "status": "yes"}]),
    (node("odd"), "spec.disks.d1.storageReserved", -1),
    (volume("odd"), "metadata.labels", []),
    (volume("odd"), "metadata.creationTimestamp", 2026),
    (volume("odd"), "spec.encrypted", "x"),
    (volume("odd"), "spec.size", 5),
    (volume("odd"), "status.actualSize", -5),
    (volume("odd", dataLocality="strict-local"), "spec.numberOfReplicas", 3),
    (volume("odd"), "status.robustness", "healthyish"),
    (volume("odd"), "status.state", "atached"),
    (volume("odd"), "status.cloneStatus.state", "begun"),
    (volume("odd"), "spec.frontend", "block"),
    (replica("odd", of="other"), "spec.volumeName", ""),
    (longhorn("EngineImage", "odd"), "status.state", "ready"),
    (longhorn("InstanceManager", "odd"), "status.currentState", "Running"),
    (longhorn("InstanceManager", "odd"), "spec.type", "all"),
    (CLAIM, "spec.resources.requests.storage", "-5Gi"),
    (core("PersistentVolume", "odd"), "metadata.namespace", 5),
    (storage_class("odd"), "parameters.dataLocality", "disable"),
    (storage_class("odd", dataLocality="strict-local"), "parameters.numberOfReplicas", "3"),
]
# Others: what is left out or read, and the field of the complaint.
OTHERS: list[tuple[Raw, str, str]] = [
    (longhorn("Node", ""), "metadata.name", LEFT_OUT),
    ({"apiVersion": "v1", "kind": "Node"}, "metadata.name", LEFT_OUT),
    (setting("replica-auto-balance", "sometimes"), "value", "; the default counts"),
    ({**POD, "spec": TEMPLATE}, "spec.volumes[0].ephemeral.volumeClaimTemplate.spec.resources.requests", LEFT_OUT),
    ({**POD, "spec": {"volumes": [{"ephemeral": {}}]}}, "spec.volumes[0].ephemeral.volumeClaimTemplate", LEFT_OUT),
]
ODD = [
    *((with_field(raw, path, value), path, LEFT_OUT) for raw, path, value in UNREADABLE),
    *((with_field(raw, path, value), path, AS_IT_STANDS) for raw, path, value in READABLE),
    *OTHERS,
]


def answers(*more: Raw, notes: Notes | None = None) -> list[Raw]:
    """To one question of each kind. What refuses the node `odd` is left out, if it is there."""
    found = answer({**document(*more), "question": None, "questions": QUESTIONS}, NOW, notes)["answers"]
    for step in found[1]["steps"]:
        step["refusals"] = [one for one in step["refusals"] if one["node"] != "odd"]
    return list(found)


@pytest.mark.parametrize(("raw", "path", "fate"), ODD)
def test_one_odd_object_is_told_and_changes_no_other_answer(raw: Raw, path: str, fate: str) -> None:
    notes = Notes()
    assert answers() == answers(raw, notes=notes)
    (said,) = [line for line in notes.lines() if f": {path}" in line]
    name, namespace = raw.get("metadata", {}).get("name"), raw.get("metadata", {}).get("namespace")
    where = f"{raw['kind']} {namespace}/{name}" if namespace else f"{raw['kind']} {name}"
    place = f"objects[{len(document()['objects'])}]"
    assert said.startswith(f"{where if name else place}: {path}") and said.endswith(fate)


def test_every_kind_has_its_odd_objects() -> None:
    versions = {(raw["apiVersion"], raw["kind"]) for raw, _, _ in UNREADABLE}
    assert {(one.resource.api_version, one.resource.kind) for one in KINDS if one.name != "record"} == versions


@pytest.mark.parametrize(
    ("name", "good", "wrong"),
    [
        ("numberOfReplicas", ("", "0", "1", "20"), ("x", "-1", "21", "1.5")),
        ("dataLocality", ("", "strict-local"), ("always", "Best-Effort")),
        ("dataEngine", ("v2",), ("v3",)),
        ("cloneMode", ("linked-clone",), ("copy",)),
        ("replicaSoftAntiAffinity", ("ignored",), ("true",)),
        ("replicaZoneSoftAntiAffinity", ("enabled",), ("false",)),
        ("replicaDiskSoftAntiAffinity", ("disabled",), ("yes",)),
        ("share", ("true",), ("", "shared")),
        ("migratable", ("false",), ("2",)),
        ("encrypted", ("false", "T"), ("", "x")),
        ("disableRevisionCounter", ("true",), ("no",)),
    ],
)
def test_a_class_that_longhorn_would_refuse_is_told(name: str, good: tuple[str, ...], wrong: tuple[str, ...]) -> None:
    def told(text: str, **more: Any) -> list[str]:
        decode_objects([storage_class("s", **{name: text}, **more)], notes := Notes())
        return notes.lines()

    for text in wrong:
        assert [True] == [line.startswith(f"StorageClass s: parameters.{name}: ") for line in told(text)]
        assert [] == told(text, provisioner="other.example")
    for text in good:
        assert [] == told(text)


# Who needs what was left out

BOUND = {"storageClassName": "c", "volumeName": "pv"}
FIT, SCHEDULE, EXPAND = (
    {"fit": {"pod": "shop/p", "nodes": ["n1"]}},
    {"schedule": {"volume": "v", "replicas": ["r2"]}},
    {"expand": {"claim": "shop/c"}},
)


def bound(**claim_spec: Any) -> list[Raw]:
    """A pod with a claim whose volume `v` has a replica on n1, and one that is to be placed; all nodes are read."""
    uses = [{"name": "d", "persistentVolumeClaim": {"claimName": "c"}}]
    csi = {"driver": "driver.longhorn.io", "volumeHandle": "v"}
    local = storage_class("c", fromBackup="s3://b/?backup=b1&volume=w")
    return [
        *(one for name in ("n1", "n2") for one in (node(name), core("Node", name))),
        core("Pod", "p", "shop", spec={"volumes": uses}),
        core("PersistentVolumeClaim", "c", "shop", spec={**BOUND, **claim_spec}),
        core("PersistentVolume", "pv", spec={"csi": csi}),
        volume(backingImage="i", numberOfReplicas=2),
        replica("r1", "n1"),
        replica("r2"),
        longhorn("BackingImage", "i"),
        with_field(local, "metadata.annotations", {"storageclass.kubernetes.io/is-default-class": "true"}),
        longhorn("Backup", "b1", status={"url": "s3://b/?backup=b1&volume=w", "volumeSize": "1"}),
    ]


TO_MAKE = {"volumeName": "", "resources": {"requests": {"storage": "1Gi"}}}


@pytest.mark.parametrize(
    ("question", "claim", "kind", "name", "path", "value"),
    [
        (FIT, {}, "Pod", "shop/p", "spec.volumes", {}),
        (FIT, {}, "PersistentVolumeClaim", "shop/c", "spec.volumeName", 5),
        (FIT, {}, "PersistentVolume", "pv", "spec.csi", []),
        (FIT, {}, "Volume", "longhorn-system/v", "spec.dataEngine", "v3"),
        (FIT, {}, "Replica", "longhorn-system/r1", "spec.active", "yes"),
        (FIT, {}, "BackingImage", "longhorn-system/i", "spec.nodeSelector", "x"),
        (FIT, {}, "Node", "longhorn-system/n1", "spec.disks", []),
        (FIT, {}, "Node", "n1", "spec.unschedulable", "yes"),
        (FIT, TO_MAKE, "StorageClass", "c", "parameters.numberOfReplicas", 1),
        (FIT, {**TO_MAKE, "storageClassName": None}, "StorageClass", "c", "parameters", []),
        (FIT, TO_MAKE, "Backup", "longhorn-system/b1", "status.volumeSize", "x"),
        (SCHEDULE, {}, "Volume", "longhorn-system/v", "spec.size", "10Gi"),
        (SCHEDULE, {}, "Replica", "longhorn-system/r2", "spec.active", 1),
        (SCHEDULE, {}, "Replica", "longhorn-system/r1", "spec.rebuildRetryCount", "1"),
        (SCHEDULE, {}, "BackingImage", "longhorn-system/i", "spec.diskSelector", [1]),
        (SCHEDULE, {}, "Node", "longhorn-system/n1", "status.zone", 5),
        (EXPAND, {}, "PersistentVolumeClaim", "shop/c", "spec.accessModes", [1]),
        (EXPAND, {}, "PersistentVolume", "pv", "spec.capacity.storage", "x"),
        (EXPAND, {}, "Volume", "longhorn-system/v", "spec.numberOfReplicas", "3"),
        (EXPAND, {}, "Replica", "longhorn-system/r1", "spec.volumeSize", "x"),
        (EXPAND, {}, "Node", "longhorn-system/n1", "spec.disks.d1.storageReserved", "x"),
    ],
)
@pytest.mark.parametrize("lenient", [False, True])
def test_a_question_that_needs_it_names_object_and_field(
    question: Raw, claim: Raw, kind: str, name: str, path: str, value: Any, lenient: bool
) -> None:
    def is_it(raw: Raw) -> bool:
        meta = raw["metadata"]
        return (kind, name) == (raw["kind"], "/".join(filter(None, (meta.get("namespace"), meta["name"]))))

    objects = bound(**claim)
    assert saved.ask(objects, question)
    bent = [with_field(raw, path, value) if is_it(raw) else raw for raw in objects]
    with pytest.raises(InputError) as caught:
        saved.ask(bent, question, lenient=lenient)
    assert f"{kind} {name}" == caught.value.object_name
    assert caught.value.field_name.startswith(path)


def test_of_several_questions_only_those_that_need_it_have_no_answer() -> None:
    bent = [with_field(raw, "spec.csi", []) if raw["kind"] == "PersistentVolume" else raw for raw in bound()]
    found = answer({"objects": bent, "questions": [FIT, SCHEDULE, EXPAND]}, NOW)["answers"]
    problem = {"error": "PersistentVolume pv: spec.csi: is not an object"}
    assert [problem, saved.ask(bound(), SCHEDULE), problem] == found


# The same reading as the running extender's


def keyed(found: Objects, kind: str) -> tuple[dict[str, Any], set[str]]:
    """Facts by name, and the names of what is left out."""
    facts = {key.rsplit("/", 1)[-1]: one for key, one in found.by_kind[kind].items()}
    return facts, {key.rsplit("/", 1)[-1] for of, key in found.unread if of == kind}


@st.composite
def bent_objects(draw: st.DrawFn) -> Raw:
    """Bent anyhow, but each keeps its kind, name and namespace."""
    raw: Raw = draw(st.sampled_from(document()["objects"]))
    bent: Any = raw
    for _ in range(draw(st.integers(1, 3))):
        bent = changed(draw, bent)
        bent = bent if isinstance(bent, dict) else {"spec": bent}
    meta = bent.get("metadata")
    kept = {part: raw["metadata"][part] for part in ("name", "namespace", "uid") if part in raw["metadata"]}
    named = {"metadata": {**(meta if isinstance(meta, dict) else {}), **kept}}
    return {**bent, "apiVersion": raw["apiVersion"], "kind": raw["kind"], **named}


@given(bent_objects())
@settings(max_examples=150, deadline=None)
def test_what_a_store_leaves_out_and_reads_the_planner_does_too(bent: Raw) -> None:
    kind = bent["apiVersion"], bent["kind"]
    (row,) = [one for one in KINDS if kind == (one.resource.api_version, one.resource.kind)]
    store: Store[Any] = Store(row.name, row.parse)
    store.replace([bent])
    facts, unread = keyed(decode_objects([bent], Notes(is_lenient=True)), row.name)

    assert {key.rsplit("/", 1)[-1] for key in store.bad} == unread
    if not isinstance(next(iter(facts.values()), None), Pod | Claim):  # of which more are kept, and with a uid
        assert {key.rsplit("/", 1)[-1]: one for key, one in store.items().items()} == facts
