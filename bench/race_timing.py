"""How long a burst of pods waits until all are bound: with the extender, without, under the other policy.

    python -m bench.race_timing                       # both parts, some 15 minutes
    python -m bench.race_timing --part ample --pairs 3

*ample*: 16, then 64 pods on nodes with room for all of them many times over, runs with and without the extender in
turn. Provisioning takes 0.5 to 1.5 s. *exact*: 64 pods fill 16 nodes to the last byte, a second each for provisioning,
attaching and disk figures; also once under the policy of Longhorn's enhancement text, and once with kube-scheduler's
default client. Times are the API server's recorded history's: from the first pod's creation to the last binding.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from bench.race_runs import EXACT, OURS, POLICY, STOCK, Case, Run, ample_verdict, exact_verdict, run_of, table
from tests.e2e import scheduling
from tests.e2e.harness import STOCK_SCHEDULER, Cell, Scene
from tests.e2e.programs import ProposalPolicy
from tests.longhorn.options import Delays, LonghornOptions

VOLUME_GIB: Final = 100
NODES: Final = 16
EXACT_DISK_GIB: Final = 400
AMPLE_DISK_GIB: Final = 8000  # every pod may hold room on every node at once
PATIENCE_SECONDS: Final = 120.0
AMPLE: Final = Delays(provision=(0.5, 1.5), attach=0.1, placement=0.0, start=0.0, disk_figures=0.5, delete=0.0)
ALL_ONE_SECOND: Final = Delays(provision=1.0, attach=1.0, placement=0.0, start=0.0, disk_figures=1.0, delete=0.0)

Say = Callable[[str], None]


class Stage:
    """A scene with one cell, on which one race follows another. Threads: one."""

    def __init__(self, scene: Scene, disk_gib: int, fillers: int, say: Say) -> None:
        self.scene, self._say = scene, say
        self.cell: Cell = scene.cell("race", nodes=NODES, disks_gib=(disk_gib,), fillers=fillers)
        self._marks: list[tuple[Case, str, str, int]] = []  # case, way, namespace, revision of its begin

    def race(self, case: Case, way: str, patience: float = PATIENCE_SECONDS) -> None:
        """One burst until all its pods are bound, or patience ends; then everything of it is deleted."""
        cell = self.cell
        self._marks.append((case, way, cell.namespace, cell.since))
        started = time.monotonic()
        if way == STOCK:
            cell.stateful_set(replicas=case.pods, gib=VOLUME_GIB, opted_in=False, scheduler=STOCK_SCHEDULER)
        else:
            cell.stateful_set(replicas=case.pods, gib=VOLUME_GIB)
        try:
            cell.wait_bound(case.pods, patience)
            ending = f"all bound after about {time.monotonic() - started:.1f} s"
        except TimeoutError:
            ending = f"{len(cell.bound())} bound after {patience:.0f} s, given up"
        self._say(f"  {case.name}, {way}: {ending}")
        cell.clear()
        cell.renew()

    def runs(self) -> list[Run]:
        """What the history says of every race so far."""
        report = self.scene.judge()
        ends = [since for *_, since in self._marks[1:]] + [sys.maxsize]
        return [
            run_of(report, case, way, namespace, since, end)
            for (case, way, namespace, since), end in zip(self._marks, ends, strict=True)
        ]


def pairs(stage: Stage, case: Case, count: int) -> None:
    """Runs with and without the extender in turn, each as often first as second."""
    for number in range(count):
        for way in (OURS, STOCK) if number % 2 == 0 else (STOCK, OURS):
            stage.race(case, way)


def ample(count: int, sizes: Sequence[int], say: Say) -> list[Run]:
    say("ample room")
    with Scene.start(LonghornOptions(delays=AMPLE, seed=1)) as scene:
        scene.start_controller()
        scene.start_stock_scheduler()
        stage = Stage(scene, AMPLE_DISK_GIB, 0, say)
        for pods in sizes:
            pairs(stage, Case(f"ample, {pods} pods", pods), count)
        return stage.runs()


def exact(count: int, policy_patience: float, say: Say) -> list[Run]:
    say("exactly enough room")
    with Scene.start(LonghornOptions(delays=ALL_ONE_SECOND, seed=1)) as scene:
        cluster = scene.cluster
        scene.start_controller()
        scene.start_stock_scheduler()
        # Half of the nodes are busier otherwise: kube-scheduler spreads pods evenly over equal ones by itself.
        stage = Stage(scene, EXACT_DISK_GIB, NODES // 2, say)
        pairs(stage, EXACT, count)

        slow = Case("exact, default client", EXACT.pods)
        cluster.restart_scheduler(scheduling.with_default_client(scene.extender_config()))
        stage.race(slow, OURS)

        scene.stop_controllers()
        policy = ProposalPolicy(cluster)
        policy.wait_serving()
        # An answer of that policy blocks until the pod before it is bound: it gets the timeout that its text asks for.
        cluster.restart_scheduler(scene.extender_config(timeout="10s"))
        stage.race(EXACT, POLICY, policy_patience)
        return stage.runs()


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.race_timing", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--part", choices=("ample", "exact"), help="one of the two only")
    parser.add_argument("--pairs", type=int, default=10, help="of runs with ample room, of each size (default 10)")
    parser.add_argument("--sizes", type=int, nargs="+", default=[16, 64], help="pods with ample room (default 16 64)")
    parser.add_argument("--exact-pairs", type=int, default=3, help="of runs with exactly enough (default 3)")
    parser.add_argument("--policy-patience", type=float, default=300.0, help="seconds for the other policy")
    parser.add_argument("--output", type=Path, default=Path("bench-output/race_timing.json"))
    args = parser.parse_args()

    def say(line: str) -> None:
        print(line, flush=True)

    runs: list[Run] = []
    verdicts: list[str] = []
    if args.part != "exact":
        runs += ample(args.pairs, args.sizes, say)
        verdicts += [ample_verdict(runs, f"ample, {pods} pods") for pods in args.sizes]
    if args.part != "ample":
        runs += exact(args.exact_pairs, args.policy_patience, say)
        verdicts += exact_verdict(runs)
    print("\n" + table(runs) + "\n\n" + "\n".join(verdicts))
    args.output.parent.mkdir(parents=True, exist_ok=True)
    figures = {"runs": [run.as_figures() for run in runs], "verdicts": verdicts}
    args.output.write_text(json.dumps(figures, indent=2) + "\n")
    print(f"written: {args.output}")
    # Times depend on the machine and are only told; that nothing is promised twice does not.
    wrong = [run for run in runs if run.way == OURS and (run.places_over or run.bound < run.pods)]
    for run in wrong:
        print(f"NOT AS IT HAS TO BE: {run}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
