"""How long the documents for people take, and how long they hold the allocator's lock (`python -m bench.views`).

1,000 nodes of four disks with 10,000 volumes, made up, no cluster. Each question is asked of a fresh look, the dearest
case, and of one that is a moment old. A line has milliseconds: the median and the longest with a new look, the median
of its CPU time, and the median with the look before.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from werkzeug.test import Client

from bench.lock_held import Book, is_stalled, timed
from bench.lock_world import LIVE, MadeUp, ShiftedClock, Size
from bench.stalls import watched
from bench.verdicts import Verdict, add_report_only, conclude, lines_of, write
from controller.allocator.allocator import Allocator
from controller.allocator.core import LOOK_SECONDS
from controller.assembly.gauges import Gauges
from controller.assembly.metrics import LeaderMetrics, of_snapshot
from controller.process.status_port import create_metrics_app
from controller.views.capacity import capacity_of
from controller.views.views import Views

ASKED_SECONDS: Final = 1.0
ASKED_LOCK_MS: Final = 10.0
ASKED_SCRAPE_SECONDS: Final = 0.1
SCRAPE: Final = "scrape"
PATIENT_MILLISECONDS: Final = 2_000  # that a filter call has while the world is built: nobody measures that


@dataclass(frozen=True, slots=True)
class ViewFigures:
    """`fresh_ms`: with a new look, of which `cpu_ms` were the thread's own; `again_ms`: with the one before."""

    name: str
    fresh_ms: float
    longest_ms: float
    cpu_ms: float
    again_ms: float


def questions(views: Views, made: MadeUp) -> dict[str, Callable[[], object]]:
    def pod(number: int) -> Callable[[], object]:
        name = made.refused[number][0].name
        return lambda: views.explain_pod("ns", name, lambda namespace: namespace == "ns")

    def everything(_: str) -> bool:
        return True

    running, offered = made.running[0], made.offered[0]
    return {
        "overview": views.parts,
        "capacity": views.capacity,
        "explain pod: too large": pod(0),
        "explain pod: too large, of a sample": pod(9),
        "explain pod: a tag that no disk has": pod(1),
        "explain pod: four volumes, a tag that no disk has": pod(2),
        "explain pod: let through": lambda: views.explain_pod("ns", offered.name, everything),
        "explain pod: runs": lambda: views.explain_pod("ns", running.name, everything),
        "explain claim: of a refused pod": lambda: views.explain_claim(
            "ns", made.refused[0][0].volumes[0].claim, everything
        ),
        "explain volume: degraded": lambda: views.explain_volume("pvc-uid-data-1", everything),
    }


def scrape(allocator: Allocator) -> Callable[[], object]:
    """What Prometheus gets from a leader of these disks, packed as it asks for it; stores and threads aside."""
    metrics = LeaderMetrics(CollectorRegistry(), "bench", allocator.drain_records)
    gauges = Gauges(allocator, lambda: capacity_of(allocator.look()), lambda: True)
    gauges.run_once()

    def read() -> Iterator[Metric]:
        yield from of_snapshot(allocator.snapshot(with_promises=False))
        yield from gauges.collect()

    metrics.show(read)
    page = create_metrics_app(metrics.registry, problem=str, is_ready=bool, rendered=gauges.page)
    client = Client(page)
    return lambda: client.get("/metrics", headers={"Accept-Encoding": "gzip"})


def measure(size: Size, turns: int) -> tuple[dict[str, Any], list[Verdict]]:
    clock, book = ShiftedClock(), Book()
    allocator = Allocator(clock)
    timed_one = timed(allocator, book)
    began = time.monotonic()
    made = MadeUp(allocator, clock, size, live=replace(LIVE, filter_budget_milliseconds=PATIENT_MILLISECONDS))
    made.build()
    print(f"the world is built after {time.monotonic() - began:.1f} s", flush=True)
    found = list[ViewFigures]()
    with watched() as stalls:
        for name, ask in {**questions(Views(timed_one), made), SCRAPE: scrape(timed_one)}.items():
            book.case = name
            fresh, again, own = list[float](), list[float](), list[float]()
            for _ in range(turns):
                clock.shift += 2 * LOOK_SECONDS
                start, began_own = time.perf_counter(), time.thread_time()
                ask()
                fresh.append(1_000 * (time.perf_counter() - start))
                own.append(1_000 * (time.thread_time() - began_own))
                start = time.perf_counter()
                ask()
                again.append(1_000 * (time.perf_counter() - start))
            median = statistics.median
            figures = ViewFigures(name, median(fresh), max(fresh), median(own), median(again))
            row = figures.fresh_ms, figures.longest_ms, figures.cpu_ms, figures.again_ms
            print(f"{name:<52} {' '.join(f'{one:>8.0f}' for one in row)}", flush=True)
            found.append(figures)
    holds = [1_000 * one.seconds for one in book.holds if not is_stalled(stalls, one.began, one.ended)]
    longest, worst = max(holds), statistics.median(sorted(holds)[-10:])
    print(f"the lock was held {len(holds)} times, {longest:.1f} ms at most, {worst:.1f} ms median of the ten longest")
    verdicts = []
    for one in found:
        asked = ASKED_SCRAPE_SECONDS if one.name == SCRAPE else ASKED_SECONDS
        is_met = one.fresh_ms <= 1_000 * asked
        verdicts.append(Verdict(f"{one.name}: {one.fresh_ms:.0f} ms", is_met, f"at most {asked:g} s"))
    verdicts.append(Verdict(f"the lock is held {worst:.1f} ms", worst <= ASKED_LOCK_MS, "at most 10 ms"))
    result = {
        "world": asdict(size),
        "documents": [asdict(one) for one in found],
        "lock_ms": [longest, worst],
        "verdicts": lines_of(verdicts),
    }
    return result, verdicts


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.views", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--scale", type=float, default=1.0, help="of everything that the cluster has")
    parser.add_argument("--turns", type=int, default=5, help="questions of each kind")
    parser.add_argument("--output", type=Path, default=Path("bench-output/views.json"))
    add_report_only(parser)
    options = parser.parse_args()
    size = Size() if options.scale == 1.0 else Size().scaled(options.scale)
    result, verdicts = measure(size, options.turns)
    write(options.output, result)
    return conclude(verdicts, is_report_only=options.report_only)


if __name__ == "__main__":
    sys.exit(main())
