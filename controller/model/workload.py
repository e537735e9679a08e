"""Facts about Kubernetes' own objects: pods, claims, volumes, classes, nodes. Sizes are bytes, times RFC3339 text in
UTC."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


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
    def is_pending(self) -> bool:
        return not self.node_name and not self.is_finished and not self.is_deleting

    @property
    def is_over(self) -> bool:
        """Whether it needs its volumes no more: it has finished, or goes without having been bound."""
        return self.is_finished or (self.is_deleting and not self.node_name)


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

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


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


@dataclass(frozen=True, slots=True)
class StorageClass:
    name: str
    provisioner: str
    parameters: Mapping[str, str]
    is_default: bool
    created_utc: str


def default_class(classes: Iterable[StorageClass]) -> StorageClass | None:
    """The class of claims that name none: of several defaults the newest one, as Kubernetes has it."""
    defaults = (entry for entry in classes if entry.is_default)
    return max(defaults, key=lambda entry: (entry.created_utc, entry.name), default=None)


@dataclass(frozen=True, slots=True)
class Namespace:
    """A namespace, as far as opting in goes."""

    name: str
    opt_in_mark: str  # "true", "false", another word, or "" without one


@dataclass(frozen=True, slots=True)
class KubeNode:
    """A Kubernetes node, as far as its existence and cordon matter."""

    name: str
    unschedulable: bool
    disables_v2: bool = False  # label node.longhorn.io/disable-v2-data-engine=true
