"""What our stores show to those who give room away by name. Nothing changes by it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable

from controller.allocator.plans.given import Given
from controller.allocator.world.world import World
from controller.model.allocations import Allocation
from controller.rules.demand import Missing


class ShownObjects:
    """Threads: any. Blocks: `wait_known` alone. I/O: none."""

    def __init__(self, lock: threading.Condition, world: World, given: Given) -> None:
        self._lock, self._world, self._given = lock, world, given

    def wait_known(self, needed: Collection[Missing], seconds: float) -> bool:
        """Whether our stores show all of that, volumes, replicas and images, after `seconds` at the latest. Costs: a
        look-up for each, after each change; the wait is without the lock."""
        facts: dict[str, Callable[[str], object]] = {
            "volume": self._world.volumes.get,
            "replica": self._world.replicas.get,
            "backing_image": self._world.backing_images.get,
        }
        with self._lock:
            return self._lock.wait_for(lambda: all(facts[one.kind](one.name) for one in needed), seconds)

    def is_shown_unplaced(self, name: str) -> bool:
        """Whether our stores show the replica, and no disk of it. Costs: a look-up."""
        with self._lock:
            shown = self._given.shown_replica(name)
            return shown is not None and not shown.is_placed

    def is_shown_without_copy(self, name: str, disk_uuid: str) -> bool:
        """Whether our stores show the image, and no copy on that disk. Costs: a look-up."""
        with self._lock:
            shown = self._given.shown_image(name)
            return shown is not None and not shown.names_disk(disk_uuid)

    def disk_names(self, entries: Iterable[Allocation]) -> list[str]:
        """Of the disks that they are on; "" where no node shows the disk. Costs: a look at each's node."""
        with self._lock:
            disks = (self._world.disk(one.node, one.disk_uuid) for one in entries)
            return [disk.name if disk is not None else "" for disk in disks]
