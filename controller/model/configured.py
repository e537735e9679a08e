"""The objects that live settings stand in: one ConfigMap of ours, and Longhorn's Setting objects."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from controller.model.reader import Raw, mapping_at, text_at


def data_of(name: str) -> Callable[[Raw], Mapping[str, str] | None]:
    """Reads the data of the ConfigMap of that name; None for any other, which is not kept."""

    def data(raw: Raw) -> Mapping[str, str] | None:
        if text_at(mapping_at(raw, "", "metadata"), "metadata", "name") != name:
            return None
        found = mapping_at(raw, "", "data")
        return {key: text_at(found, "data", key) for key in found}

    return data


def setting_value(raw: Raw) -> str:
    return text_at(raw, "", "value")


def by_name(values: Mapping[str, str]) -> dict[str, str]:
    """Setting objects' values by their names alone, out of those by key: they live in one namespace."""
    return {key.rsplit("/", 1)[-1]: value for key, value in values.items()}
