"""The CSI attacher and Longhorn's attachment: a Kubernetes VolumeAttachment to `volume.spec.nodeID`, and back."""

from __future__ import annotations

from collections.abc import Callable

from tests.longhorn import locality, paths, tickets
from tests.longhorn.volumes import Volumes, settle_detached
from tests.longhorn.world import Busy, LonghornWorld, Raw, let_go, put

POLL_SECONDS = 0.5


class Attacher:
    """Follows attachments that kube-controller-manager makes and deletes. Threads: reflectors' and the pool's."""

    def __init__(self, world: LonghornWorld, volumes: Volumes, on_attached: Callable[[str], None]) -> None:
        self._world, self._volumes, self._on_attached = world, volumes, on_attached
        self._busy = Busy()  # attach and detach by the attachment's uid, start by the volume
        world.listen("attachments", self._on_attachment)
        world.listen("replicas", self._on_replica)
        world.listen("volumes", self._on_volume)

    def _on_attachment(self, verb: str, raw: Raw) -> None:
        if raw["spec"].get("attacher") != paths.DRIVER:
            return
        if verb == "DELETED" or raw["metadata"].get("deletionTimestamp"):
            if self._busy.begin("detach", raw["metadata"]["uid"]):
                self._world.after("detach", self._detach, raw)
        elif not (raw.get("status") or {}).get("attached") and self._busy.begin("attach", raw["metadata"]["uid"]):
            self._world.timers.now(self._mark, raw)
            self._world.after("attach", self._attach, raw)

    def _mark(self, raw: Raw) -> None:
        def edit(entry: Raw) -> bool:
            finalizers = entry["metadata"].setdefault("finalizers", [])
            if entry["metadata"].get("deletionTimestamp") or paths.ATTACH_FINALIZER in finalizers:
                return False
            finalizers.append(paths.ATTACH_FINALIZER)
            return True

        shown = (self._world.stores["attachments"].get(raw["metadata"]["name"]) or raw)["metadata"]
        if shown["uid"] != raw["metadata"]["uid"] or paths.ATTACH_FINALIZER not in (shown.get("finalizers") or ()):
            self._world.change(self._path(raw), edit)

    def _path(self, raw: Raw) -> str:
        return f"{paths.ATTACHMENTS}/{raw['metadata']['name']}"

    def _volume_of(self, raw: Raw) -> str:
        name = raw["spec"]["source"].get("persistentVolumeName", "")
        pv = self._world.stores["pvs"].get(name)
        return str(pv["spec"]["csi"]["volumeHandle"]) if pv is not None else str(name)

    def _attach(self, raw: Raw) -> None:
        """Give the volume its node, as soon as it exists and is free. Ends when the attachment is given up."""
        self._mark(raw)
        if not self._is_wanted(raw):
            return
        name, node = self._volume_of(raw), raw["spec"]["nodeName"]
        shown = self._world.volume(name)
        if shown is None:
            self._world.timers.after(POLL_SECONDS, self._attach, raw)
            return
        if tickets.are_kept(self._world, shown):
            tickets.hold(self._world, name, raw["metadata"]["name"], tickets.CSI, node)
            if not self._is_wanted(raw):
                self._detach(raw)
            return
        is_refused = False

        def edit(volume: Raw) -> bool:
            nonlocal is_refused
            here = volume["spec"].get("nodeID") or ""
            if here not in ("", node) and locality.may_migrate(volume, node):
                is_refused = False
                return put(volume["spec"], migrationNodeID=node)
            is_taken = here not in ("", node) and not locality.is_for_longhorn(volume)
            may_attach = locality.may_attach(volume, self._world.replicas_of(name), node)
            may_attach = may_attach and locality.has_device(volume)
            # Longhorn's own attachment for growth goes before a pod's, unless the pod was there first.
            is_growing = locality.is_expanding(volume) and (not here or locality.is_for_longhorn(volume))
            is_refused = is_taken or is_growing or locality.is_filling(volume) or not may_attach
            if is_refused or (here == node and not locality.is_for_longhorn(volume)):
                return False
            volume["spec"].update(nodeID=node, disableFrontend=False)
            return True

        volume = self._world.change(self._world.longhorn("volumes", name), edit)
        if volume is None or is_refused:
            self._world.timers.after(POLL_SECONDS, self._attach, raw)  # not there yet, or attached elsewhere still
        elif not self._is_wanted(raw):  # given up while we wrote
            self._detach(raw)
        elif volume["spec"].get("migrationNodeID") == node:
            self._world.after("start", self._started_target, name, node)
        elif locality.attached_node(volume):
            self._report(volume)
        else:
            self._begin(name)

    def _is_wanted(self, raw: Raw) -> bool:
        current = self._world.api.get_or_none(self._path(raw))
        return (
            current is not None
            and current["metadata"]["uid"] == raw["metadata"]["uid"]
            and not current["metadata"].get("deletionTimestamp")
        )

    def _on_replica(self, verb: str, raw: Raw) -> None:
        if verb != "DELETED" and raw["spec"].get("nodeID"):
            self._begin(str(raw["spec"]["volumeName"]))

    def _on_volume(self, verb: str, raw: Raw) -> None:
        if verb != "DELETED" and raw["spec"].get("nodeID"):
            self._begin(str(raw["metadata"]["name"]))

    def _begin(self, name: str) -> None:
        """Start the engine once the volume has a node and a placed replica: without one nothing can be attached."""
        volume = self._world.volume(name)
        if volume is None or not volume["spec"].get("nodeID"):
            return
        if locality.attached_node(volume) or self._world.refusals.postpone(name, "begin", self._begin, name):
            return
        if locality.starters(self._world.replicas_of(name)) and self._busy.begin("start", name):
            self._world.after("start", self._world.after, "beat", self._started, name)

    def _started(self, name: str) -> None:
        """The engine's monitor shows that it runs. How the volume is, a later sync finds out."""
        if self._world.refusals.postpone(name, "started", self._started, name):
            return
        self._busy.end("start", name)
        self._volumes.first_use(name)

        def edit(volume: Raw) -> bool:
            node = volume["spec"].get("nodeID")
            status = volume.setdefault("status", {})
            if not node or locality.attached_node(volume):
                return False
            status.update(state="attached", currentNodeID=node, ownerID=node, robustness="unknown")
            return True

        volume = self._world.change(self._world.longhorn("volumes", name), edit, status=True)
        if volume is not None and locality.attached_node(volume):
            self._report(volume)

    def _started_target(self, name: str, node: str) -> None:
        """The second engine runs, on the node that the volume migrates to."""
        if self._world.refusals.postpone(name, "target", self._started_target, name, node):
            return

        def edit(volume: Raw) -> bool:
            is_meant = volume["spec"].get("migrationNodeID") == node
            return is_meant and put(volume.setdefault("status", {}), currentMigrationNodeID=node)

        volume = self._world.change(self._world.longhorn("volumes", name), edit, status=True)
        if volume is not None and node in locality.engine_nodes(volume):
            self._report(volume)

    def _report(self, volume: Raw) -> None:
        name = str(volume["metadata"]["name"])
        if tickets.are_kept(self._world, volume):  # consumers wait until it is served
            self._on_attached(name)
            return
        for raw in self._world.stores["attachments"].snapshot().values():
            if self._volume_of(raw) == name and raw["spec"]["nodeName"] in locality.engine_nodes(volume):
                self._world.change(self._path(raw), tickets.set_attached, status=True)
        self._on_attached(name)

    def _detach(self, raw: Raw) -> None:
        current = self._world.api.get_or_none(self._path(raw))
        if current is not None and current["metadata"]["uid"] != raw["metadata"]["uid"]:
            return  # attached to the same node again already
        name, node = self._volume_of(raw), raw["spec"]["nodeName"]
        if tickets.are_kept(self._world, self._world.volume(name)):
            tickets.release(self._world, name, raw["metadata"]["name"])
            self._world.change(self._path(raw), lambda entry: let_go(entry, paths.ATTACH_FINALIZER))
            return

        def edit(volume: Raw) -> bool:
            spec = volume["spec"]
            target = spec.get("migrationNodeID") or ""
            if target == node:  # it stays where it was
                return put(spec, migrationNodeID="")
            if spec.get("nodeID") != node or locality.is_for_longhorn(volume):
                return False
            return put(spec, nodeID=target, migrationNodeID="")

        self._world.change(self._world.longhorn("volumes", name), edit)
        self._let_go(name, raw)

    def _let_go(self, name: str, raw: Raw) -> None:
        """The engine stops, and the attachment ends: only a sync that goes through tells of it."""
        if self._world.refusals.postpone(name, f"detach {raw['metadata']['uid']}", self._let_go, name, raw):
            return
        self._world.change(self._world.longhorn("volumes", name), _settle, status=True)
        self._world.change(self._path(raw), lambda entry: let_go(entry, paths.ATTACH_FINALIZER))


def _settle(volume: Raw) -> bool:
    """The status of a volume that a node was taken from: detached, or on the one that is left."""
    status, spec = volume.setdefault("status", {}), volume["spec"]
    node, second = str(spec.get("nodeID") or ""), str(status.get("currentMigrationNodeID") or "")
    if not node:
        status.update(currentMigrationNodeID="")
        return settle_detached(volume)
    if second not in ("", spec.get("migrationNodeID") or ""):  # it has migrated, or does not any more
        status.update(currentMigrationNodeID="", **({"currentNodeID": node, "ownerID": node} if second == node else {}))
        return True
    return False
