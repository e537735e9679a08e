"""Longhorn's node controller: disk figures worked out anew from Replica objects, some time after they changed."""

from __future__ import annotations

import threading

from tests.longhorn.placement import State, space_problem
from tests.longhorn.world import Raw, World, set_condition


class Figures:
    """Coalesced by node: one refresh answers all changes since the last. Threads: reflectors' and the pool's."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._lock = threading.Lock()
        self._dirty: set[str] = set()
        self._where: dict[str, str] = {}  # replica -> node
        world.listen("replicas", self._on_replica)
        world.listen("nodes", self._on_node)

    def _on_replica(self, verb: str, raw: Raw) -> None:
        name, node = str(raw["metadata"]["name"]), str(raw["spec"].get("nodeID") or "")
        with self._lock:
            before = self._where.pop(name, "")
            if verb != "DELETED" and node:
                self._where[name] = node
        for touched in {before, node} - {""}:
            self.refresh_later(touched)

    def _on_node(self, verb: str, raw: Raw) -> None:
        if verb == "ADDED":
            self.refresh_later(str(raw["metadata"]["name"]))

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
        statuses = (raw.get("status") or {}).get("diskStatus") or {}
        changed = False
        state = State(nodes={}, replicas=(), settings=self._world.settings())
        replicas = self._world.stores["replicas"].snapshot().values()
        for name, status in statuses.items():
            uuid = status.get("diskUUID")
            listed = {
                replica["metadata"]["name"]: int(replica["spec"].get("volumeSize") or 0)
                for replica in replicas
                if (replica["metadata"].get("labels") or {}).get("longhorndiskuuid") == uuid
            }
            total = sum(listed.values())
            if (status.get("scheduledReplica") or {}, status.get("storageScheduled") or 0) != (listed, total):
                status["scheduledReplica"], status["storageScheduled"] = listed, total
                changed = True
            spec = ((raw["spec"].get("disks") or {}).get(name)) or {}
            problem = space_problem(state, spec, status, 0, 0, 0)
            value = ("False", "DiskPressure") if problem else ("True", "")
            changed = set_condition(status, "Schedulable", *value) or changed
        return changed
