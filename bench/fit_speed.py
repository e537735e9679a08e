"""How long it takes to find nodes for one pod among thousands (`python -m bench.fit_speed`).

The unit is a bare Python loop over the same disks with one integer comparison each, timed in the same run, alternating
with what is measured, so that whatever else the machine does hits both alike. What is measured is the search for as
many nodes as a filter call offers: a new question each time, nothing kept from an earlier one. Rooms and their
summaries are worked out by events, when a node or a replica changes; `cold` measures the same question with all of that
thrown away before, `answer` a whole offline answer with placements and reasons.

Prints one JSON object for each case, and writes them to bench-output/fit_speed.json.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.served import timed
from bench.verdicts import Verdict, add_report_only, conclude, write
from controller.allocator.choose.choose import Chooser
from controller.allocator.choose.packing import PACK_STEPS, Item, Steps, pack
from controller.allocator.choose.pod_fit import PodFit
from controller.allocator.choose.search import NodeSearch
from controller.allocator.plans.plan import Plan
from controller.allocator.plans.table import Table
from controller.allocator.world.world import World
from controller.model.longhorn import Disk
from controller.model.places import Place
from controller.model.workload import KubeNode
from controller.plan.fit import fit_pod
from controller.rules.demand import VolumeDemand
from controller.settings import LiveSettings
from tests.fakes.builders import GIB, disk, node
from tests.fakes.rooms import local, roaming

DISKS = 4
MAX_OFFERS = LiveSettings().max_offers
OUTPUT = Path("bench-output/fit_speed.json")
# A filter call has so long in a cluster as large as Kubernetes supports.
BUDGET_MILLISECONDS, BUDGET_NODES = 50.0, 5_000


@dataclass(frozen=True, slots=True)
class FitCase:
    """`full_half`: every second node is nearly full, and volumes are planned there; `roaming`: how many more volumes
    the pod has, of three copies that may go to any node."""

    name: str
    nodes: int
    sizes_gib: tuple[int, ...]
    full_half: bool = False
    roaming: int = 0
    limit_units: float | None = None


def disk_of(index: int, free_gib: int) -> Disk:
    return replace(disk(f"d{index}", 1000), scheduled_bytes=(1000 - free_gib) * GIB)


def demand_of(index: int, gib: int) -> VolumeDemand:
    return local(gib * GIB, f"pvc-{index}", exists=False)


def build(case: FitCase, seed: int = 1) -> tuple[World, Table, list[str]]:
    """A world with random room on every disk, and the plans of the case."""
    draw = random.Random(seed)
    world, table = World(), Table()
    names = [f"worker-{index:05d}.cluster.example" for index in range(case.nodes)]
    largest = max(case.sizes_gib)
    for index, name in enumerate(names):
        is_full = case.full_half and index % 2 == 1
        low, high = (largest // 2, 2 * largest) if is_full else (largest // 2, 900)
        disks = tuple(disk_of(number, draw.randint(low, high)) for number in range(DISKS))
        world.put_kube_node(name, KubeNode(name, unschedulable=False))
        facts = node(name, *disks)
        world.put_node(name, facts)
        if is_full:
            for number in range(draw.randint(1, 4)):
                place = Place(name, draw.choice(facts.disks).uuid, draw.randint(largest // 3, largest) * GIB)
                volume = f"other-{index}-{number}"
                table.put(Plan(volume, volume, (place,), (), datetime.now(UTC)))
    world.refresh()
    return world, table, names


def bare_loop(free: Sequence[Sequence[int]], size: int) -> int:
    """The unit: every disk of every node, one comparison each."""
    found = 0
    for disks in free:
        for room in disks:
            if room >= size:
                found += 1
    return found


def measure(case: FitCase, rounds: int) -> dict[str, Any]:
    world, table, names = build(case)
    chooser = Chooser(world)
    demands = [demand_of(index, gib) for index, gib in enumerate(case.sizes_gib)]
    demands += [roaming(10 * GIB, f"roaming-{number}", copies=3) for number in range(case.roaming)]
    free = [[disk.maximum_bytes - disk.scheduled_bytes for disk in world.nodes[name].disks] for name in names]
    size = demands[0].size_bytes

    def ask() -> NodeSearch:
        fit = PodFit(world, chooser, demands, table)
        passed, _ = fit.open_among(names)
        search = NodeSearch(passed)
        search.go_on(fit, lambda _: len(search.sure) >= MAX_OFFERS)
        return search

    def ask_cold() -> NodeSearch:
        world.put_settings(world.settings)
        return ask()

    def answer() -> object:
        return fit_pod(world, demands, names)

    times: dict[str, list[float]] = {"unit": [], "warm": [], "cold": [], "answer": []}
    ask()
    gc.collect()
    gc.disable()  # as a server does that freezes what it starts with; a collection would hit one of them at random
    for _ in range(rounds):
        times["unit"].append(timed(lambda: bare_loop(free, size)))
        times["warm"].append(timed(ask))
    for _ in range(max(3, rounds // 10)):
        times["unit"].append(timed(lambda: bare_loop(free, size)))
        times["cold"].append(timed(ask_cold))
        times["answer"].append(timed(answer))
    gc.enable()
    found = ask()
    verdicts = [one.verdict.name for one in (*found.sure.values(), *found.refused.values())]
    unit = statistics.median(times["unit"])
    result: dict[str, Any] = {
        "case": case.name,
        "nodes": case.nodes,
        "volumes": len(case.sizes_gib),
        "roaming": case.roaming,
        "verdicts": {name: verdicts.count(name) for name in sorted(set(verdicts))},
        "unit_ms": round(unit * 1000, 3),
    }
    for name in ("warm", "cold", "answer"):
        low, middle, high = statistics.quantiles(times[name], n=4)
        result[f"{name}_ms"] = round(middle * 1000, 3)
        result[f"{name}_units"] = round(middle / unit, 2)
        result[f"{name}_units_quartiles"] = [round(low / unit, 2), round(high / unit, 2)]
    return result


def verdicts(case: FitCase, result: dict[str, Any]) -> list[Verdict]:
    """The figures of a case beside what is asked of it."""
    found = []
    if case.limit_units is not None:
        text = f"{case.name}: {result['warm_units']} units"
        found.append(Verdict(text, result["warm_units"] <= case.limit_units, f"at most {case.limit_units:g}"))
    if case.full_half and case.nodes <= BUDGET_NODES:
        text = f"{case.name}, {case.nodes} nodes: {result['warm_ms']} ms"
        found.append(Verdict(text, result["warm_ms"] <= BUDGET_MILLISECONDS, f"at most {BUDGET_MILLISECONDS:g} ms"))
    return found


def measure_bound(rounds: int) -> dict[str, Any]:
    """12 volumes on 24 disks, worst cases that were looked for at random: steps taken, and what the bound costs."""
    draw = random.Random(7)
    worst: dict[str, Any] = {"case": "12 volumes on 24 disks: packing", "steps": 0}
    bounded = tried = 0
    for _ in range(rounds * 4):
        items = [Item(draw.randint(400, 600), tuple(sorted(draw.sample(range(24), 12)))) for _ in range(12)]
        free = [draw.choice((0, draw.randint(390, 1100))) for _ in range(24)]
        steps = Steps(PACK_STEPS)
        seconds = timed(lambda items=items, free=free, steps=steps: pack(items, free, steps))  # type: ignore[misc]
        tried, bounded = tried + 1, bounded + steps.exhausted
        if PACK_STEPS - steps.left > worst["steps"]:
            worst |= {"steps": PACK_STEPS - steps.left, "ms": round(seconds * 1000, 2)}
    return worst | {"step_bound": PACK_STEPS, "tried": tried, "bounded": bounded}


CASES = (
    FitCase("one volume", 5_000, (100,), limit_units=3.0),
    FitCase("four volumes", 5_000, (100, 150, 200, 300), limit_units=12.0),
    FitCase("half nearly full, one volume", 5_000, (100,), full_half=True, limit_units=30.0),
    FitCase("half nearly full, four volumes", 5_000, (60, 70, 80, 100), full_half=True),
    FitCase("half nearly full, one volume, one roaming", 5_000, (100,), full_half=True, roaming=1),
)
CURVE = (500, 1_000, 2_000, 5_000, 10_000)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=60)
    add_report_only(parser)
    given = parser.parse_args()
    results: list[dict[str, Any]] = []
    checks: list[Verdict] = []
    cases = [*CASES, *(FitCase("curve: one volume", nodes, (100,)) for nodes in CURVE)]
    cases += [FitCase("curve: half nearly full", nodes, (100,), full_half=True) for nodes in CURVE]
    for case in cases:
        results.append(measure(case, given.rounds))
        checks += verdicts(case, results[-1])
        print(json.dumps(results[-1]), flush=True)
    results.append(measure_bound(given.rounds))
    print(json.dumps(results[-1]), flush=True)
    write(OUTPUT, results)
    return conclude(checks, is_report_only=given.report_only, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
