"""`completion`: what a shell has to know to complete commands; and the same for kubectl, of which this is a plugin."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import click
from click.shell_completion import CompletionItem, ShellComplete, get_completion_class

from controller.errors import SchedulerError
from controller.process.command_line import COMPLETE, EXIT_WELL, PROGRAM

SHELLS: Final = ("bash", "zsh", "fish")
MOST_NAMES: Final = 200
_NAMES_ALONE, _FILES_TOO = ":4", ":0"  # what kubectl is to do besides, in its own numbers


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
def command(shell: str) -> int:
    """Print what a shell needs to complete this.

    For bash: eval "$(longhorn-scheduler-extender completion bash)"
    """
    found = get_completion_class(shell)
    assert found is not None
    click.echo(found(click.get_current_context().find_root().command, {}, PROGRAM, COMPLETE).source())
    return EXIT_WELL


def complete_for_kubectl(program: click.Command, words: list[str]) -> str:
    """What kubectl's convention for plugins asks for: a candidate and its description on each line, then a directive.
    The last one of the words is to be completed."""
    *before, incomplete = words or [""]
    found = ShellComplete(program, {}, PROGRAM, COMPLETE).get_completions(before, incomplete)
    lines = [f"{one.value}\t{one.help}" if one.help else str(one.value) for one in found if one.type == "plain"]
    return "\n".join([*lines, _FILES_TOO if len(lines) < len(found) else _NAMES_ALONE])


def names_of(kind: str) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """A callback that completes names of pods or claims, as `NAMESPACE/NAME`, or as `NAME` behind `-n`."""

    def complete(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
        try:
            return [CompletionItem(name) for name in _names(context, kind) if name.startswith(incomplete)]
        except SchedulerError:  # a shell has no place for what went wrong
            return []

    return complete


def _names(context: click.Context, kind: str) -> Iterator[str]:
    from controller.kube import resources
    from controller.kube.api import ClientKubeApi

    where, given = context.params.get("where"), {**context.find_root().params, **context.params}
    api = ClientKubeApi.load(given.get("kubeconfig") or "", given.get("context") or "")
    resource = resources.PODS if kind == "pods" else resources.CLAIMS
    for raw in api.list_page(resource, where, limit=MOST_NAMES, timeout=2.0).items:
        metadata = raw["metadata"]
        yield metadata["name"] if where else f"{metadata['namespace']}/{metadata['name']}"
