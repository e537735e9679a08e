"""Bursts: many pods at once on a small cluster, drawn with dice, against Longhorn's own choice or an adversary.

The parts are the machine's; what happens next is drawn by hand instead of by Hypothesis, so that a world costs tens of
milliseconds and has more pods in it than a small example has. Checked is the fourth invariant. The same seed and index
give the same world.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from typing import Final, TypeVar

from controller.model.longhorn import Replica, Volume
from tests.longhorn.placement import Candidate
from tests.race.invariants import LIMITS
from tests.race.limits import Limits
from tests.race.longhorn import RaceLonghorn
from tests.race.scheduler import RaceScheduler
from tests.race.shapes import CLASSES, IMMEDIATE, ZONES, ClusterShape, DiskShape, NodeShape, PodShape, VolumeShape
from tests.race.users import Users
from tests.race.world import KINDS, Action, BrokenPromise, RaceWorld

_T = TypeVar("_T")
MOST_PODS: Final = 14
_LOT: Final = 50  # worlds that a process is given at a time
_REPORT: Final = 40  # such lots
_CLASSES: Final = tuple(name for name in CLASSES if name != IMMEDIATE)
_LOCAL: Final = ("local", "local", "strict", "local-ssd")


class Chooser(StrEnum):
    """Who chooses among the disks that Longhorn's rules allow."""

    LONGHORN = "longhorn"  # its own preference, ties by chance
    ADVERSARY = "adversary"  # often the disk with the least room left


@dataclass
class BurstTally:
    """Sums over worlds; `violations` has transcripts, by index."""

    worlds: int = 0
    offered: int = 0
    refused: int = 0
    placed: int = 0
    violations: dict[int, str] = field(default_factory=dict)

    def __str__(self) -> str:
        answers = f"{self.offered} yes, {self.refused} no, {self.placed} placed"
        return f"{self.worlds} worlds, {answers}, {len(self.violations)} violations"

    def add(self, other: BurstTally) -> None:
        self.worlds += other.worlds
        self.offered += other.offered
        self.refused += other.refused
        self.placed += other.placed
        self.violations.update(other.violations)


class BurstDice(random.Random):
    def one(self, entries: Sequence[_T]) -> _T:
        return entries[int(self.random() * len(entries))]

    def chance(self, probability: float) -> bool:
        return self.random() < probability


class Burst:
    """One world. `is_late`: Longhorn decides before it writes, volumes that roam use the tolerance beside local ones,
    and nothing but that happens."""

    def __init__(self, seed: int, index: int, chooser: Chooser, *, is_late: bool = False) -> None:
        self._dice = dice = BurstDice(f"{seed} {index}")
        shape = _cluster(dice)
        if is_late:
            shape = replace(shape, writes_late=True, excess_pct=25, is_calm=True, is_prompt=True)
        self.world = RaceWorld(shape, LIMITS)
        self.world.log.append(f"  {self.world.shape}")
        self._users, self._scheduler = Users(self.world), RaceScheduler(self.world)
        self._longhorn, self._limits = RaceLonghorn(self.world), Limits(self.world)
        self._longhorn.choose = self._as_longhorn if chooser is Chooser.LONGHORN else self._worst
        self.world.watcher = self._limits
        self._most = dice.randint(2, MOST_PODS)
        self._kinds = dice.one((_LOCAL, _CLASSES, (*_LOCAL, *_CLASSES), ("free", "free-two", "soft-three", "local")))
        self._kinds = ("free", "free-two", "free", "local") if is_late else self._kinds
        self._largest = dice.one((4, 8, 12))
        self.tally = BurstTally(worlds=1)

    def run(self) -> BurstTally:
        """Violation when the invariant does not hold."""
        dice, made = self._dice, 0
        steps = 20 + 14 * self._most
        moves: list[tuple[float, Callable[[], None]]] = [
            (4, self._ask),
            (8, self._go_on),
            (8, self._volume),
            (2, self._figures),
            (2, self._deliver),
            (0.5, self._grow),
            (0.4, self._time),
            (0.1, self._leader),
            (0.0 if self.world.shape.is_calm else 0.5, self._disturb),
        ]
        weights, acts = [weight for weight, _ in moves], [act for _, act in moves]
        for _ in range(steps):
            if made < self._most and dice.chance(0.25):
                made += 1
                self._users.create(_pod(dice, self._kinds, self._largest))
                continue
            dice.choices(acts, weights)[0]()
            self._limits.check_all_find_disks(self._longhorn.decided)
        self.tally.placed = sum(1 for one in self.world.replicas.values() if one.disk_uuid)
        return self.tally

    # Longhorn's choice

    def _as_longhorn(
        self, facts: Volume, replicas: Sequence[Replica], found: Sequence[Candidate]
    ) -> Sequence[Candidate]:
        one = self.world.rules().preferred(facts, replicas, found, self._dice.randrange)
        return [] if one is None else [one]

    def _worst(self, _facts: Volume, _replicas: Sequence[Replica], found: Sequence[Candidate]) -> Sequence[Candidate]:
        if self._dice.chance(0.5):
            return [self._dice.one(found)]
        left = self.world.free_bytes()
        for one in self._longhorn.decided.values():
            left[one.disk_uuid] -= one.size_bytes
        return [min(found, key=lambda entry: left[entry.uuid])]

    # Moves

    def _act(self, actions: Sequence[Action]) -> None:
        if actions:
            self.world.do(self._dice.one(actions))

    def _ask(self) -> None:
        askable = [one for one in self._scheduler.askable() if not one.offered or self._dice.chance(0.1)]
        if not askable:
            return
        current = self._dice.one(askable)
        self.world.log.append(f"a scheduler asks about {current.key}")
        answer = self._scheduler.ask(current, self._scheduler.candidates(current, -1))
        if answer is not None:
            self.tally.offered += bool(answer.passed)
            self.tally.refused += answer.is_refused
        if current.offered and self._dice.chance(0.8):
            self._scheduler.pick(current, self._dice.one(sorted(current.offered)))
            self.world.log.append(f"{current.key} goes to {current.picked}")

    def _go_on(self) -> None:
        """The next write of some binding, or the provisioner's answer to it."""
        waiting = [pod for pod in self.world.pods.values() if pod.is_pending and self.world.rounds[pod.key].picked]
        if not waiting:
            return
        pod = self._dice.one(waiting)
        step = self._scheduler.next_step(self.world.rounds[pod.key], pod)
        if step is not None:
            self._act([step])
            return
        for claim in self.world.claims_of(pod):
            if not claim.volume_name and claim.selected_node:
                self.world.log.append(f"{claim.key} is provisioned")
                self._longhorn.provision(claim)
                return

    def _volume(self) -> None:
        if self.world.volumes:
            facts = self._dice.one(list(self.world.volumes.values()))
            self._act(list(self._longhorn.of_volume(facts)))

    def _figures(self) -> None:
        self._act(list(self._longhorn.figures()))

    def _deliver(self) -> None:
        if self._dice.chance(0.3):
            self.world.deliver_all()
        else:
            self.world.deliver(self._dice.one(KINDS), self._dice.randint(1, 6))

    def _grow(self) -> None:
        self._act(self._users.growths())

    def _time(self) -> None:
        seconds = self._dice.one((0.1, 0.5, 1.0, 3.0, 6.0))
        self.world.log.append(f"{seconds:g} s pass")
        self.world.sweep(seconds)

    def _leader(self) -> None:
        self.world.log.append("the leader changes")
        self.world.change_leader(self._dice.randint(0, 8))

    def _disturb(self) -> None:
        self._act(self._dice.one((self._users.actions, self._users.troubles, self._scheduler.nominations))())


def _cluster(dice: BurstDice) -> ClusterShape:
    gib = dice.one(((6, 9), (5, 20), (10, 40)))
    most_disks = dice.one((1, 2, 4))

    def node() -> NodeShape:
        disks = (
            DiskShape(dice.randint(*gib), dice.one((0, 0, 1)), dice.chance(0.4))
            for _ in range(dice.randint(1, most_disks))
        )
        return NodeShape(dice.one(ZONES), dice.chance(0.5), tuple(disks))

    return ClusterShape(
        nodes=tuple(node() for _ in range(dice.randint(1, 5))),
        is_prompt=dice.chance(0.5),
        degraded=dice.chance(0.5),
        node_soft=dice.chance(0.3),
        zone_soft=dice.chance(0.7),
        disk_soft=dice.chance(0.6),
        empty_selectors=dice.chance(0.8),
        writes_late=dice.chance(0.5),
        is_calm=dice.chance(0.7),
        excess_pct=dice.one((0, 25)),
    )


def _pod(dice: BurstDice, kinds: Sequence[str], largest: int) -> PodShape:
    count = dice.one((1, 1, 1, 2, 2, 3))
    volumes = tuple(VolumeShape(dice.one(kinds), dice.randint(1, largest)) for _ in range(count))
    return PodShape(volumes, is_opted_in=True, is_gated=False, is_second=dice.chance(0.2))


def run(
    seed: int, indices: Sequence[int], chooser: Chooser, most_violations: int = 5, *, is_late: bool = False
) -> BurstTally:
    tally = BurstTally()
    for index in indices:
        burst = Burst(seed, index, chooser, is_late=is_late)
        try:
            tally.add(burst.run())
        except BrokenPromise as violation:
            tally.add(burst.tally)
            tally.violations[index] = str(violation)
            if len(tally.violations) >= most_violations:
                break
    return tally


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.race.burst", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--chooser", choices=tuple(Chooser), help="without it both, one after the other")
    parser.add_argument("--worlds", type=int, default=1_000)
    parser.add_argument("--first", type=int, default=0, help="index of the first world")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--late", action="store_true", help="where late decisions meet the tolerance, and nothing else")
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    is_clean = True
    for chooser in (Chooser(options.chooser),) if options.chooser else Chooser:
        tally, began = BurstTally(), time.perf_counter()
        lots = [range(at, min(at + _LOT, options.worlds)) for at in range(options.first, options.worlds, _LOT)]
        with ProcessPoolExecutor(options.jobs) as pool:
            for number, found in enumerate(
                pool.map(partial(run, options.seed, chooser=chooser, is_late=options.late), lots), start=1
            ):
                tally.add(found)
                for index, text in found.violations.items():
                    print(index, text, flush=True)
                if number % _REPORT == 0:
                    print(f"{chooser}: {tally.worlds} worlds, {len(tally.violations)} violations", flush=True)
        print(f"{chooser}: seed {options.seed}, {tally}, {tally.worlds / (time.perf_counter() - began):.1f} a second")
        is_clean = is_clean and not tally.violations
    return 0 if is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
