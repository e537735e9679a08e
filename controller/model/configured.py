"""The objects with the live settings: one ConfigMap of ours, and Longhorn's Setting objects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from controller.model.reader import Raw, mapping_at, text_at


@dataclass(frozen=True, slots=True)
class ConfigMapFacts:
    uid: str
    data: Mapping[str, str]


def config_map_named(name: str) -> Callable[[Raw], ConfigMapFacts | None]:
    """Reads the ConfigMap of that name; None for any other, which is not kept."""

    def facts(raw: Raw) -> ConfigMapFacts | None:
        meta = mapping_at(raw, "", "metadata")
        if text_at(meta, "metadata", "name") != name:
            return None
        found = mapping_at(raw, "", "data")
        return ConfigMapFacts(text_at(meta, "metadata", "uid"), {key: text_at(found, "data", key) for key in found})

    return facts


def data_of(config_maps: Iterable[ConfigMapFacts]) -> Mapping[str, str] | None:
    """The data of the one ConfigMap; None if it does not exist or cannot be read."""
    return next((found.data for found in config_maps), None)


def setting_value(raw: Raw) -> str:
    return text_at(raw, "", "value")


def by_name(values: Mapping[str, str]) -> dict[str, str]:
    """Setting objects' values by their names alone, out of those by key: they live in one namespace."""
    return {key.rsplit("/", 1)[-1]: value for key, value in values.items()}
