"""Whether a pod opts in to the scheduler extender, and what is added to it for that.

A pod opts in by requesting the flag resource `longhorn.io/scheduler-extender: "1"`: kube-scheduler sends only such pods
to the extender (`managedResources`). One container gets it, as request and limit, since Kubernetes wants both equal for
such resources. Sizes are never written into the pod: they are read when it is scheduled.

A claim counts unless it is certain that it is not Longhorn's: what cannot be found yet (a claim that is created after
its pod, a class that is not there) may become Longhorn's, and the extender lets a pod without Longhorn volumes through.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from controller.clock import Clock
from controller.errors import MalformedRequestError
from controller.kube.resources import pointer
from controller.log_line import say
from controller.model import names
from controller.model.reader import Raw, list_at, mapping_at, text_at
from controller.model.workload import Claim, StorageClass, opt_in_mark
from controller.rules.locality import locality_named
from controller.rules.opt_in import OptInPolicy, uses_longhorn
from webhook.metrics import WebhookMetrics
from webhook.review import Operation, Review, encode_admitted_unchanged, encode_allowed, plan_value
from webhook.stores import Read, RequestLookup, WebhookStores

LIVE_SECONDS: Final = 0.5  # for all live reads of one pod; the API server waits 3 s for us
VIRT_LAUNCHER_LABEL: Final = "kubevirt.io"
VIRT_LAUNCHER: Final = "virt-launcher"
_SHARED_MODES: Final = frozenset({"ReadWriteMany", "ReadOnlyMany"})

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PodService:
    """Reviews of pods that are being created.

    Threads: any. Blocks: for LIVE_SECONDS, where the stores lack an object. I/O: those reads.
    """

    stores: WebhookStores
    read: Read
    clock: Clock
    policy: Callable[[], OptInPolicy]
    observer: WebhookMetrics

    def review(self, review: Review) -> bytes:
        """The answer. Anything but the creation of a pod is allowed unchanged; the configuration does not ask for
        it."""
        if not review.is_new_pod:
            self.observer.pod_reviewed("not-asked-for")
            return encode_allowed(review.uid)
        lookup = RequestLookup(self.stores, self.read, self.clock, LIVE_SECONDS)
        opt_in = plan_opt_in(review.object, review.namespace, lookup, self.policy())
        outcome = opt_in.skipped or "opted-in"
        self.observer.pod_reviewed(outcome)
        what = {"namespace": review.namespace, "pod": review.name or "(not named yet)", "uid": review.uid}
        say(log, "review", logging.DEBUG, **what, decision=outcome, reads=lookup.reads)
        return encode_allowed(review.uid, opt_in.operations, opt_in.warnings)

    def failed(self, review: Review) -> bytes:
        return encode_admitted_unchanged(review.uid)


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


def plan_opt_in(pod: Raw, namespace: str, lookup: RequestLookup, policy: OptInPolicy) -> OptIn:
    """What to add to the pod, or why nothing. Raises MalformedRequestError: the API server has not validated it yet."""
    meta, spec = mapping_at(pod, "", "metadata"), mapping_at(pod, "", "spec")
    entries = list_at(spec, "spec", "volumes")
    skipped = _why_not(meta, spec, entries, namespace, lookup, policy)
    if skipped:
        return OptIn(skipped=skipped)
    volumes = [_volume_of(entry, index, meta, namespace, lookup) for index, entry in enumerate(entries)]
    counted = [volume for volume in volumes if volume is not None and volume.is_longhorn is not False]
    if not counted:
        return OptIn(skipped="no-longhorn-claim")
    operations = [*_plan_resource(pod, spec), *_plan_co_schedule(pod, meta, counted)]
    warnings = tuple(dict.fromkeys(text for volume in counted for text in _warnings(volume)))
    return OptIn(tuple(operations), warnings, "" if operations else "asks-already")


def _why_not(
    meta: Raw, spec: Raw, entries: Sequence[Any], namespace: str, lookup: RequestLookup, policy: OptInPolicy
) -> str:
    """Why the pod is left alone, by its reason code; "" if its claims decide."""
    if text_at(spec, "spec", "nodeName"):
        return "bound"
    left_alone = policy.leaves_alone(namespace, text_at(spec, "spec", "schedulerName"))
    if left_alone:
        return left_alone
    sources = [entry for entry in entries if isinstance(entry, Mapping)]
    if not any(entry.get("persistentVolumeClaim") or entry.get("ephemeral") for entry in sources):
        return "no-claim"
    # The pod's own mark takes precedence over its namespace's.
    return policy.refuses(opt_in_mark(meta) or lookup.namespace_mark(namespace))


def _volume_of(entry: Any, index: int, meta: Raw, namespace: str, lookup: RequestLookup) -> _Volume | None:
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


def _claimed(claim: Claim, lookup: RequestLookup) -> _Volume:
    storage_class = lookup.storage_class(claim.class_name) if claim.class_name != "" else None
    pv = lookup.pv(claim.volume_name) if claim.volume_name else None
    if claim.volume_name:
        missing = "its volume" if pv is None else ""
    else:
        missing = _missing_class(claim.class_name) if claim.class_name != "" and storage_class is None else ""
    return _Volume(claim.name, uses_longhorn(claim, pv, storage_class), claim.is_shared, storage_class, missing)


def _missing_class(name: str | None) -> str:
    return "a default StorageClass" if name is None else f"StorageClass {name}"


def _ephemeral(entry: Raw, path: str, meta: Raw, namespace: str, lookup: RequestLookup) -> _Volume:
    """The claim of an ephemeral volume: named `<pod>-<volume>`, and made after the pod from its template, which decides
    until then."""
    pod_name = text_at(meta, "metadata", "name")  # "" where the API server has not made it up yet
    name = f"{pod_name}-{text_at(entry, path, 'name')}"
    claim = lookup.known_claim(namespace, name) if pod_name else None
    if claim is not None:
        return _claimed(claim, lookup)
    template = mapping_at(entry, path, "ephemeral", "volumeClaimTemplate", "spec")
    field = f"{path}.ephemeral.volumeClaimTemplate.spec"
    class_name = text_at(template, field, "storageClassName") if template.get("storageClassName") is not None else None
    is_shared = not _SHARED_MODES.isdisjoint(map(str, list_at(template, field, "accessModes")))
    storage_class = lookup.storage_class(class_name) if class_name != "" else None
    is_longhorn = None if storage_class is None else storage_class.provisioner == names.LONGHORN_DRIVER
    missing = _missing_class(class_name) if class_name != "" and storage_class is None else ""
    return _Volume(name, is_longhorn, is_shared, storage_class, missing)


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
    if labels.get(VIRT_LAUNCHER_LABEL) != VIRT_LAUNCHER or labels.get(names.MIGRATION_LABEL):
        return []
    if not any(volume.is_shared and volume.is_longhorn for volume in volumes):
        return []
    if names.CO_SCHEDULE_ANNOTATION in mapping_at(meta, "metadata", "annotations"):
        return []  # what the user set is kept
    return plan_value(pod, ("metadata", "annotations", names.CO_SCHEDULE_ANNOTATION), "true")


def _warnings(volume: _Volume) -> list[str]:
    if volume.missing:
        what = f"claim {volume.claim}: {volume.missing} was not found yet"
        return [f"Longhorn scheduler extender: {what}; the pod is opted in, in case it will be Longhorn's"]
    parameters = volume.storage_class.parameters if volume.storage_class is not None and volume.is_longhorn else {}
    locality = parameters.get("dataLocality", "")
    if (
        volume.is_shared
        and not locality_named(locality).is_shareable
        and parameters.get("migratable", "false").lower() not in ("true", "1", "t")
    ):
        return [f"claim {volume.claim}: Longhorn refuses {locality} data locality for volumes that nodes share"]
    return []
