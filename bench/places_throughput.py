"""What it costs that only the leader places, and what it gains (`python -m bench.places_throughput [world ...]`).

On virtual time, the product's allocator in the world of bench/throughput_world.py; each run again without it, where
every pod is let through to any node and Longhorn places alone. Nothing costs processor time there, so the figures are
those of the rules alone, and the same on every machine.

    two      64 local volumes of 45 GiB, on 16 nodes with two disks of 100 GiB: an exact fit
    local    200 pods with a local volume, one to four disks a node, 90 % full; they ask for 80 % of what is free
    mixed    the same with all kinds: local, one to three copies anywhere, two and three near, one or two volumes a pod
    copies   300 pods of three copies, 40 nodes, 60 % full
    pending  how many pods of three copies may have their yes before any choice shows, on empty nodes
    packed   what is used of the last tenth where pods ask for all of it, beside the best packing that is found
    spread   pods on nodes up to 60 % full, beside what kube-scheduler does alone

`seconds`: until the last copy has its disk, no sooner than Longhorn alone would have given it one. `yes`: from the
pod's coming to its yes, of all runs. `left`: pods without a yes; `no disk`: copies without one; `away`: copies that
belong beside their pod and are not; `over`: disks that were over their limit at some time. `used`: of what was free.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from random import Random
from typing import Final

from bench.throughput_world import (
    DEFAULT_LAGS,
    BurstFigures,
    BurstLags,
    BurstWorld,
    NodeScores,
    PodAsk,
    VolumeAsk,
    add_client,
    fix_hash_seed,
)
from bench.verdicts import Verdict, conclude
from controller.model.longhorn import LonghornSettings
from controller.settings import LiveSettings

SEEDS: Final = (1, 2, 3)
PACKED_SEEDS: Final = (1, 2, 3, 4)
ASKED_RATIO, ASKED_YES_SECONDS, ASKED_USED = 1.1, 2.0, 0.97
PENDING: Final = {4: 16, 50: 200, 1_000: 4_000}  # nodes -> what the bytes take
PACKINGS: Final = 200
GRAIN_GIB: Final = 10  # all sizes of `packed` are multiples
OURS, ALONE = "leader", "nobody checks"

LOCALS: Final = (VolumeAsk(20), VolumeAsk(40), VolumeAsk(60))
KINDS: Final = (
    *LOCALS,
    VolumeAsk(20, 3, "disabled"),
    VolumeAsk(10, 2, "disabled"),
    VolumeAsk(30, 1, "disabled"),
    VolumeAsk(20, 2),
    VolumeAsk(10, 3),
)
# How kube-scheduler takes one of the nodes that pass.
CHOICES: Final[Mapping[str, NodeScores | None]] = {
    "one owner": NodeScores(has_owner=True),
    "no owner": NodeScores(has_owner=False),
    "any": None,
}
SPREAD: Final = {
    "local": VolumeAsk(30),
    "near 3": VolumeAsk(10, 3),
    "anywhere 3": VolumeAsk(10, 3, "disabled"),
}
Nodes = Sequence[Sequence[tuple[int, int]]]  # GiB of each disk, and of that what is used


@dataclass(frozen=True, slots=True)
class BurstShape:
    """The nodes and the pods of one run."""

    nodes: Nodes
    pods: Sequence[PodAsk]


def asked_gib(pods: Sequence[PodAsk]) -> int:
    return sum(one.gib * one.copies for pod in pods for one in pod)


def free_gib(nodes: Nodes) -> int:
    return sum(limit - used for disks in nodes for limit, used in disks)


def full_disk(chance: Random, limit: int, fill: float) -> tuple[int, int]:
    return limit, int(limit * min(0.999, max(0.0, chance.gauss(fill, 0.05))))


def odd_nodes(chance: Random, fill: float, least_free_gib: float) -> Nodes:
    """Of one to four disks of 600 to 1,400 GiB, until so much is free."""
    nodes: list[list[tuple[int, int]]] = []
    while free_gib(nodes) < least_free_gib:
        count = chance.choice((1, 2, 3, 4))
        nodes.append([full_disk(chance, chance.randint(600, 1_400), fill) for _ in range(count)])
    return nodes


def mixed_pod(chance: Random) -> PodAsk:
    return tuple(chance.choice(KINDS) for _ in range(chance.choice((1, 1, 1, 2))))


# Bursts


def two(seed: int) -> BurstShape:
    del seed
    return BurstShape([[(100, 0), (100, 0)]] * 16, [(VolumeAsk(45),)] * 64)


def local(seed: int) -> BurstShape:
    chance = Random(f"local/{seed}")
    pods = [(chance.choice(LOCALS),) for _ in range(200)]
    return BurstShape(odd_nodes(chance, 0.9, asked_gib(pods) / 0.8), pods)


def mixed(seed: int) -> BurstShape:
    chance = Random(f"mixed/{seed}")
    pods = [mixed_pod(chance) for _ in range(200)]
    return BurstShape(odd_nodes(chance, 0.9, asked_gib(pods) / 0.8), pods)


def copies(seed: int) -> BurstShape:
    chance = Random(f"copies/{seed}")
    nodes = [[full_disk(chance, 1_024, 0.6) for _ in range(2)] for _ in range(40)]
    return BurstShape(nodes, [(VolumeAsk(20, 3, "disabled"),)] * 300)


def packed(seed: int) -> BurstShape:
    """As many pods as there are bytes for."""
    chance = Random(f"packed/{seed}")
    nodes = odd_nodes(chance, 0.9, 3_000)
    pods: list[PodAsk] = []
    while asked_gib(pods) < free_gib(nodes):
        pods.append(mixed_pod(chance))
    return BurstShape(nodes, pods)


def spread(ask: VolumeAsk, *, is_even: bool) -> BurstShape:
    """Up to 60 % of nodes that are empty, or from 20 to 55 % full."""
    chance = Random("spread")
    used = [0 if is_even else chance.randint(100, 275) for _ in range(10)]
    count = int((6_000 - 2 * sum(used)) / asked_gib([(ask,)]))
    return BurstShape([[(500, one), (500, one)] for one in used], [(ask,)] * count)


BURSTS: Final[Mapping[str, Callable[[int], BurstShape]]] = {
    "two": two,
    "local": local,
    "mixed": mixed,
    "copies": copies,
}


def play(
    shape: BurstShape,
    *,
    is_ours: bool,
    seed: int,
    scores: NodeScores | None = None,
    lags: BurstLags = DEFAULT_LAGS,
) -> BurstFigures:
    live = LiveSettings(enabled=True) if is_ours else None
    world = BurstWorld(shape.nodes, live, seed=seed, scores=scores, lags=lags)
    world.submit_all(shape.pods)
    return world.run()


HEAD: Final = (
    f"{'world':<10}{'way':<15}{'seconds':>8}{'yes p50':>9}{'p90':>7}{'most':>7}"
    f"{'left':>6}{'no disk':>9}{'away':>6}{'over':>6}{'used':>7}"
)


def line_of(world: str, way: str, runs: Sequence[BurstFigures]) -> str:
    """Median of the seconds and of what is used; all waits; the others as sums."""
    whole = all_waits(runs)
    counts = [sum(getattr(one, name) for one in runs) for name in ("left", "unplaced", "away", "disks_over")]
    seconds, used = (statistics.median(getattr(one, name) for one in runs) for name in ("seconds", "used"))
    return (
        f"{world:<10}{way:<15}{seconds:>8.1f}{whole.wait(0.5):>9.1f}{whole.wait(0.9):>7.1f}{whole.wait(1):>7.1f}"
        f"{counts[0]:>6}{counts[1]:>9}{counts[2]:>6}{counts[3]:>6}{used:>7.1%}"
    )


def all_waits(runs: Sequence[BurstFigures]) -> BurstFigures:
    return replace(runs[0], waits=[wait for one in runs for wait in one.waits])


def run_bursts(name: str, seeds: Sequence[int], lags: BurstLags) -> list[Verdict]:
    make = BURSTS[name]
    ours, alone = (
        [play(make(seed), is_ours=is_ours, seed=seed, lags=lags) for seed in seeds] for is_ours in (True, False)
    )
    print(line_of(name, OURS, ours))
    print(line_of(name, ALONE, alone), flush=True)
    ratios = [one.seconds / other.seconds for one, other in zip(ours, alone, strict=True)]
    ratio, p90 = statistics.median(ratios), all_waits(ours).wait(0.9)
    told = f"{name}: {ratio:.2f} ({min(ratios):.2f} to {max(ratios):.2f}) x the seconds where nobody checks"
    yes = f"{name}: p90 of the yes {p90:.1f} s, {all_waits(alone).wait(0.9):.1f} s where nobody checks"
    lost, over = sum(one.left + one.unplaced for one in ours), sum(one.disks_over for one in ours)
    return [
        _verdict(told, ratio <= ASKED_RATIO, f"at most {ASKED_RATIO}"),
        _verdict(yes, p90 <= max(ASKED_YES_SECONDS, all_waits(alone).wait(0.9)), f"at most {ASKED_YES_SECONDS:g} s"),
        _verdict(f"{name}: pods left, copies without a disk: {lost}", not lost, "none"),
        _verdict(f"{name}: disks over their limit: {over}", not over, "none"),
    ]


def _verdict(figure: str, is_met: bool, asked: str) -> Verdict:
    return Verdict(figure, is_met, asked, is_of_machine=False)


# Pending


def count_pending(nodes: int, most: int, ask: VolumeAsk) -> int:
    """Pods that get their yes one after the other while no choice shows, until one is refused, or `most`."""
    settings = LonghornSettings(degraded_availability=False)  # all copies, or none
    world = BurstWorld([[(400, 0)] * 3] * nodes, LiveSettings(enabled=True), seed=1, settings=settings)
    leader, found = world.leader, 0
    while leader is not None and found < most:
        pod = world.submit((ask,))
        if not leader.offers(pod, world.shuffled(pod)):
            break
        found += 1
    return found


def run_pending(sizes: Sequence[int]) -> list[Verdict]:
    verdicts = []
    for nodes in sizes:
        wanted = PENDING[nodes]
        found = count_pending(nodes, wanted + 1, VolumeAsk(100, 3, "disabled"))
        told = f"pending: {found} pods of 3 x 100 GiB at once on {nodes:,} nodes with 3 disks of 400 GiB"
        print(f"{'pending':<10}{nodes:>6,} nodes{found:>7,} pods; the bytes take {wanted:,}", flush=True)
        verdicts.append(_verdict(told, found == wanted, f"{wanted:,}"))
    return verdicts


# Packed


@dataclass(slots=True)
class Shelving:
    """Disks that are filled, in grains. `used` is what lies there."""

    on: list[list[int]]  # grains left of each disk, by node
    used: int = 0

    def put(self, node: int, disk: int, size: int) -> None:
        self.on[node][disk] -= size
        self.used += size

    def tightest(self, size: int, nodes: Sequence[int]) -> tuple[int, int] | None:
        """The fullest disk of those nodes that takes it."""
        fits = [(left, node, disk) for node in nodes for disk, left in enumerate(self.on[node]) if left >= size]
        return min(fits)[1:] if fits else None

    def put_pod(self, ask: PodAsk, node: int | None, least: Callable[[VolumeAsk], int]) -> bool:
        """All volumes of a pod, those beside it on that node; of each as many copies as fit, `least` at least."""
        before = [list(disks) for disks in self.on], self.used
        for one in sorted(ask, key=lambda volume: (not volume.is_beside, -volume.gib)):
            nodes = list(range(len(self.on)) if not one.is_beside or node is None else (node,))
            done = 0
            for _ in range(one.copies):
                place = self.tightest(one.gib // GRAIN_GIB, nodes)
                if place is None:
                    break
                self.put(*place, one.gib // GRAIN_GIB)
                nodes.remove(place[0])
                done += 1
            if done < least(one):
                self.on, self.used = before
                return False
        return True

    def homes(self, ask: PodAsk) -> list[int | None]:
        """Nodes for the pod, the tightest first; None: any does."""
        own = [one.gib // GRAIN_GIB for one in ask if one.is_beside]
        if not own:
            return [None]
        fits = [
            (min(left for left in disks if left >= max(own)), node)
            for node, disks in enumerate(self.on)
            if max(disks) >= max(own)
        ]
        return [node for _, node in sorted(fits)]


def best_packing(nodes: Nodes, pods: Sequence[PodAsk], tries: int = PACKINGS) -> int:
    """GiB of these pods that the best of many packings brings onto the disks; whole volumes first, then as many copies
    as still fit."""
    most, bound = 0, packing_bound(nodes, pods)
    for number in range(tries):
        chance = Random(f"packing/{number}")
        jitter = (0.0, 0.3, 1.0)[number % 3]
        weight = {index: max(one.gib for one in pod) * (1 + jitter * chance.random()) for index, pod in enumerate(pods)}
        shelving = Shelving([[(limit - used) // GRAIN_GIB for limit, used in disks] for disks in nodes])
        left = []
        for index in sorted(weight, key=lambda one: -weight[one]):
            ask = pods[index]
            if not any(shelving.put_pod(ask, node, lambda one: one.copies) for node in shelving.homes(ask)):
                left.append(ask)
        for ask in left:
            any(shelving.put_pod(ask, node, lambda _: 1) for node in shelving.homes(ask))
        most = max(most, shelving.used * GRAIN_GIB)
        if most == bound:
            break
    return most


def packing_bound(nodes: Nodes, pods: Sequence[PodAsk]) -> int:
    """GiB that no packing exceeds: what is asked for, or the whole grains that are free."""
    grains = sum((limit - used) // GRAIN_GIB for disks in nodes for limit, used in disks)
    return min(asked_gib(pods), grains * GRAIN_GIB)


def run_packed(seeds: Sequence[int]) -> list[Verdict]:
    shares = []
    for seed in seeds:
        shape = packed(seed)
        free, packing = free_gib(shape.nodes), best_packing(shape.nodes, shape.pods)
        bound = packing_bound(shape.nodes, shape.pods)
        runs = {way: play(shape, is_ours=way == OURS, seed=seed) for way in (OURS, ALONE)}
        for way, found in runs.items():
            print(line_of(f"packed {seed}", way, [found]))
        shares.append(runs[OURS].used * free / packing)
        print(f"{'':<10}best packing {packing / free:.1%} of what is free, bound {bound / free:.1%}", flush=True)
    told = f"packed: {statistics.mean(shares):.3f} ({min(shares):.3f} to {max(shares):.3f}) of the best packing"
    return [_verdict(told, statistics.mean(shares) >= ASKED_USED, f"at least {ASKED_USED}")]


# Spread


def run_spread() -> list[Verdict]:
    verdicts = []
    for is_even, (kind, ask), (owner, scores) in product((True, False), SPREAD.items(), CHOICES.items()):
        shape, layout = spread(ask, is_even=is_even), "empty" if is_even else "uneven"
        runs = {way: play(shape, is_ours=way == OURS, seed=1, scores=scores) for way in (OURS, ALONE)}
        for way, found in runs.items():
            least, most, deviation = min(found.by_node), max(found.by_node), statistics.pstdev(found.by_node)
            print(
                f"{'spread':<10}{way:<15}{layout:<8}{kind:<12}{owner:<11}pods on a node {least:>3} to {most:>3}, "
                f"deviation {deviation:5.2f}; seconds {found.seconds:5.1f}, away {found.away}",
                flush=True,
            )
        ours, alone = (max(runs[way].by_node) for way in (OURS, ALONE))
        told = f"spread, {layout}, {kind}, {owner}: at most {ours} pods on a node, {alone} where nobody checks"
        verdicts.append(_verdict(told, ours <= ASKED_RATIO * alone + 1, f"{ASKED_RATIO} times, and one more"))
    return verdicts


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.places_throughput", description=(__doc__ or "").splitlines()[0]
    )
    names = (*BURSTS, "pending", "packed", "spread")
    parser.add_argument("worlds", nargs="*", metavar="world", help=", ".join(names))
    parser.add_argument("--seeds", type=int, nargs="*", default=SEEDS)
    parser.add_argument("--nodes", type=int, nargs="*", default=tuple(PENDING), help="of `pending`")
    add_client(parser)
    parser.add_argument("--report-only", action="store_true", help="exit with 0 although goals are not met")
    options = parser.parse_args()
    worlds = options.worlds or names
    fix_hash_seed("bench.places_throughput")
    if unknown := set(worlds) - set(names):
        parser.error(f"no such world: {', '.join(sorted(unknown))}")
    lags = replace(DEFAULT_LAGS, client_qps=options.client_qps)
    print(HEAD)
    verdicts: list[Verdict] = []
    for name in worlds:
        if name in BURSTS:
            verdicts += run_bursts(name, options.seeds, lags)
        elif name == "pending":
            verdicts += run_pending(options.nodes)
        else:
            verdicts += run_packed(PACKED_SEEDS) if name == "packed" else run_spread()
    code = conclude(verdicts, is_report_only=False)
    return 0 if options.report_only else code


if __name__ == "__main__":
    sys.exit(main())
