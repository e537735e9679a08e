"""Questions about saved objects: what is read of them, and what is said of bad ones."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from controller.plan.command import answer
from controller.plan.complaints import InputError, Notes
from controller.plan.questions import MOST_REPLICAS
from tests.fakes import saved
from tests.fakes.builders import GIB
from tests.fakes.saved import Raw, core, longhorn, node, replica, setting, volume

QUESTION = {"schedule": {"volume": "v", "replicas": ["r1"]}}


def world(*more: Raw) -> list[Raw]:
    return [node("n1"), volume(), replica("r1"), *more]


def problem(objects: Any = None, question: Any = QUESTION, **more: Any) -> InputError:
    with pytest.raises(InputError) as caught:
        saved.ask(world() if objects is None else objects, question, **more)
    return caught.value


def with_field(raw: Raw, path: str, value: Any) -> Raw:
    """`raw` with the field at the dotted path replaced."""
    *way, last = path.split(".")
    current = raw
    for name in way:
        current = current.setdefault(name, {})
    current[last] = value
    return raw


# Objects


@pytest.mark.parametrize(
    ("raw", "path", "value"),
    [
        (node("n1"), "spec.tags", "ssd"),
        (volume(), "spec.dataLocality", "always"),
        (replica("r1"), "spec.failedAt", "2026-01-01"),
        (longhorn("BackingImage", "i"), "status.realSize", "1"),
        (longhorn("EngineImage", "e"), "status.nodeDeploymentMap", {"n1": "yes"}),
        (longhorn("InstanceManager", "m"), "spec.nodeID", 5),
        (setting("replica-soft-anti-affinity", "x"), "value", None),
        (core("PersistentVolumeClaim", "c", "ns"), "spec.resources.requests.storage", "much"),
        (core("PersistentVolumeClaim", "c", "ns"), "spec.resources.requests.storage", "-5Gi"),
        (core("Pod", "p", "ns"), "spec.volumes", {}),
        (node("n1"), "status.conditions", [1]),
        (node("n1"), "status.conditions", [{"type": "Ready", "status": True}]),
        (node("n1"), "status.conditions", [{"type": "Ready", "status": "true"}]),
        (node("n1"), "status.conditions", [{"type": "Ready"}]),
        (node("n1"), "status.conditions", [{"type": "Ready", "status": "True"}, {"status": "True"}]),
        (node("n1"), "status.diskStatus.d1.conditions", [None]),
        (node("n1"), "status.diskStatus.d1.conditions", [{"type": "Ready", "status": "yes"}]),
        (volume(), "metadata.labels", []),
        (volume(), "metadata.creationTimestamp", 2026),
        (volume(), "spec.encrypted", "x"),
        (volume(dataLocality="strict-local"), "spec.numberOfReplicas", 3),
        (volume(), "status.robustness", "healthyish"),
        (volume(), "status.robustness", ["healthy"]),
        (volume(), "status.state", "atached"),
        (volume(), "status.cloneStatus.state", "begun"),
        (volume(), "spec.frontend", "block"),
        (longhorn("EngineImage", "e"), "status.state", "ready"),
        (longhorn("InstanceManager", "m"), "status.currentState", "Running"),
        (longhorn("InstanceManager", "m"), "spec.type", "all"),
    ],
)
def test_a_bad_field_is_refused_with_object_and_field(raw: Raw, path: str, value: Any) -> None:
    bad = with_field(raw, path, value)
    others = [entry for entry in world() if (entry["kind"], entry["metadata"]["name"]) != _key(raw)]
    found = problem([*others, bad])
    meta = raw["metadata"]

    assert f"{raw['kind']} {meta['namespace']}/{meta['name']}" == found.object_name
    assert found.field_name.startswith(path)
    assert str(found).startswith(f"{found.object_name}: {path}")


def test_a_namespace_is_a_text_whatever_the_kind() -> None:
    for raw in (volume("w"), core("PersistentVolume", "p"), longhorn("Setting", "x", value="")):
        raw["metadata"]["namespace"] = 5
        assert "metadata.namespace" == problem(world(raw)).field_name


def _key(raw: Raw) -> tuple[str, str]:
    return raw["kind"], raw["metadata"]["name"]


CLASS = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "s"}}


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
def test_a_class_that_longhorn_would_refuse_is_refused(
    name: str, good: tuple[str, ...], wrong: tuple[str, ...]
) -> None:
    def made(text: str, provisioner: str) -> Raw:
        return {**CLASS, "provisioner": provisioner, "parameters": {name: text}}

    for text in wrong:
        assert ("StorageClass s", f"parameters.{name}") == _where(problem(world(made(text, "driver.longhorn.io"))))
        assert saved.schedule(world(made(text, "other.example")), "r1")
    for text in good:
        assert saved.schedule(world(made(text, "driver.longhorn.io")), "r1")


def test_a_class_of_local_volumes_has_one_replica() -> None:
    given: Raw = {**CLASS, "provisioner": "driver.longhorn.io"}
    for count, field in (("3", "parameters.numberOfReplicas"), ("1", "")):
        made = {**given, "parameters": {"dataLocality": "strict-local", "numberOfReplicas": count}}
        assert not field or ("StorageClass s", field) == _where(problem(world(made)))
        assert field or saved.schedule(world(made), "r1")


def test_a_whole_number_may_be_written_as_a_float() -> None:
    large = with_field(node("n1"), "status.diskStatus.d1.storageMaximum", 1e11)
    assert ["n1/d1"] == saved.places(saved.schedule([large, volume(), replica("r1")], "r1")[0])


def test_an_object_stands_there_once() -> None:
    assert ("Volume longhorn-system/v", "metadata.name") == _where(problem(world(volume())))
    pod = core("Pod", "p", "ns")
    assert ("Pod ns/p", "metadata.name") == _where(problem(world(pod, pod)))


def test_a_uid_is_one_pods_or_one_claims() -> None:
    pods = [core("Pod", name, "ns", metadata={"uid": "u"}) for name in ("p", "q")]
    assert ("Pod ns/q", "metadata.uid") == _where(problem(world(*pods)))
    claim = core("PersistentVolumeClaim", "c", "ns", metadata={"uid": "u"})
    assert saved.schedule(world(pods[0], claim), "r1")


def _where(error: InputError) -> tuple[str, str]:
    return error.object_name, error.field_name


def test_namesakes_in_other_namespaces_and_kinds_are_other_objects() -> None:
    pods = [
        core("Pod", "p", "ns"),
        core("Pod", "p", "other", metadata={"uid": "u"}),
        core("Node", "n1"),
        core("PersistentVolume", "n1"),
    ]
    assert ["n1/d1"] == saved.places(saved.schedule(world(*pods), "r1")[0])


def test_disks_without_a_uuid_are_not_the_same_disk() -> None:
    nodes = [node(name, disks={"d1": {"status": {"diskUUID": ""}}}) for name in ("n2", "n3")]
    assert ["n1/d1"] == saved.places(saved.schedule(world(*nodes), "r1")[0])


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        ({"kind": "Node", "metadata": {"name": "x"}}, "objects[0].apiVersion"),
        ({"apiVersion": "v1", "metadata": {"name": "x"}}, "objects[0].kind"),
        ({"apiVersion": "v1", "kind": 5}, "objects[0].kind"),
        ({"apiVersion": "v1", "kind": "Node"}, "objects[0].metadata.name"),
        ({"apiVersion": "v1", "kind": "Node", "metadata": {"name": ""}}, "objects[0].metadata.name"),
        ({"apiVersion": "v1", "kind": "Node", "metadata": 1}, "objects[0].metadata.name"),
        ("Node", "objects[0]"),
        ({"apiVersion": "v1", "kind": "List", "items": [3]}, "objects[0].items[0]"),
        ({"apiVersion": "v1", "kind": "List", "items": {}}, "objects[0].items"),
    ],
)
def test_what_is_no_object_is_named_by_its_place(raw: Any, field: str) -> None:
    assert ("", field) == _where(problem([raw, *world()]))


def test_another_version_of_a_kind_that_is_read_is_refused() -> None:
    old = {**node("n9"), "apiVersion": "longhorn.io/v1beta1"}
    assert ("Node longhorn-system/n9", "apiVersion") == _where(problem(world(old)))


# Each of them: what it is read as by those who look away, and what is refused by those who do not.
SLIPS: list[tuple[Raw, tuple[str, str]]] = [
    ({"objects": world({**node("n9"), "apiVersion": "longhorn/v1beta2"})}, ("Node longhorn-system/n9", "apiVersion")),
    ({"objects": world({**volume("w"), "apiVersion": "v1"})}, ("Volume longhorn-system/w", "apiVersion")),
    ({"objects": world({**node("n9"), "kind": "Nodes"})}, ("Nodes longhorn-system/n9", "kind")),
    ({"objects": world({**node("n9"), "kind": "node"})}, ("node longhorn-system/n9", "kind")),
    ({"objects": world({**CLASS, "kind": "StorageClas"})}, ("StorageClas s", "kind")),
    (
        {"objects": world(setting("replica-soft-antiaffinity", "true"))},
        ("Setting longhorn-system/replica-soft-antiaffinity", "metadata.name"),
    ),
    ({"settings": {"replica-soft-antiaffinity": "true"}}, ("", "settings.replica-soft-antiaffinity")),
    ({"settings": {"node-drain-policy": "always-allow"}}, ("", "settings.node-drain-policy")),
    ({"longhornVersion": "1.11.2"}, ("", "longhornVersion")),
    ({"objects": world(volume("w", status={"robustness": "odd"}))}, ("Volume longhorn-system/w", "status.robustness")),
]


@pytest.mark.parametrize(("parts", "where"), SLIPS)
def test_what_could_only_be_passed_over_is_refused_unless_that_is_asked_for(parts: Raw, where: tuple[str, str]) -> None:
    document = {"objects": world(), "question": QUESTION, **parts}
    with pytest.raises(InputError) as caught:
        answer(document, datetime.now(UTC))
    assert where == _where(caught.value)

    notes = Notes(is_lenient=True)
    assert ["n1/d1"] == saved.places(answer(document, datetime.now(UTC), notes)["steps"][0])
    assert any(said.startswith(str(caught.value)) for said in notes.lines())


@pytest.mark.parametrize(
    "raw",
    [
        longhorn("Engine", "e"),
        longhorn("BackingImageManager", "b"),
        setting("node-drain-policy", "always-allow"),
        setting("storage-reserved-percentage-for-default-disk", "30"),
        setting("a-setting-of-a-newer-release", "x"),
        core("ConfigMap", "c", "ns"),
        {"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": "n1"}},
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "r"}},
        volume("w", status={"robustness": "", "state": ""}),
    ],
)
def test_what_a_cluster_has_besides_is_no_slip(raw: Raw) -> None:
    assert ["n1/d1"] == saved.places(saved.schedule(world(raw), "r1")[0])


@pytest.mark.parametrize(
    "objects",
    [
        {"apiVersion": "v1", "kind": "List", "items": world()},
        [{"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "v1", "kind": "List", "items": world()}]}],
        [
            {"apiVersion": "longhorn.io/v1beta2", "kind": "NodeList", "items": [{"metadata": node("n1")["metadata"],
             "spec": node("n1")["spec"], "status": node("n1")["status"]}]},
            volume(),
            replica("r1"),
            {"apiVersion": "v1", "kind": "PodList", "items": None},
        ],
    ],
)  # fmt: skip
def test_lists_stand_for_their_items(objects: Any) -> None:
    assert ["n1/d1"] == saved.places(saved.schedule(objects, "r1")[0])


def test_a_replica_to_be_placed_without_a_size_has_its_volumes() -> None:
    bare = replica("r2")
    del bare["spec"]["volumeSize"]
    soft = volume(gib=60, replicaSoftAntiAffinity="enabled", replicaDiskSoftAntiAffinity="enabled")
    objects = [node("n1"), soft, bare, replica("r1", gib=60)]
    first, second = saved.schedule(objects, "r2", "r1", settings={"storage-minimal-available-percentage": 0})
    assert (["n1/d1"], []) == (saved.places(first), saved.places(second))


# Settings, time, version


@pytest.mark.parametrize("value", ["200", 200, 200.0])
def test_settings_are_numbers_or_strings_and_win_over_setting_objects(value: Any) -> None:
    objects = world(node("n2", gib=8), setting("storage-over-provisioning-percentage", "100"))
    given = {"storage-over-provisioning-percentage": value, "storage-minimal-available-percentage": "0"}
    assert ["n1/d1"] == saved.places(saved.schedule(objects, "r1")[0])
    assert ["n1/d1", "n2/d1"] == saved.places(saved.schedule(objects, "r1", settings=given)[0])


@pytest.mark.parametrize("value", [{"v1": "2", "v2": 3}, '{"v1":"2"}', 2])
def test_settings_by_data_engine_are_objects_too(value: Any) -> None:
    assert saved.schedule(world(), "r1", settings={"default-replica-count": value})


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ([], "settings"),
        ({"replica-soft-anti-affinity": ""}, "settings.replica-soft-anti-affinity"),
        ({"replica-soft-anti-affinity": None}, "settings.replica-soft-anti-affinity"),
        ({"replica-soft-anti-affinity": []}, "settings.replica-soft-anti-affinity"),
        ({"storage-over-provisioning-percentage": -1}, "settings.storage-over-provisioning-percentage"),
        ({"storage-over-provisioning-percentage": 1.5}, "settings.storage-over-provisioning-percentage"),
        ({"storage-minimal-available-percentage": "101"}, "settings.storage-minimal-available-percentage"),
        ({"default-replica-count": {"v1": []}}, "settings.default-replica-count.v1"),
        ({"default-replica-count": {"v1": {"v1": {"v1": "3"}}}}, "settings.default-replica-count.v1"),
        ({"default-replica-count": 10**400}, "settings.default-replica-count"),
        ({"default-replica-count": {"v1": "many"}}, "settings.default-replica-count"),
    ],
)
def test_a_setting_that_does_not_parse_is_named(given: Any, field: str) -> None:
    assert ("", field) == _where(problem(settings=given))


def test_a_setting_object_that_does_not_parse_is_named() -> None:
    found = problem(world(setting("replica-auto-balance", "sometimes")))
    assert ("Setting longhorn-system/replica-auto-balance", "value") == _where(found)


def test_a_bad_setting_object_does_no_harm_when_another_value_wins() -> None:
    objects = world(setting("replica-auto-balance", "sometimes"))
    assert saved.schedule(objects, "r1", settings={"replica-auto-balance": "disabled"})


# Questions


@pytest.mark.parametrize(
    ("question", "field"),
    [
        ([], "question"),
        ({"schedule": {"volume": "v", "replicas": []}, "expand": {"volume": "v", "size": 1}}, "question"),
        ({"schedule": {"volume": 7, "replicas": []}}, "question.schedule.volume"),
        ({"schedule": {"volume": "v", "replicas": ["r1", "r9"]}}, "question.schedule.replicas[1]"),
        ({"schedule": {"volume": "v", "replicas": [], "node": "n1"}}, "question.schedule.node"),
        ({"expand": {"volume": "v", "size": 2**63}}, "question.expand.size"),
        ({"expand": {"volume": "v", "size": True}}, "question.expand.size"),
        ({"fit": {"nodes": ["n1"]}}, "question.fit.pod"),
        ({"fit": {"pod": "ns/q", "nodes": ["n1"]}}, "question.fit.pod"),
        ({"fit": {"pod": "p", "nodes": ["n1"]}}, "question.fit.pod"),
        ({"fit": {"pod": "ns/p"}}, "question.fit.nodes"),
        ({"fit": {"pod": "ns/p", "nodes": ["n1", "n9"]}}, "question.fit.nodes[1]"),
        ({"fit": {"pod": "ns/p", "nodes": [], "promises": {}}}, "question.fit.promises"),
        ({"fit": {"pod": "ns/p", "nodes": [], "promises": [1]}}, "question.fit.promises[0]"),
        ({"fit": {"pod": "ns/p", "nodes": [], "promises": [{"node": "n1"}]}}, "question.fit.promises[0].volume"),
        (
            {"fit": {"pod": "ns/p", "nodes": [], "promises": [{"node": "n9", "volume": "w", "size": 1}]}},
            "question.fit.promises[0].node",
        ),
        (
            {"fit": {"pod": "ns/p", "nodes": [], "promises": [{"node": "n1", "volume": "w", "size": -1}]}},
            "question.fit.promises[0].size",
        ),
    ],
)
def test_a_bad_question_is_refused_with_the_field(question: Any, field: str) -> None:
    objects = world(core("Pod", "p", "ns"), volume("other-volume"), replica("other", of="other-volume"))
    assert ("", field) == _where(problem(objects, question))


@pytest.mark.parametrize(
    ("parts", "field"),
    [
        ({"questions": {}}, "questions"),
        ({"questions": [QUESTION, {"expand": {"volume": "w", "size": 1}}]}, "questions[1].expand.volume"),
        ({"questions": [QUESTION], "question": QUESTION}, "question"),
        ({"questions": [QUESTION] * 10_001}, "questions"),
        ({"questions": [None]}, "questions[0]"),
    ],
)
def test_a_bad_list_of_questions_is_refused_with_the_field(parts: Raw, field: str) -> None:
    with pytest.raises(InputError) as caught:
        answer({"objects": world(), **parts}, datetime.now(UTC))
    assert field == caught.value.field_name


def test_questions_share_one_set_of_objects() -> None:
    expand = {"expand": {"volume": "v", "size": "20Gi"}}
    found = answer({"objects": world(), "questions": [QUESTION, expand]}, datetime.now(UTC))
    assert [saved.ask(world(), QUESTION), saved.ask(world(), expand)] == found["answers"]
    assert {"answers": []} == answer({"objects": world(), "questions": []}, datetime.now(UTC))


@pytest.mark.parametrize(
    ("size", "bytes_asked"),
    [("20Gi", 20 * 2**30), ("21474836480", 20 * 2**30), ("1.5Ti", 3 * 2**39), ("20G", 20 * 10**9), (2e10, 2 * 10**10)],
)
def test_a_size_is_bytes_or_a_quantity(size: Any, bytes_asked: int) -> None:
    placed = [node("n1", gib=4096), volume(), replica("r1", "n1")]
    assert bytes_asked - 10 * 2**30 == saved.expand(placed, size)["disks"][0]["growth"]


@pytest.mark.parametrize("size", ["-1Gi", "+50Gi", "20 Gi", "20GB", "", "8Ei", "1e400", "9223372036854775808", [], "x"])
def test_another_size_is_refused(size: Any) -> None:
    assert ("", "question.expand.size") == _where(problem(question={"expand": {"volume": "v", "size": size}}))


def test_without_a_size_an_expansion_tells_how_far_the_volume_may_grow() -> None:
    placed = [node("n1"), volume(), replica("r1", "n1")]
    found = saved.ask(placed, {"expand": {"volume": "v"}})
    assert saved.ask(placed, {"expand": {"volume": "v", "size": "10Gi"}}) == found
    assert (0, True) == (found["disks"][0]["growth"], found["largestSize"] > 10 * GIB)


def claimed(volume_name: str = "pv", driver: str = "driver.longhorn.io") -> list[Raw]:
    claim = core("PersistentVolumeClaim", "data", "shop", spec={"volumeName": volume_name} if volume_name else {})
    csi = {"driver": driver, "volumeHandle": "v"}
    return [node("n1"), volume(), replica("r1", "n1"), claim, core("PersistentVolume", "pv", spec={"csi": csi})]


def test_a_volume_to_grow_is_also_known_by_its_claim() -> None:
    found = saved.ask(claimed(), {"expand": {"claim": "shop/data", "size": "20Gi"}})
    assert saved.ask(claimed(), {"expand": {"volume": "v", "size": "20Gi"}}) == found


@pytest.mark.parametrize(
    ("objects", "question", "problem_told"),
    [
        (claimed(), {"claim": "data"}, "there is no PersistentVolumeClaim data; it is written namespace/name"),
        (claimed(), {"claim": "shop/data", "volume": "v"}, "stands there beside volume"),
        (claimed(volume_name=""), {"claim": "shop/data"}, "shop/data has no volume yet"),
        (claimed(volume_name="other"), {"claim": "shop/data"}, "there is no PersistentVolume other of shop/data"),
        (claimed(driver="ebs.csi.aws.com"), {"claim": "shop/data"}, "the volume of shop/data is not Longhorn's"),
        (claimed(), {"claim": ""}, "is missing"),
    ],
)
def test_a_claim_that_leads_to_no_volume_is_refused(objects: list[Raw], question: Raw, problem_told: str) -> None:
    found = problem(objects, {"expand": question})
    assert ("question.expand.claim", problem_told) == (found.field_name, found.problem)


@pytest.mark.parametrize(
    ("objects", "size", "remarks"),
    [
        (
            [volume(numberOfReplicas=1)],
            "20Gi",
            ["question.expand: no Replica of it in objects, so that no other disk is asked: v"],
        ),
        (
            [volume(numberOfReplicas=2), replica("r1", "n1")],
            "20Gi",
            ["question.expand: 1 of its 2 Replicas in objects, so that no other disk is asked: v"],
        ),
        (
            [volume(), replica("r1", "n1")],
            "5Gi",
            ["question.expand: 5 GiB is less than the present 10 GiB, so that nothing grows"],
        ),
        ([volume(), replica("r1", "n1")], "20Gi", []),
    ],
)
def test_what_makes_an_expansion_easier_than_it_is_is_told(objects: list[Raw], size: str, remarks: list[str]) -> None:
    notes, question = Notes(), {"expand": {"volume": "v", "size": size}}
    assert answer({"objects": [node("n1"), *objects], "question": question}, datetime.now(UTC), notes)
    assert remarks == notes.lines()


def test_objects_without_a_question_are_told_from_a_document() -> None:
    with pytest.raises(InputError) as caught:
        answer({"apiVersion": "v1", "kind": "List", "items": world()}, datetime.now(UTC))
    assert "objects: is missing; what kubectl prints stands below it, beside a question" == str(caught.value)


def test_more_replicas_than_a_volume_has_are_refused() -> None:
    question = {"schedule": {"volume": "v", "replicas": ["r1"] * (MOST_REPLICAS + 1)}}
    assert ("", "question.schedule.replicas") == _where(problem(question=question))


@pytest.mark.parametrize(
    ("now", "is_moment"),
    [
        ("0001-01-01T00:00:00Z", True),
        ("0001-01-01T00:00:00-14:00", True),
        ("9999-12-31T23:59:59+14:00", True),
        ("0001-01-01T00:00:00+00:01", False),
        ("9999-12-31T23:59:59-00:01", False),
        ("0000-01-01T00:00:00Z", False),
        ("2026-01-01T00:00:00+24:00", False),
    ],
)
def test_now_is_a_moment_of_the_years_1_to_9999_in_utc(now: str, is_moment: bool) -> None:
    degraded = volume(status={"robustness": "degraded", "lastDegradedAt": "0001-01-01T00:00:00+14:00"})
    objects = [node("n1"), degraded, replica("r1")]
    if is_moment:
        assert saved.schedule(objects, "r1", now=now)
    else:
        assert ("", "now") == _where(problem(objects, now=now))


def test_an_empty_schedule_has_no_steps() -> None:
    assert [] == saved.schedule(world())


@pytest.mark.parametrize("objects", [None, "x", 5])
def test_objects_are_needed(objects: Any) -> None:
    with pytest.raises(InputError) as caught:
        saved.ask(objects, QUESTION)
    assert "objects" == caught.value.field_name
