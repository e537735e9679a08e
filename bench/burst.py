"""How many pods a second kube-scheduler binds in a burst, with the extender and without (`python -m bench.burst`).

All pods of a burst are pending before the scheduler sees the first of them: it is suspended (SIGSTOP) while they are
made, and the time runs from its resumption until the last one is bound. Runs with and without the extender alternate
in one cluster, so that whatever else the machine does hits both. Figures of attempts are from kube-scheduler's own
histograms, those of answers and waits from the extender's own counters.

1. Ample space: what does asking cost?
2. Near full, three free places a node: what do pods cost each other that hold places until their choice shows?
3. Pods without claims: alone, and among a burst of pods with claims that compete for the last places. Alone also with
   an extender that is never asked: kube-scheduler does not batch equal pods where any extender is configured.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import statistics
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from bench.scrape import Histogram, Samples, most_in_window, samples_of
from bench.verdicts import NamedCase, Results, Verdict, add_report_only, never
from tests.cluster.client import ApiError
from tests.e2e import scheduling, workloads
from tests.e2e.harness import CLASSES, STOCK_SCHEDULER, Cell, Scene
from tests.e2e.programs import Controller
from tests.e2e.view import LONGHORN_VOLUMES
from tests.longhorn.options import Delays, LonghornOptions
from tests.waiting import wait_until

# Longhorn looks at its disks every 30 s.
DELAYS = Delays(provision=(0.2, 0.6), attach=0.1, placement=0.0, start=0.1, disk_figures=5.0)
GIB, PLACES = 100, 3
AMPLE_GIB, NEARLY_FULL_GIB = 40_000, PLACES * GIB
PATIENCE_SECONDS = 240.0
OVERLOADED = (0, 504)  # a connection that broke, and a request that took too long
WINDOW_SECONDS, SAMPLE_SECONDS = 10.0, 2.5  # a look costs the controller some time, too
ATTEMPTS = "scheduler_scheduling_attempt_duration_seconds"
WAITED = "longhorn_scheduler_extender_contention_wait_seconds_total"
DECISIONS = "longhorn_scheduler_extender_decisions_total"
WITH, WITHOUT, UNASKED = "extender", "no extender", "never asked"
RATES = {"chosen": "chosen_rate", "bound": "rate", "others_bound": "others_rate"}
# What is asked of us.
AMPLE_RATIO, NEARLY_FULL_RATIO, OTHERS_RATIO = 0.9, 0.8, 0.95
CONTENDED_SHARE, WAIT_SHARE, ATTEMPT_RATIO = 0.05, 0.05, 1.2


@dataclass(frozen=True, slots=True)
class ComparedScheduler:
    """One kube-scheduler: the process, and its profiles for pods with claims and for the others, which its histograms
    tell apart."""

    way: str
    process: str
    profile: str
    others_profile: str

    def config(self, scene: Scene) -> scheduling.Config:
        config = scene.extender_config() if self.way == WITH else scheduling.stock()
        if self.way == UNASKED:
            config["extenders"] = [NOBODY]
        return {**config, "profiles": [{"schedulerName": self.profile}, {"schedulerName": self.others_profile}]}


OURS = ComparedScheduler(WITH, "kube-scheduler", "default-scheduler", "others")
STOCK = ComparedScheduler(WITHOUT, STOCK_SCHEDULER, STOCK_SCHEDULER, "others-stock")
SILENT = ComparedScheduler(UNASKED, "silent-scheduler", "silent-scheduler", "others-silent")
# No pod asks for its resource, so nobody has to listen.
NOBODY = {
    "urlPrefix": "http://127.0.0.1:9",
    "filterVerb": "filter",
    "managedResources": [{"name": "example.com/nothing", "ignoredByScheduler": True}],
}


@dataclass(slots=True)
class BurstRun:
    """One burst. Rates in pods a second; figures of attempts in seconds; None where there were none."""

    way: str
    chosen: int = 0  # claims with a selected node: kube-scheduler's own part, before anything is provisioned
    chosen_rate: float = 0.0
    bound: int = 0
    rate: float = 0.0
    others_bound: int = 0
    others_rate: float = 0.0
    attempts: dict[str, int] = field(default_factory=dict)  # of pods with claims, by result
    attempt_p99: float | None = None  # successful attempts of pods with claims
    others_p50: float | None = None  # successful attempts of pods without
    others_p99: float | None = None
    decisions: dict[str, int] = field(default_factory=dict)
    most_waited: float = 0.0  # seconds in any window of WINDOW_SECONDS, by samples
    violations: int = 0
    pods_on_fullest_node: int = 0

    @property
    def contended_share(self) -> float:
        calls = sum(self.decisions.values())
        return self.decisions.get("contended", 0) / calls if calls else 0.0


@dataclass(slots=True)
class BurstCase(NamedCase):
    pods: int
    others: int
    runs: list[BurstRun] = field(default_factory=list)

    def of(self, way: str) -> list[BurstRun]:
        return [run for run in self.runs if run.way == way]

    def ratio(self, figure: str, beside: str = WITHOUT) -> float:  # of the medians, ours to stock's
        medians = [statistics.median(getattr(run, figure) for run in self.of(way)) for way in (WITH, beside)]
        return medians[0] / medians[1] if medians[1] else float("nan")

    def line(self, way: str) -> str:
        runs, parts = self.of(way), [f"  {way:<12} {len(self.of(way)):2d} runs"]
        told = {"rate": "bound", "chosen_rate": "chosen"} if self.pods else {}
        for name, what in (told | ({"others_rate": "without claims"} if self.others else {})).items():
            rates = [getattr(run, name) for run in runs]
            parts.append(f"{statistics.median(rates):6.1f} pods/s {what} ({min(rates):.1f} to {max(rates):.1f})")
        if self.others:
            parts.append(f"attempt p99 {1000 * _median([run.others_p99 for run in runs]):.0f} ms without claims")
        if way == WITH and self.pods:
            parts.append(f"contended {statistics.median(run.contended_share for run in runs):.1%}")
        if self.pods:
            parts.append(f"promised too much in {sum(run.violations > 0 for run in runs)}")
        return "   ".join(parts)


def _median(values: Sequence[float | None]) -> float:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else float("nan")


class Field:
    """A scene with both schedulers and one cell, whose volumes may lie on any node."""

    def __init__(self, scene: Scene, nodes: int, disk_gib: int) -> None:
        self.scene = scene
        self.controller: Controller = scene.start_controller()
        for scheduler in (OURS, STOCK, SILENT):
            scene.cluster.start_scheduler(scheduler.config(scene), name=scheduler.process)
        self.cell: Cell = scene.cell("burst", nodes=nodes, disks_gib=(disk_gib,), fillers=0)
        # No tags: most clusters have none.
        scene.api.delete(f"{CLASSES}/{self.cell.class_name}")
        scene.api.create(CLASSES, workloads.storage_class(self.cell.class_name))

    def burst(self, scheduler: ComparedScheduler, pods: int, others: int) -> BurstRun:
        """That many pods with a claim each, and that many without, all at once. Longhorn places where stock
        kube-scheduler stands alone."""
        self.cell.renew()
        self.scene.let_place("longhorn" if scheduler.way == WITHOUT else "leader")
        before, ours_before = self._pages(scheduler)
        with self._suspended(scheduler):
            self._create(scheduler, pods, others)
        run = BurstRun(scheduler.way)
        with self._waits() as waits:
            self._wait(run, pods, others, time.monotonic())
        run.most_waited = round(most_in_window(waits, WINDOW_SECONDS), 3) if scheduler.way == WITH else 0.0
        after, ours_after = self._pages(scheduler)
        self._note(run, scheduler, after.since(before), ours_after.since(ours_before))
        report = self.scene.judge(self.cell)
        run.violations = len(report.violations)
        run.pods_on_fullest_node = max(report.pods_per_node().values(), default=0)
        print(f"    {_told(run, pods, others)}", flush=True)
        return run

    def clear(self) -> None:
        """Give everything back. Deleting hundreds of objects at once may take a busy API server longer than it grants
        one request, and is then asked for again."""
        deadline = time.monotonic() + 2 * PATIENCE_SECONDS
        while True:
            try:
                self.cell.clear(PATIENCE_SECONDS)
                break
            except ApiError as error:
                if error.status not in OVERLOADED or time.monotonic() > deadline:
                    raise
        self.scene.view.wait_for(
            lambda: not self.scene.view.all(LONGHORN_VOLUMES), "end of all Longhorn volumes", PATIENCE_SECONDS
        )

    def _pages(self, scheduler: ComparedScheduler) -> tuple[Samples, Samples]:
        page = self.scene.cluster.scheduler_metrics(scheduler.process)
        return samples_of(page), samples_of(self.controller.page("/metrics"))

    @contextlib.contextmanager
    def _suspended(self, scheduler: ComparedScheduler) -> Iterator[None]:
        pid = self.scene.cluster.pids()[scheduler.process]
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    def _create(self, scheduler: ComparedScheduler, pods: int, others: int) -> None:
        """Interleaved, as far as there are both kinds; returns when all are to be seen."""

        def one(number: int) -> None:
            if number < pods:
                self.cell.claim(f"data-{number}", GIB)
                opted_in = scheduler.way == WITH
                self.cell.pod(f"web-{number}", f"data-{number}", opted_in=opted_in, schedulerName=scheduler.profile)
            if number < others:
                self.cell.pod(f"other-{number}", opted_in=False, schedulerName=scheduler.others_profile)

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(one, range(max(pods, others))))
        self.scene.view.wait_for(lambda: len(self.cell.pods()) == pods + others, "pods of the burst", PATIENCE_SECONDS)

    def _wait(self, run: BurstRun, pods: int, others: int, started: float) -> None:
        """Until all are bound, or patience ends; the rates of both kinds, each until its own last pod.

        It looks twenty times a second; to look at every event would take a good part of a core from the cluster.
        """

        def is_done() -> bool:
            chosen = len(self.cell.chosen()) if run.chosen < pods else pods
            bound, seconds = self.cell.bound(), time.monotonic() - started
            of_claims = sum(pod["metadata"]["name"].startswith("web-") for pod in bound)
            counts = {"chosen": chosen, "bound": of_claims, "others_bound": len(bound) - of_claims}
            for name, count in counts.items():
                if count > getattr(run, name):
                    setattr(run, name, count)
                    setattr(run, RATES[name], round(count / seconds, 2))
            return run.bound >= pods and run.others_bound >= others

        with contextlib.suppress(TimeoutError):
            wait_until(is_done, "bound pods", PATIENCE_SECONDS)

    @contextlib.contextmanager
    def _waits(self) -> Iterator[list[tuple[float, float]]]:
        """Samples of all seconds that calls have waited, by time."""
        found: list[tuple[float, float]] = []
        is_over = threading.Event()

        def sample() -> None:
            while True:
                total = samples_of(self.controller.page("/metrics")).value(WAITED)
                found.append((time.monotonic(), total))
                if is_over.wait(SAMPLE_SECONDS):
                    break

        thread = threading.Thread(target=sample, name="waits")
        thread.start()
        try:
            yield found
        finally:
            is_over.set()
            thread.join()

    def _note(self, run: BurstRun, scheduler: ComparedScheduler, theirs: Samples, ours: Samples) -> None:
        """Notes in the run what the counters have gained."""
        for result in ("scheduled", "unschedulable", "error"):
            attempts = Histogram.of(theirs, ATTEMPTS, profile=scheduler.profile, result=result)
            if attempts.count:
                run.attempts[result] = attempts.count
            if result == "scheduled":
                run.attempt_p99 = attempts.quantile(0.99)
        others = Histogram.of(theirs, ATTEMPTS, profile=scheduler.others_profile, result="scheduled")
        run.others_p50, run.others_p99 = others.quantile(0.5), others.quantile(0.99)
        if scheduler.way == WITH:
            run.decisions = {name: int(count) for name, count in ours.by_label(DECISIONS, "decision").items() if count}


def _told(run: BurstRun, pods: int, others: int) -> str:
    parts = [f"{run.way:<12}"]
    if pods:
        parts.append(f"{run.bound} of {pods} bound, {run.rate:6.1f} pods/s (chosen: {run.chosen_rate:.1f})")
        parts.append(f"attempts {run.attempts}")
    if others:
        p99 = "none" if run.others_p99 is None else f"{1000 * run.others_p99:.0f} ms"
        parts.append(f"without claims: {run.others_bound} of {others}, {run.others_rate:6.1f} pods/s, p99 {p99}")
    if run.decisions:
        parts.append(f"answers {run.decisions}, waited at most {run.most_waited:.2f} s in {WINDOW_SECONDS:.0f} s")
    return "; ".join(parts)


def compare(
    results: Results[BurstCase],
    place: Field,
    name: str,
    pods: int,
    others: int,
    pairs: int,
    schedulers: Sequence[ComparedScheduler] = (OURS, STOCK),
) -> None:
    case = results.open(BurstCase(name, pods, others))
    for number in range(pairs):
        for scheduler in schedulers if number % 2 == 0 else reversed(schedulers):
            case.runs.append(place.burst(scheduler, pods, others))
            results.write([])
            place.clear()


def measure(results: Results[BurstCase], options: argparse.Namespace) -> None:
    pods, others, pairs = options.pods, options.others, options.pairs
    if "ample" in options.cases:
        with Scene.start(LonghornOptions(delays=DELAYS), run_scheduler=False) as scene:
            place = Field(scene, options.nodes, AMPLE_GIB)
            warm_up(place)
            compare(results, place, "ample space", pods, 0, pairs)
    if {"nearly-full", "alone", "others"} & set(options.cases):
        with Scene.start(LonghornOptions(delays=DELAYS), run_scheduler=False) as scene:
            place = Field(scene, options.nodes, NEARLY_FULL_GIB)
            warm_up(place)
            if "nearly-full" in options.cases:
                compare(results, place, "nearly full", pods, 0, pairs)
            if "alone" in options.cases:
                compare(results, place, "pods without claims alone", 0, others, pairs, (OURS, STOCK, SILENT))
            if "others" in options.cases:
                compare(results, place, "pods without claims among the others", pods, others, pairs)


def warm_up(place: Field) -> None:
    for scheduler in (OURS, STOCK):
        place.burst(scheduler, 20, 20)
        place.clear()


def verdicts(cases: Sequence[BurstCase]) -> list[Verdict]:
    """Each figure beside what is asked of it."""
    found: list[Verdict] = []
    known = {case.name: case for case in cases if case.of(WITH) and case.of(WITHOUT)}
    for case in known.values():
        figure, least = _asked_rate(case)
        ratio = case.ratio(figure)
        text = f"{case.name}: {ratio:.2f} x stock"
        if case.of(UNASKED):
            text += f", {case.ratio(figure, UNASKED):.2f} x with an extender that is never asked"
        found.append(Verdict(text, ratio >= least, f"at least {least}"))
        # The rates are of what was bound.
        left = sum(case.pods + case.others - run.bound - run.others_bound for run in case.of(WITH))
        found.append(Verdict(f"{case.name}: {left} pods never bound with the extender", left == 0, "none"))
        if case.pods:
            found += _verdicts_of_answers(case)
    quiet, among = known.get("pods without claims alone"), known.get("pods without claims among the others")
    if quiet is not None and among is not None:
        ratios = {
            way: _median([run.others_p99 for run in among.of(way)]) / _median([run.others_p99 for run in quiet.of(way)])
            for way in (WITH, WITHOUT)
        }
        text = f"attempt p99 without claims: {ratios[WITH]:.2f} x quiet; stock's own {ratios[WITHOUT]:.2f} x"
        found.append(Verdict(text, ratios[WITH] <= ATTEMPT_RATIO, f"at most {ATTEMPT_RATIO}"))
    return found


def _verdicts_of_answers(case: BurstCase) -> list[Verdict]:
    found, ours = [], case.of(WITH)
    if case.name == "nearly full":
        share = statistics.median(run.contended_share for run in ours)
        text = f"{case.name}: {share:.1%} of calls contended"
        found.append(Verdict(text, share <= CONTENDED_SHARE, f"at most {CONTENDED_SHARE:.0%}"))
    waited = max(run.most_waited for run in ours) / WINDOW_SECONDS
    text = f"{case.name}: waits took {waited:.1%} of a window"
    found.append(Verdict(text, waited <= WAIT_SHARE, f"at most {WAIT_SHARE:.0%}"))
    over = sum(run.violations for run in ours)
    return [*found, never(f"{case.name}: promised too much with the extender", over)]


def _asked_rate(case: BurstCase) -> tuple[str, float]:
    if case.others:
        return "others_rate", OTHERS_RATIO
    return "rate", AMPLE_RATIO if case.name == "ample space" else NEARLY_FULL_RATIO


def main() -> int:
    cases = ("ample", "nearly-full", "alone", "others")
    parser = argparse.ArgumentParser(prog="python -m bench.burst", description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=3, help="alternating pairs of each case (default 3)")
    parser.add_argument("--pods", type=int, default=500, help="pods with a claim each (default 500)")
    parser.add_argument("--others", type=int, default=500, help="pods without claims (default 500)")
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--cases", nargs="*", choices=cases, default=list(cases))
    parser.add_argument("--output", type=Path, default=Path("bench-output/burst.json"))
    add_report_only(parser)
    args = parser.parse_args()
    results = Results[BurstCase](args.output)
    measure(results, args)
    for case in results.cases:
        print(f"\n{case.name}")
        for way in (WITH, WITHOUT, UNASKED):
            if case.of(way):
                print(case.line(way))
    checks = verdicts(results.cases)
    return results.conclude(checks, is_report_only=args.report_only)


if __name__ == "__main__":
    sys.exit(main())
