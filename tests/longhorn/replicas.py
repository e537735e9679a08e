"""Replica objects: made without a place, and gone only some time after they were deleted."""

from __future__ import annotations

from typing import Final, Literal

from tests.cluster.client import ApiError
from tests.longhorn import paths
from tests.longhorn.locality import is_deleting
from tests.longhorn.world import Busy, LonghornWorld, Raw, let_go

REFUSED: Final = (403, 413, 422)  # all that admission can answer
Written = Literal["written", "lost", "refused"]


class Replicas:
    """A deleted replica shows its `deletionTimestamp`, and counts, until the finalizer goes.

    Threads: any; listeners run in the reflector's.
    """

    def __init__(self, world: LonghornWorld) -> None:
        self._world = world
        self._busy = Busy()  # replicas' uids
        world.listen("replicas", self._on_replica)

    def live(self, volume: str) -> list[Raw]:
        """All of the volume's replicas as the API server has them, deleted ones included."""
        selector = f"longhornvolume={volume}"
        found: list[Raw] = self._world.api.list(self._world.longhorn("replicas"), label_selector=selector)["items"]
        return found

    def make(self, volume: Raw, **more: object) -> Raw:
        name, spec = volume["metadata"]["name"], volume["spec"]
        labels = {"longhornvolume": name, "longhornnode": "", "longhorndiskuuid": ""}
        empty = dict.fromkeys(("nodeID", "diskID", "hardNodeAffinity", "healthyAt", "failedAt"), "")
        own = {
            "volumeName": name,
            "volumeSize": spec["size"],
            "active": True,
            "dataEngine": spec.get("dataEngine", "v1"),
            "backingImage": spec.get("backingImage", ""),
        }
        return self._create(name, labels, empty | own | more)

    def make_twin(self, replica: Raw, engine: str) -> Raw:
        """One of the same data for another engine: it has its place from the start, and its bytes count once more."""
        spec = {**replica["spec"], "active": False, "engineName": engine, "evictionRequested": False}
        return self._create(spec["volumeName"], dict(replica["metadata"].get("labels") or {}), spec)

    def _create(self, volume: str, labels: dict[str, str], spec: Raw) -> Raw:
        name, meta = f"{volume}-r-{self._world.dice.hexadecimal()}", {"labels": labels, "finalizers": [paths.FINALIZER]}
        body = paths.longhorn_object("Replica", name, self._world.options.namespace, meta, spec=spec)
        return self._world.api.create(self._world.longhorn("replicas"), body)

    def write(self, replica: Raw) -> Written:
        """Write what was decided, in one UPDATE. It is lost where the object has changed since."""
        try:
            written = self._world.api.replace(self._path(replica), replica)
        except ApiError as error:
            if error.conflict:
                return "lost"
            if error.status in REFUSED:
                return "refused"
            if not error.not_found:
                raise
            return "written"
        replica["metadata"] = written["metadata"]
        return "written"

    def delete(self, *replicas: Raw) -> None:
        for replica in replicas:
            if not is_deleting(replica):
                self._world.delete(self._path(replica))

    def _path(self, replica: Raw) -> str:
        return self._world.longhorn("replicas", replica["metadata"]["name"])

    def _on_replica(self, verb: str, raw: Raw) -> None:
        uid = raw["metadata"]["uid"]
        if verb == "DELETED":
            self._busy.end("finalize", uid)
            if self._world.asked is not None:  # the node controller's part
                self._world.timers.now(self._world.asked.deallocate_replica, str(raw["metadata"]["name"]))
        elif is_deleting(raw) and self._busy.begin("finalize", uid):
            self._world.after("finalize", self._finalize, self._path(raw))

    def _finalize(self, path: str) -> None:
        self._world.change(path, lambda raw: is_deleting(raw) and let_go(raw, paths.FINALIZER))
