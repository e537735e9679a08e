"""Runs the machine for one invariant: so many examples from a seed, and what came of it."""

from __future__ import annotations

import gc
import time
from dataclasses import dataclass
from typing import Final

from hypothesis import HealthCheck, Phase, settings
from hypothesis import seed as with_seed
from hypothesis.stateful import get_state_machine_test

from tests.race.machine import machine_for
from tests.race.world import BrokenPromise

STEPS: Final = 50
PART: Final = 2500  # examples


@dataclass(frozen=True)
class RaceOutcome:
    """`failure`: the smallest example that was found, as a transcript; "" without one."""

    invariant: str
    seed: int
    examples: int
    seconds: float
    failure: str

    def line(self) -> str:
        rate = self.examples / self.seconds if self.seconds else 0.0
        verdict = "violated" if self.failure else "holds"
        return (
            f"{self.invariant}: {verdict}; seed {self.seed}, {self.examples} examples of {STEPS} steps, "
            f"{self.seconds:.1f} s, {rate:.1f} a second"
        )


def holds(invariant: str, examples: int, seed: int, *, shrinks: bool = True) -> bool:
    """Whether the invariant held in all examples; prints what came of each part of them."""
    print(f"{invariant}: seeds from {seed} on", flush=True)
    gc.freeze()  # the product and Hypothesis stay; the collector is a tenth of the time otherwise
    gc.set_threshold(50_000, 20, 100)
    for part, first in enumerate(range(0, examples, PART)):
        outcome = run(invariant, min(PART, examples - first), seed + part, shrinks=shrinks)
        print(outcome.line(), flush=True)
        if outcome.failure:
            print(outcome.failure, flush=True)
            return False
    return True


def run(invariant: str, examples: int, seed: int, *, shrinks: bool = True) -> RaceOutcome:
    """Up to so many examples; the first one that fails is made small, if `shrinks`."""
    machine = machine_for(invariant)
    phases = (Phase.generate, Phase.shrink) if shrinks else (Phase.generate,)
    options = settings(
        max_examples=examples,
        stateful_step_count=STEPS,
        deadline=None,
        database=None,
        phases=phases,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    started, failure = time.perf_counter(), ""
    try:
        with_seed(seed)(get_state_machine_test(machine, settings=options))()
    except BrokenPromise as violation:
        failure = str(violation)
    return RaceOutcome(invariant, seed, machine.examples, time.perf_counter() - started, failure)
