"""The stand-in as one thing to start, ask and stop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from tests.cluster.client import ApiClient
from tests.longhorn import install, paths
from tests.longhorn.attach import Attacher
from tests.longhorn.capacity import Capacity
from tests.longhorn.crds import NODE_SPEC
from tests.longhorn.errands import Errands
from tests.longhorn.eviction import Eviction
from tests.longhorn.figures import FigureUpdates
from tests.longhorn.images import BackingImages, ImagesOfReplicas
from tests.longhorn.kubelet import Kubelet
from tests.longhorn.nodes import Nodes
from tests.longhorn.options import DiskOptions, LonghornOptions
from tests.longhorn.provisioner import Provisioner
from tests.longhorn.resize import Resizer
from tests.longhorn.share_managers import ShareManagers
from tests.longhorn.volumes import Volumes
from tests.longhorn.world import LonghornWorld, Raw, change, set_condition


class Longhorn:
    """Installs itself, then follows the cluster until stopped. Threads: reflectors, timers, a pool."""

    def __init__(self, api: ApiClient, options: LonghornOptions | None = None) -> None:
        self.api, self.options = api, options or LonghornOptions()
        self._world: LonghornWorld | None = None

    def start(self) -> Self:
        options = self.options
        install.install(self.api, options.namespace, options.settings, capacity_tracking=options.capacity_tracking)
        world = self._world = LonghornWorld(self.api, options)
        volumes = Volumes(world)
        kubelet = Kubelet(world)
        figures = FigureUpdates(world)
        Nodes(world)
        Provisioner(world, volumes)
        Attacher(world, volumes, kubelet.on_attached)
        Errands(world, volumes)
        Eviction(world, volumes)
        Resizer(world)
        if options.share_managers:
            ShareManagers(world)
        if world.asked is not None:
            BackingImages(world, world.asked)
        else:
            ImagesOfReplicas(world)
        world.start()
        figures.start()
        Capacity(world)
        return self

    def stop(self) -> None:
        if self._world is not None:
            self._world.stop()
            self._world = None

    @property
    def failures(self) -> list[str]:
        """The pieces of work that ended in an exception since the start; the log has them with their traces."""
        return self._world.timers.failures if self._world is not None else []

    def refusals(self, volume: str) -> int:
        """How many syncs of the volume in a row were refused, up to the latest; 0: that one went through."""
        return self._world.refusals.of(volume) if self._world is not None else 0

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # The operator's hands

    def add_node(self, name: str, disks: Mapping[str, DiskOptions] | None = None, **more: Any) -> None:
        """`more`: as the function of that name has it."""
        add_node(self.api, self.options.namespace, name, disks, **more)

    def set_disk(self, node: str, name: str, disk: DiskOptions) -> None:
        """Add the disk, or give it these properties. What lies on it stays counted."""
        set_disk(self.api, self.options.namespace, node, name, disk)

    def set_setting(self, name: str, value: str) -> None:
        install.set_setting(self.api, self.options.namespace, name, value)


def add_node(
    api: ApiClient,
    namespace: str,
    name: str,
    disks: Mapping[str, DiskOptions] | None = None,
    *,
    tags: Sequence[str] = (),
    zone: str = "",
    allow_scheduling: bool = True,
) -> None:
    """A Longhorn node with its disks, and the CSI node of the driver. The Kubernetes node is made elsewhere."""
    chosen = disks if disks is not None else {"disk1": DiskOptions()}
    spec = {
        "name": name,
        "allowScheduling": allow_scheduling,
        "evictionRequested": False,
        "tags": list(tags),
        "disks": {disk: _disk_spec(disk, entry) for disk, entry in chosen.items()},
    }
    status: Raw = {
        "zone": zone,
        "region": "",
        "diskStatus": {disk: _disk_status(name, disk, entry) for disk, entry in chosen.items()},
    }
    set_condition(status, "Ready", "True")
    set_condition(status, "Schedulable", "True")
    created = api.create(paths.longhorn("nodes", namespace), paths.longhorn_object("Node", name, namespace, spec=spec))
    created["status"] = status
    api.replace(f"{paths.longhorn('nodes', namespace, name)}/status", created)
    csi_node = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": {"name": name},
        "spec": {"drivers": [{"name": paths.DRIVER, "nodeID": name, "topologyKeys": ["kubernetes.io/hostname"]}]},
    }
    install.ensure(api, paths.CSI_NODES, csi_node)


def set_disk(api: ApiClient, namespace: str, node: str, name: str, disk: DiskOptions) -> None:
    """Spec first, then status: between the two the disk is in one of them alone, as with a real Longhorn. What
    Longhorn's types do not know is lost from the spec, even where the definition keeps it."""

    def edit_spec(raw: Raw) -> bool:
        raw["spec"].setdefault("disks", {})[name] = _disk_spec(name, disk)
        for unknown in raw["spec"].keys() - NODE_SPEC["properties"].keys():
            del raw["spec"][unknown]
        return True

    def edit_status(raw: Raw) -> bool:
        disks = raw.setdefault("status", {}).setdefault("diskStatus", {})
        fresh = _disk_status(node, name, disk)
        counted = ("storageScheduled", "scheduledReplica", "scheduledBackingImage", "conditions")
        disks[name] = {**fresh, **{field: disks[name][field] for field in counted if field in disks.get(name, {})}}
        return True

    path = paths.longhorn("nodes", namespace, node)
    if change(api, path, edit_spec) is None or change(api, path, edit_status, status=True) is None:
        raise KeyError(f"there is no Longhorn node {node}")


def disk_uuid(node: str, disk: str) -> str:
    return f"{node}-{disk}-uuid"


def _disk_spec(name: str, entry: DiskOptions) -> Raw:
    return {
        "diskType": entry.type,
        "path": f"/var/lib/longhorn/{name}",
        "allowScheduling": entry.allow_scheduling,
        "evictionRequested": entry.eviction_requested,
        "storageReserved": entry.reserved_bytes,
        "tags": list(entry.tags),
    }


def _disk_status(node: str, name: str, entry: DiskOptions) -> Raw:
    status: Raw = {
        "diskUUID": disk_uuid(node, name),
        "diskName": name,
        "diskPath": f"/var/lib/longhorn/{name}",
        "diskType": entry.type,
        "filesystemType": entry.filesystem,
        "storageMaximum": entry.maximum_bytes,
        "storageAvailable": entry.maximum_bytes if entry.available_bytes is None else entry.available_bytes,
        "storageScheduled": 0,
        "scheduledReplica": {},
        "scheduledBackingImage": {},
    }
    set_condition(status, "Ready", "True")
    set_condition(status, "Schedulable", "True")
    return status
