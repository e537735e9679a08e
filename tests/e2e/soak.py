"""Many races with random delays, several at once in one cluster, each judged by the history (`make soak`).

Every run is the enhancement text's first goal: sixteen pods at once, a volume of 100 GiB each, four nodes with one disk
of 400 GiB. Runs of one round share a cluster, each in a cell of its own. With the extender every run has to be exact;
without it the same checker has to find too much promised in most runs.

    python -m tests.e2e.soak                  # the whole programme: 50 runs with the extender, 20 without
    python -m tests.e2e.soak --runs 10 --without 0
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from tests.e2e.checker import Report
from tests.e2e.harness import GIB, STOCK_SCHEDULER, Cell, Scene
from tests.e2e.outcomes import conclude
from tests.longhorn.options import Delay, Delays, LonghornOptions

PODS, NODES, LIMIT_BYTES = 16, 4, 400 * GIB
CLEAR_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class SoakRound:
    """Runs that go on at once in one cluster."""

    name: str
    runs: int
    options: LonghornOptions
    patience_seconds: float
    with_extender: bool = True


@dataclass(slots=True)
class SoakOutcome:
    """One run. Times are seconds since its first pod was created; None: never."""

    round: str
    with_extender: bool
    pods_per_node: list[int]
    peak_gib: list[float]
    complaints: list[str]
    local: int
    bound_seconds: float | None
    ready_seconds: float | None
    problem: str = ""
    refused: int = 0

    @property
    def is_exact(self) -> bool:
        return (
            not self.complaints
            and not self.problem
            and self.local == PODS
            and self.pods_per_node == [PODS // NODES] * NODES
        )

    @property
    def is_over(self) -> bool:
        return any(peak * GIB > LIMIT_BYTES for peak in self.peak_gib)


def problems(outcomes: Sequence[SoakOutcome]) -> list[str]:
    """What is not as it has to be."""
    found = [
        f"{o.round}: pods {o.pods_per_node}, local {o.local}, {o.problem or 'in time'}; {'; '.join(o.complaints)}"
        for o in outcomes
        if o.with_extender and not o.is_exact
    ]
    for name in dict.fromkeys(o.round for o in outcomes if not o.with_extender):
        runs = [o for o in outcomes if o.round == name]
        over = sum(o.is_over for o in runs)
        if over * 2 <= len(runs):
            found.append(f"{name}: the checker found too much promised in {over} of {len(runs)} runs only")
    return found


def uniform(most: float, attach: float | None = None) -> Delays:
    """Every delay drawn between nothing and `most` seconds."""
    each: Delay = (0.0, most)
    short: Delay = (0.0, min(most, 1.0))  # as long as Longhorn's writes take, and the ways back only cost time here
    return Delays(
        provision=each,
        attach=each if attach is None else (attach / 2, attach),
        placement=each,
        write=short,
        write_roaming=short,
        start=each,
        disk_figures=each,
        detach=short,
        delete=short,
        stop=short,
    )


def programme(runs: int, without: int, at_once: int) -> list[SoakRound]:
    """Four fifths of the runs with delays up to 3 s, the rest up to 30 s, two of them with attachments up to 120 s."""
    slow = runs // 5
    very_slow = min(2, slow)
    rounds = [*rounds_of("up to 3 s", runs - slow, at_once, LonghornOptions(delays=uniform(3.0)), 180.0)]
    rounds += rounds_of("up to 30 s", slow - very_slow, at_once, LonghornOptions(delays=uniform(30.0)), 420.0)
    rounds += rounds_of(
        "up to 30 s, attach up to 120 s", very_slow, at_once, LonghornOptions(delays=uniform(30.0, 120.0)), 600.0
    )
    bare = uniform(1.0)
    rounds += rounds_of("no extender", without, at_once, LonghornOptions(delays=bare), 120.0, with_extender=False)
    tracked = LonghornOptions(delays=bare, capacity_tracking=True, capacity_seconds=1.0)
    rounds += rounds_of("no extender, capacity tracking", without, at_once, tracked, 120.0, with_extender=False)
    return rounds


def rounds_of(
    name: str, runs: int, at_once: int, options: LonghornOptions, patience: float, *, with_extender: bool = True
) -> Iterable[SoakRound]:
    """`runs` runs in as many rounds as it takes, each with a seed of its own."""
    for number, first in enumerate(range(0, runs, at_once)):
        yield SoakRound(name, min(at_once, runs - first), replace(options, seed=number + 1), patience, with_extender)


def play(plan: SoakRound, progress: Callable[[str], None]) -> list[SoakOutcome]:
    """One round in a cluster of its own."""
    started = time.monotonic()
    with Scene.start(plan.options) as scene:
        if plan.with_extender:
            scene.start_controller()
        else:
            scene.start_stock_scheduler()
        cells = [scene.cell(f"cell{number}") for number in range(1, plan.runs + 1)]
        for cell in cells:
            if plan.with_extender:
                cell.stateful_set(replicas=PODS)
            else:
                cell.stateful_set(replicas=PODS, opted_in=False, scheduler=STOCK_SCHEDULER)
        problems = [await_cell(cell, plan, started) for cell in cells]
        outcomes = [
            outcome_of(plan, cell, scene.judge(cell), problem) for cell, problem in zip(cells, problems, strict=True)
        ]
        if plan.with_extender:
            ledger = ledger_problem(scene)
            for outcome in outcomes:
                outcome.problem = outcome.problem or ledger
    exact, over = sum(o.is_exact for o in outcomes), sum(o.is_over for o in outcomes)
    seconds = time.monotonic() - started
    progress(f"{plan.name}: {len(outcomes)} runs in {seconds:.0f} s; {exact} exact, {over} promised too much")
    return outcomes


def await_cell(cell: Cell, plan: SoakRound, started: float) -> str:
    left = max(1.0, started + plan.patience_seconds - time.monotonic())
    try:
        if plan.with_extender:
            cell.wait_ready(PODS, left)
        else:
            cell.wait_bound(PODS, left)
    except TimeoutError as error:
        return str(error)
    return ""


def ledger_problem(scene: Scene) -> str:
    try:
        scene.controllers[-1].wait_ledger_empty(60.0)
    except AssertionError as error:
        return str(error)
    return ""


def outcome_of(plan: SoakRound, cell: Cell, report: Report, problem: str) -> SoakOutcome:
    counts, peaks = report.pods_per_node(), report.peaks()
    start = min((pod.created_at for pod in report.pods.values()), default=0.0)
    bound = [pod.bound_at - start for pod in report.bound if pod.bound_at is not None]
    ready = [pod.ready_at - start for pod in report.ready if pod.ready_at is not None]
    return SoakOutcome(
        round=plan.name,
        with_extender=plan.with_extender,
        pods_per_node=[counts.get(node, 0) for node in cell.nodes],
        peak_gib=[peaks.get(node, 0) / GIB for node in cell.nodes],
        complaints=report.complaints(),
        local=len(report.local),
        bound_seconds=round(max(bound), 3) if len(bound) == PODS else None,
        ready_seconds=round(max(ready), 3) if len(ready) == PODS else None,
        problem=problem,
        refused=len(report.refused),
    )


def summary(outcomes: Sequence[SoakOutcome]) -> str:
    lines = []
    for name in dict.fromkeys(outcome.round for outcome in outcomes):
        runs = [outcome for outcome in outcomes if outcome.round == name]
        bound = sorted(outcome.bound_seconds for outcome in runs if outcome.bound_seconds is not None)
        times = (
            f"bound after {statistics.median(bound):.1f} s in the median, {bound[-1]:.1f} s at most" if bound else ""
        )
        lines.append(
            f"{name:<32} {len(runs):3d} runs   exact {sum(o.is_exact for o in runs):3d}   "
            f"promised too much {sum(o.is_over for o in runs):3d}   {times}"
        )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.soak", description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=50, help="with the extender (default 50)")
    parser.add_argument("--without", type=int, default=10, help="without it, each with and without capacity tracking")
    parser.add_argument("--at-once", type=int, default=10, help="cells that share a cluster (default 10)")
    parser.add_argument("--output", type=Path, default=Path("bench-output/soak.json"))
    args = parser.parse_args()
    outcomes: list[SoakOutcome] = []
    for plan in programme(args.runs, args.without, args.at_once):
        print(f"{plan.name}: {plan.runs} runs at once ...", flush=True)
        outcomes += play(plan, partial(print, flush=True))
    print("\n" + summary(outcomes))
    return conclude(args.output, outcomes, problems(outcomes))


if __name__ == "__main__":
    sys.exit(main())
