"""What Longhorn attaches volumes for by itself: to fill them from a backup or another volume, to let them grow, and to
evict replicas.

A volume is attached to its *owner* (`status.ownerID`), and without a device (`disableFrontend`). A pod's attachment
takes it over from an eviction, and waits until a volume is filled or has grown. A volume without a placed replica gets
its first one near the owner then, whatever node a pod was promised.
"""

from __future__ import annotations

import threading

from tests.longhorn import locality, owners
from tests.longhorn.volumes import Volumes, close
from tests.longhorn.world import Busy, LonghornWorld, Raw


class Errands:
    """Threads: reflectors' and the pool's; one at a time for one volume."""

    def __init__(self, world: LonghornWorld, volumes: Volumes) -> None:
        self._world, self._volumes = world, volumes
        self._lock = threading.Lock()
        self._turns: dict[str, bool] = {}  # volumes that have a turn; did something happen meanwhile
        self._busy = Busy()
        world.listen("volumes", self._on_volume)
        world.listen_by_replica(self._on_volume)

    def _on_volume(self, verb: str, volume: Raw) -> None:
        if verb == "DELETED" or volume["metadata"].get("deletionTimestamp") or not self._has_work(volume):
            return
        name = str(volume["metadata"]["name"])
        with self._lock:
            if name in self._turns:
                self._turns[name] = True
                return
            self._turns[name] = False
        self._world.timers.now(self._turn, name)

    def _has_work(self, volume: Raw) -> bool:
        return bool(self._wants(volume) and not volume["spec"].get("nodeID")) or locality.is_for_longhorn(volume)

    def _wants(self, volume: Raw) -> bool:
        """Whether it has to be attached although no pod asks for it."""
        replicas = self._world.replicas_of(str(volume["metadata"]["name"]))
        is_made = (volume.get("status") or {}).get("state") != "creating"
        is_busy = (is_made and locality.is_filling(volume)) or locality.is_expanding(volume)
        return is_busy or any(map(locality.is_evicting, replicas))

    def _turn(self, name: str) -> None:
        is_waiting = False
        try:
            is_waiting = self._handle(name)
        finally:
            with self._lock:
                is_due = self._turns.pop(name)
            if is_due:
                self._again(name)
            if is_waiting:
                self._world.timers.after(self._world.options.retry_seconds, self._again, name)

    def _again(self, name: str) -> None:
        volume = self._world.volume(name)
        if volume is not None:
            self._on_volume("MODIFIED", volume)

    def _handle(self, name: str) -> bool:
        """Attach, fill or let go; whether it is to be tried again later."""
        volume = self._world.api.get_or_none(self._world.longhorn("volumes", name))
        if volume is None:
            return False
        if locality.is_for_longhorn(volume):
            if not self._wants(volume):
                self._release(name)
            elif locality.is_filling(volume) and locality.attached_node(volume):
                self._fill(name)
            return False
        return bool(self._wants(volume)) and not volume["spec"].get("nodeID") and not self._begin_attach(volume)

    def _begin_attach(self, volume: Raw) -> bool:
        """Attach it to its owner after a while; False if that would lead nowhere now."""
        name = str(volume["metadata"]["name"])
        is_only_leaving = not locality.is_filling(volume) and not locality.is_expanding(volume)
        lacks_spare = is_only_leaving and locality.lacks_spare(volume, self._world.replicas_of(name))
        if not self._owner_of(volume) or (lacks_spare and not self._volumes.has_candidate(volume)):
            return False
        if self._busy.begin("attach", name):
            self._world.after("own_attach", self._attach, name)
        return True

    def _owner_of(self, volume: Raw) -> str:
        """Its owner, or the node that takes over from one that is not ready; "" if none can be attached to."""
        present = str((volume.get("status") or {}).get("ownerID") or "")
        owner = owners.pick(self._world.nodes(), self._world.dice.choice, present)
        replicas = self._world.replicas_of(str(volume["metadata"]["name"]))
        return owner if locality.may_attach(volume, replicas, owner) else ""

    def _attach(self, name: str) -> None:
        self._busy.end("attach", name)

        def edit(volume: Raw) -> bool:
            owner = self._owner_of(volume)
            if volume["spec"].get("nodeID") or not self._wants(volume) or not owner:
                return False
            volume["spec"].update(nodeID=owner, disableFrontend=True)
            return True

        volume = self._world.change(self._world.longhorn("volumes", name), edit)
        if volume is not None and not volume["spec"].get("nodeID") and self._wants(volume):
            self._world.timers.after(self._world.options.retry_seconds, self._again, name)

    def _fill(self, name: str) -> None:
        if self._busy.begin("fill", name):
            self._world.after("restore", self._filled, name)

    def _filled(self, name: str) -> None:
        if self._world.refusals.postpone(name, "filled", self._filled, name):
            return
        self._busy.end("fill", name)

        def edit(volume: Raw) -> bool:
            if not locality.is_filling(volume):
                return False
            status = volume["status"]
            status["restoreRequired"] = False
            if status.get("cloneStatus"):
                status["cloneStatus"]["state"] = "completed"
            return True

        self._world.change(self._world.longhorn("volumes", name), edit, status=True)

    def _release(self, name: str) -> None:
        """Detach it, unless a pod's attachment has taken it over."""

        def edit(volume: Raw) -> bool:
            if not locality.is_for_longhorn(volume):
                return False
            volume["spec"].update(nodeID="", disableFrontend=False)
            return True

        path = self._world.longhorn("volumes", name)
        if self._world.change(path, edit) is not None:
            close(self._world, name)
