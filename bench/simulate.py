"""How long `simulate` takes for 1,000 pods on 1,000 nodes (`python -m bench.simulate`).

Saved objects as kubectl prints them, no cluster: nodes with four disks each, 10,000 volumes of two copies on them, with
PersistentVolumes and claims. Three cases: every pod finds a place; none does, which costs an account each; and a node
is lost while the pods come. One JSON object a case: seconds of CPU of each run (there is one thread), their median, and
how many pods were placed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from bench.verdicts import Verdict, add_report_only, conclude
from controller.plan.complaints import Notes
from controller.simulation.run import Question, simulate
from controller.simulation.state import SavedCluster
from controller.simulation.workloads import Workloads, read_workloads
from tests.fakes import saved
from tests.fakes.saved import Raw, core, storage_class

GIB: Final = 1024**3
ASKED_SECONDS: Final = 30.0
NOW: Final = datetime(2026, 1, 1, 12, tzinfo=UTC)
DISKS: Final = 4


def objects(nodes: int, volumes: int) -> Iterator[Raw]:
    """A cluster of that size; disks of 1,000 GiB, each volume of 20 GiB with two copies on neighbours."""
    parameters: Mapping[str, str] = {"numberOfReplicas": "1", "dataLocality": "best-effort"}
    yield {**storage_class("local", **parameters), "volumeBindingMode": "WaitForFirstConsumer"}
    yield {**storage_class("three", numberOfReplicas="3"), "volumeBindingMode": "WaitForFirstConsumer"}
    disks: dict[str, Raw] = {f"d{number}": {} for number in range(DISKS)}
    for number in range(nodes):
        name = f"node-{number:04}"
        capacity = {"cpu": "64", "memory": "256Gi", "pods": "250"}
        yield core("Node", name, spec={}, status={"allocatable": capacity})
        yield saved.node(name, gib=1_000, disks=disks)
    for number in range(volumes):
        yield from _volume(number, nodes)


def _volume(number: int, nodes: int) -> Iterator[Raw]:
    name, claim = f"pvc-uid-c{number}", f"c{number}"
    yield saved.volume(name, gib=20, numberOfReplicas=2, nodeID=f"node-{number % nodes:04}")
    for copy in range(2):
        where, disk = f"node-{(number + copy) % nodes:04}", f"d{number % DISKS}"
        yield saved.replica(f"{name}-r{copy}", where, disk, of=name, gib=20)
    reference = {"namespace": "shop", "name": claim, "uid": f"uid-{claim}"}
    source = {"driver": "driver.longhorn.io", "volumeHandle": name}
    yield core("PersistentVolume", name, spec={"csi": source, "claimRef": reference, "capacity": {"storage": "20Gi"}})
    spec = {"storageClassName": "three", "volumeName": name, "resources": {"requests": {"storage": "20Gi"}}}
    yield core("PersistentVolumeClaim", claim, "shop", spec=spec)


def wanted(pods: int, gib: int) -> Workloads:
    """Half of the pods want a local volume, half one of three copies."""
    found = Workloads()
    for name, class_name in (("db", "local"), ("web", "three")):
        template = {"metadata": {"name": "data"}, "spec": _claim_spec(class_name, gib)}
        container = {"name": "main", "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}}}
        spec: dict[str, Any] = {"replicas": pods // 2, "podManagementPolicy": "Parallel"}
        spec |= {"template": {"spec": {"containers": [container]}}, "volumeClaimTemplates": [template]}
        made = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": name}, "spec": spec}
        read_workloads("made up", [made], "shop", Notes(), found)
    return found


def _claim_spec(class_name: str, gib: int) -> Raw:
    return {"storageClassName": class_name, "resources": {"requests": {"storage": f"{gib}Gi"}}}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.simulate", description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--volumes", type=int, default=10_000)
    parser.add_argument("--pods", type=int, default=1_000)
    parser.add_argument("--runs", type=int, default=3)
    add_report_only(parser)
    args = parser.parse_args()
    given, slowest = list(objects(args.nodes, args.volumes)), 0.0
    for case, gib, fail in (("placed", 30, ()), ("refused", 5_000, ()), ("node lost", 30, ("node-0007",))):
        seconds, placed, rebuilds = list[float](), 0, 0
        for _ in range(args.runs):
            question, begin = Question(wanted=wanted(args.pods, gib), fail=fail), time.process_time()
            found = simulate(SavedCluster(list(given), "made up"), question, NOW)
            seconds.append(time.process_time() - begin)
            placed, rebuilds = sum(one.state == "placed" for one in found.pods), len(found.rebuilds)
        median = statistics.median(seconds)
        slowest = max(slowest, median)
        figures = {"seconds": [round(one, 2) for one in seconds], "median": round(median, 2), "placed": placed}
        sys.stdout.write(json.dumps({"case": case, "rebuilds": rebuilds, **figures}) + "\n")
        sys.stdout.flush()
    verdict = Verdict(f"the slowest case takes {slowest:.1f} s", slowest <= ASKED_SECONDS, f"{ASKED_SECONDS:.0f} s")
    return conclude([verdict], is_report_only=args.report_only)


if __name__ == "__main__":
    sys.exit(main())
