"""Disk figures of Longhorn nodes, worked out anew from Replica objects, some time after they changed."""

from __future__ import annotations

import threading

from tests.longhorn.nodes import settle_disks
from tests.longhorn.placement import SearchState, is_true, space_problem
from tests.longhorn.world import LonghornWorld, Raw, set_condition


class FigureUpdates:
    """Coalesced by node: one refresh answers all changes since the last. Threads: reflectors' and the pool's."""

    def __init__(self, world: LonghornWorld) -> None:
        self._world = world
        self._lock = threading.Lock()
        self._dirty: set[str] = set()
        self._where: dict[str, str] = {}  # replica -> node
        self._generations: dict[str, int] = {}  # node -> generation of the spec that was seen
        world.listen("replicas", self._on_replica)
        world.listen("nodes", self._on_node)

    def start(self) -> None:
        self._world.timers.after(self._world.options.resync_seconds, self._resync)

    def _resync(self) -> None:
        for node in self._world.nodes():
            self.refresh_later(node)
        self.start()

    def _on_replica(self, verb: str, raw: Raw) -> None:
        name, node = str(raw["metadata"]["name"]), str(raw["spec"].get("nodeID") or "")
        with self._lock:
            before = self._where.pop(name, "")
            if verb != "DELETED" and node:
                self._where[name] = node
        for touched in {before, node} - {""}:
            self.refresh_later(touched)

    def _on_node(self, verb: str, raw: Raw) -> None:
        """A new or edited spec counts; our own status writes do not."""
        name, generation = str(raw["metadata"]["name"]), int(raw["metadata"].get("generation") or 0)
        with self._lock:
            is_new = self._generations.get(name) != generation
            self._generations[name] = generation
        if verb != "DELETED" and is_new:
            self.refresh_later(name)

    def refresh_later(self, node: str) -> None:
        with self._lock:
            if node in self._dirty:
                return
            self._dirty.add(node)
        self._world.after("disk_figures", self.refresh, node)

    def refresh(self, node: str) -> None:
        with self._lock:
            self._dirty.discard(node)
        self._world.change(self._world.longhorn("nodes", node), self._recompute, status=True)

    def _recompute(self, raw: Raw) -> bool:
        status = raw.setdefault("status", {})
        if not is_true(status.get("conditions"), "Ready"):
            return settle_disks(raw)
        changed = settle_disks(raw)
        state = SearchState(nodes={}, replicas=(), settings=self._world.settings())
        replicas = list(self._world.stores["replicas"].snapshot().values())
        images = list(self._world.images().values())
        for name, disk in (status.get("diskStatus") or {}).items():
            changed = count(disk, replicas, images) or changed
            spec = ((raw["spec"].get("disks") or {}).get(name)) or {}
            if not is_true(disk.get("conditions"), "Ready"):
                value = ("False", "DiskNotReady")
            else:
                value = ("False", "DiskPressure") if space_problem(state, spec, disk, 0, 0, 0) else ("True", "")
            changed = set_condition(disk, "Schedulable", *value) or changed
        return changed


def count(disk: Raw, replicas: list[Raw], images: list[Raw]) -> bool:
    """Sum up, at nominal size, every replica whose label names the disk, and the images on it; whether it changed.

    Nothing is left out: failed, evicting and deleting replicas count until they are gone.
    """
    uuid = disk.get("diskUUID")
    if not is_true(disk.get("conditions"), "Ready"):
        listed, kept = {}, disk.get("scheduledBackingImage") or {}
        total = 0
    else:
        listed = {
            replica["metadata"]["name"]: int(replica["spec"].get("volumeSize") or 0)
            for replica in replicas
            if uuid and (replica["metadata"].get("labels") or {}).get("longhorndiskuuid") == uuid
        }
        kept = {
            image["metadata"]["name"]: int((image.get("status") or {}).get("realSize") or 0)
            for image in images
            if uuid in (image["spec"].get("diskFileSpecMap") or {})
        }
        total = sum(listed.values()) + sum(kept.values())
    new = {"scheduledReplica": listed, "scheduledBackingImage": kept, "storageScheduled": total}
    old = {name: disk.get(name) or type(value)() for name, value in new.items()}
    disk.update(new)
    return old != new
