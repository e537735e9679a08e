"""64 pods of 45 GiB on 16 nodes with two disks of 100 GiB, until all are ready (`python -m bench.two_disks`).

Each disk takes two of the volumes, so the space is exactly sufficient; Longhorn chooses the disk. A real
kube-scheduler, and the stand-in with the delays of Longhorn's own controllers. Runs with the extender and without
alternate in one cluster. Told are pods that never got ready, and disks over their limit at the end.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from bench.verdicts import Verdict, add_report_only, conclude, lines_of, never, write
from tests.e2e.harness import GIB, STOCK_SCHEDULER, Cell, Scene
from tests.e2e.view import LONGHORN_NODES, LONGHORN_REPLICAS
from tests.longhorn.options import Delays, LonghornOptions

PODS, NODES, SIZE_GIB, DISK_GIB = 64, 16, 45, 100
OURS, NONE = "extender", "no extender"
PATIENCE_SECONDS: Final = 180.0
STUCK_SECONDS: Final = 40.0  # without us: no more pods got ready for so long
ASKED_RATIO: Final = 4.0
CREATORS: Final = 4


@dataclass(slots=True)
class TwoDiskRun:
    way: str
    ready: int
    bound: int
    seconds: float  # until the last of the `ready` pods was ready
    disks_over: int  # at their fullest, by Longhorn's own figures
    fullest: float  # of those disks, times its limit


def run(cell: Cell, way: str) -> TwoDiskRun:
    cell.renew()
    is_ours = way == OURS
    cell.scene.let_place("leader" if is_ours else "longhorn")
    with ThreadPoolExecutor(CREATORS) as pool:
        list(pool.map(partial(cell.claim, gib=SIZE_GIB), [f"data-{number}" for number in range(PODS)]))
        began = time.monotonic()
        options: dict[str, Any] = {} if is_ours else {"opted_in": False, "schedulerName": STOCK_SCHEDULER}
        list(pool.map(lambda number: cell.pod(f"p-{number}", f"data-{number}", **options), range(PODS)))
    ready, seconds = 0, 0.0
    while ready < PODS and time.monotonic() - began < PATIENCE_SECONDS:
        try:
            cell.wait_ready(ready + 1, PATIENCE_SECONDS if is_ours else STUCK_SECONDS)
        except TimeoutError:
            break
        ready, seconds = len(cell.ready()), time.monotonic() - began
    shares = disk_shares(cell)
    bound = len(cell.bound())
    cell.clear()
    over = [share for share in shares if share > 1]
    found = TwoDiskRun(way, ready, bound, round(seconds, 2), len(over), round(max(shares), 3))
    print(f"    {json.dumps(asdict(found))}", flush=True)
    return found


def disk_shares(cell: Cell) -> list[float]:
    """What lies on each disk of the cell, of its limit; by the Replica objects."""
    sizes: dict[str, int] = {}
    for replica in cell.scene.api.list(LONGHORN_REPLICAS)["items"]:
        uuid = replica["spec"].get("diskID") or ""
        sizes[uuid] = sizes.get(uuid, 0) + int(replica["spec"].get("volumeSize") or 0)
    found = []
    for node in cell.scene.api.list(LONGHORN_NODES)["items"]:
        if node["metadata"]["name"] in cell.nodes:
            disks = (node.get("status") or {}).get("diskStatus", {}).values()
            found += [sizes.get(status["diskUUID"], 0) / (DISK_GIB * GIB) for status in disks]
    return found


def verdicts(runs: Sequence[TwoDiskRun]) -> list[Verdict]:
    ours = [one for one in runs if one.way == OURS]
    none = [one for one in runs if one.way == NONE]
    ratio = statistics.median(one.seconds for one in ours) / statistics.median(one.seconds for one in none)
    return [
        Verdict(f"until all are ready / until the last without us: {ratio:.2f} x", ratio <= ASKED_RATIO, "at most 4 x"),
        never("runs with a pod that did not get ready", sum(one.ready < PODS for one in ours)),
        never("disks over their limit", sum(one.disks_over for one in ours)),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.two_disks", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--output", type=Path, default=Path("bench-output/two_disks.json"))
    add_report_only(parser)
    args = parser.parse_args()
    runs: list[TwoDiskRun] = []
    with Scene.start(LonghornOptions(delays=Delays().changed_by("measured"))) as scene:
        scene.start_controller()
        scene.start_stock_scheduler()
        cell = scene.cell("two", nodes=NODES, disks_gib=(DISK_GIB, DISK_GIB), fillers=0)
        for number in range(args.pairs):
            runs += [run(cell, way) for way in ((OURS, NONE) if number % 2 == 0 else (NONE, OURS))]
    checks = verdicts(runs)
    write(args.output, {"runs": [asdict(one) for one in runs], "verdicts": lines_of(checks)})
    for way in (OURS, NONE):
        mine = [one for one in runs if one.way == way]
        times = [one.seconds for one in mine]
        over, left = sum(one.disks_over for one in mine), sum(PODS - one.ready for one in mine)
        spread = f"median {statistics.median(times):.1f} s, {min(times):.1f} to {max(times):.1f} s"
        print(f"{way:<12} {spread}; {left} pods never ready and {over} disks over in {len(mine)} runs")
    return conclude(checks, is_report_only=args.report_only)


if __name__ == "__main__":
    sys.exit(main())
