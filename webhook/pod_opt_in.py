"""Does this pod qualify for the scheduler extender, and what is to be added to it?

A pod opts in by asking for the flag resource `longhorn.io/scheduler-extender: "1"`: kube-scheduler sends those pods
alone to the extender (`managedResources`). One container gets it, as request and limit, since Kubernetes wants both
equal for such resources. Sizes are never written into the pod: they are read when it is scheduled.

A claim counts unless it is certain that it is not Longhorn's: what cannot be found yet (a claim that is created after
its pod, a class that is not there) may become Longhorn's, and the extender lets a pod without Longhorn volumes through.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from controller.errors import MalformedRequestError
from controller.model import names
from controller.model.parse import opt_in_mark
from controller.model.reader import Raw, list_at, mapping_at, text_at
from controller.model.workload import Claim, PersistentVolume, StorageClass
from webhook.json_patch import Operation, plan_value, pointer

VIRT_LAUNCHER_LABEL: Final = "kubevirt.io"
VIRT_LAUNCHER: Final = "virt-launcher"
MIGRATION_LABEL: Final = "kubevirt.io/migrationJobUID"
_SHARED_MODES: Final = frozenset({"ReadWriteMany", "ReadOnlyMany"})


class Lookup(Protocol):
    """The webhook's stores; None: not there."""

    def claim(self, namespace: str, name: str) -> Claim | None: ...
    def known_claim(self, namespace: str, name: str) -> Claim | None:
        """The same, without a look at the cluster where the store has none."""
        ...

    def pv(self, name: str) -> PersistentVolume | None: ...
    def storage_class(self, name: str | None) -> StorageClass | None:
        """None: the default class."""
        ...

    def namespace_mark(self, name: str) -> str: ...


@dataclass(frozen=True, slots=True)
class Policy:
    """Which pods are looked at."""

    scheduler_names: frozenset[str] = frozenset({"default-scheduler"})
    excluded_namespaces: frozenset[str] = frozenset({"kube-system", "longhorn-system"})
    only_marked: bool = False  # pods without the mark `true`, their own or their namespace's, are left alone


@dataclass(frozen=True, slots=True)
class OptIn:
    """What is to be added to a pod. `skipped`: the reason code why nothing is, "" otherwise."""

    operations: tuple[Operation, ...] = ()
    warnings: tuple[str, ...] = ()
    skipped: str = ""


@dataclass(frozen=True, slots=True)
class _Volume:
    """One claim of the pod, as far as it is known. `is_longhorn` None: not found out."""

    claim: str
    is_longhorn: bool | None
    is_shared: bool
    storage_class: StorageClass | None
    missing: str = ""  # what is not found, for a person


def plan_opt_in(pod: Raw, namespace: str, lookup: Lookup, policy: Policy) -> OptIn:
    """MalformedRequestError for a pod that is none; the API server has checked nothing yet when it asks us."""
    meta, spec = mapping_at(pod, "", "metadata"), mapping_at(pod, "", "spec")
    skipped = _why_not(meta, spec, namespace, lookup, policy)
    if skipped:
        return OptIn(skipped=skipped)
    volumes = [_volume_of(entry, index, meta, namespace, lookup) for index, entry in enumerate(_entries(spec))]
    counted = [volume for volume in volumes if volume is not None and volume.is_longhorn is not False]
    if not counted:
        return OptIn(skipped="no-longhorn-claim")
    operations = [*_plan_resource(pod, spec), *_plan_co_schedule(pod, meta, counted)]
    warnings = tuple(dict.fromkeys(text for volume in counted for text in _warnings(volume)))
    return OptIn(tuple(operations), warnings, "" if operations else "asks-already")


def _why_not(meta: Raw, spec: Raw, namespace: str, lookup: Lookup, policy: Policy) -> str:
    if text_at(spec, "spec", "nodeName"):
        return "bound"
    if namespace in policy.excluded_namespaces:
        return "namespace"
    scheduler = text_at(spec, "spec", "schedulerName") or "default-scheduler"
    if scheduler not in policy.scheduler_names:
        return "scheduler"
    if not any(isinstance(entry, Mapping) and _names_a_claim(entry) for entry in list_at(spec, "spec", "volumes")):
        return "no-claim"
    mark = opt_in_mark(meta) or lookup.namespace_mark(namespace)  # the pod's own word stands before its namespace's
    if mark == "false":
        return "opted-out"
    return "not-marked" if policy.only_marked and mark != "true" else ""


def _names_a_claim(entry: Raw) -> bool:
    return bool(entry.get("persistentVolumeClaim") or entry.get("ephemeral"))


def _entries(spec: Raw) -> Sequence[Any]:
    return list_at(spec, "spec", "volumes")


def _volume_of(entry: Any, index: int, meta: Raw, namespace: str, lookup: Lookup) -> _Volume | None:
    path = f"spec.volumes[{index}]"
    if not isinstance(entry, Mapping):
        raise MalformedRequestError(path, "is not an object")
    if entry.get("ephemeral"):
        return _ephemeral(entry, path, meta, namespace, lookup)
    source = mapping_at(entry, path, "persistentVolumeClaim")
    if not source:
        return None
    name = text_at(source, f"{path}.persistentVolumeClaim", "claimName")
    claim = lookup.claim(namespace, name)
    return _Volume(name, None, False, None, "it") if claim is None else _claimed(claim, lookup)


def _claimed(claim: Claim, lookup: Lookup) -> _Volume:
    storage_class = lookup.storage_class(claim.class_name) if claim.class_name != "" else None
    if claim.volume_name:
        pv = lookup.pv(claim.volume_name)
        if pv is None:
            return _Volume(claim.name, None, claim.is_shared, storage_class, "its volume")
        return _Volume(claim.name, pv.driver in names.LONGHORN_DRIVERS, claim.is_shared, storage_class)
    if claim.class_name == "":
        return _Volume(claim.name, None, claim.is_shared, None)  # waits for a volume made by hand, of whatever driver
    return _of_class(claim.name, claim.class_name, claim.is_shared, storage_class)


def _of_class(claim: str, class_name: str | None, is_shared: bool, storage_class: StorageClass | None) -> _Volume:
    if storage_class is None:
        missing = "a default StorageClass" if class_name is None else f"StorageClass {class_name}"
        return _Volume(claim, None, is_shared, None, missing)
    return _Volume(claim, storage_class.provisioner == names.LONGHORN_DRIVER, is_shared, storage_class)


def _ephemeral(entry: Raw, path: str, meta: Raw, namespace: str, lookup: Lookup) -> _Volume:
    """A claim named `<pod>-<volume>`, which is made after the pod, from its template: so that is what tells."""
    pod_name = text_at(meta, "metadata", "name")  # "" where the API server has not made it up yet
    name = f"{pod_name}-{text_at(entry, path, 'name')}"
    claim = lookup.known_claim(namespace, name) if pod_name else None
    if claim is not None:
        return _claimed(claim, lookup)
    template = mapping_at(entry, path, "ephemeral", "volumeClaimTemplate", "spec")
    field = f"{path}.ephemeral.volumeClaimTemplate.spec"
    class_name = text_at(template, field, "storageClassName") if template.get("storageClassName") is not None else None
    is_shared = not _SHARED_MODES.isdisjoint(map(str, list_at(template, field, "accessModes")))
    if class_name == "":
        return _Volume(name, None, is_shared, None)
    return _of_class(name, class_name, is_shared, lookup.storage_class(class_name))


def _plan_resource(pod: Raw, spec: Raw) -> list[Operation]:
    """The flag resource on one container, unless some container asks for it already."""
    containers = _containers(spec, "containers")
    if not containers:
        raise MalformedRequestError("spec.containers", "is empty")
    every = [*containers, *_containers(spec, "initContainers")]
    if any(names.EXTENDER_RESOURCE in amounts for container in every for amounts in _amounts(container)):
        return []
    chosen = next((index for index, container in enumerate(containers) if _has_limits(container)), 0)
    steps = ("spec", "containers", chosen, "resources")
    wanted = {names.EXTENDER_RESOURCE: "1"}
    if containers[chosen].get("resources") is None:
        return [Operation(pointer(*steps), {"limits": wanted, "requests": wanted})]
    return [
        operation
        for part in ("limits", "requests")
        for operation in plan_value(pod, (*steps, part, names.EXTENDER_RESOURCE), "1")
    ]


def _containers(spec: Raw, kind: str) -> list[Raw]:
    found = list_at(spec, "spec", kind)
    for index, container in enumerate(found):
        if not isinstance(container, Mapping):
            raise MalformedRequestError(f"spec.{kind}[{index}]", "is not an object")
    return list(found)


def _amounts(container: Raw) -> list[Raw]:
    return [mapping_at(container, "container", "resources", part) for part in ("limits", "requests")]


def _has_limits(container: Raw) -> bool:
    return bool(mapping_at(container, "container", "resources", "limits"))


def _plan_co_schedule(pod: Raw, meta: Raw, volumes: Sequence[_Volume]) -> list[Operation]:
    """KubeVirt's launcher pods with a shared volume of Longhorn's run beside its share-manager. Migration targets,
    which must leave their node, do not."""
    labels = mapping_at(meta, "metadata", "labels")
    if labels.get(VIRT_LAUNCHER_LABEL) != VIRT_LAUNCHER or labels.get(MIGRATION_LABEL):
        return []
    if not any(volume.is_shared and volume.is_longhorn for volume in volumes):
        return []
    if names.CO_SCHEDULE_ANNOTATION in mapping_at(meta, "metadata", "annotations"):
        return []  # what the user says stands
    return plan_value(pod, ("metadata", "annotations", names.CO_SCHEDULE_ANNOTATION), "true")


def _warnings(volume: _Volume) -> list[str]:
    if volume.missing:
        what = f"claim {volume.claim}: {volume.missing} was not found yet"
        return [f"Longhorn scheduler extender: {what}; the pod is opted in, in case that it becomes Longhorn's"]
    parameters = volume.storage_class.parameters if volume.storage_class is not None and volume.is_longhorn else {}
    if (
        volume.is_shared
        and parameters.get("dataLocality") == "strict-local"
        and parameters.get("migratable", "false").lower() not in ("true", "1", "t")
    ):
        return [f"claim {volume.claim}: Longhorn refuses strict-local data locality where several nodes mount a volume"]
    return []
