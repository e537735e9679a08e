"""How long it takes to give room away by name (`python -m bench.allocating`).

First in one process, without a record to write: NODES Longhorn nodes of DISKS disks and ENTRIES allocations on record,
each with its Replica object; one replica after the other is placed. `bytes` is what an allocation takes beside the
parsed record.

Then on a real API server with four nodes: calls of one program, one after the other, alternate with bare PATCHes of an
object as large as a record, so that whatever else the machine does hits both alike; then CALLERS programs ask at once.
Printed as one JSON object and written to bench-output/allocating.json; the verdict goes to standard error as well.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench.made_up import make_cluster
from bench.verdicts import Verdict, add_report_only, conclude, lines_of
from controller.model.allocations import Allocation, NodeRecord, Purpose
from controller.rpc.client import DiskSchedulerClient, material_of
from controller.settings import DISK_SCHEDULER, LiveSettings
from tests.cluster.cluster import Cluster, ClusterOptions
from tests.e2e.disk_callers import NAME
from tests.e2e.disk_site import RECORDS, Site, caller_certificate
from tests.fakes.builders import GIB, disk, replica, volume

NODES, DISKS, ENTRIES = 1_000, 4, 50_000
DECISIONS = 60
ALONE, CALLERS = 120, 32
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
            found["cluster"] = with_writes(site)
        finally:
            site.stop()
    verdicts = judged(found)
    found["verdicts"] = lines_of(verdicts)
    text = json.dumps(found, indent=2)
    OUTPUT.parent.mkdir(exist_ok=True)
    OUTPUT.write_text(text + "\n")
    print(text)
    return conclude(verdicts, is_report_only=options.report_only, file=sys.stderr)


def decision(nodes: int, entries: int) -> dict[str, float]:
    """Milliseconds of a decision, and bytes of an allocation."""
    live = LiveSettings(enabled=True, allocation_authority=DISK_SCHEDULER)
    cluster = make_cluster(live)
    allocator, dice = cluster.allocator, random.Random(1)
    for number in range(nodes):
        name = f"node-{number}"
        cluster.add_node(name, *(disk(f"d{index}", 4000, node=name) for index in range(DISKS)))
    records = []
    for number in range(nodes):
        name, here = f"node-{number}", []
        for index in range(entries // nodes):
            owner, where = f"pvc-{number:08d}-{index:08d}-0000-0000-000000000000", f"d{index % DISKS}"
            size = dice.choice((10, 20, 50))
            here.append(Allocation(Purpose.REPLICA, f"{owner}-r", name, where, size * GIB))
            allocator.observe_volume(owner, volume(owner, size, locality="disabled"))
            allocator.observe_replica(f"{owner}-r", replica(f"{owner}-r", owner, size, on=name, disk_name=where))
        records.append(NodeRecord(name, tuple(here)))
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for record in records:
        allocator.observe_record(record.node, record)
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    for number in range(DECISIONS):
        allocator.observe_volume(f"new{number}", volume(f"new{number}", 10, locality="disabled"))
        allocator.observe_replica(f"new{number}-r", replica(f"new{number}-r", f"new{number}", 10))
    allocator.sweep()
    took = []
    for number in range(DECISIONS):
        began = time.perf_counter()
        given = allocator.allocations.place_replica(f"new{number}-r", 60.0)
        took.append((time.perf_counter() - began) * MILLISECONDS)
        if not given.allocations:
            raise RuntimeError(f"nothing was given: {given.obstacles[:3]}")
    return {
        "nodes": nodes,
        "entries": entries,
        "median_ms": statistics.median(took),
        "p99_ms": statistics.quantiles(took, n=100)[98],
        "bytes": (after - before) / entries,
    }


def with_writes(site: Site) -> dict[str, float]:
    leader = site.start_leader()
    leader.wait_leading()
    folder = caller_certificate(site.api, site.folder)
    names = [site.add_volume(f"v{number}", 1)[0] for number in range(4 * 100 - 1)]
    patched = names.pop()  # its record is one of our own, of no node, that the leader leaves alone
    body = {"metadata": {"name": "bare"}, "spec": {"term": 0, "diskAllocations": {"d1": {"replicas": {patched: 1}}}}}
    site.api.create(RECORDS, {"apiVersion": "scheduling.longhorn.io/v1alpha1", "kind": "NodeDiskAllocation", **body})
    with DiskSchedulerClient(site.address, NAME, lambda: material_of(folder)) as client:
        calls, patches = [], []
        for number, name in enumerate(names[:ALONE]):
            began = time.perf_counter()
            client.schedule_replica(name.rsplit("-r-")[0], name, seconds=30)
            calls.append(time.perf_counter() - began)
            began = time.perf_counter()
            sizes = {f"{patched}-{index}": number for index in range(number // 4 + 1)}
            site.api.patch(f"{RECORDS}/bare", {"spec": {"diskAllocations": {"d1": {"replicas": sizes}}}})
            patches.append(time.perf_counter() - began)
        rest = names[ALONE:]
        began = time.perf_counter()
        with ThreadPoolExecutor(CALLERS) as pool:
            list(pool.map(lambda name: client.schedule_replica(name.rsplit("-r-")[0], name, seconds=30), rest))
        together = len(rest) / (time.perf_counter() - began)
    alone = 1 / statistics.median(calls)
    return {
        "call_ms": statistics.median(calls) * MILLISECONDS,
        "patch_ms": statistics.median(patches) * MILLISECONDS,
        "call_to_patch": statistics.median(calls) / statistics.median(patches),
        "alone_a_second": alone,
        "together_a_second": together,
        "together_to_alone": together / alone,
    }


def judged(found: dict[str, Any]) -> list[Verdict]:
    one, cluster = found["decision"], found["cluster"]
    return [
        Verdict(f"decision: median {one['median_ms']:.1f} ms", one["median_ms"] <= 5, "5 ms"),
        Verdict(f"decision: p99 {one['p99_ms']:.1f} ms", one["p99_ms"] <= 20, "20 ms"),
        Verdict(f"an allocation: {one['bytes']:.0f} bytes", one["bytes"] <= 400, "400", is_of_machine=False),
        Verdict(f"call / bare PATCH: {cluster['call_to_patch']:.2f}", cluster["call_to_patch"] <= 1.5, "1.5"),
        Verdict(f"{CALLERS} callers / one: {cluster['together_to_alone']:.1f}", cluster["together_to_alone"] >= 4, "4"),
    ]


if __name__ == "__main__":
    sys.exit(main())
