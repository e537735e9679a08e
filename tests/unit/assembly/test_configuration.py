"""Settings out of their stores, and how a change of the running Longhorn's version reaches a decision."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from controller.assembly.configuration import SettingsReader, synced_longhorn_values
from controller.kube.store import Store
from controller.model.reader import text_at
from controller.model.versions import NEWEST, UNKNOWN, behaviour_of
from tests.fakes.builders import TestCluster
from tests.fakes.saved import Raw, setting


def stores() -> tuple[Store[Mapping[str, str]], Store[str]]:
    def data(raw: Mapping[str, Any]) -> Mapping[str, str]:
        found: Mapping[str, str] = raw["data"]
        return found

    return Store("config_map", data), Store("setting", lambda raw: text_at(raw, "", "value"))


def version(text: str) -> Raw:
    return setting("current-longhorn-version", text)


def test_settings_are_known_by_their_names_alone_and_only_when_all_were_seen() -> None:
    _, longhorn = stores()
    longhorn.replace([version("v1.12.1")])
    assert synced_longhorn_values(longhorn) is None
    longhorn.synced.set()
    assert {"current-longhorn-version": "v1.12.1"} == synced_longhorn_values(longhorn)


def test_the_behaviour_follows_the_version_as_it_stands_now() -> None:
    config_maps, longhorn = stores()
    read = SettingsReader(config_maps, longhorn)
    assert UNKNOWN == read().longhorn.behaviour
    longhorn.apply("ADDED", version("v1.9.2"))
    assert behaviour_of("v1.9.2") == read().longhorn.behaviour
    longhorn.apply("MODIFIED", version("v1.12.1"))
    assert NEWEST == read().longhorn.behaviour
    longhorn.apply("MODIFIED", version("master-head"))
    assert UNKNOWN == read().longhorn.behaviour


def test_an_upgrade_of_longhorn_changes_the_next_decision() -> None:
    """Longhorn 1.9 places a new best-effort replica anywhere; from 1.10 on it needs room on the pod's own node."""
    config_maps, longhorn = stores()
    read = SettingsReader(config_maps, longhorn)
    cluster = TestCluster()
    cluster.add_node("small", free_gib=50)
    cluster.add_node("large")
    cluster.add_pod("p")
    for text, expected in (("v1.9.3", {"small", "large"}), ("v1.10.0", {"large"}), ("v1.9.3", {"small", "large"})):
        longhorn.apply("MODIFIED", version(text))
        cluster.allocator.configure(cluster.live, read().longhorn)
        assert expected == cluster.offered("p", "small", "large")
