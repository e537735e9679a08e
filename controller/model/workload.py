"""Facts about Kubernetes' own objects, each with the reader of its raw JSON. Sizes are bytes, times RFC3339 text.

A reader raises MalformedRequestError, which names the field, for a value of the wrong type or size. What is missing has
the API's own default.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from controller.model.names import (
    CLASS_BETA_ANNOTATION,
    CO_SCHEDULE_ANNOTATION,
    COMPONENT_LABEL,
    DEFAULT_CLASS_ANNOTATION,
    DEFAULT_CLASS_BETA_ANNOTATION,
    DISABLE_V2_LABEL,
    EXTENDER_RESOURCE,
    MIGRATION_LABEL,
    OPT_IN_MARK,
    SELECTED_NODE_ANNOTATION,
    SHARE_MANAGER,
    SHARED_VOLUME_LABEL,
)
from controller.model.quantity import quantity_bytes
from controller.model.reader import (
    Raw,
    flag_at,
    integer_at,
    list_at,
    mapping_at,
    text_at,
    texts_at,
    version_of,
    why_false_at,
)

_SHARED_MODES: Final = frozenset({"ReadWriteMany", "ReadOnlyMany"})
DEFAULT_FORM: Final = ("Filesystem", "")
FINISHED: Final = frozenset({"Succeeded", "Failed"})  # phases of pods
# The message of kube-scheduler's plugin NodeResourcesFit about a resource that no node offers: the resource itself, not
# one with a longer name.
_LACKS: Final = re.compile(rf"Insufficient {re.escape(EXTENDER_RESOURCE)}(?![-\w/])(?!\.\w)")
_SCHEDULED: Final = "PodScheduled"  # a pod's condition, which kube-scheduler writes
_NOT_TRIED: Final = frozenset({"SchedulingGated"})  # its reasons with which kube-scheduler has not looked at the pod


@dataclass(frozen=True, slots=True)
class PodVolume:
    """One entry of `spec.volumes` that names a claim; an ephemeral volume's claim is `<pod>-<volume>`."""

    name: str
    claim: str  # the claim's name in the pod's namespace
    is_ephemeral: bool = False


@dataclass(frozen=True, slots=True)
class PodOwner:
    """What controls a pod, such as a StatefulSet, in the pod's namespace."""

    api_version: str
    kind: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod with at least one claim, one that asks for the extender's resource, or a share-manager of Longhorn's."""

    uid: str
    namespace: str
    name: str
    created_utc: str
    priority: int
    is_opted_in: bool  # asks for longhorn.io/scheduler-extender
    node_name: str  # spec.nodeName, "" while unbound
    nominated_node: str  # status.nominatedNodeName
    is_finished: bool  # Succeeded or Failed
    is_deleting: bool
    volumes: tuple[PodVolume, ...]
    version: int = field(default=0, compare=False)  # resourceVersion; a heartbeat is no change
    scheduler_name: str = ""
    lacks_extender: bool = False  # kube-scheduler looked for the extender's resource on nodes, and found none
    is_gated: bool = False  # spec.schedulingGates: no scheduler asks about it yet
    unschedulable_since_utc: str = ""  # since when kube-scheduler has found no node for it; "" while it has not tried
    shares_volume: str = ""  # of a share-manager pod: the volume that it serves
    follows_shares: bool = False  # is to run where its shared volumes are served
    # Of pods that do not ask for the extender:
    opt_in_mark: str = ""  # "true", "false", another word, or "" without one
    owner: PodOwner | None = None

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def claim_keys(self) -> tuple[str, ...]:
        """The keys of the claims that it names."""
        return tuple(f"{self.namespace}/{volume.claim}" for volume in self.volumes)

    @property
    def is_pending(self) -> bool:
        return not self.node_name and not self.is_finished and not self.is_deleting

    @property
    def is_over(self) -> bool:
        """Whether it needs its volumes no more: it has finished, or goes without having been bound."""
        return self.is_finished or (self.is_deleting and not self.node_name)


def pod_facts(raw: Raw) -> Pod:
    meta = mapping_at(raw, "", "metadata")
    spec = mapping_at(raw, "", "spec")
    status = mapping_at(raw, "", "status")
    name = text_at(meta, "metadata", "name")
    is_opted_in = _asks_for_extender(spec)
    return Pod(
        uid=text_at(meta, "metadata", "uid"),
        namespace=text_at(meta, "metadata", "namespace"),
        name=name,
        created_utc=text_at(meta, "metadata", "creationTimestamp"),
        priority=integer_at(spec, "spec", "priority"),
        is_opted_in=is_opted_in,
        node_name=text_at(spec, "spec", "nodeName"),
        nominated_node=text_at(status, "status", "nominatedNodeName"),
        is_finished=text_at(status, "status", "phase") in FINISHED,
        is_deleting=meta.get("deletionTimestamp") is not None,
        volumes=_claims_of_pod(spec, name),
        version=version_of(meta),
        scheduler_name=text_at(spec, "spec", "schedulerName"),
        lacks_extender=is_opted_in and bool(_LACKS.search(why_false_at(status, "status", _SCHEDULED, "message"))),
        is_gated=bool(spec.get("schedulingGates")),
        unschedulable_since_utc=_unschedulable_since(status) if is_opted_in else "",
        shares_volume=_volume_served(meta),
        follows_shares=_follows_shares(meta),
        opt_in_mark="" if is_opted_in else opt_in_mark(meta),
        owner=None if is_opted_in else owner_of(meta),
    )


def _volume_served(meta: Raw) -> str:
    labels = mapping_at(meta, "metadata", "labels")
    if labels.get(COMPONENT_LABEL) != SHARE_MANAGER:
        return ""
    return text_at(labels, "metadata.labels", SHARED_VOLUME_LABEL)


def _follows_shares(meta: Raw) -> bool:
    """Asked for by annotation, except of a pod that a virtual machine migrates to."""
    if mapping_at(meta, "metadata", "annotations").get(CO_SCHEDULE_ANNOTATION) != "true":
        return False
    return not mapping_at(meta, "metadata", "labels").get(MIGRATION_LABEL)


def owner_of(meta: Raw) -> PodOwner | None:
    """What controls the object."""
    for owner in list_at(meta, "metadata", "ownerReferences"):
        if isinstance(owner, Mapping) and owner.get("controller"):
            return PodOwner(*(str(owner.get(name, "")) for name in ("apiVersion", "kind", "name", "uid")))
    return None


def _unschedulable_since(status: Raw) -> str:
    """Since when kube-scheduler has found no node. The time that a pod spent behind a gate counts from its first
    attempt on, since the condition was False all the while (Kubernetes' `UpdatePodCondition`)."""
    if why_false_at(status, "status", _SCHEDULED, "reason") in _NOT_TRIED:
        return ""
    return why_false_at(status, "status", _SCHEDULED, "lastTransitionTime")


def _asks_for_extender(spec: Raw) -> bool:
    """Whether any container names the resource in requests or limits, as kube-scheduler's `IsInterested` looks."""
    for group in ("containers", "initContainers"):
        for index, container in enumerate(list_at(spec, "spec", group)):
            path = f"spec.{group}[{index}]"
            for kind in ("requests", "limits"):
                if EXTENDER_RESOURCE in mapping_at(container, path, "resources", kind):
                    return True
    return False


def _claims_of_pod(spec: Raw, pod_name: str) -> tuple[PodVolume, ...]:
    """The claims of its volumes, each once: several volumes may name the same one."""
    found = dict[tuple[str, bool], PodVolume]()
    for index, volume in enumerate(list_at(spec, "spec", "volumes")):
        path = f"spec.volumes[{index}]"
        name = text_at(mapping_at(volume, path), path, "name")
        if volume.get("persistentVolumeClaim") is not None:
            source = mapping_at(volume, path, "persistentVolumeClaim")
            claim, is_ephemeral = text_at(source, f"{path}.persistentVolumeClaim", "claimName"), False
        elif volume.get("ephemeral") is not None:
            claim, is_ephemeral = f"{pod_name}-{name}", True
        else:
            continue
        found.setdefault((claim, is_ephemeral), PodVolume(name, claim, is_ephemeral))
    return tuple(found.values())


@dataclass(frozen=True, slots=True)
class Claim:
    """A PersistentVolumeClaim. Bound is judged by `volume_name`: the phase is empty for an instant after creation."""

    uid: str
    namespace: str
    name: str
    class_name: str | None  # None: not given, so the default class; "": no class, static binding
    volume_name: str
    requested_bytes: int
    selected_node: str
    is_shared: bool  # an access mode of several nodes
    is_deleting: bool
    owner_pod_uid: str  # the pod that owns a generic ephemeral claim, "" otherwise
    data_source: str  # "<kind>/<name>" of spec.dataSourceRef or spec.dataSource, "" without
    version: int = field(default=0, compare=False)  # resourceVersion; a heartbeat is no change
    modes: frozenset[str] = frozenset()  # spec.accessModes
    form: tuple[str, str] = DEFAULT_FORM
    has_selector: bool = False  # an empty one, too

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


def claim_facts(raw: Raw) -> Claim:
    meta = mapping_at(raw, "", "metadata")
    spec = mapping_at(raw, "", "spec")
    annotations = mapping_at(meta, "metadata", "annotations")
    requests = mapping_at(spec, "spec", "resources", "requests")
    size = requests.get("storage", 0)
    modes = frozenset(texts_at(spec, "spec", "accessModes"))
    return Claim(
        uid=text_at(meta, "metadata", "uid"),
        namespace=text_at(meta, "metadata", "namespace"),
        name=text_at(meta, "metadata", "name"),
        class_name=_class_name(spec, annotations),
        volume_name=text_at(spec, "spec", "volumeName"),
        requested_bytes=max(0, quantity_bytes(size, "spec.resources.requests.storage")),
        selected_node=text_at(annotations, "metadata.annotations", SELECTED_NODE_ANNOTATION),
        is_shared=not _SHARED_MODES.isdisjoint(modes),
        is_deleting=meta.get("deletionTimestamp") is not None,
        owner_pod_uid=_owner_pod(meta),
        data_source=_data_source(spec),
        version=version_of(meta),
        modes=modes,
        form=_form(spec),
        has_selector=spec.get("selector") is not None,
    )


def _class_name(spec: Raw, annotations: Raw) -> str | None:
    old_form = annotations.get(CLASS_BETA_ANNOTATION)
    if isinstance(old_form, str):
        return old_form
    return text_at(spec, "spec", "storageClassName") if spec.get("storageClassName") is not None else None


def _form(spec: Raw) -> tuple[str, str]:
    """The volume mode and the VolumeAttributesClass, in which a claim and its volume have to agree."""
    return text_at(spec, "spec", "volumeMode") or "Filesystem", text_at(spec, "spec", "volumeAttributesClassName")


def _owner_pod(meta: Raw) -> str:
    owner = owner_of(meta)
    return owner.uid if owner is not None and owner.kind == "Pod" else ""


def _data_source(spec: Raw) -> str:
    for name in ("dataSourceRef", "dataSource"):
        source = mapping_at(spec, "spec", name)
        if source:
            return f"{source.get('kind', '')}/{source.get('name', '')}"
    return ""


@dataclass(frozen=True, slots=True)
class PersistentVolume:
    name: str
    driver: str  # "" when it is not a CSI volume
    handle: str
    claim_uid: str
    claim_key: str
    capacity_bytes: int
    created_utc: str
    version: int = field(default=0, compare=False)  # resourceVersion; a heartbeat is no change
    class_name: str = ""
    modes: frozenset[str] = frozenset()  # spec.accessModes
    form: tuple[str, str] = DEFAULT_FORM
    is_spare: bool = False  # Available: a claim may be bound to it, or is just being bound


def pv_facts(raw: Raw) -> PersistentVolume:
    meta = mapping_at(raw, "", "metadata")
    spec = mapping_at(raw, "", "spec")
    csi = mapping_at(spec, "spec", "csi")
    ref = mapping_at(spec, "spec", "claimRef")
    status = mapping_at(raw, "", "status")
    capacity = mapping_at(spec, "spec", "capacity").get("storage", 0)
    return PersistentVolume(
        name=text_at(meta, "metadata", "name"),
        driver=text_at(csi, "spec.csi", "driver"),
        handle=text_at(csi, "spec.csi", "volumeHandle"),
        claim_uid=text_at(ref, "spec.claimRef", "uid"),
        claim_key=f"{text_at(ref, 'spec.claimRef', 'namespace')}/{text_at(ref, 'spec.claimRef', 'name')}"
        if ref
        else "",
        capacity_bytes=max(0, quantity_bytes(capacity, "spec.capacity.storage")),
        created_utc=text_at(meta, "metadata", "creationTimestamp"),
        version=version_of(meta),
        class_name=_class_name(spec, mapping_at(meta, "metadata", "annotations")) or "",
        modes=frozenset(texts_at(spec, "spec", "accessModes")),
        form=_form(spec),
        is_spare=status.get("phase") == "Available" and meta.get("deletionTimestamp") is None,
    )


@dataclass(frozen=True, slots=True)
class StorageClass:
    name: str
    provisioner: str
    parameters: Mapping[str, str]
    is_default: bool
    created_utc: str
    allows_growth: bool = True


def class_facts(raw: Raw) -> StorageClass:
    meta = mapping_at(raw, "", "metadata")
    annotations = mapping_at(meta, "metadata", "annotations")
    parameters = mapping_at(raw, "", "parameters")
    return StorageClass(
        name=text_at(meta, "metadata", "name"),
        provisioner=text_at(raw, "", "provisioner"),
        parameters={key: text_at(parameters, "parameters", key) for key in parameters},
        is_default="true"
        in (annotations.get(DEFAULT_CLASS_ANNOTATION), annotations.get(DEFAULT_CLASS_BETA_ANNOTATION)),
        created_utc=text_at(meta, "metadata", "creationTimestamp"),
        allows_growth=flag_at(raw, "", "allowVolumeExpansion"),
    )


def default_class(classes: Iterable[StorageClass]) -> StorageClass | None:
    """The class of claims that name none: of several defaults the newest one, as Kubernetes has it."""
    defaults = (entry for entry in classes if entry.is_default)
    return max(defaults, key=lambda entry: (entry.created_utc, entry.name), default=None)


@dataclass(frozen=True, slots=True)
class Namespace:
    """A namespace, as far as opting in goes."""

    name: str
    opt_in_mark: str  # "true", "false", another word, or "" without one


def namespace_facts(raw: Raw) -> Namespace:
    meta = mapping_at(raw, "", "metadata")
    label = mapping_at(meta, "metadata", "labels").get(OPT_IN_MARK)
    # Of such a label the API server keeps the pods away from the webhook, whatever an annotation says.
    is_kept_out = label is not None and str(label).lower() == "false"
    return Namespace(text_at(meta, "metadata", "name"), "false" if is_kept_out else opt_in_mark(meta))


def opt_in_mark(meta: Raw) -> str:
    """What the annotation, or else the label, says of opting in, in lower case; "" without one."""
    for place in ("annotations", "labels"):
        value = mapping_at(meta, "metadata", place).get(OPT_IN_MARK)
        if value is not None:
            return str(value).lower()
    return ""


@dataclass(frozen=True, slots=True)
class KubeNode:
    """A Kubernetes node, as far as its existence and cordon matter."""

    name: str
    unschedulable: bool
    disables_v2: bool = False  # label node.longhorn.io/disable-v2-data-engine=true


def kube_node_facts(raw: Raw) -> KubeNode:
    meta = mapping_at(raw, "", "metadata")
    spec = mapping_at(raw, "", "spec")
    return KubeNode(
        name=text_at(meta, "metadata", "name"),
        unschedulable=flag_at(spec, "spec", "unschedulable"),
        disables_v2=mapping_at(meta, "metadata", "labels").get(DISABLE_V2_LABEL) == "true",
    )


@dataclass(frozen=True, slots=True)
class ConfigMapFacts:
    uid: str
    data: Mapping[str, str]


def config_map_named(name: str) -> Callable[[Raw], ConfigMapFacts | None]:
    """Reads the ConfigMap of that name; None for any other, which is not kept."""

    def facts(raw: Raw) -> ConfigMapFacts | None:
        meta = mapping_at(raw, "", "metadata")
        if text_at(meta, "metadata", "name") != name:
            return None
        found = mapping_at(raw, "", "data")
        return ConfigMapFacts(text_at(meta, "metadata", "uid"), {key: text_at(found, "data", key) for key in found})

    return facts


def data_of(config_maps: Iterable[ConfigMapFacts]) -> Mapping[str, str] | None:
    """The data of the one ConfigMap; None if it does not exist or cannot be read."""
    return next((found.data for found in config_maps), None)
