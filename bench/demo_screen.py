"""What the demo shows while it runs, and the table at its end."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.e2e.checker import Checker, Report
from tests.e2e.history_tail import HistoryTail

GIB: Final = 2**30
BAR: Final = 32
LOG_EVERY_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Counts:
    bound: int
    ready: int
    refused: int
    total: int

    def __str__(self) -> str:
        waiting = f", {self.refused} refused so far" if self.refused else ""
        return f"{self.bound} of {self.total} bound, {self.ready} ready{waiting}"


class Screen:
    """One view that is redrawn in place on a terminal, plain lines elsewhere. Threads: one."""

    def __init__(self, nodes: Sequence[str], limit_bytes: int, history: Path) -> None:
        self._nodes, self._limit = nodes, limit_bytes
        self._tail = HistoryTail(history)
        self._checker = Checker()
        self._scope = self._checker.open(nodes=nodes)
        self._is_terminal = sys.stdout.isatty()
        self._drawn = 0
        self._last: tuple[object, ...] = ()
        self._logged_at = 0.0

    def say(self, line: str = "") -> None:
        self._drawn = 0
        print(line, flush=True)

    def show(self, seconds: float, counts: Counts) -> None:
        for entry in self._tail.read():
            self._checker.feed(entry)
        series = self._scope.report.series
        promised = series[-1].node_bytes if series else {}
        if self._is_terminal:
            self._redraw([self._bar(node, promised.get(node, 0)) for node in self._nodes] + [
                f"  {seconds:5.1f} s   {counts}"
            ])  # fmt: skip
            return
        state = (counts, tuple(promised.get(node, 0) for node in self._nodes))
        if state != self._last or seconds - self._logged_at >= LOG_EVERY_SECONDS:
            self._last, self._logged_at = state, seconds
            disks = "  ".join(f"{node} {promised.get(node, 0) // GIB:4d}" for node in self._nodes)
            print(f"  {seconds:5.1f} s   {disks} GiB   {counts}", flush=True)

    def _redraw(self, lines: Sequence[str]) -> None:
        up = f"\x1b[{self._drawn}A" if self._drawn else ""
        print(up + "\n".join(f"\x1b[2K{line}" for line in lines), flush=True)
        self._drawn = len(lines)

    def _bar(self, node: str, promised: int) -> str:
        filled = min(BAR, promised * BAR // self._limit)
        over = f"   over by {(promised - self._limit) / GIB:.0f} GiB" if promised > self._limit else ""
        bar = "█" * filled + "░" * (BAR - filled)
        return f"  {node:<6} {bar} {promised // GIB:4d} of {self._limit // GIB} GiB promised{over}"


def table(reports: Mapping[str, Report], nodes: Sequence[str], total: int) -> str:
    """One column for each run."""
    rows: list[tuple[str, list[str]]] = [("", list(reports))]
    found = list(reports.values())
    rows.append((f"pods on {' '.join(nodes)}", [_joined(r.pods_per_node(), nodes, 1) for r in found]))
    rows.append(("most promised, GiB", [_joined(r.peaks(), nodes, GIB) for r in found]))
    rows.append(("disks promised too much", [str(len(over_nodes(r))) for r in found]))
    rows.append(("pods refused for a while", [str(len(r.refused)) for r in found]))
    rows.append(("pods stuck (never bound)", [str(total - len(r.bound)) for r in found]))
    rows.append(("ready beside their data", [f"{len(r.local)} of {total}" for r in found]))
    rows.append(("time until all bound", [_when(last_bound(r, total)) for r in found]))
    rows.append(("time until all ready", [_when(last_ready(r, total)) for r in found]))
    widths = [max(len(row[0]) for row in rows)] + [
        max(len(row[1][column]) for row in rows) for column in range(len(found))
    ]
    lines = ["   ".join(cell.ljust(width) for cell, width in zip((head, *cells), widths, strict=True)).rstrip()
             for head, cells in rows]  # fmt: skip
    return "\n".join([lines[0], "-" * (sum(widths) + 3 * len(found)), *lines[1:]])


def over_nodes(report: Report) -> list[str]:
    """Nodes whose disk was promised more than it can take at some time."""
    return [node for node, peak in report.peaks().items() if peak > report.node_limits.get(node, peak)]


def start_of(report: Report) -> float:
    return min((pod.created_at for pod in report.pods.values()), default=0.0)


def last_bound(report: Report, total: int) -> float | None:
    """Seconds from the first pod's creation until `total` pods were bound; None: never."""
    times = [pod.bound_at for pod in report.bound if pod.bound_at is not None]
    return max(times) - start_of(report) if times and len(times) >= total else None


def last_ready(report: Report, total: int) -> float | None:
    times = [pod.ready_at for pod in report.ready if pod.ready_at is not None]
    return max(times) - start_of(report) if times and len(times) >= total else None


def _joined(values: Mapping[str, int], nodes: Sequence[str], unit: int) -> str:
    return " ".join(str(values.get(node, 0) // unit) for node in nodes)


def _when(seconds: float | None) -> str:
    return "never" if seconds is None else f"{seconds:.1f} s"
