"""How long the allocator's lock is held at a time, method by method, and what that does to filter calls
(`python -m bench.lock`).

1,000 Longhorn nodes with four disks, 10,000 volumes of which 3,000 are degraded, 50,000 holds, 1,000 pending pods,
1,000 volumes that roam, 100 growths; no cluster. First every public method of the allocator is called many times
(`bench.lock_calls`), and each acquisition of its lock is timed; nothing else runs. A method is judged by the median of
its ten longest acquisitions, those aside for a tenth of which the machine stood still (`bench.stalls`). Then filter
calls are timed while another thread makes the rest of a leader's calls (`bench.lock_load`), and without it, by turns.
The garbage collector runs as in production, and its pauses count.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from bench.lock_calls import CASES, LAST_CASES, SHARED, LockCase, On
from bench.lock_held import Book, Collections, Held, is_stalled, public_methods, timed
from bench.lock_load import CallFigures, FilterTimes, filter_by_turns
from bench.lock_world import MadeUp, ShiftedClock, Size
from bench.stalls import Stalls, watched
from bench.verdicts import Verdict, add_report_only, conclude, lines_of, never, write
from controller.allocator.allocator import Allocator
from controller.serving.pauses import Pauses

ASKED_MS: Final = 10.0
ASKED_SHARED_MS: Final = 2.0  # for a change of a claim that many pods share
ASKED_RATIO: Final = 2.0
WORST: Final = 10
SELDOM: Final = 3  # times that a case without weight is run
EXEMPT: Final = ("begin_term", "end_term", "set_mode", "configure")


@dataclass(frozen=True, slots=True)
class LockRow:
    """Acquisitions of the lock, in milliseconds. Those that are `stalled` count for `longest_ms` alone."""

    method: str
    case: str
    count: int
    longest_ms: float
    worst_ms: float  # the median of the ten longest
    median_ms: float
    stalled: int

    @classmethod
    def of(cls, method: str, case: str, holds: Sequence[Held], stalls: Stalls) -> LockRow:
        kept = [1000 * hold.seconds for hold in holds if not is_stalled(stalls, hold.began, hold.ended)]
        longest = max(1000 * hold.seconds for hold in holds)
        worst = statistics.median(sorted(kept)[-WORST:]) if kept else longest
        middle = statistics.median(kept) if kept else longest
        left_out = len(holds) - len(kept)
        return cls(method, case, len(holds), round(longest, 3), round(worst, 3), round(middle, 3), left_out)


def run(cases: Iterable[LockCase], timed_one: Allocator, made: MadeUp, book: Book, calls: int) -> None:
    for case in cases:
        book.case = case.name
        for number in range(calls * case.weight or min(calls, SELDOM)):
            case.run(On(timed_one, made, number))


def rows_of(holds: Sequence[Held], stalls: Stalls) -> tuple[list[LockRow], list[LockRow]]:
    """By method, the longest first; and by method and case, in the order of the calls."""
    by_method: dict[str, list[Held]] = {}
    by_case: dict[tuple[str, str], list[Held]] = {}
    for hold in holds:
        by_method.setdefault(hold.method, []).append(hold)
        by_case.setdefault((hold.method, hold.case), []).append(hold)
    methods = [LockRow.of(method, "", found, stalls) for method, found in by_method.items()]
    cases = [LockRow.of(method, case, found, stalls) for (method, case), found in by_case.items()]
    return sorted(methods, key=lambda row: -row.worst_ms), sorted(cases, key=lambda row: row.method)


def show(title: str, rows: Sequence[LockRow]) -> None:
    print(f"{title:<66} {'holds':>6} {'longest':>9} {'worst ten':>9} {'median':>9} {'stalled':>7}")
    for row in rows:
        name = f"{row.method}: {row.case}" if row.case else row.method
        figures = f"{row.longest_ms:>9.2f} {row.worst_ms:>9.2f} {row.median_ms:>9.3f} {row.stalled:>7}"
        print(f"{name:<66} {row.count:>6} {figures}", flush=True)


def show_filter(times: FilterTimes) -> None:
    for name, figures in (("quiet", times.quiet), ("under load", times.loaded)):
        print(f"filter {name}: {json.dumps(asdict(figures))}")
    print(f"load, times a second: {json.dumps(times.load)}", flush=True)


def verdicts(
    rows: Sequence[LockRow], cases: Sequence[LockRow], times: FilterTimes, unmeasured: Iterable[str]
) -> list[Verdict]:
    asked = f"at most {ASKED_MS:g} ms"
    found = [
        Verdict(
            f"{row.method}: held for {row.worst_ms:.2f} ms, median of its ten longest; {row.longest_ms:.2f} ms at most",
            row.worst_ms <= ASKED_MS,
            asked,
        )
        for row in rows
        if row.method not in EXEMPT
    ]
    for row in (row for row in cases if row.case == SHARED):
        figure = f"{row.method} {row.case}: held for {row.worst_ms:.2f} ms, median of its ten longest"
        found.append(Verdict(figure, row.worst_ms <= ASKED_SHARED_MS, f"at most {ASKED_SHARED_MS:g} ms"))
    figure = f"filter under load: p99 {times.ratio:.1f} x that without ({times.ratio_with_stalls:.1f} x with stalls)"
    found.append(Verdict(figure, times.ratio <= ASKED_RATIO, f"at most {ASKED_RATIO:g}"))
    names = sorted(unmeasured)
    found.append(never(f"a public method is not measured ({', '.join(names) or 'none'})", len(names)))
    return found


def unmeasured(allocator: Allocator, holds: Iterable[Held]) -> set[str]:
    return public_methods(allocator) - {hold.method for hold in holds}


def measure(size: Size, calls: int, turns: int, seconds: float) -> tuple[dict[str, Any], list[Verdict]]:
    clock, book, collections = ShiftedClock(), Book(), Collections()
    Pauses(clock.now).install()  # as the controller's server does
    allocator = Allocator(clock)
    timed_one = timed(allocator, book)
    made = MadeUp(allocator, clock, size)
    began = time.monotonic()
    made.build()
    print(f"the world is built after {time.monotonic() - began:.1f} s", flush=True)
    before = allocator.snapshot()
    gc.callbacks.append(collections)
    with watched() as stalls:
        run(CASES, timed_one, made, book, calls)
        quiet, loaded, load = filter_by_turns(made, turns, seconds)
        run(LAST_CASES, timed_one, made, book, calls)
    gc.callbacks.remove(collections)
    methods, cases = rows_of(book.holds, stalls)
    times = FilterTimes(CallFigures.of(quiet, stalls), CallFigures.of(loaded, stalls), load)
    show("by case, milliseconds", cases)
    show("by method, milliseconds", methods)
    show_filter(times)
    print(f"wake-up rounds: {json.dumps(made.wake_rounds)}", flush=True)
    checks = verdicts(methods, cases, times, unmeasured(allocator, book.holds))
    counts = {"held": before.held_count, "planned": before.planned_count, "refused": before.refused_count}
    result = {
        "world": {**asdict(size), "table": counts},
        "methods": [asdict(row) for row in methods],
        "cases": [asdict(row) for row in cases],
        "wake_rounds": made.wake_rounds,
        "filter": {**asdict(times), "p99_ratio": round(times.ratio, 2)},
        "collections": {"count": len(collections.seconds), "longest_ms": 1000 * max(collections.seconds, default=0.0)},
        "verdicts": lines_of(checks),
    }
    return result, checks


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.lock", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--scale", type=float, default=1.0, help="of everything that the cluster has")
    parser.add_argument("--nodes", type=int, help="another number of nodes")
    parser.add_argument("--calls", type=int, default=10, help="of each kind, or some times as many of the quick ones")
    parser.add_argument("--turns", type=int, default=5, help="of filter calls, with load and without")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each turn")
    parser.add_argument("--output", type=Path, default=Path("bench-output/lock.json"))
    add_report_only(parser)
    options = parser.parse_args()
    size = Size() if options.scale == 1.0 else Size().scaled(options.scale)
    if options.nodes:
        size = replace(size, nodes=options.nodes)
    result, checks = measure(size, options.calls, options.turns, options.seconds)
    write(options.output, result)
    return conclude(checks, is_report_only=options.report_only)


if __name__ == "__main__":
    sys.exit(main())
