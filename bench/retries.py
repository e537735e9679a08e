"""What it costs that answers add up where anybody may ask (`python -m bench.retries`).

On virtual time: a burst of pods that fills its nodes to the last byte, and a scheduler ten of whose attempts a tenth of
a second get an answer. A share of the attempts fails after the answer, as when a volume cannot be bound, and is made
again after kube-scheduler's back-off of 1 to 10 s. With TLS the newer answer replaces the older; over plain HTTP the
pod keeps what both held until it is chosen, or 5 s after the last. Each line is one run: seconds until all are chosen.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import json
import random
import sys
from collections.abc import Callable
from typing import Final

from tests.fakes.builders import TestCluster

TICK_SECONDS: Final = 0.1
A_TICK: Final = 10  # attempts
CHOICE_SECONDS: Final = 0.2  # from the answer until it shows, or fails
PLACED_SECONDS: Final = 3.5  # from the choice to the replica, on Longhorn's own controllers
NODES, ON_EACH, GIB = 40, 4, 100
MOST_SECONDS: Final = 600.0


class RetriedBurst:
    """`fails`: the share of attempts that come to nothing after their answer."""

    def __init__(self, fails: float, *, adds_up: bool, spare: int, seed: int) -> None:
        self._chance, self._fails = random.Random(seed), fails
        self._cluster = TestCluster()
        self._cluster.adds_up = adds_up
        self._nodes = [f"n{number}" for number in range(NODES)]
        for name in self._nodes:
            self._cluster.add_node(name, free_gib=ON_EACH * GIB)
        self._pods = [f"p{number}" for number in range(NODES * ON_EACH - spare)]
        for name in self._pods:
            self._cluster.add_pod(name, gib=GIB)
        self._queue = dict.fromkeys(self._pods)
        self._attempts = dict.fromkeys(self._pods, 0)
        self._chosen: set[str] = set()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    def play(self) -> dict[str, float | int]:
        clock = self._cluster.clock
        began = clock.now()
        while len(self._chosen) < len(self._pods) and clock.now() - began < MOST_SECONDS:
            self._ask()
            clock.advance(TICK_SECONDS)
            while self._events and self._events[0][0] <= clock.now():
                heapq.heappop(self._events)[2]()
            self._cluster.allocator.sweep()
            for due in self._cluster.allocator.due():
                self._cluster.allocator.expire(due)
            self._queue |= dict.fromkeys(self._cluster.woken())
        attempts = sum(self._attempts.values())
        return {"seconds": round(clock.now() - began, 1), "chosen": len(self._chosen), "attempts": attempts}

    def _ask(self) -> None:
        for name in list(itertools.islice(self._queue, A_TICK)):
            del self._queue[name]
            self._attempts[name] += 1
            offers = sorted(self._cluster.offered(name, *self._nodes))
            if not offers:
                continue  # until it is woken
            if self._chance.random() < self._fails:
                again = min(10.0, 2.0 ** (self._attempts[name] - 1))
                self._after(CHOICE_SECONDS + again, lambda name=name: self._queue.setdefault(name))  # type: ignore[misc]
            else:
                node = self._chance.choice(offers)
                self._after(CHOICE_SECONDS, lambda name=name, node=node: self._choose(name, node))  # type: ignore[misc]

    def _choose(self, name: str, node: str) -> None:
        self._chosen.add(name)
        self._cluster.select_node(name, node)
        self._after(PLACED_SECONDS, lambda: self._run(name, node))

    def _run(self, name: str, node: str) -> None:
        self._cluster.run(name, name, node, GIB)

    def _after(self, seconds: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self._cluster.clock.now() + seconds, next(self._numbers), act))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.retries", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--fails", type=float, nargs="*", default=[0.0, 0.05, 0.1, 0.2])
    parser.add_argument("--spare", type=int, nargs="*", default=[0, 16], help="places that are left in the end")
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    for spare, fails, adds_up in itertools.product(options.spare, options.fails, (False, True)):
        for seed in range(options.seeds):
            found = RetriedBurst(fails, adds_up=adds_up, spare=spare, seed=seed).play()
            print(json.dumps({"spare": spare, "fails": fails, "adds_up": adds_up, "seed": seed, **found}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
