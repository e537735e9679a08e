"""What the commands that ask the leader have in common: their flags, and how they answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from controller.commands.leader import StatusReader
from controller.commands.terminal import print_document, progress
from controller.process.flags import PORT, access, namespace

FORMS: Final = ("json", "yaml", "wide")
Decorated = TypeVar("Decorated", bound=Callable[..., Any])
Document = TypeVar("Document")


def about_leader(command: Decorated) -> Decorated:
    """Adds the flags by which the leader is found, and --output; the command gets them as `reader` and `output`."""

    def called(
        *, kubeconfig: str, context: str, namespace: str, status_port: int | None, output: str | None, **more: Any
    ) -> Any:
        reader = click.get_current_context().obj or StatusReader()
        reader.kubeconfig, reader.context, reader.namespace = kubeconfig, context, namespace
        reader.status_port = status_port
        return command(reader=reader, output=output or "", **more)

    called.__name__, called.__doc__ = command.__name__, command.__doc__
    called.__dict__.update(command.__dict__)  # the command's own flags
    text = "ask the process whose status port this is on loopback, and look for no leader"
    made: Any = click.option("--status-port", type=PORT, metavar="N", help=text)(called)
    text = "json or yaml: the whole document; wide: more columns"
    made = click.option("-o", "--output", type=click.Choice(FORMS), help=text)(made)
    decorated: Decorated = access(namespace(made))
    return decorated


def asked(reader: StatusReader, path: str, kind: type[Document], *, of_anybody: bool = False) -> Document:
    """The document, while a terminal is told that it is waited for."""
    with progress("asking the leader"):
        return reader.document(path, kind, of_anybody=of_anybody)


def is_printed(document: Any, output: str) -> bool:
    """Whether the document was wanted whole, and is printed so."""
    if output in ("json", "yaml"):
        print_document(document, output)
        return True
    return False
