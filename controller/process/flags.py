"""Flags out of a dataclass of settings, the settings out of flags and environment, and names with commas."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final, TypeVar

from controller.process.version import product_version
from controller.settings import flag_of

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

ACCESS: Final = "kubeconfig for the API server (default: $KUBECONFIG, the pod's service account, or ~/.kube/config)"
CONTEXT: Final = "context of the kubeconfig (default: its current one)"
Settings = TypeVar("Settings", bound="DataclassInstance")


def add_flags(command: argparse.ArgumentParser, defaults: DataclassInstance, help_of: Mapping[str, str]) -> None:
    """Adds a flag for each field. A flag that is not given is None, so that the environment has its turn.

    The help ends with the default, unless the text states it itself.
    """
    for field in fields(defaults):
        default = getattr(defaults, field.name)
        text = help_of[field.name]
        command.add_argument(
            flag_of(field.name),
            type=type(default),
            metavar="N" if isinstance(default, int) else "TEXT",
            help=text if "(default" in text else f"{text} (default: {default or 'none'})",
        )


def add_access(command: argparse.ArgumentParser) -> None:
    """Which API server to talk to, for `ClientKubeApi.load`."""
    command.add_argument("--kubeconfig", metavar="FILE", default="", help=ACCESS)
    command.add_argument("--context", metavar="NAME", default="", help=CONTEXT)


def add_version(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--version", action="version", version=f"%(prog)s {product_version()}")


def chosen_settings(
    settings: type[Settings], options: Mapping[str, Any], environment: Mapping[str, str], variables: Mapping[str, str]
) -> Settings:
    """The flags first, then the environment, then the defaults; unchecked.

    `variables` names the environment variable of a field; an empty one counts as none.
    """
    chosen: dict[str, Any] = {}
    for field in fields(settings):
        value = options.get(field.name)
        if value is None:
            value = environment.get(variables.get(field.name, "")) or None
        if value is not None:
            chosen[field.name] = value
    return settings(**chosen)


def split_names(text: str) -> list[str]:
    """The names in a comma-separated flag: each once, in their order."""
    return list(dict.fromkeys(name for part in text.split(",") if (name := part.strip())))
