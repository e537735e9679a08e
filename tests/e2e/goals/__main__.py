"""Play the goals again and again, and print a table of runs and counter-runs (`make goals`).

python -m tests.e2e.goals                         # as often as each goal asks for, short waits; about ten minutes
python -m tests.e2e.goals --long                  # waits of 60 s and 5 min; about half an hour
python -m tests.e2e.goals --only goal2 --times 3
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from tests.e2e.goals import foreseen, placing, refused
from tests.e2e.goals.scenario import USUAL_DELAYS, Scenario, ScenarioRun, harmless, not_right, play
from tests.e2e.harness import Scene
from tests.e2e.outcomes import conclude
from tests.longhorn.options import LonghornOptions

RETRY_SECONDS = 3.0
SHORT, LONG = 8, 60
DEFAULT_SCHEDULER = "default-scheduler"


def programme(*, is_long: bool) -> list[Scenario]:
    late = LONG if is_long else SHORT
    watch = 300.0 if is_long else 30.0
    exact = (placing.EXACT, placing.EXACT_RESTORED, placing.EXACT_CLONED)
    return [
        placing.SEVERAL_VOLUMES,
        placing.DRAIN,
        placing.DRAIN_AT_ONCE,
        placing.DRAIN_AFTER_EVICTION,
        placing.DRAIN_WHILE_PENDING,
        placing.RESTART,
        *(placing.late(scenario, late) for scenario in exact),
        placing.after_seconds(placing.CORDONED_HOME, late),
        refused.storm(watch),
        refused.nobody_evicted(watch),
        refused.ONE_EVICTED,
        *foreseen.ALL,
    ]


def rounds(scenario: Scenario, times: int, at_once: int) -> Iterator[tuple[int, int]]:
    """Runs to play at once, counter-runs after them, until there were `times` runs. Three of the latter suffice."""
    counters = min(times, 3) if scenario.has_counter else 0
    while times > 0:
        runs = min(times, at_once)
        yield runs, counters
        times, counters = times - runs, 0


def play_all(scenarios: Sequence[Scenario], times: int | None, at_once: int) -> list[ScenarioRun]:
    found: list[ScenarioRun] = []
    options = LonghornOptions(delays=USUAL_DELAYS, retry_seconds=RETRY_SECONDS)
    with Scene.start(options, run_scheduler=False) as scene, ExitStack() as stack:
        scene.cluster.start_scheduler(refused.generated(scene, DEFAULT_SCHEDULER))
        scene.start_stock_scheduler()
        scene.start_controller()
        stack.enter_context(refused.urgent_pods(scene))
        for scenario in scenarios:
            for runs, counters in rounds(scenario, times or scenario.times, at_once):
                print(f"{scenario.name}: {runs} runs at once, then {counters} counter-runs ...", flush=True)
                new = play(scene, scenario, runs=runs, counters=counters)
                for run in new:
                    print(f"  {'with' if run.with_extender else 'without'}: {run.text} ({run.seconds} s)", flush=True)
                found += new
                scene.controllers[-1].wait_ledger_empty()
    return found


def table(scenarios: Sequence[Scenario], runs: Sequence[ScenarioRun]) -> str:
    lines = ["| scenario | with the extender | without it |", "|---|---|---|"]
    for scenario in scenarios:
        cells = []
        for with_extender in (True, False):
            mine = [run for run in runs if run.scenario == scenario.name and run.with_extender == with_extender]
            right = sum(run.is_right and not (with_extender and run.violations) for run in mine)
            cells.append(f"{right} of {len(mine)}" if mine else "")
        lines.append(f"| {scenario.name}: {scenario.goal} | {cells[0]} | {cells[1]} |")
    return "\n".join(lines)


def problems(scenarios: Sequence[Scenario], runs: Sequence[ScenarioRun]) -> list[str]:
    """Runs that missed their goal, and goals that most counter-runs reached too."""
    found = not_right(runs)
    for scenario in scenarios:
        mine = [run for run in runs if run.scenario == scenario.name and not run.with_extender]
        if mine and 2 * len(harmless(mine)) > len(mine):
            found.append(f"{scenario.name}: most runs without the extender reach the goal too")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.goals", description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, help="runs of every scenario (default: 1 to 20, as its goal says)")
    parser.add_argument("--only", nargs="+", default=[], metavar="SCENARIO", help="names as in the table")
    parser.add_argument("--long", action="store_true", help="waits of 60 s and 5 minutes")
    parser.add_argument("--at-once", type=int, default=10, help="runs that share a cluster at a time (default 10)")
    parser.add_argument("--output", type=Path, default=Path("bench-output/goals.json"))
    args = parser.parse_args()
    scenarios = programme(is_long=args.long)
    unknown = set(args.only) - {scenario.name for scenario in scenarios}
    if unknown:
        parser.error(f"--only: no scenario {', '.join(sorted(unknown))}")
    scenarios = [scenario for scenario in scenarios if not args.only or scenario.name in args.only]
    runs = play_all(scenarios, args.times, args.at_once)
    print("\n" + table(scenarios, runs))
    return conclude(args.output, runs, problems(scenarios, runs))


if __name__ == "__main__":
    sys.exit(main())
