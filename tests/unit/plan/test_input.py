"""Questions about saved objects: what is read of them, and what is said of bad ones."""

from __future__ import annotations

from typing import Any

import pytest

from controller.plan.objects import InputError
from tests.fakes import saved
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
        ("share", ("", "true"), ("shared",)),
        ("migratable", ("false",), ("2",)),
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


def test_a_longhorn_node_in_another_group_is_another_kind() -> None:
    assert ["n1/d1"] == saved.places(saved.schedule(world({**node("n9"), "apiVersion": "example.io/v1"}), "r1")[0])


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


def test_an_empty_schedule_has_no_steps() -> None:
    assert [] == saved.schedule(world())


@pytest.mark.parametrize("objects", [None, "x", 5])
def test_objects_are_needed(objects: Any) -> None:
    with pytest.raises(InputError) as caught:
        saved.ask(objects, QUESTION)
    assert "objects" == caught.value.field_name
