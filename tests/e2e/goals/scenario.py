"""What a scenario is, and how its runs are played side by side in one scene."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from tests.e2e.goals.cells import UnevenCell
from tests.e2e.harness import Scene
from tests.e2e.told import told_in
from tests.longhorn import install
from tests.longhorn.options import Delays

USUAL_DELAYS = Delays(
    provision=(0.1, 1.0),
    attach=(0.1, 0.7),
    placement=(0.0, 0.3),
    start=0.1,
    disk_figures=(0.2, 1.5),
    relocate=0.2,
    rebuild=0.5,
    restore=0.5,
    delete=0.2,
)
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class RunEnd:
    """How one run ended. `is_right`: as the goal wants it, which a counter-run shows to need the extender."""

    is_right: bool
    text: str


@dataclass(frozen=True, slots=True)
class ScenarioRun:
    """One run with its outcome.

    `violations`: what the API server's history says of bytes of a node or a disk that were promised twice.
    """

    scenario: str
    with_extender: bool
    is_right: bool
    text: str
    seconds: float
    violations: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Scenario:
    """A goal, what has to be set for it, and how to play one run of it in a cell of its own.

    `longhorn` and `product` are settings that hold while its runs are played. `play` may raise TimeoutError or
    AssertionError, which are not right either. Where there is no sense in a counter-run `has_counter` is false.
    """

    name: str
    goal: str
    layout: Mapping[str, Sequence[int]]
    play: Callable[[UnevenCell], RunEnd]
    busy: Sequence[str] = ()
    delays: Delays = USUAL_DELAYS
    longhorn: Mapping[str, str] = field(default_factory=dict)
    product: Mapping[str, str] = field(default_factory=dict)
    reclaim: str = "Delete"
    scheduler: str = "default-scheduler"
    counter_scheduler: str = ""  # of counter-runs that ask the extender too, but without one of its verbs
    has_counter: bool = True
    times: int = 3

    @property
    def asks_always(self) -> bool:
        """Whether pods of counter-runs ask the extender too, so that the leader places for them."""
        return bool(self.counter_scheduler)

    def cell(self, scene: Scene, *, with_extender: bool) -> UnevenCell:
        is_asked = with_extender or self.asks_always
        return UnevenCell(
            scene,
            f"{self.name}-{next(_numbers)}",
            self.layout,
            busy=self.busy,
            reclaim=self.reclaim,
            with_extender=is_asked,
            scheduler=self.scheduler if with_extender else self.counter_scheduler,
        )


def play(scene: Scene, *scenarios: Scenario, runs: int = 1, counters: int = 0) -> list[ScenarioRun]:
    """So many runs of each scenario, all at once, then so many counter-runs, under the settings of the first.

    Longhorn places alone in counter-runs of pods that do not ask. The scene needs a stock scheduler and a leading copy
    of the product. Everything is cleared away again.
    """
    first = scenarios[0]
    countered = [one for one in scenarios if one.has_counter]
    ours = [(one, True) for one in scenarios] * runs + [(one, False) for one in countered if one.asks_always] * counters
    alone = [(one, False) for one in countered if not one.asks_always] * counters
    scene.longhorn.resume(first.delays)  # which may install Longhorn's settings anew, so it comes first
    _set(scene, first.longhorn, first.product)
    try:
        found = _play_at_once(scene, ours)
        if alone:
            with scene.longhorn_alone():
                found += _play_at_once(scene, alone)
        return found
    finally:
        _reset(scene, first.longhorn, first.product)


def _play_at_once(scene: Scene, plans: Sequence[tuple[Scenario, bool]]) -> list[ScenarioRun]:
    """One run of each, with the extender or without it, in cells that are gone afterwards."""
    cells: list[UnevenCell] = []
    try:
        for scenario, with_extender in plans:
            cells.append(scenario.cell(scene, with_extender=with_extender))
        with ThreadPoolExecutor(len(plans)) as pool:
            jobs = [
                pool.submit(_play_one, scenario, with_extender, cell)
                for (scenario, with_extender), cell in zip(plans, cells, strict=True)
            ]
            found = [job.result() for job in jobs]
        return [_judged(scene, run, cell) for run, cell in zip(found, cells, strict=True)]
    finally:
        for cell in cells:
            cell.end()


def _play_one(scenario: Scenario, with_extender: bool, cell: UnevenCell) -> ScenarioRun:
    started = time.monotonic()
    try:
        seen = scenario.play(cell)
    except (TimeoutError, AssertionError) as error:
        seen = RunEnd(False, f"{error}; {cell.describe()}")
    return ScenarioRun(scenario.name, with_extender, seen.is_right, seen.text, round(time.monotonic() - started, 1))


def _judged(scene: Scene, run: ScenarioRun, cell: UnevenCell) -> ScenarioRun:
    report = scene.judge(cell, told_in(cell))
    told = f"; {len(report.lost)} times too much, of claims that were told" if report.lost else ""
    return replace(run, text=run.text + told, violations=tuple(map(str, report.violations)))


def _set(scene: Scene, longhorn: Mapping[str, str], product: Mapping[str, str]) -> None:
    for name, value in longhorn.items():
        install.set_setting(scene.api, scene.longhorn.options.namespace, name, value)
    if product:
        scene.set_settings(**product)


def _reset(scene: Scene, longhorn: Mapping[str, str], product: Mapping[str, str]) -> None:
    _set(scene, {name: install.DEFAULT_SETTINGS[name] for name in longhorn}, {})
    if product:
        gone: dict[str, Any] = dict.fromkeys(product, None)
        scene.set_settings(**gone)


def not_right(runs: Sequence[ScenarioRun]) -> list[str]:
    """What is wrong with runs that had the extender."""
    return [
        f"{run.scenario}: {run.text}; {'; '.join(run.violations) or 'nothing promised twice'}"
        for run in runs
        if run.with_extender and (not run.is_right or run.violations)
    ]


def harmless(runs: Sequence[ScenarioRun]) -> list[str]:
    """Counter-runs that ended as the goal wants it although the extender took no part."""
    return [f"{run.scenario}: {run.text}" for run in runs if not run.with_extender and run.is_right]
