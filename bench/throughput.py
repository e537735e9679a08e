"""How long a burst takes when everything is promised on every disk that it may come to (`python -m bench.throughput`).

On virtual time: the product's allocator, a scheduler that asks for ten pods every tenth of a second at most, and
Longhorn's own choice among the disks that its late figures show. Nothing else costs time, so the figures are those of
the rule alone. Each line is one run: seconds until all replicas have a disk, in how many placements a disk ended over
its limit, and how many replicas found none.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import json
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Final

from controller.model.longhorn import Replica
from controller.settings import LiveSettings
from tests.fakes.builders import GIB, TestCluster, disk
from tests.fakes.builders import replica as replica_of
from tests.longhorn.preference import best

TICK_SECONDS: Final = 0.1
A_TICK: Final = 10  # pods that a scheduler gets done in one
COPY_SECONDS: Final = 0.05  # between two copies of a volume
WRITTEN: Final = 0.5  # of what is scheduled
MOST_SECONDS: Final = 1_200.0
# From the choice to the first placement, on Longhorn's own controllers.
MEASURED_BESIDE, MEASURED_ANYWHERE = 3.5, 0.5


@dataclass(frozen=True, slots=True)
class VolumeKind:
    """`copies` 0: one replica, beside the pod."""

    gib: int
    copies: int = 0

    @property
    def class_name(self) -> str:
        return f"anywhere-{self.copies}" if self.copies else "longhorn"


@dataclass(slots=True)
class BurstOutcome:
    seconds: float
    placed: int = 0
    over: int = 0  # placements after which a disk was over its limit
    worst: float = 0.0  # times its limit, of the fullest of those
    without_disk: int = 0
    left: int = 0  # pods that were never let through


@dataclass(slots=True)
class _Disk:
    """GiB. `shown` follows `used`."""

    node: str
    uuid: str
    limit: int
    used: int
    shown: int
    replicas: dict[str, int] = field(default_factory=dict)


class SimulatedBurst:
    """One burst. `pct` None: nobody checks."""

    def __init__(
        self, nodes: Sequence[int], disk_gib: Callable[[random.Random], int], lag: float, after: float, pct: int | None
    ) -> None:
        """`nodes` has the number of disks of each. Figures follow `lag` seconds after a placement, which comes `after`
        seconds after the yes; 0: as was measured."""
        self._chance = chance = random.Random(2)
        self._lag, self._after, self._asks = lag, after, pct is not None
        self._cluster = TestCluster(live=LiveSettings(enabled=True, roaming_overcommit_pct=pct or 0))
        for copies in (1, 2, 3):
            self._cluster.add_class(f"anywhere-{copies}", dataLocality="disabled", numberOfReplicas=str(copies))
        self._disks: dict[str, _Disk] = {}
        self._nodes = [f"n{number}" for number in range(len(nodes))]
        for name, count in zip(self._nodes, nodes, strict=True):
            for index in range(count):
                size = disk_gib(chance)
                used = int(size * min(0.995, max(0.0, chance.gauss(0.6, 0.05))))
                self._disks[f"{name}-d{index}"] = _Disk(name, f"{name}-d{index}", size, used, used)
            self._show(name)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self.outcome = BurstOutcome(0.0)

    def _show(self, name: str) -> None:
        here = [one for one in self._disks.values() if one.node == name]
        facts = [
            replace(
                disk(one.uuid.partition("-")[2], one.limit, node=name),
                scheduled_bytes=one.shown * GIB,
                available_bytes=int(one.limit * GIB - WRITTEN * one.shown * GIB),
                scheduled_replicas={key: gib * GIB for key, gib in one.replicas.items()},
            )
            for one in here
        ]
        self._cluster.add_node(name, *facts)

    def play(self, kinds: Sequence[VolumeKind]) -> BurstOutcome:
        queue = [(f"p{number}", kind) for number, kind in enumerate(kinds)]
        for name, kind in queue:
            self._cluster.add_claim(name, kind.gib, class_name=kind.class_name)
            self._cluster.add_pod(name)
        expected = sum(max(1, kind.copies) for kind in kinds)
        clock = self._cluster.clock
        began = clock.now()
        while self.outcome.placed + self.outcome.without_disk < expected and clock.now() - began < MOST_SECONDS:
            if self._asks:
                self._cluster.allocator.sweep()
            queue = self._ask(queue)
            tick = clock.now() + TICK_SECONDS
            while self._events and self._events[0][0] <= tick:
                at, _, act = heapq.heappop(self._events)
                clock.advance(at - clock.now())
                act()
            clock.advance(tick - clock.now())
        self.outcome.seconds, self.outcome.left = round(clock.now() - began, 1), len(queue)
        return self.outcome

    def _ask(self, queue: Sequence[tuple[str, VolumeKind]]) -> list[tuple[str, VolumeKind]]:
        """What is left of the queue."""
        done, refused, left = 0, set[VolumeKind](), []
        for name, kind in queue:
            if done >= A_TICK or kind in refused:
                left.append((name, kind))
                continue
            offers = sorted(self._cluster.offered(name, *self._nodes)) if self._asks else self._anywhere(kind)
            if not offers:
                refused.add(kind)
                left.append((name, kind))
                continue
            done += 1
            node = self._chance.choice(offers)
            self._cluster.select_node(name, node)
            after = self._after or (MEASURED_ANYWHERE if kind.copies else MEASURED_BESIDE)
            delay = self._chance.lognormvariate(0, 0.4) * after
            self._at(delay, lambda name=name, kind=kind, node=node: self._provision(name, kind, node))  # type: ignore[misc]
        return left

    def _anywhere(self, kind: VolumeKind) -> list[str]:
        """kube-scheduler does not know the disks."""
        del kind
        return self._nodes

    def _at(self, seconds: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self._cluster.clock.now() + seconds, next(self._numbers), act))

    def _provision(self, name: str, kind: VolumeKind, node: str) -> None:
        locality = "disabled" if kind.copies else "best-effort"
        copies = max(1, kind.copies)
        volume = self._cluster.provision(name, copies=copies, locality=locality)
        self._cluster.bind(name, node)
        self._cluster.attach(volume, node, kind.gib, locality=locality, replica_count=copies)
        self._place(volume, kind, node, copies)

    def _place(self, volume: str, kind: VolumeKind, node: str, left: int, used: frozenset[str] = frozenset()) -> None:
        """The next copy, by Longhorn's rules and figures."""
        found = {
            one.uuid: one.limit - int(WRITTEN * one.shown) - one.shown
            for one in self._disks.values()
            if one.limit - one.shown >= kind.gib and one.node not in used and (kind.copies or one.node == node)
        }
        if not found:
            self.outcome.without_disk += left
            return
        where = self._disks[self._choose(found, kind.gib)]
        where.used += kind.gib
        self.outcome.placed += 1
        if where.used > where.limit:
            self.outcome.over += 1
            self.outcome.worst = round(max(self.outcome.worst, where.used / where.limit), 3)
        facts: Replica = replica_of(f"{volume}-r-{left}", volume, kind.gib, on=where.node)
        facts = replace(facts, disk_uuid=where.uuid)
        self._cluster.allocator.observe_replica(facts.name, facts)
        self._at(self._chance.uniform(0.3, 1) * self._lag, lambda: self._report(where, facts.name, kind.gib))
        if left > 1:
            self._at(COPY_SECONDS, lambda: self._place(volume, kind, node, left - 1, used | {where.node}))

    def _choose(self, usable: dict[str, int], gib: int) -> str:
        if len(usable) == 1:
            return next(iter(usable))
        by_node: dict[str, int] = {}
        for uuid, left in usable.items():
            node = self._disks[uuid].node
            by_node[node] = by_node.get(node, 0) + left
        any_of = self._chance.randrange
        name = best(by_node, gib, list(by_node), any_of)
        if name is not None:
            chosen = best(usable, gib, [uuid for uuid in usable if self._disks[uuid].node == name], any_of)
            if chosen is not None:
                return chosen
        return self._chance.choice(list(usable))

    def _report(self, where: _Disk, name: str, gib: int) -> None:
        where.shown += gib
        where.replicas[name] = gib
        self._show(where.node)


def bursts() -> dict[str, Callable[[float, float, int | None], BurstOutcome]]:
    """By name, a burst with figures so late, placed so late, with that tolerance."""

    def copies(lag: float, after: float, pct: int | None) -> BurstOutcome:
        return SimulatedBurst([2] * 40, lambda _: 1024, lag, after, pct).play([VolumeKind(20, 3)] * 300)

    def mixed(lag: float, after: float, pct: int | None) -> BurstOutcome:
        chance = random.Random(3)
        kinds = (VolumeKind(20), VolumeKind(40), VolumeKind(20, 3), VolumeKind(10, 2), VolumeKind(30, 1))
        nodes = [chance.choice((1, 2, 3, 4)) for _ in range(40)]
        run = SimulatedBurst(nodes, lambda dice: dice.randint(600, 1_400), lag, after, pct)
        return run.play([chance.choice(kinds) for _ in range(300)])

    return {"300 pods of three copies, 80 disks": copies, "300 pods of mixed kinds, 40 nodes": mixed}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.throughput", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--lag", type=float, nargs="*", default=[0.3, 1.0, 5.0])
    parser.add_argument("--after", type=float, nargs="*", default=[0, 0.5, 3.0], help="seconds; 0: as measured")
    parser.add_argument("--pct", type=int, nargs="*", default=[0, 10, 25])
    options = parser.parse_args()
    for name, burst in bursts().items():
        for after, lag in itertools.product(options.after, options.lag):
            for pct in (None, *options.pct):
                rule = "nobody checks" if pct is None else f"tolerance {pct} %"
                line = {"burst": name, "placed_after": after, "figures_late": lag, "rule": rule}
                print(json.dumps({**line, **asdict(burst(lag, after, pct))}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
