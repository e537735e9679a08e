"""How long a Replica waits for its place (`python -m bench.placing`).

First in one process: NODES Longhorn nodes of DISKS disks and VOLUMES volumes with a placed Replica each; then one
Replica after the other comes, and the leader decides where it goes, under the allocator's lock: Replicas of volumes
that are planned, since their pods asked; of volumes that nobody asked about; and these while WAITING pods hold what
they were offered. Told is processor time, which other work on the machine stretches little.

Then the same world on the embedded control plane, with a leader and nobody who plays Longhorn. Replicas are created at
an even pace; the recorder of the cluster's history saw when each was stored, and when its place was. What a small
change of one Replica takes in between is the unit of the ratio. Printed as one JSON object: milliseconds, and the load
of the machine; and the verdicts, which go to standard error as well.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from bench.allocating_site import each
from bench.made_up import add_nodes, make_cluster, node_name
from bench.served import p99, quartiles
from bench.verdicts import Verdict, add_report_only, report
from controller.allocator.outcome import TurnStep
from controller.clock import SystemClock
from controller.settings import LiveSettings
from tests.cluster.cluster import Cluster, ClusterOptions
from tests.e2e.harness import install_product, make_certificates
from tests.e2e.manager_writes import make_volume, place_of, unplaced_replica
from tests.e2e.programs import Controller
from tests.e2e.scheduling import NAMESPACE, SERVICE
from tests.fakes.builders import GIB, TestCluster, replica, volume
from tests.judge.reading import stored_places
from tests.longhorn import paths
from tests.longhorn.install import install
from tests.longhorn.longhorn import add_node, disk_uuid
from tests.longhorn.options import DiskOptions
from tests.waiting import wait_until

NODES, DISKS, VOLUMES = 1_000, 2, 10_000
DISK_GIB, SIZE_GIB = 4_000, 20
DECISIONS, WAITING, NEAR = 300, 200, 10
ARRIVALS, EVERY_SECONDS, WARM_UP = 150, 0.1, 10
PLANNED, FREE, BESIDE = "planned", "not_planned", "beside_pods"
DECISION_MS, DECISION_P99_MS = 1.0, 5.0  # asked of us
STORED_MS, STORED_P99_MS = 50.0, 300.0
REPLICAS: Final = paths.longhorn("replicas", NAMESPACE)


def figures(seconds: Sequence[float]) -> dict[str, Any]:
    """Milliseconds: median, p99 and quartiles."""
    return {**quartiles(seconds), "p99_ms": round(p99(seconds) * 1000, 3), "count": len(seconds)}


# Decisions in one process


class DecisionWorld:
    """An allocator that leads, and what it knows."""

    def __init__(self, nodes: int, volumes: int) -> None:
        self.cluster: TestCluster = make_cluster(LiveSettings(enabled=True))
        self._allocator = self.cluster.allocator
        self._names = add_nodes(self.cluster, nodes, lambda _: dict.fromkeys(map(_disk, range(DISKS)), DISK_GIB))
        for number in range(volumes):
            name, on = f"pvc-{number:08d}", node_name(number % nodes)
            self._allocator.observe_volume(name, volume(name, SIZE_GIB, locality="disabled"))
            made = replica(f"{name}-r", name, SIZE_GIB, on=on, disk_name=_disk(number // nodes % DISKS))
            self._allocator.observe_replica(made.name, made)
        gc.collect()
        gc.freeze()  # as a server that has started

    def planned(self, count: int) -> Iterator[str]:
        """Replicas of volumes whose pods asked, and have a node."""
        for number in range(count):
            pod, near = f"chosen{number}", [self._names[(number + more) % len(self._names)] for more in range(NEAR)]
            self.cluster.add_pod(pod, (pod, SIZE_GIB))
            offered = self._allocator.hold_pod(self.cluster.pods[pod].uid, near).passed
            self.cluster.select_node(pod, offered[0])
            yield f"{self.cluster.provision(pod)}-r-1"

    def free(self, prefix: str, count: int) -> Iterator[str]:
        """Replicas of volumes that nobody asked about."""
        for number in range(count):
            name = f"{prefix}{number}"
            self._allocator.observe_volume(name, volume(name, SIZE_GIB, locality="disabled"))
            self._allocator.observe_replica(f"{name}-r", replica(f"{name}-r", name, SIZE_GIB))
            yield f"{name}-r"

    def hold(self, pods: int) -> None:
        """So many pods hold what they were offered: half of them for any node, half for the one where they run."""
        for number in range(pods):
            pod = f"waiting{number}"
            self.cluster.add_pod(pod, (pod, SIZE_GIB, "roaming" if number % 2 else "longhorn"))
            self._allocator.hold_pod(self.cluster.pods[pod].uid, self._names)

    def decided(self, names: Iterable[str]) -> dict[str, Any]:
        """The processor time of each decision, which waits for nothing; each is carried out before the next one."""
        places, took = self._allocator.places, []
        for name in list(names):
            now_utc = SystemClock().now_utc()
            began = time.thread_time()
            turn = places.turn_of(name, now_utc)
            took.append(time.thread_time() - began)
            if turn.step is not TurnStep.PLACE or turn.write is None:
                raise RuntimeError(f"{name} has no place: {turn}")
            where = turn.write.place
            made = replica(name, turn.volume, SIZE_GIB, on=where.node, disk_uuid=where.disk_uuid)
            places.stored(turn.write, made)
        return figures(took)


def _disk(number: int) -> str:
    return f"d{number}"


def decisions(nodes: int, volumes: int, count: int) -> dict[str, Any]:
    """What a decision of each kind takes."""
    world = DecisionWorld(nodes, volumes)
    found = {PLANNED: world.decided(world.planned(count)), FREE: world.decided(world.free("free", count))}
    world.hold(WAITING)
    return {**found, BESIDE: world.decided(world.free("beside", count))}


# Replicas on a real API server


class PlacedSite:
    """The world as objects, and a leader."""

    def __init__(self, cluster: Cluster, nodes: int, volumes: int) -> None:
        self._cluster, self._api, self._nodes = cluster, cluster.api(), nodes
        install(self._api, NAMESPACE, {}, capacity_tracking=False)
        install_product(cluster)
        make_certificates(cluster)
        each(self._make_node, range(nodes))
        each(self._make_placed, range(volumes))
        kubeconfig = cluster.service_account_kubeconfig(NAMESPACE, SERVICE, cluster.state_dir / "extender.kubeconfig")
        self.leader = Controller(cluster, kubeconfig)
        self.leader.wait_leading()

    def _make_node(self, number: int) -> None:
        self._cluster.add_node(node_name(number))
        disk = DiskOptions(maximum_bytes=DISK_GIB * GIB)
        add_node(self._api, NAMESPACE, node_name(number), dict.fromkeys(map(_disk, range(DISKS)), disk))

    def _make_placed(self, number: int) -> None:
        name, node, disk = f"pvc-{number:08d}", node_name(number % self._nodes), _disk(number // self._nodes % DISKS)
        self._make_volume(name, **place_of(f"{name}-r", node, disk, disk_uuid(node, disk)))

    def _make_volume(self, name: str, **place: str) -> None:
        """With its Replica, which has no place unless one is given."""
        make_volume(self._api, name, SIZE_GIB * GIB, 0, copies=1)
        self._api.create(REPLICAS, unplaced_replica(f"{name}-r", name, SIZE_GIB * GIB, **place))

    def arrive(self, count: int) -> list[float]:
        """So many Replicas come, one after the other; seconds of a small change of one, in between."""
        changed, took = f"{REPLICAS}/pvc-{0:08d}-r", []
        for number in range(count):
            began = time.perf_counter()
            self._make_volume(f"new{number}")
            sent = time.perf_counter()
            self._api.patch(changed, {"metadata": {"annotations": {"example.com/changed": str(number)}}})
            took.append(time.perf_counter() - sent)
            time.sleep(max(0.0, began + EVERY_SECONDS - time.perf_counter()))
        wait_until(lambda: self._has_places(count), "places of all", 120)
        return took

    def _has_places(self, count: int) -> bool:
        last = (f"new{number}-r" for number in range(max(0, count - 20), count))
        return all(self._api.get(f"{REPLICAS}/{name}")["spec"].get("nodeID") for name in last)

    def waited(self) -> list[float]:
        """Seconds from each Replica's creation until its place was stored, in the order in which they came."""
        made, found = dict[str, float](), list[float]()
        for entry in stored_places(self._cluster.history, self._cluster.history_caught_up()):
            if entry["kind"] != "Replica" or entry["object"] is None:
                continue
            name = entry["object"]["metadata"]["name"]
            if name.startswith("new") and not entry["object"]["spec"]["nodeID"]:
                made.setdefault(name, entry["at"])
            elif name in made:
                found.append(entry["at"] - made.pop(name))
        if made:
            raise RuntimeError(f"{len(made)} replicas without a place")
        return found


def stored(nodes: int, volumes: int, count: int) -> dict[str, Any]:
    with Cluster.start(ClusterOptions(name=f"bench-placing-{os.getpid()}", start_scheduler=False)) as cluster:
        site = PlacedSite(cluster, nodes, volumes)
        try:
            changes = site.arrive(count + WARM_UP)[WARM_UP:]
            waited = site.waited()[WARM_UP:]
            outcomes = site.leader.status()["placement"]["outcomes"]
        finally:
            site.leader.stop()
    ratio = statistics.median(waited) / statistics.median(changes)
    return {**figures(waited), "small_change": figures(changes), "to_a_small_change": round(ratio, 2), **outcomes}


def judged(found: dict[str, Any]) -> list[Verdict]:
    verdicts = []
    for name, limits in (
        (PLANNED, (DECISION_MS, DECISION_P99_MS)),
        (FREE, (DECISION_MS, DECISION_P99_MS)),
        (BESIDE, (DECISION_MS, DECISION_P99_MS)),
        ("stored", (STORED_MS, STORED_P99_MS)),
    ):
        for figure, limit in zip(("median_ms", "p99_ms"), limits, strict=True):
            if name in found:
                took = found[name][figure]
                text = f"{name}: {figure.removesuffix('_ms')} {took:.1f} ms"
                verdicts.append(Verdict(text, took <= limit, f"{limit:.0f} ms"))
    return verdicts


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.placing", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--volumes", type=int, default=VOLUMES)
    parser.add_argument("--decisions", type=int, default=DECISIONS, help="0: none")
    parser.add_argument("--arrivals", type=int, default=ARRIVALS, help="0: no control plane")
    add_report_only(parser)
    options = parser.parse_args()
    found: dict[str, Any] = {"nodes": options.nodes, "volumes": options.volumes}
    if options.decisions:
        found |= decisions(options.nodes, options.volumes, options.decisions)
    if options.arrivals:
        found["stored"] = stored(options.nodes, options.volumes, options.arrivals)
    return report(found, judged(found), is_report_only=options.report_only)


if __name__ == "__main__":
    sys.exit(main())
