"""Growth: the external resizer, Longhorn's API for it, and its volume controller, without any lock among them.

A claim that asks for more than its PV has -> CSI service, API and the webhook of volumes look at the volume's state,
the API at the space with the figures of that moment too, and the volume's new size is written -> the volume controller
checks the space again and enlarges every replica -> the PV and the claim's status say so. The engine grows only while
the volume is attached, which `errands` sees to (`volume_expansion_controller.go`). Each step that fails is tried again.
Two volumes on one disk may pass the same check: that is the race.

Not imitated: the file system.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from tests.cluster.client import ApiError
from tests.longhorn import locality, paths
from tests.longhorn.classes import requested_bytes, rounded
from tests.longhorn.expansion import check_expansion, check_space, is_admitted
from tests.longhorn.quantity import quantity_bytes
from tests.longhorn.state import SearchState
from tests.longhorn.world import Busy, LonghornWorld, Raw, put

logger = logging.getLogger(__name__)

RETRY_SECONDS = 1.0


class Resizer:
    """Threads: reflectors' and the pool's; one at a time for one claim and for one volume."""

    def __init__(self, world: LonghornWorld) -> None:
        self._world = world
        self._busy = Busy()  # claim by its key, volume and engine by the volume
        world.listen("claims", self._on_claim)
        world.listen("volumes", self._on_volume)
        world.listen_by_replica(self._on_volume, lambda verb, _: verb != "DELETED")

    # The external resizer, and the CSI controller that it calls

    def _on_claim(self, verb: str, claim: Raw) -> None:
        if verb == "DELETED" or not claim["spec"].get("volumeName"):
            return
        key = f"{claim['metadata']['namespace']}/{claim['metadata']['name']}"
        if requested_bytes(claim) > _capacity(claim.get("status") or {}) > 0 and self._busy.begin("claim", key):
            self._world.after("resize", self._resize, key)

    def _resize(self, key: str) -> None:
        """One try of ControllerExpandVolume; again until the claim has what it asks for, or asks for less."""
        claim = self._world.stores["claims"].get(key)
        pv = self._world.stores["pvs"].get((claim or {"spec": {}})["spec"].get("volumeName") or "")
        if claim is not None and pv is None:
            self._world.timers.after(RETRY_SECONDS, self._resize, key)  # not seen yet
            return
        if claim is None or pv is None or (pv["spec"].get("csi") or {}).get("driver") != paths.DRIVER:
            self._busy.end("claim", key)
            return
        wanted = requested_bytes(claim)
        name = str(pv["spec"]["csi"]["volumeHandle"])
        if wanted > _capacity(pv["spec"]):
            self.expand(name, wanted)
            if not self._is_as_large(name, wanted):
                self._world.timers.after(RETRY_SECONDS, self._resize, key)
                return
            self._world.change(f"{paths.PVS}/{pv['metadata']['name']}", _set_capacity("spec", rounded(wanted)))
        # NodeExpandVolume is taken to have been done.
        path = paths.claim(*key.split("/", 1))
        self._world.change(path, _set_capacity("status", max(wanted, _capacity(pv["spec"]))), status=True)
        self._busy.end("claim", key)
        current = self._world.api.get_or_none(path)
        if current is not None:
            self._on_claim("MODIFIED", current)  # it may have grown again meanwhile

    def _is_as_large(self, name: str, wanted: int) -> bool:
        volume = self._world.api.get_or_none(self._world.longhorn("volumes", name))
        replicas = self._world.replicas_of(name)
        return (
            volume is not None
            and int(volume["spec"]["size"]) >= wanted
            and not (volume.get("status") or {}).get("expansionRequired")
            and all(int(replica["spec"]["volumeSize"]) >= wanted for replica in replicas)
        )

    def expand(self, name: str, wanted: int) -> None:
        """Longhorn's API: check, then write the volume's size. What is refused on the way is only logged."""
        volume = self._world.api.get_or_none(self._world.longhorn("volumes", name))
        size = rounded(wanted)
        if volume is None or size <= int(volume["spec"]["size"]):
            return
        said = check_expansion(self._state(name), volume, size)
        if not is_admitted(said):
            reasons = sorted({entry.reason for entry in said if entry.reason})
            logger.info("volume %s does not grow to %d bytes: %s", name, size, ", ".join(reasons))
            return

        def edit(raw: Raw) -> bool:
            is_larger = int(raw["spec"]["size"]) < size
            raw["spec"]["size"] = str(size)
            return is_larger

        try:
            self._world.change(self._world.longhorn("volumes", name), edit)
        except ApiError as error:
            if not error.forbidden:
                raise
            logger.info("volume %s: refused by admission: %s", name, error)

    # The volume controller

    def _on_volume(self, verb: str, volume: Raw) -> None:
        name = str(volume["metadata"]["name"])
        if verb == "DELETED":
            return
        if self._is_growing(volume):
            if self._busy.begin("volume", name):
                self._world.after("placement", self._grow, name)
        elif locality.is_expanding(volume) and locality.attached_node(volume) and self._busy.begin("engine", name):
            self._world.after("expand", self._world.after, "beat", self._grown, name)

    def _is_growing(self, volume: Raw) -> bool:
        size = int(volume["spec"]["size"])
        replicas = self._world.replicas_of(str(volume["metadata"]["name"]))
        return any(0 < int(replica["spec"].get("volumeSize") or 0) < size for replica in replicas)

    def _grow(self, name: str) -> None:
        if self._world.refusals.postpone(name, "grow", self._grow, name):
            return
        volume = self._world.api.get_or_none(self._world.longhorn("volumes", name))
        if volume is None or not self._is_growing(volume):
            self._busy.end("volume", name)
            return
        size, old = int(volume["spec"]["size"]), min(self._sizes(name))
        before = {**volume, "spec": {**volume["spec"], "size": str(old)}}
        if self._world.asked is not None:
            has_room = self._world.asked.expand_volume(name, size)
        else:
            has_room = is_admitted(check_space(self._state(name), before, size))
        if not has_room:
            logger.info("volume %s: %d bytes do not fit now", name, size)
            self._world.timers.after(RETRY_SECONDS, self._grow, name)
            return
        self._world.change(self._world.longhorn("volumes", name), lambda raw: _set_expanding(raw, True), status=True)
        for replica in self._world.replicas_of(name):
            self._world.change(self._world.longhorn("replicas", replica["metadata"]["name"]), _enlarge(size))
        self._again("volume", name)

    def _grown(self, name: str) -> None:
        """The engine has the new size, if it still runs."""
        if self._world.refusals.postpone(name, "grown", self._grown, name):
            return

        def edit(volume: Raw) -> bool:
            return bool(locality.attached_node(volume)) and _set_expanding(volume, False)

        self._world.change(self._world.longhorn("volumes", name), edit, status=True)
        self._again("engine", name)

    def _again(self, kind: str, name: str) -> None:
        self._busy.end(kind, name)
        volume = self._world.api.get_or_none(self._world.longhorn("volumes", name))
        if volume is not None:
            self._on_volume("MODIFIED", volume)

    def _sizes(self, name: str) -> list[int]:
        return [int(replica["spec"]["volumeSize"]) for replica in self._world.replicas_of(name)]

    def _state(self, name: str) -> SearchState:
        """The figures as the informers show them now, which is behind what others have just written."""
        return SearchState(
            nodes=self._world.nodes(), replicas=tuple(self._world.replicas_of(name)), settings=self._world.settings()
        )


def _capacity(part: Raw) -> int:
    return quantity_bytes((part.get("capacity") or {}).get("storage", "0"))


def _enlarge(size: int) -> Callable[[Raw], bool]:
    def edit(raw: Raw) -> bool:
        old = int(raw["spec"].get("volumeSize") or 0)
        raw["spec"]["volumeSize"] = str(max(size, old))
        return old < size

    return edit


def _set_expanding(volume: Raw, is_expanding: bool) -> bool:
    return put(volume.setdefault("status", {}), expansionRequired=is_expanding)


def _set_capacity(part: str, size: int) -> Callable[[Raw], bool]:
    def edit(raw: Raw) -> bool:
        old = _capacity(raw.get(part) or {})
        raw.setdefault(part, {}).setdefault("capacity", {})["storage"] = str(size)
        return old < size

    return edit
