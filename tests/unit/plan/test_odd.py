"""Whatever stands in whichever field: an answer or a complaint that names the field, never a crash."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from controller.plan.complaints import InputError
from controller.plan.yaml_reader import load_yaml
from tests.fakes import saved
from tests.fakes.saved import longhorn, replica, setting, volume

PAGE = Path(__file__).resolve().parents[3] / "docs" / "plan-format.md"
FIT: dict[str, Any] = load_yaml(PAGE.read_text().split("```yaml\n")[3].split("```")[0])  # type: ignore[assignment]
ODD: list[Any] = [
    None, True, False, "", " ", "x", "True", "v2", "enabled", "best-effort", "strict-local", "-1", "0x10", "1e3",
    0, -1, 1, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 10**400, 0.5, 1e300, float("inf"), float("nan"),
    [], [None], [""], ["x", "x"], [[]], {}, {"": None}, {"a": 1}, {"v1": "3"}, "٣", "\ud800", "a" * 10_000,
]  # fmt: skip


def document() -> dict[str, Any]:
    """One with every kind and most fields."""
    found = copy.deepcopy(FIT)
    linked: dict[str, Any] = {"dataSource": "vol://w", "cloneMode": "linked-clone"}
    local: dict[str, Any] = {"dataLocality": "best-effort", "nodeID": "n2", "backingImage": "image", "image": "engine"}
    found["objects"] += [
        volume(**local, topologyRequirement=[{"zone": "", "region": ""}], diskSelector=[], nodeSelector=[]),
        volume("w", **linked, status={"robustness": "degraded", "lastDegradedAt": saved.NOW, "actualSize": 5}),
        replica("r1", active=True, evictionRequested=False, rebuildRetryCount=0, hardNodeAffinity="", failedAt=""),
        replica("r2", "n1", "disk-1", failedAt=saved.NOW, linkedCloneSrcReplicaName=""),
        longhorn("BackingImage", "image", spec={"nodeSelector": [], "diskFileSpecMap": {}}, status={"realSize": 1}),
        longhorn("EngineImage", "e", spec={"image": "engine"}, status={"state": "deployed", "nodeDeploymentMap": {}}),
        longhorn("InstanceManager", "m", spec={"nodeID": "n1", "type": "aio"}, status={"currentState": "running"}),
        setting("default-replica-count", '{"v1":"3"}'),
    ]
    found["settings"] = {"replica-soft-anti-affinity": True, "default-replica-count": {"v1": "3"}}
    found["now"] = saved.NOW
    found["longhornVersion"] = "v1.12.1"
    return found


def places(raw: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value below `raw`."""
    for key, value in raw.items() if isinstance(raw, dict) else enumerate(raw):
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from places(value, (*path, key))


QUESTIONS = [
    document()["question"],
    {"schedule": {"volume": "v", "replicas": ["r1"]}},
    {"expand": {"volume": "v", "size": 2**40}},
]
PLACES = list(places({**document(), "question": {key: value for entry in QUESTIONS for key, value in entry.items()}}))


@settings(max_examples=400, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(PLACES), st.sampled_from(ODD)), max_size=2), st.sampled_from(QUESTIONS))
def test_an_odd_value_is_answered_or_named(changes: list[tuple[tuple[Any, ...], Any]], question: Any) -> None:
    asked = {**document(), "question": copy.deepcopy(question)}
    for path, value in changes:
        _put(asked, path, value)
    complaint = None
    try:
        more = {name: value for name, value in asked.items() if name not in ("objects", "question")}
        found = saved.ask(asked["objects"], asked["question"], **more)
    except InputError as error:
        found, complaint = {}, error
    assert found == json.loads(json.dumps(found))
    assert complaint is None or (complaint.problem and (complaint.field_name or complaint.object_name))


def _put(raw: Any, path: tuple[Any, ...], value: Any) -> None:
    *way, last = path
    for key in way:
        try:
            raw = raw[key]
        except (KeyError, IndexError, TypeError):
            return  # another question, or changed before
    if isinstance(raw, dict) or (isinstance(raw, list) and isinstance(last, int) and last < len(raw)):
        raw[last] = copy.deepcopy(value)
