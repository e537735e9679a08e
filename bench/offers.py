"""How many nodes a pod is to be offered: what many and few cost (`python -m bench.offers`).

Each offer is a hold until the pod's choice shows. Many give kube-scheduler a choice, and keep others out meanwhile; few
do the reverse. On virtual time, in the worlds of bench/places_throughput.py and two of its own, for each value of
`max-offers`, and of constants of the product that are named:

    python -m bench.offers two roomy --max-offers 4 100 --set controller.allocator.waiting.sharing.MANY=4,8,16
    python -m bench.offers --list controller.allocator.waiting.sharing

    roomy    200 local pods at once on nodes that are 60 % full and run other pods, some more, some fewer
    stream   200 local pods in 20 s, 90 % full

`seconds`, `yes`: as there. `offers`: nodes in a yes, the median and the tenth with the fewest; `one`: answers with a
single node. `lost`: by how many of kube-scheduler's own points (100 for free CPU, 200 for the spread of one owner's
pods) the node it took is behind the best with room; the mean. `passed`: by how many later pods a pod was overtaken, the
mean. `large`: the mean wait of pods with more than the median of bytes, as a multiple of the others'.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import itertools
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from random import Random
from types import ModuleType
from typing import Any, Final

from bench.places_throughput import BURSTS, LOCALS, BurstShape, asked_gib, odd_nodes
from bench.throughput_world import (
    DEFAULT_LAGS,
    BurstLags,
    BurstWorld,
    NodeScores,
    PodRun,
    add_client,
    fix_hash_seed,
)
from controller.settings import LiveSettings

PRODUCT: Final = "controller"
STREAM_SECONDS: Final = 20.0
DEFAULT_WORLDS: Final = ("two", "local", "roomy", "stream")
HEAD: Final = (
    f"{'seconds':>8}{'yes p50':>9}{'p90':>7}{'most':>7}{'left':>6}{'offers':>8}{'tenth':>7}{'one':>6}"
    f"{'lost':>7}{'passed':>8}{'large':>7}{'cycles':>8}"
)


def roomy(seed: int) -> BurstShape:
    chance = Random(f"roomy/{seed}")
    pods = [(chance.choice(LOCALS),) for _ in range(200)]
    return BurstShape(odd_nodes(chance, 0.6, asked_gib(pods) / 0.2), pods)


WORLDS: Final = {**BURSTS, "roomy": roomy, "stream": BURSTS["local"]}


# Constants


def constants_of(module: ModuleType) -> dict[str, Any]:
    """The numbers of a module that are named in capitals."""
    found = {name: value for name, value in vars(module).items() if name.lstrip("_").isupper()}
    return {name: value for name, value in found.items() if isinstance(value, (int, float))}


@contextmanager
def constants(values: Mapping[str, Any]) -> Iterator[None]:
    """Constants of the product by their dotted names, and in all modules that have imported them."""
    before: list[tuple[ModuleType, str, Any]] = []
    for path, value in values.items():
        owner, _, name = path.rpartition(".")
        known = constants_of(importlib.import_module(owner))
        if name not in known:
            raise SystemExit(f"{owner} has no constant {name}, but {', '.join(sorted(known)) or 'none'}")
        for module in list(sys.modules.values()):
            is_ours = (getattr(module, "__name__", "") or "").split(".")[0] == PRODUCT
            if is_ours and vars(module).get(name) is known[name]:
                before.append((module, name, known[name]))
                setattr(module, name, value)
    try:
        yield
    finally:
        for module, name, value in reversed(before):
            setattr(module, name, value)


# Runs


def overtaken(pods: Sequence[PodRun]) -> float:
    """By how many later pods a pod was overtaken; the mean."""
    ends = [pod.passed_at for pod in pods]
    return sum(later < end for number, end in enumerate(ends) for later in ends[number + 1 :]) / max(1, len(ends))


def large_share(pods: Sequence[PodRun]) -> float:
    """The mean wait of pods with more than the median of bytes, as a multiple of the others'; nan: all are alike."""
    sizes = {pod.name: asked_gib([pod.ask]) for pod in pods}
    middle = statistics.median(sizes.values())
    large = [pod.passed_at - pod.came_at for pod in pods if sizes[pod.name] > middle]
    small = [pod.passed_at - pod.came_at for pod in pods if sizes[pod.name] <= middle]
    return statistics.mean(large) / statistics.mean(small) if large and small else float("nan")


def run(name: str, live: LiveSettings, seed: int, lags: BurstLags) -> str:
    shape = WORLDS[name](seed)
    chance = Random(f"load/{seed}")
    load = [chance.randrange(12) for _ in shape.nodes]
    world = BurstWorld(shape.nodes, live, seed=seed, scores=NodeScores(), load=load, lags=lags)
    world.submit_all(shape.pods, STREAM_SECONDS if name == "stream" else 0.0)
    found = world.run()
    passed = [pod for pod in world.pods.values() if pod.offers]
    offers = sorted(pod.offers for pod in passed)
    alone = sum(count == 1 for count in offers) / len(offers)
    lost = statistics.mean(pod.lost_points for pod in passed)
    return (
        f"{found.seconds:>8.1f}{found.wait(0.5):>9.2f}{found.wait(0.9):>7.1f}{found.wait(1):>7.1f}{found.left:>6}"
        f"{statistics.median(offers):>8.0f}{offers[len(offers) // 10]:>7}{alone:>6.0%}{lost:>7.1f}"
        f"{overtaken(list(world.pods.values())):>8.1f}{large_share(passed):>7.2f}{found.cycles:>8}"
    )


def parse_sweep(text: str) -> tuple[str, tuple[Any, ...]]:
    """A dotted name and its values."""
    path, _, values = text.partition("=")
    return path, tuple(ast.literal_eval(value) for value in values.split(","))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.offers", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("worlds", nargs="*", metavar="world", help=", ".join(WORLDS))
    parser.add_argument("--max-offers", type=int, nargs="*", default=[1, 4, 16, 100])
    parser.add_argument("--set", type=parse_sweep, action="append", default=[], metavar="NAME=VALUE,...")
    parser.add_argument("--seed", type=int, default=1)
    add_client(parser)
    parser.add_argument("--list", metavar="MODULE", help="its constants")
    options = parser.parse_args()
    if options.list:
        for name, value in sorted(constants_of(importlib.import_module(options.list)).items()):
            print(f"{options.list}.{name}={value!r}")
        return 0
    fix_hash_seed("bench.offers")
    if unknown := set(options.worlds) - set(WORLDS):
        parser.error(f"no such world: {', '.join(sorted(unknown))}")
    lags = replace(DEFAULT_LAGS, client_qps=options.client_qps)
    names = [path for path, _ in options.set]
    heads = [path.rpartition(".")[2] for path in names]
    print(f"{'world':<8}{'max-offers':>11}" + "".join(f"{head:>{len(head) + 2}}" for head in heads) + HEAD)
    for world in options.worlds or DEFAULT_WORLDS:
        for most in options.max_offers:
            live = LiveSettings(enabled=True, max_offers=most)
            for values in itertools.product(*(values for _, values in options.set)):
                with constants(dict(zip(names, values, strict=True))):
                    line = run(world, live, options.seed, lags)
                cells = "".join(f"{value!s:>{len(head) + 2}}" for head, value in zip(heads, values, strict=True))
                print(f"{world:<8}{most:>11}{cells}{line}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
