"""The live settings out of their stores: one ConfigMap, and Longhorn's Setting objects."""

from __future__ import annotations

from collections.abc import Mapping

from controller.assembly.lifecycle import Configured
from controller.kube.store import Store
from controller.model.configured import by_name
from controller.model.longhorn import LonghornSettings
from controller.settings import LiveSettings, live_settings, longhorn_settings


class SettingsReader:
    """What the ConfigMap and Longhorn's Setting objects say together. Threads: the lifecycle's. I/O: none."""

    def __init__(self, config_maps: Store[Mapping[str, str]], longhorn: Store[str]) -> None:
        self._config_maps, self._longhorn = config_maps, longhorn
        self._last: tuple[LiveSettings | None, LonghornSettings | None] = (None, None)

    def __call__(self) -> Configured:
        values = by_name(self._longhorn.items())
        data = next(iter(self._config_maps.values()), {})
        live, problems = live_settings(data, values, self._last[0])
        longhorn, more = longhorn_settings(values, self._last[1])
        self._last = (live, longhorn)
        return Configured(
            live, longhorn, {entry.name: f"{entry.value!r} {entry.problem}" for entry in (*problems, *more)}
        )


def synced_longhorn_values(store: Store[str]) -> dict[str, str] | None:
    """The values of Longhorn's Setting objects by their names alone; None while the store has not seen them all."""
    return by_name(store.items()) if store.synced.is_set() else None
