"""Longhorn's volume controller, as far as placement goes: volumes, replicas, and placement without any lock."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import Literal

from tests.cluster.client import ApiError, ignored_when_gone
from tests.longhorn import locality, paths, placement
from tests.longhorn.install import ensure
from tests.longhorn.world import Raw, World, set_condition, utc_now

API_VERSION = f"{paths.GROUP}/{paths.VERSION}"
NO_REUSE = 5  # a replica made for rebuilding is not used again if it fails


class Volumes:
    """Creates volumes and replicas and places them from whatever the informers show at that moment.

    Volumes are handled side by side and no lock is held between them: two may take the same space. That is the race.
    A volume's own replicas are read live. Threads: reflectors' and the pool's; one at a time for one volume, and what
    happens to it meanwhile gives it another turn.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._lock = threading.Lock()
        self._turns: dict[str, Literal["waiting", "running", "again"]] = {}
        self._retrying: set[str] = set()
        self._rebuilding: set[str] = set()  # replicas
        self._relocating: dict[str, tuple[str, bool]] = {}  # volume -> where to, and is it time
        world.listen("volumes", self._on_volume)

    # What the CSI controller asks for

    def create(self, name: str, spec: Raw) -> None:
        with self._lock:
            self._turns[name] = "running"
        is_done = False
        try:
            meta = {"name": name, "namespace": self._world.options.namespace, "labels": {"longhornvolume": name}}
            body = {"apiVersion": API_VERSION, "kind": "Volume", "metadata": meta, "spec": spec}
            is_new = ensure(self._world.api, self._world.longhorn("volumes"), body)
            if is_new:
                volume, there = self.set_state(name, "creating", **_to_be_filled(spec)), []
            else:  # begun by a stand-in that ended in the middle of it
                volume, there = (
                    self._world.api.get_or_none(self._world.longhorn("volumes", name)),
                    self._live_replicas(name),
                )
            if volume is not None:
                is_done = bool(self._make_replicas(volume, there)) and not locality.may_place(volume)
        finally:
            with self._lock:
                is_due = self._turns.pop(name) == "again"
            if is_due or not is_done:
                self.consider(name)

    def set_state(self, name: str, state: str, **more: object) -> Raw | None:
        def edit(raw: Raw) -> bool:
            status = raw.setdefault("status", {})
            if status.get("state") in (state, "attached"):
                return False
            status.update(state=state, robustness="unknown", **more)
            return True

        return self._world.change(self._world.longhorn("volumes", name), edit, status=True)

    def delete(self, name: str) -> None:
        self._world.delete(self._world.longhorn("volumes", name))
        for replica in self._live_replicas(name):
            self._delete_replica(replica)

    def _sweep(self, name: str) -> None:
        """Delete what a turn that overlapped with the volume's end may have left of it."""
        with self._lock:
            is_busy = name in self._turns
        if is_busy:
            self._world.timers.after(0.2, self._sweep, name)
            return
        if self._world.volume(name) is None:
            for replica in self._live_replicas(name):
                self._delete_replica(replica)

    # Turns

    def _on_volume(self, verb: str, volume: Raw) -> None:
        name = str(volume["metadata"]["name"])
        if verb == "DELETED":
            with self._lock:
                self._retrying.discard(name)
            self._world.after("delete", self._sweep, name)
        elif locality.needs_turn(volume, self._world.replicas_of(name), self._world.settings(), self._world.nodes()):
            self.consider(name)

    def consider(self, name: str) -> None:
        with self._lock:
            if name in self._turns:
                if self._turns[name] == "running":
                    self._turns[name] = "again"
                return
            self._turns[name] = "waiting"
        self._world.after("placement", self._turn, name)

    def _turn(self, name: str) -> None:
        with self._lock:
            self._turns[name] = "running"
        is_done = False
        try:
            is_done = self._handle(name)
        finally:
            with self._lock:
                is_due = self._turns.pop(name) == "again"
                is_retry = not is_done and name not in self._retrying
                if is_retry:
                    self._retrying.add(name)
            if is_retry:
                self._world.timers.after(self._world.options.retry_seconds, self._retry, name)
            if is_due:
                self.consider(name)

    def _retry(self, name: str) -> None:
        with self._lock:
            self._retrying.discard(name)
        self.consider(name)

    def _handle(self, name: str) -> bool:
        """Whatever the volume's replicas need now; whether nothing is left to try again."""
        volume = self._world.api.get_or_none(self._world.longhorn("volumes", name))
        if volume is None or volume["metadata"].get("deletionTimestamp"):
            return True
        replicas = self._live_replicas(name)
        for replica in locality.obsolete(volume, replicas) + locality.evicted(volume, replicas):
            self._delete_replica(replica)
            replicas.remove(replica)
        if not replicas:
            replicas = self._make_replicas(volume, replicas)
            if not replicas:
                return False
        if not locality.may_place(volume):
            return True
        node = locality.wants_local(volume, replicas, self._world.settings())
        if self._is_time_to_move(name, node):
            replicas.append(self._make_replica(volume, hardNodeAffinity=node, rebuildRetryCount=NO_REUSE))
        if locality.wants_spare(volume, replicas, self._world.settings()):
            replicas.append(self._make_replica(volume, rebuildRetryCount=NO_REUSE))
        failed = self._place_all(volume, replicas)
        self._tell(volume, failed)
        if locality.attached_node(volume):
            self._rebuild(volume, replicas)
            gone = locality.surplus(volume, replicas, self._world.nodes())
            if gone is not None:
                self._delete_replica(gone)
        return not failed

    def _is_time_to_move(self, name: str, node: str) -> bool:
        """Whether the delay is over since the volume was first seen at `node`, away from its data ("": it is not)."""
        with self._lock:
            where, is_time = self._relocating.pop(name, ("", False))
            is_time = is_time and where == node
            if node and not is_time:
                self._relocating[name] = (node, False)
        if node and where != node:
            self._world.after("relocate", self._move, name, node)
        return bool(node) and is_time

    def _move(self, name: str, node: str) -> None:
        with self._lock:
            if self._relocating.get(name) != (node, False):
                return
            self._relocating[name] = (node, True)
        self.consider(name)

    def has_candidate(self, volume: Raw) -> bool:
        """Whether some disk would take one more replica of the volume."""
        replicas = self._live_replicas(str(volume["metadata"]["name"]))
        new: Raw = {"metadata": {"name": ""}, "spec": {"volumeSize": volume["spec"]["size"]}}
        return bool(placement.find_candidates(self._state(replicas), volume, new).candidates)

    # Replicas

    def _live_replicas(self, name: str) -> list[Raw]:
        selector = f"longhornvolume={name}"
        found: list[Raw] = self._world.api.list(self._world.longhorn("replicas"), label_selector=selector)["items"]
        return found

    def _make_replicas(self, volume: Raw, replicas: list[Raw]) -> list[Raw]:
        """The replicas of a new volume, unless no disk at all would take one: then there is none to be placed."""
        new: Raw = {"metadata": {"name": ""}, "spec": {"volumeSize": volume["spec"]["size"]}}
        if not placement.find_candidates(self._state(replicas), volume, new).candidates:
            self._tell(volume, "any")
            return replicas
        missing = int(volume["spec"]["numberOfReplicas"]) - len(replicas)
        return replicas + [self._make_replica(volume) for _ in range(missing)]

    def _make_replica(self, volume: Raw, **more: object) -> Raw:
        name, spec = volume["metadata"]["name"], volume["spec"]
        body = {
            "apiVersion": API_VERSION,
            "kind": "Replica",
            "metadata": {
                "name": f"{name}-r-{self._world.dice.hexadecimal()}",
                "namespace": self._world.options.namespace,
                "labels": {"longhornvolume": name, "longhornnode": "", "longhorndiskuuid": ""},
            },
            "spec": {
                "volumeName": name,
                "volumeSize": spec["size"],
                "nodeID": "",
                "diskID": "",
                "active": True,
                "dataEngine": spec.get("dataEngine", "v1"),
                "hardNodeAffinity": "",
                "healthyAt": "",
                "failedAt": "",
                **more,
            },
        }
        return self._world.api.create(self._world.longhorn("replicas"), body)

    def _delete_replica(self, replica: Raw) -> None:
        self._world.delete(self._world.longhorn("replicas", replica["metadata"]["name"]))

    def _place_all(self, volume: Raw, replicas: list[Raw]) -> str:
        """Place what has no node yet, one after the other. The answer names what failed: "", "any", or a node."""
        failed = ""
        if volume["spec"].get("dataLocality") == "strict-local":
            replicas[:] = [self._pinned(replica, volume["spec"]["nodeID"]) for replica in replicas]
        for replica in replicas:
            if not replica["spec"].get("nodeID") and not self._place(volume, replica, replicas):
                failed = replica["spec"].get("hardNodeAffinity") or failed or "any"
        return failed

    def _pinned(self, replica: Raw, node: str) -> Raw:
        """The replica, bound to the volume's node unless it lies somewhere already; written even if it does not fit."""
        if replica["spec"].get("nodeID"):
            return replica

        def edit(raw: Raw) -> bool:
            is_new = bool(raw["spec"].get("hardNodeAffinity") != node)
            raw["spec"]["hardNodeAffinity"] = node
            return is_new

        path = self._world.longhorn("replicas", replica["metadata"]["name"])
        return self._world.change(path, edit) or replica

    def _state(self, replicas: list[Raw]) -> placement.State:
        return placement.State(
            nodes=self._world.nodes(),
            replicas=replicas,
            settings=self._world.settings(),
            backing_images=self._world.images(),
            now=datetime.now(UTC),
        )

    def _place(self, volume: Raw, replica: Raw, replicas: list[Raw]) -> bool:
        state = self._state(replicas)
        answer = placement.find_candidates(state, volume, replica)
        chosen = placement.choose(state, volume, answer.candidates, self._world.dice.choice)
        if chosen is None:
            return False
        where = {"nodeID": chosen.node, "diskID": chosen.uuid, "diskPath": chosen.path}
        where["dataDirectoryName"] = f"{volume['metadata']['name']}-{self._world.dice.hexadecimal()}"
        placed = {**replica, "metadata": dict(replica["metadata"]), "spec": {**replica["spec"], **where}}
        labels = {"longhornnode": chosen.node, "longhorndiskuuid": chosen.uuid}
        placed["metadata"]["labels"] = {**replica["metadata"].get("labels", {}), **labels}
        try:
            replica.update(
                self._world.api.replace(self._world.longhorn("replicas", placed["metadata"]["name"]), placed)
            )
        except ApiError as error:
            if not (error.conflict or error.not_found):
                raise
            return error.not_found
        return True

    def _tell(self, volume: Raw, failed: str) -> None:
        """Write the condition `Scheduled`, if it is not written already."""

        def edit(raw: Raw) -> bool:
            status = raw.setdefault("status", {})
            reason = "LocalReplicaSchedulingFailure" if failed not in ("", "any") else "ReplicaSchedulingFailure"
            if failed:
                return set_condition(status, "Scheduled", "False", reason, "insufficient storage")
            return set_condition(status, "Scheduled", "True")

        name = str(volume["metadata"]["name"])
        if edit({**volume, "status": dict(volume.get("status") or {})}):
            self._world.change(self._world.longhorn("volumes", name), edit, status=True)
        self._annotate(name, "insufficient storage" if failed else "")

    def _annotate(self, name: str, error: str) -> None:
        """Write the reason on the PV, which has the volume's name, if it is there and says something else."""
        pv = self._world.stores["pvs"].get(name)
        if pv is None or (pv["metadata"].get("annotations") or {}).get(paths.SCHEDULING_ERROR, "") == error:
            return
        with ignored_when_gone():
            self._world.api.patch(f"{paths.PVS}/{name}", {"metadata": {"annotations": {paths.SCHEDULING_ERROR: error}}})

    # Rebuilding

    def _rebuild(self, volume: Raw, replicas: list[Raw]) -> None:
        """Copy data to the replicas that joined an attached volume."""
        for replica in replicas:
            name = str(replica["metadata"]["name"])
            if locality.is_usable(replica) and not locality.is_healthy(replica):
                with self._lock:
                    is_new = name not in self._rebuilding
                    self._rebuilding.add(name)
                if is_new:
                    self._world.after("rebuild", self._rebuilt, volume["metadata"]["name"], name)

    def _rebuilt(self, volume_name: str, name: str) -> None:
        with self._lock:
            self._rebuilding.discard(name)
        volume = self._world.api.get_or_none(self._world.longhorn("volumes", volume_name))
        if volume is None or not locality.attached_node(volume):
            return
        self._world.change(self._world.longhorn("replicas", name), mark_healthy)
        self._report_robustness(volume_name)
        self.consider(volume_name)

    def first_use(self, name: str) -> int:
        """The volume is about to be attached: at its very first use every placed replica becomes healthy.

        The answer is how many are healthy.
        """
        replicas = self._live_replicas(name)
        healthy = sum(map(locality.is_healthy, replicas))
        if healthy:
            return healthy
        placed = [replica for replica in replicas if locality.is_usable(replica)]
        for replica in placed:
            self._world.change(self._world.longhorn("replicas", replica["metadata"]["name"]), mark_healthy)
        return len(placed)

    def _report_robustness(self, name: str) -> None:
        healthy = sum(map(locality.is_healthy, self._live_replicas(name)))

        def edit(volume: Raw) -> bool:
            return bool(locality.attached_node(volume)) and set_robustness(volume, healthy)

        self._world.change(self._world.longhorn("volumes", name), edit, status=True)


def _to_be_filled(spec: Raw) -> Raw:
    """What the status of a new volume says when its data is to come from elsewhere."""
    source = str(spec.get("dataSource") or "")
    clone = {"cloneStatus": {"sourceVolume": source.removeprefix("vol://"), "state": "initiated"}} if source else {}
    return {**clone, **({"restoreRequired": True} if spec.get("fromBackup") else {})}


def set_robustness(volume: Raw, healthy: int) -> bool:
    """Of an attached volume, by the number of its healthy replicas; whether it changed."""
    status = volume.setdefault("status", {})
    before, now = status.get("robustness"), "healthy"
    if healthy < int(volume["spec"]["numberOfReplicas"]):
        now = "degraded"
        if before != now:
            status["lastDegradedAt"] = utc_now()
    status["robustness"] = now
    return bool(before != now)


def mark_healthy(replica: Raw) -> bool:
    if not locality.is_usable(replica) or locality.is_healthy(replica):
        return False
    replica["spec"].update(healthyAt=utc_now(), lastHealthyAt=utc_now())
    return True
