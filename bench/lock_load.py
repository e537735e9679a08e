"""Filter calls while another thread makes the calls that a leader makes beside them, and without it (`bench.lock`)."""

from __future__ import annotations

import itertools
import statistics
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from bench.lock_held import is_stalled
from bench.lock_world import SAMPLE, TAG, MadeUp
from bench.stalls import Stalls
from controller.allocator.outcome import Wakeup
from controller.workers.sweeper import SWEEP_EVERY_SECONDS
from controller.workers.waker import PAUSE_SECONDS

UPDATES_A_SECOND: Final = 1_000
MOST_BEHIND: Final = 200  # updates that are made up for at once
CLAIM_SECONDS: Final = 1 / 15  # between changes of claims that many pods share
ACCOUNT_SECONDS, SCRAPE_SECONDS, REST_SECONDS = 0.2, 1.0, 1.0  # from the end of one to the next; the last: wake-ups
FILTER_PAUSE_SECONDS: Final = 0.01  # about what kube-scheduler itself takes for a pod
TAGGED_NODES: Final = 5

_DONE: Final = ("node_updates", "sweeps", "accounts", "scrapes", "wake_slices", "wake_rounds", "claim_changes")

Spans = Sequence[tuple[float, float]]


class AllocatorLoad:
    """Everything but filter calls, each at its own pace, one after the other; `done` counts what it came to.

    Threads: its own, `load`.
    """

    def __init__(self, made: MadeUp) -> None:
        self._made, self._allocator = made, made.allocator
        self._slices: Iterator[list[Wakeup]] = iter(())
        self._stop = threading.Event()
        self.done = dict.fromkeys(_DONE, 0)
        self.seconds = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        self._stop.clear()
        thread = threading.Thread(target=self._run, name="load")
        began = time.monotonic()
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()
            self.seconds += time.monotonic() - began

    def _run(self) -> None:
        # Each tells when it is to be done again.
        jobs = (self._sweep, self._explain, self._scrape, self._wake, self._change_claim)
        began = time.monotonic()
        due, updated = [began] * len(jobs), 0
        while not self._stop.is_set():
            for index, job in enumerate(jobs):
                updated = self._update(began, updated)
                if due[index] <= time.monotonic():
                    due[index] = job() + time.monotonic()
            self._stop.wait(1 / UPDATES_A_SECOND)

    def _update(self, began: float, updated: int) -> int:
        """As many nodes' figures as are due, but for what can never be made up for."""
        owed = int((time.monotonic() - began) * UPDATES_A_SECOND)
        for number in range(max(updated, owed - MOST_BEHIND), owed):
            name = self._made.names[number % len(self._made.names)]
            self._allocator.observe_node(name, self._made.with_figures(name))
            self.done["node_updates"] += 1
        return owed

    def _sweep(self) -> float:
        self._allocator.sweep()
        self.done["sweeps"] += 1
        return SWEEP_EVERY_SECONDS

    def _explain(self) -> float:
        pod, names = self._made.refused[self.done["accounts"] % len(self._made.refused)]
        self._allocator.account_of(pod.uid, names[:SAMPLE])
        self.done["accounts"] += 1
        return ACCOUNT_SECONDS

    def _change_claim(self) -> float:
        number = self.done["claim_changes"]
        claim = self._made.shared[number % len(self._made.shared)]
        self._allocator.observe_claim(claim.key, replace(claim, selected_node=f"node-{number}"))
        self.done["claim_changes"] += 1
        return CLAIM_SECONDS

    def _scrape(self) -> float:
        self._allocator.snapshot(with_promises=False)
        self.done["scrapes"] += 1
        return SCRAPE_SECONDS

    def _wake(self) -> float:
        """One step of a round; before each round some nodes get a tag that pods wait for."""
        if next(self._slices, None) is not None:
            self.done["wake_slices"] += 1
            return PAUSE_SECONDS
        self._made.tag(self._made.some_names(TAGGED_NODES, self.done["wake_rounds"]), TAG)
        self._slices = self._allocator.wake_slices()
        self.done["wake_rounds"] += 1
        return REST_SECONDS


def filter_by_turns(made: MadeUp, turns: int, seconds: float) -> tuple[Spans, Spans, Mapping[str, float]]:
    """When each call began and ended, without load and with it, and the load: times a second, by what it was."""
    load, numbers = AllocatorLoad(made), itertools.count()
    quiet: list[tuple[float, float]] = []
    loaded: list[tuple[float, float]] = []
    for _ in range(turns):
        quiet += _filter_for(made, seconds, numbers)
        with load.running():
            loaded += _filter_for(made, seconds, numbers)
    return quiet, loaded, {name: round(count / load.seconds, 2) for name, count in load.done.items()}


def _filter_for(made: MadeUp, seconds: float, numbers: Iterator[int]) -> Spans:
    """Calls one after the other, each of a new pod, of which nothing stays."""
    seen: list[tuple[float, float]] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        number = next(numbers)
        with made.a_pod((1, 2, 4)[number % 3]) as pod:
            names = made.some_names(SAMPLE, number)
            began = time.monotonic()
            made.allocator.hold_pod(pod.uid, names)
            seen.append((began, time.monotonic()))
        time.sleep(FILTER_PAUSE_SECONDS)
    return seen


@dataclass(frozen=True, slots=True)
class CallFigures:
    """Of some filter calls, the `stalled` ones aside but for the last figure; milliseconds."""

    calls: int
    stalled: int
    p50_ms: float
    p99_ms: float
    p99_with_stalls_ms: float

    @classmethod
    def of(cls, spans: Spans, stalls: Stalls) -> CallFigures:
        everything = [1000 * (ended - began) for began, ended in spans]
        kept = [1000 * (ended - began) for began, ended in spans if not is_stalled(stalls, began, ended)] or everything
        middle = round(statistics.median(kept), 2)
        return cls(len(spans), len(spans) - len(kept), middle, _p99(kept), _p99(everything))


def _p99(times: Sequence[float]) -> float:
    return round(sorted(times)[int(0.99 * (len(times) - 1))], 2)


@dataclass(frozen=True, slots=True)
class FilterTimes:
    """Without load and with it; `load` is what it came to a second."""

    quiet: CallFigures
    loaded: CallFigures
    load: Mapping[str, float]

    @property
    def ratio(self) -> float:
        return self.loaded.p99_ms / self.quiet.p99_ms

    @property
    def ratio_with_stalls(self) -> float:
        return self.loaded.p99_with_stalls_ms / self.quiet.p99_with_stalls_ms
