"""Settings out of their stores, and the mode that they ask for."""

from __future__ import annotations

import pytest

from controller.allocator.outcome import Mode
from controller.assembly.configuration import SettingsReader, mode_of
from controller.kube.store import Store
from controller.model.longhorn_settings import setting_value
from controller.model.workload import ConfigMapFacts, config_map_named
from controller.settings import LiveSettings
from tests.fakes.builders import TestCluster


def test_a_line_that_does_nothing_is_noted_for_as_long_as_it_is_there_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    config_maps: Store[ConfigMapFacts] = Store("config_map", config_map_named("settings"))
    name, read = "scheduler-extender-allow-stranding", SettingsReader(config_maps, Store("setting", setting_value))
    raw = {"metadata": {"name": "settings"}, "data": {"scheduler-extender-enabled": "true", name: "10"}}
    config_maps.apply("ADDED", raw)
    configured, again = read(), read()
    assert ({}, [name]) == (configured.problems, list(configured.notes))
    assert configured == again
    assert [f'setting without effect setting={name} problem="{configured.notes[name]}"'] == [
        record.getMessage() for record in caplog.records
    ]
    del raw["data"][name]
    config_maps.apply("MODIFIED", raw)
    assert {} == read().notes


@pytest.mark.parametrize(
    ("enabled", "bypass", "pods", "mode"),
    [
        (True, False, True, Mode.ACTIVE),
        (None, False, True, Mode.UNKNOWN),
        (None, True, True, Mode.BYPASS),
        (True, True, True, Mode.BYPASS),
        (False, True, False, Mode.BYPASS),
        (False, False, True, Mode.BYPASS),
        (False, False, False, Mode.CLOSED),
    ],
)
def test_the_mode_follows_settings_and_pods(enabled: bool | None, bypass: bool, pods: bool, mode: Mode) -> None:
    cluster, live = TestCluster(), LiveSettings(enabled=enabled, bypass=bypass)
    if pods:
        cluster.add_pod("a")
    assert mode_of(live, cluster.allocator.pending_opted_in, lambda: True) is mode
