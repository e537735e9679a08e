"""What a question costs beside much that is pending (`python -m bench.pending_load`). No cluster, no server.

1. A pod is asked about on 1,000 nodes of four disks: in turn with 1,000 volumes pending that Longhorn may place
   anywhere, and with none. Printed: medians and quartiles in milliseconds, and the ratio of the medians.
2. By how much a call overruns its budget of 50 ms, for pods and worlds that are costly: selectors, backing images,
   several volumes, several large replicas. Printed: the longest call of each kind.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from bench.served import quartiles
from controller.allocator.allocator import Allocator
from controller.clock import SystemClock
from controller.model.longhorn import BackingImage
from controller.settings import LiveSettings
from tests.fakes.builders import GIB, TestCluster, disk

NODES: Final = 1_000
PENDING: Final = 1_000
CALLS: Final = 60
BUDGET_MILLISECONDS: Final = 50
Volumes = Sequence[tuple[str, float]]  # class and GiB of each


@dataclass(frozen=True, slots=True)
class PendingWorld:
    """A cluster with so much pending."""

    pending: int
    class_name: str = "three"
    gib: float = 0.2
    disk_gib: float = 400
    tags: tuple[str, ...] = ()
    nodes: int = NODES

    def make(self) -> tuple[TestCluster, list[str]]:
        cluster = TestCluster(live=LiveSettings(enabled=True), make_allocator=lambda _: Allocator(SystemClock()))
        anywhere = {"dataLocality": "disabled", "numberOfReplicas": "3"}
        cluster.add_class("three", **anywhere)
        cluster.add_class("one", dataLocality="disabled", numberOfReplicas="1")
        cluster.add_class("tagged", dataLocality="best-effort", numberOfReplicas="1", diskSelector="ssd")
        cluster.add_class("three-tagged", **anywhere, diskSelector="ssd")
        cluster.add_class("image", dataLocality="best-effort", numberOfReplicas="1", backingImage="i")
        cluster.add_class("three-image", **anywhere, backingImage="i")
        cluster.allocator.observe_backing_image("i", BackingImage("i", real_size_bytes=GIB))
        names = [f"node-{number:05}" for number in range(self.nodes)]
        for number, name in enumerate(names):
            sizes = (self.disk_gib + number % 17 + index for index in range(4))
            cluster.add_node(name, *(disk(f"d{i}", size, tags=self.tags) for i, size in enumerate(sizes)))
        for number in range(self.pending):
            cluster.add_claim(f"r{number}", self.gib * (1 + number % 50 / 100), class_name=self.class_name)
            cluster.add_pod(f"r{number}")
            if not cluster.offered(f"r{number}", *names):
                break  # no more goes
        return cluster, names


def add_pod(cluster: TestCluster, name: str, volumes: Volumes) -> None:
    claims = [f"{name}-{index}" for index in range(len(volumes))]
    for claim, (class_name, gib) in zip(claims, volumes, strict=True):
        cluster.add_claim(claim, gib, class_name=class_name)
    cluster.add_pod(name, *claims)


def ask(cluster: TestCluster, name: str, names: Sequence[str]) -> float:
    """Seconds that one filter call about the pod takes."""
    began = time.perf_counter()
    cluster.filter(name, *names)
    return time.perf_counter() - began


def compare(volumes: Volumes) -> dict[str, object]:
    """Median milliseconds of calls with much pending and with nothing, by turns, and their ratio."""
    busy, quiet = PendingWorld(PENDING).make(), PendingWorld(0).make()
    for cluster, _ in (busy, quiet):
        add_pod(cluster, "asks", volumes)
    times: dict[str, list[float]] = {"pending": [], "none": []}
    for _ in range(CALLS):
        for name, (cluster, names) in (("pending", busy), ("none", quiet)):
            times[name].append(ask(cluster, "asks", names))
    found: dict[str, object] = {name: quartiles(seen) for name, seen in times.items()}
    medians = {name: sorted(seen)[len(seen) // 2] for name, seen in times.items()}
    return {"volumes": list(volumes), **found, "ratio": round(medians["pending"] / medians["none"], 2)}


def overruns() -> dict[str, Callable[[], tuple[PendingWorld, Volumes]]]:
    """Worlds and pods that cost much to decide, by what makes them so."""
    tagged = ("ssd",)
    return {
        "tagged pod beside tagged volumes": lambda: (PendingWorld(400, "three-tagged", tags=tagged), [("tagged", 5)]),
        "two tagged volumes, no room": lambda: (PendingWorld(200, "three-tagged", 2, 60, tagged), [("tagged", 40)] * 2),
        "image beside images": lambda: (PendingWorld(400, "three-image"), [("image", 5), ("image", 6)]),
        "roaming image beside images": lambda: (PendingWorld(400, "three-image"), [("three-image", 5)]),
        "three large replicas": lambda: (PendingWorld(90, "three", 2, 200), [("three", 60)]),
        "three large replicas with selectors": lambda: (
            PendingWorld(90, "three-tagged", 2, 200, tagged),
            [("three-tagged", 60)],
        ),
        "its own volumes on every node": lambda: (
            PendingWorld(0, disk_gib=100),
            [("tagged", 60), ("longhorn", 60)] * 3,
        ),
        "five volumes that nearly fit": lambda: (PendingWorld(40, "one", 1, 50), [("image", 9 + n) for n in range(5)]),
    }


def longest(world: PendingWorld, volumes: Volumes) -> float:
    """Milliseconds of the longest of some filter calls about such pods."""
    cluster, names = world.make()
    most = 0.0
    for number in range(12):
        add_pod(cluster, f"asks-{number}", volumes)
        most = max(most, 1000 * ask(cluster, f"asks-{number}", names))
        cluster.drop_pod(f"asks-{number}")
    return most


def main() -> int:
    for volumes in ([("longhorn", 5.0)], [("longhorn", 5.0)] * 2, [("three", 5.0)], [("longhorn", 5.0), ("one", 4.0)]):
        print(json.dumps(compare(volumes)), flush=True)
    for name, make in overruns().items():
        most = longest(*make())
        over = max(0.0, most - BUDGET_MILLISECONDS)
        print(json.dumps({"case": name, "longest_ms": round(most, 1), "over_ms": round(over, 1)}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
