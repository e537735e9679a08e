"""What the stand-in sees of the cluster: one reflector a kind, and writes that try again on conflicts."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from tests.cluster.client import ApiClient, ApiError, ignored_when_gone
from tests.cluster.watch import Reflector
from tests.longhorn import paths
from tests.longhorn.asked import AskedScheduler
from tests.longhorn.options import DelayDice, LonghornOptions
from tests.longhorn.refusals import Refusals
from tests.longhorn.timers import Timers

Raw = dict[str, Any]
Listener = Callable[[str, Raw], None]
_TRIES: Final = 20


class LonghornWorld:
    """Stores, clock and writes that all parts share. Threads: any."""

    def __init__(
        self,
        api: ApiClient,
        options: LonghornOptions,
        *,
        timers: Timers | None = None,
        reflector: type[Reflector] = Reflector,
    ) -> None:
        self.api, self.options = api, options
        self.dice = DelayDice(options.seed)
        self.asked = AskedScheduler(options.disk_scheduler) if options.disk_scheduler else None
        self.timers = timers or Timers(options.workers)
        self.refusals = Refusals(self.timers)
        namespace = options.namespace
        self._paths = {
            "claims": paths.CLAIMS,
            "pvs": paths.PVS,
            "classes": paths.CLASSES,
            "pods": paths.PODS,
            "attachments": paths.ATTACHMENTS,
            "volumes": paths.longhorn("volumes", namespace),
            "replicas": paths.longhorn("replicas", namespace),
            "nodes": paths.longhorn("nodes", namespace),
            "settings": paths.longhorn("settings", namespace),
            "images": paths.longhorn("backingimages", namespace),
            "shares": paths.longhorn("sharemanagers", namespace),
            "tickets": paths.longhorn("volumeattachments", namespace),
            "kube_nodes": paths.NODES,
        }
        self._kinds = {path: kind for kind, path in self._paths.items()}
        self._listeners: dict[str, list[Listener]] = {kind: [] for kind in self._paths}
        self._lock = threading.Lock()  # guards the indices of replicas
        self._replicas: dict[str, dict[str, Raw]] = {}  # volume -> name -> replica
        self._unplaced: dict[str, str] = {}  # replica -> volume
        self.stores = {
            kind: reflector(api, path, self._teller(kind), start=False, name=f"longhorn-{kind}")
            for kind, path in self._paths.items()
        }

    def listen(self, kind: str, listener: Listener) -> None:
        self._listeners[kind].append(listener)

    def listen_by_replica(self, listener: Listener, counts: Callable[[str, Raw], bool] = lambda *_: True) -> None:
        """An event of a replica that counts is told as one of its volume."""

        def tell(verb: str, replica: Raw) -> None:
            volume = self.volume(str(replica["spec"].get("volumeName") or ""))
            if volume is not None and counts(verb, replica):
                listener("MODIFIED", volume)

        self.listen("replicas", tell)

    def start(self) -> None:
        for store in self.stores.values():
            store.start()
        for store in self.stores.values():
            store.wait_synced()

    def stop(self) -> None:
        for store in self.stores.values():
            store.stop()
        self.timers.stop()

    def _teller(self, kind: str) -> Listener:
        def tell(verb: str, raw: Raw) -> None:
            if kind == "replicas":
                self._index_replica(verb, raw)
            for listener in self._listeners[kind]:
                listener(verb, raw)

        return tell

    def _index_replica(self, verb: str, raw: Raw) -> None:
        volume, name = str(raw["spec"].get("volumeName", "")), str(raw["metadata"]["name"])
        with self._lock:
            members = self._replicas.setdefault(volume, {})
            if verb == "DELETED":
                members.pop(name, None)
            else:
                members[name] = raw
            if verb == "DELETED" or raw["spec"].get("nodeID"):
                self._unplaced.pop(name, None)
            else:
                self._unplaced[name] = volume

    def volumes_with_unplaced(self) -> set[str]:
        with self._lock:
            return set(self._unplaced.values())

    def replicas_of(self, volume: str, *, with_twins: bool = False) -> list[Raw]:
        """Those that the volume runs on, and its twins if asked for."""
        with self._lock:
            found = list(self._replicas.get(volume, {}).values())
        return [replica for replica in found if with_twins or replica["spec"].get("active", True)]

    def after(self, delay: str, work: Callable[..., Any], *args: Any) -> None:
        """Run `work` after one draw of the delay of that name."""
        self.timers.after(self.dice.seconds(getattr(self.options.delays, delay)), work, *args)

    def volume(self, name: str) -> Raw | None:
        return self.stores["volumes"].get(f"{self.options.namespace}/{name}")

    def longhorn(self, plural: str, name: str = "") -> str:
        return paths.longhorn(plural, self.options.namespace, name)

    def settings(self) -> dict[str, str]:
        return {
            raw["metadata"]["name"]: str(raw.get("value", "")) for raw in self.stores["settings"].snapshot().values()
        }

    def nodes(self) -> dict[str, Raw]:
        """Longhorn nodes as the informers show them: as stale as their last status."""
        return {raw["metadata"]["name"]: raw for raw in self.stores["nodes"].snapshot().values()}

    def images(self) -> dict[str, Raw]:
        return {raw["metadata"]["name"]: raw for raw in self.stores["images"].snapshot().values()}

    def change(self, path: str, edit: Callable[[Raw], bool], *, status: bool = False) -> Raw | None:
        """As `change`, and what the informer shows is tried first: that spares a read wherever it is current."""
        return change(self.api, path, edit, status=status, known=self._known(path))

    def _known(self, path: str) -> Raw | None:
        collection, _, name = path.rpartition("/")
        kind = self._kinds.get(collection)
        if kind is None:
            return None
        is_namespaced = collection.startswith(f"/apis/{paths.GROUP}/")
        return self.stores[kind].get(f"{self.options.namespace}/{name}" if is_namespaced else name)

    def delete(self, path: str, **options: Any) -> None:
        with ignored_when_gone():
            self.api.delete(path, **options)


def change(
    api: ApiClient, path: str, edit: Callable[[Raw], bool], *, status: bool = False, known: Raw | None = None
) -> Raw | None:
    """Read, edit, write under the resource version, again on a conflict. None when it is gone; `edit` false: no write.

    `known` may be stale: it is only good for a write that then proves it current, so `edit` may be called again.
    """
    for _ in range(_TRIES):
        raw = known if known is not None else api.get_or_none(path)
        if raw is None:
            return None
        raw = copy.deepcopy(raw)
        if edit(raw):
            try:
                return api.replace(f"{path}/status" if status else path, raw)
            except ApiError as error:
                if error.not_found:
                    return None
                if not error.conflict:
                    raise
        elif known is None:
            return raw
        known = None
    raise RuntimeError(f"{path}: too many conflicts")


def put(part: Raw, **fields: Any) -> bool:
    """Set these fields of an object's part; whether that changed anything. What is absent is as false or empty."""
    is_new = any((part.get(name) or type(value)()) != value for name, value in fields.items())
    part.update(fields)
    return is_new


class Busy:
    """What is under way, so that nobody begins it twice. Threads: any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._keys: set[tuple[str, str]] = set()

    def begin(self, what: str, key: str) -> bool:
        """Whether it was not under way."""
        with self._lock:
            is_new = (what, key) not in self._keys
            self._keys.add((what, key))
        return is_new

    def end(self, what: str, key: str) -> None:
        with self._lock:
            self._keys.discard((what, key))


def let_go(raw: Raw, finalizer: str) -> bool:
    """Take the finalizer off an object; whether it was there."""
    finalizers = raw["metadata"].get("finalizers") or []
    raw["metadata"]["finalizers"] = [entry for entry in finalizers if entry != finalizer]
    return finalizer in finalizers


def utc_now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def set_condition(status: Raw, kind: str, value: str, reason: str = "", message: str = "") -> bool:
    """Put one condition of Longhorn's form; whether it changed."""
    conditions = status.setdefault("conditions", [])
    old = next((entry for entry in conditions if entry.get("type") == kind), None)
    if old is not None and (old.get("status"), old.get("reason", "")) == (value, reason):
        return False
    entry = {
        "type": kind,
        "status": value,
        "reason": reason,
        "message": message,
        "lastProbeTime": "",
        "lastTransitionTime": utc_now(),
    }
    status["conditions"] = [other for other in conditions if other.get("type") != kind] + [entry]
    return True
