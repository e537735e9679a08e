"""Questions about saved objects: what is read of them, and what is said of bad ones."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from controller.plan.command import answer
from controller.plan.complaints import InputError, Notes
from tests.fakes import saved
from tests.fakes.builders import GIB
from tests.fakes.saved import Raw, core, longhorn, node, replica, setting, storage_class, volume

QUESTION = {"schedule": {"volume": "v", "replicas": ["r1"]}}


def world(*more: Raw) -> list[Raw]:
    return [node("n1"), volume(), replica("r1"), *more]


def problem(document: Any) -> InputError:
    with pytest.raises(InputError) as caught:
        answer(document, datetime.now(UTC))
    return caught.value


def refused(*objects: Raw, **parts: Any) -> tuple[str, str]:
    """The object and the field that a complaint about a document with these objects and parts names."""
    found = problem({"objects": world(*objects), "question": QUESTION, **parts})
    return found.object_name, found.field_name


# Objects


def test_a_whole_number_may_be_written_as_a_float() -> None:
    large = node("n1", disks={"d1": {"status": {"storageMaximum": 1e11}}})
    assert ["n1/d1"] == saved.places(saved.schedule([large, volume(), replica("r1")], "r1")[0])


NO_OTHER = "in objects, so that no other disk is asked: v"
LIST = {"apiVersion": "v1", "kind": "List"}
POD = core("Pod", "p", "ns")


@pytest.mark.parametrize(
    ("objects", "where"),
    [
        ([{"kind": "Node", "metadata": {"name": "x"}}], ("", "objects[3].apiVersion")),
        ([{"apiVersion": "v1", "metadata": {"name": "x"}}], ("", "objects[3].kind")),
        ([{"apiVersion": "v1", "kind": 5}], ("", "objects[3].kind")),
        ([{"apiVersion": "", "kind": "Node"}], ("", "objects[3].apiVersion")),
        (["Node"], ("", "objects[3]")),
        ([{**LIST, "items": [3]}], ("", "objects[3].items[0]")),
        ([{**LIST, "items": {}}], ("", "objects[3].items")),
        ([{**node("n9"), "apiVersion": "longhorn.io/v1beta1"}], ("Node longhorn-system/n9", "apiVersion")),
        ([volume()], ("Volume longhorn-system/v", "metadata.name")),
        ([POD, POD], ("Pod ns/p", "metadata.name")),
        ([core("Pod", name, "ns", metadata={"uid": "u"}) for name in ("p", "q")], ("Pod ns/q", "metadata.uid")),
    ],
)  # fmt: skip
def test_a_bad_object_is_named_or_its_place(objects: list[Any], where: tuple[str, str]) -> None:
    assert where == refused(*objects)


def test_disks_that_share_a_uuid_are_told_and_not_refused() -> None:
    """As on nodes that were cloned."""
    notes, clones = Notes(), [node(name, disks={"d": {"status": {"diskUUID": "same"}}}) for name in ("n8", "n9")]
    document = {"objects": world(*clones), "question": QUESTION}
    (step,) = answer(document, datetime.now(UTC), notes)["steps"]
    assert {"n1", "n8", "n9"} == {one["node"] for one in step["candidates"]}
    counts = "so that what lies on one counts on all, and two of one node take nothing"
    told = f"disks have the same UUID same, {counts}: d of n8, d of n9"
    assert [told] == notes.lines()


def test_what_only_looks_like_a_bad_object_is_none() -> None:
    pod = core("Pod", "p", "other", metadata={"uid": "u"})
    claim = core("PersistentVolumeClaim", "c", "ns", metadata={"uid": "u"})
    disks = [node(name, disks={"d1": {"status": {"diskUUID": ""}}}) for name in ("n2", "n3")]
    namesakes = [core("Node", "n1"), core("PersistentVolume", "n1"), POD]
    assert ["n1/d1"] == saved.places(saved.schedule(world(pod, claim, *disks, *namesakes), "r1")[0])


# Each of them: what it is read as by those who look away, and what is refused by those who do not.
SLIPS: list[tuple[Raw, tuple[str, str]]] = [
    ({"objects": world({**node("n9"), "apiVersion": "longhorn/v1beta2"})}, ("Node longhorn-system/n9", "apiVersion")),
    ({"objects": world({**volume("w"), "apiVersion": "v1"})}, ("Volume longhorn-system/w", "apiVersion")),
    ({"objects": world({**node("n9"), "kind": "Nodes"})}, ("Nodes longhorn-system/n9", "kind")),
    ({"objects": world({**node("n9"), "kind": "node"})}, ("node longhorn-system/n9", "kind")),
    ({"objects": world({**storage_class("s"), "kind": "StorageClas"})}, ("StorageClas s", "kind")),
    (
        {"objects": world(setting("replica-soft-antiaffinity", "true"))},
        ("Setting longhorn-system/replica-soft-antiaffinity", "metadata.name"),
    ),
    ({"settings": {"replica-soft-antiaffinity": "true"}}, ("", "settings.replica-soft-antiaffinity")),
    ({"settings": {"node-drain-policy": "always-allow"}}, ("", "settings.node-drain-policy")),
    ({"longhornVersion": "1.11.2"}, ("", "longhornVersion")),
    ({"objects": world({**node("n9"), "apiVersion": "longhorn.oi/v1"})}, ("Node longhorn-system/n9", "apiVersion")),
]


@pytest.mark.parametrize(("parts", "where"), SLIPS)
def test_what_could_only_be_passed_over_is_refused_unless_that_is_asked_for(parts: Raw, where: tuple[str, str]) -> None:
    document = {"objects": world(), "question": QUESTION, **parts}
    found, notes = problem(document), Notes(is_lenient=True)
    assert where == (found.object_name, found.field_name)
    assert ["n1/d1"] == saved.places(answer(document, datetime.now(UTC), notes)["steps"][0])
    assert any(said.startswith(str(found)) for said in notes.lines())


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
        {"apiVersion": "velero.io/v1", "kind": "Backup", "metadata": {"name": "b"}},
        {"apiVersion": "management.cattle.io/v3", "kind": "Setting", "metadata": {"name": "s"}, "value": "x"},
        {"apiVersion": "management.cattle.io/v3", "kind": "Node", "metadata": {"name": "n1"}},
    ],
)
def test_what_a_cluster_has_besides_is_no_slip(raw: Raw) -> None:
    assert ["n1/d1"] == saved.places(saved.schedule(world(raw), "r1")[0])


NODES = {"apiVersion": "longhorn.io/v1beta2", "kind": "NodeList"}
UNTYPED = {part: value for part, value in node("n1").items() if part not in ("apiVersion", "kind")}


@pytest.mark.parametrize(
    "objects",
    [
        {**LIST, "items": world()},
        [{**LIST, "items": [{**LIST, "items": world()}]}],
        [{**NODES, "items": [UNTYPED]}, volume(), replica("r1"), {**LIST, "kind": "PodList", "items": None}],
    ],
)
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
        ({"default-replica-count": {"v1": []}}, "settings.default-replica-count.v1"),
        ({"default-replica-count": {"v1": {"v1": {"v1": "3"}}}}, "settings.default-replica-count.v1"),
        ({"default-replica-count": 10**400}, "settings.default-replica-count"),
        ({"default-replica-count": {"v1": "many"}}, "settings.default-replica-count"),
    ],
)
def test_a_setting_that_does_not_parse_is_named(given: Any, field: str) -> None:
    assert ("", field) == refused(settings=given)


def test_a_bad_setting_object_does_no_harm_when_another_value_wins() -> None:
    objects = world(setting("replica-auto-balance", "sometimes"))
    assert saved.schedule(objects, "r1", settings={"replica-auto-balance": "disabled"})


# Questions


FIT = {"pod": "ns/p", "nodes": []}
BAD_SIZES: list[Any] = ["-1Gi", "+50Gi", "20 Gi", "20GB", "", "8Ei", "1e400", "9223372036854775808", [], "x"]
PROMISE = {"node": "n1", "volume": "w", "size": 1}


@pytest.mark.parametrize(
    ("parts", "field"),
    [
        ({"question": []}, "question"),
        ({"question": {**QUESTION, "expand": {"volume": "v", "size": 1}}}, "question"),
        ({"question": {"schedule": {"volume": 7, "replicas": []}}}, "question.schedule.volume"),
        ({"question": {"shrink": {"volume": "v", "size": 1}}}, "question"),
        ({"question": {"schedule": {"volume": "v", "replicas": ["r1", "r9"]}}}, "question.schedule.replicas[1]"),
        ({"question": {"schedule": {"volume": "v", "replicas": ["r1", "other"]}}}, "question.schedule.replicas[1]"),
        ({"question": {"schedule": {"volume": "v", "replicas": [], "node": "n1"}}}, "question.schedule.node"),
        ({"question": {"schedule": {"volume": "v", "replicas": ["r1"] * 101}}}, "question.schedule.replicas"),
        ({"question": {"expand": {"volume": "v", "size": 2**63}}}, "question.expand.size"),
        ({"question": {"expand": {"volume": "v", "size": True}}}, "question.expand.size"),
        ({"question": {"fit": {"nodes": ["n1"]}}}, "question.fit.pod"),
        ({"question": {"fit": {**FIT, "pod": "ns/q"}}}, "question.fit.pod"),
        ({"question": {"fit": {**FIT, "pod": "p"}}}, "question.fit.pod"),
        ({"question": {"fit": {"pod": "ns/p"}}}, "question.fit.nodes"),
        ({"question": {"fit": {**FIT, "nodes": ["n1", "n9"]}}}, "question.fit.nodes[1]"),
        ({"question": {"fit": {**FIT, "promises": {}}}}, "question.fit.promises"),
        ({"question": {"fit": {**FIT, "promises": [1]}}}, "question.fit.promises[0]"),
        ({"question": {"fit": {**FIT, "promises": [{"node": "n1"}]}}}, "question.fit.promises[0].volume"),
        ({"question": {"fit": {**FIT, "promises": [{**PROMISE, "node": "n9"}]}}}, "question.fit.promises[0].node"),
        ({"question": {"fit": {**FIT, "promises": [{**PROMISE, "size": -1}]}}}, "question.fit.promises[0].size"),
        ({"question": {"fit": {**FIT, "promises": [{**PROMISE, "of": "x"}]}}}, "question.fit.promises[0].of"),
        ({"questions": {}, "question": None}, "questions"),
        ({"questions": [QUESTION, {"expand": {"volume": "w", "size": 1}}], "question": None},
         "questions[1].expand.volume"),
        ({"questions": [QUESTION]}, "question"),
        ({"questions": [QUESTION] * 10_001, "question": None}, "questions"),
        ({"questions": [None], "question": None}, "questions[0]"),
        *(({"question": {"expand": {"volume": "v", "size": size}}}, "question.expand.size") for size in BAD_SIZES),
        *(({"objects": objects}, "objects") for objects in (None, "x", 5)),
        *(({"now": now}, "now") for now in ("0001-01-01T00:00:00+00:01", "9999-12-31T23:59:59-00:01",
                                            "0000-01-01T00:00:00Z", "2026-01-01T00:00:00+24:00", "")),
    ],
)  # fmt: skip
def test_a_bad_part_is_refused_with_the_field(parts: Raw, field: str) -> None:
    """The volume `other-volume` has a Replica, which is none of `v`."""
    assert ("", field) == refused(POD, volume("other-volume"), replica("other", of="other-volume"), **parts)


def test_questions_share_one_set_of_objects() -> None:
    expand, nothing = {"expand": {"volume": "v", "size": "20Gi"}}, {"schedule": {"volume": "v", "replicas": []}}
    found = answer({"objects": world(), "questions": [QUESTION, expand, nothing]}, datetime.now(UTC))
    assert [saved.ask(world(), QUESTION), saved.ask(world(), expand), {"steps": []}] == found["answers"]
    assert {"answers": []} == answer({"objects": world(), "questions": []}, datetime.now(UTC))


@pytest.mark.parametrize(
    ("size", "bytes_asked"),
    [("20Gi", 20 * 2**30), ("21474836480", 20 * 2**30), ("1.5Ti", 3 * 2**39), ("20G", 20 * 10**9), (2e10, 2 * 10**10)],
)
def test_a_size_is_bytes_or_a_quantity(size: Any, bytes_asked: int) -> None:
    placed = [node("n1", gib=4096), volume(), replica("r1", "n1")]
    assert bytes_asked - 10 * 2**30 == saved.expand(placed, size)["disks"][0]["growth"]


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
    found = problem({"objects": objects, "question": {"expand": question}})
    assert ("question.expand.claim", problem_told) == (found.field_name, found.problem)


@pytest.mark.parametrize(
    ("objects", "size", "remark"),
    [
        ([volume(numberOfReplicas=1)], "20Gi", f"question.expand: no Replica of it {NO_OTHER}"),
        ([volume(numberOfReplicas=2), replica("r1", "n1")], "20Gi", f"question.expand: 1 of its 2 Replicas {NO_OTHER}"),
        ([volume(), replica("r1", "n1")], "5Gi",
         "question.expand: 5 GiB is less than the present 10 GiB, so that nothing grows"),
        ([volume(numberOfReplicas=1), replica("r1", "n1")], "10Gi", None),
    ],
)  # fmt: skip
def test_what_makes_an_expansion_easier_than_it_is_is_told(objects: list[Raw], size: str, remark: str | None) -> None:
    notes, question = Notes(), {"expand": {"volume": "v", "size": size}}
    assert answer({"objects": [node("n1"), *objects], "question": question}, datetime.now(UTC), notes)
    assert [remark] * (remark is not None) == notes.lines()


def test_objects_without_a_question_are_told_from_a_document() -> None:
    found = problem({"apiVersion": "v1", "kind": "List", "items": world()})
    assert "objects: is missing; what kubectl prints stands below it, beside a question" == str(found)


@pytest.mark.parametrize("now", ["0001-01-01T00:00:00Z", "0001-01-01T00:00:00-14:00", "9999-12-31T23:59:59+14:00"])
def test_now_is_a_moment_of_the_years_1_to_9999_in_utc(now: str) -> None:
    degraded = volume(status={"robustness": "degraded", "lastDegradedAt": "0001-01-01T00:00:00+14:00"})
    assert saved.schedule([node("n1"), degraded, replica("r1")], "r1", now=now)
