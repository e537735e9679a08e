"""Questions of a document, checked and answered; docs/plan-format.md describes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Final

from controller.allocator.plans.shared_claims import SharedClaims
from controller.allocator.plans.table import Table
from controller.allocator.world.world import World
from controller.errors import MalformedRequestError
from controller.model.longhorn import Replica, Volume
from controller.model.names import LONGHORN_DRIVER
from controller.model.quantity import MAX_BYTES, bytes_text, quantity_bytes
from controller.model.reader import Raw, integer_at, list_at, mapping_at, shown, text_at, texts_at
from controller.model.workload import Pod
from controller.plan.answers import Json, encode_expansion, encode_fit, encode_step
from controller.plan.complaints import InputError, Notes
from controller.plan.fit import GivenPromise, fit_nowhere, fit_pod, put_promises
from controller.plan.input import IMAGE_COPIES, TOPOLOGY_KEYS, Document
from controller.plan.objects import NeededObjects, world_of
from controller.rules.candidates import PlacementView
from controller.rules.demand import VolumeDemand, claim_for, demand_of_claim, demands_of_pod
from controller.rules.growth import plan_expansion
from controller.rules.preference import schedule_replicas
from controller.rules.provisioning import MADE_IMAGES

MOST_REPLICAS: Final = 100  # of one question; Longhorn has no more than 20 of a volume
_PARTS: Final = {
    "schedule": frozenset({"volume", "replicas"}),
    "expand": frozenset({"volume", "claim", "size"}),
    "fit": frozenset({"pod", "nodes", "promises"}),
}
_KINDS: Final = {
    "claim": "PersistentVolumeClaim",
    "class": "StorageClass",
    "pv": "PersistentVolume",
    "volume": "Volume",
    "backup": "Backup",
}


class Questions:
    """The questions of one document. `path` is a question's place there."""

    def __init__(self, document: Document, notes: Notes) -> None:
        self._document, self._objects, self._notes = document, document.objects, notes

    def answer(self, raw: object, where: str) -> Json:
        """The answer to the question that stands there; InputError names the field, or the object and its field."""
        if raw is None:
            raise InputError("", where, "is missing")
        if not isinstance(raw, Mapping):
            raise InputError("", where, "is not an object")
        if len(raw) != 1 or not raw.keys() <= _PARTS.keys():
            raise InputError("", where, f"is not exactly one of {', '.join(_PARTS)}")
        (kind,) = raw
        answers = {"schedule": self._schedule, "expand": self._expand, "fit": self._fit}
        try:
            details = mapping_at(raw, where, kind)
            _check_names(details, f"{where}.{kind}", _PARTS[kind])
            return answers[kind](details, f"{where}.{kind}")
        except MalformedRequestError as error:
            raise InputError("", error.field, error.problem) from error

    @cached_property
    def _world(self) -> World:
        return world_of(self._objects, self._document.settings)

    @cached_property
    def _needed(self) -> NeededObjects:
        return NeededObjects(self._objects, self._world)

    def _schedule(self, details: Raw, path: str) -> Json:
        """Where Longhorn would place these replicas, one after the other."""
        document, world, volume = self._document, self._world, self._volume(details, path)
        own = {replica.name: _sized(replica, volume) for replica in self._replicas_of(volume.name)}
        replicas = [own[name] for name in self._replica_names(details, path, volume)]
        view = PlacementView(
            nodes=world.nodes,
            replicas=tuple(own.values()),
            settings=document.settings,
            backing_image=self._needed.backing_image(volume.backing_image),
            engines=world.engines,
            kube_nodes=world.kube_nodes or None,
            source_replicas=self._replicas_of(volume.source_volume),
            now_utc=document.now_utc,
        )
        return {"steps": [encode_step(step) for step in schedule_replicas(view, volume, replicas)]}

    def _replica_names(self, details: Raw, path: str, volume: Volume) -> Sequence[str]:
        if details.get("replicas") is None:
            raise MalformedRequestError(f"{path}.replicas", "is missing")
        names = texts_at(details, path, "replicas")
        if len(names) > MOST_REPLICAS:
            raise MalformedRequestError(f"{path}.replicas", f"are more than {MOST_REPLICAS}")
        for index, name in enumerate(names):
            self._objects.need("replica", name)
            replica = self._world.replicas.get(name)
            if replica is None or replica.volume != volume.name:
                raise MalformedRequestError(f"{path}.replicas[{index}]", f"volume {volume.name} has no Replica {name}")
        return names

    def _replicas_of(self, volume: str) -> tuple[Replica, ...]:
        """Its replicas, on nodes that could be read."""
        found = tuple(self._needed.replicas_of(volume).values()) if volume else ()
        for replica in found:
            self._objects.need("node", replica.node)
        return found

    def _volume(self, details: Raw, path: str) -> Volume:
        name = _required_text(details, path, "volume")
        volume = self._needed.volume(name)
        if volume is None:
            raise MalformedRequestError(f"{path}.volume", f"there is no Volume {name}")
        if volume.size_bytes <= 0:
            raise InputError(self._objects.names["volume", name], "spec.size", "is missing or 0")
        return volume

    def _expand(self, details: Raw, path: str) -> Json:
        """Whether the volume may grow to that size, and how far it may grow."""
        settings, notes = self._document.settings, self._notes
        volume = self._volume(details, path) if details.get("claim") is None else self._volume_of_claim(details, path)
        size_bytes = volume.size_bytes if details.get("size") is None else _amount(details, path, "size")
        replicas, wanted = self._replicas_of(volume.name), volume.replica_count
        if len(replicas) < wanted:
            found = f"{len(replicas)} of its {wanted} Replicas" if replicas else "no Replica of it"
            notes.remark(f"{path}: {found} in objects, so that no other disk is asked: {volume.name}")
        if size_bytes < volume.size_bytes:
            least, size = bytes_text(size_bytes), bytes_text(volume.size_bytes)
            notes.remark(f"{path}: {least} is less than the present {size}, so that nothing grows")
        return encode_expansion(
            plan_expansion(self._world.nodes, volume, replicas, size_bytes, settings.space, settings.behaviour)
        )

    def _volume_of_claim(self, details: Raw, path: str) -> Volume:
        """The volume that the named claim is bound to."""
        if details.get("volume") is not None:
            raise MalformedRequestError(f"{path}.claim", "stands there beside volume")
        key = _required_text(details, path, "claim")
        claim = self._needed.claim(*key.split("/", 1)) if "/" in key else None
        if claim is None:
            problem = f"there is no PersistentVolumeClaim {key}; it is written namespace/name"
            raise MalformedRequestError(f"{path}.claim", problem)
        if not claim.volume_name:
            raise MalformedRequestError(f"{path}.claim", f"{key} has no volume yet")
        pv = self._needed.pv(claim.volume_name)
        if pv is None:
            raise MalformedRequestError(f"{path}.claim", f"there is no PersistentVolume {claim.volume_name} of {key}")
        if pv.driver != LONGHORN_DRIVER:
            raise MalformedRequestError(f"{path}.claim", f"the volume of {key} is not Longhorn's")
        self._note_class(claim.class_name or "", f"{path}.claim")
        return self._volume({"volume": pv.handle}, path)

    def _note_class(self, name: str, path: str) -> None:
        """What Kubernetes says before Longhorn is asked. Where no class is known, nothing."""
        known = self._objects.by_kind["class"]
        if not known or ("class", name) in self._objects.unread or (name in known and known[name].allows_growth):
            return
        why = "has no allowVolumeExpansion" if name in known else "is not in objects"
        self._notes.remark(
            f"{path}: StorageClass {name or 'of no name'} {why}; Kubernetes refuses the growth of its claims"
        )

    def _fit(self, details: Raw, path: str) -> Json:
        """On which of these nodes a filter call finds room for the pod's volumes."""
        key = _required_text(details, path, "pod")
        self._objects.need("pod", key)
        pod: Pod | None = self._objects.by_kind["pod"].get(key)
        if pod is None:
            raise MalformedRequestError(f"{path}.pod", f"there is no Pod {key}; it is written namespace/name")
        if details.get("nodes") is None:
            raise MalformedRequestError(f"{path}.nodes", "is missing")
        nodes = texts_at(details, path, "nodes")
        for index, name in enumerate(nodes):
            self._check_node(name, f"{path}.nodes[{index}]")
        given = enumerate(list_at(details, path, "promises"))
        promises = [self._promise(raw, f"{path}.promises[{index}]") for index, raw in given]
        foreign = self._foreign_claim(pod)
        if foreign:
            return encode_fit(
                fit_nowhere(nodes, f"claim {foreign}: was not made for the pod: kube-scheduler refuses it")
            )
        demands = self._demands(pod)
        lost = set(put_promises(self._world, Table(), demands, promises))
        for index, promise in enumerate(promises):
            if promise in lost:
                problem = f"no disk of {promise.node} has room for {bytes_text(promise.size_bytes)}"
                self._notes.remark(f"{path}.promises[{index}]: {problem}, so that it counts as nothing")
        limit, names = SharedClaims(self._world, Table()).limit_of(pod, demands), sorted(set(nodes))
        return encode_fit(fit_pod(self._world, demands, names, promises, self._document.now_utc, limit))

    def _foreign_claim(self, pod: Pod) -> str:
        """The key of a claim that stands where kube-controller-manager would make one for the pod; "" without one."""
        for volume in pod.volumes:
            claim = self._needed.claim(pod.namespace, volume.claim)
            if claim is not None and claim_for(pod, volume, self._needed) is None:
                return claim.key
        return ""

    def _check_node(self, name: str, path: str) -> None:
        self._objects.need("node", name)
        self._objects.need("kube_node", name)
        if name not in self._world.nodes and name not in self._world.kube_nodes:
            raise MalformedRequestError(path, f"there is no node {name}, neither Longhorn's nor Kubernetes'")

    def _promise(self, raw: object, path: str) -> GivenPromise:
        entry = mapping_at(raw, path)
        _check_names(entry, path, frozenset({"node", "volume", "size"}))
        node = _required_text(entry, path, "node")
        self._check_node(node, f"{path}.node")
        return GivenPromise(node, _required_text(entry, path, "volume"), _amount(entry, path, "size"))

    def _demands(self, pod: Pod) -> list[VolumeDemand]:
        """What the pod's volumes need. What it refers to and is not among the objects does not exist, and needs
        nothing: a lenient answer is given without it."""
        world, notes = self._world, self._notes
        needed, settings = self._needed, self._document.settings
        demands, missing = demands_of_pod(pod, needed, lambda claim: demand_of_claim(claim, needed, settings))
        for entry in missing:
            where = f"{entry.namespace}/{entry.name}" if entry.namespace else entry.name
            so_that = "so that the volume counts as large as is requested"
            as_what = so_that if entry.kind == "backup" else "which counts as nothing"
            problem = f"there is no {_KINDS[entry.kind]} {where} in objects"
            notes.pass_over(InputError(f"Pod {pod.key}", "", problem), as_what)
        for claim in world.claims_of(pod):
            if claim.class_name is None and not claim.volume_name and self._needed.storage_class(None) is None:
                problem = "is missing, and no StorageClass in objects is the default one"
                error = InputError(self._objects.names["claim", claim.key], "spec.storageClassName", problem)
                notes.pass_over(error, "which counts as nothing")
        for demand in demands:
            self._check_image(demand)
            self._check_topology(demand)
        return demands

    def _check_topology(self, demand: VolumeDemand) -> None:
        """Longhorn makes no volume that follows a label of the chosen node, if its setting does not allow the label."""
        label, follows = f"topology.kubernetes.io/{demand.follows}", demand.follows
        allowed = map(str.strip, self._document.remarked[TOPOLOGY_KEYS].split(","))
        if follows and label not in allowed and any(getattr(one, follows) for one in self._world.nodes.values()):
            problem = f"Longhorn makes no volume of its class while {TOPOLOGY_KEYS} lacks {label}"
            self._notes.remark(f"{self._objects.names['claim', demand.claim]}: {problem}")

    def _check_image(self, demand: VolumeDemand) -> None:
        """A backing image has to be there, or its class has to say how it is made: else Longhorn makes no volume on it
        (`checkAndPrepareBackingImage`)."""
        name = demand.needs.image.name if demand.needs.image is not None else ""
        if not name or demand.image is not None:
            return
        owner, field = self._objects.names.get(("volume", demand.volume), ""), "spec.backingImage"
        if not demand.exists:
            claim = self._world.claims[demand.claim]
            found = self._world.storage_class(claim.class_name)
            if found is None or found.parameters.get("backingImageDataSourceType") in MADE_IMAGES:
                copies = f"{IMAGE_COPIES}: {self._document.remarked[IMAGE_COPIES]}"
                problem = f"BackingImage {name} is made with its volume; the copies ({copies}) take no room here"
                self._notes.remark(f"{self._objects.names['claim', demand.claim]}: {problem}")
                return
            owner, field = self._objects.names["class", found.name], "parameters.backingImage"
        problem = f"there is no BackingImage {name} in objects"
        self._notes.pass_over(InputError(owner, field, problem), "which is taken for one without selectors")


def _sized(replica: Replica, volume: Volume) -> Replica:
    """Longhorn gives a replica its volume's size; a replica without a size that has to be placed is given it, too."""
    return replica if replica.size_bytes or replica.node else replace(replica, size_bytes=volume.size_bytes)


def _check_names(details: Raw, path: str, names: frozenset[str]) -> None:
    for name in sorted(details.keys() - names):
        raise MalformedRequestError(f"{path}.{name}", f"is not one of {', '.join(sorted(names))}")


def _required_text(details: Raw, path: str, name: str) -> str:
    value = text_at(details, path, name)
    if not value:
        raise MalformedRequestError(f"{path}.{name}", "is missing")
    return value


def _amount(details: Raw, path: str, name: str) -> int:
    """A size: a number of bytes, or a quantity such as `20Gi`."""
    value, field = details.get(name), f"{path}.{name}"
    if value is None:
        raise MalformedRequestError(field, "is missing")
    if isinstance(value, str) and value.startswith("+"):
        raise MalformedRequestError(field, f"has a sign, and is the whole size, not what is added: {shown(value)}")
    size = quantity_bytes(value, field) if isinstance(value, str) else integer_at(details, path, name)
    if isinstance(value, str) and size == MAX_BYTES:  # it is cut there
        raise MalformedRequestError(field, f"does not fit 64 bits: {shown(value)}")
    if size < 0:
        raise MalformedRequestError(field, f"is negative: {shown(value)}")
    return size
