"""A kube-scheduler on virtual time that asks for one pod after the other, and whose choices show late."""

from __future__ import annotations

import heapq
import itertools
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from controller.allocator.outcome import Decision
from tests.fakes.builders import TestCluster

BACK_SECONDS = 0.3  # from a contended answer to the pod's next attempt, about what a wake-up takes


@dataclass(slots=True)
class CrowdFigures:
    """What one crowd went through. Times in virtual seconds since its first pod."""

    calls: int = 0
    decisions: Counter[Decision] = field(default_factory=Counter)
    offers: list[int] = field(default_factory=list)  # nodes in each answer that let the pod through
    chosen: Counter[str] = field(default_factory=Counter)  # pods by node
    last_choice_at: float = 0.0

    @property
    def contended_share(self) -> float:
        return self.decisions[Decision.CONTENDED] / self.calls


def run_crowd(
    cluster: TestCluster,
    nodes: Sequence[str],
    pods: Sequence[str],
    *,
    cycle_seconds: float = 0.008,
    lag_seconds: Callable[[random.Random], float] = lambda chance: 0.06 + chance.expovariate(1 / 0.25),
    seed: int = 1,
    limit_seconds: float = 120.0,
) -> CrowdFigures:
    """Schedule `pods`, which are pending in `cluster`, choosing any offered node; until all are chosen or the limit.

    A contended pod comes back after BACK_SECONDS.
    """
    chance, figures = random.Random(seed), CrowdFigures()
    clock, began = cluster.clock, cluster.clock.now()
    number = itertools.count()
    events: list[tuple[float, int, str, str, str]] = []

    def after(seconds: float, what: str, pod: str = "", node: str = "") -> None:
        heapq.heappush(events, (clock.now() + seconds, next(number), what, pod, node))

    queue = list(pods)
    after(0.0, "cycle")
    while figures.chosen.total() < len(pods):
        at, _, what, pod, node = heapq.heappop(events)
        clock.advance(at - clock.now())
        if at - began > limit_seconds:
            break
        if what == "cycle":
            if queue:
                asked = queue.pop(0)
                chosen = _ask(cluster, asked, nodes, figures, chance)
                if chosen is None:
                    after(BACK_SECONDS, "back", asked)
                else:
                    after(lag_seconds(chance), "show", asked, chosen)
            after(cycle_seconds, "cycle")
        elif what == "show":
            cluster.select_node(pod, node)
            figures.chosen[node] += 1
            figures.last_choice_at = clock.now() - began
        else:
            queue.append(pod)
    return figures


def _ask(
    cluster: TestCluster, pod: str, nodes: Sequence[str], figures: CrowdFigures, chance: random.Random
) -> str | None:
    """One filter call, and which of the offered nodes is taken."""
    outcome = cluster.filter(pod, *nodes)
    figures.calls += 1
    figures.decisions[outcome.decision] += 1
    if not outcome.passed:
        return None
    figures.offers.append(len(outcome.passed))
    return chance.choice(list(outcome.passed))
