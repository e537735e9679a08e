"""Where Longhorn's releases differ, the stand-in differs as well: both sides of each boundary."""

from __future__ import annotations

from typing import Any

import pytest

from tests.longhorn import plan
from tests.longhorn.checked import InputError
from tests.longhorn.release import NEWEST, at_least, release_of
from tests.unit.longhorn.test_plan import node, replica, volume
from tests.unit.longhorn.worlds import Raw, disk


def schedule(objects: list[Raw], version: str | None, **settings: str) -> tuple[list[str], str]:
    """The candidates' and the chosen disk's UUIDs for replica `new`."""
    question = {"schedule": {"volume": "v", "replicas": ["new"]}}
    document: dict[str, Any] = {"objects": objects, "question": question, "longhornVersion": version}
    document["settings"] = {name.replace("_", "-"): value for name, value in settings.items()}
    step = plan.answer(document)["steps"][0]
    return [entry["diskUUID"] for entry in step["candidates"]], (step["scheduled"] or {}).get("diskUUID", "")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("v1.12.1", (1, 12, 1)),
        ("v1.13.0-dev", (1, 13, 0)),
        ("v1.10.2-hotfix-3", (1, 10, 2)),
        ("1.10.2", None),
        ("v1.10", None),
        ("master-head", None),
        ("", None),
    ],
)
def test_a_version_is_three_numbers_and_any_suffix(text: str, expected: tuple[int, int, int] | None) -> None:
    assert expected == release_of(text)


def test_an_unknown_release_is_as_the_newest() -> None:
    assert at_least(None, NEWEST)
    assert not at_least((1, 9, 3), (1, 10, 0))
    with pytest.raises(InputError, match=r"longhornVersion: 1\.9 is not a string"):
        plan.answer({"objects": [], "longhornVersion": 1.9})


@pytest.mark.parametrize(("version", "expected"), [("v1.9.3", ["a-d1", "b-d1"]), ("v1.10.0", ["a-d1"])])
def test_best_effort_volumes_stay_near_since_1_10_0(version: str, expected: list[str]) -> None:
    objects = [node("a"), node("b"), volume(dataLocality="best-effort", nodeID="a"), replica("new")]
    assert expected == schedule(objects, version)[0]


@pytest.mark.parametrize(
    ("version", "expected"), [("v1.9.0", ["a-d2"]), ("v1.10.1", ["a-d2"]), ("v1.10.2", []), (None, []), ("x", [])]
)
def test_only_pressed_used_nodes_count_as_unused_since_1_10_2(version: str | None, expected: list[str]) -> None:
    objects = [node("a", disk(), disk()), volume(replicaAutoBalance="best-effort"), replica("r", "a-d1")]
    assert expected == schedule([*objects, replica("new")], version, replica_zone_soft_anti_affinity="true")[0]


@pytest.mark.parametrize(
    ("version", "expected"), [("v1.11.0", []), ("v1.11.1", ["a-d2"]), (None, ["a-d2"]), ("unknown", [])]
)
def test_fresh_replicas_burden_their_disk_alone_since_1_11_1(version: str | None, expected: list[str]) -> None:
    objects = [node("a", disk(100), disk(100)), volume(60, replicaSoftAntiAffinity="enabled")]
    objects += [replica("r", "a-d1", size=60), replica("new", size=60)]
    assert expected == schedule(objects, version)[0]


@pytest.mark.parametrize(("version", "expected"), [("v1.10.2", "b-d1"), ("v1.11.0", "a-d1")])
def test_scheduled_bytes_matter_for_the_choice_since_1_11_0(version: str, expected: str) -> None:
    objects = [node("a", disk(100, available=90)), node("b", disk(100, scheduled=70)), volume(20), replica("new")]
    assert (["a-d1", "b-d1"], expected) == schedule(objects, version)


@pytest.mark.parametrize(("version", "expected"), [("v1.12.0", ["a-d1", "b-d1"]), ("v1.12.1", ["b-d1"])])
def test_clones_avoid_evicting_sources_since_1_12_1(version: str, expected: list[str]) -> None:
    sources = [replica("s1", "a-d1", evictionRequested=True), replica("s2", "b-d1")]
    for source in sources:
        source["spec"]["volumeName"] = "source"
    clone = volume(cloneMode="linked-clone", dataSource="vol://source")
    assert expected == schedule([node("a"), node("b"), *sources, clone, replica("new")], version)[0]


@pytest.mark.parametrize(("version", "expected"), [("v1.12.0", ["a-d1", "b-d1"]), ("v1.12.1", ["a-d1"])])
def test_clones_may_name_their_source_since_1_12_1(version: str, expected: list[str]) -> None:
    sources = [replica("s1", "a-d1"), replica("s2", "b-d1")]
    for source in sources:
        source["spec"]["volumeName"] = "source"
    clone = volume(cloneMode="linked-clone", dataSource="vol://source")
    new = replica("new", linkedCloneSrcReplicaName="s1")
    assert expected == schedule([node("a"), node("b"), *sources, clone, new], version)[0]


@pytest.mark.parametrize(("version", "expected"), [("v1.10.2", True), ("v1.11.0", False)])
def test_growth_has_to_fit_physically_since_1_11_0(version: str, expected: bool) -> None:
    objects = [node("a", disk(100, available=60)), volume(10), replica("r", "a-d1", size=10)]
    question = {"expand": {"volume": "v", "size": 90}}
    document = {"objects": objects, "question": question, "longhornVersion": version}
    assert expected == plan.answer(document)["admitted"]


def test_the_setting_tells_the_release_unless_the_question_does() -> None:
    setting = {"apiVersion": "longhorn.io/v1beta2", "kind": "Setting", "metadata": {"name": "current-longhorn-version"}}
    objects = [node("a"), node("b"), volume(dataLocality="best-effort", nodeID="a"), replica("new")]
    objects.append({**setting, "value": "v1.9.3"})
    assert ["a-d1", "b-d1"] == schedule(objects, None)[0]
    assert ["a-d1"] == schedule(objects, "v1.10.0")[0]


def test_there_are_no_linked_clones_before_1_10_0() -> None:
    clone = volume(cloneMode="linked-clone", dataSource="vol://source")
    for version, expected in (("v1.9.3", ["a-d1"]), ("v1.10.0", [])):
        assert expected == schedule([node("a"), clone, replica("new")], version)[0]


def grow(
    version: str, *, placed: int = 1, unplaced: int = 0, status: Raw | None = None, **spec: Any
) -> tuple[bool, str]:
    """Whether 10 bytes may become 20, and what is the matter with the volume itself."""
    objects = [node("a"), volume(10, status=status, **spec)]
    objects += [replica(f"p{number}", "a-d1", size=10) for number in range(placed)]
    objects += [replica(f"u{number}", size=10) for number in range(unplaced)]
    question = {"expand": {"volume": "v", "size": 20}}
    answer = plan.answer({"objects": objects, "question": question, "longhornVersion": version})
    own = [entry["message"] for entry in answer["disks"] if not entry["node"]]
    assert answer["largestSize"] == 10 if own else answer["largestSize"] > 20
    return answer["admitted"], own[0] if own else ""


@pytest.mark.parametrize(
    ("version", "options", "expected"),
    [
        ("v1.9.3", {"dataEngine": "v2"}, "no v2 volume grows before 1.10.0"),
        ("v1.10.0", {"dataEngine": "v2"}, ""),
        ("v1.12.1", {"dataEngine": "v2", "frontend": "ublk"}, "v2 volumes with frontend ublk do not grow"),
        ("v1.12.1", {"frontend": "ublk"}, ""),
        ("v1.12.1", {"status": {"robustness": "faulted"}}, "it is faulted"),
        ("v1.12.1", {"status": {"robustness": "degraded"}}, ""),
        ("v1.12.1", {"status": {"cloneStatus": {"state": "initiated"}}}, "it is being cloned"),
        ("v1.12.1", {"status": {"cloneStatus": {"state": "completed"}}}, ""),
        ("v1.11.2", {"placed": 0, "unplaced": 2}, "none of its replicas has a place"),
        ("v1.11.2", {"placed": 1, "unplaced": 1}, ""),
        ("v1.11.2", {"placed": 0}, ""),
        ("v1.11.3", {"placed": 0, "unplaced": 2}, ""),
        ("v1.12.0", {"placed": 0, "unplaced": 2}, "none of its replicas has a place"),
        ("v1.12.1", {"placed": 0, "unplaced": 2}, ""),
    ],
)
def test_some_volumes_cannot_grow_as_they_are(version: str, options: dict[str, Any], expected: str) -> None:
    assert (not expected, expected) == grow(version, **options)


@pytest.mark.parametrize("said", ["True", "False", "Unknown", None])
def test_before_1_12_0_a_volume_must_not_be_said_to_be_unscheduled(said: str | None) -> None:
    status = {"conditions": [{"type": "Scheduled", "status": said}] if said else []}
    problem = "its condition Scheduled is not True" if said in ("False", "Unknown") else ""
    assert (not problem, problem) == grow("v1.11.3", status=status)
    assert (True, "") == grow("v1.12.0", status=status)


def test_asking_for_less_is_judged_by_space_alone() -> None:
    objects = [node("a"), volume(10, status={"robustness": "faulted"}), replica("r", "a-d1", size=10)]
    for size, expected in ((9, True), (10, True), (11, False)):
        question = {"expand": {"volume": "v", "size": size}}
        assert expected == plan.answer({"objects": objects, "question": question})["admitted"]
