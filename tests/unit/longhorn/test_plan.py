"""Questions about saved objects to the stand-in: answers, their order, and what is said of bad input."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.longhorn import plan
from tests.longhorn.checked import InputError
from tests.unit.longhorn import worlds
from tests.unit.longhorn.worlds import Raw, disk

MIB = 1024**2


def full(kind: str, raw: Raw) -> Raw:
    return {"apiVersion": "longhorn.io/v1beta2", "kind": kind, **raw}


def node(name: str, *disks: tuple[Raw, Raw], **options: Any) -> Raw:
    return full("Node", worlds.node(name, *disks, **options))


def volume(size: int = 100, **spec: Any) -> Raw:
    return full("Volume", worlds.volume(size, **spec))


def replica(name: str, place: str = "", size: int = 100, **spec: Any) -> Raw:
    return full("Replica", worlds.replica(name, place, size=size, **spec))


def schedule(objects: list[Raw], *replicas: str, **more: Any) -> list[dict[str, Any]]:
    question = {"schedule": {"volume": "v", "replicas": list(replicas)}}
    steps: list[dict[str, Any]] = plan.answer({"objects": objects, "question": question, **more})["steps"]
    return steps


def expand(objects: list[Raw], size: int, **more: Any) -> dict[str, Any]:
    return plan.answer({"objects": objects, "question": {"expand": {"volume": "v", "size": size}}, **more})


def test_a_step_tells_choice_candidates_and_refusals_in_order() -> None:
    objects = [
        node("b"),
        node("a", disk(), disk()),
        node("c", disk(available=0), ready="False"),
        volume(),
        replica("r"),
    ]
    (step,) = schedule(objects, "r")
    places = [
        {"node": name, "disk": where, "diskUUID": f"{name}-{where}"}
        for name, where in (("a", "d1"), ("a", "d2"), ("b", "d1"))
    ]
    assert places == step["candidates"]
    assert "r" == step["replica"]
    assert step["scheduled"] in places
    assert [("c", "", "nodes are unavailable")] == [(e["node"], e["disk"], e["reason"]) for e in step["refusals"]]


def test_earlier_picks_are_kept_and_figures_are_not_refreshed() -> None:
    objects = [node("a", disk(250)), volume(), *(replica(f"r{number}") for number in range(3))]
    shared = {"replica-soft-anti-affinity": "true"}
    steps = schedule(objects, "r0", "r1", "r2", settings=shared)
    assert [True, True, False] == [bool(step["scheduled"]) for step in steps]
    assert "size 100 + scheduled 200 > limit 250" == steps[2]["refusals"][0]["message"]
    assert "" == objects[2]["spec"]["nodeID"]  # what was given stays as it was


def test_an_earlier_pick_counts_with_the_size_of_its_own_replica() -> None:
    objects = [node("a", disk(250)), volume(), replica("r0", size=151), replica("r1")]
    _, step = schedule(objects, "r0", "r1", settings={"replica-soft-anti-affinity": "true"})
    assert "size 100 + scheduled 151 > limit 250" == step["refusals"][0]["message"]


def test_three_replicas_go_to_three_nodes() -> None:
    objects = [*(node(name) for name in "abc"), volume(), *(replica(f"r{number}") for number in range(4))]
    steps = schedule(objects, "r0", "r1", "r2", "r3")
    assert {"a", "b", "c"} == {step["scheduled"]["node"] for step in steps[:3]}
    assert (None, [], []) == (steps[3]["scheduled"], steps[3]["candidates"], steps[3]["refusals"])


def test_a_best_effort_volumes_candidates_are_those_of_its_node() -> None:
    objects = [node("a"), node("b"), volume(dataLocality="best-effort", nodeID="b"), replica("r1"), replica("r2")]
    first, second = schedule(objects, "r1", "r2")
    assert ["b"] == [entry["node"] for entry in first["candidates"]]
    assert "a" == second["scheduled"]["node"]


def test_equal_candidates_go_by_name() -> None:
    objects = [node("b"), node("a"), volume(), replica("r")]
    assert "a" == schedule(objects, "r")[0]["scheduled"]["node"]


def test_settings_given_win_over_setting_objects() -> None:
    setting = full("Setting", {"metadata": {"name": "storage-over-provisioning-percentage"}, "value": "200"})
    objects = [node("a", disk(100)), volume(150), replica("r"), setting]
    assert schedule(objects, "r")[0]["scheduled"]
    assert not schedule(objects, "r", settings={"storage-over-provisioning-percentage": 149})[0]["scheduled"]


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (replica("r", "a-d1"), "replica already scheduled"),
        (replica("r", failedAt="2026-01-01T00:00:00Z"), "unused failed replica is not supported"),
    ],
)
def test_a_replica_that_longhorn_does_not_schedule(broken: Raw, reason: str) -> None:
    (step,) = schedule([node("a"), volume(), broken], "r")
    assert (None, [reason]) == (step["scheduled"], [entry["reason"] for entry in step["refusals"]])


def test_engine_images_and_instance_managers_count_where_any_is_given() -> None:
    image = full("EngineImage", {"metadata": {"name": "ei"}, "spec": {"image": "e"}, "status": {"state": "deployed"}})
    objects = [node("a"), volume(image="e"), replica("r")]
    assert schedule(objects, "r")[0]["scheduled"]
    image["status"]["nodeDeploymentMap"] = {"a": False}
    assert not schedule([*objects, image], "r")[0]["scheduled"]
    manager = full("InstanceManager", {"metadata": {"name": "im"}, "spec": {"nodeID": "b", "dataEngine": "v1"}})
    assert not schedule([*objects, manager], "r")[0]["scheduled"]


def test_a_linked_clone_follows_the_replicas_of_its_source() -> None:
    source = full("Volume", {"metadata": {"name": "src"}, "spec": {"size": "100"}})
    objects = [node("a"), node("b"), source, replica("s", "b-d1", volumeName="src"), replica("r")]
    for origin in ("vol://src", "snap://src/one"):
        clone = volume(dataSource=origin, cloneMode="linked-clone")
        assert ["b"] == [entry["node"] for entry in schedule([*objects, clone], "r")[0]["candidates"]]


def test_the_replacement_of_a_failed_replica_depends_on_the_given_time() -> None:
    status = {"robustness": "degraded", "lastDegradedAt": "2026-01-01T00:00:00Z"}
    objects = [node("a"), volume(status=status), replica("old", "a-d1", failedAt="2026-01-01T00:00:00Z"), replica("r")]
    assert not schedule(objects, "r", now="2026-01-01T00:10:00Z")[0]["scheduled"]
    assert schedule(objects, "r", now="2026-01-01T00:10:01Z")[0]["scheduled"]


# Expansion


def test_growth_counts_once_for_each_replica_on_a_disk() -> None:
    objects = [node("a", disk(1000 * MIB)), node("b", disk(1000 * MIB)), volume(100 * MIB)]
    objects += [replica("r1", "a-d1"), replica("r2", "a-d1", failedAt="2026-01-01T00:00:00Z"), replica("r3", "b-d1")]
    objects += [replica("r4")]
    answer = expand(objects, 110 * MIB)
    assert answer["admitted"] is True
    assert [("a", 20 * MIB, ""), ("b", 10 * MIB, "")] == [
        (e["node"], e["growth"], e["reason"]) for e in answer["disks"]
    ]
    # 75 % of 1000 MiB may fill physically; two replicas share them on a: 375 MiB each, and 374 is a multiple of two.
    assert (100 + 374) * MIB == answer["largestSize"]


def test_one_disk_refuses_for_all() -> None:
    objects = [node("a", disk(1000)), node("b", disk(1000, available=200)), volume(100)]
    answer = expand([*objects, replica("r1", "a-d1"), replica("r2", "b-d1")], 101)
    assert answer["admitted"] is False
    assert ["", "insufficient storage"] == [entry["reason"] for entry in answer["disks"]]
    assert 100 == answer["largestSize"]


@pytest.mark.parametrize(("size", "expected"), [(850, True), (851, False)])
def test_the_last_byte_of_growth(size: int, expected: bool) -> None:
    assert expected == expand([node("a", disk(1000)), volume(100), replica("r", "a-d1")], size)["admitted"]


def test_a_replica_on_an_unknown_disk_refuses_growth() -> None:
    answer = expand([node("a"), volume(), replica("r", "a-d9")], 200)
    assert (False, ["disk not found"]) == (answer["admitted"], [entry["reason"] for entry in answer["disks"]])


def test_a_volume_without_placed_replicas_may_grow() -> None:
    answer = expand([node("a"), volume(), replica("r")], 2**62)
    assert (True, []) == (answer["admitted"], answer["disks"])
    assert 0 == answer["largestSize"] % (2 * MIB)
    assert 2**63 - 2 * MIB == answer["largestSize"]


def test_the_largest_size_is_admitted_and_the_next_is_not() -> None:
    for available, reserved, scheduled in ((900, 0, 100), (700, 50, 600), (990, 300, 100)):
        entry = disk(1000 * MIB + 1, available=available * MIB, reserved=reserved * MIB, scheduled=scheduled * MIB)
        objects = [node("a", entry), volume(100 * MIB), replica("r", "a-d1")]
        largest = expand(objects, 100 * MIB)["largestSize"]
        assert largest > 100 * MIB
        assert expand(objects, largest)["admitted"]
        assert not expand(objects, largest + 2 * MIB)["admitted"]


# Bad input


def broken(kind: str, path: str, value: Any) -> list[Raw]:
    objects = [node("a"), volume(), replica("r")]
    found: Any = next(raw for raw in objects if raw["kind"] == kind)
    *keys, last = path.split(".")
    for key in keys:
        found = found[key]
    found[last] = value
    return objects


@pytest.mark.parametrize(
    ("kind", "path", "value"),
    [
        ("Node", "spec.allowScheduling", ""),
        ("Node", "spec.tags", ["a", 1]),
        ("Node", "spec.disks", []),
        ("Node", "spec.disks.d1", "x"),
        ("Node", "spec.disks.d1.storageReserved", -1),
        ("Node", "spec.disks.d1.diskType", "tape"),
        ("Node", "status.diskStatus.d1.storageMaximum", "400"),
        ("Node", "status.diskStatus.d1.storageMaximum", 2**63),
        ("Node", "status.diskStatus.d1.storageAvailable", 1.5),
        ("Node", "status.diskStatus.d1.scheduledReplica", ["r"]),
        ("Volume", "spec.size", 100),
        ("Volume", "spec.size", "-100"),
        ("Volume", "spec.size", "1Gi"),
        ("Volume", "spec.size", str(2**63)),
        ("Volume", "spec.size", None),
        ("Volume", "spec.dataLocality", ""),
        ("Volume", "spec.replicaSoftAntiAffinity", "sometimes"),
        ("Volume", "spec.nodeSelector", "fast"),
        ("Volume", "status.actualSize", -1),
        ("Volume", "status.lastDegradedAt", "yesterday"),
        ("Replica", "spec.volumeName", ""),
        ("Replica", "spec.volumeSize", ""),
        ("Replica", "spec.evictionRequested", "no"),
        ("Replica", "spec.rebuildRetryCount", True),
    ],
)
def test_a_bad_field_is_named_with_its_object(kind: str, path: str, value: Any) -> None:
    with pytest.raises(InputError) as caught:
        schedule(broken(kind, path, value), "r")
    name = {"Node": "a", "Volume": "v", "Replica": "r"}[kind]
    assert str(caught.value).startswith(f"{kind} {name}: {path}"), caught.value


def test_a_bad_list_entry_is_named_by_its_place() -> None:
    objects = broken("Node", "status.conditions", [{"type": "Ready", "status": "True"}, {"type": "x", "status": "yes"}])
    with pytest.raises(InputError, match=r"Node a: status\.conditions\[1\]\.status: 'yes'"):
        schedule(objects, "r")


def test_a_uuid_on_two_disks_is_refused() -> None:
    objects = [*broken("Node", "status.diskStatus.d1.diskUUID", "b-d1"), node("b")]
    with pytest.raises(InputError, match=r"Node b: status\.diskStatus\.d1\.diskUUID: b-d1 is also that of disk d1 of"):
        schedule(objects, "r")


@pytest.mark.parametrize(
    ("document", "named"),
    [
        ([], "the document"),
        ({}, "objects"),
        ({"objects": [3]}, r"objects\[0\]"),
        ({"objects": [{"metadata": {"name": "a"}}]}, "apiVersion"),
        ({"objects": [{"apiVersion": "v1", "kind": "Node"}]}, r"metadata\.name"),
        ({"objects": [], "question": {"fit": {}}}, "question"),
        ({"objects": [], "question": {"schedule": []}}, r"question\.schedule"),
        ({"objects": [], "question": {"schedule": {}}}, r"question\.schedule\.volume"),
        ({"objects": [], "question": {"schedule": {"volume": "v"}}}, "there is no Volume v"),
        ({"objects": [volume()], "question": {"schedule": {"volume": "v"}}}, r"question\.schedule\.replicas"),
        ({"objects": [volume()], "question": {"schedule": {"volume": "v", "replicas": ["r"]}}}, "no Replica r"),
        ({"objects": [volume()], "question": {"expand": {"volume": "v"}}}, r"question\.expand\.size"),
        ({"objects": [volume()], "question": {"expand": {"volume": "v", "size": -1}}}, r"question\.expand\.size"),
        ({"objects": [volume(), volume()]}, "Volume v: metadata.name"),
        ({"objects": [], "now": "noon"}, "now"),
        ({"objects": [], "now": "2026-01-01T00:00:00"}, "now"),
        ({"objects": [], "settings": []}, "settings"),
        ({"objects": [], "settings": {"a": [1]}}, r"settings\.a"),
        ({"objects": [], "wishes": 3}, "wishes"),
    ],
)
def test_a_bad_document_names_its_part(document: Any, named: str) -> None:
    with pytest.raises(InputError, match=named):
        plan.answer(document)


@pytest.mark.parametrize(
    ("name", "value"), [("storage-minimal-available-percentage", "a lot"), ("replica-soft-anti-affinity", "")]
)
def test_a_setting_that_does_not_parse_is_named(name: str, value: str) -> None:
    with pytest.raises(InputError, match=f"setting {name}"):
        schedule([node("a", disk(available=0), zone="z"), volume(), replica("r")], "r", settings={name: value})


def test_other_kinds_and_lists_of_objects_are_read() -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}
    listed = {"apiVersion": "v1", "kind": "List", "items": [node("a"), replica("r")]}
    assert schedule([listed, pod, volume()], "r")[0]["scheduled"]


# The command


def run(path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.longhorn.plan", *options, str(path)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


DOCUMENT = {
    "objects": [node("a"), volume(), replica("r")],
    "question": {"schedule": {"volume": "v", "replicas": ["r"]}},
}


def test_the_command_answers_a_file(tmp_path: Path) -> None:
    file = tmp_path / "question.json"
    file.write_text(json.dumps(DOCUMENT))
    done = run(file)
    assert (0, "") == (done.returncode, done.stderr)
    assert plan.answer(DOCUMENT) == json.loads(done.stdout)


def test_the_command_exits_2_and_names_the_field(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "question.yaml"
    file.write_text("objects: [{apiVersion: longhorn.io/v1beta2, kind: Volume, metadata: {name: v}, spec: {size: 3}}]")
    assert 2 == plan.main([str(file)])
    assert f"{file}: Volume v: spec.size: 3 is not a string of digits\n" == capsys.readouterr().err
    file.write_text("a: [")
    assert 2 == plan.main([str(file)])
    assert 2 == plan.main([str(tmp_path / "absent")])


def test_a_bad_line_does_not_end_the_lines(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    good = json.dumps(DOCUMENT)
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{good}\n\n{{\n{{}}\n{'[' * 100_000}\n{good}\n"))
    assert 0 == plan.main(["--lines", "-"])
    first, *bad, last = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert plan.answer(DOCUMENT) == first == last
    assert ["error"] * 3 == [key for line in bad for key in line]


def test_a_replica_may_be_smaller_than_its_volume_when_a_disk_is_chosen() -> None:
    objects = [node("a", disk(100, scheduled=60)), node("b", disk(100, scheduled=50)), volume(60)]
    overcommitted = {"storage-over-provisioning-percentage": "200"}
    small, large = replica("new", size=30), replica("new", size=60)
    (step,) = schedule([*objects, small], "new", settings=overcommitted)
    assert step["scheduled"]["node"] == "b"
    (step,) = schedule([*objects, large], "new", settings=overcommitted)
    assert step["scheduled"]["node"] == "a"  # none has so much left: by name


def test_without_its_backing_image_a_volume_has_no_place() -> None:
    (step,) = schedule([node("a"), volume(backingImage="image"), replica("new")], "new")
    assert (step["scheduled"], [entry["reason"] for entry in step["refusals"]]) == (
        None,
        ["longhorn client operation failed"],
    )


def test_settings_that_do_not_parse_are_refused_though_nobody_comes_to_read_them() -> None:
    settings = {"replica-replenishment-wait-interval": "soon"}
    with pytest.raises(InputError, match="replica-replenishment-wait-interval: 'soon' is not a whole number"):
        schedule([node("a"), volume(), replica("new")], "new", settings=settings)
