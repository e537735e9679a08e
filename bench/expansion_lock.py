"""How long a refused expansion keeps the allocator's lock among pending pods (`python -m bench.expansion_lock`).

A volume has three replicas, and PODS pods whose volumes of three replicas each may go to any node are pending. It asks
for sizes that are refused because of them, which is the costly answer: the verdict, and the search for the largest size
that would be admitted. Measured is the whole call, all of which has the lock; nothing else runs, so that there is no
waiting in it. Prints one JSON object; milliseconds. The search ends by its own budget, so does the verdict: together
they are what a call may take.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping
from typing import Any, Final

from bench.verdicts import Verdict, add_report_only, conclude, never
from controller.allocator.allocator import Allocator
from controller.allocator.verbs.grow import GrowthRequest, GrowthVerdict
from controller.clock import SystemClock
from tests.fakes.builders import GIB, TestCluster, disk, replica, volume
from tests.fakes.rooms import OPEN

NODES, DISKS, DISK_GIB, COPIES, PODS, CALLS = 60, 3, 800, 3, 500, 20
SIZES_GIB = (150, 300, 450, 600, 790)
# Asked of half of the calls, and of the worst, with what one look at a clock may come late by.
MEDIAN_MILLISECONDS: Final = 100.0
WORST_MILLISECONDS: Final = 320.0


def make(pods: int) -> Allocator:
    cluster = TestCluster(settings=OPEN, make_allocator=lambda _: Allocator(SystemClock()))
    allocator = cluster.allocator
    names = [f"n{number}" for number in range(NODES)]
    for name in names:
        cluster.add_node(name, *(disk(f"d{number}", DISK_GIB) for number in range(DISKS)))
    allocator.observe_volume("v", volume("v", 100, locality="disabled", replica_count=COPIES))
    for number in range(COPIES):
        facts = replica(f"v-{number}", "v", 100, on=names[number])
        allocator.observe_replica(facts.name, facts)
    cluster.add_class("any", numberOfReplicas=str(COPIES), dataLocality="disabled")
    for number in range(pods):
        pod = f"p{number}"
        cluster.add_claim(pod, 1 + number % 7, class_name="any")
        cluster.add_pod(pod, pod)
        cluster.offered(pod, names[number % NODES])
    return allocator


def measure(pods: int) -> dict[str, Any]:
    allocator = make(pods)
    found: dict[str, Any] = {"pending": len(allocator.snapshot().promises)}
    for gib in SIZES_GIB:
        times, outcomes = [], []
        for _ in range(CALLS):
            began = time.perf_counter()
            outcomes.append(allocator.expansions.hold(GrowthRequest("v", gib * GIB, is_dry_run=True)))
            times.append((time.perf_counter() - began) * 1000)
        outcome = outcomes[-1]
        found[f"{gib}Gi"] = {
            "is_refused": outcome.verdict is GrowthVerdict.REFUSED,
            "largest_gib": round(outcome.largest_bytes / GIB, 2),
            "is_largest": outcome.is_largest,
            "median_ms": round(sorted(times)[CALLS // 2], 1),
            "worst_ms": round(max(times), 1),
        }
    return found


def verdicts(found: Mapping[str, Any]) -> list[Verdict]:
    """Each figure beside what is asked of it. An answer that is no refusal is not the one that is measured."""
    checks = []
    for name, size in found.items():
        if name == "pending":
            continue
        checks.append(never(f"{name}: not refused", 0 if size["is_refused"] else 1))
        for figure, most in (("median_ms", MEDIAN_MILLISECONDS), ("worst_ms", WORST_MILLISECONDS)):
            text = f"{name}: {figure.removesuffix('_ms')} {size[figure]} ms"
            checks.append(Verdict(text, size[figure] <= most, f"at most {most:.0f} ms"))
    return checks


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, default=PODS)
    add_report_only(parser)
    options = parser.parse_args()
    found = measure(options.pods)
    print(json.dumps(found, indent=2), flush=True)
    return conclude(verdicts(found), is_report_only=options.report_only, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
