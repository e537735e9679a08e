"""What releases of Longhorn do differently. The decisions that turn on it: tests/longhorn_rules/cases.yaml has both
sides of each boundary, and tests/unit/rules those of what a volume needs."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

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


@pytest.mark.parametrize(("field", "before", "after", "value"), BOUNDARIES)
def test_every_boundary_lies_between_two_patches(field: str, before: str, after: str, value: bool) -> None:
    assert (not value, value) == (getattr(behaviour_of(before), field), getattr(behaviour_of(after), field))


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
