"""`explain`: why a pod waits, or where its volumes lie and why there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import click
from rich.console import Console, RenderableType
from rich.text import Text

from controller.commands.completion import names_of
from controller.commands.leader import StatusReader, about_leader, asked, explain_path, is_printed
from controller.commands.terminal import cell, console, figure, shown, table
from controller.errors import ConfigError
from controller.process.command_line import EXIT_FINDING, EXIT_WELL
from controller.views.documents import Explanation, Holder, NodeAnswer, VolumeAnswer

MOST_NODES: Final = 10
_SAYS: Final = {
    "waits": ("waits", "red"),
    "let-through": ("was let through", "green"),
    "runs": ("runs", "green"),
    "not-ours": ("is none that the extender is asked about", "yellow"),
    "gone": ("is not there", "yellow"),
}
_VERDICTS: Final = {"sure": "green", "contended": "yellow", "full": "red"}
_of_nodes = click.option("--all", "is_all", is_flag=True, help="all nodes, not only those that lack least")
_of_namespace = click.option("-n", "where", metavar="NAMESPACE", help="its namespace, unless NAME is NAMESPACE/NAME")


@click.group("explain")
def command() -> None:
    """Say why something waits, or lies where it does."""


@command.command("pod")
@click.argument("name", metavar="[NAMESPACE/]NAME", shell_complete=names_of("pods"))
@_of_namespace
@_of_nodes
@about_leader
def pod(*, reader: StatusReader, output: str, name: str, where: str | None, is_all: bool) -> int:
    """Say why a pod waits, or where its data lies.

    The cause first, then the smallest change that would help, and what each node lacks.

    Exit code 1 if it waits, or is not there.
    """
    return _explain(reader, output, explain_path("pods", *_named(name, where)), is_all=is_all)


@command.command("claim")
@click.argument("name", metavar="[NAMESPACE/]NAME", shell_complete=names_of("claims"))
@_of_namespace
@_of_nodes
@about_leader
def claim(*, reader: StatusReader, output: str, name: str, where: str | None, is_all: bool) -> int:
    """Say where a claim's volume lies, or could."""
    return _explain(reader, output, explain_path("claims", *_named(name, where)), is_all=is_all)


@command.command("volume")
@click.argument("name")
@_of_nodes
@about_leader
def volume(*, reader: StatusReader, output: str, name: str, is_all: bool) -> int:
    """Say where a Longhorn volume lies, or could."""
    return _explain(reader, output, explain_path("volumes", name), is_all=is_all)


def _named(name: str, where: str | None) -> tuple[str, str]:
    """Name and namespace."""
    before, slash, behind = name.partition("/")
    if slash and (not before or not behind or "/" in behind or where not in (None, before)):
        raise ConfigError(f"NAME: is not NAMESPACE/NAME, or -n is another namespace: {name!r}")
    if not slash and not where:
        raise ConfigError(f"NAME: has no namespace: give it as NAMESPACE/{name}, or with -n")
    return (behind, before) if slash else (name, str(where))


def _explain(reader: StatusReader, output: str, path: str, *, is_all: bool) -> int:
    found = asked(reader, path, Explanation)
    if not is_printed(found, output):
        to = console()
        shown(to, explanation_parts(to, found, is_all=is_all, is_wide=output == "wide"))
    return EXIT_FINDING if found.state in ("waits", "gone") else EXIT_WELL


def explanation_parts(to: Console, found: Explanation, *, is_all: bool, is_wide: bool) -> list[RenderableType]:
    """The cause and what would help, then what it follows from."""
    says, style = _SAYS.get(found.state, (found.state, ""))
    name = f"{found.namespace}/{found.name}" if found.namespace else found.name
    since = f" since {found.since}" if found.since and found.state in ("waits", "runs") else ""
    cause = f": {found.cause}" if found.cause else ""
    parts: list[RenderableType] = [cell(f"{found.kind} {name} {says}{since}{cause}", f"bold {style}".strip())]
    parts += [cell(found.text)] if found.text else []
    parts += [Text.assemble(("What would help: ", "bold"), cell(found.change))] if found.change else []
    return [*parts, *_volumes(to, found.volumes), *_nodes(to, found, is_all=is_all, is_wide=is_wide)]


def _volumes(to: Console, volumes: Sequence[VolumeAnswer]) -> Iterator[RenderableType]:
    if not volumes:
        return
    made = table(to, "VOLUME", ">SIZE", ">COPIES", "WHERE", "PLACE OR CAUSE", "WHY", title="Volumes")
    for one in volumes:
        where = "on the pod's node" if one.is_local else "anywhere"
        first = [cell(one.claim or one.volume), figure(one.size_bytes), cell(one.copies), cell(where)]
        places = [(f"{place.node}/{place.disk} ({place.kind})", place.why) for place in one.places]
        if one.reason or not places:
            places.append((one.reason or "none yet", ""))  # the sentence above has its text
        for place, why in places:
            made.add_row(*first, cell(place), cell(why))
            first = [Text("")] * len(first)
    yield from ("", made)


def _nodes(to: Console, found: Explanation, *, is_all: bool, is_wide: bool) -> Iterator[RenderableType]:
    if not found.nodes:
        return
    figures = (">LIMIT", ">USED", ">TAKEN", ">FREE") if is_wide else (">FREE",)
    made = table(to, "NODE", "DISK", "VERDICT", "REASON", ">MISSING", *figures, "WHY", title="Nodes, the nearest first")
    most = len(found.nodes) if is_all else MOST_NODES
    for one in found.nodes[:most]:
        numbers = (one.limit_bytes, one.used_bytes, one.taken_bytes, one.free_bytes) if is_wide else (one.free_bytes,)
        made.add_row(
            cell(one.node),
            cell(one.disk),
            cell(one.verdict, _VERDICTS.get(one.verdict, "")),
            cell(one.reason),
            figure(one.missing_bytes) if one.missing_bytes else "",
            *(figure(number) if one.disk else "" for number in numbers),
            cell(one.text),
        )
    yield from ("", made)
    if more := len(found.nodes[most:]) + found.more_nodes:
        yield cell(f"and {more} more" + (": --all" if found.nodes[most:] else ""))
    for one in found.nodes if is_all else found.nodes[:1]:
        yield from _holders(to, one)


def _holders(to: Console, node: NodeAnswer) -> Iterator[RenderableType]:
    if not node.holders:
        return
    made = table(to, "WHAT", "WHOSE", ">SIZE", "UNTIL", title=f"Who has the room on {node.node}")
    for one in node.holders:
        made.add_row(cell(one.kind), cell(_whose(one)), figure(one.size_bytes), cell(one.until))
    yield from ("", made)


def _whose(holder: Holder) -> str:
    return holder.name or f"{holder.count} of other namespaces"
