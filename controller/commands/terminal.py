"""What commands show: tables and colour on a terminal, plain columns for others, and documents as JSON or YAML.

What comes from the cluster is shown as it is: `cell` escapes what a terminal would obey, and no markup is read in it.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import click
from rich import box
from rich.cells import cell_len
from rich.console import Console, JustifyMethod, RenderableType
from rich.table import Table
from rich.text import Text

from controller.process.logs import escaped

WIDE: Final = 10_000  # columns, where there is no terminal: nothing is folded
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
BAR: Final = "█▓░"
SEVERITY: Final[Mapping[str, str]] = {"failure": "bold red", "warning": "yellow", "ok": "green"}


def console(*, err: bool = False) -> Console:
    """Of standard output, or of standard error. Colour and frames are for terminals alone, and not with NO_COLOR."""
    made = Console(stderr=err, markup=False, highlight=False, emoji=False, soft_wrap=False)
    if not made.is_terminal:
        made = Console(
            stderr=err, markup=False, highlight=False, emoji=False, width=WIDE, no_color=True, color_system=None
        )
    return made


def is_plain(to: Console) -> bool:
    return not to.is_terminal or to.no_color


def cell(value: object, style: str = "") -> Text:
    """Foreign text on one line, with nothing in it that a terminal would obey."""
    return Text(escaped(str(value)), style=style)


class Grid:
    """A table: framed on a terminal, plain columns elsewhere, which take a fraction of the time. What no row fills is
    left out."""

    def __init__(self, columns: Sequence[str], title: str, *, is_plain: bool, is_headed: bool) -> None:
        self._columns, self._title, self._is_plain, self._is_headed = columns, title, is_plain, is_headed
        self._rows: list[tuple[Text | str, ...]] = []

    def add_row(self, *cells: Text | str) -> None:
        self._rows.append(cells)

    def __rich__(self) -> RenderableType:
        filled = [place for place in range(len(self._columns)) if any(str(row[place]) for row in self._rows)]
        columns = [self._columns[place] for place in filled]
        rows = [[row[place] for place in filled] for row in self._rows]
        if self._is_plain:
            return Text("\n".join(self._lines(columns, rows)))
        made = Table(
            title=cell(self._title) if self._title else None,
            title_justify="left",
            title_style="bold",
            box=box.SIMPLE_HEAD if self._is_headed else None,
            pad_edge=False,
            show_edge=False,
            show_header=self._is_headed,
            header_style="bold",
        )
        for name in columns:
            is_figure = name.startswith(">")
            justify: JustifyMethod = "right" if is_figure else "left"
            made.add_column(name.removeprefix(">"), justify=justify, overflow="fold", no_wrap=is_figure)
        for row in rows:
            made.add_row(*row)
        return made

    def _lines(self, columns: Sequence[str], cells: Iterable[Sequence[Text | str]]) -> list[str]:
        """Without spaces at their ends."""
        rows = [[str(one) for one in row] for row in cells]
        if self._is_headed:
            rows.insert(0, [name.removeprefix(">") for name in columns])
        widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
        found = [self._title] if self._title else []
        for row in rows:
            line = []
            for name, text, width in zip(columns, row, widths, strict=True):
                spaces = " " * (width - cell_len(text))
                line.append(spaces + text if name.startswith(">") else text + spaces)
            found.append("  ".join(line).rstrip())
        return [escaped(line) for line in found]


def table(to: Console, *columns: str, title: str = "", is_headed: bool = True) -> Grid:
    """An empty table with these columns; a name that begins with `>` is one of figures, to the right."""
    return Grid(columns, title, is_plain=is_plain(to), is_headed=is_headed)


def size(number: int) -> str:
    """Bytes in binary units, as in "12.5 GiB"."""
    amount, unit = float(abs(number)), 0
    while amount >= 1024 and unit < len(_UNITS) - 1:
        amount, unit = amount / 1024, unit + 1
    text = f"{amount:.1f}".removesuffix(".0") if unit else str(int(amount))
    return f"{'-' if number < 0 else ''}{text} {_UNITS[unit]}"


def figure(number: int) -> Text:
    """A size in a table; what is below nothing stands out."""
    return Text(size(number), "red" if number < 0 else "")


def ago(moment: str, now: str) -> str:
    """How long before `now` that was, both in RFC 3339; "?" where one of them is no moment."""
    try:
        return duration((datetime.fromisoformat(now) - datetime.fromisoformat(moment)).total_seconds())
    except (ValueError, TypeError):
        return "?"


def duration(seconds: float) -> str:
    """Its two largest units, as in "2h 5m"."""
    left, parts = max(0, int(seconds)), list[str]()
    for name, length in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        count, left = divmod(left, length)
        if count or (name == "s" and not parts):
            parts.append(f"{count}{name}")
    return " ".join(parts[:2])


@contextlib.contextmanager
def progress(what: str) -> Iterator[None]:
    """Says on a terminal's standard error what is waited for, as long as it lasts."""
    to = console(err=True)
    if not to.is_terminal:
        yield
        return
    with to.status(cell(what)):
        yield


@contextlib.contextmanager
def told_progress(what: str) -> Iterator[Callable[[str], None]]:
    """The same of work in steps: what is called with a text says which one it is."""
    to = console(err=True)
    if not to.is_terminal:
        yield lambda _text: None
        return
    with to.status(cell(what)) as status:
        yield lambda text: status.update(cell(f"{what}: {text}"))


def print_document(document: Any, form: str) -> None:
    """A dataclass, or a list of them, as "json" or "yaml"."""
    import msgspec

    raw = msgspec.to_builtins(document) if dataclasses.is_dataclass(document) else document
    if form == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(raw), indent=2).decode())
    else:
        import yaml

        click.echo(yaml.safe_dump(raw, sort_keys=False, allow_unicode=False), nl=False)


def bar(used: int, planned: int, limit: int, width: int = 20) -> Text:
    """How a disk is taken up to its limit: used, planned and free; red from 95 %, yellow from 80 %."""
    share = (used + planned) / limit if limit > 0 else 1.0
    colour = "red" if share >= 0.95 else "yellow" if share >= 0.8 else "green"
    first = min(width, round(used / limit * width)) if limit > 0 else width
    second = min(width - first, round(planned / limit * width)) if limit > 0 else 0
    return Text.assemble(
        (BAR[0] * first, colour), (BAR[1] * second, "cyan"), (BAR[2] * (width - first - second), "bright_black")
    )


def shown(to: Console, parts: Iterable[RenderableType]) -> None:
    """Prints the parts one below the other; without a terminal, no line ends in spaces."""
    if to.is_terminal:
        to.print(*parts, sep="\n")
        return
    with to.capture() as captured:
        to.print(*parts, sep="\n")
    click.echo("\n".join(line.rstrip() for line in captured.get().splitlines()))
