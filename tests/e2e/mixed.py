"""The mixed race: pods of all kinds at once on nodes that they nearly fill, while leaders die and volumes grow.

Each run has a cluster of its own and two schedulers that ask the extender; its history is judged. The same runs without
the extender are the comparison (`make mixed`).

    python -m tests.e2e.mixed                            # 3 runs of 200 pods with the extender, 1 without
    python -m tests.e2e.mixed --runs 1 --without 0 --pods 60 --seed 7
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.e2e.checker import Report
from tests.e2e.harness import Scene
from tests.e2e.mixed_plan import SHARED, MixedPlan, make_plan
from tests.e2e.mixed_run import MixedFound, MixedRun, gib
from tests.e2e.outcomes import conclude
from tests.longhorn.options import Delays, LonghornOptions

OUTPUT = Path("bench-output")


@dataclass(slots=True)
class MixedOutcome:
    """One run. Seconds since its first pod was created; bytes in GiB."""

    seed: int
    with_extender: bool
    pods: int
    bound: int
    ready: int
    last_ready_seconds: float | None
    pending: int
    refused: int
    over_gib: float
    told_gib: float  # as much too much, of claims that were told that they lost their place
    without_disk: int
    misses: int
    unexplained_misses: int
    kills: int
    grown: int
    not_grown: int
    complaints: list[str]
    not_ready: list[str]  # pods that were bound and never became ready, but for:
    shared_not_ready: int  # those whose shared volume the stand-in had attached to another node

    @property
    def is_right(self) -> bool:
        return not self.complaints

    def __str__(self) -> str:
        last = "never" if self.last_ready_seconds is None else f"after {self.last_ready_seconds:.0f} s"
        return (
            f"seed {self.seed} {'with' if self.with_extender else 'without'} the extender: "
            f"{self.bound} of {self.pods} pods bound, {self.ready} ready, the last {last}, {self.pending} pending; "
            f"leaders killed {self.kills}, grown {self.grown}, growth refused {self.not_grown}\n"
            f"    GiB over a limit: {self.over_gib:.1f}; of claims that were told {self.told_gib:.1f}\n"
            f"    bound without a disk {self.without_disk}; away from the replica {self.misses}, "
            f"of these not told {self.unexplained_misses}; bound and not ready: {', '.join(self.not_ready) or 'none'}, "
            f"and {self.shared_not_ready} that share a volume"
        )


def options(seed: int) -> LonghornOptions:
    """A Longhorn whose figures and decisions are late."""
    delays = Delays(
        provision=(0.2, 2.0),
        attach=(0.1, 2.0),
        placement=(0.0, 1.0),
        start=(0.1, 0.5),
        disk_figures=(0.1, 3.0),
        write=(0.02, 0.5),
        write_roaming=(0.02, 1.0),
        resize=(0.1, 1.0),
        expand=(0.1, 1.0),
    )
    return LonghornOptions(delays=delays, retry_seconds=5.0, seed=seed)


def play(
    plan: MixedPlan, seed: int, *, with_extender: bool, keep: bool, progress: Callable[[str], None]
) -> MixedOutcome:
    """One run in a cluster of its own. What a run that is not right left behind is kept beside the results."""
    with Scene.start(options(seed), run_scheduler=False) as scene:
        run = MixedRun(scene, plan, seed, with_extender=with_extender, progress=progress)
        outcome = outcome_of(plan, seed, run.found, run.play(), with_extender=with_extender)
        if keep or (with_extender and not outcome.is_right):
            keep_evidence(scene, run, OUTPUT / f"mixed-{'with' if with_extender else 'without'}-{seed}")
    return outcome


def keep_evidence(scene: Scene, run: MixedRun, folder: Path) -> None:
    """The history, the logs, and whose they are."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    shutil.copy(scene.cluster.history, folder)
    for log in scene.cluster.state_dir.rglob("*.log"):
        shutil.copy(log, folder)
    facts = {"nodes": run.cell.nodes, "namespace": run.cell.namespace}
    (folder / "run.json").write_text(json.dumps(facts, indent=2) + "\n")


def outcome_of(plan: MixedPlan, seed: int, found: MixedFound, report: Report, *, with_extender: bool) -> MixedOutcome:
    start = min((pod.created_at for pod in report.pods.values()), default=0.0)
    ready = [pod.ready_at - start for pod in report.ready if pod.ready_at is not None]
    shared = {pod.name for pod in plan.pods for claim in pod.claims if claim.kind.name == SHARED}
    not_ready = sorted(pod.key.partition("/")[2] for pod in report.bound if pod.ready_at is None)
    return MixedOutcome(
        seed=seed,
        with_extender=with_extender,
        pods=len(plan.pods),
        bound=len(report.bound),
        ready=len(report.ready),
        last_ready_seconds=max(ready, default=None),
        pending=len(plan.pods) - len(report.bound),
        refused=len(report.refused),
        over_gib=gib(sum(violation.over_bytes for violation in report.violations)),
        told_gib=gib(sum(violation.over_bytes for violation in report.lost)),
        without_disk=len(report.without_disk),
        misses=len(report.misses),
        unexplained_misses=len(report.unexplained_misses),
        kills=found.kills,
        grown=found.grown,
        not_grown=found.not_grown,
        complaints=report.complaints(),
        not_ready=[name for name in not_ready if name not in shared],
        shared_not_ready=sum(name in shared for name in not_ready),
    )


def problems(outcomes: Sequence[MixedOutcome]) -> list[str]:
    return [f"seed {one.seed}: {text}" for one in outcomes if one.with_extender for text in one.complaints]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.mixed", description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=3, help="with the extender (default 3)")
    parser.add_argument("--without", type=int, default=1, help="the first so many of them again without it (default 1)")
    parser.add_argument("--seed", type=int, default=1, help="of the first run; each one adds 1 (default 1)")
    parser.add_argument("--pods", type=int, default=200, help="of each run (default 200)")
    parser.add_argument("--keep", action="store_true", help="keep history and logs of runs that are right, too")
    parser.add_argument("--output", type=Path, default=OUTPUT / "mixed.json")
    args = parser.parse_args()
    rounds = [(args.seed + number, True) for number in range(args.runs)]
    rounds += [(args.seed + number, False) for number in range(args.without)]
    outcomes = []
    for seed, with_extender in rounds:
        plan = make_plan(args.pods, seed)
        disks = sum(map(len, plan.disks_gib))
        print(
            f"{args.pods} pods, {plan.demand_gib} GiB on {disks} disks of {len(plan.disks_gib)} nodes ...", flush=True
        )
        outcomes.append(
            play(plan, seed, with_extender=with_extender, keep=args.keep, progress=partial(print, flush=True))
        )
        print(outcomes[-1], flush=True)
    return conclude(args.output, outcomes, problems(outcomes))


if __name__ == "__main__":
    sys.exit(main())
