"""The live settings from their stores: one ConfigMap, and Longhorn's Setting objects."""

from __future__ import annotations

import logging

from controller.assembly.lifecycle import Configured
from controller.kube.store import Store
from controller.model.configured import ConfigMapFacts, by_name, data_of
from controller.model.longhorn import LonghornSettings
from controller.settings import UNREAD, SettingProblem, live_settings, longhorn_settings, setting_notes

log = logging.getLogger(__name__)


class SettingsReader:
    """The settings that the ConfigMap and Longhorn's Setting objects make together. Threads: the lifecycle's. I/O:
    none."""

    def __init__(self, config_maps: Store[ConfigMapFacts], longhorn: Store[str]) -> None:
        self._config_maps, self._longhorn = config_maps, longhorn
        self._live, self._read = UNREAD, LonghornSettings()  # as read last
        self._notes: tuple[SettingProblem, ...] = ()

    def __call__(self) -> Configured:
        data, values = data_of(self._config_maps.values()), by_name(self._longhorn.items())
        self._live, problems = live_settings(data, values, self._live)
        self._read, more = longhorn_settings(values, self._read)
        return Configured(
            self._live,
            self._read,
            {entry.name: entry.text for entry in (*problems, *more)},
            {entry.name: entry.text for entry in self._noted(setting_notes(data))},
        )

    def _noted(self, notes: tuple[SettingProblem, ...]) -> tuple[SettingProblem, ...]:
        """The notes; new ones are logged."""
        for note in notes:
            if note not in self._notes:
                log.warning("setting %s: %s", note.name, note.text)
        self._notes = notes
        return notes


def synced_longhorn_values(store: Store[str]) -> dict[str, str] | None:
    """The values of Longhorn's Setting objects by name; None until the store has seen them all."""
    return by_name(store.items()) if store.synced.is_set() else None
