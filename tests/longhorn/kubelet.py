"""The kubelet's part for simulated nodes: pods become ready once their volumes are attached, and end when deleted.

With the option `runs_own_pods` off, pods in Longhorn's own namespace are left to somebody else.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

from tests.cluster.client import ApiError
from tests.longhorn import locality, paths, tickets
from tests.longhorn.share_managers import served_volume
from tests.longhorn.world import Busy, LonghornWorld, Raw, utc_now


class Kubelet:
    """One for all nodes. Threads: reflectors' and the pool's."""

    def __init__(self, world: LonghornWorld) -> None:
        self._world = world
        self._lock = threading.Lock()
        self._waiting: dict[str, str] = {}  # pod uid -> key, bound and not ready
        self._by_volume: dict[str, set[str]] = {}  # PV name -> pod uids
        self._busy = Busy()  # pods' uids
        self._serial = 0
        world.listen("pods", self._on_pod)
        world.listen("volumes", self._on_volume)
        if world.options.share_managers:
            world.listen("attachments", self._on_attachment)

    def _on_volume(self, verb: str, volume: Raw) -> None:
        # The store may show the attachment only after `on_attached` was called.
        if verb != "DELETED" and (volume.get("status") or {}).get("state") == "attached":
            self.on_attached(str(volume["metadata"]["name"]))

    def _on_attachment(self, _verb: str, raw: Raw) -> None:
        if (raw.get("status") or {}).get("attached"):
            self.on_attached(str(raw["spec"]["source"].get("persistentVolumeName", "")))

    def _on_pod(self, verb: str, pod: Raw) -> None:
        uid = pod["metadata"]["uid"]
        options = self._world.options
        if not options.runs_own_pods and pod["metadata"]["namespace"] == options.namespace:
            return
        if verb == "DELETED" or not pod["spec"].get("nodeName"):
            with self._lock:
                self._waiting.pop(uid, None)
            return
        if pod["metadata"].get("deletionTimestamp"):
            if self._busy.begin("stop", uid):
                self._world.after("stop", self._stop, pod)
        elif (pod.get("status") or {}).get("phase") == "Pending":
            with self._lock:
                self._waiting[uid] = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
            self._world.timers.now(self._try, uid)

    def on_attached(self, volume: str) -> None:
        """A volume is attached: the pods that wait for it may start."""
        with self._lock:
            waiting = list(self._by_volume.get(volume, ()))
        for uid in waiting:
            self._world.timers.now(self._try, uid)

    def _try(self, uid: str) -> None:
        with self._lock:
            key = self._waiting.get(uid)
        pod = self._world.stores["pods"].get(key) if key else None
        if pod is None or pod["metadata"]["uid"] != uid:
            return
        node, is_ready = pod["spec"]["nodeName"], True
        for volume in self._volumes_of(pod):
            if volume is None:
                self._world.timers.after(0.2, self._try, uid)
                return
            with self._lock:
                self._by_volume.setdefault(volume, set()).add(uid)
            facts = self._world.volume(volume)
            is_ready = is_ready and self._can_use(pod, node, facts)
        if is_ready and self._busy.begin("start", uid):
            self._start(pod)

    def _can_use(self, pod: Raw, node: str, volume: Raw | None) -> bool:
        """Whether the volume is attached there, or is served: consumers of a shared one need no device."""
        if volume is None or locality.is_for_longhorn(volume):
            return False
        if tickets.are_kept(self._world, volume) and not served_volume(pod):
            name, stores = volume["metadata"]["name"], self._world.stores
            return any(
                (raw.get("status") or {}).get("attached")
                for raw in stores["attachments"].snapshot().values()
                if raw["spec"]["nodeName"] == node and raw["spec"]["source"].get("persistentVolumeName") == name
            )
        status = volume.get("status") or {}
        return status.get("state") == "attached" and node in locality.engine_nodes(volume)

    def _volumes_of(self, pod: Raw) -> Iterator[str | None]:
        """Longhorn volumes of the pod; None for a claim that is not bound yet."""
        meta = pod["metadata"]
        if served_volume(pod) and meta["namespace"] == self._world.options.namespace:
            yield served_volume(pod)  # which it has from the host, and not by a claim
        for entry in pod["spec"].get("volumes") or []:
            if "persistentVolumeClaim" in entry:
                name = entry["persistentVolumeClaim"]["claimName"]
            elif "ephemeral" in entry:
                name = f"{meta['name']}-{entry['name']}"
            else:
                continue
            claim = self._world.stores["claims"].get(f"{meta['namespace']}/{name}")
            pv = self._world.stores["pvs"].get((claim or {"spec": {}})["spec"].get("volumeName") or "")
            if pv is None:
                yield None
            elif (pv["spec"].get("csi") or {}).get("driver") == paths.DRIVER:
                yield str(pv["spec"]["csi"]["volumeHandle"])

    def _start(self, pod: Raw) -> None:
        with self._lock:
            self._serial += 1
            address = f"10.{200 + (self._serial >> 16) % 50}.{(self._serial >> 8) % 256}.{self._serial % 256}"
        now = utc_now()
        names = [container["name"] for container in pod["spec"]["containers"]]
        status = {
            "phase": "Running",
            "podIP": address,
            "podIPs": [{"ip": address}],
            "startTime": now,
            "conditions": [
                {"type": kind, "status": "True", "lastTransitionTime": now}
                for kind in ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady")
            ],
            "containerStatuses": [
                {
                    "name": name,
                    "ready": True,
                    "started": True,
                    "restartCount": 0,
                    "image": "simulated",
                    "imageID": "simulated",
                    "state": {"running": {"startedAt": now}},
                }
                for name in names
            ],
        }
        meta = pod["metadata"]
        try:
            self._world.api.patch(
                f"{paths.pod(meta['namespace'], meta['name'])}/status",
                {"metadata": {"uid": meta["uid"]}, "status": status},
                type="strategic",
            )
        except ApiError as error:
            if not (error.not_found or error.conflict):
                raise

    def _stop(self, pod: Raw) -> None:
        meta = pod["metadata"]
        path = paths.pod(meta["namespace"], meta["name"])
        try:
            self._world.api.delete(path, gracePeriodSeconds=0, preconditions={"uid": meta["uid"]})
        except ApiError as error:
            if not (error.not_found or error.conflict):
                raise
