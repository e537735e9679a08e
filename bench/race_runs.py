"""Figures of races, and what they are held against. Pure; see `race_timing`."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from tests.e2e.checker import Report

OURS: Final = "with the extender"
STOCK: Final = "without"
POLICY: Final = "lock-and-exclude policy"

# With ample room the extender may cost this much, whichever is more.
AMPLE_RATIO, AMPLE_SECONDS = 1.10, 0.3
EXACT_RATIO = 1.25
POLICY_RATIO = 30.0


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    pods: int


EXACT: Final = Case("exact", 64)


@dataclass(frozen=True, slots=True)
class Run:
    """One race. Seconds count from its first pod's creation."""

    case: str
    way: str
    pods: int
    bound: int
    last_bound_seconds: float | None  # of those that were bound; None: none was
    places_over: int  # nodes and disks that were promised more than they can take

    @property
    def all_bound_seconds(self) -> float | None:
        return self.last_bound_seconds if self.bound >= self.pods else None

    def as_figures(self) -> dict[str, Any]:
        return {**asdict(self), "all_bound_seconds": self.all_bound_seconds}


def run_of(report: Report, case: Case, way: str, namespace: str, since: int, end: int) -> Run:
    """The race that had this namespace and began after revision `since`; the next one began at `end`."""
    pods = [pod for pod in report.pods.values() if pod.key.startswith(f"{namespace}/")]
    start = min((pod.created_at for pod in pods), default=0.0)
    bound = [pod.bound_at - start for pod in pods if pod.bound_at is not None]
    over = {violation.place for violation in report.violations if since <= violation.rv < end}
    return Run(case.name, way, case.pods, len(bound), round(max(bound), 3) if bound else None, len(over))


def times_of(runs: Iterable[Run], case: str, way: str) -> list[float]:
    """Of the races in which every pod was bound, in order of length."""
    found = (run.all_bound_seconds for run in runs if (run.case, run.way) == (case, way))
    return sorted(seconds for seconds in found if seconds is not None)


def table(runs: Sequence[Run]) -> str:
    """A line for each case and way."""
    lines = [f"{'':<24} {'':<24} {'runs':>4} {'all bound':>9} {'median':>8} {'least':>8} {'most':>8}   over"]
    for case, way in dict.fromkeys((run.case, run.way) for run in runs):
        mine = [run for run in runs if (run.case, run.way) == (case, way)]
        times = times_of(mine, case, way)
        shown = [f"{value:6.2f} s" for value in (statistics.median(times), times[0], times[-1])] if times else ["-"] * 3
        figures = " ".join(f"{text:>8}" for text in shown)
        over = sum(run.places_over > 0 for run in mine)
        lines.append(f"{case:<24} {way:<24} {len(mine):>4} {len(times):>9} {figures}   {over:>4}")
    return "\n".join(lines)


def ample_verdict(runs: Sequence[Run], case: str) -> str:
    ours, stock = times_of(runs, case, OURS), times_of(runs, case, STOCK)
    if not ours or not stock:
        return f"{case}: not judged, no run in which all pods were bound"
    mine, other = statistics.median(ours), statistics.median(stock)
    limit = max(AMPLE_RATIO * other, other + AMPLE_SECONDS)
    return (
        f"{case}: {mine / other:.2f} times the run without it, {mine - other:+.2f} s "
        f"(at most {AMPLE_RATIO} times or {AMPLE_SECONDS} s more): {met(mine <= limit)}"
    )


def exact_verdict(runs: Sequence[Run]) -> list[str]:
    ours, stock = times_of(runs, EXACT.name, OURS), times_of(runs, EXACT.name, STOCK)
    if not ours or not stock:
        return ["exact: not judged, no run in which all pods were bound"]
    mine, other = statistics.median(ours), statistics.median(stock)
    ratio = mine / other
    lines = [f"exact: {ratio:.2f} times the run without it (at most {EXACT_RATIO}): {met(ratio <= EXACT_RATIO)}"]
    for run in runs:
        if run.way != POLICY or run.last_bound_seconds is None:
            continue
        # What was never bound took longer than the last that was.
        least = "" if run.bound >= run.pods else f" at least, pods never bound: {run.pods - run.bound}"
        faster = run.last_bound_seconds / mine
        lines.append(
            f"exact: {faster:.0f} times faster than the {POLICY}{least} (at least {POLICY_RATIO:.0f}): "
            f"{met(faster >= POLICY_RATIO)}"
        )
    return lines


def met(is_met: bool) -> str:
    return "met" if is_met else "NOT MET"
