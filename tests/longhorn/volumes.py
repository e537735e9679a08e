"""Longhorn's volume controller, as far as placement goes: volumes, replicas, and placement without any lock."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import Any

from tests.cluster.client import ApiError
from tests.longhorn import paths, placement
from tests.longhorn.install import ensure
from tests.longhorn.world import Raw, World, set_condition, utc_now

API_VERSION = f"{paths.GROUP}/{paths.VERSION}"


class Volumes:
    """Creates volumes and replicas and places them from whatever the informers show at that moment.

    Volumes are handled side by side and no lock is held between them: two may take the same space. That is the race.
    Threads: reflectors' and the pool's. One volume is handled by one thread at a time.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._lock = threading.Lock()
        self._placing: set[str] = set()  # volumes whose turn is under way
        self._placed: dict[str, list[Any]] = {}  # volume -> what waits for its first replica
        world.listen("volumes", self._on_volume)

    def create(self, name: str, spec: Raw) -> None:
        meta = {"name": name, "namespace": self._world.options.namespace, "labels": {"longhornvolume": name}}
        body = {"apiVersion": API_VERSION, "kind": "Volume", "metadata": meta, "spec": spec}
        body["status"] = {"state": "creating", "robustness": "unknown"}
        ensure(self._world.api, self._world.longhorn("volumes"), body)
        self._world.change(self._world.longhorn("volumes", name), _set_state("creating"), status=True)
        self.add_replicas(name, spec)

    def add_replicas(self, name: str, spec: Raw) -> None:
        for _ in range(int(spec["numberOfReplicas"]) - len(self._world.replicas_of(name))):
            self.add_replica(name, spec)

    def add_replica(self, name: str, spec: Raw, hard_node_affinity: str = "") -> None:
        meta = {
            "name": f"{name}-r-{self._world.dice.hexadecimal()}",
            "namespace": self._world.options.namespace,
            "labels": {"longhornvolume": name, "longhornnode": "", "longhorndiskuuid": ""},
        }
        body = {
            "apiVersion": API_VERSION,
            "kind": "Replica",
            "metadata": meta,
            "spec": {
                "volumeName": name,
                "volumeSize": spec["size"],
                "nodeID": "",
                "diskID": "",
                "active": True,
                "dataEngine": spec.get("dataEngine", "v1"),
                "hardNodeAffinity": hard_node_affinity,
                "healthyAt": "",
                "failedAt": "",
            },
        }
        self._world.api.create(self._world.longhorn("replicas"), body)

    def created(self, name: str) -> None:
        self._world.change(self._world.longhorn("volumes", name), _set_state("detached"), status=True)

    def delete(self, name: str) -> None:
        self._world.delete(self._world.longhorn("volumes", name))
        selector = f"longhornvolume={name}"
        for replica in self._world.api.list(self._world.longhorn("replicas"), label_selector=selector)["items"]:
            self._world.delete(self._world.longhorn("replicas", replica["metadata"]["name"]))

    def _on_volume(self, verb: str, volume: Raw) -> None:
        """A volume whose turn has come: `disabled` at once, the others when they are attached to a node."""
        if verb == "DELETED" or volume["metadata"].get("deletionTimestamp"):
            return
        if volume["spec"].get("dataLocality") != "disabled" and not volume["spec"].get("nodeID"):
            return
        self.consider(str(volume["metadata"]["name"]))

    def consider(self, name: str) -> None:
        with self._lock:
            if name in self._placing:
                return
            self._placing.add(name)
        self._world.after("placement", self._turn, name)

    def _turn(self, name: str) -> None:
        try:
            is_done = self._place_all(name)
        finally:
            with self._lock:
                self._placing.discard(name)
        if not is_done:
            self._world.timers.after(self._world.options.retry_seconds, self.consider, name)

    def _place_all(self, name: str) -> bool:
        """Place every replica of the volume that has no node yet; whether none is left to try again."""
        volume = self._world.api.get_or_none(self._world.longhorn("volumes", name))
        if volume is None:
            return True
        spec = volume["spec"]
        if spec.get("dataLocality") != "disabled" and not spec.get("nodeID"):
            return True
        selector = f"longhornvolume={name}"
        replicas = self._world.api.list(self._world.longhorn("replicas"), label_selector=selector)["items"]
        self._ask_for_local(volume, replicas)
        failed = ""
        for replica in replicas:
            if not replica["spec"].get("nodeID") and not self._place(volume, replica, replicas):
                failed = replica["spec"].get("hardNodeAffinity") or failed or "any"
        self._tell(name, failed)
        return not failed

    def _ask_for_local(self, volume: Raw, replicas: list[Raw]) -> None:
        if volume["spec"].get("dataLocality") == "strict-local":
            for replica in replicas:
                if not replica["spec"].get("nodeID"):
                    replica["spec"]["hardNodeAffinity"] = volume["spec"]["nodeID"]

    def _place(self, volume: Raw, replica: Raw, replicas: list[Raw]) -> bool:
        state = placement.State(
            nodes=self._world.nodes(), replicas=replicas, settings=self._world.settings(), now=datetime.now(UTC)
        )
        answer = placement.find_candidates(state, volume, replica)
        chosen = placement.choose(state, volume, answer.candidates, self._world.dice.choice)
        if chosen is None:
            return False
        replica["spec"] |= {
            "nodeID": chosen.node,
            "diskID": chosen.uuid,
            "diskPath": chosen.path,
            "dataDirectoryName": f"{volume['metadata']['name']}-{self._world.dice.hexadecimal()}",
            "healthyAt": utc_now(),
        }
        replica["metadata"]["labels"] |= {"longhornnode": chosen.node, "longhorndiskuuid": chosen.uuid}
        try:
            self._world.api.replace(self._world.longhorn("replicas", replica["metadata"]["name"]), replica)
        except ApiError as error:
            if not (error.conflict or error.not_found):
                raise
            return error.not_found
        return True

    def _tell(self, name: str, failed: str) -> None:
        def edit(raw: Raw) -> bool:
            status = raw.setdefault("status", {})
            reason = "LocalReplicaSchedulingFailure" if failed not in ("", "any") else "ReplicaSchedulingFailure"
            if failed:
                return set_condition(status, "Scheduled", "False", reason, "insufficient storage")
            return set_condition(status, "Scheduled", "True")

        self._world.change(self._world.longhorn("volumes", name), edit, status=True)


def _set_state(state: str) -> Any:
    def edit(raw: Raw) -> bool:
        status = raw.setdefault("status", {})
        if status.get("state") == state:
            return False
        status["state"] = state
        return True

    return edit
