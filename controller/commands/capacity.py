"""`capacity`: what still fits, and whether the loss of a node is survived."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import click
from rich.console import Console, RenderableType
from rich.text import Text

from controller.commands.leader import StatusReader, about_leader, asked, is_printed
from controller.commands.status import totals_line
from controller.commands.terminal import bar, cell, console, figure, is_plain, shown, size, table
from controller.process.command_line import EXIT_FINDING, EXIT_WELL
from controller.views.documents import Capacity, NodeCapacity, Survival

MOST_NODES: Final = 30
MOST_NAMES: Final = 5
ROOMY: Final = 110


@click.command("capacity")
@click.option("--all", "is_all", is_flag=True, help="all nodes, not only the fullest")
@about_leader
def command(*, reader: StatusReader, output: str, is_all: bool) -> int:
    """Show what still fits.

    And whether the loss of the node with most data is survived. Exit code 1 if it is not.
    """
    found = asked(reader, "/capacity", Capacity)
    if not is_printed(found, output):
        to = console()
        shown(to, capacity_parts(to, found, is_all=is_all or output == "wide"))
    return EXIT_WELL if found.survival is None or found.survival.is_survived else EXIT_FINDING


def capacity_parts(to: Console, found: Capacity, *, is_all: bool) -> list[RenderableType]:
    return [
        *_survival(found.survival),
        Text.assemble(("Space: ", "bold"), cell(totals_line(found.totals))),
        Text.assemble(("Largest new volume: ", "bold"), cell(_largest(found.largest_bytes))),
        *(cell(note) for note in found.notes),
        *_nodes(to, found.nodes, is_all=is_all),
        *_tags(to, found),
        *_rebuilds(to, found),
    ]


def _largest(sizes: Mapping[str, int]) -> str:
    copies = sorted(sizes.items())
    return ", ".join(f"{size(number)} with {_copies(count)}" for count, number in copies)


def _copies(count: int | str) -> str:
    return f"{count} cop{'y' if int(count) == 1 else 'ies'}"


def _survival(survival: Survival | None) -> Iterator[RenderableType]:
    if survival is None:
        return
    what = f"{_copies(survival.copies)}, {size(survival.size_bytes)}"
    if survival.is_survived:
        yield cell(f"The loss of {survival.node}, which has most ({what}), is survived: all find other disks.", "green")
        return
    yield cell(f"The loss of {survival.node}, which has most ({what}), is not survived.", "bold red")
    if survival.lost:
        yield cell(f"  lost, as their only copy lies there: {_names(survival.lost)}")
    if survival.homeless:
        missing = size(survival.missing_bytes)
        yield cell(f"  without a disk for their copy: {_names(survival.homeless)}; {missing} are missing")


def _names(names: Sequence[str]) -> str:
    more = len(names) - MOST_NAMES
    return ", ".join(names[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def _nodes(to: Console, nodes: Sequence[NodeCapacity], *, is_all: bool) -> Iterator[RenderableType]:
    if not nodes:
        return
    has_bar = to.width >= ROOMY and not is_plain(to)
    columns = ("NODE", *(["TAKEN"] if has_bar else []), ">LIMIT", ">USED", ">PLANNED", ">FREE", ">LARGEST", ">COPIES")
    made = table(to, *columns, "CLOSED", title="Nodes, those with least room first")
    most = len(nodes) if is_all else MOST_NODES
    for one in sorted(nodes, key=lambda node: (node.is_schedulable, node.largest_bytes, node.node))[:most]:
        row = [cell(one.node)]
        row += [bar(one.used_bytes, one.taken_bytes, one.limit_bytes)] if has_bar else []
        row += map(figure, (one.limit_bytes, one.used_bytes, one.taken_bytes, one.free_bytes, one.largest_bytes))
        made.add_row(*row, cell(one.copies), cell("" if one.is_schedulable else "yes", "yellow"))
    yield from ("", made)
    if len(nodes) > most:
        yield cell(f"and {len(nodes) - most} more: --all")


def _tags(to: Console, found: Capacity) -> Iterator[RenderableType]:
    if not found.tags:
        return
    made = table(to, "TAG", "OF", ">DISKS", ">LIMIT", ">FREE", "LARGEST NEW VOLUME", title="Tags")
    for one in found.tags:
        row = (cell(one.tag), cell(one.of), cell(one.disks), figure(one.limit_bytes), figure(one.free_bytes))
        made.add_row(*row, cell(_largest(one.largest_bytes)))
    yield from ("", made)


def _rebuilds(to: Console, found: Capacity) -> Iterator[RenderableType]:
    if not found.rebuilds:
        return
    made = table(to, "VOLUME", "CLAIM", ">SIZE", ">COPIES", "FINDS DISKS", title="Copies that are missing")
    for one in found.rebuilds:
        finds = cell("yes") if one.is_placeable else cell("no", "red")
        made.add_row(cell(one.volume), cell(one.claim), figure(one.size_bytes), cell(one.copies), finds)
    yield from ("", made)
