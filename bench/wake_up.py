"""How fast refused pods come back when there is room, and how many are woken for it (`python -m bench.wake_up`).

A real kube-scheduler, 500 refused pods of one volume each, and nodes whose disks are reserved. In every round one disk
is freed so far that it takes K of them: an event of Longhorn alone, which wakes nobody by itself. Printed for each
round: patches sent, filter calls, and seconds until the first and the last of the K pods was bound.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from bench.verdicts import Verdict, add_report_only, conclude, lines_of, never, write
from tests.e2e.harness import GIB, Cell, Scene
from tests.e2e.scheduling import NAMESPACE
from tests.e2e.view import LONGHORN_NODES
from tests.longhorn.options import Delays, LonghornOptions
from tests.waiting import wait_until

DELAYS: Final = Delays(provision=0.5, attach=0.5, placement=0.0, start=0.1, disk_figures=1.0)
DISK_GIB: Final = 2_050
TOO_LITTLE_GIB: Final = 50
QUIET_SECONDS: Final = 11.0  # longer than kube-scheduler's longest back-off
FIRST_BIND_SECONDS: Final = 2.0  # asked of us


@dataclass(frozen=True, slots=True)
class WakeRound:
    takes: int
    refused: int
    patches: int
    filter_calls: int
    first_bind_seconds: float
    last_bind_seconds: float
    bound: int


def fill(scene: Scene, cell: Cell, pods: int) -> None:
    """That many pods, all refused. Claims come first: each new claim has kube-scheduler look at every refused pod."""
    for node in cell.nodes:
        reserve(scene, node, DISK_GIB - TOO_LITTLE_GIB)
    for number in range(pods):
        cell.claim(f"c{number}")
    for number in range(pods):
        cell.pod(f"p{number}", f"c{number}")
    cell.wait_refused(pods, 900)
    wait_quiet(scene, pods)


def wait_quiet(scene: Scene, refused: int) -> None:
    """Until all of them are known as refused, and nobody asks any more."""
    seen, since = -1, time.monotonic()

    def is_quiet() -> bool:
        nonlocal seen, since
        calls = filter_calls(scene)
        if calls != seen:
            seen, since = calls, time.monotonic()
        is_known = scene.controllers[-1].status()["refused_pods"] >= refused
        return is_known and time.monotonic() - since > QUIET_SECONDS

    wait_until(is_quiet, "an idle scheduler", 600)


def reserve(scene: Scene, node: str, gib: int) -> None:
    path = LONGHORN_NODES.replace("/nodes", f"/namespaces/{NAMESPACE}/nodes/{node}")
    scene.api.patch(path, {"spec": {"disks": {"disk1": {"storageReserved": gib * GIB}}}})


def filter_calls(scene: Scene) -> int:
    controller = scene.controllers[-1]
    return sum(controller.decisions(decision) for decision in ("refused", "contended", "offered", "chosen"))


def free(scene: Scene, cell: Cell, node: str, takes: int, waiting: int) -> WakeRound:
    """One round: room for `takes` pods on `node`."""
    controller = scene.controllers[-1]
    bound, patches, calls = len(cell.bound()), controller.counted("wakeups_total"), filter_calls(scene)
    began = time.monotonic()
    reserve(scene, node, DISK_GIB - 100 * takes)
    cell.wait_bound(bound + 1, 120)
    first = time.monotonic() - began
    cell.wait_bound(bound + takes, 120)
    last = time.monotonic() - began
    controller.wait_ledger_empty(60)
    wait_quiet(scene, waiting - takes)
    return WakeRound(
        takes=takes,
        refused=waiting,
        patches=controller.counted("wakeups_total") - patches,
        filter_calls=filter_calls(scene) - calls,
        first_bind_seconds=round(first, 2),
        last_bind_seconds=round(last, 2),
        bound=len(cell.bound()) - bound,
    )


def run(pods: int, takes: Sequence[int]) -> tuple[list[WakeRound], int]:
    """The rounds, and how often somewhere too much was promised."""
    rounds: list[WakeRound] = []
    with Scene.start(LonghornOptions(delays=DELAYS)) as scene:
        scene.start_controller()
        cell = scene.cell("wake", nodes=len(takes), disks_gib=(DISK_GIB,), fillers=0)
        fill(scene, cell, pods)
        print(f"{'K':>4} {'refused':>8} {'patches':>8} {'calls':>6} {'first bind':>11} {'last bind':>10}", flush=True)
        for node, count in zip(cell.nodes, takes, strict=True):
            done = free(scene, cell, node, count, pods - sum(entry.takes for entry in rounds))
            rounds.append(done)
            print(
                f"{done.takes:>4} {done.refused:>8} {done.patches:>8} {done.filter_calls:>6}"
                f" {done.first_bind_seconds:>9.2f} s {done.last_bind_seconds:>8.2f} s",
                flush=True,
            )
        violations = len(scene.judge(cell).violations)
    return rounds, violations


def verdicts(rounds: Sequence[WakeRound], violations: int) -> list[Verdict]:
    """Each figure beside what is asked of it."""
    found: list[Verdict] = []
    for number, entry in enumerate(rounds, 1):
        few, fast = entry.patches <= entry.takes + 1, entry.first_bind_seconds <= FIRST_BIND_SECONDS
        text = f"round {number}: {entry.patches} patches for {entry.takes} pods"
        found.append(Verdict(text, few, "at most K + 1"))
        text = f"round {number}: first bind after {entry.first_bind_seconds:.2f} s"
        found.append(Verdict(text, fast, f"at most {FIRST_BIND_SECONDS:.0f} s"))
    return [*found, never("promised too much", violations)]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.wake_up", description=__doc__.splitlines()[0])
    parser.add_argument("--pods", type=int, default=500)
    parser.add_argument("--takes", type=int, nargs="*", default=[4, 20, 4, 20, 4, 20], help="K of each round")
    parser.add_argument("--output", type=Path, default=Path("bench-output/wake_up.json"))
    add_report_only(parser)
    args = parser.parse_args()
    if any(takes * 100 >= DISK_GIB for takes in args.takes):
        parser.error(f"--takes: at most {(DISK_GIB - 1) // 100}")
    rounds, violations = run(args.pods, args.takes)
    checks = verdicts(rounds, violations)
    document = {
        "rounds": [asdict(entry) for entry in rounds],
        "verdicts": lines_of(checks),
        "load_average": os.getloadavg(),
    }
    write(args.output, document)
    return conclude(checks, is_report_only=args.report_only)


if __name__ == "__main__":
    sys.exit(main())
