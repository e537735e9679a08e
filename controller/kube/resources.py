"""The kinds of objects that the product reads and writes, and their paths."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from urllib.parse import quote

from controller.model.names import (
    ALLOCATION_GROUP,
    ALLOCATION_VERSION,
    FORMER_MUTATING_CONFIGURATIONS,
    LONGHORN_GROUP,
    LONGHORN_VERSION,
    MUTATING_CONFIGURATION,
    VALIDATING_CONFIGURATION,
)


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind of objects; `group` is "" for the core group."""

    group: str
    version: str
    plural: str
    kind: str
    is_namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def typed(self, raw: Mapping[str, Any]) -> dict[str, Any]:
        """The object with its version and kind, which lists leave out."""
        return {**raw, "apiVersion": self.api_version, "kind": self.kind}

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str = "") -> str:
        """The URL path of a collection or an object; without a namespace, the collection of all namespaces."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        parts = [root]
        if self.is_namespaced and namespace:
            parts.append(f"namespaces/{quote(namespace, safe='')}")
        parts.append(self.plural)
        if name:
            parts.append(quote(name, safe=""))
        if subresource:
            parts.append(subresource)
        return "/".join(parts)


PODS: Final = Resource("", "v1", "pods", "Pod")
NODES: Final = Resource("", "v1", "nodes", "Node", is_namespaced=False)
CLAIMS: Final = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
VOLUMES: Final = Resource("", "v1", "persistentvolumes", "PersistentVolume", is_namespaced=False)
CONFIG_MAPS: Final = Resource("", "v1", "configmaps", "ConfigMap")
EVENTS: Final = Resource("", "v1", "events", "Event")
NAMESPACES: Final = Resource("", "v1", "namespaces", "Namespace", is_namespaced=False)
SECRETS: Final = Resource("", "v1", "secrets", "Secret")
SERVICES: Final = Resource("", "v1", "services", "Service")
SERVICE_ACCOUNTS: Final = Resource("", "v1", "serviceaccounts", "ServiceAccount")
SELF_REVIEWS: Final = Resource(
    "authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", is_namespaced=False
)
TOKEN_REVIEWS: Final = Resource("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", is_namespaced=False)
ACCESS_REVIEWS: Final = Resource(
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", is_namespaced=False
)
STORAGE_CLASSES: Final = Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass", is_namespaced=False)
CRDS: Final = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", is_namespaced=False
)
DEPLOYMENTS: Final = Resource("apps", "v1", "deployments", "Deployment")
CSI_DRIVERS: Final = Resource("storage.k8s.io", "v1", "csidrivers", "CSIDriver", is_namespaced=False)
CSI_CAPACITIES: Final = Resource("storage.k8s.io", "v1", "csistoragecapacities", "CSIStorageCapacity")
LEASES: Final = Resource("coordination.k8s.io", "v1", "leases", "Lease")
_admission: Final = partial(Resource, "admissionregistration.k8s.io", "v1", is_namespaced=False)
MUTATING_WEBHOOKS: Final = _admission("mutatingwebhookconfigurations", "MutatingWebhookConfiguration")
VALIDATING_WEBHOOKS: Final = _admission("validatingwebhookconfigurations", "ValidatingWebhookConfiguration")
POLICIES: Final = _admission("validatingadmissionpolicies", "ValidatingAdmissionPolicy")
POLICY_BINDINGS: Final = _admission("validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding")
OUR_CONFIGURATIONS: Final[Mapping[Resource, str]] = {
    MUTATING_WEBHOOKS: MUTATING_CONFIGURATION,
    VALIDATING_WEBHOOKS: VALIDATING_CONFIGURATION,
}
"""The two kinds of webhook configurations, and what ours of that kind is called."""
FORMER_CONFIGURATIONS: Final[Mapping[Resource, tuple[str, ...]]] = {
    MUTATING_WEBHOOKS: FORMER_MUTATING_CONFIGURATIONS,
    VALIDATING_WEBHOOKS: (),
}
"""What earlier releases called them, and made themselves; those are deleted."""
ENDPOINT_SLICES: Final = Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
_longhorn: Final = partial(Resource, LONGHORN_GROUP, LONGHORN_VERSION)
LONGHORN_NODES: Final = _longhorn("nodes", "Node")
LONGHORN_VOLUMES: Final = _longhorn("volumes", "Volume")
LONGHORN_REPLICAS: Final = _longhorn("replicas", "Replica")
LONGHORN_ATTACHMENTS: Final = _longhorn("volumeattachments", "VolumeAttachment")
LONGHORN_SETTINGS: Final = _longhorn("settings", "Setting")
LONGHORN_BACKING_IMAGES: Final = _longhorn("backingimages", "BackingImage")
LONGHORN_BACKUPS: Final = _longhorn("backups", "Backup")
LONGHORN_ENGINE_IMAGES: Final = _longhorn("engineimages", "EngineImage")
LONGHORN_INSTANCE_MANAGERS: Final = _longhorn("instancemanagers", "InstanceManager")
NODE_DISK_ALLOCATIONS: Final = Resource(
    ALLOCATION_GROUP, ALLOCATION_VERSION, "nodediskallocations", "NodeDiskAllocation"
)


def pointer(*steps: str | int) -> str:
    """Where a JSON patch changes something (RFC 6901): the pointer of those keys and indices."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in steps)
