"""A burst of pods with all kinds of volumes, placed by the leader or by Longhorn (`python -m bench.placing_burst`).

A real kube-scheduler, and the stand-in with the delays of Longhorn's own controllers; there is room for everything.
Runs alternate in one cluster: with the leader, whose extender kube-scheduler asks; and with `placement: longhorn`, by a
kube-scheduler without extenders. Told are the seconds until all pods are ready; how many writes a Replica needed until
it had its place, refused ones among them, and how many more there were of plans; and the seconds from the end of a copy
until the one in its stead has a place. Counted is what the API server stored, and what its own counters say.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from bench.scrape import samples_of
from bench.verdicts import Verdict, add_report_only, conclude, lines_of, never, write
from controller.placement.plan_entries import SHARDS, shard_name
from tests.e2e import workloads
from tests.e2e.harness import CLASSES, STOCK_SCHEDULER, Cell, Scene
from tests.e2e.scheduling import NAMESPACE
from tests.judge.reading import stored_places
from tests.longhorn import paths
from tests.longhorn.options import Delays, LonghornOptions
from tests.waiting import wait_until

NODES, DISKS_GIB, SIZE_GIB = 8, (1_000, 1_000), 10
OF_EACH: Final = 8  # pods of each kind
KINDS: Final = {
    "one": ("best-effort", 1),
    "near": ("best-effort", 2),
    "three": ("disabled", 3),
    "strict": ("strict-local", 1),
}
LEADER, ALONE = "leader", "Longhorn alone"
PATIENCE_SECONDS: Final = 180.0
CREATORS: Final = 4
READY_RATIO, WRITES_RATIO, MISSING_RATIO = 1.05, 1.2, 1.1  # asked of us
REPLICAS: Final = paths.longhorn("replicas", NAMESPACE)
REQUESTS: Final = "apiserver_request_total"
PLANS: Final = frozenset(map(shard_name, range(SHARDS)))
Entries = Sequence[dict[str, Any]]


@dataclass(slots=True)
class PlacedBurst:
    way: str
    pods: int
    ready: int
    seconds: float  # until the last of the `ready` pods was ready
    replicas: int
    writes: float  # for each Replica until it had its place, refused ones included
    refused: int
    plan_writes: float  # for each Replica
    missing: int
    missing_seconds: float  # median, from a copy's end until the next one's place


class BurstOfKinds:
    """A scene with a leader, both schedulers, and a cell with a class of each kind."""

    def __init__(self, scene: Scene, of_each: int) -> None:
        self._scene, self._api, self._of_each = scene, scene.api, of_each
        self._cell: Cell = scene.cell("kinds", nodes=NODES, disks_gib=DISKS_GIB, fillers=0)
        for kind, (locality, copies) in KINDS.items():
            made = workloads.storage_class(_class(kind), locality=locality, replicas=copies, node_selector="kinds")
            self._api.create(CLASSES, made)

    def run(self, way: str) -> PlacedBurst:
        self._scene.let_place("leader" if way == LEADER else "longhorn")
        self._cell.renew()
        began, refused = self._scene.cluster.history_caught_up(), self._refused()
        ready, seconds = self._start(way)
        first = self._since(began)
        refused = self._refused() - refused
        placed = list(writes_until_placed(first))
        plans = sum(entry["kind"] == "ConfigMap" and entry["object"]["metadata"]["name"] in PLANS for entry in first)
        missing = self._lose_copies()
        self._clear()
        found = PlacedBurst(
            way,
            len(KINDS) * self._of_each,
            ready,
            round(seconds, 2),
            len(placed),
            round((sum(placed) + refused) / max(1, len(placed)), 2),
            refused,
            round(plans / max(1, len(placed)), 2),
            len(missing),
            round(statistics.median(missing), 3) if missing else float("nan"),
        )
        print(f"    {json.dumps(asdict(found))}", flush=True)
        return found

    def _start(self, way: str) -> tuple[int, float]:
        """All pods at once; how many of them are ready, and after how many seconds."""
        names = [(kind, f"{kind}-{number}") for number in range(self._of_each) for kind in KINDS]
        more: dict[str, Any] = {} if way == LEADER else {"opted_in": False, "schedulerName": STOCK_SCHEDULER}
        with ThreadPoolExecutor(CREATORS) as pool:
            claims = [workloads.claim(name, _class(kind), SIZE_GIB) for kind, name in names]
            list(pool.map(lambda claim: self._cell.create("persistentvolumeclaims", claim), claims))
            began = time.monotonic()
            list(pool.map(lambda name: self._cell.pod(name, name, **more), [name for _, name in names]))
        with suppress(TimeoutError):
            self._cell.wait_ready(len(names), PATIENCE_SECONDS)
        return len(self._cell.ready()), time.monotonic() - began

    def _lose_copies(self) -> list[float]:
        """A copy of each volume that has three goes; seconds until the one in its stead has a place."""
        began = self._scene.cluster.history_caught_up()
        lost = dict[str, str]()  # by volume
        for replica in self._api.list(REPLICAS)["items"]:
            labels = replica["metadata"]["labels"]
            lost.setdefault(labels["longhornvolume"], replica["metadata"]["name"])
        copies = self._copies()
        lost = {volume: name for volume, name in lost.items() if copies[volume] == 3}
        with ThreadPoolExecutor(CREATORS) as pool:
            list(pool.map(lambda name: self._api.delete(f"{REPLICAS}/{name}"), lost.values()))
        with suppress(TimeoutError):
            wait_until(lambda: len(self._replaced(began, lost)) == len(lost), "new copies", PATIENCE_SECONDS)
        return self._replaced(began, lost)

    def _copies(self) -> dict[str, int]:
        found = self._api.list(paths.longhorn("volumes", NAMESPACE))["items"]
        return {volume["metadata"]["name"]: int(volume["spec"]["numberOfReplicas"]) for volume in found}

    def _replaced(self, began: int, lost: dict[str, str]) -> list[float]:
        ended, found = dict[str, float](), dict[str, float]()
        for entry in self._since(began):
            if entry["kind"] != "Replica":
                continue
            raw = entry["object"]
            name, volume = raw["metadata"]["name"], raw["spec"]["volumeName"]
            if name == lost.get(volume):
                ended.setdefault(volume, entry["at"])
            elif raw["spec"].get("nodeID") and volume in ended and entry["type"] == "MODIFIED":
                found.setdefault(volume, entry["at"] - ended[volume])
        return list(found.values())

    def _since(self, version: int) -> Entries:
        upto = self._scene.cluster.history_caught_up()
        entries = stored_places(self._scene.cluster.history, upto)
        return [entry for entry in entries if entry["rv"] > version and entry["object"] is not None]

    def _refused(self) -> int:
        """Updates of Replicas that the API server did not take, dry runs aside."""
        lines = [line for line in self._api.text("/metrics").splitlines() if line.startswith(f"{REQUESTS}{{")]
        wanted = [line for line in lines if 'resource="replicas"' in line and 'dry_run=""' in line]
        found = samples_of("\n".join((*wanted, ""))).values
        counts = [(dict(labels), int(count)) for (_, labels), count in found.items()]
        return sum(
            count
            for labels, count in counts
            if labels["group"] == paths.GROUP and labels["verb"] in ("PUT", "PATCH") and labels["code"].startswith("4")
        )

    def _clear(self) -> None:
        self._cell.clear(PATIENCE_SECONDS)
        wait_until(lambda: not self._api.list(REPLICAS)["items"], "end of all Replicas", PATIENCE_SECONDS)


def _class(kind: str) -> str:
    return f"longhorn-kinds-{kind}"


def writes_until_placed(entries: Entries) -> Iterator[int]:
    """For each Replica that was made and then placed: how often it was stored until it had its place."""
    writes = dict[str, int]()
    for entry in entries:
        if entry["kind"] != "Replica":
            continue
        name, node = entry["object"]["metadata"]["name"], entry["object"]["spec"].get("nodeID")
        if entry["type"] == "ADDED" and not node:
            writes[name] = 1
        elif name in writes:
            writes[name] += 1
            if node:
                yield writes.pop(name)


def ratios(runs: Sequence[PlacedBurst], figure: Callable[[PlacedBurst], float]) -> tuple[float, float, float]:
    """Of each pair, with the leader to alone: median, least and most."""
    with_leader = [figure(one) for one in runs if one.way == LEADER]
    alone = [figure(one) for one in runs if one.way == ALONE]
    found = [ours / theirs if theirs else float("nan") for ours, theirs in zip(with_leader, alone, strict=True)]
    return statistics.median(found), min(found), max(found)


def verdicts(runs: Sequence[PlacedBurst]) -> list[Verdict]:
    found = []
    figures: Sequence[tuple[str, Callable[[PlacedBurst], float], float]] = (
        ("until all are ready", lambda one: one.seconds, READY_RATIO),
        ("writes of a Replica until it has its place", lambda one: one.writes, WRITES_RATIO),
        ("these, and the writes of plans", lambda one: one.writes + one.plan_writes, WRITES_RATIO),
        ("a missing copy until it has its place", lambda one: one.missing_seconds, MISSING_RATIO),
    )
    for text, figure, limit in figures:
        median, least, most = ratios(runs, figure)
        told = f"{text}: {median:.2f} ({least:.2f} to {most:.2f}) x Longhorn alone"
        found.append(Verdict(told, median <= limit, f"at most {limit}"))
    ours = [one for one in runs if one.way == LEADER]
    return [*found, never("runs with a pod that did not get ready", sum(one.ready < one.pods for one in ours))]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.placing_burst", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--of-each", type=int, default=OF_EACH, help="pods of each kind")
    parser.add_argument("--output", type=Path, default=Path("bench-output/placing_burst.json"))
    add_report_only(parser)
    args = parser.parse_args()
    runs: list[PlacedBurst] = []
    with Scene.start(LonghornOptions(delays=Delays().changed_by("measured"))) as scene:
        scene.start_controller()
        scene.start_stock_scheduler()
        burst = BurstOfKinds(scene, args.of_each)
        for number in range(args.pairs):
            runs += [burst.run(way) for way in ((LEADER, ALONE) if number % 2 == 0 else (ALONE, LEADER))]
        scene.stop_controllers()
    checks = verdicts(runs)
    document = {"runs": [asdict(one) for one in runs], "load_average": os.getloadavg(), "verdicts": lines_of(checks)}
    write(args.output, document)
    return conclude(checks, is_report_only=args.report_only)


if __name__ == "__main__":
    sys.exit(main())
