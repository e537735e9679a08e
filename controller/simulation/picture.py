"""The picture of a simulation: each disk as a stacked bar, before and after.

SVG is written here, with nothing but text. PNG is drawn by Pillow, which the product does not need otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, Final

from controller.errors import ConfigError
from controller.simulation.documents import DiskChange, Simulation

FORMS: Final = (".svg", ".png")
MOST_ROWS: Final = 200  # disks; those that change most
# Okabe and Ito's palette: told apart with every kind of colour blindness, and by lightness in grey.
USED, TAKEN, NEW, OVER, FREE, LOST = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#ECECEC", "#B5B5B5"
_INK, _PALE = "#222222", "#666666"
_WIDTH, _ROW, _BAR, _BAR_HEIGHT, _TOP = 960, 22, 270, 14, 96
_BEFORE, _AFTER, _FIGURES = 190, 480, 770
_LEGEND: Final = ((USED, "in use"), (NEW, "comes"), (TAKEN, "promised"), (OVER, "over the limit"), (LOST, "lost"))


@dataclass(frozen=True, slots=True)
class Rect:
    x: float
    y: float
    width: float
    height: float
    colour: str


@dataclass(frozen=True, slots=True)
class Label:
    x: float
    y: float  # of the base line
    text: str
    size: int = 12
    colour: str = _INK
    is_bold: bool = False


Shape = Rect | Label


def write_picture(found: Simulation, path: str) -> None:
    """Writes the picture there; ConfigError for another ending, a place that cannot be written, or no Pillow."""
    ending = Path(path).suffix.lower()
    if ending not in FORMS:
        raise ConfigError(f"--picture: ends in none of {', '.join(FORMS)}: {path}")
    rows = _rows(found.disks)
    height = _TOP + _ROW * len(rows) + 34
    shapes = list(_shapes(found, rows, height))
    try:
        if ending == ".svg":
            Path(path).write_text(to_svg(shapes, height), encoding="utf-8")
        else:
            to_png(shapes, height, path)
    except OSError as error:
        raise ConfigError(f"--picture: {path}: {error.strerror or error}") from error


def _rows(disks: Sequence[DiskChange]) -> Sequence[DiskChange]:
    """All disks, or, of very many, those that change most, by node."""
    if len(disks) <= MOST_ROWS:
        return disks
    most = sorted(disks, key=lambda one: (one.state != "lost", -_change(one), one.node, one.disk))[:MOST_ROWS]
    return sorted(most, key=lambda one: (one.node, one.disk))


def _change(disk: DiskChange) -> int:
    return abs(disk.used_after + disk.taken_after - disk.used_before - disk.taken_before)


def _shapes(found: Simulation, rows: Sequence[DiskChange], height: int) -> Iterator[Shape]:
    yield Rect(0, 0, _WIDTH, height, "#FFFFFF")
    yield Label(16, 26, "What if: " + (", ".join(found.question) or "nothing changed"), 15, is_bold=True)
    count = len(found.findings)
    verdict = "everything finds a place" if not count else f"{count} without a place"
    yield Label(16, 46, f"{verdict}; {found.source}, {found.time}", 12, OVER if count else _PALE)
    x = 16.0
    for colour, name in _LEGEND:
        yield Rect(x, 58, 12, 12, colour)
        yield Label(x + 17, 69, name, 11, _PALE)
        x += 17 + 7 * len(name) + 18
    yield Label(_BEFORE, _TOP - 8, "before", 12, is_bold=True)
    yield Label(_AFTER, _TOP - 8, "after", 12, is_bold=True)
    most, former = max((one.limit_before for one in rows), default=1) or 1, ""
    for number, disk in enumerate(rows):
        y = _TOP + _ROW * number
        if disk.node != former:
            yield Rect(16, y - 1, _WIDTH - 32, 1, "#DDDDDD")
            yield Label(16, y + 14, _short(disk.node, 16), 12, is_bold=True)
            former = disk.node
        yield Label(128, y + 14, _short(disk.disk, 8), 11, _PALE)
        yield from _bar(_BEFORE, y + 3, disk.limit_before, most, ((disk.used_before, USED), (disk.taken_before, TAKEN)))
        yield from _after(disk, y + 3, most)
        yield Label(_FIGURES, y + 14, _figures(disk), 11, OVER if disk.state else _INK)
    if len(rows) < len(found.disks):
        text = f"the {len(rows)} of {len(found.disks)} disks that change most"
        yield Label(16, height - 12, text, 11, _PALE)


def _after(disk: DiskChange, y: float, most: int) -> Iterator[Shape]:
    if disk.state == "lost":
        yield Rect(_AFTER, y, max(2.0, _BAR * disk.limit_before / most), _BAR_HEIGHT, LOST)
        return
    stays = min(disk.used_before, disk.used_after)
    parts = (stays, USED), (disk.used_after - stays, NEW), (disk.taken_after, TAKEN)
    yield from _bar(_AFTER, y, disk.limit_after, most, parts)


def _bar(x: float, y: float, limit: int, most: int, parts: Iterable[tuple[int, str]]) -> Iterator[Shape]:
    """The parts of a disk beside each other, as long as the limit; what goes beyond it at its end."""
    scale, at = _BAR / most, 0
    yield Rect(x, y, max(2.0, limit * scale), _BAR_HEIGHT, FREE)
    for size, colour in parts:
        shown = max(0, min(size, limit - at))
        if shown:
            yield Rect(x + at * scale, y, shown * scale, _BAR_HEIGHT, colour)
        at += size
    if at > limit:
        yield Rect(x + limit * scale, y, max(3.0, min((at - limit) * scale, 12.0)), _BAR_HEIGHT, OVER)


def _figures(disk: DiskChange) -> str:
    before = _gib(disk.used_before + disk.taken_before)
    if disk.state == "lost":
        return f"{before} GiB lost"
    closed = ", closed" if disk.state else ""
    return f"{before} to {_gib(disk.used_after + disk.taken_after)} of {_gib(disk.limit_after)} GiB{closed}"


def _gib(size: int) -> str:
    return f"{size / 1024**3:.1f}".removesuffix(".0")


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def to_svg(shapes: Iterable[Shape], height: int) -> str:
    """The picture as SVG, in which text stays text."""
    where = f'viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}"'
    font = 'font-family="DejaVu Sans, Verdana, sans-serif"'
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" {where} {font} role="img">']
    for one in shapes:
        if isinstance(one, Rect):
            place = f'x="{one.x:.1f}" y="{one.y:.1f}" width="{one.width:.1f}" height="{one.height:.1f}"'
            lines.append(f'<rect {place} fill="{one.colour}"/>')
        else:
            weight = ' font-weight="bold"' if one.is_bold else ""
            place = f'x="{one.x:.1f}" y="{one.y:.1f}" font-size="{one.size}" fill="{one.colour}"'
            printable = "".join(letter for letter in one.text if letter.isprintable())
            lines.append(f"<text {place}{weight}>{escape(printable)}</text>")
    return "\n".join([*lines, "</svg>", ""])


def to_png(shapes: Iterable[Shape], height: int, path: str) -> None:
    """The picture as PNG, at twice the size."""
    try:
        from PIL import Image, ImageDraw, ImageFont
    except ImportError as error:
        raise ConfigError("--picture: PNG needs Pillow (pip install pillow); SVG needs nothing") from error
    image = Image.new("RGB", (2 * _WIDTH, 2 * height), "white")
    drawing = ImageDraw.Draw(image)
    for one in shapes:
        if isinstance(one, Rect):
            corner = 2 * (one.x + one.width) - 1, 2 * (one.y + one.height) - 1
            drawing.rectangle((2 * one.x, 2 * one.y, *corner), fill=one.colour)
        else:
            font: Any = ImageFont.load_default(size=2 * one.size)
            stroke = 1 if one.is_bold else 0
            drawing.text((2 * one.x, 2 * one.y), one.text, one.colour, font, anchor="ls", stroke_width=stroke)
    image.save(path)
