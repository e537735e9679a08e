"""Longhorn's settings: both shapes, Go's ideas of booleans and integers, and what becomes of a value that is none."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

import pytest

from controller.model.longhorn import LonghornSettings
from controller.model.longhorn_settings import (
    LONGHORN_NAMES,
    longhorn_settings,
    parse_flag,
    parse_integer,
    per_engine,
)
from controller.model.versions import UNKNOWN


@pytest.mark.parametrize("text", ["1", "t", "T", "TRUE", "true", "True", "0", "f", "F", "FALSE", "false", "False"])
def test_what_go_reads_as_a_boolean(text: str) -> None:
    assert parse_flag(text) is (text.lower() in ("1", "t", "true"))


@pytest.mark.parametrize("text", ["", "yes", "no", "tRUE", " true", "true\n", "2"])
def test_what_go_reads_as_no_boolean(text: str) -> None:
    with pytest.raises(ValueError, match="is not a boolean"):
        parse_flag(text)


@pytest.mark.parametrize(("text", "expected"), [("7", 7), ("+7", 7), ("-7", -7), ("007", 7), ("0" * 30 + "7", 7)])
def test_what_go_reads_as_an_integer(text: str, expected: int) -> None:
    assert expected == parse_integer(text, -100, 100)


@pytest.mark.parametrize("text", ["", "+", " 7", "7 ", "7.0", "1_000", "0x7", "1e3", "٣", "9" * 20, "101", "-101"])
def test_what_go_reads_as_no_integer_of_that_range(text: str) -> None:
    with pytest.raises(ValueError, match="is not"):
        parse_integer(text, -100, 100)


@pytest.mark.parametrize(
    ("name", "value", "field", "expected"),
    [
        ("replica-soft-anti-affinity", "true", "soft_anti_affinity", True),
        ("replica-zone-soft-anti-affinity", "f", "zone_soft_anti_affinity", False),
        ("replica-disk-soft-anti-affinity", "0", "disk_soft_anti_affinity", False),
        ("replica-auto-balance", "best-effort", "auto_balance", "best-effort"),
        ("replica-auto-balance-disk-pressure-percentage", "80", "disk_pressure_pct", 80),
        ("replica-replenishment-wait-interval", "0", "replenishment_wait_seconds", 0),
        ("default-instance-manager-image", "im:1", "instance_manager_image", "im:1"),
        ("concurrent-replica-rebuild-per-node-limit", "0", "concurrent_rebuild_limit", 0),
        ("default-data-locality", "strict-local", "default_data_locality", "strict-local"),
        ("default-replica-count", '{"v1":"1"}', "default_replica_count_v1", 1),
        ("default-replica-count", '{"v1":"1"}', "default_replica_count_v2", 3),
        ("default-replica-count", "2", "default_replica_count_v2", 2),
        ("fast-replica-rebuild-enabled", '{"v2":"false"}', "fast_rebuild_v2", False),
        ("fast-replica-rebuild-enabled", '{"v2":"false"}', "fast_rebuild_v1", True),
        ("fast-replica-rebuild-enabled", '{"v1":"false"}', "fast_rebuild_v2", True),
        ("fast-replica-rebuild-enabled", "false", "fast_rebuild_v1", False),
        ("v2-data-engine-fast-replica-rebuilding", "true", "fast_rebuild_v2", True),
        ("v2-data-engine-fast-replica-rebuilding", "true", "fast_rebuild_v1", True),
        ("disable-scheduling-on-cordoned-node", "false", "closes_cordoned", False),
        ("v1-data-engine", "false", "makes_v1", False),
        ("v2-data-engine", "false", "makes_v2", False),
        ("storage-over-provisioning-percentage", "200", "space.over_provisioning_pct", 200),
        ("storage-minimal-available-percentage", "0", "space.minimal_available_pct", 0),
        ("allow-empty-disk-selector-volume", "false", "space.allow_empty_disk_selector", False),
    ],
)
def test_a_setting_ends_up_in_its_field(name: str, value: str, field: str, expected: Any) -> None:
    assert name in LONGHORN_NAMES
    found, problems = longhorn_settings({name: value})
    assert (expected, ()) == (attrgetter(field)(found), problems)


def test_the_newer_name_of_a_setting_wins() -> None:
    both = {"fast-replica-rebuild-enabled": '{"v2":"true"}', "v2-data-engine-fast-replica-rebuilding": "false"}
    assert longhorn_settings(both)[0].fast_rebuild_v2 is True
    assert longhorn_settings({})[0].fast_rebuild_v2 is None


BAD = {
    "replica-soft-anti-affinity": [""],
    "replica-zone-soft-anti-affinity": ["yes"],
    "replica-disk-soft-anti-affinity": ['{"v1":"true"}'],
    "allow-empty-node-selector-volume": [""],
    "replica-auto-balance": ["ignored"],
    "replica-auto-balance-disk-pressure-percentage": [""],
    "default-data-locality": [""],
    "storage-over-provisioning-percentage": ["-1", '{"v1":"100"}', "9223372036854775808"],
    "storage-minimal-available-percentage": ["101", "25%"],
    "replica-replenishment-wait-interval": ["10m"],
    "default-replica-count": ['{"v1":"0"}', '{"v1":3}', '{"v1":null}', '{"v1":"3"', '{"v1":"21"}', "0", "{" * 5000],
    "fast-replica-rebuild-enabled": ['{"v2":""}'],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name in BAD for value in BAD[name]])
def test_a_value_that_does_not_parse_is_named_and_the_last_one_stays(name: str, value: str) -> None:
    before = LonghornSettings(soft_anti_affinity=True, auto_balance="least-effort", default_replica_count_v1=2)
    found, problems = longhorn_settings({name: value}, before)

    assert {name} == {entry.name for entry in problems}
    assert (name == "replica-soft-anti-affinity") is found.soft_anti_affinity
    assert ("least-effort" if name == "replica-auto-balance" else "disabled") == found.auto_balance
    assert (2 if name == "default-replica-count" else 3) == found.default_replica_count("v1")


def test_what_is_no_setting_of_ours_is_not_looked_at() -> None:
    assert (LonghornSettings(behaviour=UNKNOWN), ()) == longhorn_settings({})
    assert longhorn_settings({}) == longhorn_settings({"node-drain-policy": "?", "unknown": ""})


def test_a_plain_value_serves_every_engine_and_a_missing_one_has_none() -> None:
    assert ("3", "3", None) == (per_engine("3", "v1"), per_engine("3", "v2"), per_engine('{"v1":"3"}', "v2"))
