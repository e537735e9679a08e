"""Draw what was promised on each disk over time, one panel a run, as PNG and SVG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's palette: told apart with every kind of colour blindness, and by lightness in grey.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7")
DASHES = ("-", (0, (6, 1.5)), (0, (3, 1.5)), (0, (1, 1)))
OVER = "#D55E00"
INK, PALE = "#222222", "#555555"
PANEL_INCHES, LEAST_INCHES = 5.2, 7.6  # wide; the heading and the legend need the latter however few panels there are


@dataclass(frozen=True, slots=True)
class Curve:
    """What was promised on one disk: from each time on (seconds), that much (GiB)."""

    disk: str
    seconds: tuple[float, ...]
    gib: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Panel:
    title: str
    verdict: str
    is_good: bool
    curves: tuple[Curve, ...]
    marks: tuple[tuple[float, str], ...]  # moments worth a line: seconds, label
    end_seconds: float


def draw(panels: Sequence[Panel], limit_gib: float, heading: str, files: Sequence[Path]) -> None:
    """Write the picture into each of `files`; the ending says which format."""
    import matplotlib as mpl

    mpl.use("Agg")
    # Text stays text in the SVG, so that it can be searched and read aloud.
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "demo", "font.family": "DejaVu Sans"})
    from matplotlib import pyplot as plt

    width = max(PANEL_INCHES * len(panels), LEAST_INCHES)
    figure, axes = plt.subplots(1, len(panels), sharey=True, figsize=(width, 5.4), layout="constrained")
    figure.suptitle(heading, fontsize=14, color=INK, fontweight="bold", x=0.008, ha="left")
    most = max([limit_gib, *(value for panel in panels for curve in panel.curves for value in curve.gib)])
    for axis, panel in zip([axes] if len(panels) == 1 else axes, panels, strict=True):
        _draw_panel(axis, panel, limit_gib, most)
    first = axes if len(panels) == 1 else axes[0]
    figure.legend(
        *first.get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False, handlelength=3.4
    )
    first.set_ylabel("promised on the disk, GiB\n(replicas + chosen, not placed yet)", color=INK)
    for file in files:
        figure.savefig(file, dpi=150, facecolor="white", metadata={"Date": None} if file.suffix == ".svg" else None)
    plt.close(figure)


def _draw_panel(axis: Axes, panel: Panel, limit_gib: float, most: float) -> None:
    top = most * 1.14
    axis.axhspan(limit_gib, top, color=OVER, alpha=0.10, linewidth=0)
    axis.axhline(limit_gib, color=OVER, linewidth=1.6)
    for index, curve in enumerate(panel.curves):
        # Curves often lie on one another: the first are the widest, so that each shows around the next.
        axis.step(
            (*curve.seconds, panel.end_seconds),
            (*curve.gib, curve.gib[-1]),
            where="post",
            color=COLOURS[index % len(COLOURS)],
            linestyle=DASHES[index % len(DASHES)],
            linewidth=5.6 - 1.2 * min(index, 3),
            label=f"disk of {curve.disk}",
        )
    for index, (seconds, label) in enumerate(panel.marks):
        axis.axvline(seconds, color=PALE, linewidth=1, linestyle=":")
        # Two moments may lie close together: the first is named on its left, the second on its right.
        axis.annotate(
            label,
            (seconds, 0.02),
            xycoords=("data", "axes fraction"),
            xytext=(-3 if index == 0 else 3, 0),
            textcoords="offset points",
            rotation=90,
            ha="right" if index == 0 else "left",
            va="bottom",
            fontsize=9.5,
            color=PALE,
        )
    axis.set_ylim(0, top)
    axis.set_xlim(0, panel.end_seconds)
    axis.set_xlabel("seconds since the StatefulSet was created", color=INK)
    axis.set_title(panel.title, loc="left", fontsize=12, color=INK, pad=24, fontweight="bold")
    axis.text(
        0, 1.02, panel.verdict, transform=axis.transAxes, fontsize=10, color="#00684B" if panel.is_good else "#A33F00"
    )
    axis.text(
        0.99, limit_gib + most * 0.012, f"limit {limit_gib:.0f} GiB", transform=axis.get_yaxis_transform(), ha="right",
        va="bottom", fontsize=9, color=OVER,
    )  # fmt: skip
    axis.grid(axis="y", color="#dddddd", linewidth=0.6)
    axis.spines[["top", "right"]].set_visible(False)
