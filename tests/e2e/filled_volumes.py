"""Volumes that Longhorn fills from a backup or from another volume: their claims and pods in one cell, and what becomes
of them. All of it is read from the API server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tests.cluster.client import Object
from tests.e2e import workloads
from tests.e2e.harness import CLASSES, Cell, Scene
from tests.e2e.history_facts import SELECTED_NODE
from tests.e2e.late_volumes import NOWHERE, WAIT_SECONDS, PlansSeen, Spots, copies
from tests.e2e.manager_writes import made_object, unplaced_replica
from tests.e2e.placed import REPLICAS
from tests.e2e.scheduling import NAMESPACE
from tests.e2e.view import CLAIMS, LONGHORN_VOLUMES, PODS, VOLUMES
from tests.judge.facts import PLANS, copy_facts, plan_stored
from tests.judge.reading import stored_places
from tests.longhorn import paths
from tests.longhorn.classes import volume_spec
from tests.longhorn.longhorn import set_disk
from tests.longhorn.options import GIB, DiskOptions
from tests.waiting import wait_until

SIZE_GIB: Final = 10  # of every volume, unless it is told
BLOCK_GIB: Final = 40
V2: Final = {"dataEngine": "v2"}
SOURCE: Final = "source"
BLOCK_SOURCE: Final = "block-source"


@dataclass(frozen=True)
class FilledKind:
    """Where a volume's data comes from, and how it is kept."""

    filled: str  # "restored", "cloned" or "linked"; "" for a new volume
    locality: str = "best-effort"
    copies: int = 1

    def __str__(self) -> str:
        return f"{self.filled}-{self.locality}-{self.copies}"


@dataclass
class FilledCell:
    """A cell, and the volumes of its claims. Linked clones need the v2 engine, and so block disks."""

    cell: Cell
    plans: PlansSeen
    volumes: dict[str, str] = field(default_factory=dict)  # by claim
    pods: dict[str, str] = field(default_factory=dict)  # by claim
    attached: dict[str, dict[str, None]] = field(default_factory=dict)  # by volume, where Longhorn did so by itself
    made: dict[str, set[str]] = field(default_factory=dict)  # by volume, all Replicas that ever were

    @property
    def scene(self) -> Scene:
        return self.cell.scene

    # Objects

    def add_block_disks(self) -> None:
        """One more disk on each node, and the engine that uses it."""
        self.scene.api.patch(paths.longhorn("settings", NAMESPACE, "v2-data-engine"), {"value": "true"})
        disk = DiskOptions(maximum_bytes=BLOCK_GIB * GIB, type="block", filesystem="")
        for node in self.cell.nodes:
            set_disk(self.scene.api, NAMESPACE, node, "disk2", disk)

    def add_class(self, name: str, kind: FilledKind, parameters: dict[str, str] | None = None) -> str:
        return self.cell.add_class(name, locality=kind.locality, replicas=kind.copies, parameters=parameters)

    def add_backup(self, name: str) -> str:
        """Its URL; it is as large as most volumes are."""
        name = f"backup-{self.cell.name}-{name}"
        self.scene.api.create(paths.longhorn("backups", NAMESPACE), made_object("Backup", name, {}))
        url = f"s3://bucket@region/?backup={name}&volume=any"
        status = {"url": url, "volumeSize": str(SIZE_GIB * GIB)}
        self.scene.api.patch(f"{paths.longhorn('backups', NAMESPACE, name)}/status", {"status": status})
        return url

    def add_claim(
        self, name: str, class_name: str, source: str = "", *, gib: int = SIZE_GIB, by_longhorn: bool = True
    ) -> None:
        """`source`: the claim of which it is to be a clone. `by_longhorn`: it makes the volume."""
        made = workloads.claim(name, class_name, gib)
        if source:
            made["spec"]["dataSource"] = {"kind": "PersistentVolumeClaim", "name": source}
        if not by_longhorn:
            made["metadata"]["annotations"] = {paths.LATE: ""}
        self.volumes[name] = f"pvc-{self.cell.create('persistentvolumeclaims', made)['metadata']['uid']}"

    def add_pod(self, name: str, *claims: str, **options: Any) -> None:
        self.cell.pod(name, *claims, **options)
        self.pods.update(dict.fromkeys(claims, name))

    def add_kind(self, kind: FilledKind, **options: Any) -> None:
        """A class, a claim and a pod of the kind's name. Linked clones are to be made by `make_linked`."""
        name, source, parameters = str(kind), "", dict[str, str]()
        if kind.filled == "restored":
            parameters = {"fromBackup": self.add_backup(name)}
        elif kind.filled == "linked":
            parameters, source = {**V2, "cloneMode": "linked-clone"}, BLOCK_SOURCE
        elif kind.filled == "cloned":
            source = SOURCE
        class_name = self.add_class(name, kind, parameters)
        self.add_claim(name, class_name, source, by_longhorn=kind.filled != "linked")
        self.add_pod(name, name, **options)

    def plan_kinds(self, kinds: Sequence[FilledKind]) -> None:
        """All that `add_kind` does, and wait until their copies are planned."""
        for kind in kinds:
            self.add_kind(kind)
        for kind in kinds:
            self.wait_planned(str(kind), kind.copies)

    def plan_new(self, name: str, class_name: str) -> None:
        """A pod with a new volume, once that is planned."""
        self.add_claim(name, class_name)
        self.add_pod(name, name)
        self.wait_planned(name, 1)

    def add_sources(self) -> None:
        """What clones are made of: volumes that are in use, one of them with copies on three block disks."""
        self.add_claim(SOURCE, self.add_class(SOURCE, FilledKind("")))
        self.add_claim(BLOCK_SOURCE, self.add_class(BLOCK_SOURCE, FilledKind("", "disabled", 3), V2))
        self.add_pod(SOURCE, SOURCE)
        self.add_pod(BLOCK_SOURCE, BLOCK_SOURCE)
        self.cell.wait_ready(2, WAIT_SECONDS)
        self.wait_copies(BLOCK_SOURCE, 3)

    def make_linked(self, kind: FilledKind, owner: str) -> None:
        """While Longhorn stands still: a linked clone as its CSI plugin and its controller leave it, which the stand-in
        cannot make. All its copies are there from the start."""
        api, volume, source = self.scene.api, self.volumes[str(kind)], self.volumes[BLOCK_SOURCE]
        claim = api.get(self.cell.path("persistentvolumeclaims", str(kind)))
        storage_class = api.get(f"{CLASSES}/{claim['spec']['storageClassName']}")
        spec = volume_spec(storage_class["parameters"], claim, {})
        spec |= {"cloneMode": "linked-clone", "dataSource": f"vol://{source}"}
        made = made_object("Volume", volume, spec)
        made["metadata"] |= {"labels": {"longhornvolume": volume}, "finalizers": [paths.FINALIZER]}
        stored = api.create(paths.longhorn("volumes", NAMESPACE), made)
        filling = {"sourceVolume": source, "state": "initiated"}
        stored["status"] = {"state": "detached", "robustness": "unknown", "ownerID": owner, "cloneStatus": filling}
        api.replace(f"{paths.longhorn('volumes', NAMESPACE, volume)}/status", stored)
        for number in range(kind.copies):
            copy = unplaced_replica(f"{volume}-r-{number}", volume, int(spec["size"]), dataEngine="v2")
            api.create(REPLICAS, copy)
        api.create(paths.PVS, _persistent_volume(volume, claim))

    # What is to be seen

    def spots(self, claim: str) -> Spots:
        """Where its copies lie."""
        found = (copy_facts(one).spot for one in copies(self.scene, self.volumes[claim]))
        return frozenset(spot for spot in found if spot is not None)

    def planned(self, claim: str) -> list[Spots]:
        """Where they were planned, one after the other."""
        return [spots for spots in self.plans.of(self.volumes[claim]) if spots]

    def node_of(self, claim: str) -> str:
        """Its pod's node."""
        pod = self.scene.view.get(PODS, f"{self.cell.namespace}/{self.pods[claim]}") or {"spec": {}}
        return str(pod["spec"].get("nodeName") or "")

    def chosen_node(self, claim: str) -> str:
        found = self.scene.view.get(CLAIMS, f"{self.cell.namespace}/{claim}") or {"metadata": {}}
        return str((found["metadata"].get("annotations") or {}).get(SELECTED_NODE, ""))

    def bound_to(self, claim: str) -> str:
        """The node that its PersistentVolume is bound to."""
        pv = self.scene.view.get(VOLUMES, self.volumes[claim]) or {"spec": {}}
        terms = ((pv["spec"].get("nodeAffinity") or {}).get("required") or {}).get("nodeSelectorTerms") or ()
        return next((str(one["values"][0]) for term in terms for one in term["matchExpressions"]), "")

    def volume(self, claim: str) -> Object:
        return self.scene.view.get(LONGHORN_VOLUMES, f"{NAMESPACE}/{self.volumes[claim]}") or {}

    def wait_planned(self, claim: str, count: int) -> None:
        def is_planned() -> bool:
            return len((self.plans.of(self.volumes[claim]) or [NOWHERE])[-1]) == count

        wait_until(is_planned, f"{count} planned copies of {claim}", WAIT_SECONDS)

    def wait_copies(self, claim: str, count: int) -> None:
        wait_until(lambda: len(self.spots(claim)) == count, f"{count} copies of {claim}", WAIT_SECONDS)

    def wait_bound_to(self, claim: str) -> str:
        """The node that its PersistentVolume is bound to, once it is."""
        return wait_until(lambda: self.bound_to(claim), f"a PersistentVolume of {claim} with a node", WAIT_SECONDS)

    def read_history(self) -> None:
        """All that happened to the volumes up to now."""
        lines = stored_places(self.scene.cluster.history, self.scene.cluster.history_caught_up())
        for kind, raw in ((line["kind"], line["object"]) for line in lines if line["object"]):
            spec = raw.get("spec") or {}
            if kind == "Volume" and spec.get("disableFrontend") and spec.get("nodeID"):
                self.attached.setdefault(raw["metadata"]["name"], {})[spec["nodeID"]] = None
            if kind == "Replica" and spec:
                self.made.setdefault(spec["volumeName"], set()).add(raw["metadata"]["name"])


def stored_plans(scene: Scene) -> list[str]:
    """The volumes of all plans that stand in the ConfigMaps."""
    found = scene.api.list(f"/api/v1/namespaces/{NAMESPACE}/configmaps")["items"]
    texts = ((one.get("data") or {}).get("plans", "") for one in found if one["metadata"]["name"].startswith(PLANS))
    return [plan.volume for text in texts for plan in map(plan_stored, text.splitlines()) if plan]


def _persistent_volume(name: str, claim: Object) -> Object:
    meta, spec = claim["metadata"], claim["spec"]
    reference = {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {
            "name": name,
            "annotations": {paths.PROVISIONED_BY: paths.DRIVER},
            "finalizers": [paths.PV_FINALIZER],
        },
        "spec": {
            "accessModes": spec["accessModes"],
            "capacity": spec["resources"]["requests"],
            "claimRef": {**reference, **{part: meta[part] for part in ("namespace", "name", "uid")}},
            "csi": {"driver": paths.DRIVER, "fsType": "ext4", "volumeHandle": name},
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": spec["storageClassName"],
        },
    }
