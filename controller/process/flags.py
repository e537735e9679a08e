"""Flags out of a dataclass of settings, the settings out of flags and environment, and names with commas."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from controller.settings import MOST_PORT, ProcessSettings, flag_of

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

ACCESS: Final = "kubeconfig for the API server (default: $KUBECONFIG, the pod's service account, or ~/.kube/config)"
CONTEXT: Final = "context of the kubeconfig (default: its current one)"
NAMESPACE_VARIABLE: Final = "POD_NAMESPACE"
NAMESPACE: Final = ProcessSettings().namespace
CONFIG_MAP: Final = ProcessSettings().config_map
OF_LONGHORN: Final = f"Longhorn's namespace (environment: {NAMESPACE_VARIABLE}) (default: {NAMESPACE})"
PORT: Final = click.IntRange(1, MOST_PORT)
EVERYWHERE: Final = ("kubeconfig", "context", "namespace")
Settings = TypeVar("Settings", bound="DataclassInstance")
Decorated = TypeVar("Decorated", bound=Callable[..., Any] | click.Command)


def said_before(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
    """A flag that is said before the sub-command counts where it is not said again behind it."""
    return value if value is not None else context.find_root().params.get(str(parameter.name))


def _namespace(context: click.Context, parameter: click.Parameter, value: str | None) -> str:
    given = said_before(context, parameter, value)
    return str(given) if given is not None else os.environ.get(NAMESPACE_VARIABLE) or NAMESPACE


def _text(context: click.Context, parameter: click.Parameter, value: str | None) -> str:
    return said_before(context, parameter, value) or ""


def flags(defaults: DataclassInstance, help_of: Mapping[str, str]) -> list[click.Parameter]:
    """A flag for each field. A flag that is not given is None, so that the environment has its turn.

    The help ends with the default, unless the text states it itself.
    """
    made: list[click.Parameter] = []
    for field in fields(defaults):
        default = getattr(defaults, field.name)
        text = help_of[field.name]
        made.append(
            click.Option(
                [flag_of(field.name)],
                type=type(default),
                default=None,
                callback=said_before if field.name in EVERYWHERE else None,
                metavar="N" if isinstance(default, int) else "TEXT",
                help=text if "(default" in text else f"{text} (default: {default or 'none'})",
            )
        )
    return made


def access(command: Decorated) -> Decorated:
    """Which API server to talk to, for `ClientKubeApi.load`."""
    command = click.option("--context", metavar="NAME", callback=_text, help=CONTEXT)(command)
    return click.option("--kubeconfig", metavar="FILE", callback=_text, help=ACCESS)(command)


def namespace(command: Decorated) -> Decorated:
    """Longhorn's namespace: by the flag, else by the environment of a pod of ours, else the usual one. ConfigError for
    an empty one."""
    return click.option("--namespace", metavar="NAME", callback=_namespace, help=OF_LONGHORN)(command)


def config_map(command: Decorated) -> Decorated:
    text = "ConfigMap with the live settings"
    option = click.option("--config-map", metavar="NAME", default=CONFIG_MAP, show_default=True, help=text)
    return option(command)


def everywhere() -> list[click.Parameter]:
    """The flags that may stand before a sub-command as well, for the program."""
    texts = (("--kubeconfig", "FILE", ACCESS), ("--context", "NAME", CONTEXT), ("--namespace", "NAME", OF_LONGHORN))
    return [click.Option([flag], metavar=metavar, default=None, help=text) for flag, metavar, text in texts]


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
