"""The stand-in's controllers on an API server in memory and a clock that moves only when a test says so."""

from __future__ import annotations

import copy
import heapq
import itertools
import re
import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, cast

from tests.cluster.client import ApiClient, ApiError
from tests.cluster.watch import Reflector, key_of
from tests.longhorn import paths
from tests.longhorn.attach import Attacher
from tests.longhorn.errands import Errands
from tests.longhorn.eviction import Eviction
from tests.longhorn.figures import FigureUpdates
from tests.longhorn.kubelet import Kubelet
from tests.longhorn.longhorn import add_node, disk_uuid
from tests.longhorn.nodes import Nodes
from tests.longhorn.options import GIB, Delay, Delays, DiskOptions, LonghornOptions
from tests.longhorn.provisioner import Provisioner
from tests.longhorn.resize import Resizer
from tests.longhorn.share_managers import ShareManagers
from tests.longhorn.timers import Timers
from tests.longhorn.volumes import Volumes
from tests.longhorn.world import LonghornWorld

Raw = dict[str, Any]
NAMESPACE = "longhorn-system"
_PATH = re.compile(r"(/api/v1|/apis/[^/]+/[^/]+)(?:/namespaces/([^/]+))?/([^/]+)(?:/([^/]+))?(?:/(status))?")
_NEVER = 100_000.0


class MemoryApi:
    """What the stand-in uses of an API server: versions, conflicts, finalizers, and events told when asked to."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str, str], Raw] = {}  # collection, namespace, name
        self.events: deque[tuple[str, str, Raw]] = deque()
        self.watches: list[MemoryReflector] = []
        self.is_closed = False  # nothing gets its first node
        self.refusals = 0
        self._versions = itertools.count(1)

    def get_or_none(self, path: str) -> Raw | None:
        return copy.deepcopy(self.objects.get(_key(path)))

    def get(self, path: str) -> Raw:
        return copy.deepcopy(self._at(_key(path)))

    def list(self, path: str, label_selector: str = "", **_: Any) -> Raw:
        collection, namespace, _name = _key(path)
        label, _sign, value = label_selector.partition("=")
        found = [
            copy.deepcopy(raw)
            for (where, space, _name), raw in sorted(self.objects.items())
            if where == collection and namespace in ("", space)
            if not label or (raw["metadata"].get("labels") or {}).get(label) == value
        ]
        return {"items": found}

    def create(self, path: str, raw: Raw) -> Raw:
        collection, namespace, _name = _key(path)
        key = (collection, namespace, str(raw["metadata"]["name"]))
        if key in self.objects:
            raise ApiError(409, "AlreadyExists", key[2])
        new = copy.deepcopy(raw)
        new["metadata"] |= {"uid": f"uid-{next(self._versions)}", **({"namespace": namespace} if namespace else {})}
        return self._store("ADDED", key, new)

    def replace(self, path: str, raw: Raw) -> Raw:
        key = _key(path)
        old = self._at(key)
        if raw["metadata"]["resourceVersion"] != old["metadata"]["resourceVersion"]:
            raise ApiError(409, "Conflict", key[2])
        if self.is_closed and raw["spec"].get("nodeID") and "diskID" in raw["spec"] and not old["spec"].get("nodeID"):
            self.refusals += 1
            raise ApiError(403, "Forbidden", key[2])
        is_status = path.endswith("/status")
        new = copy.deepcopy(old)
        for part in ("status",) if is_status else ("metadata", "spec", "value"):
            if part in raw:
                new[part] = copy.deepcopy(raw[part])
        if new == old:
            return new
        return self._store("MODIFIED", key, new)

    def patch(self, path: str, patch: Raw, **_: Any) -> Raw:
        key = _key(path)
        return self._store("MODIFIED", key, _merged(self._at(key), patch))

    def delete(self, path: str, **_: Any) -> None:
        key = _key(path)
        new = copy.deepcopy(self._at(key))
        new["metadata"].setdefault("deletionTimestamp", "2026-01-01T00:00:00Z")
        self._store("MODIFIED", key, new)

    def _at(self, key: tuple[str, str, str]) -> Raw:
        if key not in self.objects:
            raise ApiError(404, "NotFound", key[2])
        return self.objects[key]

    def _store(self, verb: str, key: tuple[str, str, str], new: Raw) -> Raw:
        new["metadata"]["resourceVersion"] = str(next(self._versions))
        self.objects[key] = new
        if new["metadata"].get("deletionTimestamp") and not new["metadata"].get("finalizers"):
            verb = "DELETED"
            del self.objects[key]
        self.events.append((verb, key[0], copy.deepcopy(new)))
        return copy.deepcopy(new)


class MemoryReflector:
    """Stands in for `Reflector`: shows what its API server has told so far."""

    def __init__(self, api: MemoryApi, path: str, on_event: Callable[[str, Raw], None], **_: Any) -> None:
        self.collection, self._on_event = _key(path)[0], on_event
        self._store: dict[str, Raw] = {}
        api.watches.append(self)

    def tell(self, verb: str, raw: Raw) -> None:
        if verb == "DELETED":
            self._store.pop(key_of(raw), None)
        else:
            self._store[key_of(raw)] = raw
        self._on_event(verb, raw)

    def get(self, key: str) -> Raw | None:
        return self._store.get(key)

    def snapshot(self) -> dict[str, Raw]:
        return dict(self._store)


class ManualTimers(Timers):
    """Work is done while `advance` runs, in the order of its times, with all events told in between."""

    def __init__(self, api: MemoryApi) -> None:
        self._api, self.time = api, 0.0
        self._heap = []
        self._count = itertools.count()
        self._changed = threading.Condition()
        self._is_stopped = False
        self.failures = []

    def after(self, seconds: float, work: Callable[..., Any], *args: Any) -> None:
        heapq.heappush(self._heap, (self.time + seconds, next(self._count), work, args))

    def advance(self, seconds: float) -> None:
        until = self.time + seconds
        self._tell()
        while self._heap and self._heap[0][0] <= until:
            self.time, _, work, args = heapq.heappop(self._heap)
            work(*args)
            self._tell()
        self.time = until

    def _tell(self) -> None:
        while self._api.events:
            verb, collection, raw = self._api.events.popleft()
            for watch in self._api.watches:
                if watch.collection == collection:
                    watch.tell(verb, raw)


class LonghornStage:
    """All controllers that have a part in placement, and nodes. Delays that are not named are 0."""

    def __init__(
        self,
        *nodes: str,
        preset: Mapping[str, Delay] | None = None,
        retry_seconds: float = _NEVER,
        share_managers: bool = False,
        runs_own_pods: bool = True,
        **delays: Delay,
    ) -> None:
        """`share_managers`: with these, and kubelets."""
        none: dict[str, Delay] = dict.fromkeys(vars(Delays()), 0.0)
        self.options = LonghornOptions(
            delays=Delays(**{**none, **(preset or {}), **delays}),
            retry_seconds=retry_seconds,
            resync_seconds=_NEVER,
            share_managers=share_managers,
            runs_own_pods=runs_own_pods,
        )
        self.api = MemoryApi()
        self.timers = ManualTimers(self.api)
        api, reflector = cast(ApiClient, self.api), cast(type[Reflector], MemoryReflector)
        self.world = LonghornWorld(api, self.options, timers=self.timers, reflector=reflector)
        self.volumes = Volumes(self.world)
        FigureUpdates(self.world)
        Nodes(self.world)
        Provisioner(self.world, self.volumes)
        Attacher(self.world, self.volumes, Kubelet(self.world).on_attached if share_managers else lambda _: None)
        Errands(self.world, self.volumes)
        Eviction(self.world, self.volumes)
        Resizer(self.world)
        if share_managers:
            ShareManagers(self.world)
        for name in nodes:
            self.node(name)

    def run(self, seconds: float = 0.0) -> None:
        self.timers.advance(seconds)

    # What is there

    def node(self, name: str, gib: int = 100) -> None:
        disk = DiskOptions(maximum_bytes=gib * GIB)
        add_node(cast(ApiClient, self.api), NAMESPACE, name, {"disk1": disk})
        self.run()

    def volume(
        self, name: str, gib: int = 10, *, locality: str = "best-effort", replicas: int = 1, node: str = ""
    ) -> None:
        spec: Raw = {"size": str(gib * GIB), "numberOfReplicas": replicas, "dataLocality": locality, "nodeID": node}
        self.volumes.create(name, spec)

    def attach(self, name: str, node: str) -> None:
        """As Longhorn's attachment for a pod would."""
        self.change("volumes", name, lambda raw: raw["spec"].update(nodeID=node))

    def change(self, plural: str, name: str, edit: Callable[[Raw], None], *, status: bool = False) -> None:
        path = paths.longhorn(plural, NAMESPACE, name)
        raw = self.api.get(path)
        edit(raw)
        self.api.replace(f"{path}/status" if status else path, raw)

    def get(self, plural: str, name: str) -> Raw:
        return self.api.get(paths.longhorn(plural, NAMESPACE, name))

    def replicas(self, volume: str) -> list[Raw]:
        found = self.api.list(paths.longhorn("replicas", NAMESPACE), label_selector=f"longhornvolume={volume}")
        return cast(list[Raw], found["items"])

    def place_first(self, replica: Raw, node: str) -> None:
        """As somebody else than Longhorn does."""

        def edit(raw: Raw) -> None:
            uuid, path = disk_uuid(node, "disk1"), "/var/lib/longhorn/disk1"
            raw["spec"].update(nodeID=node, diskID=uuid, diskPath=path, dataDirectoryName="placed")
            raw["metadata"]["labels"].update(longhornnode=node, longhorndiskuuid=uuid)

        self.change("replicas", replica["metadata"]["name"], edit)

    def places(self, volume: str) -> list[str]:
        return sorted(str(entry["spec"]["nodeID"]) for entry in self.replicas(volume))

    def scheduled_gib(self, node: str) -> float:
        disk = self.get("nodes", node)["status"]["diskStatus"]["disk1"]
        return float(disk["storageScheduled"] / GIB)

    def scheduled(self, volume: str) -> str:
        """The condition of that name; "" without one."""
        conditions = (self.get("volumes", volume).get("status") or {}).get("conditions") or []
        return next((str(entry["status"]) for entry in conditions if entry["type"] == "Scheduled"), "")


def provision(stage: LonghornStage, **parameters: str) -> tuple[Raw, str]:
    """A claim with a node, of a class with these parameters; with its volume's name."""
    chosen = {"dataLocality": "best-effort", "numberOfReplicas": "1", **parameters}
    meta: Raw = {"name": "class"}
    stage.api.create(paths.CLASSES, {"metadata": meta, "provisioner": paths.DRIVER, "parameters": chosen})
    claim = {
        "metadata": {"name": "data", "annotations": {paths.PROVISIONER: paths.DRIVER, paths.SELECTED_NODE: "a"}},
        "spec": {"storageClassName": "class", "resources": {"requests": {"storage": "10Gi"}}},
    }
    made = stage.api.create("/api/v1/namespaces/ns/persistentvolumeclaims", claim)
    return made, f"pvc-{made['metadata']['uid']}"


def attach_for_a_pod(stage: LonghornStage, volume: str, where: str) -> None:
    source = {"persistentVolumeName": volume}
    spec = {"attacher": paths.DRIVER, "nodeName": where, "source": source}
    stage.api.create(paths.ATTACHMENTS, {"metadata": {"name": f"{volume}-{where}"}, "spec": spec})


def state(stage: LonghornStage, volume: str) -> str:
    return str((stage.get("volumes", volume).get("status") or {}).get("state"))


def grow(stage: LonghornStage, volume: str, gib: int) -> None:
    stage.change("volumes", volume, lambda raw: raw["spec"].update(size=str(gib * GIB)))


def own(stage: LonghornStage, volume: str, owner: str) -> None:
    stage.change("volumes", volume, lambda raw: raw["status"].update(ownerID=owner), status=True)


def _key(path: str) -> tuple[str, str, str]:
    match = _PATH.fullmatch(path)
    assert match is not None, path
    return f"{match[1]}/{match[3]}", match[2] or "", match[4] or ""


def _merged(old: Any, new: Any) -> Any:
    if not isinstance(old, Mapping) or not isinstance(new, Mapping):
        return copy.deepcopy(new)
    return {**copy.deepcopy(old), **{key: _merged(old.get(key), value) for key, value in new.items()}}
