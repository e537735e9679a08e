"""How long the extender makes pods wait, and how much longer other ways take (`python -m bench.race_timing`).

Times are from the creation of the workload until its last pod is bound, on a real kube-scheduler with Longhorn's
stand-in. Runs with and without the extender alternate in one cluster, so that whatever else the machine does hits both.
The workload is a StatefulSet where space is ample; where it is exact, bare pods whose claims exist already, because
kube-controller-manager would be busy for longer making the pods than kube-scheduler placing them.

1. Ample space, 16 and 64 pods, provisioning 0.5 to 1.5 s: what does asking cost?
2. 64 pods on 16 nodes with exactly enough space, 1 s each to provision, attach and report disk figures: with the
   extender, without any, and under the policy of Longhorn's enhancement text (`proposal_policy`); also with
   kube-scheduler's own default of 50 requests a second, under which choices show many seconds late.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from bench.verdicts import NamedCase, Results, Verdict, add_report_only, never
from tests.e2e import scheduling
from tests.e2e.harness import STOCK_SCHEDULER, Cell, Scene
from tests.e2e.programs import ProposalPolicy
from tests.longhorn.options import Delays, LonghornOptions

AMPLE = Delays(provision=(0.5, 1.5), attach=0.1, placement=0.0, start=0.1, disk_figures=1.0)
EXACT = Delays(provision=1.0, attach=1.0, placement=0.0, start=0.1, disk_figures=1.0)
OURS, NONE, POLICY = "extender", "no extender", "lock-and-exclude policy"
OUR_SCHEDULER = "default-scheduler"
# Without clientConnection kube-scheduler sends 50 requests a second, 100 in a burst.
SLOW_OURS, SLOW_NONE, POLICY_SCHEDULER = "slow-scheduler", "slow-stock-scheduler", "policy-scheduler"
WITHOUT_EXTENDER = (STOCK_SCHEDULER, SLOW_NONE)
PATIENCE_SECONDS = 120.0
CREATORS = 4  # threads that make bare pods
POLICY_PATIENCE_SECONDS = 240.0
# What is asked of us: a ratio, or an absolute difference where that allows more.
AMPLE_RATIO, AMPLE_SECONDS, EXACT_RATIO, POLICY_RATIO = 1.10, 0.3, 1.25, 30.0


@dataclass(slots=True)
class RaceRun:
    way: str
    bound: int
    seconds: float  # until the last of the `bound` pods was bound
    violations: int
    pods_on_fullest_node: int


@dataclass(slots=True)
class RaceCase(NamedCase):
    pods: int
    nodes: int
    runs: list[RaceRun] = field(default_factory=list)

    def seconds(self, way: str) -> list[float]:
        return [run.seconds for run in self.runs if run.way == way and run.bound == self.pods]

    def median(self, way: str) -> float:
        return statistics.median(self.seconds(way) or [float("nan")])

    def line(self, way: str) -> str:
        runs = [run for run in self.runs if run.way == way]
        over = sum(run.violations > 0 for run in runs)
        times = self.seconds(way)
        if times:
            spread = f"median {statistics.median(times):6.2f} s   {min(times):6.2f} to {max(times):6.2f} s"
            if len(times) < len(runs):
                spread += f" of the {len(times)} that bound all pods"
        else:
            spread = f"{runs[0].bound} of {self.pods} bound after {runs[0].seconds:.1f} s, the rest never"
        return f"  {way:<28} {len(runs):2d} runs   {spread}   promised too much in {over}"


def race(
    cell: Cell, way: str, scheduler: str, pods: int, patience: float = PATIENCE_SECONDS, *, is_bare: bool = False
) -> RaceRun:
    """One workload from its creation to its last binding; the history's verdict; everything given back."""
    cell.renew()
    opted_in = scheduler not in WITHOUT_EXTENDER
    cell.scene.let_place("leader" if opted_in else "longhorn")
    if is_bare:
        with ThreadPoolExecutor(CREATORS) as pool:
            list(pool.map(cell.claim, [f"data-{number}" for number in range(pods)]))
            started = time.monotonic()
            list(pool.map(partial(_bare_pod, cell, scheduler, opted_in), range(pods)))
    else:
        started = time.monotonic()
        cell.stateful_set(replicas=pods, opted_in=opted_in, scheduler=scheduler)
    bound, seconds = 0, 0.0
    while bound < pods:
        left = started + patience - time.monotonic()
        try:
            cell.wait_bound(bound + 1 if patience > PATIENCE_SECONDS else pods, left)
        except TimeoutError:
            break
        bound, seconds = len(cell.bound()), time.monotonic() - started
    report = cell.scene.judge(cell)
    cell.clear()
    fullest = max(report.pods_per_node().values(), default=0)
    print(f"    {way:<28} {bound} of {pods} bound after {seconds:6.2f} s, at most {fullest} on a node", flush=True)
    return RaceRun(way, bound, round(seconds, 3), len(report.violations), fullest)


def _bare_pod(cell: Cell, scheduler: str, opted_in: bool, number: int) -> None:
    cell.pod(f"p-{number}", f"data-{number}", opted_in=opted_in, schedulerName=scheduler)


def ample(results: Results[RaceCase], pods_each: Sequence[int], pairs: int) -> None:
    with Scene.start(LonghornOptions(delays=AMPLE)) as scene:
        scene.start_controller()
        scene.start_stock_scheduler()
        cell = scene.cell("ample", nodes=8, disks_gib=(40_000,), fillers=0)
        race(cell, "(warming up)", OUR_SCHEDULER, min(pods_each))
        race(cell, "(warming up)", STOCK_SCHEDULER, min(pods_each))
        for pods in pods_each:
            case = results.open(RaceCase(f"{pods} pods, ample space", pods, 8))
            for number in range(pairs):
                pair = [(OURS, OUR_SCHEDULER), (NONE, STOCK_SCHEDULER)]
                for way, scheduler in pair if number % 2 == 0 else reversed(pair):
                    case.runs.append(race(cell, way, scheduler, pods))
                    results.write([])


def exact(results: Results[RaceCase], pairs: int, *, with_policy: bool) -> None:
    pods, nodes = 64, 16
    with Scene.start(LonghornOptions(delays=EXACT)) as scene:
        scene.start_controller()
        scene.start_stock_scheduler()
        cell = scene.cell("exact", nodes=nodes, fillers=nodes // 2)
        case = results.open(RaceCase("64 pods on 16 nodes, exactly enough space", pods, nodes))
        for number in range(pairs):
            pair = [(OURS, OUR_SCHEDULER), (NONE, STOCK_SCHEDULER)]
            for way, scheduler in pair if number % 2 == 0 else reversed(pair):
                case.runs.append(race(cell, way, scheduler, pods, is_bare=True))
                results.write([])
        slow = results.open(RaceCase("the same, kube-scheduler's default client", pods, nodes))
        for way, scheduler, config in (
            (OURS, SLOW_OURS, scene.extender_config()),
            (NONE, SLOW_NONE, scheduling.stock()),
        ):
            start_scheduler(scene, scheduler, scheduling.with_default_client(config))
            slow.runs.append(race(cell, way, scheduler, pods, is_bare=True))
            results.write([])
            scene.cluster.stop_scheduler(scheduler)
        if with_policy:
            case.runs.append(race_policy(scene, cell, pods))
            results.write([])


def race_policy(scene: Scene, cell: Cell, pods: int) -> RaceRun:
    scene.take_away()
    policy = ProposalPolicy(scene.cluster)
    policy.wait_serving()
    try:
        start_scheduler(
            scene, POLICY_SCHEDULER, scene.extender_config(timeout="10s", filter_only=True, plain_http=True)
        )
        return race(cell, POLICY, POLICY_SCHEDULER, pods, POLICY_PATIENCE_SECONDS, is_bare=True)
    finally:
        policy.stop()


def start_scheduler(scene: Scene, name: str, config: scheduling.Config) -> None:
    scene.cluster.start_scheduler({**config, "profiles": [{"schedulerName": name}]}, name=name)


def verdicts(cases: Sequence[RaceCase]) -> list[Verdict]:
    """Each figure beside what is asked of it."""
    found: list[Verdict] = []
    for case in cases:
        ours, none = case.median(OURS), case.median(NONE)
        text = f"{case.name}: {ours / none:.2f} x"
        if "ample" in case.name:
            most = max(none * AMPLE_RATIO, none + AMPLE_SECONDS)
            found.append(Verdict(text, ours <= most, f"at most {most / none:.2f} x"))
        elif case.runs and "default client" not in case.name:
            found.append(Verdict(text, ours <= none * EXACT_RATIO, f"at most {EXACT_RATIO} x"))
            for run in (run for run in case.runs if run.way == POLICY):
                ratio = run.seconds / ours
                found.append(
                    Verdict(f"{POLICY}: {ratio:.0f} x ours", ratio >= POLICY_RATIO, f"at least {POLICY_RATIO:.0f} x")
                )
        left = [case.pods - run.bound for run in case.runs if run.way == OURS and run.bound < case.pods]
        text = f"{case.name}: {len(left)} runs with the extender did not bind all pods ({sum(left)} pods)"
        found.append(Verdict(text, not left, "none"))
        over = sum(run.violations for run in case.runs if run.way == OURS)
        found.append(never(f"{case.name}: promised too much with the extender", over))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.race_timing", description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=10, help="alternating pairs where space is ample (default 10)")
    parser.add_argument("--exact-pairs", type=int, default=3, help="where it is exactly sufficient (default 3)")
    parser.add_argument("--pods", type=int, nargs="*", default=[16, 64], help="crowds where space is ample")
    parser.add_argument("--no-policy", action="store_true", help="leave out the enhancement text's policy (4 minutes)")
    parser.add_argument("--output", type=Path, default=Path("bench-output/race_timing.json"))
    add_report_only(parser)
    args = parser.parse_args()
    results = Results[RaceCase](args.output)
    if args.pods and args.pairs:
        ample(results, args.pods, args.pairs)
    if args.exact_pairs:
        exact(results, args.exact_pairs, with_policy=not args.no_policy)
    print()
    for case in results.cases:
        print(case.name)
        for way in dict.fromkeys(run.way for run in case.runs):
            print(case.line(way))
    checks = verdicts(results.cases)
    return results.conclude(checks, is_report_only=args.report_only)


if __name__ == "__main__":
    sys.exit(main())
