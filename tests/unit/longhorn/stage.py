"""The stand-in's controllers on an API server in memory and a clock that moves only when a test says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from tests.cluster.client import ApiClient
from tests.cluster.watch import Reflector
from tests.longhorn import paths
from tests.longhorn.attach import Attacher
from tests.longhorn.errands import Errands
from tests.longhorn.eviction import Eviction
from tests.longhorn.figures import FigureUpdates
from tests.longhorn.kubelet import Kubelet
from tests.longhorn.longhorn import add_node, disk_uuid
from tests.longhorn.nodes import Nodes
from tests.longhorn.options import GIB, PRESETS, Delay, Delays, DiskOptions, LonghornOptions
from tests.longhorn.provisioner import Provisioner
from tests.longhorn.resize import Resizer
from tests.longhorn.share_managers import ShareManagers
from tests.longhorn.volumes import Volumes
from tests.longhorn.world import LonghornWorld
from tests.unit.longhorn.memory import ManualTimers, MemoryApi, MemoryReflector

Raw = dict[str, Any]
NAMESPACE = "longhorn-system"
_NEVER = 100_000.0


class LonghornStage:
    """All controllers that have a part in placement, and nodes. Delays that are not named are 0."""

    def __init__(
        self,
        *nodes: str,
        preset: str = "",
        retry_seconds: float = _NEVER,
        share_managers: bool = False,
        runs_own_pods: bool = True,
        **delays: Delay,
    ) -> None:
        """`share_managers`: with these, and kubelets."""
        none: dict[str, Delay] = dict.fromkeys(vars(Delays()), 0.0)
        self.options = LonghornOptions(
            delays=Delays(**{**none, **PRESETS.get(preset, {}), **delays}),
            retry_seconds=retry_seconds,
            resync_seconds=_NEVER,
            share_managers=share_managers,
            runs_own_pods=runs_own_pods,
        )
        self.api = MemoryApi()
        self.timers = ManualTimers(self.api)
        self._names: dict[str, str] = {}  # of volumes, by what the steps call them
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
        self.nodes(*nodes)

    def run(self, seconds: float = 0.0) -> None:
        self.timers.advance(seconds)

    def play(self, steps: str) -> None:
        """Methods by name with their words, as in `node a 5; volume v replicas=2; run 0.1`; `-` is an empty word.

        Checks among them: `= v -,a attached on:a` has the nodes of the volume's copies (`*`: whatever they are) and
        some of `facts_of` it; `holds a 10`, `refused 3`, `gone v`.
        """
        for step in steps.split("; "):
            method, *words = step.split()
            if method == "=":
                shown = ",".join(place or "-" for place in self.places(words[0])), self.facts_of(words[0])
                assert words[1] in ("*", shown[0]) and set(words[2:]) <= shown[1], (step, self.timers.time, shown)
                continue
            named = dict(word.split("=", 1) for word in words if "=" in word)
            plain = [_value(word) for word in words if "=" not in word]
            getattr(self, method)(*plain, **{name: _value(word) for name, word in named.items()})

    # What there is

    def get(self, plural: str, name: str) -> Raw:
        return self.api.get(paths.longhorn(plural, NAMESPACE, self.named(name)))

    def named(self, volume: str) -> str:
        return self._names.get(volume, volume)

    def replicas(self, volume: str) -> list[Raw]:
        label = f"longhornvolume={self.named(volume)}"
        return cast(list[Raw], self.api.list(paths.longhorn("replicas", NAMESPACE), label_selector=label)["items"])

    def places(self, volume: str) -> list[str]:
        return sorted(str(entry["spec"]["nodeID"]) for entry in self.replicas(volume))

    def facts_of(self, volume: str) -> set[str]:
        """What is true of the volume, of its copies, its PV and its attachments, in words."""
        raw, copies = self.get("volumes", volume), [entry["spec"] for entry in self.replicas(volume)]
        spec, status, conditions = raw["spec"], raw.get("status") or {}, (raw.get("status") or {}).get("conditions")
        scheduled = [entry["status"] for entry in conditions or () if entry["type"] == "Scheduled"]
        pv = self.api.get_or_none(f"{paths.PVS}/{self.named(volume)}")
        affinity = (((pv or {}).get("spec") or {}).get("nodeAffinity") or {}).get("required")
        terms = affinity["nodeSelectorTerms"] if affinity else []
        attachments = [one["spec"]["nodeName"] for one in self.api.list(paths.ATTACHMENTS)["items"]]
        retries = sorted(int(copy.get("rebuildRetryCount") or 0) for copy in copies)
        return {
            str(status.get("state")),
            str(status.get("robustness")),
            f"on:{spec.get('nodeID') or ''}",  # where it is attached, or is to be
            f"owner:{status.get('ownerID')}",
            f"scheduled:{','.join(scheduled)}",
            f"frontend:{spec.get('frontend')}",
            f"sizes:{','.join(sorted({str(int(copy['volumeSize']) // GIB) for copy in copies}))}",
            f"copies:{len(copies)}",
            f"healthy:{sum(bool(copy['healthyAt']) for copy in copies)}",
            f"failed:{sum(bool(copy['failedAt']) for copy in copies)}",
            f"retries:{','.join(map(str, retries))}",
            "expanding" if status.get("expansionRequired") else "expanded",
            "no-pv" if pv is None else f"pv:{(pv['spec'].get('claimRef') or {}).get('name')}",
            f"affinity:{','.join(term['matchExpressions'][0]['values'][0] for term in terms)}",
            f"attachments:{','.join(attachments)}",
            "longhorns-own" if spec.get("disableFrontend") else "a-pods",
            "deleting" if "deletionTimestamp" in raw["metadata"] else "staying",
            "placed-first"
            if all(copy.get("dataDirectoryName") == "placed" for copy in copies)
            else "placed-by-longhorn",
        }

    def scheduled_gib(self, node: str) -> float:
        disk = self.get("nodes", node)["status"]["diskStatus"]["disk1"]
        return float(disk["storageScheduled"] / GIB)

    def holds(self, node: str, gib: float) -> None:
        assert gib == self.scheduled_gib(node)

    def refused(self, least: int, most: int = 0) -> None:
        assert least <= self.api.refusals <= max(least, most)

    def gone(self, volume: str) -> None:
        assert self.api.get_or_none(paths.longhorn("volumes", NAMESPACE, self.named(volume))) is None
        assert [] == self.replicas(volume)

    # What somebody does

    def change(self, plural: str, name: str, edit: Callable[[Raw], None], *, status: bool = False) -> None:
        path = paths.longhorn(plural, NAMESPACE, self.named(name))
        raw = self.api.get(path)
        edit(raw)
        self.api.replace(f"{path}/status" if status else path, raw)

    def spec(self, plural: str, name: str, **fields: object) -> None:
        self.change(plural, name, lambda raw: raw["spec"].update(fields))

    def status(self, volume: str, **fields: object) -> None:
        self.change("volumes", volume, lambda raw: raw["status"].update(fields), status=True)

    def nodes(self, *names: str) -> None:
        for name in names:
            self.node(name)

    def node(self, name: str, gib: int = 100) -> None:
        disk = DiskOptions(maximum_bytes=gib * GIB)
        add_node(cast(ApiClient, self.api), NAMESPACE, name, {"disk1": disk})
        self.run()

    def resize(self, node: str, gib: int) -> None:
        sizes = {"storageMaximum": gib * GIB, "storageAvailable": gib * GIB}
        self.change("nodes", node, lambda raw: raw["status"]["diskStatus"]["disk1"].update(sizes), status=True)

    def cordon(self, node: str) -> None:
        self.spec("nodes", node, allowScheduling=False)

    def uncordon(self, node: str) -> None:
        self.spec("nodes", node, allowScheduling=True)

    def close(self) -> None:
        """Nothing gets its first place until `open`."""
        self.api.is_closed = True

    def open(self) -> None:
        self.api.is_closed = False

    def volume(
        self, name: str, gib: int = 10, *, locality: str = "best-effort", replicas: int = 1, node: str = "", **spec: Any
    ) -> None:
        own: Raw = {"size": str(gib * GIB), "numberOfReplicas": replicas, "dataLocality": locality, "nodeID": node}
        self.volumes.create(name, own | spec)

    def provision(self, **parameters: object) -> Raw:
        """The claim `data`, with a node, of a class with these parameters; its volume is called v."""
        chosen = {"dataLocality": "best-effort", "numberOfReplicas": 1, **parameters}
        wanted = {name: str(value) for name, value in chosen.items()}
        meta: Raw = {"name": "class"}
        self.api.create(paths.CLASSES, {"metadata": meta, "provisioner": paths.DRIVER, "parameters": wanted})
        claim = {
            "metadata": {"name": "data", "annotations": {paths.PROVISIONER: paths.DRIVER, paths.SELECTED_NODE: "a"}},
            "spec": {"storageClassName": "class", "resources": {"requests": {"storage": "10Gi"}}},
        }
        made = self.api.create("/api/v1/namespaces/ns/persistentvolumeclaims", claim)
        self._names["v"] = f"pvc-{made['metadata']['uid']}"
        return made

    def pod(self, volume: str, node: str) -> None:
        """A pod there uses the volume: kube-controller-manager asks for its attachment."""
        spec = {"attacher": paths.DRIVER, "nodeName": node, "source": {"persistentVolumeName": self.named(volume)}}
        self.api.create(paths.ATTACHMENTS, {"metadata": {"name": f"{volume}-{node}"}, "spec": spec})

    def no_pod(self, volume: str, node: str) -> None:
        """That pod ends."""
        self.api.delete(f"{paths.ATTACHMENTS}/{volume}-{node}")

    def attach(self, volume: str, node: str) -> None:
        """As Longhorn's attachment for a pod would."""
        self.spec("volumes", volume, nodeID=node)

    def detach(self, volume: str) -> None:
        self.attach(volume, "")
        self.status(volume, state="detached")

    def own(self, volume: str, node: str) -> None:
        self.status(volume, ownerID=node)

    def grow(self, volume: str, gib: int) -> None:
        self.spec("volumes", volume, size=str(gib * GIB))

    def delete(self, volume: str) -> None:
        self.volumes.delete(self.named(volume))

    def touch(self, volume: str) -> None:
        """Somebody writes the volume and its copies, and changes nothing that matters."""
        self.spec("volumes", volume, staleReplicaTimeout=1)
        for copy in self.replicas(volume):
            self.spec("replicas", copy["metadata"]["name"], evictionRequested=False)

    def evict(self, volume: str) -> None:
        """Its only copy has to leave its disk."""
        (copy,) = self.replicas(volume)
        self.spec("replicas", copy["metadata"]["name"], evictionRequested=True)
        self.volumes.consider(self.named(volume))

    def fail(self, volume: str, node: str) -> None:
        """Its copy there fails."""
        (copy,) = (entry for entry in self.replicas(volume) if entry["spec"]["nodeID"] == node)
        self.spec("replicas", copy["metadata"]["name"], failedAt="2026-01-01T00:00:00Z")
        self.volumes.consider(self.named(volume))

    def lose_others(self, volume: str, node: str) -> None:
        """Its copies elsewhere are deleted."""
        for copy in self.replicas(volume):
            if copy["spec"]["nodeID"] != node:
                self.api.delete(paths.longhorn("replicas", NAMESPACE, copy["metadata"]["name"]))

    def place_first(self, volume: str, node: str) -> None:
        """Somebody else than Longhorn gives a copy its place."""

        def edit(raw: Raw) -> None:
            uuid, path = disk_uuid(node, "disk1"), "/var/lib/longhorn/disk1"
            raw["spec"].update(nodeID=node, diskID=uuid, diskPath=path, dataDirectoryName="placed")
            raw["metadata"]["labels"].update(longhornnode=node, longhorndiskuuid=uuid)

        waiting = next(entry for entry in self.replicas(volume) if not entry["spec"]["nodeID"])
        self.change("replicas", waiting["metadata"]["name"], edit)


def play(steps: str) -> LonghornStage:
    """All of these steps, on a stage that is made with the first one's words: `stage write=0.1; nodes a; ...`."""
    first, _, rest = steps.partition("; ")
    named = dict(word.split("=", 1) for word in first.split()[1:])
    stage = LonghornStage(**{name: _value(word) for name, word in named.items()})
    stage.play(rest)
    assert [] == stage.timers.failures
    return stage


def _value(word: str) -> Any:
    """A number, a truth value, or the word as it is."""
    if word.replace(".", "", 1).isdecimal():
        return float(word) if "." in word else int(word)
    return word == "True" if word in ("True", "False") else "" if word == "-" else word
