"""How long it takes to give room away by name (`python -m bench.allocating`).

First in one process, without a record to write: NODES Longhorn nodes of DISKS disks and ENTRIES replicas on them; one
replica after the other is placed, and so while WAITING pods hold what they were offered. `bytes` is what an allocation
takes by bench/allocation_memory.py.

Then on a real API server with as many nodes and replicas, all of them on record. Calls of one program alternate with
bare PATCHes, so that whatever else the machine does hits both alike: each sets one entry of an object of the record's
kind and size, through a client that does no more than the leader's. One caller and many at once take turns, on other
nodes in each round, so that no record grows much; and so do filter calls without callers and with, whose pod is not
there before. Expansions share writes; and the leader ends, and the next one answers. Printed as one JSON object and
written to bench-output/allocating.json; the verdict goes to standard error as well.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from bench.allocating_site import CALLERS, ELSEWHERE, ON, TOGETHER, LoadedSite
from bench.allocation_memory import bytes_of_an_allocation
from bench.made_up import make_cluster
from bench.served import p99
from bench.verdicts import Verdict, add_report_only, conclude, lines_of, write
from controller.allocator.allocator import Allocator
from controller.settings import DISK_SCHEDULER, LiveSettings
from tests.cluster.cluster import Cluster, ClusterOptions
from tests.e2e.disk_site import Site
from tests.fakes.builders import disk, replica, volume
from tests.waiting import wait_until

NODES, DISKS, ENTRIES = 1_000, 4, 50_000
DECISIONS, WAITING = 400, 200
ALONE, EXPANSIONS, HAND_OVERS, ROUNDS = 120, 100, 3, 3
MANY, FILTERS, WARM_UP = 1_000, 300, 20
OUTPUT = Path("bench-output/allocating.json")
MILLISECONDS = 1000.0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--entries", type=int, default=ENTRIES)
    add_report_only(parser)
    options = parser.parse_args(arguments)
    found: dict[str, Any] = {"decision": decision(options.nodes, options.entries)}
    with tempfile.TemporaryDirectory() as folder, Cluster.start(ClusterOptions(start_scheduler=False)) as cluster:
        site = Site(cluster, Path(folder))
        try:
            found["cluster"] = with_writes(LoadedSite(site, options.nodes, options.entries))
        finally:
            site.stop()
    verdicts = judged(found)
    found["verdicts"] = lines_of(verdicts)
    write(OUTPUT, found)
    print(OUTPUT.read_text(), end="")
    return conclude(verdicts, is_report_only=options.report_only, file=sys.stderr)


def decision(nodes: int, entries: int) -> dict[str, float]:
    """Milliseconds of a decision, quiet and while pods wait that were offered all nodes; and bytes of an
    allocation."""
    live = LiveSettings(enabled=True, allocation_authority=DISK_SCHEDULER)
    cluster = make_cluster(live)
    allocator, dice = cluster.allocator, random.Random(1)
    for number in range(nodes):
        name = f"node-{number}"
        cluster.add_node(name, *(disk(f"d{index}", 4000, node=name) for index in range(DISKS)))
    for number in range(nodes):
        name = f"node-{number}"
        for index in range(entries // nodes):
            owner, where = f"pvc-{number:08d}-{index:08d}-0000-0000-000000000000", f"d{index % DISKS}"
            size = dice.choice((10, 20, 50))
            allocator.observe_volume(owner, volume(owner, size, locality="disabled"))
            allocator.observe_replica(f"{owner}-r", replica(f"{owner}-r", owner, size, on=name, disk_name=where))
    took = decided(allocator, "quiet")
    names = [f"node-{number}" for number in range(nodes)]
    for number in range(WAITING):  # half of them for any node, half for the one where they run
        pod = f"pod{number}"
        cluster.add_pod(pod, (pod, 20, "roaming" if number % 2 else "longhorn"))
        cluster.allocator.hold_pod(cluster.pods[pod].uid, names)
    beside = decided(allocator, "beside")
    return {
        "nodes": nodes,
        "entries": entries,
        "median_ms": statistics.median(took),
        "p99_ms": statistics.quantiles(took, n=100)[98],
        "beside_pods_median_ms": statistics.median(beside),
        "beside_pods_p99_ms": statistics.quantiles(beside, n=100)[98],
        "bytes": bytes_of_an_allocation(nodes, entries),
    }


def decided(allocator: Allocator, prefix: str) -> list[float]:
    """How long each decision took, in milliseconds."""
    for number in range(DECISIONS):
        name = f"{prefix}{number}"
        allocator.observe_volume(name, volume(name, 10, locality="disabled"))
        allocator.observe_replica(f"{name}-r", replica(f"{name}-r", name, 10))
    allocator.sweep()
    took = []
    for number in range(DECISIONS):
        began = time.perf_counter()
        given = allocator.allocations.place_replica(f"{prefix}{number}-r", 60.0)
        took.append((time.perf_counter() - began) * MILLISECONDS)
        if not given.allocations:
            raise RuntimeError(f"nothing was given: {given.obstacles[:3]}")
    return took


def with_writes(loaded: LoadedSite) -> dict[str, float]:
    """What calls take whose answers wait for the record."""
    found = beside_patches(loaded) | one_and_many(loaded) | expansions(loaded) | filter_beside(loaded)
    filtered, given = zip(*(loaded.hand_over(loaded.replicas(1)[0]) for _ in range(HAND_OVERS)), strict=True)
    ratios = [mine / theirs for mine, theirs in zip(given, filtered, strict=True)]
    hand_over = {"hand_over_filter_s": filtered, "hand_over_call_s": given, "hand_over_ratio": ratios}
    return found | {name: statistics.median(values) for name, values in hand_over.items()}


def beside_patches(loaded: LoadedSite) -> dict[str, float]:
    """Calls of one program, each followed by a bare PATCH of an object as large as the record that it writes."""
    calls, patches = [], []
    sizes = {f"pvc-bare-{number:04d}-0000-000000000000-r-0a1b2c3d": 1 for number in range(ENTRIES // NODES)}
    loaded.put_bare({"d1": {"replicas": sizes}})
    first = next(iter(sizes))
    requests = [request.split()[1:] for request in loaded.replicas(ALONE)]
    with loaded.client() as client:
        for number, (volume, name) in enumerate(requests):
            began = time.perf_counter()
            client.schedule_replica(volume, name, seconds=30)
            calls.append(time.perf_counter() - began)
            began = time.perf_counter()
            body = {"spec": {"diskAllocations": {"d1": {"replicas": {first: number + 2}}}}}
            loaded.api.patch(f"{ELSEWHERE}/bare", body)
            patches.append(time.perf_counter() - began)
    call, patch = statistics.median(calls), statistics.median(patches)
    return {"call_ms": call * MILLISECONDS, "patch_ms": patch * MILLISECONDS, "call_to_patch": call / patch}


def one_and_many(loaded: LoadedSite) -> dict[str, float]:
    """Calls a second for replicas bound to four nodes: of one caller, and of many at once, in turns."""
    ratios, alone, together = [], [], []
    for number in range(ROUNDS):
        nodes = loaded.names[number * ON : (number + 1) * ON]
        one = loaded.seconds_of(loaded.start_calls(loaded.replicas(ALONE, nodes), 1))
        many = loaded.seconds_of(loaded.start_calls(loaded.replicas(TOGETHER, nodes)))
        alone.append(ALONE / one)
        together.append(TOGETHER / many)
        ratios.append(together[-1] / alone[-1])
    figures = {"alone_a_second": alone, "together_a_second": together, "together_to_alone": ratios}
    return {name: statistics.median(values) for name, values in figures.items()}


def expansions(loaded: LoadedSite) -> dict[str, float]:
    """Writes for each of many expansions at once, of volumes with a replica on each of three nodes."""
    known = loaded.record()["entries"]
    requests = loaded.growing(EXPANSIONS, loaded.names[-3:])
    wait_until(lambda: loaded.record()["entries"] >= known + 3 * EXPANSIONS, "what was made, on record", 60)
    before = loaded.record()["writes"]
    loaded.seconds_of(loaded.start_calls(requests, EXPANSIONS))
    return {"writes_an_expansion": (loaded.record()["writes"] - before) / EXPANSIONS}


def filter_beside(loaded: LoadedSite) -> dict[str, float]:
    """Filter calls about a pod with all nodes as candidates: quiet, and while replicas are made and given away, in
    turns."""
    ratios, quiet, beside = [], [], []
    loaded.make_pod()
    with closing(loaded.filter_connection()) as connection:
        for _ in range(WARM_UP):
            loaded.filter(connection)
        for _ in range(ROUNDS):
            alone = [loaded.filter(connection) for _ in range(FILTERS)]
            callers, busy = loaded.start_calls(loaded.new(MANY)), list[float]()
            while callers.poll() is None:
                busy.append(loaded.filter(connection))
            loaded.seconds_of(callers)
            quiet.append(p99(alone))
            beside.append(p99(busy))
            ratios.append(beside[-1] / quiet[-1])
    figures = {"filter_quiet_p99_ms": quiet, "filter_beside_p99_ms": beside}
    found = {name: statistics.median(values) * MILLISECONDS for name, values in figures.items()}
    return found | {"filter_beside_to_quiet": statistics.median(ratios)}


def judged(found: dict[str, Any]) -> list[Verdict]:
    one, cluster = found["decision"], found["cluster"]
    many, beside = cluster["together_to_alone"], cluster["filter_beside_to_quiet"]
    writes, later = cluster["writes_an_expansion"], cluster["hand_over_ratio"]
    return [
        Verdict(f"decision: median {one['median_ms']:.1f} ms", one["median_ms"] <= 5, "5 ms"),
        Verdict(f"decision: p99 {one['p99_ms']:.1f} ms", one["p99_ms"] <= 20, "20 ms"),
        Verdict(
            f"decision beside {WAITING} pods: median {one['beside_pods_median_ms']:.1f} ms",
            one["beside_pods_median_ms"] <= 5,
            "5 ms",
        ),
        Verdict(
            f"decision beside {WAITING} pods: p99 {one['beside_pods_p99_ms']:.1f} ms",
            one["beside_pods_p99_ms"] <= 20,
            "20 ms",
        ),
        Verdict(f"an allocation: {one['bytes']:.0f} bytes", one["bytes"] <= 400, "400", is_of_machine=False),
        Verdict(f"call / bare PATCH: {cluster['call_to_patch']:.2f}", cluster["call_to_patch"] <= 1.5, "1.5"),
        Verdict(f"{CALLERS} callers / one: {many:.1f}", many >= 4, "4"),
        Verdict(f"writes an expansion: {writes:.2f}", writes <= 1, "1"),
        Verdict(f"filter p99 beside callers / quiet: {beside:.1f}", beside <= 2, "2"),
        Verdict(f"first answer of a new leader: {later:.2f} of filter's", later <= 1.25, "as filter's: 1.25"),
    ]


if __name__ == "__main__":
    sys.exit(main())
