"""CSIStorageCapacity as the external provisioner publishes it: on its period, out of figures that may be stale."""

from __future__ import annotations

from typing import Any

from tests.cluster.client import ApiError
from tests.longhorn import paths
from tests.longhorn.placement import is_true
from tests.longhorn.world import LonghornWorld, Raw


def rooms(node: Raw, parameters: dict[str, str], over_pct: int) -> list[int]:
    """Bytes left on each disk that a volume of these class parameters may use, in integers, as `GetCapacity` counts
    them."""
    spec, status = node.get("spec") or {}, node.get("status") or {}
    conditions = status.get("conditions")
    if not (is_true(conditions, "Ready") and is_true(conditions, "Schedulable")):
        return []
    if not spec.get("allowScheduling") or spec.get("evictionRequested"):
        return []
    if not _selected(spec.get("tags"), parameters.get("nodeSelector")):
        return []
    wanted = "block" if parameters.get("dataEngine") == "v2" else "filesystem"
    found = []
    for name, disk in (spec.get("disks") or {}).items():
        figures = (status.get("diskStatus") or {}).get(name)
        if figures is None or not disk.get("allowScheduling") or disk.get("evictionRequested"):
            continue
        if not is_true(figures.get("conditions"), "Schedulable") or (disk.get("diskType") or "filesystem") != wanted:
            continue
        if not _selected(disk.get("tags"), parameters.get("diskSelector")):
            continue
        limit = (int(figures.get("storageMaximum") or 0) - int(disk.get("storageReserved") or 0)) * over_pct // 100
        found.append(max(0, limit - int(figures.get("storageScheduled") or 0)))
    return found


def _selected(tags: list[str] | None, selector: str | None) -> bool:
    return not selector or set(selector.split(",")) <= set(tags or ())


class Capacity:
    """Publishes one object per node and class while tracking is on. Threads: the pool's."""

    def __init__(self, world: LonghornWorld) -> None:
        self._world = world
        if world.options.capacity_tracking:
            world.timers.now(self._round)

    def _round(self) -> None:
        try:
            self.publish()
        finally:
            self._world.timers.after(self._world.options.capacity_seconds, self._round)

    def publish(self) -> None:
        over_pct = int(self._world.settings().get("storage-over-provisioning-percentage", "100"))
        for storage_class in self._world.stores["classes"].snapshot().values():
            if storage_class.get("provisioner") == paths.DRIVER:
                for name, node in self._world.nodes().items():
                    found = rooms(node, storage_class.get("parameters") or {}, over_pct)
                    self._write(name, storage_class["metadata"]["name"], found)

    def _write(self, node: str, storage_class: str, found: list[int]) -> None:
        namespace = self._world.options.namespace
        name = f"csisc-{storage_class}-{node}"
        body: dict[str, Any] = {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "CSIStorageCapacity",
            "metadata": {"name": name, "namespace": namespace},
            "storageClassName": storage_class,
            "nodeTopology": {"matchLabels": {"kubernetes.io/hostname": node}},
            "capacity": str(sum(found)),
            "maximumVolumeSize": str(max(found, default=0)),
        }
        try:
            self._world.api.create(paths.capacities(namespace), body)
        except ApiError as error:
            if not error.already_exists:
                raise
            figures = {"capacity": body["capacity"], "maximumVolumeSize": body["maximumVolumeSize"]}
            self._world.api.patch(paths.capacities(namespace, name), figures)
