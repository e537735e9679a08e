"""What it costs to choose a disk (`python -m bench.choosing`): a decision that holds the allocator's lock.

NODES Longhorn nodes of DISKS disks in three zones, VOLUMES volumes of two copies, and something taken on every disk.
One copy after the other is chosen and shown where it was chosen, so that each decision also finds a node that changed:
a first copy of a volume that goes anywhere, a third copy, which two others keep from their zones, a copy of a volume
that goes where it runs, and a first copy where every disk is nearly full. Beside it, the same question to the plain
search, which tells of every disk why it does not serve, and a bare loop that compares one number for each disk.
Processor time of the thread, since what else the machine does is not measured. Printed as one JSON object and written
to bench-output/choosing.json.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench.verdicts import Verdict, add_report_only, conclude, lines_of, write
from controller.allocator.choose.choose import Chooser
from controller.allocator.choose.explain import explain
from controller.allocator.choose.wanted import Wanted, replica_to_come
from controller.allocator.world.world import World
from controller.model.longhorn import LonghornSettings
from tests.fakes.builders import GIB, disk, node, replica, volume

NODES, DISKS, VOLUMES = 1_000, 2, 10_000
DISK_GIB, TAKEN_GIB = 1_000, 50
DECISIONS, PLAIN, WARM_UP = 900, 15, 30
MEDIAN_MS, P99_MS = 1.0, 5.0
OUTPUT = Path("bench-output/choosing.json")
MILLISECONDS = 1000.0
KINDS = ("first copy", "third copy", "where it runs", "nearly full")


@dataclass(frozen=True)
class TakenEverywhere:
    """Bytes taken on disks, by node and UUID."""

    bytes_by_disk: dict[tuple[str, str], int]

    def taken_bytes(self, node: str, disk_uuid: str) -> int:
        return self.bytes_by_disk.get((node, disk_uuid), 0)

    def planned_bytes(self, node: str, disk_uuid: str) -> int:
        return self.bytes_by_disk.get((node, disk_uuid), 0)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--disks", type=int, default=DISKS)
    add_report_only(parser)
    options = parser.parse_args(arguments)
    site = ChoosingSite(options.nodes, options.disks)
    found: dict[str, Any] = {"nodes": options.nodes, "disks": options.disks, "volumes": VOLUMES}
    took = {kind: [site.decide(kind) for _ in range(WARM_UP + DECISIONS // len(KINDS))][WARM_UP:] for kind in KINDS}
    plain = [site.ask_plainly(kind) for kind in KINDS for _ in range(PLAIN // len(KINDS))]
    every = [one for kind in KINDS for one in took[kind]]
    found |= {f"{kind} median_ms": statistics.median(took[kind]) for kind in KINDS}
    found |= {"median_ms": statistics.median(every), "p99_ms": statistics.quantiles(every, n=100)[98]}
    found["of_plain"] = statistics.median(every) / statistics.median(plain)
    loops = [_timed(lambda: sum(1 for number in range(options.nodes * options.disks) if number < 0))[1] for _ in every]
    found["bare_loop_ms"] = statistics.median(loops)
    verdicts = [
        Verdict(f"a decision, median: {found['median_ms']:.2f} ms", found["median_ms"] <= MEDIAN_MS, f"{MEDIAN_MS} ms"),
        Verdict(f"a decision, p99: {found['p99_ms']:.2f} ms", found["p99_ms"] <= P99_MS, f"{P99_MS} ms"),
    ]
    found["verdicts"] = lines_of(verdicts)
    write(OUTPUT, found)
    print(OUTPUT.read_text(), end="")
    return conclude(verdicts, is_report_only=options.report_only, file=sys.stderr)


class ChoosingSite:
    """The cluster; each question is about a volume of its own."""

    def __init__(self, nodes: int, disks: int) -> None:
        self._world, self._dice, self._count = World(), random.Random(1), 0
        self._world.put_settings(LonghornSettings())
        self._names = [f"worker-{number:05d}.cluster.example" for number in range(nodes)]
        for number, name in enumerate(self._names):
            here = (disk(f"d{index}", DISK_GIB, node=name) for index in range(disks))
            self._world.put_node(name, node(name, *here, zone=f"zone-{number % 3}"))
        for number in range(VOLUMES):
            self._show(f"v{number}", self._dice.sample(self._names, 2), disks)
        places = [(name, f"{name}-d{index}") for name in self._names for index in range(disks)]
        self._taken = TakenEverywhere({place: self._dice.randrange(TAKEN_GIB) * GIB for place in places})
        self._full = TakenEverywhere(dict.fromkeys(places, (DISK_GIB - TAKEN_GIB * 3) * GIB))
        self._disks = disks
        self._chooser = Chooser(self._world)

    def _show(self, name: str, on: Sequence[str], disks: int, **fields: Any) -> None:
        self._world.put_volume(name, volume(name, 10, **{"locality": "disabled", "replica_count": 3, **fields}))
        for number, where in enumerate(on):
            which = f"d{self._dice.randrange(disks)}"
            self._world.put_replica(
                f"{name}-r-{number}", replica(f"{name}-r-{number}", name, 10, on=where, disk_name=which)
            )

    def _question(self, kind: str) -> Wanted:
        self._count += 1
        name, runs_on = f"new-{self._count}", self._dice.choice(self._names)
        siblings = self._dice.sample(self._names, 2) if kind == "third copy" else []
        fields = {"locality": "best-effort", "attached_to": runs_on} if kind == "where it runs" else {}
        self._show(name, siblings, self._disks, **fields)
        facts = self._world.volumes[name]
        return Wanted(facts, replica_to_come(facts))

    def decide(self, kind: str) -> float:
        """Milliseconds of a decision; the copy is shown then."""
        wanted = self._question(kind)
        taken = self._full if kind == "nearly full" else self._taken
        chosen, took = _timed(lambda: self._chooser.choose(wanted, taken))
        assert chosen.place is not None
        there = replace(wanted.replica, node=chosen.place.node, disk_uuid=chosen.place.disk_uuid)
        self._world.put_replica(there.name, there)
        return took

    def ask_plainly(self, kind: str) -> float:
        wanted = self._question(kind)
        return _timed(lambda: explain(wanted, self._world, self._taken))[1]


def _timed(call: Callable[[], Any]) -> tuple[Any, float]:
    began = time.thread_time()
    answer = call()
    return answer, (time.thread_time() - began) * MILLISECONDS


if __name__ == "__main__":
    sys.exit(main())
