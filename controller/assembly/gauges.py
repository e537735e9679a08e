"""Gauges of disks and of what still fits, which a leader works out between scrapes: a scrape is to be quick."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from controller.allocator.allocator import Allocator
from controller.process.common_metrics import PREFIX
from controller.process.worker import Part, Worker
from controller.views.documents import Capacity, DiskView
from controller.views.overview import disk_views

EVERY_SECONDS: Final = 15.0
CAPACITY_SECONDS: Final = 60.0  # and at most one part in a hundred of the time
PART: Final = 100
_DISKS: Final[Mapping[str, tuple[str, Callable[[DiskView], int]]]] = {  # metric -> help, and its bytes
    "limit": ("What Longhorn may schedule on the disk at most.", lambda one: one.limit_bytes),
    "used": ("What lies on the disk, by Longhorn's count.", lambda one: one.used_bytes),
    "planned": (
        "What is promised there and does not lie there yet: plans, holds and growth.",
        lambda one: one.planned_bytes + one.held_bytes + one.growth_bytes,
    ),
    "free": ("What is left of the limit; below 0 beyond it.", lambda one: one.free_bytes),
}


class Gauges(Part):
    """What the leader's disks have, some seconds ago, and what fits, a minute ago. Nothing on followers. The disks are
    written as a page here: the library takes a tenth of a second for 16,000 lines.

    Threads: `worker`'s; `collect` from any. Blocks: never. I/O: none.
    """

    def __init__(self, allocator: Allocator, capacity: Callable[[], Capacity], is_leading: Callable[[], bool]) -> None:
        self._allocator, self._capacity, self._is_leading = allocator, capacity, is_leading
        self._disks = b""
        self._found: Capacity | None = None
        self._capacity_at = 0.0  # when it is due
        self.worker = Worker("gauges", self.run_once)

    def run_once(self) -> float:
        """Works out what is due; returns the seconds until the next time."""
        if not self._is_leading():
            self._disks, self._found, self._capacity_at = b"", None, 0.0
            return EVERY_SECONDS
        self._disks = page_of(disk_views(self._allocator.look()))
        began = time.monotonic()
        if began >= self._capacity_at:
            self._found = self._capacity()
            ended = time.monotonic()
            self._capacity_at = ended + max(CAPACITY_SECONDS, PART * (ended - began))
        return EVERY_SECONDS

    def page(self) -> bytes:
        """The disks, as a part of a page in Prometheus' text format."""
        return self._disks if self._is_leading() else b""

    def collect(self) -> Iterator[Metric]:
        """The rest."""
        yield from of_capacity(self._found if self._is_leading() else None)


def page_of(disks: Iterable[DiskView]) -> bytes:
    found = [(f'{{node="{_escaped(one.node)}",disk="{_escaped(one.disk)}"}}', one) for one in disks]
    lines = list[str]()
    for name, (text, bytes_of) in _DISKS.items():
        metric = f"{PREFIX}_disk_{name}_bytes"
        lines += (f"# HELP {metric} {text}\n", f"# TYPE {metric} gauge\n")
        lines += (f"{metric}{labels} {bytes_of(one)}\n" for labels, one in found)
    return "".join(lines).encode()


def _escaped(label: str) -> str:
    return label.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def of_capacity(found: Capacity | None) -> Iterator[Metric]:
    text = "The largest plain new volume that finds disks now, by its number of copies."
    largest = GaugeMetricFamily(f"{PREFIX}_largest_volume_bytes", text, labels=("copies",))
    for copies, size in (found.largest_bytes if found is not None else {}).items():
        largest.add_metric((copies,), size)
    yield largest
    survival = found.survival if found is not None else None
    text = "1 while all data could be rebuilt on other nodes if the one with most bytes were lost."
    survived = GaugeMetricFamily(f"{PREFIX}_node_loss_survived", text)
    text = "Bytes of copies that would find no other disk then."
    missing = GaugeMetricFamily(f"{PREFIX}_node_loss_missing_bytes", text)
    if survival is not None:
        survived.add_metric((), float(survival.is_survived))
        missing.add_metric((), survival.missing_bytes)
    yield survived
    yield missing
