"""Longhorn's own settings: defaults, both shapes, and values that do not fit."""

from __future__ import annotations

import pytest

from controller.model.longhorn import LonghornSettings, SpacePolicy
from controller.model.longhorn_settings import longhorn_settings

DEFAULT = LonghornSettings()


def test_nothing_set_means_longhorns_defaults_whatever_was_set_before() -> None:
    before = LonghornSettings(SpacePolicy(over_provisioning_pct=200), default_data_locality="best-effort")

    assert longhorn_settings({}, before) == (DEFAULT, ())


def test_every_setting_is_read() -> None:
    settings, problems = longhorn_settings(
        {
            "storage-over-provisioning-percentage": "150",
            "storage-minimal-available-percentage": "10",
            "allow-empty-node-selector-volume": "F",
            "allow-empty-disk-selector-volume": "0",
            "default-replica-count": '{"v1":"2","v2":"1"}',
            "default-data-locality": "best-effort",
            "allow-volume-creation-with-degraded-availability": "false",
            "a-later-longhorn-knows-this": "x",
        },
        DEFAULT,
    )

    assert settings == LonghornSettings(SpacePolicy(150, 10, False, False), 2, 1, "best-effort", False)
    assert problems == ()


def test_a_plain_replica_count_holds_for_both_engines() -> None:
    settings, _ = longhorn_settings({"default-replica-count": "5"}, DEFAULT)

    assert (settings.default_replica_count("v1"), settings.default_replica_count("v2")) == (5, 5)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("storage-over-provisioning-percentage", "1e2"),
        ("storage-over-provisioning-percentage", "-1"),
        ("storage-over-provisioning-percentage", ""),
        ("storage-over-provisioning-percentage", "9" * 400),
        ("storage-minimal-available-percentage", "101"),
        ("allow-empty-node-selector-volume", "yes"),
        ("default-replica-count", "0"),
        ("default-replica-count", '{"v1":3}'),
        ("default-replica-count", '{"v1":'),
        ("default-data-locality", "nearby"),
    ],
)
def test_a_value_that_does_not_fit_keeps_the_last_good_one_and_is_named(name: str, value: str) -> None:
    before = LonghornSettings(SpacePolicy(200, 30, False, False), 2, 1, "strict-local", False)

    settings, problems = longhorn_settings({name: value}, before)

    kept = {"default-replica-count": ("default_replica_count_v1",), "default-data-locality": ("default_data_locality",)}
    for field in kept.get(name, ()):
        assert getattr(settings, field) == getattr(before, field)
    if name not in kept:
        assert settings.space != DEFAULT.space
    assert [problem.field for problem in problems] == [name]
