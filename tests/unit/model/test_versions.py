"""What releases of Longhorn do differently: the table, and for each of its rows a decision that turns on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest

from controller.model.longhorn import DiskNeeds
from controller.model.longhorn_settings import longhorn_settings
from controller.model.versions import (
    APPLIES,
    NEWEST,
    UNKNOWN,
    VERSION_SETTING,
    Behaviour,
    Version,
    behaviour_of,
    parse_version,
    support_of,
)
from controller.rules.demand import VolumeDemand
from controller.rules.reuse import find_reusable
from tests.fakes import saved
from tests.fakes.builders import ONE_LOCAL
from tests.fakes.saved import GIB, Raw, node, replica, volume
from tests.unit.allocator import placing
from tests.unit.rules import asking

# A field, the last release before the boundary, the first after it, and the field's value after it.
BOUNDARIES = [
    ("places_best_effort_at_attach", "v1.9.3", "v1.10.0", True),
    ("prefers_attach_node", "v1.9.3", "v1.10.0", True),
    ("balance_opens_used_nodes", "v1.10.1", "v1.10.2", False),
    ("counts_fresh_per_node", "v1.11.0", "v1.11.1", False),
    ("picks_by_balance_score", "v1.10.2", "v1.11.0", True),
    ("has_linked_clones", "v1.9.3", "v1.10.0", True),
    ("clones_skip_evicting_sources", "v1.12.0", "v1.12.1", True),
    ("reuses_failed_v2_replicas", "v1.9.3", "v1.10.0", True),
    ("keeps_v2_soft_anti_affinity", "v1.9.3", "v1.10.0", True),
    ("expansion_checks_physical_space", "v1.10.2", "v1.11.0", True),
    ("expansion_needs_scheduled", "v1.11.3", "v1.12.0", False),
    ("expansion_needs_all_placed", "v1.11.2", "v1.11.3", False),
    ("expansion_needs_all_placed", "v1.11.3", "v1.12.0", True),
    ("expansion_needs_all_placed", "v1.12.0", "v1.12.1", False),
    ("expands_v2", "v1.9.3", "v1.10.0", True),
]


def test_every_field_has_one_row_and_its_boundaries_are_tried() -> None:
    assert {field.name for field in fields(Behaviour)} == set(APPLIES) == {field for field, *_ in BOUNDARIES}


@pytest.mark.parametrize("text", ["v1.12.1", "v1.13.0", "v1.13.0-dev", "v2.0.0", "v1.100.0"])
def test_the_newest_and_what_comes_after_it_behave_as_the_newest(text: str) -> None:
    assert NEWEST == behaviour_of(text)


@pytest.mark.parametrize("text", [None, "", "master", "1.9.0", "v1.9", "v1.9.0.1", "vx.y.z", "v1.9.0 ", "v٣.1.1"])
def test_what_is_no_version_behaves_as_the_newest_on_the_stricter_side(text: str | None) -> None:
    found = behaviour_of(text)
    differing = {field.name for field in fields(Behaviour) if getattr(found, field.name) != getattr(NEWEST, field.name)}
    assert ({"counts_fresh_per_node"}, UNKNOWN) == (differing, found)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("v1.9.3", (1, 9, 3)),
        ("v1.9.3-hotfix-2", (1, 9, 3)),
        ("v1.13.0-dev", (1, 13, 0)),
        ("v1.10.0-rc1+b", (1, 10, 0)),
        ("v0.0.0", (0, 0, 0)),
    ],
)
def test_a_suffix_is_dropped(text: str, parts: tuple[int, int, int]) -> None:
    assert Version(*parts) == parse_version(text)


def test_versions_are_compared_by_their_numbers() -> None:
    assert Version(1, 9, 10) < Version(1, 10, 0) < Version(1, 10, 2)
    assert "v1.9.10" == str(Version(1, 9, 10))


def test_the_setting_tells_the_behaviour_and_no_setting_is_not_known() -> None:
    assert behaviour_of("v1.9.0") == longhorn_settings({VERSION_SETTING: "v1.9.0"})[0].behaviour
    assert UNKNOWN == longhorn_settings({})[0].behaviour


# Whom this product can live next to


@pytest.mark.parametrize("text", [None, "", "master-head", "v1.9.0", "v1.9.3", "v1.12.1", "v2.0.0"])
def test_known_releases_and_development_builds_are_supported(text: str | None) -> None:
    assert support_of(text, crds=["volumes.longhorn.io"], settings=["replica-soft-anti-affinity"]).is_supported


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"version_text": "v1.8.9"}, "Longhorn v1.8.9 is older than v1.9.0"),
        ({"version_text": "v1.12.1", "crds": ["diskschedules.longhorn.io"]}, "(CRD diskschedules.longhorn.io)"),
        ({"version_text": None, "settings": ["scheduler-extender-enabled"]}, "(setting scheduler-extender-enabled)"),
    ],
)
def test_too_old_ones_and_those_with_a_scheduler_of_their_own_are_not(given: dict[str, Any], problem: str) -> None:
    found = support_of(given.pop("version_text"), **given)
    assert (False, True) == (found.is_supported, problem in found.problem)


# One decision for each row that needs a switch: the same objects, two releases


def steps(objects: list[Raw], *names: str, at: str, **settings: object) -> list[list[str]]:
    given = {"storage-minimal-available-percentage": 0, **settings}
    asked = saved.schedule(objects, *names, longhornVersion=at, settings=given, lenient=True)
    return [saved.places(step) for step in asked]


def chosen(objects: list[Raw], at: str) -> str:
    step = saved.schedule(objects, "r", longhornVersion=at, lenient=True)[0]
    return f"{step['scheduled']['node']}/{step['scheduled']['disk']}"


def admitted(objects: list[Raw], at: str, gib: int = 20, **settings: object) -> bool:
    found: bool = saved.expand(objects, gib * GIB, longhornVersion=at, settings=settings, lenient=True)["admitted"]
    return found


def demand(parameters: dict[str, str], at: str) -> VolumeDemand:
    return asking.demand(asking.world(**parameters), asking.claim(), longhorn_settings({VERSION_SETTING: at})[0])


def best_effort_is_local(at: str) -> bool:
    return demand(ONE_LOCAL, at).is_local


def attach_node_comes_first(at: str) -> list[str]:
    local = volume(dataLocality="best-effort", nodeID="n2")
    return steps([node("n1"), node("n2"), local, replica("r")], "r", at=at)[0]


def balancing_opens_a_used_node(at: str) -> list[str]:
    objects = [node("n1", disks={"d1": {}, "d2": {}}), volume(), replica("old", "n1"), replica("r")]
    return steps(objects, "r", at=at, **{"replica-auto-balance": "best-effort"})[0]


def fresh_replicas_burden_the_whole_node(at: str) -> list[str]:
    soft = volume(gib=60, replicaSoftAntiAffinity="enabled")
    objects = [node("n1", disks={"d1": {}, "d2": {}}), soft, replica("r1", gib=60), replica("r2", gib=60)]
    first, second = steps(objects, "r1", "r2", at=at)
    assert ["n1/d1", "n1/d2"] == first
    return second


def preferred_disk(at: str) -> str:
    # d1 has more available, d2 less that is scheduled.
    disks = {
        "d1": {"gib": 110, "status": {"storageScheduled": 80 * GIB}},
        "d2": {"gib": 100, "status": {"storageScheduled": 0}},
    }
    return chosen([node("n1", disks=disks), volume(), replica("r")], at)


def linked_clone(at: str, **source: Any) -> list[str]:
    clone = volume(dataSource="vol://src", cloneMode="linked-clone")
    objects = [node("n1"), node("n2"), volume("src"), replica("s", "n2", of="src", **source), clone, replica("r")]
    return steps(objects, "r", at=at)[0]


def clone_of_an_evicting_source(at: str) -> list[str]:
    return linked_clone(at, evictionRequested=True)


def reuses_a_failed_v2_replica(at: str) -> bool:
    settings = longhorn_settings({VERSION_SETTING: at})[0]
    seen = placing.view(
        placing.node("n1", placing.disk(type="block")), replicas=[placing.failed("f", "n1")], settings=settings
    )
    of = placing.volume(robustness="degraded", needs=DiskNeeds(data_engine="v2"))
    return find_reusable(seen, of).replica is not None


def class_anti_affinity_of_v2(at: str) -> str:
    parameters = {"dataEngine": "v2", "replicaSoftAntiAffinity": "enabled"}
    return demand(parameters, at).facts.soft_anti_affinity


PLACED: Raw = {"conditions": [{"type": "Scheduled", "status": "True"}]}


def growth_beyond_the_disk(at: str) -> bool:
    objects = [node("n1"), volume(status=PLACED), replica("r", "n1")]
    return admitted(objects, at, gib=300, **{"storage-over-provisioning-percentage": 1000})


def growth_of_an_unscheduled_volume(at: str) -> bool:
    objects = [node("n1"), volume(status={"conditions": [{"type": "Scheduled", "status": "False"}]})]
    return admitted([*objects, replica("r", "n1")], at)


def growth_of_an_unplaced_volume(at: str) -> bool:
    return admitted([node("n1"), volume(status=PLACED), replica("r")], at)


def growth_of_a_v2_volume(at: str) -> bool:
    disks = {"d1": {"spec": {"diskType": "block"}}}
    return admitted([node("n1", disks=disks), volume(status=PLACED, dataEngine="v2"), replica("r", "n1")], at)


# What decides, and its answers while the field is false and true.
DECISIONS: dict[str, tuple[Callable[[str], object], object, object]] = {
    "places_best_effort_at_attach": (best_effort_is_local, False, True),
    "prefers_attach_node": (attach_node_comes_first, ["n1/d1", "n2/d1"], ["n2/d1"]),
    "balance_opens_used_nodes": (balancing_opens_a_used_node, [], ["n1/d2"]),
    "counts_fresh_per_node": (fresh_replicas_burden_the_whole_node, ["n1/d2"], []),
    "picks_by_balance_score": (preferred_disk, "n1/d1", "n1/d2"),
    "has_linked_clones": (linked_clone, ["n1/d1", "n2/d1"], ["n2/d1"]),
    "clones_skip_evicting_sources": (clone_of_an_evicting_source, ["n2/d1"], []),
    "reuses_failed_v2_replicas": (reuses_a_failed_v2_replica, False, True),
    "keeps_v2_soft_anti_affinity": (class_anti_affinity_of_v2, "ignored", "enabled"),
    "expansion_checks_physical_space": (growth_beyond_the_disk, True, False),
    "expansion_needs_scheduled": (growth_of_an_unscheduled_volume, True, False),
    "expansion_needs_all_placed": (growth_of_an_unplaced_volume, True, False),
    "expands_v2": (growth_of_a_v2_volume, False, True),
}


@pytest.mark.parametrize(("field", "before", "after", "value"), BOUNDARIES)
def test_a_decision_turns_on_every_boundary_which_lies_between_two_patches(
    field: str, before: str, after: str, value: bool
) -> None:
    assert (not value, value) == (getattr(behaviour_of(before), field), getattr(behaviour_of(after), field))
    decide, *answers = DECISIONS[field]
    assert (answers[not value], answers[value]) == (decide(before), decide(after))


def test_a_version_that_is_not_known_counts_fresh_replicas_on_the_stricter_side() -> None:
    assert [] == fresh_replicas_burden_the_whole_node("master-head")
