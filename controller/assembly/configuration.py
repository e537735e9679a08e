"""The live settings from their stores: one ConfigMap, and Longhorn's Setting objects."""

from __future__ import annotations

from controller.assembly.lifecycle import Configured
from controller.kube.store import Store
from controller.model.configured import ConfigMapFacts, by_name, data_of
from controller.model.longhorn import LonghornSettings
from controller.settings import UNREAD, live_settings, longhorn_settings


class SettingsReader:
    """The settings that the ConfigMap and Longhorn's Setting objects make together. Threads: the lifecycle's. I/O:
    none."""

    def __init__(self, config_maps: Store[ConfigMapFacts], longhorn: Store[str]) -> None:
        self._config_maps, self._longhorn = config_maps, longhorn
        self._live, self._read = UNREAD, LonghornSettings()  # as read last

    def __call__(self) -> Configured:
        values = by_name(self._longhorn.items())
        self._live, problems = live_settings(data_of(self._config_maps.values()), values, self._live)
        self._read, more = longhorn_settings(values, self._read)
        return Configured(self._live, self._read, {entry.name: entry.text for entry in (*problems, *more)})


def synced_longhorn_values(store: Store[str]) -> dict[str, str] | None:
    """The values of Longhorn's Setting objects by name; None until the store has seen them all."""
    return by_name(store.items()) if store.synced.is_set() else None
